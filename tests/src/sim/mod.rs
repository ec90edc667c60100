//! The simulation: the production code of many shards under a seeded scheduler, in virtual time,
//! with faults; every turn is followed by an audit.
//!
//! ```text
//!   seed ──▶ scenario ──▶ Setup: engines, configurations, habits of programs, faults
//!                       │
//!   scheduler ── polls a shard, steps a control plane, moves the time, connects, closes, stops
//!       │              └▶ Program (handler): calls and serves, reports to the model what it sees
//!       └▶ after every turn: invariants over the shard's audit, suspicions over both ends
//!   then: no more faults, every call completes; every shard stops, all memory is free
//! ```
//! A run over the fabric, or over TCP in a virtual network, depends only on its seed: not on a clock,
//! an address or the order of a hash map. The same seed gives the same trace, step by step. Over
//! shared memory and the system's TCP it gives the same scenario: another thread learns that a socket
//! is closed, and the system carries bytes.
//!
//! [`fairness`] is a scenario of its own: many equal clients, without faults.

mod checker;
mod ending;
pub mod fairness;
mod give;
pub mod invariants;
mod model;
mod program;
pub mod provider;
mod scenario;
mod scheduler;
mod sessions;
mod trace;
mod trouble;

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use self::invariants::CHECKS;
pub use self::model::{Coverage, Violation};
use self::provider::SimProvider;
pub use self::scenario::{Setup, Weather};
use self::scheduler::Sim;
use crate::script::Random;

/// A run without a violation.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// A hash of the trace.
    pub hash: u64,
    /// The number of events.
    pub events: u64,
    /// How often each kind of event was seen.
    pub coverage: Coverage,
}

/// A run with a violation.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The seed, which reproduces the run over the fabric and the virtual network.
    pub seed: u64,
    /// What `tests/run simulate` needs beside the seed to repeat it.
    pub options: String,
    /// The violation.
    pub violation: Violation,
    /// The scenario.
    pub setup: String,
    /// The last events.
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
        let Failure { options, seed, .. } = self;
        write!(f, "    again: tests/run simulate {options} --from {seed} --seeds 1")
    }
}

/// Runs one seed.
///
/// # Errors
/// The violation, and the events before it.
pub fn run<P: SimProvider>(seed: u64) -> Result<Outcome, Box<Failure>> {
    let options = format!("--provider {}", P::NAME);
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut beside = Random(seed.wrapping_mul(0xd1b5_4a32_d192_ed03));
    let setup = Setup::choose(&mut random, &mut beside);
    let mut sim = Sim::<P>::new(&setup, random);
    let result = catch_unwind(AssertUnwindSafe(|| sim.run()));
    let violation = match result {
        Ok(Ok(())) => {
            let seen = match P::service(0) {
                Some(_) => sessions::run::<P>(seed, &setup),
                None => Ok(sessions::Seen::default()),
            };
            let ((hash, events), coverage) = match seen {
                Ok(seen) => seen,
                Err((violation, story)) => {
                    let setup = format!("sessions: {:?}", setup.engines[0].raw);
                    return Err(Box::new(Failure { seed, options, violation, setup, story }));
                }
            };
            let mut model = sim.model.borrow_mut();
            for (what, count) in coverage {
                *model.coverage.entry(what).or_default() += count;
            }
            let faults = sim.logs.iter().flat_map(|log| log.counts());
            for (fault, count) in faults.chain(sim.base.seen()) {
                if count > 0 {
                    *model.coverage.entry(fault).or_default() += count;
                }
            }
            return Ok(Outcome {
                hash: model.trace.hash() ^ hash,
                events: model.trace.count() + events,
                coverage: model.coverage.clone(),
            });
        }
        Ok(Err(violation)) => violation,
        Err(panic) => panicked(&*panic),
    };
    let counted = sim.nodes.iter().map(|node| {
        let stats = node.shard.handle().stats();
        let some: Vec<_> = stats.iter().filter(|(_, count)| *count > 0).collect();
        format!("{:?}: {some:?}", node.shard.handle())
    });
    let counted: Vec<String> = counted.collect();
    // Also if it was borrowed at the panic: no other user is left.
    let story = sim.model.try_borrow().map(|model| model.trace.story()).unwrap_or_default();
    let story = story.into_iter().chain(counted).collect();
    // Dropping it may panic as well, and the report must not be lost.
    std::mem::forget(sim);
    Err(Box::new(Failure { seed, options, violation, setup: format!("{setup:?}"), story }))
}

/// The violation that a panic is.
fn panicked(panic: &(dyn Any + Send)) -> Violation {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    Violation { check: NO_PANIC, detail: text.unwrap_or_default() }
}

/// The name of the check for assertions of the engine and of the checked provider.
pub const NO_PANIC: &str = "no assertion fails, and no rule of verbs is broken";
