//! Tables as lines of text: for pipes, for terminals that cannot move the cursor, and for `--once`.

use std::io::{self, Write};

use crate::tables::Table;

/// Writes tables that have rows.
///
/// # Errors
/// Those of the output.
pub fn print(tables: &[Table], out: &mut impl Write) -> io::Result<()> {
    for table in tables.iter().filter(|table| !table.rows.is_empty()) {
        let widths = table.widths();
        writeln!(out, "{}", table.title)?;
        let is_number: Vec<bool> = table.rows[0].iter().map(|cell| cell.is_number()).collect();
        let titles = table.columns.iter().map(ToString::to_string).collect();
        let rows = table.rows.iter().map(|row| row.iter().map(ToString::to_string).collect());
        for cells in std::iter::once(titles).chain(rows) {
            let cells: Vec<String> = cells;
            let aligned = cells.iter().zip(widths.iter().zip(&is_number));
            let aligned = aligned.map(|(cell, (&width, &is_number))| {
                if is_number { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            });
            writeln!(out, "{}", aligned.collect::<Vec<_>>().join(" ").trim_end())?;
        }
        writeln!(out)?;
    }
    out.flush()
}
