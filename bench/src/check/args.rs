//! The options of `check`, and its run.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::checkup::Checkup;
use super::finding::Severity;
use super::host::{Host, This};
use super::wanted::{Source, Wanted};
use crate::args::{CoreArgs, DeviceArgs};
use crate::error::BenchError;
use crate::machine::{CorePair, Jitter};
use crate::output::{Better, Environment, Figure, OutputArgs, Report, Session, Unit};

/// What `check` looks at, and how it ends.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Check a profile against the host: latency, storage, storage-large, laptop
    /// [default: latency, for both ends of a benchmark]
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Check a configuration file against the host: its memory, its cores, its device
    #[arg(long, value_name = "FILE", conflicts_with = "profile")]
    pub config: Option<PathBuf>,
    /// Skip the jitter probe, which spins on the cores for a quarter of a second
    #[arg(long)]
    pub no_probe: bool,
    /// Root of the host's files: / or a copy of another host's /proc, /sys and /etc
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    pub root: PathBuf,
    /// The cores to be used.
    #[command(flatten)]
    pub cores: CoreArgs,
    /// The device that has to be there; over the fabric, what one lacks is only a warning.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// What becomes of the result.
    #[command(flatten)]
    pub output: OutputArgs,
}

pub fn measure(args: &Args, session: &Session) -> Result<Report, BenchError> {
    args.device.check()?;
    let wanted = wanted(args)?;
    session.announce(&format!("check: {}", wanted.title()))?;
    Ok(report(&look(args, &wanted), &wanted, args.output.strict))
}

/// What is found of this host, or of the one whose files were copied.
pub fn look(args: &Args, wanted: &Wanted) -> Checkup {
    let this = This { probe: !args.no_probe && args.root == Path::new("/") };
    Checkup::new(&Host::new(&args.root, &this), wanted)
}

pub fn wanted(args: &Args) -> Result<Wanted, BenchError> {
    let source = match (&args.config, &args.profile) {
        (Some(path), _) => Source::File(path.clone()),
        (None, Some(name)) => Source::Profile(name.clone()),
        (None, None) => Source::Default,
    };
    let mut wanted = Wanted::new(source)?;
    let DeviceArgs { device, address, .. } = &args.device;
    wanted.providers.push(args.device.over());
    if wanted.asks_for_device() && (device.is_some() || address.is_some()) {
        (wanted.device, wanted.address) = (device.clone(), *address);
    }
    wanted.cores = args.cores.cores;
    Ok(wanted)
}

/// What was found, as the report of a mode: with `--strict` errors fail and warnings make the
/// run inconclusive.
pub fn report(checkup: &Checkup, wanted: &Wanted, is_strict: bool) -> Report {
    let unseen = |core| Jitter { core, gaps_per_second: 0.0, lost_share: 0.0, longest_ns: 0 };
    let cores = wanted.cores.unwrap_or(CorePair { client: 0, server: 1 });
    let jitter = checkup.jitter.unwrap_or_else(|| cores.both().map(unseen));
    let mut environment = Environment::new(cores, Vec::new(), [jitter; 2]);
    environment.noise = match checkup.count(Severity::Error) {
        0 => lines(checkup, Severity::Warning),
        _ => Vec::new(),
    };
    let settings = json!({
        "configuration": wanted.title(),
        "memory_bytes": wanted.memory_len(),
        "verbs": wanted.asks_for_device(),
        "device": wanted.device,
        "address": wanted.address,
    });
    let all = checkup.findings().count() as u64;
    let figure = |(name, severity): (&'static str, Severity)| {
        let count = checkup.count(severity) as f64;
        Figure::new("check", name, count, Unit::Count, all).better(Better::Lower)
    };
    let figures =
        [("errors", Severity::Error), ("warnings", Severity::Warning), ("hints", Severity::Hint)];
    let (what, figures) = (format!("check: {}", wanted.title()), figures.map(figure).to_vec());
    let mut report = Report::new("check", what, settings, environment, figures);
    report.is_bare = true;
    report.block(checkup.table());
    if is_strict {
        report.failures = lines(checkup, Severity::Error);
    }
    report.detail(json!({ "sections": checkup.sections, "conclusion": checkup.conclusion }));
    report
}

fn lines(checkup: &Checkup, severity: Severity) -> Vec<String> {
    let bad = checkup.findings().filter(|found| found.severity == severity);
    bad.map(|found| format!("{}: {}", found.name, found.seen)).collect()
}

pub const EXAMPLES: &str = "\
Examples:
  rpcrdma-bench check                               what this machine can measure today
  rpcrdma-bench check --config rpcrdma.toml         whether a deployment would run here
  rpcrdma-bench check --provider verbs --strict     for a script: is RDMA ready on this host
  rpcrdma-bench check --json - | jq .conclusion     for a program to read

Nothing is changed: each finding has a command that fixes it, for you to run. The exit code is 0
whatever was found; with --strict it is 2 if something does not work, and 3 if something disturbs
measurements.";
