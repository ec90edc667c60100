//! Calls with one chunk: the short way and the general way find the same, lead to the same state,
//! and answer with the same bytes and RDMA Writes.

use crate::pair::memory::{Content, Open};
use crate::pair::{Side, connected, connected_in, rpc, structure};
use proptest::collection::vec;
use proptest::prelude::*;
use rpcrdma_proto::*;
use rpcrdma_xdr::{Array, RdmaSegment, RtrSupport, Writer};

/// Bytes of the buffers, of which the first segment is half.
const FIRST: u32 = 1024;
/// The longest message that is accepted; no multiple of four, so padding counts.
const LEN_MAX: u32 = 4602;

fn settings(explicit: bool) -> Settings {
    Settings {
        credits_requested: 4,
        credits_granted_max: 4,
        rpc_len_max: LEN_MAX,
        explicit,
        ..Settings::new(structure(FIRST, 1, FIRST))
    }
}

/// A side of a connection: a server, or else a client, which takes backward calls.
fn side(version: Version, at_client: bool, explicit: bool) -> Side {
    let (client, server) = connected_in(version, settings(explicit), settings(explicit));
    if at_client { client } else { server }
}

fn state(side: &Side) -> String {
    format!("{:?} {:?}", side.conn, side.ledger)
}

/// A call with one chunk, as words, with all that a peer can choose.
#[derive(Debug, Clone)]
struct Words {
    header: Vec<u32>,
    payload: Vec<u8>,
    tail: usize,
}

impl Words {
    fn read(vers: u32, position: u32, len: u32, payload: u32) -> Self {
        let list = [1, position, 77, len, 1, 5, 0];
        Self::of(vers, &list, &[0, 0], payload)
    }

    fn write(vers: u32, lens: &[u32], payload: u32) -> Self {
        // Those of zero length have another handle.
        let segments = lens.iter().flat_map(|len| [if *len == 0 { 78 } else { 77 }, *len, 1, 5]);
        let list: Vec<u32> = [1, lens.len() as u32].into_iter().chain(segments).collect();
        Self::of(vers, &[0], &[&list[..], &[0, 0]].concat(), payload)
    }

    fn of(vers: u32, reads: &[u32], rest: &[u32], payload: u32) -> Self {
        let header = [&[7, vers, 4, 0][..], reads, rest].concat();
        Self { header, payload: rpc(7, false, payload as usize), tail: 0 }
    }

    fn bytes(&self) -> Vec<u8> {
        let words = self.header.iter().flat_map(|word| word.to_be_bytes());
        let mut bytes: Vec<u8> = words.chain(self.payload.iter().copied()).collect();
        bytes.resize((bytes.len() + self.tail).min(2 * FIRST as usize), 0x5A);
        bytes
    }
}

fn vers(version: Version) -> u32 {
    if version == Version::One { 1 } else { 2 }
}

fn any_version() -> impl Strategy<Value = Version> {
    prop_oneof![Just(Version::One), Just(Version::Two)]
}

fn any_words(version: Version) -> impl Strategy<Value = Words> {
    let vers = vers(version);
    let payload = prop_oneof![Just(40u32), Just(8), (2u32..250).prop_map(|words| 4 * words)];
    let position = prop_oneof![Just(8u32), Just(8), Just(40), Just(0), Just(10), 0u32..60];
    let len = prop_oneof![1u32..3000, 1u32..300, Just(0), LEN_MAX - 60..LEN_MAX + 8, any::<u32>()];
    let lens = vec(prop_oneof![3 => 0u32..3000, 1 => any::<u32>()], 0..20);
    let value = prop_oneof![Just(0u32), Just(1), Just(2), Just(3), Just(u32::MAX), any::<u32>()];
    let changes = vec((0usize..100, value), 0..2);
    let tail = prop_oneof![4 => Just(0usize), 1 => 0usize..2000];
    (payload, position, len, lens, any::<bool>(), changes, tail).prop_map(
        move |(payload, position, len, lens, is_read, changes, tail)| {
            let mut words = match is_read {
                true => Words::read(vers, position, len, payload),
                false => Words::write(vers, &lens, payload),
            };
            for (at, value) in changes {
                match at.checked_sub(words.header.len()) {
                    None => words.header[at] = value,
                    Some(at) => {
                        let at = at % words.payload.len();
                        words.payload[at] = value as u8;
                    }
                }
            }
            words.tail = tail;
            words
        },
    )
}

