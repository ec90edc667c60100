//! Explicit RDMA by the extension: every byte arrives in every form of message, and a form always
//! exists.

use crate::pair::memory::{Content, Lists, Memory, Open, assemble, write_all};
use crate::pair::{Side, connected, rpc, structure, transmission};
use proptest::collection::vec;
use proptest::prelude::*;
use rpcrdma_proto::placement::direct::ItemKind;
use rpcrdma_proto::*;
use rpcrdma_xdr::{
    Array, Body, Header, Loc, MsgItem, Optional, RdmaSegment, RsdItem, RsdLoc, RsdSet, Tbsns,
    XmtReq,
};

/// A whole message, with all its transmissions.
struct Arrived {
    message: Message<'static>,
    parts: Vec<Part>,
    id: Option<CallId>,
}

fn deliver(side: &mut Side, wire: &[Vec<u8>]) -> Arrived {
    for bytes in &wire[..wire.len() - 1] {
        assert!(matches!(side.receive(bytes), Ingress::Partial));
    }
    match side.receive(&wire[wire.len() - 1]) {
        Ingress::Call(message) => Arrived { message, parts: vec![message.part], id: None },
        Ingress::Reply(id, message) => Arrived { message, parts: vec![message.part], id: Some(id) },
        Ingress::Complete(Complete::Call) => {
            let (message, parts) = side.completed();
            Arrived { message, parts, id: None }
        }
        Ingress::Complete(Complete::Reply(id)) => {
            let (message, parts) = side.completed();
            Arrived { message, parts, id: Some(id) }
        }
        other => panic!("not whole: {other:?}"),
    }
}

/// The bytes of a message, with what lies apart put back in.
fn whole(
    side: &Side,
    arrived: &Arrived,
    placed: &Placed<'_>,
    sunk: impl Fn(usize, u32) -> Vec<u8>,
    memory: &Memory,
) -> Vec<u8> {
    let structure = &side.settings.structure;
    let stream = side.gather(&arrived.parts, payload_pieces(structure, &arrived.parts));
    assert_eq!(stream.len() as u32, placed.payload_len());
    let items: Vec<_> = placed
        .iter()
        .map(|item| {
            let bytes = match item.at {
                Place::Sent(_) => side.gather(&arrived.parts, item.pieces(structure)),
                Place::Remote(segments) => {
                    segments.iter().flat_map(|segment| memory.read(&segment)).collect()
                }
                Place::Sink => sunk(item.index, item.len),
            };
            assert_eq!(bytes.len() as u32, item.len);
            (item.position.expect("the extension says where"), bytes)
        })
        .collect();
    let whole = assemble(&stream, &items);
    assert_eq!(whole.len() as u32, placed.virtual_len());
    whole
}

fn any_settings() -> impl Strategy<Value = Settings> {
    let counts = || prop_oneof![Just(1u32), 1u32..6, Just(64)];
    let cut = (1024u32..4100, 0u32..5, 1u32..3000);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (cut, counts(), counts(), counts(), counts(), flags).prop_map(
        |((first, count, length), call, request, response, rsbuf, (long, both, reminv))| {
            let interop = Interop {
                long_call_with_chunks: long,
                write_with_reply: both,
                ..Interop::default()
            };
            Settings {
                credits_requested: request,
                credits_granted_max: response,
                call_count_max: call,
                request_rx_limit: request,
                response_sx_limit: response,
                response_rx_max: rsbuf,
                requester_invalidation: reminv,
                interop,
                ..Settings::new(structure(first, count, length))
            }
        },
    )
}

fn any_len() -> impl Strategy<Value = u32> {
    prop_oneof![2 => 0u32..40, 2 => 1u32..2000, 1 => 2000u32..30_000]
}

fn any_kind() -> impl Strategy<Value = WantKind> {
    prop_oneof![
        Just(WantKind::Exrw),
        Just(WantKind::Tbsn),
        Just(WantKind::Choice),
        Just(WantKind::BySize)
    ]
}

/// A want: kind, room above what comes, minimum, "over", pieces of the sink.
type AnyWant = (WantKind, u32, u32, u32, u32);

fn any_want() -> impl Strategy<Value = AnyWant> {
    let min = prop_oneof![3 => Just(0u32), 1 => 0u32..3000, 1 => Just(u32::MAX)];
    (any_kind(), prop_oneof![Just(0u32), 0u32..50], min, 0u32..3000, 0u32..4)
}

