//! Chunks: one side offers memory, the other reads and writes it, compared byte for byte.

use crate::pair::memory::{Content, Lists, Memory, Open, assemble, write_all};
use crate::pair::{Side, connected_in, structure};
use proptest::collection::vec;
use proptest::prelude::*;
use rpcrdma_proto::*;
use rpcrdma_xdr::RtrSupport;

/// What a responder makes of a call: it reads what is remote.
fn fetched(server: &Side, message: &Message<'static>, memory: &Memory) -> Vec<u8> {
    let parts = [message.part];
    let placed = server.conn.resolve_call(message, &parts).expect("what was planned is valid");
    let remote = |at: Place<'_>, len: u32| {
        let Place::Remote(segments) = at else { panic!("a call offers memory to be read") };
        let bytes: Vec<u8> = segments.iter().flat_map(|segment| memory.read(&segment)).collect();
        assert_eq!(bytes.len() as u32, len);
        bytes
    };
    let stream = match placed.body() {
        Some(MessageBody { len, at }) => {
            let body = remote(at, len);
            let first = body[..8].first_chunk().expect("eight");
            server.conn.check_body(message.xid, first, rpcrdma_xdr::MsgType::Call).expect("a call");
            assert_eq!(placed.payload_len(), 0);
            body
        }
        None => {
            let pieces = payload_pieces(&server.settings.structure, &parts);
            let stream = server.gather(&parts, pieces);
            assert_eq!(stream.len() as u32, placed.payload_len());
            stream
        }
    };
    let items: Vec<_> = placed
        .iter()
        .map(|item| (item.position.expect("a Read chunk has one"), remote(item.at, item.len)))
        .collect();
    let whole = assemble(&stream, &items);
    assert_eq!(whole.len() as u32, placed.virtual_len());
    whole
}

/// What the caller makes of the reply.
fn received(
    client: &Side,
    id: CallId,
    message: &Message<'static>,
    open: &Open,
    route: &CallRoute,
    answer: &Content,
) -> (Vec<u8>, Vec<usize>) {
    let parts = [message.part];
    let offered = open.offered(route.wants);
    let placed = client.conn.resolve_reply(&client.ledger, id, message, &parts, &offered);
    let placed = placed.expect("what was planned is valid");
    let stream = match placed.body() {
        Some(MessageBody { len, at }) => {
            assert!(matches!(at, Place::Sink));
            assert_eq!(placed.payload_len(), 0);
            open.memory.first(&open.reply, len)
        }
        None => {
            assert_eq!(open.memory.first(&open.reply, 0), [0; 0]);
            let pieces = payload_pieces(&client.settings.structure, &parts);
            let stream = client.gather(&parts, pieces);
            assert_eq!(stream.len() as u32, placed.payload_len());
            stream
        }
    };
    let mut items = Vec::new();
    let mut indices = Vec::new();
    for item in placed.iter() {
        assert_eq!(item.position, None);
        assert!(matches!(item.at, Place::Sink));
        let sink = open.wants.lists().of(route.wants, item.index);
        items.push((answer.items[item.index].position, open.memory.first(sink, item.len)));
        indices.push(item.index);
    }
    for index in route.wants.iter().filter(|index| !indices.contains(index)) {
        let sink = open.wants.lists().of(route.wants, index);
        assert_eq!(open.memory.first(sink, 0), [0; 0]);
    }
    let whole = assemble(&stream, &items);
    assert_eq!(whole.len() as u32, placed.virtual_len());
    (whole, indices)
}

fn any_interop() -> impl Strategy<Value = Interop> {
    let chunks = || prop_oneof![3 => Just(1u32), 1 => 2u32..6, 1 => Just(64)];
    let always = any::<bool>().prop_map(|always| match always {
        true => ReplyChunkUse::Always,
        false => ReplyChunkUse::WhenNeeded,
    });
    let flags = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.2));
    (chunks(), chunks(), prop_oneof![Just(1u32), 2u32..20, Just(256)], always, flags).prop_map(
        |(read_chunks_max, write_chunks_max, segments_max, reply_chunk, flags)| Interop {
            read_chunks_max,
            read_chunk_last: flags.2,
            write_chunks_max,
            segments_max,
            long_call_with_chunks: flags.0,
            write_with_reply: flags.1,
            reply_chunk,
            ..Interop::default()
        },
    )
}

