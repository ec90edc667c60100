//! Text tables: a column names a figure, a row names a contender and a point.

use std::fmt;

use comfy_table::{CellAlignment, presets};

use super::figure::{At, Figure};
use super::report::find;

/// A table: text at the left of its column, numbers at the right.
#[derive(Debug)]
pub struct Table(comfy_table::Table);

#[derive(Debug, Clone, Copy)]
pub struct Column {
    head: &'static str,
    /// Whose, if not the row's.
    of: Option<&'static str>,
    figure: &'static str,
    show: Show,
    missing: &'static str,
}

#[derive(Debug, Clone, Copy)]
enum Show {
    Fixed(f64, usize),
    /// Nanoseconds times a factor, in the unit that fits.
    Time(f64),
    Thousands,
    Lowest,
    Highest,
    Samples,
}

#[derive(Debug, Clone)]
pub struct Row {
    pub labels: Vec<String>,
    pub of: String,
    pub at: Option<At>,
}

impl Table {
    /// A table with these heads; columns of text are named by their places.
    pub fn new<H: ToString>(text: &[usize], heads: impl IntoIterator<Item = H>) -> Table {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(heads.into_iter().map(|head| head.to_string()).collect::<Vec<_>>());
        for (at, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 2));
            if !text.contains(&at) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        Table(table)
    }

    pub fn row<C: ToString>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.0.add_row(cells.into_iter().map(|cell| cell.to_string()).collect::<Vec<_>>());
    }

    /// A table of figures: `names` are the heads of the labels.
    pub fn of(names: &[&str], rows: &[Row], columns: &[Column], figures: &[Figure]) -> Table {
        let heads = names.iter().copied().chain(columns.iter().map(|column| column.head));
        let mut table = Table::new(&[0, 1][..names.len().min(2)], heads);
        for row in rows {
            let cells = columns.iter().map(|column| column.cell(row, figures));
            table.row(row.labels.iter().cloned().chain(cells));
        }
        table
    }
}

/// Round trips of those of these contenders that have some, and rates of the others.
pub fn contender_tables(rows: &[Row], figures: &[Figure]) -> Vec<Table> {
    let has = |row: &&Row, name: &str| find(figures, &row.of, None, name).is_some();
    let timed = rows.iter().filter(|row| has(row, "round_trip.mean"));
    let rated = rows.iter().filter(|row| !has(row, "round_trip.mean") && has(row, "rate"));
    let (timed, rated): (Vec<Row>, Vec<Row>) = (timed.cloned().collect(), rated.cloned().collect());
    let tables =
        [("whole round trip", timed, &ROUND_TRIPS[..]), ("many in flight", rated, &RATES[..])];
    let tables = tables.iter().filter(|(_, rows, _)| !rows.is_empty());
    tables.map(|(title, rows, columns)| Table::of(&[title], rows, columns, figures)).collect()
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.trim_fmt())
    }
}

impl Column {
    const fn new(head: &'static str, figure: &'static str, show: Show) -> Column {
        Column { head, of: None, figure, show, missing: "-" }
    }

    pub const fn digits(head: &'static str, figure: &'static str, digits: usize) -> Column {
        Column::new(head, figure, Show::Fixed(1.0, digits))
    }

    /// Numbers divided by `scale`: 1e3 for nanoseconds in microseconds.
    pub const fn scaled(
        head: &'static str,
        figure: &'static str,
        scale: f64,
        digits: usize,
    ) -> Column {
        Column::new(head, figure, Show::Fixed(scale, digits))
    }

    /// Times multiplied by `factor`, each with its unit.
    pub const fn time(head: &'static str, figure: &'static str, factor: f64) -> Column {
        Column::new(head, figure, Show::Time(factor))
    }

    pub const fn thousands(head: &'static str, figure: &'static str) -> Column {
        Column::new(head, figure, Show::Thousands)
    }

    /// The lowest round of a figure, in thousands or millions.
    pub const fn lowest(head: &'static str, figure: &'static str) -> Column {
        Column::new(head, figure, Show::Lowest)
    }

    pub const fn highest(head: &'static str, figure: &'static str) -> Column {
        Column::new(head, figure, Show::Highest)
    }

    pub const fn samples(head: &'static str, figure: &'static str) -> Column {
        Column::new(head, figure, Show::Samples)
    }

    /// Of this contender in every row.
    pub const fn of(self, of: &'static str) -> Column {
        Column { of: Some(of), ..self }
    }

    /// With this where there is no figure.
    pub const fn or(self, missing: &'static str) -> Column {
        Column { missing, ..self }
    }

