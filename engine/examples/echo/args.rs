//! The command line.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::Parser;
use rpcrdma::{Address, Config, provider_for};
use rpcrdma_config::{ProviderKind, Raw};

/// Calls a server that answers with what it received.
#[derive(Debug, Parser)]
#[command(name = "echo")]
pub struct Args {
    /// Who carries the messages; without it what the configuration says, or the address is of.
    #[arg(short, long, value_parser = ["fabric", "shm", "tcp", "verbs"])]
    pub provider: Option<String>,
    /// The RDMA device, as `ibv_devices` shows it.
    #[arg(short, long, value_name = "NAME")]
    pub device: Option<String>,
    /// An address of the RDMA device.
    #[arg(short, long, value_name = "IP")]
    pub address: Option<IpAddr>,
    /// Only serve: here, until a signal comes.
    #[arg(short, long, value_name = "ADDR:PORT|shm:PATH", conflicts_with = "connect")]
    pub listen: Option<Address>,
    /// Only call: the server there.
    #[arg(short, long, value_name = "ADDR:PORT|shm:PATH")]
    pub connect: Option<Address>,
    /// How often.
    #[arg(long, default_value_t = 100_000)]
    pub calls: u64,
    /// A configuration of the engine; without it the profile `laptop`.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Serve metrics for Prometheus here, over HTTP at /metrics.
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics: Option<SocketAddr>,
}

impl Args {
    /// The configuration: of the file, and what the command line has to say about the device.
    ///
    /// # Errors
    /// If the file cannot be read or says something impossible, or the provider cannot do it.
    pub fn config(&self) -> Result<Config, Box<dyn Error>> {
        let mut raw = match &self.config {
            Some(path) => Config::load(path)?.raw().clone(),
            None => Raw::default(),
        };
        let at = self.listen.or(self.connect);
        if let Some(provider) = &self.provider {
            raw.engine.provider = provider.as_str().into();
        }
        if let Some(device) = &self.device {
            raw.verbs.device = device.as_str().into();
        }
        if let Some(address) = self.address {
            raw.verbs.address = address.to_string().into();
        }
        let kind = provider_for(&Config::try_from(raw.clone())?, at);
        raw.engine.provider = kind.as_str().into();
        // The address to listen on also selects the device.
        let listens_at = self.listen.and_then(|at| at.as_ip()).map(|at| at.ip());
        let listens_at = listens_at.filter(|at| !at.is_unspecified());
        let is_named = self.device.is_some() || self.address.is_some();
        if let (ProviderKind::Verbs, false, Some(address)) = (kind, is_named, listens_at) {
            raw.verbs.address = address.to_string().into();
        }
        let config = Config::try_from(raw)?;
        match (kind, at) {
            (ProviderKind::Fabric, Some(_)) => Err(ONE_PROCESS.into()),
            (ProviderKind::Verbs, None) if config.verbs().address.is_none() => {
                Err(NO_ADDRESS.into())
            }
            _ => Ok(config),
        }
    }
}

const ONE_PROCESS: &str = "the fabric ends with this process: --listen and --connect want an address of shared memory \
     (shm:/PATH), or --provider tcp or verbs";
const NO_ADDRESS: &str = "both ends on one device: --address says at which of its addresses";

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Args {
        Args::try_parse_from(line.split_whitespace()).expect("a command line")
    }

    fn refused(line: &str) -> String {
        parsed(line).config().expect_err("it cannot be done").to_string()
    }

    #[test]
    fn without_options_both_ends_run_over_the_fabric() {
        let args = parsed("echo");
        assert_eq!((args.listen, args.connect), (None, None));
        let config = args.config().expect("the profile");
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
    fn one_end_needs_verbs_because_the_fabric_ends_with_the_process() {
        let at = Some("10.0.0.1:7777".parse().expect("an address"));
        let (server, client) = ("echo -p verbs -l 10.0.0.1:7777", "echo -p verbs -c 10.0.0.1:7777");
        assert_eq!((parsed(server).listen, parsed(server).connect), (at, None));
        assert_eq!((parsed(client).listen, parsed(client).connect), (None, at));
        assert!(parsed(server).config().is_ok() && parsed(client).config().is_ok());
        assert!(refused("echo -p fabric --listen 10.0.0.1:7777").contains("verbs"));
        assert!(refused("echo -p fabric --connect 10.0.0.1:7777").contains("verbs"));
        assert!(refused("echo -p verbs").contains("--address"));
        Args::try_parse_from(["echo", "-l", "[::1]:1", "-c", "[::1]:1"]).expect_err("one of them");
    }

    #[test]
    fn an_address_chooses_the_provider_unless_it_is_named() {
        let provider = |line: &str| parsed(line).config().expect("right").engine().provider;
        assert_eq!(provider("echo -d rxe0 --listen 10.0.0.1:7777"), ProviderKind::Verbs);
        assert_eq!(provider("echo -a 10.0.0.1 --connect 10.0.0.2:7777"), ProviderKind::Verbs);
        assert_eq!(provider("echo -p tcp --listen 10.0.0.1:7777"), ProviderKind::Tcp);
        assert_eq!(provider("echo --listen shm:/run/echo.sock"), ProviderKind::Shm);
        assert_eq!(provider("echo -p verbs --connect shm:@echo"), ProviderKind::Verbs);
        // An address of documentation (RFC 5737): no device has it.
        let line = "echo -p verbs --listen 203.0.113.1:7777";
        let error = crate::open(&parsed(line)).expect_err("no device");
        assert!(error.to_string().contains("--provider tcp"), "{error}");
    }

    #[test]
    fn both_ends_run_over_tcp() {
        crate::open(&parsed("echo -p tcp --calls 100")).expect("127.0.0.1 is there");
    }

    #[test]
    fn the_listen_address_selects_the_device() {
        let address = |line: &str| parsed(line).config().expect("right").verbs().address;
        let own = Some("10.0.0.1".parse().expect("an address"));
        assert_eq!(address("echo -p verbs -l 10.0.0.1:7777"), own);
        assert_eq!(address("echo -p verbs -l 0.0.0.0:7777"), None);
        assert_eq!(address("echo -p verbs -d rxe0 -l 10.0.0.1:7777"), None);
    }
}
