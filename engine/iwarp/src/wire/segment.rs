//! A DDP segment: its header, with RDMAP's part in it (RFC 5041 4, RFC 5040 4).
//!
//! ```text
//!   0        2        6                 14        18
//!   +--------+--------+--------+--------+--------+
//!   | control| STag   | tagged offset   | payload              tagged: Write, Read Response
//!   +--------+--------+--------+--------+--------+--------+
//!   | control| STag to| queue  | message| message| payload     untagged: all others
//!   |        | inval. | number | number | offset |
//!   +--------+--------+--------+--------+--------+
//!
//!   control: T 0x8000 tagged, L 0x4000 last segment of its message, 0x0300 version of DDP,
//!            0x00c0 version of RDMAP, 0x000f operation; the rest is reserved, and ignored
//! ```

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute};

use crate::wire::violation::Violation;

/// Bytes of the header of a tagged segment. No segment is shorter.
pub const TAGGED_LEN: usize = 14;

/// Bytes of the header of an untagged segment.
pub const UNTAGGED_LEN: usize = 18;

/// Bytes of the payload of a Read Request.
pub const READ_REQUEST_LEN: usize = 28;

/// The queue of Sends.
pub const QUEUE_SEND: u32 = 0;

/// The queue of Read Requests.
pub const QUEUE_READ: u32 = 1;

/// The queue of the Terminate message.
pub const QUEUE_TERMINATE: u32 = 2;

/// The header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment {
    /// The next bytes of a message in a queue.
    Untagged(Untagged),
    /// Bytes for memory that a key names.
    Tagged(Tagged),
}

/// The header of an untagged segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Untagged {
    /// The operation of the message.
    pub op: UntaggedOp,
    /// The message ends with this segment.
    pub is_last: bool,
    /// The key to invalidate, if the operation states so; otherwise 0 is sent, and any value
    /// ignored.
    pub invalidates: u32,
    /// The queue, which fits the operation.
    pub queue: u32,
    /// The number of the message in its queue (MSN), from 1.
    pub number: u32,
    /// The bytes of the message before this segment (MO).
    pub offset: u32,
}

/// The header of a tagged segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tagged {
    /// The operation of the message.
    pub op: TaggedOp,
    /// The message ends with this segment.
    pub is_last: bool,
    /// The key.
    pub stag: u32,
    /// Where the payload goes, in the key's addresses.
    pub to: u64,
}

/// The operations of untagged messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum UntaggedOp {
    /// RDMA Read Request.
    ReadRequest = 1,
    /// Send.
    Send = 3,
    /// Send with Invalidate.
    SendInvalidate = 4,
    /// Send with Solicited Event.
    SendSolicited = 5,
    /// Send with Solicited Event and Invalidate.
    SendInvalidateSolicited = 6,
    /// Terminate.
    Terminate = 7,
}

/// The operations of tagged messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum TaggedOp {
    /// RDMA Write.
    Write = 0,
    /// RDMA Read Response.
    ReadResponse = 2,
}

/// The payload of an RDMA Read Request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadRequest {
    /// The key that the Read Response writes to.
    pub sink_stag: u32,
    /// The first byte that it writes.
    pub sink_to: u64,
    /// The number of bytes to read.
    pub len: u32,
    /// The key to read from.
    pub source_stag: u32,
    /// The first byte to read.
    pub source_to: u64,
}

