//! Proptest strategies for every kind of valid header.
//!
//! The borrowed parts of a header are leaked: a test process is short, and the strategies stay
//! simple. The large strategies are boxed: the value tree of a choice has room for those of all its
//! arms, and that of a header would be 60 KiB, moved from frame to frame.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use rpcrdma_xdr::numbers::{VERSION_ONE, VERSION_TWO, opttype};
use rpcrdma_xdr::{
    Array, BackwardSupport, Body, ChunkLists, ConnProp, Header, Known, List, Loc, Mismatch, MsgId,
    MsgItem, MsgType, Optional, OutOfRange, PropId, PropSet, PropSubset, PropVal, Property,
    RdmaError, RdmaSegment, ReadSegment, RecvStructure, ReptErr, ReptInfo, ReqProp, RespProp,
    RsdItem, RsdLoc, RsdSet, RtrSupport, SegmentGroup, Tbsns, UpdProp, WriteChunk, XmtCont, XmtReq,
    XmtResp,
};

/// Any header of either version; mostly small, now and then large.
pub fn header() -> impl Strategy<Value = Header<'static>> + Clone {
    let body = prop_oneof![
        3 => (Just(VERSION_ONE), body_of_both()),
        3 => (Just(VERSION_TWO), body_of_both()),
        1 => (Just(VERSION_ONE), (word(), word(), chunk_lists())
            .prop_map(|(align, thresh, chunks)| Body::Msgp { align, thresh, chunks })),
        1 => (Just(VERSION_TWO), Just(Body::Error(RdmaError::InvalOption))),
        1 => (any::<u32>(), err_vers()),
        12 => (Just(VERSION_TWO), optional().prop_map(Body::Optional)),
    ];
    (word(), word(), body).prop_map(|(xid, credit, (vers, body))| Header {
        xid,
        vers,
        credit,
        body,
    })
}

/// Small numbers as often as any. No choice of two, which has a value tree of a kilobyte.
fn word() -> impl Strategy<Value = u32> + Clone {
    (any::<u32>(), any::<bool>()).prop_map(|(word, is_any)| if is_any { word } else { word % 10 })
}

fn leak<T>(values: Vec<T>) -> &'static [T] {
    values.leak()
}

fn err_vers() -> impl Strategy<Value = Body<'static>> + Clone {
    (word(), word()).prop_map(|(low, high)| Body::Error(RdmaError::Vers { low, high }))
}

fn body_of_both() -> BoxedStrategy<Body<'static>> {
    prop_oneof![
        4 => chunk_lists().prop_map(Body::Msg),
        4 => chunk_lists().prop_map(|chunks| {
            // Without a chunk there is no such message.
            let reply = Some(WriteChunk(Array::EMPTY));
            Body::NoMsg(if chunks.is_empty() { ChunkLists { reply, ..chunks } } else { chunks })
        }),
        1 => Just(Body::Done),
        1 => err_vers(),
        1 => Just(Body::Error(RdmaError::BadHeader)),
    ]
    .boxed()
}

fn segment() -> impl Strategy<Value = RdmaSegment> + Clone {
    (word(), word(), any::<u64>()).prop_map(|(handle, length, offset)| RdmaSegment {
        handle,
        length,
        offset,
    })
}

fn segments() -> impl Strategy<Value = Array<'static, RdmaSegment>> + Clone {
    prop_oneof![20 => vec(segment(), 0..4), 1 => vec(segment(), 250..=256)]
        .prop_map(|values| Array::from_slice(leak(values)))
}

fn chunk_lists() -> BoxedStrategy<ChunkLists<'static>> {
    let read = (word(), segment())
        .prop_map(|(position, target)| ReadSegment { position: position & !3, target });
    let reads = prop_oneof![20 => vec(read.clone(), 0..4), 1 => vec(read, 250..=256)];
    let write = || segments().prop_map(WriteChunk);
    let writes = prop_oneof![20 => vec(write(), 0..4), 1 => vec(write(), 60..=64)];
    let lists =
        (reads, writes, option::of(write())).prop_map(|(reads, writes, reply)| ChunkLists {
            reads: List::from_slice(leak(reads)),
            writes: List::from_slice(leak(writes)),
            reply,
        });
    lists.boxed()
}

