//! The RDMA Reads of this side: what each has asked for, and how much of it has come.
//!
//! A Read names a key of its own as the sink, which opens the memory of this Read to its Responses
//! and to nothing else. RFC 5040 5.2: Responses come in the order of the Requests, each from its
//! first byte to its last.
#![expect(unsafe_code, reason = "Read Responses are copied to posted memory")]

use std::collections::VecDeque;

use rpcrdma_transport::body::{Body, Refusal};
use rpcrdma_transport::keys::KeyCache;

use crate::wire::violation::Violation;

/// The Reads that are not over.
pub(crate) struct Reads {
    /// In the order of their Requests.
    waiting: VecDeque<Read>,
    /// The key of the next one.
    stag: u32,
}

/// A Read that was published.
struct Read {
    /// The position of its slot; none for the Read that begins a connection.
    position: Option<u64>,
    stag: u32,
    /// Where its bytes go.
    body: Body,
    /// Bytes that have come.
    received: u32,
    outcome: Option<Result<(), Refusal>>,
    /// Its memory belongs to the program again: what comes is dropped.
    is_withdrawn: bool,
}

/// A segment of a Response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Response {
    /// The key of its sink.
    pub stag: u32,
    /// The offset of its bytes in the Read.
    pub to: u64,
    /// The number of its bytes.
    pub len: u32,
    /// It is the last of the Response.
    pub is_last: bool,
}

impl Reads {
    /// Room for `slots` Reads; more are made room for.
    pub(crate) fn new(slots: usize) -> Reads {
        Reads { waiting: VecDeque::with_capacity(slots), stag: FIRST }
    }

    /// Takes a Read and returns the key of its sink.
    pub(crate) fn begin(&mut self, position: Option<u64>, body: &Body) -> u32 {
        let stag = self.stag;
        self.stag = if stag == u32::MAX { FIRST } else { stag + 1 };
        let (received, outcome, is_withdrawn) = (0, None, false);
        let read = Read { position, stag, body: *body, received, outcome, is_withdrawn };
        self.waiting.push_back(read);
        stag
    }

    /// The outcome of the Read at this position, if it is over or withdrawn.
    pub(crate) fn outcome(&self, position: u64) -> Option<Result<(), Refusal>> {
        let read = self.waiting.iter().find(|read| read.position == Some(position))?;
        read.outcome.or(read.is_withdrawn.then_some(Err(Refusal::Gone)))
    }

    /// The slots before this position are free. What the peer has not answered is kept: its Responses
    /// still come.
    pub(crate) fn free_before(&mut self, position: u64) {
        while let Some(read) = self.waiting.front()
            && read.outcome.is_some()
            && read.position.is_none_or(|at| at < position)
        {
            self.waiting.pop_front();
        }
    }

    /// From now on the memory of this Read is not written.
    pub(crate) fn withdraw(&mut self, position: u64) {
        let reads = self.waiting.iter_mut();
        reads.filter(|read| read.position == Some(position)).for_each(|read| {
            read.is_withdrawn = true;
        });
    }

    /// The Requests from this position on are not sent: they have no Responses.
    pub(crate) fn end_from(&mut self, position: u64) {
        let unsent = |read: &&mut Read| read.position.is_some_and(|at| at >= position);
        self.waiting.iter_mut().filter(unsent).for_each(|read| {
            read.outcome.get_or_insert(Err(Refusal::Gone));
        });
    }

    /// The peer has refused the oldest Read that is not over, or the connection has ended.
    pub(crate) fn refuse_next(&mut self) {
        if let Some(read) = self.oldest() {
            read.outcome = Some(Err(Refusal::Access));
        }
    }

    /// The oldest Read that is not over: Responses come to no other.
    fn oldest(&mut self) -> Option<&mut Read> {
        self.waiting.iter_mut().find(|read| read.outcome.is_none())
    }

