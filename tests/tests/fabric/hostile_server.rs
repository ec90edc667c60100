//! A server that breaks the rules: every call of the client completes once.

use rpcrdma::provider::ConnectId;
use rpcrdma::{CallError, ConnectionId, Want};
use rpcrdma_proto::Violation;
use rpcrdma_tests::raw_peer::{RawPeer, message, optional, properties, transmission};
use rpcrdma_tests::script::Random;
use rpcrdma_tests::world::{Plan, World};
use rpcrdma_xdr::numbers::{VERSION_TWO, opttype};
use rpcrdma_xdr::{
    Array, Body, Header, Loc, Mismatch, MsgId, MsgItem, MsgType, Optional, RdmaError, ReptErr,
    ReptInfo, Tbsns, XmtCont, XmtResp,
};

use super::net::{Net, net};

/// A client and a raw server.
struct Scene {
    world: World<Net>,
    raw: RawPeer<Net>,
    net: Net,
    peer: ConnectionId,
}

impl Scene {
    fn new() -> Scene {
        Scene::with(&Plan::default())
    }

    fn with(plan: &Plan) -> Scene {
        let net = net();
        let mut world = World::new(&|| net.clone(), plan);
        let (raw, peer) = meet(&net, &mut world);
        Scene { world, raw, net, peer }
    }

    /// Connects again if the connection is lost.
    fn replace_connection(&mut self) {
        if self.raw.is_lost() || self.world.clients[0].handle().connections() == 0 {
            self.raw.disconnect();
            for _ in 0..100 {
                self.world.step();
                let _ = self.raw.turn();
            }
            (self.raw, self.peer) = meet(&self.net, &mut self.world);
        }
    }

    /// A call, as it arrives at the raw server: its transaction id.
    fn call(&mut self) -> u32 {
        self.call_for(20_000)
    }

    /// As [`Scene::call`], for a result of so many bytes at most.
    fn call_for(&mut self, len_max: u32) -> u32 {
        let mut call = self.world.clients[0].call(self.peer, 1).expect("a call");
        call.payload().put_fixed(&[9; 40]);
        call.want(Want { len_min: 0, len_max });
        call.submit().expect("a credit");
        for _ in 0..1_000 {
            self.turn();
            if let Some(arrived) = self.raw.recv() {
                let (header, _) = Header::decode(&arrived).expect("a header");
                return header.xid;
            }
        }
        panic!("the call does not arrive");
    }

    /// One turn of both. Returns how the calls that are over have ended.
    fn turn(&mut self) -> Vec<Result<usize, ()>> {
        let mut done = Vec::new();
        self.world.now += 1_000;
        let now = self.world.now;
        self.world.clients[0].poll(now, |completion| {
            assert_eq!(completion.cookie(), 1);
            let reply = completion.result().map_err(|_| ());
            done.push(reply.map(|reply| {
                let placed = reply.placed().flat_map(|item| item.segments().flatten());
                assert!(placed.copied().all(|byte| byte == 0x44), "only what was sent");
                reply.payload().map(<[u8]>::len).sum()
            }));
        });
        let _ = self.raw.turn();
        done
    }

    /// Says something in answer to a call and, if that did not end it, that it has failed. Returns
    /// how it has ended.
    fn answer(&mut self, xid: u32, words: &[Vec<u8>]) -> Result<usize, ()> {
        for words in words {
            self.raw.send(words);
        }
        let mut done = Vec::new();
        for turn in 0..120 {
            done.extend(self.turn());
            if turn == 40 && done.is_empty() && !self.raw.is_lost() {
                let body = Body::Error(RdmaError::BadHeader);
                let header = Header { xid, vers: VERSION_TWO, credit: 16, body };
                self.raw.send(&transmission(&header, &[]));
            }
            if turn == 80 && done.is_empty() {
                self.raw.disconnect();
            }
        }
        while self.raw.recv().is_some() {}
        let [end] = done.as_slice() else { panic!("{} completions", done.len()) };
        *end
    }
}

