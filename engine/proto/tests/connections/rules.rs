//! Rules of the protocol documents that no other test checks: see docs/conformance.md.

use crate::pair::{Side, connected, property_operations, rpc, structure, transmission};
use rpcrdma_proto::report::ReportKind;
use rpcrdma_proto::*;
use rpcrdma_xdr::*;

fn settings() -> Settings {
    Settings {
        credits_requested: 8,
        credits_granted_max: 8,
        ..Settings::new(structure(4096, 2, 4096))
    }
}

fn wire(xid: u32, body: Body<'_>, payload: &[u8]) -> Vec<u8> {
    let header = Header { xid, vers: 2, credit: 8, body };
    transmission(&header, payload)
}

/// A call, sent: its own bytes on the wire.
fn sent(side: &mut Side) -> (CallId, Vec<u8>) {
    let id = side.conn.open_call(&mut side.ledger, 1).expect("ready");
    let demand = CallDemand::inline(40, 40);
    let mut plan = side.conn.begin_sends(&mut side.ledger, id, &demand).expect("a credit is there");
    let mut wires = side.transmit(&mut plan, &rpc(id.xid(), false, 40), &[]);
    (id, wires.remove(0))
}

/// How many transmissions a call with so many bytes of payload has, or the limit that it exceeds.
fn transmissions(client: &mut Side, payload: u32) -> Result<u32, u32> {
    let id = client.conn.open_call(&mut client.ledger, 0).expect("ready");
    let demand = CallDemand::inline(payload, 40);
    match client.conn.begin_sends(&mut client.ledger, id, &demand) {
        Ok(plan) => Ok(plan.count()),
        Err(SendError::NeedsExplicitRdma { limit, .. }) => Err(limit),
        Err(other) => panic!("{other}"),
    }
}

// [V2] 4.2; RFC 8166 4.6.2
#[test]
fn done_is_dropped_silently() {
    let (mut client, mut server) = connected(settings(), settings());
    for side in [&mut client, &mut server] {
        let mut done = wire(1, Body::Done, &[]);
        done.resize(28, 0);
        assert!(matches!(side.receive(&done), Ingress::Ignored(Ignored::Done)));
    }
    assert_eq!(server.conn.inflow().outstanding(), 0);
}

// [V2] 3.1; [XCHAR] 4
#[test]
fn either_side_answers_an_unknown_operation_with_its_xid() {
    let (mut client, mut server) = connected(settings(), settings());
    for (side, xid) in [(&mut client, 0x8000_0077), (&mut server, 0x77)] {
        let unknown = Optional::Unknown { opttype: 4_000_000_000, info: &[7; 12] };
        let message = wire(xid, Body::Optional(unknown), &[]);
        let Ingress::Reject(report) = side.receive(&message) else { panic!("it is answered") };
        let answer = side.report(report);
        let (header, len) = Header::decode(&answer).expect("valid");
        assert_eq!((header.xid, header.vers, len), (xid, 2, answer.len()));
        assert_eq!(header.body, Body::Error(RdmaError::InvalOption));
    }
}

// RFC 8167; wire.md B9
#[test]
fn one_xid_may_be_outstanding_in_both_directions() {
    let (mut client, mut server) = connected(settings(), settings());
    let (backward, bytes) = sent(&mut server);
    assert!(matches!(client.receive(&bytes), Ingress::Call(_)));
    // The peer calls under the very xid of our own call.
    let xid = backward.xid();
    let call = wire(xid, Body::Msg(ChunkLists::EMPTY), &rpc(xid, false, 40));
    assert!(matches!(server.receive(&call), Ingress::Call(message) if message.xid == xid));
    let reply = wire(xid, Body::Msg(ChunkLists::EMPTY), &rpc(xid, true, 40));
    assert!(matches!(server.receive(&reply), Ingress::Reply(of, _) if of == backward));
    assert_eq!(server.conn.inflow().outstanding(), 1, "the call of the peer is still open");
}

