//! The report as one page of HTML: of any outcome, with nothing that is not in the file.
//!
//! ```text
//!   Outcome ─▶ figures ───────▶ headline, tables ──┐
//!           ─▶ distributions ─▶ plots ─▶ SVG ──────┼─▶ page: style and drawings inside, no script
//!           ─▶ curves, rounds, ratios ─▶ SVG ──────┘
//! ```
//! What comes from outside - names, notes, settings - is text and nothing else: `page::escape`.

mod charts;
mod figures;
mod page;
mod plot;
mod ratios;
mod scale;
mod scene;
mod value;

use crate::output::outcome::Outcome;

/// The page for an outcome.
pub fn text(outcome: &dyn Outcome) -> String {
    let figures = outcome.figures();
    let mut body = String::new();
    scene::write_head(&mut body, outcome);
    figures::write_headline(&mut body, &figures);
    let plots = [
        ratios::plots(&figures),
        charts::curves(outcome, &figures),
        charts::distributions(outcome),
        charts::rounds(&figures),
    ];
    for plot in plots.iter().flatten() {
        body.push_str(&plot.figure());
    }
    let has_plots = plots.iter().any(|plots| !plots.is_empty());
    if !has_plots {
        scene::write_table(&mut body, outcome);
    }
    figures::write_spread(&mut body, &figures);
    figures::write_all(&mut body, &figures);
    if has_plots {
        scene::write_table(&mut body, outcome);
    }
    scene::write_settings(&mut body, outcome);
    scene::write_scene(&mut body, outcome);
    page::page(&format!("{}: {}", outcome.mode(), outcome.what()), &body)
}
