//! The kernel's own RPC: `fstat` of an open file on a mount without attribute caching.
//!
//! On an NFS mount with `noac` each is one GETATTR, asked by the kernel's client and answered by the
//! server of the mount; `stat` of a path would be three of them, since the directory is asked about,
//! too. It does more than an RPC of this engine: a system call, the VFS on both sides, NFS itself,
//! and waking a sleeping thread on each side.

use std::fs::File;
use std::path::Path;

use crate::error::BenchError;
use crate::machine::{CorePair, pair};
use crate::stats::{Contender, Meter, Quota, Round};

/// `fstat` in a loop, on the client's core; the server's core is the kernel's.
#[derive(Debug)]
pub struct Stat {
    file: File,
    cores: CorePair,
}

impl Stat {
    pub fn new(path: &Path, cores: CorePair) -> Result<Stat, BenchError> {
        let file = File::open(path)
            .map_err(|error| BenchError::device(WHO, format!("{}: {error}", path.display())))?;
        Ok(Stat { file, cores })
    }
}

impl Contender for Stat {
    fn name(&self) -> &'static str {
        WHO
    }

    fn round(&mut self, quota: Quota) -> Result<Round, BenchError> {
        let Stat { file, cores } = self;
        let outcome = pair::run(
            *cores,
            |_| {
                // The first ones make the caches of names warm; as many as others need take long.
                let mut meter = Meter::new(Quota { warm_up: quota.warm_up.min(WARM_UP), ..quota });
                loop {
                    let from = meter.now();
                    file.metadata()
                        .map_err(|error| BenchError::device(WHO, format!("fstat: {error}")))?;
                    if !meter.timed(from, meter.now()) {
                        return Ok(meter.finish());
                    }
                }
            },
            |_| Ok(()),
        )?;
        Ok(Round { preempted: outcome.preempted, ..outcome.client })
    }
}

const WHO: &str = "fstat";
const WARM_UP: u64 = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::End;

    #[test]
    fn a_file_is_looked_at_as_often_as_requested() {
        let Ok(cores) = CorePair::choose(None) else { return };
        let mut stat = Stat::new(Path::new("/proc/self/stat"), cores).expect("it is there");
        let quota = Quota { warm_up: 2000, end: End::Count(50) };
        let round = stat.round(quota).expect("it stays there");
        assert_eq!((round.completed, round.latency.count()), (50, 50));
    }

    #[test]
    fn a_file_that_is_not_there_is_an_error_before_anything_is_measured() {
        let Ok(cores) = CorePair::choose(None) else { return };
        let error =
            Stat::new(Path::new("/nowhere/to/be/found"), cores).expect_err("it is not there");
        assert!(error.to_string().contains("/nowhere"), "{error}");
    }
}