fn any_shapes() -> impl Strategy<Value = Vec<(u32, u32, u32)>> {
    vec((prop_oneof![0u32..20, 0u32..600], any_len(), 1u32..4), 0..5)
}

/// Wants of two operations, and the items of the reply that each brings.
#[derive(Debug, Clone)]
struct Operations {
    wants: Vec<Want>,
    /// For each item of the reply the want that it meets.
    met: Vec<Option<usize>>,
    answer: Content,
}

impl Operations {
    /// The first `cuts.0` wants and the first `cuts.1` items are of the first operation.
    fn new(mut answer: Content, wanted: &[AnyWant], end: u32, cuts: (usize, usize)) -> Self {
        let (wants_cut, items_cut) = (cuts.0.min(wanted.len()), cuts.1.min(answer.items.len()));
        let mut met = Vec::new();
        for (index, item) in answer.items.iter_mut().enumerate() {
            let second = index >= items_cut;
            item.origin = if second { 4 } else { 0 };
            let want = if second { index - items_cut + wants_cut } else { index };
            let limit = if second { wanted.len() } else { wants_cut };
            met.push((want < limit).then_some(want));
        }
        let wants = wanted.iter().enumerate().map(|(index, want)| {
            let (kind, room, min_len, over, pieces) = *want;
            let item = met.iter().position(|met| *met == Some(index));
            let max_len = item.map_or(0, |item| answer.items[item].len) + room;
            let (begin, end) = if index < wants_cut { (0, 4) } else { (4, end) };
            Want { begin, end, min_len, max_len, kind, over, pieces }
        });
        Self { wants: wants.collect(), met, answer }
    }

    fn demand<'a>(&'a self, content: &'a Content, explicit: Explicit) -> CallDemand<'a> {
        let unmet = self.answer.stream_without(|index| self.met[index].is_some());
        CallDemand {
            payload: content.payload.len() as u32,
            items: &content.items,
            wants: &self.wants,
            reply_payload_max: unmet.len() as u32,
            gather_max: 64,
            copy_max: 0,
            explicit,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn every_byte_arrives_by_the_extension(
        (client, server) in (any_settings(), any_settings()),
        call in (any_shapes(), 0u32..3000),
        reply in (any_shapes(), 0u32..3000),
        wanted in vec(any_want(), 0..5),
        cuts in (0usize..5, 0usize..5),
        rdma_buffer_len in prop_oneof![Just(0u32), 300u32..9000, Just(1 << 20)],
        spare in prop_oneof![Just(0u32), 1u32..9],
    ) {
        let invalidates = client.requester_invalidation;
        let (mut client, mut server) = connected(client, server);
        let id = client.conn.open_call(&mut client.ledger, 7).expect("ready");
        let content = Content::new(id.xid(), false, &call.0, call.1);
        let answer = Content::new(id.xid(), true, &reply.0, reply.1);
        let end = content.stream().len() as u32;
        let operations = Operations::new(answer, &wanted, end, cuts);
        // Nothing of an operation lies in an empty range.
        prop_assume!(end > 4);
        let demand = operations.demand(&content, Explicit::unlimited(rdma_buffer_len));
        let route = match client.conn.route_call(&demand) {
            Ok(route) => route,
            Err(SendError::NoRoute { .. }) => return Ok(()),
            Err(other) => panic!("{other}"),
        };
        // Whatever is idle can send at once what it has a route for.
        prop_assert!(route.count <= client.conn.credits_available());
        if route.form != CallForm::Xmt {
            prop_assert_eq!((route.count, route.reply_count), (1, 1));
            return Ok(());
        }
        let mut open = Open::new(&route, &demand, &content, spare);
        let kept: &'static Open = Box::leak(Box::new(Open {
            items: Lists { segments: open.items.segments.clone(), ends: open.items.ends.clone() },
            wants: Lists { segments: open.wants.segments.clone(), ends: open.wants.ends.clone() },
            ..Open::default()
        }));
        let begun =
            client.conn.begin_call(&mut client.ledger, id, &demand, &route, &kept.exposed());
        let mut plan = begun.expect("as routed");
        let wire = client.transmit(&mut plan, &content.payload, &content.bulk);
        prop_assert_eq!(wire.len() as u32, route.count);
        let arrived = deliver(&mut server, &wire);
        let placed = server.conn.resolve_call(&arrived.message, &arrived.parts);
        let placed = placed.expect("what was planned is valid");
        let none = |_, _| panic!("a call has no sink");
        prop_assert!(whole(&server, &arrived, &placed, none, &open.memory) == content.stream());
        // What is apart is apart in one way.
        for item in placed.iter() {
            prop_assert!(matches!(item.at, Place::Remote(_)) != route.items.is_empty());
        }

