//! What a handler learns about its callers, and how other threads reach its shard.

use std::time::{Duration, Instant};

use rpcrdma::onc::{AcceptStatus, ReplyHeader, ResultsError};
use rpcrdma::{
    Address, Answer, Call, Client, Config, ConnectionId, Engine, Fabric, Handler, RefuseCalls,
    Reply, ShardHandle,
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
fn a_call_has_the_address_of_its_caller() {
    let (engine, mut control) =
        Engine::without_threads(Fabric::new(), Config::default()).expect("an engine");
    let mut server = engine.shard(Mirror).expect("a shard");
    let mut client = engine.client().expect("a client");
    let at =
        control.listen("127.0.0.7:0".parse::<Address>().expect("an address")).expect("a free port");
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
    let seen: Address = seen.and_then(|text| text.parse().ok()).expect("an address");
    assert_eq!(seen.origin(), at.origin());
}

#[test]
fn an_address_that_the_provider_does_not_take_is_refused_with_those_it_takes() {
    let mut engine = Engine::new(Fabric::new(), Config::default()).expect("an engine");
    engine.start(|_| RefuseCalls).expect("a shard");
    let mut client = engine.client().expect("a client");
    let at: Address = "shm:/run/store.sock".parse().expect("an address");
    let taken = "the software fabric takes only IP addresses (ADDR:PORT)";
    let said = engine.listen(at).expect_err("no socket").to_string();
    assert_eq!(said, format!("cannot listen on {at}: {taken}"));
    let said = client.connect(at).expect_err("no socket").to_string();
    assert_eq!(said, format!("cannot connect to {at}: {taken}"));
    assert_eq!(client.handle().connections(), 0, "its place is free again");
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

/// Answers with the reply header whose words are the call's.
struct Words;

impl Handler for Words {
    fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        let mut words = call.reader();
        while let Ok(word) = words.u32() {
            reply.payload().put_u32(word);
        }
        reply.send()
    }
}

fn connected() -> (Engine<Fabric>, Client<Fabric>, ConnectionId) {
    let mut engine = Engine::new(Fabric::new(), Config::default()).expect("an engine");
    engine.start(|_| Words).expect("a shard");
    let address =
        engine.listen("127.0.0.8:0".parse::<Address>().expect("an address")).expect("a free port");
    let mut client = engine.client().expect("a client");
    let peer = client.connect(address).expect("a connection");
    (engine, client, peer)
}

#[test]
fn a_client_polls_until_there_is_work_or_the_time_is_over() {
    let (_engine, mut client, peer) = connected();
    let timeout = Duration::from_millis(2);
    let mut start = Instant::now();
    while client.poll_for(timeout, |_| panic!("no call was made")) {
        start = Instant::now();
    }
    assert!(start.elapsed() >= timeout);
    client.call(peer, 5).and_then(|call| call.submit()).expect("a credit");
    let mut cookie = None;
    while cookie.is_none() {
        let minute = Duration::from_secs(60);
        assert!(client.poll_for(minute, |done| cookie = Some(done.cookie())), "no reply came");
    }
    assert_eq!(cookie, Some(5));
}

#[test]
fn the_results_of_a_call_follow_a_header_of_success() {
    let (_engine, mut client, peer) = connected();
    let denied = |header| Err(ResultsError::Denied(header));
    let mismatch = AcceptStatus::ProgramMismatch { low: 2, high: 4 };
    let mut results = |words: &[u32]| {
        let mut call = client.call(peer, 0).expect("a credit");
        words.iter().for_each(|word| call.payload().put_u32(*word));
        call.submit().expect("it is short");
        let mut outcome = None;
        while outcome.is_none() {
            client.poll_for(Duration::from_secs(60), |done| {
                let results = done.result().expect("a reply").results();
                outcome = Some(results.map(|mut results| results.u32().expect("a result")));
            });
        }
        outcome.expect("the loop ends with it")
    };
    assert_eq!(results(&[0, 0, 0, 0, 9]), Ok(9));
    assert_eq!(results(&[0, 6, 4, 7, 0, 9]), Ok(9));
    // The verifier of a denial is left out.
    assert_eq!(results(&[0, 6, 4, 7, 2, 2, 4]), denied(ReplyHeader::accepted(mismatch)));
    assert_eq!(results(&[1, 0, 2, 2]), denied(ReplyHeader::RPC_MISMATCH));
    assert_eq!(results(&[1, 1, 13]), denied(ReplyHeader::AuthError { why: 13 }));
    assert!(matches!(results(&[0, 0]), Err(ResultsError::Header(_))));
}
