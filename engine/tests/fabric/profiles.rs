//! Every configuration profile starts an engine that serves.

use std::time::{Duration, Instant};

use rpcrdma::{
    Address, Answer, Call, Client, Clock, ConnectionId, Engine, Fabric, Handler, Reply, Want,
};
use rpcrdma_config::{Config, PROFILES};
use rpcrdma_mempool::RegisteredBytes;
use rpcrdma_suite::script::joined;

/// Answers with the payload of the call, or with bulk for a call that wants some.
#[derive(Default)]
struct Server {
    source: Option<RegisteredBytes>,
}

impl Handler for Server {
    fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        let mut reader = call.reader();
        let len = reader.u32().expect("a word") as usize;
        match &self.source {
            Some(source) if len > 0 => {
                let bulk = source.slice(0..len).expect("within the buffer");
                reply.payload().place(bulk);
            }
            _ => {
                let mut echo = [0; 64];
                reader.fixed_into(&mut echo).expect("as many bytes as are sent");
                reply.payload().put_fixed(&echo);
            }
        }
        reply.send()
    }

    fn on_turn(&mut self, turn: &mut rpcrdma::Turn<'_>) {
        if self.source.is_none() {
            self.source = turn.buffer().map(|mut buffer| {
                buffer.fill(0x3c);
                RegisteredBytes::new(buffer)
            });
        }
    }
}

/// Calls once and returns payload and placed bytes of the reply.
fn call(
    client: &mut Client<Fabric>,
    peer: ConnectionId,
    len: u32,
    bytes: &[u8],
) -> (Vec<u8>, Vec<u8>) {
    let mut call = client.call(peer, 1).expect("a call");
    call.payload().put_u32(len);
    call.payload().put_fixed(bytes);
    if len > 0 {
        call.want(Want { len_min: 0, len_max: len });
    }
    call.submit().expect("a credit");
    let (clock, until) = (Clock::new(), Instant::now() + Duration::from_secs(60));
    let mut over = None;
    while over.is_none() {
        assert!(Instant::now() < until, "the reply comes");
        let busy = client.poll(clock.now(), |done| {
            let reply = done.result().expect("a reply");
            let placed = reply.placed().flat_map(|item| item.segments());
            over = Some((joined(reply.payload()), joined(placed)));
        });
        if !busy {
            client.wait(Duration::from_millis(1));
        }
    }
    over.expect("the loop ends with it")
}

fn serves(name: &str) {
    let config = Config::profile(name).expect("a profile that holds");
    // Real threads on real cores: where others use them, too, an answer takes as long as it takes,
    // and must not be taken for that of a peer that speaks version one only.
    let mut raw = config.raw().clone();
    raw.protocol.negotiation_timeout = "1min".into();
    // Two shards fit a small machine: the memory of a large one is there as far as it is touched.
    // tests/idle_memory.rs has all of it.
    if config.shard_memory_len() > 1 << 30 {
        raw.memory.prefault = false;
        raw.memory.pages = "4K".into();
        raw.memory.lock = "false".into();
    }
    let config = Config::try_from(raw).expect("it holds with more patience");
    let longest = config.connections().rpc_len_max.value() / 2;
    let longest = longest.min(config.app().bulk.len.value() / 2).min(512 << 10) & !4095;
    let fabric = Fabric::from_config(&config).expect("a fabric");
    let mut engine = Engine::new(fabric, config).expect("an engine");
    let handles = engine.start(|_| Server::default()).expect("shards");
    let at = engine.listen("127.0.0.1:0".parse::<Address>().expect("an address")).expect("a port");
    let mut client = engine.client().expect("a client");
    let peer = client.connect(at).expect("a connection");
    for round in 0..100 {
        let (payload, placed) = call(&mut client, peer, 0, &[round; 64]);
        assert_eq!((&payload[8..], placed.len()), (&[round; 64][..], 0));
    }
    for len in [1, 4_000, longest / 4] {
        let (_, placed) = call(&mut client, peer, len, &[0; 4]);
        assert_eq!(placed.len(), len as usize, "{name}: placed");
        assert!(placed.iter().all(|byte| *byte == 0x3c));
    }
    assert_eq!(handles.iter().map(|handle| handle.stats().calls_received).sum::<u64>(), 103);
    // The shard waits for its last reply to be taken: not from a client that is not polled.
    drop(client);
    engine.stop();
}

#[test]
fn every_profile_is_tested_here() {
    assert_eq!(PROFILES.map(|(name, _)| name), ["latency", "storage", "storage-large", "laptop"]);
}

#[test]
fn latency_serves() {
    serves("latency");
}

#[test]
fn storage_serves() {
    serves("storage");
}

#[test]
fn storage_large_serves() {
    serves("storage-large");
}

#[test]
fn laptop_serves() {
    serves("laptop");
}