        let answer = &operations.answer;
        let to = arrived.message.reply_to();
        let reply = ReplyDemand {
            payload: answer.payload.len() as u32,
            items: &answer.items,
            offer: arrived.message.offer(),
            gather_max: 64,
            copy_max: 0,
        };
        // A reply within what was promised has a way, whatever way that is.
        let plan = server.conn.begin_reply(&mut server.ledger, &to, &reply);
        let mut plan = plan.expect("as promised");
        let handles: Vec<u32> =
            open.items.segments.iter().chain(&open.wants.segments).map(|it| it.handle).collect();
        let common = handles.first().filter(|first| handles.iter().all(|handle| handle == *first));
        prop_assert_eq!(plan.invalidate(), common.copied().filter(|_| invalidates));
        write_all(&mut plan, answer, &mut open.memory, 64);
        let wire = server.transmit(&mut plan, &answer.payload, &answer.bulk);
        prop_assert!(wire.len() as u32 <= route.reply_count);
        let arrived = deliver(&mut client, &wire);
        prop_assert_eq!(arrived.id, Some(id));
        let offered = open.offered(route.wants);
        let (ledger, parts) = (&client.ledger, &arrived.parts);
        let placed = client.conn.resolve_reply(ledger, id, &arrived.message, parts, &offered);
        let placed = placed.expect("what was planned is valid");
        let sink = |index| open.wants.lists().of(route.wants, index);
        let sunk = |index, len| open.memory.first(sink(index), len);
        prop_assert!(whole(&client, &arrived, &placed, sunk, &open.memory) == answer.stream());
        // Every want has its result, which Table 2 allows; what has no item is NOITEM.
        if arrived.message.via == Via::Xmt {
            let results: Vec<_> = placed.results().collect();
            prop_assert_eq!(results.len(), operations.wants.len());
            for (index, result) in results.into_iter().enumerate() {
                let asked = operations.wants[index].asked(route.wants.contains(index));
                prop_assert!(asked.duty(result).is_some(), "{:?} {:?}", asked, result);
                let is_met = operations.met.contains(&Some(index));
                prop_assert_eq!(result == ItemKind::NoItem, !is_met);
                if route.wants.contains(index) && result != ItemKind::Exrw {
                    prop_assert_eq!(sunk(index, 0), vec![0u8; 0], "nothing is written");
                }
            }
        } else {
            prop_assert!(placed.iter().next().is_none(), "wire.md E32");
        }
        client.conn.finish_call(&mut client.ledger, id).expect("open");
        prop_assert_eq!(server.conn.inflow().outstanding(), 0);
        prop_assert_eq!(client.ledger.replies.reserved(), 0);
    }

    #[test]
    fn every_call_has_a_form_or_a_clear_error(
        (client, server) in (any_settings(), any_settings()),
        extension in any::<bool>(),
        shapes in vec((0u32..20, prop_oneof![0u32..3000, 0u32..600_000], 1u32..4), 0..4),
        tail in prop_oneof![0u32..600, 0u32..200_000],
        reply in prop_oneof![8u32..3000, 8u32..1_000_000],
        wanted in vec((any_kind(), prop_oneof![0u32..3000, 0u32..600_000], 0u32..4), 0..4),
        busy in 0u32..6,
    ) {
        let strip = |settings: Settings| match extension {
            true => settings,
            false => Settings { rtr: rpcrdma_xdr::RtrSupport::empty(), ..settings },
        };
        let (mut client, _) = connected(strip(client), strip(server));
        let content = Content::new(16, false, &shapes, tail);
        let end = content.stream().len() as u32;
        let wants: Vec<_> = wanted.iter().map(|(kind, max_len, pieces)| {
            let (kind, max_len, pieces) = (*kind, *max_len, *pieces);
            Want { begin: 0, end, min_len: 0, max_len, kind, over: 1000, pieces }
        }).collect();
        let demand = |explicit| CallDemand {
            payload: content.payload.len() as u32,
            items: &content.items,
            wants: &wants,
            reply_payload_max: reply,
            gather_max: 64,
            copy_max: 0,
            explicit,
        };
        // Some of the credits are in use.
        let mut others = Vec::new();
        for _ in 0..busy.min(client.conn.credits_available()) {
            let id = client.conn.open_call(&mut client.ledger, 0).expect("ready");
            let small = CallDemand::inline(40, 40);
            client.conn.begin_sends(&mut client.ledger, id, &small).expect("a credit");
            others.push(id);
        }
        let limit = client.conn.credits_limit();
        let all = Explicit::unlimited(1 << 20);
        let route = client.conn.route_call(&demand(all)).expect("explicit RDMA takes everything");
        prop_assert!(route.count <= limit);
        match client.conn.route_call(&demand(Explicit::NONE)) {
            Ok(route) => {
                prop_assert!(!route.exposes());
                prop_assert!(route.count <= limit, "{} of {} credits", route.count, limit);
                // It waits for what will come back, and no longer.
                for id in others {
                    client.conn.finish_call(&mut client.ledger, id).expect("open");
                }
                let id = client.conn.open_call(&mut client.ledger, 0).expect("ready");
                let demand = demand(Explicit::NONE);
                let begun = client.conn.begin_sends(&mut client.ledger, id, &demand);
                prop_assert!(begun.is_ok(), "{:?}", begun.err());
            }
            Err(SendError::NeedsExplicitRdma { transmissions, limit, .. }) => {
                prop_assert!(transmissions == 0 || transmissions > limit);
            }
            Err(other) => panic!("{other}"),
        }
    }
}

