//! Plots of times, of sweeps, and of the rounds.

use super::plot::{Plot, PlotAxis, PlotSeries, PlotShape};
use super::scale::Scale;
use crate::output::figure::{Figure, Unit};
use crate::output::report::{Curve, Distribution, Report};
use crate::output::value;
use crate::stats::Latency;

/// How the times are spread: as a histogram, and by percentiles.
pub fn distributions(report: &Report) -> Vec<Plot> {
    let all = &report.distributions;
    let timed: Vec<&Distribution> = all.iter().filter(|one| one.latency.count() > 0).collect();
    if timed.is_empty() {
        return Vec::new();
    }
    // Of many, some from the first to the last.
    let shown = timed.len().min(SERIES_MAX);
    let pick = |at: usize| timed[at * (timed.len() - 1) / (shown - 1).max(1)];
    let left_out = match timed.len() - shown {
        0 => String::new(),
        _ => format!(" {shown} of {} are shown.", timed.len()),
    };
    let timed: Vec<&Distribution> = (0..shown).map(pick).collect();
    let step_ns = report.environment.clock_step_ns;
    vec![histogram(&timed, step_ns, &left_out), percentiles(&timed, &left_out)]
}

/// The share of the samples in each step of time; both axes logarithmic, so that one sample in a
/// million is seen.
fn histogram(timed: &[&Distribution], step_ns: f64, left_out: &str) -> Plot {
    let ends = timed
        .iter()
        .flat_map(|one| [one.latency.min_ns() as f64, one.latency.quantile_ns(1.0) as f64]);
    let x = Scale::log(ends, Unit::Ns);
    let count = bins_of(&x, step_ns);
    let bins: Vec<Vec<f64>> = timed.iter().map(|one| shares(&one.latency, &x, count)).collect();
    let least = bins.iter().flatten().copied().filter(|share| *share > 0.0).fold(1.0, f64::min);
    // The rarest stand above the axis.
    let y = Scale::log([least * 0.7, 1.0].into_iter(), Unit::Share);
    let series = timed.iter().zip(&bins).enumerate().flat_map(|(at, (one, shares))| {
        let name = format!("{} ({} samples)", one.name, value::count(one.latency.count()));
        let areas = areas(shares, &x, y.value(0.0)).into_iter();
        areas.map(move |area| PlotSeries {
            name: name.clone(),
            colour: at,
            shape: PlotShape::Area(area),
        })
    });
    let note = format!(
        "Every sample from the shortest to the longest; the share of all that falls into each of \
         {count} equal factors of time.{left_out}"
    );
    let (x, y) = (
        PlotAxis::new(x.clone(), "time, there and back"),
        PlotAxis::new(y.clone(), "share of samples"),
    );
    Plot { note, ..Plot::wide("Distribution of times", x, y, series) }
}

/// The steps of a histogram: an outline for each run of bins that have something in them.
fn areas(shares: &[f64], x: &Scale, ground: f64) -> Vec<Vec<(f64, f64)>> {
    let width = 1.0 / shares.len() as f64;
    let bins: Vec<(usize, f64)> = shares.iter().copied().enumerate().collect();
    let runs = bins.chunk_by(|a, b| (a.1 > 0.0) == (b.1 > 0.0)).filter(|run| run[0].1 > 0.0);
    let outline = |run: &[(usize, f64)]| {
        let end = |at: usize| (x.value(at as f64 * width), ground);
        let (first, last) = (run[0].0, run[run.len() - 1].0);
        let steps =
            run.iter().flat_map(|(at, share)| [(end(*at).0, *share), (end(at + 1).0, *share)]);
        [end(first)].into_iter().chain(steps).chain([end(last + 1)]).collect()
    };
    runs.map(outline).collect()
}

/// How many bins an axis has: many, and none narrower than the step of the clock, or there would be
/// some that no sample can fall into.
fn bins_of(x: &Scale, step_ns: f64) -> usize {
    let (low, high) = (x.value(0.0), x.value(1.0));
    let fitting = (high / low).ln() / (step_ns / low).ln_1p();
    if fitting.is_finite() { (fitting as usize).clamp(BINS_MIN, BINS_MAX) } else { BINS_MAX }
}

