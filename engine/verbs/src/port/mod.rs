//! The port: the state that a set of queues shares with the connection manager, which creates their
//! queue pairs.
//!
//! ```text
//!   connection manager ── create ──▶ born ── Endpoint ── attach ──▶ attached ── destroy ──▶ dying ──▶ gone
//!                                      └── Endpoint dropped ──▶ buried ── the queues' next look ──┘
//! ```
//! Queue pairs belong to the port, so that none outlives its queues, whichever thread owns its
//! endpoint. A queue pair is identified by a unique key, because its number is used again. The lock
//! of [`Port::pairs`] is held during a library call only to destroy a queue pair, by the polling
//! thread, because that changes the completion queue: the next queue pair with the same number is
//! not in the list before the queue is swept. The connection manager calls its libraries under the
//! lock of the one queue pair, which the queues take to destroy it.
#![expect(unsafe_code, reason = "libibverbs is called")]

mod open;
mod pair;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use self::pair::Pair;
use rpcrdma_provider::{QueueEvent, SetupError, Waker};

use crate::cm_id::{Id, Task};
use crate::device::Device;
use crate::device_event::{DeviceEvent, Listener};
use crate::names::{Key, Name};
use crate::sys::verbs as sys;

/// The state that a set of queues shares with the connection manager.
pub(crate) struct Port {
    pub device: Arc<Device>,
    /// The key in the context of its queues.
    key: Key,
    pub cq: *mut sys::ibv_cq,
    pub srq: *mut sys::ibv_srq,
    pub channel: *mut sys::ibv_comp_channel,
    /// The parent domain and its thread domain if the device supports them; otherwise the device's
    /// domain.
    pd: *mut sys::ibv_pd,
    td: *mut sys::ibv_td,
    cap: sys::ibv_qp_cap,
    pairs_max: usize,
    pairs: Mutex<Pairs>,
    events: Mutex<VecDeque<PortEvent>>,
    pending: AtomicU32,
    /// Wakes the queues.
    pub bell: Waker,
}

/// How a connection has ended, other than by its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The peer has left.
    Disconnected,
    /// The queue pair has failed.
    Failed,
}

/// A report to the queues, apart from completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PortEvent {
    /// The end of a queue pair's connection, if the queue pair still exists.
    End(Key, End),
    /// An event of the whole device.
    Device(QueueEvent),
}

bitflags::bitflags! {
    /// The pending work of the queues, off the fast path.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Pending: u32 {
        /// Some queue pairs are not attached: their completions are held.
        const UNATTACHED = 1;
        /// Some queue pairs are to be destroyed.
        const BURIED = 2;
        /// Some events are pending.
        const EVENTS = 4;
        /// Some queue pairs are dying: their completions are filtered.
        const DYING = 8;
    }
}

/// The queue pairs of a port.
pub(crate) struct Pairs {
    list: Vec<Entry>,
    /// Queue pairs whose endpoints were dropped.
    buried: Vec<Arc<Pair>>,
    /// Queue pairs that are being created.
    in_making: usize,
    /// The queues are gone: no more queue pairs are created.
    is_closed: bool,
}

/// A queue pair in the list.
struct Entry {
    pair: Arc<Pair>,
    stage: Stage,
    end: Option<End>,
}

/// The stage of a queue pair's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Born,
    Attached,
    /// In the error state; its room is free for another.
    Dying,
    /// The device refuses to destroy it.
    Stuck,
}

// SAFETY: the pointers are used by the queues, which have one owner, and by the thread that holds
// the lock of `pairs`; libibverbs may be called by any thread.
unsafe impl Send for Port {}
// SAFETY: as above.
unsafe impl Sync for Port {}
/// Identifies a set of queues to a connection manager.
#[derive(Clone)]
pub struct VerbsHandle {
    pub(crate) port: Arc<Port>,
}

/// A connected queue pair that is not attached to its queues yet. Dropping it ends the connection.
pub struct VerbsEndpoint {
    port: Arc<Port>,
    /// None after it was attached.
    pair: Option<Arc<Pair>>,
}

