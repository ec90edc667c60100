//! Every form of message fits the receiver's current sizes, through every change of the sizes of
//! either side, in both roles.

use crate::pair::{PLAIN_HEADER_LEN, Side, plain_call, plain_reply, rpc, structure, transmission};
use proptest::collection::vec;
use proptest::prelude::*;
use rpcrdma_proto::*;
use rpcrdma_xdr::rtr::fixed::OneDirection;
use rpcrdma_xdr::*;

/// Bytes in front of the placement segments.
const FIRST: u32 = 2048;
/// Bytes of a placement segment.
const PLACE: u32 = 2048;
/// Bytes of a receive buffer.
const TOTAL: u32 = FIRST + 2 * PLACE;
const HEADER: u32 = PLAIN_HEADER_LEN as u32;

fn settings() -> Settings {
    Settings {
        credits_requested: 32,
        credits_granted_max: 32,
        backward: BackwardSupport::General,
        ..Settings::new(structure(FIRST, 2, PLACE))
    }
}

fn wire(xid: u32, body: Body<'_>) -> Vec<u8> {
    let header = Header { xid, vers: 2, credit: 32, body };
    transmission(&header, &[])
}

fn optional(xid: u32, optional: Optional<'_>) -> Vec<u8> {
    wire(xid, Body::Optional(optional))
}

fn size_set<T>(size: Option<u32>, then: impl FnOnce(PropSet<'_>) -> T) -> T {
    let property = match size {
        Some(size) => Property::RecvBufferSize(size),
        None => Property::Default(PropId::RECV_BUFFER_SIZE),
    };
    let mut bytes = [0; 4];
    let values = [property.encode(&mut bytes).expect("a word")];
    then(PropSet::from_slice(&values))
}

/// What changes the size of a buffer. `None` is the default of 4096 bytes.
#[derive(Debug, Clone)]
enum Change {
    /// The peer announces another size of its own.
    Announced(Option<u32>),
    /// We ask the peer for one, if nothing is asked.
    Asked(Option<u32>),
    /// It is done; it is not; another is in effect.
    Answered { done: bool, other: Option<Option<u32>> },
    /// An error names the question.
    Refused,
    /// No answer comes in time.
    Silent,
    /// The peer asks us for one.
    AskedOfUs(Option<u32>),
    /// The peer states its properties again.
    Repeated,
}

fn any_change() -> impl Strategy<Value = Change> {
    let size = prop_oneof![1 => Just(None), 8 => (1024u32..=TOTAL + 64).prop_map(Some)].boxed();
    let other = prop_oneof![2 => Just(None), 1 => size.clone().prop_map(Some)];
    prop_oneof![
        3 => size.clone().prop_map(Change::Announced),
        4 => size.clone().prop_map(Change::Asked),
        2 => (any::<bool>(), other).prop_map(|(done, other)| Change::Answered { done, other }),
        1 => Just(Change::Refused),
        1 => Just(Change::Silent),
        3 => size.prop_map(Change::AskedOfUs),
        1 => Just(Change::Repeated),
    ]
}

/// A side whose peer has stated a size that may change, with a call of the peer to be answered.
fn side(role: Role) -> Side {
    let mut side = Side::new(role, settings());
    let stated = settings();
    side.conn.begin();
    let values = [
        Property::RecvBufferSize(TOTAL),
        Property::RecvStructure(stated.structure),
        Property::BackwardSupport(BackwardSupport::General),
        Property::RequestRxLimit(16),
        Property::ResponseSxLimit(16),
        Property::RtrSupport(stated.rtr),
    ];
    let mut bytes = [[0; Property::LEN_MAX]; 6];
    let values: Vec<_> = values
        .iter()
        .zip(&mut bytes)
        .map(|(value, bytes)| value.encode(bytes).expect("LEN_MAX bytes are enough"))
        .collect();
    let start = PropSet::from_slice(&values);
    let stated = ConnProp { start, nochg: PropSubset::EMPTY };
    let ingress = side.receive(&optional(0, Optional::ConnProp(stated)));
    assert!(matches!(ingress, Ingress::Control(_)), "{ingress:?}");
    // A reply that grants credits for calls of its own.
    let id = side.conn.open_call(&mut side.ledger, 0).expect("ready");
    plain_call(&mut side.conn, &mut side.ledger, id, 40, 40).expect("a credit");
    let reply = [wire(id.xid(), Body::Msg(ChunkLists::EMPTY)), rpc(id.xid(), true, 40)].concat();
    assert!(matches!(side.receive(&reply), Ingress::Reply(..)));
    side.conn.finish_call(&mut side.ledger, id).expect("open");
    let call = [wire(7, Body::Msg(ChunkLists::EMPTY)), rpc(7, false, 40)].concat();
    assert!(matches!(side.receive(&call), Ingress::Call(_)));
    side
}

fn apply(side: &mut Side, xid: &mut u32, change: &Change) {
    side.conn.forgive_idle_messages(u8::MAX);
    let bytes = match change {
        Change::Announced(size) => {
            size_set(*size, |now| optional(0, Optional::UpdProp(UpdProp { now })))
        }
        Change::Asked(size) => {
            let value = match size {
                Some(size) => Property::RecvBufferSize(*size),
                None => Property::Default(PropId::RECV_BUFFER_SIZE),
            };
            let changes = Changes::of(&[value]).expect("may be asked for");
            match side.conn.request_properties(&changes) {
                Ok(ControlSend::ReqProp { xid: asked, .. }) => *xid = asked,
                other => assert!(matches!(other, Err(PropertyError::Outstanding { .. }))),
            }
            return;
        }
        Change::Answered { done, other } => {
            let is_other = other.is_some();
            let [done, rej] = [*done && !is_other, !*done && !is_other].map(|set| [u32::from(set)]);
            let (done, rej) = (PropSubset::from_words(&done), PropSubset::from_words(&rej));
            let answer = |other: PropSet<'_>| {
                optional(*xid, Optional::RespProp(RespProp { done, rej, other }))
            };
            match other {
                Some(size) => size_set(*size, answer),
                None => answer(Array::EMPTY),
            }
        }
        Change::Refused => wire(*xid, Body::Error(RdmaError::BadHeader)),
        Change::Silent => {
            let _ = side.conn.on_reqprop_timeout();
            return;
        }
        Change::AskedOfUs(size) => {
            size_set(*size, |want| optional(9, Optional::ReqProp(ReqProp { want })))
        }
        Change::Repeated => optional(0, Optional::ConnProp(ConnProp::default())),
    };
    let ingress = side.receive(&bytes);
    assert!(!matches!(ingress, Ingress::Reject(_) | Ingress::Fatal(_)), "{ingress:?}");
}