impl Segment {
    /// Reads the header at the start of `ulpdu`. The second value is its length: the payload follows.
    ///
    /// # Errors
    ///
    /// A segment that is too short for its header, another version, an operation that does not
    /// exist, or a queue or kind of segment that does not fit the operation.
    pub fn decode(ulpdu: &[u8]) -> Result<(Self, usize), Violation> {
        let (tagged, _) = TaggedWire::ref_from_prefix(ulpdu).map_err(|_| too_short(ulpdu))?;
        let control = tagged.control.get();
        check_versions(control)?;
        let op = (control & OPCODE) as u8;
        let is_last = control & LAST != 0;
        if control & TAGGED != 0 {
            let op = TaggedOp::of(op).ok_or(Violation::Opcode(op))?;
            let (stag, to) = (tagged.stag.get(), tagged.to.get());
            return Ok((Self::Tagged(Tagged { op, is_last, stag, to }), TAGGED_LEN));
        }
        let op = UntaggedOp::of(op).ok_or(Violation::Opcode(op))?;
        let (wire, _) = UntaggedWire::ref_from_prefix(ulpdu).map_err(|_| too_short(ulpdu))?;
        let queue = wire.queue.get();
        if queue != op.queue() {
            return Err(Violation::Queue(queue));
        }
        let untagged = Untagged {
            op,
            is_last,
            invalidates: wire.invalidates.get(),
            queue,
            number: wire.number.get(),
            offset: wire.offset.get(),
        };
        Ok((Self::Untagged(untagged), UNTAGGED_LEN))
    }
}

impl Untagged {
    /// The bytes on the wire.
    pub fn encode(&self) -> [u8; UNTAGGED_LEN] {
        transmute!(UntaggedWire {
            control: control(self.op as u8, self.is_last).into(),
            invalidates: self.invalidates.into(),
            queue: self.queue.into(),
            number: self.number.into(),
            offset: self.offset.into(),
        })
    }
}

impl Tagged {
    /// The bytes on the wire.
    pub fn encode(&self) -> [u8; TAGGED_LEN] {
        transmute!(TaggedWire {
            control: (TAGGED | control(self.op as u8, self.is_last)).into(),
            stag: self.stag.into(),
            to: self.to.into(),
        })
    }
}

impl UntaggedOp {
    const fn of(opcode: u8) -> Option<Self> {
        Some(match opcode {
            1 => Self::ReadRequest,
            3 => Self::Send,
            4 => Self::SendInvalidate,
            5 => Self::SendSolicited,
            6 => Self::SendInvalidateSolicited,
            7 => Self::Terminate,
            _ => return None,
        })
    }

    /// The queue that the operation's messages are in.
    pub const fn queue(self) -> u32 {
        match self {
            Self::ReadRequest => QUEUE_READ,
            Self::Terminate => QUEUE_TERMINATE,
            _ => QUEUE_SEND,
        }
    }

    /// The message invalidates a key.
    pub const fn does_invalidate(self) -> bool {
        matches!(self, Self::SendInvalidate | Self::SendInvalidateSolicited)
    }

    /// The message asks for an event.
    pub const fn is_solicited(self) -> bool {
        matches!(self, Self::SendSolicited | Self::SendInvalidateSolicited)
    }
}

impl TaggedOp {
    const fn of(opcode: u8) -> Option<Self> {
        Some(match opcode {
            0 => Self::Write,
            2 => Self::ReadResponse,
            _ => return None,
        })
    }
}

impl ReadRequest {
    /// Reads the payload of a Read Request.
    ///
    /// # Errors
    ///
    /// A payload that is not 28 bytes long.
    pub fn decode(payload: &[u8]) -> Result<Self, Violation> {
        let wire = ReadRequestWire::ref_from_bytes(payload).map_err(|_| Violation::Read)?;
        Ok(Self {
            sink_stag: wire.sink_stag.get(),
            sink_to: wire.sink_to.get(),
            len: wire.len.get(),
            source_stag: wire.source_stag.get(),
            source_to: wire.source_to.get(),
        })
    }

