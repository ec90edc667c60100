//! Peers that break the rules: the engine never panics, and other connections are not affected.

use std::sync::Arc;
use std::time::Duration;

use rpcrdma::provider::ConnectError;
use rpcrdma::{CloseReason, ConnectionId};
use rpcrdma_proto::Fatal;
use rpcrdma_tests::checked_provider::{CheckedProvider, Weaken};
use rpcrdma_tests::raw_peer::{
    RawPeer, continuation, initial, message, optional, properties, transmission,
};
use rpcrdma_tests::script::{Order, Part, Random, Script};
use rpcrdma_tests::world::{Plan, World};
use rpcrdma_xdr::numbers::{VERSION_TWO, proc};
use rpcrdma_xdr::{
    Array, Body, ChunkLists, Header, Loc, Mismatch, MsgId, MsgItem, MsgType, Optional, RdmaError,
    ReptErr, ReptInfo, Tbsns, XmtReq,
};

use super::net::{HAS_ACKS, Net, net};

/// A server, a client that behaves, and a raw peer; each with a connection to the server.
struct Scene {
    world: World<Net>,
    good: ConnectionId,
    raw: RawPeer<Net>,
    net: Net,
    seed: u32,
}

impl Scene {
    fn new() -> Scene {
        Scene::with(&Plan::default())
    }

    fn with(plan: &Plan) -> Scene {
        let net = net();
        let (world, good) = World::pair(&|| net.clone(), plan);
        let raw = RawPeer::new(&net);
        let mut scene = Scene { world, good, raw, net, seed: 0 };
        scene.world.servers[0].handler().has_strangers = true;
        scene.meet();
        scene
    }

    /// A new raw peer, connected, without properties.
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

