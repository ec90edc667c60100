//! Send slots with headroom for a header, and the zeros that padding is gathered from.
//!
//! ```text
//!   │◀──── HEADROOM ────▶│◀──────── payload_len ────────▶│
//!   │        ┌───────────┼──────────────────┐            │
//!   │        │  header   │     payload      │            │    one gather entry: sge(token, h, p)
//!   └────────┴───────────┴──────────────────┴────────────┘
//! ```
//! The payload is written first, because the header depends on it. The header is then written
//! directly in front of it, and one gather entry covers both.

use std::ops::Range;

use crate::loan::{Loan, LoanPool};
use crate::pool::{Pool, PoolError, PoolSpec};
use crate::registered::Registered;
use crate::registrar::Sge;
use crate::slot::{HEADROOM, SendSlot};
use crate::token::{Quiet, Token, kind};

/// A pool of send slots. Belongs to one thread; does not allocate after it is made.
#[derive(Debug)]
pub struct SendPool {
    slots: Pool<kind::Send>,
}

impl SendPool {
    /// Carves the slots out of registered memory.
    pub fn new(memory: &mut Registered, spec: &SendSpec) -> Result<SendPool, PoolError> {
        Ok(SendPool { slots: Pool::new(memory, &spec.slots()?)? })
    }

    /// Takes the slot that was returned last, if one is free. A few instructions.
    #[inline]
    pub fn pop(&mut self) -> Option<Token<kind::Send>> {
        self.slots.pop()
    }

    /// Returns a slot to the pool. A few instructions.
    ///
    /// # Panics
    /// If the token belongs to another pool. This applies to all methods that take a token.
    #[inline]
    pub fn push(&mut self, token: Token<kind::Send>) {
        self.slots.push(token);
    }

    /// Takes the slot that was returned last, with its address, to be filled. A few instructions.
    #[inline]
    pub fn take(&mut self) -> Option<SendSlot> {
        self.slots.pop().map(|token| self.slots.open(token))
    }

    /// The address of a slot, to be filled again.
    ///
    /// # Panics
    /// If the token is of another pool.
    #[inline]
    pub fn open(&self, token: Token<kind::Send>) -> SendSlot {
        self.slots.open(token)
    }

    /// Returns a slot with its address. A few instructions.
    ///
    /// # Panics
    /// If it belongs to another pool.
    #[inline]
    pub fn put(&mut self, slot: SendSlot) {
        self.slots.push(slot.into_token());
    }

    /// Makes every slot free, as in a new pool.
    pub fn recall(&mut self, quiet: Quiet) {
        self.slots.recall(quiet);
    }

    /// Writes `byte` over every free slot. For tests: bytes that must never be sent.
    pub fn poison(&mut self, byte: u8) {
        self.slots.poison(byte);
    }

    /// The payload area.
    #[inline]
    pub fn payload<'t>(&self, token: &'t Token<kind::Send>) -> &'t [u8] {
        &self.slots.bytes(token)[HEADROOM..]
    }

    /// The payload area, for writing from its start.
    #[inline]
    pub fn payload_mut<'t>(&self, token: &'t mut Token<kind::Send>) -> &'t mut [u8] {
        self.parts_mut(token).1
    }

    /// The last `len` bytes of the headroom, for a header of that length.
    ///
    /// # Panics
    /// If `len` is more than [`HEADROOM`].
    #[inline]
    pub fn header_mut<'t>(&self, token: &'t mut Token<kind::Send>, len: usize) -> &'t mut [u8] {
        &mut self.parts_mut(token).0[HEADROOM - len..]
    }

    /// The whole headroom and the payload area.
    #[inline]
    fn parts_mut<'t>(&self, token: &'t mut Token<kind::Send>) -> (&'t mut [u8], &'t mut [u8]) {
        self.slots.bytes_mut(token).split_at_mut(HEADROOM)
    }

    /// A gather entry for the last `header_len` bytes of the headroom and the first `payload_len`
    /// bytes of the payload area.
    ///
    /// # Panics
    /// If one of them is larger than its area.
    #[inline]
    pub fn sge(&self, token: &Token<kind::Send>, header_len: usize, payload_len: usize) -> Sge {
        // For an overlong header the start wraps to a value beyond every end, at which `sge`
        // panics.
        let start = HEADROOM.wrapping_sub(header_len);
        self.slots.sge(token, start..HEADROOM.saturating_add(payload_len))
    }

    /// A gather entry for a part of the payload area.
    ///
    /// # Panics
    /// If the range is not in it.
    #[inline]
    pub fn payload_sge(&self, token: &Token<kind::Send>, range: Range<usize>) -> Sge {
        let end = HEADROOM.saturating_add(range.end);
        self.slots.sge(token, HEADROOM.saturating_add(range.start)..end)
    }

    /// Bytes of a payload area.
    #[inline]
    pub fn payload_len(&self) -> usize {
        self.slots.slot_len() - HEADROOM
    }

    /// The number of free slots.
    #[inline]
    pub fn free(&self) -> usize {
        self.slots.free()
    }

    /// The total number of slots.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.slots.capacity()
    }
}

