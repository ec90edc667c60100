//! Outgoing messages, and their slab.
//!
//! ```text
//!   begin ──▶ building ──submit──▶ pending in a lane ──posted──▶ in flight ──completed──▶ free
//!                └──── dropped ────────────────────────────────────────────────────────▶ free
//! ```
//! A short plain message does not use this slab: see `Outbox::send_plain`.
//!
//! A message is a list of work requests: the Sends of a group; the RDMA Writes in front of a reply;
//! the Binds of a call's exposed memory; the RDMA Reads that fetch the data of a call; the
//! invalidations that end an exposure. The head of a message names the waiter for its completion.
//!
//! A message is laid out when it is submitted: its headers are encoded and its gather lists are
//! made, so that posting only copies numbers. The hot half of a message is one cache line. The
//! other half is used only for messages with bulk data or with more payload than one slot.

use core::ops::Range;

use arrayvec::ArrayVec;
use rpcrdma_mempool::{Loan, SendSlot, Sge, Token};
use rpcrdma_proto::{BulkItem, Gather};

use crate::message::bulk::{Bulk, ITEMS_MAX, PIECES_MAX};
use crate::provider::SendOp;

/// Work requests of a message that were posted together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Posted {
    pub requests: u32,
    /// Those that consume a Receive of the peer.
    pub sends: u64,
    /// Whether they were the last of the message.
    pub is_whole: bool,
}

/// No message.
pub(crate) const NONE: u32 = u32::MAX;
/// Payload slots of a message.
pub(crate) const SLOTS_MAX: usize = 64;
/// Work requests of a message: the transmissions of a group, and the requests before them.
pub(crate) const REQUESTS_MAX: usize = 128;
/// Gather entries of a message, all work requests together.
const GATHER_MAX: usize = 320;

/// The kind of the slots that continuation headers are written to.
#[derive(Debug)]
pub(crate) enum Headers {}

/// The hot half of a message.
pub(crate) struct Head {
    /// The next message of the same list.
    pub next: u32,
    /// The sequence number in its lane of its last work request, once posted.
    pub seq: u32,
    /// Work requests in the body; 0 for a message that is one gather entry of `slot`.
    pub requests: u16,
    /// How many of them were posted.
    pub posted: u16,
    /// The gather entry of a message that has only one: bytes of `slot`.
    pub sge: Sge,
    /// The payload slot of a message of one gather entry.
    pub slot: Option<SendSlot>,
    /// Whether the body has resources to return.
    pub body: bool,
    /// The waiter for its end.
    pub after: After,
}

/// The waiter for a message's completion, successful or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// Nothing waits.
    Nothing,
    /// The exposure of this place, for the end of its call's Sends.
    Called(u32),
    /// The exposure of this place, for the end of its rights.
    Fenced(u32),
    /// The fetch of this place, for the data.
    Fetched(u32),
}

/// One work request of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    /// Its operation.
    pub op: SendOp,
    /// Where its part of the scatter or gather list begins.
    begin: u16,
    /// Where it ends.
    end: u16,
}

/// The other half of a message.
#[derive(Default)]
pub(crate) struct Body {
    /// The payload slots, in order.
    pub slots: ArrayVec<SendSlot, SLOTS_MAX>,
    /// The slot of its continuation headers.
    pub headers: Option<Token<Headers>>,
    /// The bulk items, in stream order.
    pub items: ArrayVec<GatherItem, ITEMS_MAX>,
    /// The sources of the items.
    pub pieces: ArrayVec<Bulk, PIECES_MAX>,
    /// The work requests.
    pub requests: ArrayVec<Request, REQUESTS_MAX>,
    /// Their scatter and gather lists, in sequence.
    pub gather: ArrayVec<Sge, GATHER_MAX>,
}

/// A bulk item of a message under construction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GatherItem {
    /// Its description for the protocol.
    pub item: BulkItem,
    /// Its first piece.
    pub first: u8,
}

impl Body {
    /// Work request `index` and its scatter or gather list.
    pub fn request(&self, index: usize) -> (SendOp, &[Sge]) {
        let Request { op, begin, end } = self.requests[index];
        (op, &self.gather[begin as usize..end as usize])
    }

    /// Ends the list of a work request, and with it the request.
    #[inline]
    pub fn end_request(&mut self, op: SendOp) -> Option<()> {
        self.end_request_at(op, self.gather.len())
    }

    /// As [`Body::end_request`], with the list ending at `end`; entries behind it stay open.
    #[inline]
    pub fn end_request_at(&mut self, op: SendOp, end: usize) -> Option<()> {
        let begin = self.requests.last().map_or(0, |last| last.end);
        self.requests.try_push(Request { op, begin, end: end as u16 }).ok()
    }