fn base(first: u32, interop: Interop) -> Settings {
    Settings { rtr: RtrSupport::empty(), interop, ..Settings::new(structure(first, 0, 0)) }
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn every_byte_arrives_by_chunks(
        (client_size, server_size) in (1024u32..6000, 1024u32..6000),
        (client_interop, server_interop) in (any_interop(), any_interop()),
        call in (any_shapes(), 0u32..800),
        reply in (any_shapes(), 0u32..1500),
        wanted in vec(any_want(), 0..5),
        rdma_buffer_len in prop_oneof![Just(0u32), 300u32..9000, Just(1 << 20)],
        spare in prop_oneof![Just(0u32), 1u32..9],
        gather_max in 3u32..20,
        version in prop_oneof![Just(Version::One), Just(Version::Two)],
    ) {
        let client = base(client_size, client_interop);
        let (mut client, mut server) =
            connected_in(version, client, base(server_size, server_interop));
        let id = client.conn.open_call(&mut client.ledger, 7).expect("ready");
        let content = Content::new(id.xid(), false, &call.0, call.1);
        let answer = Content::new(id.xid(), true, &reply.0, reply.1);
        let end = content.stream().len() as u32;
        let len_of = |index: usize| answer.items.get(index).map_or(0, |item| item.len);
        let wants: Vec<_> = wanted.iter().enumerate().map(|(index, want)| {
            let (kind, room, min_len, over, pieces) = *want;
            let max_len = len_of(index) + room;
            Want { begin: 0, end, min_len, max_len, kind, over, pieces }
        }).collect();
        let demand = CallDemand {
            payload: content.payload.len() as u32,
            items: &content.items,
            wants: &wants,
            // What is not wanted stays in the payload.
            reply_payload_max: answer.stream_without(|index| index < wants.len()).len() as u32,
            gather_max,
            copy_max: 0,
            explicit: Explicit::unlimited(rdma_buffer_len),
        };
        let route = match client.conn.route_call(&demand) {
            Ok(route) => route,
            Err(SendError::NoRoute { .. }) => return Ok(()),
            Err(other) => panic!("{other}"),
        };
        prop_assert_eq!((route.count, route.reply_count), (1, 1));
        prop_assert!(route.items.len() <= client_interop.read_chunks_max);
        prop_assert!(route.wants.last().is_none_or(
            |last| last < client_interop.write_chunks_max as usize));
        prop_assert!(client_interop.write_with_reply || route.wants.is_empty() || route.reply == 0);
        prop_assert!(
            client_interop.long_call_with_chunks || route.items.is_empty() || route.body == 0);
        prop_assert_eq!(route.body > 0, route.form == CallForm::NoMsg);

        let mut open = Open::new(&route, &demand, &content, spare);
        let mut plan = {
            // The exposed lists outlive the plan; tests may leak them.
            let kept: &'static Open = Box::leak(Box::new(Open {
                memory: Memory::default(),
                items: Lists { segments: open.items.segments.clone(), ends: open.items.ends.clone() },
                wants: Lists { segments: open.wants.segments.clone(), ends: open.wants.ends.clone() },
                body: open.body.clone(),
                reply: open.reply.clone(),
            }));
            let exposed = kept.exposed();
            client.conn.begin_call(&mut client.ledger, id, &demand, &route, &exposed).expect("fits")
        };
        if let Plan::Group(plan) = &plan {
            let body = content.gather(plan.body_pieces());
            prop_assert_eq!(body.len() as u32, route.body);
            let mut rest = &body[..];
            for segment in open.body.clone() {
                let (now, later) = rest.split_at(segment.length as usize);
                open.memory.write(&segment, now);
                rest = later;
            }
        }
        let wire = client.transmit(&mut plan, &content.payload, &content.bulk);
        prop_assert_eq!(wire.len(), 1);
        let Ingress::Call(message) = server.receive(&wire[0]) else { panic!("a call") };
        prop_assert!(fetched(&server, &message, &open.memory) == content.stream());

        let demand = ReplyDemand {
            payload: answer.payload.len() as u32,
            items: &answer.items,
            offer: message.offer(),
            gather_max: 64,
            copy_max: 0,
        };
        let to = message.reply_to();
        // A reply within what was promised has a way, whatever way that is.
        let plan = server.conn.begin_reply(&mut server.ledger, &to, &demand);
        let mut plan = plan.expect("as promised");
        prop_assert_eq!(plan.invalidate(), None, "the peer did not say that it can take that");
        write_all(&mut plan, &answer, &mut open.memory, 64);
        let written: Vec<usize> = match &plan {
            Plan::Group(plan) => (0..answer.items.len()).filter(|at| plan.is_direct(*at)).collect(),
            Plan::Inline(_) => Vec::new(),
        };
        let wire = server.transmit(&mut plan, &answer.payload, &answer.bulk);
        prop_assert_eq!(wire.len(), 1);
        let Ingress::Reply(of, message) = client.receive(&wire[0]) else { panic!("a reply") };
        prop_assert_eq!(of, id);
        if route.reply > 0 && server_interop.reply_chunk == ReplyChunkUse::Always {
            prop_assert_eq!(message.via, Via::NoMsg);
        }
        let (whole, indices) = received(&client, id, &message, &open, &route, &answer);
        prop_assert_eq!(indices, written);
        prop_assert!(whole == answer.stream());
        client.conn.finish_call(&mut client.ledger, id).expect("open");
        prop_assert_eq!(server.conn.inflow().outstanding(), 0);
    }
}
