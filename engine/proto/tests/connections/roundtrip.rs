//! Planned messages arrive at the other side: every byte at its position.

use crate::pair::{Side, connected, connected_in, rpc, structure};
use proptest::collection::vec;
use proptest::prelude::*;
use rpcrdma_proto::*;
use rpcrdma_xdr::{RecvStructure, RtrSupport, SegmentGroup};

/// A message as a program has it: the payload without its items, and the items.
#[derive(Debug, Clone)]
struct Content {
    payload: Vec<u8>,
    items: Vec<BulkItem>,
    bulk: Vec<Vec<u8>>,
}

impl Content {
    /// Items lie behind the given gaps of payload.
    fn new(xid: u32, reply: bool, gaps: &[u32], lens: &[u32], tail: u32) -> Self {
        let mut position = 8;
        let mut payload_len = 8;
        let (mut items, mut bulk) = (Vec::new(), Vec::new());
        for (index, (gap, len)) in gaps.iter().zip(lens).enumerate() {
            position += gap * 4;
            payload_len += gap * 4;
            items.push(BulkItem { position, len: *len, origin: 0, pieces: 1 });
            bulk.push((0..*len).map(|at| (at % 241) as u8 ^ (index as u8) << 4).collect());
            position += (len + 3) & !3;
        }
        let payload = rpc(xid, reply, (payload_len + tail * 4) as usize);
        Self { payload, items, bulk }
    }

    /// The stream with nothing excised, with zero padding.
    fn stream(&self) -> Vec<u8> {
        let mut stream = Vec::new();
        let mut taken = 0;
        for (item, bulk) in self.items.iter().zip(&self.bulk) {
            let gap = item.position as usize - stream.len();
            stream.extend_from_slice(&self.payload[taken..taken + gap]);
            taken += gap;
            stream.extend_from_slice(bulk);
            stream.resize(stream.len().next_multiple_of(4), 0);
        }
        stream.extend_from_slice(&self.payload[taken..]);
        stream
    }
}

/// Delivers a message and puts its stream together again.
fn deliver(side: &mut Side, wire: &[Vec<u8>]) -> (Message<'static>, Option<CallId>, Vec<u8>) {
    let mut last = None;
    for (index, wire_bytes) in wire.iter().enumerate() {
        let ingress = side.receive(wire_bytes);
        if index + 1 < wire.len() {
            assert!(matches!(ingress, Ingress::Partial), "{ingress:?}");
        } else {
            last = Some(ingress);
        }
    }
    let (message, id, parts) = match last.expect("at least one transmission") {
        Ingress::Call(message) => (message, None, vec![message.part]),
        Ingress::Reply(id, message) => (message, Some(id), vec![message.part]),
        Ingress::Complete(Complete::Call) => {
            let (message, parts) = side.completed();
            (message, None, parts)
        }
        Ingress::Complete(Complete::Reply(id)) => {
            let (message, parts) = side.completed();
            (message, Some(id), parts)
        }
        other => panic!("not a message: {other:?}"),
    };
    let placed = match id {
        None => side.conn.resolve_call(&message, &parts),
        Some(id) => side.conn.resolve_reply(&side.ledger, id, &message, &parts, &Offered::NONE),
    };
    let placed = placed.expect("what was planned is valid");
    let structure = side.settings.structure;
    let payload = side.gather(&parts, payload_pieces(&structure, &parts));
    assert_eq!(payload.len() as u32, placed.payload_len());
    let mut stream = Vec::new();
    let mut rest = &payload[..];
    for item in placed.iter() {
        let position = item.position.expect("the extension says it") as usize;
        let (gap, behind) = rest.split_at(position - stream.len());
        stream.extend_from_slice(gap);
        rest = behind;
        let bytes = side.gather(&parts, item.pieces(&structure));
        assert_eq!(bytes.len() as u32, item.len);
        stream.extend_from_slice(&bytes);
        stream.resize(stream.len().next_multiple_of(4), 0);
    }
    stream.extend_from_slice(rest);
    assert_eq!(stream.len() as u32, placed.virtual_len());
    (message, id, stream)
}

