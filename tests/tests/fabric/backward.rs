//! The backward direction: a server calls its clients, on the connections that they made.

use std::collections::BTreeMap;
use std::time::Duration;

use rpcrdma::control::Control;
use rpcrdma::provider::ConnectId;
use rpcrdma::{
    Address, Admission, Answer, Call, CallError, CallRefused, CloseReason, Completion,
    ConnectionId, Engine, Fabric, Handler, PeerLimits, Reply, Shard, Ticket, Turn,
};
use rpcrdma_config::Raw;
use rpcrdma_tests::world::{checked, is_passing, small};

/// Calls its peer as often and as long as its fields state, and answers what it is asked.
#[derive(Default)]
struct Node {
    peer: Option<ConnectionId>,
    /// The calls to make, each with this number of bytes.
    to_make: u32,
    len: u32,
    /// Calls under way, by cookie.
    open: BTreeMap<u64, u32>,
    open_max: usize,
    results: Vec<Result<(), CallError>>,
    /// Numbers of the calls that were answered.
    answered: Vec<u32>,
    refuses: bool,
    /// Tickets of calls that are to be answered later.
    tickets: Option<Vec<Ticket>>,
    closed: Vec<CloseReason>,
    cookies: u64,
}

impl Handler for Node {
    fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        let mut reader = call.reader();
        let (Ok(number), Ok(len)) = (reader.u32(), reader.u32()) else { return reply.refuse() };
        if self.refuses {
            return reply.refuse();
        }
        self.answered.push(number);
        if let Some(tickets) = &mut self.tickets {
            let (answer, ticket) = reply.defer();
            tickets.push(ticket);
            return answer;
        }
        reply.payload().put_u32(number);
        reply.payload().put_opaque(&bytes_of(number, len));
        reply.send()
    }

    fn on_reply(&mut self, done: Completion<'_>) {
        let number = self.open.remove(&done.cookie()).expect("completed once");
        self.results.push(done.result().map(|reply| {
            let mut reader = reply.reader();
            assert_eq!(reader.u32(), Ok(number));
        }));
    }

    fn on_turn(&mut self, turn: &mut Turn<'_>) {
        let Some(peer) = self.peer else { return };
        while self.to_make > 0 {
            let number = self.to_make;
            match make(turn, peer, self.cookies, number, self.len) {
                Ok(()) => {
                    self.open.insert(self.cookies, number);
                    self.open_max = self.open_max.max(self.open.len());
                    self.cookies += 1;
                    self.to_make -= 1;
                }
                Err(why) if is_passing(why) => return,
                Err(CallRefused::Stopping) => return,
                Err(why) => panic!("{why}"),
            }
        }
    }

    fn on_connect(
        &mut self,
        peer: ConnectionId,
        _: Option<ConnectId>,
        _: &PeerLimits,
    ) -> Admission {
        self.peer = Some(peer);
        Admission::Accept
    }

    fn on_close(&mut self, _: ConnectionId, why: CloseReason) {
        self.peer = None;
        self.closed.push(why);
    }
}

fn make(
    turn: &mut Turn<'_>,
    peer: ConnectionId,
    cookie: u64,
    number: u32,
    len: u32,
) -> Result<(), CallRefused> {
    let mut call = turn.call(peer, cookie)?;
    call.payload().put_u32(number);
    call.payload().put_u32(len);
    call.payload().put_fixed(&bytes_of(number, len));
    call.reply_payload_max(len + 64);
    call.submit()
}

fn bytes_of(number: u32, len: u32) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(number) >> 3) as u8).collect()
}

struct Pair {
    server: Shard<Fabric, Node>,
    client: Shard<Fabric, Node>,
    controls: [Control<Fabric>; 2],
    _engines: [Engine<Fabric>; 2],
    now: u64,
}

impl Pair {
    fn new(change: impl FnOnce(&mut Raw)) -> Pair {
        let mut raw = small();
        change(&mut raw);
        let fabric = Fabric::new();
        let engine = || Engine::without_threads(fabric.clone(), checked(&raw)).expect("an engine");
        let ((serving, mut of_server), (calling, of_client)) = (engine(), engine());
        let server = serving.shard(Node::default()).expect("a shard");
        let mut client = calling.shard(Node::default()).expect("a shard");
        let at = of_server
            .listen("127.0.0.1:0".parse::<Address>().expect("an address"))
            .expect("a port");
        client.connect(at).expect("an attempt");
        let (controls, _engines) = ([of_server, of_client], [serving, calling]);
        let mut pair = Pair { server, client, controls, _engines, now: 0 };
        pair.until(|server, client| server.peer.is_some() && client.peer.is_some());
        pair
    }

