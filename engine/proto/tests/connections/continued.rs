//! Messages with a single item in many segments: their own way and the general way lead to the same
//! state and the same bytes.

use crate::pair::{Side, connected, rpc, transmission};
use proptest::collection::vec;
use proptest::prelude::*;
use rpcrdma_proto::*;
use rpcrdma_xdr::numbers::VERSION_TWO;
use rpcrdma_xdr::rtr::fixed::{IntoBytes, OneDirection};
use rpcrdma_xdr::*;

/// Bytes of the first segment.
const FIRST: u32 = 1024;
/// As the engine has them.
const HEADROOM: u32 = 512;

/// What differs between two connections.
#[derive(Debug, Clone)]
struct Shape {
    /// Groups of placement segments: how many, how long, and the bytes between them.
    groups: Vec<(u32, u32, u32)>,
    calls_max: u32,
    replies_max: u32,
    /// What the sender does not support, of the operations and placement.
    lacks: RtrSupport,
    places: bool,
}

impl Shape {
    fn settings(&self) -> Settings {
        let group = |count, length, placement| SegmentGroup { count, length, align: 1, placement };
        let mut groups = vec![group(1, FIRST, false)];
        for (count, length, gap) in &self.groups {
            groups.push(group(*count, *length, true));
            groups.extend((*gap > 0).then(|| group(1, *gap, false)));
        }
        Settings {
            credits_requested: 12,
            credits_granted_max: 12,
            call_count_max: self.calls_max,
            request_rx_limit: self.calls_max,
            response_sx_limit: self.replies_max,
            response_rx_max: 12,
            // No multiple of four: padding counts.
            rpc_len_max: 40_002,
            ..Settings::new(RecvStructure::new(&groups).expect("within the limits"))
        }
    }

    /// Those of the side that sends the message with the item.
    fn sender(&self) -> Settings {
        let settings = self.settings();
        Settings { rtr: settings.rtr - self.lacks, placement: self.places, ..settings }
    }
}

#[derive(Debug, Clone)]
struct Demanded {
    payload: u32,
    reply: u32,
    len: u32,
    position: u32,
    pieces: u32,
    gather_max: u32,
    zeros_max: u32,
    headroom: u32,
}

fn any_shape() -> impl Strategy<Value = Shape> {
    let gap = prop_oneof![2 => Just(0u32), 1 => 1u32..100];
    let group = (1u32..6, prop_oneof![Just(1024u32), 1u32..3000], gap);
    let groups = prop_oneof![4 => vec(group.clone(), 1..2), 1 => vec(group, 0..4)];
    let none = RtrSupport::empty();
    let lacks =
        prop_oneof![6 => Just(none), 1 => Just(RtrSupport::XCONT), 1 => Just(RtrSupport::XRESP)];
    let places = proptest::bool::weighted(0.9);
    (groups, 1u32..12, 1u32..12, lacks, places).prop_map(
        |(groups, calls_max, replies_max, lacks, places)| Shape {
            groups,
            calls_max,
            replies_max,
            lacks,
            places,
        },
    )
}

fn any_demand() -> impl Strategy<Value = Demanded> {
    let payload = prop_oneof![
        6 => (2u32..60).prop_map(|words| 4 * words),
        1 => (190u32..260).prop_map(|words| 4 * words),
        1 => 0u32..6000,
    ];
    let reply = prop_oneof![4 => 0u32..900, 1 => 900u32..20_000];
    let len = prop_oneof![4 => 0u32..12_000, 2 => 1000u32..5000, 1 => 39_000u32..41_000];
    let position = prop_oneof![4 => Just(8u32), 1 => 0u32..60];
    let gather_max = prop_oneof![3 => 5u32..9, 1 => 1u32..5];
    let zeros_max = prop_oneof![4 => Just(FIRST), 1 => 800u32..1024];
    let headroom = prop_oneof![4 => Just(HEADROOM), 1 => 60u32..300];
    let item = (len, position, 1u32..4);
    (payload, reply, item, gather_max, zeros_max, headroom).prop_map(
        |(payload, reply, (len, position, pieces), gather_max, zeros_max, headroom)| Demanded {
            payload,
            reply,
            len,
            position,
            pieces,
            gather_max,
            zeros_max,
            headroom,
        },
    )
}

