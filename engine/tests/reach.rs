//! What a handler learns about its callers, and how other threads reach its shard.

use std::net::SocketAddr;
use std::time::Duration;

use rpcrdma_engine::{
    Answer, Call, Config, Engine, Fabric, Handler, RefuseCalls, Reply, ShardHandle,
};

/// Answers with the address that a call came from.
struct Mirror;

impl Handler for Mirror {
    fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        reply.payload().put_opaque(call.address().to_string().as_bytes());
        reply.send()
    }
}

#[test]
fn a_call_says_where_its_caller_is() {
    let (engine, mut control) =
        Engine::without_threads(Fabric::new(), Config::default()).expect("an engine");
    let mut server = engine.shard(Mirror).expect("a shard");
    let mut client = engine.client().expect("a client");
    let at = control.listen("127.0.0.7:0".parse().expect("an address")).expect("a free port");
    let attempt = client.begin_connect(at).expect("room for a connection");
    let (mut now, mut peer, mut seen) = (0, None, None);
    while seen.is_none() {
        now += 1_000;
        control.step(Duration::ZERO);
        server.poll_once(now);
        client.poll(now, |done| {
            let reply = done.result().expect("an answer");
            let mut reader = reply.reader();
            let mut text = vec![0; reader.u32().expect("a length") as usize];
            reader.fixed_into(&mut text).expect("the address");
            seen = Some(String::from_utf8(text).expect("text"));
        });
        if peer.is_none()
            && let Some(outcome) = client.connected(attempt)
        {
            let up = outcome.expect("a connection");
            peer = Some(up);
            client.call(up, 0).and_then(|call| call.submit()).expect("a credit");
        }
    }
    let seen: SocketAddr = seen.and_then(|text| text.parse().ok()).expect("an address");
    assert_eq!(seen.ip(), at.ip());
}

#[test]
fn a_shard_that_was_woken_does_not_sleep() {
    let (engine, _control) =
        Engine::without_threads(Fabric::new(), Config::default()).expect("an engine");
    let mut shard = engine.shard(RefuseCalls).expect("a shard");
    let handle: ShardHandle = shard.handle().clone();
    // Once before the sleep, and once in the middle of it.
    handle.wake();
    shard.wait(Duration::from_secs(3600));
    shard.poll_once(1);
    let waker = std::thread::spawn(move || handle.wake());
    shard.wait(Duration::from_secs(3600));
    waker.join().expect("it only rings");
}
