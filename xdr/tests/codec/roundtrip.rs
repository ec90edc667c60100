//! Encoding and decoding any header gives the same header, and decoding any bytes does not panic.

use crate::{fields, headers};
use proptest::prelude::*;
use rpcrdma_xdr::rtr::transmit::{XmtReq, XmtResp};
use rpcrdma_xdr::{
    Array, Body, Header, List, MsgItem, Optional, Prefix, PrivateData, RpcPrefix, WriteChunk,
    Writer,
};

fn encode(header: &Header<'_>) -> Vec<u8> {
    let mut buffer = vec![0xa5; header.encoded_len()];
    let mut writer = Writer::new(&mut buffer);
    header.encode(&mut writer).expect("encoded_len is the length");
    assert_eq!(writer.remaining(), 0, "encoded_len is the length");
    buffer
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_header_decodes_to_what_was_encoded(
        header in headers::header(),
        payload in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut message = encode(&header);
        let len = message.len();
        message.extend(payload);
        let (decoded, decoded_len) = Header::decode(&message).expect("what we encode is valid");
        prop_assert_eq!(decoded_len, len);
        prop_assert_eq!(decoded, header);
        prop_assert_eq!(fields::fields(&decoded), fields::fields(&header));
        prop_assert_eq!(encode(&decoded), &message[..len]);
    }

    #[test]
    fn the_lists_of_a_header_are_found_again_by_their_extents(header in headers::header()) {
        let message = encode(&header);
        let (decoded, _) = Header::decode(&message).expect("what we encode is valid");
        match decoded.body {
            Body::Msg(lists) | Body::NoMsg(lists) | Body::Msgp { chunks: lists, .. } => {
                prop_assert_eq!(List::at(&message, lists.reads.extent()), lists.reads);
                prop_assert_eq!(List::at(&message, lists.writes.extent()), lists.writes);
                if let Some(WriteChunk(segments)) = lists.reply {
                    prop_assert_eq!(Array::at(&message, segments.extent()), segments);
                }
            }
            Body::Optional(Optional::XmtReq(XmtReq { dp, rsd, .. })) => {
                prop_assert_eq!(Array::at(&message, dp.extent()), dp);
                prop_assert_eq!(Array::at(&message, rsd.extent()), rsd);
                prop_assert!(Array::<MsgItem<'_>>::at(&message[..28], dp.extent()).is_empty());
            }
            Body::Optional(Optional::XmtResp(XmtResp { dp, .. })) => {
                prop_assert_eq!(Array::at(&message, dp.extent()), dp);
            }
            _ => {}
        }
    }

    #[test]
    fn a_header_cut_anywhere_is_an_error(
        header in headers::header(),
        cut in any::<prop::sample::Index>(),
    ) {
        let message = encode(&header);
        prop_assert!(Header::decode(&message[..cut.index(message.len())]).is_err());
    }

    #[test]
    fn a_header_with_a_few_words_changed_is_an_error_or_another_exact_header(
        header in headers::header(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u32>()), 1..4),
        small in any::<bool>(),
    ) {
        let mut message = encode(&header);
        for (at, word) in changes {
            let at = 4 * at.index(message.len() / 4);
            let word = if small { word % 10 } else { word };
            message[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        if let Ok((decoded, len)) = Header::decode(&message) {
            prop_assert_eq!(encode(&decoded), &message[..len]);
            let _ = fields::fields(&decoded);
        }
    }

    #[test]
    fn any_words_are_an_error_or_an_exact_header(
        vers in 0..4u32,
        proc in 0..7u32,
        rest in prop::collection::vec(prop_oneof![3 => 0..9u32, 1 => any::<u32>()], 0..60),
        cut in 0..4usize,
    ) {
        let words = [7, vers, 3, proc].into_iter().chain(rest);
        let mut message: Vec<u8> = words.flat_map(u32::to_be_bytes).collect();
        message.truncate(message.len() - cut);
        if let Ok((decoded, len)) = Header::decode(&message) {
            prop_assert_eq!(encode(&decoded), &message[..len]);
            prop_assert!(len <= message.len());
            let prefix = Prefix::decode(&message).expect("a header begins with the prefix");
            prop_assert_eq!((prefix.xid, prefix.vers), (decoded.xid, decoded.vers));
            prop_assert_eq!(prefix.proc, decoded.body.proc());
            let padded = matches!(decoded.body, Body::Msgp { .. });
            prop_assert!(!padded || prefix.vers == 1);
        }
    }

    #[test]
    fn any_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok((decoded, len)) = Header::decode(&bytes) {
            prop_assert_eq!(encode(&decoded), &bytes[..len]);
        }
        let _ = RpcPrefix::decode(&bytes);
        let _ = PrivateData::decode(&bytes);
    }
}