fn state(side: &Side) -> String {
    format!("{:?} {:?}", side.conn, side.ledger)
}

/// The transmissions of a continued message, each of which keeps to the limits.
fn bytes_of(plan: &ContinuedPlan, it: &Demanded, payload: &[u8], bulk: &[u8]) -> Vec<Vec<u8>> {
    let mut headers = 0;
    let stretch = |stretch: ItemStretch| {
        let mut bytes = match stretch.index {
            0 => {
                let mut header = vec![0xee; plan.header_len() as usize];
                plan.write_header(&mut header);
                header
            }
            index => plan.continuation(index).as_bytes().to_vec(),
        };
        headers += bytes.len() as u32;
        assert!(headers <= it.headroom && stretch.zeros <= it.zeros_max);
        if stretch.index == 0 {
            bytes.extend(payload);
        }
        bytes.resize(bytes.len() + stretch.zeros as usize, 0);
        bytes.extend(&bulk[stretch.start as usize..(stretch.start + stretch.len) as usize]);
        bytes
    };
    let wire: Vec<_> = plan.stretches().map(stretch).collect();
    assert_eq!(wire.len() as u32, plan.count());
    wire
}

/// Makes a call both ways; its transmissions, if it has its own way.
fn call_both(shape: &Shape, it: &Demanded) -> Option<usize> {
    let client = || connected(shape.sender(), shape.settings()).0;
    let (mut own, mut general) = (client(), client());
    let id = own.conn.open_call(&mut own.ledger, 1).expect("room");
    assert_eq!(general.conn.open_call(&mut general.ledger, 1), Ok(id));
    let Demanded { payload, reply, len, position, pieces, gather_max, zeros_max, headroom } = *it;
    let items = [BulkItem { position, len, origin: 0, pieces }];
    let demand = CallDemand { items: &items, gather_max, ..CallDemand::inline(payload, reply) };
    let means = GatherMeans { gather_max, zeros_max };
    let with = CallWith::Item(items[0]);
    let call = ShortSend::Call { id, reply_payload_max: reply, with };
    let before = state(&own);
    let Some(plan) = own.conn.begin_continued(&mut own.ledger, payload, call, means, headroom)
    else {
        assert_eq!(state(&own), before, "what is not taken changes nothing");
        return None;
    };
    let expected = general.conn.begin_sends(&mut general.ledger, id, &demand);
    let mut expected = expected.unwrap_or_else(|error| panic!("{it:?}: {error}"));
    let stream = rpc(id.xid(), false, payload as usize);
    let bulk: Vec<u8> = (0..len).map(|at| (at % 249) as u8).collect();
    let due = general.transmit(&mut expected, &stream, std::slice::from_ref(&bulk));
    assert_eq!(bytes_of(&plan, it, &stream, &bulk), due);
    assert_eq!(state(&own), state(&general));
    Some(due.len())
}

/// A call of 40 bytes that wants one result, in so many transmissions.
fn read_call(xid: u32, (begin, end, min_len): (u32, u32, u32), rsbuf: u32) -> Vec<u8> {
    let wanted = [RsdItem { min_len, loc: RsdLoc::Tbsn }];
    let sets = [RsdSet { begin, end, items: Array::from_slice(&wanted) }];
    let rsd = Array::from_slice(&sets);
    let req = XmtReq { dp: Array::EMPTY, rsd, count: 1, rsbuf, pslen: 40 };
    let body = Body::Optional(Optional::XmtReq(req));
    transmission(&Header { xid, vers: VERSION_TWO, credit: 4, body }, &rpc(xid, false, 40))
}

