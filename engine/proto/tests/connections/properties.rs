//! Changes of properties on a connection, compared with a model of each side's knowledge.

use std::collections::BTreeMap;

use crate::pair::{Side, connected, plain_call, rpc, structure, take_plain, transmission};
use proptest::collection::vec;
use proptest::prelude::*;
use rpcrdma_proto::control::IDLE_MESSAGES_MAX;
use rpcrdma_proto::*;
use rpcrdma_xdr::*;

fn settings() -> Settings {
    Settings {
        credits_requested: 8,
        credits_granted_max: 8,
        ..Settings::new(structure(4096, 2, 4096))
    }
}

fn both() -> (Side, Side) {
    connected(settings(), settings())
}

fn wire(xid: u32, body: Optional<'_>) -> Vec<u8> {
    let header = Header { xid, vers: 2, credit: 8, body: Body::Optional(body) };
    transmission(&header, &[])
}

fn error(xid: u32, error: RdmaError) -> Vec<u8> {
    let header = Header { xid, vers: 2, credit: 8, body: Body::Error(error) };
    let mut bytes = vec![0; header.encoded_len()];
    header.encode(&mut Writer::new(&mut bytes)).expect("as long as it says");
    bytes
}

fn with_set<T>(values: &[Property<'_>], then: impl FnOnce(PropSet<'_>) -> T) -> T {
    let mut bytes = vec![[0; Property::LEN_MAX]; values.len()];
    let values: Vec<_> = values
        .iter()
        .zip(&mut bytes)
        .map(|(value, bytes)| value.encode(bytes).expect("LEN_MAX bytes are enough"))
        .collect();
    then(PropSet::from_slice(&values))
}

