//! The rows of docs/conformance.md.

use std::path::Path;

/// What the rows of a document are numbered with.
pub const DOCUMENTS: [&str; 8] = ["8166", "5666", "V2", "XCHAR", "RTR", "8167", "8267", "8797"];

/// A row of the table.
#[derive(Debug)]
pub struct Row {
    /// The number of the rule.
    pub number: String,
    /// Source, rule, what we do, test, mutation.
    pub cells: Vec<String>,
}

impl Row {
    /// The mutations that it names.
    pub fn mutations(&self) -> impl Iterator<Item = &str> {
        let cell = self.cells.get(4).map_or("", String::as_str);
        cell.split(", ").filter_map(|name| name.strip_prefix('`')?.strip_suffix('`'))
    }
}

/// The rows of all tables in the text: lines whose first cell is the number of a rule.
#[must_use]
pub fn rows(text: &str) -> Vec<Row> {
    let cells_of = |line: &str| -> Option<Row> {
        let inner = line.strip_prefix('|')?.strip_suffix('|')?;
        let mut cells = inner.split('|').map(|cell| cell.trim().to_owned());
        let number = cells.next().filter(|number| document_of(number).is_some())?;
        Some(Row { number, cells: cells.collect() })
    };
    text.lines().filter_map(cells_of).collect()
}

/// The rows of the page.
///
/// # Errors
/// If it cannot be read.
pub fn read(root: &Path) -> Result<Vec<Row>, String> {
    let text = std::fs::read_to_string(root.join("docs/conformance.md"));
    Ok(rows(&text.map_err(|error| format!("docs/conformance.md: {error}"))?))
}

/// `8166` of `8166-12`.
#[must_use]
pub fn document_of(number: &str) -> Option<&'static str> {
    let (document, count) = number.split_once('-')?;
    let is_count = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
    DOCUMENTS.into_iter().find(|known| is_count && *known == document)
}
