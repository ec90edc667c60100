//! After every failure, panic or end, the device has as many registrations, windows, queues and
//! queue pairs as before.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rpcrdma::control::Control;
use rpcrdma::fabric::{FabricOptions, FabricUse};
use rpcrdma::provider::ConnectId;
use rpcrdma::{
    Address, Admission, Answer, Bulk, Call, CallError, Client, CloseReason, ConnectionId, Engine,
    Execution, Fabric, Handler, Loan, PeerLimits, Provider, RefuseCalls, Reply, SetupError, Shard,
    Sink, Turn, Want,
};
use rpcrdma_config::{Config, Raw};
use rpcrdma_testing::fault::{FaultPlan, FaultyProvider};
use rpcrdma_tests::failing::{Failing, Given, Ledger};
use rpcrdma_tests::setup::{checked, small};
use rpcrdma_tests::suite::explicit::only_base;

/// Where the program has a bug that panics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    Nowhere,
    InFactory,
    OnConnect,
    /// With a segment taken, half of a reply written, and data placed in it.
    OnCall,
    OnTurn,
    OnClose,
    /// With the reply in the hands of the program.
    OnReply,
    /// In the middle of a call.
    Calling,
}

const BUGS: [Bug; 7] = [
    Bug::InFactory,
    Bug::OnConnect,
    Bug::OnCall,
    Bug::OnTurn,
    Bug::OnClose,
    Bug::OnReply,
    Bug::Calling,
];

/// Segments that a program keeps beyond the end of their shard.
type Kept = Arc<Mutex<Vec<Loan>>>;

struct Program {
    bug: Bug,
    keeps: Option<Kept>,
    loans: Vec<Loan>,
    calls: u32,
}

impl Program {
    fn trips_over(&self, bug: Bug) {
        assert!(self.bug != bug, "a bug of the program");
    }
}

impl Handler for Program {
    fn on_call<'a>(&mut self, mut call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        self.calls += 1;
        let taken = call.take(0, 0).ok();
        reply.payload().put_fixed(&[7; 6000]);
        if let Some(loan) = self.loans.pop() {
            reply.payload().place(loan);
        }
        self.trips_over(Bug::OnCall);
        if let (Some(kept), Some(loan)) = (&self.keeps, taken) {
            kept.lock().unwrap_or_else(PoisonError::into_inner).push(loan);
        }
        reply.send()
    }

    fn on_turn(&mut self, turn: &mut Turn<'_>) {
        if self.loans.is_empty()
            && let Some(mut loan) = turn.buffer()
        {
            loan.truncate(BULK);
            self.loans.push(loan);
        }
        if self.calls > 0 {
            self.trips_over(Bug::OnTurn);
        }
    }

    fn on_connect(&mut self, _: ConnectionId, _: Option<ConnectId>, _: &PeerLimits) -> Admission {
        self.trips_over(Bug::OnConnect);
        Admission::Accept
    }

    fn on_close(&mut self, _: ConnectionId, _: CloseReason) {
        self.trips_over(Bug::OnClose);
    }
}

/// Bytes of bulk in each direction.
const BULK: usize = 20_000;
/// Turns that anything may take at most.
const TURNS: usize = 20_000;

/// A client and a server of one engine, on one thread.
struct Life<P: Provider> {
    client: Client<P>,
    server: Shard<P, Program>,
    control: Control<P>,
    now: u64,
    _engine: Engine<P>,
}

impl<P: Provider> Life<P> {
    fn begin(provider: P, config: Config, program: Program) -> Result<Life<P>, SetupError> {
        let (engine, control) = Engine::without_threads(provider, config)?;
        let server = engine.shard(program)?;
        let client = engine.client()?;
        Ok(Life { client, server, control, now: 0, _engine: engine })
    }

    fn turn(&mut self) {
        self.now += 1_000_000;
        self.control.step(Duration::ZERO);
        self.server.poll_once(self.now);
        self.client.poll(self.now, |_| ());
    }

    fn connect(&mut self) -> Result<ConnectionId, SetupError> {
        let to = self.control.listen("[::1]:0".parse::<Address>().expect("an address"))?;
        let attempt = self.client.begin_connect(to)?;
        for _ in 0..TURNS {
            self.turn();
            if let Some(outcome) = self.client.connected(attempt) {
                return outcome.map_err(|reason| SetupError::connect(to, reason));
            }
        }
        panic!("neither a connection nor an error");
    }

