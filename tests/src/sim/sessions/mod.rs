//! Sessions in the simulation: their servers are killed and come back, connections are lost and
//! closed, and every call ends once, as it may.
//!
//! ```text
//!   sessions ──▶ one to three addresses ──▶ servers that live and die
//!   then: all servers live, no faults, every call completes; the sessions close, all memory is free
//! ```

mod caller;
mod ledger;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rpcrdma::control::Control;
use rpcrdma::{Engine, Session, SessionOptions, Shard};
use rpcrdma_config::{Config, Raw};
use rpcrdma_testing::fault::{FaultLog, FaultPlan, FaultyProvider};

use self::caller::{Caller, Host};
use self::ledger::Ledger;
use super::invariants::{self, CHECKS, State};
use super::model::{Coverage, Violation};
use super::provider::SimProvider;
use super::scenario::{Setup, Weather};
use super::scheduler::Device;
use super::trouble::faults;
use crate::checked_provider::{CheckedProvider, Watch};
use crate::script::Random;
use crate::service::Service;
use crate::setup::{LAST_XIDS, checked, small};

/// What a run has seen.
pub type Seen = ((u64, u64), Coverage);

/// Runs the sessions of a seed. A provider without fixed addresses has none.
///
/// # Errors
/// The violation, and the events before it.
pub fn run<P: SimProvider>(seed: u64, setup: &Setup) -> Result<Seen, (Violation, Vec<String>)> {
    let ledger = Rc::<RefCell<Ledger>>::default();
    let ran = catch_unwind(AssertUnwindSafe(|| Town::<P>::new(seed, setup, &ledger).run()));
    let violation = match ran {
        Ok(Ok(())) => {
            let mut ledger = ledger.borrow_mut();
            return Ok((ledger.hash(), std::mem::take(&mut ledger.coverage)));
        }
        Ok(Err(violation)) => violation,
        Err(panic) => super::panicked(&*panic),
    };
    let story = ledger.try_borrow().map(|ledger| ledger.story()).unwrap_or_default();
    Err((violation, story))
}

/// A server at work; dropping it is as if its process were killed.
struct Running<P: SimProvider> {
    shard: Shard<Device<P>, Host>,
    control: Control<Device<P>>,
    log: Arc<FaultLog>,
    _engine: Engine<Device<P>>,
}

/// Sessions, and servers that come and go.
struct Town<P: SimProvider> {
    callers: Vec<Caller<Device<P>>>,
    servers: Vec<Option<Running<P>>>,
    control: Control<Device<P>>,
    log: Arc<FaultLog>,
    _engine: Engine<Device<P>>,
    base: P,
    raw: Raw,
    plan: FaultPlan,
    watch: Arc<Watch>,
    clock: Arc<AtomicU64>,
    ledger: Rc<RefCell<Ledger>>,
    random: Random,
    now: u64,
    /// Servers begun so far.
    lives: u32,
    steps: u32,
    is_draining: bool,
}

impl<P: SimProvider> Town<P> {
    fn new(seed: u64, setup: &Setup, ledger: &Rc<RefCell<Ledger>>) -> Town<P> {
        let mut random = Random(seed.wrapping_mul(0xa076_1d64_78bd_642f));
        let clock = Arc::new(AtomicU64::new(1));
        let (base, watch) = (P::open(setup, &clock), P::watch());
        let weather = random.choose(&[Weather::Calm, Weather::Rough, Weather::Storm]);
        let plan = faults(&mut random, weather);
        let mut raw = [&setup.engines[0].raw, &small()].map(|raw| wide::<P>(setup, raw));
        raw.sort_by_key(|raw| Config::try_from(raw.clone()).is_err());
        let [raw, _] = raw;
        let (engine, control, log) = begin(&base, &raw, plan, &watch);
        engine.seed_xids(if random.below(2) == 0 { LAST_XIDS } else { 0 });
        let servers = 1 + random.below(3) as usize;
        let mut callers = Vec::new();
        for index in 0..1 + random.below(2) as usize {
            let options = SessionOptions {
                connections: 1 + random.below(3) as usize,
                backoff_min: Duration::from_millis(1),
                backoff_max: Duration::from_millis(4),
                waiting_calls: random.choose(&[0, 5, 50, 200]),
                waiting_bytes: random.choose(&[20_000, 1 << 20, 1 << 20]),
            };
            let client = engine.client().expect("a client");
            let addresses = (0..servers).filter_map(P::service);
            let session = Session::seeded(client, addresses, &options, seed).expect("a session");
            let own = Random(u64::from(random.below(1 << 31)));
            let len_max = setup.habits.len_max;
            callers.push(Caller::new(session, index, own, Rc::clone(ledger), len_max));
        }
        log.begin();
        Town {
            callers,
            servers: (0..servers).map(|_| None).collect(),
            control,
            log,
            _engine: engine,
            base,
            raw,
            plan,
            watch,
            clock,
            ledger: Rc::clone(ledger),
            steps: 100 + random.below(700),
            random,
            now: 1,
            lives: 0,
            is_draining: false,
        }
    }

