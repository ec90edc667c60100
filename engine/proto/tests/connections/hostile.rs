//! A misbehaving peer: nothing panics, no resource is lost, and no byte that was not received is
//! used.

use crate::pair::{
    PLAIN_HEADER_LEN, STALE, Side, connected_in, plain_call, plain_reply, rpc, structure,
    take_plain,
};
use proptest::collection::vec;
use proptest::prelude::*;
use rpcrdma_proto::*;
use rpcrdma_xdr::*;

/// A message, before its bytes are tampered with.
#[derive(Debug, Clone)]
enum Sent {
    Msg {
        xid: u32,
        reply: bool,
    },
    Req {
        xid: u32,
        count: u32,
        pslen: u32,
        items: Vec<(u32, u32, u32, u32)>,
        sets: Vec<(u32, u32)>,
    },
    Resp {
        xid: u32,
        count: u32,
        pslen: u32,
        items: Vec<(u32, u32, u32, u32)>,
    },
    Cont {
        xid: u32,
        xnum: u32,
        itype: u32,
        pslen: u32,
    },
    Error {
        xid: u32,
        code: u32,
    },
    ConnProp {
        xid: u32,
    },
}

fn any_sent() -> impl Strategy<Value = Sent> {
    // The xids of the first calls of a client and a server, and a foreign one.
    let xid = prop_oneof![Just(16u32), Just(17), Just(1 << 31 | 16), Just(0), Just(99)].boxed();
    let items = vec((0u32..60, 0u32..5000, 0u32..6, 0u32..4), 0..3).boxed();
    let len = prop_oneof![Just(40u32), Just(8), 0u32..50].boxed();
    prop_oneof![
        (xid.clone(), any::<bool>()).prop_map(|(xid, reply)| Sent::Msg { xid, reply }),
        (xid.clone(), 0u32..5, len.clone(), items.clone(), vec((0u32..60, 0u32..60), 0..2))
            .prop_map(|(xid, count, pslen, items, sets)| {
                Sent::Req { xid, count, pslen, items, sets }
            }),
        (xid.clone(), 0u32..5, len.clone(), items)
            .prop_map(|(xid, count, pslen, items)| Sent::Resp { xid, count, pslen, items }),
        (xid.clone(), 0u32..4, prop_oneof![Just(5u32), Just(6), 0u32..8], len)
            .prop_map(|(xid, xnum, itype, pslen)| Sent::Cont { xid, xnum, itype, pslen }),
        (xid.clone(), 0u32..5).prop_map(|(xid, code)| Sent::Error { xid, code }),
        xid.prop_map(|xid| Sent::ConnProp { xid }),
    ]
}

/// The message in this version. What version one has no structure for is sent all the same.
fn encode_in(version: Version, sent: &Sent, tail: usize) -> Vec<u8> {
    let mut bytes = encode(sent, tail);
    bytes[4..8].copy_from_slice(&version.number().to_be_bytes());
    bytes
}

fn any_version() -> impl Strategy<Value = Version> {
    prop_oneof![Just(Version::One), Just(Version::Two)]
}

