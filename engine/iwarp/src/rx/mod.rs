//! The receiving end of a connection: bytes of the stream become messages.
//!
//! ```text
//!   buffer  │ consumed │ the front: a message │ FPDUs behind it │ part of one │ room │
//! ```
//!
//! The stream is read only when no message waits, so a peer without a Receive here is stopped by
//! TCP. The bytes of a message are copied once, from the buffer to where they belong.
#![expect(unsafe_code, reason = "the transport reads the bytes of a message by a raw pointer")]

mod request;
mod room;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use memmap2::MmapMut;
use rpcrdma_provider::SetupError;
use rpcrdma_transport::body::{
    Acks, Header, INLINE_LEN, OP_SEND, OP_SEND_INVALIDATE, OP_WRITE, Refusal,
};
use rpcrdma_transport::carrier::{DmaError, Incoming};
use rpcrdma_transport::keys::KeyCache;
use rpcrdma_transport::rights::Granted;

use self::request::Request;
use crate::link::Link;
use crate::reads::Response;
use crate::wire::fpdu;
use crate::wire::inbound::{Arrived, Inbound};
use crate::wire::segment::{ReadRequest, Segment, TaggedOp};
use crate::wire::violation::Violation;

/// The receiving end.
pub struct Rx {
    link: Arc<Link>,
    buffer: MmapMut,
    /// The bytes behind what was consumed: those of the front and of what is behind it.
    start: usize,
    /// Behind the last FPDU that was looked at.
    parsed: usize,
    /// Behind the last byte that was received.
    end: usize,
    inbound: Inbound,
    /// The parts of the message that is arriving, or of the front, in the buffer.
    parts: Vec<(usize, usize)>,
    front: Option<Front>,
    /// Position of the next slot to be taken.
    next: u64,
    /// The peer's Reads that are not answered, by position.
    sinks: VecDeque<(u64, ReadRequest)>,
    /// Where the segment is that was looked at last, or its beginning, and how long it is: that of
    /// the front, if there is one.
    last: (Range<usize>, u16),
    /// FPDUs that this poll may still look at.
    pub(crate) looks: u32,
    /// FPDUs without effect since the last one with any.
    idle: u32,
}

/// The message that is taken next.
#[derive(Debug, Clone, Copy)]
struct Front {
    header: Header,
    /// The address in this side's memory that it names.
    target: u64,
}

impl Rx {
    /// The end of a connection. What the peer sends first may be there already: this side can send
    /// at once then.
    pub(crate) fn new(link: Arc<Link>) -> Result<Rx, SetupError> {
        let mut rx = Rx {
            buffer: Rx::buffer(link.message_len)?,
            inbound: Inbound::new(link.message_len),
            sinks: VecDeque::with_capacity(link.terms.ird as usize),
            parts: Vec::with_capacity(PARTS),
            link,
            start: 0,
            parsed: 0,
            end: 0,
            front: None,
            next: 0,
            last: (0..0, 0),
            looks: LOOKS_MAX,
            idle: 0,
        };
        rx.receive();
        rx.parse(None);
        Ok(rx)
    }

    /// Looks at FPDUs until a message is whole, or enough for this poll. Without `keys` it stops at
    /// a Read Response.
    fn parse(&mut self, keys: Option<&KeyCache>) {
        while self.front.is_none() && !self.link.is_over() {
            let Some(looks) = self.looks.checked_sub(1) else {
                return self.link.set_unread(true);
            };
            self.looks = looks;
            match self.parse_one(keys) {
                Ok(true) => {}
                Ok(false) => return,
                Err(why) => {
                    self.link.terminate(why, self.last());
                    self.link.set_over();
                }
            }
        }
    }

    /// Looks at an FPDU. False if it is not whole, or has to wait for keys.
    fn parse_one(&mut self, keys: Option<&KeyCache>) -> Result<bool, Violation> {
        self.last = (0..0, 0);
        let bytes = &self.buffer[self.parsed..self.end];
        let Some(found) = fpdu::split(bytes, self.link.terms.checks_crc)? else {
            self.link.set_unread(false);
            return Ok(false);
        };
        let (first, len) = (self.parsed + found.ulpdu.start, found.ulpdu.len());
        if len == 0 {
            // The ready-to-receive of RFC 6581 9.2.
            self.link.begin();
            self.consume(found.len);
            self.note(false)?;
            return Ok(true);
        }
        let ulpdu = &bytes[found.ulpdu.clone()];
        self.last = (first..first + len, len as u16);
        let (segment, header_len) = Segment::decode(ulpdu)?;
        if keys.is_none() && is_response(&segment) {
            self.link.set_unread(true);
            return Ok(false);
        }
        let (at, payload_len) = (first + header_len, len - header_len);
        let arrived = self.inbound.accept(&segment, payload_len)?;
        self.link.begin();
        self.parsed += found.len;
        self.note(payload_len > 0 || ends_something(&arrived))?;
        self.take(arrived, at..at + payload_len, keys)?;
        if self.front.is_none() && self.parts.is_empty() {
            self.start = self.parsed;
        }
        Ok(true)
    }

