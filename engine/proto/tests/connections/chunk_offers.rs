//! The offers of a call and their use, in both versions: see docs/conformance.md.

use crate::pair::{Side, connected, connected_in, rpc, structure, transmission};
use proptest::collection::vec;
use proptest::prelude::*;
use rpcrdma_proto::report::ReportKind;
use rpcrdma_proto::*;
use rpcrdma_xdr::*;

/// Buffers of 1024 bytes, nothing but base messages, and no habits to be careful of.
fn settings() -> Settings {
    Settings {
        rtr: RtrSupport::empty(),
        credits_requested: 8,
        credits_granted_max: 8,
        rpc_len_max: 100_000,
        interop: free(),
        ..Settings::new(structure(1024, 0, 0))
    }
}

fn free() -> Interop {
    Interop {
        read_chunks_max: 8,
        write_chunks_max: 8,
        segments_max: 64,
        long_call_with_chunks: true,
        write_with_reply: true,
        reply_chunk: ReplyChunkUse::WhenNeeded,
        ..Interop::default()
    }
}

/// A client and a server, in version one and in version two.
fn both() -> [(Side, Side); 2] {
    [Version::One, Version::Two].map(|version| connected_in(version, settings(), settings()))
}

fn segment(handle: u32, length: u32) -> RdmaSegment {
    RdmaSegment { handle, length, offset: u64::from(handle) << 20 }
}

fn read(position: u32, handle: u32, length: u32) -> ReadSegment {
    ReadSegment { position, target: segment(handle, length) }
}

/// What a chunk list is made of.
#[derive(Debug, Default, Clone)]
struct Chunks {
    reads: Vec<ReadSegment>,
    writes: Vec<Vec<RdmaSegment>>,
    reply: Option<Vec<RdmaSegment>>,
}

impl Chunks {
    fn reads(reads: &[ReadSegment]) -> Self {
        Self { reads: reads.to_vec(), ..Self::default() }
    }

    fn writes(writes: &[&[RdmaSegment]]) -> Self {
        Self { writes: writes.iter().map(|list| list.to_vec()).collect(), ..Self::default() }
    }

    fn reply(reply: &[RdmaSegment]) -> Self {
        Self { reply: Some(reply.to_vec()), ..Self::default() }
    }

    /// A message with these lists.
    fn wire(&self, side: &Side, xid: u32, is_msg: bool, payload: &[u8]) -> Vec<u8> {
        let writes: Vec<_> =
            self.writes.iter().map(|list| WriteChunk(Array::from_slice(list))).collect();
        let chunks = ChunkLists {
            reads: ReadList::from_slice(&self.reads),
            writes: WriteList::from_slice(&writes),
            reply: self.reply.as_ref().map(|list| WriteChunk(Array::from_slice(list))),
        };
        let body = if is_msg { Body::Msg(chunks) } else { Body::NoMsg(chunks) };
        let vers = side.conn.version().expect("agreed on").number();
        let header = Header { xid, vers, credit: 8, body };
        let mut bytes = vec![0; header.encoded_len()];
        header.encode(&mut Writer::new(&mut bytes)).expect("as long as it says");
        bytes.extend_from_slice(payload);
        bytes
    }

    /// The lists of a message that was sent, and whether it has its payload with it.
    fn of(bytes: &[u8]) -> (Self, bool) {
        let (header, len) = Header::decode(bytes).expect("valid");
        let (chunks, is_msg) = match header.body {
            Body::Msg(chunks) => (chunks, true),
            Body::NoMsg(chunks) => (chunks, false),
            other => panic!("no base message: {other:?}"),
        };
        assert_eq!(is_msg, bytes.len() > len, "a payload follows RDMA_MSG only");
        let list = |WriteChunk(list): WriteChunk<'_>| list.iter().collect::<Vec<_>>();
        let lists = Self {
            reads: chunks.reads.iter().collect(),
            writes: chunks.writes.iter().map(list).collect(),
            reply: chunks.reply.map(list),
        };
        (lists, is_msg)
    }
}

