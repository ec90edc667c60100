//! The connection manager: socket addresses identify listeners inside one fabric; no network is
//! used.
//!
//! ```text
//!   connect ──▶ Request in the listener's inbox ──▶ accept ──▶ Endpoint here, Connected there
//!      └ no listener ────▶ Refused(NoListener)        └ reject, drop ─▶ Refused(Rejected) there
//! ```

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rpcrdma_provider::{
    Address, CmEvent, ConnParam, ConnectError, ConnectId, ConnectionManager, Rejection, SetupError,
    Waker,
};
use rpcrdma_transport::conn::Conn;
use rpcrdma_transport::device::Device;
use rpcrdma_transport::endpoint::{Peer, QpNumber};

use crate::port::Port;
use crate::queues::{FabricEndpoint, FabricHandle, FabricQueues};
use crate::rings::Links;

/// A connection manager of the software fabric.
pub struct FabricCm {
    fabric: Network,
    inbox: Arc<Inbox>,
    listening: Vec<SocketAddr>,
    attempts: u64,
}

/// The fabric's state for connection managers.
#[derive(Clone)]
pub(crate) struct Network {
    pub device: Arc<Device>,
    pub links: Arc<Links>,
    pub listeners: Arc<Listeners>,
}

/// The listeners by address.
#[derive(Default)]
pub(crate) struct Listeners(Mutex<HashMap<SocketAddr, Arc<Inbox>>>);

/// A pending connection request. Dropping it rejects it.
pub struct FabricRequest(Option<Pending>);

/// What an answer to a request needs.
struct Pending {
    number: QpNumber<Port>,
    rnr_retry: u8,
    id: ConnectId,
    answer_to: Arc<Inbox>,
}

/// The queue of events for a connection manager.
struct Inbox {
    waker: Waker,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    events: VecDeque<CmEvent<FabricCm>>,
    /// Connection requests among the events.
    requests: usize,
    is_closed: bool,
}

impl FabricCm {
    pub(crate) fn new(fabric: Network) -> Result<FabricCm, SetupError> {
        let waker = Waker::set_up()?;
        let inbox = Arc::new(Inbox { waker, queue: Mutex::new(Queue::default()) });
        Ok(FabricCm { fabric, inbox, listening: Vec::new(), attempts: 0 })
    }
}

impl ConnectionManager for FabricCm {
    type Queues = FabricQueues;
    type Request = FabricRequest;

    fn listen(&mut self, at: Address) -> Result<Address, SetupError> {
        let at = at.as_ip().ok_or_else(|| SetupError::listen(at, TAKES))?;
        let mut listeners = self.fabric.listeners.lock();
        let address = if at.port() == 0 {
            let free = EPHEMERAL.map(|port| SocketAddr::new(at.ip(), port));
            let mut free = free.filter(|address| !listeners.contains_key(address));
            free.next().ok_or_else(|| SetupError::listen(at, "no port is free"))?
        } else if listeners.contains_key(&at) {
            return Err(SetupError::listen(at, "the address is in use"));
        } else {
            at
        };
        listeners.insert(address, Arc::clone(&self.inbox));
        self.listening.push(address);
        Ok(address.into())
    }

    fn unlisten(&mut self, at: Address) {
        let mut listeners = self.fabric.listeners.lock();
        // Another connection manager of the fabric may listen there: only this one's listener is
        // removed.
        if let Some(at) = self.listening.iter().position(|address| at.as_ip() == Some(*address)) {
            listeners.remove(&self.listening.swap_remove(at));
        }
    }

    fn connect(
        &mut self,
        to: Address,
        on: &FabricHandle,
        param: &ConnParam<'_>,
    ) -> Result<ConnectId, SetupError> {
        let wrong = ConnectError::WrongAddress { reason: TAKES };
        let to = to.as_ip().ok_or_else(|| SetupError::connect(to, wrong))?;
        let private = param.checked()?;
        let number = QpNumber::take(on, &self.fabric.device.caps().name)?;
        self.attempts += 1;
        let id = ConnectId(self.attempts);
        let listeners = self.fabric.listeners.lock();
        let listener = listeners.get(&to).cloned();
        drop(listeners);
        let Some(listener) = listener else {
            drop(number);
            self.inbox.push(CmEvent::Refused { id, reason: ConnectError::NoListener });
            return Ok(id);
        };
        // As a network would assign it: an address of the connecting side.
        let from = SocketAddr::new(to.ip(), ephemeral(number.port().id, number.num()));
        let answer_to = Arc::clone(&self.inbox);
        let pending = Pending { number, rnr_retry: param.rnr_retry, id, answer_to };
        let request = FabricRequest(Some(pending));
        listener.push(CmEvent::Request { request, from: from.into(), private });
        Ok(id)
    }