/// The share of the samples in each of so many bins of an axis.
fn shares(latency: &Latency, x: &Scale, bins: usize) -> Vec<f64> {
    let mut counts = vec![0u64; bins];
    for step in latency.histogram().iter_recorded() {
        let at = (x.place(step.value_iterated_to() as f64) * bins as f64) as usize;
        counts[at.min(bins - 1)] += step.count_since_last_iteration();
    }
    let all = latency.count().max(1) as f64;
    counts.into_iter().map(|count| count as f64 / all).collect()
}

/// Latency by percentile, each further nine as wide as the one before.
fn percentiles(timed: &[&Distribution], left_out: &str) -> Plot {
    let most = timed.iter().map(|one| one.latency.count()).max().unwrap_or(1);
    let x = Scale::tail(most);
    let lines: Vec<Vec<(f64, f64)>> =
        timed.iter().map(|one| by_percentile(&one.latency, &x)).collect();
    let y = Scale::log(lines.iter().flatten().map(|point| point.1), Unit::Ns);
    let series = timed.iter().zip(lines).enumerate();
    let series = series.map(|(at, (one, line))| PlotSeries {
        name: one.name.clone(),
        colour: at,
        shape: PlotShape::Line(line),
    });
    let note = format!(
        "So many of the samples took no longer. Each line ends at its longest sample.{left_out}"
    );
    let (x, y) = (PlotAxis::new(x, "percentile"), PlotAxis::new(y, "time, there and back"));
    Plot { note, ..Plot::wide("Times by percentile", x, y, series) }
}

/// Points of `1 / (1 - p)` and the time there, up to where the samples end.
fn by_percentile(latency: &Latency, x: &Scale) -> Vec<(f64, f64)> {
    let end = x.place(latency.count() as f64);
    let mut points: Vec<(f64, f64)> = (0..=POINTS)
        .map(|step| {
            let at = x.value(end * f64::from(step) / f64::from(POINTS));
            (at, latency.quantile_ns(1.0 - 1.0 / at) as f64)
        })
        .collect();
    if let Some(last) = points.last_mut() {
        last.1 = latency.quantile_ns(1.0) as f64;
    }
    // Where the time does not change, two points are enough.
    let is_needed = |at: &usize| {
        let same = |other: usize| points.get(other).is_some_and(|point| point.1 == points[*at].1);
        *at == 0 || !same(at - 1) || !same(at + 1)
    };
    (0..points.len()).filter(is_needed).map(|at| points[at]).collect()
}

/// The curves of the mode.
pub fn curves(report: &Report) -> Vec<Plot> {
    report.curves.iter().filter(|curve| !curve.lines.is_empty()).map(curve).collect()
}

fn curve(curve: &Curve) -> Plot {
    let points = || curve.lines.iter().flat_map(|line| &line.points);
    let scale = |is_log: bool, unit, values: Vec<f64>| match is_log {
        // What is not positive has no place on a logarithmic axis.
        true if values.iter().all(|value| *value > 0.0) => Scale::log(values.into_iter(), unit),
        _ => Scale::linear(values.into_iter(), unit),
    };
    let x = scale(curve.x.log, curve.x.unit, points().map(|point| point.0).collect());
    let y = scale(curve.y.log, curve.y.unit, points().map(|point| point.1).collect());
    let series = curve.lines.iter().enumerate().map(|(at, line)| PlotSeries {
        name: line.name.clone(),
        colour: at,
        shape: PlotShape::Marked(line.points.clone()),
    });
    let (x, y) = (PlotAxis::new(x, &curve.x.name), PlotAxis::new(y, &curve.y.name));
    Plot::wide(&curve.title, x, y, series)
}