    /// A new raw peer that has exchanged properties.
    fn meet(&mut self) {
        self.connect();
        self.raw.send(&properties(0x99, 16));
        let answer = self.answer();
        let (header, _) = Header::decode(&answer).expect("a header");
        assert!(matches!(header.body, Body::Optional(Optional::ConnProp(_))));
        assert_eq!((header.xid, header.vers), (0x99, VERSION_TWO), "wire.md B2");
        assert!(header.credit > 0);
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

    /// The peer that behaves is served as ever.
    fn others_are_served(&mut self) {
        self.seed += 1;
        let parts = [Part::Bulk(self.seed % 20_000), Part::Inline(30)];
        let script = Script::new(self.seed, &parts, &parts);
        self.world.round(0, self.good, &script);
    }

    /// The connection to the raw peer, as the server has it.
    fn raw_at_server(&mut self) -> Option<ConnectionId> {
        let service = self.world.servers[0].handler();
        let last = *service.connected.last()?;
        (!service.closed.iter().any(|(closed, _)| *closed == last)).then_some(last)
    }
}

/// A call for the service that orders it never to answer.
fn unanswered(xid: u32, credit: u32) -> Vec<u8> {
    let script = Script::new(xid, &[], &[]).order(Order::Never);
    message(xid, 0, credit, &script.call_stream())
}

fn echo(xid: u32) -> Vec<u8> {
    let parts = [Part::Inline(20)];
    message(xid, 0, 16, &Script::new(xid, &parts, &parts).call_stream())
}

/// One of each kind of transmission, all of them right.
fn samples() -> Vec<Vec<u8>> {
    let segments = [0];
    let segments = Tbsns::from_slice(&segments);
    let item = [MsgItem { disp: 8, length: 100, loc: Loc::Tbsn { offset: 0, segments } }];
    let dp = Array::from_slice(&item);
    let req = XmtReq { dp, rsd: Array::EMPTY, count: 1, rsbuf: 2, pslen: 8 };
    let mut placed = optional(5, Optional::XmtReq(req), &rpc(5));
    placed.resize(4096 + 100, 0);
    let error = Body::Error(RdmaError::BadHeader);
    let error = transmission(&Header { xid: 6, vers: 2, credit: 1, body: error }, &[]);
    let report = ReptErr {
        bad: MsgId { xid: 7, dir: MsgType::Call, seq: 0 },
        lead: None,
        info: ReptInfo::BadCont,
    };
    let report = optional(7, Optional::ReptErr(report), &[]);
    let group = initial(8, 2, &rpc(8));
    let rest = continuation(8, 1, &[0; 64]);
    vec![properties(1, 16), echo(2), echo(3), placed, error, report, group, rest]
}

#[test]
fn a_call_without_properties_is_answered() {
    let mut scene = Scene::new();
    scene.connect();
    scene.raw.send(&echo(77));
    let (reply, properties) = (scene.answer(), scene.answer());
    let (header, len) = Header::decode(&reply).expect("a header");
    assert_eq!((header.xid, header.body), (77, Body::Msg(ChunkLists::EMPTY)));
    let script = Script::parse(&echo(77)[36..]).expect("a script");
    assert!(reply[len + 8..] == script.reply_stream(0));
    // wire.md B2: the server's properties come after the reply.
    let (header, _) = Header::decode(&properties).expect("a header");
    assert!(matches!(header.body, Body::Optional(Optional::ConnProp(_))));
    scene.others_are_served();
}

#[test]
fn every_truncation_of_every_message_is_survived() {
    let mut scene = Scene::new();
    for sample in samples() {
        for len in (0..sample.len().min(400)).chain([sample.len() - 1]) {
            if scene.raw.is_lost() || scene.raw_at_server().is_none() {
                scene.meet();
            }
            scene.raw.send(&sample[..len]);
            scene.turns(3);
            while scene.raw.recv().is_some() {}
        }
        scene.others_are_served();
    }
    assert_eq!(scene.world.servers[0].handle().stats().buffers_leaked, 0);
}

#[test]
fn every_flipped_bit_is_survived() {
    let mut scene = Scene::new();
    for sample in samples() {
        for bit in 0..sample.len().min(96) * 8 {
            if scene.raw.is_lost() || scene.raw_at_server().is_none() {
                scene.meet();
            }
            let mut changed = sample.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            // The service checks what it is given: only the header and the first words are changed.
            let is_script =
                changed.len() > 36 && changed[12..16] == sample[12..16] && bit >= 28 * 8;
            if !(is_script && sample[12..16] == [0; 4]) {
                scene.raw.send(&changed);
            }
            scene.turns(3);
            while scene.raw.recv().is_some() {}
        }
        scene.others_are_served();
    }
    let stats = scene.world.servers[0].handle().stats();
    assert!(stats.violations > 100 && stats.transmissions_ignored > 100, "{stats:?}");
    assert_eq!(stats.buffers_leaked, 0);
}

#[test]
fn garbage_is_survived() {
    let mut scene = Scene::new();
    let mut random = Random(3);
    for round in 0..6_000_u32 {
        if scene.raw.is_lost() || scene.raw_at_server().is_none() {
            scene.meet();
        }
        let len = random.below(if round % 8 == 0 { 8_000 } else { 120 }) as usize;
        let mut bytes: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
        // Most of it would be rejected for its version alone.
        if let Some(vers) = bytes.get_mut(4..8) {
            vers.copy_from_slice(&VERSION_TWO.to_be_bytes());
        }
        if let Some(words) = bytes.get_mut(12..16) {
            words.copy_from_slice(
                &random.choose(&[proc::OPTIONAL, proc::NOMSG, 4, 9]).to_be_bytes(),
            );
        }
        if let Some(word) = bytes.get_mut(16..20) {
            word.copy_from_slice(&random.below(10).to_be_bytes());
        }
        scene.raw.send(&bytes);
        scene.turns(1);
        while scene.raw.recv().is_some() {}
        if round % 500 == 0 {
            scene.others_are_served();
        }
    }
    scene.others_are_served();
    assert_eq!(scene.world.servers[0].handle().stats().buffers_leaked, 0);
}

#[test]
fn an_unknown_version_is_answered_with_the_supported_ones() {
    let mut scene = Scene::new();
    for vers in [0, 1, 3, u32::MAX] {
        let mut call = echo(50 + vers % 7);
        call[4..8].copy_from_slice(&vers.to_be_bytes());
        scene.raw.send(&call);
        let answer = scene.answer();
        let words: Vec<u32> = answer
            .chunks(4)
            .map(|word| u32::from_be_bytes(word.try_into().expect("whole words")))
            .collect();
        // wire.md B8: xid and version are those of the call.
        assert_eq!((words[0], words[1], words[3]), (50 + vers % 7, vers, proc::ERROR));
        assert_eq!(words[4..], [1, 1, 2], "RDMA_ERR_VERS, and the versions that we speak");
    }
    scene.raw.send(&echo(90));
    scene.answer();
    scene.others_are_served();
}

#[test]
fn a_peer_that_exceeds_its_credits_is_closed() {
    let mut scene = Scene::new();
    let victim = scene.raw_at_server().expect("it is connected");
    for xid in 1..=17 {
        scene.raw.send(&unanswered(xid, 16));
        scene.turns(2);
        assert_eq!(scene.raw.is_lost(), xid == 17, "16 credits were granted, this is {xid}");
    }
    let closed = scene.world.servers[0].handler().closed.clone();
    let overstep = Fatal::CreditOverstep { outstanding: 17, granted: 16 };
    assert_eq!(closed, [(victim, CloseReason::Protocol(overstep))]);
    scene.others_are_served();
    scene.meet();
    scene.others_are_served();
}

#[test]
fn a_long_group_needs_credits_as_well() {
    let mut scene = Scene::new();
    for xid in 1..=13 {
        scene.raw.send(&unanswered(xid, 16));
    }
    scene.turns(10);
    let rpc = [20_u32.to_be_bytes(), 0_u32.to_be_bytes()].concat();
    scene.raw.send(&initial(20, 4, &rpc));
    scene.turns(10);
    assert!(scene.raw.is_lost(), "13 and 4 are more than 16");
    scene.others_are_served();
}

#[test]
fn an_incomplete_group_times_out() {
    let mut plan = Plan::default();
    plan.serve.connections.group_timeout = "50ms".into();
    let mut scene = Scene::with(&plan);
    for parts in 1..4 {
        let victim = scene.raw_at_server().expect("it is connected");
        let rpc = [20_u32.to_be_bytes(), 0_u32.to_be_bytes()].concat();
        scene.raw.send(&initial(20, 5, &rpc));
        for xnum in 1..parts {
            assert!(scene.raw.send(&continuation(20, xnum, &[0; 64])));
        }
        scene.turns(20);
        assert!(!scene.raw.is_lost(), "it has 50 ms");
        scene.others_are_served();
        scene.world.now += 50_000_000;
        // [RTR] 5.4: what is missing is reported to it before it loses its connection.
        let report = scene.answer();
        let (header, _) = Header::decode(&report).expect("a header");
        let Body::Optional(Optional::ReptErr(report)) = header.body else { panic!("{header:?}") };
        let id = |seq| MsgId { xid: 20, dir: MsgType::Call, seq };
        let info = ReptInfo::BadSeq(Mismatch { expect: parts, current: parts - 1 });
        assert_eq!(report, ReptErr { bad: id(parts - 1), lead: Some(id(0)), info });
        scene.turns(20);
        assert!(scene.raw.is_lost());
        let closed = *scene.world.servers[0].handler().closed.last().expect("it was closed");
        assert_eq!(closed, (victim, CloseReason::TimedOut));
        scene.others_are_served();
        scene.meet();
    }
}

#[test]
fn an_abandoned_group_has_no_deadline() {
    let mut plan = Plan::default();
    plan.serve.connections.group_timeout = "50ms".into();
    let mut scene = Scene::with(&plan);
    // A message that comes in between, and a part out of turn.
    for end in [long_echo(21), continuation(20, 3, &[0; 64])] {
        let rpc = [20_u32.to_be_bytes(), 0_u32.to_be_bytes()].concat();
        scene.raw.send(&initial(20, 5, &rpc));
        scene.turns(5);
        scene.raw.send(&end);
        scene.turns(20);
        while scene.raw.recv().is_some() {}
        for _ in 0..3 {
            scene.world.now += 30_000_000;
            scene.turns(5);
        }
        scene.raw.send(&long_echo(22));
        assert_eq!(scene.answer()[..4], u32::to_be_bytes(22));
    }
}

#[test]
fn a_peer_with_an_incomplete_group_that_takes_no_report_is_closed() {
    if !HAS_ACKS {
        return;
    }
    let mut plan = Plan::default();
    plan.serve.connections.group_timeout = "50ms".into();
    plan.serve.connections.stop_timeout = "70ms".into();
    let mut scene = Scene::with(&plan);
    let victim = scene.raw_at_server().expect("it is connected");
    let rpc = [20_u32.to_be_bytes(), 0_u32.to_be_bytes()].concat();
    // A call that waits for its answer, and one of which a part is missing.
    scene.raw.send(&unanswered(19, 16));
    scene.raw.send(&initial(20, 2, &rpc));
    scene.turns(20);
    scene.world.now += 50_000_000;
    // It is not polled: nothing that is sent to it arrives.
    let mut closed_after = |ns| {
        scene.world.now += ns;
        for _ in 0..20 {
            scene.world.step();
        }
        scene.others_are_served();
        scene.world.servers[0].handler().closed.last().copied()
    };
    assert_eq!(closed_after(0), None, "the report has still to be taken");
    assert_eq!(closed_after(60_000_000), None);
    assert_eq!(closed_after(11_000_000), Some((victim, CloseReason::TimedOut)));
    assert_eq!(scene.world.servers[0].handle().stats().group_timeouts, 1);
}

#[test]
fn a_peer_that_never_states_its_properties_times_out() {
    let mut plan = Plan::default();
    plan.serve.connections.connect_timeout = "50ms".into();
    // A client of version one may be silent until it calls, while there is room.
    plan.serve.protocol.version = "two".into();
    let mut scene = Scene::with(&plan);
    scene.connect();
    scene.turns(20);
    assert!(!scene.raw.is_lost());
    scene.world.now += 50_000_000;
    scene.turns(20);
    assert!(scene.raw.is_lost());
    scene.others_are_served();
    assert_eq!(scene.world.servers[0].handler().connected.len(), 2, "it never came up");
}

#[test]
fn an_item_beyond_what_was_received_never_reaches_a_handler() {
    let mut scene = Scene::new();
    // One segment and 100 bytes of the next are received: 4 KiB, 16 KiB, 100.
    let received = 4096 + 16_384 + 100;
    let at = |offset, length, numbers: &'static [u32]| {
        let loc = Loc::Tbsn { offset, segments: Tbsns::from_slice(numbers) };
        MsgItem { disp: 8, length, loc }
    };
    let (good, bad) = (
        [at(0, 16_384, &[0]), at(0, 16_484, &[0, 1]), at(16_380, 4, &[0]), at(96, 4, &[1])],
        [
            at(0, 16_485, &[0, 1]),
            at(4, 100, &[1]),
            at(0, 1, &[2]),
            at(0, 1, &[4]),
            at(0, 1, &[u32::MAX]),
            at(16_384, 4, &[0]),
            at(2, 4, &[0]),
            at(0, 16_385, &[0]),
            at(0, 4, &[0, 1]),
            at(0, 20_000, &[0, 0]),
            at(0, u32::MAX, &[0, 1]),
            at(u32::MAX - 3, 8, &[0]),
            MsgItem { disp: 7, ..at(0, 4, &[0]) },
            MsgItem { disp: 4096, ..at(0, 4, &[0]) },
        ],
    );
    let send = |scene: &mut Scene, xid: u32, item: MsgItem<'_>| {
        let payload = [xid.to_be_bytes(), 0_u32.to_be_bytes()].concat();
        let items = [item];
        let (dp, rsd, pslen) = (Array::from_slice(&items), Array::EMPTY, 8);
        let req = XmtReq { dp, rsd, count: 1, rsbuf: 1, pslen };
        let mut bytes = optional(xid, Optional::XmtReq(req), &payload);
        bytes.resize(received, 0x11);
        let before = scene.world.servers[0].handler().calls;
        scene.raw.send(&bytes);
        let answer = scene.answer();
        let (header, _) = Header::decode(&answer).expect("a header");
        assert_eq!(header.xid, xid);
        let is_delivered = scene.world.servers[0].handler().calls > before;
        (is_delivered, matches!(header.body, Body::Optional(Optional::ReptErr(_))))
    };
    for (xid, item) in (100..).zip(good) {
        // The service refuses what is no script, but it is asked.
        assert_eq!(send(&mut scene, xid, item), (true, false), "{item:?}");
    }
    for (xid, item) in (200..).zip(bad) {
        assert_eq!(send(&mut scene, xid, item), (false, true), "{item:?}");
    }
    scene.others_are_served();
    assert!(!scene.raw.is_lost(), "what was reported is over");
}

