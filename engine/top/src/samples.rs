//! Samples: the text that Prometheus reads, as values.
//!
//! ```text
//!   # HELP rpcrdma_up ...
//!   rpcrdma_up{shard="0"} 1
//! ```
//! Lines that are none of these are errors; comments are passed over.

use std::fmt;

use crate::cell::write_foreign;

/// One value, with its name and labels.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub name: String,
    pub labels: Vec<(String, String)>,
    pub value: f64,
}

/// A line that is no sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotMetrics {
    line: usize,
    text: String,
}

impl fmt::Display for NotMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} is no metric: ", self.line)?;
        write_foreign(f, &self.text)
    }
}

impl std::error::Error for NotMetrics {}

impl Sample {
    /// The value of a label; empty if there is none of this name.
    pub fn label(&self, name: &str) -> &str {
        let found = self.labels.iter().find(|(label, _)| label == name);
        found.map_or("", |(_, value)| value)
    }
}

/// All samples of a text, in its order.
///
/// # Errors
/// The first line that is neither a sample nor a comment.
pub fn parse(text: &str) -> Result<Vec<Sample>, NotMetrics> {
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|(at, line)| {
            let text = || line.chars().take(LINE_SHOWN).collect();
            sample(line).ok_or_else(|| NotMetrics { line: at + 1, text: text() })
        })
        .collect()
}

fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':');
    if name.is_empty() || !name.bytes().all(is_name) {
        return None;
    }
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Vec::new(), rest),
    };
    // A time may follow the value.
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample { name: name.to_owned(), labels, value })
}

/// The labels, and what follows the brace.
fn labels(mut rest: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, after) = rest.split_once("=\"")?;
        let (value, after) = quoted(after)?;
        labels.push((name.trim().to_owned(), value));
        rest = after.strip_prefix(',').unwrap_or(after);
    }
}

/// A text up to its closing quote, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    loop {
        match characters.next()? {
            (at, '"') => return Some((value, &text[at + 1..])),
            (_, '\\') => value.push(match characters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            (_, other) => value.push(other),
        }
    }
}

/// Characters of a wrong line that an error shows.
const LINE_SHOWN: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_names_labels_and_values() {
        let text = "# HELP a Text.\n# TYPE a counter\na_total 3\nb{x=\"1\",y=\"a \\\"b\\\\\\n}\"} 0.5 1\n\n\
                    c_bucket{le=\"+Inf\",} 1e3\n# EOF\n";
        let samples = parse(text).expect("metrics");
        let names: Vec<&str> = samples.iter().map(|sample| sample.name.as_str()).collect();
        assert_eq!(names, ["a_total", "b", "c_bucket"]);
        assert_eq!(samples.iter().map(|it| it.value).collect::<Vec<_>>(), [3.0, 0.5, 1000.0]);
        assert_eq!((samples[1].label("x"), samples[1].label("y")), ("1", "a \"b\\\n}"));
        assert_eq!((samples[0].label("x"), samples[2].label("le")), ("", "+Inf"));
    }

    #[test]
    fn what_is_no_metric_is_an_error_that_shows_the_line() {
        for wrong in ["<html>", "a", "a{x=\"1\" 2", "a{x=1} 2", "a{x=\"1} 2", "a two", " 1"] {
            let error = parse(&format!("ok 1\n{wrong}\n")).expect_err(wrong).to_string();
            assert_eq!(error, format!("line 2 is no metric: {wrong}"));
        }
        let long = parse(&"x".repeat(1 << 20)).expect_err("no value");
        assert!(long.to_string().len() < 100);
    }
}
