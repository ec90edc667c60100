//! The control plane: one connection manager, and the assignment of its connections to shards.
//!
//! ```text
//!   Engine, shards ──requests──▶ Control::step ──▶ ConnectionManager
//!                                     │
//!                     Arrival ◀───────┘  to the shard that asked, or to the next that serves
//! ```

mod admission;
pub(crate) mod arrival;
mod shared;
mod tally;
mod versions;

use std::sync::Arc;
use std::time::{Duration, Instant};

use rpcrdma_config::{Access, Config};
use rpcrdma_xdr::private_data::PrivateData;

pub(crate) use self::shared::{Attachment, ControlShared, ShardEntry};
use self::shared::{ControlRequest, Param, lock};
#[cfg(feature = "metrics")]
pub(crate) use self::tally::AdmissionTally;
pub use self::tally::Admissions;
use crate::budget;
use crate::control::arrival::{Arrival, ConnectOrder};
use crate::control::versions::VersionMemory;
use crate::error::SetupError;
use crate::provider::{
    Address, CmEvent, ConnectError, ConnectId, ConnectionManager, PrivateBytes, Provider,
};
use crate::quotas::{PeerQuotas, QuotaPermit};
use crate::trace;

/// The connection manager and its state. Stepped by the engine's control thread, or by a host
/// without such a thread.
pub struct Control<P: Provider> {
    cm: P::Cm,
    shared: Arc<ControlShared<P>>,
    /// The request in progress: if it panics, the requester still gets an error.
    in_hand: Option<ControlRequest>,
    attempts: Vec<OpenAttempt>,
    /// Requests of peers that await the answer of a shard, and the number of such requests so far.
    pending: Vec<Pending<P>>,
    asked: u64,
    /// Who may connect.
    access: Access,
    /// The connections of each peer.
    quotas: PeerQuotas,
    /// The listening addresses.
    listening: Vec<Address>,
    /// Whether a shard has served since listening began.
    is_served: bool,
    /// The shard that got the last connection.
    last: usize,
}

/// A connection attempt in progress.
struct OpenAttempt {
    /// The connection manager's identifier for it.
    inner: ConnectId,
    order: ConnectOrder,
    until: Instant,
}

/// A peer's request that a shard must decide on.
struct Pending<P: Provider> {
    /// The number that the shard's answer refers to.
    number: u64,
    shard: u32,
    /// `None` after it was rejected because the answer took too long.
    request: Option<CmRequest<P>>,
    from: Address,
    private: PrivateBytes,
    permit: QuotaPermit,
    until: Instant,
}

impl<P: Provider> Control<P> {
    pub(crate) fn new(provider: &P, config: &Config) -> Result<Control<P>, SetupError> {
        // wire.md P15: the private data are for peers that speak version one.
        let param = Param {
            private: budget::settings(config, provider.caps()).private_data().encode(),
            rnr_retry: config.connections().rnr_retry.value() as u8,
            send_timeout: config.connections().send_timeout,
            timeout: config.connections().connect_timeout,
        };
        let versions = VersionMemory::new(config.protocol().version_memory);
        let shared = Arc::new(ControlShared::new(param, versions)?);
        Ok(Control {
            cm: provider.open_cm()?,
            shared,
            in_hand: None,
            attempts: Vec::new(),
            pending: Vec::new(),
            asked: 0,
            access: config.connections().access.clone(),
            quotas: PeerQuotas::new(config.connections().max_per_peer.as_usize()),
            listening: Vec::new(),
            is_served: false,
            last: 0,
        })
    }

    pub(crate) fn shared(&self) -> Arc<ControlShared<P>> {
        self.shared.clone()
    }

    /// Listens for connections and distributes them over the serving shards in turn. The listener
    /// closes when the last of them begins to stop or is gone.
    ///
    /// # Errors
    /// If the address is in use, not available or of a kind that the device does not take.
    pub fn listen(&mut self, at: impl Into<Address>) -> Result<Address, SetupError> {
        let wanted = at.into();
        let at = self.cm.listen(wanted);
        let at = at.inspect_err(|error| trace::listen_failed(wanted, error))?;
        self.listening.push(at);
        trace::listening(at);
        Ok(at)
    }

    /// What became of the requests of peers.
    pub fn admissions(&self) -> Admissions {
        self.shared.tally.snapshot()
    }

    /// Processes all requests, and a limited number of events: peers that connect without end do not
    /// keep it from its other work. Waits for at most `timeout` if there are no events.
    pub fn step(&mut self, timeout: Duration) {
        while let Some(request) = self.shared.next_request() {
            self.in_hand = Some(request.clone());
            match request {
                // If the requester has gone, the listener stays for others.
                ControlRequest::Listen { at, answer } => drop(answer.send(self.listen(at))),
                ControlRequest::Connect(order) => self.connect(order),
                ControlRequest::Answered(answer) => self.on_answer(answer),
            }
            self.in_hand = None;
        }
        self.give_up();
        self.look_after_pending();
        self.look_for_servers();
        let waker = self.shared.waker.clone();
        let first = self.cm.next(&waker, timeout);
        waker.drain();
        let Some(first) = first else { return };
        self.on_event(first);
        for _ in 1..EVENTS_MAX {
            let Some(event) = self.cm.next(&waker, Duration::ZERO) else { return };
            self.on_event(event);
        }
    }