#[test]
fn floods_of_control_messages_starve_no_other_peer() {
    let mut scene = Scene::new();
    for flood in samples().into_iter().filter(|sample| sample[12..16] != [0; 4]) {
        for _ in 0..40 {
            for _ in 0..50 {
                scene.raw.send(&flood);
            }
            scene.turns(2);
            if scene.raw.is_lost() || scene.raw_at_server().is_none() {
                scene.meet();
            }
        }
        // It takes the answers before it is quiet.
        scene.turns(100);
        scene.others_are_served();
    }
}

#[test]
fn a_peer_that_reads_no_reports_starves_no_other_peer() {
    let mut scene = Scene::new();
    // Each is answered by a report, and the peer does not receive the reports.
    let bad = continuation(9, 3, &[0; 16]);
    for _ in 0..40 {
        for _ in 0..20 {
            scene.raw.send(&bad);
        }
        for _ in 0..5 {
            scene.world.step();
        }
        scene.others_are_served();
        if scene.raw_at_server().is_none() {
            scene.meet();
        }
    }
    assert!(scene.world.servers[0].handle().stats().violations > 200);
}

/// A call whose reply is too long to be copied while it is posted: it holds a slot until it is
/// taken.
fn long_echo(xid: u32) -> Vec<u8> {
    let script = Script::new(xid, &[], &[Part::Inline(600)]);
    message(xid, 0, 16, &script.call_stream())
}