fn meet(net: &Net, world: &mut World<Net>) -> (RawPeer<Net>, ConnectionId) {
    let mut raw = RawPeer::new(net);
    let at = raw.listen();
    let id: ConnectId = world.clients[0].begin_connect(at).expect("there is room");
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

fn rpc(xid: u32) -> Vec<u8> {
    [&xid.to_be_bytes()[..], &1_u32.to_be_bytes(), &[0; 16]].concat()
}

/// A reply with a placed item of 100 bytes.
fn placed(xid: u32) -> Vec<u8> {
    let loc = Loc::Tbsn { offset: 0, segments: Tbsns::from_slice(&[0]) };
    let items = [MsgItem { disp: 24, length: 100, loc }];
    let resp = XmtResp { dp: Array::from_slice(&items), count: 1, pslen: 24 };
    let mut bytes = optional(xid, Optional::XmtResp(resp), &rpc(xid));
    bytes.resize(4096, 0);
    bytes.resize(4096 + 100, 0x44);
    bytes
}

#[test]
fn a_repeated_call_takes_another_form_if_its_form_was_refused() {
    let mut scene = Scene::new();
    let send = |scene: &mut Scene| {
        let mut call = scene.world.clients[0].call(scene.peer, 7).expect("a call");
        call.payload().put_fixed(&[9; 40]);
        call.want(Want { len_min: 0, len_max: 20_000 });
        call.submit().expect("a credit");
        let mut arrived = None;
        for _ in 0..1_000 {
            scene.world.now += 1_000;
            scene.world.clients[0].poll(scene.world.now, |_| ());
            let _ = scene.raw.turn();
            arrived = arrived.or_else(|| scene.raw.recv());
        }
        arrived.expect("the call arrives")
    };
    let first = send(&mut scene);
    let (header, _) = Header::decode(&first).expect("a header");
    assert!(matches!(header.body, Body::Optional(Optional::XmtReq(_))), "{header:?}");
    let body = Body::Error(RdmaError::InvalOption);
    scene
        .raw
        .send(&transmission(&Header { xid: header.xid, vers: VERSION_TWO, credit: 16, body }, &[]));
    let mut ends = Vec::new();
    for _ in 0..100 {
        scene.world.now += 1_000;
        scene.world.clients[0].poll(scene.world.now, |done| ends.push(done.result().err()));
        let _ = scene.raw.turn();
    }
    assert!(matches!(ends[..], [Some(why)] if why.is_repeatable()), "{ends:?}");
    let second = send(&mut scene);
    let (header, _) = Header::decode(&second).expect("a header");
    assert!(matches!(header.body, Body::Msg(_)), "{header:?}");
}

// [RTR] 5.4; wire.md E39
#[test]
fn an_incomplete_reply_fails_its_call_and_is_reported() {
    let mut plan = Plan::default();
    plan.call.connections.group_timeout = "50ms".into();
    let mut scene = Scene::with(&plan);
    let xid = scene.call_for(200_000);
    let item = [MsgItem { disp: 0, length: 0, loc: Loc::NoItem }];
    let resp = XmtResp { dp: Array::from_slice(&item), count: 2, pslen: 24 };
    scene.raw.send(&optional(xid, Optional::XmtResp(resp), &rpc(xid)));
    for _ in 0..20 {
        assert_eq!(scene.turn(), []);
    }
    scene.world.now += 50_000_000;
    let mut ends = Vec::new();
    for _ in 0..40 {
        scene.world.now += 1_000;
        scene.world.clients[0].poll(scene.world.now, |done| ends.push(done.result().err()));
        let _ = scene.raw.turn();
    }
    let missing = Violation::Missing { expect: 1, current: 0 };
    assert_eq!(ends, [Some(CallError::BadReply(missing))]);
    let report = scene.raw.recv().expect("a report");
    let (header, _) = Header::decode(&report).expect("a header");
    let Body::Optional(Optional::ReptErr(report)) = header.body else { panic!("{header:?}") };
    let first = MsgId { xid, dir: MsgType::Reply, seq: 0 };
    let info = ReptInfo::BadSeq(Mismatch { expect: 1, current: 0 });
    assert_eq!(report, ReptErr { bad: first, lead: Some(first), info });
    assert!(scene.raw.is_lost(), "it has had the time to receive that");
    assert_eq!(scene.world.clients[0].handle().connections(), 0);
}

#[test]
fn a_correct_reply_is_accepted() {
    let mut scene = Scene::new();
    let xid = scene.call();
    assert_eq!(scene.answer(xid, &[placed(xid)]), Ok(24));
}

#[test]
fn every_flipped_bit_of_a_reply_is_survived() {
    let mut scene = Scene::new();
    let mut taken = 0;
    for bit in 0..112 * 8 {
        scene.replace_connection();
        let xid = scene.call();
        let mut words = placed(xid);
        words[bit / 8] ^= 1 << (bit % 8);
        taken += usize::from(scene.answer(xid, &[words]).is_ok());
    }
    assert!(taken > 50, "what is not looked at may change: {taken}");
    assert!(taken < 400, "what is looked at may not: {taken}");
    assert_eq!(scene.world.clients[0].handle().stats().buffers_leaked, 0);
}

#[test]
fn every_truncated_reply_is_survived() {
    let mut scene = Scene::new();
    for len in (0..130).chain([4095, 4096, 4097, 4195]) {
        scene.replace_connection();
        let xid = scene.call();
        let words = placed(xid)[..len].to_vec();
        assert_eq!(scene.answer(xid, &[words]), Err(()), "{len} bytes");
    }
}

#[test]
fn a_second_reply_is_ignored() {
    let mut scene = Scene::new();
    for _ in 0..40 {
        let xid = scene.call();
        let words = [placed(xid), placed(xid), message(xid, 1, 16, &[]), placed(xid ^ 1)];
        assert_eq!(scene.answer(xid, &words), Ok(24));
    }
    assert!(scene.world.clients[0].handle().stats().transmissions_ignored >= 120);
    assert!(!scene.raw.is_lost());
}

#[test]
fn replies_of_many_kinds_are_survived() {
    let mut scene = Scene::new();
    let mut random = Random(17);
    for _ in 0..600 {
        scene.replace_connection();
        let xid = scene.call();
        let count = random.below(5);
        let words: Vec<Vec<u8>> = (0..count).map(|_| anything(xid, &mut random)).collect();
        let _ = scene.answer(xid, &words);
    }
    assert_eq!(scene.world.clients[0].handle().stats().buffers_leaked, 0);
}

/// A transmission that could be part of something.
fn anything(xid: u32, random: &mut Random) -> Vec<u8> {
    let xid = if random.below(8) == 0 { random.below(1 << 30) } else { xid };
    let numbers = [random.below(10), random.below(10)];
    let (loc, length) = match random.below(4) {
        0 => (Loc::TooShort, 0),
        1 => (Loc::NoItem, 0),
        _ => {
            let segments = Tbsns::from_slice(&numbers[..1 + random.below(2) as usize]);
            (Loc::Tbsn { offset: 4 * random.below(3), segments }, 1 + random.below(20_000))
        }
    };
    let item = MsgItem { disp: 4 * random.below(9), length, loc };
    let items = [item, item];
    let items = &items[..random.choose(&[0, 1, 1, 1, 2])];
    let count = random.below(4);
    let resp = XmtResp { dp: Array::from_slice(items), count, pslen: 24 };
    let xnum = random.below(4);
    let itype = random.choose(&[opttype::XMTRESP, opttype::XMTREQ]);
    let mut bytes = match random.below(4) {
        0 => optional(xid, Optional::XmtCont(XmtCont { xnum, itype, pslen: 24 }), &[0x44; 24]),
        1 => message(xid, random.below(2), random.below(40), &[0; 16]),
        _ => optional(xid, Optional::XmtResp(resp), &rpc(xid)),
    };
    // Whatever is placed is in the segments; what is poison was never sent.
    bytes.resize(4096, 0x44);
    bytes.resize(4096 + random.below(60_000) as usize, 0x44);
    bytes
}

/// A call is cancelled while its reply arrives: the rest of the reply is received and dropped, and
/// all that the call held is free then.
#[test]
fn a_call_given_up_while_its_reply_arrives_receives_all_of_it() {
    for is_late in [false, true] {
        let mut scene = Scene::new();
        let until = scene.world.now + 100_000_000;
        let mut call = scene.world.clients[0].call(scene.peer, 1).expect("a call");
        call.payload().put_fixed(&[9; 40]);
        call.want(Want { len_min: 0, len_max: 200_000 });
        if is_late {
            call.deadline(until);
        }
        let handle = call.handle();
        call.submit().expect("a credit");
        let arrived = (0..1_000).find_map(|_| {
            scene.turn();
            scene.raw.recv()
        });
        let (header, _) = Header::decode(arrived.as_ref().expect("a call")).expect("a header");
        let xid = header.xid;
        assert_eq!(xid, handle.xid());
        let items = [MsgItem { disp: 24, length: 0, loc: Loc::NoItem }];
        let resp = XmtResp { dp: Array::from_slice(&items), count: 2, pslen: 24 };
        scene.raw.send(&optional(xid, Optional::XmtResp(resp), &rpc(xid)));
        for _ in 0..20 {
            scene.world.now += 1_000;
            scene.world.clients[0].poll(scene.world.now, |done| panic!("{:?}", done.result()));
            let _ = scene.raw.turn();
        }
        assert_eq!(scene.world.clients[0].shard().audit().receives_parked, 1);
        match is_late {
            true => scene.world.now = until,
            false => assert!(scene.world.clients[0].cancel(handle)),
        }
        assert_eq!(scene.turn(), [Err(())]);
        let audit = scene.world.clients[0].shard().audit();
        assert_eq!((audit.receives_parked, audit.peers[0].credits_in_flight), (1, 1));
        let rest = XmtCont { xnum: 1, itype: opttype::XMTRESP, pslen: 4 };
        scene.raw.send(&optional(xid, Optional::XmtCont(rest), &[0; 4]));
        (0..20).for_each(|_| assert!(scene.turn().is_empty()));
        let audit = scene.world.clients[0].shard().audit();
        assert_eq!((audit.receives_parked, audit.peers[0].credits_in_flight), (0, 0));
        assert_eq!((audit.calls, audit.reply_reserved), (0, 0));
        let stats = scene.world.clients[0].handle().stats();
        assert_eq!((stats.replies_late, stats.violations), (1, 0));
        assert_eq!(
            (stats.calls_cancelled, stats.call_deadlines),
            match is_late {
                true => (0, 1),
                false => (1, 0),
            }
        );
        assert!(!scene.raw.is_lost());
        let xid = scene.call();
        assert_eq!(scene.answer(xid, &[placed(xid)]), Ok(24));
    }
}
