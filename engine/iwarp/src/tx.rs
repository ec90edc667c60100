//! The sending end of a connection: requests become messages of RDMAP.
#![expect(unsafe_code, reason = "requests name memory that is sent from where it is")]

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

use arrayvec::ArrayVec;
use rpcrdma_transport::body::{
    Acks, Body, Header, OP_DISCONNECT, OP_READ, OP_SEND_INVALIDATE, OP_WRITE, PIECES_MAX, Refusal,
};
use rpcrdma_transport::carrier::{Outgoing, Vacant};
use rpcrdma_transport::keys::KeyCache;

use crate::link::{FIRST_NUMBER, Link, SLOTS, read_header};
use crate::output::{Lent, Output};
use crate::wire::fpdu::ULPDU_MAX;
use crate::wire::segment::{
    QUEUE_SEND, ReadRequest, TAGGED_LEN, Tagged, TaggedOp, UNTAGGED_LEN, Untagged, UntaggedOp,
};

/// The sending end. A slot is taken when TCP has its bytes; that of a Read is over with its last
/// Response.
pub struct Tx {
    link: Arc<Link>,
    /// Position of the next slot to be published.
    head: u64,
    /// Position of the oldest slot that is not free.
    freed: u64,
    /// The request that is being written, and the address at the peer that it names.
    body: Body,
    target: u64,
    /// The numbers of the next Send and the next Read Request.
    send_number: u32,
    read_number: u32,
    /// Slots whose memory was gone, and how many there were.
    unreadable: VecDeque<u64>,
    refused: u64,
    /// A request was withdrawn that may not have been sent.
    is_withdrawn: Cell<bool>,
}

/// The next slot, to be filled and published.
pub struct Claimed<'a>(&'a mut Tx);

impl Tx {
    pub(crate) fn new(link: Arc<Link>) -> Tx {
        let reads_before = u32::from(link.has_read_at_start());
        Tx {
            link,
            head: 0,
            freed: 0,
            body: Body::empty(),
            target: 0,
            send_number: FIRST_NUMBER,
            read_number: FIRST_NUMBER + reads_before,
            unreadable: VecDeque::new(),
            refused: 0,
            is_withdrawn: Cell::new(false),
        }
    }

    /// Adds the message of the request to what is to be sent.
    fn push(&mut self, out: &mut Output, keys: &KeyCache) {
        let Header { op, rkey, .. } = self.body.header;
        match op {
            OP_DISCONNECT => out.end(),
            OP_READ => self.push_read(out),
            OP_WRITE => {
                let (stag, target) = (rkey, self.target);
                self.push_payload(out, keys, ULPDU_MAX - TAGGED_LEN, |offset, is_last| {
                    let to = target.wrapping_add(offset.into());
                    Tagged { op: TaggedOp::Write, is_last, stag, to }.encode()
                });
            }
            _ => {
                let (op, invalidates) = match op {
                    OP_SEND_INVALIDATE => (UntaggedOp::SendInvalidate, rkey),
                    _ => (UntaggedOp::Send, 0),
                };
                let (queue, number) = (QUEUE_SEND, self.send_number);
                self.send_number = number.wrapping_add(1);
                self.push_payload(out, keys, ULPDU_MAX - UNTAGGED_LEN, |offset, is_last| {
                    Untagged { op, is_last, invalidates, queue, number, offset }.encode()
                });
            }
        }
    }

    /// Adds a message with the bytes of the request, `step` of them in each segment.
    fn push_payload<H: AsRef<[u8]>>(
        &mut self,
        out: &mut Output,
        keys: &KeyCache,
        step: usize,
        mut header: impl FnMut(u32, bool) -> H,
    ) {
        let Header { byte_len, pieces, .. } = self.body.header;
        if pieces == 0 {
            let payload = self.body.bytes.get(..byte_len as usize).unwrap_or_default();
            return out.push_short(header(0, true).as_ref(), payload);
        }
        let mut parts = ArrayVec::<Lent, PIECES_MAX>::new();
        for piece in self.body.pieces() {
            let Some(addr) = keys.locate(piece.key, piece.offset, piece.len) else {
                // The program has deregistered it after it was posted.
                self.unreadable.push_back(self.head);
                self.refused += 1;
                return out.end();
            };
            // SAFETY: the poster keeps the memory registered and does not write to it until the
            // request is done, or withdrawn and quiesced, which cuts the output.
            parts.push(unsafe { Lent::new(addr, piece.len) });
        }
        out.push_long(&parts, step, header);
    }