/// A call with these lists and a payload of 40 bytes behind them, as its responder resolves it.
fn resolved(server: &mut Side, chunks: &Chunks, is_msg: bool) -> Result<Seen, Violation> {
    let payload = if is_msg { rpc(9, false, 40) } else { Vec::new() };
    let bytes = chunks.wire(server, 9, is_msg, &payload);
    let Ingress::Call(message) = server.receive(&bytes) else { panic!("a call") };
    let parts = [message.part];
    let result = server.conn.resolve_call(&message, &parts).map(|placed| Seen {
        virtual_len: placed.virtual_len(),
        body: placed.body().map(|body| segments_of(body.at)),
        items: placed
            .iter()
            .map(|item| (item.position.expect("it has one"), item.len, segments_of(item.at)))
            .collect(),
    });
    let to = message.reply_to();
    match result {
        Ok(_) => drop(server.conn.refuse(&mut server.ledger, &to)),
        Err(violation) => {
            let report = server.conn.reject_call(&mut server.ledger, &to, violation);
            assert_eq!((report.xid, report.kind), (9, ReportKind::BadHeader), "RFC 8166 4.5.2");
        }
    }
    assert_eq!(server.conn.inflow().outstanding(), 0);
    result
}

#[derive(Debug, PartialEq)]
struct Seen {
    virtual_len: u32,
    body: Option<Vec<RdmaSegment>>,
    items: Vec<(u32, u32, Vec<RdmaSegment>)>,
}

fn segments_of(at: Place<'_>) -> Vec<RdmaSegment> {
    match at {
        Place::Remote(segments) => segments.iter().collect(),
        other => panic!("not remote: {other:?}"),
    }
}

/// A call of the client that offers these lists, and what the server makes of it.
struct Offered {
    server: Side,
    to: ReplyTo,
    message: Message<'static>,
}

impl Offered {
    fn new((_, mut server): (Side, Side), chunks: &Chunks) -> Self {
        let bytes = chunks.wire(&server, 9, true, &rpc(9, false, 40));
        let Ingress::Call(message) = server.receive(&bytes) else { panic!("a call") };
        let to = message.reply_to();
        Self { server, to, message }
    }

    /// The RDMA Writes and the message of a reply with items of these lengths, each behind a word.
    fn reply(&mut self, lens: &[u32], tail: u32) -> Result<(Vec<RdmaSegment>, Vec<u8>), SendError> {
        let mut position = 8;
        let mut items = Vec::new();
        for len in lens {
            position += 4;
            items.push(BulkItem { position, len: *len, origin: 0, pieces: 1 });
            position += len.next_multiple_of(4);
        }
        let bulk: Vec<_> = lens.iter().map(|len| vec![7; *len as usize]).collect();
        let payload = rpc(9, true, 8 + 4 * lens.len() + tail as usize);
        let demand = ReplyDemand {
            payload: payload.len() as u32,
            items: &items,
            offer: self.message.offer(),
            gather_max: 16,
            copy_max: 0,
        };
        let ledger = &mut self.server.ledger;
        let mut plan = self.server.conn.begin_reply(ledger, &self.to, &demand)?;
        let mut writes = Vec::new();
        if let Plan::Group(plan) = &mut plan {
            while let Some(write) = plan.next_write() {
                let gathered: u32 = plan.write_pieces(&write).map(|piece| piece.len()).sum();
                assert_eq!(gathered, write.remote.length);
                writes.push(write.remote);
            }
        }
        let wires = self.server.transmit(&mut plan, &payload, &bulk);
        assert_eq!(wires.len(), 1);
        Ok((writes, wires.into_iter().next().expect("one")))
    }
}

fn lens(list: &[RdmaSegment]) -> Vec<u32> {
    list.iter().map(|segment| segment.length).collect()
}

// RFC 8166 3.4.5
#[test]
fn segments_of_one_position_are_one_item_in_the_order_of_the_list() {
    for (_, mut server) in both() {
        let chunks =
            Chunks::reads(&[read(12, 5, 3), read(12, 4, 6), read(28, 3, 1), read(40, 2, 4)]);
        let seen = resolved(&mut server, &chunks, true).expect("valid");
        let items = [
            (12, 9, vec![segment(5, 3), segment(4, 6)]),
            (28, 1, vec![segment(3, 1)]),
            (40, 4, vec![segment(2, 4)]),
        ];
        assert_eq!(seen, Seen { virtual_len: 40 + 12 + 4 + 4, body: None, items: items.into() });
    }
}

