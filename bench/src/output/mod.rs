//! The outputs: what an outcome is printed as, and what is written to files.

pub mod json;

use std::fs;
use std::path::{Path, PathBuf};

use crate::args::{Format, OutputArgs};
use crate::error::BenchError;
use crate::html;
use crate::outcome::Outcome;
use crate::session::say;

/// What is printed: `--json -` is another way to ask for JSON.
pub fn format(args: &OutputArgs) -> Format {
    match args.json.as_deref() {
        Some(path) if path == Path::new("-") => Format::Json,
        _ => args.format,
    }
}

/// Prints an outcome, and writes the files that are wished.
///
/// # Errors
/// What cannot be written.
pub fn write(outcome: &dyn Outcome, args: &OutputArgs) -> Result<(), BenchError> {
    say(&match format(args) {
        Format::Table => outcome.table(),
        Format::Json => json::text(outcome),
    })?;
    for (path, text) in files(args) {
        fs::write(path, text(outcome))
            .map_err(|source| BenchError::Write { path: path.to_owned(), source })?;
    }
    Ok(())
}

/// What a file holds.
type Text = fn(&dyn Outcome) -> String;

/// The files that are wished, each with its form.
fn files(args: &OutputArgs) -> Vec<(&Path, Text)> {
    let all: [(&Option<PathBuf>, Text); 2] = [(&args.json, json::text), (&args.html, html::text)];
    let wished = all.into_iter().filter_map(|(path, text)| Some((path.as_deref()?, text)));
    wished.filter(|(path, _)| *path != Path::new("-")).collect()
}