/// What is written is no part of what a transmission is gathered from.
#[test]
fn the_pieces_of_a_reply_with_an_item_that_is_written_are_those_of_the_others() {
    let segments = [RdmaSegment { handle: 1, length: 5000, offset: 4096 }];
    let directions = [RsdItem { min_len: 0, loc: RsdLoc::Exrw(Array::from_slice(&segments)) }];
    let sets = [RsdSet { begin: 0, end: 40, items: Array::from_slice(&directions) }];
    let rsd = Array::from_slice(&sets);
    let req = XmtReq { dp: Array::EMPTY, rsd, count: 1, rsbuf: 1, pslen: 40 };
    let header = Header { xid: 9, vers: 2, credit: 8, body: Body::Optional(Optional::XmtReq(req)) };
    let call = transmission(&header, &rpc(9, false, 40));
    let item = |position, len| BulkItem { position, len, origin: 0, pieces: 1 };
    let mut items = vec![item(12, 5000)];
    items.extend((0..5).map(|index| item(5016 + 12 * index, 5)));
    // The header; and the payload, an item and its padding five times. The first two of these have
    // 21 bytes, and copied together they are one.
    for (gather_max, copy_max, fits) in
        [(16, 0, true), (15, 0, false), (15, 20, false), (15, 21, true)]
    {
        let settings = Settings::new(structure(4096, 0, 0));
        let (_, mut server) = connected(settings, settings);
        let Ingress::Call(message) = server.receive(&call) else { panic!("a call") };
        let (offer, payload) = (message.offer(), 12 + 5 * 4);
        let demand = ReplyDemand { payload, items: &items, offer, gather_max, copy_max };
        match server.conn.begin_reply(&mut server.ledger, &message.reply_to(), &demand) {
            Ok(Plan::Group(plan)) => assert!(fits && plan.is_direct(0), "{gather_max} {copy_max}"),
            Ok(_) => panic!("it has items"),
            Err(why) => {
                assert!(!fits, "{gather_max} {copy_max}");
                assert_eq!(why, SendError::TooManyPieces { need: 16, max: gather_max });
            }
        }
    }
}

/// Items with bytes and without, where not all of it is in one transmission.
const LENS: [u32; 4] = [5000, 0, 1, 7000];
/// Those that leave the stream.
const APART: [bool; 4] = [true, false, true, true];

fn items() -> Vec<BulkItem> {
    let mut position = 8;
    let item = |len: u32| {
        let item = BulkItem { position, len, origin: 0, pieces: 1 };
        position += item.padded_len();
        item
    };
    LENS.into_iter().map(item).collect()
}

/// Which items a plan places by Send, and which it moves by RDMA.
fn apart(plan: &Plan<'_>) -> [[bool; 4]; 2] {
    let Plan::Group(plan) = plan else { panic!("it has items: {plan:?}") };
    let all = [0, 1, 2, 3];
    [all.map(|index| plan.is_placed(index)), all.map(|index| plan.is_direct(index))]
}