// [RTR] 5.2, 8.4
#[test]
fn a_request_stays_within_the_limit_of_its_responder() {
    for limit in [2, 3] {
        let few = Settings { request_rx_limit: limit, ..settings() };
        let (mut client, _) = connected(settings(), few);
        assert_eq!(transmissions(&mut client, 2 * 12_000), Ok(2));
        let three = if limit == 3 { Ok(3) } else { Err(2) };
        assert_eq!(transmissions(&mut client, 3 * 12_000), three);
    }
}

// [RTR] 9.4
#[test]
fn without_support_for_continuation_messages_are_single() {
    let single = Settings {
        rtr: RtrSupport::XREQ | RtrSupport::XRESP,
        request_rx_limit: 4,
        response_sx_limit: 4,
        ..settings()
    };
    for (client, server) in [(settings(), single), (single, settings())] {
        let (mut client, _) = connected(client, server);
        assert_eq!(transmissions(&mut client, 12_000), Ok(1));
        assert_eq!(transmissions(&mut client, 2 * 12_000), Err(1));
    }
}

// [RTR] 5.2; wire.md E32
#[test]
fn a_plain_call_has_a_single_plain_reply() {
    let (mut client, mut server) = connected(settings(), settings());
    let (_, bytes) = sent(&mut client);
    let Ingress::Call(message) = server.receive(&bytes) else { panic!("a call") };
    let to = message.reply_to();
    let long = ReplyDemand::inline(2 * 12_000);
    let error = server.conn.begin_reply(&mut server.ledger, &to, &long).expect_err("too long");
    assert!(matches!(error, SendError::NeedsExplicitRdma { limit: 1, .. }), "{error}");
    let longest = ReplyDemand::inline(3 * 4096 - 28);
    let plan = server.conn.begin_reply(&mut server.ledger, &to, &longest).expect("the edge");
    assert!(matches!(plan, Plan::Inline(_)), "XMTRESP answers XMTREQ only");
}

// [V2] 4.2
#[test]
fn a_message_without_room_for_an_rpc_is_bad() {
    let (_, mut server) = connected(settings(), settings());
    for len in [0, 4, 7] {
        let bytes = wire(1, Body::Msg(ChunkLists::EMPTY), &rpc(1, false, 8)[..len]);
        let ingress = server.receive(&bytes);
        let is_bad =
            matches!(ingress, Ingress::Reject(Report { kind: ReportKind::BadHeader, xid: 1 }));
        assert!(is_bad, "{len}: {ingress:?}");
    }
    let bytes = wire(1, Body::Msg(ChunkLists::EMPTY), &rpc(1, false, 8));
    assert!(matches!(server.receive(&bytes), Ingress::Call(_)), "eight are an RPC message");
}

// RFC 8166 4.5; wire.md B14
#[test]
fn a_client_answers_no_message_whose_payload_it_cannot_decode() {
    let target = RdmaSegment { handle: 1, length: 40, offset: 0 };
    let segments = [target];
    let writes = [WriteChunk(Array::from_slice(&segments))];
    let lists = ChunkLists { writes: List::from_slice(&writes), ..ChunkLists::EMPTY };
    let neither = [&7_u32.to_be_bytes()[..], &2_u32.to_be_bytes()].concat();
    for lists in [ChunkLists::EMPTY, lists] {
        for payload in [&[][..], &neither[..4], &neither] {
            let (mut client, mut server) = connected(settings(), settings());
            let bytes = wire(7, Body::Msg(lists), payload);
            let ingress = client.receive(&bytes);
            assert!(matches!(ingress, Ingress::Ignored(Ignored::BadReply)), "{ingress:?}");
            let ingress = server.receive(&bytes);
            let is_bad =
                matches!(ingress, Ingress::Reject(Report { kind: ReportKind::BadHeader, xid: 7 }));
            assert!(is_bad, "{ingress:?}");
        }
    }
}