    fn cell(&self, row: &Row, figures: &[Figure]) -> String {
        let of = self.of.unwrap_or(&row.of);
        let Some(figure) = find(figures, of, row.at.as_ref(), self.figure) else {
            return self.missing.to_owned();
        };
        let end = |pick: fn(f64, f64) -> f64| {
            let end = figure.rounds.iter().copied().reduce(pick);
            end.map_or_else(|| self.missing.to_owned(), thousands)
        };
        match self.show {
            Show::Fixed(scale, digits) => format!("{:.digits$}", figure.value / scale),
            Show::Time(factor) => time(figure.value * factor),
            Show::Thousands => thousands(figure.value),
            Show::Lowest => end(f64::min),
            Show::Highest => end(f64::max),
            Show::Samples => figure.samples.to_string(),
        }
    }
}

impl Row {
    /// The row of a contender that has no points.
    pub fn of(name: &str) -> Row {
        Row { labels: vec![name.to_owned()], of: name.to_owned(), at: None }
    }

    /// A row for each point that a contender has figures at, with these labels.
    pub fn swept(figures: &[Figure], of: &str, labels: impl Fn(&At) -> Vec<String>) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        for at in figures.iter().filter(|figure| figure.of == of).filter_map(|one| one.at.as_ref())
        {
            if rows.iter().all(|row| row.at.as_ref() != Some(at)) {
                rows.push(Row { labels: labels(at), of: of.to_owned(), at: Some(at.clone()) });
            }
        }
        rows
    }
}

const ROUND_TRIPS: [Column; 7] = [
    Column::time("median", "round_trip.median", 1.0),
    Column::time("half of it", "round_trip.median", 0.5),
    Column::time("mean", "round_trip.mean", 1.0),
    Column::time("p99", "round_trip.p99", 1.0),
    Column::time("p99.9", "round_trip.p99.9", 1.0),
    Column::time("max", "round_trip.max", 1.0),
    Column::samples("samples", "round_trip.mean"),
];
const RATES: [Column; 3] = [
    Column::digits("round trips/s", "rate", 0),
    Column::digits("data, GB/s", "data", 3),
    Column::samples("counted", "rate").or("0"),
];

fn time(ns: f64) -> String {
    match ns {
        ns if ns < 10_000.0 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} us", ns / 1e3),
        ns => format!("{:.1} ms", ns / 1e6),
    }
}

/// A number of things in thousands or millions.
pub fn thousands(number: f64) -> String {
    match number {
        number if number >= 1e6 => format!("{:.3} M", number / 1e6),
        number if number >= 1e3 => format!("{:.2} k", number / 1e3),
        number => format!("{number:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::figure::Unit;

    #[test]
    fn counts_have_readable_units() {
        assert_eq!(thousands(18_410_000.0), "18.410 M");
        assert_eq!(thousands(41_900.0), "41.90 k");
        assert_eq!(thousands(12.0), "12.0");
        assert_eq!((time(443.4), time(65_210.0)), ("443 ns".into(), "65.2 us".into()));
        assert_eq!(time(1.5e6), "1.5 ms");
    }

    #[test]
    fn a_cell_is_the_figure_of_its_row_and_column() {
        let at = |count: u32| At::new("connections", count.into(), Unit::Count);
        let rate = |count, value| {
            let rate = Figure::new("rpc", "rate", value, Unit::PerSecond, 7).at(at(count));
            rate.rounds(vec![value + 5e5, value - 5e5])
        };
        let ratio = Figure::new("rpc/first", "ratio.rate", 0.5, Unit::Ratio, 3).at(at(64));
        let figures = [rate(1, 4e6), rate(64, 2e6), ratio];
        let columns = [
            Column::thousands("rate/s", "rate"),
            Column::digits("to first", "ratio.rate", 3).of("rpc/first").or("1.000"),
            Column::lowest("lowest", "rate"),
            Column::highest("highest", "rate"),
            Column::scaled("in k", "rate", 1e3, 1),
            Column::samples("samples", "rate"),
            Column::digits("memory, B", "memory", 0),
        ];
        let rows = Row::swept(&figures, "rpc", |at| vec![at.value.to_string()]);
        let text = Table::of(&["connections"], &rows, &columns, &figures).to_string();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = text.lines().map(words).collect();
        assert_eq!(lines[1], "1 4.000 M 1.000 3.500 M 4.500 M 4000.0 7 -", "{text}");
        assert_eq!(lines[2], "64 2.000 M 0.500 1.500 M 2.500 M 2000.0 7 -", "{text}");
        assert!(text.lines().all(|line| line == line.trim_end()), "{text:?}");
        assert!(text.starts_with("connections "), "{text}");
    }
}
