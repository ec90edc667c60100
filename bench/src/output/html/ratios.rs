//! A plot of ratios with their intervals, one row each.

use super::plot::{Form, Plot, PlotAxis, PlotSeries, PlotShape, short};
use super::scale::Scale;
use crate::output::figure::{Figure, Unit};

/// A ratio of two contenders, as a row of the plot.
#[derive(Debug, Clone, PartialEq)]
pub struct RatioRow<'a> {
    pub figure: &'a Figure,
    pub interval: Option<(f64, f64)>,
    /// Whether the interval is that of 95 % confidence. Otherwise its ends are the least and the
    /// greatest of the rounds.
    pub is_confidence: bool,
}

pub fn ratios(figures: &[Figure]) -> Vec<RatioRow<'_>> {
    let is_part =
        |name: &str| ENDS.iter().any(|(low, high, _)| name.ends_with(low) || name.ends_with(high));
    let of_two = figures
        .iter()
        .filter(|one| one.unit == Unit::Ratio && one.of.contains('/') && !is_part(&one.name));
    let ratio = |figure| {
        let ends = ENDS.iter().find_map(|(low, high, sure)| {
            Some((end(figures, figure, low)?, end(figures, figure, high)?, *sure))
        });
        let of_rounds = || {
            let none = (f64::INFINITY, f64::NEG_INFINITY);
            let ends = figure.rounds.iter().fold(none, |(a, b), v| (v.min(a), v.max(b)));
            (ends.0 < ends.1).then_some((ends.0, ends.1, false))
        };
        let found = ends.or_else(of_rounds);
        RatioRow {
            figure,
            interval: found.map(|(low, high, _)| (low, high)),
            is_confidence: found.is_some_and(|(.., sure)| sure),
        }
    };
    // What neighbouring rounds say is a second opinion of the same ratio, and the bare `ratio` is
    // that which stands first under its own name.
    let is_other = |one: &&Figure| !one.name.ends_with(".paired") && one.name != "ratio";
    of_two.filter(is_other).map(ratio).collect()
}

/// The first ratio of each two: what is to be looked at first.
pub fn first_of_each<'a, 'b>(
    ratios: impl Iterator<Item = &'b RatioRow<'a>>,
) -> Vec<&'b RatioRow<'a>>
where
    'a: 'b,
{
    let mut first: Vec<&RatioRow<'_>> = Vec::new();
    for one in ratios {
        if first.iter().all(|known| known.figure.of != one.figure.of) {
            first.push(one);
        }
    }
    first
}

fn end(figures: &[Figure], of: &Figure, part: &str) -> Option<f64> {
    let is = |other: &&Figure| {
        other.of == of.of && other.at == of.at && other.name.strip_suffix(part) == Some(&*of.name)
    };
    figures.iter().find(is).map(|figure| figure.value)
}

/// All ratios without points of a sweep, drawn below each other.
pub fn plots(figures: &[Figure]) -> Vec<Plot> {
    let all = ratios(figures);
    let mut shown: Vec<&RatioRow<'_>> =
        all.iter().filter(|one| one.figure.at.is_none() && one.figure.value > 0.0).collect();
    if shown.len() > ROWS_MAX {
        shown = first_of_each(shown.into_iter());
    }
    if shown.is_empty() {
        return Vec::new();
    }
    let ends = shown.iter().flat_map(|one| {
        let (low, high) = one.interval.unwrap_or((one.figure.value, one.figure.value));
        [low, one.figure.value, high, 1.0]
    });
    let ends: Vec<f64> = ends.filter(|end| end.is_finite() && *end > 0.0).collect();
    let (least, most) = ends.iter().fold((1.0f64, 1.0f64), |(a, b), v| (a.min(*v), b.max(*v)));
    let x = match most < 1.7 * least {
        true => Scale::linear(ends.into_iter(), Unit::Ratio),
        false => Scale::log(ends.into_iter(), Unit::Ratio),
    };
    let name = |one: &&RatioRow<'_>| {
        let figure = one.figure;
        format!("{} {}", figure.of, figure.name.trim_start_matches("ratio."))
    };
    let names: Vec<String> = shown.iter().map(name).map(|name| short(&name, NAME_MAX)).collect();
    let series = shown.iter().enumerate().map(|(at, one)| {
        let middle = one.figure.value;
        let (low, high) = one.interval.unwrap_or((middle, middle));
        let shape = PlotShape::Interval { low, middle, high, row: at as f64 + 0.5 };
        PlotSeries { name: names[at].clone(), colour: 0, shape }
    });
    let note = match shown.iter().all(|one| one.is_confidence) {
        true => "The point is the ratio, the bar what it lies in with 95 %.",
        false if shown.iter().any(|one| one.is_confidence) => {
            "The point is the ratio, the bar what it lies in with 95 %, or the least and the \
             greatest of the rounds where there is no such interval."
        }
        false => "The point is the ratio, the bar from the least to the greatest of the rounds.",
    };
    vec![Plot {
        title: "Ratios".to_owned(),
        note: format!("{note} At 1 x both are the same."),
        series: series.collect(),
        x: PlotAxis::new(x, "one over the other"),
        y: PlotAxis::new(Scale::names(&names), ""),
        guide: Some(1.0),
        form: Form::Rows(shown.len()),
    }]
}

/// With more rows, only the first ratio of each two is drawn.
const ROWS_MAX: usize = 12;
const NAME_MAX: usize = 42;
/// How the ends of intervals are named, and whether they are those of confidence.
const ENDS: &[(&str, &str, bool)] = &[(".low", ".high", true), (".lowest", ".highest", false)];