// [RTR] 3.3, 3.4, 5.3
#[test]
fn the_items_that_are_placed_by_send_are_those_that_are_moved_by_rdma() {
    const NONE: [bool; 4] = [false; 4];
    let items = items();
    let content = Content::new(0, false, &LENS.map(|len| (0, len, 1)), 0);
    for (places, expected) in [(4, [APART, NONE]), (0, [NONE, APART])] {
        let settings = Settings::new(structure(4096, places, 8192));
        let (mut client, mut server) = connected(settings, settings);
        let id = client.conn.open_call(&mut client.ledger, 0).expect("ready");
        let demand = CallDemand {
            items: &items,
            gather_max: 30,
            explicit: Explicit::unlimited(16_384),
            ..CallDemand::inline(8, 8)
        };
        let route = client.conn.route_call(&demand).expect("a way");
        assert_eq!(route.form, CallForm::Xmt, "the extension with either");
        let open = Open::new(&route, &demand, &content, 0);
        let (ledger, exposed) = (&mut client.ledger, open.exposed());
        let plan = client.conn.begin_call(ledger, id, &demand, &route, &exposed).expect("routed");
        assert_eq!(apart(&plan), expected, "the items of a call");
        // The same results, as the directions ask.
        let memory = LENS.map(|length| [RdmaSegment { handle: 7, length, offset: 0 }]);
        let direction = |memory: &'static [RdmaSegment]| match places {
            0 => RsdItem { min_len: 0, loc: RsdLoc::Exrw(Array::from_slice(memory)) },
            _ => RsdItem { min_len: 0, loc: RsdLoc::Tbsn },
        };
        let memory: &'static _ = Box::leak(Box::new(memory));
        let directions: Vec<_> = memory.iter().map(|memory| direction(memory)).collect();
        let message = requested(&mut server, &directions);
        let demand = ReplyDemand {
            items: &items,
            offer: message.offer(),
            gather_max: 30,
            ..ReplyDemand::inline(8)
        };
        let plan = server.conn.begin_reply(&mut server.ledger, &message.reply_to(), &demand);
        assert_eq!(apart(&plan.expect("a way")), expected, "the items of a reply");
    }
}