fn optional() -> BoxedStrategy<Optional<'static>> {
    prop_oneof![
        1 => (properties(), subset())
            .prop_map(|(start, nochg)| Optional::ConnProp(ConnProp { start, nochg })),
        1 => properties().prop_map(|want| Optional::ReqProp(ReqProp { want })),
        1 => (subset(), subset(), properties())
            .prop_map(|(done, rej, other)| Optional::RespProp(RespProp { done, rej, other })),
        1 => properties().prop_map(|now| Optional::UpdProp(UpdProp { now })),
        3 => (items(), directions(), word(), word(), word()).prop_map(
            |(dp, rsd, count, rsbuf, pslen)| {
                Optional::XmtReq(XmtReq { dp, rsd, count, rsbuf, pslen })
            }
        ),
        3 => (items(), word(), word())
            .prop_map(|(dp, count, pslen)| Optional::XmtResp(XmtResp { dp, count, pslen })),
        1 => (word(), word(), word())
            .prop_map(|(xnum, itype, pslen)| Optional::XmtCont(XmtCont { xnum, itype, pslen })),
        2 => (msg_id(), option::of(msg_id()), reason())
            .prop_map(|(bad, lead, info)| Optional::ReptErr(ReptErr { bad, lead, info })),
        1 => (word(), vec(any::<u8>(), 0..20)).prop_map(|(number, info)| Optional::Unknown {
            opttype: if number == 0 { 0 } else { number.max(opttype::REPTERR + 1) },
            info: leak(info),
        }),
    ]
    .boxed()
}

fn items() -> BoxedStrategy<Array<'static, MsgItem<'static>>> {
    let numbers = prop_oneof![
        20 => vec(word(), 0..5).prop_map(|numbers| Tbsns::from_slice(leak(numbers))),
        10 => (word(), 0..5u32).prop_map(|(first, count)| Tbsns::run(first, count)),
        1 => (word(), 250..=256u32).prop_map(|(first, count)| Tbsns::run(first, count)),
    ];
    let loc = prop_oneof![
        segments().prop_map(Loc::Exrw),
        (word(), numbers).prop_map(|(offset, segments)| Loc::Tbsn { offset, segments }),
        Just(Loc::TooShort),
        Just(Loc::NoItem),
    ];
    let item = (word(), word(), loc).prop_map(|(disp, length, loc)| MsgItem { disp, length, loc });
    prop_oneof![20 => vec(item.clone(), 0..4), 1 => vec(item, 60..=64)]
        .prop_map(|values| Array::from_slice(leak(values)))
        .boxed()
}

fn directions() -> BoxedStrategy<Array<'static, RsdSet<'static>>> {
    let loc = prop_oneof![
        Just(RsdLoc::Tbsn),
        segments().prop_map(RsdLoc::Exrw),
        segments().prop_map(RsdLoc::Choice),
        (word(), segments()).prop_map(|(over, segments)| RsdLoc::BySize { over, segments }),
    ];
    let item = (word(), loc).prop_map(|(min_len, loc)| RsdItem { min_len, loc });
    let set = |items| {
        (word(), word(), items).prop_map(|(begin, end, items): (_, _, Vec<RsdItem<'static>>)| {
            RsdSet { begin, end, items: Array::from_slice(leak(items)) }
        })
    };
    prop_oneof![
        20 => vec(set(vec(item.clone(), 0..4).boxed()), 0..4),
        1 => vec(set(vec(item.clone(), 64).boxed()), 1),
        1 => vec(set(vec(item, 1).boxed()), 60..=64),
    ]
    .prop_map(|values| Array::from_slice(leak(values)))
    .boxed()
}