fn any_structure() -> impl Strategy<Value = RecvStructure> {
    let group = (1u32..4, 1u32..9000, any::<bool>())
        .prop_map(|(count, length, placement)| SegmentGroup { count, length, align: 4, placement });
    (1024u32..5000, vec(group, 0..5)).prop_map(|(first, mut groups)| {
        groups.insert(0, SegmentGroup { count: 1, length: first, align: 64, placement: false });
        RecvStructure::new(&groups).expect("within the limits")
    })
}

fn any_settings() -> impl Strategy<Value = Settings> {
    (any_structure(), 1u32..=64, 1u32..=64).prop_map(|(structure, count, limit)| Settings {
        credits_requested: 64,
        credits_granted_max: 64,
        call_count_max: count,
        request_rx_limit: limit,
        response_sx_limit: count,
        response_rx_max: limit,
        ..Settings::new(structure)
    })
}

fn any_items() -> impl Strategy<Value = (Vec<u32>, Vec<u32>, u32)> {
    let len = prop_oneof![0u32..70, 1u32..20_000, Just(4096)];
    (vec(0u32..600, 0..5), vec(len, 0..5), 0u32..4000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_byte_arrives_at_its_position(
        client in any_settings(),
        server in any_settings(),
        call in any_items(),
        reply in any_items(),
        min_len in prop_oneof![Just(0), 0u32..5000],
        want_count in 0usize..6,
        gather_max in 4u32..20,
    ) {
        let (mut client, mut server) = connected(client, server);
        let id = client.conn.open_call(&mut client.ledger, 7).expect("ready");
        let content = Content::new(id.xid(), false, &call.0, &call.1, call.2);
        let answer = Content::new(id.xid(), true, &reply.0, &reply.1, reply.2);
        let virtual_len = content.stream().len() as u32;

        let max_len = |index| reply.1.get(index).copied().unwrap_or(0);
        let wants: Vec<_> = (0..want_count)
            .map(|index| Want::sends(0, virtual_len, min_len, max_len(index)))
            .collect();
        let demand = CallDemand {
            payload: content.payload.len() as u32,
            items: &content.items,
            wants: &wants,
            reply_payload_max: answer.stream().len() as u32,
            gather_max,
            copy_max: 0,
            explicit: Explicit::NONE,
        };
        let plan = client.conn.begin_sends(&mut client.ledger, id, &demand);
        let mut plan = match plan {
            Ok(plan) => plan,
            Err(SendError::NeedsExplicitRdma { .. } | SendError::TooManyPieces { .. }) => {
                prop_assert_eq!(client.conn.credits_available(), client.conn.credits_limit());
                prop_assert_eq!(client.ledger.replies.reserved(), 0);
                return Ok(());
            }
            Err(other) => panic!("{other}"),
        };
        let wire = client.transmit(&mut plan, &content.payload, &content.bulk);
        prop_assert!(wire.len() as u32 <= server.settings.request_rx_limit);
        let (message, _, stream) = deliver(&mut server, &wire);
        prop_assert!(stream == content.stream());

        let demand = ReplyDemand {
            payload: answer.payload.len() as u32,
            items: &answer.items,
            offer: message.offer(),
            gather_max,
            copy_max: 0,
        };
        let to = message.reply_to();
        let plan = server.conn.begin_reply(&mut server.ledger, &to, &demand);
        let mut plan = match plan {
            Ok(plan) => plan,
            Err(SendError::NeedsExplicitRdma { .. } | SendError::TooManyPieces { .. }) => {
                prop_assert_eq!(server.conn.inflow().outstanding(), to.credits);
                let report = server.conn.refuse(&mut server.ledger, &to);
                let failed = client.receive(&server.report(report));
                prop_assert!(matches!(failed, Ingress::Failed(of, Refusal::BadHeader) if of == id));
                return Ok(());
            }
            Err(other) => panic!("{other}"),
        };
        prop_assert!(plan.count() <= to.rsbuf.max(1));
        let wire = server.transmit(&mut plan, &answer.payload, &answer.bulk);
        let (_, replied, stream) = deliver(&mut client, &wire);
        prop_assert_eq!(replied, Some(id));
        prop_assert!(stream == answer.stream());

        let finished = client.conn.finish_call(&mut client.ledger, id);
        prop_assert_eq!(finished.map(|finished| finished.token), Some(7));
        prop_assert_eq!(client.conn.credits_available(), client.conn.credits_limit());
        prop_assert_eq!(client.ledger.replies.reserved(), 0);
        prop_assert_eq!(server.conn.inflow().outstanding(), 0);
    }

    #[test]
    fn no_transmission_is_gathered_from_more_pieces_than_allowed(
        peer in any_structure(),
        placement in any::<bool>(),
        call in any_items(),
        pieces in 1u32..4,
        gather_max in 2u32..12,
        copy_max in prop_oneof![Just(0u32), 0u32..3_000],
    ) {
        let settings = Settings {
            request_rx_limit: 64,
            call_count_max: 64,
            credits_requested: 64,
            credits_granted_max: 64,
            placement,
            ..Settings::new(peer)
        };
        let (mut client, _) = connected(settings, settings);
        let id = client.conn.open_call(&mut client.ledger, 0).expect("ready");
        let mut content = Content::new(id.xid(), false, &call.0, &call.1, call.2);
        content.items.iter_mut().for_each(|item| item.pieces = pieces);
        let payload = content.payload.len() as u32;
        let items = &content.items;
        let demand = |gather_max| {
            CallDemand { items, gather_max, copy_max, ..CallDemand::inline(payload, 0) }
        };
        // The same where no number of pieces is too many.
        let mut free = client.conn.begin_sends(&mut client.ledger, id, &demand(u32::MAX));
        let in_line = free.as_ref().is_ok_and(|plan| (0..64).all(|item| !plan.is_placed(item)));
        let free = free.as_mut().ok().and_then(|plan| gathered(&client, plan, pieces, copy_max));
        client.conn.finish_call(&mut client.ledger, id);
        let id = client.conn.open_call(&mut client.ledger, 0).expect("ready");
        match client.conn.begin_sends(&mut client.ledger, id, &demand(gather_max)) {
            Ok(mut plan) => {
                let most = gathered(&client, &mut plan, pieces, copy_max);
                prop_assert!(most.is_none_or(|most| most <= gather_max), "{most:?}");
            }
            Err(SendError::TooManyPieces { need, max }) => {
                prop_assert!(need > max && max == gather_max);
                // What is in line is the same stream in the same transmissions.
                prop_assert!(!in_line || free.is_some_and(|most| most > gather_max), "{free:?}");
            }
            Err(_) => {}
        }
    }
}

/// The most pieces that a transmission of a group is gathered from, the first of them copied
/// together where that makes them fewer.
fn gathered(side: &Side, plan: &mut Plan<'_>, of_item: u32, copy_max: u32) -> Option<u32> {
    let Plan::Group(plan) = plan else { return None };
    let mut most = 0;
    while let Some(next) = side.conn.next_transmission(plan) {
        let (mut all, mut copied, mut behind) = (1, 0, 0);
        for piece in side.conn.pieces(plan, &next) {
            let pieces = if matches!(piece, Gather::Bulk { .. }) { of_item } else { 1 };
            copied += piece.len();
            all += pieces;
            behind += if copied > copy_max { pieces } else { 0 };
        }
        most = most.max(all.min(2 + behind));
    }
    Some(most)
}

/// A write of 64 KiB into a structure made for it: one transmission, one piece for the data.
#[test]
fn a_block_goes_to_its_segment_in_one_transmission() {
    let settings = Settings::new(structure(4096, 1, 65536));
    let (mut client, mut server) = connected(settings, settings);
    let id = client.conn.open_call(&mut client.ledger, 1).expect("ready");
    let content = Content::new(id.xid(), false, &[30], &[65536], 2);
    let payload = content.payload.len() as u32;
    let items = &content.items;
    let demand = CallDemand { items, gather_max: 4, ..CallDemand::inline(payload, 100) };
    let mut plan = client.conn.begin_sends(&mut client.ledger, id, &demand).expect("fits");
    assert!(plan.is_placed(0));
    let wire = client.transmit(&mut plan, &content.payload, &content.bulk);
    assert_eq!(wire.len(), 1);
    assert_eq!(wire[0].len(), 4096 + 65536);
    // The gap between payload and segment is zeros, and nothing but the gap.
    let header = 44 + 24;
    assert!(wire[0][header + payload as usize..4096].iter().all(|byte| *byte == 0));
    let (_, _, stream) = deliver(&mut server, &wire);
    assert_eq!(stream, content.stream());
}

/// 1 MiB over segments of 4 KiB, 16 to a buffer: consecutive numbers over transmissions.
#[test]
fn a_block_larger_than_a_buffer_continues_in_the_next() {
    let settings = Settings {
        call_count_max: 64,
        request_rx_limit: 64,
        ..Settings::new(structure(4096, 16, 4096))
    };
    let (mut client, mut server) = connected(settings, settings);
    let id = client.conn.open_call(&mut client.ledger, 1).expect("ready");
    let content = Content::new(id.xid(), false, &[3], &[1 << 20], 0);
    let items = &content.items;
    let payload = content.payload.len() as u32;
    let demand = CallDemand { items, gather_max: 4, ..CallDemand::inline(payload, 100) };
    let mut plan = client.conn.begin_sends(&mut client.ledger, id, &demand).expect("fits");
    let wire = client.transmit(&mut plan, &content.payload, &content.bulk);
    assert_eq!(wire.len(), 16);
    let (message, _, stream) = deliver(&mut server, &wire);
    assert_eq!(message.count, 16);
    assert_eq!(stream, content.stream());
}

#[test]
fn a_payload_longer_than_a_buffer_is_continued() {
    let settings = Settings::new(structure(4096, 0, 0));
    let (mut client, mut server) = connected(settings, settings);
    // The edge: what fits one RDMA_MSG is one, four bytes more are two transmissions.
    for (len, count) in [(4096 - 28, 1), (4096 - 24, 2), (4096 - 44 + 4096 - 36, 2), (8116, 3)] {
        let id = client.conn.open_call(&mut client.ledger, 1).expect("ready");
        let payload = rpc(id.xid(), false, len);
        let demand = CallDemand::inline(len as u32, 8);
        let mut plan = client.conn.begin_sends(&mut client.ledger, id, &demand).expect("fits");
        let wire = client.transmit(&mut plan, &payload, &[]);
        assert_eq!(wire.len(), count, "{len} bytes");
        let (message, _, stream) = deliver(&mut server, &wire);
        assert_eq!(stream, payload);
        server.conn.refuse(&mut server.ledger, &message.reply_to());
        client.conn.finish_call(&mut client.ledger, id).expect("open");
    }
}

/// One side lacks the extension, or the server a part of it, or the version has none.
#[test]
fn without_the_extension_all_of_it_is_inline() {
    let all = Settings::new(structure(4096, 1, 8192));
    let with = |rtr| Settings { rtr, ..all };
    let (none, no_replies) = (RtrSupport::empty(), RtrSupport::XREQ | RtrSupport::XCONT);
    all_is_inline(connected(with(none), with(none)));
    all_is_inline(connected(all, with(none)));
    all_is_inline(connected(with(none), all));
    all_is_inline(connected(all, with(no_replies)));
    all_is_inline(connected_in(Version::One, all, all));
}

fn all_is_inline((mut client, mut server): (Side, Side)) {
    let id = client.conn.open_call(&mut client.ledger, 1).expect("ready");
    let content = Content::new(id.xid(), false, &[5], &[1001], 3);
    let wants = [Want::sends(0, 20, 0, 1000)];
    let demand = CallDemand {
        payload: content.payload.len() as u32,
        items: &content.items,
        wants: &wants,
        reply_payload_max: 100,
        gather_max: 8,
        copy_max: 0,
        explicit: Explicit::NONE,
    };
    let means = GatherMeans { gather_max: 8, zeros_max: 8192 };
    for with in [CallWith::Item(content.items[0]), CallWith::Want(wants[0])] {
        let call = ShortSend::Call { id, reply_payload_max: 100, with };
        let plan = client.conn.begin_short(&mut client.ledger, demand.payload, call, means);
        assert!(plan.is_none(), "by the short way neither: {with:?}");
    }
    let mut plan = client.conn.begin_sends(&mut client.ledger, id, &demand).expect("fits");
    assert!(!plan.is_placed(0));
    let wire = client.transmit(&mut plan, &content.payload, &content.bulk);
    let (message, _, stream) = deliver(&mut server, &wire);
    assert_eq!(message.via, Via::Msg);
    assert!(message.rsd.is_empty(), "what the peer cannot do is not asked for");
    assert_eq!(stream, content.stream());
}

/// A short call whose reply may be long must state how long, which RDMA_MSG cannot.
#[test]
fn a_call_for_a_long_reply_is_a_transmit_request() {
    let settings = Settings::new(structure(4096, 0, 0));
    let (mut client, mut server) = connected(settings, settings);
    for (reply_payload_max, via, rsbuf) in
        [(4096 - 28, Via::Msg, 1), (4096 - 24, Via::Xmt, 2), (12_000, Via::Xmt, 3)]
    {
        let id = client.conn.open_call(&mut client.ledger, 1).expect("ready");
        let content = Content::new(id.xid(), false, &[5], &[101], 3);
        let payload = content.payload.len() as u32;
        let items = &content.items;
        let inline = CallDemand::inline(payload, reply_payload_max);
        let demand = CallDemand { items, gather_max: 8, ..inline };
        let mut plan = client.conn.begin_sends(&mut client.ledger, id, &demand).expect("fits");
        let wire = client.transmit(&mut plan, &content.payload, &content.bulk);
        let (message, _, stream) = deliver(&mut server, &wire);
        assert_eq!((message.via, message.rsbuf), (via, rsbuf));
        assert_eq!(client.ledger.replies.reserved(), rsbuf, "what is promised is kept");
        assert_eq!(stream, content.stream());
        server.conn.refuse(&mut server.ledger, &message.reply_to());
        client.conn.finish_call(&mut client.ledger, id).expect("open");
    }
}

#[test]
fn a_message_that_fits_no_form_is_refused_with_numbers() {
    let settings = Settings {
        request_rx_limit: 2,
        response_sx_limit: 2,
        ..Settings::new(structure(4096, 1, 8192))
    };
    let (mut client, _) = connected(settings, settings);
    let id = client.conn.open_call(&mut client.ledger, 1).expect("ready");
    let content = Content::new(id.xid(), false, &[5], &[30_000], 3);
    let payload = content.payload.len() as u32;
    let items = &content.items;
    let demand = CallDemand { items, gather_max: 8, ..CallDemand::inline(payload, 100) };
    let error = client.conn.begin_sends(&mut client.ledger, id, &demand).expect_err("too long");
    let expected =
        SendError::NeedsExplicitRdma { payload, bulk: 30_000, transmissions: 3, limit: 2 };
    assert_eq!(error, expected);
    // A reply that could be too long is found out before the call.
    let demand = CallDemand::inline(100, 50_000);
    let error = client.conn.begin_sends(&mut client.ledger, id, &demand).expect_err("too long");
    assert!(matches!(error, SendError::NeedsExplicitRdma { transmissions: 5, limit: 2, .. }));
    assert_eq!(client.ledger.replies.reserved(), 0);
}
