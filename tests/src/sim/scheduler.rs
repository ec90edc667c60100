//! The scheduler: polls shards, advances the time, connects, closes and stops.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rpcrdma::control::Control;
use rpcrdma::provider::ConnectId;
use rpcrdma::shard::audit::Audit;
use rpcrdma::{Address, ConnectionId, Engine, SetupError, Shard};
use rpcrdma_config::Config;
use rpcrdma_testing::fault::{FaultLog, FaultyProvider};

use super::model::{End, Model, Violation};
use super::program::Program;
use super::provider::SimProvider;
use super::scenario::Setup;
use super::trace::Event;
use crate::checked_provider::{CheckedProvider, Watch, Weaken};
use crate::script::{POISON, Random};
use crate::setup::LAST_XIDS;
use crate::world::checked;

/// The device of a simulation.
pub type Device<P> = CheckedProvider<FaultyProvider<P>>;

/// A run.
pub struct Sim<P: SimProvider> {
    /// Dropped before their engines.
    pub nodes: Vec<Node<P>>,
    /// The control planes, one for each engine.
    pub controls: Vec<Control<Device<P>>>,
    /// The fault logs, one for each engine.
    pub logs: Vec<Arc<FaultLog>>,
    /// The model that all programs report to.
    pub model: Rc<RefCell<Model>>,
    /// The counters of all devices.
    pub watch: Arc<Watch>,
    /// The time in nanoseconds.
    pub now: u64,
    /// The random numbers of the run.
    pub random: Random,
    /// The scenario.
    pub setup: Setup,
    /// The current attempt to connect: one at a time, so that its ends are known.
    pub handshake: Option<Handshake>,
    /// Ends of unknown connections on which bytes of a message were changed.
    pub strangers: HashSet<End>,
    /// Whether an engine has had as many connections as one peer may have, since the current
    /// attempt to connect began.
    pub is_crowded: bool,
    /// Whether the faults have stopped.
    pub is_draining: bool,
    /// Whether every call is complete.
    pub is_quiet: bool,
    /// Whether the time has advanced so far that every deadline may have passed.
    pub has_leapt: bool,
    /// Dropped after everything that uses them.
    pub engines: Vec<Engine<Device<P>>>,
    /// The provider below the faults.
    pub base: P,
    clock: Arc<AtomicU64>,
    listening: Vec<Address>,
    last: usize,
}

/// One set of queues of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuesOf {
    /// The index of the engine.
    pub engine: usize,
    /// The number of the queues at their provider.
    pub queues: u64,
}

/// A shard.
pub struct Node<P: SimProvider> {
    /// The shard, production code with the program as its handler.
    pub shard: Shard<Device<P>, Program>,
    /// Its engine, and its queues.
    pub of: QueuesOf,
    /// Its audit after the last turn.
    pub audit: Audit,
    /// Its connections by queue pair number, including ended ones.
    pub names: HashMap<u32, ConnectionId>,
    /// Its connections, including ended ones.
    pub seen: HashSet<ConnectionId>,
    /// Whether it was asked to stop.
    pub is_stopping: bool,
    /// Whether it has reached its maximum of connections.
    pub was_full: bool,
    /// Receives reserved for messages without a credit.
    pub control_reserve: usize,
}

/// An attempt to connect.
#[derive(Debug)]
pub struct Handshake {
    /// The requesting shard, and the identifier of the attempt.
    pub by: (usize, ConnectId),
    /// The ends that have been seen.
    pub ends: Vec<End>,
    /// The second connections that the requesting shard had made before this attempt.
    pub retries: u64,
    /// After the attempt: the control planes that were not stepped since, and the shards that had
    /// no turn since.
    pub left: Option<(usize, Vec<bool>)>,
}

