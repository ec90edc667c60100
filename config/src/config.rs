//! The checked configuration: if a [`Config`] exists, every value is in its range and no values
//! contradict each other.

use std::path::Path;
use std::time::Duration;

use rpcrdma_xdr::RecvStructure;

use crate::access::Access;
use crate::check;
use crate::error::ConfigError;
use crate::profile;
use crate::raw::{
    Raw, RawApp, RawConnections, RawEngine, RawExplicit, RawFabric, RawInterop, RawMemory,
    RawPlacement, RawProtocol, RawSend, RawShm, RawTcp, RawVerbs,
};
use crate::section::{
    AppSection, BulkSection, ConnectionsSection, EngineSection, ExplicitSection, FabricSection,
    FeaturesSection, IdleSection, InteropSection, MemorySection, PlacementSection, ProtocolSection,
    ReceiveSection, SendSection, ShmSection, StatsSection, TcpSection, VerbsSection,
};
use crate::sums;
use crate::tree;

/// A checked configuration. Made only by checking a [`Raw`]; it is immutable.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    engine: EngineSection,
    memory: MemorySection,
    receive: ReceiveSection,
    send: SendSection,
    connections: ConnectionsSection,
    features: FeaturesSection,
    protocol: ProtocolSection,
    explicit: ExplicitSection,
    interop: InteropSection,
    fabric: FabricSection,
    shm: ShmSection,
    tcp: TcpSection,
    verbs: VerbsSection,
    app: AppSection,
    stats: StatsSection,
    structure: RecvStructure,
    raw: Raw,
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

    /// Threads and the device they poll.
    pub fn engine(&self) -> &EngineSection {
        &self.engine
    }

    /// How memory is allocated.
    pub fn memory(&self) -> &MemorySection {
        &self.memory
    }

    /// What is received into.
    pub fn receive(&self) -> &ReceiveSection {
        &self.receive
    }

    /// What is sent from.
    pub fn send(&self) -> &SendSection {
        &self.send
    }

    /// Limits of and per connection.
    pub fn connections(&self) -> &ConnectionsSection {
        &self.connections
    }

    /// Parts of the protocol that may be switched off.
    pub fn features(&self) -> &FeaturesSection {
        &self.features
    }

    /// Which version of the protocol is spoken.
    pub fn protocol(&self) -> &ProtocolSection {
        &self.protocol
    }

    /// Data that moves by RDMA Read and Write.
    pub fn explicit(&self) -> &ExplicitSection {
        &self.explicit
    }

    /// Habits of other implementations.
    pub fn interop(&self) -> &InteropSection {
        &self.interop
    }

    /// Shared memory.
    pub fn shm(&self) -> &ShmSection {
        &self.shm
    }

    /// iWARP in user space, over TCP.
    pub fn tcp(&self) -> &TcpSection {
        &self.tcp
    }

    /// The software fabric.
    pub fn fabric(&self) -> &FabricSection {
        &self.fabric
    }

    /// RDMA devices.
    pub fn verbs(&self) -> &VerbsSection {
        &self.verbs
    }

    /// Memory for the program that embeds the engine.
    pub fn app(&self) -> &AppSection {
        &self.app
    }

    /// What is measured.
    pub fn stats(&self) -> &StatsSection {
        &self.stats
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
        let engine = engine(&raw.engine)?;
        let memory = memory(&raw.memory)?;
        let send = send(&raw.send)?;
        let connections = connections(&raw.connections)?;
        let features = FeaturesSection {
            properties: raw.features.properties,
            placement: raw.features.placement,
            continuation: raw.features.continuation,
        };
        let protocol = protocol(&raw.protocol)?;
        let explicit = explicit(&raw.explicit, &connections)?;
        let interop = interop(&raw.interop)?;
        let fabric = fabric(&raw.fabric)?;
        let shm = shm(&raw.shm)?;
        let tcp = tcp(&raw.tcp)?;
        let verbs = verbs(&raw.verbs)?;
        let app = app(&raw.app)?;
        let stats = StatsSection { sample: check::count("stats.sample", raw.stats.sample)? };
        let receive = receive(&raw, &connections)?;
        sums::check_shards(&engine)?;
        sums::check_buffer(&receive)?;
        sums::check_receives(&receive, &connections)?;
        sums::check_sends(&send, &connections)?;
        sums::check_default_size(&protocol, &receive)?;
        sums::check_features(&features)?;
        sums::check_explicit(&explicit, &connections)?;
        let structure = sums::structure(&receive)?;
        Ok(Config {
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
            structure,
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

const HOLD: std::ops::RangeInclusive<Duration> = Duration::ZERO..=Duration::from_millis(10);
const TIMEOUT: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(3600);
const IDLE_TIMEOUT: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(24 * 3600);

const MINUTE: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(60);

fn engine(raw: &RawEngine) -> Result<EngineSection, ConfigError> {
    Ok(EngineSection {
        provider: check::provider("engine.provider", &raw.provider)?,
        cores: check::cores("engine.cores", &raw.cores)?,
        shards: check::count("engine.shards", raw.shards)?,
        numa_bind: raw.numa_bind,
        idle: IdleSection {
            policy: check::idle_policy("engine.idle.policy", &raw.idle.policy)?,
            spin: check::duration(
                "engine.idle.spin",
                &raw.idle.spin,
                Duration::ZERO..=Duration::from_secs(60),
            )?,
        },
    })
}

fn memory(raw: &RawMemory) -> Result<MemorySection, ConfigError> {
    let (pages, smaller_pages) = check::pages("memory.pages", &raw.pages)?;
    let lock = check::lock("memory.lock", &raw.lock)?;
    Ok(MemorySection { pages, smaller_pages, lock, prefault: raw.prefault })
}

fn receive(raw: &Raw, connections: &ConnectionsSection) -> Result<ReceiveSection, ConfigError> {
    let given = &raw.receive;
    let inline_len = check::word_length("receive.inline", &given.inline)?;
    let mut placement = placement(&given.placement)?;
    if !raw.features.placement {
        // Peers place wherever there are segments.
        placement.count = check::count("receive.placement.count", 0)?;
    }
    let replies = match check::count_or_auto("receive.replies", &given.replies)? {
        Some(replies) => replies,
        None => sums::derived_replies(connections)?,
    };
    let buffers = match check::count_or_auto("receive.buffers", &given.buffers)? {
        Some(buffers) => buffers,
        None => sums::derived_buffers(connections, replies.value())?,
    };
    let spares = check::count("receive.spares", given.spares)?;
    Ok(ReceiveSection { inline_len, placement, buffers, replies, spares })
}

fn placement(raw: &RawPlacement) -> Result<PlacementSection, ConfigError> {
    Ok(PlacementSection {
        count: check::count("receive.placement.count", raw.count)?,
        len: check::word_length("receive.placement.length", &raw.length)?,
        align: check::power_of_two_length("receive.placement.align", &raw.align)?,
    })
}

fn send(raw: &RawSend) -> Result<SendSection, ConfigError> {
    Ok(SendSection {
        slots: check::count("send.slots", raw.slots)?,
        payload_len: check::word_length("send.length", &raw.length)?,
        inline_max: check::length("send.inline_max", &raw.inline_max)?,
        signal_every: check::count("send.signal_every", raw.signal_every)?,
        hold: check::duration("send.hold", &raw.hold, HOLD)?,
        zero_len: check::word_length("send.zero", &raw.zero)?,
    })
}

fn connections(raw: &RawConnections) -> Result<ConnectionsSection, ConfigError> {
    let timeout = |key, given| check::duration(key, given, TIMEOUT);
    Ok(ConnectionsSection {
        max: check::count("connections.max", raw.max)?,
        max_per_peer: check::count("connections.max_per_peer", raw.max_per_peer)?,
        access: Access::parse(&raw.allow, &raw.deny)?,
        credits: check::count("connections.credits", raw.credits)?,
        credits_requested: check::count("connections.credits_requested", raw.credits_requested)?,
        calls_max: check::count("connections.calls_max", raw.calls_max)?,
        call_transmissions_max: check::count(
            "connections.call_transmissions_max",
            raw.call_transmissions_max,
        )?,
        reply_transmissions_max: check::count(
            "connections.reply_transmissions_max",
            raw.reply_transmissions_max,
        )?,
        request_transmissions_max: check::count(
            "connections.request_transmissions_max",
            raw.request_transmissions_max,
        )?,
        response_transmissions_max: check::count(
            "connections.response_transmissions_max",
            raw.response_transmissions_max,
        )?,
        rpc_len_max: check::length("connections.rpc_len_max", &raw.rpc_len_max)?,
        group_timeout: timeout("connections.group_timeout", &raw.group_timeout)?,
        call_timeout: check::duration_or_none(
            "connections.call_timeout",
            &raw.call_timeout,
            TIMEOUT,
        )?,
        send_timeout: check::duration_or_none(
            "connections.send_timeout",
            &raw.send_timeout,
            TIMEOUT,
        )?,
        idle_timeout: check::duration_or_none(
            "connections.idle_timeout",
            &raw.idle_timeout,
            IDLE_TIMEOUT,
        )?,
        rnr_retry: check::count("connections.rnr_retry", raw.rnr_retry)?,
        connect_timeout: timeout("connections.connect_timeout", &raw.connect_timeout)?,
        stop_timeout: timeout("connections.stop_timeout", &raw.stop_timeout)?,
    })
}

fn protocol(raw: &RawProtocol) -> Result<ProtocolSection, ConfigError> {
    let (timeout, memory) = (&raw.negotiation_timeout, &raw.version_memory);
    let day = Duration::ZERO..=Duration::from_secs(24 * 3600);
    Ok(ProtocolSection {
        version: check::version("protocol.version", &raw.version)?,
        negotiation_timeout: check::duration("protocol.negotiation_timeout", timeout, TIMEOUT)?,
        version_memory: check::duration("protocol.version_memory", memory, day)?,
    })
}

fn explicit(
    raw: &RawExplicit,
    connections: &ConnectionsSection,
) -> Result<ExplicitSection, ConfigError> {
    let windows = check::count_or_auto("explicit.windows", &raw.windows)?;
    Ok(ExplicitSection {
        enabled: raw.enabled,
        exposure: check::exposure("explicit.exposure", &raw.exposure)?,
        windows: windows.unwrap_or_else(|| sums::derived_windows(connections)),
        derives_windows: windows.is_none(),
        fetches: check::count("explicit.fetches", raw.fetches)?,
        buffers: BulkSection {
            count: check::count("explicit.buffers.count", raw.buffers.count)?,
            len: check::length("explicit.buffers.length", &raw.buffers.length)?,
        },
    })
}

fn interop(raw: &RawInterop) -> Result<InteropSection, ConfigError> {
    Ok(InteropSection {
        read_chunks_max: check::count("interop.read_chunks_max", raw.read_chunks_max)?,
        read_chunk_last: raw.read_chunk_last,
        write_chunks_max: check::count("interop.write_chunks_max", raw.write_chunks_max)?,
        write_chunk_padding: raw.write_chunk_padding,
        links_in_line: raw.links_in_line,
        segments_max: check::count("interop.segments_max", raw.segments_max)?,
        reply_chunk: check::reply_chunk("interop.reply_chunk", &raw.reply_chunk)?,
        long_call_with_chunks: raw.long_call_with_chunks,
        write_with_reply: raw.write_with_reply,
        remote_invalidation: raw.remote_invalidation,
    })
}

fn fabric(raw: &RawFabric) -> Result<FabricSection, ConfigError> {
    let delay = Duration::ZERO..=Duration::from_secs(1);
    Ok(FabricSection {
        delay: check::duration("fabric.delay", &raw.delay, delay)?,
        ring_slots: check::power_of_two("fabric.ring_slots", raw.ring_slots)?,
    })
}

fn shm(raw: &RawShm) -> Result<ShmSection, ConfigError> {
    Ok(ShmSection {
        ring_slots: check::power_of_two("shm.ring_slots", raw.ring_slots)?,
        staging: check::power_of_two_length("shm.staging", &raw.staging)?,
        map_pools: raw.map_pools,
    })
}

fn tcp(raw: &RawTcp) -> Result<TcpSection, ConfigError> {
    let message_len = check::power_of_two_length("tcp.message_len", &raw.message_len)?;
    Ok(TcpSection { crc: raw.crc, message_len })
}

fn verbs(raw: &RawVerbs) -> Result<VerbsSection, ConfigError> {
    let minute = |key, given| check::duration(key, given, MINUTE);
    let pause = minute("verbs.pause", &raw.pause)?;
    let longest = pause..=*MINUTE.end();
    Ok(VerbsSection {
        device: check::name_or_auto("verbs.device", &raw.device)?,
        address: check::address_or_auto("verbs.address", &raw.address)?,
        port: check::count_or_auto("verbs.port", &raw.port)?,
        gid: check::count_or_auto("verbs.gid", &raw.gid)?,
        inline_len: check::length("verbs.inline", &raw.inline)?,
        reads: check::count("verbs.reads", raw.reads)?,
        rnr_timer: check::rnr_timer("verbs.rnr_timer", &raw.rnr_timer)?,
        retry_count: check::count("verbs.retry_count", raw.retry_count)?,
        ack_timeout: check::count("verbs.ack_timeout", raw.ack_timeout)?,
        traffic_class: check::count_or_auto("verbs.traffic_class", &raw.traffic_class)?,
        backlog: check::count("verbs.backlog", raw.backlog)?,
        resolve_timeout: minute("verbs.resolve_timeout", &raw.resolve_timeout)?,
        answer_timeout: minute("verbs.answer_timeout", &raw.answer_timeout)?,
        attempts: check::count("verbs.attempts", raw.attempts)?,
        pause,
        pause_max: check::duration("verbs.pause_max", &raw.pause_max, longest)?,
    })
}

fn app(raw: &RawApp) -> Result<AppSection, ConfigError> {
    let count = check::count("app.bulk.count", raw.bulk.count)?;
    Ok(AppSection {
        bulk: BulkSection { count, len: check::length("app.bulk.length", &raw.bulk.length)? },
    })
}
