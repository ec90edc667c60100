//! No allocation for an RPC, on either side, in every form of message.
//!
//! The debug build counts as well as the release build; `tests/run release` does it there.

mod session;

use rpcrdma::{
    Answer, Call, CallBuilder, Client, Completion, ConnectionId, Fabric, Handler, Incoming, Loan,
    Provider, Reply, Shard, Sink, Turn, Want,
};
use rpcrdma_config::Raw;
use rpcrdma_mempool::RegisteredBytes;
use rpcrdma_tests::alloc::{Counting, count};
use rpcrdma_tests::device::device;
use rpcrdma_tests::opener::{Open, Time};
use rpcrdma_tests::setup::suited;
use rpcrdma_tests::suite::explicit::only_base;
use rpcrdma_tests::world::small;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Answers as the first word of a call says, without a copy and without an allocation of its own.
#[derive(Default)]
struct Server {
    source: Option<RegisteredBytes>,
    /// Segments that were taken, until the next turn.
    taken: [Option<Loan>; 16],
    calls: u64,
}

const ECHO: u32 = 0;
const WRITE: u32 = 1;
const READ: u32 = 2;

impl Handler for Server {
    fn on_call<'a>(&mut self, mut call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        self.calls += 1;
        let mut reader = call.reader();
        let (what, len) = (reader.u32().expect("a word"), reader.u32().expect("a word"));
        match what {
            ECHO => {
                let mut left = len as usize;
                while left > 0 {
                    let part = reader.some(left).expect("as many bytes as it says");
                    left -= part.len();
                    reply.payload().put_fixed(part);
                }
            }
            WRITE => {
                assert_eq!(placed_len(&call), len);
                if let Some(place) = self.taken.iter_mut().find(|place| place.is_none())
                    && call.placed().len() > 0
                {
                    *place = call.take(0, 0).ok();
                }
                reply.payload().put_u32(len);
            }
            _ => {
                let bytes = self.source.as_ref().expect("the first turn prepared it");
                reply.payload().place(bytes.slice(0..len as usize).expect("within the buffer"));
                reply.payload().put_u32(7);
            }
        }
        reply.send()
    }

    fn on_turn(&mut self, turn: &mut Turn<'_>) {
        if self.source.is_none() {
            self.source = turn.buffer().map(RegisteredBytes::new);
        }
        for place in &mut self.taken {
            if let Some(loan) = place.take() {
                turn.release(loan);
            }
        }
    }
}

fn placed_len(message: &Incoming<'_>) -> u32 {
    message.placed().map(|item| item.len()).sum()
}

/// A client, a server and what the client writes from.
struct Pair<P: Provider = Fabric> {
    client: Client<P>,
    server: Shard<P, Server>,
    peer: ConnectionId,
    source: RegisteredBytes,
    /// Memory for results, as long as no call has it.
    sinks: Vec<Loan>,
    time: Time,
    now: u64,
    window: usize,
}

/// What one side of one kind of call costs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Cost {
    client: u64,
    server: u64,
}

impl Pair {
    fn new(window: usize) -> Pair {
        Pair::with(&Fabric::new, window, |_| {})
    }

    /// Where nothing is placed by Send and nothing continued.
    fn explicit(window: usize, version: &str) -> Pair {
        Pair::with(&Fabric::new, window, explicit(version))
    }
}

/// Nothing is placed by Send and nothing continued.
fn explicit(version: &str) -> impl Fn(&mut Raw) {
    move |raw| {
        only_base(raw);
        raw.protocol.version = version.into();
    }
}

