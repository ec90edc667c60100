//! A completion queue that covers the mmap key which libsiw takes for an invalid one.
//!
//! siw gives each queue the lowest free mmap key of its context. libsiw takes 0x90000 for
//! `SIW_INVAL_UOBJ_KEY` (siw-abi.h): a queue with that key cannot be made, nor can any later one,
//! because the key stays free. A queue without a user that covers it is made first.
#![expect(unsafe_code, reason = "libibverbs is called")]

use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rpcrdma_provider::SetupError;

use crate::error;
use crate::sys::verbs as sys;

/// A share in the queue of a context, which all openings of its device in this process have.
pub(super) struct Filler {
    lib: &'static sys::Verbs,
    context: *mut sys::ibv_context,
}

/// The queue of a context, and how many have a share in it.
struct Queue {
    context: *mut sys::ibv_context,
    cq: *mut sys::ibv_cq,
    shares: usize,
}

// SAFETY: the pointers are used by the functions of the library only, under the lock.
unsafe impl Send for Queue {}

impl Filler {
    pub fn share(
        lib: &'static sys::Verbs,
        context: *mut sys::ibv_context,
    ) -> Result<Filler, SetupError> {
        let mut queues = queues();
        if let Some(queue) = queues.iter_mut().find(|queue| queue.context == context) {
            queue.shares += 1;
        } else {
            // SAFETY: the context is open; a completion queue without a channel has the first vector.
            let cq = error::made("ibv_create_cq", || unsafe {
                (lib.ibv_create_cq)(context, ENTRIES, ptr::null_mut(), ptr::null_mut(), 0)
            })?;
            queues.push(Queue { context, cq, shares: 1 });
        }
        Ok(Filler { lib, context })
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        let mut queues = queues();
        let Some(at) = queues.iter().position(|queue| queue.context == self.context) else {
            return;
        };
        queues[at].shares -= 1;
        if queues[at].shares == 0 {
            let cq = queues.swap_remove(at).cq;
            // SAFETY: the queue is alive, and nothing completes to it.
            let _ = unsafe { (self.lib.ibv_destroy_cq)(cq) };
        }
    }
}

fn queues() -> MutexGuard<'static, Vec<Queue>> {
    static QUEUES: Mutex<Vec<Queue>> = Mutex::new(Vec::new());
    QUEUES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The key: a distance in bytes from the first.
const INVALID_KEY: i32 = 0x9_0000;
/// Bytes of an entry of a completion queue of siw.
const ENTRY_LEN: i32 = 32;
/// So many that a queue which begins anywhere before the key ends behind it.
const ENTRIES: i32 = INVALID_KEY / ENTRY_LEN;