    fn push_read(&mut self, out: &mut Output) {
        let Header { byte_len: len, rkey: source_stag, .. } = self.body.header;
        let sink_stag = self.link.reads().begin(Some(self.head), &self.body);
        let source_to = self.target;
        let read = ReadRequest { sink_stag, sink_to: 0, len, source_stag, source_to };
        out.push_short(&read_header(self.read_number).encode(), &read.encode());
        self.read_number = self.read_number.wrapping_add(1);
    }
}

// SAFETY: the memory of a request is read by TCP before its slot is taken, and not after `quiesce`
// has cut the output. Responses to a Read are written to its memory while the path is polled, until
// it is over or withdrawn.
unsafe impl Outgoing for Tx {
    type Vacant<'a> = Claimed<'a>;

    #[inline]
    fn slots(&self) -> u64 {
        SLOTS
    }

    #[inline]
    fn claim(&mut self, _byte_len: u32) -> Option<Claimed<'_>> {
        self.has_room().then_some(Claimed(self))
    }

    #[inline]
    fn has_room(&self) -> bool {
        self.head - self.freed < SLOTS && self.link.has_room()
    }

    #[inline]
    fn head(&self) -> u64 {
        self.head
    }

    #[inline]
    fn freed(&self) -> u64 {
        self.freed
    }

    #[inline]
    fn free(&mut self, acks: Acks, until: u64) {
        debug_assert!(until >= self.freed && until <= acks.taken(), "checked by the path");
        self.freed = until;
        if !self.unreadable.is_empty() {
            self.unreadable.retain(|position| *position >= until);
        }
        if self.read_number != FIRST_NUMBER {
            self.link.reads().free_before(until);
        }
    }

    #[inline]
    fn acks(&self) -> Acks {
        Acks::up_to(self.link.taken())
    }

    #[inline]
    fn refused(&self) -> u64 {
        self.refused
    }

    #[cold]
    fn outcome(&self, position: u64) -> Option<Result<(), Refusal>> {
        if self.unreadable.contains(&position) {
            return Some(Err(Refusal::Unreadable));
        }
        self.link.reads().outcome(position)
    }

    /// The Responses have put the bytes into their place.
    #[cold]
    fn place_read(&mut self, _position: u64, _keys: &KeyCache) -> Result<(), Refusal> {
        Ok(())
    }

    /// A connection has no delay.
    #[cold]
    fn taken_at(&self, _position: u64) -> u64 {
        0
    }

    #[cold]
    fn withdraw(&self, position: u64) {
        self.link.reads().withdraw(position);
        if position >= self.link.taken() {
            self.is_withdrawn.set(true);
        }
    }

    /// What TCP has not taken is not sent, and nothing behind it can be if a part of it was.
    #[cold]
    fn quiesce(&self) {
        if self.is_withdrawn.take() {
            self.link.cut();
        }
    }

    #[cold]
    fn is_abandoned(&self) -> bool {
        self.link.is_over()
    }

    #[cold]
    fn reclaim(&mut self, acks: Acks) -> Acks {
        if !self.is_abandoned() {
            return acks;
        }
        let all = Acks::up_to(self.head);
        self.free(all, self.head);
        all
    }

    #[inline]
    fn reads_max(&self) -> u32 {
        // A peer that serves none reports that with a Terminate message.
        self.link.terms.ord.max(1)
    }
}

impl Drop for Tx {
    /// The memory of requests that are not withdrawn is lent until the queues are dropped.
    fn drop(&mut self) {
        self.link.cut();
    }
}

impl Vacant for Claimed<'_> {
    #[inline]
    fn body(&mut self) -> &mut Body {
        &mut self.0.body
    }

    /// A connection has no delay.
    #[inline]
    fn stamp(&mut self, _now_ns: u64) {}

    #[inline]
    fn set_target(&mut self, addr: u64) {
        self.0.target = addr;
    }

    #[inline]
    fn publish(self, _acks: Acks, keys: &KeyCache) {
        let Claimed(tx) = self;
        let link = Arc::clone(&tx.link);
        let mut out = link.out();
        // Behind the end of the stream nothing is sent: it is flushed with the queue pair.
        let was_open = out.is_open();
        tx.push(&mut out, keys);
        if was_open {
            out.end_message(true);
        }
        tx.head += 1;
        link.note_pending(&out);
    }
}