/// What the short way takes of these bytes, which are also given to the general way; both find the
/// same.
fn take<'a>(short: &mut Side, general: &mut Side, bytes: &'a [u8]) -> Option<ChunkCall<'a>> {
    let first = &bytes[..bytes.len().min(FIRST as usize)];
    let before = state(short);
    let at = Received { buffer: general.last_buffer() + 1, byte_len: bytes.len() as u32 };
    let taken = short.conn.on_one_chunk(&mut short.ledger, at, first);
    let expected = general.receive(bytes);
    let Some(call) = taken else {
        assert_eq!(state(short), before, "what is not taken changes nothing");
        let done = short.receive(bytes);
        assert_eq!(format!("{done:?}"), format!("{expected:?}"));
        return None;
    };
    short.keep(at.buffer, bytes);
    let Ingress::Call(message) = expected else { panic!("{call:?} is {expected:?}") };
    let resolved = general.conn.resolve_call(&message, &[message.part]);
    let placed = resolved.expect("it was found valid");
    let (ChunkCall::Read { to, part, .. } | ChunkCall::Write { to, part, .. }) = call;
    assert_eq!((to, part), (message.reply_to(), message.part));
    let described = |placed: &Placed<'_>| {
        let segments = |item: &PlacedItem<'_>| match item.at {
            Place::Remote(segments) => segments.iter().collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        let items =
            placed.iter().map(|item| (item.index, item.position, item.len, segments(&item)));
        let lens = (placed.virtual_len(), placed.payload_len(), placed.is_here());
        (items.collect::<Vec<_>>(), lens, placed.body().is_some())
    };
    match call {
        ChunkCall::Read { placed: kept, len, .. } => {
            let found = kept.of(first);
            assert_eq!(described(&found), described(&placed));
            assert_eq!(found.iter().map(|item| item.len).collect::<Vec<_>>(), [len]);
            assert!(message.offer().is_none());
        }
        ChunkCall::Write { list, .. } => {
            assert!(placed.is_here() && placed.iter().next().is_none());
            let mut writes = vec![0; message.writes.encoded_len()];
            message.writes.encode(&mut Writer::new(&mut writes)).expect("as long");
            assert_eq!((list, message.reply.is_none()), (&writes[..], true));
        }
    }
    assert_eq!(state(short), state(general));
    Some(call)
}

/// A client with a call under way that has offered these segments for its only result, or nothing;
/// and the xid of the call.
fn caller(version: Version, offered: &[RdmaSegment], is_marked: bool) -> (Side, u32) {
    let mut side = side(version, true, true);
    let Side { conn, ledger, .. } = &mut side;
    let id = conn.open_call(ledger, 1).expect("ready");
    let max_len = offered.iter().map(|segment| segment.length).sum::<u32>().max(1);
    let (pieces, kind) = (offered.len() as u32, WantKind::Exrw);
    let wants = [Want { kind, pieces, ..Want::sends(8, 40, 0, max_len) }];
    let wants = if offered.is_empty() { &[][..] } else { &wants };
    // By the base protocol in either version.
    let mut route = conn.route_call(&CallDemand::inline(40, 400)).expect("a way");
    let demand =
        CallDemand { wants, explicit: Explicit::unlimited(0), ..CallDemand::inline(40, 400) };
    let ends = [offered.len() as u16];
    let mut exposed = Exposed::default();
    if !offered.is_empty() {
        route = base_route(conn, &demand);
        exposed.wants = SegmentLists { segments: offered, ends: &ends };
    }
    let _plan = conn.begin_call(ledger, id, &demand, &route, &exposed).expect("as routed");
    if is_marked {
        let (_, entry) = ledger.calls.find_mut(id.xid(), conn.peer()).expect("it is open");
        entry.mark = 5;
    }
    (side, id.xid())
}

/// The route of a call whose result is written, by the base protocol.
fn base_route(conn: &Connection, demand: &CallDemand<'_>) -> CallRoute {
    let route = conn.route_call(demand).expect("a way");
    assert_eq!((route.form, route.wants.len()), (CallForm::Msg, 1));
    route
}