// [RTR] 9.1, Table 4
#[test]
fn a_report_with_a_payload_behind_it_is_dropped() {
    let (mut client, _) = connected(settings(), settings());
    let (id, _) = sent(&mut client);
    let bad = MsgId { xid: id.xid(), dir: MsgType::Call, seq: 0 };
    let report = ReptErr { bad, lead: None, info: ReptInfo::BadCont };
    let of = |payload| wire(id.xid(), Body::Optional(Optional::ReptErr(report)), payload);
    let ingress = client.receive(&of(&[0; 4]));
    assert!(matches!(ingress, Ingress::Ignored(Ignored::BadError)), "{ingress:?}");
    assert!(matches!(client.receive(&of(&[])), Ingress::Failed(failed, _) if failed == id));
}

/// A request for changes, and its answer.
fn answered<T>(values: &[PropVal<'_>], then: impl FnOnce(RespProp<'_>) -> T) -> T {
    let (_, mut server) = connected(settings(), settings());
    let want = PropSet::from_slice(values);
    let request = wire(0x55, Body::Optional(Optional::ReqProp(ReqProp { want })), &[]);
    let Ingress::Control(Control { answer: Some(answer), .. }) = server.receive(&request) else {
        panic!("a request is answered")
    };
    let answer = server.control(answer);
    let (header, _) = Header::decode(&answer).expect("valid");
    assert_eq!(header.xid, 0x55);
    let Body::Optional(Optional::RespProp(answer)) = header.body else { panic!("RESPROP") };
    then(answer)
}

// [XCHAR] 4.3
#[test]
fn every_change_asked_for_is_either_done_or_refused() {
    let size = 2048u32.to_be_bytes();
    let limit = 7u32.to_be_bytes();
    let value = |id, data| PropVal { id: PropId(id), data };
    // All assigned numbers, and some unassigned ones.
    let mut values = vec![value(1, &size[..])];
    values.extend([2, 3, 4, 7].map(|id| value(id, &[][..])));
    values.extend([5, 6].map(|id| value(id, &limit[..])));
    values.extend([0, 8, 77, 4_294_967_040, u32::MAX].map(|id| value(id, &[9; 3][..])));
    for count in 0..=values.len() {
        answered(&values[..count], |answer| {
            for index in 0..70 {
                let answered = [answer.done.contains(index), answer.rej.contains(index)];
                assert!(answered != [true, true], "{index} of {count} is in both");
                assert_eq!(answered.contains(&true), index < count, "{index} of {count}");
                assert!(!answered[0] || index == 0, "only a smaller buffer is granted");
            }
            assert_eq!(answer.other.len(), 0, "nothing that was not asked for");
        });
    }
    // As many as there can be.
    let full = [value(0x1_0000, &[][..]); 64];
    answered(&full, |answer| assert!((0..64).all(|index| answer.rej.contains(index))));
}

// [XCHAR] 4, Table 2
#[test]
fn a_payload_behind_a_property_operation_is_bad() {
    for operation in property_operations() {
        let (mut client, mut server) = connected(settings(), settings());
        for side in [&mut client, &mut server] {
            for payload in [&[0; 4][..], &rpc(7, false, 40)] {
                let ingress = side.receive(&wire(7, Body::Optional(operation), payload));
                let is_bad = matches!(
                    ingress,
                    Ingress::Reject(Report { kind: ReportKind::BadHeader, xid: 7 })
                );
                assert!(is_bad, "{operation:?}: {ingress:?}");
            }
        }
    }
}