    /// The number of RDMA Writes, and of their bytes.
    pub fn writes(&self) -> (u64, u64) {
        let writes = self.requests.iter().filter(|it| matches!(it.op, SendOp::Write(_)));
        let len = |sge: &Sge| u64::from(sge.length);
        writes.fold((0, 0), |(count, bytes), write| {
            let gathered = &self.gather[write.begin as usize..write.end as usize];
            (count + 1, bytes + gathered.iter().map(len).sum::<u64>())
        })
    }

    /// Entries of the unfinished list.
    pub fn open_entries(&self) -> usize {
        self.gather.len() - self.requests.last().map_or(0, |last| last.end as usize)
    }

    /// The pieces of an item.
    pub fn item_pieces(&self, item: usize) -> &[Bulk] {
        let Some(GatherItem { item, first }) = self.items.get(item) else { return &[] };
        &self.pieces[*first as usize..*first as usize + item.pieces as usize]
    }

    /// Copies the data of one piece of a plan.
    pub fn copy_piece(&mut self, piece: &Gather, mut put: impl FnMut(&[u8])) {
        match piece {
            Gather::Payload(range) => self.copy_payload(range, put),
            Gather::Zero(len) => put_zeros(*len as usize, put),
            Gather::Bulk { item, start, len } => {
                let (mut skip, mut left) = (*start as usize, *len as usize);
                for piece in self.item_pieces(*item) {
                    let begin = skip.min(piece.len());
                    let end = (begin + left).min(piece.len());
                    put(&piece[begin..end]);
                    (skip, left) = (skip - begin, left - (end - begin));
                }
            }
        }
    }

    fn copy_payload(&mut self, range: &Range<u32>, mut put: impl FnMut(&[u8])) {
        let (mut skip, mut left) = (range.start as usize, range.len());
        for slot in &mut self.slots {
            let bytes = slot.payload_mut();
            let begin = skip.min(bytes.len());
            let end = (begin + left).min(bytes.len());
            put(&bytes[begin..end]);
            (skip, left) = (skip - begin, left - (end - begin));
        }
    }

    /// Appends the gather entries of all pieces. `None` if there is no room.
    #[inline]
    pub fn gather_pieces(&mut self) -> Option<()> {
        for piece in &self.pieces {
            self.gather.try_push(piece.sge(0, piece.len() as u32)).ok()?;
        }
        Some(())
    }

    /// Appends the gather entries of `len` bytes at `start` of an item. `None` if there is no room.
    #[inline]
    pub fn gather_item(&mut self, item: usize, start: u32, len: u32) -> Option<()> {
        let GatherItem { item, first } = *self.items.get(item)?;
        if item.pieces == 1 && start + len <= item.len {
            let piece = self.pieces.get(first as usize)?;
            return self.gather.try_push(piece.sge(start, len)).ok();
        }
        self.gather_pieces_of(item, first, (start, len))
    }

    fn gather_pieces_of(
        &mut self,
        item: BulkItem,
        first: u8,
        (start, len): (u32, u32),
    ) -> Option<()> {
        let (mut skip, mut left) = (start, len);
        for piece in &self.pieces[first as usize..first as usize + item.pieces as usize] {
            let piece_len = piece.len() as u32;
            let part = left.min(piece_len.saturating_sub(skip));
            if part > 0 {
                self.gather.try_push(piece.sge(skip, part)).ok()?;
            }
            left -= part;
            skip = skip.saturating_sub(piece_len);
        }
        (left == 0).then_some(())
    }
}

/// Fills loans in sequence.
pub(crate) struct Fill<'a> {
    loans: &'a mut [Loan],
    /// Bytes in the first of them.
    at: usize,
}

impl<'a> Fill<'a> {
    pub fn new(loans: &'a mut [Loan]) -> Fill<'a> {
        Fill { loans, at: 0 }
    }

    /// Appends bytes, as far as there is room.
    pub fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let Some(loan) = self.loans.first_mut() else { return };
            let part = bytes.len().min(loan.len() - self.at);
            loan[self.at..self.at + part].copy_from_slice(&bytes[..part]);
            (self.at, bytes) = (self.at + part, &bytes[part..]);
            if self.at == loan.len() {
                self.loans = &mut core::mem::take(&mut self.loans)[1..];
                self.at = 0;
            }
        }
    }
}

fn put_zeros(len: usize, mut put: impl FnMut(&[u8])) {
    let zeros = [0; 64];
    let mut left = len;
    while left > 0 {
        let part = left.min(zeros.len());
        put(&zeros[..part]);
        left -= part;
    }
}

/// The slab of messages: as many as the budget allows at one time.
pub(crate) struct Messages {
    heads: Box<[Head]>,
    bodies: Box<[Body]>,
    free: Vec<u32>,
}

