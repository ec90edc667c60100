//! The report as one self-contained HTML page.
//!
//! ```text
//!   Report ─▶ figures ───────▶ headline, tables ──┐
//!           ─▶ distributions ─▶ plots ─▶ SVG ──────┼─▶ page: style and drawings inside, no script
//!           ─▶ curves, rounds, ratios ─▶ SVG ──────┘
//! ```
//! What comes from outside - names, notes, settings - is text and nothing else: `page::escape`.

mod charts;
mod environment;
mod figures;
mod page;
mod plot;
mod ratios;
mod scale;

use crate::output::report::Report;

pub fn text(report: &Report) -> String {
    let figures = &report.figures;
    let mut body = String::new();
    environment::write_head(&mut body, report);
    figures::write_headline(&mut body, figures);
    let plots = [
        ratios::plots(figures),
        charts::curves(report, figures),
        charts::distributions(report),
        charts::rounds(figures),
    ];
    for plot in plots.iter().flatten() {
        body.push_str(&plot.figure());
    }
    let has_plots = plots.iter().any(|plots| !plots.is_empty());
    if !has_plots {
        environment::write_table(&mut body, report);
    }
    figures::write_spread(&mut body, figures);
    figures::write_all(&mut body, figures);
    if has_plots {
        environment::write_table(&mut body, report);
    }
    environment::write_settings(&mut body, report);
    environment::write_environment(&mut body, report);
    page::page(&format!("{}: {}", report.mode, report.what), &body)
}
