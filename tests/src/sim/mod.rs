//! The simulation: the production code of many shards under a seeded scheduler, in virtual time,
//! with faults; after every turn everything is counted.
//!
//! ```text
//!   seed ──▶ draw ──▶ Setup: engines, configurations, habits of programs, faults
//!                       │
//!   scheduler ── polls a shard, steps a control plane, moves the time, connects, closes, stops
//!       │              └▶ Program (handler): calls and serves, tells the model what it sees
//!       └▶ after every turn: invariants over the shard's audit, suspicions over both ends
//!   then: no more faults, everything drains; every shard stops, everything is at home
//! ```
//! A run depends on its seed and on nothing else: no clock of the machine, no address, no order of
//! a hash map. The same seed gives the same trace, step by step.

mod draw;
mod ending;
mod give;
pub mod invariants;
mod judge;
mod model;
mod program;
mod scheduler;
mod trace;
mod trouble;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use self::draw::{Setup, Weather};
pub use self::invariants::CHECKS;
pub use self::model::{Coverage, Violation};
use self::scheduler::Sim;
use crate::script::Random;

/// A run without a violation.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// A number that is the same if everything has happened in the same way.
    pub hash: u64,
    /// How many things have happened.
    pub events: u64,
    /// What has been seen how often.
    pub coverage: Coverage,
}

/// A run with a violation.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The seed, which alone brings it back.
    pub seed: u64,
    /// What must not be.
    pub violation: Violation,
    /// What the run consisted of.
    pub setup: String,
    /// What happened last.
    pub story: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { check, detail } = &self.violation;
        writeln!(f, "{}", self.setup)?;
        for event in &self.story {
            writeln!(f, "    {event}")?;
        }
        writeln!(f, "seed {}: violated: {check}", self.seed)?;
        writeln!(f, "    {detail}")?;
        write!(f, "    again: tests/run simulate --from {} --seeds 1", self.seed)
    }
}

/// Runs one seed.
///
/// # Errors
/// What was violated, and what came before it.
pub fn run(seed: u64) -> Result<Outcome, Box<Failure>> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut beside = Random(seed.wrapping_mul(0xd1b5_4a32_d192_ed03));
    let setup = Setup::draw(&mut random, &mut beside);
    let mut sim = Sim::new(&setup, random);
    let result = catch_unwind(AssertUnwindSafe(|| sim.run()));
    let violation = match result {
        Ok(Ok(())) => {
            let mut model = sim.model.borrow_mut();
            for (fault, count) in sim.logs.iter().flat_map(|log| log.counts()) {
                if count > 0 {
                    *model.coverage.entry(fault).or_default() += count;
                }
            }
            return Ok(Outcome {
                hash: model.trace.hash(),
                events: model.trace.count(),
                coverage: model.coverage.clone(),
            });
        }
        Ok(Err(violation)) => violation,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Violation { check: NO_PANIC, detail: text.unwrap_or_default() }
        }
    };
    let counted = sim.nodes.iter().map(|node| {
        let stats = node.shard.handle().stats();
        let some: Vec<_> = stats.iter().filter(|(_, count)| *count > 0).collect();
        format!("{:?}: {some:?}", node.shard.handle())
    });
    let counted: Vec<String> = counted.collect();
    // Borrowed or not when it panicked: nobody is left who would write to it.
    let story = sim.model.try_borrow().map(|model| model.trace.story()).unwrap_or_default();
    let story = story.into_iter().chain(counted).collect();
    // What is wrong inside may be wrong when it is dropped, too; the report must not be lost.
    std::mem::forget(sim);
    Err(Box::new(Failure { seed, violation, setup: format!("{setup:?}"), story }))
}

/// The name of what asserts inside of the engine and of the watched provider check.
pub const NO_PANIC: &str = "no assertion fails, and no rule of verbs is broken";
