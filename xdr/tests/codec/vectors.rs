//! Golden vectors: each decodes to its annotations, encodes exactly, and does not cause a panic
//! when damaged.

use crate::{fields, golden};
use rpcrdma_xdr::{Body, Header, Optional, RdmaError, Writer};

fn encode(header: &Header<'_>) -> Vec<u8> {
    let mut buffer = vec![0xa5; header.encoded_len()];
    let mut writer = Writer::new(&mut buffer);
    header.encode(&mut writer).expect("encoded_len is the length");
    assert_eq!(writer.remaining(), 0, "encoded_len is the length");
    buffer
}

#[test]
fn every_vector_decodes_to_the_fields_it_is_annotated_with() {
    for vector in golden::load() {
        let (header, len) =
            Header::decode(&vector.message).unwrap_or_else(|e| panic!("{}: {e}", vector.name));
        assert_eq!(len, vector.header_len, "{}", vector.name);
        assert_eq!(fields::fields(&header), vector.fields, "{}", vector.name);
    }
}

#[test]
fn every_vector_encodes_to_the_bytes_it_was_decoded_from() {
    for vector in golden::load() {
        let (header, len) = Header::decode(&vector.message).expect("the vector is valid");
        assert_eq!(encode(&header), &vector.message[..len], "{}", vector.name);
    }
}

#[test]
fn no_vector_encodes_into_less_room_than_it_needs() {
    for vector in golden::load() {
        let (header, len) = Header::decode(&vector.message).expect("the vector is valid");
        for room in 0..len {
            let mut buffer = vec![0; room];
            let error = header.encode(&mut Writer::new(&mut buffer)).expect_err(&vector.name);
            assert!(error.need > error.left, "{}: {error}", vector.name);
        }
    }
}

#[test]
fn a_header_cut_anywhere_is_an_error() {
    for vector in golden::load() {
        for len in 0..vector.header_len {
            let result = Header::decode(&vector.message[..len]);
            assert!(result.is_err(), "{} cut to {len} bytes: {result:?}", vector.name);
        }
    }
}

#[test]
fn a_header_with_any_one_bit_changed_is_an_error_or_another_exact_header() {
    let (mut valid, mut wrong) = (0u32, 0u32);
    for vector in golden::load() {
        let mut message = vector.message.clone();
        for bit in 0..8 * message.len() {
            message[bit / 8] ^= 0x80 >> (bit % 8);
            match Header::decode(&message) {
                Err(_) => wrong += 1,
                Ok((header, len)) => {
                    assert_eq!(encode(&header), &message[..len], "{} bit {bit}", vector.name);
                    let _ = fields::fields(&header);
                    valid += 1;
                }
            }
            message[bit / 8] ^= 0x80 >> (bit % 8);
        }
    }
    assert!(valid > 10_000 && wrong > 10_000, "{valid} valid, {wrong} wrong");
}

#[test]
fn a_header_with_any_word_replaced_is_an_error_or_another_exact_header() {
    let values = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 63, 64, 65, 256, 257, 1 << 20, 1 << 31, u32::MAX];
    for vector in golden::load() {
        for at in (0..vector.message.len() - 3).step_by(4) {
            for value in values {
                let mut message = vector.message.clone();
                message[at..at + 4].copy_from_slice(&u32::to_be_bytes(value));
                if let Ok((header, len)) = Header::decode(&message) {
                    assert_eq!(encode(&header), &message[..len], "{} at {at}", vector.name);
                }
            }
        }
    }
}

#[cfg(feature = "text")]
#[test]
fn every_vector_looks_on_one_line_as_it_is_annotated() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/vectors");
    for vector in golden::load() {
        let (header, _) = Header::decode(&vector.message).expect("the vector is valid");
        let text = std::fs::read_to_string(folder.join(format!("{}.hex", vector.name)))
            .expect("the vector was read before");
        let expected = text.lines().find_map(|line| line.strip_prefix("#= "));
        assert_eq!(Some(header.to_string().as_str()), expected, "{}", vector.name);
    }
}

/// The vectors cover everything that the wire format can express.
#[test]
fn the_vectors_cover_every_kind_of_header() {
    let vectors = golden::load();
    let has = |what: &str, test: &dyn Fn(&Header<'_>) -> bool| {
        let found = vectors
            .iter()
            .any(|vector| Header::decode(&vector.message).is_ok_and(|(header, _)| test(&header)));
        assert!(found, "no vector has {what}");
    };
    for vers in [1, 2] {
        let body = |kind: fn(&Body<'_>) -> bool| {
            move |header: &Header<'_>| header.vers == vers && kind(&header.body)
        };
        has("RDMA_MSG", &body(|body| matches!(body, Body::Msg(_))));
        has("RDMA_NOMSG", &body(|body| matches!(body, Body::NoMsg(_))));
        has("RDMA_DONE", &body(|body| matches!(body, Body::Done)));
        has("ERR_VERS", &body(|body| matches!(body, Body::Error(RdmaError::Vers { .. }))));
        has("BAD_HEADER", &body(|body| matches!(body, Body::Error(RdmaError::BadHeader))));
    }
    has("RDMA_MSGP", &|header| matches!(header.body, Body::Msgp { .. }));
    has("INVAL_OPTION", &|header| header.body == Body::Error(RdmaError::InvalOption));
    let optional = |number| {
        move |header: &Header<'_>| match &header.body {
            Body::Optional(optional) => optional.opttype() == number,
            _ => false,
        }
    };
    for number in 1..=8 {
        has(&format!("operation {number}"), &optional(number));
    }
    has("an unknown operation", &|header| {
        matches!(header.body, Body::Optional(Optional::Unknown { .. }))
    });
    for number in 1..=8 {
        has(&format!("error {number}"), &|header| match &header.body {
            Body::Optional(Optional::ReptErr(report)) => report.info.number() == number,
            _ => false,
        });
    }
    for number in 1..=7 {
        has(&format!("property {number}"), &|header| match &header.body {
            Body::Optional(Optional::ConnProp(op)) => {
                op.start.iter().any(|value| value.id.0 == number && !value.data.is_empty())
            }
            _ => false,
        });
    }
}
