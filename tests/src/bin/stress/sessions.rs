//! A session whose server is killed and stopped, and whose connections are cut: what becomes of its
//! calls.
//!
//! ```text
//!   this process: session ── calls, each with a number ──▶ keeper ─▶ file, reply cache
//!        └── kill -9, stop, start again; "cut"; ShardHandle::close ──▲
//! ```
//!
//! Each call is answered once or fails with a reason. What an answered PUT has written is there until
//! the next one of its key, whatever happens to the server. No process of the server executes a call
//! twice.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use rpcrdma::{
    Address, Clock, ConnectionId, Resend, Session, SessionCompletion, SessionEvent, SessionOptions,
    SessionRefused, Shm,
};
use rpcrdma_tests::folder::Folder;
use rpcrdma_tests::script::Random;
use rustix::process::Signal;

use crate::Wanted;
use crate::children::Started;
use crate::keeper::{Counts, KEYS, Order, Store};
use crate::survivor::{HUNG, client, config, socket};

/// The test.
struct StressTest<'w> {
    wanted: &'w Wanted,
    at: Address,
    session: Session<Shm>,
    clock: Clock,
    server: Server,
    ledger: Ledger,
    random: Random,
    /// What is still to be done, the next one last, by the number of calls that are over then.
    plan: Vec<(u64, Blow)>,
    /// The connections before the blow that was dealt last, and when, until one of them is lost.
    waits: Option<(u64, Instant)>,
    dealt: Dealt,
    /// Connections that were made, of which some may be lost.
    peers: Vec<ConnectionId>,
    /// Connections that were lost, by reason.
    lost: BTreeMap<String, u64>,
}

/// What happens to the server or to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blow {
    Kill,
    Stop,
    /// This side closes a connection.
    CutHere,
    /// The server does.
    CutThere,
}

/// The process of the server.
struct Server {
    process: Started,
    /// It was commanded to stop.
    is_stopping: bool,
}

/// How often what was done.
#[derive(Debug, Default)]
struct Dealt {
    kills: u64,
    stops: u64,
    cuts: u64,
}

/// What is known of the calls.
struct Ledger {
    keys: Vec<Key>,
    open: HashMap<u32, Made>,
    made: u32,
    answered: u64,
    failed: BTreeMap<String, u64>,
    longest: Duration,
    last: Instant,
}

/// A call under way.
struct Made {
    order: Order,
    at: Instant,
    /// Whether it is lost with its connection.
    is_lost: bool,
}

#[derive(Default)]
struct Key {
    /// That of the last PUT that was answered.
    value: u64,
    /// A call of it is under way.
    is_taken: bool,
}

/// Calls, losses and kills.
pub fn run(wanted: &Wanted) {
    println!("seed {}", wanted.seed);
    let folder = Folder::new();
    let at = socket(&folder, "keeper.sock");
    let store = Store::open(at);
    let mut raw = config(false);
    raw.engine.idle.policy = "block".into();
    raw.engine.idle.spin = "20us".into();
    let (_engine, client) = client(&raw);
    let options = SessionOptions {
        connections: wanted.clients.unwrap_or(3) as usize,
        backoff_min: Duration::from_millis(1),
        backoff_max: Duration::from_millis(50),
        ..SessionOptions::default()
    };
    let session = Session::seeded(client, [at], &options, wanted.seed).expect("a session");
    let mut random = Random(wanted.seed);
    let plan = Blow::plan(wanted, &mut random);
    let mut test = StressTest {
        wanted,
        at,
        session,
        clock: Clock::new(),
        server: Server::start(wanted, at, wanted.seed),
        ledger: Ledger::new(),
        random,
        plan,
        waits: None,
        dealt: Dealt::default(),
        peers: Vec::new(),
        lost: BTreeMap::new(),
    };
    let begin = Instant::now();
    test.go_on();
    test.end();
    test.report(&store, begin.elapsed());
}

impl Blow {
    /// All blows, at random times.
    fn plan(wanted: &Wanted, random: &mut Random) -> Vec<(u64, Blow)> {
        let calls = wanted.calls.unwrap_or(CALLS);
        let kills = (0..wanted.kills).map(|_| [Blow::Kill, Blow::Stop]);
        let losses = (0..wanted.losses).map(|_| [Blow::CutHere, Blow::CutThere]);
        let mut plan: Vec<_> = kills
            .chain(losses)
            .map(|any| (u64::from(random.below(calls)), random.choose(&any)))
            .collect();
        plan.sort_unstable_by_key(|(at, _)| u64::MAX - at);
        plan
    }
}

