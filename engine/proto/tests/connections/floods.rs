//! Messages without effect have a limit: a peer that sends only such messages loses its connection.
//! What comes late because a call was given up is not among that.

use crate::pair::{Side, connected, rpc, structure, transmission};
use proptest::collection::vec;
use proptest::prelude::*;
use rpcrdma_proto::control::IDLE_MESSAGES_MAX;
use rpcrdma_proto::*;
use rpcrdma_xdr::*;

const LIMIT: u32 = IDLE_MESSAGES_MAX as u32;

fn settings() -> Settings {
    Settings {
        credits_requested: 8,
        credits_granted_max: 8,
        ..Settings::new(structure(1024, 2, 1024))
    }
}

fn side(role: Role) -> Side {
    let (client, server) = connected(settings(), settings());
    let mut side = if role == Role::Client { client } else { server };
    side.conn.forgive_idle_messages(u8::MAX);
    side
}

fn wire(xid: u32, body: Body<'_>, payload: &[u8]) -> Vec<u8> {
    let header = Header { xid, vers: 2, credit: 8, body };
    transmission(&header, payload)
}

fn msg(xid: u32, reply: bool) -> Vec<u8> {
    wire(xid, Body::Msg(ChunkLists::EMPTY), &rpc(xid, reply, 40))
}

fn request(xid: u32, count: u32) -> Vec<u8> {
    let (dp, rsd) = (Array::EMPTY, Array::EMPTY);
    let req = XmtReq { dp, rsd, count, rsbuf: 1, pslen: 40 };
    wire(xid, Body::Optional(Optional::XmtReq(req)), &rpc(xid, false, 40))
}

fn response(xid: u32, count: u32) -> Vec<u8> {
    let resp = XmtResp { dp: Array::EMPTY, count, pslen: 40 };
    wire(xid, Body::Optional(Optional::XmtResp(resp)), &rpc(xid, true, 40))
}

fn rest(xid: u32, xnum: u32, itype: u32) -> Vec<u8> {
    let cont = XmtCont { xnum, itype, pslen: 40 };
    wire(xid, Body::Optional(Optional::XmtCont(cont)), &[1; 40])
}

fn error(xid: u32) -> Vec<u8> {
    wire(xid, Body::Error(RdmaError::BadHeader), &[])
}

fn report(xid: u32, dir: MsgType) -> Vec<u8> {
    let bad = MsgId { xid, dir, seq: 0 };
    let report = ReptErr { bad, lead: None, info: ReptInfo::BadCont };
    wire(xid, Body::Optional(Optional::ReptErr(report)), &[])
}

/// Transmissions that bring nothing, whatever state a connection is in: no call of ours is open,
/// and a group needs more than what is here.
fn junk() -> Vec<Vec<u8>> {
    let conn_prop = Optional::ConnProp(ConnProp::default());
    let resp_prop = Optional::RespProp(RespProp::default());
    let unknown = Optional::Unknown { opttype: 99, info: &[0; 4] };
    let mut short = request(1, 1);
    short[3 * 4] = 9;
    vec![
        msg(0x1234, true),
        msg(0x8000_1234, true),
        response(77, 1),
        response(77, 3),
        rest(77, 1, 6),
        // Too long a group, and what follows of it.
        request(88, 60),
        rest(88, 1, 5),
        rest(88, 2, 5),
        // A group that never ends, and a continuation of another.
        request(89, 2),
        rest(90, 1, 5),
        error(3),
        report(3, MsgType::Call),
        report(3, MsgType::Reply),
        wire(0, Body::Optional(conn_prop), &[]),
        wire(5, Body::Optional(resp_prop), &[]),
        wire(6, Body::Optional(unknown), &[]),
        wire(7, Body::Done, &[]),
        vec![0xff; 40],
        vec![0; 8],
        short,
    ]
}

/// Hands a transmission in, and once more if it ended a group.
fn hand_in(side: &mut Side, bytes: &[u8]) -> bool {
    let mut ingress = side.receive(bytes);
    if matches!(ingress, Ingress::Aborted(Aborted { again: true, .. })) {
        ingress = side.hand_in(side.last_buffer(), bytes.len());
    }
    assert!(
        !matches!(ingress, Ingress::Call(_) | Ingress::Reply(..) | Ingress::Complete(_)),
        "{ingress:?}"
    );
    !matches!(ingress, Ingress::Fatal(_))
}