    /// A call with data in both directions.
    fn call(&mut self, peer: ConnectionId, bug: Bug) -> Result<(), CallError> {
        let mut buffers = [(); 2].map(|()| self.client.turn(self.now).buffer());
        let mut data = buffers[0].take().expect("a buffer");
        data.truncate(BULK);
        let sink = Sink::from(buffers[1].take().expect("a buffer"));
        let gone = CallError::ConnectionLost(CloseReason::PeerGone, Execution::Unknown);
        let Ok(mut call) = self.client.call(peer, 1) else { return Err(gone) };
        call.payload().put_u32(1);
        call.payload().place_pieces([Bulk::Loan(data)]);
        call.reply_payload_max(8_000);
        call.want_into(Want { len_min: 0, len_max: BULK as u32 }, sink);
        assert!(bug != Bug::Calling, "a bug of the program");
        if call.submit().is_err() {
            return Err(gone);
        }
        let mut outcome = None;
        for _ in 0..TURNS {
            self.now += 1_000_000;
            self.control.step(Duration::ZERO);
            self.server.poll_once(self.now);
            self.client.poll(self.now, |mut done| {
                let sink = done.take_sink(0);
                assert!(bug != Bug::OnReply, "a bug of the program");
                outcome = Some(done.result().map(|_| drop(sink)));
            });
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
        panic!("the call does not end");
    }

    fn stop(mut self) {
        self.server.handle().stop();
        self.client.handle().stop();
        for _ in 0..TURNS {
            self.turn();
            if self.server.is_stopped() && self.client.shard().is_stopped() {
                return;
            }
        }
        panic!("it does not stop");
    }
}

/// How the two expose memory to each other, if they do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Placed,
    Windows,
    Registration,
}

const WAYS: [Way; 3] = [Way::Placed, Way::Windows, Way::Registration];

fn config(way: Way) -> Raw {
    let mut raw = small();
    if way != Way::Placed {
        only_base(&mut raw);
    }
    raw.explicit.windows = "4".into();
    if way == Way::Registration {
        raw.explicit.exposure = "registration".into();
    }
    raw.connections.connect_timeout = "200ms".into();
    raw.connections.stop_timeout = "200ms".into();
    raw
}

fn fabric(way: Way) -> Fabric {
    let windows = if way == Way::Registration { 0 } else { 64 };
    let options = FabricOptions { windows, ..FabricOptions::default() };
    Fabric::with_options(options).expect("a fabric")
}

/// The whole life of a client and a server.
fn live<P: Provider>(provider: P, way: Way, bug: Bug, keeps: Option<Kept>) -> Outcome {
    let program = Program { bug, keeps, loans: Vec::new(), calls: 0 };
    let mut life = Life::begin(provider, checked(&config(way)), program)?;
    let peer = life.connect()?;
    let called = life.call(peer, bug);
    life.stop();
    Ok(called)
}

/// Why there was no set-up, or no reply.
type Outcome = Result<Result<(), CallError>, SetupError>;

/// The same with shards and a connection manager on threads of their own.
fn live_on_threads<P: Provider>(provider: P, way: Way, bug: Bug) -> Outcome {
    let mut engine = Engine::new(provider, checked(&config(way)))?;
    engine.start(move |_| {
        assert!(bug != Bug::InFactory, "a bug of the program");
        Program { bug, keeps: None, loans: Vec::new(), calls: 0 }
    })?;
    let at = engine.listen("[::1]:0".parse::<Address>().expect("an address"))?;
    let mut client = engine.client()?;
    let peer = client.connect(at)?;
    let gone = CallError::ConnectionLost(CloseReason::PeerGone, Execution::Unknown);
    let Ok(mut call) = client.call(peer, 1) else { return Ok(Err(gone)) };
    call.payload().put_u32(1);
    if call.submit().is_err() {
        return Ok(Err(gone));
    }
    let clock = rpcrdma::Clock::new();
    let mut outcome = None;
    while outcome.is_none() {
        client.poll(clock.now(), |done| outcome = Some(done.result().map(|_| ())));
    }
    engine.stop();
    Ok(outcome.expect("it ended"))
}

