//! A cell of a table: how a value is written, and how it is sorted.

use std::cmp::Ordering;
use std::fmt::{self, Write};

/// A value, or none.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Text(String),
    /// A number that names something.
    Number(f64, String),
    /// A whole number.
    Count(Option<f64>),
    /// Events per second.
    Rate(Option<f64>),
    /// Seconds.
    Time(Option<f64>),
    /// What is in use, and of how much.
    Share(Option<f64>, Option<f64>),
}

impl Cell {
    /// A name that may be a number.
    pub fn number(text: &str) -> Cell {
        match text.parse() {
            Ok(number) => Cell::Number(number, text.to_owned()),
            Err(_) => Cell::Text(text.to_owned()),
        }
    }

    /// Names ascend; numbers descend, and what is not known comes last.
    pub fn order(&self, other: &Cell) -> Ordering {
        match (self, other) {
            (Cell::Text(a), Cell::Text(b)) => a.cmp(b),
            (Cell::Number(a, _), Cell::Number(b, _)) => a.total_cmp(b),
            _ => other.value().total_cmp(&self.value()),
        }
    }

    /// Whether it is written at the right.
    pub fn is_number(&self) -> bool {
        !matches!(self, Cell::Text(_))
    }

    fn value(&self) -> f64 {
        let known = match self {
            Cell::Text(_) => None,
            Cell::Number(value, _) => Some(*value),
            Cell::Count(value) | Cell::Rate(value) | Cell::Time(value) => *value,
            // The fullest first.
            Cell::Share(used, total) => used.zip(*total).map(|(used, total)| used / total.max(1.0)),
        };
        known.unwrap_or(-1.0)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::Text(text) | Cell::Number(_, text) => write_foreign(f, text),
            Cell::Count(Some(count)) => write!(f, "{count:.0}"),
            Cell::Rate(Some(rate)) => {
                scaled(f, *rate, &[(1e9, "G"), (1e6, "M"), (1e3, "k"), (0.0, "")])
            }
            Cell::Time(Some(seconds)) => {
                let units = [(1e9, "s"), (1e6, "ms"), (1e3, "us"), (0.0, "ns")];
                scaled(f, seconds * 1e9, &units)
            }
            Cell::Share(Some(used), Some(total)) => write!(f, "{used:.0}/{total:.0}"),
            Cell::Share(Some(used), None) => write!(f, "{used:.0}"),
            Cell::Count(None) | Cell::Rate(None) | Cell::Time(None) | Cell::Share(None, _) => {
                f.write_str("-")
            }
        }
    }
}

/// Writes a text of the process for a terminal: no more than a part, and control characters as the
/// escapes of Rust. Peers select parts of such texts.
pub fn write_foreign(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    text.chars().take(TEXT_SHOWN).try_for_each(|character| match character.is_control() {
        true => write!(f, "{}", character.escape_default()),
        false => f.write_char(character),
    })
}

/// Three digits or more, in the largest unit that the value reaches.
fn scaled(f: &mut fmt::Formatter<'_>, value: f64, units: &[(f64, &str)]) -> fmt::Result {
    let unit = units.iter().find(|(from, _)| value >= *from);
    let (from, name) = unit.copied().unwrap_or((0.0, ""));
    let value = if from > 0.0 { value / from } else { value };
    match value {
        _ if value == 0.0 => write!(f, "0"),
        _ if value < 10.0 => write!(f, "{value:.2}{name}"),
        _ if value < 100.0 => write!(f, "{value:.1}{name}"),
        _ => write!(f, "{value:.0}{name}"),
    }
}

/// Characters that are shown of a text: those of any address.
const TEXT_SHOWN: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_in_units_that_fit() {
        let rates = [0.0, 0.5, 12.34, 999.0, 1_000.0, 1_234_567.0, 2.5e9];
        let written = rates.map(|rate| Cell::Rate(Some(rate)).to_string());
        assert_eq!(written, ["0", "0.50", "12.3", "999", "1.00k", "1.23M", "2.50G"]);
        let times = [2e-7, 1.5e-6, 0.0123, 4.0].map(|time| Cell::Time(Some(time)).to_string());
        assert_eq!(times, ["200ns", "1.50us", "12.3ms", "4.00s"]);
        assert_eq!(Cell::Count(Some(1_234_567.0)).to_string(), "1234567");
        assert_eq!(Cell::Share(Some(3.0), Some(64.0)).to_string(), "3/64");
        assert_eq!([Cell::Rate(None), Cell::Time(None)].map(|it| it.to_string()), ["-", "-"]);
    }

    #[test]
    fn names_ascend_numbers_descend_and_the_unknown_is_last() {
        let mut cells = [Cell::Rate(None), Cell::Rate(Some(1.0)), Cell::Rate(Some(5.0))];
        cells.sort_by(Cell::order);
        assert_eq!(cells, [Cell::Rate(Some(5.0)), Cell::Rate(Some(1.0)), Cell::Rate(None)]);
        let mut names = ["10", "9", "2"].map(Cell::number);
        names.sort_by(Cell::order);
        assert_eq!(names.map(|it| it.to_string()), ["2", "9", "10"]);
        let full = Cell::Share(Some(9.0), Some(10.0)).order(&Cell::Share(Some(50.0), Some(100.0)));
        assert_eq!(full, Ordering::Less);
    }
}
