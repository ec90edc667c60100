//! The connection manager: librdmacm's event channel, and the connections that it establishes.
//!
//! ```text
//!   listen ──▶ Listener ── a peer connects ─▶ Request ── accept ──▶ Link, and Endpoint to the queues
//!   connect ─▶ Attempt ──── the peer answers ────────────────────▶ Link, and Endpoint to the queues
//!   Link ── disconnected, given up, device gone ──▶ event of the queues that the connection is on
//! ```
//! The owner of a librdmacm id is found by the id's key. The ids of connections belong to the ports
//! of their queues, which may destroy them at any time; this module only stores where to look.

#![expect(unsafe_code, reason = "queue pairs are handed to librdmacm")]

mod attempt;
mod owner;
mod reason;
mod request;
mod tries;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rpcrdma_provider::{
    Address, CmEvent, ConnParam, ConnectError, ConnectId, ConnectionManager, Rejection, SetupError,
    Waker, readable,
};

use self::attempt::{Attempt, AttemptStage, Tries};
use self::owner::Owner;
use self::reason::Failure;
pub use self::request::VerbsRequest;
use crate::cm_id::find::listen_error;
use crate::cm_id::offer::{Depths, Offer};
use crate::cm_id::{Channel, Id, IdEvent};
use crate::device::Device;
use crate::device::ops::Transport;
use crate::error;
use crate::events;
use crate::port::{End, Pair, Port, VerbsEndpoint, VerbsHandle};
use crate::queues::VerbsQueues;
use crate::sys::{cm as sys, verbs};

/// A connection manager over librdmacm.
pub struct VerbsCm {
    device: Arc<Device>,
    channel: Arc<Channel>,
    owners: HashMap<u64, Owner>,
    attempts: HashMap<ConnectId, Attempt>,
    ready: VecDeque<CmEvent<VerbsCm>>,
    /// Connection requests among the ready events.
    requests: usize,
    keys: u64,
    /// Whether the channel delivers no more events.
    is_deaf: bool,
    /// The number of owners at which dead ones are removed.
    sweep_at: usize,
}

impl VerbsCm {
    pub(crate) fn new(device: Arc<Device>) -> Result<VerbsCm, SetupError> {
        let channel = Channel::open(device.lib, device.cm)?;
        Ok(VerbsCm {
            device,
            channel,
            owners: HashMap::new(),
            attempts: HashMap::new(),
            ready: VecDeque::new(),
            requests: 0,
            keys: 0,
            is_deaf: false,
            sweep_at: SWEEP_MIN,
        })
    }

    fn new_key(&mut self) -> u64 {
        self.keys += 1;
        self.keys
    }

    /// Handles all pending events.
    fn gather(&mut self) {
        self.channel.run_tasks();
        let events_max = if self.is_deaf { 0 } else { EVENTS_MAX };
        for _ in 0..events_max {
            let key = self.new_key();
            match self.channel.take(key) {
                Ok(Some(happened)) => self.on_event(happened, key),
                Ok(None) => break,
                Err(error) => {
                    self.go_deaf(&error);
                    break;
                }
            }
        }
        events::take_all(&self.device);
        self.on_time(Instant::now());
    }

    /// The channel delivers no more events: connections would end unnoticed, and none can be made.
    /// The device counts as lost, and requests to this manager fail.
    #[cold]
    fn go_deaf(&mut self, error: &SetupError) {
        self.is_deaf = true;
        self.device.events.note_failure(error);
        events::lose(&self.device);
        for attempt in std::mem::take(&mut self.attempts).into_values() {
            self.failed(attempt, Failure::Final(ConnectError::Lost));
        }
        self.ready.retain(|event| !matches!(event, CmEvent::Request { .. }));
        self.requests = 0;
        self.owners.clear();
        self.channel.run_tasks();
    }

    fn on_event(&mut self, mut happened: IdEvent, new_key: u64) {
        if let Some((id, from)) = happened.request.take() {
            return self.on_request(id, from, new_key, &happened);
        }
        match self.owners.get(&happened.key) {
            // The id belongs to an endpoint that is being destroyed, or to a request.
            None => {}
            Some(Owner::Listener { .. }) if happened.event != sys::RDMA_CM_EVENT_DEVICE_REMOVAL => {
            }
            Some(Owner::Listener { .. }) => drop(self.owners.remove(&happened.key)),
            Some(Owner::Attempt(name)) => self.on_attempt(*name, &happened),
            Some(Owner::Link { port, pair }) => {
                let both = port.upgrade().zip(pair.upgrade());
                self.on_link(both, &happened);
            }
        }
    }