#[track_caller]
fn check_nothing_is_left(fabric: &Fabric, ledger: &Ledger, what: &str) {
    assert_eq!(ledger.given(), Given::default(), "{what}");
    assert_eq!(fabric.in_use(), FabricUse::default(), "{what}");
}

/// Lets each call of the provider fail in turn, until none of `life` fails any more. Returns the
/// names of those that did, each once.
fn fail_each(way: Way, life: impl Fn(Failing<Fabric>) -> Outcome) -> Vec<&'static str> {
    let mut names = Vec::new();
    for n in 0.. {
        let (fabric, ledger) = (fabric(way), Ledger::failing(n));
        let outcome = life(Failing::new(fabric.clone(), Arc::clone(&ledger)));
        let Some(failed) = ledger.failed() else {
            assert!(matches!(outcome, Ok(Ok(()))), "nothing has failed: {outcome:?}");
            check_nothing_is_left(&fabric, &ledger, "nothing has failed");
            return names;
        };
        check_nothing_is_left(&fabric, &ledger, &format!("{failed}, call {n}: {outcome:?}"));
        if !names.contains(&failed) {
            names.push(failed);
        }
    }
    unreachable!("a life has an end");
}

#[test]
fn a_failure_of_any_device_call_leaves_nothing() {
    let always = ["open_cm", "register", "open_queues", "post_srq_recv", "listen", "connect"];
    for way in WAYS {
        let failed = fail_each(way, |provider| live(provider, way, Bug::Nowhere, None));
        let own = match way {
            Way::Placed => [].as_slice(),
            Way::Windows => &["open_window"],
            Way::Registration => &["expose"],
        };
        let behind = ["accept", "attach", "post_send"];
        for name in always.iter().chain(own).chain(&behind) {
            assert!(failed.contains(name), "{name} is called on the way: {failed:?}");
        }
    }
}

#[test]
fn a_failure_of_any_call_on_any_thread_leaves_nothing() {
    let failed =
        fail_each(Way::Placed, |provider| live_on_threads(provider, Way::Placed, Bug::Nowhere));
    for name in ["open_cm", "register", "open_queues", "post_srq_recv", "listen", "attach"] {
        assert!(failed.contains(&name), "{name} is called on the way: {failed:?}");
    }
}

#[test]
fn a_setup_that_fails_repeatedly_takes_no_resources() {
    let (fabric, ledger) = (fabric(Way::Windows), Ledger::failing(u32::MAX));
    let provider = Failing::new(fabric.clone(), Arc::clone(&ledger));
    let mut raw = config(Way::Windows);
    // More than there are: after some shards there are none left.
    raw.explicit.windows = "40".into();
    let (engine, control) = Engine::without_threads(provider, checked(&raw)).expect("an engine");
    let first = engine.client().expect("there are as many windows");
    let before = (ledger.given(), fabric.in_use());
    for _ in 0..10 {
        let error = engine.client().err().expect("too few are left").to_string();
        assert!(error.contains("windows"), "{error}");
        assert_eq!((ledger.given(), fabric.in_use()), before);
    }
    drop((first, engine, control));
    check_nothing_is_left(&fabric, &ledger, "at the end");
}

#[test]
fn a_panic_at_any_step_leaves_nothing() {
    for way in WAYS {
        for bug in BUGS {
            if bug == Bug::InFactory {
                continue;
            }
            let (fabric, ledger) = (fabric(way), Ledger::failing(u32::MAX));
            let provider = Failing::new(fabric.clone(), Arc::clone(&ledger));
            let outcome = catch_unwind(AssertUnwindSafe(|| live(provider, way, bug, None)));
            assert!(outcome.is_err(), "{bug:?} panics");
            check_nothing_is_left(&fabric, &ledger, &format!("{way:?}, {bug:?}"));
        }
    }
}

#[test]
fn a_panic_on_the_thread_of_a_shard_leaves_nothing() {
    for bug in [Bug::InFactory, Bug::OnCall, Bug::OnConnect, Bug::OnTurn, Bug::OnClose] {
        let (fabric, ledger) = (fabric(Way::Placed), Ledger::failing(u32::MAX));
        let provider = Failing::new(fabric.clone(), Arc::clone(&ledger));
        let outcome = live_on_threads(provider, Way::Placed, bug);
        check_nothing_is_left(&fabric, &ledger, &format!("{bug:?}: {outcome:?}"));
    }
}

