//! Items and directions of the extension on the wire: a raw caller that names memory and segments
//! in one request, and a raw server that answers each direction in every valid form.

use rpcrdma::{CallError, ConnectionId, Fabric};
use rpcrdma_mempool::Access;
use rpcrdma_tests::raw_peer::{RawPeer, optional, properties, properties_with};
use rpcrdma_tests::script::{Part, Place, Script, part_bytes, reply_seed};
use rpcrdma_tests::world::{Plan, World};
use rpcrdma_xdr::{
    Array, Body, Header, Loc, MsgItem, Optional, OutOfRange, RdmaError, RdmaSegment, ReptInfo,
    RsdItem, RsdLoc, RsdSet, RtrSupport, Tbsns, XmtReq, XmtResp,
};

/// A server, and a raw client that has exchanged properties.
struct Served {
    world: World<Fabric>,
    raw: RawPeer<Fabric>,
}

impl Served {
    fn new() -> Served {
        let fabric = Fabric::new();
        let world = World::new(&|| fabric.clone(), &Plan::default());
        let raw = RawPeer::new(&fabric);
        let mut served = Served { world, raw };
        served.raw.connect(served.world.at);
        while !served.raw.is_connected() {
            served.world.step();
            served.raw.turn().expect("there is room");
        }
        served.raw.send(&properties(0x99, 16));
        served.answer();
        served
    }

    fn answer(&mut self) -> Vec<u8> {
        for _ in 0..1_000 {
            self.world.step();
            self.raw.turn().expect("the connection stands");
            if let Some(answer) = self.raw.recv() {
                return answer;
            }
        }
        panic!("no answer");
    }

    /// Sends a request, and returns the answer.
    fn request(&mut self, xid: u32, payload: &[u8], request: Request<'_>) -> Vec<u8> {
        let Request { items, directions, end, placed } = request;
        let payload = [&xid.to_be_bytes()[..], &[0; 4], payload].concat();
        let sets = [RsdSet { begin: 0, end, items: Array::from_slice(directions) }];
        let sets = if directions.is_empty() { &sets[..0] } else { &sets[..] };
        let (dp, rsd) = (Array::from_slice(items), Array::from_slice(sets));
        let pslen = payload.len() as u32;
        let request = XmtReq { dp, rsd, count: 1, rsbuf: 2, pslen };
        let mut bytes = optional(xid, Optional::XmtReq(request), &payload);
        if !placed.is_empty() {
            bytes.resize(INLINE, 0);
            bytes.extend_from_slice(placed);
        }
        self.raw.send(&bytes);
        self.answer()
    }
}

/// What a request carries beside its payload.
#[derive(Default)]
struct Request<'a> {
    items: &'a [MsgItem<'a>],
    directions: &'a [RsdItem<'a>],
    /// The end of the range that the directions are for.
    end: u32,
    /// The bytes of the placement segments.
    placed: &'a [u8],
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