    fn on_request(&mut self, id: Id, from: Option<SocketAddr>, key: u64, happened: &IdEvent) {
        // A listener on a wildcard address also receives requests to other devices.
        let is_ours = id.device().0 == self.device.context;
        let has_room = self.requests < self.device.options.backlog as usize;
        let Some(from) = from.filter(|_| is_ours && has_room) else {
            let why = if is_ours && !has_room { Rejection::Busy } else { Rejection::Unstated };
            id.reject(&why.encode());
            return;
        };
        let request = VerbsRequest { id: Some(id), key, depths: happened.depths };
        self.requests += 1;
        self.ready.push_back(CmEvent::Request {
            request,
            from: from.into(),
            private: happened.private.clone(),
        });
    }

    /// Handles an event of a connection that is on its queues, or soon will be.
    fn on_link(&mut self, both: Option<(Arc<Port>, Arc<Pair>)>, happened: &IdEvent) {
        let Some((port, pair)) = both else {
            self.owners.remove(&happened.key);
            return;
        };
        match happened.event {
            // An endpoint that left before the connection was established could not disconnect it.
            sys::RDMA_CM_EVENT_ESTABLISHED if pair.is_left() => {
                pair.id.iter().for_each(|id| id.disconnect());
            }
            sys::RDMA_CM_EVENT_ESTABLISHED => {}
            sys::RDMA_CM_EVENT_DEVICE_REMOVAL => events::lose(&self.device),
            // The peer has left, has never answered, or is unreachable at its address.
            _ => {
                port.on_end(pair.key, End::Disconnected);
                pair.leave().into_iter().for_each(|id| id.disconnect());
            }
        }
    }

    fn on_attempt(&mut self, name: ConnectId, happened: &IdEvent) {
        let Some(mut attempt) = self.attempts.remove(&name) else { return };
        let stage = std::mem::replace(&mut attempt.stage, AttemptStage::Pause);
        let options = &self.device.options;
        let outcome = match (stage, happened.event) {
            (AttemptStage::Address(id), sys::RDMA_CM_EVENT_ADDR_RESOLVED) => {
                self.find_route(id).map(|id| (AttemptStage::Route(id), options.resolve_timeout))
            }
            (AttemptStage::Route(id), sys::RDMA_CM_EVENT_ROUTE_RESOLVED) => {
                let asked = self.ask(&attempt, id);
                asked.map(|endpoint| (AttemptStage::Answer(endpoint), options.answer_timeout))
            }
            (AttemptStage::Answer(endpoint), sys::RDMA_CM_EVENT_CONNECT_RESPONSE) => {
                return self.establish(attempt, endpoint, happened);
            }
            // The kernel has moved the queue pair of an iWARP connection, and confirmed the answer.
            (AttemptStage::Answer(endpoint), sys::RDMA_CM_EVENT_ESTABLISHED)
                if self.device.transport == Transport::Iwarp =>
            {
                return self.connected(&attempt, endpoint, happened);
            }
            (_, event) => Err(reason::of_event(event, happened.status, &happened.private)),
        };
        match outcome {
            Ok((stage, timeout)) => {
                (attempt.stage, attempt.until) = (stage, Instant::now() + timeout);
                self.attempts.insert(name, attempt);
            }
            Err(failure) => self.failed(attempt, failure),
        }
    }

    fn find_route(&self, id: Id) -> Result<Id, Failure> {
        if id.device().0 != self.device.context {
            return Err(Failure::Final(ConnectError::NoRoute));
        }
        id.resolve_route(self.device.options.resolve_timeout)
            .map_err(|source| self.give_up(&error::of("rdma_resolve_route", source)))?;
        Ok(id)
    }

    /// Creates the queue pair and sends the connection request.
    fn ask(&self, attempt: &Attempt, id: Id) -> Result<VerbsEndpoint, Failure> {
        let endpoint = attempt.port.create(Some(id)).map_err(|(_, error)| self.give_up(&error))?;
        let offer = self.offer(endpoint.num(), &attempt.private, attempt.rnr_retry);
        let asked = endpoint.with(|id, qp| {
            // SAFETY: the queue pair is in the list of its port, and was made for this id.
            unsafe { id.begin_qp(qp) }?;
            id.connect(&offer).map_err(|source| error::of("rdma_connect", source))
        });
        asked.map_err(|error| self.give_up(&error))?;
        Ok(endpoint)
    }

    /// The peer has accepted.
    fn establish(&mut self, attempt: Attempt, endpoint: VerbsEndpoint, happened: &IdEvent) {
        let (options, depths) = (&self.device.options, self.depths());
        let connected = endpoint.with(|id, qp| {
            // SAFETY: the queue pair is in the list of its port, and was made for this id.
            unsafe { id.connect_qp(qp, options, depths, attempt.rnr_retry) }?;
            id.establish().map_err(|source| error::of("rdma_establish", source))
        });
        if let Err(error) = connected {
            let failure = self.give_up(&error);
            drop(endpoint);
            return self.failed(attempt, failure);
        }
        self.connected(&attempt, endpoint, happened);
    }

