//! The copies: from posted memory to slots, and from received requests to Receives and RDMA
//! targets.
//!
//! Only this side's memory: the carrier copies what a slot refers to at the other side.
#![expect(unsafe_code, reason = "a device reads and writes memory that has no Rust name")]

use rpcrdma_mempool::{Access, Sge};
use rpcrdma_provider::{SendFlags, SendWr};

use super::body::{Body, Header, INLINE_LEN};
use super::carrier::{DmaError, Incoming, Vacant};
use super::keys::KeyCache;
use super::rights::Granted;

/// Memory that a program has lent to the device for a Receive.
#[derive(Debug, Clone, Copy, Default)]
#[repr(transparent)]
pub(crate) struct Lent(Sge);

impl Lent {
    /// # Safety
    /// The memory stays valid and untouched by others until the Receive has completed.
    #[inline]
    pub(crate) unsafe fn new(sge: Sge) -> Lent {
        Lent(sge)
    }
}

/// The first part of a Receive's memory, and how much of it a message in a slot may write.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FirstPart {
    lent: Lent,
    /// At most the length of a slot; 0 until [`FirstPart::check`].
    room: u32,
}

impl FirstPart {
    /// The first entry of a scatter list.
    pub(crate) fn of(list: &[Lent]) -> FirstPart {
        FirstPart { lent: list.first().copied().unwrap_or_default(), room: 0 }
    }

    /// Finds out what may be written under these keys.
    pub(crate) fn check(&mut self, keys: &KeyCache) {
        let Lent(sge) = self.lent;
        let is_writable = keys.allows(&sge, Access::LOCAL_WRITE);
        self.room = if is_writable { sge.length.min(INLINE_LEN as u32) } else { 0 };
    }
}

/// Puts a message with this header into a slot: its bytes if they fit, otherwise their location.
///
/// # Safety
/// Its length is the sum of the lengths. The memory is readable and not written during the call if
/// the message fits, and until the slot returns if it does not.
#[inline(always)]
pub(crate) unsafe fn gather(sgl: &[Sge], header: Header, keys: &KeyCache, slot: &mut impl Vacant) {
    if let [sge] = sgl
        && header.byte_len as usize <= INLINE_LEN
    {
        let from = std::ptr::with_exposed_provenance::<u8>(sge.addr as usize);
        // SAFETY: the caller guarantees the source and its length, which fits in the slot.
        return unsafe { slot.put(header, from) };
    }
    let body = slot.body();
    body.header = header;
    if header.byte_len as usize > INLINE_LEN {
        refer(sgl, keys, body);
    } else {
        // SAFETY: passed on.
        unsafe { gather_parts(sgl, body) };
    }
}

/// As [`gather`], from any number of entries.
///
/// # Safety
/// As for [`gather`]; all fit in the slot.
#[inline(never)]
unsafe fn gather_parts(sgl: &[Sge], body: &mut Body) {
    body.header.pieces = 0;
    let mut place = body.bytes.as_mut_ptr();
    for sge in sgl {
        let from = std::ptr::with_exposed_provenance::<u8>(sge.addr as usize);
        let len = sge.length as usize;
        // SAFETY: the caller guarantees the source. All lengths together fit in the slot, which no
        // program can name in an `Sge`, so source and destination do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(from, place, len) };
        place = place.wrapping_add(len);
    }
}

/// As [`gather`], for a request that may have to wait for the data of a Read: only requests with
/// [`SendFlags::INLINE`] are copied now.
///
/// # Safety
/// As for [`gather`].
#[cold]
pub(crate) unsafe fn keep(wr: &SendWr<'_>, keys: &KeyCache, body: &mut Body) {
    if wr.flags.contains(SendFlags::INLINE) {
        // SAFETY: the caller guarantees it; a request with this flag is no longer than a slot.
        unsafe { gather_parts(wr.sgl, body) };
    } else {
        refer(wr.sgl, keys, body);
    }
}

/// Records where a message is, for the peer to fetch it. At most [`PIECES_MAX`] entries.
///
/// [`PIECES_MAX`]: super::body::PIECES_MAX
#[inline(never)]
pub(crate) fn refer(sgl: &[Sge], keys: &KeyCache, body: &mut Body) {
    body.refer(sgl, |sge| keys.offset(sge));
}