    /// Checks a segment of a Response against the oldest Read that is not over.
    ///
    /// # Errors
    /// If it answers no Read, or not in order, or not as many bytes as were asked for.
    pub(crate) fn check(
        &mut self,
        Response { stag, to, len, is_last }: Response,
    ) -> Result<(), Violation> {
        let Some(read) = self.oldest() else { return Err(Violation::Read) };
        if read.stag != stag {
            return Err(Violation::Stag(stag));
        }
        let left = read.body.header.byte_len - read.received;
        if to != u64::from(read.received) || len > left {
            return Err(Violation::Bounds { to, len });
        }
        if is_last && len != left {
            return Err(Violation::Read);
        }
        Ok(())
    }

    /// Copies bytes of a Response that was checked to their place, or drops them if its Read has
    /// ended.
    pub(crate) fn put(&mut self, stag: u32, mut bytes: &[u8], is_last: bool, keys: &KeyCache) {
        // The Read that was answered may have failed since, and another be the oldest.
        let Some(read) = self.oldest().filter(|read| read.stag == stag) else { return };
        while !bytes.is_empty()
            && let Some((to, room)) = read.place(keys)
        {
            let (now, rest) = bytes.split_at(room.min(bytes.len()));
            // SAFETY: the memory is registered for writing, which posting the Read checked, and no one
            // else touches it until the Read has completed or was withdrawn. The bytes were received
            // into memory of this crate.
            unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), to, now.len()) };
            read.received += now.len() as u32;
            bytes = rest;
        }
        read.received += bytes.len() as u32;
        if is_last {
            read.outcome.get_or_insert(Ok(()));
        }
    }
}

impl Read {
    /// The rest of the piece that the next byte belongs to. None if the Read was withdrawn, or has all
    /// its bytes. If the piece is not registered any more, the Read fails, and its connection with it.
    fn place(&mut self, keys: &KeyCache) -> Option<(*mut u8, usize)> {
        let mut skip = self.received;
        let mut pieces = self.body.pieces();
        let piece = pieces.find(|piece| {
            let is_it = skip < piece.len;
            skip -= if is_it { 0 } else { piece.len };
            is_it
        });
        let piece = piece.filter(|_| !self.is_withdrawn)?;
        let Some(to) = keys.locate(piece.key, piece.offset, piece.len) else {
            self.is_withdrawn = true;
            self.outcome = Some(Err(Refusal::Unreadable));
            return None;
        };
        let to = to.wrapping_add(u64::from(skip));
        Some((std::ptr::with_exposed_provenance_mut(to as usize), (piece.len - skip) as usize))
    }
}

