//! The order of what arrives on one connection (RFC 5041 5, RFC 5040 5).
//!
//! ```text
//!   queue 0   Send 1: 0.. 1000.. 2000.. last │ Send 2: 0.. last │ …   any length up to a maximum
//!   queue 1   Read Request 1 │ Read Request 2 │ …                     one segment of 28 bytes
//!   queue 2   Terminate 1                                             one segment
//!   tagged    Writes, between Sends; Read Responses, anywhere
//! ```
//!
//! TCP keeps the order, so numbers and offsets have no gaps. A peer transmits its messages in the
//! order in which they were posted (RFC 5041 5.3), so neither a Write nor a Read Request comes
//! between the segments of a Send. Two others may: a Read Response was not posted, and a peer that
//! fails within a Send reports that by a Terminate.
//!
//! Keys and rights are checked by the owner of the memory, Read Responses against their requests.

use crate::wire::segment::{READ_REQUEST_LEN, Segment, Tagged, TaggedOp, Untagged, UntaggedOp};
use crate::wire::violation::Violation;

/// The order of what arrives on one connection.
#[derive(Debug, Clone)]
pub struct Inbound {
    message_len_max: u32,
    /// The Send that has begun and not ended.
    open: Option<Open>,
    /// The bytes of it so far, else 0.
    offset: u32,
    /// The numbers of the next, or open, message of queues 0, 1 and 2.
    sends: u32,
    read_requests: u32,
    terminates: u32,
}

/// What the payload of a segment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrived {
    /// The next bytes of a Send.
    Send {
        /// The bytes of the message before these.
        offset: u32,
        /// The message is whole.
        is_last: bool,
        /// The key that it invalidates, the same in all its segments.
        invalidates: Option<u32>,
        /// It asks for an event.
        is_solicited: bool,
    },
    /// A [`ReadRequest`](crate::wire::segment::ReadRequest).
    ReadRequest,
    /// A [`Terminate`](crate::wire::terminate::Terminate).
    Terminate,
    /// Bytes of an RDMA Write. Their end does not wrap. If there are none, the key means nothing.
    Write {
        /// The key.
        stag: u32,
        /// Where they go.
        to: u64,
        /// The Write is whole.
        is_last: bool,
    },
    /// Bytes of a Read Response. Their end does not wrap.
    ReadResponse {
        /// The key that the Read Request named as its sink.
        stag: u32,
        /// Where they go.
        to: u64,
        /// The response is whole.
        is_last: bool,
    },
}

/// What all segments of a Send have in common.
#[derive(Debug, Clone, Copy)]
struct Open {
    op: UntaggedOp,
    invalidates: Option<u32>,
}

impl Inbound {
    /// A connection on which nothing has arrived, and no Send is longer than `message_len_max`.
    pub const fn new(message_len_max: u32) -> Self {
        Self {
            message_len_max,
            open: None,
            offset: 0,
            sends: FIRST,
            read_requests: FIRST,
            terminates: FIRST,
        }
    }

    /// Takes the next segment of the stream, which has `payload_len` bytes after its header.
    ///
    /// # Errors
    ///
    /// A segment that is out of order, or too long. Nothing has changed then.
    pub fn accept(&mut self, segment: &Segment, payload_len: usize) -> Result<Arrived, Violation> {
        match segment {
            Segment::Tagged(tagged) => self.accept_tagged(tagged, payload_len),
            Segment::Untagged(untagged) => match untagged.op {
                UntaggedOp::ReadRequest => self.accept_read_request(untagged, payload_len),
                UntaggedOp::Terminate => self.accept_terminate(untagged),
                _ => self.accept_send(untagged, payload_len),
            },
        }
    }

    /// A Send has begun and not ended.
    pub const fn is_within_send(&self) -> bool {
        self.open.is_some()
    }

    fn accept_send(
        &mut self,
        segment: &Untagged,
        payload_len: usize,
    ) -> Result<Arrived, Violation> {
        check_order(segment, self.sends, self.offset)?;
        let Untagged { op, is_last, offset, .. } = *segment;
        let invalidates = op.does_invalidate().then_some(segment.invalidates);
        if let Some(open) = self.open {
            // RFC 5041 4.3: all segments of a message have the same RsvdULP, which has both.
            if open.op != op {
                return Err(Violation::Opcode(op as u8));
            }
            if open.invalidates != invalidates {
                return Err(Violation::Invalidation(segment.invalidates));
            }
        }
        let end = u32::try_from(payload_len).ok().and_then(|len| offset.checked_add(len));
        let end = end.filter(|&end| end <= self.message_len_max).ok_or(Violation::TooLong)?;
        if is_last {
            self.open = None;
            self.offset = 0;
            self.sends = self.sends.wrapping_add(1);
        } else {
            self.open = Some(Open { op, invalidates });
            self.offset = end;
        }
        Ok(Arrived::Send { offset, is_last, invalidates, is_solicited: op.is_solicited() })
    }

