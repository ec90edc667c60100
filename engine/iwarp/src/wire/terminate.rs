//! The Terminate message: why a connection ends (RFC 5040 4.8).
//!
//! ```text
//!   0        1        2                 4            6                   6 + 14 or 18      + 28
//!   +----+---+--------+-----------------+------------+-------------------+-----------------+
//!   | la-|   |        | M D R, reserved | length of  | its header        | its payload, if |
//!   | yer|kind code   |                 | a segment  |                   | a Read Request  |
//!   +----+---+--------+-----------------+------------+-------------------+-----------------+
//!                       0x8000 M ───────── is there    ── D 0x4000         ── R 0x2000
//! ```
//!
//! Linux's siw on little-endian machines lays the first three bytes out from their low ends: layer
//! and kind are exchanged, and M, D and R are the lowest bits of the third byte, which the standard
//! reserves. [`Terminate::decode`] knows such a message by those bits.

use std::fmt::{self, Display, Formatter};

use arrayvec::ArrayVec;

use crate::wire::segment::{READ_REQUEST_LEN, Segment, UNTAGGED_LEN, Untagged, UntaggedOp};
use crate::wire::violation::Violation;

/// The longest payload of a Terminate message, rounded up.
pub const TERMINATE_MAX: usize = 64;

/// Why a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terminate {
    /// Who found it: RDMAP 0, DDP 1 or MPA 2 (4 bits).
    pub layer: u8,
    /// Its kind within the layer (4 bits).
    pub kind: u8,
    /// What it is.
    pub code: u8,
}

impl Terminate {
    /// The payload of the message. `offending` is the header of the segment that is to blame, for a
    /// Read Request with its payload, and the length of the segment.
    ///
    /// A header that is not one is left out. So is what follows it, if it is not a Read Request's.
    pub fn encode(&self, offending: Option<(&[u8], u16)>) -> ArrayVec<u8, TERMINATE_MAX> {
        let mut payload = ArrayVec::new();
        let (flags, header, len) = match offending {
            Some((bytes, len)) => {
                let (flags, header) = terminated(bytes);
                (MPA_LENGTH | flags, header, Some(len))
            }
            None => (0, &[][..], None),
        };
        payload.extend([self.layer << 4 | self.kind & 0xf, self.code, flags, 0]);
        payload.extend(len.into_iter().flat_map(u16::to_be_bytes));
        payload.extend(header.iter().copied());
        payload
    }

    /// Reads the payload of a Terminate message. `None` means that it is too short.
    ///
    /// The header of the segment to blame is not read.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let [reason, code, flags, _] = *payload.first_chunk()?;
        let (high, low) = (reason >> 4, reason & 0xf);
        let is_reversed = flags & FLAGS == 0 && flags & FLAGS_REVERSED != 0;
        let (layer, kind) = if is_reversed { (low, high) } else { (high, low) };
        Some(Self { layer, kind, code })
    }

    /// Whether the payload of a Terminate message blames an RDMA Read: by the header that it carries,
    /// or by its reason.
    pub fn blames_read(payload: &[u8]) -> bool {
        let Some(Self { layer, kind, code }) = Self::decode(payload) else { return false };
        let flags = payload[2];
        let (has_len, has_header) = match flags & FLAGS {
            0 => (flags & LENGTH_REVERSED != 0, flags & HEADER_REVERSED != 0),
            _ => (flags & MPA_LENGTH != 0, flags & DDP_HEADER != 0),
        };
        let header = payload.get(if has_len { 6.. } else { 4.. }).filter(|_| has_header);
        match header.map(Segment::decode) {
            Some(Ok((segment, _))) => is_read(&segment),
            // A Read can break the rules of its operation, but not invalidate.
            _ => layer == 0 && (kind == 1 || kind == 2 && code != 9),
        }
    }

    /// The reason in words, if a standard names it.
    fn reason(&self) -> Option<&'static str> {
        let reasons = match (self.layer, self.kind) {
            (0, 0) => RDMAP_CATASTROPHIC,
            (0, 1) => RDMAP_PROTECTION,
            (0, 2) => RDMAP_OPERATION,
            (1, 0) => DDP_CATASTROPHIC,
            (1, 1) => DDP_TAGGED,
            (1, 2) => DDP_UNTAGGED,
            (2, 0) => MPA,
            _ => return None,
        };
        reasons.iter().find(|(code, _)| *code == self.code).map(|(_, reason)| *reason)
    }
}