/// A call of 40 bytes with these directions, as a server receives it.
fn requested(server: &mut Side, directions: &[RsdItem<'_>]) -> Message<'static> {
    let sets = [RsdSet { begin: 0, end: 40, items: Array::from_slice(directions) }];
    let rsd = Array::from_slice(&sets);
    let request = XmtReq { dp: Array::EMPTY, rsd, count: 1, rsbuf: 16, pslen: 40 };
    let body = Body::Optional(Optional::XmtReq(request));
    let header = Header { xid: 16, vers: 2, credit: 8, body };
    match server.receive(&transmission(&header, &rpc(16, false, 40))) {
        Ingress::Call(message) => message,
        other => panic!("a call: {other:?}"),
    }
}

/// What a header says of the results: the types of its directions, with the number of segments.
fn stated(wire: &[u8]) -> Vec<(WantKind, usize)> {
    let (header, _) = Header::decode(wire).expect("valid");
    let Body::Optional(Optional::XmtReq(request)) = header.body else { panic!("{header:?}") };
    let all = request.rsd.iter().flat_map(|set| set.items.iter());
    let of = |item: RsdItem<'_>| match item.loc {
        RsdLoc::Exrw(segments) => (WantKind::Exrw, segments.len()),
        RsdLoc::Tbsn => (WantKind::Tbsn, 0),
        RsdLoc::Choice(segments) => (WantKind::Choice, segments.len()),
        RsdLoc::BySize { over, segments } => {
            assert_eq!(over, 999);
            (WantKind::BySize, segments.len())
        }
    };
    all.map(of).collect()
}

// [RTR] 5.3; wire.md W17
#[test]
fn results_are_directed_to_placement_segments_and_to_memory() {
    use WantKind::{BySize, Choice, Exrw, Tbsn};
    let want =
        |kind, pieces, max_len| Want { kind, pieces, over: 999, ..Want::sends(0, 40, 0, max_len) };
    let with_memory = [(Exrw, 1), (Choice, 1), (BySize, 1)];
    // The last result has no memory of the program.
    for (places, len, last, written) in [
        (4, 1000, (Tbsn, 0), [true, false, true, false]),
        (0, 1000, (Tbsn, 0), [true, true, true, false]),
        // Too long for the stream, it is written to memory of the engine, of which it takes seven.
        (0, 100_000, (Choice, 7), [true; 4]),
    ] {
        let settings = Settings::new(structure(4096, places, 8192));
        let (mut client, mut server) = connected(settings, settings);
        let id = client.conn.open_call(&mut client.ledger, 0).expect("ready");
        let wants =
            [want(Exrw, 1, 1000), want(Choice, 1, 1000), want(BySize, 1, 1000), want(Tbsn, 0, len)];
        let demand = CallDemand {
            wants: &wants,
            gather_max: 30,
            explicit: Explicit::unlimited(16_384),
            ..CallDemand::inline(40, 40)
        };
        let route = client.conn.route_call(&demand).expect("a way");
        let content = Content::new(id.xid(), false, &[], 8);
        let open = Open::new(&route, &demand, &content, 0);
        let (ledger, exposed) = (&mut client.ledger, open.exposed());
        let mut plan =
            client.conn.begin_call(ledger, id, &demand, &route, &exposed).expect("routed");
        let wire = client.transmit(&mut plan, &content.payload, &[]);
        assert_eq!(stated(&wire[0]), [&with_memory[..], &[last]].concat(), "{places} {len}");
        let arrived = deliver(&mut server, &wire);
        let items: Vec<_> = [1000, 1000, 1000, len]
            .into_iter()
            .zip([8, 1008, 2008, 3008])
            .map(|(len, position)| BulkItem { position, len, origin: 0, pieces: 1 })
            .collect();
        let (to, offer) = (arrived.message.reply_to(), arrived.message.offer());
        let demand = ReplyDemand { items: &items, offer, gather_max: 30, ..ReplyDemand::inline(8) };
        let plan = server.conn.begin_reply(&mut server.ledger, &to, &demand).expect("as reserved");
        assert_eq!(apart(&plan)[1], written, "{places} {len}");
    }
}

// [RTR] 6.2, 7.4; wire.md E24, E25, E27, E28
#[test]
fn every_direction_is_answered_by_its_kind() {
    const LEN: u32 = 2000;
    let settings = Settings::new(structure(4096, 4, 4096));
    let (_, mut server) = connected(settings, settings);
    let memory = |handle| [RdmaSegment { handle, length: LEN, offset: 64 }];
    let (one, two, three) = (memory(1), memory(2), memory(3));
    let by_size = |over| RsdLoc::BySize { over, segments: Array::from_slice(&three) };
    let direction = |min_len, loc| RsdItem { min_len, loc };
    let directions = [
        direction(0, RsdLoc::Exrw(Array::from_slice(&one))),
        direction(0, RsdLoc::Tbsn),
        direction(LEN, RsdLoc::Choice(Array::from_slice(&two))),
        direction(0, by_size(LEN - 1)),
        direction(0, by_size(LEN)),
        direction(LEN + 1, RsdLoc::Exrw(Array::from_slice(&one))),
        direction(0, RsdLoc::Tbsn),
    ];
    let message = requested(&mut server, &directions);
    let item = |index: u32| BulkItem { position: 8 + index * LEN, len: LEN, origin: 0, pieces: 1 };
    let items: Vec<_> = (0..6).map(item).collect();
    let (to, offer) = (message.reply_to(), message.offer());
    let demand = ReplyDemand { items: &items, offer, gather_max: 30, ..ReplyDemand::inline(8) };
    let plan = server.conn.begin_reply(&mut server.ledger, &to, &demand);
    let wire =
        server.transmit(&mut plan.expect("a way"), &rpc(16, true, 8), &vec![vec![1; 2000]; 6]);
    let (header, _) = Header::decode(&wire[0]).expect("valid");
    let Body::Optional(Optional::XmtResp(response)) = header.body else { panic!("{header:?}") };
    let answers: Vec<_> = response.dp.iter().collect();
    let stated = |index: u32, loc| MsgItem { disp: 8 + index * LEN, length: LEN, loc };
    let sent = |index, segment: &'static [u32]| {
        stated(index, Loc::Tbsn { offset: 0, segments: Tbsns::from_slice(segment) })
    };
    assert_eq!(answers.len(), directions.len());
    assert_eq!(answers[0].loc, Loc::Exrw(Array::from_slice(&one)));
    assert_eq!(answers[3].loc, Loc::Exrw(Array::from_slice(&three)));
    let others = [1, 2, 4, 5, 6].map(|index| answers[index]);
    let no_item = MsgItem { disp: 0, length: 0, loc: Loc::NoItem };
    let (first, second, third) = (sent(1, &[0]), sent(2, &[1]), sent(4, &[2]));
    assert_eq!(others, [first, second, third, stated(5, Loc::TooShort), no_item]);
}