/// A call of its own is planned; it is taken back at once.
fn with_call<T>(side: &mut Side, then: impl FnOnce(&mut Side, CallId) -> T) -> T {
    let id = side.conn.open_call(&mut side.ledger, 0).expect("ready");
    let result = then(side, id);
    side.conn.finish_call(&mut side.ledger, id).expect("open");
    result
}

/// Plain messages, by the short way and by the general one: one Send as long as the limit allows,
/// and not a word more.
fn check_plain(side: &mut Side) {
    let limit = side.conn.limits().recv_size;
    let reply_max = side.conn.reply_room();
    let room = (limit - HEADER) & !3;
    for (payload, fits) in [(8, true), (room - 4, true), (room, true), (room + 4, false)] {
        let call = with_call(side, |side, id| {
            let ledger = &mut side.ledger;
            let header = plain_call(&mut side.conn, ledger, id, payload, reply_max);
            header.is_some()
        });
        assert_eq!(call, fits, "a call of {payload} bytes to a peer that takes {limit}");
        let general = with_call(side, |side, id| {
            let demand = CallDemand::inline(payload, reply_max);
            let plan = side.conn.begin_sends(&mut side.ledger, id, &demand);
            matches!(plan, Ok(Plan::Inline(_)))
        });
        assert_eq!(general, fits, "a planned call of {payload} bytes");
        // A longer reply than the peer may send in one message is not expected in one.
        let long = with_call(side, |side, id| {
            plain_call(&mut side.conn, &mut side.ledger, id, payload, reply_max + 4).is_some()
        });
        assert!(!long, "a reply beyond {reply_max} bytes");
        let to = ReplyTo::plain(7);
        let reply = plain_reply(&mut side.conn, &mut side.ledger, &to, payload);
        if reply.is_some() {
            side.conn.withdraw_reply(&to);
        }
        assert_eq!(
            reply.is_some(),
            fits,
            "a reply of {payload} bytes to a peer that takes {limit}"
        );
        let demand = ReplyDemand::inline(payload);
        let reply = side.conn.begin_reply(&mut side.ledger, &to, &demand).is_ok();
        if reply {
            side.conn.withdraw_reply(&to);
        }
        assert_eq!(reply, fits, "a planned reply of {payload} bytes");
    }
}