fn encode(sent: &Sent, tail: usize) -> Vec<u8> {
    let numbers: Vec<Vec<u32>> = match sent {
        Sent::Req { items, .. } | Sent::Resp { items, .. } => {
            items.iter().map(|item| (item.2..item.2 + item.3).collect()).collect()
        }
        _ => Vec::new(),
    };
    let mitems = |items: &[(u32, u32, u32, u32)]| -> Vec<MsgItem<'_>> {
        let located = items.iter().zip(&numbers);
        located
            .map(|((disp, length, ..), numbers)| {
                let loc = Loc::Tbsn { offset: 0, segments: Tbsns::from_slice(numbers) };
                MsgItem { disp: *disp, length: *length, loc }
            })
            .collect()
    };
    let wanted = [RsdItem { min_len: 0, loc: RsdLoc::Tbsn }];
    let (dp, sets): (Vec<MsgItem<'_>>, Vec<RsdSet<'_>>) = match sent {
        Sent::Req { items, sets, .. } => {
            let items_of = Array::from_slice(&wanted[..]);
            let set =
                |(begin, end): &(u32, u32)| RsdSet { begin: *begin, end: *end, items: items_of };
            (mitems(items), sets.iter().map(set).collect())
        }
        Sent::Resp { items, .. } => (mitems(items), Vec::new()),
        _ => (Vec::new(), Vec::new()),
    };
    let (dp, rsd) = (Array::from_slice(&dp), Array::from_slice(&sets));
    let (xid, body, payload) = match *sent {
        Sent::Msg { xid, reply } => (xid, Body::Msg(ChunkLists::EMPTY), rpc(xid, reply, 40)),
        Sent::Req { xid, count, pslen, .. } => {
            let req = XmtReq { dp, rsd, count, rsbuf: 2, pslen };
            (xid, Body::Optional(Optional::XmtReq(req)), rpc(xid, false, 40))
        }
        Sent::Resp { xid, count, pslen, .. } => {
            let resp = XmtResp { dp, count, pslen };
            (xid, Body::Optional(Optional::XmtResp(resp)), rpc(xid, true, 40))
        }
        Sent::Cont { xid, xnum, itype, pslen } => {
            let cont = XmtCont { xnum, itype, pslen };
            (xid, Body::Optional(Optional::XmtCont(cont)), vec![2; 40])
        }
        Sent::Error { xid, code: 0 } => {
            (xid, Body::Error(RdmaError::Vers { low: 1, high: 1 }), Vec::new())
        }
        Sent::Error { xid, code: 1 } => (xid, Body::Error(RdmaError::InvalOption), Vec::new()),
        Sent::Error { xid, code } => {
            let dir = if code == 2 { MsgType::Call } else { MsgType::Reply };
            let bad = MsgId { xid, dir, seq: 0 };
            let rept = ReptErr { bad, lead: None, info: ReptInfo::BadCont };
            (xid, Body::Optional(Optional::ReptErr(rept)), Vec::new())
        }
        Sent::ConnProp { xid } => {
            (xid, Body::Optional(Optional::ConnProp(ConnProp::default())), Vec::new())
        }
    };
    let header = Header { xid, vers: 2, credit: 4, body };
    let mut bytes = vec![0; header.encoded_len()];
    header.encode(&mut Writer::new(&mut bytes)).expect("as long as it says");
    bytes.extend_from_slice(&payload);
    bytes.resize(bytes.len() + tail, 3);
    bytes
}

/// Does with a message what an engine would, and checks the result.
fn handle(side: &mut Side, ingress: Ingress<'static>) -> bool {
    match ingress {
        Ingress::Call(message) => answer(side, &message, &[message.part]),
        Ingress::Reply(id, message) => finish(side, id, &message, &[message.part]),
        Ingress::Complete(complete) => {
            let (message, parts) = side.completed();
            match complete {
                Complete::Call => answer(side, &message, &parts),
                Complete::Reply(id) => finish(side, id, &message, &parts),
                Complete::Unwanted => {}
            }
        }
        Ingress::Failed(id, _) | Ingress::Again(id, _) => {
            side.conn.finish_call(&mut side.ledger, id).expect("a failed call is open");
        }
        Ingress::BadReply { id, report, .. } => {
            assert!(Header::decode(&side.report(report)).is_ok());
            side.conn.finish_call(&mut side.ledger, id).expect("a failed call is open");
        }
        Ingress::Reject(report) | Ingress::Aborted(Aborted { report, .. }) => {
            if let Ingress::Aborted(Aborted { failed: Some((id, _)), .. }) = ingress {
                side.conn.finish_call(&mut side.ledger, id).expect("a failed call is open");
            }
            let bytes = side.report(report);
            assert!(Header::decode(&bytes).is_ok());
        }
        Ingress::Control(Control { answer: Some(answer), .. }) => {
            assert!(Header::decode(&side.control(answer)).is_ok());
        }
        Ingress::Fatal(_) => return false,
        Ingress::Partial
        | Ingress::Control(_)
        | Ingress::ReplyRefused { .. }
        | Ingress::PropertiesAnswered(_)
        | Ingress::Ignored(_) => {}
    }
    true
}

