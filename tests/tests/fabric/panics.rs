//! Panicking threads: the program is notified, peers lose their connections, other shards continue.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rpcrdma::control::Control;
use rpcrdma::provider::interposed::{CmHooks, Hooks, Interposed};
use rpcrdma::provider::{
    CmEvent, ConnParam, ConnectError, ConnectId, ConnectionManager, Handle, QueueAttr, Waker,
};
use rpcrdma::{
    Address, Admission, Answer, Call, CallError, CallRefused, Client, Clock, CloseReason,
    Completion, ConnectRequest, ConnectionId, Engine, EngineThread, Fabric, Handler, Panicked,
    PeerLimits, Provider, Reply, SetupError, Shard, ShardState, Turn,
};
use rpcrdma_config::Raw;
use rpcrdma_tests::world::{checked, small};

/// Where a handler panics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spot {
    Call,
    Turn,
    Admit,
    Connect,
    Close,
    Reply,
    Refused,
}

/// Answers every call with nothing, and panics in one place if it is armed.
struct Fragile {
    spot: Spot,
    is_armed: bool,
    /// The peer to call in the next turn.
    calls: Option<ConnectionId>,
    peers: Vec<ConnectionId>,
}

impl Fragile {
    fn new(spot: Spot) -> Fragile {
        Fragile { spot, is_armed: false, calls: None, peers: Vec::new() }
    }

    fn at(&self, spot: Spot) {
        assert!(!self.is_armed || self.spot != spot, "armed at {spot:?}");
    }
}

impl Handler for Fragile {
    fn on_call<'a>(&mut self, _call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
        self.at(Spot::Call);
        reply.send()
    }

    fn on_reply(&mut self, _done: Completion<'_>) {
        self.at(Spot::Reply);
    }

    fn on_turn(&mut self, turn: &mut Turn<'_>) {
        self.at(Spot::Turn);
        if let Some(peer) = self.calls.take() {
            turn.call(peer, 1).expect("a credit").submit().expect("a short call");
        }
    }

    fn admit(&mut self, _: &ConnectRequest<'_>) -> Admission {
        self.at(Spot::Admit);
        Admission::Accept
    }

    fn on_connect(
        &mut self,
        peer: ConnectionId,
        _: Option<ConnectId>,
        _: &PeerLimits,
    ) -> Admission {
        self.at(Spot::Connect);
        self.peers.push(peer);
        Admission::Accept
    }

    fn on_refused(&mut self, _: ConnectId, _: ConnectError) {
        self.at(Spot::Refused);
    }

    fn on_close(&mut self, _: ConnectionId, _: CloseReason) {
        self.at(Spot::Close);
    }
}

/// Two shards that serve, and a client, all polled by hand.
struct Scene {
    shards: Vec<Shard<Fabric, Fragile>>,
    client: Client<Fabric>,
    at: Address,
    controls: [Control<Fabric>; 2],
    serving: Engine<Fabric>,
    _calling: Engine<Fabric>,
    now: u64,
    results: Vec<Result<(), CallError>>,
}

const STEPS: usize = 1_000;

impl Scene {
    fn new(spot: Spot) -> Scene {
        Scene::with(spot, 0)
    }

    /// With so many connections of a peer at most.
    fn with(spot: Spot, max_per_peer: i64) -> Scene {
        let fabric = Fabric::new();
        let mut raw = small();
        raw.connections.max = 8;
        raw.connections.max_per_peer = max_per_peer;
        let engine = || Engine::without_threads(fabric.clone(), checked(&raw)).expect("an engine");
        let ((serving, mut control), (calling, other)) = (engine(), engine());
        let shards = [0, 1].map(|_| serving.shard(Fragile::new(spot)).expect("a shard"));
        let at =
            control.listen("127.0.0.1:0".parse::<Address>().expect("an address")).expect("a port");
        Scene {
            shards: shards.into(),
            client: calling.client().expect("a client"),
            at,
            controls: [control, other],
            serving,
            _calling: calling,
            now: 1,
            results: Vec::new(),
        }
    }

    /// One turn of everything; returns whether a shard has panicked.
    fn step(&mut self) -> bool {
        self.now += 1_000;
        self.controls.iter_mut().for_each(|control| control.step(Duration::ZERO));
        let mut has_panicked = false;
        for shard in &mut self.shards {
            let turn = AssertUnwindSafe(|| shard.poll_once(self.now));
            has_panicked |= catch_unwind(turn).is_err();
        }
        let Scene { client, now, results, .. } = self;
        client.poll(*now, |done| results.push(done.result().map(|_| ())));
        has_panicked
    }

    fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Scene) -> bool) {
        for _ in 0..STEPS {
            if is_so(self) {
                return;
            }
            self.step();
        }
        panic!("not after {STEPS} steps: {what}");
    }

    fn connect(&mut self) -> Result<ConnectionId, ConnectError> {
        let id = self.client.begin_connect(self.at).expect("there is room");
        let mut outcome = None;
        self.until("an outcome", |scene| {
            outcome = scene.client.connected(id);
            outcome.is_some()
        });
        outcome.expect("an outcome")
    }

    fn call(&mut self, peer: ConnectionId) -> Result<(), CallError> {
        self.client.call(peer, 1).expect("a credit").submit().expect("a short call");
        self.until("a completion", |scene| !scene.results.is_empty());
        self.results.pop().expect("a completion")
    }

    /// Makes the first shard panic at its spot; there is a connection to each.
    fn trigger(&mut self, first: ConnectionId) {
        let shard = &mut self.shards[0];
        shard.handler().is_armed = true;
        match shard.handler().spot {
            Spot::Call => {
                self.client.call(first, 1).expect("a credit").submit().expect("a short call");
            }
            Spot::Turn => {}
            // One to each shard.
            Spot::Admit | Spot::Connect => [(); 2].iter().for_each(|()| {
                self.client.begin_connect(self.at).expect("there is room");
            }),
            Spot::Close => assert!(self.client.handle().close(first)),
            Spot::Reply => shard.handler().calls = shard.handler().peers.first().copied(),
            Spot::Refused => {
                let no_listener = SocketAddr::new(self.at.as_ip().expect("of the fabric").ip(), 1);
                shard.connect(no_listener).expect("there is room");
            }
        }
        for _ in 0..STEPS {
            if self.step() {
                return;
            }
        }
        panic!("it does not panic");
    }
}

#[test]
fn a_shard_that_panics_anywhere_is_reported_to_all_and_the_other_takes_over() {
    let first = [Spot::Call, Spot::Turn, Spot::Admit, Spot::Connect];
    for spot in first.into_iter().chain([Spot::Close, Spot::Reply, Spot::Refused]) {
        println!("{spot:?}");
        let mut scene = Scene::new(spot);
        // The connections go to the shards in turn: the second one first.
        let [_other, first] = [(); 2].map(|()| scene.connect().expect("a connection"));
        scene.trigger(first);

        let dead = scene.shards[0].handle().clone();
        assert_eq!((dead.state(), dead.connections()), (ShardState::Panicked, 0));
        assert!(scene.shards[0].is_stopped());
        let failures = scene.serving.failures();
        let [Panicked { thread, message, .. }] = failures.as_slice() else {
            panic!("{failures:?}")
        };
        assert_eq!(*thread, EngineThread::Shard(dead.shard()));
        assert_eq!(message, "while its program polled it");

        // It does nothing any more, whatever is asked of it.
        let now = scene.now;
        assert!(!scene.shards[0].poll_once(now), "no panic and no work");
        assert!(matches!(scene.shards[0].connect(scene.at), Err(SetupError::Stopped)));
        let peer = scene.shards[0].handler().peers[0];
        let mut turn = scene.shards[0].turn(now);
        assert_eq!(turn.call(peer, 1).err(), Some(CallRefused::Stopping));

        // Its peers know, and the other shard serves them.
        scene.until("the connection ends", |scene| {
            scene.client.call(first, 1).is_err_and(|why| why == CallRefused::NoPeer)
        });
        scene.results.clear();
        let peer = scene.connect().expect("the other shard takes over");
        assert_eq!(scene.call(peer), Ok(()));
        assert_eq!(scene.shards[1].handle().state(), ShardState::Running);

        // Without the control thread no listener is left, and this shard is dropped like any other.
        drop(scene.shards.pop());
        scene.until("no shard serves", |scene| scene.client.handle().connections() == 0);
        assert_eq!(scene.connect(), Err(ConnectError::NoListener));
        drop(scene.shards.pop());
        assert_eq!(dead.state(), ShardState::Panicked, "how it ended is remembered");
    }
}

#[test]
fn connections_of_a_broken_shard_count_no_more_while_its_program_keeps_it() {
    let mut scene = Scene::with(Spot::Turn, 2);
    let [_other, first] = [(); 2].map(|()| scene.connect().expect("a connection"));
    assert!(scene.connect().is_err(), "there are as many as there may be");
    scene.trigger(first);
    let peer = scene.connect().expect("the other shard takes it");
    assert_eq!(scene.call(peer), Ok(()));
}