#[test]
fn memory_that_a_program_keeps_stays_registered_until_it_is_dropped() {
    for bug in [Bug::Nowhere, Bug::OnReply, Bug::OnClose] {
        let (fabric, ledger) = (fabric(Way::Placed), Ledger::failing(u32::MAX));
        let provider = Failing::new(fabric.clone(), Arc::clone(&ledger));
        let kept = Kept::default();
        let keeps = Some(Arc::clone(&kept));
        let life = || live(provider, Way::Placed, bug, keeps);
        let ended = catch_unwind(AssertUnwindSafe(life));
        assert_eq!(ended.is_err(), bug != Bug::Nowhere);
        let mut loans = std::mem::take(&mut *kept.lock().unwrap_or_else(PoisonError::into_inner));
        assert_eq!(loans.len(), 1);
        assert_eq!(ledger.given(), Given { regions: 1, ..Given::default() }, "{bug:?}");
        assert_eq!(fabric.in_use(), FabricUse { regions: 1, ..FabricUse::default() });
        loans[0].fill(1);
        std::thread::spawn(move || drop(loans)).join().expect("does not panic");
        check_nothing_is_left(&fabric, &ledger, &format!("{bug:?}, let go"));
    }
}

#[test]
fn buffers_the_device_did_not_return_are_freed_with_the_queues() {
    for way in WAYS {
        let (fabric, ledger) = (fabric(way), Ledger::failing(u32::MAX));
        let provider = Failing::new(fabric.clone(), Arc::clone(&ledger));
        // No completion comes in the life of its queues.
        let plan = FaultPlan {
            completion_delayed_ppm: 1_000_000,
            polls_late_max: u32::MAX,
            ..FaultPlan::default()
        };
        let provider = FaultyProvider::new(provider, plan);
        let log = provider.hooks().log();
        log.end();
        let program = Program { bug: Bug::Nowhere, keeps: None, loans: Vec::new(), calls: 0 };
        let mut raw = config(way);
        raw.connections.call_timeout = "500ms".into();
        let mut life = Life::begin(provider, checked(&raw), program).expect("a set-up");
        let peer = life.connect().expect("a connection");
        log.begin();
        let called = life.call(peer, Bug::Nowhere);
        assert!(called.is_err(), "{called:?}");
        for _ in 0..TURNS {
            life.turn();
        }
        let leaked = life.client.handle().stats().buffers_leaked;
        assert!(leaked > 0, "{way:?}, {called:?}");
        life.stop();
        check_nothing_is_left(&fabric, &ledger, &format!("{way:?}"));
    }
}

/// The places of connections that a server and its client hold after one attempt, and whether they
/// are connected, if the device could not attach a queue pair; `None` if another call has failed,
/// or none. Beside it whether none has.
fn places_without_a_queue_pair(n: u32) -> (Option<([usize; 2], bool)>, bool) {
    let ledger = Ledger::failing(n);
    let provider = Failing::new(fabric(Way::Placed), Arc::clone(&ledger));
    let places = || -> Result<([usize; 2], bool), SetupError> {
        let configured = checked(&config(Way::Placed));
        let (engine, mut control) = Engine::without_threads(provider, configured)?;
        let mut server = engine.shard(RefuseCalls)?;
        let mut client = engine.client()?;
        let at = control.listen("[::1]:0".parse::<Address>().expect("an address"))?;
        let attempt = client.begin_connect(at)?;
        for step in 1..2_000 {
            control.step(Duration::ZERO);
            server.poll_once(step * 10_000_000);
            client.poll(step * 10_000_000, |_| {});
        }
        let is_up = client.connected(attempt).expect("it has ended").is_ok();
        Ok(([server.handle(), client.handle()].map(|handle| handle.connections()), is_up))
    };
    let places = places().ok().filter(|_| ledger.failed() == Some("attach"));
    (places, ledger.failed().is_none())
}

#[test]
fn a_connection_that_cannot_be_attached_holds_no_place() {
    let mut seen = 0;
    for n in 0.. {
        let (places, is_sound) = places_without_a_queue_pair(n);
        if let Some((places, is_up)) = places {
            // A client that was refused in one version tries the other.
            assert_eq!(places, [usize::from(is_up); 2], "call {n}");
            seen += 1;
        }
        if is_sound {
            break;
        }
    }
    assert_eq!(seen, 2, "each end attaches a queue pair");
}