#[test]
fn a_peer_that_takes_no_replies_starves_no_other_peer() {
    let mut scene = Scene::new();
    // 64 slots has the server, so that its replies would hold all of them.
    for xid in 0..200 {
        scene.raw.send(&long_echo(1000 + xid));
        scene.world.step();
        if xid % 16 == 0 {
            scene.others_are_served();
        }
    }
    scene.others_are_served();
    // What waited for a slot is answered, in order, as soon as the peer takes what it is owed.
    let mut xid = 1000;
    while scene.raw_at_server().is_some() && xid < 1200 {
        let answer = scene.answer();
        assert_eq!(answer[..4], u32::to_be_bytes(xid));
        xid += 1;
    }
    scene.others_are_served();
}

#[test]
fn a_call_does_not_overtake_one_that_waits_for_a_slot() {
    if !HAS_ACKS {
        return;
    }
    let mut plan = Plan::default();
    plan.serve.send.slots = 16;
    let mut scene = Scene::with(&plan);
    for _ in 0..3 {
        // Neither peer takes its replies, until a call of the raw one waits.
        let script = Script::new(1, &[], &[Part::Inline(600)]);
        for _ in 0..8 {
            scene.world.call(0, scene.good, &script).expect("a credit");
        }
        scene.world.turn_client(0);
        while scene.world.servers[0].audit().send.held < 8 {
            scene.world.turn_servers();
        }
        let mut xids = 1000..;
        let mut call = |scene: &mut Scene| {
            scene.raw.send(&long_echo(xids.next().expect("a number")));
            scene.world.turn_servers();
            scene.world.servers[0].audit().receives_waiting
        };
        while call(&mut scene) == 0 {}
        // The good peer takes its replies and reports it. The server learns that slots are free,
        // and of one more call, in one turn.
        (0..50).for_each(|_| scene.world.turn_client(0));
        assert_eq!(call(&mut scene), 2, "it waits behind the other");
        for xid in 1000..xids.start {
            assert_eq!(scene.answer()[..4], u32::to_be_bytes(xid), "in the order of the calls");
        }
        assert_eq!(scene.world.check_all(), 8);
        while scene.world.servers[0].audit().send.held > 0 {
            scene.turns(1);
        }
    }
}

