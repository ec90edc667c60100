//! The runner of every mode that goes in rounds: all points in turns, between two looks at the
//! machine.

use std::time::Duration;

use crate::error::BenchError;
use crate::machine::CorePair;
use crate::machine::jitter::{self, PROBE_TIME};
use crate::output::{Environment, Session};
use crate::stats::in_turns;

#[derive(Debug, Clone, Copy)]
pub struct Sweep {
    pub cores: CorePair,
    pub rounds: u32,
    pub points: usize,
    pub expected: Duration,
}

impl Sweep {
    /// Runs every point in every round, forwards and then backwards; `run` is given the round and the
    /// point. Returns the environment, with these notes and with the jitter before and after.
    pub fn run(
        self,
        session: &Session,
        notes: Vec<String>,
        run: impl FnMut(u32, usize) -> Result<(), BenchError>,
    ) -> Result<Environment, BenchError> {
        let Sweep { cores, rounds, points, expected } = self;
        let progress = session.progress(rounds * points as u32, expected);
        let before = jitter::probe(cores, PROBE_TIME)?;
        in_turns(rounds, points, |done| progress.step(done), run)?;
        drop(progress);
        let after = jitter::probe(cores, PROBE_TIME)?;
        Ok(Environment::new(cores, notes, [before, after]))
    }
}
