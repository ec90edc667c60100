//! Tokens: a slot of a pool as a value that is in exactly one hand.
#![expect(unsafe_code, reason = "`from_raw` makes a token from a number")]

use std::fmt;
use std::marker::PhantomData;

/// The right to one slot of one pool. Whoever holds it may touch the slot; nobody else may.
///
/// A token can neither be copied nor cloned. It is made when a pool is made, leaves it by `pop` or
/// `take`, and goes back by `push` or `put`. Handing a buffer to a device is [`Token::into_raw`]:
/// the number travels as the name of the work request, and the completion brings it back. Between
/// the two no token exists, so no Rust code can look at the buffer too early.
///
/// A token is four bytes. Its upper 14 bits name the pool and are checked, together with the
/// bounds, in one comparison at each use: a token of another pool is a panic and never a wrong
/// buffer.
///
/// Dropping a token loses the slot for good; the pool then never unmaps its memory, because it must
/// assume that a device still writes there.
#[must_use = "a token that is dropped is a slot that is lost"]
#[repr(transparent)]
pub struct Token<K> {
    raw: u32,
    kind: PhantomData<fn(K) -> K>,
}

impl<K> Token<K> {
    /// For the free list only, which makes each number once.
    pub(crate) fn mint(raw: u32) -> Token<K> {
        Token { raw, kind: PhantomData }
    }

    /// Gives the token up for its number.
    #[inline]
    pub fn into_raw(self) -> u32 {
        self.raw
    }

    /// Makes the token again.
    ///
    /// # Safety
    /// `raw` came from [`Token::into_raw`] of a token of the same kind, this is the only `from_raw`
    /// for that `into_raw`, and no device touches the buffer any more.
    #[inline]
    pub unsafe fn from_raw(raw: u32) -> Token<K> {
        Token { raw, kind: PhantomData }
    }

    /// The slot's place in its pool, from zero to the capacity less one: for tables beside the
    /// pool.
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

/// The promise that all slots of one pool may go home, whoever had them: for a pool whose buffers
/// are posted to a queue that no longer exists.
#[derive(Debug)]
#[must_use]
pub struct Quiet(());

impl Quiet {
    /// Makes the promise, about the pool whose `recall` it is given to.
    ///
    /// # Safety
    /// No token of that pool exists, and no number from its [`Token::into_raw`] becomes one again.
    /// No device touches any of its slots any more: the queues that they were posted to are
    /// destroyed.
    pub unsafe fn assume() -> Quiet {
        Quiet(())
    }
}

/// What a token's slot is for. Never a value, only a type parameter.
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

/// The most slots that a pool can have.
pub const SLOTS_MAX: u32 = 1 << INDEX_BITS;

const INDEX_MASK: u32 = SLOTS_MAX - 1;

/// The promise, for unit tests that no device takes part in.
#[cfg(test)]
pub(crate) fn quiet() -> Quiet {
    // SAFETY: the tests that use it have turned every token into a number and forgotten it.
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
    fn a_number_brings_the_same_slot_back() {
        let token: SendToken = Token::mint((7 << INDEX_BITS) | 41);
        assert_eq!(token.index(), 41);
        let raw = token.into_raw();
        // SAFETY: the only `from_raw` for the `into_raw` above; there is no buffer.
        let back: SendToken = unsafe { Token::from_raw(raw) };
        assert_eq!((back.index(), back.raw()), (41, raw));
    }
}
