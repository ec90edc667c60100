//! Shared by the unit tests of modes: plans from typed options.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;

use crate::error::BenchError;
use crate::machine::{CorePair, Jitter};
use crate::output::Environment;
use crate::stats::{Latency, Round};

/// The options of a mode as a command of their own.
#[derive(Parser)]
struct Alone<A: clap::Args> {
    #[command(flatten)]
    args: A,
}

pub(crate) fn parsed<A: clap::Args>(options: &str) -> A {
    let words = ["mode"].into_iter().chain(options.split_whitespace());
    let Ok(Alone { args }) = Alone::<A>::try_parse_from(words) else {
        panic!("it parses: {options}")
    };
    args
}

const QUIET: Jitter =
    Jitter { core: 0, gaps_per_second: 250.0, lost_share: 0.005, longest_ns: 25_000 };

/// A quiet machine, with these notes.
pub(crate) fn quiet(notes: Vec<String>) -> Environment {
    Environment::new(CorePair { client: 0, server: 1 }, notes, [[QUIET; 2]; 2])
}

/// A round of so many calls in a second, each of which took so long if it was timed.
pub(crate) fn round(completed: u64, times_ns: &[u64]) -> Round {
    let latency = Latency::of(times_ns.iter().copied());
    Round { latency, completed, elapsed_ns: 1_000_000_000, preempted: 0 }
}

/// Whether the options are refused, or the machine has one core, which refuses everything.
pub(crate) fn is_refused<A: clap::Args, P>(
    options: &str,
    new: impl FnOnce(&A) -> Result<P, BenchError>,
) -> bool {
    plan_of(options, new).is_none_or(|plan| matches!(plan, Err(BenchError::Usage(_))))
}

/// The plan that `new` makes of the options, which fit together; `None` on a machine with one core.
pub(crate) fn good_plan<A: clap::Args, P>(
    options: &str,
    new: impl FnOnce(&A) -> Result<P, BenchError>,
) -> Option<P> {
    let plan = plan_of(options, new)?;
    Some(plan.unwrap_or_else(|error| panic!("{options}: {error}")))
}

/// The plan that `new` makes of the options; `None` on a machine with one core, which has none.
fn plan_of<A: clap::Args, P>(
    options: &str,
    new: impl FnOnce(&A) -> Result<P, BenchError>,
) -> Option<Result<P, BenchError>> {
    match new(&parsed(options)) {
        Err(BenchError::OneCore { .. }) => None,
        other => Some(other),
    }
}

/// A temporary folder with files of a host, removed when the value is dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let name = format!("rpcrdma-bench-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a writable folder");
        Folder(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        let path = self.0.join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a writable folder");
        fs::write(path, text).expect("a writable folder");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // An error cannot be reported here.
        let _ = fs::remove_dir_all(&self.0);
    }
}