#[test]
fn a_peer_that_receives_nothing_for_too_long_is_closed() {
    if !HAS_ACKS {
        return;
    }
    let mut plan = Plan::default();
    plan.serve.connections.send_timeout = "50ms".into();
    let mut scene = Scene::with(&plan);
    let victim = scene.raw_at_server().expect("it is connected");
    for xid in 0..40 {
        scene.raw.send(&long_echo(xid));
        scene.world.step();
    }
    for _ in 0..40 {
        scene.world.now += 1_000_000;
        scene.world.step();
    }
    assert_eq!(scene.raw_at_server(), Some(victim), "it has 50 ms");
    scene.others_are_served();
    scene.world.now += 50_000_000;
    scene.world.step();
    let closed = scene.world.servers[0].handler().closed.clone();
    assert_eq!(closed, [(victim, CloseReason::NotTaking)]);
    scene.others_are_served();
}

#[test]
fn a_peer_that_receives_slowly_is_not_closed() {
    let mut plan = Plan::default();
    plan.serve.connections.send_timeout = "50ms".into();
    let mut scene = Scene::with(&plan);
    for xid in 0..100 {
        scene.raw.send(&long_echo(xid));
        scene.world.now += 20_000_000;
        scene.turns(2);
    }
    assert!(scene.raw_at_server().is_some(), "each reply is taken within the time");
    scene.others_are_served();
}

