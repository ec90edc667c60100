//! The figures of the page: cards, percentiles side by side, and all of them.

use maud::{Markup, Render, html};

use super::charts::words;
use super::ratios::{RatioRow, first_of_each, ratios};
use crate::output::figure::{Figure, Unit};
use crate::output::report::Listing;
use crate::output::value;

/// A name and what it stands for, as the page has them in lists.
pub struct Fact {
    name: String,
    value: String,
}

impl Fact {
    pub fn new(name: impl Into<String>, value: impl ToString) -> Fact {
        Fact { name: name.into(), value: value.to_string() }
    }
}

impl Render for Fact {
    fn render(&self) -> Markup {
        html! { dt { (self.name) } dd { (self.value) } }
    }
}

/// A row of a table, and what stands above it.
struct FigureRow {
    group: Option<String>,
    cells: Vec<String>,
}

/// One card for each contender with its main figure, and one for each ratio.
pub fn headline(figures: &[Figure]) -> Vec<Markup> {
    let whole: Vec<&Figure> = figures.iter().filter(|figure| figure.at.is_none()).collect();
    let mut cards: Vec<Markup> = contenders(&whole).filter_map(|of| card(of, &whole)).collect();
    cards.truncate(CARDS_MAX);
    let all = ratios(figures);
    let of_whole = all.iter().filter(|one| one.figure.at.is_none());
    cards.extend(first_of_each(of_whole).into_iter().take(CARDS_MAX).map(ratio_card));
    cards
}

/// The names of all that have figures, but ratios, in the order of the figures.
fn contenders<'a>(figures: &[&'a Figure]) -> impl Iterator<Item = &'a str> {
    let mut names: Vec<&str> = Vec::new();
    for figure in figures {
        if figure.unit != Unit::Ratio && !names.contains(&&*figure.of) {
            names.push(&figure.of);
        }
    }
    names.into_iter()
}

fn card(of: &str, figures: &[&Figure]) -> Option<Markup> {
    let named = |name: &str| figures.iter().find(|one| one.of == of && one.name == name);
    let main = MAIN.iter().find_map(|name| named(name))?;
    let beside = BESIDE.iter().filter(|name| **name != main.name).filter_map(|name| named(name));
    let rows = beside.map(|figure| Fact::new(beside_words(figure), said(figure)));
    Some(shell(main, rows.collect()))
}

/// The name of a figure below its contender's main one.
fn beside_words(figure: &Figure) -> String {
    match figure.name.strip_prefix("round_trip.") {
        Some(part) => part.to_owned(),
        None if figure.name == "half_round_trip.p50" => "half of it".to_owned(),
        None if figure.name == "rate" => "rate".to_owned(),
        None => words(&figure.name),
    }
}

fn ratio_card(ratio: &RatioRow<'_>) -> Markup {
    let row = ratio.interval.map(|(low, high)| {
        let name = if ratio.is_confidence { "95 % interval" } else { "rounds from, to" };
        Fact::new(name, format!("{} to {}", value::digits(low), value::digits(high)))
    });
    shell(ratio.figure, row.into_iter().collect())
}

fn shell(main: &Figure, mut rows: Vec<Fact>) -> Markup {
    rows.push(Fact::new("samples", value::count(main.samples)));
    html! {
        li {
            div.name { (main.of) }
            div.main { (said(main)) }
            div.soft { (words(&main.name)) }
            dl { @for row in &rows { (row) } }
        }
    }
}

