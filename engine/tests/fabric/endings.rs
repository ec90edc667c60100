//! The end of calls and shards with scarce resources: nothing is lost, and nothing takes long.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rpcrdma::control::Control;
use rpcrdma::provider::interposed::{Hooks, Interposed, Promised, QueueHooks};
use rpcrdma::provider::{
    CmEvent, ConnParam, ConnectionManager, CqError, Provider, QueueAttr, Queues, Requests, SendWr,
    Taken, Waker, WcBatch, WorkCompletion,
};
use rpcrdma::{
    Address, Answer, Call, CallError, Client, Config, ConnectionId, Engine, Fabric, Handler, Reply,
    Shard,
};
use rpcrdma_config::Raw;
use rpcrdma_suite::script::{Part, Script};
use rpcrdma_suite::world::{Plan, World};

/// Answers with as many bytes as the call says, or more than there are slots for.
struct Fill(Vec<u8>);

impl Handler for Fill {
    fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        let Ok(len) = call.reader().u32() else { return reply.refuse() };
        let bytes = self.0.get(..len as usize).unwrap_or(&self.0);
        reply.payload().put_opaque(bytes);
        reply.send()
    }
}

/// A server and a client on one thread, stepped by hand.
struct Pair {
    server: Shard<Fabric, Fill>,
    client: Client<Fabric>,
    control: Control<Fabric>,
    _engine: Engine<Fabric>,
    now: u64,
}

impl Pair {
    fn new(change: impl FnOnce(&mut Raw)) -> (Pair, ConnectionId) {
        let mut raw = Raw::default();
        change(&mut raw);
        let config = Config::try_from(raw).expect("the change is allowed");
        let (engine, mut control) =
            Engine::without_threads(Fabric::new(), config).expect("a fabric is always there");
        let server = engine.shard(Fill(vec![7; 1 << 20])).expect("memory for a server");
        let client = engine.client().expect("memory for a client");
        let any: Address = "127.0.0.1:0".parse().expect("an address");
        let address = control.listen(any).expect("the fabric has free ports");
        let mut pair = Pair { server, client, control, _engine: engine, now: 0 };
        let id = pair.client.begin_connect(address).expect("there is room");
        for _ in 0..1000 {
            pair.step(&mut Vec::new());
            if let Some(outcome) = pair.client.connected(id) {
                return (pair, outcome.expect("the server takes it"));
            }
        }
        panic!("no connection after a thousand steps");
    }

    fn step(&mut self, results: &mut Vec<Result<u32, CallError>>) {
        self.now += 1000;
        self.control.step(Duration::ZERO);
        self.server.poll_once(self.now);
        self.client.poll(self.now, |done| {
            results.push(done.result().map(|reply| reply.reader().u32().unwrap_or_default()));
        });
    }

    fn call(&mut self, peer: ConnectionId, len: u32, reply_max: u32) -> Result<u32, CallError> {
        let mut call = self.client.call(peer, 1).expect("nothing else is under way");
        call.payload().put_u32(len);
        call.reply_payload_max(reply_max);
        call.submit().expect("a short call");
        let mut results = Vec::new();
        for _ in 0..1000 {
            self.step(&mut results);
            if let Some(result) = results.pop() {
                return result;
            }
        }
        panic!("no answer after a thousand steps");
    }
}

#[test]
fn a_reply_that_finds_no_slots_fails_its_call() {
    let (mut pair, peer) = Pair::new(|raw| {
        raw.send.slots = 16;
        raw.send.signal_every = 8;
    });
    // Sixteen slots of 8 KiB hold 128 KiB; the reply would need more.
    let result = pair.call(peer, 200_000, 250_000);
    assert!(matches!(result, Err(CallError::Rejected(..))), "{result:?}");
    // All slots are there again.
    assert_eq!(pair.call(peer, 1000, 1100), Ok(1000));
}

#[test]
fn a_shard_stops_at_once_when_nothing_is_open() {
    // Longer than what is copied while posting: the send queue holds the memory unsignaled.
    let (mut pair, peer) = Pair::new(|_| {});
    assert_eq!(pair.call(peer, 1000, 1100), Ok(1000));
    pair.server.handle().stop();
    for _ in 0..100 {
        pair.step(&mut Vec::new());
        if pair.server.is_stopped() {
            return;
        }
    }
    panic!("still running after a hundred steps of a microsecond");
}

#[test]
fn a_send_queue_with_one_message_a_turn_is_never_full_for_ever() {
    // More slots than the send queue has work requests: no lack of slots makes sends signaled.
    let (mut pair, peer) = Pair::new(|raw| raw.send.slots = 1024);
    // Longer than what is copied while posting, and many times what the send queue takes.
    for call in 0..1000 {
        assert_eq!(pair.call(peer, 1000, 1100), Ok(1000), "call {call}");
    }
}