    fn accept_read_request(
        &mut self,
        segment: &Untagged,
        payload_len: usize,
    ) -> Result<Arrived, Violation> {
        check_order(segment, self.read_requests, 0)?;
        self.check_between_sends(segment.op as u8)?;
        if !segment.is_last || payload_len != READ_REQUEST_LEN {
            return Err(Violation::Read);
        }
        self.read_requests = self.read_requests.wrapping_add(1);
        Ok(Arrived::ReadRequest)
    }

    fn accept_terminate(&mut self, segment: &Untagged) -> Result<Arrived, Violation> {
        check_order(segment, self.terminates, 0)?;
        // RFC 5040 4.8: a Terminate message is a single segment.
        if !segment.is_last {
            return Err(Violation::TooLong);
        }
        self.terminates = self.terminates.wrapping_add(1);
        Ok(Arrived::Terminate)
    }

    fn accept_tagged(&self, segment: &Tagged, payload_len: usize) -> Result<Arrived, Violation> {
        let Tagged { op, is_last, stag, to } = *segment;
        let len = u32::try_from(payload_len).unwrap_or(u32::MAX);
        to.checked_add(len.into()).ok_or(Violation::Bounds { to, len })?;
        if op == TaggedOp::ReadResponse {
            return Ok(Arrived::ReadResponse { stag, to, is_last });
        }
        self.check_between_sends(op as u8)?;
        Ok(Arrived::Write { stag, to, is_last })
    }

    fn check_between_sends(&self, opcode: u8) -> Result<(), Violation> {
        if self.is_within_send() { Err(Violation::Opcode(opcode)) } else { Ok(()) }
    }
}

fn check_order(segment: &Untagged, number: u32, offset: u32) -> Result<(), Violation> {
    if segment.number != number {
        return Err(Violation::MessageNumber { given: segment.number, expected: number });
    }
    if segment.offset != offset {
        return Err(Violation::MessageOffset { given: segment.offset, expected: offset });
    }
    Ok(())
}