/// What is offered: lengths near each other, so that a reply can exceed them.
fn any_lens() -> impl Strategy<Value = Vec<u32>> {
    vec(prop_oneof![0u32..20, 0u32..600], 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_short_way_takes_replies_as_the_general_way_does(
        lens in any_lens(),
        returned in prop_oneof![3 => Just(None), 1 => any_lens().prop_map(Some)],
        (len, is_plain, is_marked) in (0u32..900, any::<bool>(), prop::bool::weighted(0.9)),
        payload in (2u32..60).prop_map(|words| 4 * words),
        changes in vec((0usize..40, prop_oneof![Just(0u32), Just(1), Just(2), any::<u32>()]), 0..2),
    ) {
        let version = Version::One;
        let segment = |length| RdmaSegment { handle: 77, length, offset: 1 << 32 | 5 };
        let mut offered: Vec<_> = lens.iter().copied().map(segment).collect();
        if lens.iter().sum::<u32>() == 0 {
            offered.clear();
        }
        let (mut short, xid) = caller(version, &offered, is_marked);
        let (mut general, _) = caller(version, &offered, is_marked);
        // As far as the result goes, or any lengths.
        let mut left = len;
        let filled = offered.iter().map(|segment| {
            let part = segment.length.min(left);
            left -= part;
            part
        });
        let filled: Vec<u32> = returned.unwrap_or(filled.collect());
        let segments = filled.iter().flat_map(|len| [77, *len, 1, 5]);
        let list: Vec<u32> = [1, filled.len() as u32].into_iter().chain(segments).collect();
        let list = if is_plain { vec![] } else { list };
        let mut header = [&[xid, 1, 4, 0, 0][..], &list, &[0, 0]].concat();
        for (at, value) in changes {
            if let Some(word) = header.get_mut(at) {
                *word = value;
            }
        }
        let mut bytes: Vec<u8> = header.iter().flat_map(|word| word.to_be_bytes()).collect();
        bytes.extend(rpc(xid, true, payload as usize));
        bytes.truncate(2 * FIRST as usize);
        let ends = [offered.len() as u16];
        let mut set = ItemSet::EMPTY;
        set.insert(0);
        let offered = match offered.is_empty() {
            true => Offered::NONE,
            false => Offered {
                set,
                wants: SegmentLists { segments: &offered, ends: &ends },
                reply: &[],
            },
        };
        let first = &bytes[..bytes.len().min(FIRST as usize)];
        let at = Received { buffer: general.last_buffer() + 1, byte_len: bytes.len() as u32 };
        let before = state(&short);
        let place = short.conn.exposed_for(&short.ledger, first);
        prop_assert_eq!(place.is_some(), is_marked && header[0] == xid);
        let taken = short.conn.on_one_chunk_reply(&mut short.ledger, at, first, &offered);
        let expected = general.receive(&bytes);
        let Some((part, placed)) = taken else {
            prop_assert_eq!(state(&short), before, "what is not taken changes nothing");
            return Ok(());
        };
        let Ingress::Reply(id, message) = expected else { panic!("it is {expected:?}") };
        prop_assert_eq!((id.xid(), part), (xid, message.part));
        let due = general.conn.resolve_reply(&general.ledger, id, &message, &[part], &offered);
        let (due, placed) = (due.expect("it was found valid"), placed.of(first));
        let described = |placed: &Placed<'_>| {
            let items = placed.iter().map(|item| (item.index, item.position, item.len));
            let lens = (placed.virtual_len(), placed.payload_len(), placed.is_here());
            (items.collect::<Vec<_>>(), lens, placed.body().is_some())
        };
        prop_assert_eq!(described(&placed), described(&due));
        prop_assert_eq!(state(&short), state(&general));
    }

    #[test]
    fn the_short_way_takes_calls_as_the_general_way_does(
        (version, stream) in any_version()
            .prop_flat_map(|version| (Just(version), vec(any_words(version), 1..8))),
        at_client in prop::bool::weighted(0.2),
        explicit in prop::bool::weighted(0.9),
    ) {
        let mut short = side(version, at_client, explicit);
        let mut general = side(version, at_client, explicit);
        for words in stream {
            let bytes = words.bytes();
            let taken = take(&mut short, &mut general, &bytes);
            prop_assert!(taken.is_none() || explicit && !at_client);
        }
    }

    #[test]
    fn a_routed_call_is_planned_as_the_general_way_does(
        version in any_version(),
        (shapes, tail) in (vec((0u32..9, 0u32..6000, 1u32..4), 0..3), 0u32..9),
        lens in vec((1u32..6000, 0u32..4), 0..3),
        headroom in prop_oneof![Just(512u32), 30u32..200],
    ) {
        let by_base = Settings { rtr: RtrSupport::empty(), ..Settings::new(structure(4096, 0, 0)) };
        let ((mut short, _), (mut general, _)) =
            (connected_in(version, by_base, by_base), connected_in(version, by_base, by_base));
        let id = short.conn.open_call(&mut short.ledger, 1).expect("ready");
        prop_assert_eq!(general.conn.open_call(&mut general.ledger, 1), Ok(id));
        let content = Content::new(id.xid(), false, &shapes, tail);
        let end = content.stream().len() as u32;
        let want = |&(max_len, pieces): &(u32, u32)| {
            Want { kind: WantKind::Exrw, pieces, ..Want::sends(0, end, 0, max_len) }
        };
        let wants: Vec<_> = lens.iter().map(want).collect();
        let demand = CallDemand {
            payload: content.payload.len() as u32,
            items: &content.items,
            wants: &wants,
            gather_max: 8,
            explicit: Explicit::unlimited(4096),
            ..CallDemand::inline(0, 400)
        };
        let route = short.conn.route_call(&demand).expect("there is a way");
        let open = Open::new(&route, &demand, &content, 0);
        let (exposed, before) = (open.exposed(), state(&short));
        let Side { conn, ledger, .. } = &mut short;
        let plan = conn.begin_chunk_call(ledger, id, &demand, &route, &exposed, headroom);
        let plan = plan.expect("as routed");
        let expected = general.conn.begin_call(&mut general.ledger, id, &demand, &route, &exposed);
        let mut expected = expected.expect("as routed");
        let Some(plan) = plan else {
            prop_assert_eq!(state(&short), before, "what is not taken changes nothing");
            return Ok(());
        };
        prop_assert!(plan.header_len() <= headroom && route.exposes());
        let mut header = vec![0; plan.header_len() as usize];
        plan.encode_header(&mut Writer::new(&mut header)).expect("as long as it says");
        let sent = general.transmit(&mut expected, &content.payload, &content.bulk);
        prop_assert_eq!(sent, [[&header[..], &content.payload].concat()]);
        prop_assert_eq!(state(&short), state(&general));
    }

    #[test]
    fn the_short_way_answers_as_the_general_way_does(
        version in any_version(),
        lens in vec(prop_oneof![0u32..20, 0u32..3000], 1..17),
        payload in prop_oneof![4 => (2u32..60).prop_map(|words| 4 * words), 1 => 0u32..1200],
        position in prop_oneof![4 => Just(8u32), 1 => 0u32..60],
        len in prop_oneof![4 => 0u32..3000, 1 => LEN_MAX - 100..LEN_MAX + 8],
        (pieces, gather_max, headroom) in (1u32..5, 1u32..6, prop_oneof![Just(512u32), 30u32..300]),
        invalidates in any::<bool>(),
    ) {
        let mut settings = settings(true);
        settings.interop.remote_invalidation = invalidates;
        let ((_, mut short), (_, mut general)) =
            (connected_in(version, settings, settings), connected_in(version, settings, settings));
        let bytes = Words::write(vers(version), &lens, 40).bytes();
        let Some(ChunkCall::Write { to, list, .. }) = take(&mut short, &mut general, &bytes) else {
            return Ok(());
        };
        let item = BulkItem { position, len, origin: 0, pieces };
        let (items, means) = ([item], GatherMeans { gather_max, zeros_max: 8192 });
        let before = state(&short);
        let what = (payload, &item);
        let plan =
            short.conn.begin_chunk_reply(&mut short.ledger, &to, what, list, means, headroom);
        let segment = |&length: &u32| {
            let handle = if length == 0 { 78 } else { 77 };
            RdmaSegment { handle, length, offset: 1 << 32 | 5 }
        };
        let segments: Vec<_> = lens.iter().map(segment).collect();
        let writes = [rpcrdma_xdr::WriteChunk(Array::from_slice(&segments))];
        let offer = Offer::Chunks { writes: (&writes[..]).into(), reply: None };
        let demand = ReplyDemand { payload, items: &items, offer, gather_max, copy_max: 0 };
        let expected = general.conn.begin_reply(&mut general.ledger, &to, &demand);
        let Some(plan) = plan else {
            prop_assert_eq!(state(&short), before, "what is not taken changes nothing");
            return Ok(());
        };
        let mut expected = expected.expect("the short way has found it possible");
        let mut header = vec![0; plan.header_len() as usize];
        prop_assert!(plan.header_len() <= headroom);
        plan.encode_header(&mut Writer::new(&mut header)).expect("as long as it says");
        let Plan::Group(group) = &mut expected else { panic!("it has an item") };
        let mut due = Vec::new();
        while let Some(write) = group.next_write() {
            due.push(write.remote);
        }
        prop_assert_eq!(plan.writes().collect::<Vec<_>>(), due);
        prop_assert_eq!(plan.invalidate, expected.invalidate());
        let (stream, bulk) = (rpc(7, true, payload as usize), vec![vec![9; len as usize]]);
        let sent = general.transmit(&mut expected, &stream, &bulk);
        prop_assert_eq!(sent, [[&header[..], &stream].concat()]);
        prop_assert_eq!(state(&short), state(&general));
    }
}