impl Port {
    /// Creates a queue pair: for an id, which belongs to the port from now on and is returned with
    /// an error, or without one, for a connection made by hand. The owner of the endpoint connects
    /// it, by [`Pair::with`].
    pub fn create(
        self: &Arc<Self>,
        id: Option<Id>,
    ) -> Result<VerbsEndpoint, (Option<Id>, SetupError)> {
        if let Err(error) = self.pairs().make_room(self) {
            return Err((id, error));
        }
        let key = Key::new();
        let made = self.make_pair(key);
        let mut pairs = self.pairs();
        pairs.in_making -= 1;
        let qp = match made {
            Ok(qp) => qp,
            Err(error) => return Err((id, error)),
        };
        // SAFETY: the library has just returned the queue pair.
        let num = unsafe { (*qp).qp_num };
        let pair = Pair::new(key, num, qp, id);
        if pairs.is_closed {
            // The queues are closed, and the lock keeps other threads from destroying concurrently.
            pair.destroy(&self.device);
            return Err((None, SetupError::Stopped));
        }
        let pair = Arc::new(pair);
        let entry = Entry { pair: Arc::clone(&pair), stage: Stage::Born, end: None };
        pairs.list.push(entry);
        // Set before a peer can send to it.
        self.set(Pending::UNATTACHED);
        Ok(VerbsEndpoint { port: Arc::clone(self), pair: Some(pair) })
    }

    /// The attributes of this port's queue pairs.
    fn pair_attr(&self, key: Key) -> sys::ibv_qp_init_attr {
        sys::ibv_qp_init_attr {
            qp_context: key.as_context(),
            send_cq: self.cq,
            recv_cq: self.cq,
            srq: self.srq,
            cap: self.cap,
            qp_type: sys::IBV_QPT_RC,
            sq_sig_all: 0,
        }
    }

    /// The queue pairs, locked.
    pub fn pairs(&self) -> MutexGuard<'_, Pairs> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The queue pair that an event of the device names.
    pub fn named(&self, name: Name) -> Option<Arc<Pair>> {
        let pairs = self.pairs();
        let entry = pairs.list.iter().find(|it| it.pair.name() == name)?;
        Some(Arc::clone(&entry.pair))
    }

    /// Whether an event of the device names one of its queues.
    fn has_queue(&self, name: Name) -> bool {
        let places = [self.cq.cast_const().cast(), self.srq.cast_const().cast()];
        name.key == self.key && places.contains(&name.at)
    }

    /// Reports the end of a connection. The queues move its queue pair to the error state.
    pub fn on_end(&self, key: Key, end: End) {
        let mut pairs = self.pairs();
        let Some(entry) = pairs.find(key) else { return };
        // A queue pair that is attached later reports it then.
        if entry.end.is_none() && entry.stage == Stage::Attached {
            self.report(PortEvent::End(key, end));
        }
        entry.end.get_or_insert(end);
    }

    /// Queues a report.
    pub fn report(&self, event: PortEvent) {
        let mut all = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        // Queue pairs end once. A device event, as a port that goes up and down, is reported once
        // however often it occurs before the queues take it.
        if matches!(event, PortEvent::Device(_)) {
            all.retain(|it| *it != event);
        }
        all.push_back(event);
        drop(all);
        self.set(Pending::EVENTS);
        self.bell.ring();
    }

    /// The next report.
    pub fn next_event(&self) -> Option<PortEvent> {
        let mut all = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let next = all.pop_front();
        if all.is_empty() {
            self.clear(Pending::EVENTS);
        }
        next
    }

    /// The pending work.
    #[inline]
    pub fn pending(&self) -> Pending {
        Pending::from_bits_retain(self.pending.load(Ordering::Acquire))
    }

    pub fn set(&self, pending: Pending) {
        self.pending.fetch_or(pending.bits(), Ordering::AcqRel);
    }

    pub fn clear(&self, pending: Pending) {
        self.pending.fetch_and(!pending.bits(), Ordering::AcqRel);
    }
}

impl Listener for Port {
    fn on_event(&self, happened: DeviceEvent) -> bool {
        match happened {
            DeviceEvent::Port { is_up, .. } => {
                let event = if is_up { QueueEvent::PortUp } else { QueueEvent::PortDown };
                self.report(PortEvent::Device(event));
                true
            }
            DeviceEvent::PairFailed(name) => {
                let is_ours = self.named(name).is_some();
                if is_ours {
                    self.on_end(name.key, End::Failed);
                }
                is_ours
            }
            DeviceEvent::LastReceive(name) => {
                let pair = self.named(name);
                if let Some(pair) = &pair {
                    pair.on_last_receive();
                    self.bell.ring();
                }
                pair.is_some()
            }
            DeviceEvent::Established(name) => {
                let pair = self.named(name);
                if let Some(id) = pair.as_ref().and_then(|pair| pair.id.as_ref()) {
                    id.ask(Task::Establish(Arc::clone(id)));
                }
                pair.is_some()
            }
            DeviceEvent::QueueFailed(name) => {
                let is_ours = self.has_queue(name);
                if is_ours {
                    self.report(PortEvent::Device(QueueEvent::DeviceLost));
                }
                is_ours
            }
            DeviceEvent::DeviceLost => {
                self.report(PortEvent::Device(QueueEvent::DeviceLost));
                true
            }
            DeviceEvent::Other => false,
        }
    }
}