// [RTR] 5.3, 6.2, 7.3
#[test]
fn items_of_one_request_arrive_each_in_its_own_form() {
    let mut served = Served::new();
    const SENT: u32 = 3_000;
    const READ: u32 = 5_002;
    let script = Script::new(3, &[Part::Bulk(SENT), Part::Bulk(READ), Part::Inline(8)], &[]);
    let head = script.head();
    let first = 8 + head.len() as u32 + 4;
    let payload = [head, words(&[SENT, READ, 8]), part_bytes(3, 2, 8)].concat();
    let read = part_bytes(3, 1, READ);
    // In two pieces of memory, and the item is as long as both.
    let (one, two) = read.split_at(2_000);
    let pieces = [one, two].map(|piece| served.raw.show(piece, Access::REMOTE_READ));
    let sent = Loc::Tbsn { offset: 0, segments: Tbsns::from_slice(&[0]) };
    for (xid, length, is_good) in [(7, READ, true), (8, READ - 8, false), (9, READ, true)] {
        let segments = Array::from_slice(&pieces);
        let items = [
            MsgItem { disp: first, length: SENT, loc: sent },
            MsgItem { disp: first + SENT + 4, length, loc: Loc::Exrw(segments) },
        ];
        let placed = part_bytes(3, 0, SENT);
        let answer = served.request(
            xid,
            &payload,
            Request { items: &items, placed: &placed, ..Request::default() },
        );
        let (header, len) = Header::decode(&answer).expect("a header");
        assert_eq!(header.xid, xid);
        if is_good {
            // The service has compared every byte: both items were placed.
            let expected = [words(&[xid, 1]), script.reply_stream(2)].concat();
            assert!(answer[len..].starts_with(&expected), "{header:?}");
        } else {
            assert!(matches!(header.body, Body::Error(RdmaError::BadHeader)), "wire.md W19");
        }
    }
    assert_eq!(served.world.servers[0].handle().stats().rdma_reads, 4, "two pieces, twice");
}

// [RTR] 6.2, 7.4; wire.md E24, E27, E28
#[test]
fn a_server_executes_each_direction() {
    let mut served = Served::new();
    const LEN: u32 = 2_000;
    let exposed = served.raw.show(&vec![0; 8_000], Access::REMOTE_WRITE);
    let memory = |at: u32| {
        let offset = exposed.offset + u64::from(at);
        [RdmaSegment { length: LEN, offset, ..exposed }]
    };
    let (one, two, three, four) = (memory(0), memory(LEN), memory(2 * LEN), memory(3 * LEN));
    let direct = |kind| RsdItem { min_len: 0, loc: kind };
    let directions = [
        direct(RsdLoc::Exrw(Array::from_slice(&one))),
        direct(RsdLoc::Tbsn),
        direct(RsdLoc::Choice(Array::from_slice(&two))),
        direct(RsdLoc::BySize { over: LEN - 1, segments: Array::from_slice(&three) }),
        direct(RsdLoc::BySize { over: LEN, segments: Array::from_slice(&four) }),
        RsdItem { min_len: LEN + 1, loc: RsdLoc::Exrw(Array::from_slice(&four)) },
        direct(RsdLoc::Exrw(Array::from_slice(&four))),
    ];
    let script = Script::new(5, &[], &[Part::Bulk(LEN); 6]);
    let payload = script.head();
    let end = 8 + payload.len() as u32;
    let answer =
        served.request(7, &payload, Request { directions: &directions, end, ..Request::default() });
    let (header, _) = Header::decode(&answer).expect("a header");
    let Body::Optional(Optional::XmtResp(XmtResp { dp, .. })) = header.body else {
        panic!("{header:?}")
    };
    let items: Vec<MsgItem<'_>> = dp.iter().collect();
    let written = |index: usize, memory: &[RdmaSegment]| matches!(items[index].loc, Loc::Exrw(back) if back.iter().eq(memory.iter().copied()));
    let is_sent = |index: usize| matches!(items[index].loc, Loc::Tbsn { .. });
    assert_eq!(items.len(), directions.len(), "wire.md E25");
    assert!(written(0, &one), "EXRW is written");
    assert!(is_sent(1), "TBSN is sent");
    assert!(is_sent(2) || written(2, &two), "CHOICE is either");
    assert!(written(3, &three), "BYSIZE is written above its length");
    assert!(is_sent(4), "BYSIZE is sent up to its length");
    assert_eq!(items[5].loc, Loc::TooShort);
    assert_eq!(items[6].loc, Loc::NoItem);
    assert!(items[..5].iter().all(|item| item.length == LEN));
    assert_eq!(served.world.servers[0].handle().stats().rdma_writes, 2, "nothing else is touched");
}

/// A client, and a raw server that has stated properties.
struct Serving {
    world: World<Fabric>,
    raw: RawPeer<Fabric>,
    peer: ConnectionId,
}

