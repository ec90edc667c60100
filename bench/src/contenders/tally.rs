//! What is counted on the thread of a side while it does its part of a round.

use std::fs;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::alloc::{self, Allocations};
use crate::error::BenchError;
use crate::machine::files::{descriptors, resident};
use crate::machine::kernel::Kernel;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tally {
    #[default]
    Nothing,
    /// Allocations, context switches, page faults.
    Events,
    /// Nothing here: strace sees where the part begins and ends.
    Marks,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tallied {
    pub allocations: Allocations,
    pub kernel: Kernel,
}

impl Tally {
    /// Does the part of a side, `client` or `server`, and counts.
    pub fn around(self, side: &str, work: &mut dyn FnMut()) -> Tallied {
        match self {
            Tally::Nothing => {
                work();
                Tallied::default()
            }
            Tally::Events => {
                let before = Kernel::now();
                let ((), allocations) = alloc::count(work);
                Tallied { allocations, kernel: Kernel::now().since(before) }
            }
            Tally::Marks => {
                mark(side, Mark::Begin);
                work();
                mark(side, Mark::End);
                Tallied::default()
            }
        }
    }
}

/// What the part of a server in a round took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerPart {
    pub tallied: Tallied,
    /// The share of its time in which the thread had a processor.
    pub cpu: f64,
    /// How often it lost its core to another program, where that is not known otherwise.
    pub preempted: u64,
}

impl ServerPart {
    /// Does the part of a server, and counts what is named.
    pub fn of(
        tally: Tally,
        mut serve: impl FnMut() -> Result<(), BenchError>,
    ) -> Result<ServerPart, BenchError> {
        let mut served = Ok(());
        let (tallied, cpu) = with_cpu(|| tally.around("server", &mut || served = serve()));
        served.map(|()| ServerPart { tallied, cpu, preempted: 0 })
    }
}

/// Does something, and says which share of its time the thread had a processor.
pub fn with_cpu<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let before = [ClockId::Monotonic, ClockId::ThreadCPUTime].map(clock_ns);
    let value = work();
    let after = [ClockId::Monotonic, ClockId::ThreadCPUTime].map(clock_ns);
    let [time, cpu] = [0, 1].map(|clock| (after[clock] - before[clock]).max(0) as f64);
    (value, if time > 0.0 { (cpu / time).min(1.0) } else { 0.0 })
}

fn clock_ns(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// What a process holds between two rounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Bytes of memory that are in use, files apart.
    pub memory_bytes: u64,
    pub descriptors: u64,
    /// What is missing from the pools of its shards: slots, messages, segments, buffers, windows;
    /// and Receives that are neither posted nor on their way there.
    pub out: u64,
}

impl Held {
    /// Of this process, with what its pools miss.
    pub fn here(out: u64) -> Held {
        Held { memory_bytes: resident(), descriptors: descriptors(), out }
    }

    /// Both together.
    pub fn and(self, other: Held) -> Held {
        Held {
            memory_bytes: self.memory_bytes + other.memory_bytes,
            descriptors: self.descriptors + other.descriptors,
            out: self.out + other.out,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    Begin,
    /// What comes behind is not.
    End,
}

/// Asks for a file that is not there: a system call that strace writes down with its name.
fn mark(side: &str, place: Mark) {
    let _ = fs::metadata(mark_of(side, place));
}

/// The file that marks such a place.
pub fn mark_of(side: &str, place: Mark) -> String {
    format!("/rpcrdma-bench is not here/{side}/{place:?}")
}

#[cfg(test)]
mod tests {
    use std::hint::spin_loop;
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_that_computes_has_its_core_and_one_that_waits_has_not() {
        let computing = || {
            let until = clock_ns(ClockId::ThreadCPUTime) + 10_000_000;
            while clock_ns(ClockId::ThreadCPUTime) < until {
                spin_loop();
            }
        };
        let (computed, waiting) = with_cpu(|| thread::spawn(move || with_cpu(computing)).join());
        let ((), computing) = computed.expect("no panic");
        assert!(computing > waiting && computing > 0.0, "{computing} and {waiting}");
        assert!(computing <= 1.0);
    }
}
