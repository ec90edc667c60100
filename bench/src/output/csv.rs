//! CSV: one line per figure.
//!
//! A contender named with a comma is quoted, as RFC 4180 has it.

use super::figure::{At, Figure};
use super::report::Report;

pub fn text(report: &Report) -> String {
    let mut text = format!("{}\n", HEAD.join(","));
    for figure in &report.figures {
        text.push_str(&row(&report.mode, figure).map(field).join(","));
        text.push('\n');
    }
    text
}

fn row(mode: &str, figure: &Figure) -> [String; HEAD.len()] {
    let Figure { of, at, name, value, unit, samples, .. } = figure;
    let (axis, point) = match at {
        None => (String::new(), String::new()),
        Some(At { axis, value, .. }) => (axis.to_string(), value.to_string()),
    };
    // A ratio of nothing is no number.
    let value = if value.is_finite() { value.to_string() } else { String::new() };
    let unit = unit.symbol().to_owned();
    [mode.into(), of.clone(), axis, point, name.to_string(), value, unit, samples.to_string()]
}

/// Quoted, if it has to be.
fn field(text: String) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text
}

const HEAD: [&str; 8] = ["mode", "of", "axis", "at", "figure", "value", "unit", "samples"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::report::tests::odd;

    #[test]
    fn every_figure_has_its_line_and_its_columns() {
        let text = text(&odd(&[]));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "mode,of,axis,at,figure,value,unit,samples",
                "odd,a,,,round_trip.p50,1.5,ns,2",
                "odd,a,load,0.5,round_trip.p50,1.5,ns,2",
                "odd,a/b,,,ratio.rate,,x,0",
            ]
        );
    }

    #[test]
    fn commas_and_quotes_are_quoted() {
        assert_eq!(field("rpc, one".into()), "\"rpc, one\"");
        assert_eq!(field("a \"b\"".into()), "\"a \"\"b\"\"\"");
        assert_eq!(field("1.5".into()), "1.5");
    }
}
