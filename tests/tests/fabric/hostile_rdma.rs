//! Peers that break the rules of explicit RDMA: they access only offered memory, only while it is
//! offered; other connections are not affected, and all memory returns.

use std::collections::HashSet;
use std::time::Duration;

use rpcrdma::provider::{ConnectError, WcStatus};
use rpcrdma::shard::audit::Audit;
use rpcrdma::{CallError, CloseReason, ConnectionId};
use rpcrdma_mempool::Access;
use rpcrdma_tests::raw_peer::{RawPeer, base_properties, optional, properties, transmission};
use rpcrdma_tests::script::{Order, Part, Place, Script, is_system_error, part_bytes, reply_seed};
use rpcrdma_tests::suite::explicit::{RDMA_BUFFER, VERSIONS, plan};
use rpcrdma_tests::world::{Done, Plan, World};
use rpcrdma_xdr::numbers::{VERSION_TWO, opttype};
use rpcrdma_xdr::{
    Array, Body, ChunkLists, Header, List, Optional, PropSet, Property, RdmaError, RdmaSegment,
    ReadSegment, RsdLoc, UpdProp, WriteChunk, XmtCont, XmtReq, XmtResp,
};

use super::net::{HAS_ACKS, Net, net};

/// A server, a client that behaves, and a raw client; each with a connection to the server.
struct Scene {
    world: World<Net>,
    good: ConnectionId,
    raw: RawPeer<Net>,
    net: Net,
    seed: u32,
}

impl Scene {
    fn new(plan: &Plan) -> Scene {
        let mut scene = Scene::unmet(plan);
        scene.meet();
        scene
    }

    /// The raw client is not connected.
    fn unmet(plan: &Plan) -> Scene {
        let net = net();
        let (world, good) = World::pair(&|| net.clone(), plan);
        let raw = RawPeer::new(&net);
        let mut scene = Scene { world, good, raw, net, seed: 0 };
        scene.world.servers[0].handler().has_strangers = true;
        scene
    }

    /// A new raw peer that has exchanged properties.
    fn meet(&mut self) {
        self.connect();
        self.raw.send(&properties(0x99, 16));
        self.answer();
    }

    /// A new raw peer, connected.
    fn connect(&mut self) {
        self.raw = RawPeer::new(&self.net);
        self.raw.connect(self.world.at);
        for _ in 0..1_000 {
            self.world.step();
            match self.raw.turn() {
                Ok(()) if self.raw.is_connected() => return,
                // The place of the last one is not free yet.
                Err(ConnectError::Rejected(_)) => self.raw.connect(self.world.at),
                Ok(()) => {}
                Err(why) => panic!("{why}"),
            }
        }
        panic!("no connection");
    }

    fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.world.step();
            let _ = self.raw.turn();
        }
    }

    /// The next transmission from the server.
    fn answer(&mut self) -> Vec<u8> {
        for _ in 0..1_000 {
            if let Some(answer) = self.raw.recv() {
                return answer;
            }
            self.turns(1);
        }
        panic!("no answer");
    }

    /// Sends a call and waits for the end of the connection: the reason of the server.
    fn costs_the_connection(&mut self, call: &[u8]) -> CloseReason {
        let before = self.world.servers[0].handler().closed.len();
        self.raw.send(call);
        for _ in 0..1_000 {
            self.turns(1);
            if let Some((_, why)) = self.world.servers[0].handler().closed.get(before) {
                let why = *why;
                self.turns(50);
                assert!(self.raw.is_lost() && self.raw.recv().is_none(), "it learns nothing");
                return why;
            }
        }
        panic!("the connection stands");
    }

    /// The valid peer is served, and all memory is free.
    fn others_are_served(&mut self) {
        self.seed += 1;
        let parts = [Part::Bulk(9_000 + self.seed), Part::Inline(30)];
        let script = Script::new(self.seed, &parts, &parts).place(Place::Into(1));
        self.world.round(0, self.good, &script);
        self.world.check_all_returned();
        self.world.check_nothing_leaked();
    }
}

fn segment(handle: u32, length: u32, offset: u64) -> RdmaSegment {
    RdmaSegment { handle, length, offset }
}

/// A call by the base protocol; its payload is in line, or at position zero.
fn call(xid: u32, lists: ChunkLists<'_>, payload: Option<&[u8]>) -> Vec<u8> {
    let body = if payload.is_some() { Body::Msg(lists) } else { Body::NoMsg(lists) };
    let header = Header { xid, vers: VERSION_TWO, credit: 16, body };
    transmission(&header, &payload.map(|payload| rpc(xid, 0, payload)).unwrap_or_default())
}

fn rpc(xid: u32, kind: u32, behind: &[u8]) -> Vec<u8> {
    [&xid.to_be_bytes()[..], &kind.to_be_bytes(), behind].concat()
}

fn reads(reads: &[ReadSegment]) -> ChunkLists<'_> {
    ChunkLists { reads: List::from_slice(reads), ..ChunkLists::EMPTY }
}

/// A call of one argument of `len` bytes, without that argument; and where it belongs.
fn reduced(script: &Script, len: u32) -> (Vec<u8>, u32) {
    let stream = script.call_stream();
    let at = stream.len() - len.next_multiple_of(4) as usize;
    (stream[..at].to_vec(), at as u32 + 8)
}

fn is_bad_header(answer: &[u8]) -> bool {
    let (header, _) = Header::decode(answer).expect("a header");
    matches!(header.body, Body::Error(RdmaError::BadHeader))
}

