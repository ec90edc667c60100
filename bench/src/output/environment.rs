//! The environment of a result: the machine, the program, and disturbances.

use serde::{Deserialize, Serialize};

use crate::machine::env::{self, Build, Machine};
use crate::machine::{CorePair, Jitter, jitter};
use crate::stop;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    pub build: Build,
    pub machine: Machine,
    /// What a single sample is exact to, in nanoseconds.
    pub clock_step_ns: f64,
    /// What the contenders used beneath them: memory and page size, provider and its settings.
    pub notes: Vec<String>,
    pub jitter_before: [Jitter; 2],
    pub jitter_after: [Jitter; 2],
    /// Why the run is to be called noisy; empty when it is not.
    pub noise: Vec<String>,
    /// Whether the run was ended before it was done: the figures are of what was measured so far.
    #[serde(default)]
    pub interrupted: bool,
    /// When it was measured: the end of the run, in milliseconds since 1970.
    #[serde(default)]
    pub ended_ms: u64,
    #[serde(default)]
    pub command: Vec<String>,
}

/// How often a contender lost its core, and in which time.
#[derive(Debug, Clone)]
pub struct Lost {
    pub name: String,
    pub elapsed_ns: u64,
    pub preempted: u64,
}

impl Environment {
    /// The environment of a run between these two probes.
    pub fn new(
        cores: CorePair,
        notes: Vec<String>,
        [before, after]: [[Jitter; 2]; 2],
    ) -> Environment {
        Environment {
            build: Build::THIS,
            machine: Machine::read(cores),
            clock_step_ns: jitter::clock_step_ns(),
            notes,
            jitter_before: before,
            jitter_after: after,
            noise: noise(&[before, after].concat(), &[]),
            interrupted: stop::is_requested(),
            ended_ms: env::now_ms(),
            command: env::command(),
        }
    }

    /// With contenders that lost their core: a run is noisy if that was often.
    #[must_use]
    pub fn lost(mut self, lost: &[Lost]) -> Environment {
        self.noise.extend(noise(&[], lost));
        self
    }

    /// The machine, the program, the notes, and what the jitter probe saw, each with its name.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts: Vec<(&str, String)> =
            self.machine.lines().into_iter().map(|line| ("machine", line)).collect();
        facts.push(("program", self.build.line()));
        facts.extend(self.notes.iter().map(|note| ("with", note.clone())));
        for (when, probes) in [("before", &self.jitter_before), ("after", &self.jitter_after)] {
            facts.push(("jitter", format!("{when}: {}", probes.map(gaps).join("; "))));
        }
        facts.push(("clock", format!("exact to {:.1} ns", self.clock_step_ns)));
        facts
    }

    pub fn head(&self) -> Vec<String> {
        let line = |(name, value)| format!("{:<13}{value}", format!("{name}:"));
        self.facts().into_iter().map(line).collect()
    }

    /// What stands below the figures: whether they are to be believed.
    pub fn foot(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.interrupted {
            lines.push("INTERRUPTED: the figures are of what was measured so far.".to_owned());
        }
        if !self.build.is_optimised() {
            lines.push("NOT A RELEASE BUILD: no figure above means anything.".to_owned());
        }
        if self.noise.is_empty() {
            lines.push("The machine was quiet.".to_owned());
            return lines;
        }
        let noisy = "NOISY: ratios of medians still mean something, times and tails less so.";
        lines.push(noisy.to_owned());
        lines.extend(self.noise.iter().map(|reason| format!("  {reason}")));
        lines
    }
}

/// Why a run is to be called noisy: both probes, and threads that lost their core.
pub fn noise(probes: &[Jitter], lost: &[Lost]) -> Vec<String> {
    let mut reasons: Vec<String> = probes.iter().filter_map(Jitter::noise).collect();
    reasons.dedup();
    for Lost { name, elapsed_ns, preempted } in lost {
        let seconds = *elapsed_ns as f64 / 1e9;
        if *preempted as f64 > seconds * PREEMPTED_NOISY {
            reasons.push(format!("{name}: lost a core {preempted} times in {seconds:.1} s"));
        }
    }
    reasons
}

fn gaps(probe: Jitter) -> String {
    let Jitter { core, gaps_per_second, longest_ns, lost_share } = probe;
    format!(
        "core {core}: {gaps_per_second:.0} gaps/s over 5 us, longest {:.0} us, {:.2} % lost",
        longest_ns as f64 / 1e3,
        lost_share * 100.0
    )
}

/// A thread that loses its core more often than this in a second has company.
const PREEMPTED_NOISY: f64 = 20.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_loses_its_core_makes_a_run_noisy() {
        let lost = |preempted| Lost { name: "floor".into(), elapsed_ns: 1_000_000_000, preempted };
        assert!(noise(&[], &[lost(20)]).is_empty());
        assert_eq!(noise(&[], &[lost(21)]), ["floor: lost a core 21 times in 1.0 s"]);
    }
}