/// A row for each contender and point, its percentiles side by side. Columns with nothing in them
/// are left out.
pub fn spread(figures: &[Figure]) -> Markup {
    let mut rows: Vec<(String, u64, [Option<&Figure>; SPREAD.len()])> = Vec::new();
    for figure in figures {
        let Some(at) = SPREAD.iter().position(|(name, _)| *name == figure.name) else { continue };
        let name = place(figure);
        let known = rows.iter().position(|(known, ..)| *known == name).unwrap_or_else(|| {
            rows.push((name, figure.samples, [None; SPREAD.len()]));
            rows.len() - 1
        });
        rows[known].2[at].get_or_insert(figure);
    }
    let used: Vec<usize> =
        (0..SPREAD.len()).filter(|at| rows.iter().any(|row| row.2[*at].is_some())).collect();
    let heads = used.iter().map(|at| SPREAD[*at].1);
    let heads: Vec<&str> = ["whose"].into_iter().chain(heads).chain(["samples"]).collect();
    let row = |(name, samples, figures): &(String, u64, [Option<&Figure>; SPREAD.len()])| {
        let cells = used.iter().map(|at| figures[*at].map_or_else(String::new, said));
        let cells = [name.clone()].into_iter().chain(cells).chain([value::count(*samples)]);
        FigureRow { group: None, cells: cells.collect() }
    };
    html! {
        @if !rows.is_empty() { (table("Side by side", &heads, rows.iter().map(row))) }
    }
}

/// A table of a mode's own.
pub fn listing(listing: &Listing) -> Markup {
    let Listing { title, heads, rows } = listing;
    table(title, heads, rows.iter().map(|cells| FigureRow { group: None, cells: cells.clone() }))
}

fn table(title: &str, heads: &[&str], rows: impl Iterator<Item = FigureRow>) -> Markup {
    html! {
        h2 { (title) }
        div.scroll tabindex="0" {
            table {
                thead { tr { @for head in heads { th { (head) } } } }
                tbody {
                    @for FigureRow { group, cells } in rows {
                        @if let Some(group) = group {
                            tr.group { th colspan=(heads.len()) { (group) } }
                        }
                        tr { @for cell in cells { td { (cell) } } }
                    }
                }
            }
        }
    }
}

fn said(figure: &Figure) -> String {
    value::text(figure.value, figure.unit)
}

fn place(figure: &Figure) -> String {
    match &figure.at {
        Some(at) => format!("{} at {} {}", figure.of, at.axis, value::text(at.value, at.unit)),
        None => figure.of.clone(),
    }
}

/// Every figure, with its unit, its samples and the spread of its rounds.
/// Above the first of each contender and point stands its name.
pub fn all(figures: &[Figure]) -> Markup {
    let mut above = None;
    let row = |figure: &Figure| {
        let name = place(figure);
        let group = (above.as_ref() != Some(&name)).then(|| name.clone());
        above = Some(name);
        let end = |pick: fn(f64, f64) -> f64| {
            let end = figure.rounds.iter().copied().reduce(pick);
            end.map_or_else(String::new, |end| value::text(end, figure.unit))
        };
        let cells = vec![
            figure.name.to_string(),
            plain(figure.value),
            figure.unit.symbol().to_owned(),
            said(figure),
            value::count(figure.samples),
            end(f64::min),
            end(f64::max),
        ];
        FigureRow { group, cells }
    };
    let heads = ["figure", "value", "unit", "read as", "samples", "rounds from", "to"];
    table("All figures", &heads, figures.iter().map(row))
}

/// A number as JSON has it, cut to what can be read.
fn plain(value: f64) -> String {
    if !value.is_finite() {
        return "none".to_owned();
    }
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// What a contender is known by, the first that it has.
const MAIN: [&str; 7] = [
    "round_trip.median",
    "round_trip.p50",
    "rate",
    "data",
    "round_trip.mean",
    "instructions",
    "half_round_trip.p50",
];
const BESIDE: [&str; 6] =
    ["half_round_trip.p50", "round_trip.p99", "round_trip.p99.9", "round_trip.max", "rate", "data"];
/// Figures side by side, and the heads of their columns.
const SPREAD: [(&str, &str); 10] = [
    ("round_trip.min", "min"),
    ("round_trip.mean", "mean"),
    ("round_trip.p50", "p50"),
    ("round_trip.p90", "p90"),
    ("round_trip.p99", "p99"),
    ("round_trip.p99.9", "p99.9"),
    ("round_trip.p99.99", "p99.99"),
    ("round_trip.max", "max"),
    ("rate", "rate"),
    ("data", "data"),
];
/// More cards are no headline.
const CARDS_MAX: usize = 4;