/// The size of a send pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendSpec {
    /// The number of slots.
    pub slots: u32,
    /// Bytes of the payload area of a slot.
    pub payload_len: usize,
}

impl SendSpec {
    /// The length of a region that suffices for this pool after any parts carved before it.
    pub fn region_len(&self) -> Result<usize, PoolError> {
        self.slots()?.region_len()
    }

    fn slots(&self) -> Result<PoolSpec, PoolError> {
        let slot_len = HEADROOM.checked_add(self.payload_len).ok_or(PoolError::TooLarge)?;
        Ok(PoolSpec { slots: self.slots, slot_len, align: 1 })
    }
}

/// Zeros that padding is gathered from, so that padding never contains old bytes of a buffer.
///
/// Carved from a region that is registered with [`Access::empty`](crate::Access::empty), it is also
/// protected from writes by the device.
#[derive(Debug)]
pub struct ZeroPage {
    zeros: Loan,
    _loans: LoanPool,
}

impl ZeroPage {
    /// Carves `len` bytes of zeros out of registered memory.
    pub fn new(memory: &mut Registered, len: usize) -> Result<ZeroPage, PoolError> {
        let spec = PoolSpec { slots: 1, slot_len: len, align: 1 };
        let (loans, kinds) = LoanPool::new(memory, &[spec])?;
        let zeros = kinds.into_iter().flatten().next().expect("one slot was asked for");
        Ok(ZeroPage { zeros, _loans: loans })
    }

    /// The length of a region that suffices for `len` zeros after any parts carved before them.
    pub fn region_len(len: usize) -> Result<usize, PoolError> {
        PoolSpec { slots: 1, slot_len: len, align: 1 }.bulk_region_len()
    }

    /// A gather entry for `len` zeros.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline]
    pub fn sge(&self, len: usize) -> Sge {
        self.zeros.sge(0..len)
    }

