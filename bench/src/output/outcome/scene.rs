//! The scene of a result: the machine, the program, and what disturbed it.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::device::cores::CorePair;
use crate::device::env::{self, Build, Machine};
use crate::device::jitter::{self, Jitter};
use crate::stop;

/// Where something was measured, and what disturbed it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scene {
    /// The program.
    pub build: Build,
    /// The machine.
    pub machine: Machine,
    /// What a single sample is exact to, in nanoseconds.
    pub clock_step_ns: f64,
    /// What the contenders used beneath them: memory and page size, provider and its settings.
    pub notes: Vec<String>,
    /// The jitter of both cores before the run.
    pub jitter_before: [Jitter; 2],
    /// The jitter of both cores after the run.
    pub jitter_after: [Jitter; 2],
    /// Why the run is to be called noisy; empty when it is not.
    pub noise: Vec<String>,
    /// Whether the run was ended before it was done: the figures are of what was measured so far.
    #[serde(default)]
    pub interrupted: bool,
    /// When it was measured: the end of the run, in milliseconds since 1970.
    #[serde(default)]
    pub ended_ms: u64,
    /// The command, as it was typed.
    #[serde(default)]
    pub command: Vec<String>,
}

/// How often a contender lost its core.
#[derive(Debug, Clone, Copy)]
pub struct Lost {
    /// The contender.
    pub name: &'static str,
    /// The time that it was measured for.
    pub elapsed_ns: u64,
    /// How often.
    pub preempted: u64,
}

impl Lost {
    /// Sums up the rounds of a contender: how long each took, and how often it lost its core.
    pub fn of_rounds(name: &'static str, rounds: impl Iterator<Item = (u64, u64)>) -> Lost {
        rounds.fold(Lost { name, elapsed_ns: 0, preempted: 0 }, |sum, (elapsed_ns, preempted)| {
            Lost {
                elapsed_ns: sum.elapsed_ns + elapsed_ns,
                preempted: sum.preempted + preempted,
                ..sum
            }
        })
    }
}

impl Scene {
    /// The scene of contenders that lost so much, measured between the two probes.
    pub fn new(
        cores: CorePair,
        notes: Vec<String>,
        [before, after]: [[Jitter; 2]; 2],
        lost: &[Lost],
    ) -> Scene {
        Scene {
            build: Build::THIS,
            machine: Machine::read(cores),
            clock_step_ns: jitter::clock_step_ns(),
            notes,
            jitter_before: before,
            jitter_after: after,
            noise: noise(&[before, after].concat(), lost),
            interrupted: stop::is_wished(),
            ended_ms: env::now_ms(),
            command: env::command(),
        }
    }

    /// What stands above the figures.
    pub fn write_head(&self, out: &mut String) {
        for text in self.machine.lines() {
            line(out, format_args!("machine:     {text}"));
        }
        let Build { rpcrdma, rustc, profile, target, .. } = &self.build;
        line(out, format_args!("program:     rpcrdma {rpcrdma}, {profile}, {target}, {rustc}"));
        for note in &self.notes {
            line(out, format_args!("with:        {note}"));
        }
        for (when, probes) in [("before", &self.jitter_before), ("after", &self.jitter_after)] {
            line(out, format_args!("jitter:      {when}: {}", probes.map(gaps).join("; ")));
        }
        line(out, format_args!("clock:       exact to {:.1} ns", self.clock_step_ns));
    }

    /// What stands below the figures: whether they are to be believed.
    pub fn write_noise(&self, out: &mut String) {
        line(out, format_args!(""));
        if self.interrupted {
            line(out, format_args!("INTERRUPTED: the figures are of what was measured so far."));
        }
        if !self.build.is_optimised() {
            line(out, format_args!("NOT A RELEASE BUILD: no figure above means anything."));
        }
        if self.noise.is_empty() {
            line(out, format_args!("The machine was quiet."));
            return;
        }
        line(
            out,
            format_args!("NOISY: ratios of medians still mean something, times and tails less so."),
        );
        for reason in &self.noise {
            line(out, format_args!("  {reason}"));
        }
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

/// Writes a line of a table.
pub fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("writing to a string does not fail");
}

/// A thread that loses its core more often than this in a second has company.
const PREEMPTED_NOISY: f64 = 20.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_loses_its_core_makes_a_run_noisy() {
        let lost = |preempted| Lost { name: "floor", elapsed_ns: 1_000_000_000, preempted };
        assert!(noise(&[], &[lost(20)]).is_empty());
        assert_eq!(noise(&[], &[lost(21)]), ["floor: lost a core 21 times in 1.0 s"]);
    }
}
