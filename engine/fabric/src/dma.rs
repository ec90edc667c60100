//! The raw copies: from posted memory to slots, and from slots or a peer's memory to Receives.
//!
//! Keys are turned into addresses here and nowhere else; everything above passes keys and offsets,
//! so a fabric between two processes would differ in this file.
#![expect(unsafe_code, reason = "a device reads and writes memory that has no Rust name")]

use rpcrdma_mempool::{Access, Sge};

use super::keys::KeyCache;
use super::rights::Granted;
use super::ring::{Body, INLINE_LEN};
use rpcrdma_provider::{SendFlags, SendWr};

/// How many pieces of memory fit in a slot.
pub(super) const PIECES_MAX: usize = INLINE_LEN / PIECE_LEN;

/// Why bytes could not be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DmaError {
    /// The Receive's own memory is not there or not writable.
    Destination,
    /// The memory of the peer that posted the request is not there.
    Source,
}

/// Memory that a program has lent to the device for a Receive.
#[derive(Debug, Clone, Copy, Default)]
#[repr(transparent)]
pub(super) struct Lent(Sge);

impl Lent {
    /// # Safety
    /// The memory stays valid and untouched by others until the Receive has completed.
    #[inline]
    pub(super) unsafe fn new(sge: Sge) -> Lent {
        Lent(sge)
    }
}

/// Puts a message of `byte_len` bytes into a slot: itself if it fits, or where it is.
///
/// # Safety
/// `byte_len` is the sum of the lengths. The memory is readable and nobody writes it, during the
/// call if the message fits and until the slot comes back if it does not.
#[inline(always)]
pub(super) unsafe fn gather(sgl: &[Sge], byte_len: u32, keys: &KeyCache, body: &mut Body) {
    if byte_len as usize > INLINE_LEN {
        return refer(sgl, keys, body);
    }
    body.pieces = 0;
    if let [sge] = sgl {
        let from = std::ptr::with_exposed_provenance::<u8>(sge.addr as usize);
        // SAFETY: the caller vouches for the source, and for `byte_len` being its length. That fits
        // in the slot, which no program can name in an `Sge`, so that they do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(from, body.bytes.as_mut_ptr(), byte_len as usize) };
    } else {
        // SAFETY: passed on.
        unsafe { gather_parts(sgl, body) };
    }
}

/// As [`gather`], from any number of places.
///
/// # Safety
/// As for [`gather`]; all fit in the slot.
#[inline(never)]
unsafe fn gather_parts(sgl: &[Sge], body: &mut Body) {
    let mut place = body.bytes.as_mut_ptr();
    for sge in sgl {
        let from = std::ptr::with_exposed_provenance::<u8>(sge.addr as usize);
        let len = sge.length as usize;
        // SAFETY: the caller vouches for the source. All lengths together fit in the slot, which
        // no program can name in an `Sge`, so source and destination do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(from, place, len) };
        place = place.wrapping_add(len);
    }
}

/// As [`gather`], for a request that may have to wait for the data of a Read: only what was posted
/// with [`SendFlags::INLINE`] is copied now.
///
/// # Safety
/// As for [`gather`].
#[cold]
pub(super) unsafe fn keep(wr: &SendWr<'_>, byte_len: u32, keys: &KeyCache, body: &mut Body) {
    if wr.flags.contains(SendFlags::INLINE) {
        // SAFETY: the caller vouches for it.
        unsafe { gather(wr.sgl, byte_len, keys, body) };
    } else {
        refer(wr.sgl, keys, body);
    }
}

/// Writes down where a message is, for the peer to fetch it. At most [`PIECES_MAX`] entries.
#[inline(never)]
pub(super) fn refer(sgl: &[Sge], keys: &KeyCache, body: &mut Body) {
    let mut count = 0;
    for (sge, piece) in sgl.iter().zip(body.bytes.chunks_exact_mut(PIECE_LEN)) {
        piece[0..4].copy_from_slice(&sge.lkey.to_ne_bytes());
        piece[4..8].copy_from_slice(&sge.length.to_ne_bytes());
        piece[8..16].copy_from_slice(&keys.offset(sge).to_ne_bytes());
        count += 1;
    }
    body.pieces = count;
}

/// Copies the message in a slot to the first part of a Receive; false, and nothing is done, if it is
/// not in the slot, or that part is too short for it or must not be written.
#[inline(always)]
pub(super) fn deliver(body: &Body, Lent(sge): Lent, keys: &KeyCache) -> bool {
    let is_possible = body.pieces == 0
        && body.byte_len <= sge.length.min(INLINE_LEN as u32)
        && keys.allows(&sge, Access::LOCAL_WRITE);
    if is_possible {
        let to = std::ptr::with_exposed_provenance_mut::<u8>(sge.addr as usize);
        // SAFETY: the source is the slot's own bytes, no fewer than `byte_len`. The destination was
        // lent and lies in a region registered for writing, which no slot does.
        unsafe { std::ptr::copy_nonoverlapping(body.bytes.as_ptr(), to, body.byte_len as usize) };
    }
    is_possible
}

/// Copies the message in a slot to a Receive that is long enough for it, in as many parts as it
/// takes.
pub(super) fn scatter(body: &Body, to: &[Lent], keys: &KeyCache) -> Result<(), DmaError> {
    let mut scatter = Scatter { keys, left: to, at: 0 };
    let len = (body.byte_len as usize).min(INLINE_LEN);
    // SAFETY: the source is the slot's own bytes.
    unsafe { scatter.put(body.bytes.as_ptr(), len) }
}