#[test]
fn a_guessed_key_ends_only_the_connection_that_used_it() {
    let mut scene = Scene::new(&plan("two"));
    let script = Script::new(1, &[Part::Bulk(8_000)], &[]);
    let (payload, position) = reduced(&script, 8_000);
    let exposed = scene.raw.show(&[1; 8_000], Access::REMOTE_WRITE);
    for round in 0..6_u32 {
        // An unknown key; a key for writing; a valid key with an invalid address. All memory is
        // free afterwards.
        let target = match round % 3 {
            0 => segment(0x8000_0000 | round.wrapping_mul(0x9e37_79b1), 8_000, 0x1000),
            1 => exposed,
            _ => segment(exposed.handle, 8_000, exposed.offset + 4),
        };
        let message = if round < 3 {
            call(7, reads(&[ReadSegment { position, target }]), Some(&payload))
        } else {
            call(7, reads(&[ReadSegment { position: 0, target }]), None)
        };
        let why = scene.costs_the_connection(&message);
        assert!(matches!(why, CloseReason::Transport(WcStatus::RemoteAccess)), "{why}");
        assert_eq!(scene.world.servers[0].handler().calls, u64::from(round), "never delivered");
        scene.others_are_served();
        scene.meet();
    }
}

#[test]
fn a_result_is_not_written_where_it_may_not() {
    let mut scene = Scene::new(&plan("two"));
    let script = Script::new(1, &[], &[Part::Bulk(8_000)]);
    let exposed = scene.raw.show(&[1; 8_000], Access::REMOTE_READ);
    for target in [segment(0x8123_4567, 8_000, 0x1000), exposed] {
        let target = [target];
        let chunk = [WriteChunk(Array::from_slice(&target))];
        let lists = ChunkLists { writes: List::from_slice(&chunk), ..ChunkLists::EMPTY };
        let why = scene.costs_the_connection(&call(7, lists, Some(&script.call_stream())));
        let is_reported = matches!(why, CloseReason::Transport(WcStatus::RemoteAccess));
        assert!(if HAS_ACKS { is_reported } else { why == CloseReason::PeerGone }, "{why}");
        scene.others_are_served();
        scene.meet();
    }
}

#[test]
fn impossible_chunks_are_refused_before_any_memory_is_touched() {
    let mut plan = plan("two");
    plan.serve.connections.rpc_len_max = "256KiB".into();
    let mut scene = Scene::new(&plan);
    let script = Script::new(1, &[Part::Bulk(8_000)], &[]);
    let (payload, position) = reduced(&script, 8_000);
    let one = |position, length, offset| {
        vec![ReadSegment { position, target: segment(9, length, offset) }]
    };
    let many = |position, length, count| vec![one(position, length, 0x1000)[0]; count];
    let mut bad: Vec<(Vec<ReadSegment>, bool)> = vec![
        // Beyond the last address.
        (one(position, 8_000, u64::MAX - 7_998), false),
        (one(0, 8_000, u64::MAX - 7_998), true),
        // Longer than is accepted, alone and in sum; in a sum that does not fit 32 bits.
        (one(position, 256 << 10, 0x1000), false),
        (one(0, (256 << 10) + 1, 0x1000), true),
        (many(position, 0x4000_0000, 4), false),
        (many(position, u32::MAX, 40), false),
        (many(0, 0x4000_0000, 4), true),
        // Too short for a message, or none.
        (one(0, 7, 0x1000), true),
        (one(0, 0, 0x1000), true),
        (one(position, 8_000, 0x1000), true),
        // Two messages; within the first words; within another; behind the end.
        (one(0, 8_000, 0x1000), false),
        (one(4, 100, 0x1000), false),
        ([one(position, 8, 0x1000), one(position - 4, 8, 0x1000)].concat(), false),
        ([one(position, 80, 0x1000), one(position + 40, 8, 0x1000)].concat(), false),
        (one(position + 4, 100, 0x1000), false),
        // More segments than are read for one call.
        (many(position, 8, 140), false),
    ];
    // More items than a message has.
    let items = (0..65).map(|item| one(position + 4 * item, 4, 0x1000)[0]);
    bad.push((items.collect(), false));
    for (xid, (list, is_long)) in bad.iter().enumerate() {
        let payload = (!is_long).then_some(payload.as_slice());
        let answered = scene.raw.send(&call(xid as u32, reads(list), payload));
        assert!(answered && is_bad_header(&scene.answer()), "{xid}: {list:?}");
        assert!(scene.raw.is_connected(), "{xid}");
        scene.world.check_all_returned();
    }
    let stats = scene.world.servers[0].handle().stats();
    assert_eq!((stats.rdma_reads, stats.completions_failed), (0, 0));
    assert_eq!(scene.world.servers[0].handler().calls, 0);
    scene.others_are_served();
}

