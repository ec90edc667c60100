//! A whole number whose range is part of its type.

use std::fmt;

/// A number between `MIN` and `MAX`, both allowed. Its constructor checks the range.
///
/// ```
/// use rpcrdma_config::Bounded;
/// type GroupLimit = Bounded<1, 64>;
/// assert_eq!(GroupLimit::new(64).map(GroupLimit::value), Some(64));
/// assert_eq!(GroupLimit::new(65), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bounded<const MIN: u32, const MAX: u32>(u32);

impl<const MIN: u32, const MAX: u32> Bounded<MIN, MAX> {
    /// The smallest value.
    pub const MIN: u32 = MIN;
    /// The largest value.
    pub const MAX: u32 = MAX;

    /// The number, if it is in range.
    pub const fn new(value: u32) -> Option<Self> {
        if value >= MIN && value <= MAX { Some(Self(value)) } else { None }
    }

    /// The number.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The number as a `usize`.
    pub const fn as_usize(self) -> usize {
        self.0 as usize
    }
}

impl<const MIN: u32, const MAX: u32> From<Bounded<MIN, MAX>> for u32 {
    fn from(bounded: Bounded<MIN, MAX>) -> u32 {
        bounded.0
    }
}

impl<const MIN: u32, const MAX: u32> fmt::Display for Bounded<MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_in_range_and_their_neighbours_are_not() {
        type Limit = Bounded<2, 5>;
        assert_eq!(Limit::new(1), None);
        assert_eq!(Limit::new(2).map(Limit::value), Some(2));
        assert_eq!(Limit::new(5).map(Limit::as_usize), Some(5));
        assert_eq!(Limit::new(6), None);
    }
}