// RFC 8166 4.2.4
#[test]
fn a_payload_follows_any_of_the_three_lists() {
    for (_, mut server) in both() {
        for bits in 0..8 {
            let has = |bit: u8| bits & bit > 0;
            let chunks = Chunks {
                reads: if has(1) { vec![read(8, 1, 4)] } else { vec![] },
                writes: if has(2) { vec![vec![segment(2, 4)]] } else { vec![] },
                reply: has(4).then(|| vec![segment(3, 100)]),
            };
            let payload = rpc(9, false, 40);
            let bytes = chunks.wire(&server, 9, true, &payload);
            let Ingress::Call(message) = server.receive(&bytes) else { panic!("a call: {bits}") };
            let Part { payload_start, payload_len, .. } = message.part;
            assert_eq!(bytes[payload_start as usize..][..payload_len as usize], payload);
            assert!(message.reads.iter().eq(chunks.reads), "{bits}");
            let lists = message.writes.iter().map(|list| list.0.iter().collect::<Vec<_>>());
            assert!(lists.eq(chunks.writes), "{bits}");
            assert_eq!(message.reply.map(|list| list.0.iter().collect()), chunks.reply);
            server.conn.refuse(&mut server.ledger, &message.reply_to());
        }
    }
}

// RFC 8166 3.5.3
#[test]
fn results_leave_before_the_form_of_a_reply_is_chosen() {
    let (chunk, reply) = ([segment(1, 2000)], [segment(2, 3000)]);
    let chunks = Chunks { reply: Some(reply.to_vec()), ..Chunks::writes(&[&chunk]) };
    for sides in both() {
        let mut offered = Offered::new(sides, &chunks);
        let (writes, bytes) = offered.reply(&[1999], 100).expect("it fits");
        assert_eq!(writes, [segment(1, 1999)]);
        let (lists, is_msg) = Chunks::of(&bytes);
        assert!(is_msg, "what is left is short");
        assert_eq!(lens(&lists.reply.expect("unused")), [0]);
    }
    for sides in both() {
        // Too long without the result as well: both chunks are used.
        let mut offered = Offered::new(sides, &chunks);
        let (writes, bytes) = offered.reply(&[1999], 1200).expect("it fits");
        assert_eq!(writes, [segment(1, 1999), segment(2, 8 + 4 + 1200)]);
        assert!(!Chunks::of(&bytes).1);
    }
    for sides in both() {
        // A result in line is in the Reply chunk with its padding.
        let mut offered = Offered::new(sides, &Chunks::reply(&reply));
        let (writes, _) = offered.reply(&[1997], 100).expect("it fits");
        assert_eq!(writes.iter().map(|it| it.length).sum::<u32>(), 8 + 4 + 2000 + 100);
    }
}

/// Routes a call with these demands, exposes what the route names, and sends it.
fn sent(client: &mut Side, demand: &CallDemand<'_>) -> (CallId, CallRoute, Chunks, bool) {
    let id = client.conn.open_call(&mut client.ledger, 1).expect("ready");
    let route = client.conn.route_call(demand).expect("there is a way");
    let mut handle = 0x100;
    let mut expose = |len: u32| {
        handle += 1;
        if len == 0 { vec![] } else { vec![segment(handle, len)] }
    };
    let lists = |lens: Vec<u32>, expose: &mut dyn FnMut(u32) -> Vec<RdmaSegment>| {
        let (mut segments, mut ends) = (Vec::new(), Vec::new());
        for len in lens {
            segments.extend(expose(len));
            ends.push(segments.len() as u16);
        }
        (segments, ends)
    };
    let of_items = route.items.iter().map(|at| demand.items[at].len).collect();
    let of_wants = route.wants.iter().map(|at| demand.wants[at].max_len).collect();
    let (items, item_ends) = lists(of_items, &mut expose);
    let (wants, want_ends) = lists(of_wants, &mut expose);
    let (body, reply) = (expose(route.body), expose(route.reply));
    let exposed = Exposed {
        items: SegmentLists { segments: &items, ends: &item_ends },
        wants: SegmentLists { segments: &wants, ends: &want_ends },
        body: &body,
        reply: &reply,
    };
    let payload = rpc(id.xid(), false, demand.payload as usize);
    let bulk: Vec<_> = demand.items.iter().map(|item| vec![7; item.len as usize]).collect();
    let plan = client.conn.begin_call(&mut client.ledger, id, demand, &route, &exposed);
    let wires = client.transmit(&mut plan.expect("a credit is there"), &payload, &bulk);
    let (chunks, is_msg) = Chunks::of(&wires[0]);
    (id, route, chunks, is_msg)
}

fn demand<'a>(payload: u32, items: &'a [BulkItem], wants: &'a [Want]) -> CallDemand<'a> {
    CallDemand {
        items,
        wants,
        gather_max: 16,
        explicit: Explicit::unlimited(1 << 20),
        ..CallDemand::inline(payload, 40)
    }
}

fn item(position: u32, len: u32) -> BulkItem {
    BulkItem { position, len, origin: 0, pieces: 1 }
}

