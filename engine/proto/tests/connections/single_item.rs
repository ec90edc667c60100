//! Single-item messages: the short way and the general way lead to the same state and the same
//! bytes.

use crate::pair::{Side, connected, rpc, structure};
use proptest::collection::vec;
use proptest::prelude::*;
use rpcrdma_proto::*;
use rpcrdma_xdr::rtr::fixed::{IntoBytes, OneDirection};
use rpcrdma_xdr::*;

/// Bytes of the first segment.
const FIRST: u32 = 1024;
/// Bytes of a placement segment.
const PLACE: u32 = 2048;

fn settings() -> Settings {
    Settings {
        credits_requested: 4,
        credits_granted_max: 4,
        // No multiple of four: padding counts.
        rpc_len_max: 2602,
        ..Settings::new(structure(FIRST, 2, PLACE))
    }
}

fn state(side: &Side) -> String {
    format!("{:?} {:?}", side.conn, side.ledger)
}

/// A message with a single item, as words, with all that a peer can choose.
#[derive(Debug, Clone)]
struct Words {
    front: [u32; 5],
    info: Vec<u32>,
    payload: Vec<u8>,
    byte_len: usize,
}

impl Words {
    fn write_call(xid: u32, payload: u32, item: [u32; 6]) -> Self {
        let info = [&[1][..], &item, &[0, 1, 1, payload]].concat();
        let front = [xid, 2, 4, 5, 5];
        let byte_len = (FIRST + item[1]) as usize;
        Self { front, info, payload: rpc(xid, false, payload as usize), byte_len }
    }

    fn read_call(xid: u32, payload: u32, direction: [u32; 3]) -> Self {
        let [begin, end, min] = direction;
        let info = vec![0, 1, begin, end, 1, min, 2, 1, 3, payload];
        let front = [xid, 2, 4, 5, 5];
        let byte_len = 64 + payload as usize;
        Self { front, info, payload: rpc(xid, false, payload as usize), byte_len }
    }

    fn brought(xid: u32, payload: u32, item: [u32; 6]) -> Self {
        let info = [&[1][..], &item, &[1, payload]].concat();
        let front = [xid, 2, 4, 5, 6];
        let byte_len = (FIRST + item[1]) as usize;
        Self { front, info, payload: rpc(xid, true, payload as usize), byte_len }
    }

    /// The bytes as they arrive, none more than the receive buffer has.
    fn bytes(&self) -> Vec<u8> {
        let words = self.front.iter().copied();
        let words = words.chain([4 * self.info.len() as u32]).chain(self.info.iter().copied());
        let mut bytes: Vec<u8> = words.flat_map(u32::to_be_bytes).collect();
        bytes.extend(&self.payload);
        bytes.resize(self.byte_len.min((FIRST + 2 * PLACE) as usize), 0x5A);
        bytes
    }
}

/// The item of these words in the first placement segment.
fn item(position: u32, len: u32) -> [u32; 6] {
    [position, len, 2, 0, 1, 0]
}

/// What is around a limit, or anything.
fn near(limits: &'static [u32]) -> impl Strategy<Value = u32> + Clone {
    prop_oneof![
        4 => (proptest::sample::select(limits), 0u32..9).prop_map(|(at, by)| at.saturating_add(by).saturating_sub(4)),
        1 => any::<u32>(),
    ]
}

fn any_words(xids: [u32; 3]) -> impl Strategy<Value = Words> {
    let xid = proptest::sample::select(xids.to_vec());
    let payload = prop_oneof![Just(40u32), Just(8), (2u32..245).prop_map(|words| 4 * words)];
    let position = prop_oneof![Just(8u32), Just(40), Just(0), Just(10), 0u32..60];
    let len = prop_oneof![Just(1u32), Just(PLACE), Just(PLACE + 1), 0u32..3000];
    let change = (0usize..30, near(&[0, 1, 2, 4, 8, 40, FIRST, PLACE]));
    let kind = 0u32..3;
    let changes = vec(change, 0..2);
    let tail = prop_oneof![4 => Just(0isize), 1 => -3000isize..3000];
    (xid, payload, position, len, kind, changes, tail).prop_map(
        |(xid, payload, position, len, kind, changes, tail)| {
            let mut words = match kind {
                0 => Words::write_call(xid, payload, item(position, len)),
                1 => Words::read_call(xid, payload, [position, payload, len]),
                _ => Words::brought(xid, payload, item(position, len)),
            };
            for (at, value) in changes {
                let in_front = words.front.len();
                match at.checked_sub(in_front) {
                    None => words.front[at] = value,
                    Some(at) if at < words.info.len() => words.info[at] = value,
                    Some(at) => {
                        let at = at % words.payload.len();
                        words.payload[at] = value as u8;
                    }
                }
            }
            words.byte_len = words.byte_len.saturating_add_signed(tail);
            words
        },
    )
}