#[test]
fn a_peer_that_floods_its_connection_is_closed() {
    let mut scene = Scene::new();
    // A continuation without a group; a reply without a call, at a server that makes no calls.
    for bad in [continuation(9, 3, &[0; 16]), message(0x1234, 1, 16, &[0; 16])] {
        let victim = scene.raw_at_server().expect("it is connected");
        for _ in 0..200 {
            scene.raw.send(&bad);
            scene.turns(2);
        }
        let closed = scene.world.servers[0].handler().closed.last().copied();
        let flood = Fatal::ControlFlood { messages: 129, limit: 128 };
        assert_eq!(closed, Some((victim, CloseReason::Protocol(flood))));
        scene.others_are_served();
        scene.meet();
        scene.others_are_served();
    }
}

#[test]
fn a_peer_that_abandons_groups_repeatedly_is_closed_and_their_buffers_are_free() {
    let mut scene = Scene::new();
    let victim = scene.raw_at_server().expect("it is connected");
    for xid in 0..200 {
        // Each ends the one before.
        scene.raw.send(&initial(xid, 2, &rpc(xid)));
        scene.turns(2);
    }
    let closed = scene.world.servers[0].handler().closed.last().copied();
    let flood = Fatal::ControlFlood { messages: 129, limit: 128 };
    assert_eq!(closed, Some((victim, CloseReason::Protocol(flood))));
    scene.others_are_served();
    assert_eq!(scene.world.servers[0].audit().receives_parked, 0);
}

// wire.md E34, W16
#[test]
fn a_report_about_a_reply_that_was_never_sent_is_not_answered() {
    let mut scene = Scene::new();
    let bad = rpcrdma_xdr::MsgId { xid: 7, dir: rpcrdma_xdr::MsgType::Reply, seq: 0 };
    let report = ReptErr { bad, lead: None, info: ReptInfo::BadCont };
    scene.raw.send(&optional(7, Optional::ReptErr(report), &[]));
    scene.turns(50);
    assert_eq!(scene.raw.recv(), None);
    scene.raw.send(&echo(8));
    assert_eq!(scene.answer()[..4], 8_u32.to_be_bytes(), "it goes on");
}

/// The words that an RPC call begins with.
fn rpc(xid: u32) -> Vec<u8> {
    [xid.to_be_bytes(), 0_u32.to_be_bytes()].concat()
}

#[test]
fn a_message_longer_than_a_receive_ends_only_its_connection() {
    let mut scene = Scene::new();
    scene.raw.send(&vec![1; (4 << 10) + (64 << 10) + 1]);
    scene.turns(20);
    assert!(scene.raw.is_lost());
    scene.others_are_served();
    scene.meet();
    scene.others_are_served();
}