/// Whether the short way takes this call.
fn takes(version: Version, words: &Words) -> bool {
    let (mut short, mut general) = (side(version, false, true), side(version, false, true));
    take(&mut short, &mut general, &words.bytes()).is_some()
}

#[test]
fn lawful_calls_take_the_short_way_in_both_versions() {
    for version in [Version::One, Version::Two] {
        let vers = vers(version);
        for len in [1, 3, 4, 3000] {
            for position in [8, 40] {
                assert!(takes(version, &Words::read(vers, position, len, 40)), "{position} {len}");
            }
            assert!(takes(version, &Words::write(vers, &[len], 40)));
        }
        assert!(takes(version, &Words::write(vers, &[5; 16], 40)), "as many segments as are taken");
        assert!(!takes(version, &Words::write(vers, &[5; 17], 40)));
        assert!(takes(version, &Words::read(vers, 8, 3, FIRST - 52)), "all of the first segment");
        assert!(!takes(version, &Words::read(vers, 8, 3, FIRST - 48)));
    }
}

#[test]
fn the_longest_message_takes_the_short_way() {
    let read = |len| Words::read(2, 8, len, 40);
    assert!(takes(Version::Two, &read(LEN_MAX - 42)) && !takes(Version::Two, &read(LEN_MAX - 41)));
}