    fn run(mut self) -> Result<(), Violation> {
        for _ in 0..self.steps {
            self.step()?;
        }
        self.drain()?;
        self.close()
    }

    fn step(&mut self) -> Result<(), Violation> {
        let leap = match self.random.below(4) {
            0 => 0,
            1 => 1_000,
            2 => self.random.below(20_000),
            _ => self.random.below(200_000),
        };
        self.now += u64::from(leap);
        self.clock.store(self.now, Ordering::Release);
        self.base.step();
        match self.random.below(100) {
            0..30 => self.step_control(),
            30..32 if !self.is_draining => self.change_server(),
            32 if !self.is_draining => self.close_one(),
            33 if !self.is_draining && self.random.below(40) == 0 => self.close_session(),
            33..68 => return self.poll_server(),
            _ => {}
        }
        let at = self.random.below(self.callers.len() as u32) as usize;
        self.poll(at)
    }

    /// A poll of a session, and the checks after it.
    fn poll(&mut self, at: usize) -> Result<(), Violation> {
        let (now, is_draining) = (self.now, self.is_draining);
        let caller = &mut self.callers[at];
        if !is_draining && caller.random.below(6) == 0 {
            caller.act(now);
        }
        let busy = caller.poll(now);
        self.ledger.borrow_mut().note("poll", at as u64, now * 2 + u64::from(busy));
        self.check(at)
    }

    fn check(&mut self, at: usize) -> Result<(), Violation> {
        let mut ledger = self.ledger.borrow_mut();
        if let Some(violation) = ledger.violation.take() {
            return Err(violation);
        }
        let audits: Vec<_> = self.callers.iter_mut().map(|it| it.session.audit()).collect();
        let servers = self.servers.iter().flatten().map(|it| it.shard.audit().exposures);
        let is_exposed =
            servers.chain(audits.iter().map(|audit| audit.exposures)).any(|count| count > 0);
        let caller = &self.callers[at];
        let (open, under_way) = (caller.session.open_calls(), caller.session.under_way());
        let violated = |check, detail| Err(Violation { check, detail });
        if open != ledger.open(at) {
            return violated(OPEN, format!("session {at}: {open} and {}", ledger.open(at)));
        }
        // The shard looks at those that are under way now and then.
        let late = ledger.late(at, self.now);
        if late > under_way {
            return violated(LATE, format!("session {at}: {late} late, {under_way} under way"));
        }
        let state = State {
            shard: at,
            audit: &audits[at],
            stats: caller.session.handle().stats(),
            loans_kept: 0,
            keys_open: self.watch.open.load(Ordering::Relaxed),
            is_exposed,
            keys_kept: 0,
            keeps_rights: false,
            calls_open: under_way,
            control_reserve: 0,
            is_starved: true,
            is_lost: false,
        };
        // The memory of calls that wait, or may be sent again, is counted at the end.
        for (name, check) in CHECKS.into_iter().filter(|(name, _)| *name != LOANS) {
            check(&state).or_else(|detail| violated(name, format!("session {at}: {detail}")))?;
        }
        Ok(())
    }

    fn step_control(&mut self) {
        let at = self.random.below(1 + self.servers.len() as u32) as usize;
        let control = match self.servers.get_mut(at) {
            Some(Some(server)) => &mut server.control,
            Some(None) => return,
            None => &mut self.control,
        };
        control.step(Duration::ZERO);
    }

    fn poll_server(&mut self) -> Result<(), Violation> {
        let at = self.random.below(self.servers.len() as u32) as usize;
        let (now, forgets) = (self.now, self.is_draining || self.random.below(30) == 0);
        if let Some(server) = &mut self.servers[at] {
            if forgets {
                server.shard.handler().service.never.clear();
            }
            let busy = server.shard.poll_once(now);
            self.ledger.borrow_mut().note("serve", at as u64, u64::from(busy));
        }
        Ok(())
    }

    /// A server is killed, or begins.
    fn change_server(&mut self) {
        let at = self.random.below(self.servers.len() as u32) as usize;
        if self.servers[at].take().is_none() {
            return self.begin(at);
        }
        let mut ledger = self.ledger.borrow_mut();
        ledger.note("killed", at as u64, self.now);
        ledger.saw("servers of sessions killed");
    }