/// Answers a call both ways; the transmissions of the reply, if it has its own way.
fn answer_both(
    shape: &Shape,
    it: &Demanded,
    asked: (u32, u32, u32),
    (origin, rsbuf): (u32, u32),
) -> Option<usize> {
    let server = || connected(shape.settings(), shape.sender()).1;
    let (mut own, mut general) = (server(), server());
    let call = read_call(7, asked, rsbuf);
    let Ingress::Call(message) = general.receive(&call) else { panic!("a call") };
    let Ingress::Call(_) = own.receive(&call) else { panic!("a call") };
    let to = message.reply_to();
    let Demanded { payload, len, position, pieces, gather_max, zeros_max, headroom, .. } = *it;
    let items = [BulkItem { position, len, origin, pieces }];
    let direction = OneDirection::new(asked.0, asked.1, asked.2);
    let reply = ShortSend::Reply { to: &to, item: Some((&items[0], &direction)) };
    let means = GatherMeans { gather_max, zeros_max };
    let before = state(&own);
    let Some(plan) = own.conn.begin_continued(&mut own.ledger, payload, reply, means, headroom)
    else {
        assert_eq!(state(&own), before, "what is not taken changes nothing");
        return None;
    };
    let offer = message.offer();
    let demand = ReplyDemand { payload, items: &items, offer, gather_max, copy_max: 0 };
    let expected = general.conn.begin_reply(&mut general.ledger, &to, &demand);
    let mut expected = expected.unwrap_or_else(|error| panic!("{it:?}: {error}"));
    let stream = rpc(7, true, payload as usize);
    let bulk: Vec<u8> = (0..len).map(|at| (at % 249) as u8).collect();
    let due = general.transmit(&mut expected, &stream, std::slice::from_ref(&bulk));
    assert_eq!(bytes_of(&plan, it, &stream, &bulk), due);
    assert_eq!(state(&own), state(&general));
    Some(due.len())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn a_continued_call_is_as_the_general_way_makes_it(shape in any_shape(), it in any_demand()) {
        call_both(&shape, &it);
    }

    #[test]
    fn a_continued_reply_is_as_the_general_way_makes_it(
        shape in any_shape(),
        it in any_demand(),
        asked in (prop_oneof![4 => Just(8u32), 1 => 0u32..40], prop_oneof![3 => Just(0u32), 1 => 0u32..9000]),
        ends in (prop_oneof![4 => Just(8u32), 1 => 0u32..44], prop_oneof![3 => Just(12u32), 1 => 0u32..12]),
    ) {
        answer_both(&shape, &it, (asked.0, 40, asked.1), ends);
    }
}

/// 10 bytes more than four transmissions of two segments, with all that is needed for them.
fn good() -> (Shape, Demanded) {
    let groups = vec![(2, 1000, 0)];
    let (lacks, places) = (RtrSupport::empty(), true);
    let shape = Shape { groups, calls_max: 8, replies_max: 8, lacks, places };
    let (len, position, pieces) = (8010, 8, 1);
    let (gather_max, zeros_max, headroom) = (4, FIRST, HEADROOM);
    let (payload, reply) = (40, 40);
    let it = Demanded { payload, reply, len, position, pieces, gather_max, zeros_max, headroom };
    (shape, it)
}

#[test]
fn an_item_of_many_segments_has_its_own_way() {
    let (shape, it) = good();
    for (len, count) in [(1, 1), (2000, 1), (2001, 2), (8000, 4), (8010, 5), (16_000, 8)] {
        let it = Demanded { len, ..it.clone() };
        assert_eq!(call_both(&shape, &it), Some(count), "{len}");
        assert_eq!(answer_both(&shape, &it, (8, 40, 0), (8, 12)), Some(count), "{len}");
    }
}