#[test]
fn a_connection_on_its_way_to_a_shard_that_breaks_ends() {
    let mut scene = Scene::new(Spot::Refused);
    drop(scene.shards.pop());
    let id = scene.client.begin_connect(scene.at).expect("there is room");
    while scene.shards[0].handle().connections() == 0 {
        scene.controls.iter_mut().for_each(|control| control.step(Duration::ZERO));
        scene.client.poll(scene.now, |_| {});
    }
    // The shard accepts. Before its connection it gets a refusal, over which it panics.
    let elsewhere = "shm:/nowhere".parse::<Address>().expect("an address");
    scene.shards[0].connect(elsewhere).expect("there is room");
    scene.shards[0].poll_once(scene.now);
    scene.shards[0].handler().is_armed = true;
    assert!(scene.step(), "it panics");
    assert!(scene.shards[0].handler().peers.is_empty());
    assert_eq!(scene.serving.admissions().accepted, 1);
    scene.until("the peer is disconnected", |scene| scene.client.handle().connections() == 0);
    assert!(scene.client.connected(id).is_some_and(|outcome| outcome.is_err()));
}

#[test]
fn a_client_whose_program_panics_over_a_completion_can_be_dropped() {
    let mut scene = Scene::new(Spot::Turn);
    let peer = scene.connect().expect("a connection");
    scene.client.call(peer, 1).expect("a credit").submit().expect("a short call");
    let mut has_panicked = false;
    for _ in 0..STEPS {
        scene.now += 1_000;
        for shard in &mut scene.shards {
            shard.poll_once(scene.now);
        }
        let poll = AssertUnwindSafe(|| scene.client.poll(scene.now, |_| panic!("not like that")));
        if catch_unwind(poll).is_err() {
            has_panicked = true;
            break;
        }
    }
    assert!(has_panicked, "the call is answered");
    assert_eq!(scene.client.handle().state(), ShardState::Panicked);
    assert_eq!(scene.client.call(peer, 2).err(), Some(CallRefused::Stopping));
    assert!(scene.client.begin_connect(scene.at).is_err());
    assert!(!scene.client.poll(scene.now, |_| panic!("nothing completes any more")));
    scene.until("the server knows", |scene| {
        scene.shards.iter().all(|shard| shard.handle().connections() == 0)
    });
    let client = scene._calling.client().expect("another one");
    drop(std::mem::replace(&mut scene.client, client));
    let peer = scene.connect().expect("a connection");
    assert_eq!(scene.call(peer), Ok(()));
}

/// Panics when it is called with a number that is not nought.
struct Bomb;

impl Handler for Bomb {
    fn on_call<'a>(&mut self, call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
        assert_eq!(call.reader().u32(), Ok(0), "the bomb goes off");
        reply.send()
    }
}

fn threaded() -> Raw {
    let mut raw = small();
    raw.engine.shards = 2;
    raw.engine.idle.policy = "block".into();
    raw.connections.max = 4;
    raw
}

/// Calls and waits.
fn call<P: Provider>(
    client: &mut Client<P>,
    peer: ConnectionId,
    number: u32,
) -> Option<Result<(), CallError>> {
    let mut call = client.call(peer, 1).ok()?;
    call.payload().put_u32(number);
    call.submit().ok()?;
    let clock = Clock::new();
    let mut result = None;
    while result.is_none() {
        let busy = client.poll(clock.now(), |done| result = Some(done.result().map(|_| ())));
        if !busy {
            client.wait(Duration::from_millis(1));
        }
    }
    result
}

