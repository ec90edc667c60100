//! The port: what a set of queues shares with the connection manager, which makes their queue pairs.
//!
//! ```text
//!   connection manager ── create ──▶ born ── Endpoint ── attach ──▶ attached ── destroy ──▶ gone
//!                                      └── Endpoint dropped ──▶ buried ── the queues' next poll ──┘
//! ```
//! Queue pairs belong to the port, so that none outlives its queues, in whoever's hand its endpoint
//! is. Whatever is done to an id that has a queue pair is done under the lock of [`Port::pairs`].
//! Queue pairs are destroyed by the thread that polls, because that touches the completion queue;
//! under the same lock, so that the number of one cannot be used again before the queue is swept.
#![expect(unsafe_code, reason = "libibverbs is called")]

mod open;

use std::collections::VecDeque;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rpcrdma_engine::SetupError;
use rpcrdma_engine::provider::{QueueEvent, Waker};

use crate::cm::Id;
use crate::device::Device;
use crate::error;
use crate::sys::verbs as sys;

/// What a set of queues shares with the connection manager.
pub(crate) struct Port {
    pub device: Arc<Device>,
    pub cq: *mut sys::ibv_cq,
    pub srq: *mut sys::ibv_srq,
    pub channel: *mut sys::ibv_comp_channel,
    /// The parent domain and its thread domain, where the device has them; else the device's.
    pd: *mut sys::ibv_pd,
    td: *mut sys::ibv_td,
    cap: sys::ibv_qp_cap,
    pairs_max: usize,
    pairs: Mutex<Pairs>,
    events: Mutex<VecDeque<QueueEvent>>,
    chores: AtomicU32,
    /// Ends the sleep of the queues.
    pub bell: Waker,
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
    }
}

/// The queue pairs of a port.
pub(crate) struct Pairs {
    list: Vec<Pair>,
    /// Numbers of those whose endpoints were dropped.
    buried: Vec<u32>,
    /// The queues are gone: no queue pair is made any more.
    is_closed: bool,
}

/// A queue pair.
pub(crate) struct Pair {
    pub qp: *mut sys::ibv_qp,
    pub num: u32,
    /// Its end in librdmacm; none for one that was connected by hand.
    pub id: Option<Id>,
    pub is_attached: bool,
    pub is_failed: bool,
    /// The device has said that no Receive of it is outstanding.
    pub is_last_receive: bool,
}

// SAFETY: what the pointers name is used by the queues, which have one owner, and by whoever holds
// the lock of `pairs`; libibverbs may be called by any thread.
unsafe impl Send for Port {}
// SAFETY: as above.
unsafe impl Sync for Port {}
// SAFETY: libibverbs may be called by any thread; a pair is reached under the lock only.
unsafe impl Send for Pair {}

/// Names a set of queues to a connection manager.
#[derive(Clone)]
pub struct VerbsHandle {
    pub(crate) port: Arc<Port>,
}

/// A connected queue pair on its way to its queues. Dropping it ends the connection.
pub struct VerbsEndpoint {
    port: Arc<Port>,
    num: u32,
}

impl Port {
    /// With what queue pairs of this port are made.
    pub fn pair_attr(&self) -> sys::ibv_qp_init_attr {
        sys::ibv_qp_init_attr {
            qp_context: ptr::null_mut(),
            send_cq: self.cq,
            recv_cq: self.cq,
            srq: self.srq,
            cap: self.cap,
            qp_type: sys::IBV_QPT_RC,
            sq_sig_all: 0,
        }
    }

    /// Makes a queue pair: for an id, which is the port's from now on and comes back with the error
    /// if there is one, or for a connection that is made by hand. Whoever has the endpoint connects
    /// it, by [`Port::with`].
    pub fn create(
        self: &Arc<Self>,
        id: Option<Id>,
    ) -> Result<VerbsEndpoint, (Option<Id>, SetupError)> {
        let mut pairs = self.pairs();
        if let Err(error) = pairs.has_room(self) {
            return Err((id, error));
        }
        let mut attr = self.pair_attr();
        // SAFETY: domain and queues are alive, and `attr` is as the header has it.
        let qp = unsafe { (self.device.lib.ibv_create_qp)(self.pd, &raw mut attr) };
        if qp.is_null() {
            return Err((id, error::last("ibv_create_qp")));
        }
        Ok(self.born(&mut pairs, qp, id))
    }