impl Display for Terminate {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Self { layer, kind, code } = *self;
        let name = match layer {
            0 => "RDMAP",
            1 => "DDP",
            2 => "MPA",
            _ => return write!(out, "layer {layer}, type {kind}, code {code}"),
        };
        match self.reason() {
            Some(reason) => write!(out, "{name}: {reason}"),
            None => write!(out, "{name}: type {kind}, code {code}"),
        }
    }
}

impl Violation {
    /// What is sent to a peer that has done this.
    pub fn terminate(&self) -> Terminate {
        let (layer, kind, code) = match *self {
            Self::Crc => (2, 0, 2),
            Self::FpduLength(_) => (2, 0, 3),
            Self::DdpVersion { is_tagged: true, .. } => (1, 1, 4),
            Self::DdpVersion { is_tagged: false, .. } => (1, 2, 6),
            Self::RdmapVersion(_) => (0, 2, 5),
            Self::Opcode(_) => (0, 2, 6),
            Self::Queue(_) => (1, 2, 1),
            Self::MessageNumber { .. } => (1, 2, 3),
            Self::MessageOffset { .. } => (1, 2, 4),
            Self::TooLong => (1, 2, 5),
            Self::Stag(_) => (0, 1, 0),
            Self::Bounds { to, len } if to.checked_add(len.into()).is_none() => (0, 1, 4),
            Self::Bounds { .. } => (0, 1, 1),
            Self::Rights(_) => (0, 1, 2),
            Self::Invalidation(_) => (0, 2, 9),
            Self::Read | Self::NoEffect { .. } => (0, 2, 7),
        };
        Terminate { layer, kind, code }
    }

    /// As [`Violation::terminate`], of a tagged segment. DDP finds that its key or its bounds are
    /// wrong; it knows no rights (RFC 5041 7.1).
    pub fn terminate_tagged(&self) -> Terminate {
        let code = match *self {
            Self::Stag(_) => 0,
            Self::Bounds { to, len } if to.checked_add(len.into()).is_none() => 3,
            Self::Bounds { .. } => 1,
            _ => return self.terminate(),
        };
        Terminate { layer: 1, kind: 1, code }
    }
}

/// The flags and the part of `bytes` that a Terminate message carries.
fn terminated(bytes: &[u8]) -> (u8, &[u8]) {
    let Ok((segment, len)) = Segment::decode(bytes) else { return (0, &[]) };
    match bytes.get(..UNTAGGED_LEN + READ_REQUEST_LEN) {
        Some(request) if is_read(&segment) => (DDP_HEADER | RDMAP_HEADER, request),
        _ => (DDP_HEADER, &bytes[..len]),
    }
}

fn is_read(segment: &Segment) -> bool {
    matches!(segment, Segment::Untagged(Untagged { op: UntaggedOp::ReadRequest, .. }))
}

/// The flags in the third byte: a length of a segment, its DDP header, its RDMAP header.
const MPA_LENGTH: u8 = 0x80;
const DDP_HEADER: u8 = 0x40;
const RDMAP_HEADER: u8 = 0x20;
const FLAGS: u8 = MPA_LENGTH | DDP_HEADER | RDMAP_HEADER;
const LENGTH_REVERSED: u8 = 0x01;
const HEADER_REVERSED: u8 = 0x02;
const FLAGS_REVERSED: u8 = LENGTH_REVERSED | HEADER_REVERSED | 0x04;

/// RFC 5040 4.8.
const RDMAP_CATASTROPHIC: &[(u8, &str)] = &[(0, "local catastrophic error")];
const RDMAP_PROTECTION: &[(u8, &str)] = &[
    (0, "invalid STag"),
    (1, "base or bounds violation"),
    (2, "access rights violation"),
    (3, "STag not associated with the stream"),
    (4, "tagged offset wraps"),
    (9, "STag cannot be invalidated"),
    (0xff, "unspecified remote protection error"),
];
const RDMAP_OPERATION: &[(u8, &str)] = &[
    (5, "invalid RDMAP version"),
    (6, "unexpected opcode"),
    (7, "catastrophic error of the stream"),
    (8, "catastrophic error of all streams"),
    (9, "STag cannot be invalidated"),
    (0xff, "unspecified remote operation error"),
];

/// RFC 5041 7.1.
const DDP_CATASTROPHIC: &[(u8, &str)] = &[(0, "local catastrophic error")];
const DDP_TAGGED: &[(u8, &str)] = &[
    (0, "invalid STag"),
    (1, "base or bounds violation"),
    (2, "STag not associated with the stream"),
    (3, "tagged offset wraps"),
    (4, "invalid DDP version in a tagged segment"),
];
const DDP_UNTAGGED: &[(u8, &str)] = &[
    (1, "invalid queue number"),
    (2, "no Receive for the message"),
    (3, "invalid message number"),
    (4, "invalid message offset"),
    (5, "message too long for its Receive"),
    (6, "invalid DDP version in an untagged segment"),
];