    fn until(&mut self, is_so: impl Fn(&Node, &Node) -> bool) {
        for _ in 0..100_000 {
            if is_so(self.server.handler(), self.client.handler()) {
                return;
            }
            self.turn();
        }
        panic!("not in so many turns");
    }

    fn turn(&mut self) {
        self.now += 1_000;
        self.controls.iter_mut().for_each(|control| control.step(Duration::ZERO));
        self.server.poll_once(self.now);
        self.client.poll_once(self.now);
    }

    /// Both are stopping.
    fn until_stopped(&mut self) {
        for _ in 0..100_000 {
            if self.server.is_stopped() && self.client.is_stopped() {
                return;
            }
            self.turn();
        }
        panic!("not stopped after so many turns");
    }

    /// Has both sides make calls, and waits until all are over.
    fn exchange(&mut self, forward: u32, backward: u32, len: u32) {
        for (node, count) in [(self.client.handler(), forward), (self.server.handler(), backward)] {
            (node.to_make, node.len) = (count, len);
        }
        let is_done = |node: &Node| node.to_make == 0 && node.open.is_empty();
        self.until(|server, client| is_done(server) && is_done(client));
    }
}

#[test]
fn a_server_calls_on_the_connection_that_its_client_has_made() {
    let mut pair = Pair::new(|_| {});
    pair.exchange(0, 1, 100);
    assert_eq!(pair.client.handler().answered, [1]);
    assert_eq!(pair.server.handler().results, [Ok(())]);
    // Every length that fits one message, and the lengths around a word.
    for len in [0, 1, 2, 3, 4, 5, 1000, 3900] {
        pair.exchange(1, 1, len);
    }
    assert_eq!(pair.server.handler().results, [Ok(()); 9]);
    assert_eq!(pair.client.handler().results, [Ok(()); 8]);
}

#[test]
fn receives_cover_both_directions_at_the_same_time() {
    let mut pair = Pair::new(|_| {});
    pair.exchange(500, 500, 1000);
    for node in [pair.server.handler(), pair.client.handler()] {
        assert_eq!(node.results, [Ok(()); 500]);
        assert_eq!(node.answered.len(), 500);
        assert_eq!(node.closed, []);
        assert_eq!(node.open_max, 16, "as many at a time as were granted");
    }
}

#[test]
fn a_client_that_accepts_no_calls_states_it() {
    let mut pair = Pair::new(|_| {});
    pair.client.handler().refuses = true;
    pair.exchange(1, 1, 10);
    let results = pair.server.handler().results.clone();
    assert!(matches!(results[..], [Err(CallError::Rejected(..))]), "{results:?}");
    assert_eq!(pair.client.handler().results, [Ok(())], "its own calls go on");
}

/// Who stops waits for the answers to its own calls, and drops those of others: two shards that
/// stop together would wait for each other.
#[test]
fn shards_that_stop_together_do_not_wait_for_each_other() {
    // Which is stopped first, and how many turns later the other is.
    for (server_first, between) in [(true, 0), (true, 1), (true, 5), (false, 0), (false, 1)] {
        let mut pair = Pair::new(|raw| raw.connections.stop_timeout = "1h".into());
        pair.exchange(1, 1, 10);
        let handles = [pair.server.handle().clone(), pair.client.handle().clone()];
        let [first, second] = if server_first { [0, 1] } else { [1, 0] };
        for node in [pair.client.handler(), pair.server.handler()] {
            (node.to_make, node.len) = (8, 100);
        }
        handles[first].stop();
        for _ in 0..between {
            pair.turn();
        }
        handles[second].stop();
        pair.until_stopped();
        for node in [pair.client.handler(), pair.server.handler()] {
            assert!(node.open.is_empty(), "each call is over: {:?}", node.results);
            let is_honest = |result: &Result<(), CallError>| {
                matches!(result, Ok(()) | Err(CallError::ConnectionLost(..)))
            };
            assert!(node.results.iter().all(is_honest), "{:?}", node.results);
        }
    }
}

