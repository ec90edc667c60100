//! The checked configuration: if a [`Config`] exists, every value is in its range and no values
//! contradict each other.

use std::path::Path;

use rpcrdma_xdr::RecvStructure;

use crate::error::ConfigError;
use crate::profile;
use crate::raw::Raw;
use crate::section::{
    AppSection, ConnectionsSection, EngineSection, ExplicitSection, FabricSection, FeaturesSection,
    InteropSection, MemorySection, ProtocolSection, ReceiveSection, SendSection, ShmSection,
    StatsSection, TcpSection, VerbsSection,
};
use crate::sums;
use crate::tree;

/// Declares the configuration, with an accessor of each section.
macro_rules! sections {
    ($($(#[$doc:meta])* $name:ident: $section:ident;)*) => {
        /// A checked configuration. Made only by checking a [`Raw`]; it is immutable.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Config {
            $($name: $section,)*
            structure: RecvStructure,
            raw: Raw,
        }

        impl Config {
            $($(#[$doc])* pub fn $name(&self) -> &$section {
                &self.$name
            })*
        }
    };
}

sections! {
    /// Threads and the device they poll.
    engine: EngineSection;
    /// How memory is allocated.
    memory: MemorySection;
    /// Receive buffers.
    receive: ReceiveSection;
    /// Send slots.
    send: SendSection;
    /// Limits of and per connection.
    connections: ConnectionsSection;
    /// Parts of the protocol that can be switched off.
    features: FeaturesSection;
    /// The version of the protocol.
    protocol: ProtocolSection;
    /// Explicit RDMA: data moved by RDMA Read and Write.
    explicit: ExplicitSection;
    /// Limits of other implementations.
    interop: InteropSection;
    /// The software fabric.
    fabric: FabricSection;
    /// Shared memory.
    shm: ShmSection;
    /// iWARP in user space, over TCP.
    tcp: TcpSection;
    /// RDMA devices.
    verbs: VerbsSection;
    /// Memory for the program that embeds the engine.
    app: AppSection;
    /// What is measured.
    stats: StatsSection;
}

impl Config {
    /// Checks a text in TOML. Missing keys have the values of the profile `laptop`.
    ///
    /// # Errors
    /// The first error, with its line or its key.
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::try_from(tree::read(text)?)
    }

    /// Checks a file. Errors name it.
    ///
    /// # Errors
    /// [`ConfigError::Read`] if the file cannot be read, [`ConfigError::File`] if its content is
    /// rejected.
    pub fn load(path: impl AsRef<Path>) -> Result<Config, ConfigError> {
        from_file(path.as_ref(), Config::parse)
    }

    /// Checks a file of a program: missing keys have the values of `self`, and the table `own`
    /// contains the program's own keys. Returns these, with their values as text.
    ///
    /// # Errors
    /// As of [`Config::load`]. A value in `own` must be text, a whole number, true or false.
    pub fn load_over(
        &self,
        path: impl AsRef<Path>,
        own: &str,
    ) -> Result<(Config, Vec<(String, String)>), ConfigError> {
        from_file(path.as_ref(), |text| {
            let (raw, keys) = tree::read_over(text, &self.raw, own)?;
            Ok((Config::try_from(raw)?, keys))
        })
    }

    /// A profile that comes with this crate: `latency`, `storage`,
    /// `storage-large` or `laptop`.
    ///
    /// ```
    /// use rpcrdma_config::Config;
    ///
    /// let config = Config::profile("latency")?;
    /// assert_ne!(config.raw(), Config::profile("laptop")?.raw());
    /// assert!(Config::profile("fast").is_err());
    /// # Ok::<(), rpcrdma_config::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// [`ConfigError::Profile`] if there is none of this name.
    pub fn profile(name: &str) -> Result<Config, ConfigError> {
        Config::parse(profile::text(name)?)
    }

    /// The shape of every receive buffer: the leading segment, then the placement segments. The
    /// value of the property RBSTRUCT, and its total length that of RBSIZ.
    pub fn recv_structure(&self) -> &RecvStructure {
        &self.structure
    }

    /// The value of a key such as `memory.lock`, as a file has it; `None` if there is no such key.
    pub fn value_of(&self, key: &str) -> Option<String> {
        tree::value_of(&self.raw, key)
    }

    /// What this configuration was made of. Change it and check it again to get another one.
    pub fn raw(&self) -> &Raw {
        &self.raw
    }
}

/// The profile `laptop`.
impl Default for Config {
    fn default() -> Config {
        Config::try_from(Raw::default()).expect("the default values pass the checks")
    }
}

impl TryFrom<Raw> for Config {
    type Error = ConfigError;

    fn try_from(raw: Raw) -> Result<Config, ConfigError> {
        let engine = raw.engine.check()?;
        let memory = raw.memory.check()?;
        let send = raw.send.check()?;
        let connections = raw.connections.check()?;
        let features = raw.features.check()?;
        let protocol = raw.protocol.check()?;
        let explicit = raw.explicit.check(&connections)?;
        let interop = raw.interop.check()?;
        let fabric = raw.fabric.check()?;
        let shm = raw.shm.check()?;
        let tcp = raw.tcp.check()?;
        let verbs = raw.verbs.check()?;
        let app = raw.app.check()?;
        let stats = raw.stats.check()?;
        let receive = raw.receive.check(&connections, &features)?;
        sums::check_shards(&engine)?;
        sums::check_buffer(&receive)?;
        sums::check_receives(&receive, &connections)?;
        sums::check_sends(&send, &connections)?;
        sums::check_default_size(&protocol, &receive)?;
        sums::check_features(&features)?;
        sums::check_explicit(&explicit, &connections)?;
        Ok(Config {
            structure: sums::structure(&receive)?,
            engine,
            memory,
            receive,
            send,
            connections,
            features,
            protocol,
            explicit,
            interop,
            fabric,
            shm,
            tcp,
            verbs,
            app,
            stats,
            raw,
        })
    }
}

/// Reads a file; errors name it.
fn from_file<T>(
    path: &Path,
    read: impl FnOnce(&str) -> Result<T, ConfigError>,
) -> Result<T, ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    read(&text)
        .map_err(|error| ConfigError::File { path: path.to_owned(), source: Box::new(error) })
}