/// A side of a connection with two calls under way, of which the first wants an item; and their
/// xids.
fn side(at_client: bool) -> (Side, [u32; 2]) {
    let (client, server) = connected(settings(), settings());
    let mut side = if at_client { client } else { server };
    let wants = [Want::sends(8, 40, 0, 2000)];
    let mut open = |wants| {
        let id = side.conn.open_call(&mut side.ledger, 1).expect("ready");
        let demand = CallDemand { wants, ..CallDemand::inline(40, 400) };
        let _ = side.conn.begin_sends(&mut side.ledger, id, &demand);
        id.xid()
    };
    let xids = [open(&wants), open(&[])];
    (side, xids)
}

/// What the short way takes of a transmission, if that is a message with a single item.
fn take<'a>(side: &mut Side, bytes: &[u8], first: &'a [u8]) -> Option<SingleItem<'a>> {
    let byte_len = bytes.len() as u32;
    let taken = side.conn.on_short(&mut side.ledger, byte_len, first)?;
    let Short::SingleItem(item) = taken else { panic!("{taken:?} is plain") };
    Some(item)
}

/// What the short way found, and what the general way does.
fn compare(short: &mut Side, general: &mut Side, bytes: &[u8]) -> bool {
    let first = &bytes[..bytes.len().min(FIRST as usize)];
    let expected = general.receive(bytes);
    let before = state(short);
    let taken = take(short, bytes, first);
    let Some(item) = taken else {
        assert_eq!(state(short), before, "what is not taken changes nothing");
        let (done, expected) = (format!("{:?}", short.receive(bytes)), format!("{expected:?}"));
        // Buffers are numbered by the side that received them.
        assert_eq!(done.split("buffer").next(), expected.split("buffer").next());
        return false;
    };
    let structure = general.settings.structure;
    let (message, placed) = match (item.kind, expected) {
        (ShortKind::Call(to), Ingress::Call(message)) => {
            assert_eq!(to, message.reply_to());
            let parts = [message.part];
            (message, general.conn.resolve_call(&message, &parts).expect("it was found valid"))
        }
        (ShortKind::Reply(finished), Ingress::Reply(id, message)) => {
            let (parts, none) = ([message.part], Offered::NONE);
            let ledger = &general.ledger;
            let placed = general.conn.resolve_reply(ledger, id, &message, &parts, &none);
            let placed = placed.expect("it was found valid");
            let ended = general.conn.finish_call(&mut general.ledger, id);
            assert_eq!(Some(finished), ended);
            (message, placed)
        }
        (kind, other) => panic!("{kind:?} is {other:?}"),
    };
    let parts = [message.part];
    let payload: Vec<_> = payload_pieces(&structure, &parts).collect();
    let (offset, len) = (item.payload_start, item.payload_len);
    assert_eq!(payload, [Piece { part: 0, segment: 0, offset, len }]);
    let items: Vec<_> = placed.iter().collect();
    let found = items.iter().map(|item| {
        let pieces: Vec<_> = item.pieces(&structure).collect();
        assert_eq!((item.index, pieces.len()), (0, 1));
        let Piece { part, segment, offset, len } = pieces[0];
        assert_eq!((part, offset, len), (0, 0, item.len));
        SegmentItem { position: item.position.expect("it says so"), len, segment }
    });
    assert_eq!(found.collect::<Vec<_>>(), item.item.into_iter().collect::<Vec<_>>());
    let mut kept = vec![0; message.rsd.encoded_len()];
    message.rsd.encode(&mut Writer::new(&mut kept)).expect("as long");
    match item.directions {
        Some(directions) => assert_eq!(directions.as_bytes(), kept),
        None => assert!(message.rsd.is_empty()),
    }
    true
}