    /// Steps until the engine stops.
    pub(crate) fn run(&mut self) {
        while !self.shared.is_stopped() {
            self.step(STEP);
        }
    }

    fn on_event(&mut self, event: CmEvent<P::Cm>) {
        match event {
            CmEvent::Request { request, from, private } => self.on_request(request, from, private),
            CmEvent::Connected { id, endpoint, private } => {
                let Some(OpenAttempt { order, .. }) = self.take_attempt(id) else { return };
                let private = PrivateData::decode(&private);
                self.deliver(order.shard, Arrival::Connected { order, endpoint, private });
            }
            CmEvent::Refused { id, reason } => {
                let Some(OpenAttempt { order, .. }) = self.take_attempt(id) else { return };
                self.refuse(order, reason);
            }
        }
    }

    fn connect(&mut self, order: ConnectOrder) {
        let ConnectOrder { shard, to, id, again } = order;
        trace::connecting(to, shard, id, again);
        let shared = self.shared.clone();
        let shards = lock(&shared.shards);
        let Some(entry) = shards.iter().find(|entry| entry.shard == shard) else { return };
        match self.cm.connect(order.to, &entry.queues, &shared.param.as_conn_param()) {
            Ok(inner) => {
                let until = Instant::now() + shared.param.timeout;
                self.attempts.push(OpenAttempt { inner, order, until });
            }
            Err(error) => {
                drop(shards);
                self.refuse(order, error.as_connect_error());
            }
        }
    }

    /// Closes the listeners when no shard serves any more, so that peers are rejected at once.
    fn look_for_servers(&mut self) {
        let is_served = lock(&self.shared.shards).iter().any(|entry| entry.is_serving());
        if !is_served && self.is_served {
            for at in self.listening.drain(..) {
                self.cm.unlisten(at);
                trace::listener_closed(at);
            }
        }
        self.is_served = is_served;
    }

    /// Ends attempts that take too long, and those of shards that are gone.
    fn give_up(&mut self) {
        if self.attempts.is_empty() {
            return;
        }
        let now = Instant::now();
        let shards: Vec<u32> = lock(&self.shared.shards).iter().map(|entry| entry.shard).collect();
        let is_open = |it: &OpenAttempt| it.until > now && shards.contains(&it.order.shard);
        let (open, ended): (Vec<_>, Vec<_>) =
            core::mem::take(&mut self.attempts).into_iter().partition(is_open);
        self.attempts = open;
        for attempt in ended {
            let why = self.cm.cancel(attempt.inner);
            self.refuse(attempt.order, why.unwrap_or(ConnectError::TimedOut));
        }
    }

    fn take_attempt(&mut self, inner: ConnectId) -> Option<OpenAttempt> {
        let at = self.attempts.iter().position(|attempt| attempt.inner == inner)?;
        Some(self.attempts.swap_remove(at))
    }

    fn refuse(&self, order: ConnectOrder, reason: ConnectError) {
        trace::connect_failed(order.to, order.shard, order.id, reason);
        self.deliver(order.shard, Arrival::Refused { id: order.id, reason });
    }

    fn deliver(&self, shard: u32, arrival: Arrival<P>) {
        let shards = lock(&self.shared.shards);
        if let Some(entry) = shards.iter().find(|entry| entry.shard == shard) {
            // Each arrival has a reserved connection, and there is room for as many.
            let sent = entry.arrivals.send(arrival);
            debug_assert!(sent.is_ok(), "more arrivals than reserved connections");
        }
    }
}

impl<P: Provider> Drop for Control<P> {
    /// Notifies all waiting requesters of the end.
    fn drop(&mut self) {
        self.reject_all();
        let attempts = core::mem::take(&mut self.attempts).into_iter();
        let tried = attempts.map(|attempt| ControlRequest::Connect(attempt.order));
        let asked = self.shared.close().into_iter().chain(self.in_hand.take());
        for request in asked.chain(tried).collect::<Vec<_>>() {
            match request {
                // Dropping it notifies the requester.
                ControlRequest::Listen { .. } => {}
                ControlRequest::Connect(order) => self.refuse(order, ConnectError::Stopped),
                ControlRequest::Answered(answer) => self.give_back(answer),
            }
        }
    }
}

/// A connection request of a peer.
type CmRequest<P> = <<P as Provider>::Cm as ConnectionManager>::Request;

/// The longest sleep of the control thread: attempts have deadlines.
const STEP: Duration = Duration::from_millis(50);
/// Events of one step.
const EVENTS_MAX: usize = 64;