// wire.md W20
#[test]
fn the_data_read_for_one_call_are_limited_to_the_byte() {
    const BUFFER: u32 = 4 << 10;
    let bytes = |buffers: u32, more| vec![buffers * BUFFER + more];
    // Buffers that there are; the items of the call, in segments of so many bytes; whether it is
    // read.
    for (count, items, segment_len, is_read) in [
        // A half of all buffers, rounded up.
        (8, bytes(4, 0), BUFFER, true),
        (8, bytes(4, 1), BUFFER, false),
        (5, bytes(3, 0), BUFFER, true),
        (5, bytes(3, 1), BUFFER, false),
        // Each item begins one of its own.
        (8, vec![1; 4], BUFFER, true),
        (8, vec![1; 5], BUFFER, false),
        // 64 of them.
        (200, bytes(64, 0), 8_000, true),
        (200, bytes(64, 1), 8_000, false),
        // 128 buffers and segments together.
        (8, vec![127 * 4], 4, true),
        (8, vec![128 * 4], 4, false),
        (8, vec![63 * 4; 2], 4, true),
        (8, vec![63 * 4, 64 * 4], 4, false),
    ] {
        let mut plan = plan("two");
        plan.serve.explicit.buffers.count = count;
        plan.serve.explicit.buffers.length = "4KiB".into();
        let mut scene = Scene::new(&plan);
        let exposed = scene.raw.show(&[1; 8_000], Access::REMOTE_READ);
        let (mut list, mut position) = (Vec::new(), 16);
        for len in &items {
            for done in (0..*len).step_by(segment_len as usize) {
                let length = segment_len.min(len - done);
                list.push(ReadSegment { position, target: RdmaSegment { length, ..exposed } });
            }
            position += len.next_multiple_of(4);
        }
        // The service refuses what is no script, but it is asked.
        scene.raw.send(&call(7, reads(&list), Some(&[0xff; 8])));
        assert!(is_bad_header(&scene.answer()));
        let is_asked = scene.world.servers[0].handler().calls == 1;
        let has_read = scene.world.servers[0].handle().stats().rdma_reads > 0;
        assert_eq!((is_asked, has_read), (is_read, is_read), "{count}: {items:?}");
        scene.others_are_served();
    }
}

/// A server with so many buffers for calls of peers, which wait no longer than 50 ms for one.
fn impatient(buffers: i64, fetches: i64) -> Plan {
    let mut plan = plan("two");
    plan.serve.explicit.buffers.count = 2 * buffers;
    plan.serve.explicit.fetches = fetches;
    plan.serve.connections.group_timeout = "50ms".into();
    plan
}

impl Scene {
    /// The raw peer sends calls whose data it does not let the server read: it is not polled. Each
    /// takes a buffer.
    fn withholds(&mut self, count: u32) {
        let script = Script::new(1, &[Part::Bulk(8_000)], &[]);
        let (payload, position) = reduced(&script, 8_000);
        let target = self.raw.show(&[1; 8_000], Access::REMOTE_READ);
        for xid in 1..=count {
            let message = call(xid, reads(&[ReadSegment { position, target }]), Some(&payload));
            assert!(self.raw.send(&message), "a credit");
        }
        self.world.quiesce();
        assert_eq!(self.server().fetches, count as usize, "they are being fetched");
    }

    /// Advances the time by `ms` milliseconds without polling the raw peer.
    fn passes(&mut self, ms: u64) {
        for _ in 0..ms {
            self.world.now += 1_000_000;
            self.world.step();
        }
    }

    fn server(&mut self) -> Audit {
        self.world.servers[0].audit()
    }
}

#[test]
fn a_peer_whose_data_do_not_arrive_times_out() {
    let mut scene = Scene::new(&impatient(4, 8));
    for round in 1..=3 {
        scene.withholds(3);
        scene.passes(49);
        assert_eq!(scene.server().fetches, 3, "it has 50 ms");
        scene.passes(12);
        let (_, why) = *scene.world.servers[0].handler().closed.last().expect("it was closed");
        assert_eq!(why, CloseReason::TimedOut);
        assert_eq!(scene.world.servers[0].handle().stats().read_timeouts, round);
        scene.turns(50);
        assert!(scene.raw.is_lost());
        scene.others_are_served();
        scene.meet();
    }
    assert_eq!(scene.world.servers[0].handler().calls, 3, "those of the others");
}

#[test]
fn a_peer_whose_data_are_being_read_is_not_idle() {
    let mut plan = impatient(4, 8);
    plan.serve.connections.idle_timeout = "20ms".into();
    let mut scene = Scene::new(&plan);
    scene.withholds(3);
    scene.passes(45);
    assert_eq!(scene.server().fetches, 3, "it has 50 ms");
    scene.turns(200);
    assert!(scene.raw.is_connected());
    assert_eq!(scene.world.servers[0].handler().calls, 3);
    scene.passes(45);
    scene.turns(50);
    assert!(scene.raw.is_lost(), "now it is idle");
}

#[test]
fn a_peer_whose_data_arrive_slowly_has_time_for_each_call() {
    let mut scene = Scene::new(&impatient(4, 1));
    scene.withholds(3);
    for left in (0..3).rev() {
        scene.passes(45);
        scene.world.until("one more is here", |world| {
            let _ = scene.raw.turn();
            world.servers[0].audit().fetches == left
        });
        assert!(!scene.raw.is_lost());
    }
    assert_eq!(scene.world.servers[0].handler().calls, 3);
}

#[test]
fn a_peer_whose_data_do_not_arrive_leaves_others_their_share() {
    // Buffers for four calls, or reads of four: half of either is for others.
    for (buffers, fetches) in [(4, 8), (16, 4), (5, 8), (16, 5)] {
        let mut scene = Scene::new(&impatient(buffers, fetches));
        scene.withholds(8);
        let reads = scene.world.servers[0].handle().stats().rdma_reads;
        let half = u64::try_from(buffers.min(fetches)).expect("positive").div_ceil(2);
        assert_eq!(reads, half, "{buffers} {fetches}");
        let script = Script::new(1, &[Part::Bulk(9_000)], &[]);
        scene.world.round(0, scene.good, &script);
        assert_eq!(scene.server().fetches, 8, "the others wait");
        scene.turns(200);
        assert_eq!(scene.server().fetches, 0, "and are served when their peer goes on");
        assert_eq!(scene.world.servers[0].handler().calls, 9);
    }
}