    /// The connection is there.
    fn connected(&mut self, attempt: &Attempt, endpoint: VerbsEndpoint, happened: &IdEvent) {
        self.link(attempt.key, &endpoint);
        let private = happened.private.clone();
        self.ready.push_back(CmEvent::Connected { id: attempt.name, endpoint, private });
    }

    /// Records the queues that a connection belongs to.
    fn link(&mut self, key: u64, endpoint: &VerbsEndpoint) {
        let Some(pair) = endpoint.pair() else { return };
        if self.owners.len() >= self.sweep_at {
            self.owners.retain(|_, owner| owner.is_there());
            self.sweep_at = SWEEP_MIN.max(2 * self.owners.len());
        }
        let (port, pair) = (Arc::downgrade(endpoint.port()), Arc::downgrade(pair));
        self.owners.insert(key, Owner::Link { port, pair });
    }

    fn offer<'a>(&self, qp_num: u32, private: &'a [u8], rnr_retry: u8) -> Offer<'a> {
        let retry_count = self.device.options.retry_count;
        Offer { private, depths: self.depths(), rnr_retry, retry_count, qp_num }
    }

    fn depths(&self) -> Depths {
        let reads = u8::try_from(self.device.caps.rd_atomic).unwrap_or(u8::MAX);
        Depths { responder: reads, initiator: reads }
    }

    /// This side could not create its endpoint.
    fn give_up(&self, error: &SetupError) -> Failure {
        self.device.events.note_failure(error);
        match error {
            SetupError::System { call, source, .. } => reason::of_error(call, source),
            SetupError::Stopped => Failure::Final(ConnectError::Lost),
            _ => Failure::Passing(ConnectError::Failed),
        }
    }

    fn pop(&mut self) -> Option<CmEvent<VerbsCm>> {
        let event = self.ready.pop_front()?;
        self.requests -= usize::from(matches!(event, CmEvent::Request { .. }));
        Some(event)
    }
}

impl ConnectionManager for VerbsCm {
    type Queues = VerbsQueues;
    type Request = VerbsRequest;

    fn listen(&mut self, at: Address) -> Result<Address, SetupError> {
        let at = at.as_ip().ok_or_else(|| SetupError::listen(at, TAKES))?;
        if at.ip().is_loopback() {
            // librdmacm treats a loopback address as the wildcard address of all devices, which the
            // caller does not mean.
            let reason = "no RDMA device has a loopback: name an address of the device";
            return Err(SetupError::listen(at, reason));
        }
        if self.device.events.is_lost() {
            return Err(SetupError::listen(at, "the device is lost"));
        }
        // A listener that was dropped may hold the address.
        self.channel.run_tasks();
        let key = self.new_key();
        let id = Id::new(&self.channel, key)?;
        if let Some(class) = self.device.options.traffic_class {
            id.set_traffic_class(class).map_err(|source| error::of("rdma_set_option", source))?;
        }
        id.bind(at).map_err(|source| listen_error(at, "rdma_bind_addr", source))?;
        let (context, _) = id.device();
        if !context.is_null() && context != self.device.context {
            let reason = "the address is of another device (verbs.device, verbs.address)";
            return Err(SetupError::listen(at, reason));
        }
        let port = id
            .listen(self.device.options.backlog)
            .map_err(|source| listen_error(at, "rdma_listen", source))?;
        let mut taken = at;
        taken.set_port(port);
        self.owners.insert(key, Owner::Listener { _id: id, at: taken });
        Ok(taken.into())
    }

    fn unlisten(&mut self, at: Address) {
        self.owners.retain(|_, owner| !at.as_ip().is_some_and(|at| owner.listens_at(at)));
        self.channel.run_tasks();
    }

    fn connect(
        &mut self,
        to: Address,
        on: &VerbsHandle,
        param: &ConnParam<'_>,
    ) -> Result<ConnectId, SetupError> {
        let wrong = ConnectError::WrongAddress { reason: TAKES };
        let to = to.as_ip().ok_or_else(|| SetupError::connect(to, wrong))?;
        let private = param.checked()?;
        if self.device.events.is_lost() {
            return Err(SetupError::connect(to, ConnectError::Lost));
        }
        let name = ConnectId(self.new_key());
        let tries = Tries::new(&self.device.options);
        let (port, rnr_retry) = (Arc::clone(&on.port), param.rnr_retry);
        let (stage, until) = (AttemptStage::Pause, Instant::now());
        let mut attempt =
            Attempt { name, to, port, private, rnr_retry, stage, key: 0, until, tries };
        match self.begin(&mut attempt) {
            Ok(()) => drop(self.attempts.insert(name, attempt)),
            Err(failure) => self.failed(attempt, failure),
        }
        Ok(name)
    }

