//! Transmissions of a misbehaving peer: headers that are well-formed, or almost.

use rpcrdma_xdr::{
    Array, BackwardSupport, Body, ChunkLists, ConnProp, Header, Known, List, Loc, Mismatch, MsgId,
    MsgItem, MsgType, Optional, OutOfRange, PropId, PropSet, PropSubset, PropVal, Property,
    RdmaError, RdmaSegment, ReadSegment, RecvStructure, ReptErr, ReptInfo, ReqProp, RespProp,
    RsdItem, RsdLoc, RsdSet, RtrSupport, SegmentGroup, Tbsns, UpdProp, WriteChunk, Writer, XmtCont,
    XmtReq, XmtResp,
};

use super::choices::Choices;
use super::side::{rpc, wire};

/// A transmission of at most `len_max` bytes, about one of these transactions. Mostly well-formed;
/// what is wrong with it is for the receiver to find.
pub fn transmission(choices: &mut Choices<'_>, xids: &[u32], len_max: usize) -> Vec<u8> {
    let xid = match choices.below(8) {
        0 => choices.word(),
        1 => 7,
        _ if xids.is_empty() => 8,
        _ => choices.pick(xids),
    };
    let mut bytes = base_or_operation(choices, xid, len_max);
    if choices.rarely(4) {
        for _ in 0..1 + choices.below(3) {
            let at = choices.below(bytes.len().min(160) as u32) as usize;
            bytes[at] = choices.byte();
        }
    }
    if choices.rarely(16) {
        let len = choices.below(bytes.len().min(0x1_0000) as u32);
        bytes.truncate(len as usize);
    }
    bytes.truncate(len_max);
    bytes
}

fn base_or_operation(choices: &mut Choices<'_>, xid: u32, len_max: usize) -> Vec<u8> {
    let vers = choices.pick(&[2, 2, 2, 2, 2, 2, 1, 3]);
    let credit = choices.pick(&[4, 16, 1, 0, 64, u32::MAX]);
    match choices.below(8) {
        0..4 => operation(choices, xid, credit, len_max),
        4 => {
            let (low, high) = (choices.below(4), choices.below(4));
            let errors = [RdmaError::Vers { low, high }, RdmaError::BadHeader];
            let vers = if vers == 1 { 1 } else { 2 };
            let error = if vers == 2 && choices.flag() {
                RdmaError::InvalOption
            } else {
                choices.pick(&errors)
            };
            wire(&Header { xid, vers, credit, body: Body::Error(error) }, &[])
        }
        _ => with_chunks(choices, xid, vers, credit, len_max),
    }
}

/// RDMA_MSG and its like, with chunks that are mostly about as long as something could be.
fn with_chunks(
    choices: &mut Choices<'_>,
    xid: u32,
    vers: u32,
    credit: u32,
    len_max: usize,
) -> Vec<u8> {
    let dir = choices.below(2);
    let reads: Vec<_> = (0..choices.pick(&[0, 0, 1, 2, 3, 0]))
        .map(|_| {
            let position = choices.pick(&[0, 8, 40, 44, 1 << 20]) + 4 * choices.below(3);
            ReadSegment { position, target: segment(choices) }
        })
        .collect();
    let chunks: Vec<Vec<_>> =
        (0..choices.pick(&[0, 0, 0, 1, 2, 3])).map(|_| segments(choices)).collect();
    let writes: Vec<_> = chunks.iter().map(|chunk| WriteChunk(Array::from_slice(chunk))).collect();
    let reply_segments = segments(choices);
    let reply = choices.rarely(4).then(|| WriteChunk(Array::from_slice(&reply_segments)));
    let (reads, writes) = (List::from_slice(&reads), List::from_slice(&writes));
    let chunks = ChunkLists { reads, writes, reply };
    let vers = if vers == 3 { 2 } else { vers };
    let body = match choices.below(8) {
        0 if !chunks.is_empty() => Body::NoMsg(chunks),
        1 => Body::Done,
        2 if vers == 1 => {
            Body::Msgp { align: choices.below(5000), thresh: choices.below(5000), chunks }
        }
        _ => Body::Msg(chunks),
    };
    let payload = payload(choices, xid, dir == 1, len_max);
    wire(&Header { xid, vers, credit, body }, &payload)
}

fn segment(choices: &mut Choices<'_>) -> RdmaSegment {
    let handle = choices.pick(&[0, 1, 2, 3, 0x100, u32::MAX]);
    let length = choices.pick(&[0, 4, 100, 4096, 1 << 16, 1 << 20, u32::MAX]);
    RdmaSegment { handle, length, offset: choices.pick(&[0, 4096, u64::MAX, 1 << 40]) }
}

