//! The XIDs of engines: servers recognize repeated calls by them, so later shards and engines do
//! not use them again.

use std::collections::HashSet;
use std::time::Duration;

use rpcrdma::{
    Address, Answer, Call, CallRefused, Client, Clock, Engine, Fabric, Handler, Reply, SendError,
};
use rpcrdma_config::Config;
use rpcrdma_suite::setup::{LAST_XIDS, checked, small};

/// Answers each call with its xid.
struct Mirror;

impl Handler for Mirror {
    fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        let xid: &[u8; 4] =
            call.contiguous().and_then(|words| words.first_chunk()).expect("a short call");
        reply.payload().put_fixed(xid);
        reply.send()
    }
}

fn served(fabric: &Fabric) -> (Engine<Fabric>, Address) {
    let mut engine = Engine::new(fabric.clone(), configured()).expect("an engine");
    engine.start(|_| Mirror).expect("a server");
    let at =
        engine.listen("127.0.0.1:0".parse::<Address>().expect("an address")).expect("a listener");
    (engine, at)
}

fn configured() -> Config {
    let mut raw = small();
    raw.connections.max = 16;
    checked(&raw)
}

/// The xid of the first call of a client.
fn first_xid(client: &mut Client<Fabric>, at: Address) -> u32 {
    let (clock, peer) = (Clock::new(), client.connect(at).expect("a connection"));
    client.call(peer, 0).expect("a call").submit().expect("a short call goes");
    seen_xid(client, &clock)
}

/// The xid of the open call of a client, as the server sees it.
fn seen_xid(client: &mut Client<Fabric>, clock: &Clock) -> u32 {
    let mut xid = None;
    while xid.is_none() {
        let was_busy = client.poll(clock.now(), |done| {
            let reply = done.result().expect("a reply");
            let seen = reply.reader().u32().expect("the xid");
            assert_eq!(done.xid(), seen, "as the server sees it");
            xid = Some(seen);
        });
        if !was_busy {
            client.wait(Duration::from_millis(1));
        }
    }
    xid.expect("the loop ends with one")
}

#[test]
fn every_engine_and_shard_begins_with_its_own_xid() {
    let fabric = Fabric::new();
    let (_server, at) = served(&fabric);
    let mut xids = HashSet::new();
    for _engine in 0..4 {
        let engine = Engine::new(fabric.clone(), configured()).expect("an engine");
        for _shard in 0..2 {
            let mut client = engine.client().expect("a client");
            let xid = first_xid(&mut client, at);
            assert!(xids.insert(xid), "{xid:#x} was used before");
            assert_eq!(xid >> 31, 0, "the bit of the client's role is kept");
        }
    }
}

#[test]
fn a_seeded_run_repeats_the_same_xids() {
    let fabric = Fabric::new();
    let (_server, at) = served(&fabric);
    let run = |seed: u64| {
        let engine = Engine::new(fabric.clone(), configured()).expect("an engine");
        engine.seed_xids(seed);
        let (mut one, mut other) =
            (engine.client().expect("a client"), engine.client().expect("a client"));
        [first_xid(&mut one, at), first_xid(&mut other, at)]
    };
    let [one, other] = run(5);
    assert_eq!(run(5), [one, other]);
    assert_ne!(one, other, "shards of one engine differ");
    assert_ne!(run(6), [one, other]);
}

#[test]
fn a_call_that_cannot_have_an_xid_keeps_its_own() {
    let fabric = Fabric::new();
    let (_server, at) = served(&fabric);
    let engine = Engine::new(fabric, configured()).expect("an engine");
    let mut client = engine.client().expect("a client");
    let (clock, peer) = (Clock::new(), client.connect(at).expect("a connection"));
    let (min, max) = (16, (1 << 31) - 1);
    let mut call = client.call(peer, 0).expect("a call");
    let own = call.handle().xid();
    for xid in [0, min - 1, max + 1, u32::MAX] {
        let why = SendError::XidNotOurs { xid, min, max };
        assert_eq!(call.xid(xid).err(), Some(CallRefused::Protocol(why)));
        assert_eq!(call.handle().xid(), own);
    }
    call.submit().expect("a short call goes");
    assert_eq!(seen_xid(&mut client, &clock), own);
    for xid in [min, max] {
        let mut call = client.call(peer, 0).expect("a call");
        call.xid(xid).expect("it is free").handle();
        call.submit().expect("a short call goes");
        assert_eq!(seen_xid(&mut client, &clock), xid);
    }
}

#[test]
fn xids_wrap_with_open_calls_and_none_is_used_twice() {
    let fabric = Fabric::new();
    let (_server, at) = served(&fabric);
    let engine = Engine::new(fabric, configured()).expect("an engine");
    engine.seed_xids(LAST_XIDS);
    let mut client = engine.client().expect("a client");
    let peers = [(); 3].map(|()| client.connect(at).expect("a connection"));
    let (clock, mut begun, mut xids) = (Clock::new(), 0, Vec::new());
    while xids.len() < 1_000 {
        // As many as go at a time, over all connections in turn.
        while begun < 1_000 {
            let Ok(call) = client.call(peers[begun % peers.len()], begun as u64) else { break };
            if call.submit().is_err() {
                break;
            }
            begun += 1;
        }
        let was_busy = client.poll(clock.now(), |done| {
            let cookie = done.cookie();
            let reply = done.result().expect("a reply");
            xids.push((reply.reader().u32().expect("the xid"), cookie));
        });
        if !was_busy {
            client.wait(Duration::from_millis(1));
        }
    }
    let generations = |bits: u32| xids.iter().map(move |(xid, _)| xid >> bits);
    // 16 calls take four bits, and the role the highest.
    assert_eq!(generations(4).max(), Some((1 << 27) - 1), "the last generation");
    assert!(generations(4).all(|generation| generation != 0), "control messages have those");
    assert!(generations(4).any(|generation| generation == 1), "the first behind it");
    let distinct: HashSet<u32> = xids.iter().map(|(xid, _)| *xid).collect();
    assert_eq!(distinct.len(), 1_000, "no xid is used twice");
    let mut cookies: Vec<u64> = xids.iter().map(|(_, cookie)| *cookie).collect();
    cookies.sort_unstable();
    assert!(cookies.iter().copied().eq(0..1_000), "each call is answered once");
}
