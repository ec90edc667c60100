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

use crate::cm::id::{Errand, Id};
use crate::device::Device;
use crate::error;
use crate::happened::{Happened, Listener};
use crate::names::{Key, Name};
use crate::sys::verbs as sys;

/// What a set of queues shares with the connection manager.
pub(crate) struct Port {
    pub device: Arc<Device>,
    /// In the context of its queues.
    key: Key,
    pub cq: *mut sys::ibv_cq,
    pub srq: *mut sys::ibv_srq,
    pub channel: *mut sys::ibv_comp_channel,
    /// The parent domain and its thread domain, where the device has them; else the device's.
    pd: *mut sys::ibv_pd,
    td: *mut sys::ibv_td,
    cap: sys::ibv_qp_cap,
    pairs_max: usize,
    pairs: Mutex<Pairs>,
    told: Mutex<VecDeque<Told>>,
    chores: AtomicU32,
    /// Ends the sleep of the queues.
    pub bell: Waker,
}

/// How a connection has ended without its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The peer has left.
    Disconnected,
    /// The device has given the queue pair up.
    Failed,
}

/// What there is to report beside completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// Of a queue pair, if it is there by then.
    End(Key, End),
    /// Of all that is on the device.
    Device(QueueEvent),
}

bitflags::bitflags! {
    /// What the queues have to look after, off the fast path.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Chores: u32 {
        /// There are queue pairs that are not attached: what they complete is kept for them.
        const UNATTACHED = 1;
        /// There are queue pairs to be destroyed.
        const BURIED = 2;
        /// There are events.
        const EVENTS = 4;
        /// There are queue pairs that are about to be destroyed: what they complete is sorted out.
        const DYING = 8;
    }
}

/// The queue pairs of a port.
pub(crate) struct Pairs {
    list: Vec<Entry>,
    /// Those whose endpoints were dropped.
    buried: Vec<Arc<Pair>>,
    /// Those that the device is being asked for.
    in_making: usize,
    /// The queues are gone: no queue pair is made any more.
    is_closed: bool,
}

/// A queue pair in the list.
struct Entry {
    pair: Arc<Pair>,
    stage: Stage,
    end: Option<End>,
}

/// How far the life of a queue pair has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Born,
    Attached,
    /// It is in the error state, and room for another is there.
    Dying,
    /// The device does not let go of it.
    Stuck,
}

// SAFETY: what the pointers name is used by the queues, which have one owner, and by whoever holds
// the lock of `pairs`; libibverbs may be called by any thread.
unsafe impl Send for Port {}
// SAFETY: as above.
unsafe impl Sync for Port {}
/// Names a set of queues to a connection manager.
#[derive(Clone)]
pub struct VerbsHandle {
    pub(crate) port: Arc<Port>,
}

/// A connected queue pair on its way to its queues. Dropping it ends the connection.
pub struct VerbsEndpoint {
    port: Arc<Port>,
    /// None if it was attached.
    pair: Option<Arc<Pair>>,
}

impl Port {
    /// Makes a queue pair: for an id, which is the port's from now on and comes back with the error
    /// if there is one, or for a connection that is made by hand. Whoever has the endpoint connects
    /// it, by [`Pair::with`].
    pub fn create(
        self: &Arc<Self>,
        id: Option<Id>,
    ) -> Result<VerbsEndpoint, (Option<Id>, SetupError)> {
        if let Err(error) = self.pairs().make_room(self) {
            return Err((id, error));
        }
        let key = Key::new();
        let mut attr = self.pair_attr(key);
        // SAFETY: domain and queues are alive, and `attr` is as the header has it.
        let qp = unsafe { (self.device.lib.ibv_create_qp)(self.pd, &raw mut attr) };
        let failure = qp.is_null().then(|| error::last("ibv_create_qp"));
        let mut pairs = self.pairs();
        pairs.in_making -= 1;
        if let Some(failure) = failure {
            return Err((id, failure));
        }
        // SAFETY: the library has just returned the queue pair.
        let num = unsafe { (*qp).qp_num };
        let pair = Pair::new(key, num, qp, id);
        if pairs.is_closed {
            // Nobody polls any more, and the lock keeps others from destroying at the same time.
            pair.destroy(&self.device);
            return Err((None, SetupError::Stopped));
        }
        let pair = Arc::new(pair);
        let entry = Entry { pair: Arc::clone(&pair), stage: Stage::Born, end: None };
        pairs.list.push(entry);
        // Before anybody can send to it.
        self.set(Chores::UNATTACHED);
        Ok(VerbsEndpoint { port: Arc::clone(self), pair: Some(pair) })
    }

