//! The receiving end of a direction. Everything that it reads was written by a peer that is not
//! trusted.
#![expect(unsafe_code, reason = "bytes are passed on by raw pointers")]

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rpcrdma_transport::body::{Acks, Header, INLINE_LEN, Piece, Refusal, pieces_at};
use rpcrdma_transport::carrier::{DmaError, Incoming};
use rpcrdma_transport::keys::KeyCache;
use rpcrdma_transport::rights::Granted;

use crate::layout::{Direction, Slot};
use crate::link::Link;
use crate::pools::Pool;
use crate::staged::{IN_SLOT, STAGED};

/// The receiving end.
pub struct Consumer {
    link: Arc<Link>,
    direction: Direction,
    /// Position of the next slot to be taken.
    next: u64,
    /// The queue pair that the link belongs to: all messages are for it, whatever they state.
    qp_num: u32,
    /// Slots that it has refused.
    refused: u64,
    /// The peer's pools, as of the last message that needed them.
    pools: RefCell<Vec<Arc<Pool>>>,
    /// The changes of the link's that they have.
    changes: Cell<u32>,
    /// The number of the pool that the peer had exposed last when its words were last read.
    last_exposed: Cell<u32>,
}

impl Consumer {
    /// The receiving end of a new direction.
    pub(crate) fn new(link: Arc<Link>, direction: Direction, qp_num: u32, first: u64) -> Consumer {
        let (pools, changes, last_exposed) = (RefCell::default(), Cell::new(0), Cell::new(0));
        Consumer { link, direction, next: first, qp_num, refused: 0, pools, changes, last_exposed }
    }

    fn is_withdrawn(&self, position: u64) -> bool {
        self.direction.withdrawal(position).load(Ordering::Relaxed) == position + 1
    }

    fn front_slot(&self) -> &Slot {
        self.direction.slot(self.next)
    }

    /// The pieces of a slot with this header; each is read once.
    fn pieces(&self, position: u64, header: &Header) -> impl Iterator<Item = Piece> {
        // SAFETY: the slot's bytes are readable as long as the direction exists. Behind four words of
        // a slot, which is aligned to 256, they are aligned to 8.
        unsafe { pieces_at(self.direction.slot(position).bytes(), header.pieces) }
    }

    /// Passes on the bytes of pools of the peer that these pieces name.
    fn pull_mapped(
        &self,
        pieces: impl Iterator<Item = Piece>,
        mut put: impl FnMut(*const u8, usize) -> Result<(), DmaError>,
    ) -> Result<(), DmaError> {
        if self.changes.get() != self.link.changes() {
            // The words may have been read as the queues slept. A key may name another pool now.
            self.copy_pools();
        }
        for piece in pieces {
            let from = self.find(piece).ok_or(DmaError::Source)?;
            put(from, piece.len as usize)?;
        }
        Ok(())
    }

    /// Where a piece of the peer's memory is mapped here.
    #[inline]
    fn find(&self, Piece { key, len, offset }: Piece) -> Option<*const u8> {
        let find = |pools: &[Arc<Pool>]| pools.iter().find_map(|pool| pool.at(key, offset, len));
        let found = find(&self.pools.borrow());
        found.or_else(|| {
            self.learn();
            find(&self.pools.borrow())
        })
    }

    /// Takes what the peer has exposed since the last time.
    #[cold]
    fn learn(&self) {
        self.link.read_words();
        self.copy_pools();
    }

    #[cold]
    fn copy_pools(&self) {
        self.changes.set(self.link.changes());
        *self.pools.borrow_mut() = self.link.pools();
    }

    /// Where the bytes of a request lie whose only piece is this one: in the staging area, or for a
    /// Read in its slot.
    fn place_of(
        &self,
        position: u64,
        byte_len: u32,
        piece: Option<Piece>,
    ) -> Result<*mut u8, DmaError> {
        let piece = piece.filter(|piece| piece.len == byte_len).ok_or(DmaError::Source)?;
        if piece.key == IN_SLOT && byte_len as usize <= INLINE_LEN {
            return Ok(self.direction.slot(position).bytes());
        }
        if piece.key != STAGED {
            return Err(DmaError::Source);
        }
        let offset = piece.offset;
        let len = u64::from(self.direction.staging_len());
        let is_within = offset <= len && u64::from(byte_len) <= len - offset;
        if !is_within {
            return Err(DmaError::Source);
        }
        Ok(self.direction.staging().wrapping_add(offset as usize))
    }
}

// SAFETY: the memory passed on is that of the staging area or of a pool, which stays mapped. It is
// readable, and its bytes are copied once: what the peer writes there meanwhile is part of its own
// message. Only the staging area, the slot of a Read, outcomes and the words of the direction are
// written.
unsafe impl Incoming for Consumer {
    #[inline(always)]
    fn front(&self) -> Option<Header> {
        self.peek(self.next)
    }