/// Whether a list takes so many bytes.
pub(super) fn has_room(to: &[Lent], byte_len: u32) -> bool {
    let mut room = 0_u64;
    to.iter().any(|Lent(sge)| {
        room += u64::from(sge.length);
        room >= byte_len.into()
    }) || byte_len == 0
}

/// Copies a message from the memory of the peer to that of a Receive that is long enough for it.
///
/// What the slot refers to was lent by `post_send` until the slot is released or withdrawn.
#[inline(never)]
pub(super) fn fetch(body: &Body, to: &[Lent], keys: &KeyCache) -> Result<(), DmaError> {
    let mut scatter = Scatter { keys, left: to, at: 0 };
    for piece in pieces(body) {
        let (from, len) = place(piece, keys)?;
        let from = std::ptr::with_exposed_provenance::<u8>(from);
        // SAFETY: `from` lies with all its bytes in a registered region, which whoever registered
        // it keeps mapped, and the contract of `post_send` keeps others from writing there.
        unsafe { scatter.put(from, len)? };
    }
    Ok(())
}

/// Copies a Write to the memory that it is for.
///
/// What the slot refers to was lent by `post_send` until the slot is released or withdrawn.
#[inline]
pub(super) fn write(body: &Body, to: Granted, keys: &KeyCache) -> Result<(), DmaError> {
    debug_assert_eq!(body.byte_len, to.len());
    let mut to = std::ptr::with_exposed_provenance_mut::<u8>(to.addr() as usize);
    if body.pieces == 0 {
        let len = (body.byte_len as usize).min(INLINE_LEN);
        // SAFETY: the source is the slot's own bytes. The destination was granted to the peer:
        // whoever did so leaves it alone, and no slot is in registered memory.
        unsafe { std::ptr::copy_nonoverlapping(body.bytes.as_ptr(), to, len) };
        return Ok(());
    }
    for piece in pieces(body) {
        let (from, len) = place(piece, keys)?;
        let from = std::ptr::with_exposed_provenance::<u8>(from);
        // SAFETY: `from` lies with all its bytes in a registered region, as in `fetch`; all pieces
        // together are as long as what was granted. They may overlap if a program writes to itself.
        unsafe { std::ptr::copy(from, to, len) };
        to = to.wrapping_add(len);
    }
    Ok(())
}

/// Copies what a Read asks for to the memory of the peer that posted it.
///
/// What the slot refers to was lent by `post_send` until the Read is finished or withdrawn.
#[inline]
pub(super) fn read(body: &Body, from: Granted, keys: &KeyCache) -> Result<(), DmaError> {
    debug_assert_eq!(body.byte_len, from.len());
    let mut from = std::ptr::with_exposed_provenance::<u8>(from.addr() as usize);
    for piece in pieces(body) {
        let (to, len) = place(piece, keys)?;
        let to = std::ptr::with_exposed_provenance_mut::<u8>(to);
        // SAFETY: `to` lies with all its bytes in a region that is registered for writing: that was
        // checked when the Read was posted, and a key never changes its rights. The contract of
        // `post_send` keeps others from it. The pieces are as long as what was granted. They may
        // overlap if a program reads from itself.
        unsafe { std::ptr::copy(from, to, len) };
        from = from.wrapping_add(len);
    }
    Ok(())
}

/// What [`refer`] wrote down.
#[inline(always)]
fn pieces(body: &Body) -> impl Iterator<Item = &[u8]> {
    body.bytes.chunks_exact(PIECE_LEN).take(body.pieces.into())
}

/// The address and the length of a piece of the peer's memory, if it is still there.
#[inline(always)]
fn place(piece: &[u8], keys: &KeyCache) -> Result<(usize, usize), DmaError> {
    let key = u32::from_ne_bytes([piece[0], piece[1], piece[2], piece[3]]);
    let len = u32::from_ne_bytes([piece[4], piece[5], piece[6], piece[7]]);
    let mut offset = [0; 8];
    offset.copy_from_slice(&piece[8..16]);
    let at = keys.locate(key, u64::from_ne_bytes(offset), len).ok_or(DmaError::Source)?;
    Ok((at as usize, len as usize))
}

/// Fills the entries of a scatter list one after the other.
struct Scatter<'a> {
    keys: &'a KeyCache,
    /// The entries that are not full yet.
    left: &'a [Lent],
    /// Bytes already in the first of them.
    at: u32,
}

impl Scatter<'_> {
    /// # Safety
    /// `from` is readable for `len` bytes.
    #[inline]
    unsafe fn put(&mut self, mut from: *const u8, mut len: usize) -> Result<(), DmaError> {
        while len > 0 {
            let (Lent(sge), rest) = self.left.split_first().ok_or(DmaError::Destination)?;
            if self.at == 0 && !self.keys.allows(sge, Access::LOCAL_WRITE) {
                return Err(DmaError::Destination);
            }
            let part = len.min((sge.length - self.at) as usize);
            let to = sge.addr as usize + self.at as usize;
            let to = std::ptr::with_exposed_provenance_mut::<u8>(to);
            // SAFETY: `to` lies with its `part` bytes in a region registered for writing (checked
            // above) and was lent, the caller vouches for the source. A program that sends from
            // memory that it receives into breaks the contract of posting; `copy` allows overlap.
            unsafe { std::ptr::copy(from, to, part) };
            from = from.wrapping_add(part);
            len -= part;
            self.at += part as u32;
            if self.at == sge.length {
                (self.left, self.at) = (rest, 0);
            }
        }
        Ok(())
    }
}

/// A piece: key, length, and offset in the region that the key names.
const PIECE_LEN: usize = 16;