#[test]
fn a_panic_of_a_shard_is_reported_with_its_message() {
    let fabric = Fabric::new();
    let mut engine = Engine::new(fabric.clone(), checked(&threaded())).expect("an engine");
    let (sender, failures) = mpsc::channel();
    engine.on_failure(move |failure| drop(sender.send(failure.clone())));
    let handles = engine.start(|_| Bomb).expect("two shards");
    let at = engine.listen("127.0.0.1:0".parse::<Address>().expect("an address")).expect("a port");
    let calling = Engine::new(fabric, checked(&threaded())).expect("an engine");
    let mut client = calling.client().expect("a client");
    for left in [1, 0] {
        let peer = client.connect(at).expect("a connection");
        let lost = call(&mut client, peer, 1);
        assert!(matches!(lost, Some(Err(CallError::ConnectionLost(..)))), "{lost:?}");
        let failure = failures.recv().expect("the engine lives");
        assert!(failure.message.contains("the bomb goes off"), "{failure}");
        let is_dead = |shard: u32| EngineThread::Shard(shard) == failure.thread;
        let dead = handles.iter().find(|handle| is_dead(handle.shard())).expect("one of them");
        assert_eq!((dead.state(), dead.connections()), (ShardState::Panicked, 0));
        let running = handles.iter().filter(|it| it.state() == ShardState::Running).count();
        assert_eq!((running, engine.failures().len()), (left, 2 - left));
        for _ in 0..3 * left {
            // The other one takes over: every connection that is made is served.
            let peer = client.connect(at).expect("a connection");
            assert_eq!(call(&mut client, peer, 0), Some(Ok(())));
            assert!(client.handle().close(peer));
        }
    }
    // Until the control thread has noticed, it listens and rejects every connection.
    loop {
        match client.connect(at) {
            Err(SetupError::Connect { reason: ConnectError::NoListener, .. }) => break,
            Err(SetupError::Connect { reason: ConnectError::Rejected(_), .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    // The address is free again for who can serve it.
    let mut second = Engine::new(calling.provider().clone(), checked(&threaded())).expect("one");
    second.start(|_| Bomb).expect("two shards");
    assert_eq!(second.listen(at).expect("the address"), at);
    let peer = client.connect(at).expect("a connection");
    assert_eq!(call(&mut client, peer, 0), Some(Ok(())));
    // It is not polled while the engines stop.
    drop(client);
    engine.stop();
}

#[test]
fn a_factory_that_panics_is_an_error_of_the_start() {
    let mut engine = Engine::new(Fabric::new(), checked(&threaded())).expect("an engine");
    let refused = engine.start(|_| -> Bomb { panic!("no handler today") });
    let Err(SetupError::Panicked(failure)) = refused else { panic!("{refused:?}") };
    assert!(matches!(failure.thread, EngineThread::Shard(_)));
    assert_eq!(failure.message, "no handler today");
    engine.start(|_| Bomb).expect("the engine is as it was");
}

/// The function of a connection manager that is to panic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fright {
    Next,
    Connect,
    Listen,
}

/// Lets the connection manager of a provider panic on command.
#[derive(Clone)]
struct Nervous {
    fright: Fright,
    is_frightened: Arc<AtomicBool>,
}

impl Nervous {
    fn at(&self, fright: Fright) {
        let is_time = self.fright == fright && self.is_frightened.load(Ordering::SeqCst);
        assert!(!is_time, "frightened at {fright:?}");
    }
}

impl<P: Provider> Hooks<P> for Nervous {
    type Queues = ();
    type Cm = Nervous;

    fn queue_hooks(&self, _: &P, _: &QueueAttr) {}

    fn cm_hooks(&self, _: &P) -> Nervous {
        self.clone()
    }
}

impl<C: ConnectionManager> CmHooks<C> for Nervous {
    fn listen(&mut self, inner: &mut C, at: Address) -> Result<Address, SetupError> {
        self.at(Fright::Listen);
        inner.listen(at)
    }

    fn connect(
        &mut self,
        inner: &mut C,
        to: Address,
        on: &Handle<C>,
        param: &ConnParam<'_>,
    ) -> Result<ConnectId, SetupError> {
        self.at(Fright::Connect);
        inner.connect(to, on, param)
    }

    fn next(&mut self, inner: &mut C, waker: &Waker, timeout: Duration) -> Option<CmEvent<C>> {
        self.at(Fright::Next);
        inner.next(waker, timeout)
    }
}

#[test]
fn a_control_thread_that_panics_leaves_no_caller_waiting() {
    for fright in [Fright::Next, Fright::Connect, Fright::Listen] {
        println!("{fright:?}");
        let is_frightened = Arc::new(AtomicBool::new(false));
        let nervous = Nervous { fright, is_frightened: is_frightened.clone() };
        let device = Interposed::<_, Nervous>::new(Fabric::new(), nervous);
        let mut engine = Engine::new(device, checked(&threaded())).expect("an engine");
        let (sender, failures) = mpsc::channel();
        engine.on_failure(move |failure| drop(sender.send(failure.clone())));
        engine.start(|_| Bomb).expect("two shards");
        let any: Address = "127.0.0.1:0".parse().expect("an address");
        let at = engine.listen(any).expect("a port");
        let mut client = engine.client().expect("a client");
        let peer = client.connect(at).expect("a connection");
        is_frightened.store(true, Ordering::SeqCst);
        let waited = match fright {
            // Asked for before the panic or after it: there is an outcome in any case.
            Fright::Next | Fright::Connect => client.connect(at).map(|_| ()),
            Fright::Listen => engine.listen(any).map(|_| ()),
        };
        let is_reported = |error: &SetupError| match error {
            SetupError::Connect { reason, .. } => *reason == ConnectError::Stopped,
            SetupError::Panicked(failure) => failure.thread == EngineThread::Control,
            _ => false,
        };
        assert!(waited.as_ref().is_err_and(is_reported), "{waited:?}");
        let failure = failures.recv().expect("the engine lives");
        assert_eq!(failure.thread, EngineThread::Control);
        assert!(failure.message.contains("frightened"), "{failure}");
        // Those who come later wait no longer than those who were there.
        let later = [engine.listen(any).map(|_| ()), client.connect(at).map(|_| ())];
        for outcome in later {
            assert!(matches!(outcome, Err(SetupError::Panicked(_))), "{outcome:?}");
        }
        assert_eq!(client.handle().connections(), 1, "no place is lost");
        // What is connected goes on.
        assert_eq!(call(&mut client, peer, 0), Some(Ok(())));
        drop(client);
        engine.stop();
    }
}