    fn born(
        self: &Arc<Self>,
        pairs: &mut Pairs,
        qp: *mut sys::ibv_qp,
        id: Option<Id>,
    ) -> VerbsEndpoint {
        // SAFETY: the library has just returned the queue pair.
        let num = unsafe { (*qp).qp_num };
        let fresh = (false, false, false);
        let (is_attached, is_failed, is_last_receive) = fresh;
        pairs.list.push(Pair { qp, num, id, is_attached, is_failed, is_last_receive });
        // Before anybody can send to it.
        self.set(Chores::UNATTACHED);
        VerbsEndpoint { port: Arc::clone(self), num }
    }

    /// The queue pairs, locked.
    pub fn pairs(&self) -> MutexGuard<'_, Pairs> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something to a queue pair and its id; `None` if it is gone. The lock is held: no events of
    /// the id are waited for in it.
    pub fn with<R>(&self, num: u32, act: impl FnOnce(&mut Pair) -> R) -> Option<R> {
        self.pairs().find(num).map(act)
    }

    /// Reports the end of a connection: its queue pair goes to the error state, and the queues are
    /// told why. An id's events name it by its key: another queue pair may have got the number of one
    /// that is destroyed before its id is.
    pub fn on_end(&self, num: u32, key: Option<u64>, event: QueueEvent) {
        let mut pairs = self.pairs();
        let pair = pairs.find(num).filter(|pair| key.is_none_or(|key| pair.is_of(key)));
        let Some(pair) = pair else { return };
        // Before its requests are flushed, which says less. One that is attached later finds out
        // when it is.
        if pair.is_attached {
            self.tell(event);
        }
        pair.fail(&self.device);
    }

    /// Reports that the device has no Receives of a queue pair any more.
    pub fn on_last_receive(&self, num: u32) {
        if let Some(pair) = self.pairs().find(num) {
            pair.is_last_receive = true;
        }
    }

    /// Leaves an event for the queues.
    pub fn tell(&self, event: QueueEvent) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push_back(event);
        self.set(Chores::EVENTS);
        self.bell.ring();
    }

    /// The next event.
    #[cold]
    pub fn next_event(&self) -> Option<QueueEvent> {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let event = events.pop_front();
        if events.is_empty() {
            self.clear(Chores::EVENTS);
        }
        event
    }

    /// Drops the events of a queue pair that is destroyed.
    pub fn forget_events(&self, num: u32) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.retain(|event| match event {
            QueueEvent::Disconnected { qp_num } | QueueEvent::Failed { qp_num } => *qp_num != num,
            QueueEvent::DeviceLost | QueueEvent::PortDown | QueueEvent::PortUp => true,
        });
    }

    /// What there is to look after.
    #[inline]
    pub fn chores(&self) -> Chores {
        Chores::from_bits_retain(self.chores.load(Ordering::Acquire))
    }

    fn set(&self, chores: Chores) {
        self.chores.fetch_or(chores.bits(), Ordering::AcqRel);
    }

    fn clear(&self, chores: Chores) {
        self.chores.fetch_and(!chores.bits(), Ordering::AcqRel);
    }
}

impl Pairs {
    fn has_room(&self, port: &Port) -> Result<(), SetupError> {
        if self.is_closed {
            return Err(SetupError::Stopped);
        }
        if self.list.len() >= port.pairs_max {
            return Err(SetupError::Limit {
                what: "queue pairs of one shard",
                needed: self.list.len() as u64 + 1,
                limit: port.pairs_max as u64,
                device: port.device.caps.name.clone(),
            });
        }
        Ok(())
    }

    pub fn find(&mut self, num: u32) -> Option<&mut Pair> {
        self.list.iter_mut().find(|pair| pair.num == num)
    }
}

