//! A queue pair: which thread may use it, and how it ends.
#![expect(unsafe_code, reason = "libibverbs is called")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cm_id::{Id, Task};
use crate::device::Device;
use crate::error;
use crate::names::{Key, Name};
use crate::sys::verbs as sys;

/// A queue pair. Its queues use it without a lock. Only they move it to the error state and destroy
/// it.
pub(crate) struct Pair {
    pub key: Key,
    pub num: u32,
    pub qp: *mut sys::ibv_qp,
    /// Its librdmacm id; none for a connection made by hand.
    pub id: Option<Arc<Id>>,
    /// Not destroyed. Other threads than its queues' lock it while they use it.
    is_alive: Mutex<bool>,
    is_in_error: AtomicBool,
    is_left: AtomicBool,
    is_last_receive: AtomicBool,
}

// SAFETY: libibverbs may be called by any thread; the fields above say which threads use the
// pointer, and until when.
unsafe impl Send for Pair {}
// SAFETY: as above.
unsafe impl Sync for Pair {}

impl Pair {
    pub fn new(key: Key, num: u32, qp: *mut sys::ibv_qp, id: Option<Id>) -> Pair {
        Pair {
            key,
            num,
            qp,
            id: id.map(Arc::new),
            is_alive: Mutex::new(true),
            is_in_error: AtomicBool::new(false),
            is_left: AtomicBool::new(false),
            is_last_receive: AtomicBool::new(false),
        }
    }

    /// Runs `act` on the queue pair; `None` if it is gone.
    pub fn with<R>(&self, act: impl FnOnce(*mut sys::ibv_qp) -> R) -> Option<R> {
        let is_alive = self.alive();
        is_alive.then(|| act(self.qp))
    }

    /// The name that events of the device give it.
    pub fn name(&self) -> Name {
        Name { at: self.qp.cast_const().cast(), key: self.key }
    }

    /// Moves it to the error state, and has the peer disconnected. Called only by its queues.
    pub fn fail(&self, device: &Device) {
        if !self.is_in_error() && *self.alive() {
            // SAFETY: all members are integers, for which zeros are values.
            let mut attr: sys::ibv_qp_attr = unsafe { std::mem::zeroed() };
            attr.qp_state = sys::IBV_QPS_ERR;
            let modify = device.lib.ibv_modify_qp;
            // SAFETY: the queue pair is alive, and `attr` is as the header has it.
            match unsafe { modify(self.qp, &raw mut attr, sys::IBV_QP_STATE) } {
                0 => self.is_in_error.store(true, Ordering::Release),
                // The queues try again before they destroy it, which ends it in any case.
                code => device.events.note_failure(&error::code("ibv_modify_qp", code)),
            }
        }
        self.take_leave();
    }

    /// Has the peer disconnected, once.
    pub fn take_leave(&self) {
        if let Some(id) = self.leave() {
            id.ask(Task::Leave(Arc::clone(id)));
        }
    }

    /// Records that the peer is being disconnected. Returns its id the first time.
    pub fn leave(&self) -> Option<&Arc<Id>> {
        self.id.as_ref().filter(|_| !self.is_left.swap(true, Ordering::AcqRel))
    }

    /// Destroys it. Called only by the polling thread, or under the lock of its port after polling
    /// has ended. False if the device refuses.
    pub fn destroy(&self, device: &Device) -> bool {
        let mut is_alive = self.alive();
        if *is_alive {
            // SAFETY: the queue pair is alive, and is not used any more.
            let code = unsafe { (device.lib.ibv_destroy_qp)(self.qp) };
            if code != 0 {
                device.events.note_failure(&error::code("ibv_destroy_qp", code));
            }
            *is_alive = code != 0;
        }
        !*is_alive
    }

    /// Records that the device holds no more Receives of it.
    pub fn on_last_receive(&self) {
        self.is_last_receive.store(true, Ordering::Release);
    }

    /// Whether the device has reported its last Receive.
    pub fn is_last_receive(&self) -> bool {
        self.is_last_receive.load(Ordering::Acquire)
    }

    pub fn is_in_error(&self) -> bool {
        self.is_in_error.load(Ordering::Acquire)
    }

    /// Whether the peer was disconnected.
    pub fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Acquire)
    }

    fn alive(&self) -> MutexGuard<'_, bool> {
        self.is_alive.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