/// The same with calls of both sides on their way when both stop: whatever was delivered is
/// answered.
#[test]
fn calls_delivered_before_both_ends_stop_are_answered() {
    let mut pair = Pair::new(|raw| raw.connections.stop_timeout = "1h".into());
    pair.exchange(1, 1, 10);
    for node in [pair.client.handler(), pair.server.handler()] {
        (node.to_make, node.len, node.tickets) = (4, 100, Some(Vec::new()));
    }
    pair.until(|server, client| server.answered.len() == 5 && client.answered.len() == 5);
    pair.server.handle().stop();
    pair.client.handle().stop();
    for _ in 0..100 {
        pair.turn();
    }
    assert!(!pair.server.is_stopped() && !pair.client.is_stopped(), "both owe four answers");
    let now = pair.now;
    for shard in [&mut pair.server, &mut pair.client] {
        for ticket in shard.handler().tickets.take().expect("four tickets") {
            let answered = shard.turn(now).resume(ticket, |mut reply| {
                reply.payload().put_u32(4);
                reply.refuse()
            });
            assert!(answered.is_ok(), "it is open");
        }
    }
    pair.until_stopped();
    for node in [pair.client.handler(), pair.server.handler()] {
        let answered = node.results.iter().filter(|it| matches!(it, Err(CallError::Rejected(..))));
        assert_eq!(answered.count(), 4, "{:?}", node.results);
    }
}

mod support {
    //! The property Backward Request Support (`PROP_BRS`) of a client, and how a server uses it.

    use rpcrdma::{BackwardSupport, RefuseCalls, SendError};
    use rpcrdma_tests::script::{Part, Random, Script, unreduced_reply, write_parts};
    use rpcrdma_tests::service::{Service, Source};
    use rpcrdma_tests::setup::large;
    use rpcrdma_tests::suite::explicit::only_base;

    use super::*;

    /// A server that calls its client as scripts say.
    #[derive(Default)]
    struct Caller {
        peer: Option<ConnectionId>,
        limits: Option<PeerLimits>,
        source: Source,
        open: BTreeMap<u64, Script>,
        /// How many items were placed in the calls and in the replies.
        placed: (u32, usize),
    }

    impl Handler for Caller {
        fn on_call<'a>(&mut self, _: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
            reply.refuse()
        }

        fn on_turn(&mut self, turn: &mut Turn<'_>) {
            self.source.prepare(turn);
        }

        fn on_connect(
            &mut self,
            peer: ConnectionId,
            _: Option<ConnectId>,
            of: &PeerLimits,
        ) -> Admission {
            (self.peer, self.limits) = (Some(peer), Some(*of));
            Admission::Accept
        }