    fn accept(
        &mut self,
        mut request: FabricRequest,
        on: &FabricHandle,
        param: &ConnParam<'_>,
    ) -> Result<FabricEndpoint, SetupError> {
        let private = param.checked()?;
        let number = QpNumber::take(on, &self.fabric.device.caps().name)?;
        let Some(pending) = request.0.take() else { return Err(SetupError::Stopped) };
        let Pending { number: asking, rnr_retry, id, answer_to } = pending;
        let is_swapped = asking.port().id > number.port().id;
        let ports = [asking.port(), number.port()];
        let link = self.fabric.links.between(if is_swapped { [ports[1], ports[0]] } else { ports });
        let [there, here] = [is_swapped, !is_swapped].map(|side| link.end(side.into()));
        let (conn, num) = (Conn::new(), asking.num());
        let us = Peer { num: number.num(), rnr_retry: param.rnr_retry };
        let endpoint = FabricEndpoint::new(asking, there, Arc::clone(&conn), us);
        answer_to.push(CmEvent::Connected { id, endpoint, private });
        Ok(FabricEndpoint::new(number, here, conn, Peer { num, rnr_retry }))
    }

    /// The listener owns the request: the code that takes its result drops it.
    fn cancel(&mut self, _id: ConnectId) -> Option<ConnectError> {
        None
    }

    fn reject(&mut self, mut request: FabricRequest, private: &[u8]) {
        request.refuse(Rejection::decode(private));
    }

    fn next(&mut self, waker: &Waker, timeout: Duration) -> Option<CmEvent<FabricCm>> {
        let until = Instant::now().checked_add(timeout);
        loop {
            self.inbox.waker.drain();
            if let Some(event) = self.inbox.pop() {
                return Some(event);
            }
            let now = Instant::now();
            let left = until.map_or(timeout, |until| until.saturating_duration_since(now));
            // An early return without a reason is a signal, which the caller may handle.
            let is_rung = Waker::sleep([&self.inbox.waker, waker], left).unwrap_or(false);
            if !is_rung || self.inbox.is_empty() {
                return self.inbox.pop();
            }
        }
    }
}

impl std::fmt::Debug for FabricCm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FabricCm").field("listening", &self.listening).finish_non_exhaustive()
    }
}

impl Drop for FabricCm {
    fn drop(&mut self) {
        let mut listeners = self.fabric.listeners.lock();
        for address in &self.listening {
            listeners.remove(address);
        }
        drop(listeners);
        // Rejects pending requests, and disconnects endpoints in flight.
        drop(self.inbox.close());
    }
}

impl FabricRequest {
    fn refuse(&mut self, why: Rejection) {
        if let Some(pending) = self.0.take() {
            let Pending { number, id, answer_to, .. } = pending;
            drop(number);
            answer_to.push(CmEvent::Refused { id, reason: ConnectError::Rejected(why) });
        }
    }
}

impl Drop for FabricRequest {
    fn drop(&mut self) {
        self.refuse(Rejection::Unstated);
    }
}

impl Listeners {
    /// The number of listeners.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, Arc<Inbox>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inbox {
    /// Passes an event to the connection manager. If it is gone or has too many requests, the event
    /// is dropped: a request is rejected, an endpoint disconnected.
    fn push(&self, event: CmEvent<FabricCm>) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let is_request = matches!(event, CmEvent::Request { .. });
        if queue.is_closed || (is_request && queue.requests == REQUESTS_MAX) {
            drop(queue);
            drop(event);
            return;
        }
        queue.requests += usize::from(is_request);
        queue.events.push_back(event);
        drop(queue);
        self.waker.ring();
    }

    fn pop(&self) -> Option<CmEvent<FabricCm>> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let event = queue.events.pop_front()?;
        queue.requests -= usize::from(matches!(event, CmEvent::Request { .. }));
        Some(event)
    }

    fn is_empty(&self) -> bool {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).events.is_empty()
    }

    fn close(&self) -> VecDeque<CmEvent<FabricCm>> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.is_closed = true;
        queue.requests = 0;
        std::mem::take(&mut queue.events)
    }
}

fn ephemeral(port_id: u64, num: u32) -> u16 {
    let span = u64::from(EPHEMERAL.end() - EPHEMERAL.start()) + 1;
    EPHEMERAL.start() + ((port_id * 31 + u64::from(num)) % span) as u16
}

/// Ports for listeners that do not choose one (RFC 6335 6).
const EPHEMERAL: std::ops::RangeInclusive<u16> = 49152..=65535;
/// Which addresses it takes.
const TAKES: &str = "the software fabric takes only IP addresses (ADDR:PORT)";
/// Requests that may wait for an answer, as a socket's backlog.
const REQUESTS_MAX: usize = 4096;