    /// The number of zeros.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a slot has at least one byte")]
    pub fn len(&self) -> usize {
        self.zeros.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::memory;

    const SPEC: SendSpec = SendSpec { slots: 2, payload_len: 256 };

    fn pool() -> SendPool {
        let mut memory = memory(SPEC.region_len().expect("small"));
        SendPool::new(&mut memory, &SPEC).expect("as much as was asked for")
    }

    #[test]
    fn header_and_payload_leave_as_one_piece() {
        let mut pool = pool();
        let mut token = pool.pop().expect("one is free");
        pool.payload_mut(&mut token)[..8].copy_from_slice(b"payload.");
        pool.header_mut(&mut token, 7).copy_from_slice(b"header/");
        let sge = pool.sge(&token, 7, 8);
        assert_eq!((sge.length, sge.lkey), (15, 0x100));
        assert_eq!(sge.addr + 7, pool.payload(&token).as_ptr().addr() as u64);
        let (headroom, payload) = pool.parts_mut(&mut token);
        assert_eq!((headroom.len(), payload.len()), (HEADROOM, 256));
        assert_eq!((&headroom[HEADROOM - 7..], &payload[..8]), (&b"header/"[..], &b"payload."[..]));
        assert_eq!(pool.payload_sge(&token, 2..8).addr, sge.addr + 9);
        pool.push(token);
    }

    #[test]
    fn payloads_begin_at_a_line_of_the_cache() {
        let mut pool = pool();
        assert_eq!((pool.payload_len(), pool.capacity()), (256, 2));
        while let Some(token) = pool.pop() {
            assert!(pool.payload(&token).as_ptr().addr().is_multiple_of(64));
            let _ = token.into_raw();
        }
        assert_eq!(pool.free(), 0);
        pool.recall(crate::token::quiet());
        assert_eq!(pool.free(), 2);
    }

    #[test]
    fn bytes_are_appended_as_long_as_there_is_room() {
        let mut pool = pool();
        let mut slot = pool.take().expect("one is free");
        let bytes: Vec<u8> = (0..=255).collect();
        assert!(slot.append(&bytes[..3]) && slot.append(&[]) && slot.append(&bytes[3..255]));
        assert_eq!((slot.appended(), slot.room()), (255, 1));
        assert!(!slot.append(&bytes[..2]), "one too many: nothing is written");
        assert_eq!((slot.appended(), slot.room()), (255, 1));
        assert!(slot.append(&bytes[255..]) && !slot.append(&bytes[..1]));
        assert_eq!((slot.appended(), slot.room()), (256, 0));
        assert_eq!(slot.payload_mut(), &bytes[..]);
        pool.put(slot);
        let mut slot = pool.take().expect("the same");
        assert_eq!(slot.appended(), 0, "a slot begins anew");
        slot.close();
        assert!(slot.append(&[]) && !slot.append(&[1]), "nothing is written behind the end");
        assert_eq!(slot.payload_mut(), &bytes[..]);
        pool.put(slot);
    }

    /// Whether an entry is refused.
    fn refused(entry: impl Fn(&SendPool, &Token<kind::Send>) -> Sge) -> bool {
        let mut pool = pool();
        let token = pool.pop().expect("one is free");
        let call = std::panic::AssertUnwindSafe(|| entry(&pool, &token));
        std::panic::catch_unwind(call).is_err()
    }

    #[test]
    fn entries_beyond_header_or_payload_are_refused() {
        assert!(!refused(|pool, token| pool.sge(token, HEADROOM, 256)));
        assert!(refused(|pool, token| pool.sge(token, HEADROOM + 1, 256)));
        assert!(refused(|pool, token| pool.sge(token, HEADROOM, 257)));
        assert!(refused(|pool, token| pool.sge(token, usize::MAX, 0)));
        assert!(refused(|pool, token| pool.sge(token, 0, usize::MAX)));
        assert!(!refused(|pool, token| pool.payload_sge(token, 0..256)));
        assert!(refused(|pool, token| pool.payload_sge(token, 0..257)));
        assert!(refused(|pool, token| pool.payload_sge(token, usize::MAX - 511..usize::MAX)));
    }

    #[test]
    fn entries_of_a_slot_are_exact_and_those_beyond_it_are_refused() {
        let mut pool = pool();
        let mut slot = pool.take().expect("one is free");
        assert_eq!(slot.payload_len(), 256);
        slot.payload_mut()[..4].copy_from_slice(b"data");
        slot.header_mut(3).copy_from_slice(b"hdr");
        assert_eq!(&slot.headroom_mut()[HEADROOM - 3..], b"hdr");
        assert_eq!(slot.headroom_mut().len(), HEADROOM);
        let payload = slot.payload_mut().as_ptr().addr();
        let entry =
            |back: usize, length| Sge { addr: (payload - back) as u64, length, lkey: 0x100 };
        assert_eq!(slot.sge(3, 4), entry(3, 7));
        assert_eq!(slot.sge(HEADROOM, 256), entry(HEADROOM, 768));
        assert_eq!(slot.sge(0, 0), entry(0, 0));
        assert_eq!(slot.headroom_sge(12..HEADROOM), entry(500, 500));
        assert_eq!(slot.headroom_sge(12..12), entry(500, 0));
        assert_eq!(slot.payload_sge(0..256), entry(0, 256));
        assert_eq!(slot.payload_sge(0..0), entry(0, 0));
        let inverted = Range { start: 2, end: 1 };
        let far = usize::MAX - HEADROOM + 1;
        let beyond: [&dyn Fn() -> Sge; 10] = [
            &|| slot.sge(HEADROOM + 1, 0),
            &|| slot.sge(0, 257),
            &|| slot.headroom_sge(0..HEADROOM + 1),
            &|| slot.headroom_sge(inverted.clone()),
            &|| slot.payload_sge(0..257),
            &|| slot.payload_sge(inverted.clone()),
            &|| slot.payload_sge(256..257),
            &|| slot.payload_sge(far..usize::MAX),
            &|| slot.payload_sge(far..100),
            &|| slot.sge(HEADROOM, far + 8),
        ];
        for (number, entry) in beyond.into_iter().enumerate() {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(entry));
            assert!(result.is_err(), "{number}: {result:?}");
        }
        assert!(slot.append(b"data"));
        assert_eq!(slot.written(), b"data");
        slot.begin();
        assert_eq!((slot.written(), slot.appended(), slot.room()), (&[][..], 0, 256));
        pool.put(slot);
    }

    #[test]
    fn a_fresh_slot_is_poisoned() {
        let mut pool = pool();
        pool.poison(0x5A);
        let mut token = pool.pop().expect("one is free");
        let (headroom, payload) = pool.parts_mut(&mut token);
        assert!(headroom.iter().chain(&*payload).all(|byte| *byte == 0x5A));
        pool.push(token);
    }

    #[test]
    fn the_zero_page_is_zero_and_bounded() {
        let mut memory = memory(ZeroPage::region_len(4096).expect("small"));
        let zeros = ZeroPage::new(&mut memory, 4096).expect("as much as was asked for");
        assert_eq!((zeros.len(), zeros.sge(12).length), (4096, 12));
        assert!(zeros.zeros.iter().all(|byte| *byte == 0));
        let beyond = std::panic::AssertUnwindSafe(|| zeros.sge(4097));
        assert!(std::panic::catch_unwind(beyond).is_err());
    }
}