#[test]
fn what_does_not_fit_takes_the_general_way() {
    let (shape, it) = good();
    let others = [
        Demanded { len: 0, ..it.clone() },
        Demanded { len: 16_001, ..it.clone() },
        Demanded { position: 44, ..it.clone() },
        Demanded { payload: 42, ..it.clone() },
        Demanded { payload: 936, ..it.clone() },
        Demanded { gather_max: 3, ..it.clone() },
        // The zeros of a continuation, not of the first.
        Demanded { zeros_max: FIRST - 37, ..it.clone() },
        // A header of 56 bytes and nine numbers, longer in a call, and four continuations.
        Demanded { headroom: 56 + 4 * 9 + 4 * 36 - 1, ..it.clone() },
    ];
    for it in &others {
        assert_eq!(call_both(&shape, it), None, "{it:?}");
        assert_eq!(answer_both(&shape, it, (8, 40, 0), (8, 12)), None, "{it:?}");
    }
    let two_groups = Shape { groups: vec![(1, 1000, 0), (1, 1000, 0)], ..shape.clone() };
    assert_eq!(call_both(&two_groups, &it), None);
    let few = Shape { calls_max: 4, ..shape.clone() };
    assert_eq!(call_both(&few, &it), None);
    assert_eq!(answer_both(&shape, &it, (8, 40, 0), (8, 4)), None, "the caller's limit");
    let few = Shape { replies_max: 4, ..shape.clone() };
    assert_eq!(answer_both(&few, &it, (8, 40, 0), (8, 12)), None, "our own limit");
    let one = Shape { lacks: RtrSupport::XCONT, ..shape.clone() };
    assert_eq!(answer_both(&one, &it, (8, 40, 0), (8, 12)), None, "one transmission");
    let none = Shape { places: false, ..shape.clone() };
    assert_eq!(answer_both(&none, &it, (8, 40, 0), (8, 12)), None, "no placement");
    assert_eq!(call_both(&none, &it), None, "no placement");
    assert_eq!(answer_both(&shape, &it, (8, 40, 8011), (8, 12)), None, "too short");
    assert_eq!(answer_both(&shape, &it, (8, 40, 0), (40, 12)), None, "of another operation");
}

/// A client whose only call waits for a reply of one item, and such a reply in four transmissions.
fn answered() -> (impl Fn() -> (Side, CallId), Vec<Vec<u8>>) {
    let settings = good().0.settings();
    let client = move || {
        let mut client = connected(settings, settings).0;
        let id = client.conn.open_call(&mut client.ledger, 1).expect("room");
        let wants = [Want::sends(8, 40, 0, 8010)];
        let demand = CallDemand { wants: &wants, ..CallDemand::inline(40, 400) };
        client.conn.begin_sends(&mut client.ledger, id, &demand).expect("credits");
        (client, id)
    };
    let mut server = connected(settings, settings).1;
    let xid = client().1.xid();
    let Ingress::Call(message) = server.receive(&read_call(xid, (8, 40, 0), 8)) else {
        panic!("a call");
    };
    let items = [BulkItem { position: 8, len: 7002, origin: 8, pieces: 1 }];
    let (offer, gather_max) = (message.offer(), 9);
    let demand = ReplyDemand { payload: 40, items: &items, offer, gather_max, copy_max: 0 };
    let reply = server.conn.begin_reply(&mut server.ledger, &message.reply_to(), &demand);
    let bulk = [(0..7002).map(|at| (at % 249) as u8).collect()];
    let wire = server.transmit(&mut reply.expect("fits"), &rpc(xid, true, 40), &bulk);
    assert_eq!(wire.len(), 4);
    (client, wire)
}

/// Whether the first item is in the first segments.
fn is_in_first(message: &Message<'_>) -> bool {
    let Some(MsgItem { loc: Loc::Tbsn { offset: 0, segments }, .. }) = message.dp.first() else {
        return false;
    };
    segments.iter().eq(0..segments.len() as u32)
}

