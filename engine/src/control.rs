//! The control plane: one connection manager, and who gets the connections it makes.
//!
//! ```text
//!   Engine, shards ──requests──▶ Control::step ──▶ ConnectionManager
//!                                     │
//!                     Arrival ◀───────┘  to the shard that asked, or to the next that serves
//! ```

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use rpcrdma_config::Config;
use rpcrdma_xdr::private_data::PrivateData;

use crate::budget;
use crate::error::SetupError;
use crate::provider::{
    CmEvent, ConnParam, ConnectError, ConnectId, ConnectionManager, Handle, Provider, Queues, Waker,
};
use crate::shard::core::Core;
use crate::shard::inbox::{Bell, Inbox};
use crate::shard::letters::Arrival;
use crate::versions::VersionMemory;

/// The connection manager and its state. Stepped by the engine's control thread, or by a host
/// that wants no threads.
pub struct Control<P: Provider> {
    cm: P::Cm,
    office: Arc<Office<P>>,
    attempts: Vec<Attempt>,
    /// The shard that got the last connection.
    last: usize,
}

/// What the control plane shares with the shards and the engine.
pub(crate) struct Office<P: Provider> {
    desks: Mutex<Vec<Desk<P>>>,
    requests: Mutex<Vec<Request>>,
    waker: Waker,
    stopped: AtomicBool,
    next_id: AtomicU64,
    param: Param,
    versions: VersionMemory,
}

/// What connections are made with.
struct Param {
    private: [u8; 8],
    rnr_retry: u8,
    timeout: Duration,
}

/// A shard, as the control plane sees it.
struct Desk<P: Provider> {
    shard: u32,
    queues: Handle<P::Cm>,
    arrivals: Arc<Inbox<Arrival<P>>>,
    bell: Arc<Bell>,
    connections_max: usize,
    /// Whether it takes connections from the listeners.
    serves: bool,
}

/// What the control plane is asked for.
enum Request {
    Listen { at: SocketAddr, answer: mpsc::Sender<Result<SocketAddr, SetupError>> },
    Connect(Wish),
}

/// A connection that a shard wants.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish {
    pub shard: u32,
    pub to: SocketAddr,
    /// The shard's name for it.
    pub id: ConnectId,
    /// Whether it stands for one on which version two was tried in vain.
    pub again: bool,
}

/// A connection that is being made.
struct Attempt {
    /// The connection manager's name for it.
    inner: ConnectId,
    wish: Wish,
    until: Instant,
}

/// A shard's place in the control plane.
pub(crate) struct Attachment<P: Provider> {
    office: Arc<Office<P>>,
    shard: u32,
    bell: Arc<Bell>,
    connections_max: usize,
}

impl<P: Provider> Control<P> {
    pub(crate) fn new(provider: &P, config: &Config) -> Result<Control<P>, SetupError> {
        let waker = Waker::new().map_err(|source| SetupError::System {
            call: "eventfd",
            source,
            hint: "the process may have no file descriptor left (ulimit -n)",
        })?;
        // wire.md P15: the private data are for peers that speak version one.
        let param = Param {
            private: budget::settings(config, provider.caps()).private_data().encode(),
            rnr_retry: config.connections().rnr_retry.value() as u8,
            timeout: config.connections().connect_timeout,
        };
        let office = Arc::new(Office {
            desks: Mutex::new(Vec::new()),
            requests: Mutex::new(Vec::new()),
            waker,
            stopped: AtomicBool::new(false),
            next_id: AtomicU64::new(1),
            param,
            versions: VersionMemory::new(config.protocol().version_memory),
        });
        Ok(Control { cm: provider.open_cm()?, office, attempts: Vec::new(), last: 0 })
    }

    pub(crate) fn office(&self) -> Arc<Office<P>> {
        self.office.clone()
    }

    /// Listens; connections go in turn to the shards that serve.
    ///
    /// # Errors
    /// If the address is taken or not to be had.
    pub fn listen(&mut self, at: SocketAddr) -> Result<SocketAddr, SetupError> {
        self.cm.listen(at)
    }

    /// Works off what has been asked for and what has happened, waiting for it at most `timeout`.
    pub fn step(&mut self, timeout: Duration) {
        let requests = core::mem::take(&mut *lock(&self.office.requests));
        for request in requests {
            match request {
                Request::Listen { at, answer } => {
                    // Whoever asked may have gone; then the listener stays for others.
                    let _ = answer.send(self.cm.listen(at));
                }
                Request::Connect(wish) => self.connect(wish),
            }
        }
        self.give_up();
        let waker = self.office.waker.clone();
        let mut event = self.cm.next(&waker, timeout);
        waker.drain();
        while let Some(happened) = event {
            self.on_event(happened);
            event = self.cm.next(&waker, Duration::ZERO);
        }
    }

    /// Steps until the engine stops.
    pub(crate) fn run(mut self) {
        while !self.office.stopped.load(Ordering::Acquire) {
            self.step(STEP);
        }
    }

    fn on_event(&mut self, event: CmEvent<P::Cm>) {
        match event {
            CmEvent::Request { request, from, private } => {
                self.accept(request, from, PrivateData::decode(&private));
            }
            CmEvent::Connected { id, endpoint, private } => {
                let Some(Attempt { wish, .. }) = self.take_attempt(id) else { return };
                let private = PrivateData::decode(&private);
                self.deliver(wish.shard, Arrival::Connected { wish, endpoint, private });
            }
            CmEvent::Refused { id, reason } => {
                let Some(Attempt { wish, .. }) = self.take_attempt(id) else { return };
                self.refuse(wish, reason);
            }
        }
    }