    /// An FPDU has an effect, or none. One that has none costs its sender less than this side.
    fn note(&mut self, has_effect: bool) -> Result<(), Violation> {
        self.idle = if has_effect { 0 } else { self.idle + 1 };
        let is_allowed = self.idle <= IDLE_MAX;
        if is_allowed { Ok(()) } else { Err(Violation::NoEffect { limit: IDLE_MAX }) }
    }

    /// Skips bytes that are no part of a message.
    fn consume(&mut self, len: usize) {
        self.parsed += len;
        if self.parts.is_empty() {
            self.start = self.parsed;
        }
    }

    /// A segment has come, with its payload in the buffer.
    fn take(
        &mut self,
        arrived: Arrived,
        payload: Range<usize>,
        keys: Option<&KeyCache>,
    ) -> Result<(), Violation> {
        let (at, len) = (payload.start, payload.len());
        let payload = &self.buffer[payload];
        match arrived {
            Arrived::Send { offset, is_last, invalidates, .. } => {
                // An empty segment adds nothing but its end.
                if len > 0 {
                    self.parts.push((at, len));
                }
                if is_last {
                    let op = invalidates.map_or(OP_SEND, |_| OP_SEND_INVALIDATE);
                    let rkey = invalidates.unwrap_or(0);
                    let byte_len = offset + len as u32;
                    self.set_front(Request { op, rkey, byte_len, target: 0 });
                }
            }
            // One of no bytes has no effect, whatever its key. Many connections begin with it.
            Arrived::Write { .. } if len == 0 => {}
            Arrived::Write { stag, to, .. } => {
                self.parts.push((at, len));
                let byte_len = len as u32;
                self.set_front(Request { op: OP_WRITE, rkey: stag, byte_len, target: to });
            }
            Arrived::ReadRequest => {
                let read = ReadRequest::decode(payload)?;
                // A peer that does not take the Responses has copies of them made here.
                if read.len > self.link.message_len {
                    return Err(Violation::Bounds { to: read.source_to, len: read.len });
                }
                if self.sinks.len() >= self.link.terms.ird.max(1) as usize {
                    return Err(Violation::Read);
                }
                self.sinks.push_back((self.next, read));
                self.set_front(Request::of(&read));
            }
            Arrived::ReadResponse { stag, to, is_last } => {
                let Some(keys) = keys else { return Ok(()) };
                let mut reads = self.link.reads();
                reads.check(Response { stag, to, len: len as u32, is_last })?;
                reads.put(stag, payload, is_last, keys);
            }
            Arrived::Terminate => self.link.was_terminated(payload),
        }
        Ok(())
    }

    fn set_front(&mut self, Request { op, rkey, byte_len, target }: Request) {
        let is_short = byte_len as usize <= INLINE_LEN && self.parts.len() <= 1;
        let pieces = u8::from(!is_short);
        let (acks, dst, reserved) = (Acks::default(), self.link.qp_num, 0);
        let header = Header { acks, dst, op, pieces, reserved, byte_len, rkey };
        self.front = Some(Front { header, target });
        self.link.set_paused(true);
    }

    /// The front is not there any more.
    fn pop(&mut self) {
        self.parts.clear();
        self.parts.shrink_to(PARTS_KEPT);
        self.front = None;
        self.start = self.parsed;
        self.next += 1;
        self.parse(None);
        if self.front.is_none() {
            self.link.set_paused(false);
        }
    }

    /// Ends the connection because of the front, with the reason if the peer is to blame.
    #[cold]
    fn end(&self, why: Refusal) {
        let Some(Front { header, target }) = self.front else { return self.link.end() };
        let Header { op, rkey, byte_len, .. } = header;
        match (Request { op, rkey, byte_len, target }).violation(why) {
            Some(why) => self.link.terminate(why, self.last()),
            None => self.link.end(),
        }
    }

    /// The segment that was looked at last, or its beginning, with its length.
    fn last(&self) -> Option<(&[u8], u16)> {
        let (at, len) = &self.last;
        let segment = self.buffer.get(at.clone()).filter(|segment| !segment.is_empty())?;
        Some((segment, *len))
    }
}

// SAFETY: `bytes` and `pull` name bytes of the buffer. While there is a front, nothing moves or
// writes them. There is no withdrawal: the sender has
// no access to this memory. `answer` reads granted memory within the call.
unsafe impl Incoming for Rx {
    const TAKES_IN: bool = true;