// RFC 8166 3.3.1
#[test]
fn a_single_peer_may_use_all_buffers() {
    // Buffers for so many calls, and so many that may be read at one time: the fewer decide.
    for (buffers, fetches, most) in [(4, 8, 4), (16, 3, 3), (16, 1, 1)] {
        let mut scene = Scene::new(&impatient(buffers, fetches));
        assert!(scene.world.clients[0].handle().close(scene.good));
        scene.turns(50);
        scene.withholds(8);
        let reads = scene.world.servers[0].handle().stats().rdma_reads;
        assert_eq!(reads, most, "{buffers} {fetches}");
        scene.turns(200);
        assert_eq!(scene.world.servers[0].handler().calls, 8);
    }
}

#[test]
fn a_shard_sleeps_while_its_calls_wait_for_buffers() {
    let mut scene = Scene::new(&impatient(2, 8));
    let sleeps = |scene: &mut Scene| {
        let server = &mut scene.world.servers[0];
        let before = server.handle().stats().sleeps;
        server.wait(Duration::ZERO);
        server.handle().stats().sleeps - before
    };
    scene.withholds(4);
    (0..100).for_each(|_| scene.world.step());
    assert_eq!(sleeps(&mut scene), 1, "nothing can be done until something comes");
    scene.turns(100);
    assert_eq!(scene.server().fetches, 0);
    assert_eq!(sleeps(&mut scene), 1);
}

#[test]
fn items_without_bytes_are_no_reads() {
    let mut scene = Scene::new(&plan("two"));
    let script = Script::new(1, &[Part::Bulk(0)], &[]);
    let stream = script.call_stream();
    let position = stream.len() as u32 + 8;
    let list = [ReadSegment { position, target: segment(9, 0, 0x1000) }; 3];
    scene.raw.send(&call(7, reads(&list), Some(&stream)));
    let answer = scene.answer();
    assert!(matches!(Header::decode(&answer).expect("a header").0.body, Body::Msg(_)));
    assert_eq!(scene.world.servers[0].handle().stats().rdma_reads, 0);
    scene.others_are_served();
}

#[test]
fn a_fetched_call_must_match_its_header() {
    let mut scene = Scene::new(&plan("two"));
    let script = Script::new(1, &[Part::Inline(6_000)], &[]);
    let good = rpc(7, 0, &script.call_stream());
    for (bytes, is_good) in [
        (good.clone(), true),
        (rpc(8, 0, &script.call_stream()), false),
        (rpc(7, 1, &script.call_stream()), false),
        (rpc(7, 2, &[]), false),
        (good, true),
    ] {
        let target = scene.raw.show(&bytes, Access::REMOTE_READ);
        scene.raw.send(&call(7, reads(&[ReadSegment { position: 0, target }]), None));
        let answer = scene.answer();
        assert_eq!(is_bad_header(&answer), !is_good);
        scene.world.check_all_returned();
    }
    assert_eq!(scene.world.servers[0].handler().calls, 2);
    scene.others_are_served();
}

/// The answer to a call that brings an argument in a Read chunk, or none, and offers a Write chunk
/// of so many segments; and what was written to it.
fn answer_to_many(
    scene: &mut Scene,
    order: Order,
    count: usize,
    has_read: bool,
) -> (Vec<u8>, Vec<u8>) {
    const LEN: u32 = 8_000;
    let argument: &[Part] = if has_read { &[Part::Bulk(LEN)] } else { &[] };
    let script = Script::new(1, argument, &[Part::Bulk(LEN)]).order(order);
    let (payload, position) = match has_read {
        true => reduced(&script, LEN),
        false => (script.call_stream(), 0),
    };
    let target = scene.raw.show(&part_bytes(1, 0, LEN), Access::REMOTE_READ);
    let entry = [ReadSegment { position, target }];
    let exposed = scene.raw.show(&[0; LEN as usize], Access::REMOTE_WRITE);
    // As few segments as one reply may have written to, and what is left of them.
    let each = LEN.div_ceil(100.min(count as u32));
    let mut left = LEN;
    let segments: Vec<_> = (0..count as u32)
        .map(|index| {
            let length = each.min(left);
            left -= length;
            segment(exposed.handle, length, exposed.offset + u64::from((each * index).min(LEN)))
        })
        .collect();
    let chunk = [WriteChunk(Array::from_slice(&segments))];
    let reads = if has_read { List::from_slice(&entry) } else { List::EMPTY };
    let lists = ChunkLists { reads, writes: List::from_slice(&chunk), reply: None };
    scene.raw.send(&call(7, lists, Some(&payload)));
    (scene.answer(), scene.raw.seen(&exposed))
}

/// The lengths of the segments of the Write chunk that comes back.
fn returned(answer: &[u8]) -> Vec<u32> {
    let (header, _) = Header::decode(answer).expect("a header");
    let Body::Msg(lists) = header.body else { panic!("{header:?}") };
    let WriteChunk(returned) = lists.writes.iter().next().expect("a Write chunk");
    returned.iter().map(|segment| segment.length).collect()
}

// RFC 8166 3.4.4
#[test]
fn a_call_offers_as_many_segments_as_its_header_holds() {
    let mut scene = Scene::new(&plan("two"));
    for (count, has_read) in [(1, false), (30, true), (31, false), (100, true), (235, false)] {
        for order in [Order::Answer, Order::Later] {
            let (answer, written) = answer_to_many(&mut scene, order, count, has_read);
            let lengths = returned(&answer);
            assert_eq!(lengths.len(), count, "all of them come back");
            assert_eq!(lengths.iter().sum::<u32>(), 8_000, "{count}");
            assert_eq!(written, part_bytes(reply_seed(1), 0, 8_000), "{count}");
        }
        scene.others_are_served();
        scene.meet();
    }
}

