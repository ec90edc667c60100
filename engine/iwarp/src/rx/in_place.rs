//! Receiving the rest of a long tagged segment in the memory that it names.
//!
//! ```text
//!   buffer  │ head, header, what has come of the payload │      socket  │ the rest │ CRC, next head │
//!                                         └──────▶ memory that it names ◀─────┘            └──▶ buffer
//! ```
//!
//! With each part of a Write that comes, the transport checks the key, the bounds and the rights of all
//! that is left. So nothing is written of a segment that is out of bounds. With a CRC, segments are
//! received whole: bytes whose CRC does not match are not placed.
#![expect(unsafe_code, reason = "a socket receives into memory that a peer may write")]

use std::io::IoSliceMut;
use std::sync::Arc;

use rpcrdma_transport::body::OP_WRITE;
use rpcrdma_transport::keys::KeyCache;
use rpcrdma_transport::rights::Granted;

use super::Rx;
use super::request::Request;
use super::rest::{Rest, Sink};
use crate::calls::Calls;
use crate::reads::Response;
use crate::wire::fpdu::{self, CRC_LEN, HEAD_LEN};
use crate::wire::inbound::Arrived;
use crate::wire::segment::{Segment, TAGGED_LEN};
use crate::wire::violation::Violation;

impl Rx {
    /// Begins to receive a segment where it belongs, if much of it has not come. Without `keys`
    /// that of a Response waits.
    pub(super) fn begin_rest(&mut self, keys: Option<&KeyCache>) -> Result<(), Violation> {
        let bytes = &self.buffer[self.parsed..self.end];
        // The parts of a Send stay where they are.
        let can_begin = !self.link.terms.checks_crc && self.parts.is_empty();
        let Some(len) = fpdu::ulpdu_len(bytes)?.filter(|_| can_begin) else { return Ok(()) };
        let has_come = bytes.len();
        let header = bytes.get(HEAD_LEN..HEAD_LEN + TAGGED_LEN);
        let header = header.filter(|_| fpdu::len_of(len) >= has_come + REST_MIN);
        // What is wrong with another is reported when it is whole.
        let Some(Ok((segment @ Segment::Tagged(_), _))) = header.map(Segment::decode) else {
            return Ok(());
        };
        if keys.is_none() && super::is_response(&segment) {
            self.link.set_unread(true);
            return Ok(());
        }
        let payload_len = len - TAGGED_LEN;
        self.last = (self.parsed + HEAD_LEN..self.end, len as u16);
        let arrived = self.inbound.accept(&segment, payload_len)?;
        self.link.begin();
        self.note(true)?;
        self.parsed += HEAD_LEN + TAGGED_LEN;
        self.start = self.parsed;
        let (left, tail) = (payload_len as u32, fpdu::padding_of(len) + CRC_LEN);
        let (sink, left) = match (arrived, keys) {
            (Arrived::Write { stag, to, .. }, _) => (Sink::Write { stag, to }, left),
            (Arrived::ReadResponse { stag, to, is_last }, Some(keys)) => {
                let mut reads = self.link.reads();
                reads.check(Response { stag, to, len: left, is_last })?;
                let first = &self.buffer[self.parsed..self.end];
                let len = first.len() as u32;
                reads.put(stag, first, false, keys);
                (self.start, self.parsed, self.end) = (0, 0, 0);
                (Sink::Response { stag, is_last }, left - len)
            }
            _ => return Ok(()),
        };
        self.rest = Some(Rest { sink, left, tail });
        self.set_rest_front();
        Ok(())
    }

    /// Makes what is left of a Write the front: the transport looks at its key at once, and again with
    /// each part that comes.
    fn set_rest_front(&mut self) {
        let Some(Rest { sink: Sink::Write { stag, to }, left, .. }) = self.rest else { return };
        self.set_front(Request { op: OP_WRITE, rkey: stag, byte_len: left, target: to });
    }

