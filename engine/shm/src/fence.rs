//! A memory barrier on all processes that take part: membarrier(2).
//!
//! A sender stores and then loads another line: it publishes, then looks whether its peer sleeps. A
//! processor may do the load first. The sleeper, which has time, makes every running thread of all
//! processes that have registered execute a full fence; so the sender pays nothing. A process that
//! has not registered says so in its greeting, and its peers sleep briefly.
#![expect(unsafe_code, reason = "membarrier(2) has no binding but syscall(2)")]

use std::sync::OnceLock;
use std::sync::atomic::{Ordering, fence};

/// Whether this process takes part. The first call registers it.
pub(crate) fn is_there() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED
        .get_or_init(|| membarrier(REGISTER_GLOBAL_EXPEDITED) && membarrier(GLOBAL_EXPEDITED))
}

/// A full fence on every running thread of all processes that take part. Does less than that if
/// the kernel refuses: callers tolerate a missed store then.
#[cold]
pub(crate) fn everywhere() -> bool {
    fence(Ordering::SeqCst);
    membarrier(GLOBAL_EXPEDITED)
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: membarrier takes three integers and no pointer.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// `MEMBARRIER_CMD_GLOBAL_EXPEDITED` of linux/membarrier.h.
const GLOBAL_EXPEDITED: libc::c_int = 1 << 1;
/// `MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED` of linux/membarrier.h.
const REGISTER_GLOBAL_EXPEDITED: libc::c_int = 1 << 2;
