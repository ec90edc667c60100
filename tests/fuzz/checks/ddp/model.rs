//! A model of the order of segments: the rules of RFC 5041 5, derived from all that was accepted.

use rpcrdma_iwarp::wire::inbound::Arrived;
use rpcrdma_iwarp::wire::segment::{Segment, TaggedOp, Untagged, UntaggedOp};
use rpcrdma_iwarp::wire::violation::Violation;

/// All untagged segments that were accepted, with the lengths of their payloads.
pub struct Model {
    message_len_max: u32,
    history: Vec<(Untagged, u32)>,
}

impl Model {
    /// A connection on which nothing has arrived.
    pub fn new(message_len_max: u32) -> Self {
        Self { message_len_max, history: Vec::new() }
    }

    /// Takes the next segment, if it is lawful.
    pub fn accept(&mut self, segment: &Segment, payload_len: u32) -> Result<Arrived, Violation> {
        let untagged = match segment {
            Segment::Untagged(untagged) => *untagged,
            Segment::Tagged(tagged) => {
                let (stag, to, is_last) = (tagged.stag, tagged.to, tagged.is_last);
                if u128::from(to) + u128::from(payload_len) > u128::from(u64::MAX) {
                    return Err(Violation::Bounds { to, len: payload_len });
                }
                return Ok(match tagged.op {
                    TaggedOp::Write if self.is_within_send() => {
                        return Err(Violation::Opcode(0));
                    }
                    TaggedOp::Write => Arrived::Write { stag, to, is_last },
                    TaggedOp::ReadResponse => Arrived::ReadResponse { stag, to, is_last },
                });
            }
        };
        if let Some(why) = self.wrong(&untagged, payload_len) {
            return Err(why);
        }
        self.history.push((untagged, payload_len));
        Ok(match untagged.op {
            UntaggedOp::ReadRequest => Arrived::ReadRequest,
            UntaggedOp::Terminate => Arrived::Terminate,
            op => Arrived::Send {
                offset: untagged.offset,
                is_last: untagged.is_last,
                invalidates: invalidates(op).then_some(untagged.invalidates),
                is_solicited: [UntaggedOp::SendSolicited, UntaggedOp::SendInvalidateSolicited]
                    .contains(&op),
            },
        })
    }

    /// The number and the offset of the next segment of `queue`.
    pub fn next(&self, queue: u32) -> (u32, u32) {
        let ended = self.of(queue).filter(|(segment, _)| segment.is_last).count();
        let offset = self.unfinished(queue).iter().map(|(_, len)| len).sum();
        (1 + ended as u32, offset)
    }

    /// The operation of the Send that has begun and not ended, and the key in it.
    pub fn open(&self) -> Option<(UntaggedOp, u32)> {
        let (first, _) = *self.unfinished(0).first()?;
        Some((first.op, first.invalidates))
    }

    /// A Send has begun and not ended.
    pub fn is_within_send(&self) -> bool {
        self.open().is_some()
    }

    fn wrong(&self, segment: &Untagged, payload_len: u32) -> Option<Violation> {
        let (number, offset) = self.next(segment.queue);
        if segment.number != number {
            return Some(Violation::MessageNumber { given: segment.number, expected: number });
        }
        if segment.offset != offset {
            return Some(Violation::MessageOffset { given: segment.offset, expected: offset });
        }
        match segment.op {
            UntaggedOp::ReadRequest if self.is_within_send() => Some(Violation::Opcode(1)),
            UntaggedOp::ReadRequest => {
                (!segment.is_last || payload_len != 28).then_some(Violation::Read)
            }
            UntaggedOp::Terminate => (!segment.is_last).then_some(Violation::TooLong),
            op => {
                if let Some((first, key)) = self.open() {
                    if first != op {
                        return Some(Violation::Opcode(op as u8));
                    }
                    if invalidates(op) && key != segment.invalidates {
                        return Some(Violation::Invalidation(segment.invalidates));
                    }
                }
                let len = u64::from(offset) + u64::from(payload_len);
                (len > u64::from(self.message_len_max)).then_some(Violation::TooLong)
            }
        }
    }

    /// The segments of the message of `queue` that has begun and not ended.
    fn unfinished(&self, queue: u32) -> Vec<(Untagged, u32)> {
        let mut segments: Vec<_> = self.of(queue).collect();
        let ended = segments.iter().rposition(|(segment, _)| segment.is_last);
        segments.drain(..ended.map_or(0, |last| last + 1));
        segments
    }

    fn of(&self, queue: u32) -> impl DoubleEndedIterator<Item = (Untagged, u32)> {
        self.history.iter().copied().filter(move |(segment, _)| segment.queue == queue)
    }
}

fn invalidates(op: UntaggedOp) -> bool {
    [UntaggedOp::SendInvalidate, UntaggedOp::SendInvalidateSolicited].contains(&op)
}