/// A call or a reply of so many bytes, and an item, by the short way and by the general one.
fn check_single_item(side: &mut Side, payload: u32, len: u32) {
    let means = GatherMeans { gather_max: 30, zeros_max: 4096 };
    let limit = side.conn.limits().recv_size;
    let reply_max = side.conn.reply_room();
    let item = BulkItem { position: 8, len, origin: 8, pieces: 1 };
    let want = Want::sends(8, 40.min(payload), 0, len);
    let sent =
        |plan: ShortPlan, payload, len| plan.header().len() as u32 + payload + plan.zeros + len;
    for with in [CallWith::Item(item), CallWith::Want(want)] {
        let placed = if matches!(with, CallWith::Item(_)) { len } else { 0 };
        let total = with_call(side, |side, id| {
            let call = ShortSend::Call { id, reply_payload_max: reply_max.min(40), with };
            let plan = side.conn.begin_short(&mut side.ledger, payload, call, means);
            plan.map(|plan| sent(plan, payload, placed))
        });
        assert!(total.is_none_or(|total| total <= limit), "{total:?} bytes of {limit}: {with:?}");
    }
    let to = ReplyTo { xid: 7, credits: 1, rsbuf: 1, via: Via::Xmt, handle: None };
    let direction = OneDirection::new(8, 40, 0);
    let reply = ShortSend::Reply { to: &to, item: Some((&item, &direction)) };
    let plan = side.conn.begin_short(&mut side.ledger, payload, reply, means);
    if let Some(plan) = plan {
        side.conn.withdraw_reply(&to);
        let total = sent(plan, payload, len);
        assert!(total <= limit, "{total} bytes to a peer that takes {limit}");
    }
}

/// Groups of transmissions: each is as long as a buffer of the peer at most, which the pair checks.
fn check_groups(side: &mut Side, payload: u32, len: u32) {
    let bulk = [vec![1; len as usize]];
    let items = [BulkItem { position: 8, len, origin: 8, pieces: 1 }];
    with_call(side, |side, id| {
        let inline = CallDemand::inline(payload, 40);
        let demand = CallDemand { items: &items, gather_max: 30, ..inline };
        if let Ok(mut plan) = side.conn.begin_sends(&mut side.ledger, id, &demand) {
            side.transmit(&mut plan, &vec![2; payload as usize], &bulk);
        }
    });
    let to = ReplyTo { xid: 7, credits: 1, rsbuf: 16, via: Via::Xmt, handle: None };
    let directions = [RsdItem { min_len: 0, loc: RsdLoc::Tbsn }];
    let sets = [RsdSet { begin: 8, end: 40, items: Array::from_slice(&directions) }];
    let offer = Offer::Directions(Array::from_slice(&sets));
    let inline = ReplyDemand::inline(payload);
    let demand = ReplyDemand { items: &items, offer, gather_max: 30, ..inline };
    if let Ok(mut plan) = side.conn.begin_reply(&mut side.ledger, &to, &demand) {
        side.transmit(&mut plan, &vec![2; payload as usize], &bulk);
        side.conn.withdraw_reply(&to);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn every_form_respects_the_current_sizes(
        role in prop_oneof![Just(Role::Client), Just(Role::Server)],
        changes in vec(any_change(), 1..12),
        payload in prop_oneof![Just(40u32), (2u32..2000).prop_map(|words| 4 * words)],
        len in prop_oneof![Just(PLACE), 1u32..6000],
    ) {
        let mut side = side(role);
        let mut xid = 0;
        check_plain(&mut side);
        for change in &changes {
            apply(&mut side, &mut xid, change);
            check_plain(&mut side);
            check_single_item(&mut side, payload, len);
            check_groups(&mut side, payload, len);
        }
    }
}

#[test]
fn a_route_for_larger_buffers_is_not_taken() {
    for role in [Role::Client, Role::Server] {
        let mut side = side(role);
        let demand = CallDemand::inline(2000, 40);
        let route = side.conn.route_call(&demand).expect("it fits");
        apply(&mut side, &mut 0, &Change::Asked(Some(1024)));
        with_call(&mut side, |side, id| {
            let (ledger, none) = (&mut side.ledger, Exposed::NONE);
            let plan = side.conn.begin_call(ledger, id, &demand, &route, &none);
            assert!(matches!(plan, Err(SendError::Misuse(_))), "{plan:?}");
            let route = side.conn.route_call(&demand).expect("continued");
            side.conn.begin_call(ledger, id, &demand, &route, &none).expect("as routed");
        });
    }
}

#[test]
fn a_smaller_requested_buffer_limits_every_form_at_once() {
    for role in [Role::Client, Role::Server] {
        let mut side = side(role);
        assert_eq!(side.conn.limits().recv_size, TOTAL);
        apply(&mut side, &mut 0, &Change::Asked(Some(1024)));
        assert_eq!(side.conn.limits().recv_size, 1024);
        check_plain(&mut side);
        check_single_item(&mut side, 40, PLACE);
        check_groups(&mut side, 5000, 5000);
    }
}