    fn begin(&mut self, at: usize) {
        self.lives += 1;
        let plan = FaultPlan { seed: self.plan.seed + u64::from(self.lives), ..self.plan };
        let (engine, mut control, log) = begin(&self.base, &self.raw, plan, &self.watch);
        let service = Service::default();
        let host = Host { life: self.lives, service, ledger: Rc::clone(&self.ledger) };
        let shard = engine.shard(host).expect("memory and queues");
        let address = P::service(at).expect("it has sessions");
        control.listen(address).expect("no other listens there");
        if !self.is_draining {
            log.begin();
        }
        self.servers[at] = Some(Running { shard, control, log, _engine: engine });
        self.ledger.borrow_mut().note("begins", at as u64, self.now);
    }

    /// One side ends a connection.
    fn close_one(&mut self) {
        let at = self.random.below(self.callers.len() as u32) as usize;
        let Caller { session, peers, .. } = &self.callers[at];
        if let Some(peer) = peers.last() {
            self.ledger.borrow_mut().note("close", at as u64, self.now);
            assert!(session.handle().close(*peer), "there is room for every order");
        }
    }

    fn close_session(&mut self) {
        let at = self.random.below(self.callers.len() as u32) as usize;
        self.close_at(at);
    }

    fn close_at(&mut self, at: usize) {
        let mut ledger = self.ledger.borrow_mut();
        ledger.note("closed", at as u64, self.now);
        ledger.saw("sessions closed");
        ledger.closed.push(at);
        self.callers[at].session.close();
    }

    /// Without faults, and with all servers, every call completes.
    fn drain(&mut self) -> Result<(), Violation> {
        self.is_draining = true;
        self.ledger.borrow_mut().note("drain", 0, self.now);
        self.log.end();
        self.base.calm();
        self.servers.iter().flatten().for_each(|server| server.log.end());
        for at in 0..self.servers.len() {
            if self.servers[at].is_none() {
                self.begin(at);
            }
        }
        self.until("every call of a session ends", |caller| caller.session.open_calls() == 0)
    }

    fn close(mut self) -> Result<(), Violation> {
        (0..self.callers.len()).for_each(|at| self.close_at(at));
        self.until("every session ends", |caller| caller.session.is_closed())?;
        for caller in &mut self.callers {
            caller.let_go();
            invariants::check_stopped(caller.index, &caller.session.audit(), false)?;
        }
        let watch = Arc::clone(&self.watch);
        drop(self);
        let (regions, receives) = (&watch.regions, &watch.receives);
        match (regions.load(Ordering::Relaxed), receives.load(Ordering::Relaxed)) {
            (0, 0) => Ok(()),
            left => {
                let detail = format!("{left:?} regions and Receives");
                Err(Violation { check: "nothing is left with the device", detail })
            }
        }
    }

    fn until(
        &mut self,
        check: &'static str,
        is_so: impl Fn(&mut Caller<Device<P>>) -> bool,
    ) -> Result<(), Violation> {
        for _ in 0..STEPS_MAX {
            if self.callers.iter_mut().all(&is_so) {
                return Ok(());
            }
            self.step()?;
        }
        let audits =
            self.callers.iter_mut().map(|it| (it.session.open_calls(), it.session.audit()));
        let open = self.ledger.borrow().open_calls();
        let detail = format!("{STEPS_MAX} steps later: {open}, {:?}", audits.collect::<Vec<_>>());
        Err(Violation { check, detail })
    }
}

/// An engine whose device has faults from [`FaultLog::begin`] on.
fn begin<P: SimProvider>(
    base: &P,
    raw: &Raw,
    plan: FaultPlan,
    watch: &Arc<Watch>,
) -> (Engine<Device<P>>, Control<Device<P>>, Arc<FaultLog>) {
    let provider = FaultyProvider::new(base.clone(), plan);
    let log = provider.hooks().log();
    log.end();
    let provider = CheckedProvider::new(provider, Arc::clone(watch));
    let (engine, control) =
        Engine::without_threads(provider, checked(raw)).expect("the configuration holds");
    (engine, control, log)
}

/// A configuration with room for all sessions, at both ends.
fn wide<P: SimProvider>(setup: &Setup, raw: &Raw) -> Raw {
    let mut raw = raw.clone();
    P::configure(setup, &mut raw);
    raw.connections.max = 8;
    raw.connections.max_per_peer = 0;
    (raw.connections.allow, raw.connections.deny) = (Vec::new(), Vec::new());
    raw.app.bulk.count = 12;
    if raw.explicit.exposure.as_str() == "static-insecure" {
        // Permanent rights keep the memory of a call that was given up while its connection lasts,
        // and another call may wait for it as long.
        raw.explicit.exposure = "registration".into();
    }
    raw
}

/// The limit of steps until every call is complete, and until every session has ended.
const STEPS_MAX: u32 = 30_000;

const OPEN: &str = "the open calls of a session are those that were submitted";
const LATE: &str = "a call of a session that waits ends at its deadline";
/// The check that is made at the end.
const LOANS: &str = "each segment and buffer has one owner";