impl<P: SimProvider> Sim<P> {
    /// Sets up a run: engines and shards without connections.
    pub fn new(setup: &Setup, mut random: Random) -> Sim<P> {
        let clock = Arc::new(AtomicU64::new(1));
        let base = P::open(setup, &clock);
        let (model, watch) = (Rc::<RefCell<Model>>::default(), P::watch());
        let (mut nodes, mut controls, mut engines) = (Vec::new(), Vec::new(), Vec::new());
        let (mut logs, mut listening) = (Vec::new(), Vec::new());
        for (at, it) in setup.engines.iter().enumerate() {
            if it.raw.explicit.exposure.as_str() == "static-insecure" {
                watch.allows_static.store(true, Ordering::Relaxed);
            }
            let mut raw = it.raw.clone();
            P::configure(setup, &mut raw);
            let config = checked(&raw);
            let provider = FaultyProvider::new(base.clone(), it.faults);
            // A shard that cannot post its Receives cannot be made.
            provider.hooks().log().end();
            logs.push(provider.hooks().log());
            let provider = CheckedProvider::new(provider, Arc::clone(&watch)).weaker(|caps| {
                caps.send_depth = it.caps.send_depth;
                caps.send_sge = caps.send_sge.min(it.caps.send_sge);
                caps.read_sge = caps.read_sge.min(it.caps.read_sge);
                caps.windows = caps.windows.min(it.caps.windows);
                caps.rd_atomic = caps.rd_atomic.min(it.caps.rd_atomic);
                caps.inline_len = caps.inline_len.min(it.caps.inline_len);
            });
            let (engine, mut control) =
                Engine::without_threads(provider, config.clone()).expect("an engine");
            if it.listens {
                let address: Address = P::ADDRESS.parse().expect("an address");
                listening.push(control.listen(address).expect("a port"));
            }
            for which in 0..it.shards {
                let seed = u64::from(random.below(1 << 31));
                // The same seed gives the same run. The XIDs of every second shard wrap soon.
                engine.seed_xids(if nodes.len().is_multiple_of(2) { LAST_XIDS } else { 0 });
                let program = Program::new(nodes.len(), seed, setup.habits, &model);
                let shard = engine.shard(program).expect("memory and queues");
                nodes.push(Node::new(
                    shard,
                    QueuesOf { engine: at, queues: which as u64 },
                    &config,
                ));
            }
            controls.push(control);
            engines.push(engine);
        }
        logs.iter().for_each(|log| log.begin());
        Sim {
            nodes,
            controls,
            logs,
            model,
            watch,
            now: 1,
            random,
            setup: setup.clone(),
            handshake: None,
            strangers: HashSet::new(),
            is_crowded: false,
            is_draining: false,
            is_quiet: false,
            has_leapt: false,
            engines,
            base,
            clock,
            listening,
            last: 0,
        }
    }

    /// The whole run.
    ///
    /// # Errors
    /// The first violation.
    pub fn run(&mut self) -> Result<(), Violation> {
        for _ in 0..self.setup.steps {
            self.step()?;
        }
        self.drain()?;
        self.stop_all()?;
        self.tear_down()
    }

    /// One step: mostly a shard's turn.
    ///
    /// # Errors
    /// The first violation.
    pub fn step(&mut self) -> Result<(), Violation> {
        self.move_time();
        self.base.step();
        match self.random.below(100) {
            0..4 => self.step_control(),
            4..40 if self.handshake.is_some() => self.step_control(),
            4..30 if !self.is_draining && !self.is_full() => self.connect(),
            30..32 if !self.is_draining => self.connect(),
            40 if !self.is_draining => self.close_one(),
            41 if !self.is_draining => self.stop_one(),
            42 => self.poison_one(),
            43..45 => self.rest_one(),
            _ => {}
        }
        let at = self.choose();
        self.poll(at)
    }

    /// A shard's turn, and the checks after it.
    ///
    /// # Errors
    /// The first violation.
    pub fn poll(&mut self, at: usize) -> Result<(), Violation> {
        let busy = self.nodes[at].shard.poll_once(self.now);
        self.model.borrow_mut().trace.note(Event::Poll { shard: at, now: self.now, busy });
        self.look(at)
    }

    /// Advances the time.
    pub fn leap(&mut self, nanos: u64) {
        self.now += nanos;
        self.clock.store(self.now, Ordering::Release);
    }

    fn move_time(&mut self) {
        let leap_ns = if self.is_draining { DRAIN_LEAP_NS } else { self.setup.leap_ns };
        let leap = match self.random.below(4) {
            0 => 0,
            1 => 100,
            2 => self.random.below(leap_ns.min(self.setup.leap_ns) + 1),
            _ => self.random.below(2_000),
        };
        self.leap(leap.into());
    }

