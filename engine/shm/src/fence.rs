//! A memory barrier on all processes that take part: membarrier(2).
//!
//! ```text
//!   sender: publish the slot; [A]; load asleep        sleeper: store asleep = 1; [B]; load the slot
//! ```
//!
//! No wake-up is lost if one of the two loads sees the other side's store. A processor may execute a
//! load before an earlier store, so both sides need more than the order of the program:
//!
//! - If both processes take part in barriers, A is a fence for the compiler only, and B is
//!   [`everywhere`]. It makes every thread of these processes that runs execute a full fence before it
//!   returns; one that does not run executes one when it is switched in. If the slot is published
//!   before that fence, the sleeper's load, which comes later, sees it. If it is published after it,
//!   so is the sender's load executed after it, and sees `asleep`, which was stored before B began.
//! - If one of them does not, B cannot reach the sender, or the sleeper has no B. Then both A and B
//!   are full fences of their own threads. Of two such fences one comes first in the order of all
//!   SeqCst fences, and the load behind the other one sees what was stored before it.
//!
//! A process states in its handshake whether it takes part, so both sides know which of the two
//! holds. A peer that states what is not so misses its own wake-ups, or does not ring, which it may
//! do anyway.
#![expect(unsafe_code, reason = "membarrier(2) has no binding but syscall(2)")]

use std::sync::OnceLock;
use std::sync::atomic::{Ordering, fence};

use rpcrdma_transport::barrier;

/// Whether this process takes part. The first call registers it.
pub(crate) fn is_there() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED
        .get_or_init(|| membarrier(REGISTER_GLOBAL_EXPEDITED) && membarrier(GLOBAL_EXPEDITED))
}

/// Registers this process for its barriers of both kinds: this one, and that which ends
/// registrations. With one thread that takes microseconds. With several the kernel waits for all
/// processors, each time for tens of ms, which the first connection and the first message would.
pub(crate) fn register() {
    // What needs them asks again.
    let _ = (is_there(), barrier::is_there());
}

/// A full fence on this thread, and on every running thread of all processes that take part. False
/// if the kernel refuses the latter.
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

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::Shm;

    /// The registrations of this process, or less than none if the kernel does not say (before
    /// Linux 6.3).
    fn registrations() -> libc::c_long {
        const GET_REGISTRATIONS: libc::c_int = 1 << 9;
        // SAFETY: as for all of them.
        unsafe { libc::syscall(libc::SYS_membarrier, GET_REGISTRATIONS, 0, 0) }
    }

    /// Its first connection would wait for it.
    #[test]
    fn a_provider_registers_its_process() {
        const ROLE: &str = "RPCRDMA_TEST_REGISTERS";
        const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;
        if std::env::var(ROLE).is_err() {
            // Another test may have registered this one.
            let mut child = Command::new(std::env::current_exe().expect("this program"));
            let test = "fence::tests::a_provider_registers_its_process";
            let output = child.args([test, "--exact"]).env(ROLE, "1").output().expect("it runs");
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("1 passed"), "{said}");
            return;
        }
        if registrations() < 0 {
            return;
        }
        assert_eq!(registrations(), 0);
        let _device = Shm::new().expect("a thread");
        let both = REGISTER_GLOBAL_EXPEDITED | REGISTER_PRIVATE_EXPEDITED;
        assert_eq!(registrations(), both.into());
    }
}