/// RFC 5044 8, RFC 6581 9.
const MPA: &[(u8, &str)] = &[
    (1, "TCP connection closed, terminated or lost"),
    (2, "wrong CRC"),
    (3, "no FPDU where one must start"),
    (4, "invalid request or reply frame"),
    (5, "local catastrophic error"),
    (6, "too few resources for inbound RDMA Reads"),
    (7, "no common ready-to-receive message"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::segment::{Tagged, TaggedOp};

    const TAGGED: Tagged = Tagged { op: TaggedOp::Write, is_last: true, stag: 7, to: 9 };

    /// Every violation, the reason on the wire, and its words.
    fn golden() -> [(Violation, [u8; 2], &'static str); 18] {
        let bounds = |to| Violation::Bounds { to, len: 2 };
        let version = |is_tagged| Violation::DdpVersion { version: 0, is_tagged };
        let number = Violation::MessageNumber { given: 2, expected: 1 };
        let offset = Violation::MessageOffset { given: 2, expected: 1 };
        [
            (Violation::Crc, [0x20, 2], "MPA: wrong CRC"),
            (Violation::FpduLength(3), [0x20, 3], "MPA: no FPDU where one must start"),
            (version(true), [0x11, 4], "DDP: invalid DDP version in a tagged segment"),
            (version(false), [0x12, 6], "DDP: invalid DDP version in an untagged segment"),
            (Violation::RdmapVersion(2), [0x02, 5], "RDMAP: invalid RDMAP version"),
            (Violation::Opcode(8), [0x02, 6], "RDMAP: unexpected opcode"),
            (Violation::Queue(3), [0x12, 1], "DDP: invalid queue number"),
            (number, [0x12, 3], "DDP: invalid message number"),
            (offset, [0x12, 4], "DDP: invalid message offset"),
            (Violation::TooLong, [0x12, 5], "DDP: message too long for its Receive"),
            (Violation::Stag(1), [0x01, 0], "RDMAP: invalid STag"),
            (bounds(0), [0x01, 1], "RDMAP: base or bounds violation"),
            (bounds(u64::MAX - 2), [0x01, 1], "RDMAP: base or bounds violation"),
            (bounds(u64::MAX - 1), [0x01, 4], "RDMAP: tagged offset wraps"),
            (Violation::Rights(1), [0x01, 2], "RDMAP: access rights violation"),
            (Violation::Invalidation(1), [0x02, 9], "RDMAP: STag cannot be invalidated"),
            (Violation::Read, [0x02, 7], "RDMAP: catastrophic error of the stream"),
            (
                Violation::NoEffect { limit: 64 },
                [0x02, 7],
                "RDMAP: catastrophic error of the stream",
            ),
        ]
    }

    #[test]
    fn every_violation_has_its_reason_and_words() {
        for (violation, [reason, code], words) in golden() {
            let terminate = violation.terminate();
            assert_eq!(terminate.encode(None)[..], [reason, code, 0, 0], "{violation}");
            assert_eq!(Terminate::decode(&[reason, code, 0, 0]), Some(terminate));
            assert_eq!(terminate.to_string(), words);
        }
    }

    #[test]
    fn the_key_and_the_bounds_of_a_tagged_segment_are_the_matter_of_ddp() {
        let reason = |violation: Violation| {
            let Terminate { layer, kind, code } = violation.terminate_tagged();
            (layer, kind, code)
        };
        assert_eq!(reason(Violation::Stag(1)), (1, 1, 0));
        assert_eq!(reason(Violation::Bounds { to: 0, len: 2 }), (1, 1, 1));
        assert_eq!(reason(Violation::Bounds { to: u64::MAX - 1, len: 2 }), (1, 1, 3));
        assert_eq!(reason(Violation::Rights(1)), (0, 1, 2));
        assert_eq!(reason(Violation::Opcode(8)), (0, 2, 6));
    }

    #[test]
    fn a_message_blames_a_read_by_its_header_or_its_reason() {
        let header = Untagged {
            op: UntaggedOp::ReadRequest,
            is_last: true,
            invalidates: 0,
            queue: 1,
            number: 1,
            offset: 0,
        };
        let request = [&header.encode()[..], &[9; READ_REQUEST_LEN]].concat();
        let blames = |violation: Violation, segment: Option<&[u8]>| {
            let offending = segment.map(|segment| (segment, 60));
            Terminate::blames_read(&violation.terminate().encode(offending))
        };
        assert!(blames(Violation::Stag(1), Some(&request)));
        assert!(blames(Violation::Stag(1), Some(&request[..18])));
        assert!(!blames(Violation::Rights(1), Some(&TAGGED.encode())));
        assert!(blames(Violation::Stag(1), None) && blames(Violation::Read, None));
        assert!(!blames(Violation::Invalidation(1), None) && !blames(Violation::Crc, None));
        // siw's order, with and without a length.
        let message =
            |flags, between: &[u8], op| [&[0x10, 0, flags, 0], between, &[0x41, op]].concat();
        let rest = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0];
        let whole =
            |flags, between: &[u8], op| [message(flags, between, op), rest.to_vec()].concat();
        assert!(Terminate::blames_read(&whole(3, &[0, 46], 0x41)));
        assert!(Terminate::blames_read(&whole(2, &[], 0x41)));
        for len in 0..4 {
            assert!(!Terminate::blames_read(&[0x01, 0, 0, 0][..len]));
        }
    }

    #[test]
    fn the_header_of_a_segment_is_carried() {
        let terminate = Violation::Stag(7).terminate();
        let segment = [&TAGGED.encode()[..], &[9; 36]].concat();
        let payload = terminate.encode(Some((&segment, 50)));
        let expected = [&[0x01, 0, 0xc0, 0, 0, 50][..], &TAGGED.encode()].concat();
        assert_eq!(payload[..], expected);
        assert_eq!(Terminate::decode(&payload), Some(terminate));
    }

    #[test]
    fn a_read_request_is_carried_with_its_payload() {
        let terminate = Violation::Rights(7).terminate();
        let header = Untagged {
            op: UntaggedOp::ReadRequest,
            is_last: true,
            invalidates: 0,
            queue: 1,
            number: 1,
            offset: 0,
        };
        let whole = [&header.encode()[..], &[9; READ_REQUEST_LEN]].concat();
        let payload = terminate.encode(Some((&whole, 46)));
        assert_eq!(payload[..], [&[0x01, 2, 0xe0, 0, 0, 46], &whole[..]].concat());
        // Without its payload it is a header as others.
        let payload = terminate.encode(Some((&whole[..45], 45)));
        assert_eq!(payload[..], [&[0x01, 2, 0xc0, 0, 0, 45], &whole[..18]].concat());
    }

    #[test]
    fn what_is_no_header_is_left_out() {
        let terminate = Violation::Opcode(8).terminate();
        for bytes in [&[][..], &[0x41; 13], &[0xff; 60]] {
            assert_eq!(terminate.encode(Some((bytes, 60)))[..], [0x02, 6, 0x80, 0, 0, 60]);
        }
    }

    #[test]
    fn a_message_of_siw_is_understood() {
        // DDP, untagged: no Receive, with the header of the Send.
        let payload = [0x21, 2, 0x03, 0, 0, 5, 0x41, 0x43];
        let terminate = Terminate { layer: 1, kind: 2, code: 2 };
        assert_eq!(Terminate::decode(&payload), Some(terminate));
        assert_eq!(terminate.to_string(), "DDP: no Receive for the message");
        // The same in the order of the standard, also if reserved bits are set.
        for flags in [0xc0, 0xc7] {
            let payload = [0x12, 2, flags, 0, 0, 5, 0x41, 0x43];
            assert_eq!(Terminate::decode(&payload), Some(terminate));
        }
    }

    #[test]
    fn a_short_message_is_none() {
        for len in 0..4 {
            assert_eq!(Terminate::decode(&[0; 4][..len]), None);
        }
        let unknown = [0x35, 0x11, 0, 0];
        let terminate = Terminate::decode(&unknown).expect("it is long enough");
        assert_eq!(terminate.to_string(), "layer 3, type 5, code 17");
        let terminate = Terminate { layer: 2, kind: 0, code: 9 };
        assert_eq!(terminate.to_string(), "MPA: type 0, code 9");
    }

    #[test]
    fn any_reason_goes_there_and_back() {
        for [reason, code] in (0..=u16::MAX).map(u16::to_be_bytes) {
            let terminate = Terminate::decode(&[reason, code, 0, 0]).expect("it is long enough");
            assert_eq!(terminate.encode(None)[..], [reason, code, 0, 0]);
            assert!(!terminate.to_string().is_empty());
        }
    }
}
