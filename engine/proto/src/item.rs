//! Bulk items: bytes of a message that may be sent separately from its payload; and sets of them.

use rpcrdma_xdr::cursor::pad_len;
use rpcrdma_xdr::numbers::limit::MITEMS_MAX;

/// An item that may leave the payload stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BulkItem {
    /// Where its first byte is in the stream with nothing excised; a multiple of four.
    pub position: u32,
    /// Its bytes, without padding.
    pub len: u32,
    /// In a reply: where in the call's stream the operation began that produced it. Else 0.
    pub origin: u32,
    /// Memory pieces that it is gathered from, at least 1.
    pub pieces: u32,
}

impl BulkItem {
    /// Bytes that it takes in the stream with nothing excised.
    #[inline]
    #[must_use]
    pub fn padded_len(&self) -> u32 {
        self.len + pad_len(self.len as usize) as u32
    }
}

/// Some of the at most 64 items of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ItemSet(u64);

impl ItemSet {
    /// None of the items.
    pub const EMPTY: Self = Self(0);

    /// Adds an item; beyond 64 there is none.
    pub fn insert(&mut self, index: usize) {
        debug_assert!(index < MITEMS_MAX as usize, "a message has at most 64 items");
        self.0 |= 1u64.unbounded_shl(index as u32);
    }

    /// Whether the item is one of them.
    #[inline]
    #[must_use]
    pub fn contains(self, index: usize) -> bool {
        index < MITEMS_MAX as usize && self.0 >> index & 1 == 1
    }

    /// How many members come before this one; `None` if it is not a member.
    #[inline]
    #[must_use]
    pub fn rank(self, index: usize) -> Option<usize> {
        let before = (1u64.unbounded_shl(index as u32)).wrapping_sub(1);
        self.contains(index).then(|| (self.0 & before).count_ones() as usize)
    }

    /// The highest member.
    #[inline]
    #[must_use]
    pub fn last(self) -> Option<usize> {
        self.0.checked_ilog2().map(|last| last as usize)
    }

    /// The members of either.
    #[inline]
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The members, in rising order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        core::iter::from_fn(move || {
            let index = left.trailing_zeros();
            // The lowest bit goes.
            left &= left.checked_sub(1)?;
            Some(index as usize)
        })
    }

    /// How many there are.
    #[inline]
    #[must_use]
    pub fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether there is none.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those items, in order.
    pub fn of(self, items: &[BulkItem]) -> impl Iterator<Item = &BulkItem> {
        items.iter().enumerate().filter(move |(at, _)| self.contains(*at)).map(|(_, item)| item)
    }
}