impl Pair {
    /// Whether its end in librdmacm has this key.
    pub fn is_of(&self, key: u64) -> bool {
        self.id.as_ref().is_some_and(|id| id.key() == key)
    }

    /// Moves it to the error state and takes leave of the peer.
    pub fn fail(&mut self, device: &Device) {
        if std::mem::replace(&mut self.is_failed, true) {
            return;
        }
        // SAFETY: all members are integers, for which zeros are values.
        let mut attr: sys::ibv_qp_attr = unsafe { std::mem::zeroed() };
        attr.qp_state = sys::IBV_QPS_ERR;
        // SAFETY: the queue pair is alive, and `attr` is as the header has it.
        let _ = unsafe { (device.lib.ibv_modify_qp)(self.qp, &raw mut attr, sys::IBV_QP_STATE) };
        if let Some(id) = &self.id {
            id.disconnect();
        }
    }

    /// Destroys the queue pair. Only by the thread that polls, or when nobody polls any more.
    pub fn destroy(&mut self, device: &Device) {
        // SAFETY: the queue pair is alive; it is out of the list, and nobody posts to it.
        let code = unsafe { (device.lib.ibv_destroy_qp)(self.qp) };
        if code != 0 {
            // It stays in the error state, in which it touches no memory.
            device.events.note_failure(&error::code("ibv_destroy_qp", code));
        }
        self.qp = ptr::null_mut();
    }
}

/// What the queues do with their queue pairs.
impl Port {
    /// Takes note that a queue pair is attached.
    pub fn attach(&self, mut endpoint: VerbsEndpoint) -> Result<*mut sys::ibv_qp, SetupError> {
        let num = std::mem::take(&mut endpoint.num);
        let mut pairs = self.pairs();
        let pair = pairs.find(num).ok_or(SetupError::Stopped)?;
        pair.is_attached = true;
        let (qp, is_failed) = (pair.qp, pair.is_failed);
        self.look_for_unattached(&pairs);
        drop(pairs);
        if is_failed {
            self.tell(QueueEvent::Disconnected { qp_num: num });
        }
        Ok(qp)
    }

    /// Takes a queue pair out of the list, to be destroyed while the lock is held.
    pub fn take(&self, pairs: &mut Pairs, num: u32) -> Option<Pair> {
        let at = pairs.list.iter().position(|pair| pair.num == num)?;
        let pair = pairs.list.swap_remove(at);
        self.look_for_unattached(pairs);
        Some(pair)
    }

    /// A queue pair whose endpoint was dropped.
    #[cold]
    pub fn next_buried(&self) -> Option<u32> {
        let mut pairs = self.pairs();
        let next = pairs.buried.pop();
        if pairs.buried.is_empty() {
            self.clear(Chores::BURIED);
        }
        next
    }

    /// Makes an end of it: no queue pair is made any more; those that there are, are returned.
    pub fn close(&self, pairs: &mut Pairs) -> Vec<Pair> {
        pairs.is_closed = true;
        std::mem::take(&mut pairs.list)
    }

    fn look_for_unattached(&self, pairs: &Pairs) {
        if pairs.list.iter().all(|pair| pair.is_attached) {
            self.clear(Chores::UNATTACHED);
        }
    }
}

impl VerbsEndpoint {
    /// The number of the queue pair.
    pub(crate) fn num(&self) -> u32 {
        self.num
    }

    /// The queues that it was made for.
    pub(crate) fn port(&self) -> &Arc<Port> {
        &self.port
    }
}

impl Drop for VerbsEndpoint {
    fn drop(&mut self) {
        // No queue pair has the number 0: this one was attached.
        if self.num == 0 {
            return;
        }
        let mut pairs = self.port.pairs();
        let Some(pair) = pairs.find(self.num) else { return };
        pair.fail(&self.port.device);
        pairs.buried.push(self.num);
        self.port.set(Chores::BURIED);
        self.port.bell.ring();
    }
}

impl std::fmt::Debug for VerbsEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerbsEndpoint").field("qp_num", &self.num).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for VerbsHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerbsHandle").field("cq", &self.port.cq).finish_non_exhaustive()
    }
}