    /// With what queue pairs of this port are made.
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
        // One that is attached later finds out when it is.
        if entry.end.is_none() && entry.stage == Stage::Attached {
            self.tell(Told::End(key, end));
        }
        entry.end.get_or_insert(end);
    }

    /// Leaves something for the queues to report.
    pub fn tell(&self, told: Told) {
        let mut all = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        // Queue pairs end once. What befalls the device, a port that goes up and down, is reported once
        // however often it has happened since the queues were asked.
        if matches!(told, Told::Device(_)) {
            all.retain(|it| *it != told);
        }
        all.push_back(told);
        drop(all);
        self.set(Chores::EVENTS);
        self.bell.ring();
    }

    /// What is to be reported next.
    pub fn next_told(&self) -> Option<Told> {
        let mut all = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let told = all.pop_front();
        if all.is_empty() {
            self.clear(Chores::EVENTS);
        }
        told
    }

    /// What there is to look after.
    #[inline]
    pub fn chores(&self) -> Chores {
        Chores::from_bits_retain(self.chores.load(Ordering::Acquire))
    }

    pub fn set(&self, chores: Chores) {
        self.chores.fetch_or(chores.bits(), Ordering::AcqRel);
    }

    pub fn clear(&self, chores: Chores) {
        self.chores.fetch_and(!chores.bits(), Ordering::AcqRel);
    }
}

impl Listener for Port {
    fn hear(&self, happened: Happened) -> bool {
        match happened {
            Happened::Port { is_up, .. } => {
                let event = if is_up { QueueEvent::PortUp } else { QueueEvent::PortDown };
                self.tell(Told::Device(event));
                true
            }
            Happened::PairFailed(name) => {
                let is_ours = self.named(name).is_some();
                if is_ours {
                    self.on_end(name.key, End::Failed);
                }
                is_ours
            }
            Happened::LastReceive(name) => {
                let pair = self.named(name);
                if let Some(pair) = &pair {
                    pair.on_last_receive();
                    self.bell.ring();
                }
                pair.is_some()
            }
            Happened::Established(name) => {
                let pair = self.named(name);
                if let Some(id) = pair.as_ref().and_then(|pair| pair.id.as_ref()) {
                    id.ask(Errand::Establish(Arc::clone(id)));
                }
                pair.is_some()
            }
            Happened::QueueFailed(name) => {
                let is_ours = self.has_queue(name);
                if is_ours {
                    self.tell(Told::Device(QueueEvent::DeviceLost));
                }
                is_ours
            }
            Happened::DeviceLost => {
                self.tell(Told::Device(QueueEvent::DeviceLost));
                true
            }
            Happened::Other => false,
        }
    }
}

/// What the queues do with their queue pairs.
impl Port {
    /// Takes note that a queue pair is attached.
    pub fn attach(&self, mut endpoint: VerbsEndpoint) -> Result<Arc<Pair>, SetupError> {
        let pair = endpoint.pair.take().ok_or(SetupError::Stopped)?;
        let mut pairs = self.pairs();
        let entry = pairs.find(pair.key).ok_or(SetupError::Stopped)?;
        entry.stage = Stage::Attached;
        if let Some(end) = entry.end {
            self.tell(Told::End(pair.key, end));
        }
        self.look_for_unattached(&pairs);
        Ok(pair)
    }

    /// Takes note of how far the end of a queue pair has come.
    pub fn note_stage(&self, key: Key, stage: Stage) {
        let mut pairs = self.pairs();
        if let Some(entry) = pairs.find(key) {
            entry.stage = stage;
        }
        self.look_for_unattached(&pairs);
    }

    /// Forgets a queue pair that was destroyed.
    pub fn remove(&self, pairs: &mut Pairs, key: Key) {
        pairs.list.retain(|it| it.pair.key != key);
        self.look_for_unattached(pairs);
    }

    /// A queue pair whose endpoint was dropped.
    pub fn next_buried(&self) -> Option<Arc<Pair>> {
        let mut pairs = self.pairs();
        let next = pairs.buried.pop();
        if pairs.buried.is_empty() {
            self.clear(Chores::BURIED);
        }
        next
    }

    /// Makes an end of it: no queue pair is made any more; those that there are, are returned.
    pub fn close(&self, pairs: &mut Pairs) -> Vec<Arc<Pair>> {
        pairs.is_closed = true;
        pairs.buried.clear();
        std::mem::take(&mut pairs.list).into_iter().map(|entry| entry.pair).collect()
    }

    fn look_for_unattached(&self, pairs: &Pairs) {
        if pairs.list.iter().all(|it| it.stage != Stage::Born) {
            self.clear(Chores::UNATTACHED);
        }
    }
}

impl Pairs {
    /// Room for one more. Those that are dying have given theirs back: their requests have completed.
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
    /// As the queues report it.
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

    /// The queues that it was made for.
    pub(crate) fn port(&self) -> &Arc<Port> {
        &self.port
    }
}

impl Drop for VerbsEndpoint {
    fn drop(&mut self) {
        let Some(pair) = self.pair.take() else { return };
        // Whoever has the queues may sleep, and the peer is not to wait for that.
        pair.take_leave();
        let mut pairs = self.port.pairs();
        if pairs.find(pair.key).is_some() {
            pairs.buried.push(pair);
            self.port.set(Chores::BURIED);
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
