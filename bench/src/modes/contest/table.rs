//! The result of a contest as a table.

use super::plan::Settings;
use super::report::{RatioReport, Report};
use crate::output::outcome::line;
use crate::stats::latency::Summary;
use crate::stats::rounds::Spent;

/// All of it.
pub(super) fn table(report: &Report) -> String {
    let mut out = String::new();
    let Settings { request_wire_bytes, reply_wire_bytes, .. } = report.settings;
    line(
        &mut out,
        format_args!("on the wire: {request_wire_bytes} bytes there, {reply_wire_bytes} back"),
    );
    report.scene.write_head(&mut out);
    report.write_latencies(&mut out);
    report.write_rates(&mut out);
    report.write_ratios(&mut out);
    report.write_spent(&mut out);
    report.scene.write_noise(&mut out);
    out
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
                "{:<16}{:>14}{:>14}{:>14}{:>14}{:>14}",
                "per second", "median", "lowest", "highest", "data, GB/s", "samples"
            ),
        );
        for contender in &self.contenders {
            let rates = || contender.rounds.iter().map(|round| round.rate);
            let low = rates().fold(f64::INFINITY, f64::min);
            let high = rates().fold(0.0, f64::max);
            let [median, low, high] = [contender.rate, low, high].map(count);
            let (name, data) = (contender.name, contender.data_gb_per_s);
            let samples = contender.completed();
            line(
                out,
                format_args!("{name:<16}{median:>14}{low:>14}{high:>14}{data:>14.3}{samples:>14}"),
            );
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
                "{:<24}{:>12}{:>12}{:>14}{:>14}",
                "for each round trip", "doorbells", "Sends", "completions", "samples"
            ),
        );
        for Spent { name, side, doorbells, sends, completions, round_trips } in &self.spent {
            let name = format!("{name}, {side}");
            line(
                out,
                format_args!(
                    "{name:<24}{doorbells:>12.3}{sends:>12.3}{completions:>14.3}{round_trips:>14}"
                ),
            );
        }
    }
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

/// A number of things in thousands or millions.
pub(crate) fn count(number: f64) -> String {
    match number {
        number if number >= 1e6 => format!("{:.3} M", number / 1e6),
        number if number >= 1e3 => format!("{:.2} k", number / 1e3),
        number => format!("{number:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_readable_units() {
        assert_eq!(count(18_410_000.0), "18.410 M");
        assert_eq!(count(41_900.0), "41.90 k");
        assert_eq!(count(12.0), "12.0");
    }
}