fn assert_same(short: &Side, general: &Side) {
    assert_eq!(short.conn.inflow(), general.conn.inflow());
    assert_eq!(short.conn.counters(), general.conn.counters());
    assert_eq!(short.conn.credits(), general.conn.credits());
    assert_eq!(short.conn.open_group(), general.conn.open_group());
    assert_eq!(short.ledger.calls.len(), general.ledger.calls.len());
    assert_eq!(short.ledger.replies, general.ledger.replies);
    assert_eq!(short.ledger.grants, general.ledger.grants);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn the_short_way_receives_as_the_general_way_does(
        at_client in any::<bool>(),
        stream in vec(any_words([16, 17, 99]), 1..25),
    ) {
        let ((mut short, _), (mut general, _)) = (side(at_client), side(at_client));
        for words in stream {
            let taken = compare(&mut short, &mut general, &words.bytes());
            assert_same(&short, &general);
            // One that was taken leaves a call to be answered, or has ended one of ours.
            prop_assert!(!taken || words.front[1] == 2);
        }
    }
}

/// Whether the short way takes this message; the general way agrees about it in any case.
fn takes(at_client: bool, words: &Words) -> bool {
    let ((mut short, _), (mut general, _)) = (side(at_client), side(at_client));
    let taken = compare(&mut short, &mut general, &words.bytes());
    assert_same(&short, &general);
    taken
}

#[test]
fn lawful_messages_take_the_short_way() {
    let (_, [wanting, _]) = side(true);
    for payload in [8, 40, 400] {
        for len in [1, 3, 4, PLACE] {
            assert!(takes(false, &Words::write_call(7, payload, item(8, len))), "{payload} {len}");
            assert!(takes(true, &Words::brought(wanting, payload, item(8, len))));
        }
        assert!(takes(false, &Words::read_call(7, payload, [0, payload, 5])));
    }
    assert!(takes(false, &Words::write_call(7, FIRST - 68, item(FIRST - 68, 4))), "up to the item");
}

#[test]
fn invalid_messages_take_the_general_way() {
    let (_, [wanting, plain]) = side(true);
    let good = Words::write_call(7, 40, item(8, 100));
    let mut bad: Vec<(bool, Words)> = Vec::new();
    // Position, length, kind, offset, count and number of the item; its place and its bytes.
    for words in [
        item(4, 100),
        item(9, 100),
        item(44, 100),
        item(8, 0),
        item(8, PLACE + 1),
        [8, 100, 3, 0, 1, 0],
        [8, 100, 2, 4, 1, 0],
        [8, 100, 2, 0, 2, 0],
        [8, 100, 2, 0, 1, 2],
    ] {
        bad.push((false, Words::write_call(7, 40, words)));
        bad.push((true, Words::brought(wanting, 40, words)));
    }
    bad.push((false, Words { byte_len: (FIRST + 99) as usize, ..good.clone() }));
    bad.push((false, Words::write_call(7, FIRST - 64, item(8, 100))));
    bad.push((false, Words::write_call(7, 556, item(8, 2045))));
    // The range of a direction.
    for direction in [[8, 8, 0], [9, 8, 0], [8, 44, 0]] {
        bad.push((false, Words::read_call(7, 40, direction)));
    }
    // A reply to a call that wants nothing, or that is not there; a call to a client.
    bad.push((true, Words::brought(plain, 40, item(8, 100))));
    bad.push((true, Words::brought(99, 40, item(8, 100))));
    bad.push((true, good.clone()));
    for (at_client, words) in &bad {
        assert!(!takes(*at_client, words), "{words:?}");
    }
    // Any word of the header but credits, and what the reply may have.
    for at in 0..16 {
        let mut words = good.clone();
        match at {
            0..5 => words.front[at] ^= 1,
            _ => words.info[at - 5] ^= 1,
        }
        assert_eq!(takes(false, &words), at == 2 || at == 14, "word {at}");
    }
}