// RFC 8166 4.3.2.2, 4.3.3
#[test]
fn a_dropped_ticket_returns_the_chunks_of_its_call() {
    for version in VERSIONS {
        let mut scene = Scene::unmet(&plan(version));
        match version {
            "one" => scene.connect(),
            _ => scene.meet(),
        }
        let cases = [(1, false), (2, false), (0, true), (1, true), (16, true)];
        for (xid, (writes, has_reply)) in (7..).zip(cases) {
            let exposed = scene.raw.show(&[7; 8_000], Access::REMOTE_WRITE);
            let segments = [(5_000, 0), (3_000, 5_000)]
                .map(|(length, at)| segment(exposed.handle, length, exposed.offset + at));
            let chunks = [WriteChunk(Array::from_slice(&segments)); 16];
            let offered = List::from_slice(&chunks[..writes]);
            let reply = has_reply.then_some(chunks[0]);
            let lists = ChunkLists { writes: offered, reply, ..ChunkLists::EMPTY };
            let script = Script::new(xid, &[], &[Part::Bulk(8_000)]).order(Order::Never);
            let mut bytes = call(xid, lists, Some(&script.call_stream()));
            bytes[7] = if version == "one" { 1 } else { 2 };
            scene.raw.send(&bytes);
            scene.turns(20);
            let ticket = scene.world.servers[0].handler().never.pop().expect("a ticket");
            std::thread::spawn(move || drop(ticket)).join().expect("it drops a ticket");
            let answer = scene.answer();
            let (header, len) = Header::decode(&answer).expect("a header");
            let unused = segments.map(|it| RdmaSegment { length: 0, ..it });
            let chunks = [WriteChunk(Array::from_slice(&unused)); 16];
            let writes = List::from_slice(&chunks[..writes]);
            let reply = has_reply.then_some(chunks[0]);
            let lists = ChunkLists { writes, reply, ..ChunkLists::EMPTY };
            let due = Header {
                xid,
                vers: bytes[7].into(),
                credit: header.credit,
                body: Body::Msg(lists),
            };
            assert_eq!(answer[..len], transmission(&due, &[]), "{header:?}");
            assert!(is_system_error(&answer[len + 8..]));
            assert_eq!(scene.raw.seen(&exposed), [7; 8_000]);
        }
        scene.others_are_served();
    }
}

/// Where it is agreed that an answer takes a right back, which a caller that has given up may not
/// tolerate.
#[test]
fn a_dropped_ticket_leaves_the_rights_of_its_call_to_the_caller() {
    let result = [Part::Bulk(6_000)];
    let long = [Part::Inline(6_000)];
    for version in VERSIONS {
        for (reply, place, pieces) in [
            (&result, Place::Into(1), 1),
            (&result, Place::Into(3), 3),
            (&long, Place::Anywhere, 1),
        ] {
            let net = net();
            let (mut world, peer) = World::pair(&|| net.clone(), &plan(version));
            world.round(0, peer, &Script::new(1, &[], &[]));
            let script = Script::new(1, &[], reply).place(place).order(Order::Never);
            world.call_when_possible(0, peer, &script);
            world.until("it arrives", |world| !world.servers[0].handler().never.is_empty());
            drop(world.servers[0].handler().never.pop());
            let done = world.finish().remove(0);
            let arrived = done.result.as_ref().expect("a reply");
            assert!(is_system_error(&arrived.stream) && arrived.items.is_empty());
            assert_eq!(done.check_sinks(), 0);
            let stats = world.clients[0].handle().stats();
            let by_us = if world.caps.windows > 0 { pieces } else { 0 };
            assert_eq!((stats.exposures, stats.invalidations), (pieces, by_us));
            let stats = world.servers[0].handle().stats();
            assert_eq!((stats.refusals_dropped, stats.replies_sent), (1, 1));
            world.check_all_returned();
            world.check_nothing_leaked();
        }
    }
}

// [RTR] 7.4
#[test]
fn a_dropped_ticket_leaves_the_directions_of_its_call_unused() {
    let net = net();
    let (mut world, peer) = World::pair(&|| net.clone(), &Plan::default());
    let results = [Part::Bulk(6_000), Part::Bulk(900)];
    for results in [&results[..1], &results] {
        world.call_when_possible(0, peer, &Script::new(1, &[], results).order(Order::Never));
        world.until("it arrives", |world| !world.servers[0].handler().never.is_empty());
        drop(world.servers[0].handler().never.pop());
        let done = world.finish().remove(0);
        assert!(is_system_error(&done.result.expect("a reply").stream));
    }
}

// wire.md W6
#[test]
fn a_call_that_offers_more_than_its_caller_receives_is_not_executed() {
    let mut scene = Scene::new(&plan("two"));
    let mut buffer = [0; 136];
    let size = [Property::RecvBufferSize(1024).encode(&mut buffer).expect("four bytes")];
    let now = PropSet::from_slice(&size);
    scene.raw.send(&optional(0, Optional::UpdProp(UpdProp { now }), &[]));
    let mut due = 0;
    // A header of 28 bytes, 8 and 16 for each segment; and the reply, of 20 bytes.
    for (count, is_taken) in [(60, true), (62, false), (100, false), (59, true)] {
        for (order, has_read) in
            [(Order::Answer, false), (Order::Answer, true), (Order::Later, false)]
        {
            let reads = scene.world.servers[0].handle().stats().rdma_reads;
            let (answer, written) = answer_to_many(&mut scene, order, count, has_read);
            due += u64::from(is_taken);
            assert_eq!(is_bad_header(&answer), !is_taken, "{count}");
            assert_eq!(scene.world.servers[0].handler().calls, due, "{count}");
            match is_taken {
                true => assert_eq!(written, part_bytes(reply_seed(1), 0, 8_000)),
                false => {
                    assert_eq!(written, [0; 8_000], "nothing is written");
                    let stats = scene.world.servers[0].handle().stats();
                    assert_eq!(stats.rdma_reads, reads, "nor read");
                }
            }
        }
    }
    scene.others_are_served();
}