/// The first key of a sink. Keys of memory that a peer may write or read are given by the
/// transport; a Response uses no other than that of the oldest Read.
const FIRST: u32 = 0x0100_0000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads of `len` bytes at the positions 0, 1 and so on. Returns the keys of their sinks, too.
    fn reads(count: u64, len: u32) -> (Reads, Vec<u32>) {
        let mut body = Body::empty();
        body.header.byte_len = len;
        let mut reads = Reads::new(1);
        let stags = (0..count).map(|position| reads.begin(Some(position), &body)).collect();
        (reads, stags)
    }

    fn outcomes(reads: &Reads, count: u64) -> Vec<Option<Result<(), Refusal>>> {
        (0..count).map(|position| reads.outcome(position)).collect()
    }

    const GONE: Option<Result<(), Refusal>> = Some(Err(Refusal::Gone));
    const REFUSED: Option<Result<(), Refusal>> = Some(Err(Refusal::Access));

    #[test]
    fn requests_that_are_not_sent_end_and_those_before_them_do_not() {
        let (mut reads, _) = reads(3, 1);
        reads.end_from(1);
        assert_eq!(outcomes(&reads, 3), [None, GONE, GONE]);
        // What has ended is not refused, and is not refused instead of what has not.
        reads.refuse_next();
        reads.refuse_next();
        reads.end_from(0);
        assert_eq!(outcomes(&reads, 3), [REFUSED, GONE, GONE]);
    }

    #[test]
    fn the_read_that_begins_a_connection_has_no_position() {
        let mut reads = Reads::new(1);
        assert_eq!(reads.begin(None, &Body::empty()), FIRST);
        assert_eq!(reads.begin(Some(0), &Body::empty()), FIRST + 1);
        reads.end_from(0);
        assert_eq!(outcomes(&reads, 2), [GONE, None]);
        reads.free_before(1);
        assert_eq!(reads.waiting.len(), 2, "the first has no answer yet");
        reads.refuse_next();
        reads.free_before(0);
        assert_eq!(reads.waiting.len(), 1);
        reads.free_before(1);
        assert!(reads.waiting.is_empty());
    }

    #[test]
    fn slots_are_freed_up_to_a_position_and_up_to_the_oldest_without_an_answer() {
        let (mut reads, _) = reads(4, 1);
        (0..2).for_each(|_| reads.refuse_next());
        reads.free_before(1);
        assert_eq!(outcomes(&reads, 4), [None, REFUSED, None, None]);
        reads.free_before(4);
        assert_eq!(reads.waiting.len(), 2);
        assert_eq!(outcomes(&reads, 4), [None; 4]);
    }

    #[test]
    fn a_read_that_is_withdrawn_is_gone_and_its_responses_are_still_expected() {
        let (mut reads, stags) = reads(3, 4);
        reads.withdraw(1);
        assert_eq!(outcomes(&reads, 3), [None, GONE, None]);
        reads.free_before(3);
        assert_eq!(reads.waiting.len(), 3);
        reads.refuse_next();
        reads
            .check(Response { stag: stags[1], to: 0, len: 4, is_last: true })
            .expect("it is the oldest");
        let keys = KeyCache::of(std::sync::Arc::default());
        reads.put(stags[1], b"none", true, &keys);
        assert_eq!(outcomes(&reads, 3), [REFUSED, Some(Ok(())), None]);
    }

    #[test]
    fn a_response_is_of_the_oldest_read_in_order_and_ends_with_its_last_byte() {
        let (mut reads, stags) = reads(2, 4);
        let keys = KeyCache::of(std::sync::Arc::default());
        reads.withdraw(0);
        let bounds = |to, len| Err(Violation::Bounds { to, len });
        assert_eq!(
            reads.check(Response { stag: stags[1], to: 0, len: 4, is_last: true }),
            Err(Violation::Stag(stags[1]))
        );
        assert_eq!(
            reads.check(Response { stag: stags[0], to: 1, len: 3, is_last: true }),
            bounds(1, 3)
        );
        assert_eq!(
            reads.check(Response { stag: stags[0], to: 0, len: 5, is_last: false }),
            bounds(0, 5)
        );
        assert_eq!(
            reads.check(Response { stag: stags[0], to: 0, len: 3, is_last: true }),
            Err(Violation::Read)
        );
        assert_eq!(reads.check(Response { stag: stags[0], to: 0, len: 4, is_last: false }), Ok(()));
        reads.put(stags[0], b"one", false, &keys);
        assert_eq!(
            reads.check(Response { stag: stags[0], to: 0, len: 1, is_last: true }),
            bounds(0, 1)
        );
        assert_eq!(
            reads.check(Response { stag: stags[0], to: 3, len: 2, is_last: true }),
            bounds(3, 2)
        );
        assert_eq!(reads.check(Response { stag: stags[0], to: 3, len: 1, is_last: true }), Ok(()));
        assert_eq!(reads.waiting[0].outcome, None);
        reads.put(stags[0], b"!", true, &keys);
        assert_eq!(reads.waiting[0].outcome, Some(Ok(())));
        reads.refuse_next();
        assert_eq!(
            reads.check(Response { stag: stags[1], to: 0, len: 4, is_last: true }),
            Err(Violation::Read),
            "none is left"
        );
    }

    #[test]
    fn keys_of_sinks_begin_again_behind_the_last() {
        let mut reads = Reads::new(1);
        reads.stag = u32::MAX - 1;
        let stags = [0, 1, 2].map(|position| reads.begin(Some(position), &Body::empty()));
        assert_eq!(stags, [u32::MAX - 1, u32::MAX, FIRST]);
    }
}