/// The operations of the queues on their queue pairs.
impl Port {
    /// Records that a queue pair is attached.
    pub fn attach(&self, mut endpoint: VerbsEndpoint) -> Result<Arc<Pair>, SetupError> {
        let pair = endpoint.pair.take().ok_or(SetupError::Stopped)?;
        let mut pairs = self.pairs();
        let entry = pairs.find(pair.key).ok_or(SetupError::Stopped)?;
        entry.stage = Stage::Attached;
        if let Some(end) = entry.end {
            self.report(PortEvent::End(pair.key, end));
        }
        self.look_for_unattached(&pairs);
        Ok(pair)
    }

    /// Records the stage of a queue pair's end.
    pub fn note_stage(&self, key: Key, stage: Stage) {
        let mut pairs = self.pairs();
        if let Some(entry) = pairs.find(key) {
            entry.stage = stage;
        }
        self.look_for_unattached(&pairs);
    }

    /// Removes a queue pair that was destroyed.
    pub fn remove(&self, pairs: &mut Pairs, key: Key) {
        pairs.list.retain(|it| it.pair.key != key);
        self.look_for_unattached(pairs);
    }

    /// A queue pair whose endpoint was dropped.
    pub fn next_buried(&self) -> Option<Arc<Pair>> {
        let mut pairs = self.pairs();
        let next = pairs.buried.pop();
        if pairs.buried.is_empty() {
            self.clear(Pending::BURIED);
        }
        next
    }

    /// Closes the port: no more queue pairs are created. Returns the existing ones.
    pub fn close(&self, pairs: &mut Pairs) -> Vec<Arc<Pair>> {
        pairs.is_closed = true;
        pairs.buried.clear();
        std::mem::take(&mut pairs.list).into_iter().map(|entry| entry.pair).collect()
    }

    fn look_for_unattached(&self, pairs: &Pairs) {
        if pairs.list.iter().all(|it| it.stage != Stage::Born) {
            self.clear(Pending::UNATTACHED);
        }
    }
}

impl Pairs {
    /// Reserves room for a queue pair. Dying ones need none: their requests have completed.
    fn make_room(&mut self, port: &Port) -> Result<(), SetupError> {
        if self.is_closed {
            return Err(SetupError::Stopped);
        }
        let living = self.list.iter().filter(|it| it.stage != Stage::Dying).count();
        let all = self.list.len() + self.in_making;
        if living + self.in_making >= port.pairs_max || all >= 2 * port.pairs_max {
            return Err(SetupError::Limit {
                what: "queue pairs of one shard",
                needed: living as u64 + 1,
                limit: port.pairs_max as u64,
                device: port.device.caps.name.clone(),
            });
        }
        self.in_making += 1;
        Ok(())
    }

    fn find(&mut self, key: Key) -> Option<&mut Entry> {
        self.list.iter_mut().find(|it| it.pair.key == key)
    }
}

impl End {
    /// The event that the queues report.
    pub fn event(self, qp_num: u32) -> QueueEvent {
        match self {
            End::Disconnected => QueueEvent::Disconnected { qp_num },
            End::Failed => QueueEvent::Failed { qp_num },
        }
    }
}

impl VerbsEndpoint {
    /// The number of the queue pair.
    pub(crate) fn num(&self) -> u32 {
        self.pair.as_ref().map_or(0, |pair| pair.num)
    }

    /// The queue pair, until it is attached.
    pub(crate) fn pair(&self) -> Option<&Arc<Pair>> {
        self.pair.as_ref()
    }

    /// The queues that it was created for.
    pub(crate) fn port(&self) -> &Arc<Port> {
        &self.port
    }
}

impl Drop for VerbsEndpoint {
    fn drop(&mut self) {
        let Some(pair) = self.pair.take() else { return };
        // The owner of the queues may sleep; the peer does not wait for it.
        pair.take_leave();
        let mut pairs = self.port.pairs();
        if pairs.find(pair.key).is_some() {
            pairs.buried.push(pair);
            self.port.set(Pending::BURIED);
            self.port.bell.ring();
        }
    }
}

impl std::fmt::Debug for VerbsEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerbsEndpoint").field("qp_num", &self.num()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for VerbsHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerbsHandle").field("cq", &self.port.cq).finish_non_exhaustive()
    }
}
