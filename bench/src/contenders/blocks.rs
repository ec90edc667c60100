//! Test data: one pattern, read and written at changing offsets, and checked.
//!
//! Call `n` carries the bytes from [`offset`]`(n)` on. Neighbouring calls differ in every byte, so
//! data left in a buffer by the call before is not taken for right.

use std::hint::black_box;

use crate::values::Touch;

/// Where in the pattern the data of a call begin.
#[inline]
pub fn offset(number: u64) -> usize {
    (number % OFFSETS) as usize * LINE
}

/// The pattern for data of at most `len` bytes at any offset.
pub fn pattern(len: usize) -> Box<[u8]> {
    (0..len + SLACK).map(byte).collect()
}

/// Reads what has arrived, as far as the options say.
#[derive(Debug, Clone)]
pub struct Inspector {
    pattern: Box<[u8]>,
    touch: Touch,
    seen: u64,
}

#[derive(Debug)]
pub struct Inspection<'a> {
    expected: Option<&'a [u8]>,
    touches: bool,
    left: usize,
    lines: u8,
    is_right: bool,
}

impl Inspector {
    /// For data of at most `len` bytes.
    pub fn new(len: usize, touch: Touch) -> Inspector {
        Inspector { pattern: pattern(len), touch, seen: 0 }
    }

    /// Begins with a message of `len` bytes from `offset` of the pattern. One message in
    /// [`COMPARE_EVERY`] is compared as a whole, or all if the options say so.
    #[inline]
    pub fn begin(&mut self, offset: usize, len: usize) -> Inspection<'_> {
        let whole = self.touch == Touch::All || self.seen.is_multiple_of(COMPARE_EVERY);
        self.seen += 1;
        Inspection {
            expected: if whole { self.pattern.get(offset..offset + len) } else { None },
            touches: self.touch == Touch::Lines,
            left: len,
            lines: 0,
            is_right: true,
        }
    }
}

impl Inspection<'_> {
    #[inline]
    pub fn see(&mut self, bytes: &[u8]) {
        if self.touches {
            let touched = bytes.chunks(LINE).map(|line| line[0]);
            self.lines = touched.fold(self.lines, u8::wrapping_add);
        }
        if let Some(expected) = &mut self.expected {
            let part = expected.split_off(..bytes.len().min(expected.len()));
            self.is_right &= part == Some(bytes);
        }
        self.left = self.left.wrapping_sub(bytes.len());
    }

    /// Whether all bytes came, and those compared were right.
    #[inline]
    pub fn is_right(&self) -> bool {
        black_box(self.lines);
        self.is_right && self.left == 0
    }
}

fn byte(index: usize) -> u8 {
    (index * 7 + index / 251) as u8
}

const OFFSETS: u64 = 16;
const LINE: usize = 64;
/// Bytes of the pattern behind the data at offset 0.
pub const SLACK: usize = OFFSETS as usize * LINE;
/// One message in so many is compared as a whole.
pub const COMPARE_EVERY: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn inspect(touch: Touch, seen: u64, offset: usize, parts: &[&[u8]]) -> bool {
        let mut inspector = Inspector::new(300, touch);
        inspector.seen = seen;
        let mut inspection = inspector.begin(offset, 300);
        parts.iter().for_each(|part| inspection.see(part));
        inspection.is_right()
    }

    #[test]
    fn right_bytes_are_right_in_any_number_of_parts() {
        let pattern = pattern(300);
        for number in [0, 5, 15] {
            let at = offset(number);
            let data = &pattern[at..at + 300];
            for touch in [Touch::None, Touch::Lines, Touch::All] {
                assert!(inspect(touch, 0, at, &[data]));
                assert!(inspect(touch, 0, at, &[&data[..1], &data[1..70], &data[70..]]));
            }
        }
    }

    #[test]
    fn data_of_the_call_before_are_wrong() {
        let pattern = pattern(300);
        let stale = &pattern[offset(4)..offset(4) + 300];
        assert!(!inspect(Touch::All, 1, offset(5), &[stale]));
        assert!(stale.iter().zip(&pattern[offset(5)..]).all(|(a, b)| a != b));
    }

    #[test]
    fn one_message_in_many_is_compared_unless_all_are() {
        let wrong = [0xee; 300];
        assert!(!inspect(Touch::Lines, 0, 0, &[&wrong]));
        assert!(inspect(Touch::Lines, 1, 0, &[&wrong]));
        assert!(!inspect(Touch::All, 1, 0, &[&wrong]));
        assert!(!inspect(Touch::None, COMPARE_EVERY, 0, &[&wrong]));
    }

    #[test]
    fn too_few_and_too_many_bytes_are_always_wrong() {
        let pattern = pattern(400);
        for touch in [Touch::None, Touch::Lines, Touch::All] {
            assert!(!inspect(touch, 1, 0, &[&pattern[..299]]));
            assert!(!inspect(touch, 1, 0, &[&pattern[..301]]));
            assert!(!inspect(touch, 0, 0, &[&pattern[..300], &pattern[300..301]]));
        }
    }
}