impl Server {
    fn start(wanted: &Wanted, at: Address, seed: u64) -> Server {
        let process = Started::stress("keeper", wanted.options(at, false, seed));
        Server { process, is_stopping: false }
    }
}

impl StressTest<'_> {
    /// Until all calls are over and all blows are dealt.
    fn go_on(&mut self) {
        let calls = self.wanted.calls.unwrap_or(CALLS);
        while self.ledger.made < calls || !self.plan.is_empty() || !self.ledger.open.is_empty() {
            // Blows that are left hit calls, too.
            while self.ledger.open.len() < WINDOW
                && (self.ledger.made < calls || !self.plan.is_empty())
                && self.make_call()
            {}
            let ledger = &mut self.ledger;
            self.session.poll_for(Duration::from_millis(1), |done| ledger.on_done(&done));
            self.read_events();
            self.deal();
            let since = self.ledger.last.elapsed();
            assert!(since < HUNG, "no call is over for {since:.0?}: {}", self.state());
        }
    }

    /// Makes a call, if there is a key and room for it.
    fn make_call(&mut self) -> bool {
        let Some(key) = self.ledger.any_key(&mut self.random) else { return false };
        let puts = self.random.below(2) == 0;
        let order = Order { number: self.ledger.made + 1, key, puts };
        let mut call = self.session.call(order.number.into());
        order.words().into_iter().for_each(|word| call.put_u32(word));
        // A PUT that fails and may be executed later would be in the way of the next one.
        let is_lost = !puts && self.random.below(2) == 0;
        call.resend(if is_lost { Resend::Never } else { Resend::SameXid });
        match call.submit() {
            Ok(_) => {
                self.ledger.take(order, is_lost);
                true
            }
            Err(unsent) if unsent.why() == SessionRefused::Full => false,
            Err(unsent) => panic!("{}", unsent.why()),
        }
    }

    /// What has happened to the connections.
    fn read_events(&mut self) {
        while let Some(event) = self.session.next_event() {
            match event {
                SessionEvent::Connected { peer, .. } => self.peers.push(peer),
                SessionEvent::Lost { why, .. } => {
                    *self.lost.entry(why.to_string()).or_default() += 1;
                }
                _ => {}
            }
        }
        // The names of lost ones lead nowhere.
        let mut turn = self.session.turn(self.clock.now());
        self.peers.retain(|peer| turn.address(*peer).is_some());
    }

    /// Deals the next blow if it is due, to a server that is connected. It is over when a connection
    /// was lost.
    fn deal(&mut self) {
        if self.server.is_stopping {
            if let Some(status) = self.server.process.has_ended() {
                assert!(status.success(), "it was commanded to stop: {status}");
                self.begin_server();
            }
            return;
        }
        if let Some((lost, since)) = self.waits {
            if self.lost() > lost {
                self.plan.pop();
                self.waits = None;
            } else if since.elapsed() > MISSED {
                self.waits = None;
            }
            return;
        }
        let Some((at, blow)) = self.plan.last().copied() else { return };
        if self.ledger.over() < at || self.peers.is_empty() {
            return;
        }
        self.waits = Some((self.lost(), Instant::now()));
        match blow {
            Blow::CutThere => self.server.process.send("cut"),
            Blow::CutHere => {
                let peer = self.random.choose(&self.peers);
                self.session.handle().close(peer);
            }
            Blow::Stop => {
                self.server.process.send("stop");
                self.server.is_stopping = true;
            }
            Blow::Kill => {
                self.server.process.signal(Signal::KILL);
                self.server.process.wait();
                self.begin_server();
            }
        }
        match blow {
            Blow::CutHere | Blow::CutThere => self.dealt.cuts += 1,
            Blow::Stop => self.dealt.stops += 1,
            Blow::Kill => self.dealt.kills += 1,
        }
    }

    /// A server comes back at the same path.
    fn begin_server(&mut self) {
        let number = self.dealt.kills + self.dealt.stops + 1;
        self.server = Server::start(self.wanted, self.at, self.wanted.seed.wrapping_add(number));
    }

    /// Connections that were lost.
    fn lost(&self) -> u64 {
        self.lost.values().sum()
    }

    /// Ends the session and the server, which have lost nothing.
    fn end(&mut self) {
        self.session.close();
        let hung = Instant::now() + HUNG;
        while !self.session.is_closed() {
            self.session.poll_for(Duration::from_millis(1), |_| ());
            assert!(Instant::now() < hung, "it does not end: {}", self.state());
        }
        assert_eq!(self.session.handle().stats().buffers_leaked, 0);
        self.server.process.send("stop");
        assert!(self.server.process.wait().success());
    }

    /// What is known of a state in which it hangs.
    fn state(&mut self) -> String {
        format!(
            "{} connections, {} calls open, {} blows left, lost {:?}, {:?}",
            self.session.connections(),
            self.session.open_calls(),
            self.plan.len(),
            self.lost,
            self.session.audit()
        )
    }

    /// Compares what is known of the calls with what the server has kept.
    fn report(&self, store: &Store, took: Duration) {
        let StressTest { ledger, dealt, lost, .. } = self;
        let counts = store.counts();
        assert_eq!((ledger.open.len(), u64::from(ledger.made)), (0, ledger.over()));
        for (number, key) in ledger.keys.iter().enumerate() {
            let value = store.value(number as u32);
            assert_eq!(value, key.value, "key {number} has what was written last");
        }
        let Counts { executed, repeated, again, twice } = counts;
        assert_eq!(twice, 0, "no process executes a call twice");
        let Dealt { kills, stops, cuts } = dealt;
        println!(
            "{} calls in {took:.1?}: {} answered, failed: {:?}",
            ledger.over(),
            ledger.answered,
            ledger.failed
        );
        println!("  {kills} kills, {stops} stops, {cuts} cuts; connections lost: {lost:?}");
        println!("  executed {executed}, answered out of the reply cache {repeated}");
        println!("  executed again by the next server {again}, twice by the same {twice}");
        println!("  the longest call took {:.1?}", ledger.longest);
    }
}

