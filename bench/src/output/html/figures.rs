//! The figures: headline, percentiles side by side, and all of them.

use std::fmt::Write as _;

use super::charts::words;
use super::page::escape;
use super::ratios::{Quotient, first_of_each, quotients};
use crate::output::figure::{Figure, Unit};
use crate::output::value;

/// One card for each contender with its main figure, and one for each quotient.
pub fn write_headline(out: &mut String, figures: &[Figure]) {
    let whole: Vec<&Figure> = figures.iter().filter(|figure| figure.at.is_none()).collect();
    let mut cards = Vec::new();
    for of in contenders(&whole) {
        let named = |name: &str| whole.iter().copied().find(|one| one.of == of && one.name == name);
        let Some(main) = MAIN.iter().find_map(|name| named(name)) else { continue };
        let beside = BESIDE.iter().filter(|name| **name != main.name);
        let beside: Vec<&Figure> = beside.filter_map(|name| named(name)).collect();
        cards.push(card(of, main, &beside));
    }
    let all = quotients(figures);
    let whole = all.iter().filter(|one| one.figure.at.is_none());
    cards.truncate(CARDS_MAX);
    cards.extend(first_of_each(whole).into_iter().take(CARDS_MAX).map(ratio_card));
    if !cards.is_empty() {
        let _ = writeln!(out, "<ul class=\"cards\">{}</ul>", cards.join("\n"));
    }
}

/// Everybody who has figures, but quotients, in the order of the figures.
fn contenders<'a>(figures: &[&'a Figure]) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for figure in figures {
        if figure.unit != Unit::Ratio && !names.contains(&&*figure.of) {
            names.push(&figure.of);
        }
    }
    names
}