    #[inline]
    fn has_news(&self) -> bool {
        let link = &*self.link;
        link.can_flush()
            || self.front.is_none() && (link.has_unread() || link.port.may_read(link.qp_num))
    }

    fn take_in(&mut self, keys: &KeyCache) {
        self.looks = LOOKS_MAX;
        if self.link.can_flush() {
            self.link.flush();
        }
        if self.front.is_some() || self.link.is_over() {
            return;
        }
        if self.link.has_unread() {
            self.parse(Some(keys));
        }
        if self.front.is_none() && self.looks > 0 && self.link.port.may_read(self.link.qp_num) {
            self.receive();
            self.parse(Some(keys));
        }
    }

    #[inline]
    fn front(&self) -> Option<Header> {
        let Front { header, .. } = self.front?;
        Some(Header { acks: Acks::up_to(self.link.taken()), ..header })
    }

    #[inline]
    fn bytes(&self) -> *const u8 {
        let at = self.parts.first().map_or(0, |(at, _)| *at);
        // At most the end of the buffer, behind which there is room for the bytes of a slot.
        self.buffer.as_ptr().wrapping_add(at)
    }

    /// Acks are TCP's: no message behind the front has any.
    #[cold]
    fn peek(&self, _position: u64) -> Option<Header> {
        None
    }

    #[inline]
    fn prefetch_front(&self) {}

    #[cold]
    fn is_cancelled(&self) -> bool {
        false
    }

    #[inline]
    fn target(&self) -> u64 {
        self.front.map_or(0, |front| front.target)
    }

    /// A connection has no delay.
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
        _front: &Header,
        _keys: &KeyCache,
        mut put: impl FnMut(*const u8, usize) -> Result<(), DmaError>,
    ) -> Option<Result<(), DmaError>> {
        let parts = self.parts.iter().filter_map(|(at, len)| self.buffer.get(*at..*at + *len));
        for part in parts {
            if let Err(error) = put(part.as_ptr(), part.len()) {
                return Some(Err(error));
            }
        }
        Some(Ok(()))
    }

    fn answer(
        &self,
        position: u64,
        _read: &Header,
        _keys: &KeyCache,
        from: Granted,
    ) -> Option<Result<(), DmaError>> {
        let (_, sink) = self.sinks.iter().find(|(at, _)| *at == position)?;
        // The connection ends, and Reads that wait are executed though there is no room.
        if !self.can_answer() {
            return None;
        }
        self.link.respond(sink, from);
        Some(Ok(()))
    }

    #[inline]
    fn can_answer(&self) -> bool {
        self.link.has_room()
    }

    fn finish(&mut self, position: u64, outcome: Result<(), Refusal>) {
        let sink = self.sinks.iter().position(|(at, _)| *at == position);
        let sink = sink.and_then(|index| self.sinks.remove(index));
        if let (Err(why), Some((_, read))) = (outcome, sink) {
            match Request::of(&read).violation(why) {
                Some(why) => self.link.terminate(why, None),
                None => self.link.end(),
            }
        }
    }

    #[inline]
    fn release(&mut self) {
        self.pop();
    }

    #[cold]
    fn refuse(&mut self, why: Refusal) {
        self.end(why);
        self.pop();
    }

    /// A connection has no delay.
    #[cold]
    fn stamp_taken(&self, _now_ns: u64) {}

    #[inline]
    fn acks(&self) -> Acks {
        Acks::up_to(self.next)
    }

    /// Nothing is sent to the peer: TCP has acknowledged the bytes.
    #[inline]
    fn announce(&self) {}

    #[inline]
    fn is_closed(&self) -> bool {
        self.link.is_over()
    }
}

/// Whether a segment matters though it has no payload. A Write without any has no effect.
fn ends_something(arrived: &Arrived) -> bool {
    match arrived {
        Arrived::Send { is_last, .. } | Arrived::ReadResponse { is_last, .. } => *is_last,
        Arrived::ReadRequest | Arrived::Terminate => true,
        Arrived::Write { .. } => false,
    }
}

fn is_response(segment: &Segment) -> bool {
    matches!(segment, Segment::Tagged(tagged) if tagged.op == TaggedOp::ReadResponse)
}

/// FPDUs that a poll looks at. As many of a whole frame of Ethernet come in several polls.
const LOOKS_MAX: u32 = 1024;
/// FPDUs without effect that a peer may send in a row. A connection begins with one.
const IDLE_MAX: u32 = 64;
/// Parts of a message that are expected.
const PARTS: usize = 128;
/// Room for parts that is kept for the next message.
const PARTS_KEPT: usize = 32 * PARTS;