    fn choose(&mut self) -> usize {
        if self.random.below(100) >= self.setup.streak {
            self.last = self.random.below(self.nodes.len() as u32) as usize;
        }
        self.last
    }

    fn step_control(&mut self) {
        let at = self.random.below(self.controls.len() as u32) as usize;
        self.model.borrow_mut().trace.note(Event::Control(at));
        self.controls[at].step(Duration::ZERO);
        self.note_full();
        // From the last to the first, so that none is skipped.
        if let Some(Handshake { left: Some((left, _)), .. }) = &mut self.handshake
            && *left == at + 1
        {
            *left = at;
        }
    }

    /// Whether there have been as many connections as shards.
    fn is_full(&self) -> bool {
        self.model.borrow().about.len() >= self.nodes.len()
    }

    /// A random shard connects to a random engine, if no other attempt is in progress.
    fn connect(&mut self) {
        if self.handshake.is_some() || self.model.borrow().about.len() >= LINKS_MAX {
            return;
        }
        let at = self.random.below(self.nodes.len() as u32) as usize;
        let to = self.random.below(self.listening.len() as u32) as usize;
        let to = self.listening[to];
        self.is_crowded = false;
        self.note_full();
        match self.nodes[at].shard.connect(to) {
            Ok(id) => {
                self.model.borrow_mut().trace.note(Event::Connect(at, id));
                let retries = self.nodes[at].retries();
                let ends = Vec::new();
                self.handshake = Some(Handshake { by: (at, id), ends, retries, left: None });
            }
            Err(SetupError::Connect { .. }) => self.model.borrow_mut().saw("no room to connect"),
            Err(other) => panic!("an attempt: {other}"),
        }
    }

    fn close_one(&mut self) {
        if !self.setup.habits.close {
            return;
        }
        let at = self.random.below(self.nodes.len() as u32) as usize;
        let up = &self.nodes[at].shard.handler().up;
        if up.is_empty() {
            return;
        }
        let peer = up[self.random.below(up.len() as u32) as usize];
        self.close(at, peer);
    }

    /// The program of a shard ends a connection.
    pub fn close(&mut self, at: usize, peer: ConnectionId) {
        let mut model = self.model.borrow_mut();
        model.trace.note(Event::Close(at, peer));
        model.ordered.push((at, peer));
        model.saw("connections closed");
        assert!(self.nodes[at].shard.handle().close(peer), "there is room for every order");
    }

    fn stop_one(&mut self) {
        if !self.setup.habits.stop || self.random.below(3) > 0 {
            return;
        }
        let at = self.random.below(self.nodes.len() as u32) as usize;
        self.stop(at);
    }

    /// Asks a shard to stop.
    pub fn stop(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if !std::mem::replace(&mut node.is_stopping, true) {
            let mut model = self.model.borrow_mut();
            model.trace.note(Event::Stop(at));
            model.saw("shards stopped");
            node.shard.handle().stop();
        }
    }

    /// Overwrites free memory, which must never be read or sent.
    fn poison_one(&mut self) {
        let at = self.random.below(self.nodes.len() as u32) as usize;
        self.nodes[at].shard.poison(POISON);
    }

    /// A host that waits instead of polling: it announces its sleep and is woken at once.
    fn rest_one(&mut self) {
        let at = self.random.below(self.nodes.len() as u32) as usize;
        let idle = &self.setup.engines[self.nodes[at].of.engine].raw.engine.idle.policy;
        if idle.as_str() == "block" {
            self.nodes[at].shard.wait(Duration::ZERO);
        }
    }
}

impl<P: SimProvider> Node<P> {
    fn new(shard: Shard<Device<P>, Program>, of: QueuesOf, config: &Config) -> Node<P> {
        Node {
            audit: shard.audit(),
            shard,
            of,
            names: HashMap::new(),
            seen: HashSet::new(),
            is_stopping: false,
            was_full: false,
            control_reserve: config.control_reserve() as usize,
        }
    }

    /// The second connections made because the first was lost before its version was known.
    pub fn retries(&self) -> u64 {
        let stats = self.shard.handle().stats();
        stats.fallbacks_loss + stats.fallbacks_silence
    }
}

/// The longest advance of the time after the faults have stopped: too short for a deadline.
const DRAIN_LEAP_NS: u32 = 100_000;
/// The maximum number of connections of a run.
const LINKS_MAX: usize = 12;