impl Serving {
    fn new(properties: fn(u32, u32) -> Vec<u8>) -> Serving {
        let fabric = Fabric::new();
        let mut world = World::new(&|| fabric.clone(), &Plan::default());
        let mut raw = RawPeer::new(&fabric);
        let at = raw.listen();
        let id = world.clients[0].begin_connect(at).expect("there is room");
        let outcome = world.outcome_with(0, id, || {
            raw.turn().expect("it listens");
            if let Some(hello) = raw.recv() {
                let (header, _) = Header::decode(&hello).expect("a header");
                raw.send(&properties(header.xid, 16));
            }
        });
        Serving { world, raw, peer: outcome.expect("a connection") }
    }

    fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.world.step();
            let _ = self.raw.turn();
        }
    }

    /// Makes a call and returns it as it arrives.
    fn call(&mut self, script: &Script) -> Vec<u8> {
        self.world.call_when_possible(0, self.peer, script);
        for _ in 0..1_000 {
            self.turns(1);
            if let Some(arrived) = self.raw.recv() {
                return arrived;
            }
        }
        panic!("the call does not arrive");
    }
}

/// The one direction of a request: its transaction id, kind, and memory.
fn direction(call: &[u8]) -> (u32, &'static str, Vec<RdmaSegment>) {
    let (header, _) = Header::decode(call).expect("a header");
    let Body::Optional(Optional::XmtReq(request)) = header.body else { panic!("{header:?}") };
    let set = request.rsd.iter().next().expect("a set of directions");
    let item = set.items.iter().next().expect("a direction");
    let (kind, segments) = match item.loc {
        RsdLoc::Exrw(segments) => ("EXRW", segments),
        RsdLoc::Tbsn => ("TBSN", Array::EMPTY),
        RsdLoc::Choice(segments) => ("CHOICE", segments),
        RsdLoc::BySize { segments, .. } => ("BYSIZE", segments),
    };
    (header.xid, kind, segments.iter().collect())
}

/// How a raw server answers a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Written,
    Sent,
    TooShort,
    NoItem,
}

const LEN: u32 = 2_000;

/// A reply to a script whose one result went this way.
fn reply(xid: u32, seed: u32, answer: Answer, memory: &[RdmaSegment]) -> Vec<u8> {
    let result = part_bytes(reply_seed(seed), 0, LEN);
    let mut payload = words(&[xid, 1, seed, 0, LEN]);
    let sent = Loc::Tbsn { offset: 0, segments: Tbsns::from_slice(&[0]) };
    let (disp, length, loc) = match answer {
        Answer::Written => (20, LEN, Loc::Exrw(Array::from_slice(memory))),
        Answer::Sent => (20, LEN, sent),
        Answer::TooShort => (20, LEN, Loc::TooShort),
        Answer::NoItem => (0, 0, Loc::NoItem),
    };
    if matches!(answer, Answer::TooShort | Answer::NoItem) {
        payload.extend_from_slice(&result);
    }
    let items = [MsgItem { disp, length, loc }];
    let (dp, pslen) = (Array::from_slice(&items), payload.len() as u32);
    let response = XmtResp { dp, count: 1, pslen };
    let mut bytes = optional(xid, Optional::XmtResp(response), &payload);
    if answer == Answer::Sent {
        bytes.resize(INLINE, 0);
        bytes.extend_from_slice(&result);
    }
    bytes
}