#[test]
fn a_caller_that_vanishes_while_its_data_are_read_leaves_nothing_behind() {
    let mut plan = plan("two");
    // Half of them are for the calls of peers.
    plan.serve.explicit.buffers.count = 4;
    plan.serve.explicit.fetches = 4;
    let mut scene = Scene::new(&plan);
    let script = Script::new(1, &[Part::Bulk(2 * RDMA_BUFFER)], &[]);
    let (payload, position) = reduced(&script, 2 * RDMA_BUFFER);
    for turns in 0..12 {
        // The first is read and takes all buffers, the others wait for them.
        let target = scene.raw.show(&part_bytes(1, 0, 2 * RDMA_BUFFER), Access::REMOTE_READ);
        for xid in 1..6 {
            let message = call(xid, reads(&[ReadSegment { position, target }]), Some(&payload));
            scene.raw.send(&message);
        }
        (0..6).for_each(|_| scene.world.step());
        scene.turns(turns);
        scene.raw.disconnect();
        scene.others_are_served();
        scene.world.until("all its buffers are free", |world| {
            world.servers[0].audit().receives_held == 0 && world.servers[0].audit().fetches == 0
        });
        scene.meet();
    }
}

/// A client with explicit RDMA and a raw server.
struct Stage {
    world: World<Net>,
    raw: RawPeer<Net>,
    peer: ConnectionId,
    net: Net,
}

/// A call as the raw server has it: transaction id and what was offered for the result.
struct Offered {
    xid: u32,
    chunk: Vec<RdmaSegment>,
}

impl Stage {
    fn new() -> Stage {
        Stage::with(&plan("two"), base_properties)
    }

    /// The raw server states these properties.
    fn with(plan: &Plan, properties: fn(u32, u32) -> Vec<u8>) -> Stage {
        let net = net();
        let mut world = World::new(&|| net.clone(), plan);
        let (raw, peer) = Stage::meet(&net, &mut world, properties);
        Stage { world, raw, peer, net }
    }

    /// One more raw server that the client is connected to.
    fn meet(
        net: &Net,
        world: &mut World<Net>,
        properties: fn(u32, u32) -> Vec<u8>,
    ) -> (RawPeer<Net>, ConnectionId) {
        let mut raw = RawPeer::new(net);
        let at = raw.listen();
        let id = world.clients[0].begin_connect(at).expect("there is room");
        let mut is_met = false;
        let outcome = world.outcome_with(0, id, || {
            raw.turn().expect("it listens");
            if let Some(hello) = raw.recv()
                && !is_met
            {
                let (header, _) = Header::decode(&hello).expect("a header");
                is_met = raw.send(&properties(header.xid, 16));
            }
        });
        (raw, outcome.expect("a connection"))
    }

    /// Makes a call whose result is wanted in a sink.
    fn call(&mut self, seed: u32, pieces: u32) -> Offered {
        let script = Script::new(seed, &[], &[Part::Bulk(LEN)]).place(Place::Into(pieces));
        self.world.call_when_possible(0, self.peer, &script);
        let arrived = self.arrived();
        let (header, _) = Header::decode(&arrived).expect("a header");
        let Body::Msg(lists) = header.body else { panic!("{header:?}") };
        let WriteChunk(chunk) = lists.writes.iter().next().expect("a Write chunk");
        Offered { xid: header.xid, chunk: chunk.iter().collect() }
    }

    /// The next transmission from the client.
    fn arrived(&mut self) -> Vec<u8> {
        for _ in 0..1_000 {
            self.turns(1);
            if let Some(arrived) = self.raw.recv() {
                return arrived;
            }
        }
        panic!("the call does not arrive");
    }

    fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.world.step();
            let _ = self.raw.turn();
        }
    }

    /// Writes the result where it belongs.
    fn write_result(&mut self, seed: u32, offered: &Offered) {
        let mut rest = part_bytes(reply_seed(seed), 0, LEN);
        for segment in &offered.chunk {
            let behind = rest.split_off(rest.len().min(segment.length as usize));
            self.raw.write(segment, &rest);
            rest = behind;
        }
    }

    /// The end of the next call.
    fn done(&mut self) -> Done {
        for _ in 0..1_000 {
            if !self.world.done.is_empty() {
                return self.world.done.remove(0);
            }
            self.turns(1);
        }
        panic!("the call is not completed");
    }

    fn all_is_returned(&mut self) {
        self.turns(20);
        self.world.check_all_returned();
        self.world.check_nothing_leaked();
    }
}

/// Bytes of the results.
const LEN: u32 = 6_000;

/// A reply whose result was written to these segments.
fn reply(seed: u32, xid: u32, chunk: &[RdmaSegment]) -> Vec<u8> {
    let chunks = [WriteChunk(Array::from_slice(chunk))];
    let lists = ChunkLists { writes: List::from_slice(&chunks), ..ChunkLists::EMPTY };
    let words = [seed.to_be_bytes(), 0_u32.to_be_bytes(), LEN.to_be_bytes()].concat();
    let header = Header { xid, vers: VERSION_TWO, credit: 16, body: Body::Msg(lists) };
    transmission(&header, &rpc(xid, 1, &words))
}

/// Cut to what was written.
fn written(offered: &Offered) -> Vec<RdmaSegment> {
    let mut left = LEN;
    let cut = |segment: &RdmaSegment| {
        let length = segment.length.min(left);
        left -= length;
        RdmaSegment { length, ..*segment }
    };
    offered.chunk.iter().map(cut).collect()
}