        fn on_reply(&mut self, done: Completion<'_>) {
            let script = self.open.remove(&done.cookie()).expect("completed once");
            let reply = done.result().unwrap_or_else(|why| panic!("{why}: {script:?}"));
            let stream = unreduced_reply(reply, &script);
            let placed = u32::from_be_bytes(stream[4..8].try_into().expect("four bytes"));
            assert!(stream == script.reply_stream(placed), "as its script says: {script:?}");
            self.placed.0 += placed;
            self.placed.1 += reply.placed().len();
        }
    }

    struct Both<H: Handler> {
        server: Shard<Fabric, Caller>,
        client: Shard<Fabric, H>,
        controls: [Control<Fabric>; 2],
        _engines: [Engine<Fabric>; 2],
        now: u64,
    }

    impl<H: Handler> Both<H> {
        fn new(raw: &Raw, handler: H) -> Both<H> {
            let fabric = Fabric::new();
            let engine = || Engine::without_threads(fabric.clone(), checked(raw)).expect("one");
            let ((serving, mut of_server), (calling, of_client)) = (engine(), engine());
            let server = serving.shard(Caller::default()).expect("a shard");
            let mut client = calling.shard(handler).expect("a shard");
            let at = of_server
                .listen("127.0.0.1:0".parse::<Address>().expect("an address"))
                .expect("a port");
            client.connect(at).expect("an attempt");
            let (controls, _engines) = ([of_server, of_client], [serving, calling]);
            let mut both = Both { server, client, controls, _engines, now: 0 };
            both.until(|server| server.peer.is_some() && server.source.is_ready());
            both
        }

        fn until(&mut self, is_so: impl Fn(&Caller) -> bool) {
            for _ in 0..100_000 {
                if is_so(self.server.handler()) {
                    return;
                }
                self.now += 1_000;
                self.controls.iter_mut().for_each(|control| control.step(Duration::ZERO));
                self.server.poll_once(self.now);
                self.client.poll_once(self.now);
            }
            panic!("not in so many turns");
        }

        /// The server calls its client.
        fn call(&mut self, cookie: u64, script: &Script) -> Result<(), CallRefused> {
            let caller = self.server.handler();
            let peer = caller.peer.expect("a connection");
            let slices: Vec<_> = (script.call.iter().enumerate())
                .map(|(index, part)| caller.source.slice(script.seed, index, part.len()))
                .collect();
            let mut turn = self.server.turn(self.now);
            let mut call = turn.call(peer, cookie)?;
            call.payload().put_fixed(&script.head());
            write_parts(call.payload(), script.seed, &script.call, |payload, index, _| {
                payload.place(slices[index].clone());
            });
            for want in &script.wants {
                call.want(*want);
            }
            call.reply_payload_max(script.reply_payload_max());
            call.submit()?;
            self.server.handler().open.insert(cookie, script.clone());
            Ok(())
        }
    }

    fn takes(backward: BackwardSupport) -> Service {
        let mut service = Service::default();
        service.backward = Some(backward);
        service
    }

    #[test]
    fn a_server_learns_which_calls_its_client_accepts() {
        for backward in [BackwardSupport::None, BackwardSupport::Inline, BackwardSupport::General] {
            let mut both = Both::new(&small(), takes(backward));
            let limits = both.server.handler().limits.expect("a connection");
            assert_eq!(limits.backward, backward);
        }
        let mut both = Both::new(&small(), RefuseCalls);
        let limits = both.server.handler().limits.expect("a connection");
        assert_eq!(limits.backward, BackwardSupport::None, "it takes none");
        let refused = both.call(1, &Script::new(1, &[], &[])).expect_err("the client rejects it");
        assert_eq!(refused, CallRefused::Protocol(SendError::NoBackward));
        assert!(
            refused.to_string().contains("the peer does not accept backward calls"),
            "{refused}"
        );
        assert!(!is_passing(refused));
        assert_eq!(both.server.handle().stats().calls_sent, 0);
    }

    #[test]
    fn only_short_calls_go_to_a_client_that_takes_them_inline() {
        let [_, continued, _] = ways();
        let mut both = Both::new(&continued, takes(BackwardSupport::Inline));
        for (len, fits) in [(20, true), (20_000, false), (21, true)] {
            let (long, short) = ([Part::Inline(len)], [Part::Inline(9)]);
            for script in [Script::new(1, &long, &short), Script::new(2, &short, &long)] {
                let called = both.call(1, &script);
                assert_eq!(called.is_ok(), fits, "{called:?}");
                both.until(|server| server.open.is_empty());
            }
        }
    }

    /// Among the ways of a message.
    const CONTINUED: usize = 1;
    const CHUNKS: usize = 2;

    /// The ways of a message: placed and continued; continued; by chunks.
    fn ways() -> [Raw; 3] {
        let (placed, mut continued, mut base) = (large(1 << 20), large(1 << 20), large(1 << 20));
        continued.features.placement = false;
        continued.receive.placement.count = 0;
        only_base(&mut base);
        base.app.bulk.count = 24;
        [placed, continued, base]
    }

    #[test]
    fn calls_of_every_kind_go_to_a_client_that_takes_them() {
        for (way, raw) in ways().iter().enumerate() {
            let mut both = Both::new(raw, takes(BackwardSupport::General));
            let mut scripts = Vec::new();
            for part in [Part::Bulk, Part::Inline] {
                for part in [9, 5_000, 20_000, 60_000].map(part) {
                    let parts = [part];
                    scripts.push(Script::new(3, &parts, &[]));
                    scripts.push(Script::new(4, &[], &parts));
                    scripts.push(Script::new(5, &parts, &parts));
                }
            }
            let mut random = Random(7);
            scripts.extend((0..100).map(|_| random.script(60_000)));
            for (cookie, script) in (0..).zip(&scripts) {
                both.call(cookie, script).unwrap_or_else(|why| panic!("{way} {why}: {script:?}"));
                both.until(|server| server.open.is_empty());
            }
            assert_eq!(both.client.handler().calls, scripts.len() as u64);
            let placed = both.server.handler().placed;
            let (server, client) = (both.server.handle().stats(), both.client.handle().stats());
            assert!(way == CONTINUED || (placed.0 > 20 && placed.1 > 20), "{placed:?}");
            let (groups, moved) = (
                server.groups_completed + client.groups_completed,
                client.rdma_reads + client.rdma_writes,
            );
            assert!(if way == CHUNKS { groups == 0 && moved > 100 } else { groups > 10 });
        }
    }
}
