//! What a soak must have carried before it ends: calls and bytes.

use std::fmt::Write;

use crate::args::parse;

/// Calls and bytes of payload, requests and replies together: wanted, or carried so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Goal {
    pub calls: u64,
    pub bytes: u64,
}

impl Goal {
    /// Whether this is at least what is wanted.
    pub fn has(self, wanted: Goal) -> bool {
        self.calls >= wanted.calls && self.bytes >= wanted.bytes
    }

    /// What is wanted beyond the time, for the sentence of the run.
    pub fn words(self) -> String {
        let mut words = String::new();
        if self.calls > 0 {
            write!(words, " and {} calls", self.calls).expect("a string takes all");
        }
        if self.bytes > 0 {
            write!(words, " and {} bytes", self.bytes).expect("a string takes all");
        }
        words
    }

    /// What is missing from what is wanted, if anything is.
    pub fn complaint(self, wanted: Goal) -> Option<String> {
        (!self.has(wanted)).then(|| {
            let Goal { calls, bytes } = self;
            format!(
                "ended early: {calls} of {} calls, {bytes} of {} bytes",
                wanted.calls, wanted.bytes
            )
        })
    }
}

/// A number of calls: `1500000`, `200k`, `10M` or `1G`.
pub(super) fn calls(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.as_bytes().last() {
        Some(b'k') => (&text[..text.len() - 1], 1_000),
        Some(b'M') => (&text[..text.len() - 1], 1_000_000),
        Some(b'G') => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let count = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    let count = count.filter(|count| (1..=CALLS_MAX).contains(count));
    count.ok_or_else(|| "a number of calls, as in 1500000, 200k, 10M or 1G; 1 to 1000000G".into())
}

/// Bytes: a number, or one with `KiB`, `MiB`, `GiB` or `TiB`.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let bytes = match text.strip_suffix("TiB") {
        Some(number) => number.parse::<u64>().ok().and_then(|number| number.checked_mul(TIB)),
        None => parse::bytes(text).ok(),
    };
    let bytes = bytes.filter(|bytes| (1..=BYTES_MAX).contains(bytes));
    bytes.ok_or_else(|| "bytes, as in 64GiB or 1TiB; 1 to 1048576TiB".into())
}

const CALLS_MAX: u64 = 1_000_000_000_000_000;
const TIB: u64 = 1 << 40;
const BYTES_MAX: u64 = 1 << 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_bytes_have_units_and_bounds() {
        let read = ["1500000", "200k", "10M", "1G"].map(calls);
        assert_eq!(read, [Ok(1_500_000), Ok(200_000), Ok(10_000_000), Ok(1_000_000_000)]);
        assert_eq!([bytes("7"), bytes("64GiB"), bytes("1TiB")], [Ok(7), Ok(64 << 30), Ok(1 << 40)]);
        for wrong in ["", "0", "k", "-1", "1.5M", "1K", "1000001G", "99999999999999999999G"] {
            assert!(calls(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "0", "TiB", "1TB", "1048577TiB", "-1GiB"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_goal_is_reached_with_both_numbers_and_otherwise_says_what_is_missing() {
        let wanted = Goal { calls: 10, bytes: 100 };
        for (calls, bytes, is_enough) in [(10, 100, true), (9, 100, false), (10, 99, false)] {
            let carried = Goal { calls, bytes };
            assert_eq!(carried.has(wanted), is_enough);
            assert_eq!(carried.complaint(wanted).is_none(), is_enough);
        }
        assert!(Goal::default().has(Goal::default()), "none is wanted unless it is said");
        assert_eq!(wanted.words(), " and 10 calls and 100 bytes");
        assert_eq!(Goal::default().words(), "");
    }
}