#[test]
fn what_breaks_a_rule_takes_the_general_way() {
    let read = |position, len| Words::read(1, position, len, 40);
    for words in [read(4, 100), read(44, 100), read(10, 100), read(8, 0), Words::write(1, &[], 40)]
    {
        assert!(!takes(Version::One, &words), "{words:?}");
    }
    // Any word of the header but credits, handle, length and address.
    let write = Words::write(1, &[100, 200], 40);
    for (words, free) in
        [(read(8, 100), &[2, 6, 7, 8, 9][..]), (write, &[2, 7, 8, 9, 10, 11, 12, 13, 14][..])]
    {
        for at in 0..words.header.len() {
            let mut words = words.clone();
            words.header[at] ^= 1;
            assert_eq!(takes(Version::One, &words), free.contains(&at), "word {at}: {words:?}");
        }
    }
    for (mut beyond, at) in [(read(8, 100), 8), (Words::write(1, &[100], 40), 9)] {
        beyond.header[at..at + 2].fill(u32::MAX);
        assert!(!takes(Version::One, &beyond), "a segment beyond the last address");
    }
}

#[test]
fn a_call_with_exposed_memory_that_differs_from_its_route_is_not_planned() {
    let by_base = Settings { rtr: RtrSupport::empty(), ..Settings::new(structure(4096, 0, 0)) };
    let (mut client, _) = connected(by_base, by_base);
    let id = client.conn.open_call(&mut client.ledger, 1).expect("ready");
    let content = Content::new(id.xid(), false, &[(0, 5000, 1)], 2);
    let payload = content.payload.len() as u32;
    let demand = CallDemand {
        items: &content.items,
        gather_max: 8,
        explicit: Explicit::unlimited(0),
        ..CallDemand::inline(payload, 400)
    };
    let route = client.conn.route_call(&demand).expect("there is a way");
    let open = Open::new(&route, &demand, &content, 0);
    let before = state(&client);
    let Side { conn, ledger, .. } = &mut client;
    let mut begin = |exposed: &Exposed<'_>| {
        conn.begin_chunk_call(ledger, id, &demand, &route, exposed, 512).map(|plan| plan.is_some())
    };
    assert!(matches!(begin(&Exposed::NONE), Err(SendError::Misuse(_))));
    assert_eq!(begin(&open.exposed()), Ok(true));
    assert_ne!(state(&client), before, "its credit is taken");
}

