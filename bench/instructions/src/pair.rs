//! What is counted: a client and a server on one thread, in virtual time.
//!
//! ```text
//!   client_turn: fill the window, poll ──▶ server_turn: poll ──▶ client_turn ...
//! ```
//! Nothing depends on the machine: no clock is read, keys and transaction ids begin with the same
//! numbers, and no thread waits for another.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use rpcrdma::control::Control;
use rpcrdma::fabric::{DeviceClock, FabricOptions};
use rpcrdma::onc::{CallHeader, ReplyHeader, RpcPrefix};
use rpcrdma::{
    Address, Answer, Call, CallBuilder, Client, ConnectId, ConnectionId, Engine, Fabric, Handler,
    Incoming, Provider, Reply, Session, SessionEvent, SessionOptions, Shard, Want,
};
use rpcrdma_config::{Config, Raw};
use rpcrdma_mempool::RegisteredBytes;
use rpcrdma_verbs::Verbs;
use rpcrdma_verbs::fake::Fake;

use crate::apart::apart;
use crate::cases::{By, Case, Op, Over};

/// What a run counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// Whose turns.
    pub side: Side,
    /// Whether its provider is kept apart, so that it can be left out of the count.
    pub is_apart: bool,
}

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Makes calls.
    Client,
    /// Answers them.
    Server,
}

/// Makes the calls of a case that Rust makes.
pub fn run(counted: Counted, case: Case) {
    match case.over {
        Over::Fabric => {
            let fabric = fabric();
            run_over([fabric.clone(), fabric], counted, case);
        }
        Over::Verbs => run_over(devices(counted.side), counted, case),
    }
}

fn run_over<P: Provider>([clients, servers]: [P; 2], counted: Counted, case: Case) {
    match (counted.is_apart, counted.side) {
        (false, _) => run_by(clients, servers, case),
        (true, Side::Client) => run_by(apart(clients), servers, case),
        (true, Side::Server) => run_by(clients, apart(servers), case),
    }
}

fn run_by<C: Provider, S: Provider>(clients: C, servers: S, case: Case) {
    match case.by {
        By::Client => Pair::<Direct<C>, S>::new(clients, servers, case).run(),
        By::Session => Pair::<Session<C>, S>::new(clients, servers, case).run(),
        By::C => unreachable!("its provider is the library's own"),
    }
}

struct Pair<C: Caller, S: Provider> {
    client: C,
    server: Shard<S, Server>,
    peers: Vec<ConnectionId>,
    /// Whose turn it is: an index of `peers`.
    next: usize,
    case: Case,
    /// What is written.
    source: Option<RegisteredBytes>,
    now: u64,
    sent: u64,
    done: u64,
    // Last, so that they outlive the shards.
    _controls: (Control<C::Over>, Control<S>),
}

impl<C: Caller, S: Provider> Pair<C, S> {
    /// Both providers are the same fabric, or the same device.
    fn new(clients: C::Over, servers: S, case: Case) -> Pair<C, S> {
        let config = config(case);
        let (engine, mut there) = Engine::without_threads(clients, config.clone()).expect("memory");
        engine.seed_xids(1);
        let mut client = engine.client().expect("memory");
        let (engine, mut here) = Engine::without_threads(servers, config).expect("memory");
        let mut server = engine.shard(Server { op: case.op, source: None }).expect("memory");
        let address = match case.over {
            Over::Fabric => "127.0.0.1:0",
            Over::Verbs => "192.0.2.1:0",
        };
        let at = here.listen(address.parse::<Address>().expect("an address")).expect("a port");
        let source = match case.op {
            Op::Null | Op::Echo | Op::TimedEcho => None,
            Op::Write { .. } => client.turn(0).buffer(),
            Op::Read { .. } => server.turn(0).buffer(),
        };
        let source = source.map(RegisteredBytes::new);
        server.handler().source = source.clone();
        let mut now = 0;
        let mut step = |client: &mut C, server: &mut Shard<S, Server>| {
            now += TURN_NS;
            there.step(Duration::ZERO);
            here.step(Duration::ZERO);
            client.poll(now, |_| {});
            server.poll_once(now);
        };
        let mut client = C::new(client, at);
        let mut connect = || {
            client.begin_connect(at);
            let connection = (0..PATIENCE).find_map(|_| {
                step(&mut client, &mut server);
                client.connected()
            });
            connection.expect("a connection in time")
        };
        let peers = (0..case.connections).map(|_| connect()).collect();
        // Credits and properties.
        (0..PATIENCE).for_each(|_| step(&mut client, &mut server));
        let (sent, done) = (0, 0);
        let next = 0;
        Pair {
            client,
            server,
            peers,
            next,
            case,
            source,
            now,
            sent,
            done,
            _controls: (there, here),
        }
    }

