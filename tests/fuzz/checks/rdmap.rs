//! Payloads of RDMAP: Terminate messages and Read Requests of any bytes.

use rpcrdma_iwarp::wire::inbound::Inbound;
use rpcrdma_iwarp::wire::segment::{READ_REQUEST_LEN, ReadRequest, Segment};
use rpcrdma_iwarp::wire::terminate::{TERMINATE_MAX, Terminate};
use rpcrdma_iwarp::wire::violation::Violation;

/// Decodes `bytes` as a payload, and takes them for a segment that is to blame.
///
/// # Panics
/// If an accepted payload does not encode to the same bytes, or a Terminate message does not say
/// what it was made of.
pub fn check(bytes: &[u8]) {
    match ReadRequest::decode(bytes) {
        Ok(request) => assert_eq!(request.encode(), bytes),
        Err(why) => {
            assert_eq!(why, Violation::Read);
            assert_ne!(bytes.len(), READ_REQUEST_LEN);
        }
    }
    let Some(terminate) = Terminate::decode(bytes) else { return assert!(bytes.len() < 4) };
    assert!(!terminate.to_string().is_empty());
    let reason = terminate.layer << 4 | terminate.kind;
    let is_siw = bytes[2] < 0x20 && !bytes[2].is_multiple_of(8);
    let expected = if is_siw { bytes[0].rotate_left(4) } else { bytes[0] };
    assert_eq!((reason, terminate.code), (expected, bytes[1]));
    check_message(&terminate, &bytes[4..]);
    if let Some(violation) = violation(&bytes[4..]) {
        check_message(&violation.terminate(), &bytes[4..]);
    }
}

/// A message that blames `segment` says so.
fn check_message(terminate: &Terminate, segment: &[u8]) {
    assert_eq!(terminate.encode(None).len(), 4);
    let len = segment.len() as u16;
    let message = terminate.encode(Some((segment, len)));
    assert_eq!(Terminate::decode(&message), Some(*terminate));
    assert_eq!(message[4..6], len.to_be_bytes());
    let header = &message[6..];
    assert!(message.len() < TERMINATE_MAX && segment.starts_with(header));
    let decoded = Segment::decode(segment).ok();
    match message[2] {
        0x80 => assert!(decoded.is_none() && header.is_empty()),
        0xc0 => assert_eq!(decoded.map(|(_, len)| len), Some(header.len())),
        0xe0 => assert!(header.len() == 46 && header[1] % 16 == 1 && header[0] < 0x80),
        flags => panic!("flags {flags:#04x}"),
    }
    assert_eq!(message[3], 0);
}

/// What a peer does wrong that begins with `segment`, and then sends it again.
fn violation(segment: &[u8]) -> Option<Violation> {
    let decoded = Segment::decode(segment);
    let (header, len) = match decoded {
        Ok(decoded) => decoded,
        Err(why) => return Some(why),
    };
    let mut inbound = Inbound::new(100);
    let first = inbound.accept(&header, segment.len() - len).err();
    first.or_else(|| inbound.accept(&header, segment.len() - len).err())
}
