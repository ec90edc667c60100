//! The result, as a table for people and as JSON for programs.

use std::fmt::Write as _;

use serde::Serialize;

use crate::cores::CorePair;
use crate::env::{Build, Machine};
use crate::jitter::{self, Jitter};
use crate::latency::Summary;
use crate::meter::Round;
use crate::plan::Settings;
use crate::rounds::{Ratio, Series, Spent};

/// A result, for people and for programs.
pub trait Tabular: Serialize {
    /// The whole report for people.
    fn table(&self) -> String;
}

/// A result, with all that is needed to believe it.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// What was measured, in words.
    pub what: String,
    /// What was measured, in numbers.
    pub settings: Settings,
    /// Where, and how quietly.
    #[serde(flatten)]
    pub scene: Scene,
    /// One entry per contender, in the order they were named.
    pub contenders: Vec<ContenderReport>,
    /// The quotients between them.
    pub ratios: Vec<RatioReport>,
    /// What their sides had the device do.
    pub spent: Vec<Spent>,
}

/// Where something was measured, and what disturbed it.
#[derive(Debug, Clone, Serialize)]
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
}

/// The result of one contender.
#[derive(Debug, Clone, Serialize)]
pub struct ContenderReport {
    /// Its name.
    pub name: &'static str,
    /// Whole round trips, when they were timed.
    pub round_trip: Option<Summary>,
    /// Half of each figure: what others print as latency.
    pub half_round_trip: Option<Summary>,
    /// The median over the rounds of their median, interpolated within the clock's step.
    pub median_ns: Option<f64>,
    /// The median over the rounds of their round trips per second.
    pub rate: f64,
    /// Data of requests and replies in GB/s (10^9 bytes), headers not counted.
    pub data_gb_per_s: f64,
    /// How often a measuring thread lost its core.
    pub preempted: u64,
    /// Each round by itself, in order.
    pub rounds: Vec<RoundReport>,
}

/// One round.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct RoundReport {
    /// The interpolated median, when round trips were timed.
    pub median_ns: Option<f64>,
    /// Round trips per second.
    pub rate: f64,
    /// Round trips.
    pub completed: u64,
    /// The time they took.
    pub elapsed_ns: u64,
    /// How often a measuring thread lost its core.
    pub preempted: u64,
}

/// The quotient of two contenders.
#[derive(Debug, Clone, Serialize)]
pub struct RatioReport {
    /// The one above the line.
    pub of: &'static str,
    /// The one below.
    pub to: &'static str,
    /// Of which figure: `median` of round trips, or `rate`.
    pub figure: &'static str,
    /// Median of the rounds of one over median of the rounds of the other.
    pub value: f64,
    /// Median of the quotients of neighbouring rounds.
    pub paired: f64,
    /// Lowest quotient of neighbouring rounds.
    pub low: f64,
    /// Highest quotient of neighbouring rounds.
    pub high: f64,
    /// What `of` takes more than `to`, in nanoseconds and per side: half the difference of the
    /// medians.
    pub added_per_side_ns: Option<f64>,
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
    /// Sums up the rounds of a contender.
    pub fn of_rounds<'a>(
        name: &'static str,
        rounds: impl Iterator<Item = &'a RoundReport>,
    ) -> Lost {
        rounds.fold(Lost { name, elapsed_ns: 0, preempted: 0 }, |sum, round| Lost {
            elapsed_ns: sum.elapsed_ns + round.elapsed_ns,
            preempted: sum.preempted + round.preempted,
            ..sum
        })
    }
}

impl ContenderReport {
    /// Sums a series up, of round trips that carry so many bytes of data both ways together.
    pub fn new(series: &Series, data_len: usize) -> ContenderReport {
        let latency = series.latency();
        let timed = latency.count() > 0;
        ContenderReport {
            name: series.name,
            round_trip: timed.then(|| latency.summary(1.0)),
            half_round_trip: timed.then(|| latency.summary(0.5)),
            median_ns: timed.then(|| series.median_ns()),
            rate: series.rate(),
            data_gb_per_s: series.rate() * data_len as f64 / 1e9,
            preempted: series.preempted(),
            rounds: series.rounds.iter().map(RoundReport::new).collect(),
        }
    }