fn card(of: &str, main: &Figure, beside: &[&Figure]) -> String {
    let row =
        |figure: &&Figure| row(&beside_words(figure), &value::text(figure.value, figure.unit));
    let mut rows: String = beside.iter().map(row).collect();
    rows.push_str(&samples_row(main));
    shell(of, main, &words(&main.name), &rows)
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

fn ratio_card(quotient: &Quotient<'_>) -> String {
    let figure = quotient.figure;
    let mut rows = String::new();
    if let Some((low, high)) = quotient.interval {
        let name = if quotient.is_confidence { "95 % interval" } else { "rounds from, to" };
        let ends = format!("{} to {}", value::digits(low), value::digits(high));
        rows.push_str(&row(name, &ends));
    }
    rows.push_str(&samples_row(figure));
    shell(&figure.of, figure, &words(&figure.name), &rows)
}

fn samples_row(figure: &Figure) -> String {
    row("samples", &value::count(figure.samples))
}

fn row(name: &str, said: &str) -> String {
    format!("<dt>{}</dt><dd>{}</dd>", escape(name), escape(said))
}

fn shell(of: &str, main: &Figure, what: &str, rows: &str) -> String {
    format!(
        "<li><div class=\"name\">{}</div><div class=\"main\">{}</div><div class=\"soft\">{}</div>\
         <dl>{rows}</dl></li>",
        escape(of),
        escape(&value::text(main.value, main.unit)),
        escape(what)
    )
}

/// A row for each contender and point, its percentiles side by side.
pub fn write_spread(out: &mut String, figures: &[Figure]) {
    let mut rows: Vec<(String, u64, Vec<Option<&Figure>>)> = Vec::new();
    for figure in figures {
        let at = SPREAD.iter().position(|(prefix, part, _)| {
            figure.name.strip_prefix(prefix).is_some_and(|rest| rest == *part)
        });
        let Some(at) = at else { continue };
        let name = place(figure);
        let row = match rows.iter_mut().position(|(known, ..)| *known == name) {
            Some(known) => &mut rows[known],
            None => {
                rows.push((name, figure.samples, vec![None; SPREAD.len()]));
                rows.last_mut().expect("just pushed")
            }
        };
        row.2[at].get_or_insert(figure);
    }
    // `round_trip.` where it is known, else `latency.`: columns with nothing in them are left out.
    let used: Vec<usize> =
        (0..SPREAD.len()).filter(|at| rows.iter().any(|row| row.2[*at].is_some())).collect();
    if rows.is_empty() {
        return;
    }
    let heads = used.iter().map(|at| SPREAD[*at].2);
    let heads: Vec<&str> = ["whose"].into_iter().chain(heads).chain(["samples"]).collect();
    let body = rows.iter().map(|(name, samples, cells)| {
        let cell = |at: &usize| cells[*at].map_or_else(String::new, said);
        let cells = used.iter().map(cell).chain([value::count(*samples)]);
        table_row([name.clone()].into_iter().chain(cells))
    });
    write_table(out, "Side by side", &heads, &body.collect::<String>());
}

fn said(figure: &Figure) -> String {
    value::text(figure.value, figure.unit)
}

fn write_table(out: &mut String, title: &str, heads: &[&str], body: &str) {
    let heads: String = heads.iter().map(|head| format!("<th>{head}</th>")).collect();
    let _ = write!(
        out,
        "<h2>{title}</h2>\n<div class=\"scroll\" tabindex=\"0\"><table><thead><tr>{heads}</tr>\
         </thead><tbody>\n{body}</tbody></table></div>\n"
    );
}

fn table_row(cells: impl IntoIterator<Item = String>) -> String {
    let cells: String =
        cells.into_iter().map(|cell| format!("<td>{}</td>", escape(&cell))).collect();
    format!("<tr>{cells}</tr>\n")
}

fn place(figure: &Figure) -> String {
    match &figure.at {
        Some(at) => format!("{} at {} {}", figure.of, at.axis, value::text(at.value, at.unit)),
        None => figure.of.clone(),
    }
}

/// Every figure, with its unit, its samples and the spread of its rounds.
pub fn write_all(out: &mut String, figures: &[Figure]) {
    let mut body = String::new();
    let mut group = None;
    for figure in figures {
        let name = place(figure);
        if group.as_ref() != Some(&name) {
            let _ =
                writeln!(body, "<tr class=\"group\"><th colspan=\"7\">{}</th></tr>", escape(&name));
            group = Some(name);
        }
        let end = |pick: fn(f64, f64) -> f64| {
            let end = figure.rounds.iter().copied().reduce(pick);
            end.map_or_else(String::new, |end| value::text(end, figure.unit))
        };
        body.push_str(&table_row([
            figure.name.to_string(),
            plain(figure.value),
            figure.unit.symbol().to_owned(),
            said(figure),
            value::count(figure.samples),
            end(f64::min),
            end(f64::max),
        ]));
    }
    let heads = ["figure", "value", "unit", "read as", "samples", "rounds from", "to"];
    write_table(out, "All figures", &heads, &body);
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
const MAIN: [&str; 9] = [
    "round_trip.median",
    "round_trip.p50",
    "latency.p50",
    "rate",
    "data",
    "round_trip.mean",
    "wake.p50",
    "instructions",
    "half_round_trip.p50",
];
const BESIDE: [&str; 7] = [
    "half_round_trip.p50",
    "round_trip.p99",
    "round_trip.p99.9",
    "round_trip.max",
    "latency.p99",
    "rate",
    "data",
];
const SPREAD: [(&str, &str, &str); 10] = [
    ("round_trip.", "min", "min"),
    ("round_trip.", "mean", "mean"),
    ("round_trip.", "p50", "p50"),
    ("round_trip.", "p90", "p90"),
    ("round_trip.", "p99", "p99"),
    ("round_trip.", "p99.9", "p99.9"),
    ("round_trip.", "p99.99", "p99.99"),
    ("round_trip.", "max", "max"),
    ("", "rate", "rate"),
    ("", "data", "data"),
];
/// More cards are no headline.
const CARDS_MAX: usize = 4;