#[test]
fn a_raw_server_that_keeps_the_rules_is_understood() {
    let mut stage = Stage::new();
    for (seed, pieces) in [(1, 1), (2, 3), (3, 5)] {
        let offered = stage.call(seed, pieces);
        assert_eq!(offered.chunk.len(), pieces as usize);
        stage.write_result(seed, &offered);
        stage.raw.send(&reply(seed, offered.xid, &written(&offered)));
        let done = stage.done();
        assert_eq!((done.check(), done.check_sinks()), ((0, 1), 1));
        stage.all_is_returned();
    }
}

// RFC 8166 3.4.5.2, 3.4.6, 3.4.6.2, 3.5.3, 4.3.3
#[test]
fn exposed_memory_is_exactly_as_long_as_its_data() {
    let mut stage = Stage::new();
    let total = |chunk: WriteChunk<'_>| chunk.0.iter().map(|segment| segment.length).sum::<u32>();
    let (argument, result) = ([Part::Bulk(5_001)], [Part::Bulk(LEN + 3)]);
    let (long, longest) = ([Part::Inline(20_001)], [Part::Inline(40_001)]);
    let script = |call, reply| Script::new(1, call, reply);
    for (seed, script) in (1..).zip([
        // In buffers of the engine, which are longer, and in a sink.
        script(&argument, &result),
        script(&argument, &result).place(Place::Into(3)),
        script(&long, &longest),
    ]) {
        stage.world.call_when_possible(0, stage.peer, &script);
        let arrived = stage.arrived();
        let (Header { xid, body, .. }, _) = Header::decode(&arrived).expect("a header");
        let (Body::Msg(lists) | Body::NoMsg(lists)) = body else { panic!("{body:?}") };
        let read: u32 = lists.reads.iter().map(|read| read.target.length).sum();
        let written: Vec<u32> = lists.writes.iter().map(total).collect();
        let exposed = (read, written, lists.reply.map(total));
        let due = match seed {
            3 => (8 + script.call_stream().len() as u32, vec![], Some(script.reply_payload_max())),
            _ => (5_001, vec![LEN + 3], None),
        };
        assert_eq!(exposed, due, "{script:?}");
        assert!(lists.reads.iter().all(|read| (read.position == 0) == (seed == 3)));
        let body = Body::Error(RdmaError::BadHeader);
        let header = Header { xid, vers: VERSION_TWO, credit: 16, body };
        stage.raw.send(&transmission(&header, &[]));
        stage.done().check_sinks();
        stage.all_is_returned();
    }
}

#[test]
fn a_reply_that_returns_other_segments_than_were_offered_fails_its_call() {
    let mut stage = Stage::new();
    let spoil: [fn(&mut Vec<RdmaSegment>); 7] = [
        |chunk| chunk[0].handle ^= 0x0100,
        |chunk| chunk[0].offset += 4,
        |chunk| chunk[1].length += 60_000,
        |chunk| chunk[0].length -= 1,
        |chunk| chunk.swap(0, 1),
        |chunk| chunk.truncate(1),
        |chunk| chunk.push(chunk[1]),
    ];
    for (seed, spoil) in spoil.iter().enumerate() {
        let seed = seed as u32;
        let offered = stage.call(seed, 2);
        stage.write_result(seed, &offered);
        let mut chunk = written(&offered);
        spoil(&mut chunk);
        stage.raw.send(&reply(seed, offered.xid, &chunk));
        // wire.md B7: a bad reply is dropped or fails its call; then an error ends it.
        stage.turns(20);
        if stage.world.done.is_empty() {
            let body = Body::Error(RdmaError::BadHeader);
            let header = Header { xid: offered.xid, vers: VERSION_TWO, credit: 16, body };
            stage.raw.send(&transmission(&header, &[]));
        }
        let done = stage.done();
        assert!(matches!(done.result, Err(CallError::BadReply(_) | CallError::Rejected(..))));
        done.check_sinks();
        assert!(stage.raw.is_connected(), "spoilt so: {seed}");
        stage.all_is_returned();
    }
}

#[test]
fn a_returned_sink_is_not_written() {
    let mut stage = Stage::new();
    let offered = stage.call(1, 1);
    stage.write_result(1, &offered);
    stage.raw.send(&reply(1, offered.xid, &written(&offered)));
    stage.done().check();
    stage.raw.write(&offered.chunk[0], &[0xee; 100]);
    stage.turns(50);
    assert!(stage.raw.is_lost(), "its right is dead");
    stage.world.until("the client knows", |world| world.clients[0].handle().connections() == 0);
    stage.all_is_returned();
}

// RFC 8166 8.1.1
#[test]
fn a_key_exposed_to_one_peer_ends_the_connection_of_another_that_uses_it() {
    let mut stage = Stage::new();
    for seed in 1..=3 {
        let (mut other, _) = Stage::meet(&stage.net, &mut stage.world, base_properties);
        let offered = stage.call(seed, 1);
        stage.write_result(seed, &offered);
        stage.turns(20);
        other.write(&offered.chunk[0], &[0xee; 100]);
        for _ in 0..50 {
            stage.turns(1);
            let _ = other.turn();
        }
        assert!(other.is_lost(), "the memory is not exposed to it");
        assert!(stage.raw.is_connected(), "and no other");
        stage.world.until("the client knows", |world| world.clients[0].handle().connections() == 1);
        stage.raw.send(&reply(seed, offered.xid, &written(&offered)));
        assert_eq!(stage.done().check(), (0, 1), "as its own peer wrote it");
        stage.all_is_returned();
    }
}