fn connprop(values: &[Property<'_>], nochg: u32) -> Vec<u8> {
    with_set(values, |start| {
        let nochg = [nochg];
        wire(0, Optional::ConnProp(ConnProp { start, nochg: PropSubset::from_words(&nochg) }))
    })
}

fn updprop(values: &[Property<'_>]) -> Vec<u8> {
    with_set(values, |now| wire(0, Optional::UpdProp(UpdProp { now })))
}

fn reqprop(xid: u32, values: &[Property<'_>]) -> Vec<u8> {
    with_set(values, |want| wire(xid, Optional::ReqProp(ReqProp { want })))
}

fn resprop(xid: u32, done: u32, rej: u32, other: &[Property<'_>]) -> Vec<u8> {
    let (done, rej) = ([done], [rej]);
    with_set(other, |other| {
        let (done, rej) = (PropSubset::from_words(&done), PropSubset::from_words(&rej));
        wire(xid, Optional::RespProp(RespProp { done, rej, other }))
    })
}

const SIZE: PropId = PropId::RECV_BUFFER_SIZE;
const RX: PropId = PropId::REQUEST_RX_LIMIT;
const SX: PropId = PropId::RESPONSE_SX_LIMIT;

fn ids(of: PropIds) -> Vec<u32> {
    of.iter().map(|id| id.0).collect()
}

/// A server whose client stated a size of 8192, limits of 4 and 4, and nothing else.
fn asking(changes: &[Property<'_>]) -> (Side, u32) {
    let mut server = Side::new(Role::Server, settings());
    let stated =
        [Property::RecvBufferSize(8192), Property::RequestRxLimit(4), Property::ResponseSxLimit(4)];
    assert!(matches!(server.receive(&connprop(&stated, 0)), Ingress::Control(_)));
    let changes = Changes::of(changes).expect("may be asked for");
    let asked = server.conn.request_properties(&changes).expect("stated and not fixed");
    let ControlSend::ReqProp { xid, .. } = asked else { panic!("REQPROP") };
    (server, xid)
}

fn outcome_of(ingress: Ingress<'_>) -> PropertyOutcome {
    match ingress {
        Ingress::PropertiesAnswered(outcome) => outcome,
        other => panic!("no answer: {other:?}"),
    }
}

#[test]
fn a_request_for_changes_is_sent_and_its_answer_returned() {
    let (mut client, mut server) = both();
    assert!(client.conn.knows_properties() && server.conn.knows_properties());
    assert!(!Side::new(Role::Server, settings()).conn.knows_properties());
    let changes = [Property::RecvBufferSize(2048), Property::ResponseSxLimit(4)];
    // The peer's buffers are fixed (wire.md W14), its limits are not.
    let fixed = client.conn.request_properties(&Changes::of(&changes).expect("valid"));
    assert_eq!(fixed, Err(PropertyError::Fixed(SIZE)));
    let changes = Changes::of(&changes[1..]).expect("valid");
    let asked = client.conn.request_properties(&changes).expect("may change");
    let again = client.conn.request_properties(&changes);
    assert!(matches!(again, Err(PropertyError::Outstanding { .. })), "{again:?}");
    let asked = client.control(asked);
    let Ingress::Control(Control { answer: Some(answer), .. }) = server.receive(&asked) else {
        panic!("answered")
    };
    let answer = server.control(answer);
    let outcome = outcome_of(client.receive(&answer));
    assert_eq!(ids(outcome.refused), [SX.0], "our limits are not for the peer to change");
    assert!(!client.conn.is_asking());
    assert!(client.conn.request_properties(&changes).is_ok(), "the next one");
}

#[test]
fn done_other_and_refused_are_distinguished() {
    let changes =
        [Property::RecvBufferSize(2048), Property::RequestRxLimit(8), Property::ResponseSxLimit(8)];
    let (mut server, xid) = asking(&changes);
    // Positions are those of the request: size, request limit, response limit.
    let answer = resprop(xid, 0b001, 0b010, &[Property::ResponseSxLimit(6)]);
    let outcome = outcome_of(server.receive(&answer));
    assert_eq!(ids(outcome.done), [SIZE.0]);
    assert_eq!(ids(outcome.refused), [RX.0]);
    assert_eq!(ids(outcome.other), [SX.0]);
    let limits = server.conn.limits();
    assert_eq!((limits.recv_size, limits.request_rx_limit, limits.response_sx_limit), (2048, 4, 6));
}

#[test]
fn properties_answered_twice_or_not_at_all_count_as_refused() {
    for done in [false, true] {
        for rejected in [false, true] {
            for other in [false, true] {
                let (mut server, xid) = asking(&[Property::RequestRxLimit(8)]);
                let others: &[_] = if other { &[Property::RequestRxLimit(6)] } else { &[] };
                let answer = resprop(xid, done.into(), rejected.into(), others);
                let outcome = outcome_of(server.receive(&answer));
                let limit = server.conn.limits().request_rx_limit;
                let (expected, value) = match (done, rejected, other) {
                    (true, false, false) => (outcome.done, 8),
                    (false, false, true) => (outcome.other, 6),
                    _ => (outcome.refused, 4),
                };
                assert_eq!((ids(expected), limit), (vec![RX.0], value), "{outcome:?}");
            }
        }
    }
}

#[test]
fn other_values_for_what_was_not_asked_are_ignored() {
    let (mut server, xid) = asking(&[Property::RequestRxLimit(8)]);
    let others = [Property::ResponseSxLimit(9), Property::BackwardSupport(BackwardSupport::None)];
    let outcome = outcome_of(server.receive(&resprop(xid, 0b1, 0, &others)));
    assert_eq!((ids(outcome.done), ids(outcome.other)), (vec![RX.0], vec![]));
    let limits = server.conn.limits();
    assert_eq!((limits.request_rx_limit, limits.response_sx_limit), (8, 4));
    assert_eq!(limits.backward, BackwardSupport::Inline);
}

#[test]
fn an_answer_with_another_xid_or_a_second_one_is_ignored() {
    let (mut server, xid) = asking(&[Property::RequestRxLimit(8)]);
    let unasked = server.receive(&resprop(xid ^ 1, 0b1, 0, &[]));
    assert!(matches!(unasked, Ingress::Ignored(Ignored::UnaskedProperties)), "{unasked:?}");
    outcome_of(server.receive(&resprop(xid, 0, 0b1, &[])));
    let second = server.receive(&resprop(xid, 0b1, 0, &[]));
    assert!(matches!(second, Ingress::Ignored(Ignored::UnaskedProperties)), "{second:?}");
    assert_eq!(server.conn.limits().request_rx_limit, 4);
}

#[test]
fn silence_and_errors_refuse_all_changes() {
    let changes = [Property::RequestRxLimit(8), Property::ResponseSxLimit(8)];
    let (mut server, xid) = asking(&changes);
    let outcome = server.conn.on_reqprop_timeout().expect("outstanding");
    assert_eq!(ids(outcome.refused), [RX.0, SX.0]);
    assert!(server.conn.on_reqprop_timeout().is_none(), "once");
    let late = server.receive(&resprop(xid, 0b11, 0, &[]));
    assert!(matches!(late, Ingress::Ignored(Ignored::UnaskedProperties)), "{late:?}");
    let again = server.conn.request_properties(&Changes::of(&changes).expect("valid"));
    let Ok(ControlSend::ReqProp { xid: next, .. }) = again else { panic!("{again:?}") };
    assert_ne!(next, xid, "a late answer must not name it");
    let outcome = outcome_of(server.receive(&error(next, RdmaError::BadHeader)));
    assert_eq!(ids(outcome.refused), [RX.0, SX.0]);
    let third = server.conn.request_properties(&Changes::of(&changes).expect("valid"));
    let Ok(ControlSend::ReqProp { xid, .. }) = third else { panic!("{third:?}") };
    outcome_of(server.receive(&error(xid, RdmaError::InvalOption)));
    let known = server.conn.request_properties(&Changes::of(&changes).expect("valid"));
    assert_eq!(known, Err(PropertyError::PeerWithout), "it does not know the operation");
}

#[test]
fn requests_always_have_another_xid_than_the_last_one() {
    let changes = [Property::RequestRxLimit(8)];
    let (mut server, mut last) = asking(&changes);
    for turn in 0..1000 {
        server.conn.on_reqprop_timeout().expect("outstanding");
        let asked = server.conn.request_properties(&Changes::of(&changes).expect("valid"));
        let Ok(ControlSend::ReqProp { xid, .. }) = asked else { panic!("{asked:?}") };
        assert_ne!(xid, last, "question {turn}");
        assert!((1 << 31 | 1..1 << 31 | 16).contains(&xid), "no call has it: {xid:#x}");
        last = xid;
    }
}

#[test]
fn a_smaller_buffer_counts_from_the_request_on_and_no_longer_if_refused() {
    let changes = [Property::RecvBufferSize(2048)];
    let (mut server, xid) = asking(&changes);
    assert_eq!(server.conn.limits().recv_size, 2048, "it may be that already");
    outcome_of(server.receive(&resprop(xid, 0, 0b1, &[])));
    assert_eq!(server.conn.limits().recv_size, 8192);
    let (mut server, _) = asking(&changes);
    server.conn.on_reqprop_timeout().expect("outstanding");
    assert_eq!(server.conn.limits().recv_size, 2048, "the answer may still be on the way");
    // What the peer says by itself meanwhile is not undone.
    let (mut server, xid) = asking(&changes);
    server.receive(&updprop(&[Property::RecvBufferSize(1024)]));
    outcome_of(server.receive(&resprop(xid, 0, 0b1, &[])));
    assert_eq!(server.conn.limits().recv_size, 1024);
    // Not even if it is more than was asked for.
    let (mut server, xid) = asking(&changes);
    server.receive(&updprop(&[Property::RecvBufferSize(4096)]));
    assert_eq!(server.conn.limits().recv_size, 2048, "the question stands");
    outcome_of(server.receive(&resprop(xid, 0, 0b1, &[])));
    assert_eq!(server.conn.limits().recv_size, 4096);
    // A larger one counts when the peer has it.
    let (mut server, xid) = asking(&[Property::RecvBufferSize(16384)]);
    assert_eq!(server.conn.limits().recv_size, 8192);
    outcome_of(server.receive(&resprop(xid, 0b1, 0, &[])));
    assert_eq!(server.conn.limits().recv_size, 16384);
}

#[test]
fn replies_respect_a_smaller_buffer_that_the_peer_requests() {
    let (mut client, mut server) = both();
    // A reply of 8 KiB fits one of our buffers.
    let open = |side: &mut Side| side.conn.open_call(&mut side.ledger, 0).expect("ready");
    let demand = CallDemand::inline(40, 8000);
    let id = open(&mut client);
    let plan = client.conn.begin_sends(&mut client.ledger, id, &demand).expect("fits");
    assert!(matches!(plan, Plan::Inline(_)));
    assert_eq!(client.ledger.replies.reserved(), 1);
    client.conn.finish_call(&mut client.ledger, id).expect("open");
    for (values, done) in [
        (Property::RecvBufferSize(12289), false),
        (Property::RecvBufferSize(12288), true),
        (Property::Default(SIZE), true),
    ] {
        let asked = client.receive(&reqprop(9, &[values]));
        let Ingress::Control(Control { answer: Some(answer), .. }) = asked else { panic!() };
        let answer = client.control(answer);
        let (header, _) = Header::decode(&answer).expect("valid");
        let Body::Optional(Optional::RespProp(answer)) = header.body else { panic!("RESPROP") };
        assert_eq!((answer.done.contains(0), answer.rej.contains(0)), (done, !done));
    }
    assert!(server.conn.next_control().is_none());
    // Now the peer sends 4096 bytes at a time: the same reply takes two or more.
    let id = open(&mut client);
    assert!(plain_call(&mut client.conn, &mut client.ledger, id, 40, 8000).is_none());
    client.conn.begin_sends(&mut client.ledger, id, &demand).expect("continued");
    assert_eq!(client.ledger.replies.reserved(), 2);
}

#[test]
fn constant_properties_are_neither_requested_nor_announced() {
    let structure = Property::RecvStructure(RecvStructure::single(8192));
    let unknown = Property::Unknown(PropVal { id: PropId(99), data: &[] });
    let size = Property::RecvBufferSize;
    let default = Property::Default(PropId::RECV_STRUCTURE);
    let fixed = "this property cannot be changed";
    for (values, why) in [
        (&[structure][..], fixed),
        (&[unknown], fixed),
        (&[default], fixed),
        (&[size(1023)], "a property is changed to a value that it can have"),
        (&[size(1024); 2], "a property is changed to one value at a time"),
    ] {
        assert_eq!(Changes::of(values), Err(Misuse(why)), "{values:?}");
    }
    let mut server = Side::new(Role::Server, settings());
    let rx = Changes::of(&[Property::RequestRxLimit(3)]).expect("valid");
    assert_eq!(server.conn.request_properties(&rx), Err(PropertyError::PeerWithout));
    assert_eq!(server.conn.announce(&rx), Err(PropertyError::NotExchanged));
    // Not stated at the start, and stated as fixed.
    server.receive(&connprop(&[Property::ResponseSxLimit(4)], 0b1));
    assert_eq!(server.conn.request_properties(&rx), Err(PropertyError::Fixed(RX)));
    let sx = Changes::of(&[Property::ResponseSxLimit(3)]).expect("valid");
    assert_eq!(server.conn.request_properties(&sx), Err(PropertyError::Fixed(SX)));
    for value in [size(2048), Property::RequesterRemoteInvalidation(true)] {
        let fixed = Changes::of(&[value]).expect("valid");
        assert_eq!(server.conn.announce(&fixed), Err(PropertyError::Fixed(value.id())));
    }
    let none = Changes::of(&[]).expect("valid");
    assert!(matches!(server.conn.announce(&none), Err(PropertyError::Misuse(_))));
    let many = Changes::of(&[Property::RequestRxLimit(65)]).expect("valid");
    assert!(matches!(server.conn.announce(&many), Err(PropertyError::Misuse(_))));
    let off = Settings { properties: false, ..settings() };
    let mut server = Side::new(Role::Server, off);
    assert_eq!(server.conn.request_properties(&rx), Err(PropertyError::Off));
    assert_eq!(server.conn.announce(&rx), Err(PropertyError::Off));
}

#[test]
fn announced_values_are_used_and_greater_ones_accepted() {
    let small = Settings { request_rx_limit: 2, backward: BackwardSupport::None, ..settings() };
    let (mut client, mut server) = connected(small, small);
    assert_eq!(client.conn.limits().request_rx_limit, 2);
    let refused = server.conn.open_call(&mut server.ledger, 0);
    assert_eq!(refused, Err(SendError::NoBackward));
    let changes = Changes::of(&[
        Property::RequestRxLimit(5),
        Property::BackwardSupport(BackwardSupport::Inline),
        Property::RtrSupport(RtrSupport::XREQ),
    ])
    .expect("valid");
    let announced = client.conn.announce(&changes).expect("may change");
    let announced = client.control(announced);
    assert!(matches!(server.receive(&announced), Ingress::Control(_)));
    let limits = server.conn.limits();
    assert_eq!((limits.request_rx_limit, limits.rtr), (5, RtrSupport::XREQ));
    let id = server.conn.open_call(&mut server.ledger, 0).expect("it has a callback now");
    let demand = CallDemand::inline(40, 40);
    let mut plan = server.conn.begin_sends(&mut server.ledger, id, &demand).expect("one credit");
    let sent = server.transmit(&mut plan, &rpc(id.xid(), false, 40), &[]);
    assert!(matches!(client.receive(&sent[0]), Ingress::Call(_)));
    assert_eq!(client.conn.settings().request_rx_limit, 5);
    // What it takes less of may be on the way already.
    let before = *client.conn.settings();
    let fewer = Changes::of(&[
        Property::RequestRxLimit(1),
        Property::ResponseSxLimit(1),
        Property::BackwardSupport(BackwardSupport::None),
        Property::RtrSupport(RtrSupport::empty()),
    ])
    .expect("valid");
    client.conn.announce(&fewer).expect("may change");
    assert_eq!(before.request_rx_limit, 5);
    assert_eq!(*client.conn.settings(), before);
}

#[test]
fn a_default_that_is_announced_is_accepted_as_its_value() {
    let small = Settings { backward: BackwardSupport::None, ..settings() };
    let (mut client, mut server) = connected(small, settings());
    let changes = Changes::of(&[Property::Default(PropId::BACKWARD_SUPPORT)]).expect("valid");
    let announced = client.conn.announce(&changes).expect("may change");
    let announced = client.control(announced);
    assert!(matches!(server.receive(&announced), Ingress::Control(_)));
    let id = server.conn.open_call(&mut server.ledger, 0).expect("it has a callback now");
    let demand = CallDemand::inline(40, 40);
    let mut plan = server.conn.begin_sends(&mut server.ledger, id, &demand).expect("one credit");
    let sent = server.transmit(&mut plan, &rpc(id.xid(), false, 40), &[]);
    assert!(matches!(client.receive(&sent[0]), Ingress::Call(_)));
}

#[test]
fn every_property_is_stated_and_those_that_never_change_are_marked() {
    let mut client = Side::new(Role::Client, settings());
    let hello = client.conn.begin().expect("the first message");
    let hello = client.control(hello);
    let (header, len) = Header::decode(&hello).expect("valid");
    let Body::Optional(Optional::ConnProp(stated)) = header.body else { panic!("CONNPROP") };
    assert!(stated.start.iter().map(|value| value.id).eq(Known::ALL.map(Known::id)));
    for (index, known) in Known::ALL.into_iter().enumerate() {
        assert_eq!(
            stated.nochg.contains(index),
            known.may_change() != MayChange::Both,
            "{known:?}"
        );
    }
    assert!(len <= 1024, "the first message has at most 1024 bytes");
}

#[test]
fn missing_properties_have_the_defaults_of_the_table() {
    let limits = |values: &[Property<'_>]| {
        let mut server = Side::new(Role::Server, settings());
        server.receive(&connprop(values, 0));
        *server.conn.limits()
    };
    for default in Known::ALL.map(|known| Property::Default(known.id())) {
        assert_eq!(limits(&[default]), limits(&[]), "{default:?}");
        assert_eq!(limits(&[default.in_effect()]), limits(&[]), "{default:?}");
    }
}

#[test]
fn every_property_is_asked_for_and_announced_or_refused_by_the_table() {
    let all = Known::ALL.map(|known| Property::Default(known.id()));
    for (known, value) in Known::ALL.into_iter().zip(all) {
        let changes = Changes::of(&[value]);
        let (mut client, mut server) = both();
        server.receive(&connprop(&all, 0));
        match known.may_change() {
            MayChange::Neither => assert!(changes.is_err(), "{known:?}"),
            MayChange::Peer => {
                let announced = client.conn.announce(&changes.expect("may change"));
                assert_eq!(announced, Err(PropertyError::Fixed(known.id())));
            }
            MayChange::Both => {
                let announced = client.conn.announce(&changes.expect("may change"));
                let update = client.control(announced.expect("may change"));
                assert!(matches!(server.receive(&update), Ingress::Control(_)), "{known:?}");
                let skipped = server.conn.counters().skipped_properties;
                assert_eq!(skipped, 0, "{known:?}");
            }
        }
    }
}

#[test]
fn remote_invalidation_is_stated_as_it_is_set() {
    for allowed in [false, true] {
        let open = Settings { requester_invalidation: allowed, ..settings() };
        let (client, server) = connected(open, settings());
        assert_eq!(server.conn.limits().remote_invalidation, allowed);
        assert!(!client.conn.limits().remote_invalidation);
    }
}

#[test]
fn bad_values_are_refused_and_nothing_of_the_message_applies() {
    let good = Property::RequestRxLimit(9);
    for (id, word) in [
        (PropId::REQUESTER_REMOTE_INVALIDATION, 2u32),
        (PropId::BACKWARD_SUPPORT, 3),
        (PropId::RECV_BUFFER_SIZE, 1023),
    ] {
        let word = word.to_be_bytes();
        let bad = [PropVal { id, data: &word }];
        let mut bytes = [0; 4];
        let values = [good.encode(&mut bytes).expect("a word"), bad[0]];
        let now = PropSet::from_slice(&values);
        let mut server = Side::new(Role::Server, settings());
        server.receive(&connprop(&[Property::RequestRxLimit(4), Property::Default(id)], 0));
        let bad = server.receive(&wire(0, Optional::UpdProp(UpdProp { now })));
        assert!(
            matches!(bad, Ingress::Reject(Report { kind: report::ReportKind::BadHeader, .. })),
            "{bad:?}"
        );
        assert_eq!(server.conn.limits().request_rx_limit, 4);
        // In the answer to a question too: it stays outstanding.
        let (mut server, xid) = asking(&[good]);
        let (done, rej) = (PropSubset::from_words(&[1]), PropSubset::EMPTY);
        let answer = Optional::RespProp(RespProp { done, rej, other: now });
        let bad = server.receive(&wire(xid, answer));
        assert!(matches!(bad, Ingress::Reject(_)), "{bad:?}");
        assert!(server.conn.is_asking());
    }
}

#[test]
fn a_flood_of_messages_without_effect_ends_the_connection() {
    let update = updprop(&[Property::RequestRxLimit(3)]);
    let (mut client, mut server) = both();
    // One was the client's own statement of its properties.
    for _ in 1..IDLE_MESSAGES_MAX {
        assert!(matches!(server.receive(&update), Ingress::Control(_)));
    }
    // A call begins the count anew, by either way into the connection.
    let call = |side: &mut Side| {
        let id = side.conn.open_call(&mut side.ledger, 0).expect("ready");
        let demand = CallDemand::inline(40, 40);
        let mut plan = side.conn.begin_sends(&mut side.ledger, id, &demand).expect("a credit");
        side.transmit(&mut plan, &rpc(id.xid(), false, 40), &[]).remove(0)
    };
    let bytes = call(&mut client);
    assert!(matches!(server.receive(&bytes), Ingress::Call(_)));
    for _ in 0..IDLE_MESSAGES_MAX {
        assert!(matches!(server.receive(&update), Ingress::Control(_)));
    }
    let bytes = call(&mut client);
    assert!(take_plain(&mut server, &bytes).is_some());
    // All kinds count: changes, errors, and what cannot be read.
    let kinds = [update.clone(), error(77, RdmaError::BadHeader), vec![0xff; 40], vec![0; 8]];
    for turn in 0..usize::from(IDLE_MESSAGES_MAX) {
        let ingress = server.receive(&kinds[turn % kinds.len()]);
        assert!(!matches!(ingress, Ingress::Fatal(_)), "{turn}: {ingress:?}");
    }
    let limit = u32::from(IDLE_MESSAGES_MAX);
    let flood = Fatal::ControlFlood { messages: limit + 1, limit };
    assert!(matches!(server.receive(&update), Ingress::Fatal(fatal) if fatal == flood));
    // Time heals.
    server.conn.forgive_idle_messages(1);
    assert!(matches!(server.receive(&update), Ingress::Control(_)));
    assert!(matches!(server.receive(&update), Ingress::Fatal(fatal) if fatal == flood));
}

/// A value as the model has it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Value {
    Word(u32),
    Default,
}

/// Values by number.
type Values = Vec<(u32, Value)>;

#[derive(Debug, Clone)]
enum Op {
    Update(Vec<(u32, Value)>),
    Ask(Vec<(u32, Value)>),
    Answer { done: u32, rej: u32, other: Vec<(u32, Value)>, stale: bool },
    Refuse,
    Silence,
}

fn any_value() -> impl Strategy<Value = (u32, Value)> {
    // All but the structure; and an unassigned property.
    let id = prop_oneof![Just(1u32), Just(2), Just(3), Just(5), Just(6), Just(7), Just(40)];
    let word = prop_oneof![
        4 => (0u32..70).prop_map(Value::Word),
        1 => any::<u32>().prop_map(Value::Word),
        1 => Just(Value::Default)
    ];
    (id, word).prop_map(|(id, value)| match (id, value) {
        (1, Value::Word(word)) => (1, Value::Word(1024 + word % 9000)),
        (2, Value::Word(word)) => (2, Value::Word(word % 2)),
        (3, Value::Word(word)) => (3, Value::Word(word % 3)),
        other => other,
    })
}

fn any_values() -> impl Strategy<Value = Vec<(u32, Value)>> {
    vec(any_value(), 0..5).prop_map(|values| {
        let values: BTreeMap<_, _> = values.into_iter().collect();
        values.into_iter().collect()
    })
}

fn any_op() -> impl Strategy<Value = Op> {
    let answer = (0u32..32, 0u32..32, any_values(), 0u32..8);
    let answer = answer.prop_map(|(done, rej, other, stale)| {
        // Mostly an answer that makes sense.
        let rej = if stale % 2 == 0 { !done } else { rej };
        Op::Answer { done, rej, other, stale: stale == 0 }
    });
    prop_oneof![
        3 => any_values().prop_map(Op::Update),
        3 => any_values().prop_map(Op::Ask),
        4 => answer,
        1 => Just(Op::Refuse),
        1 => Just(Op::Silence),
    ]
}

fn property((id, value): (u32, Value)) -> Property<'static> {
    let Value::Word(word) = value else {
        return match id {
            40 => Property::Unknown(PropVal { id: PropId(40), data: &[] }),
            id => Property::Default(PropId(id)),
        };
    };
    match id {
        1 => Property::RecvBufferSize(word),
        2 => Property::RequesterRemoteInvalidation(word == 1),
        3 => Property::BackwardSupport(
            [BackwardSupport::None, BackwardSupport::Inline, BackwardSupport::General]
                [word as usize],
        ),
        5 => Property::RequestRxLimit(word),
        6 => Property::ResponseSxLimit(word),
        7 => Property::RtrSupport(RtrSupport::from_bits_retain(word)),
        _ => Property::Unknown(PropVal { id: PropId(40), data: b"x" }),
    }
}

fn properties(values: &[(u32, Value)]) -> Vec<Property<'static>> {
    values.iter().copied().map(property).collect()
}

/// What must be believed of a peer, without bits.
struct Model {
    now: BTreeMap<u32, u32>,
    changeable: Vec<u32>,
    /// Asked values, by number, and the size before the question if it was larger.
    asked: Option<(Values, Option<u32>)>,
    mute: bool,
}

const DEFAULTS: [(u32, u32); 6] = [(1, 4096), (2, 0), (3, 1), (5, 1), (6, 1), (7, 0)];

impl Model {
    fn new(stated: &[(u32, Value)], nochg: u32) -> Self {
        let is_listed =
            |id: PropId| id == PropId::RECV_STRUCTURE || DEFAULTS.iter().any(|(of, _)| *of == id.0);
        assert!(Known::ALL.map(Known::id).into_iter().all(is_listed), "the model has all");
        let mut model = Self { now: DEFAULTS.into(), changeable: vec![], asked: None, mute: false };
        for (index, (id, value)) in stated.iter().enumerate() {
            model.set(*id, *value);
            if nochg >> index & 1 == 0 && *id != 40 {
                model.changeable.push(*id);
            }
        }
        model
    }

    fn plain(id: u32, value: Value) -> u32 {
        let default = DEFAULTS.iter().find(|(of, _)| *of == id).map_or(0, |(_, value)| *value);
        match (id, value) {
            (_, Value::Default) => default,
            (5 | 6, Value::Word(word)) => word.clamp(1, 1024),
            (_, Value::Word(word)) => word,
        }
    }

    fn set(&mut self, id: u32, value: Value) {
        if id != 40 {
            self.now.insert(id, Self::plain(id, value));
        }
    }

    fn update(&mut self, values: &[(u32, Value)]) {
        for (id, value) in values {
            if !self.changeable.contains(id) {
                continue;
            }
            if *id == 1 {
                self.shrink(Self::plain(1, *value));
            } else {
                self.set(*id, *value);
            }
        }
    }

    /// What has grown is not believed; what counts beside a question for less is what was before
    /// it.
    fn shrink(&mut self, size: u32) {
        let now = self.now[&1];
        match &mut self.asked {
            Some((_, Some(before))) if size <= *before => {
                *before = size;
                self.now.insert(1, size.min(now));
            }
            _ if size <= now => {
                self.now.insert(1, size);
            }
            _ => {}
        }
    }

    fn answer(&mut self, done: u32, rej: u32, other: &[(u32, Value)]) -> [Vec<u32>; 3] {
        let (asked, before) = self.asked.take().expect("asked");
        let mut outcome = [vec![], vec![], vec![]];
        for (index, (id, value)) in asked.into_iter().enumerate() {
            let other = other.iter().find(|(of, _)| *of == id);
            let says = (done >> index & 1) + (rej >> index & 1) + u32::from(other.is_some());
            if says == 1 && done >> index & 1 == 1 {
                self.set(id, value);
                outcome[0].push(id);
            } else if let (1, Some((_, value))) = (says, other) {
                self.set(id, *value);
                outcome[1].push(id);
            } else {
                if let (1, Some(before)) = (id, before) {
                    self.now.insert(1, before);
                }
                outcome[2].push(id);
            }
        }
        outcome
    }

    fn matches(&self, limits: &PeerLimits) {
        let found = [
            (1, limits.recv_size),
            (2, limits.remote_invalidation.into()),
            (3, limits.backward as u32),
            (5, limits.request_rx_limit),
            (6, limits.response_sx_limit),
            (7, limits.rtr.bits()),
        ];
        assert_eq!(self.now, found.into());
    }
}

/// One step on both; `xid` is that of the question asked last.
fn step(side: &mut Side, model: &mut Model, xid: &mut u32, op: Op) {
    side.conn.forgive_idle_messages(255);
    let outcome = match op {
        Op::Update(values) => {
            model.update(&values);
            let ingress = side.receive(&updprop(&properties(&values)));
            assert!(matches!(ingress, Ingress::Control(_)), "{ingress:?}");
            return;
        }
        Op::Ask(values) => {
            let values: Vec<_> = values.into_iter().filter(|(id, _)| *id != 40).collect();
            let changes = Changes::of(&properties(&values)).expect("each once");
            let allowed = values.iter().all(|(id, _)| model.changeable.contains(id));
            let idle = model.asked.is_none() && !model.mute && !values.is_empty();
            match side.conn.request_properties(&changes) {
                Ok(ControlSend::ReqProp { xid: asked, changes }) => {
                    assert!(allowed && idle);
                    assert_ne!(*xid, asked, "a new xid each time");
                    *xid = asked;
                    let found: Vec<_> = changes.iter().collect();
                    assert_eq!(found, properties(&values));
                    let before = model.now[&1];
                    let size = values.iter().find(|(id, _)| *id == 1);
                    let size = size.map(|(_, value)| Model::plain(1, *value));
                    let smaller = size.filter(|size| *size < before);
                    if let Some(size) = smaller {
                        model.now.insert(1, size);
                    }
                    model.asked = Some((values, smaller.map(|_| before)));
                }
                other => assert!(!(allowed && idle), "{other:?}"),
            }
            return;
        }
        Op::Answer { done, rej, other, stale } => {
            let answer = resprop(*xid ^ u32::from(stale), done, rej, &properties(&other));
            let ingress = side.receive(&answer);
            if stale || model.asked.is_none() {
                assert!(matches!(ingress, Ingress::Ignored(Ignored::UnaskedProperties)));
                return;
            }
            (outcome_of(ingress), model.answer(done, rej, &other))
        }
        Op::Refuse => {
            let ingress = side.receive(&error(*xid, RdmaError::InvalOption));
            if model.asked.is_none() {
                assert!(matches!(ingress, Ingress::Ignored(Ignored::UnmatchedError)));
                return;
            }
            model.mute = true;
            (outcome_of(ingress), model.answer(0, 0, &[]))
        }
        Op::Silence => match side.conn.on_reqprop_timeout() {
            None => return assert!(model.asked.is_none()),
            Some(outcome) => {
                model.asked.as_mut().expect("asked").1 = None;
                (outcome, model.answer(0, 0, &[]))
            }
        },
    };
    let (found, expected) = outcome;
    assert_eq!([ids(found.done), ids(found.other), ids(found.refused)], expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_peers_limits_follow_the_model(
        role in prop_oneof![Just(Role::Client), Just(Role::Server)],
        stated in any_values(),
        nochg in prop_oneof![2 => Just(0u32), 1 => 0u32..32],
        ops in vec(any_op(), 0..24),
    ) {
        let mut side = Side::new(role, settings());
        if role == Role::Client {
            side.conn.begin().expect("the first message");
        }
        let stated_wire = connprop(&properties(&stated), nochg);
        let ingress = side.receive(&stated_wire);
        prop_assert!(matches!(ingress, Ingress::Control(_)));
        let mut model = Model::new(&stated, nochg);
        let mut xid = 0;
        for op in ops {
            step(&mut side, &mut model, &mut xid, op);
            model.matches(side.conn.limits());
        }
        let again = side.receive(&connprop(&[], 0));
        prop_assert!(matches!(again, Ingress::Ignored(Ignored::RepeatedProperties)));
        model.matches(side.conn.limits());
    }

    #[test]
    fn two_connections_agree_whatever_they_ask_and_announce(
        ops in vec((any::<bool>(), any::<bool>(), any_values()), 0..16),
    ) {
        let (mut a, mut b) = both();
        for (from_a, asks, values) in ops {
            let (from, to) = if from_a { (&mut a, &mut b) } else { (&mut b, &mut a) };
            from.conn.forgive_idle_messages(255);
            to.conn.forgive_idle_messages(255);
            let values: Vec<_> = values.into_iter().filter(|(id, _)| *id != 40).collect();
            let Ok(changes) = Changes::of(&properties(&values)) else { continue };
            let before = *to.conn.limits();
            if asks {
                let Ok(asked) = from.conn.request_properties(&changes) else { continue };
                let asked = from.control(asked);
                let ingress = to.receive(&asked);
                let Ingress::Control(Control { answer: Some(answer), .. }) = ingress else {
                    panic!("{ingress:?}")
                };
                let answer = to.control(answer);
                let outcome = outcome_of(from.receive(&answer));
                prop_assert_eq!(outcome.refused, changes.ids(), "only a size is ever granted");
                prop_assert_eq!(&before, to.conn.limits());
            } else {
                let Ok(announced) = from.conn.announce(&changes) else { continue };
                let announced = from.control(announced);
                let ingress = to.receive(&announced);
                prop_assert!(matches!(ingress, Ingress::Control(_)), "{:?}", ingress);
                let (limits, own) = (to.conn.limits(), from.conn.settings());
                // Never is more believed than is accepted.
                prop_assert!(limits.request_rx_limit <= own.request_rx_limit.max(1));
                prop_assert!(limits.response_sx_limit <= own.response_sx_limit.max(1));
                prop_assert!(own.rtr.contains(limits.rtr));
                prop_assert!(limits.backward as u32 <= own.backward as u32);
                prop_assert_eq!(limits.recv_size, before.recv_size);
            }
            prop_assert!(!from.conn.is_asking());
        }
    }
}