    /// Gives a connection to the next shard that serves and has room.
    fn accept(
        &mut self,
        request: <P::Cm as ConnectionManager>::Request,
        from: SocketAddr,
        private: Option<PrivateData>,
    ) {
        let office = self.office.clone();
        let desks = lock(&office.desks);
        let count = desks.len();
        let mut turn = (1..=count).map(|step| (self.last + step) % count);
        let chosen = turn.find(|&at| {
            let desk = &desks[at];
            desk.serves && !desk.bell.is_stop_wanted() && desk.bell.reserve(desk.connections_max)
        });
        let Some(at) = chosen else {
            self.cm.reject(request, &[]);
            return;
        };
        self.last = at;
        let desk = &desks[at];
        match self.cm.accept(request, &desk.queues, &office.param.as_conn_param()) {
            Ok(endpoint) => {
                if desk.arrivals.send(Arrival::Accepted { endpoint, from, private }).is_err() {
                    desk.bell.disconnected();
                }
            }
            Err(_) => desk.bell.disconnected(),
        }
    }

    fn connect(&mut self, wish: Wish) {
        let office = self.office.clone();
        let desks = lock(&office.desks);
        let Some(desk) = desks.iter().find(|desk| desk.shard == wish.shard) else { return };
        match self.cm.connect(wish.to, &desk.queues, &office.param.as_conn_param()) {
            Ok(inner) => {
                let until = Instant::now() + office.param.timeout;
                self.attempts.push(Attempt { inner, wish, until });
            }
            Err(error) => {
                drop(desks);
                let reason = match error {
                    SetupError::Connect { reason, .. } => reason,
                    _ => ConnectError::Failed,
                };
                self.refuse(wish, reason);
            }
        }
    }

    /// Ends attempts that take too long, and those of shards that are gone.
    fn give_up(&mut self) {
        if self.attempts.is_empty() {
            return;
        }
        let now = Instant::now();
        let shards: Vec<u32> = lock(&self.office.desks).iter().map(|desk| desk.shard).collect();
        let is_open = |it: &Attempt| it.until > now && shards.contains(&it.wish.shard);
        let (open, ended): (Vec<_>, Vec<_>) =
            core::mem::take(&mut self.attempts).into_iter().partition(is_open);
        self.attempts = open;
        for attempt in ended {
            let why = self.cm.cancel(attempt.inner);
            self.refuse(attempt.wish, why.unwrap_or(ConnectError::TimedOut));
        }
    }

    fn take_attempt(&mut self, inner: ConnectId) -> Option<Attempt> {
        let at = self.attempts.iter().position(|attempt| attempt.inner == inner)?;
        Some(self.attempts.swap_remove(at))
    }

    fn refuse(&self, wish: Wish, reason: ConnectError) {
        self.deliver(wish.shard, Arrival::Refused { id: wish.id, reason });
    }

    fn deliver(&self, shard: u32, arrival: Arrival<P>) {
        let desks = lock(&self.office.desks);
        if let Some(desk) = desks.iter().find(|desk| desk.shard == shard) {
            // Each arrival has a reserved connection, and there is room for as many.
            let sent = desk.arrivals.send(arrival);
            debug_assert!(sent.is_ok(), "more arrivals than reserved connections");
        }
    }
}

impl Param {
    fn as_conn_param(&self) -> ConnParam<'_> {
        ConnParam { private: &self.private, rnr_retry: self.rnr_retry }
    }
}

impl<P: Provider> Office<P> {
    /// Gives a shard its place.
    pub(crate) fn attach(
        self: &Arc<Self>,
        core: &mut Core<P>,
        serves: bool,
        connections_max: usize,
    ) -> Attachment<P> {
        let (shard, bell) = (core.handle.shard(), core.handle.bell().clone());
        lock(&self.desks).push(Desk {
            shard,
            queues: core.io.queues().handle(),
            arrivals: core.arrivals(),
            bell: bell.clone(),
            connections_max,
            serves,
        });
        Attachment { office: self.clone(), shard, bell, connections_max }
    }

    /// Listens, on the control thread.
    pub fn listen(&self, at: SocketAddr) -> Result<SocketAddr, SetupError> {
        let (answer, outcome) = mpsc::channel();
        self.request(Request::Listen { at, answer });
        outcome.recv().map_err(|_| SetupError::Stopped)?
    }

    /// Ends the control thread.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.waker.ring();
    }

    fn request(&self, request: Request) {
        lock(&self.requests).push(request);
        self.waker.ring();
    }
}

impl<P: Provider> Attachment<P> {
    /// Asks for a connection.
    pub fn connect(&self, to: SocketAddr) -> Result<ConnectId, SetupError> {
        if self.office.stopped.load(Ordering::Acquire) {
            return Err(SetupError::Stopped);
        }
        if !self.bell.reserve(self.connections_max) {
            return Err(SetupError::Connect { to, reason: ConnectError::NoRoom });
        }
        let id = ConnectId(self.office.next_id.fetch_add(1, Ordering::Relaxed));
        self.ask(Wish { shard: self.shard, to, id, again: false });
        Ok(id)
    }

    /// Asks for a connection whose place is reserved.
    pub fn ask(&self, wish: Wish) {
        self.office.request(Request::Connect(wish));
    }

    /// Who is known to speak version one only.
    pub fn memory(&self) -> &VersionMemory {
        &self.office.versions
    }
}

impl<P: Provider> Drop for Attachment<P> {
    /// Takes the shard out of the control plane: it gets no more connections.
    fn drop(&mut self) {
        lock(&self.office.desks).retain(|desk| desk.shard != self.shard);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is guarded is never left half done, so a panic elsewhere does not spoil it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long the control thread sleeps at most: attempts have deadlines.
const STEP: Duration = Duration::from_millis(50);
