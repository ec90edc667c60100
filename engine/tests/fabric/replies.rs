//! Replies that cannot be sent, and tickets of another shard: the right to answer is kept.

use std::time::Duration;

use rpcrdma::control::Control;
use rpcrdma::{
    Address, Answer, Call, CallError, CallRefused, Client, Engine, Execution, Fabric, Handler,
    Refusal, Reply, Shard, Ticket, Turn,
};
use rpcrdma_suite::script::{Order, Script};
use rpcrdma_suite::setup::{checked, small};
use rpcrdma_suite::world::{Plan, World};

/// What a handler does with a reply that was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Refuse,
    Defer,
    SendAgain,
}

/// Tries to send more than a message holds.
struct TooLong {
    then: Then,
    reasons: Vec<CallRefused>,
    tickets: Vec<Ticket>,
}

impl Handler for TooLong {
    fn on_call<'a>(&mut self, _: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        reply.payload().put_fixed(&[7; 600_000]);
        let (reply, why) = reply.try_send().map(drop).expect_err("the slots are fewer");
        self.reasons.push(why);
        match self.then {
            Then::Refuse => reply.refuse(),
            Then::SendAgain => reply.send(),
            Then::Defer => {
                let (answer, ticket) = reply.defer();
                self.tickets.push(ticket);
                answer
            }
        }
    }

    fn on_turn(&mut self, turn: &mut Turn<'_>) {
        for ticket in self.tickets.drain(..) {
            let answered = turn.resume(ticket, |mut reply| {
                reply.payload().put_u32(8);
                reply.send()
            });
            answered.expect("a slot is free");
        }
    }
}

/// A server and a client on one thread.
struct Pair {
    server: Shard<Fabric, TooLong>,
    client: Client<Fabric>,
    control: Control<Fabric>,
    _engine: Engine<Fabric>,
    now: u64,
}

impl Pair {
    fn new(then: Then) -> Pair {
        let made = Engine::without_threads(Fabric::new(), checked(&small()));
        let (engine, control) = made.expect("an engine");
        let handler = TooLong { then, reasons: Vec::new(), tickets: Vec::new() };
        let server = engine.shard(handler).expect("a shard");
        let client = engine.client().expect("a client");
        Pair { server, client, control, _engine: engine, now: 0 }
    }

    fn step(&mut self, results: &mut Vec<Result<u32, CallError>>) {
        self.now += 1000;
        self.control.step(Duration::ZERO);
        self.server.poll_once(self.now);
        self.client.poll(self.now, |done| {
            results.push(done.result().map(|reply| {
                let mut reader = reply.reader();
                reader.u32().expect("a word")
            }));
        });
    }
}

#[test]
fn a_reply_that_was_not_sent_can_be_refused_or_deferred() {
    for then in [Then::Refuse, Then::Defer, Then::SendAgain] {
        let mut pair = Pair::new(then);
        let any: Address = "127.0.0.1:0".parse().expect("an address");
        let at = pair.control.listen(any).expect("a port");
        let attempt = pair.client.begin_connect(at).expect("there is room");
        let mut results = Vec::new();
        let peer = (0..1000).find_map(|_| {
            pair.step(&mut results);
            pair.client.connected(attempt)
        });
        let peer = peer.expect("it ends").expect("a connection");
        for count in 1..4 {
            pair.client.call(peer, 0).expect("a slot").submit().expect("a short call");
            let mut steps = 0;
            while results.len() < count && steps < 1000 {
                pair.step(&mut results);
                steps += 1;
            }
        }
        let refused = Err(CallError::Rejected(Refusal::BadHeader, Execution::Unknown));
        let expected = if then == Then::Defer { Ok(8) } else { refused };
        assert_eq!(results, [expected; 3], "{then:?}");
        assert_eq!(pair.server.handler().reasons, [CallRefused::PayloadTooLong; 3]);
        let stats = pair.server.handle().stats();
        let refusals = [stats.refusals_handler, stats.refusals_unsent, stats.replies_sent];
        let expected = match then {
            Then::Refuse => [3, 0, 0],
            Then::SendAgain => [0, 3, 0],
            Then::Defer => [0, 0, 3],
        };
        assert_eq!(refusals, expected, "{then:?}");
    }
}

#[test]
fn a_turn_of_another_shard_returns_the_ticket() {
    let fabric = Fabric::new();
    let plan = Plan { servers: 2, clients: 2, ..Plan::default() };
    let mut world = World::new(&|| fabric.clone(), &plan);
    // One on each shard, in the same place there.
    let call = Script::new(1, &[], &[]).order(Order::Never);
    for client in 0..2 {
        let peer = world.connect(client);
        world.call_when_possible(client, peer, &call);
    }
    let has_one = |shard: &mut Shard<Fabric, _>| {
        let service: &mut rpcrdma_suite::service::Service = shard.handler();
        service.never.len() == 1
    };
    world.until("they are there", |world| world.servers.iter_mut().all(has_one));
    let now = world.now;
    let ticket = world.servers[0].handler().never.pop().expect("it has one");
    let mut other = world.servers[1].turn(now);
    assert!(!other.is_open(&ticket));
    let ticket = other.resume(ticket, |_| unreachable!("it is void")).expect_err("another's");
    let mut own = world.servers[0].turn(now);
    assert!(own.is_open(&ticket));
    own.resume(ticket, |reply| reply.send()).expect("it is its own");
    world.until("one is answered", |world| world.open_calls() == 1);
    assert_eq!(world.servers[1].handler().never.len(), 1);
}
