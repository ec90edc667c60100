//! Latencies: how often each was measured, by its first eight bits.
//!
//! ```text
//!   0 1 2 .. 255 │ 256 258 .. 510 │ 512 516 .. 1020 │ ..     nanoseconds: at most 0.8 % too little
//! ```
//! These are the steps of an HdrHistogram of two digits. A shard counts in them with few
//! instructions, and other threads read them without its help.

use std::sync::OnceLock;

use hdrhistogram::Histogram;

use super::Counter;

/// The latencies that a shard has measured.
#[derive(Debug)]
pub(crate) struct Latencies {
    /// Of calls of peers, from their delivery to their answer.
    pub service: Latency,
    /// Of own calls, from their beginning to their completion.
    pub calls: Latency,
    /// Of the procedures of bindings, in the order of their first call.
    procedures: Box<[OnceLock<OfProcedure>]>,
}

/// Which procedure a latency is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcedureKey {
    pub program: u32,
    pub version: u32,
    pub number: u32,
    pub name: &'static str,
    pub is_own: bool,
}

#[derive(Debug)]
struct OfProcedure {
    key: ProcedureKey,
    latency: Latency,
}

/// One distribution, with one writer.
#[derive(Debug)]
pub(crate) struct Latency(Box<[Counter]>);

/// The latencies of a shard, in nanoseconds. One call in `stats.sample` is measured.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LatencyReport {
    /// Of calls of peers: from their delivery to the handler until it has answered them, at once or
    /// later, with a reply or an error.
    pub service: Histogram<u64>,
    /// Of own calls: from [`Turn::call`](crate::Turn::call), or the like, to their completion, failures
    /// included.
    pub calls: Histogram<u64>,
    /// Of calls written or answered by a binding ([`ulb`](crate::ulb)), by procedure; the others
    /// are in the sums only. No more than 64.
    pub procedures: Vec<ProcedureLatency>,
}

/// The latency of the calls of one procedure.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ProcedureLatency {
    /// The number of its program.
    pub program: u32,
    /// The version of the program.
    pub version: u32,
    /// Its number.
    pub number: u32,
    /// Its name.
    pub name: &'static str,
    /// Whether these are own calls, from beginning to completion; otherwise those of peers, from
    /// delivery to answer.
    pub is_own: bool,
    /// The latency, in nanoseconds.
    pub histogram: Histogram<u64>,
}

impl Latencies {
    pub fn new() -> Latencies {
        Latencies {
            service: Latency::new(),
            calls: Latency::new(),
            procedures: (0..PROCEDURES_MAX).map(|_| OnceLock::new()).collect(),
        }
    }

    /// The place of a procedure. The first call of each allocates its distribution. `None` if there
    /// are too many.
    pub fn place_of(&self, key: &ProcedureKey) -> Option<u32> {
        let is_it = |place: &&OnceLock<OfProcedure>| {
            let new = || OfProcedure { key: *key, latency: Latency::new() };
            place.get_or_init(new).key == *key
        };
        self.procedures.iter().take_while(|place| !is_it(place)).count().try_into().ok()
    }

    /// The latency of the procedure in a place.
    pub fn of_procedure(&self, place: u32) -> Option<&Latency> {
        Some(&self.procedures.get(place as usize)?.get()?.latency)
    }

    /// Reads them all. The shard may count meanwhile.
    pub fn report(&self) -> LatencyReport {
        let procedures = self.procedures.iter().map_while(OnceLock::get);
        LatencyReport {
            service: self.service.histogram(),
            calls: self.calls.histogram(),
            procedures: procedures.map(OfProcedure::report).collect(),
        }
    }
}

impl OfProcedure {
    fn report(&self) -> ProcedureLatency {
        let ProcedureKey { program, version, number, name, is_own } = self.key;
        let histogram = self.latency.histogram();
        ProcedureLatency { program, version, number, name, is_own, histogram }
    }
}

impl Latency {
    fn new() -> Latency {
        Latency((0..=step_of(LONGEST)).map(|_| Counter::default()).collect())
    }

    /// Counts a latency.
    #[inline]
    pub fn record(&self, ns: u64) {
        self.0[step_of(ns.min(LONGEST))].add(1);
    }

    fn histogram(&self) -> Histogram<u64> {
        let mut histogram = Histogram::new_with_bounds(1, LONGEST, DIGITS).expect("fixed bounds");
        for (step, counter) in self.0.iter().enumerate() {
            let count = counter.count();
            if count > 0 {
                histogram.record_n(start_of(step), count).expect("within its bounds");
            }
        }
        histogram
    }
}

/// The step that a latency is in.
#[inline]
fn step_of(ns: u64) -> usize {
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(EXACT_BITS);
    ((shift as usize) << (EXACT_BITS - 1)) + (ns >> shift) as usize
}

/// The first latency of a step.
fn start_of(step: usize) -> u64 {
    let shift = (step >> (EXACT_BITS - 1)).saturating_sub(1);
    ((step - (shift << (EXACT_BITS - 1))) as u64) << shift
}

/// Bits of a latency that are kept.
const EXACT_BITS: u32 = 8;
/// The same for HdrHistogram: decimal digits.
const DIGITS: u8 = 2;
/// Longer latencies count as this: 18 minutes.
const LONGEST: u64 = (1 << 40) - 1;
/// Procedures that have a latency of their own.
const PROCEDURES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_those_of_the_histogram() {
        let latency = Latency::new();
        let mut direct = Histogram::<u64>::new_with_bounds(1, LONGEST, DIGITS).expect("bounds");
        let mut last = 0;
        for bits in 0..40 {
            for low in [0, 1, 2, 3] {
                for ns in [(1 << bits) + low, (1_u64 << bits).wrapping_sub(1 + low) & LONGEST] {
                    latency.record(ns);
                    direct.record(ns).expect("within the bounds");
                    let start = start_of(step_of(ns));
                    assert!(start <= ns && ns - start <= ns / 128, "{ns}");
                    assert_eq!(step_of(start), step_of(ns));
                    last = last.max(step_of(ns));
                }
            }
        }
        assert_eq!(last, latency.0.len() - 1);
        assert_eq!(latency.histogram(), direct);
        latency.record(u64::MAX);
        assert!(latency.histogram().max() >= LONGEST, "counted as the longest");
    }

    #[test]
    fn every_procedure_has_its_place_until_there_are_too_many() {
        let latencies = Latencies::new();
        let key = |number| ProcedureKey { program: 7, version: 1, number, name: "P", is_own: true };
        for _twice in 0..2 {
            for number in 0..PROCEDURES_MAX as u32 {
                assert_eq!(latencies.place_of(&key(number)), Some(number));
            }
        }
        let none = latencies.place_of(&key(1000)).and_then(|place| latencies.of_procedure(place));
        assert!(none.is_none());
        latencies.of_procedure(3).expect("it is there").record(5);
        let report = latencies.report();
        assert_eq!(report.procedures.len(), PROCEDURES_MAX);
        assert_eq!((report.procedures[3].number, report.procedures[3].histogram.len()), (3, 1));
    }
}
