//! The report as one self-contained HTML page.
//!
//! ```text
//!   Report ─▶ figures ───────▶ cards, tables ────┐
//!           ─▶ distributions ─▶ plots ─▶ SVG ─────┼─▶ page: style and drawings inside, no script
//!           ─▶ curves, rounds, ratios ─▶ SVG ─────┘
//! ```
//! Names, notes and settings come from outside: the page shows them as text and nothing else.

mod charts;
mod figures;
mod plot;
mod ratios;
mod scale;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;

use crate::output::report::Report;
use figures::Fact;
use plot::Plot;

pub fn text(report: &Report) -> String {
    without_controls(page(report))
}

/// A page may contain no control character, and no terminal shows one.
fn without_controls(page: Markup) -> String {
    let is_control = |letter: char| letter.is_control() && letter != '\n' && letter != '\t';
    page.into_string().replace(is_control, "\u{fffd}")
}

fn page(report: &Report) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy"
                    content="default-src 'none'; style-src 'unsafe-inline'";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (report.mode) ": " (report.what) }
                style { (PreEscaped(STYLE)) (PreEscaped(plot::colours())) }
            }
            body {
                main { (top(report)) (rest(report)) }
            }
        }
    }
}

/// What was run and where, and whether it counts.
fn top(report: &Report) -> Markup {
    let environment = &report.environment;
    let (noise, is_optimised) = (&environment.noise, environment.build.is_optimised());
    let bad = |text: &str, reasons: &[String]| {
        html! {
            div class="quality bad" role="note" {
                strong { (text) }
                @if !reasons.is_empty() { ul { @for reason in reasons { li { (reason) } } } }
            }
        }
    };
    html! {
        header {
            p.kind { "rpcrdma-bench " (report.mode) }
            h1 { (report.what.trim()) }
            p.soft { (environment.machine.lines()[0]) }
        }
        @if !is_optimised {
            (bad("Not a release build: no figure below means anything.", &[]))
        }
        @if environment.interrupted {
            (bad("Interrupted: the figures are of what was measured so far.", &[]))
        }
        @if !noise.is_empty() {
            (bad("Noisy: ratios of medians still mean something, times and tails less so.", noise))
        }
        @if is_optimised && !environment.interrupted && noise.is_empty() {
            p class="quality good" { strong { "The machine was quiet." } }
        }
    }
}

/// The figures, as cards, plots and tables, and what they were measured with.
fn rest(report: &Report) -> Markup {
    let figures = &report.figures;
    let cards = figures::headline(figures);
    let plots = [
        ratios::plots(figures),
        charts::curves(report),
        charts::distributions(report),
        charts::rounds(figures),
    ];
    let plots: Vec<Plot> = plots.into_iter().flatten().collect();
    let text = report.text();
    let text = text.trim_matches('\n');
    let printed = html! {
        @if !text.is_empty() {
            h2 { "As printed" }
            div.scroll tabindex="0" { pre { (text) } }
        }
    };
    let settings = flat(&report.settings);
    let machine = report.environment.facts().into_iter();
    let machine: Vec<Fact> = machine.map(|(name, value)| Fact::new(name, value)).collect();
    html! {
        @if !cards.is_empty() { ul.cards { @for card in cards { (card) } } }
        @for plot in &plots { (plot.drawn()) }
        @if plots.is_empty() { (printed) }
        (figures::spread(figures))
        @for listing in &report.listings { (figures::listing(listing)) }
        (figures::all(figures))
        @if !plots.is_empty() { (printed) }
        @if !settings.is_empty() { (facts("Settings", &settings)) }
        (facts("Machine and program", &machine))
        p.soft {
            "Every sample is counted and none is trimmed: the maximum is the longest there was. A \
             round trip is there and back; what other tools print as latency is half of it."
        }
    }
}

fn facts(title: &str, facts: &[Fact]) -> Markup {
    html! {
        h2 { (title) }
        dl.facts { @for fact in facts { (fact) } }
    }
}

/// What is in a value, each with the path to it. Values are our own: they are not deep.
fn flat(value: &Value) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut open = vec![(String::new(), value)];
    while let Some((path, value)) = open.pop() {
        match value {
            Value::Object(members) => {
                let join = |key: &str| match &*path {
                    "" => key.to_owned(),
                    path => format!("{path}.{key}"),
                };
                open.extend(members.iter().rev().map(|(key, value)| (join(key), value)));
            }
            Value::Null => {}
            Value::String(text) => facts.push(Fact::new(path, text)),
            other => facts.push(Fact::new(path, other)),
        }
    }
    facts
}

const STYLE: &str = include_str!("style.css");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_text_is_markup() {
        let shown = |text: &str| without_controls(html! { (text) });
        assert_eq!(shown("<b a=\"x\" c='y'>&"), "&lt;b a=&quot;x&quot; c='y'&gt;&amp;");
        assert_eq!(shown("µs, 10 us\n"), "µs, 10 us\n");
        assert_eq!(shown("\u{1b}[31m\0"), "\u{fffd}[31m\u{fffd}");
        // What is escaped ends no attribute.
        let attribute = html! { p title=("'\" x='\"") {} };
        assert_eq!(without_controls(attribute), "<p title=\"'&quot; x='&quot;\"></p>");
    }
}