fn want(max_len: u32) -> Want {
    Want { begin: 0, end: 40, min_len: 0, max_len, kind: WantKind::Exrw, over: 0, pieces: 1 }
}

// RFC 8166 3.4.4, 3.4.5, 3.4.5.2
#[test]
fn an_argument_is_a_read_chunk_at_its_unreduced_position_without_padding() {
    for (mut client, _) in both() {
        let items = [item(12, 3001), item(3020, 2002)];
        let (_, route, chunks, is_msg) = sent(&mut client, &demand(40, &items, &[]));
        assert!(is_msg && route.items.iter().eq([0, 1]));
        let seen: Vec<_> = chunks.reads.iter().map(|it| (it.position, it.target.length)).collect();
        assert_eq!(seen, [(12, 3001), (3020, 2002)], "one chunk each");
        assert!(chunks.writes.is_empty() && chunks.reply.is_none());
    }
}

// RFC 8166 3.5.3
#[test]
fn a_call_too_long_without_its_items_is_read_as_a_whole() {
    for (mut client, _) in both() {
        for payload in [1024 - 28, 1024 - 24] {
            let (_, route, chunks, is_msg) = sent(&mut client, &demand(payload, &[], &[]));
            assert_eq!(is_msg, payload == 1024 - 28, "the edge");
            if !is_msg {
                assert_eq!((route.form, route.body), (CallForm::NoMsg, payload));
                let seen: Vec<_> =
                    chunks.reads.iter().map(|it| (it.position, it.target.length)).collect();
                assert_eq!(seen, [(0, payload)]);
            }
        }
        // Items that are not read apart are in it, with their padding.
        let careful = Interop { long_call_with_chunks: false, ..free() };
        let settings = Settings { interop: careful, ..settings() };
        let (mut client, _) = connected_in(Version::One, settings, settings);
        let items = [item(12, 2001)];
        let (_, route, chunks, is_msg) = sent(&mut client, &demand(2000, &items, &[]));
        assert!(!is_msg && route.items.is_empty());
        assert_eq!(chunks.reads[0].target.length, 2000 + 2004);
    }
}

// RFC 8166 3.4.6, 3.4.6.2, 4.3.2.2, 4.3.3
#[test]
fn memory_is_offered_for_the_longest_results_and_the_longest_reply() {
    for (mut client, _) in both() {
        // A result has as much room as it can need, and none for padding.
        let wants = [want(2001), want(3)];
        let (_, _, chunks, _) = sent(&mut client, &demand(40, &[], &wants));
        let offered: Vec<_> = chunks.writes.iter().map(|list| lens(list)).collect();
        assert_eq!(offered, [[2001], [3]]);
        assert!(chunks.reply.is_none());
        // A reply that might exceed a message has a chunk for its longest form; one that cannot has
        // none.
        for (longest, has) in [(1024 - 28, false), (1024 - 24, true), (5000, true)] {
            let long = CallDemand { reply_payload_max: longest, ..demand(40, &[], &[]) };
            let (_, _, chunks, _) = sent(&mut client, &long);
            let expected = has.then(|| vec![longest]);
            assert_eq!(chunks.reply.map(|list| lens(&list)), expected, "{longest}");
        }
        // Without memory for it the call is not sent.
        let none = Explicit::unlimited(0);
        let long = CallDemand { reply_payload_max: 5000, explicit: none, ..demand(40, &[], &[]) };
        let refused = client.conn.route_call(&long);
        assert!(matches!(refused, Err(SendError::NoRoute { .. })), "{refused:?}");
    }
}

/// A client with buffers of these segments, and a server that receives whatever it offers.
fn unlike(version: Version, segments: &[u32]) -> (Side, Side) {
    let group =
        |length: &u32| SegmentGroup { count: 1, length: *length, align: 4, placement: false };
    let groups: Vec<_> = segments.iter().map(group).collect();
    let small = Settings { structure: RecvStructure::new(&groups).expect("valid"), ..settings() };
    let large = Settings { structure: structure(16 << 10, 0, 0), ..settings() };
    connected_in(version, small, large)
}

/// Whether the server takes a call that offers this, and whether it has a reply of so many bytes to
/// such a call.
fn is_taken((client, mut server): (Side, Side), chunks: &Chunks, shortest: u32) -> (bool, bool) {
    let taken = resolved(&mut server, chunks, true);
    if let Err(violation) = taken {
        assert!(matches!(violation, Violation::BadHeader(_)), "{violation}");
    }
    let reply = Offered::new((client, server), chunks).reply(&[], shortest - 8);
    (taken.is_ok(), reply.is_ok())
}