    fn run(&mut self) {
        self.calls(WARM_UP);
        begin_part();
        self.calls(CALLS);
        end_part();
    }

    /// Makes so many calls, and waits until they are answered.
    fn calls(&mut self, count: u64) {
        let until = self.done + count;
        let mut patience = 100 * count;
        let mut in_progress = 0;
        while self.done < until {
            self.now += TURN_NS;
            client_turn(self, until);
            in_progress = in_progress.max(self.sent - self.done);
            server_turn(&mut self.server, self.now);
            patience -= 1;
            assert!(patience > 0, "calls are answered");
        }
        // A turn ends with a poll, which takes replies.
        assert!(in_progress >= self.case.window.min(count) / 2, "{in_progress} calls in progress");
    }
}

/// What makes the calls.
trait Caller: Sized {
    /// What carries them.
    type Over: Provider;

    fn new(client: Client<Self::Over>, at: Address) -> Self;

    /// Requests a connection.
    fn begin_connect(&mut self, at: Address);

    /// One that was made since.
    fn connected(&mut self) -> Option<ConnectionId>;

    /// Whether the next call was sent.
    fn call<S: Provider>(pair: &mut Pair<Self, S>) -> bool;

    fn poll(&mut self, now: u64, done: impl FnMut(&Incoming<'_>));
}

/// A client, and the connection that it waits for.
struct Direct<C: Provider> {
    client: Client<C>,
    attempt: Option<ConnectId>,
}

impl<C: Provider> Caller for Direct<C> {
    type Over = C;

    fn new(client: Client<C>, _at: Address) -> Direct<C> {
        Direct { client, attempt: None }
    }

    fn begin_connect(&mut self, at: Address) {
        self.attempt = Some(self.client.begin_connect(at).expect("room for a connection"));
    }

    fn connected(&mut self) -> Option<ConnectionId> {
        Some(self.client.connected(self.attempt?)?.expect("a connection"))
    }

    #[inline]
    fn call<S: Provider>(pair: &mut Pair<Direct<C>, S>) -> bool {
        let Pair { client: Direct { client, .. }, peers, next, case, source, now, sent, .. } = pair;
        let Ok(mut call) = client.call(peers[*next], *sent) else { return false };
        write(&mut call, case.op, source.as_ref(), *now);
        let is_sent = call.submit().is_ok();
        *sent += u64::from(is_sent);
        *next = if *next + 1 < peers.len() { *next + 1 } else { 0 };
        is_sent
    }

    #[inline]
    fn poll(&mut self, now: u64, mut done: impl FnMut(&Incoming<'_>)) {
        self.client.poll(now, |completion| {
            done(completion.result().expect("the call is answered"));
        });
    }
}

/// It connects by itself, and makes echoes only.
impl<C: Provider> Caller for Session<C> {
    type Over = C;

    fn new(client: Client<C>, at: Address) -> Session<C> {
        Session::seeded(client, [at], &SessionOptions::default(), 1).expect("an address")
    }

    fn begin_connect(&mut self, _at: Address) {}

    fn connected(&mut self) -> Option<ConnectionId> {
        match self.next_event()? {
            SessionEvent::Connected { peer, .. } => Some(peer),
            other => panic!("{other:?}"),
        }
    }

    #[inline]
    fn call<S: Provider>(pair: &mut Pair<Session<C>, S>) -> bool {
        let mut call = pair.client.call(pair.sent);
        call.put_fixed(&CALL_HEADER);
        call.put_fixed(&[7; ECHO_LEN]);
        call.reply_payload_max(REPLY_PAYLOAD_MAX);
        let is_sent = call.submit().is_ok();
        pair.sent += u64::from(is_sent);
        is_sent
    }

    #[inline]
    fn poll(&mut self, now: u64, mut done: impl FnMut(&Incoming<'_>)) {
        Session::poll(self, now, |completion| {
            done(completion.result().expect("the call is answered"));
        });
    }
}

/// Fills the window and polls once: what the client is counted in.
#[inline(never)]
fn client_turn<C: Caller, S: Provider>(pair: &mut Pair<C, S>, until: u64) {
    while pair.sent < until && pair.sent - pair.done < pair.case.window {
        if !C::call(pair) {
            break;
        }
    }
    let (op, done) = (pair.case.op, &mut pair.done);
    pair.client.poll(pair.now, |reply| {
        look(op, reply);
        *done += 1;
    });
}

/// Looks at a reply.
#[inline]
fn look(op: Op, reply: &Incoming<'_>) {
    let len = match op {
        Op::Null | Op::Echo | Op::TimedEcho | Op::Write { .. } => {
            reply.contiguous().map_or(0, <[u8]>::len)
        }
        Op::Read { .. } => reply.placed().map(|item| item.len() as usize).sum(),
    };
    assert_eq!(len, reply_len(op));
}

/// Polls once: what the server is counted in.
#[inline(never)]
fn server_turn<S: Provider>(server: &mut Shard<S, Server>, now: u64) {
    server.poll_once(now);
}

/// What was counted so far does not count. (Equal functions would become one.)
#[inline(never)]
pub fn begin_part() {
    black_box("begin");
}

/// What was counted since is a part.
#[inline(never)]
pub fn end_part() {
    black_box("end");
}

/// Answers calls of one kind.
struct Server {
    op: Op,
    /// What is read.
    source: Option<RegisteredBytes>,
}

impl Handler for Server {
    #[inline]
    fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        let arguments = call.contiguous().and_then(|bytes| bytes.get(PREFIX_LEN..));
        let arguments = arguments.expect("a short call");
        reply.payload().put_fixed(&REPLY_HEADER);
        match self.op {
            Op::Null => {}
            Op::Echo | Op::TimedEcho => reply.payload().put_fixed(&arguments[CALL_HEADER.len()..]),
            Op::Write { .. } => {
                let placed: u32 = call.placed().map(|item| item.len()).sum();
                reply.payload().put_u32(placed);
            }
            Op::Read { len } => {
                let source = self.source.as_ref().expect("there is something to read");
                reply.payload().place(source.slice(0..len).expect("a long buffer"));
            }
        }
        reply.send()
    }
}

#[inline]
fn write(call: &mut CallBuilder<'_>, op: Op, source: Option<&RegisteredBytes>, now: u64) {
    call.payload().put_fixed(&CALL_HEADER);
    match op {
        Op::Null => {}
        Op::Echo => call.payload().put_fixed(&[7; ECHO_LEN]),
        Op::TimedEcho => {
            call.payload().put_fixed(&[7; ECHO_LEN]);
            call.deadline(now + DEADLINE_NS);
        }
        Op::Write { len } => {
            let source = source.expect("there is something to write");
            call.payload().place(source.slice(0..len).expect("a long buffer"));
        }
        Op::Read { len } => {
            call.want(Want { len_min: 0, len_max: len as u32 });
        }
    }
    call.reply_payload_max(REPLY_PAYLOAD_MAX);
}

/// Bytes of a reply that the client sees: in line, or placed.
#[inline]
fn reply_len(op: Op) -> usize {
    let header = PREFIX_LEN + REPLY_HEADER.len();
    match op {
        Op::Null => header,
        Op::Echo | Op::TimedEcho => header + ECHO_LEN,
        Op::Write { .. } => header + 4,
        Op::Read { len } => len,
    }
}

/// A fabric that is the same in every run.
pub fn fabric() -> Fabric {
    let options = FabricOptions {
        clock: DeviceClock::Virtual(Arc::default()),
        key_seed: Some(1),
        ..FabricOptions::default()
    };
    Fabric::with_options(options).expect("options within their bounds")
}

/// A device that delivers at once, as client and server have opened it. Only the driver of the
/// side that is counted has names that callgrind finds: switching at the other side's would begin
/// to count.
fn devices(counted: Side) -> [Verbs; 2] {
    let fake = Fake::wired();
    [Side::Client, Side::Server].map(|side| {
        let opened = if side == counted { fake.open_named() } else { fake.open() };
        opened.expect("no call fails")
    })
}

/// The configuration of client and server.
pub fn config(case: Case) -> Config {
    Config::try_from(settings(case)).expect("the configuration adds up")
}

/// The profile that such calls are made with, in as little memory as possible.
fn settings(case: Case) -> Raw {
    let is_read = matches!(case.op, Op::Read { .. });
    let profile = if is_read || case.is_explicit { "storage" } else { "latency" };
    let mut raw = Config::profile(profile).expect("it comes with the engine").raw().clone();
    raw.memory.pages = "4K".into();
    raw.memory.prefault = false;
    raw.memory.lock = false.into();
    raw.fabric = Raw::default().fabric;
    if case.over == Over::Verbs {
        raw.engine.provider = "verbs".into();
    }
    raw.engine.numa_bind = false;
    raw.connections.max = case.connections as i64;
    raw.app.bulk.count = 1;
    if !case.is_timed {
        raw.stats.sample = 0;
    }
    if case.connections > 1 {
        raw.connections.credits = 4;
        raw.connections.credits_requested = 4;
        raw.connections.calls_max = case.window as i64;
        raw.receive.buffers = "auto".into();
    }
    if case.is_explicit {
        raw.protocol.version = "one".into();
        raw.explicit.buffers.count = 64;
        raw.explicit.buffers.length = "256KiB".into();
        raw.app.bulk.length = "1MiB".into();
    } else if is_read {
        raw.connections.credits = 32;
        raw.connections.credits_requested = 32;
        raw.connections.calls_max = 32;
        raw.receive.buffers = "auto".into();
        raw.receive.spares = 8;
        raw.receive.placement.count = 1;
        raw.receive.placement.length = "16KiB".into();
        raw.explicit.buffers.count = 8;
        raw.explicit.fetches = 8;
        raw.send.slots = 128;
        raw.app.bulk.length = "64KiB".into();
    }
    raw
}

/// A program, a version, a procedure.
pub const CALL_HEADER: [u8; CallHeader::PLAIN_LEN] = CallHeader::plain(0x2000_0000, 1, 1);
pub const REPLY_HEADER: [u8; ReplyHeader::SUCCESS_LEN] = ReplyHeader::SUCCESS;
/// Transaction id and message type, which the engine writes.
const PREFIX_LEN: usize = RpcPrefix::LEN;
pub const ECHO_LEN: usize = 64;
pub const REPLY_PAYLOAD_MAX: u32 = 128;
/// Calls of a case that are counted.
pub const CALLS: u64 = 1600;
/// Calls before that.
pub const WARM_UP: u64 = 320;
/// A deadline that does not pass: 1 s.
const DEADLINE_NS: u64 = 1_000_000_000;
/// The time of a turn.
pub const TURN_NS: u64 = 100;
pub const PATIENCE: u32 = 1000;
