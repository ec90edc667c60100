//! The command line.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use rpcrdma_config::{ConfigError, ProviderKind, Raw};
use rpcrdma_engine::Config;

/// Calls a server that answers with what it was told.
#[derive(Debug, Parser)]
#[command(name = "echo")]
pub struct Args {
    /// Who carries the messages; without it what the configuration says.
    #[arg(short, long)]
    pub provider: Option<Choice>,
    /// The RDMA device, as `ibv_devices` shows it.
    #[arg(short, long, value_name = "NAME")]
    pub device: Option<String>,
    /// An address of the RDMA device.
    #[arg(short, long, value_name = "IP")]
    pub address: Option<IpAddr>,
    /// Only serve: here, until a signal comes.
    #[arg(short, long, value_name = "ADDR:PORT", conflicts_with = "connect")]
    pub listen: Option<SocketAddr>,
    /// Only call: the server there.
    #[arg(short, long, value_name = "ADDR:PORT")]
    pub connect: Option<SocketAddr>,
    /// How often.
    #[arg(long, default_value_t = 100_000)]
    pub calls: u64,
    /// A configuration of the engine; without it the profile `laptop`.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Who carries the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Choice {
    /// The software fabric, inside this process.
    Fabric,
    /// An RDMA device.
    Verbs,
}

/// What of it is in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// Everything; at an address of the device.
    Both(Option<IpAddr>),
    /// The server, at an address.
    Server(SocketAddr),
    /// The client of a server elsewhere.
    Client(SocketAddr),
}

impl Args {
    /// The configuration: of the file, and what the command line has to say about the device.
    ///
    /// # Errors
    /// If the file cannot be read or says something impossible.
    pub fn config(&self) -> Result<Config, ConfigError> {
        let mut raw = match &self.config {
            Some(path) => Config::load(path)?.raw().clone(),
            None => Raw::default(),
        };
        match self.provider {
            Some(Choice::Fabric) => raw.engine.provider = "fabric".into(),
            Some(Choice::Verbs) => raw.engine.provider = "verbs".into(),
            None => {}
        }
        if let Some(device) = &self.device {
            raw.verbs.device = device.as_str().into();
        }
        // Whoever says where the server listens has named the device.
        let listens_at = self.listen.map(|at| at.ip()).filter(|at| !at.is_unspecified());
        if let Some(address) = self.address.or(listens_at.filter(|_| self.device.is_none())) {
            raw.verbs.address = address.to_string().into();
        }
        Config::try_from(raw)
    }

    /// What of it is to be in this process.
    ///
    /// # Errors
    /// If that cannot be done with this provider.
    pub fn ends(&self, config: &Config) -> Result<Ends, &'static str> {
        let is_fabric = config.engine().provider == ProviderKind::Fabric;
        match (self.listen, self.connect) {
            (None, None) if is_fabric || config.verbs().address.is_some() => {
                Ok(Ends::Both(config.verbs().address))
            }
            (None, None) => {
                Err("both ends on one device: --address says at which of its addresses")
            }
            _ if is_fabric => Err(
                "the fabric ends with this process: --listen and --connect want --provider verbs",
            ),
            (Some(at), _) => Ok(Ends::Server(at)),
            (None, Some(to)) => Ok(Ends::Client(to)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Args {
        Args::try_parse_from(line.split_whitespace()).expect("a command line")
    }

    fn ends(line: &str) -> Result<Ends, &'static str> {
        let args = parsed(line);
        args.ends(&args.config().expect("nothing impossible"))
    }

    #[test]
    fn nothing_said_is_both_ends_over_the_fabric() {
        assert_eq!(ends("echo"), Ok(Ends::Both(None)));
        let config = parsed("echo").config().expect("the profile");
        assert_eq!(config.engine().provider, ProviderKind::Fabric);
    }

    #[test]
    fn a_device_is_chosen_on_the_command_line() {
        let config = parsed("echo -p verbs -d rxe0 -a 10.0.0.1").config().expect("right");
        assert_eq!(config.engine().provider, ProviderKind::Verbs);
        assert_eq!(config.verbs().device.as_deref(), Some("rxe0"));
        assert_eq!(config.verbs().address, Some("10.0.0.1".parse().expect("an address")));
    }

    #[test]
    fn one_end_is_somewhere_and_the_fabric_is_nowhere_else() {
        let at: SocketAddr = "10.0.0.1:7777".parse().expect("an address");
        assert_eq!(ends("echo -p verbs --listen 10.0.0.1:7777"), Ok(Ends::Server(at)));
        assert_eq!(ends("echo -p verbs --connect 10.0.0.1:7777"), Ok(Ends::Client(at)));
        assert!(ends("echo --listen 10.0.0.1:7777").expect_err("no fabric").contains("verbs"));
        assert!(ends("echo --connect 10.0.0.1:7777").expect_err("no fabric").contains("verbs"));
        assert!(ends("echo -p verbs").expect_err("no address").contains("--address"));
    }

    #[test]
    fn where_a_server_listens_says_on_which_device() {
        let address = |line: &str| parsed(line).config().expect("right").verbs().address;
        let own = Some("10.0.0.1".parse().expect("an address"));
        assert_eq!(address("echo -p verbs -l 10.0.0.1:7777"), own);
        assert_eq!(address("echo -p verbs -l 0.0.0.0:7777"), None);
        assert_eq!(address("echo -p verbs -d rxe0 -l 10.0.0.1:7777"), None);
    }
}