#[test]
fn lawful_replies_take_the_short_way() {
    let segment = |length| RdmaSegment { handle: 77, length, offset: 1 << 32 | 5 };
    let (offered, ends) = ([segment(100), segment(200)], [2]);
    let mut set = ItemSet::EMPTY;
    set.insert(0);
    let wants = SegmentLists { segments: &offered, ends: &ends };
    let offers = Offered { set, wants, reply: &[] };
    let takes = |list: &[u32]| {
        let (mut side, xid) = caller(Version::One, &offered, true);
        let header = [&[xid, 1, 4, 0, 0][..], list, &[0, 0]].concat();
        let mut bytes: Vec<u8> = header.iter().flat_map(|word| word.to_be_bytes()).collect();
        bytes.extend(rpc(xid, true, 40));
        let at = Received { buffer: 9, byte_len: bytes.len() as u32 };
        assert_eq!(side.conn.exposed_for(&side.ledger, &bytes), Some(5));
        side.conn.on_one_chunk_reply(&mut side.ledger, at, &bytes, &offers).is_some()
    };
    let chunk = |lens: [u32; 2]| takes(&[1, 2, 77, lens[0], 1, 5, 77, lens[1], 1, 5]);
    assert!(takes(&[]), "nothing was written");
    for (lens, is_possible) in [
        ([0, 0], true),
        ([99, 0], true),
        ([100, 1], true),
        ([100, 200], true),
        ([99, 1], false),
        ([101, 0], false),
        ([100, 201], false),
    ] {
        assert_eq!(chunk(lens), is_possible, "{lens:?}");
    }
    assert!(!takes(&[1, 1, 77, 1, 1, 5]), "a chunk comes back whole");
    assert!(!takes(&[1, 2, 77, 1, 1, 5, 78, 0, 1, 5]), "with the same segments");
}

#[test]
fn a_plain_reply_invalidates_what_its_call_has_exposed() {
    for is_wanted in [true, false] {
        let mut settings = settings(true);
        settings.interop.remote_invalidation = is_wanted;
        let (_, mut server) = connected(settings, settings);
        let bytes = Words::read(2, 8, 100, 40).bytes();
        let at = Received { buffer: 1, byte_len: bytes.len() as u32 };
        let taken = server.conn.on_one_chunk(&mut server.ledger, at, &bytes);
        let Some(ChunkCall::Read { to, .. }) = taken else { panic!("{taken:?}") };
        let is_wanted = is_wanted && server.conn.limits().remote_invalidation;
        let room = server.conn.limits().recv_size - InlinePlan::HEADER_LEN;
        let mut begin = |to: &ReplyTo, len| {
            let plan = server.conn.begin_invalidating_reply(&mut server.ledger, to, len);
            plan.map(|plan| plan.handle)
        };
        assert_eq!(begin(&ReplyTo { handle: None, ..to }, 40), None, "nothing to invalidate");
        assert_eq!(begin(&to, room + 4), None, "too long");
        assert_eq!(begin(&to, room), is_wanted.then_some(77));
    }
}