/// Receives a transmission both ways, and says whether its own way took it.
fn receive_both(own: &mut Side, general: &mut Side, bytes: &[u8]) -> bool {
    let expected = general.receive(bytes);
    let buffer = general.last_buffer();
    let first = &bytes[..bytes.len().min(FIRST as usize)];
    let at = Received { buffer, byte_len: bytes.len() as u32 };
    let before = state(own);
    let taken = own.conn.on_part(&mut own.ledger, at, first);
    match (taken, &expected) {
        (None, _) => {
            assert_eq!(state(own), before, "what is not taken changes nothing");
            let done = format!("{:?}", own.receive(bytes));
            assert_eq!(done, format!("{expected:?}"));
        }
        (Some(ReplyPart::Partial), Ingress::Partial) => own.keep(buffer, bytes),
        (Some(ReplyPart::Complete(is)), Ingress::Complete(due)) => {
            assert_eq!(is, *due);
            own.keep(buffer, bytes);
        }
        (taken, expected) => panic!("{taken:?} is {expected:?}"),
    }
    assert_eq!(state(own), state(general));
    if let Ingress::Complete(Complete::Reply(of)) = expected {
        let (message, parts) = general.completed();
        let (conn, ledger) = (&general.conn, &general.ledger);
        let placed = conn.resolve_reply(ledger, of, &message, &parts, &Offered::NONE);
        let first = own.first_segment(parts[0].buffer, parts[0].byte_len);
        match own.conn.find_segmented(&own.ledger, of, &first) {
            None => {
                let is_simple = message.dp.len() == 1 && is_in_first(&message);
                assert!(taken.is_none() || placed.is_err() || !is_simple);
            }
            Some(found) => {
                let placed = placed.expect("its own way has found it valid");
                let due: Vec<_> = placed.iter().collect();
                let [due] = due[..] else { panic!("{due:?}") };
                let is = (0, Some(found.position), found.len);
                assert_eq!((due.index, due.position, due.len), is);
                assert!(due.pieces(&general.settings.structure).eq(found.pieces()));
            }
        }
    }
    taken.is_some()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn parts_are_received_as_the_general_way_does(
        changes in vec((0usize..4, 0usize..30, prop_oneof![0u32..12, any::<u32>()]), 0..3),
        order in prop_oneof![3 => Just(vec![0, 1, 2, 3]), 1 => vec(0usize..4, 4..8)],
        cut in prop_oneof![3 => Just((0usize, 0usize)), 1 => (0usize..4, 0usize..3000)],
    ) {
        let (client, mut wire) = answered();
        for (at, word, value) in changes {
            wire[at][4 * word..4 * word + 4].copy_from_slice(&value.to_be_bytes());
        }
        let len = wire[cut.0].len() - cut.1.min(wire[cut.0].len() - 28);
        wire[cut.0].truncate(len);
        let (mut own, mut general) = (client().0, client().0);
        for at in order {
            receive_both(&mut own, &mut general, &wire[at]);
        }
    }
}

#[test]
fn a_reply_in_parts_has_its_own_way_unless_a_word_is_another() {
    let (client, wire) = answered();
    let (mut own, mut general) = (client().0, client().0);
    for bytes in &wire {
        assert!(receive_both(&mut own, &mut general, bytes));
    }
    // Every word of the first header but the credits, those of the item, which are checked when the
    // group is complete, and the lengths of the group and its payload.
    for word in 0..(24 + 24 + 4 * 8 + 8) / 4 {
        let (mut own, mut general) = (client().0, client().0);
        let mut bytes = wire[0].clone();
        bytes[4 * word + 3] ^= 1;
        let is_later = matches!(word, 2 | 7 | 8 | 12..=20);
        assert_eq!(receive_both(&mut own, &mut general, &bytes), is_later, "word {word}");
    }
    for word in 0..9 {
        let (mut own, mut general) = (client().0, client().0);
        assert!(receive_both(&mut own, &mut general, &wire[0]));
        let mut bytes = wire[1].clone();
        bytes[4 * word + 3] ^= 1;
        assert_eq!(receive_both(&mut own, &mut general, &bytes), word == 2, "word {word}");
    }
}