fn answer(side: &mut Side, message: &Message<'static>, parts: &[Part]) {
    let structure = side.settings.structure;
    let to = message.reply_to();
    match side.conn.resolve_call(message, parts) {
        Ok(placed) => {
            let payload = side.gather(parts, payload_pieces(&structure, parts));
            assert_eq!(payload.len() as u32, placed.payload_len());
            for item in placed.iter() {
                let bytes = side.gather(parts, item.pieces(&structure));
                assert_eq!(bytes.len() as u32, item.len);
                assert!(!bytes.contains(&STALE));
            }
            side.conn.refuse(&mut side.ledger, &to);
        }
        Err(violation) => {
            side.conn.reject_call(&mut side.ledger, &to, violation);
        }
    }
}

fn finish(side: &mut Side, id: CallId, message: &Message<'static>, parts: &[Part]) {
    let structure = side.settings.structure;
    match side.conn.resolve_reply(&side.ledger, id, message, parts, &Offered::NONE) {
        Ok(placed) => {
            for item in placed.iter() {
                let bytes = side.gather(parts, item.pieces(&structure));
                assert!(!bytes.contains(&STALE));
            }
            side.conn.finish_call(&mut side.ledger, id).expect("an answered call is open");
        }
        Err(violation) => {
            side.conn.reject_reply(id, message.via, violation);
            side.conn.finish_call(&mut side.ledger, id).expect("it has failed");
        }
    }
}

