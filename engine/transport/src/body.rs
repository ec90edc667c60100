//! The content of a slot: a request from one set of queues to another, with its operation and
//! bytes.
//!
//! A sender fills a [`Body`]. A receiver reads a copy of its [`Header`] and, by a raw pointer, its
//! bytes: another process may change both at any time.
#![expect(unsafe_code, reason = "the bytes of a slot may be written by another process")]

use rpcrdma_mempool::Sge;

/// The longest message that travels in its slot.
pub const INLINE_LEN: usize = 224;
/// Bytes of the longest message.
pub const MESSAGE_LEN_MAX: u32 = 1 << 30;
/// Bytes of a piece of memory in a slot: key, length, and offset.
pub const PIECE_LEN: usize = 16;
/// How many pieces of memory fit in a slot.
pub const PIECES_MAX: usize = INLINE_LEN / PIECE_LEN;

/// A message for a Receive.
pub const OP_SEND: u8 = 1;
/// The queue pair of the sender is in the error state.
pub const OP_DISCONNECT: u8 = 2;
/// A message for a Receive that invalidates a key of the receiver.
pub const OP_SEND_INVALIDATE: u8 = 3;
/// Bytes for memory of the receiver.
pub const OP_WRITE: u8 = 4;
/// A request for bytes of the receiver's memory; the pieces say where they go.
pub const OP_READ: u8 = 5;

/// The content of a slot. Plain data: any bytes are a valid value.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Body {
    /// What the bytes are.
    pub header: Header,
    /// The message or its pieces.
    pub bytes: [u8; INLINE_LEN],
}

/// What a slot contains, apart from its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Header {
    /// The slots that the sender has taken of the other direction.
    pub acks: Acks,
    /// The destination queue pair.
    pub dst: u32,
    /// The operation: [`OP_SEND`] or another of these numbers.
    pub op: u8,
    /// How many gather pieces the bytes are; 0 when they are the message itself.
    pub pieces: u8,
    /// 0.
    pub reserved: u16,
    /// Bytes of the message, or of a Read or Write.
    pub byte_len: u32,
    /// The key of the peer that it names; unused in a plain Send.
    pub rkey: u32,
}

/// A piece of the sender's memory, in the region that its key names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Piece {
    /// The key of the region.
    pub key: u32,
    /// The number of bytes.
    pub len: u32,
    /// From the beginning of the region.
    pub offset: u64,
}

/// The position behind the last slot of one direction that was taken.
///
/// Made by the receiving end of a carrier. The sending end relies on it only if it is behind what was
/// published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[repr(transparent)]
pub struct Acks(u64);

/// Why a receiver refused a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum Refusal {
    /// The message is longer than its Receive.
    TooLong = 1,
    /// No Receive was posted in time.
    NotReady = 2,
    /// The queue pair is in the error state or gone.
    Gone = 3,
    /// The Receive's own memory could not be written.
    Broken = 4,
    /// The sender's own memory is gone.
    Unreadable = 5,
    /// A key of this side is unknown, or belongs to another queue pair.
    Access = 6,
    /// A request exceeds what its key opens.
    Bounds = 7,
    /// A key does not permit this access.
    Rights = 8,
}

impl Refusal {
    /// The number of a slot's outcome: of its refusal, or of its having been executed.
    pub fn code_of(outcome: Result<(), Refusal>) -> u32 {
        outcome.map_or_else(|why| why as u32, |()| DONE)
    }

    /// The outcome with this number. None for a number that [`Refusal::code_of`] does not give.
    pub fn outcome_of(code: u32) -> Option<Result<(), Refusal>> {
        if code == DONE { Some(Ok(())) } else { Refusal::of(code).map(Err) }
    }

    fn of(code: u32) -> Option<Refusal> {
        let all = [
            Refusal::TooLong,
            Refusal::NotReady,
            Refusal::Gone,
            Refusal::Broken,
            Refusal::Unreadable,
            Refusal::Access,
            Refusal::Bounds,
            Refusal::Rights,
        ];
        all.into_iter().find(|refusal| *refusal as u32 == code)
    }
}

impl Body {
    /// The content of a slot that was never used.
    pub fn empty() -> Body {
        Body { header: Header::empty(), bytes: [0; INLINE_LEN] }
    }

    /// Records where a message is: `offset` says where an entry begins in its region. At most
    /// [`PIECES_MAX`] entries.
    #[inline(always)]
    pub fn refer(&mut self, sgl: &[Sge], offset: impl Fn(&Sge) -> u64) {
        let mut count = 0;
        for (sge, piece) in sgl.iter().zip(self.bytes.chunks_exact_mut(PIECE_LEN)) {
            piece[0..4].copy_from_slice(&sge.lkey.to_ne_bytes());
            piece[4..8].copy_from_slice(&sge.length.to_ne_bytes());
            piece[8..16].copy_from_slice(&offset(sge).to_ne_bytes());
            count += 1;
        }
        self.header.pieces = count;
    }

    /// The pieces that [`Body::refer`] recorded.
    #[inline(always)]
    pub fn pieces(&self) -> impl Iterator<Item = Piece> {
        // SAFETY: the bytes are as many as those of a slot. A body is aligned to 8, and their offset
        // in it is a multiple of 8.
        unsafe { pieces_at(self.bytes.as_ptr(), self.header.pieces) }
    }
}

