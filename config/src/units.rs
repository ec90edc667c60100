//! Units: the notation of lengths, durations and core lists, and their parsing and formatting.
//!
//! A value is a whole number, directly followed by its unit. A number without a unit is an error,
//! because its meaning is ambiguous.

use std::fmt;
use std::time::Duration;

/// Reads a length: a whole number and one of `B`, `KiB`, `MiB`, `GiB`. Returns bytes.
///
/// # Errors
/// When the number or the unit is missing, unknown or too large for 64 bits.
///
/// ```
/// use rpcrdma_config::units::{UnitError, parse_length};
/// assert_eq!(parse_length("64KiB"), Ok(65_536));
/// assert_eq!(parse_length("64KB"), Err(UnitError::Unit));
/// ```
pub fn parse_length(text: &str) -> Result<u64, UnitError> {
    parse_scaled(text, &LENGTH_UNITS)
}

/// Reads a duration: a whole number and one of `ns`, `us`, `ms`, `s`, `min`, `h`.
///
/// # Errors
/// When the number or the unit is missing, unknown or too large for 64 bits of nanoseconds.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    parse_scaled(text, &DURATION_UNITS).map(Duration::from_nanos)
}

/// Reads a list of cores: numbers and rising ranges, separated by commas, each core once, all in
/// rising order: `2-5,8`.
///
/// # Errors
/// When a part is not a number or range, a core is above [`CORE_MAX`], or the order is not rising.
pub fn parse_cores(text: &str) -> Result<Vec<usize>, UnitError> {
    let mut cores: Vec<usize> = Vec::new();
    for part in text.split(',') {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (parse_core(first)?, parse_core(last)?),
            None => {
                let core = parse_core(part)?;
                (core, core)
            }
        };
        if first > last || cores.last().is_some_and(|&before| before >= first) {
            return Err(UnitError::Order);
        }
        cores.extend(first..=last);
    }
    Ok(cores)
}

/// Renders bytes in the largest unit that divides them: `64KiB`.
///
/// ```
/// use rpcrdma_config::units::{Length, parse_length};
/// assert_eq!(Length(1 << 20).to_string(), "1MiB");
/// assert_eq!(parse_length(&Length(1_000).to_string()), Ok(1_000));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Length(pub u64);

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        render_scaled(f, self.0, &LENGTH_UNITS)
    }
}

/// Renders a duration in the largest unit that divides it: `2us`. Durations above 584 years are
/// rendered as 584 years.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeSpan(pub Duration);

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        render_scaled(f, u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX), &DURATION_UNITS)
    }
}

/// Renders a rising list of cores with its runs drawn together: `2-5,8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoreNumbers<'a>(pub &'a [usize]);

impl fmt::Display for CoreNumbers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        let mut comma = "";
        while let Some(&first) = rest.first() {
            let run = rest.iter().zip(first..).take_while(|(core, want)| **core == *want).count();
            match run {
                1 => write!(f, "{comma}{first}")?,
                _ => write!(f, "{comma}{first}-{}", first + run - 1)?,
            }
            rest = rest.split_at(run).1;
            comma = ",";
        }
        Ok(())
    }
}

/// Why a value with a unit could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnitError {
    /// There is no whole number in front.
    #[error("not a whole number")]
    Number,
    /// The unit is missing or unknown.
    #[error("the unit is missing or unknown")]
    Unit,
    /// The value does not fit.
    #[error("too large")]
    TooLarge,
    /// A core list does not rise.
    #[error("the cores are not in rising order, or one is listed twice")]
    Order,
}

/// The highest core number that can be written. A CPU set of the C library ends there.
pub const CORE_MAX: usize = 1023;

/// The units of a length, largest first, for error messages.
pub(crate) const LENGTH_EXPECTED: &str = "a whole number with its unit B, KiB, MiB or GiB";
/// The units of a duration, for error messages.
pub(crate) const DURATION_EXPECTED: &str = "a whole number with its unit ns, us, ms, s, min or h";

const LENGTH_UNITS: [(&str, u64); 4] =
    [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
const DURATION_UNITS: [(&str, u64); 6] = [
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

fn parse_scaled(text: &str, units: &[(&str, u64)]) -> Result<u64, UnitError> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number = parse_number(number)?;
    let (_, scale) =
        units.iter().find(|(name, _)| *name == unit).copied().ok_or(UnitError::Unit)?;
    number.checked_mul(scale).ok_or(UnitError::TooLarge)
}

fn parse_number(digits: &str) -> Result<u64, UnitError> {
    if digits.is_empty() {
        return Err(UnitError::Number);
    }
    digits.parse().map_err(|_| UnitError::TooLarge)
}

fn parse_core(text: &str) -> Result<usize, UnitError> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(UnitError::Number);
    }
    let core = usize::try_from(parse_number(text)?).map_err(|_| UnitError::TooLarge)?;
    if core > CORE_MAX { Err(UnitError::TooLarge) } else { Ok(core) }
}