// [RTR] 7.4, Table 2; wire.md E30, E41
#[test]
fn a_client_accepts_the_results_of_table_2_and_invalidates_its_memory_after_each() {
    use Answer::{NoItem, Sent, TooShort, Written};
    let ways: [(Place, &str, &[Answer]); 3] = [
        (Place::Into(1), "EXRW", &[Written, TooShort, NoItem]),
        (Place::Either(1), "CHOICE", &[Written, Sent, TooShort, NoItem]),
        (Place::BySize(LEN - 1), "BYSIZE", &[Written, Sent, TooShort, NoItem]),
    ];
    for (place, expected, answers) in ways {
        for (seed, &answer) in (1..).zip(answers) {
            let mut serving = Serving::new(properties);
            let script = Script::new(seed, &[], &[Part::Bulk(LEN)]).place(place);
            let call = serving.call(&script);
            let (xid, kind, memory) = direction(&call);
            assert_eq!(kind, expected, "{place:?}");
            if answer == Written {
                let mut rest = part_bytes(reply_seed(seed), 0, LEN);
                for segment in &memory {
                    let behind = rest.split_off(rest.len().min(segment.length as usize));
                    serving.raw.write(segment, &rest);
                    rest = behind;
                }
                serving.turns(20);
            }
            serving.raw.send(&reply(xid, seed, answer, &memory));
            serving.turns(50);
            let done = serving.world.done.pop().expect("it is completed");
            let is_apart = matches!(answer, Written | Sent);
            let items = usize::from(is_apart);
            assert_eq!(done.check(), (0, items), "{kind} {answer:?}");
            assert_eq!(done.check_sinks(), usize::from(answer == Written), "{kind} {answer:?}");
            // All memory that the server had a key for is closed, used or not.
            serving.raw.write(&memory[0], &[0xee; 100]);
            serving.turns(50);
            assert!(serving.raw.is_lost(), "{kind} {answer:?}: its right is dead");
            serving.world.check_nothing_leaked();
        }
    }
}

// [RTR] 7.4, Table 2; wire.md E30
#[test]
fn a_client_rejects_results_by_send_for_exrw() {
    let mut serving = Serving::new(properties);
    let script = Script::new(1, &[], &[Part::Bulk(LEN)]).place(Place::Into(1));
    let call = serving.call(&script);
    let (xid, kind, memory) = direction(&call);
    assert_eq!(kind, "EXRW");
    serving.raw.send(&reply(xid, 1, Answer::Sent, &memory));
    serving.turns(50);
    let reported = serving.raw.recv().expect("a report");
    let (header, _) = Header::decode(&reported).expect("a header");
    let Body::Optional(Optional::ReptErr(report)) = header.body else { panic!("{header:?}") };
    // The type that came, and the one that is allowed beside the two that are always.
    let info = ReptInfo::BadTbsn(OutOfRange { value: 2, min: 1, max: 1 });
    assert_eq!((header.xid, report.info), (xid, info));
    let done = serving.world.done.pop().expect("its memory is closed, so nothing else can come");
    assert!(matches!(done.result, Err(CallError::BadReply(_))), "{:?}", done.result);
    assert_eq!(serving.world.clients[0].shard().audit().exposures, 0);
    serving.raw.write(&memory[0], &[0xee; 100]);
    serving.turns(50);
    assert!(serving.raw.is_lost(), "its right is dead");
}

/// Properties of a peer that takes placement by Send, and says nothing of sending so.
fn receives_only(xid: u32, credit: u32) -> Vec<u8> {
    properties_with(xid, credit, RtrSupport::XREQ)
}

// [RTR] 5.3; wire.md E33
#[test]
fn a_peer_without_the_property_is_not_asked_to_place() {
    let script = |seed| Script::new(seed, &[], &[Part::Bulk(LEN)]);
    let mut able = Serving::new(properties);
    let call = able.call(&script(1));
    assert_eq!(direction(&call).1, "TBSN", "as it is asked otherwise");
    // What it can receive is no matter.
    let mut serving = Serving::new(receives_only);
    let call = serving.call(&script(1));
    let (header, _) = Header::decode(&call).expect("a header");
    assert!(matches!(header.body, Body::Msg(_)), "{header:?}");
}

/// The leading segment of a receive buffer, on both sides.
const INLINE: usize = 4096;