#[test]
fn every_kind_of_junk_ends_its_connection() {
    for role in [Role::Client, Role::Server] {
        for (index, bytes) in junk().iter().enumerate() {
            let mut side = side(role);
            let accepted = (0..100_000).take_while(|_| hand_in(&mut side, bytes)).count();
            // What opens a group is a half of what is counted.
            assert!(
                accepted <= 2 * LIMIT as usize + 1,
                "{role:?}, kind {index}: {accepted} were accepted"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_mixture_of_junk_ends_its_connection(
        role in prop_oneof![Just(Role::Client), Just(Role::Server)],
        turns in vec(0..junk().len(), 1..12),
    ) {
        let (mut side, junk) = (side(role), junk());
        let turns = turns.iter().cycle().map(|turn| &junk[*turn]);
        let accepted = turns.take(100_000).take_while(|bytes| hand_in(&mut side, bytes)).count();
        // What opens a group is not counted, but what ends it is.
        prop_assert!(accepted <= 4 * LIMIT as usize, "{} were accepted", accepted);
    }
}

#[test]
fn the_buffers_of_a_group_are_named_when_its_abort_ends_the_connection() {
    let mut side = side(Role::Server);
    for _ in 0..LIMIT {
        assert!(hand_in(&mut side, &error(3)));
    }
    assert!(matches!(side.receive(&request(1, 2)), Ingress::Partial));
    let parked = side.last_buffer();
    let fatal = side.receive(&request(2, 2));
    let flood = Fatal::ControlFlood { messages: LIMIT + 1, limit: LIMIT };
    assert!(matches!(fatal, Ingress::Fatal(why) if why == flood), "{fatal:?}");
    let named: Vec<_> = side.conn.parked().iter().map(|part| part.buffer).collect();
    assert_eq!(named, [parked], "the first is parked, the second is free");
}

#[test]
fn a_call_resets_the_count() {
    let mut side = side(Role::Server);
    for xid in 0..1000 {
        for _ in 0..LIMIT {
            assert!(hand_in(&mut side, &msg(0x1234, true)));
        }
        let Ingress::Call(call) = side.receive(&msg(xid, false)) else { panic!("a call") };
        side.conn.refuse(&mut side.ledger, &call.reply_to());
    }
}

/// Makes a call whose reply may have some transmissions.
fn call(side: &mut Side, reply: u32) -> Option<CallId> {
    let id = side.conn.open_call(&mut side.ledger, 5).ok()?;
    let demand = CallDemand::inline(40, reply);
    match side.conn.begin_sends(&mut side.ledger, id, &demand) {
        Ok(_) => Some(id),
        Err(_) => {
            side.conn.finish_call(&mut side.ledger, id).expect("it is open");
            None
        }
    }
}

/// Credits that can be used, and receives that are set aside.
fn held(side: &Side) -> (u32, u32) {
    (side.conn.credits_available(), side.ledger.replies.reserved())
}

/// A client that knows its grant.
fn client() -> Side {
    let mut side = side(Role::Client);
    let id = call(&mut side, 40).expect("a credit");
    assert!(matches!(side.receive(&msg(id.xid(), true)), Ingress::Reply(..)));
    side.conn.finish_call(&mut side.ledger, id).expect("open");
    assert_eq!(held(&side), (8, 0));
    side
}

#[test]
fn late_replies_do_not_count_as_a_flood() {
    let mut side = client();
    for turn in 0..5 * LIMIT {
        let id = call(&mut side, 5000).expect("all credits are back");
        let (available, reserved) = held(&side);
        let ended = side.conn.abandon_call(&mut side.ledger, id);
        assert_eq!(ended, Some(Finished { token: 5, timer: NO_MARK }));
        assert_eq!(side.conn.abandon_call(&mut side.ledger, id), None, "once");
        assert!(!side.conn.is_calling(), "no call is open");
        // The peer may be at it still: its credit and its receives are not free.
        assert_eq!(held(&side), (available, reserved));
        let late = match turn % 5 {
            0 => vec![msg(id.xid(), true)],
            1 => vec![response(id.xid(), 1)],
            2 => vec![response(id.xid(), 2), rest(id.xid(), 1, 6)],
            3 => vec![error(id.xid())],
            _ => vec![report(id.xid(), MsgType::Call)],
        };
        for bytes in &late {
            let ingress = side.receive(bytes);
            let is_late = matches!(
                ingress,
                Ingress::Ignored(Ignored::LateReply)
                    | Ingress::Partial
                    | Ingress::Complete(Complete::Unwanted)
            );
            assert!(is_late, "{turn}: {ingress:?}");
        }
        assert_eq!((held(&side), side.ledger.calls.len()), ((8, 0), 0), "turn {turn}");
        assert!(side.conn.parked().is_empty());
    }
    // The second reply to the same call is none.
    let id = call(&mut side, 40).expect("a credit");
    side.conn.abandon_call(&mut side.ledger, id).expect("open");
    assert!(matches!(side.receive(&msg(id.xid(), true)), Ingress::Ignored(Ignored::LateReply)));
    assert!(matches!(side.receive(&msg(id.xid(), true)), Ingress::Ignored(Ignored::UnknownReply)));
}

#[test]
fn a_call_is_given_up_in_any_state() {
    // Never sent: all of it is free at once.
    let mut side = client();
    let id = side.conn.open_call(&mut side.ledger, 5).expect("ready");
    assert!(side.conn.abandon_call(&mut side.ledger, id).is_some());
    assert!(side.ledger.calls.is_empty());
    // Answered: as if it were finished.
    let id = call(&mut side, 40).expect("a credit");
    assert!(matches!(side.receive(&msg(id.xid(), true)), Ingress::Reply(..)));
    assert!(matches!(side.receive(&msg(id.xid(), true)), Ingress::Ignored(Ignored::UnknownReply)));
    assert!(side.conn.abandon_call(&mut side.ledger, id).is_some());
    assert_eq!((held(&side), side.ledger.calls.len()), ((8, 0), 0));
    // In the middle of its reply: the rest is waited for.
    let id = call(&mut side, 5000).expect("a credit");
    assert!(side.conn.is_calling());
    assert!(matches!(side.receive(&response(id.xid(), 2)), Ingress::Partial));
    assert!(side.conn.abandon_call(&mut side.ledger, id).is_some());
    assert_eq!(side.ledger.replies.reserved(), 2);
    let last = side.receive(&rest(id.xid(), 1, 6));
    assert!(matches!(last, Ingress::Complete(Complete::Unwanted)), "{last:?}");
    assert_eq!((held(&side), side.ledger.calls.len()), ((8, 0), 0));
    // A reply that was refused: nothing more is owed.
    let id = call(&mut side, 40).expect("a credit");
    let Ingress::Reply(_, message) = side.receive(&msg(id.xid(), true)) else { panic!("a reply") };
    let bad = Violation::BadHeader("a test says so");
    side.conn.reject_reply(id, message.via, bad);
    assert!(side.conn.abandon_call(&mut side.ledger, id).is_some());
    assert_eq!((held(&side), side.ledger.calls.len()), ((8, 0), 0));
    // A late reply that breaks the rules is the last of it, too.
    let id = call(&mut side, 40).expect("a credit");
    side.conn.abandon_call(&mut side.ledger, id).expect("open");
    assert!(matches!(side.receive(&response(id.xid(), 0)), Ingress::Reject(_)));
    assert_eq!((held(&side), side.ledger.calls.len()), ((8, 0), 0));
    // The connection ends first.
    let id = call(&mut side, 40).expect("a credit");
    side.conn.abandon_call(&mut side.ledger, id).expect("open");
    assert_eq!(side.ledger.calls.next_of(side.conn.peer(), 0).map(|(id, _)| id), Some(id));
    assert_eq!(side.conn.finish_call(&mut side.ledger, id), None, "the program knows");
    assert_eq!((held(&side), side.ledger.calls.len()), ((8, 0), 0));
}
