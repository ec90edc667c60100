//! Properties of decoding that hold for all bytes; used by the fuzz target and the corpus replay.

use rpcrdma_xdr::onc::{AuthSys, CallHeader, ReplyHeader};
use rpcrdma_xdr::{
    Body, Header, Loc, Optional, Prefix, PrivateData, Property, Reader, RecvStructure, RpcPrefix,
    Writer,
};

/// Decodes `bytes` with every decoder.
///
/// # Panics
/// If an accepted header does not encode to the same bytes, or is inconsistent.
pub fn check(bytes: &[u8]) {
    if let Some(data) = PrivateData::decode(bytes) {
        assert_eq!(PrivateData::decode(&data.encode()), Some(data));
    }
    if let Ok(Ok(structure)) = RecvStructure::decode(bytes) {
        check_structure(&structure);
    }
    check_onc(bytes);
    let Ok((header, len)) = Header::decode(bytes) else { return };
    let prefix = Prefix::decode(bytes).expect("a header begins with the prefix");
    assert_eq!((prefix.xid, prefix.vers, prefix.credit), (header.xid, header.vers, header.credit));
    assert_eq!(prefix.proc, header.body.proc());
    assert_eq!(header.encoded_len(), len);
    let mut buffer = vec![0xa5; len];
    let mut writer = Writer::new(&mut buffer);
    header.encode(&mut writer).expect("encoded_len is the length");
    assert_eq!(writer.written(), &bytes[..len], "what is accepted is exact");
    check_body(&header.body);
    if let Ok(prefix) = RpcPrefix::decode(&bytes[len..]) {
        assert_eq!(prefix.bytes(), bytes[len..len + RpcPrefix::LEN]);
        check_onc(&bytes[len + RpcPrefix::LEN..]);
    }
}

/// The headers of RPC, which may have anything in their padding: what was decoded once decodes
/// again.
fn check_onc(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    if let Ok(header) = CallHeader::decode(&mut reader) {
        let encoded = header.bytes();
        assert_eq!(encoded.len(), reader.position());
        assert_eq!(CallHeader::decode(&mut Reader::new(&encoded)), Ok(header));
        if let Ok(user) = AuthSys::decode(header.credentials.body()) {
            assert_eq!(user.groups.iter().count(), user.groups.len());
        }
    }
    let mut reader = Reader::new(bytes);
    if let Ok(header) = ReplyHeader::decode(&mut reader) {
        let encoded = header.bytes();
        assert_eq!(encoded.len(), reader.position());
        assert_eq!(ReplyHeader::decode(&mut Reader::new(&encoded)), Ok(header));
    }
}

fn check_body(body: &Body<'_>) {
    match body {
        Body::Msg(chunks) | Body::NoMsg(chunks) | Body::Msgp { chunks, .. } => {
            assert_eq!(chunks.reads.iter().count(), chunks.reads.len());
            assert_eq!(chunks.writes.iter().count(), chunks.writes.len());
            for chunk in chunks.writes.iter().chain(chunks.reply) {
                assert_eq!(chunk.0.iter().count(), chunk.0.len());
            }
        }
        Body::Done | Body::Error(_) => {}
        Body::Optional(optional) => check_optional(optional),
    }
}

fn check_optional(optional: &Optional<'_>) {
    let items = match optional {
        Optional::XmtReq(req) => {
            for set in req.rsd {
                assert_eq!(set.items.iter().count(), set.items.len());
            }
            req.dp
        }
        Optional::XmtResp(resp) => resp.dp,
        Optional::ConnProp(op) => {
            let bits = 32 * op.nochg.words().len();
            assert!((0..bits + 64).filter(|bit| op.nochg.contains(*bit)).count() <= bits);
            return check_properties(op.start);
        }
        Optional::ReqProp(op) => return check_properties(op.want),
        Optional::RespProp(op) => return check_properties(op.other),
        Optional::UpdProp(op) => return check_properties(op.now),
        Optional::XmtCont(_) | Optional::ReptErr(_) | Optional::Unknown { .. } => return,
    };
    assert_eq!(items.iter().count(), items.len());
    for item in items {
        match item.loc {
            Loc::Exrw(segments) => assert_eq!(segments.iter().count(), segments.len()),
            Loc::Tbsn { segments, .. } => {
                for (index, number) in segments.iter().enumerate() {
                    assert_eq!(segments.get(index), Some(number));
                }
                assert_eq!(segments.get(segments.len()), None);
            }
            Loc::TooShort | Loc::NoItem => {}
        }
    }
}

fn check_properties(set: rpcrdma_xdr::PropSet<'_>) {
    for value in set {
        let property = Property::decode(value).expect("a header holds no bad property");
        assert_eq!(property.id(), value.id);
        if let Property::RecvStructure(structure) = property {
            check_structure(&structure);
        }
    }
}

fn check_structure(structure: &RecvStructure) {
    let mut start = 0;
    let mut placed = 0;
    for (index, segment) in structure.segments().enumerate() {
        assert_eq!((segment.index as usize, segment.start), (index, start));
        start += segment.length;
        if segment.placement {
            let at = structure.placement(placed).expect("it is a placement segment");
            assert_eq!(
                (at.index, at.start, at.length),
                (segment.index, segment.start, segment.length)
            );
            assert_eq!(structure.locate(structure.tbsn(63, placed)), Some((63, at)));
            placed += 1;
        }
    }
    assert_eq!(start, structure.total_len());
    assert_eq!(placed, structure.placement_count());
    assert!(structure.leading_len() <= structure.total_len());
    let mut buffer = vec![0; structure.encoded_len()];
    structure.encode(&mut Writer::new(&mut buffer)).expect("encoded_len is the length");
    assert_eq!(RecvStructure::decode(&buffer), Ok(Ok(*structure)));
}