/// Receives all parts of a reply by their own way, and says whether its item is found so.
fn finds(own: &mut Side, id: CallId, wire: &[Vec<u8>]) -> bool {
    for bytes in wire {
        let buffer = own.last_buffer() + 1;
        let at = Received { buffer, byte_len: bytes.len() as u32 };
        let first = &bytes[..bytes.len().min(FIRST as usize)];
        assert!(own.conn.on_part(&mut own.ledger, at, first).is_some());
        own.keep(buffer, bytes);
    }
    let Part { buffer, byte_len, .. } = own.conn.group()[0];
    let first = own.first_segment(buffer, byte_len);
    own.conn.find_segmented(&own.ledger, id, &first).is_some()
}

#[test]
fn a_reply_in_parts_takes_the_general_way_if_its_call_has_memory_exposed() {
    let (client, wire) = answered();
    for (mark, is_found) in [(NO_MARK, true), (0, false)] {
        let (mut own, id) = client();
        let peer = own.conn.peer();
        own.ledger.calls.find_mut(id.xid(), peer).expect("it is open").1.mark = mark;
        assert_eq!(finds(&mut own, id, &wire), is_found, "mark {mark}");
    }
}

#[test]
fn an_item_in_parts_that_was_to_be_written_takes_the_general_way() {
    let wire = answered().1;
    for (kind, is_found) in [(WantKind::Choice, true), (WantKind::Exrw, false)] {
        let client = || {
            let settings = good().0.settings();
            let mut client = connected(settings, settings).0;
            let id = client.conn.open_call(&mut client.ledger, 1).expect("room");
            let wants = [Want { kind, pieces: 1, ..Want::sends(8, 40, 0, 8010) }];
            let demand = CallDemand {
                wants: &wants,
                explicit: Explicit::unlimited(0),
                gather_max: 9,
                ..CallDemand::inline(40, 11_000)
            };
            let route = client.conn.route_call(&demand).expect("a route");
            assert!(route.form == CallForm::Xmt && route.wants.contains(0), "{route:?}");
            let memory = [RdmaSegment { handle: 7, length: 8010, offset: 0 }];
            let wants = SegmentLists { segments: &memory, ends: &[1] };
            let exposed = Exposed { wants, ..Exposed::NONE };
            let ledger = &mut client.ledger;
            client.conn.begin_call(ledger, id, &demand, &route, &exposed).expect("as routed");
            (client, id)
        };
        let (mut own, id) = client();
        assert_eq!(finds(&mut own, id, &wire), is_found, "{kind:?}");
        let (mut own, mut general) = (client().0, client().0);
        assert!(wire.iter().all(|bytes| receive_both(&mut own, &mut general, bytes)));
    }
}

/// The calls of a dialogue: with one result, with two, plain, with an item, and with one result.
const CALLS: usize = 5;

/// What happens in a dialogue.
#[derive(Debug, Clone)]
enum Event {
    /// A part of the reply to a call, with a word changed.
    Part { call: usize, part: usize, change: Option<(usize, u32)> },
    /// All parts of the reply to a call.
    Reply(usize),
    /// A part of a call of the peer.
    Request(usize),
    /// A call is given up.
    Abandon(usize),
}

fn any_event() -> impl Strategy<Value = Event> {
    let call = 0..CALLS;
    let change = (0usize..30, prop_oneof![0u32..12, any::<u32>()]);
    let part = (call.clone(), 0usize..4, proptest::option::weighted(0.2, change));
    let part = part.prop_map(|(call, part, change)| Event::Part { call, part, change });
    prop_oneof![
        4 => part,
        2 => call.clone().prop_map(Event::Reply),
        2 => (0usize..3).prop_map(Event::Request),
        1 => call.prop_map(Event::Abandon),
    ]
}