fn check(side: &Side) {
    let inflow = side.conn.inflow();
    assert!(inflow.outstanding() <= inflow.granted());
    for part in side.conn.group() {
        assert!(part.payload_end() <= part.byte_len);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn arbitrary_messages_keep_the_invariants_of_a_connection(
        at_client in any::<bool>(),
        version in any_version(),
        stream in vec((any_sent(), 0usize..5000, vec((any::<u16>(), any::<u8>()), 0..2)), 1..25),
    ) {
        let settings = Settings {
            credits_requested: 4,
            credits_granted_max: 4,
            backward: BackwardSupport::General,
            ..Settings::new(structure(4096, 2, 1024))
        };
        let (client, server) = connected_in(version, settings, settings);
        let mut side = if at_client { client } else { server };
        // Two calls of our own that the peer may answer.
        for _ in 0..2 {
            let id = side.conn.open_call(&mut side.ledger, 1).expect("ready");
            let demand = CallDemand::inline(40, 10_000);
            let _ = side.conn.begin_sends(&mut side.ledger, id, &demand);
        }
        for (sent, tail, changes) in stream {
            let mut bytes = encode_in(version, &sent, tail);
            for (at, value) in changes {
                let at = usize::from(at) % bytes.len().min(120);
                bytes[at] = value;
            }
            bytes.truncate(6144);
            let mut ingress = side.receive(&bytes);
            if matches!(ingress, Ingress::Aborted(Aborted { again: true, .. })) {
                assert!(handle(&mut side, ingress));
                ingress = side.hand_in(side.last_buffer(), bytes.len());
                assert!(!matches!(ingress, Ingress::Aborted(_)), "the group is gone");
            }
            if !handle(&mut side, ingress) {
                break;
            }
            check(&side);
        }
        prop_assert_eq!(side.conn.version(), Some(version), "it never changes");
        // Whatever happened: all that was taken can be given back.
        let Side { mut conn, mut ledger, .. } = side;
        while let Some((id, _)) = ledger.calls.next_of(conn.peer(), 0) {
            conn.finish_call(&mut ledger, id).expect("open");
        }
        conn.close(&mut ledger);
        prop_assert!(ledger.calls.is_empty());
        prop_assert_eq!((ledger.replies.reserved(), ledger.grants.granted()), (0, 0));
    }
}

/// Everything that can be seen of a side, its ledger included.
fn state(side: &Side) -> String {
    format!("{:?} {:?}", side.conn, side.ledger)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn the_short_way_receives_as_the_general_way_does(
        at_client in any::<bool>(),
        version in any_version(),
        stream in vec((any_sent(), 0usize..20, vec((any::<u16>(), any::<u8>()), 0..1)), 1..25),
        plain in vec((0usize..4, any::<bool>(), 0u32..6), 1..25),
    ) {
        let settings = Settings {
            credits_requested: 4,
            credits_granted_max: 4,
            ..Settings::new(structure(4096, 2, 1024))
        };
        let both = || {
            let (client, server) = connected_in(version, settings, settings);
            let mut side = if at_client { client } else { server };
            let ids: Vec<_> = (0..2)
                .map(|_| {
                    let id = side.conn.open_call(&mut side.ledger, 1).expect("ready");
                    let demand = CallDemand::inline(40, 4000);
                    let _ = side.conn.begin_sends(&mut side.ledger, id, &demand);
                    id.xid()
                })
                .collect();
            (side, ids)
        };
        let ((mut short, ids), (mut general, _)) = (both(), both());
        // Mostly plain messages, some to the calls that are outstanding; between them, anything.
        let mut messages: Vec<Vec<u8>> = Vec::new();
        for (index, (sent, tail, changes)) in stream.into_iter().enumerate() {
            let (pick, reply, credit) = plain[index % plain.len()];
            let xid = ids.get(pick).copied().unwrap_or(7 + pick as u32);
            let vers = version.number();
            let header = Header { xid, vers, credit, body: Body::Msg(ChunkLists::EMPTY) };
            let mut bytes = vec![0; 28];
            header.encode(&mut Writer::new(&mut bytes)).expect("28 bytes");
            bytes.extend(rpc(xid, reply, 40));
            messages.push(bytes);
            let mut bytes = encode_in(version, &sent, tail);
            for (at, value) in changes {
                let at = usize::from(at) % bytes.len().min(60);
                bytes[at] = value;
            }
            messages.push(bytes);
        }
        for bytes in messages {
            let expected = general.receive(&bytes);
            let before = state(&short);
            let taken = take_plain(&mut short, &bytes).map(|(kind, payload)| {
                assert_eq!(payload, &bytes[PLAIN_HEADER_LEN..]);
                kind
            });
            match (taken, expected) {
                (Some(ShortKind::Call(to)), Ingress::Call(message)) => {
                    prop_assert!(message.is_plain());
                    prop_assert_eq!(to, message.reply_to());
                    prop_assert_eq!(message.part.payload_start as usize, PLAIN_HEADER_LEN);
                }
                (Some(ShortKind::Reply(finished)), Ingress::Reply(id, message)) => {
                    prop_assert!(message.is_plain());
                    let ended = general.conn.finish_call(&mut general.ledger, id);
                    prop_assert_eq!(Some(finished), ended);
                }
                (Some(kind), other) => panic!("{kind:?} is {other:?}"),
                (None, expected) => {
                    prop_assert_eq!(state(&short), before, "what is not taken changes nothing");
                    let done = format!("{:?}", short.receive(&bytes));
                    // Buffers are numbered by the side that received them.
                    let (done, expected) = (done, format!("{expected:?}"));
                    prop_assert_eq!(done.split("buffer").next(), expected.split("buffer").next());
                }
            }
            prop_assert_eq!(short.conn.inflow(), general.conn.inflow());
            prop_assert_eq!(short.conn.counters(), general.conn.counters());
            prop_assert_eq!(short.conn.credits_available(), general.conn.credits_available());
            prop_assert_eq!(short.conn.credits_limit(), general.conn.credits_limit());
            prop_assert_eq!(short.ledger.calls.len(), general.ledger.calls.len());
            prop_assert_eq!(&short.ledger.replies, &general.ledger.replies);
            prop_assert_eq!(&short.ledger.grants, &general.ledger.grants);
        }
    }

    #[test]
    fn the_short_way_sends_as_the_general_way_does(
        payload in prop_oneof![0u32..200, 6000u32..6200],
        reply in prop_oneof![0u32..200, 6000u32..6200],
        calls in 1usize..7,
        version in any_version(),
        receives in 0u32..6,
    ) {
        let settings = Settings {
            credits_requested: 4,
            credits_granted_max: 4,
            ..Settings::new(structure(4096, 2, 1024))
        };
        let pair = || {
            let (mut client, server) = connected_in(version, settings, settings);
            client.ledger.replies = ReplyReserve::new(receives);
            (client, server)
        };
        let ((mut short, mut answers), (mut general, mut replies)) = (pair(), pair());
        for _ in 0..calls {
            let id = short.conn.open_call(&mut short.ledger, 1).expect("room");
            prop_assert_eq!(general.conn.open_call(&mut general.ledger, 1), Ok(id));
            let before = state(&short);
            let header = plain_call(&mut short.conn, &mut short.ledger, id, payload, reply);
            let demand = CallDemand::inline(payload, reply);
            let plan = general.conn.begin_sends(&mut general.ledger, id, &demand);
            match (header, plan) {
                (Some(header), Ok(Plan::Inline(plan))) => {
                    prop_assert_eq!(header, encoded(&general, &plan));
                    let to = ReplyTo { xid: id.xid(), credits: 1, rsbuf: 1, via: Via::Msg, handle: None };
                    let bytes = [&header[..], &rpc(id.xid(), false, 40)].concat();
                    answers.receive(&bytes);
                    replies.receive(&bytes);
                    let ledger = &mut answers.ledger;
                    let header = plain_reply(&mut answers.conn, ledger, &to, reply);
                    let demand = ReplyDemand::inline(reply);
                    let plan = replies.conn.begin_reply(&mut replies.ledger, &to, &demand);
                    match (header, plan) {
                        (Some(header), Ok(Plan::Inline(plan))) => {
                            prop_assert_eq!(header, encoded(&replies, &plan));
                        }
                        (None, Err(_)) => {}
                        (header, plan) => panic!("{header:?} is {plan:?}"),
                    }
                    prop_assert_eq!(answers.conn.inflow(), replies.conn.inflow());
                }
                (None, Err(_)) => prop_assert_eq!(state(&short), before),
                // What does not fit one buffer can still be continued.
                (None, Ok(Plan::Group(_))) => {
                    prop_assert!(payload > 6144 - 28 || reply > 6144 - 28);
                    return Ok(());
                }
                (header, plan) => panic!("{header:?} is {plan:?}"),
            }
            prop_assert_eq!(state(&short), state(&general));
        }
    }
}

#[test]
fn messages_take_the_general_way_until_both_ends_have_met() {
    let bytes = encode(&Sent::Msg { xid: 16, reply: false }, 0);
    for properties in [true, false] {
        let settings = Settings { properties, ..Settings::new(structure(4096, 2, 1024)) };
        let mut server = Side::new(Role::Server, settings);
        let short = |server: &mut Side| take_plain(server, &bytes).map(|(kind, _)| kind);
        assert_eq!(short(&mut server), None);
        assert!(matches!(server.receive(&bytes), Ingress::Call(_)));
        assert_eq!(short(&mut server), None, "our answer has still to be sent");
        match properties {
            true => assert!(server.conn.next_control().is_some()),
            false => assert!(matches!(server.receive(&bytes), Ingress::Call(_))),
        }
        // The grant has grown with the first call.
        assert!(matches!(short(&mut server), Some(ShortKind::Call(_))));
    }
}

fn encoded(side: &Side, plan: &InlinePlan) -> [u8; PLAIN_HEADER_LEN] {
    let mut bytes = [0; PLAIN_HEADER_LEN];
    side.conn.encode_inline(plan, &mut Writer::new(&mut bytes)).expect("28 bytes");
    bytes
}