impl<P: Provider> Pair<P> {
    fn with(open: Open<'_, P>, window: usize, change: impl Fn(&mut Raw)) -> Pair<P> {
        let mut raw = small();
        raw.app.bulk.length = "1MiB".into();
        raw.connections.credits = 64;
        raw.connections.credits_requested = 64;
        raw.connections.calls_max = 32;
        raw.send.slots = 512;
        raw.receive.spares = 64;
        raw.app.bulk.count = 40;
        change(&mut raw);
        let device = open.open();
        let config = suited(&device, &raw);
        let (engine, mut control) =
            rpcrdma::Engine::without_threads(device, config).expect("an engine");
        let at = control.listen(open.at()).expect("a port");
        let mut server = engine.shard(Server::default()).expect("a server");
        let mut client = engine.client().expect("a client");
        let id = client.begin_connect(at).expect("an attempt");
        let source = client.turn(1).buffer().expect("a buffer");
        let time = open.time();
        let mut patience = time.patience();
        let mut now = 1;
        let peer = loop {
            now = time.behind(now);
            control.step(std::time::Duration::ZERO);
            server.poll_once(now);
            client.poll(now, |done| panic!("no call was made: {done:?}"));
            if let Some(outcome) = client.connected(id) {
                break outcome.expect("a connection");
            }
            assert!(patience.is_left(), "they connect");
        };
        let sinks = std::iter::from_fn(|| client.turn(now).buffer()).take(32).collect();
        let source = RegisteredBytes::new(source);
        Pair { client, server, peer, source, sinks, time, now, window }
    }

