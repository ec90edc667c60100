//! The command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use rpcrdma::{Address, Config, ConfigError, ProviderKind, provider_for};

use rpcrdma_nfs3::{Options, Squash};

/// Serves a directory as an NFS version 3 server over RDMA.
#[derive(Debug, Parser)]
#[command(name = "rpcrdma-nfs3", version)]
pub struct Args {
    /// The directory to export.
    #[arg(long, value_name = "DIR")]
    pub export: PathBuf,
    /// The address and port that NFS listens on, over RDMA (20049 is the usual port), which iWARP
    /// carries over TCP if the address is not of an RDMA device; or a Unix socket for shared memory.
    #[arg(long, value_name = "ADDR:PORT|shm:PATH")]
    pub listen: Address,
    /// The address and port that MOUNT listens on, over TCP [default: port 20048 of the address of
    /// --listen, if that is an IP address].
    #[arg(long, value_name = "ADDR:PORT")]
    pub mount: Option<SocketAddr>,
    /// The transport [default: that of the configuration, or what the address of --listen is of:
    /// shm, verbs if an RDMA device has it, otherwise tcp].
    #[arg(long, value_parser = providers())]
    pub provider: Option<ProviderKind>,
    /// The RDMA device by its name [default: the device that has the address of --listen].
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// The file with the key that signs file handles; it is created if it does not exist [default:
    /// DIR.nfs3-key next to the directory]. File handles stay valid as long as the key is the same.
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Which callers act as the anonymous user. Only a server that runs as root can act as its
    /// callers.
    #[arg(long, default_value = "root")]
    pub squash: Squash,
    /// Answer before changes are on stable storage: faster, but a crash of the machine loses them.
    #[arg(long = "async")]
    pub is_async: bool,
    /// The number of threads that call the file system.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: u16,
    /// A configuration file: its table `nfs3` contains options as keys, below those of the command
    /// line; its other tables configure the engine.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Serve metrics for Prometheus here, over HTTP at /metrics. Every host that reaches the
    /// address can read them.
    #[cfg(feature = "metrics")]
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics: Option<SocketAddr>,
    /// Print the man page.
    #[arg(long, exclusive = true)]
    pub man: bool,
}

/// The providers by their names.
fn providers() -> impl TypedValueParser<Value = ProviderKind> {
    let value = |kind: ProviderKind| PossibleValue::new(kind.as_str()).help(kind.about());
    let words = PossibleValuesParser::new(ProviderKind::OPENED.map(value));
    words.map(|word| word.parse().expect("it is one of these"))
}

impl Args {
    /// The configuration of the engine, over that of the file. It names the transport: that of
    /// `--provider`, or of the file, or the one that the address of `--listen` is of. The RDMA
    /// device is that of `--device`, or that of the file, or the one that has the address of
    /// `--listen`.
    ///
    /// # Errors
    /// If an option is not allowed beside the file.
    pub fn config(&self, file: &Config) -> Result<Config, ConfigError> {
        let mut raw = file.raw().clone();
        if let Some(provider) = self.provider {
            raw.engine.provider = provider.as_str().into();
        }
        if let Some(device) = &self.device {
            (raw.verbs.device, raw.verbs.address) = (device.as_str().into(), "auto".into());
        }
        let kind = provider_for(&Config::try_from(raw.clone())?, Some(self.listen));
        raw.engine.provider = kind.as_str().into();
        let is_named = raw.verbs.device.as_str() != "auto" || raw.verbs.address.as_str() != "auto";
        let address = self.listen.as_ip().map(|at| at.ip()).filter(|at| !at.is_unspecified());
        if kind == ProviderKind::Verbs
            && !is_named
            && let Some(address) = address
        {
            raw.verbs.address = address.to_string().into();
        }
        Config::try_from(raw)
    }

    /// The address that MOUNT listens on.
    ///
    /// # Errors
    /// If there is none, because NFS does not listen on an IP address.
    pub fn mount(&self) -> Result<SocketAddr, &'static str> {
        let listen = self.listen.as_ip().map(|at| SocketAddr::new(at.ip(), MOUNT_PORT));
        self.mount.or(listen).ok_or(NO_MOUNT)
    }

    /// The directory to export, and the options of the export.
    pub fn options(&self) -> Options {
        let key = self.key.clone().unwrap_or_else(|| {
            // The absolute path: `.` has no name to append to.
            let export = self.export.canonicalize().unwrap_or_else(|_| self.export.clone());
            let mut path: OsString = export.components().as_path().into();
            path.push(".nfs3-key");
            path.into()
        });
        Options {
            directory: self.export.clone(),
            key,
            squash: self.squash,
            is_async: self.is_async,
            workers: self.workers.into(),
        }
    }
}