fn segments(choices: &mut Choices<'_>) -> Vec<RdmaSegment> {
    (0..choices.pick(&[1, 0, 2, 3])).map(|_| segment(choices)).collect()
}

fn payload(choices: &mut Choices<'_>, xid: u32, reply: bool, len_max: usize) -> Vec<u8> {
    let len = match choices.below(4) {
        0 => choices.below(len_max as u32 + 1),
        1 => 8,
        _ => 40,
    };
    let xid = if choices.rarely(16) { xid ^ 1 } else { xid };
    let mut payload = rpc(xid, reply, len as usize);
    payload.truncate(len as usize);
    payload
}

/// An operation of version two.
fn operation(choices: &mut Choices<'_>, xid: u32, credit: u32, len_max: usize) -> Vec<u8> {
    let header = |optional| Header { xid, vers: 2, credit, body: Body::Optional(optional) };
    let kind = choices.below(16);
    match kind {
        0 => properties(choices, xid, credit),
        1 => {
            let opttype = choices.pick(&[0, 9, 99]);
            wire(&header(Optional::Unknown { opttype, info: &[1; 8] }), &[])
        }
        2 => wire(&header(Optional::ReptErr(report(choices, xid))), &[]),
        3..7 => {
            let payload = payload(choices, xid, false, len_max);
            let (xnum, itype) = (choices.below(5), choices.pick(&[5, 6, 0, 7]));
            let pslen = pslen(choices, &payload);
            wire(&header(Optional::XmtCont(XmtCont { xnum, itype, pslen })), &payload)
        }
        _ => {
            let places: Vec<_> =
                (0..choices.pick(&[0, 1, 0, 2, 3])).map(|_| place(choices)).collect();
            let items: Vec<_> = places.iter().map(Place::item).collect();
            let wanted: Vec<_> = (0..choices.below(3)).map(|_| segments(choices)).collect();
            let wanted: Vec<_> =
                wanted.iter().map(|segments| wanted_item(choices, segments)).collect();
            let count = if wanted.is_empty() { 0 } else { choices.pick(&[1, 1, 2]) };
            let sets: Vec<_> = (0..count).map(|at| set(choices, at, &wanted)).collect();
            let (dp, rsd) = (Array::from_slice(&items), Array::from_slice(&sets));
            let count = choices.pick(&[1, 1, 2, 3, 4, 0, 64, 65, u32::MAX]);
            let payload = payload(choices, xid, kind > 12, len_max);
            let pslen = pslen(choices, &payload);
            let rsbuf = choices.pick(&[1, 0, 2, 16, u32::MAX]);
            let optional = match kind {
                0..=12 => Optional::XmtReq(XmtReq { dp, rsd, count, rsbuf, pslen }),
                _ => Optional::XmtResp(XmtResp { dp, count, pslen }),
            };
            wire(&header(optional), &payload)
        }
    }
}

fn pslen(choices: &mut Choices<'_>, payload: &[u8]) -> u32 {
    match choices.below(8) {
        0 => choices.below(5000),
        1 => 8,
        _ => payload.len() as u32 & !3,
    }
}

/// Where an item is said to be.
struct Place {
    disp: u32,
    length: u32,
    kind: u32,
    offset: u32,
    numbers: Vec<u32>,
    segments: Vec<RdmaSegment>,
}

fn place(choices: &mut Choices<'_>) -> Place {
    let first = choices.below(12);
    Place {
        disp: 8 + 4 * choices.below(12),
        length: choices.pick(&[4, 1, 100, 4096, 4097, 16 << 10, 1 << 20, 0, u32::MAX]),
        kind: choices.below(8),
        offset: choices.pick(&[0, 0, 0, 4, 2, u32::MAX]),
        numbers: (first..first + choices.below(6)).collect(),
        segments: segments(choices),
    }
}

impl Place {
    fn item(&self) -> MsgItem<'_> {
        let loc = match self.kind {
            0 => Loc::TooShort,
            1 => Loc::NoItem,
            2 | 3 => Loc::Exrw(Array::from_slice(&self.segments)),
            _ => Loc::Tbsn { offset: self.offset, segments: Tbsns::from_slice(&self.numbers) },
        };
        MsgItem { disp: self.disp, length: self.length, loc }
    }
}

fn wanted_item<'a>(choices: &mut Choices<'_>, segments: &'a [RdmaSegment]) -> RsdItem<'a> {
    let segments = Array::from_slice(segments);
    let loc = match choices.below(5) {
        0 => RsdLoc::Exrw(segments),
        1 => RsdLoc::Choice(segments),
        2 => RsdLoc::BySize { over: choices.below(20_000), segments },
        _ => RsdLoc::Tbsn,
    };
    RsdItem { min_len: choices.pick(&[0, 4, 5000, u32::MAX]), loc }
}