/// A server with eight send slots.
fn eight_slots() -> Plan {
    let mut plan = Plan::default();
    plan.serve.send.slots = 8;
    plan.serve.send.signal_every = 4;
    plan.serve.connections.call_transmissions_max = 4;
    plan.serve.connections.response_transmissions_max = 4;
    plan
}

/// A server with eight send slots, of which a raw peer that takes nothing holds as many as it may.
fn besieged() -> Scene {
    let mut scene = Scene::with(&eight_slots());
    let parts = [Part::Inline(900)];
    for xid in 1..=9 {
        let script = Script::new(xid, &[], &parts);
        scene.raw.send(&message(xid, 0, 16, &script.call_stream()));
    }
    // The raw peer is not polled from here on.
    for _ in 0..20 {
        scene.world.step();
    }
    let audit = scene.world.servers[0].audit();
    assert_eq!((audit.send.free, audit.receives_waiting), (1, 2), "{audit:?}");
    scene
}

impl Scene {
    /// Lets the server sleep where it can, and returns how often it did, of so many turns.
    fn sleeps(&mut self, turns: u64) -> u64 {
        let count = |scene: &Scene| scene.world.servers[0].handle().stats().sleeps;
        let before = count(self);
        for _ in 0..turns {
            self.world.step();
            self.world.servers[0].wait(Duration::ZERO);
        }
        count(self) - before
    }
}

/// Receives are posted in chains, and one that waits for the others kept the shard awake for many
/// turns, on a processor that its client may need for the answer.
#[test]
fn a_shard_that_has_answered_posts_its_receives_and_sleeps() {
    let mut scene = Scene::with(&eight_slots());
    scene.others_are_served();
    while scene.world.turn_servers() {}
    let server = &mut scene.world.servers[0];
    let before = server.handle().stats().sleeps;
    server.wait(Duration::ZERO);
    assert_eq!(server.handle().stats().sleeps - before, 1);
}

#[test]
fn a_shard_sleeps_while_messages_of_a_peer_that_takes_nothing_wait() {
    if !HAS_ACKS {
        return;
    }
    let mut scene = besieged();
    assert!(scene.sleeps(200) > 100, "nothing can be done");
    scene.others_are_served();
    scene.turns(100);
    assert_eq!(scene.world.servers[0].audit().receives_waiting, 0, "it takes them now");
    scene.others_are_served();
}

#[test]
fn a_shard_sleeps_and_answers_others_while_an_answer_made_elsewhere_waits() {
    if !HAS_ACKS {
        return;
    }
    let mut scene = Scene::with(&eight_slots());
    let script = |seed, len| Script::new(seed, &[], &[Part::Inline(len)]);
    scene.raw.send(&message(1, 0, 16, &script(1, 20).order(Order::Elsewhere).call_stream()));
    scene.turns(5);
    for xid in 2..=8 {
        scene.raw.send(&message(xid, 0, 16, &script(xid, 900).call_stream()));
    }
    for _ in 0..20 {
        scene.world.step();
    }
    let cookie = scene.world.call(0, scene.good, &script(9, 20).order(Order::Elsewhere));
    cookie.expect("a credit");
    scene.world.until("it is there", |world| world.servers[0].handler().elsewhere.len() == 2);
    assert_eq!(scene.world.servers[0].audit().send.free, 1);
    // That of the raw peer first, for which no slot is free.
    let handle = scene.world.servers[0].handle().clone();
    for (ticket, finished) in scene.world.servers[0].handler().elsewhere.drain(..) {
        handle.finish(ticket, finished).expect("there is room");
    }
    scene.world.finish()[0].check();
    assert!(scene.sleeps(200) > 100, "nothing can be done");
    assert_eq!(scene.world.servers[0].audit().answers, 1, "the first waits");
    let mut answers = Vec::new();
    for _ in 0..200 {
        scene.turns(1);
        answers.extend(scene.raw.recv().map(|bytes| bytes[3]));
    }
    answers.sort_unstable();
    assert_eq!(answers, [1, 2, 3, 4, 5, 6, 7, 8], "all of them, once it takes them");
    scene.others_are_served();
}

