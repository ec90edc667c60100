//! DDP segments: their headers against a reader of single bits, their order against a model.

mod model;

use rpcrdma_iwarp::wire::inbound::Inbound;
use rpcrdma_iwarp::wire::segment::{
    Segment, TAGGED_LEN, Tagged, TaggedOp, UNTAGGED_LEN, Untagged, UntaggedOp,
};
use rpcrdma_iwarp::wire::violation::Violation;

use self::model::Model;
use super::choices::Choices;

/// Decodes the segments that `bytes` describe, and gives them to an [`Inbound`] and to the model.
///
/// # Panics
/// If they disagree, or a header that is accepted is not exact.
pub fn check(bytes: &[u8]) {
    check_header(bytes);
    let mut choices = Choices::new(bytes);
    let message_len_max = choices.pick(&[0, 1, 100, 65_536, 4 << 20, u32::MAX]);
    let mut inbound = Inbound::new(message_len_max);
    let mut model = Model::new(message_len_max);
    for _ in 0..SEGMENTS_MAX {
        if choices.is_over() {
            break;
        }
        let ulpdu = ulpdu(&mut choices, &model);
        check_header(&ulpdu);
        let Ok((segment, header_len)) = Segment::decode(&ulpdu) else { continue };
        let payload_len = match choices.below(4) {
            0 => 0,
            1 => choices.below(0x1_0000),
            2 => 28,
            _ => choices.below(50),
        };
        assert!(header_len <= ulpdu.len());
        let arrived = inbound.accept(&segment, payload_len as usize);
        assert_eq!(arrived, model.accept(&segment, payload_len), "{segment:?}");
        assert_eq!(inbound.is_within_send(), model.is_within_send());
    }
}

/// The segments of one input.
const SEGMENTS_MAX: usize = 200;

/// A header: the next one of a lawful peer, with a change now and then, or any bytes.
fn ulpdu(choices: &mut Choices<'_>, model: &Model) -> Vec<u8> {
    let is_last = choices.flag();
    let kind = choices.below(12);
    let untagged = |op: UntaggedOp, invalidates| {
        let (number, offset) = model.next(op.queue());
        Untagged { op, is_last, invalidates, queue: op.queue(), number, offset }
    };
    let mut bytes = match kind {
        0 => {
            let stag = choices.word();
            let to = u64::from(choices.word()) << 32 | u64::from(choices.word());
            let op = choices.pick(&[TaggedOp::Write, TaggedOp::ReadResponse]);
            Tagged { op, is_last, stag, to }.encode().to_vec()
        }
        1 => untagged(UntaggedOp::ReadRequest, 0).encode().to_vec(),
        2 => untagged(UntaggedOp::Terminate, 0).encode().to_vec(),
        3 => (0..choices.below(24)).map(|_| choices.byte()).collect(),
        _ => {
            let (op, invalidates) = model.open().unwrap_or_else(|| {
                let ops = [
                    UntaggedOp::Send,
                    UntaggedOp::SendInvalidate,
                    UntaggedOp::SendSolicited,
                    UntaggedOp::SendInvalidateSolicited,
                ];
                (choices.pick(&ops), choices.byte().into())
            });
            untagged(op, invalidates).encode().to_vec()
        }
    };
    if kind % 4 == 1 && !bytes.is_empty() {
        let at = choices.below(bytes.len() as u32) as usize;
        bytes[at] ^= 1 << choices.below(8);
    }
    bytes
}

/// The header of `ulpdu` is what RFC 5041 4 and RFC 5040 4 say.
fn check_header(ulpdu: &[u8]) {
    let (segment, len) = match Segment::decode(ulpdu) {
        Ok(decoded) => decoded,
        Err(why) => return assert_eq!(Some(why), wrong(ulpdu)),
    };
    assert_eq!(wrong(ulpdu), None);
    let encoded = match segment {
        Segment::Tagged(tagged) => tagged.encode().to_vec(),
        Segment::Untagged(untagged) => untagged.encode().to_vec(),
    };
    let mut expected = ulpdu[..len].to_vec();
    expected[0] &= !0x3c;
    expected[1] &= !0x30;
    assert_eq!(encoded, expected, "only reserved bits may change");
}

/// What is wrong with a header.
fn wrong(ulpdu: &[u8]) -> Option<Violation> {
    let short = Violation::FpduLength(u16::try_from(ulpdu.len()).unwrap_or(u16::MAX));
    if ulpdu.len() < TAGGED_LEN {
        return Some(short);
    }
    let is_tagged = ulpdu[0] >= 0x80;
    let versions = (ulpdu[0] % 4, ulpdu[1] / 64);
    if versions.0 != 1 {
        return Some(Violation::DdpVersion { version: versions.0, is_tagged });
    }
    if versions.1 != 1 {
        return Some(Violation::RdmapVersion(versions.1));
    }
    let opcode = ulpdu[1] % 16;
    let queue = match (opcode, is_tagged) {
        (0 | 2, true) => return None,
        (1, false) => 1,
        (3..=6, false) => 0,
        (7, false) => 2,
        _ => return Some(Violation::Opcode(opcode)),
    };
    if ulpdu.len() < UNTAGGED_LEN {
        return Some(short);
    }
    let given = ulpdu[6..10].iter().fold(0, |queue, byte| queue << 8 | u32::from(*byte));
    (given != queue).then_some(Violation::Queue(given))
}