/// The rounds one after the other, so that a drift is seen.
pub fn rounds(figures: &[Figure]) -> Vec<Plot> {
    let plot = |(name, unit): &(&str, Unit)| {
        let of_name = figures.iter().filter(|figure| figure.name == *name && figure.unit == *unit);
        let with: Vec<&Figure> =
            of_name.filter(|figure| figure.at.is_none() && figure.rounds.len() > 1).collect();
        let values: Vec<f64> =
            with.iter().flat_map(|figure| figure.rounds.iter().copied()).collect();
        let rounds = with.iter().map(|figure| figure.rounds.len()).max()?;
        // Contenders that are far apart are seen side by side.
        let (least, most) =
            values.iter().fold((f64::MAX, 0.0f64), |(a, b), v| (a.min(*v), b.max(*v)));
        let y = match least > 0.0 && most > 3.0 * least {
            true => Scale::log(values.into_iter(), *unit),
            false => Scale::linear(values.into_iter(), *unit),
        };
        let series = with.iter().take(SERIES_MAX).enumerate().map(|(at, figure)| PlotSeries {
            name: figure.of.clone(),
            colour: at,
            shape: PlotShape::Marked(
                (1..).map(f64::from).zip(figure.rounds.iter().copied()).collect(),
            ),
        });
        let note = "The contenders took turns. Lines that rise or fall together show the machine, a \
                    line that moves alone shows its contender.";
        let (x, y) =
            (PlotAxis::new(Scale::numbers(rounds), "round"), PlotAxis::new(y, words(name)));
        let title = format!("{}, round by round", words(name));
        Some(Plot { note: note.to_owned(), ..Plot::wide(title, x, y, series) })
    };
    // One of them is enough: the first that there is.
    BY_ROUND.iter().find_map(plot).into_iter().collect()
}

pub fn words(name: &str) -> String {
    let known = [("round_trip.", "Round trip"), ("half_round_trip.", "Half a round trip")];
    for (prefix, said) in known {
        if let Some(part) = name.strip_prefix(prefix) {
            let part = match part {
                "p50" => "median",
                other => other,
            };
            return format!("{said}, {part}");
        }
    }
    match name {
        "rate" => "Round trips a second".to_owned(),
        "data" => "Data a second".to_owned(),
        other if other.starts_with("ratio.") => {
            format!("ratio, {}", other.trim_start_matches("ratio.").replace('_', " "))
        }
        other => other.replace(['_', '.'], " "),
    }
}

/// What is worth a line over the rounds.
const BY_ROUND: [(&str, Unit); 5] = [
    ("round_trip.median", Unit::Ns),
    ("round_trip.p50", Unit::Ns),
    ("round_trip.p99", Unit::Ns),
    ("rate", Unit::PerSecond),
    ("data", Unit::GbPerSecond),
];
const SERIES_MAX: usize = 7;
const BINS_MAX: usize = 96;
const BINS_MIN: usize = 16;
const POINTS: u32 = 400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bin_is_narrower_than_the_step_of_the_clock() {
        let x = Scale::log([100.0, 2000.0].into_iter(), Unit::Ns);
        let fine = bins_of(&x, 0.5);
        let coarse = bins_of(&x, 10.0);
        assert_eq!(fine, BINS_MAX);
        let first = x.value(1.0 / coarse as f64) - x.value(0.0);
        assert!(first >= 10.0 && coarse > BINS_MIN, "{coarse} bins, the first of {first} ns");
        // A clock that has not reported its step, or one as coarse as everything, is no reason to fail.
        assert_eq!(
            [0.0, f64::NAN, 1e12].map(|step| bins_of(&x, step)),
            [BINS_MAX, BINS_MAX, BINS_MIN]
        );
    }

    #[test]
    fn a_line_of_percentiles_ends_at_the_longest_sample() {
        let mut latency = Latency::new();
        (1..=1000).for_each(|ns| latency.record(ns));
        latency.record(1_234_567);
        let line = by_percentile(&latency, &Scale::tail(1001));
        assert_eq!(line.first().map(|point| point.1), Some(1.0));
        assert_eq!(line.last().map(|point| point.1), Some(1_234_567.0));
        let median = line.iter().rfind(|point| point.0 <= 2.0).expect("half of them").1;
        assert!((495.0..=505.0).contains(&median), "{median}");
    }

    #[test]
    fn runs_of_a_histogram_stand_on_the_ground() {
        let x = Scale::log([1.0, 10_000.0].into_iter(), Unit::Ns);
        let areas = areas(&[0.0, 0.5, 0.25, 0.0, 0.25], &x, 0.001);
        assert_eq!(areas.iter().map(Vec::len).collect::<Vec<_>>(), [6, 4]);
        assert!(areas.iter().all(|area| area[0].1 == 0.001 && area[area.len() - 1].1 == 0.001));
    }
}