// RFC 8166 3.4.6: all of it comes back with the reply, whatever that is.
#[test]
fn a_call_that_offers_more_than_a_reply_can_return_is_rejected() {
    for version in [Version::One, Version::Two] {
        // The header has 28 bytes, a Write chunk 8 and 16 for each segment, a Reply chunk 4 less.
        let most = |taken: u32| vec![segment(1, 100); ((1024 - 28 - taken) / 16) as usize];
        let more = |mut list: Vec<RdmaSegment>| {
            list.push(segment(1, 100));
            list
        };
        for (chunks, expected) in [
            (Chunks::writes(&[&most(8 + 8)]), true),
            (Chunks::writes(&[&more(most(8 + 8))]), false),
            (Chunks::writes(&[&most(16 + 8), &[]]), true),
            (Chunks::writes(&[&more(most(16 + 8)), &[]]), false),
            // A reply that is written needs no room behind its header.
            (Chunks::reply(&most(4)), true),
            (Chunks::reply(&more(most(4))), false),
        ] {
            assert_eq!(is_taken(unlike(version, &[1024]), &chunks, 8), (expected, expected));
        }
    }
}

/// A Reply chunk counts as far as it holds a message.
#[test]
fn a_reply_chunk_without_room_for_a_message_does_not_save_a_call() {
    for (length, expected) in [(0, false), (7, false), (8, true)] {
        // 28, 8 + 16 * 60, 8, and 4 + 16: a header of 1024 bytes, with nothing behind it.
        let mut chunks = Chunks::writes(&[&[segment(1, 10); 60], &[]]);
        chunks.reply = Some(vec![segment(2, length)]);
        assert_eq!(is_taken(unlike(Version::Two, &[1024]), &chunks, 8), (expected, expected));
    }
}

/// Any segments, of few bytes.
fn any_segments(most: usize) -> impl Strategy<Value = Vec<RdmaSegment>> {
    vec((1u32..9, 0u32..20).prop_map(|(handle, length)| segment(handle, length)), 0..most)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_call_is_taken_if_the_shortest_reply_returns_all_that_it_offers(
        is_first in any::<bool>(),
        segments in (1024u32..4000, vec(500u32..3000, 0..3)),
        writes in vec(any_segments(80), 0..5),
        reply in prop::option::of(any_segments(80)),
    ) {
        let version = if is_first { Version::One } else { Version::Two };
        let (first, others) = segments;
        let mut segments = [&[first][..], &others].concat();
        if is_first {
            // It has no segments, and states whole KiB.
            segments = vec![first.next_multiple_of(1024)];
        }
        let chunks = Chunks { writes, reply, ..Chunks::default() };
        let (is_taken, is_answered) = is_taken(unlike(version, &segments), &chunks, 8);
        prop_assert_eq!(is_taken, is_answered, "{:?}", segments);
    }

    #[test]
    fn reply_directions_never_leave_a_call_without_an_answer(
        first in 1024u32..4000,
        directions in vec((0u32..4, any_segments(40)), 0..20),
        rsbuf in 0u32..4,
    ) {
        let (_, mut server) = connected(
            Settings::new(structure(first, 0, 0)),
            Settings::new(structure(64 << 10, 0, 0)),
        );
        let directions: Vec<_> = directions
            .iter()
            .map(|(kind, segments)| {
                let segments = Array::from_slice(segments);
                let loc = match kind {
                    0 => RsdLoc::Exrw(segments),
                    1 => RsdLoc::Choice(segments),
                    2 => RsdLoc::BySize { over: 100, segments },
                    _ => RsdLoc::Tbsn,
                };
                RsdItem { min_len: 0, loc }
            })
            .collect();
        let sets = [RsdSet { begin: 0, end: 40, items: Array::from_slice(&directions) }];
        let rsd = Array::from_slice(&sets);
        let req = XmtReq { dp: Array::EMPTY, rsd, count: 1, rsbuf, pslen: 40 };
        let header = Header { xid: 9, vers: 2, credit: 8, body: Body::Optional(Optional::XmtReq(req)) };
        let Ingress::Call(message) = server.receive(&transmission(&header, &rpc(9, false, 40)))
        else {
            panic!("a call")
        };
        prop_assert!(server.conn.resolve_call(&message, &[message.part]).is_ok());
        let demand = ReplyDemand { offer: message.offer(), ..ReplyDemand::inline(40) };
        let plan = server.conn.begin_reply(&mut server.ledger, &message.reply_to(), &demand);
        prop_assert!(plan.is_ok(), "{plan:?}");
    }
}
