//! A fence for two that costs only one of them: the rare side has the kernel put it into the other.
//!
//! ```text
//!   often: store X; light(); load Y          rarely: store Y; heavy(); load X
//! ```
//!
//! At least one of the two loads sees the other's store, as if both sides had a full fence.
#![cfg_attr(not(loom), expect(unsafe_code, reason = "membarrier(2) has no binding but syscall(2)"))]

#[cfg(not(loom))]
use std::sync::OnceLock;
#[cfg(not(loom))]
use std::sync::atomic::{Ordering, compiler_fence, fence};

/// The half of the side that is often here: nothing but an order for the compiler, or a full fence
/// where the kernel has no membarrier.
#[cfg(not(loom))]
#[inline]
pub(super) fn light() {
    if is_there() { compiler() } else { fence(Ordering::SeqCst) }
}

/// As [`light`], never a fence: only for those who can bear to be missed where [`is_there`] says no.
#[cfg(not(loom))]
#[inline(always)]
pub(super) fn compiler() {
    compiler_fence(Ordering::SeqCst);
}

/// The half of the side that is rarely here: a full fence on every running thread of the process.
#[cfg(not(loom))]
#[cold]
pub(super) fn heavy() {
    fence(Ordering::SeqCst);
    if is_there() {
        // SAFETY: membarrier takes three integers and no pointer.
        unsafe { libc::syscall(libc::SYS_membarrier, PRIVATE_EXPEDITED, 0, 0) };
    }
}

/// Whether the kernel has membarrier; asks it once, and registers the process.
#[cfg(not(loom))]
#[inline]
pub(super) fn is_there() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| {
        if cfg!(miri) {
            return false;
        }
        // SAFETY: membarrier takes three integers and no pointer.
        unsafe { libc::syscall(libc::SYS_membarrier, REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 }
    })
}

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` of linux/membarrier.h.
#[cfg(not(loom))]
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
/// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED` of linux/membarrier.h.
#[cfg(not(loom))]
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

/// Loom knows no fences for two: full ones on both sides order the same.
#[cfg(loom)]
pub(super) use self::full as light;
#[cfg(loom)]
pub(super) use self::full as compiler;
#[cfg(loom)]
pub(super) use self::full as heavy;

#[cfg(loom)]
pub(super) fn full() {
    super::sync::fence(super::sync::Ordering::SeqCst);
}

#[cfg(loom)]
pub(super) fn is_there() -> bool {
    true
}