impl Messages {
    pub fn new(count: usize) -> Messages {
        let head = || Head {
            next: NONE,
            seq: 0,
            requests: 0,
            posted: 0,
            sge: Sge::default(),
            slot: None,
            body: false,
            after: After::Nothing,
        };
        Messages {
            heads: (0..count).map(|_| head()).collect(),
            bodies: (0..count).map(|_| Body::default()).collect(),
            free: (0..count as u32).rev().collect(),
        }
    }

    /// An empty message. There are as many as slots, reads and exposures, and each caller holds
    /// one of these.
    #[inline]
    pub fn begin(&mut self) -> Option<u32> {
        let index = self.free.pop()?;
        let head = &mut self.heads[index as usize];
        head.requests = 0;
        head.posted = 0;
        head.after = After::Nothing;
        Some(index)
    }

    /// Frees a message with an empty body, and returns its slot.
    #[inline]
    pub fn release(&mut self, index: u32) -> Option<SendSlot> {
        let head = &mut self.heads[index as usize];
        head.body = false;
        self.free.push(index);
        head.slot.take()
    }

    #[inline]
    pub fn head(&self, index: u32) -> &Head {
        &self.heads[index as usize]
    }

    #[inline]
    pub fn head_mut(&mut self, index: u32) -> &mut Head {
        &mut self.heads[index as usize]
    }

    /// Whether the payload of a message begins with these bytes.
    #[cold]
    pub fn begins_with(&mut self, index: u32, bytes: &[u8]) -> bool {
        let head = &mut self.heads[index as usize];
        let more = if head.body { self.bodies[index as usize].slots.first_mut() } else { None };
        let slot = head.slot.as_mut().or(more);
        slot.is_some_and(|slot| slot.payload_mut().starts_with(bytes))
    }

    /// Whether a message is copied while it is posted, where so many bytes can be.
    #[inline]
    pub fn is_inline(&self, index: u32, inline_len: u32) -> bool {
        let head = self.head(index);
        head.requests == 0 && head.sge.length <= inline_len
    }

    /// Counts more posted work requests of a message: `most`, or all that are left.
    #[inline]
    pub fn on_posted(&mut self, index: u32, most: u32) -> Posted {
        let head = &mut self.heads[index as usize];
        if head.requests == 0 {
            head.posted = 1;
            return Posted { requests: 1, sends: 1, is_whole: true };
        }
        let first = head.posted;
        head.posted = head.requests.min(first.saturating_add(most as u16));
        let posted = first as usize..head.posted as usize;
        let requests = &self.bodies[index as usize].requests[posted];
        let sends = requests.iter().filter(|request| request.op.is_send()).count() as u64;
        let is_whole = head.posted == head.requests;
        Posted { requests: requests.len() as u32, sends, is_whole }
    }

    /// The next message in its list.
    #[inline]
    pub fn next(&self, index: u32) -> Option<u32> {
        let next = self.heads[index as usize].next;
        (next != NONE).then_some(next)
    }

    /// Send slots that a message holds: constant while it is in a list.
    #[inline]
    pub fn slots(&self, index: u32) -> u32 {
        let head = &self.heads[index as usize];
        let more = if head.body { self.bodies[index as usize].slots.len() } else { 0 };
        u32::from(head.slot.is_some()) + more as u32
    }

    /// The other half of a message, for reading.
    pub fn body(&self, index: u32) -> &Body {
        &self.bodies[index as usize]
    }

    /// The other half of a message, mutable; it is returned with the message.
    pub fn body_mut(&mut self, index: u32) -> &mut Body {
        self.heads[index as usize].body = true;
        &mut self.bodies[index as usize]
    }

    /// Messages in all.
    pub fn capacity(&self) -> usize {
        self.heads.len()
    }

    /// Free messages.
    pub fn free(&self) -> usize {
        self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::rdma::read_keys::tests::loans;

    #[test]
    fn bytes_that_an_item_does_not_have_are_not_gathered() {
        // Of one piece, and of two.
        for pieces in [1, 2] {
            let mut body = Body::default();
            let mut len = 0;
            for mut loan in loans(pieces) {
                loan.truncate(100);
                len += 100;
                body.pieces.push(Bulk::Loan(loan));
            }
            let item = BulkItem { position: 0, len, origin: 0, pieces };
            body.items.push(GatherItem { item, first: 0 });
            for (start, part, is_there) in
                [(0, len, true), (1, len - 1, true), (0, len + 1, false), (1, len, false)]
            {
                body.gather.clear();
                let gathered = body.gather_item(0, start, part);
                assert_eq!(gathered.is_some(), is_there, "{part} from {start} of {len}");
                let bytes: u32 = body.gather.iter().map(|sge| sge.length).sum();
                assert_eq!(bytes, part.min(len - start));
            }
        }
    }
}