#[test]
fn a_grant_of_nothing_takes_the_general_way() {
    let (_, [wanting, _]) = side(true);
    let mut words = Words::brought(wanting, 40, item(8, 100));
    words.front[2] = 0;
    assert!(!takes(true, &words), "it is counted");
}

/// The bytes of a short message with an item of `len` bytes, and how they are made of pieces.
fn bytes_of(plan: &ShortPlan, payload: &[u8], bulk: &[u8]) -> Vec<u8> {
    let zeros = vec![0; plan.zeros as usize];
    [plan.header(), payload, &zeros, bulk].concat()
}

#[derive(Debug, Clone)]
struct Demanded {
    payload: u32,
    reply: u32,
    len: u32,
    position: u32,
    pieces: u32,
    gather_max: u32,
    wants: bool,
    min_len: u32,
    begin: u32,
    end: u32,
}

fn any_demand() -> impl Strategy<Value = Demanded> {
    let payload = prop_oneof![
        4 => (2u32..60).prop_map(|words| 4 * words),
        1 => (230u32..260).prop_map(|words| 4 * words),
        1 => 0u32..6000,
    ];
    let reply = prop_oneof![4 => 0u32..900, 1 => 900u32..1000, 1 => 5000u32..5200];
    let len = prop_oneof![1u32..10, PLACE - 4..PLACE + 4, 0u32..6000, 0u32..80_000];
    let position = prop_oneof![4 => Just(8u32), 1 => 0u32..60];
    let places = (position, prop_oneof![Just(8u32), 0u32..60], prop_oneof![Just(40u32), 0u32..60]);
    let numbers = (1u32..4, 1u32..9, any::<bool>(), prop_oneof![Just(0u32), 0u32..3000]);
    (payload, reply, len, places, numbers).prop_map(|(payload, reply, len, places, numbers)| {
        let (position, begin, end) = places;
        let (pieces, gather_max, wants, min_len) = numbers;
        Demanded { payload, reply, len, position, pieces, gather_max, wants, min_len, begin, end }
    })
}

