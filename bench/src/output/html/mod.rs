//! The report as one self-contained HTML page.
//!
//! ```text
//!   Report ─▶ figures ───────▶ cards, tables ────┐
//!           ─▶ distributions ─▶ plots ─▶ SVG ─────┼─▶ page.html: style and drawings inside, no script
//!           ─▶ curves, rounds, ratios ─▶ SVG ─────┘
//! ```
//! Names, notes and settings come from outside: the page shows them as text and nothing else.

mod charts;
mod figures;
mod plot;
mod ratios;
mod scale;

use minijinja::value::Serde;
use minijinja::{Environment, Output};
use serde_json::{Value, json};

use crate::output::report::Report;
use figures::Fact;

pub fn text(report: &Report) -> String {
    let (figures, environment) = (&report.figures, &report.environment);
    let plots = [
        ratios::plots(figures),
        charts::curves(report),
        charts::distributions(report),
        charts::rounds(figures),
    ];
    let facts = environment.facts().into_iter().map(|(name, value)| Fact::new(name, value));
    let facts: Vec<Fact> = facts.collect();
    let page = json!({
        "mode": report.mode,
        "what": report.what,
        "machine": environment.machine.lines().first(),
        "style": STYLE.to_owned() + &plot::colours(),
        "optimised": environment.build.is_optimised(),
        "interrupted": environment.interrupted,
        "noise": environment.noise,
        "cards": figures::headline(figures),
        "plots": plots.iter().flatten().map(plot::Plot::drawn).collect::<Vec<_>>(),
        "text": report.text().trim_matches('\n'),
        "spread": figures::spread(figures),
        "figures": figures::all(figures),
        "settings": flat(&report.settings),
        "environment": facts,
    });
    rendered(page)
}

fn rendered(page: Value) -> String {
    let mut environment = Environment::new();
    environment.set_formatter(|out: &mut Output<'_>, _, value| match value.is_safe() {
        true => Ok(write!(out, "{value}")?),
        false => Ok(out.write_str(&escape(&value.to_string()))?),
    });
    let page = environment.render_named_str("page.html", include_str!("page.html"), Serde(page));
    page.expect("the page has what its template names")
}

/// Text as HTML shows it, in contents and in quoted attributes.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // What no page may contain, and no terminal shows.
            control if control.is_control() && control != '\n' && control != '\t' => {
                out.push('\u{fffd}');
            }
            other => out.push(other),
        }
    }
    out
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
        assert_eq!(escape("<b a=\"x\" c='y'>&"), "&lt;b a=&quot;x&quot; c=&#39;y&#39;&gt;&amp;");
        assert_eq!(escape("µs, 10 us\n"), "µs, 10 us\n");
        assert_eq!(escape("\u{1b}[31m\0"), "\u{fffd}[31m\u{fffd}");
    }
}