    #[inline(always)]
    fn peek(&self, position: u64) -> Option<Header> {
        debug_assert!((self.next..=self.next + self.direction.mask()).contains(&position));
        let slot = self.direction.slot(position);
        if slot.turn.load(Ordering::Acquire) != position + 1 {
            return None;
        }
        let [first, second, third] = &slot.header;
        let words = [first, second, third].map(|word| word.load(Ordering::Relaxed));
        Some(header(words, self.qp_num))
    }

    #[inline]
    fn bytes(&self) -> *const u8 {
        self.front_slot().bytes()
    }

    #[inline]
    fn prefetch_front(&self) {
        rpcrdma_transport::prefetch::read_behind_first(self.front_slot());
    }

    #[cold]
    fn is_cancelled(&self) -> bool {
        self.is_withdrawn(self.next)
    }

    #[inline]
    fn target(&self) -> u64 {
        self.direction.target(self.next).load(Ordering::Relaxed)
    }

    /// A link has no delay.
    #[inline]
    fn published_at(&self) -> u64 {
        0
    }

    #[inline]
    fn next(&self) -> u64 {
        self.next
    }

    fn pull(
        &self,
        front: &Header,
        _keys: &KeyCache,
        mut put: impl FnMut(*const u8, usize) -> Result<(), DmaError>,
    ) -> Option<Result<(), DmaError>> {
        if self.is_withdrawn(self.next) {
            return None;
        }
        let mut pieces = self.pieces(self.next, front).peekable();
        if pieces.peek().is_none_or(|piece| piece.key >= IN_SLOT) {
            let exposed = self.link.last_exposed();
            if exposed != self.last_exposed.replace(exposed) {
                self.learn();
            }
            let from = self.place_of(self.next, front.byte_len, pieces.next());
            return Some(from.and_then(|from| put(from, front.byte_len as usize)));
        }
        let outcome = self.pull_mapped(pieces, put);
        // What was withdrawn meanwhile may have changed while it was copied, and so may what a peer
        // has left behind. It stores that, has a fence, and writes; here is the copy, a fence, and
        // the load: a copy of what was written later sees that store.
        fence(Ordering::Acquire);
        let is_closed = self.direction.words().closed.0.load(Ordering::Acquire) != 0;
        (!is_closed && !self.is_withdrawn(self.next)).then_some(outcome)
    }

    fn answer(
        &self,
        position: u64,
        read: &Header,
        _keys: &KeyCache,
        from: Granted,
    ) -> Option<Result<(), DmaError>> {
        debug_assert_eq!(read.byte_len, from.len());
        if self.is_withdrawn(position) {
            return None;
        }
        let piece = self.pieces(position, read).next();
        let to = self.place_of(position, from.len(), piece);
        Some(to.map(|to| {
            let from_addr = std::ptr::with_exposed_provenance::<u8>(from.addr() as usize);
            // SAFETY: the source was granted to the peer and lies in registered memory. The
            // destination was just checked to lie in the staging area or in the slot; no registered memory
            // does.
            unsafe { std::ptr::copy_nonoverlapping(from_addr, to, from.len() as usize) };
        }))
    }

    fn finish(&mut self, position: u64, outcome: Result<(), Refusal>) {
        let result = self.direction.outcome(position);
        result.outcome.store(Refusal::code_of(outcome), Ordering::Relaxed);
        result.turn.store(position + 1, Ordering::Release);
    }

    #[inline]
    fn release(&mut self) {
        self.next += 1;
    }

    #[cold]
    fn refuse(&mut self, why: Refusal) {
        self.finish(self.next, Err(why));
        // The producer sees it with the ack that releases this slot.
        self.refused += 1;
        self.direction.words().refused.0.store(self.refused, Ordering::Relaxed);
        self.release();
    }

    /// A link has no delay.
    #[cold]
    fn stamp_taken(&self, _now_ns: u64) {}

    #[inline]
    fn acks(&self) -> Acks {
        Acks::up_to(self.next)
    }

    #[cold]
    fn announce(&self) {
        self.direction.words().ack_line.0.store(self.next, Ordering::Release);
    }

    /// A peer may close its socket and go on.
    #[inline]
    fn is_cut(&self) -> bool {
        self.link.is_cut()
    }

    #[inline]
    fn is_closed(&self) -> bool {
        self.link.is_cut() || self.direction.words().closed.0.load(Ordering::Acquire) != 0
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.direction.words().abandoned.0.store(1, Ordering::Release);
    }
}

/// The header in these words, for the queue pair of the link.
#[inline(always)]
fn header([acks, second, third]: [u64; 3], dst: u32) -> Header {
    let [_, _, _, _, op, pieces, ..] = second.to_le_bytes();
    let (byte_len, rkey) = (third as u32, (third >> 32) as u32);
    Header { acks: Acks::up_to(acks), dst, op, pieces, reserved: 0, byte_len, rkey }
}
