//! An experiment: what takes turns in its rounds, between two looks at the machine. One runner and
//! one report for every mode.
//!
//! ```text
//!   options ──▶ plan ──▶ Experiment ──▶ probe, rounds in turns, probe ──▶ records ──▶ Report
//!                            A B C, then C B A, ...
//! ```
//! A time depends on what the machine was doing at that moment; a neighbour wakes up, the host
//! moves a virtual core. What takes turns meets the same machine, and the order turns round each
//! time, so that neither always comes first.

use std::time::Duration;

use serde_json::Value;

use crate::error::BenchError;
use crate::machine::CorePair;
use crate::machine::jitter::{self, PROBE_TIME};
use crate::output::{Environment, Records, Report, Session};
use crate::stop;

/// What is measured, where, and how often.
#[derive(Debug, Clone)]
pub struct Experiment {
    pub mode: &'static str,
    /// What is measured, in a sentence.
    pub what: String,
    pub settings: Value,
    pub cores: CorePair,
    pub rounds: u32,
    /// How many take turns in a round.
    pub turns: usize,
    pub expected: Duration,
    pub notes: Vec<String>,
}

impl Experiment {
    #[must_use]
    pub fn noting(self, notes: Vec<String>) -> Experiment {
        Experiment { notes, ..self }
    }

    /// Runs every turn in every round; `turn` is given the round and the turn. Returns what was
    /// measured, and the report with its figures and samples.
    pub fn run(
        self,
        session: &Session,
        turn: impl FnMut(u32, usize, &mut Records) -> Result<(), BenchError>,
    ) -> Result<(Records, Report), BenchError> {
        let mut turn = Some(turn);
        self.run_blocks(session, 1, |_| Ok(turn.take().expect("there is one block")))
    }

    /// The same for one block of rounds after the other; `block` sets the next one up.
    pub fn run_blocks<T: FnMut(u32, usize, &mut Records) -> Result<(), BenchError>>(
        self,
        session: &Session,
        blocks: usize,
        mut block: impl FnMut(usize) -> Result<T, BenchError>,
    ) -> Result<(Records, Report), BenchError> {
        let Experiment { mode, what, settings, cores, rounds, turns, expected, notes } = self;
        let steps = rounds * turns as u32;
        let progress = session.progress(steps * blocks as u32, expected);
        let before = jitter::probe(cores, PROBE_TIME)?;
        let mut records = Records::default();
        for at in 0..blocks {
            if at > 0 && stop::is_requested() {
                break;
            }
            let mut turn = block(at)?;
            let tick = |done| progress.step(steps * at as u32 + done);
            in_turns(rounds, turns, tick, |round, index| turn(round, index, &mut records))?;
        }
        drop(progress);
        let after = jitter::probe(cores, PROBE_TIME)?;
        let environment = Environment::new(cores, notes, [before, after]).lost(&records.lost());
        let mut report = Report::new(mode, what, settings, environment, records.figures());
        for record in records.iter() {
            record.samples().into_iter().for_each(|latency| report.samples(record.id(), latency));
        }
        Ok((records, report))
    }
}

/// Runs one of `count` after the other, each round in the opposite order of the one before, until a
/// run is asked to end. `run` is given the round and the turn, `tick` the number of turns done.
fn in_turns(
    rounds: u32,
    count: usize,
    mut tick: impl FnMut(u32),
    mut run: impl FnMut(u32, usize) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let mut done = 0;
    for round in 0..rounds {
        for turn in 0..count {
            // The first round is made in any case, shortened by the meters: no contender is left
            // without a figure.
            if round > 0 && stop::is_requested() {
                return Ok(());
            }
            run(round, if round.is_multiple_of(2) { turn } else { count - 1 - turn })?;
            done += 1;
            tick(done);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_turn_their_order_each_time() {
        let (mut log, mut ticks) = (Vec::new(), Vec::new());
        let run = |round, turn| {
            log.push((round, turn));
            Ok(())
        };
        in_turns(3, 3, |done| ticks.push(done), run).expect("none fails");
        let turns: Vec<usize> = log.iter().map(|(_, turn)| *turn).collect();
        assert_eq!(turns, [0, 1, 2, 2, 1, 0, 0, 1, 2]);
        assert_eq!(log[3].0, 1);
        assert_eq!(ticks, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    }
}