// RFC 8166 8.1.2
#[test]
fn every_call_exposes_its_memory_under_new_keys() {
    let mut stage = Stage::new();
    let mut keys = HashSet::new();
    for seed in 0..50 {
        let offered = stage.call(seed, 3);
        for segment in &offered.chunk {
            assert!(keys.insert(segment.handle), "call {seed}");
        }
        stage.write_result(seed, &offered);
        stage.raw.send(&reply(seed, offered.xid, &written(&offered)));
        stage.done().check();
    }
    stage.all_is_returned();
}

// RFC 8166 4.3.2.2
#[test]
fn a_chunk_returned_as_unused_may_have_been_written() {
    let mut stage = Stage::new();
    let offered = stage.call(1, 2);
    stage.raw.write(&offered.chunk[0], &[0xee; 100]);
    let unused = |segment: &RdmaSegment| RdmaSegment { length: 0, ..*segment };
    let chunk: Vec<_> = offered.chunk.iter().map(unused).collect();
    stage.raw.send(&reply(1, offered.xid, &chunk));
    let done = stage.done();
    let items = done.result.expect("a reply").items;
    assert_eq!(items, [], "what its reply does not name is no result");
    let back = done.sinks[0].expect("the sink comes back");
    assert_eq!((back.written, back.is_item), (100, false), "as the peer has left it");
    stage.all_is_returned();
}

#[test]
fn a_key_invalidated_with_any_message_is_invalidated_once() {
    // With the reply to another call, with the reply before it is there, with an error.
    let mut stage = Stage::new();
    let (one, other) = (stage.call(1, 1), stage.call(2, 2));
    stage.write_result(1, &one);
    stage.write_result(2, &other);
    let early = reply(1, one.xid, &written(&one));
    stage.raw.send_invalidate(&early, other.chunk[0].handle);
    stage.done().check();
    let late = reply(2, other.xid, &written(&other));
    stage.raw.send_invalidate(&late, other.chunk[1].handle);
    stage.done().check();
    let third = stage.call(3, 2);
    let body = Body::Error(RdmaError::BadHeader);
    let header = Header { xid: third.xid, vers: VERSION_TWO, credit: 16, body };
    stage.raw.send_invalidate(&transmission(&header, &[]), third.chunk[1].handle);
    let done = stage.done();
    assert!(matches!(done.result, Err(CallError::Rejected(..))));
    done.check_sinks();
    stage.turns(20);
    assert!(stage.raw.is_connected(), "no key was taken back twice");
    assert_eq!(stage.world.clients[0].handle().stats().completions_failed, 0);
    stage.all_is_returned();
}

#[test]
fn a_key_invalidated_with_a_part_of_a_message_is_invalidated_once() {
    let mut plan = plan("two");
    plan.call.features.continuation = true;
    for gives_up in 0..3 {
        let mut stage = Stage::with(&plan, properties);
        let script = Script::new(1, &[], &[Part::Bulk(LEN)]).place(Place::Into(2));
        stage.world.call_when_possible(0, stage.peer, &script);
        let arrived = stage.arrived();
        let (Header { xid, .. }, request) = request(&arrived);
        let item = request.rsd.first().and_then(|set| set.items.first()).expect("a direction");
        let RsdLoc::Exrw(offered) = item.loc else { panic!("{item:?}") };
        let given_up = offered.first().expect("two segments").handle;
        // The reply to another call comes in three transmissions.
        let script = Script::new(2, &[], &[Part::Inline(10_000)]);
        stage.world.call_when_possible(0, stage.peer, &script);
        let arrived = stage.arrived();
        let (Header { xid: other, .. }, request) = self::request(&arrived);
        assert!(request.rsbuf >= 3, "{request:?}");
        let (count, pslen, itype) = (3, 24, opttype::XMTRESP);
        let first = Optional::XmtResp(XmtResp { dp: Array::EMPTY, count, pslen });
        let first = optional(other, first, &rpc(other, 1, &[0; 16]));
        let next =
            |xnum| optional(other, Optional::XmtCont(XmtCont { xnum, itype, pslen }), &[0; 24]);
        for (at, part) in (0..).zip([first, next(1), next(2)]) {
            match at == gives_up {
                true => stage.raw.send_invalidate(&part, given_up),
                false => stage.raw.send(&part),
            };
        }
        assert!(stage.done().result.is_ok());
        let body = Body::Error(RdmaError::BadHeader);
        let header = Header { xid, vers: VERSION_TWO, credit: 16, body };
        stage.raw.send(&transmission(&header, &[]));
        assert!(matches!(stage.done().result, Err(CallError::Rejected(..))));
        stage.turns(20);
        assert!(stage.raw.is_connected(), "no key was taken back twice");
        assert_eq!(stage.world.clients[0].handle().stats().invalidations, 1, "the other one");
        stage.all_is_returned();
    }
}

/// A call by the extension.
fn request(arrived: &[u8]) -> (Header<'_>, XmtReq<'_>) {
    let (header, _) = Header::decode(arrived).expect("a header");
    let Body::Optional(Optional::XmtReq(request)) = header.body else { panic!("{header:?}") };
    (header, request)
}

#[test]
fn a_key_that_was_never_exposed_cannot_be_invalidated() {
    let mut stage = Stage::new();
    let offered = stage.call(1, 1);
    let message = reply(1, offered.xid, &written(&offered));
    stage.raw.send_invalidate(&message, offered.chunk[0].handle ^ 0x0100);
    let done = stage.done();
    assert!(matches!(done.result, Err(CallError::ConnectionLost(..))), "{:?}", done.result);
    done.check_sinks();
    stage.all_is_returned();
}
