//! The options of `check`, and its run.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::Args;

use super::Checkup;
use super::finding::Severity;
use super::host::{Host, This};
use super::wanted::{Source, Wanted};
use crate::cores::CorePair;
use crate::error::BenchError;

/// What `check` looks at, and how it ends.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct CheckArgs {
    /// Check a profile against the host: latency, storage, laptop
    /// [default: latency, for both ends of a benchmark]
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Check a configuration file against the host: its memory, its cores, its device
    #[arg(long, value_name = "FILE", conflicts_with = "profile")]
    pub config: Option<PathBuf>,
    /// An RDMA device has to be there: without it, what a device lacks is only a warning
    #[arg(long)]
    pub verbs: bool,
    /// The device, as ibv_devices names it
    #[arg(short, long, value_name = "NAME")]
    pub device: Option<String>,
    /// An address of the device
    #[arg(short, long, value_name = "ADDRESS")]
    pub address: Option<IpAddr>,
    /// The cores to be used, as in 2,3 [default: those of the file, or picked]
    #[arg(short, long, value_name = "C,S")]
    pub cores: Option<CorePair>,
    /// Do not spin for a quarter of a second to see the jitter of the cores
    #[arg(long)]
    pub no_probe: bool,
    /// Where the files of the host begin: a copy of another's /proc, /sys, /etc
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    pub root: PathBuf,
    /// End with 2 if there is an error, with 3 if there is a warning
    #[arg(long)]
    pub strict: bool,
    /// Write JSON in place of the table
    #[arg(long)]
    pub json: bool,
}

impl CheckArgs {
    /// Looks at the host.
    ///
    /// # Errors
    /// If the configuration is none.
    pub fn look(&self) -> Result<Checkup, BenchError> {
        let source = match (&self.config, &self.profile) {
            (Some(path), _) => Source::File(path.clone()),
            (None, Some(name)) => Source::Profile(name.clone()),
            (None, None) => Source::Default,
        };
        let mut wanted = Wanted::new(source)
            .map_err(|error| BenchError::Usage(format!("configuration: {error}")))?;
        wanted.verbs |= self.verbs || self.device.is_some() || self.address.is_some();
        if self.device.is_some() || self.address.is_some() {
            (wanted.device, wanted.address) = (self.device.clone(), self.address);
        }
        wanted.cores = self.cores;
        let this = This { probe: !self.no_probe && self.root == Path::new("/") };
        Ok(Checkup::new(&Host::new(&self.root, &this), &wanted))
    }

    /// The exit code for what was found.
    pub fn code(&self, worst: Severity) -> u8 {
        match worst {
            Severity::Error if self.strict => 2,
            Severity::Warning if self.strict => 3,
            _ => 0,
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  rpcrdma-bench check                         what this machine can show today, and what spoils it
  rpcrdma-bench check --config rpcrdma.toml   whether a deployment would run here
  rpcrdma-bench check --verbs --strict        for a script: is RDMA ready on this host
  rpcrdma-bench check --json | jq .verdict    for a program to read

Nothing is changed: every finding comes with the command that mends it, for you to run. The exit is
0 whatever was found; with --strict it is 2 if something will not work and 3 if something spoils a
measurement.";