/// A client with calls of all kinds, which takes messages of so many bytes.
fn caller(rpc_len_max: u32) -> (Side, [CallId; CALLS]) {
    let server = good().0.settings();
    let settings = Settings { backward: BackwardSupport::General, rpc_len_max, ..server };
    let mut client = connected(settings, server).0;
    let one = [Want::sends(8, 40, 0, 6500)];
    let two = [Want::sends(8, 24, 0, 3200), Want::sends(24, 40, 0, 3200)];
    let items = [BulkItem { position: 8, len: 900, origin: 0, pieces: 1 }];
    let inline = || CallDemand { gather_max: 9, ..CallDemand::inline(40, 400) };
    let demands = [
        CallDemand { wants: &one, ..inline() },
        CallDemand { wants: &two, ..inline() },
        inline(),
        CallDemand { items: &items, ..inline() },
        CallDemand { wants: &one, ..inline() },
    ];
    let ids = demands.map(|demand| {
        let id = client.conn.open_call(&mut client.ledger, 1).expect("room");
        client.conn.begin_sends(&mut client.ledger, id, &demand).expect("credits");
        id
    });
    (client, ids)
}

/// The parts of a call of the peer, with the xid of a call of this side.
fn request(xid: u32) -> [Vec<u8>; 3] {
    let req = XmtReq { dp: Array::EMPTY, rsd: Array::EMPTY, count: 3, rsbuf: 1, pslen: 40 };
    let body = Body::Optional(Optional::XmtReq(req));
    let first = Header { xid, vers: VERSION_TWO, credit: 4, body };
    let next = |xnum| {
        let body = Body::Optional(Optional::XmtCont(XmtCont { xnum, itype: 0, pslen: 0 }));
        transmission(&Header { xid, vers: VERSION_TWO, credit: 4, body }, &[])
    };
    [transmission(&first, &rpc(xid, false, 40)), next(1), next(2)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn parts_are_received_in_every_state_as_the_general_way_does(
        events in vec(any_event(), 1..12),
        rpc_len_max in prop_oneof![3 => Just(40_002u32), 1 => Just(7000u32)],
    ) {
        let ((mut own, ids), mut general) = (caller(rpc_len_max), caller(rpc_len_max).0);
        let template = answered().1;
        let reply = |call: usize| {
            let mut wire = template.clone();
            let xid = ids[call].xid().to_be_bytes();
            wire.iter_mut().for_each(|bytes| bytes[..4].copy_from_slice(&xid));
            // Behind a header with eight numbers of segments.
            wire[0][88..92].copy_from_slice(&xid);
            wire
        };
        for event in events {
            match event {
                Event::Part { call, part, change } => {
                    let mut bytes = reply(call).swap_remove(part);
                    if let Some((word, value)) = change {
                        bytes[4 * word..4 * word + 4].copy_from_slice(&value.to_be_bytes());
                    }
                    receive_both(&mut own, &mut general, &bytes);
                }
                Event::Reply(call) => {
                    for bytes in reply(call) {
                        receive_both(&mut own, &mut general, &bytes);
                    }
                }
                Event::Request(part) => {
                    receive_both(&mut own, &mut general, &request(ids[0].xid())[part]);
                }
                Event::Abandon(call) => {
                    for side in [&mut own, &mut general] {
                        side.conn.abandon_call(&mut side.ledger, ids[call]);
                    }
                }
            }
        }
    }
}

#[test]
fn the_reply_of_a_dialogue_is_taken_in_parts() {
    let ((mut own, ids), mut general) = (caller(40_002), caller(40_002).0);
    let (_, mut wire) = answered();
    let xid = ids[0].xid().to_be_bytes();
    wire.iter_mut().for_each(|bytes| bytes[..4].copy_from_slice(&xid));
    wire[0][88..92].copy_from_slice(&xid);
    assert!(wire.iter().all(|bytes| receive_both(&mut own, &mut general, bytes)));
}