/// The number of the first message of a queue.
const FIRST: u32 = 1;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::wire::segment::{QUEUE_READ, QUEUE_SEND, QUEUE_TERMINATE};

    const MAX: u32 = 1000;

    const READ: Segment = untagged(UntaggedOp::ReadRequest, QUEUE_READ, 1, 0, true);
    const TERMINATE: Segment = untagged(UntaggedOp::Terminate, QUEUE_TERMINATE, 1, 0, true);

    const fn untagged(
        op: UntaggedOp,
        queue: u32,
        number: u32,
        offset: u32,
        is_last: bool,
    ) -> Segment {
        Segment::Untagged(Untagged { op, is_last, invalidates: 0, queue, number, offset })
    }

    const fn send(number: u32, offset: u32, is_last: bool) -> Segment {
        untagged(UntaggedOp::Send, QUEUE_SEND, number, offset, is_last)
    }

    const fn invalidating(invalidates: u32, offset: u32, is_last: bool) -> Segment {
        let op = UntaggedOp::SendInvalidate;
        Segment::Untagged(Untagged { op, is_last, invalidates, queue: 0, number: 1, offset })
    }

    const fn tagged(op: TaggedOp, to: u64) -> Segment {
        Segment::Tagged(Tagged { op, is_last: true, stag: 5, to })
    }

    /// An `Inbound` that has taken these.
    fn after(segments: &[(Segment, usize)]) -> Inbound {
        let mut inbound = Inbound::new(MAX);
        for (segment, len) in segments {
            inbound.accept(segment, *len).expect("it is in order");
        }
        inbound
    }

    fn error(segments: &[(Segment, usize)], segment: Segment, len: usize) -> Violation {
        after(segments).accept(&segment, len).expect_err("it is out of order")
    }

    #[test]
    fn sends_arrive_in_the_order_of_their_numbers() {
        let mut inbound = after(&[(send(1, 0, true), 10), (send(2, 0, true), 0)]);
        let number = |given, expected| Err(Violation::MessageNumber { given, expected });
        assert_eq!(inbound.accept(&send(2, 0, true), 0), number(2, 3));
        assert_eq!(inbound.accept(&send(4, 0, true), 0), number(4, 3));
        assert!(inbound.accept(&send(3, 0, true), 0).is_ok());
        assert_eq!(error(&[], send(0, 0, true), 0), number(0, 1).unwrap_err());
    }

    #[test]
    fn numbers_wrap() {
        let mut inbound = Inbound { sends: u32::MAX, ..Inbound::new(MAX) };
        assert!(inbound.accept(&send(u32::MAX, 0, true), 1).is_ok());
        assert!(inbound.accept(&send(0, 0, true), 1).is_ok());
        assert!(inbound.accept(&send(1, 0, true), 1).is_ok());
    }

    #[test]
    fn segments_of_a_send_follow_each_other() {
        let begun = [(send(1, 0, false), 400)];
        let offset = |given, expected| Violation::MessageOffset { given, expected };
        for given in [0, 399, 401] {
            assert_eq!(error(&begun, send(1, given, true), 1), offset(given, 400));
        }
        assert_eq!(error(&[], send(1, 1, true), 1), offset(1, 0));
        let mut inbound = after(&begun);
        assert!(inbound.is_within_send());
        let last = inbound.accept(&send(1, 400, true), 600);
        let expected =
            Arrived::Send { offset: 400, is_last: true, invalidates: None, is_solicited: false };
        assert_eq!(last, Ok(expected));
        assert!(!inbound.is_within_send());
    }

    #[test]
    fn a_send_does_not_begin_inside_another() {
        let why = error(&[(send(1, 0, false), 400)], send(2, 0, true), 1);
        assert_eq!(why, Violation::MessageNumber { given: 2, expected: 1 });
    }

    #[test]
    fn all_segments_of_a_send_have_its_operation_and_key() {
        let begun = [(invalidating(7, 0, false), 1)];
        assert!(after(&begun).accept(&invalidating(7, 1, true), 1).is_ok());
        assert_eq!(error(&begun, invalidating(8, 1, true), 1), Violation::Invalidation(8));
        assert_eq!(error(&begun, send(1, 1, true), 1), Violation::Opcode(3));
        // A Send that invalidates nothing may have anything there.
        let segment = Untagged {
            op: UntaggedOp::SendSolicited,
            is_last: false,
            invalidates: 7,
            queue: QUEUE_SEND,
            number: 1,
            offset: 0,
        };
        let mut inbound = after(&[(Segment::Untagged(segment), 1)]);
        let last = Untagged { invalidates: 8, offset: 1, is_last: true, ..segment };
        let expected =
            Arrived::Send { offset: 1, is_last: true, invalidates: None, is_solicited: true };
        assert_eq!(inbound.accept(&Segment::Untagged(last), 1), Ok(expected));
    }

    #[test]
    fn each_send_says_what_it_invalidates_and_whether_it_is_solicited() {
        let ops = [
            (UntaggedOp::Send, None, false),
            (UntaggedOp::SendInvalidate, Some(7), false),
            (UntaggedOp::SendSolicited, None, true),
            (UntaggedOp::SendInvalidateSolicited, Some(7), true),
        ];
        for (op, invalidates, is_solicited) in ops {
            let number = 1;
            let segment = Untagged {
                op,
                is_last: true,
                invalidates: 7,
                queue: QUEUE_SEND,
                number,
                offset: 0,
            };
            let expected = Arrived::Send { offset: 0, is_last: true, invalidates, is_solicited };
            assert_eq!(after(&[]).accept(&Segment::Untagged(segment), 1), Ok(expected));
        }
    }

    #[test]
    fn a_send_has_at_most_the_agreed_length() {
        assert!(after(&[]).accept(&send(1, 0, true), 1000).is_ok());
        assert_eq!(error(&[], send(1, 0, true), 1001), Violation::TooLong);
        assert_eq!(error(&[], send(1, 0, false), usize::MAX), Violation::TooLong);
        let begun = [(send(1, 0, false), 999)];
        assert!(after(&begun).accept(&send(1, 999, true), 1).is_ok());
        assert_eq!(error(&begun, send(1, 999, true), 2), Violation::TooLong);
    }

    #[test]
    fn what_is_refused_changes_nothing() {
        let mut inbound = after(&[(send(1, 0, false), 999)]);
        assert!(inbound.accept(&send(1, 999, false), 2).is_err());
        assert!(inbound.accept(&send(1, 999, true), 1).is_ok());
    }

    #[test]
    fn read_responses_and_a_terminate_come_inside_a_send() {
        let mut inbound = after(&[(send(1, 0, false), 400)]);
        let response = Arrived::ReadResponse { stag: 5, to: 9, is_last: true };
        assert_eq!(inbound.accept(&tagged(TaggedOp::ReadResponse, 9), 100), Ok(response));
        assert_eq!(inbound.accept(&TERMINATE, 4), Ok(Arrived::Terminate));
        assert!(inbound.accept(&send(1, 400, true), 1).is_ok());
    }

    #[test]
    fn writes_and_read_requests_come_between_sends() {
        let write = tagged(TaggedOp::Write, 9);
        let mut inbound = after(&[(send(1, 0, false), 400)]);
        assert_eq!(inbound.accept(&write, 100), Err(Violation::Opcode(0)));
        assert_eq!(inbound.accept(&READ, 28), Err(Violation::Opcode(1)));
        assert!(inbound.accept(&send(1, 400, true), 1).is_ok());
        let arrived = Arrived::Write { stag: 5, to: 9, is_last: true };
        assert_eq!(inbound.accept(&write, 100), Ok(arrived));
        assert_eq!(inbound.accept(&READ, 28), Ok(Arrived::ReadRequest));
    }

    #[test]
    fn a_read_request_is_one_segment_of_its_length() {
        assert_eq!(error(&[], READ, 27), Violation::Read);
        assert_eq!(error(&[], READ, 29), Violation::Read);
        let part = untagged(UntaggedOp::ReadRequest, QUEUE_READ, 1, 0, false);
        assert_eq!(error(&[], part, 28), Violation::Read);
        let number = Violation::MessageNumber { given: 1, expected: 2 };
        assert_eq!(error(&[(READ, 28)], READ, 28), number);
        let moved = untagged(UntaggedOp::ReadRequest, QUEUE_READ, 1, 4, true);
        assert_eq!(error(&[], moved, 28), Violation::MessageOffset { given: 4, expected: 0 });
    }

    #[test]
    fn there_is_one_terminate_of_one_segment() {
        let part = untagged(UntaggedOp::Terminate, QUEUE_TERMINATE, 1, 0, false);
        assert_eq!(error(&[], part, 4), Violation::TooLong);
        let number = Violation::MessageNumber { given: 1, expected: 2 };
        assert_eq!(error(&[(TERMINATE, 4)], TERMINATE, 4), number);
    }

    #[test]
    fn a_tagged_offset_does_not_wrap() {
        let last = u64::MAX - 10;
        for op in [TaggedOp::Write, TaggedOp::ReadResponse] {
            assert!(after(&[]).accept(&tagged(op, last), 10).is_ok());
            let why = Violation::Bounds { to: last, len: 11 };
            assert_eq!(error(&[], tagged(op, last), 11), why);
        }
    }

    proptest! {
        /// Messages of any length, cut anywhere, with others between them and inside.
        #[test]
        fn a_lawful_stream_is_accepted_whole(
            sends in vec(vec(0_u32..200, 1..5), 0..20),
            reads in vec(any::<bool>(), 20),
        ) {
            let mut inbound = Inbound::new(MAX);
            let mut read_number = 0;
            for (index, parts) in sends.iter().enumerate() {
                if reads[index] {
                    read_number += 1;
                    let read =
                        untagged(UntaggedOp::ReadRequest, QUEUE_READ, read_number, 0, true);
                    prop_assert_eq!(inbound.accept(&read, 28), Ok(Arrived::ReadRequest));
                }
                let mut offset = 0;
                for (part, len) in parts.iter().enumerate() {
                    let response = tagged(TaggedOp::ReadResponse, offset.into());
                    prop_assert!(inbound.accept(&response, 100).is_ok());
                    let is_last = part + 1 == parts.len();
                    let segment = send(1 + index as u32, offset, is_last);
                    let expected =
                        Arrived::Send { offset, is_last, invalidates: None, is_solicited: false };
                    prop_assert_eq!(inbound.accept(&segment, *len as usize), Ok(expected));
                    offset += len;
                }
            }
        }
    }
}