/// Copies the message in the front, which is all of it, to the first part of a Receive, after
/// `before`. Returns false without effect if the message is empty, or that part is too short or not
/// writable.
///
/// # Safety
/// `bytes` is readable for [`INLINE_LEN`] bytes, which are a slot's.
#[inline(always)]
pub(crate) unsafe fn deliver(
    front: &Header,
    bytes: *const u8,
    to: FirstPart,
    before: impl FnOnce(),
) -> bool {
    let FirstPart { lent: Lent(sge), room } = to;
    let is_possible = front.byte_len.wrapping_sub(1) < room;
    if is_possible {
        before();
        let to = std::ptr::with_exposed_provenance_mut::<u8>(sge.addr as usize);
        // SAFETY: the source has no fewer bytes than `byte_len`: `room` is at most as many. The
        // destination was lent and has `room` bytes in a region registered for writing, which no
        // slot has: that was checked under the keys of this poll (`Srq::check`).
        unsafe { std::ptr::copy_nonoverlapping(bytes, to, front.byte_len as usize) };
    }
    is_possible
}

/// Copies the message in the front to a Receive that is long enough, across as many parts as needed.
pub(crate) fn scatter<R: Incoming>(
    rx: &R,
    front: &Header,
    to: &[Lent],
    keys: &KeyCache,
) -> Result<(), DmaError> {
    let mut scatter = Scatter { keys, left: to, at: 0 };
    let len = len_in_slot(front)?;
    // SAFETY: the source is the slot's own bytes, no fewer than that.
    unsafe { scatter.put(rx.bytes(), len) }
}

/// The length of the bytes that are in the slot, if as many fit.
#[inline]
fn len_in_slot(front: &Header) -> Result<usize, DmaError> {
    let len = front.byte_len as usize;
    if len > INLINE_LEN { Err(DmaError::Source) } else { Ok(len) }
}

/// Whether a list has room for so many bytes.
#[inline]
pub(crate) fn has_room(to: &[Lent], byte_len: u32) -> bool {
    let mut room = 0_u64;
    to.iter().any(|Lent(sge)| {
        room += u64::from(sge.length);
        room >= byte_len.into()
    }) || byte_len == 0
}

/// Copies the front of a carrier, whose bytes are in the peer's memory, to a Receive that is long
/// enough. None if the bytes are not available. They must be as many as the front states; of more,
/// some may have been copied.
#[inline(never)]
pub(crate) fn fetch<R: Incoming>(
    rx: &R,
    front: &Header,
    to: &[Lent],
    keys: &KeyCache,
) -> Option<Result<(), DmaError>> {
    let mut scatter = Scatter { keys, left: to, at: 0 };
    let mut sum = 0;
    let outcome = rx.pull(front, keys, |from, len| {
        sum += len;
        // SAFETY: the pulled bytes are readable.
        unsafe { scatter.put(from, len) }
    })?;
    let is_all = sum == front.byte_len as usize;
    let is_less = sum < front.byte_len as usize;
    Some(if is_all || is_less && outcome.is_err() { outcome } else { Err(DmaError::Source) })
}

/// Copies a Write in the front to its target memory.
#[inline]
pub(crate) fn write<R: Incoming>(rx: &R, front: &Header, to: Granted) -> Result<(), DmaError> {
    debug_assert_eq!(front.byte_len, to.len());
    let len = len_in_slot(front)?;
    let to = std::ptr::with_exposed_provenance_mut::<u8>(to.addr() as usize);
    // SAFETY: the source is the slot's own bytes, no fewer than that. The destination was granted
    // to the peer: the program that granted it does not access it, and no slot is in registered
    // memory.
    unsafe { std::ptr::copy_nonoverlapping(rx.bytes(), to, len) };
    Ok(())
}

/// As [`write()`], for the front of a carrier, whose bytes are in the peer's memory. None if the
/// bytes are not available.
#[inline]
pub(crate) fn write_fetched<R: Incoming>(
    rx: &R,
    front: &Header,
    to: Granted,
    keys: &KeyCache,
) -> Option<Result<(), DmaError>> {
    debug_assert_eq!(front.byte_len, to.len());
    let mut to = std::ptr::with_exposed_provenance_mut::<u8>(to.addr() as usize);
    let mut left = front.byte_len as usize;
    let outcome = rx.pull(front, keys, |from, len| {
        left = left.checked_sub(len).ok_or(DmaError::Source)?;
        // SAFETY: the pulled bytes are readable; together they are no longer than the granted memory.
        // They may overlap if a program writes to itself.
        unsafe { std::ptr::copy(from, to, len) };
        to = to.wrapping_add(len);
        Ok(())
    })?;
    Some(if left == 0 { outcome } else { Err(DmaError::Source) })
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
            // above) and was lent; the caller guarantees the source. A program that sends from
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
