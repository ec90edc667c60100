//! A send slot that is being filled: its token together with the address of its bytes.
//!
//! Filling a message takes many small writes. With the address each write costs a bounds check and
//! a store, and the gather entry needs no access to the pool.
#![expect(unsafe_code, reason = "turns a token into the bytes that belong to it")]

use std::ops::Range;
use std::ptr::{self, NonNull};
use std::slice;

use crate::registrar::Sge;
use crate::token::SendToken;

/// Bytes in front of the payload area of a send slot.
///
/// Room for a transmission header with about sixteen placed items; a longer header uses a slot of
/// its own. A multiple of the cache line, so that payloads are aligned to one.
pub const HEADROOM: usize = 512;

/// A send slot that is being filled or sent. It returns to its pool when it has been sent.
#[derive(Debug)]
#[must_use = "a slot that is dropped is lost"]
pub struct SendSlot {
    token: SendToken,
    lkey: u32,
    first: NonNull<u8>,
    /// Bytes of the slot, headroom included.
    len: u32,
    /// Where the next byte is appended: at most `len`.
    end: u32,
}

// SAFETY: a slot is a token, which may go to any thread, and the address of the token's bytes.
unsafe impl Send for SendSlot {}

// SAFETY: a shared slot gives shared bytes only.
unsafe impl Sync for SendSlot {}

impl SendSlot {
    /// The slot of a token.
    ///
    /// # Safety
    /// `first` is where the `len` bytes of the token's slot begin, of which [`HEADROOM`] are
    /// headroom.
    #[inline]
    pub(crate) unsafe fn of(
        token: SendToken,
        first: NonNull<u8>,
        len: usize,
        lkey: u32,
    ) -> SendSlot {
        SendSlot { token, lkey, first, len: len as u32, end: HEADROOM as u32 }
    }

    /// The token alone.
    #[inline]
    pub fn into_token(self) -> SendToken {
        self.token
    }

    /// The payload area, for writing from its start.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.bytes_mut()[HEADROOM..]
    }

    /// Bytes of the payload area.
    #[inline]
    pub fn payload_len(&self) -> usize {
        self.len as usize - HEADROOM
    }

    /// Writes bytes behind those appended before. False, without effect, if there is no room.
    #[inline(always)]
    pub fn append(&mut self, bytes: &[u8]) -> bool {
        if bytes.len() > self.room() {
            return false;
        }
        // SAFETY: the token's slot has `len` bytes (`of`), and `end` is at most that.
        let to = unsafe { self.first.as_ptr().add(self.end as usize) };
        // SAFETY: these bytes of the slot end at `len` or before it, as was just checked. Only the
        // token's holder may touch them; that is this value, which is lent exclusively, so that
        // `bytes` are others.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        self.end += bytes.len() as u32;
        true
    }

    /// Begins appending anew.
    #[inline]
    pub fn begin(&mut self) {
        self.end = HEADROOM as u32;
    }

    /// Ends appending: there is no more room.
    pub fn close(&mut self) {
        self.end = self.len;
    }

    /// What was appended.
    pub fn written(&self) -> &[u8] {
        // SAFETY: the token's slot has `len` bytes (`of`), of which the headroom is the first part.
        let payload = unsafe { self.first.as_ptr().add(HEADROOM) };
        // SAFETY: the bytes from there to `end` belong to the token, which this value holds and
        // lends; they are initialised, as all memory of a pool is.
        unsafe { slice::from_raw_parts(payload, self.appended() as usize) }
    }

    /// Bytes of the payload area that were appended.
    #[inline]
    pub fn appended(&self) -> u32 {
        self.end - HEADROOM as u32
    }

    /// Bytes that can be appended.
    #[inline]
    pub fn room(&self) -> usize {
        (self.len - self.end) as usize
    }

    /// The last `len` bytes of the headroom, for a header of that length.
    ///
    /// # Panics
    /// If `len` is more than [`HEADROOM`].
    #[inline]
    pub fn header_mut(&mut self, len: usize) -> &mut [u8] {
        &mut self.bytes_mut()[HEADROOM - len..HEADROOM]
    }

    /// A gather entry for the last `header_len` bytes of the headroom and the first `payload_len`
    /// bytes of the payload area.
    ///
    /// # Panics
    /// If one of them is larger than its area.
    #[inline]
    pub fn sge(&self, header_len: usize, payload_len: usize) -> Sge {
        check(&(0..header_len), HEADROOM);
        check(&(0..payload_len), self.payload_len());
        self.entry(HEADROOM - header_len, header_len + payload_len)
    }

    /// The headroom: the header of a message at its end, and in front of that the headers of the
    /// transmissions that continue it.
    #[inline]
    pub fn headroom_mut(&mut self) -> &mut [u8] {
        &mut self.bytes_mut()[..HEADROOM]
    }

    /// A gather entry for a part of the headroom.
    ///
    /// # Panics
    /// If the range is not in it.
    #[inline]
    pub fn headroom_sge(&self, range: Range<usize>) -> Sge {
        check(&range, HEADROOM);
        self.entry(range.start, range.len())
    }

    /// A gather entry for a part of the payload area.
    ///
    /// # Panics
    /// If the range is not in it.
    #[inline]
    pub fn payload_sge(&self, range: Range<usize>) -> Sge {
        check(&range, self.payload_len());
        self.entry(HEADROOM + range.start, range.len())
    }

    /// An entry for bytes that are in the slot.
    #[inline]
    fn entry(&self, start: usize, length: usize) -> Sge {
        let addr = self.first.as_ptr().addr() + start;
        Sge { addr: addr as u64, length: length as u32, lkey: self.lkey }
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: these are the bytes of the token's slot (`of`), which only the token's holder may
        // touch; that is this value, which is lent exclusively. They stay mapped even if the pool
        // is dropped: a pool with a token out leaks its memory.
        unsafe { slice::from_raw_parts_mut(self.first.as_ptr(), self.len as usize) }
    }
}

/// Panics if a range is not in an area of `len` bytes.
#[inline]
fn check(range: &Range<usize>, len: usize) {
    if range.start > range.end || range.end > len {
        outside(range, len);
    }
}

#[cold]
#[inline(never)]
fn outside(range: &Range<usize>, len: usize) -> ! {
    panic!("bytes {range:?} of an area of {len}")
}