// RFC 8166 4.5.4
#[test]
fn a_dropped_ticket_answers_its_call() {
    let mut scene = Scene::new();
    for xid in 1..=40 {
        scene.raw.send(&unanswered(xid, 16));
        scene.world.quiesce();
        let ticket = scene.world.servers[0].handler().never.pop().expect("a ticket");
        if xid % 2 == 0 {
            drop(ticket);
        } else {
            std::thread::spawn(move || drop(ticket)).join().expect("it drops a ticket");
        }
        let answer = scene.answer();
        let (header, len) = Header::decode(&answer).expect("a header");
        assert_eq!((header.xid, header.body), (xid, Body::Msg(ChunkLists::EMPTY)));
        // REPLY, MSG_ACCEPTED, AUTH_NONE, SYSTEM_ERR.
        let reply: Vec<u8> = [xid, 1, 0, 0, 0, 5].into_iter().flat_map(u32::to_be_bytes).collect();
        assert_eq!(answer[len..], reply);
    }
    let stats = scene.world.servers[0].handle().stats();
    assert_eq!((stats.refusals_dropped, stats.refusals_sent), (40, 40));
    assert_eq!(stats.calls_received - stats.replies_sent, 40, "they are no replies");
    // What is answered is answered once.
    scene.raw.send(&unanswered(50, 16));
    scene.world.quiesce();
    let ticket = scene.world.servers[0].handler().never.pop().expect("a ticket");
    let now = scene.world.now;
    let answered = scene.world.servers[0].turn(now).resume(ticket, |reply| reply.send());
    assert!(answered.is_ok());
    scene.answer();
    scene.turns(50);
    assert!(scene.raw.recv().is_none());
    assert_eq!(scene.world.servers[0].audit().peers.len(), 2);
    scene.others_are_served();
}

#[test]
fn a_ticket_dropped_for_a_peer_that_receives_nothing_waits() {
    let mut scene = Scene::with(&eight_slots());
    scene.raw.send(&unanswered(1, 16));
    scene.turns(5);
    for xid in 2..=8 {
        let script = Script::new(xid, &[], &[Part::Inline(900)]);
        scene.raw.send(&message(xid, 0, 16, &script.call_stream()));
    }
    for _ in 0..20 {
        scene.world.step();
    }
    drop(scene.world.servers[0].handler().never.pop().expect("a ticket"));
    assert!(scene.sleeps(200) > 100, "nothing can be done");
    scene.others_are_served();
    let mut answers = 0;
    for _ in 0..200 {
        scene.turns(1);
        if let Some(answer) = scene.raw.recv() {
            answers += u32::from(answer.ends_with(&[0, 0, 0, 5]));
        }
    }
    assert_eq!(answers, 1);
}

#[test]
fn reports_that_have_left_do_not_count_as_waiting() {
    let net = net();
    // Of the reports that are due, two are posted, and the others wait.
    let shallow = || {
        let checked = CheckedProvider::new(net.clone(), Arc::default());
        checked.weaker(|caps| caps.send_depth = 2)
    };
    let (mut world, _good) = World::pair(&shallow, &Plan::default());
    let mut raw = RawPeer::sized(&net, 1, 16);
    raw.connect(world.at);
    while !raw.is_connected() {
        world.step();
        raw.turn().expect("there is room for it");
    }
    raw.send(&properties(0x99, 16));
    let mut bad = echo(1);
    bad[12..16].copy_from_slice(&9_u32.to_be_bytes());
    // Six are under way all the time, and more come in all than may wait. 128 invalid messages in a
    // row would end the connection.
    let (mut sent, mut answered) = (0, 0);
    while answered < 100 {
        let closed = &world.servers[0].handler().closed;
        assert!(raw.is_connected(), "{closed:?} after {answered} reports");
        while sent < answered + 6 && raw.send(&bad) {
            sent += 1;
        }
        world.step();
        raw.turn().expect("it is connected");
        answered += std::iter::from_fn(|| raw.recv()).count();
    }
    assert!(world.servers[0].handler().closed.is_empty());
}