// wire.md E32, W18
#[test]
fn a_reply_for_which_a_transmit_response_is_too_long_is_plain_if_that_fits() {
    let (_, mut server) = connected(settings(), settings());
    let directions = [RsdItem { min_len: 0, loc: RsdLoc::Tbsn }];
    let sets = [RsdSet { begin: 8, end: 40, items: Array::from_slice(&directions) }];
    let rsd = Array::from_slice(&sets);
    let req = XmtReq { dp: Array::EMPTY, rsd, count: 1, rsbuf: 1, pslen: 40 };
    let (room, plain, answering) = (3 * 4096, 28, 36 + 12);
    for (payload, is_plain) in [
        (room - answering, Some(false)),
        (room - answering + 4, Some(true)),
        (room - plain, Some(true)),
        (room - plain + 4, None),
    ] {
        let call = wire(16, Body::Optional(Optional::XmtReq(req)), &rpc(16, false, 40));
        let Ingress::Call(message) = server.receive(&call) else { panic!("a call") };
        let (to, offer) = (message.reply_to(), message.offer());
        let demand = ReplyDemand { offer, ..ReplyDemand::inline(payload) };
        let sent = match server.conn.begin_reply(&mut server.ledger, &to, &demand) {
            Ok(mut plan) => {
                let reply = rpc(16, true, payload as usize);
                let sent = server.transmit(&mut plan, &reply, &[]);
                let (header, _) = Header::decode(&sent[0]).expect("valid");
                Some(header.body == Body::Msg(ChunkLists::EMPTY))
            }
            Err(_) => {
                server.conn.refuse(&mut server.ledger, &to);
                None
            }
        };
        assert_eq!(sent, is_plain, "{payload}");
    }
}

// wire.md E32
#[test]
fn a_base_reply_to_a_transmit_request_has_written_nothing() {
    let length = 20_000;
    let memory = [RdmaSegment { handle: 7, length, offset: 0x1000 }];
    let sinks = [WriteChunk(Array::from_slice(&memory))];
    let unused = [RdmaSegment { length: 0, ..memory[0] }];
    let unused = [WriteChunk(Array::from_slice(&unused))];
    let lists = |writes, reply| ChunkLists { writes, reply, ..ChunkLists::EMPTY };
    let (none, all) = (List::EMPTY, List::from_slice(&sinks));
    for (body, is_good) in [
        (Body::Msg(lists(none, None)), true),
        // The memory of its direction, as a Write chunk or a Reply chunk, used or not.
        (Body::Msg(lists(all, None)), false),
        (Body::Msg(lists(List::from_slice(&unused), None)), false),
        (Body::NoMsg(lists(none, Some(sinks[0]))), false),
        (Body::Msg(lists(none, Some(unused[0]))), false),
    ] {
        let (mut client, _) = connected(settings(), settings());
        let id = client.conn.open_call(&mut client.ledger, 1).expect("ready");
        let wants = [Want { kind: WantKind::Exrw, pieces: 1, ..Want::sends(8, 40, 0, length) }];
        let demand = CallDemand {
            wants: &wants,
            explicit: Explicit::unlimited(16_384),
            gather_max: 8,
            ..CallDemand::inline(40, 40)
        };
        let route = client.conn.route_call(&demand).expect("a way");
        assert_eq!((route.form, route.wants.len()), (CallForm::Xmt, 1));
        let shown = SegmentLists { segments: &memory, ends: &[1] };
        let exposed = Exposed { wants: shown, ..Exposed::NONE };
        client.conn.begin_call(&mut client.ledger, id, &demand, &route, &exposed).expect("sent");
        let payload = match body {
            Body::Msg(_) => rpc(id.xid(), true, 40),
            _ => Vec::new(),
        };
        let reply = wire(id.xid(), body, &payload);
        let Ingress::Reply(of, message) = client.receive(&reply) else { panic!("a reply") };
        assert_eq!(of, id);
        // As the shard asks: with all the memory that the call has offered.
        let offered = Offered { set: route.wants, wants: shown, reply: &[] };
        let ledger = &client.ledger;
        let placed = client.conn.resolve_reply(ledger, id, &message, &[message.part], &offered);
        assert_eq!(placed.is_ok(), is_good, "{body:?}: {placed:?}");
    }
}