/// Makes a call both ways; its bytes, if the short way made it.
fn call_both(short: &mut Side, general: &mut Side, it: &Demanded) -> Option<Vec<u8>> {
    let id = short.conn.open_call(&mut short.ledger, 1).expect("room");
    assert_eq!(general.conn.open_call(&mut general.ledger, 1), Ok(id));
    let Demanded { payload, reply, len, position, pieces, gather_max, min_len, .. } = *it;
    let want = Want::sends(it.begin, it.end, min_len, len);
    let item = BulkItem { position, len, origin: 0, pieces };
    let (items, wants) = ([item], [want]);
    let with = if it.wants { CallWith::Want(want) } else { CallWith::Item(item) };
    let demand = CallDemand {
        items: if it.wants { &[] } else { &items },
        wants: if it.wants { &wants } else { &[] },
        gather_max,
        ..CallDemand::inline(payload, reply)
    };
    let means = GatherMeans { gather_max, zeros_max: 8192 };
    let before = state(short);
    let call = ShortSend::Call { id, reply_payload_max: reply, with };
    let plan = short.conn.begin_short(&mut short.ledger, payload, call, means);
    let expected = general.conn.begin_sends(&mut general.ledger, id, &demand);
    let Some(plan) = plan else {
        assert_eq!(state(short), before, "what is not taken changes nothing");
        return None;
    };
    let mut expected = expected.unwrap_or_else(|error| panic!("{it:?}: {error}"));
    let stream = rpc(id.xid(), false, payload as usize);
    let bulk = if it.wants { vec![] } else { vec![9; len as usize] };
    let due = general.transmit(&mut expected, &stream, std::slice::from_ref(&bulk));
    assert_eq!(due, [bytes_of(&plan, &stream, &bulk)]);
    assert_eq!(state(short), state(general));
    Some(due.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn a_shortage_is_what_the_general_way_finds(
        it in any_demand(),
        (calls, receives) in (0u32..5, prop_oneof![1 => 0u32..200, 4 => 240u32..257]),
        rdma_buffer_len in prop_oneof![Just(0u32), Just(4096)],
    ) {
        let (mut client, _) = connected(settings(), settings());
        for _ in 0..calls {
            let id = client.conn.open_call(&mut client.ledger, 1).expect("room");
            let _ = client.conn.begin_sends(&mut client.ledger, id, &CallDemand::inline(40, 400));
        }
        let receives = receives.min(client.ledger.replies.free());
        client.ledger.replies.reserve(receives).expect("as many as are free");
        let id = client.conn.open_call(&mut client.ledger, 1).expect("room");
        let wants = [Want::sends(it.begin, it.end, it.min_len, it.len)];
        let explicit = Explicit { enabled: rdma_buffer_len > 0, ..Explicit::unlimited(rdma_buffer_len) };
        let Demanded { payload, reply, gather_max, .. } = it;
        let demand = CallDemand { wants: &wants, gather_max, explicit, ..CallDemand::inline(payload, reply) };
        let means = GatherMeans { gather_max, zeros_max: 8192 };
        let shortage =
            client.conn.read_call_shortage(&client.ledger, payload, reply, &wants[0], means);
        let Side { conn, ledger, .. } = &mut client;
        let call = ShortSend::Call { id, reply_payload_max: reply, with: CallWith::Want(wants[0]) };
        match shortage {
            Some(why) => {
                let route = conn.route_call(&demand).expect("only something is short");
                let begun = conn.begin_call(ledger, id, &demand, &route, &Exposed::NONE);
                prop_assert_eq!(begun.err(), Some(why));
                prop_assert!(conn.begin_short(ledger, payload, call, means).is_none());
            }
            None => {
                // Either it can be sent, or it is none that the short way sends.
                let is_sent = conn.begin_short(ledger, payload, call, means).is_some();
                let free = connected(settings(), settings()).0;
                let Side { mut conn, mut ledger, .. } = free;
                let id = conn.open_call(&mut ledger, 1).expect("room");
                let call = ShortSend::Call { id, reply_payload_max: reply, with: CallWith::Want(wants[0]) };
                prop_assert_eq!(conn.begin_short(&mut ledger, payload, call, means).is_some(), is_sent);
            }
        }
    }

    #[test]
    fn the_short_way_calls_as_the_general_way_does(it in any_demand()) {
        let (mut short, _) = connected(settings(), settings());
        let (mut general, _) = connected(settings(), settings());
        call_both(&mut short, &mut general, &it);
    }

    #[test]
    fn the_short_way_answers_as_the_general_way_does(
        it in any_demand(),
        direction in (prop_oneof![Just(8u32), 0u32..44], prop_oneof![Just(40u32), 0u32..44], 0u32..30),
        origin in prop_oneof![Just(8u32), 0u32..44],
    ) {
        let (_, mut short) = connected(settings(), settings());
        let (_, mut general) = connected(settings(), settings());
        let (begin, end, min_len) = direction;
        let bytes = Words::read_call(7, 40, [begin, end, min_len]).bytes();
        let Ingress::Call(message) = general.receive(&bytes) else { return Ok(()) };
        if general.conn.resolve_call(&message, &[message.part]).is_err() {
            return Ok(());
        }
        let first = &bytes[..];
        let item = take(&mut short, &bytes, first).expect("it is lawful");
        let ShortKind::Call(to) = item.kind else { panic!("it is a call") };
        let direction = OneDirection::read(item.directions.expect("it wants").as_bytes());
        let direction = direction.expect("it wants one by Send");
        prop_assert_eq!(*direction, OneDirection::new(begin, end, min_len));
        let Demanded { payload, len, position, pieces, gather_max, .. } = it;
        let item = BulkItem { position, len, origin, pieces };
        let means = GatherMeans { gather_max, zeros_max: 8192 };
        let before = state(&short);
        let reply = ShortSend::Reply { to: &to, item: Some((&item, direction)) };
        let plan = short.conn.begin_short(&mut short.ledger, payload, reply, means);
        let offer = message.offer();
        let items = [item];
        let demand = ReplyDemand { payload, items: &items, offer, gather_max, copy_max: 0 };
        let expected = general.conn.begin_reply(&mut general.ledger, &to, &demand);
        let Some(plan) = plan else {
            prop_assert_eq!(state(&short), before, "what is not taken changes nothing");
            return Ok(());
        };
        let mut expected = expected.expect("the short way has found it possible");
        let (stream, bulk) = (rpc(7, true, payload as usize), vec![9; len as usize]);
        let due = general.transmit(&mut expected, &stream, std::slice::from_ref(&bulk));
        prop_assert_eq!(due, [bytes_of(&plan, &stream, &bulk)]);
        prop_assert_eq!(short.conn.inflow(), general.conn.inflow());
        prop_assert_eq!(short.ledger.grants, general.ledger.grants);
    }
}

fn demanded() -> Demanded {
    Demanded {
        payload: 40,
        reply: 400,
        len: 1000,
        position: 8,
        pieces: 1,
        gather_max: 4,
        wants: false,
        min_len: 0,
        begin: 8,
        end: 40,
    }
}

#[test]
fn calls_take_the_short_way_up_to_its_edges() {
    let call_of = |rpc_len_max: u32, it: Demanded| {
        let own = Settings { rpc_len_max, ..settings() };
        let (mut short, _) = connected(own, settings());
        let (mut general, _) = connected(own, settings());
        call_both(&mut short, &mut general, &it).is_some()
    };
    let call = |it: Demanded| call_of(1 << 20, it);
    let brings = demanded();
    assert!(call(brings.clone()));
    assert!(call(Demanded { len: PLACE, ..brings.clone() }));
    assert!(!call(Demanded { len: PLACE + 1, ..brings.clone() }), "two segments");
    assert!(call(Demanded { payload: FIRST - 68, ..brings.clone() }));
    assert!(!call(Demanded { payload: FIRST - 64, ..brings.clone() }), "into the first segment");
    assert!(!call(Demanded { gather_max: 3, ..brings.clone() }));
    assert!(!call(Demanded { position: 44, ..brings }), "not within the stream");
    let wants = Demanded { wants: true, ..demanded() };
    assert!(call(wants.clone()));
    assert!(call(Demanded { len: PLACE, ..wants.clone() }));
    assert!(call(Demanded { len: PLACE + 1, ..wants.clone() }), "its reply may have two segments");
    assert!(call(Demanded { reply: FIRST - 60, ..wants.clone() }));
    assert!(call(Demanded { reply: FIRST - 59, ..wants.clone() }), "or be behind the first");
    assert!(call(Demanded { len: 32 * PLACE, ..wants.clone() }), "or have all there are");
    assert!(!call(Demanded { len: 32 * PLACE + 1, ..wants.clone() }), "but not more");
    assert!(call(Demanded { payload: FIRST + 2 * PLACE - 64, ..wants.clone() }));
    assert!(!call(Demanded { payload: FIRST + 2 * PLACE - 60, ..wants.clone() }), "two messages");
    assert!(!call(Demanded { end: 44, ..wants.clone() }), "beyond the call");
    assert!(!call(Demanded { len: 0, ..wants.clone() }), "nothing is wanted apart");
    // The longest message: what comes near to it is measured on the general way.
    let brings = demanded();
    let longest = brings.payload + brings.len + 3;
    assert!(call_of(longest, brings.clone()));
    assert!(!call_of(longest - 1, brings));
    let longest = wants.reply.next_multiple_of(4) + wants.len + 3;
    assert!(call_of(longest, wants.clone()));
    assert!(!call_of(longest - 1, wants));
}

#[test]
fn credits_bound_the_short_way() {
    let (mut short, _) = connected(settings(), settings());
    let (mut general, _) = connected(settings(), settings());
    let limit = short.conn.credits_limit();
    for _ in 0..limit {
        assert!(call_both(&mut short, &mut general, &demanded()).is_some());
    }
    assert!(call_both(&mut short, &mut general, &demanded()).is_none());
}