/// A shard with room for `max` connections, and a client that connects at 0 and says nothing.
/// Returns when the shard ends that connection, in milliseconds.
fn end_of_silence(version: &str, max: i64) -> u64 {
    let (fabric, mut raw) = (Fabric::new(), Raw::default());
    raw.protocol.version = version.into();
    raw.connections.max = max;
    raw.connections.connect_timeout = "50ms".into();
    raw.connections.idle_timeout = "200ms".into();
    let config = Config::try_from(raw).expect("the change is allowed");
    let (engine, mut control) = Engine::without_threads(fabric.clone(), config).expect("an engine");
    let mut server = engine.shard(Fill(Vec::new())).expect("memory for a server");
    let any: Address = "127.0.0.1:0".parse().expect("an address");
    let at = control.listen(any).expect("the fabric has free ports");
    let attr = QueueAttr {
        srq_depth: 32,
        cq_depth: 64,
        qp_max: 1,
        send_depth: 8,
        send_sge: 1,
        recv_sge: 1,
    };
    let mut cm = fabric.open_cm().expect("a connection manager");
    let mut queues = fabric.open_queues(&attr).expect("queues");
    let param = ConnParam { private: &[], rnr_retry: 7, send_timeout: None };
    cm.connect(at, &queues.handle(), &param).expect("a queue pair");
    let waker = Waker::new().expect("an eventfd");
    let endpoint = (0..1000).find_map(|_| {
        control.step(Duration::ZERO);
        server.poll_once(0);
        match cm.next(&waker, Duration::ZERO) {
            Some(CmEvent::Connected { endpoint, .. }) => Some(endpoint),
            _ => None,
        }
    });
    let _silent = queues.attach(endpoint.expect("a connection")).expect("a queue pair");
    let is_ended = |ms: &u64| {
        server.poll_once(ms * 1_000_000);
        server.handle().stats().opening_timeouts == 1
    };
    (0..1000).step_by(10).find(is_ended).expect("an end")
}

#[test]
fn a_client_that_says_nothing_keeps_its_place_while_it_may_be_silent_and_no_other_needs_it() {
    assert_eq!(end_of_silence("auto", 2), 250, "as one that is idle");
    assert_eq!(end_of_silence("auto", 1), 50, "the shard is full");
    assert_eq!(end_of_silence("two", 2), 50, "a client of version two states its properties");
    assert_eq!(end_of_silence("one", 2), 250, "one of version one does not");
}

/// A device that reports no completion while it is slow, and counts what is posted meanwhile.
#[derive(Clone, Default)]
struct Slow(Arc<(AtomicBool, AtomicUsize)>);

/// The hooks of a set of queues.
struct SlowQueues {
    slow: Slow,
    /// What was not reported.
    held: VecDeque<WorkCompletion>,
}

impl Slow {
    fn is_on(&self) -> bool {
        self.0.0.load(Ordering::SeqCst)
    }

    fn switch(&self, is_on: bool) {
        self.0.0.store(is_on, Ordering::SeqCst);
    }

    fn posted(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }
}

impl Hooks<Fabric> for Slow {
    type Queues = SlowQueues;
    type Cm = ();

    fn queue_hooks(&self, _: &Fabric, _: &QueueAttr) -> SlowQueues {
        SlowQueues { slow: self.clone(), held: VecDeque::new() }
    }

    fn cm_hooks(&self, _: &Fabric) {}
}

impl<Q: Queues> QueueHooks<Q> for SlowQueues {
    fn poll_cq(&mut self, inner: &mut Q, out: &mut WcBatch) -> Result<(), CqError> {
        let mut batch = WcBatch::new();
        inner.poll_cq(&mut batch)?;
        self.held.extend(batch);
        if !self.slow.is_on() {
            let count = self.held.len().min(out.remaining_capacity());
            out.extend(self.held.drain(..count));
        }
        Ok(())
    }

    fn post_send<'a>(
        &mut self,
        inner: &mut Q,
        qp: Q::Qp,
        wrs: Promised<impl Requests<SendWr<'a>>>,
    ) -> Taken {
        if self.slow.is_on() {
            self.slow.0.1.fetch_add(wrs.requests().len(), Ordering::SeqCst);
        }
        wrs.post_send(inner, qp)
    }
}

#[test]
fn the_end_of_a_connection_is_marked_once_however_long_it_takes() {
    let (fabric, slow) = (Fabric::new(), Slow::default());
    let open = || Interposed::<_, Slow>::new(fabric.clone(), slow.clone());
    let (mut world, peer) = World::pair(&open, &Plan::default());
    world.round(0, peer, &Script::new(1, &[Part::Inline(40)], &[Part::Inline(40)]));
    world.servers.clear();
    slow.switch(true);
    for _ in 0..5 {
        // The time of a check.
        world.now += 10_000_000;
        world.step();
    }
    assert_eq!((world.clients[0].handle().connections(), slow.posted()), (1, 1));
    slow.switch(false);
    world.until("it has ended", |world| world.clients[0].handle().connections() == 0);
    assert_eq!(world.clients[0].handle().stats().buffers_leaked, 0);
}

#[test]
fn a_shard_that_has_as_many_orders_as_it_takes_takes_no_more_until_its_next_turn() {
    let fabric = Fabric::new();
    let (mut world, peer) = World::pair(&|| fabric.clone(), &Plan::default());
    let handle = world.clients[0].handle().clone();
    let taken = (0..5_000).take_while(|_| handle.close(peer)).count();
    assert!((1..5_000).contains(&taken), "{taken}");
    assert!(!handle.close(peer));
    world.turn_client(0);
    assert!(handle.close(peer));
    world.until("both know", |world| {
        world.clients[0].handle().connections() + world.servers[0].handle().connections() == 0
    });
    assert_eq!(world.clients[0].handle().stats().connections_closed, 1);
}