fn msg_id() -> BoxedStrategy<MsgId> {
    let dir = prop_oneof![Just(MsgType::Call), Just(MsgType::Reply)];
    (word(), dir, word()).prop_map(|(xid, dir, seq)| MsgId { xid, dir, seq }).boxed()
}

fn reason() -> impl Strategy<Value = ReptInfo> + Clone {
    (0..8, word(), word(), word()).prop_map(|(which, a, b, c)| {
        let mismatch = Mismatch { expect: a, current: b };
        let range = OutOfRange { value: a, min: b, max: c };
        match which {
            0 => ReptInfo::BadHmt(mismatch),
            1 => ReptInfo::BadOmt(mismatch),
            2 => ReptInfo::BadCont,
            3 => ReptInfo::BadSeq(mismatch),
            4 => ReptInfo::BadXid(mismatch),
            5 => ReptInfo::BadOff(range),
            6 => ReptInfo::BadTbsn(range),
            _ => ReptInfo::BadPl(range),
        }
    })
}

fn subset() -> impl Strategy<Value = PropSubset<'static>> + Clone {
    vec(word(), 0..=2).prop_map(|words| PropSubset::from_words(leak(words)))
}

/// Every known property at most once, unknown ones as often as it happens.
fn properties() -> impl Strategy<Value = PropSet<'static>> + Clone {
    let unknown = (word(), vec(any::<u8>(), 0..10)).prop_map(|(id, data)| {
        let ids = (id..=u32::MAX).chain([0]).map(PropId);
        let id = ids.into_iter().find(|id| Known::of(*id).is_none()).expect("0 is unknown");
        Property::Unknown(PropVal { id, data: leak(data) })
    });
    let known = proptest::sample::subsequence(Known::ALL.to_vec(), 0..=Known::COUNT)
        .prop_shuffle()
        .prop_flat_map(|ids| ids.into_iter().map(known_property).collect::<Vec<_>>());
    (known, vec(unknown, 0..3)).prop_map(|(known, unknown)| {
        let values: Vec<PropVal<'static>> = known.iter().chain(&unknown).map(value).collect();
        Array::from_slice(leak(values))
    })
}

fn value(property: &Property<'static>) -> PropVal<'static> {
    let room = vec![0; 256].leak();
    property.encode(room).expect("256 bytes are enough for any property made here")
}

fn known_property(known: Known) -> BoxedStrategy<Property<'static>> {
    let set = match known {
        Known::RecvBufferSize => (1024..=u32::MAX).prop_map(Property::RecvBufferSize).boxed(),
        Known::RequesterRemoteInvalidation => {
            any::<bool>().prop_map(Property::RequesterRemoteInvalidation).boxed()
        }
        Known::BackwardSupport => prop_oneof![
            Just(BackwardSupport::None),
            Just(BackwardSupport::Inline),
            Just(BackwardSupport::General),
        ]
        .prop_map(Property::BackwardSupport)
        .boxed(),
        Known::RecvStructure => structure().prop_map(Property::RecvStructure).boxed(),
        Known::RequestRxLimit => word().prop_map(Property::RequestRxLimit).boxed(),
        Known::ResponseSxLimit => word().prop_map(Property::ResponseSxLimit).boxed(),
        Known::RtrSupport => {
            word().prop_map(|bits| Property::RtrSupport(RtrSupport::from_bits_retain(bits))).boxed()
        }
    };
    prop_oneof![5 => set, 1 => Just(Property::Default(known.id()))].boxed()
}

fn structure() -> impl Strategy<Value = RecvStructure> + Clone {
    let group = (0..=8u32, 1..=65_536u32, 0..16u32, any::<bool>()).prop_map(
        |(count, length, align, placement)| SegmentGroup {
            count,
            length,
            align: 1 << align,
            placement,
        },
    );
    let last = SegmentGroup { count: 1, length: 512, align: 1, placement: false };
    vec(group, 0..8).prop_map(move |mut groups| {
        groups.push(last);
        RecvStructure::new(&groups).expect("at most 57 segments of at most 64 KiB in 8 groups")
    })
}