/// The first `count` pieces of the bytes of a slot. Each is read once: another process may write
/// to it.
///
/// # Safety
/// `bytes` is aligned to 8 and readable for [`INLINE_LEN`] bytes as long as the iterator is used.
#[inline(always)]
pub unsafe fn pieces_at(bytes: *const u8, count: u8) -> impl Iterator<Item = Piece> {
    (0..usize::from(count).min(PIECES_MAX)).map(move |at| {
        let place = bytes.wrapping_add(at * PIECE_LEN).cast::<[u64; 2]>();
        // SAFETY: `PIECES_MAX` pieces are no longer than the bytes, which the caller guarantees, with
        // their alignment. Another process may write there: so the read is volatile, and what is
        // checked is what is used.
        Piece::of(unsafe { place.read_volatile() })
    })
}

impl Piece {
    /// The piece in these words of a slot: any words are one.
    #[inline(always)]
    fn of([first, offset]: [u64; 2]) -> Piece {
        let [k0, k1, k2, k3, l0, l1, l2, l3] = first.to_ne_bytes();
        let (key, len) = ([k0, k1, k2, k3], [l0, l1, l2, l3]);
        Piece { key: u32::from_ne_bytes(key), len: u32::from_ne_bytes(len), offset }
    }
}

impl Header {
    /// The header of a slot that was never used.
    pub const fn empty() -> Header {
        Header { acks: Acks(0), dst: 0, op: 0, pieces: 0, reserved: 0, byte_len: 0, rkey: 0 }
    }

    /// The bytes that it says are in the slot: of the message, or of the pieces.
    #[inline]
    pub fn slot_len(&self) -> usize {
        let len = match self.pieces {
            0 => self.byte_len as usize,
            pieces => PIECE_LEN * usize::from(pieces),
        };
        len.min(INLINE_LEN)
    }

    /// It as three words. A reader of them reads each field as it was written.
    #[inline(always)]
    pub fn words(&self) -> [u64; 3] {
        let Header { acks: Acks(acks), dst, op, pieces, byte_len, rkey, .. } = *self;
        let halves = |first: u32, second: u32| {
            let ([a, b, c, d], [e, f, g, h]) = (first.to_ne_bytes(), second.to_ne_bytes());
            u64::from_ne_bytes([a, b, c, d, e, f, g, h])
        };
        let op = u32::from_ne_bytes([op, pieces, 0, 0]);
        [acks, halves(dst, op), halves(byte_len, rkey)]
    }

    /// Whether it is a message for a Receive, and in its slot.
    #[inline(always)]
    pub(crate) fn is_short_send(&self) -> bool {
        // One comparison of both.
        u16::from_ne_bytes([self.op, self.pieces]) == u16::from_ne_bytes([OP_SEND, 0])
    }
}

impl Acks {
    /// All slots before this position were taken.
    #[inline]
    pub fn up_to(position: u64) -> Acks {
        Acks(position)
    }

    /// The position behind the last slot taken.
    #[inline]
    pub fn taken(self) -> u64 {
        self.0
    }
}

/// The outcome of a slot whose request was executed. No refusal has this number.
const DONE: u32 = 0xff;

const _: () = assert!(size_of::<Header>() == 24 && size_of::<Piece>() == PIECE_LEN);
const _: () = assert!(std::mem::offset_of!(Body, bytes).is_multiple_of(8));

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_header_are_its_bytes() {
        let [dst, byte_len, rkey] = [0x0102_0304, 0x0506_0708, 0x090a_0b0c];
        let (acks, op, pieces, reserved) = (Acks(0x1112_1314_1516_1718), 0x21, 0x22, 0);
        let header = Header { acks, dst, op, pieces, reserved, byte_len, rkey };
        let bytes = header.words().map(u64::to_ne_bytes);
        let [_, second, third] = bytes.each_ref().map(|word| word.split_at(4));
        assert_eq!(bytes[0], acks.0.to_ne_bytes());
        assert_eq!((second.0, second.1), (&dst.to_ne_bytes()[..], &[op, pieces, 0, 0][..]));
        assert_eq!((third.0, third.1), (&byte_len.to_ne_bytes()[..], &rkey.to_ne_bytes()[..]));
    }

    #[test]
    fn a_header_says_how_many_bytes_are_in_its_slot_and_never_more_than_fit() {
        let len = |pieces, byte_len| Header { pieces, byte_len, ..Header::empty() }.slot_len();
        assert_eq!([len(0, 0), len(0, 7), len(0, 224), len(0, 225)], [0, 7, 224, 224]);
        assert_eq!([len(1, 1 << 30), len(14, 0), len(15, 0)], [16, 224, 224]);
    }

    #[test]
    fn every_outcome_has_a_number_of_its_own_and_other_numbers_are_none() {
        let refusals = [
            Refusal::TooLong,
            Refusal::NotReady,
            Refusal::Gone,
            Refusal::Broken,
            Refusal::Unreadable,
            Refusal::Access,
            Refusal::Bounds,
            Refusal::Rights,
        ];
        let all: Vec<_> = refusals.into_iter().map(Err).chain([Ok(())]).collect();
        for outcome in &all {
            assert_eq!(Refusal::outcome_of(Refusal::code_of(*outcome)), Some(*outcome));
        }
        let known = (0..1000).filter(|code| Refusal::outcome_of(*code).is_some()).count();
        assert_eq!(known, all.len());
        assert_eq!(Refusal::outcome_of(u32::MAX), None);
    }
}