fn set<'a>(choices: &mut Choices<'_>, at: u32, items: &'a [RsdItem<'a>]) -> RsdSet<'a> {
    let begin = at * 16 + choices.pick(&[0, 0, 0, 1, 100]);
    RsdSet {
        begin,
        end: begin + choices.pick(&[16, 8, 0, 1 << 20]),
        items: Array::from_slice(items),
    }
}

fn report(choices: &mut Choices<'_>, xid: u32) -> ReptErr {
    let dir = if choices.flag() { MsgType::Reply } else { MsgType::Call };
    let bad = MsgId { xid, dir, seq: choices.below(3) };
    let mismatch = Mismatch { expect: 1, current: choices.below(4) };
    let range = OutOfRange { value: choices.below(99), min: 0, max: 9 };
    let info = choices.pick(&[
        ReptInfo::BadCont,
        ReptInfo::BadSeq(mismatch),
        ReptInfo::BadXid(mismatch),
        ReptInfo::BadHmt(mismatch),
        ReptInfo::BadOmt(mismatch),
        ReptInfo::BadTbsn(range),
        ReptInfo::BadOff(range),
        ReptInfo::BadPl(range),
    ]);
    let lead = choices.flag().then_some(MsgId { seq: 0, ..bad });
    ReptErr { bad, lead, info }
}

/// A property operation.
fn properties(choices: &mut Choices<'_>, xid: u32, credit: u32) -> Vec<u8> {
    let mut buffers = [[0; Property::LEN_MAX]; 4];
    let mut values = Vec::new();
    for buffer in &mut buffers[..choices.below(5) as usize] {
        let property = property(choices);
        values.push(property.encode(buffer).unwrap_or(PropVal { id: PropId(99), data: &[1; 4] }));
    }
    let set = PropSet::from_slice(&values);
    let words = [choices.word()];
    let subset = PropSubset::from_words(&words);
    let optional = match choices.below(5) {
        0 | 1 => Optional::ConnProp(ConnProp { start: set, nochg: subset }),
        2 => Optional::ReqProp(ReqProp { want: set }),
        3 => Optional::RespProp(RespProp { done: subset, rej: PropSubset::EMPTY, other: set }),
        _ => Optional::UpdProp(UpdProp { now: set }),
    };
    let behind: &[u8] = if choices.rarely(16) { &[1; 8] } else { &[] };
    wire(&Header { xid, vers: 2, credit, body: Body::Optional(optional) }, behind)
}

fn property(choices: &mut Choices<'_>) -> Property<'static> {
    let size = choices.pick(&[1024, 2000, 4096, 8192, 1 << 20, u32::MAX]);
    let group = |count, length, placement| SegmentGroup { count, length, align: 1, placement };
    let (count, length) = (1 + choices.below(4), choices.pick(&[1, 64, 4096, 16 << 10]));
    let lead = choices.pick(&[1024, 1, 44, 4096]);
    let structure = RecvStructure::new(&[group(1, lead, false), group(count, length, true)]);
    let limit = choices.pick(&[1, 2, 16, 0, u32::MAX]);
    let Some(known) = Known::ALL.get(choices.below(Known::COUNT as u32 + 1) as usize) else {
        return Property::Default(PropId(choices.below(Known::COUNT as u32 + 2)));
    };
    match known {
        Known::RecvBufferSize => Property::RecvBufferSize(size),
        Known::RecvStructure => {
            Property::RecvStructure(structure.expect("two groups within the limits"))
        }
        Known::RequestRxLimit => Property::RequestRxLimit(limit),
        Known::ResponseSxLimit => Property::ResponseSxLimit(limit),
        Known::RtrSupport => Property::RtrSupport(RtrSupport::from_bits_retain(choices.below(8))),
        Known::RequesterRemoteInvalidation => Property::RequesterRemoteInvalidation(choices.flag()),
        Known::BackwardSupport => Property::BackwardSupport(choices.pick(&[
            BackwardSupport::None,
            BackwardSupport::Inline,
            BackwardSupport::General,
        ])),
    }
}

/// Whether bytes are a header that this project would send, followed by anything.
pub fn is_sound(bytes: &[u8]) -> bool {
    let Ok((header, len)) = Header::decode(bytes) else { return false };
    let mut again = vec![0; header.encoded_len()];
    header.encode(&mut Writer::new(&mut again)).is_ok() && again == bytes[..len]
}