impl Ledger {
    fn new() -> Ledger {
        Ledger {
            keys: (0..KEYS).map(|_| Key::default()).collect(),
            open: HashMap::new(),
            made: 0,
            answered: 0,
            failed: BTreeMap::new(),
            longest: Duration::ZERO,
            last: Instant::now(),
        }
    }

    /// A key that no call under way has.
    fn any_key(&self, random: &mut Random) -> Option<u32> {
        let is_free = |key: &Key| !key.is_taken;
        let free = self.keys.iter().filter(|key| is_free(key)).count();
        let chosen = random.below(u32::try_from(free).ok().filter(|free| *free > 0)?);
        let mut all = (0..KEYS).filter(|key| is_free(&self.keys[*key as usize]));
        all.nth(chosen as usize)
    }

    fn take(&mut self, order: Order, is_lost: bool) {
        self.made += 1;
        self.keys[order.key as usize].is_taken = true;
        let at = Instant::now();
        assert!(self.open.insert(order.number, Made { order, at, is_lost }).is_none());
    }

    /// Calls that are over.
    fn over(&self) -> u64 {
        self.answered + self.failed.values().sum::<u64>()
    }

    fn on_done(&mut self, done: &SessionCompletion<'_, '_>) {
        let number = u32::try_from(done.cookie()).expect("a number");
        let Made { order, at, is_lost } = self.open.remove(&number).expect("a call is over once");
        let key = &mut self.keys[order.key as usize];
        key.is_taken = false;
        (self.last, self.longest) = (Instant::now(), self.longest.max(at.elapsed()));
        match done.result() {
            Ok(reply) => {
                let value = reply.reader().u64().expect("a value");
                if order.puts {
                    key.value = number.into();
                }
                assert_eq!(value, key.value, "that of the last PUT: {order:?}");
                self.answered += 1;
            }
            Err(why) => {
                assert!(is_lost, "what may be sent again is answered: {order:?}, {why}");
                *self.failed.entry(why.to_string()).or_default() += 1;
            }
        }
    }
}

/// Calls at a time.
const WINDOW: usize = 32;
/// Calls, if the option is not given.
const CALLS: u32 = 20_000;
/// A blow that has hit nothing for so long is dealt again.
const MISSED: Duration = Duration::from_secs(1);