    /// Receives more of a Response, piece by piece, or has the transport do so of a Write.
    pub(super) fn take_in_rest(&mut self, keys: &KeyCache) {
        let link = Arc::clone(&self.link);
        let mut is_full = true;
        while is_full
            && self.budget > 0
            && let Some(Rest { sink: Sink::Response { stag, is_last }, left, .. }) = self.rest
        {
            link.reads().fill(stag, keys, |place| {
                let room = place.map_or(left as usize, |(_, room)| room.min(left as usize));
                let len = match place {
                    // SAFETY: `fill` states why so many bytes may be written there.
                    Some((to, _)) => unsafe { self.receive_at(to, room) },
                    None => self.receive_nowhere(room),
                };
                is_full = len as usize == room;
                (len, is_last && len == left)
            });
        }
        self.set_rest_front();
    }

    /// Receives more of a Write in the memory that was granted for all that is left of it. False if
    /// the front is another Write.
    pub(super) fn receive_write(&mut self, to: Granted) -> bool {
        let Some(Rest { left, .. }) = self.rest else { return false };
        assert_eq!(to.len(), left, "the front is what is left");
        let first = &self.buffer[self.parsed..self.end];
        let at = std::ptr::with_exposed_provenance_mut::<u8>(to.addr() as usize);
        // SAFETY: the memory was granted to the peer: the program that granted it does not access it.
        // There are fewer bytes than are left.
        unsafe { std::ptr::copy_nonoverlapping(first.as_ptr(), at, first.len()) };
        let len = first.len();
        self.note_placed(len as u32);
        (self.start, self.parsed, self.end) = (0, 0, 0);
        let port = &self.link.port;
        let (is_readable, is_first) = (port.is_readable(self.link.qp_num), len > 0);
        // The first bytes have come by the last call, which may have left none.
        let is_there = is_readable || !is_first && port.may_read(self.link.qp_num);
        if is_there && self.budget > 0 {
            // SAFETY: as above; so many bytes are left behind the first.
            unsafe { self.receive_at(at.wrapping_add(len), left as usize - len) };
        }
        true
    }

    /// One system call: the next bytes of the rest. What comes behind them goes to the buffer. Returns
    /// how many have come of the rest.
    ///
    /// # Safety
    /// The memory may be written until this returns.
    unsafe fn receive_at(&mut self, to: *mut u8, room: usize) -> u32 {
        let is_all = self.rest.as_ref().is_some_and(|rest| rest.left as usize == room);
        let behind = if is_all { BEHIND } else { 0 };
        // SAFETY: the caller guarantees it. The kernel writes no more than is there.
        let place = unsafe { std::slice::from_raw_parts_mut(to, room) };
        let mut into = [IoSliceMut::new(place), IoSliceMut::new(&mut self.buffer[..behind])];
        let received = self.link.socket.recv_parts(&mut into);
        let received = self.link.received(received, room + behind);
        let placed = received.min(room);
        self.end = received - placed;
        self.budget = self.budget.saturating_sub(received);
        self.note_placed(placed as u32);
        placed as u32
    }

    /// As [`Rx::receive_at`], of bytes that are dropped.
    fn receive_nowhere(&mut self, left: usize) -> u32 {
        let len = self.receive_into(0..left.min(self.buffer.len())) as u32;
        self.note_placed(len);
        len
    }

    /// Looks at no more of the stream, for the next segment begins behind a rest that is not
    /// received. The connection is over when TCP has taken the last message, or takes none any more.
    #[cold]
    pub(super) fn close_input(&mut self) {
        self.is_input_closed = true;
        if self.link.has_sent_all() {
            self.link.set_over();
        }
    }

    fn note_placed(&mut self, len: u32) {
        let Some(rest) = &mut self.rest else { return };
        rest.note(len);
        if rest.left == 0 {
            self.tail = rest.tail;
            self.rest = None;
        }
    }

    /// Skips what is behind the payload of a segment that was received so. False if not all of it has
    /// come.
    pub(super) fn skip_tail(&mut self) -> bool {
        let len = self.tail.min(self.end - self.parsed);
        self.tail -= len;
        self.consume(len);
        self.tail == 0
    }
}

/// Bytes that have not come of an FPDU whose payload is received where it belongs: fewer are copied in
/// less time than a system call of their own takes.
const REST_MIN: usize = 8 << 10;
// What has come is part of the payload: neither padding nor CRC is copied with it.
const _: () = assert!(REST_MIN > 3 + CRC_LEN);
/// Bytes behind the rest of a segment that the same system call receives: a head, or a short message.
const BEHIND: usize = 1 << 10;