    /// Makes `calls` calls, as many at a time as the window says, and counts both sides apart.
    fn run(
        &mut self,
        calls: usize,
        make: impl Fn(&mut CallBuilder<'_>, &RegisteredBytes, &mut Vec<Loan>),
        check: impl Fn(&mut Completion<'_>, &mut Vec<Loan>),
    ) -> Cost {
        let mut cost = Cost::default();
        let (mut made, mut done) = (0, 0);
        while done < calls {
            self.now = self.time.behind(self.now);
            assert!(self.now < 1 << 40, "calls are answered");
            let Pair { client, server, peer, now, window, source, sinks, .. } = self;
            cost.client += count(|| {
                while made < calls && made - done < *window {
                    let Ok(mut call) = client.call(*peer, made as u64) else { break };
                    make(&mut call, source, sinks);
                    if call.submit().is_err() {
                        break;
                    }
                    made += 1;
                }
                client.poll(*now, |mut completion| {
                    check(&mut completion, sinks);
                    done += 1;
                });
            });
            cost.server += count(|| {
                server.poll_once(*now);
            });
        }
        cost
    }

    /// As [`Pair::run`], after a warm-up.
    fn measure(
        &mut self,
        make: impl Fn(&mut CallBuilder<'_>, &RegisteredBytes, &mut Vec<Loan>),
        check: impl Fn(&mut Completion<'_>, &mut Vec<Loan>),
    ) {
        self.run(200, &make, &check);
        let calls = self.server.handler().calls;
        let cost = self.run(1_000, &make, &check);
        assert_eq!(self.server.handler().calls - calls, 1_000);
        assert_eq!(cost, Cost::default(), "allocations in a thousand calls");
    }
}

fn echo(len: u32) -> impl Fn(&mut CallBuilder<'_>, &RegisteredBytes, &mut Vec<Loan>) {
    move |call, _, _| {
        call.payload().put_u32(ECHO);
        call.payload().put_u32(len);
        let bytes = [5; 1024];
        let mut left = len as usize;
        while left > 0 {
            let part = left.min(bytes.len());
            call.payload().put_fixed(&bytes[..part]);
            left -= part;
        }
        call.reply_payload_max(len + 8);
    }
}

fn write(len: u32) -> impl Fn(&mut CallBuilder<'_>, &RegisteredBytes, &mut Vec<Loan>) {
    move |call, source, _| {
        call.payload().put_u32(WRITE);
        call.payload().put_u32(len);
        call.payload().place(source.slice(0..len as usize).expect("within the buffer"));
    }
}

fn read(len: u32) -> impl Fn(&mut CallBuilder<'_>, &RegisteredBytes, &mut Vec<Loan>) {
    move |call, _, _| {
        call.payload().put_u32(READ);
        call.payload().put_u32(len);
        call.want(Want { len_min: 0, len_max: len });
    }
}

fn read_into(len: u32) -> impl Fn(&mut CallBuilder<'_>, &RegisteredBytes, &mut Vec<Loan>) {
    move |call, _, sinks| {
        call.payload().put_u32(READ);
        call.payload().put_u32(len);
        let mut sink = Sink::new();
        for _ in 0..2 {
            sink.push(sinks.pop().expect("two for each call")).expect("room for two");
        }
        call.want_into(Want { len_min: 0, len_max: len }, sink);
    }
}

fn received_into(len: u32) -> impl Fn(&mut Completion<'_>, &mut Vec<Loan>) {
    move |done, sinks| {
        assert_eq!(placed_len(done.result().expect("a reply")), len);
        sinks.extend(done.take_sink(0).expect("it comes back").into_pieces());
    }
}

fn echoed(len: u32) -> impl Fn(&mut Completion<'_>, &mut Vec<Loan>) {
    move |done, _| {
        let reply = done.result().expect("a reply");
        assert_eq!(reply.payload().map(<[u8]>::len).sum::<usize>(), 8 + len as usize);
    }
}

fn received(len: u32) -> impl Fn(&mut Completion<'_>, &mut Vec<Loan>) {
    move |done, _| assert_eq!(placed_len(done.result().expect("a reply")), len)
}

#[test]
fn an_inline_call_allocates_nothing() {
    for window in [1, 16] {
        let mut pair = Pair::new(window);
        for len in [0, 64, 512, 4_000] {
            pair.measure(echo(len), echoed(len));
        }
    }
}

#[test]
fn continued_payload_allocates_nothing() {
    let mut pair = Pair::new(2);
    pair.measure(echo(100_000), echoed(100_000));
}

#[test]
fn a_placed_write_allocates_nothing() {
    for (len, window) in [(4_096, 1), (4_096, 8), (60_000, 4)] {
        let mut pair = Pair::new(window);
        pair.measure(write(len), received(0));
    }
}

#[test]
fn a_placed_read_allocates_nothing() {
    for (len, window) in [(4_096, 1), (4_096, 8), (60_000, 4)] {
        let mut pair = Pair::new(window);
        pair.measure(read(len), received(len));
    }
}

#[test]
fn continued_bulk_allocates_nothing() {
    let len = 256 << 10;
    let mut pair = Pair::new(3);
    pair.measure(write(len), received(0));
    pair.measure(read(len), received(len));
}

#[test]
fn a_call_that_is_fetched_allocates_nothing() {
    for (version, window) in [("two", 1), ("two", 8), ("one", 4)] {
        let mut pair = Pair::explicit(window, version);
        for len in [5_000, 60_000] {
            pair.measure(write(len), received(0));
        }
        assert!(pair.server.handle().stats().rdma_reads > 1_000);
    }
}

#[test]
fn a_result_that_is_written_allocates_nothing() {
    for (version, window) in [("two", 1), ("two", 8), ("one", 4)] {
        let mut pair = Pair::explicit(window, version);
        for len in [5_000, 60_000] {
            pair.measure(read(len), received(len));
            pair.measure(read_into(len), received_into(len));
        }
        assert!(pair.server.handle().stats().rdma_writes > 1_000);
    }
}

#[test]
fn a_long_call_and_a_long_reply_allocate_nothing() {
    for (version, window) in [("two", 1), ("two", 4), ("one", 4)] {
        let mut pair = Pair::explicit(window, version);
        for len in [5_000, 60_000] {
            pair.measure(echo(len), echoed(len));
        }
        assert!(pair.client.handle().stats().exposures > 1_000);
    }
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn calls_over_a_device_allocate_nothing() {
    let mut pair = Pair::with(&device(), 8, |_| {});
    pair.measure(echo(64), echoed(64));
    pair.measure(write(60_000), received(0));
    pair.measure(read(60_000), received(60_000));
    drop(pair);
    let mut pair = Pair::with(&device(), 4, explicit("two"));
    pair.measure(write(20_000), received(0));
    pair.measure(read_into(20_000), received_into(20_000));
    pair.measure(echo(20_000), echoed(20_000));
    let stats = pair.client.handle().stats();
    assert!(stats.exposures > 1_000, "memory windows were bound");
}

#[test]
fn allocations_are_counted() {
    assert_eq!(count(|| drop(std::hint::black_box(vec![1_u8; 9]))), 2, "one there and one back");
    let elsewhere = count(|| {
        std::thread::scope(|scope| {
            scope.spawn(|| drop(std::hint::black_box(vec![1_u8; 1 << 20])));
        });
    });
    assert!(elsewhere > 0, "the thread itself is made by this one");
}
