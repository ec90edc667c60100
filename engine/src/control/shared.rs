//! The state that the control plane shares with the shards and the engine.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use super::tally::AdmissionTally;
use crate::control::arrival::{Arrival, ConnectOrder};
use crate::control::versions::VersionMemory;
use crate::error::SetupError;
use crate::failure::Failures;
use crate::mailbox::{Mailbox, Wakeup};
use crate::provider::{Address, ConnParam, ConnectError, ConnectId, Handle, Provider, Waker};

/// The state that the control plane shares with the shards and the engine.
pub(crate) struct ControlShared<P: Provider> {
    pub shards: Mutex<Vec<ShardEntry<P>>>,
    requests: Mutex<Requests>,
    pub waker: Waker,
    stopped: AtomicBool,
    next_id: AtomicU64,
    pub param: Param,
    versions: VersionMemory,
    pub failures: Arc<Failures>,
    pub tally: Arc<AdmissionTally>,
}

/// Queued requests.
#[derive(Default)]
struct Requests {
    list: VecDeque<ControlRequest>,
    /// Whether no more requests are processed.
    is_closed: bool,
}

/// The parameters of connections.
pub(crate) struct Param {
    pub private: [u8; 8],
    pub rnr_retry: u8,
    pub send_timeout: Option<Duration>,
    pub timeout: Duration,
}

/// A shard, as the control plane sees it.
pub(crate) struct ShardEntry<P: Provider> {
    pub shard: u32,
    pub queues: Handle<P::Cm>,
    pub arrivals: Arc<Mailbox<Arrival<P>>>,
    pub wakeup: Arc<Wakeup>,
    pub connections_max: usize,
    /// Whether it takes connections from the listeners.
    pub serves: bool,
}

/// A request to the control plane.
#[derive(Clone)]
pub(crate) enum ControlRequest {
    Listen {
        at: Address,
        answer: mpsc::Sender<Result<Address, SetupError>>,
    },
    Connect(ConnectOrder),
    /// A shard's answer to a peer's request.
    Answered(AdmissionAnswer),
}

/// A shard's answer to a connection request of a peer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AdmissionAnswer {
    pub shard: u32,
    /// The number of the request.
    pub number: u64,
    /// The address of the peer.
    pub from: Address,
    /// Accepted, or refused with a code of the program.
    pub outcome: Result<(), u16>,
}

/// A shard's entry in the control plane.
pub(crate) struct Attachment<P: Provider> {
    shared: Arc<ControlShared<P>>,
    shard: u32,
    wakeup: Arc<Wakeup>,
    connections_max: usize,
}

impl Param {
    pub fn as_conn_param(&self) -> ConnParam<'_> {
        let Param { private, rnr_retry, send_timeout, .. } = self;
        ConnParam { private, rnr_retry: *rnr_retry, send_timeout: *send_timeout }
    }
}

impl<P: Provider> ShardEntry<P> {
    /// Whether it takes connections from the listeners.
    pub fn is_serving(&self) -> bool {
        self.serves && !self.wakeup.is_stop_wanted() && self.wakeup.ended().is_none()
    }
}

impl<P: Provider> ControlShared<P> {
    pub fn new(param: Param, versions: VersionMemory) -> Result<ControlShared<P>, SetupError> {
        let waker = Waker::set_up()?;
        Ok(ControlShared {
            shards: Mutex::new(Vec::new()),
            requests: Mutex::default(),
            waker,
            stopped: AtomicBool::new(false),
            next_id: AtomicU64::new(1),
            param,
            versions,
            failures: Arc::default(),
            tally: Arc::default(),
        })
    }

    /// Enters a shard.
    pub(crate) fn attach(self: &Arc<Self>, entry: ShardEntry<P>) -> Attachment<P> {
        let ShardEntry { shard, connections_max, .. } = entry;
        let wakeup = entry.wakeup.clone();
        lock(&self.shards).push(entry);
        Attachment { shared: self.clone(), shard, wakeup, connections_max }
    }

    /// Listens, on the control thread.
    pub fn listen(&self, at: Address) -> Result<Address, SetupError> {
        let (answer, outcome) = mpsc::channel();
        if !self.request(ControlRequest::Listen { at, answer }) {
            return Err(self.why_closed());
        }
        outcome.recv().map_err(|_| self.why_closed())?
    }

    /// Ends the control thread.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.waker.ring();
    }

    /// Whether the control thread is to end.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// The oldest queued request.
    pub fn next_request(&self) -> Option<ControlRequest> {
        lock(&self.requests).list.pop_front()
    }

    /// Ends the processing of requests, and returns the remaining ones.
    pub fn close(&self) -> VecDeque<ControlRequest> {
        let mut requests = lock(&self.requests);
        requests.is_closed = true;
        core::mem::take(&mut requests.list)
    }

    /// Why no more requests are processed.
    fn why_closed(&self) -> SetupError {
        self.failures.of_control().map_or(SetupError::Stopped, SetupError::Panicked)
    }

    /// Queues a request. False if no more are processed.
    fn request(&self, request: ControlRequest) -> bool {
        let mut requests = lock(&self.requests);
        if requests.is_closed || self.is_stopped() {
            return false;
        }
        requests.list.push_back(request);
        drop(requests);
        self.waker.ring();
        true
    }
}

impl<P: Provider> Attachment<P> {
    /// Requests a connection.
    pub fn connect(&self, to: Address) -> Result<ConnectId, SetupError> {
        if !self.wakeup.reserve(self.connections_max) {
            return Err(SetupError::connect(to, ConnectError::NoRoom));
        }
        let id = ConnectId(self.shared.next_id.fetch_add(1, Ordering::Relaxed));
        if !self.ask(ConnectOrder { shard: self.shard, to, id, again: false }) {
            self.wakeup.disconnected();
            return Err(self.shared.why_closed());
        }
        Ok(id)
    }

    /// Requests a connection whose place is reserved. False if no more connections are made.
    pub fn ask(&self, order: ConnectOrder) -> bool {
        self.shared.request(ControlRequest::Connect(order))
    }

    /// Answers a peer's request. False if no more answers are processed.
    pub fn answer(&self, number: u64, from: Address, outcome: Result<(), u16>) -> bool {
        let answer = AdmissionAnswer { shard: self.shard, number, from, outcome };
        self.shared.request(ControlRequest::Answered(answer))
    }

    /// The memory of peers that support only version one.
    pub fn memory(&self) -> &VersionMemory {
        &self.shared.versions
    }
}

impl<P: Provider> Drop for Attachment<P> {
    /// Removes the shard's entry: it gets no more connections.
    fn drop(&mut self) {
        lock(&self.shared.shards).retain(|entry| entry.shard != self.shard);
        self.shared.waker.ring();
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The guarded data is always consistent, so a panic elsewhere does not invalidate it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