    /// The bytes on the wire.
    pub fn encode(&self) -> [u8; READ_REQUEST_LEN] {
        transmute!(ReadRequestWire {
            sink_stag: self.sink_stag.into(),
            sink_to: self.sink_to.into(),
            len: self.len.into(),
            source_stag: self.source_stag.into(),
            source_to: self.source_to.into(),
        })
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct TaggedWire {
    control: U16,
    stag: U32,
    to: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct UntaggedWire {
    control: U16,
    invalidates: U32,
    queue: U32,
    number: U32,
    offset: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ReadRequestWire {
    sink_stag: U32,
    sink_to: U64,
    len: U32,
    source_stag: U32,
    source_to: U64,
}

fn check_versions(control: u16) -> Result<(), Violation> {
    if control & VERSIONS == VERSIONS_1 {
        return Ok(());
    }
    let ddp = (control >> 8 & 3) as u8;
    if ddp != 1 {
        return Err(Violation::DdpVersion { version: ddp, is_tagged: control & TAGGED != 0 });
    }
    Err(Violation::RdmapVersion((control >> 6 & 3) as u8))
}

/// The control word of an untagged segment.
const fn control(opcode: u8, is_last: bool) -> u16 {
    VERSIONS_1 | opcode as u16 | if is_last { LAST } else { 0 }
}

#[cold]
fn too_short(ulpdu: &[u8]) -> Violation {
    Violation::FpduLength(u16::try_from(ulpdu.len()).unwrap_or(u16::MAX))
}

const TAGGED: u16 = 0x8000;
const LAST: u16 = 0x4000;
const VERSIONS: u16 = 0x03c0;
const VERSIONS_1: u16 = 0x0140;
const OPCODE: u16 = 0x000f;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// What siw sends, and what it means.
    fn golden() -> [(&'static [u8], Segment); 5] {
        let untagged = |op, is_last, invalidates, queue, number, offset| {
            Segment::Untagged(Untagged { op, is_last, invalidates, queue, number, offset })
        };
        [
            (
                &[0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0],
                untagged(UntaggedOp::Send, true, 0, QUEUE_SEND, 1, 0),
            ),
            (
                &[0x01, 0x46, 0, 0, 0x0b, 0x2a, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x05, 0x9c],
                untagged(UntaggedOp::SendInvalidateSolicited, false, 0xb2a, QUEUE_SEND, 256, 1436),
            ),
            (
                &[0x41, 0x41, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0],
                untagged(UntaggedOp::ReadRequest, true, 0, QUEUE_READ, 2, 0),
            ),
            (
                &[0xc1, 0x40, 0, 0, 0x12, 0x34, 0, 0, 0x7f, 0, 0, 0, 0x10, 0],
                Segment::Tagged(Tagged {
                    op: TaggedOp::Write,
                    is_last: true,
                    stag: 0x1234,
                    to: 0x7f00_0000_1000,
                }),
            ),
            (
                &[0x81, 0x42, 0, 0, 0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 1],
                Segment::Tagged(Tagged {
                    op: TaggedOp::ReadResponse,
                    is_last: false,
                    stag: 0x1234,
                    to: 1,
                }),
            ),
        ]
    }

    fn encode(segment: &Segment) -> Vec<u8> {
        match segment {
            Segment::Untagged(untagged) => untagged.encode().to_vec(),
            Segment::Tagged(tagged) => tagged.encode().to_vec(),
        }
    }

    #[test]
    fn golden_headers_are_decoded_and_encoded() {
        for (bytes, segment) in golden() {
            let ulpdu = [bytes, b"payload"].concat();
            assert_eq!(Segment::decode(&ulpdu), Ok((segment, bytes.len())));
            assert_eq!(encode(&segment), bytes);
        }
    }

    #[test]
    fn a_truncated_header_is_too_short() {
        for (bytes, _) in golden() {
            for len in 0..bytes.len() {
                let why = Segment::decode(&bytes[..len]);
                assert_eq!(why, Err(Violation::FpduLength(len as u16)));
            }
        }
    }

    #[test]
    fn every_changed_bit_is_refused_reserved_or_seen() {
        for (bytes, segment) in golden() {
            for bit in 0..8 * bytes.len() {
                let mut bytes = bytes.to_vec();
                bytes[bit / 8] ^= 0x80 >> (bit % 8);
                let Ok((changed, _)) = Segment::decode(&bytes) else { continue };
                let is_reserved = matches!(bit, 2..6 | 10..12);
                assert_eq!(changed == segment, is_reserved, "bit {bit} of {segment:?}");
            }
        }
    }

    #[test]
    fn operations_fit_their_kind_of_segment_and_their_queue() {
        for opcode in 0..16 {
            let tagged: [u8; 14] = std::array::from_fn(|at| [0x81, 0x40 | opcode][at.min(1)]);
            match Segment::decode(&tagged) {
                Ok(_) => assert!(matches!(opcode, 0 | 2)),
                Err(why) => assert_eq!(why, Violation::Opcode(opcode)),
            }
            for queue in [0, 1, 2, 3, u32::MAX] {
                let mut untagged = [0; UNTAGGED_LEN];
                untagged[..2].copy_from_slice(&[1, 0x40 | opcode]);
                untagged[6..10].copy_from_slice(&u32::to_be_bytes(queue));
                match Segment::decode(&untagged) {
                    Ok(_) => {
                        assert!(matches!((opcode, queue), (1, 1) | (3..=6, 0) | (7, 2)));
                    }
                    Err(Violation::Opcode(of)) => {
                        assert_eq!(of, opcode);
                        assert!(matches!(opcode, 0 | 2 | 8..));
                    }
                    Err(why) => assert_eq!(why, Violation::Queue(queue)),
                }
            }
        }
    }

    #[test]
    fn other_versions_are_refused() {
        for (bytes, segment) in golden() {
            let is_tagged = matches!(segment, Segment::Tagged(_));
            for version in [0, 2, 3] {
                let mut ddp = bytes.to_vec();
                ddp[0] = ddp[0] & !3 | version;
                let why = Violation::DdpVersion { version, is_tagged };
                assert_eq!(Segment::decode(&ddp), Err(why));
                let mut rdmap = bytes.to_vec();
                rdmap[1] = rdmap[1] & !0xc0 | version << 6;
                assert_eq!(Segment::decode(&rdmap), Err(Violation::RdmapVersion(version)));
            }
        }
    }

    #[test]
    fn a_golden_read_request_is_decoded_and_encoded() {
        let bytes = [
            0, 0, 0x12, 0x34, 0, 0, 0x7f, 0, 0, 0, 0x10, 0, // sink
            0, 0, 0x20, 0, // 8192 bytes
            0, 0, 0x56, 0x78, 0, 0, 0, 0, 0, 0, 0, 9, // source
        ];
        let request = ReadRequest {
            sink_stag: 0x1234,
            sink_to: 0x7f00_0000_1000,
            len: 8192,
            source_stag: 0x5678,
            source_to: 9,
        };
        assert_eq!(ReadRequest::decode(&bytes), Ok(request));
        assert_eq!(request.encode(), bytes);
        for len in 0..bytes.len() {
            assert_eq!(ReadRequest::decode(&bytes[..len]), Err(Violation::Read));
        }
        assert_eq!(ReadRequest::decode(&[&bytes[..], &[0]].concat()), Err(Violation::Read));
    }

    proptest! {
        #[test]
        fn what_is_decoded_is_encoded_but_for_reserved_bits(
            bytes in vec(any::<u8>(), 0..40),
            opcode in 0_u8..8,
        ) {
            let mut bytes = bytes;
            if let [high, low, ..] = &mut bytes[..] {
                *high = *high & !3 | 1;
                *low = 0x40 | opcode;
            }
            if let Some(queue) = bytes.get_mut(6..10) {
                queue.copy_from_slice(&[0, 0, 0, queue[3] % 4]);
            }
            if let Ok((segment, len)) = Segment::decode(&bytes) {
                bytes[0] &= 0xc3;
                prop_assert_eq!(&encode(&segment), &bytes[..len]);
            }
        }
    }
}