/// The table of a configuration file whose keys are options.
pub const TABLE: &str = "nfs3";

/// The port of MOUNT that clients use by default.
const MOUNT_PORT: u16 = 20_048;
const NO_MOUNT: &str =
    "--listen is not an IP address: --mount must state where MOUNT listens over TCP";

#[cfg(test)]
mod tests {
    use rpcrdma::verbs::VerbsOptions;

    use super::*;

    /// The configuration without a file.
    fn config(args: &Args) -> Config {
        args.config(&rpcrdma_nfs3::config().expect("built in")).expect("sound")
    }

    fn verbs(args: &Args) -> VerbsOptions {
        VerbsOptions::from(config(args).verbs())
    }

    fn parsed(line: &str) -> Result<Args, clap::Error> {
        Args::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn missing_options_have_their_defaults() {
        let args = parsed("nfs3 --export /srv/data/ --listen 10.0.0.1:20049 --provider verbs");
        let args = args.expect("enough");
        assert_eq!(args.mount(), Ok("10.0.0.1:20048".parse().expect("an address")));
        let options = args.options();
        assert_eq!(options.key, PathBuf::from("/srv/data.nfs3-key"));
        assert_eq!((options.squash, options.workers), (Squash::Root, 4));
        assert_eq!(verbs(&args).address, args.listen.as_ip().map(|at| at.ip()));
        assert!(verbs(&args).address.is_some());
    }

    #[test]
    fn the_key_is_next_to_the_directory_with_any_name() {
        let args = parsed("nfs3 --export . --listen 10.0.0.1:20049").expect("enough");
        let mut path = std::env::current_dir().expect("there is one").into_os_string();
        path.push(".nfs3-key");
        assert_eq!(args.options().key, PathBuf::from(path));
    }

    #[test]
    fn a_device_is_named_or_found_by_its_address() {
        let args = parsed("nfs3 --export /srv --listen [::]:20049").expect("enough");
        assert_eq!(verbs(&args), VerbsOptions::default());
        let args =
            parsed("nfs3 --export /srv --listen 10.0.0.1:20049 --device rxe0").expect("enough");
        assert_eq!((verbs(&args).device.as_deref(), verbs(&args).address), (Some("rxe0"), None));
    }

    #[test]
    fn the_transport_is_named_or_that_of_the_address() {
        let none = rpcrdma_nfs3::config().expect("built in");
        let tcp = Config::parse("engine.provider = \"tcp\"").expect("sound");
        for (file, line, name) in [
            (&none, "--listen 10.0.0.1:20049 --provider tcp", "tcp"),
            (&none, "--listen 10.0.0.1:20049 --device rxe0", "verbs"),
            (&none, "--listen shm:/run/nfs.sock", "shm"),
            (&tcp, "--listen 10.0.0.1:20049", "tcp"),
            (&tcp, "--listen 10.0.0.1:1 --provider verbs", "verbs"),
        ] {
            let args = parsed(&format!("nfs3 --export /srv {line}")).expect("enough");
            let config = args.config(file).expect("enough");
            assert_eq!(config.engine().provider.as_str(), name, "{line}");
        }
    }

    #[test]
    fn an_address_without_a_host_needs_one_for_mount() {
        let line = "nfs3 --export /srv --listen shm:/run/nfs.sock";
        let args = parsed(line).expect("enough");
        assert_eq!(verbs(&args), VerbsOptions::default());
        assert_eq!(config(&args).raw().engine.provider.as_str(), "shm");
        assert!(args.mount().expect_err("no host").contains("--mount"));
        let args = parsed(&format!("{line} --mount 127.0.0.1:20048")).expect("enough");
        assert_eq!(args.mount(), Ok("127.0.0.1:20048".parse().expect("an address")));
    }

    #[test]
    fn a_device_of_the_file_is_kept() {
        let file = Config::parse("[verbs]\ndevice = \"mlx5_0\"\nretry_count = 3").expect("sound");
        let args = parsed("nfs3 --export /srv --listen 10.0.0.1:20049").expect("enough");
        let options = VerbsOptions::from(args.config(&file).expect("sound").verbs());
        assert_eq!((options.device.as_deref(), options.address), (Some("mlx5_0"), None));
        assert_eq!(options.retry_count, 3);
    }

    #[test]
    fn wrong_options_are_refused() {
        for line in [
            "nfs3 --export /srv/data",
            "nfs3 --listen 10.0.0.1:20049",
            "nfs3 --export /srv --listen 10.0.0.1",
            "nfs3 --export /srv --listen 10.0.0.1:1 --workers 0",
            "nfs3 --export /srv --listen 10.0.0.1:1 --squash some",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