fn render_scaled(
    f: &mut fmt::Formatter<'_>,
    value: u64,
    units: &[(&'static str, u64)],
) -> fmt::Result {
    let exact = |scale: u64| value.is_multiple_of(scale) && (value > 0 || scale == 1);
    match units.iter().find(|(_, scale)| exact(*scale)) {
        Some((name, scale)) => write!(f, "{}{name}", value / scale),
        None => write!(f, "{value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_in_every_unit() {
        assert_eq!(parse_length("0B"), Ok(0));
        assert_eq!(parse_length("17B"), Ok(17));
        assert_eq!(parse_length("4KiB"), Ok(4096));
        assert_eq!(parse_length("3MiB"), Ok(3 << 20));
        assert_eq!(parse_length("2GiB"), Ok(2 << 30));
    }

    #[test]
    fn a_length_without_or_with_a_foreign_unit_is_refused() {
        for text in ["4096", "4 KiB", "4KB", "4kib", "4K", "4KiBs", "4.5KiB", "4us"] {
            assert_eq!(parse_length(text), Err(UnitError::Unit), "{text}");
        }
        for text in ["", "KiB", " 4KiB", "-4KiB", "+4KiB", "xKiB"] {
            assert_eq!(parse_length(text), Err(UnitError::Number), "{text}");
        }
    }

    #[test]
    fn a_length_is_read_up_to_64_bits_and_not_beyond() {
        assert_eq!(parse_length("18446744073709551615B"), Ok(u64::MAX));
        assert_eq!(parse_length("18446744073709551616B"), Err(UnitError::TooLarge));
        assert_eq!(parse_length("17179869183GiB"), Ok(17_179_869_183 << 30));
        assert_eq!(parse_length("17179869184GiB"), Err(UnitError::TooLarge));
    }

    #[test]
    fn durations_are_read_in_every_unit() {
        assert_eq!(parse_duration("15ns"), Ok(Duration::from_nanos(15)));
        assert_eq!(parse_duration("2us"), Ok(Duration::from_micros(2)));
        assert_eq!(parse_duration("3ms"), Ok(Duration::from_millis(3)));
        assert_eq!(parse_duration("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(parse_duration("10min"), Ok(Duration::from_secs(600)));
        assert_eq!(parse_duration("2h"), Ok(Duration::from_secs(7_200)));
        assert_eq!(parse_duration("5m"), Err(UnitError::Unit));
        assert_eq!(parse_duration("5"), Err(UnitError::Unit));
        assert_eq!(parse_duration("99999999999s"), Err(UnitError::TooLarge));
    }

    #[test]
    fn core_lists_hold_numbers_and_ranges() {
        assert_eq!(parse_cores("2-5,8"), Ok(vec![2, 3, 4, 5, 8]));
        assert_eq!(parse_cores("0"), Ok(vec![0]));
        assert_eq!(parse_cores("1023"), Ok(vec![1023]));
    }

    #[test]
    fn core_lists_that_fall_repeat_or_are_no_numbers_are_refused() {
        for text in ["5-2", "2,2", "2-4,3", "8,2"] {
            assert_eq!(parse_cores(text), Err(UnitError::Order), "{text}");
        }
        for text in ["", ",", "2,", "a", "2-", "-2", "1--2", "1-2-3", "2, 3", "+2"] {
            assert_eq!(parse_cores(text), Err(UnitError::Number), "{text}");
        }
        assert_eq!(parse_cores("1024"), Err(UnitError::TooLarge));
        assert_eq!(parse_cores("0-4000000000"), Err(UnitError::TooLarge));
    }

    #[test]
    fn rendered_values_parse_to_the_same_value() {
        for bytes in [0, 1, 1023, 1024, 1025, 65_536, 1 << 20, 3 << 30, u64::MAX] {
            assert_eq!(parse_length(&Length(bytes).to_string()), Ok(bytes));
        }
        for nanos in
            [0, 1, 999, 1_000, 1_500, 2_000_000, 5_000_000_000, 120_000_000_000, 7_200_000_000_000]
        {
            let span = Duration::from_nanos(nanos);
            assert_eq!(parse_duration(&TimeSpan(span).to_string()), Ok(span));
        }
        for text in ["0", "2-5,8", "0-1", "1,3,5-7"] {
            let cores = parse_cores(text).expect("the list is well-formed");
            assert_eq!(CoreNumbers(&cores).to_string(), text);
        }
    }
}
