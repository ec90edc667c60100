//! Tokens: the ownership of a slot of a pool, as a value that cannot be copied.
#![expect(unsafe_code, reason = "`from_raw` makes a token from a number")]

use std::fmt;
use std::marker::PhantomData;

/// The right to one slot of one pool. Only its owner may access the slot.
///
/// A token cannot be copied or cloned. It is made with its pool, is taken by `pop` or `take`, and
/// returns by `push` or `put`. [`Token::into_raw`] hands the buffer to a device: the number becomes
/// the identifier of the work request, and the completion returns it. In between no token exists,
/// so safe code cannot access the buffer too early.
///
/// A token is four bytes. Its upper 14 bits are the number of the pool. One comparison at each use
/// checks them and the bounds: a token of another pool causes a panic and never accesses a wrong
/// buffer.
///
/// A dropped token is lost; the pool then never unmaps its memory, because a device may still write
/// there.
#[must_use = "a dropped token is a lost slot"]
#[repr(transparent)]
pub struct Token<K> {
    raw: u32,
    kind: PhantomData<fn(K) -> K>,
}

impl<K> Token<K> {
    /// For the free list only, which uses each number once.
    pub(crate) fn mint(raw: u32) -> Token<K> {
        Token { raw, kind: PhantomData }
    }

    /// Turns the token into its number.
    #[inline]
    pub fn into_raw(self) -> u32 {
        self.raw
    }

    /// Turns the number back into the token.
    ///
    /// # Safety
    /// `raw` came from [`Token::into_raw`] of a token of the same kind, this is the only `from_raw`
    /// for that `into_raw`, and no device accesses the buffer any more.
    #[inline]
    pub unsafe fn from_raw(raw: u32) -> Token<K> {
        Token { raw, kind: PhantomData }
    }

    /// The index of the slot in its pool, from zero to the capacity less one: for tables parallel
    /// to the pool.
    #[inline]
    pub fn index(&self) -> u32 {
        self.raw & INDEX_MASK
    }

    #[inline]
    pub(crate) fn raw(&self) -> u32 {
        self.raw
    }
}

impl<K> fmt::Debug for Token<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}:{})", self.raw >> INDEX_BITS, self.index())
    }
}

/// The promise that all slots of one pool may be freed: for a pool whose buffers were posted to a
/// queue that no longer exists.
#[derive(Debug)]
#[must_use]
pub struct Quiet(());

impl Quiet {
    /// Makes the promise for the pool whose `recall` it is passed to.
    ///
    /// # Safety
    /// No token of that pool exists, and no number from its [`Token::into_raw`] becomes one again.
    /// No device accesses any of its slots any more: the queues that they were posted to are
    /// destroyed.
    pub unsafe fn assume() -> Quiet {
        Quiet(())
    }
}

/// The kinds of tokens: type parameters without values.
pub mod kind {
    /// A buffer that a message is received into.
    #[derive(Debug)]
    pub enum Recv {}

    /// A buffer that a message is sent from.
    #[derive(Debug)]
    pub enum Send {}
}

/// A receive buffer.
pub type RecvToken = Token<kind::Recv>;

/// A send slot.
pub type SendToken = Token<kind::Send>;

/// Bits of a token that are the index.
pub(crate) const INDEX_BITS: u32 = 18;

/// The maximum number of slots of a pool.
pub const SLOTS_MAX: u32 = 1 << INDEX_BITS;

const INDEX_MASK: u32 = SLOTS_MAX - 1;

/// The promise, for unit tests without a device.
#[cfg(test)]
pub(crate) fn quiet() -> Quiet {
    // SAFETY: the tests that use it have converted every token into a number and forgotten it.
    unsafe { Quiet::assume() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_costs_its_number_and_crosses_threads() {
        fn crosses_threads<T: std::marker::Send + Sync>() {}
        crosses_threads::<RecvToken>();
        assert_eq!(size_of::<RecvToken>(), size_of::<u32>());
    }

    #[test]
    fn a_raw_number_returns_the_same_slot() {
        let token: SendToken = Token::mint((7 << INDEX_BITS) | 41);
        assert_eq!(token.index(), 41);
        let raw = token.into_raw();
        // SAFETY: the only `from_raw` for the `into_raw` above; there is no buffer.
        let back: SendToken = unsafe { Token::from_raw(raw) };
        assert_eq!((back.index(), back.raw()), (41, raw));
    }
}