    /// How often it lost its core.
    pub fn lost(&self) -> Lost {
        Lost::of_rounds(self.name, self.rounds.iter())
    }
}

impl RoundReport {
    /// Sums a round up.
    pub fn new(round: &Round) -> RoundReport {
        RoundReport {
            median_ns: (round.latency.count() > 0).then(|| round.latency.median_ns()),
            rate: round.rate(),
            completed: round.completed,
            elapsed_ns: round.elapsed_ns,
            preempted: round.preempted,
        }
    }
}

impl RatioReport {
    /// The quotient of the median round trips.
    pub fn of_medians(of: &Series, to: &Series) -> RatioReport {
        let ratio = Ratio::new(of, to, |round| round.latency.median_ns());
        let added = (of.median_ns() - to.median_ns()) / 2.0;
        RatioReport::new(of, to, "median", ratio, Some(added))
    }

    /// The quotient of the rates.
    pub fn of_rates(of: &Series, to: &Series) -> RatioReport {
        RatioReport::new(of, to, "rate", Ratio::new(of, to, Round::rate), None)
    }

    fn new(
        of: &Series,
        to: &Series,
        figure: &'static str,
        ratio: Ratio,
        added_per_side_ns: Option<f64>,
    ) -> RatioReport {
        let Ratio { value, paired, low, high } = ratio;
        RatioReport {
            of: of.name,
            to: to.name,
            figure,
            value,
            paired,
            low,
            high,
            added_per_side_ns,
        }
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
        }
    }

    /// What stands above the figures.
    pub(crate) fn write_head(&self, out: &mut String) {
        for text in self.machine.lines() {
            line(out, format_args!("machine:     {text}"));
        }
        let Build { rpcrdma, rustc, profile, target, .. } = self.build;
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
    pub(crate) fn write_noise(&self, out: &mut String) {
        line(out, format_args!(""));
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

impl Tabular for Report {
    fn table(&self) -> String {
        let mut out = String::new();
        let Settings { request_wire_bytes, reply_wire_bytes, .. } = self.settings;
        line(
            &mut out,
            format_args!("on the wire: {request_wire_bytes} bytes there, {reply_wire_bytes} back"),
        );
        self.scene.write_head(&mut out);
        self.write_latencies(&mut out);
        self.write_rates(&mut out);
        self.write_ratios(&mut out);
        self.write_spent(&mut out);
        self.scene.write_noise(&mut out);
        out
    }
}

impl Report {
    fn write_latencies(&self, out: &mut String) {
        let halves = [("round trip", 0), ("half of it", 1)];
        for (title, half) in halves {
            let rows: Vec<(&str, Summary)> = self
                .contenders
                .iter()
                .filter_map(|contender| {
                    let pick = [contender.round_trip, contender.half_round_trip];
                    pick[half].map(|summary| (contender.name, summary))
                })
                .collect();
            if !rows.is_empty() {
                write_summaries(out, title, &rows);
            }
        }
    }

    fn write_rates(&self, out: &mut String) {
        line(out, format_args!(""));
        line(
            out,
            format_args!(
                "{:<16}{:>14}{:>14}{:>14}{:>14}",
                "per second", "median", "lowest", "highest", "data, GB/s"
            ),
        );
        for contender in &self.contenders {
            let rates = || contender.rounds.iter().map(|round| round.rate);
            let low = rates().fold(f64::INFINITY, f64::min);
            let high = rates().fold(0.0, f64::max);
            let [median, low, high] = [contender.rate, low, high].map(count);
            let (name, data) = (contender.name, contender.data_gb_per_s);
            line(out, format_args!("{name:<16}{median:>14}{low:>14}{high:>14}{data:>14.3}"));
        }
    }

    fn write_ratios(&self, out: &mut String) {
        if self.ratios.is_empty() {
            return;
        }
        line(out, format_args!(""));
        line(
            out,
            format_args!(
                "{:<24}{:>8}{:>9}{:>9}{:>9}   (medians of {} rounds; neighbouring rounds)",
                "ratio", "", "paired", "lowest", "highest", self.settings.rounds
            ),
        );
        for ratio in &self.ratios {
            let RatioReport { of, to, figure, value, paired, low, high, .. } = ratio;
            let name = format!("{of} / {to}, {figure}");
            let added = ratio
                .added_per_side_ns
                .map_or_else(String::new, |added| format!("   {added:+.0} ns per side"));
            line(
                out,
                format_args!("{name:<24}{value:>8.3}{paired:>9.3}{low:>9.3}{high:>9.3}{added}"),
            );
        }
    }
}

impl Report {
    fn write_spent(&self, out: &mut String) {
        if self.spent.is_empty() {
            return;
        }
        line(out, format_args!(""));
        line(
            out,
            format_args!(
                "{:<24}{:>12}{:>12}{:>14}",
                "for each round trip", "doorbells", "Sends", "completions"
            ),
        );
        for Spent { name, side, doorbells, sends, completions, .. } in &self.spent {
            let name = format!("{name}, {side}");
            line(out, format_args!("{name:<24}{doorbells:>12.3}{sends:>12.3}{completions:>14.3}"));
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

fn write_summaries(out: &mut String, title: &str, rows: &[(&str, Summary)]) {
    let slow = rows.iter().any(|(_, summary)| summary.p50_ns >= 100_000.0);
    let (unit, scale) = if slow { ("us", 1000.0) } else { ("ns", 1.0) };
    line(out, format_args!(""));
    line(
        out,
        format_args!(
            "{:<16}{:>10}{:>10}{:>10}{:>10}{:>10}{:>12}{:>10}{:>12}",
            format!("{title}, {unit}"),
            "p50",
            "p90",
            "p99",
            "p99.9",
            "p99.99",
            "max",
            "mean",
            "samples"
        ),
    );
    for (name, summary) in rows {
        let Summary { p50_ns, p90_ns, p99_ns, p99_9_ns, p99_99_ns, max_ns, mean_ns, count } =
            *summary;
        let [p50, p90, p99, p99_9, p99_99, max, mean] =
            [p50_ns, p90_ns, p99_ns, p99_9_ns, p99_99_ns, max_ns, mean_ns].map(|ns| ns / scale);
        line(
            out,
            format_args!(
                "{name:<16}{p50:>10.0}{p90:>10.0}{p99:>10.0}{p99_9:>10.0}{p99_99:>10.0}\
                 {max:>12.0}{mean:>10.1}{count:>12}"
            ),
        );
    }
}

fn gaps(probe: Jitter) -> String {
    let Jitter { core, gaps_per_second, longest_ns, lost_share } = probe;
    format!(
        "core {core}: {gaps_per_second:.0} gaps/s over 5 us, longest {:.0} us, {:.2} % lost",
        longest_ns as f64 / 1e3,
        lost_share * 100.0
    )
}

/// A number of things in thousands or millions.
fn count(number: f64) -> String {
    match number {
        number if number >= 1e6 => format!("{:.3} M", number / 1e6),
        number if number >= 1e3 => format!("{:.2} k", number / 1e3),
        number => format!("{number:.1}"),
    }
}

pub(crate) fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("writing to a string does not fail");
}

/// A thread that loses its core more often than this in a second has company.
const PREEMPTED_NOISY: f64 = 20.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::Latency;

    fn series(name: &'static str, times_ns: &[u64], preempted: u64) -> Series {
        let round = |ns: &u64| {
            let mut latency = Latency::new();
            latency.record(*ns);
            Round { latency, completed: 1, elapsed_ns: 1_000_000_000, preempted }
        };
        Series { name, rounds: times_ns.iter().map(round).collect() }
    }

    fn report(series: &[Series], ratios: Vec<RatioReport>) -> Report {
        let cores = CorePair { client: 0, server: 1 };
        let quiet =
            Jitter { core: 0, gaps_per_second: 250.0, lost_share: 0.005, longest_ns: 25_000 };
        Report {
            what: "floor: echo of 64 bytes".into(),
            settings: Settings {
                mode: "floor",
                op: "echo",
                placement: "inline",
                continuation: true,
                touch: "lines",
                request_data_bytes: 64,
                reply_data_bytes: 64,
                request_wire_bytes: 136,
                reply_wire_bytes: 120,
                request_transmissions: 1,
                reply_transmissions: 1,
                window: 1,
                connections: 1,
                cores,
                rounds: 2,
                warm_up: 0,
            },
            scene: Scene::new(cores, vec!["pages of 4 KiB".into()], [[quiet; 2]; 2], &[]),
            contenders: series.iter().map(|one| ContenderReport::new(one, 128)).collect(),
            ratios,
            spent: vec![Spent::new("raw", "client", [4, 16, 17], 16)],
        }
    }

    #[test]
    fn the_table_labels_whole_and_half_round_trips() {
        let table = report(&[series("floor", &[300, 300], 0)], Vec::new()).table();
        let row = |title: &str| {
            let mut lines = table.lines().skip_while(|line| !line.starts_with(title)).skip(1);
            lines.next().unwrap_or_default().split_whitespace().nth(1).map(str::to_owned)
        };
        assert_eq!(row("round trip, ns").as_deref(), Some("300"), "{table}");
        assert_eq!(row("half of it, ns").as_deref(), Some("150"), "{table}");
        assert!(table.contains("136 bytes there, 120 back") && table.contains("pages of 4 KiB"));
        assert!(table.contains("The machine was quiet."), "{table}");
    }

    #[test]
    fn the_ratio_and_what_a_side_adds_are_printed() {
        let all = [series("floor", &[300, 300], 0), series("raw", &[360, 360], 0)];
        let ratio = RatioReport::of_medians(&all[1], &all[0]);
        assert_eq!((ratio.value, ratio.added_per_side_ns), (1.2, Some(30.0)));
        let table = report(&all, vec![ratio]).table();
        assert!(table.contains("raw / floor, median") && table.contains("1.200"), "{table}");
        assert!(table.contains("+30 ns per side"), "{table}");
    }

    #[test]
    fn what_the_device_had_to_do_is_printed_by_round_trip() {
        let table = report(&[series("raw", &[300], 0)], Vec::new()).table();
        let row = table.lines().find(|line| line.starts_with("raw, client")).unwrap_or_default();
        let figures: Vec<&str> = row.split_whitespace().skip(2).collect();
        assert_eq!(figures, ["0.250", "1.000", "1.062"], "{table}");
    }

    #[test]
    fn a_thread_that_loses_its_core_makes_a_run_noisy() {
        let lost = |preempted| ContenderReport::new(&series("floor", &[300], preempted), 0).lost();
        assert!(noise(&[], &[lost(20)]).is_empty());
        let reasons = noise(&[], &[lost(21)]);
        assert_eq!(reasons, ["floor: lost a core 21 times in 1.0 s"]);
    }

    #[test]
    fn json_has_every_figure_under_its_name() {
        let all = [series("floor", &[300, 301], 0)];
        let json = serde_json::to_value(report(&all, Vec::new())).expect("a report is plain data");
        let contender = &json["contenders"][0];
        assert_eq!(contender["name"], "floor");
        assert_eq!(contender["round_trip"]["max_ns"], 301.0);
        assert_eq!(contender["half_round_trip"]["max_ns"], 150.5);
        assert_eq!(contender["rounds"].as_array().map(Vec::len), Some(2));
        assert_eq!(json["build"]["rpcrdma"], env!("CARGO_PKG_VERSION"));
        assert!(json["machine"]["kernel"].is_string());
        assert_eq!(json["settings"]["request_wire_bytes"], 136);
    }

    #[test]
    fn slow_round_trips_are_shown_in_microseconds() {
        let table = report(&[series("floor", &[250_000], 0)], Vec::new()).table();
        assert!(table.contains("round trip, us"), "{table}");
    }

    #[test]
    fn counts_have_readable_units() {
        assert_eq!(count(18_410_000.0), "18.410 M");
        assert_eq!(count(41_900.0), "41.90 k");
        assert_eq!(count(12.0), "12.0");
    }
}