    fn accept(
        &mut self,
        mut request: VerbsRequest,
        on: &VerbsHandle,
        param: &ConnParam<'_>,
    ) -> Result<VerbsEndpoint, SetupError> {
        let private = param.checked()?;
        if self.device.events.is_lost() {
            return Err(SetupError::Stopped);
        }
        let Some(id) = request.id.take() else { return Err(SetupError::Stopped) };
        let endpoint = on.port.create(Some(id)).map_err(|(id, error)| {
            id.inspect(|id| id.reject(&Rejection::Busy.encode()));
            self.device.events.note_failure(&error);
            error
        })?;
        let mut offer = self.offer(endpoint.num(), &private, param.rnr_retry);
        offer.depths = offer.depths.at_most(request.depths);
        let accepted = endpoint.with(|id, qp| {
            // SAFETY: the queue pair is in the list of its port, and was made for this id.
            unsafe { id.begin_qp(qp) }?;
            // Accepting moves the queue pair on iWARP, which has no timers and no retries of its own.
            if self.device.transport == Transport::Infiniband {
                let options = &self.device.options;
                // SAFETY: as above.
                unsafe { id.connect_qp(qp, options, offer.depths, param.rnr_retry) }?;
            }
            let accepted = id.accept(&offer);
            accepted.map_err(|source| error::of("rdma_accept", source))
        });
        if let Err(error) = accepted {
            let id = endpoint.pair().and_then(|pair| pair.id.as_ref());
            id.into_iter().for_each(|id| id.reject(&Rejection::Busy.encode()));
            self.device.events.note_failure(&error);
            return Err(error);
        }
        self.link(request.key, &endpoint);
        Ok(endpoint)
    }

    fn cancel(&mut self, id: ConnectId) -> Option<ConnectError> {
        let attempt = self.attempts.remove(&id)?;
        self.owners.remove(&attempt.key);
        attempt.tries.last()
    }

    fn reject(&mut self, mut request: VerbsRequest, private: &[u8]) {
        if let Some(id) = request.id.take() {
            id.reject(private);
        }
    }

    fn next(&mut self, waker: &Waker, timeout: Duration) -> Option<CmEvent<VerbsCm>> {
        let until = Instant::now().checked_add(timeout);
        loop {
            if self.ready.is_empty() {
                self.gather();
            }
            if let Some(event) = self.pop() {
                return Some(event);
            }
            let now = Instant::now();
            let left = until.map_or(timeout, |until| until.saturating_duration_since(now));
            if left.is_zero() {
                return None;
            }
            // The descriptor of a lost device stays readable.
            let device = if self.device.events.is_lost() { -1 } else { events::fd(&self.device) };
            let channel = if self.is_deaf { -1 } else { self.channel.fd() };
            let fds = [waker.fd(), channel, self.channel.bell(), device];
            // A failed poll counts as one that finds nothing.
            let found = readable(fds, left.min(self.quiet(now)));
            let [is_rung, ..] = found.unwrap_or_default();
            if is_rung {
                self.gather();
                return self.pop();
            }
        }
    }
}

impl VerbsEndpoint {
    /// Runs `act` on the id and the queue pair, which cannot be destroyed meanwhile.
    fn with(
        &self,
        act: impl FnOnce(&Id, *mut verbs::ibv_qp) -> Result<(), SetupError>,
    ) -> Result<(), SetupError> {
        let pair = self.pair().ok_or(SetupError::Stopped)?;
        let id = pair.id.as_ref().ok_or(SetupError::Stopped)?;
        // The queues may be gone, with all their queue pairs.
        pair.with(|qp| act(id, qp)).unwrap_or(Err(SetupError::Stopped))
    }
}

impl Drop for VerbsCm {
    fn drop(&mut self) {
        self.channel.close();
    }
}

impl std::fmt::Debug for VerbsCm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (owners, attempts) = (self.owners.len(), self.attempts.len());
        f.debug_struct("VerbsCm")
            .field("owners", &owners)
            .field("attempts", &attempts)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
impl VerbsCm {
    /// An id without a connection.
    pub(crate) fn new_id(&mut self) -> Id {
        let key = self.new_key();
        Id::new(&self.channel, key).expect("an id")
    }

    /// A request without a peer.
    pub(crate) fn new_request(&mut self) -> VerbsRequest {
        let key = self.new_key();
        let id = Id::new(&self.channel, key).expect("an id");
        VerbsRequest { id: Some(id), key, depths: Depths::default() }
    }
}

/// Which addresses it takes.
const TAKES: &str = "an RDMA device takes only IP addresses (ADDR:PORT)";
/// Events of the channel that are handled before those of the device.
const EVENTS_MAX: usize = 256;
/// Owners that are kept without a check for dead ones.
const SWEEP_MIN: usize = 64;
