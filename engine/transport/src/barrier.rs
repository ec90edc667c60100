//! An asymmetric memory barrier: the rare side uses membarrier(2), the frequent side pays nothing.
//!
//! ```text
//!   often: store X; light(); load Y          rarely: store Y; heavy(); load X
//! ```
//!
//! At least one of the two loads sees the other's store, as if both sides had a full fence.
//!
//! Whether the kernel supports membarrier is determined once. If a program forbids it afterwards
//! (seccomp), the frequent side has run without fences, and memory could be released while it is
//! copied. The process then ends with a message.
#![cfg_attr(not(loom), expect(unsafe_code, reason = "membarrier(2) has no binding but syscall(2)"))]

#[cfg(not(loom))]
use std::sync::OnceLock;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

/// The frequent side's half: a compiler fence, or a full fence if the kernel does not support
/// membarrier.
#[cfg(not(loom))]
#[inline]
pub fn light() {
    if is_there() { compiler() } else { fence(Ordering::SeqCst) }
}

/// As [`light`], but never a fence: for callers that tolerate a missed store where [`is_there`] is
/// false.
#[cfg(not(loom))]
#[inline(always)]
pub fn compiler() {
    compiler_fence(Ordering::SeqCst);
}

/// The rare side's half: a full fence on every running thread of the process.
#[cfg(not(loom))]
#[cold]
pub fn heavy() {
    fence(Ordering::SeqCst);
    if !is_there() {
        return;
    }
    while let Err(error) = membarrier(PRIVATE_EXPEDITED) {
        // The kernel is temporarily out of memory.
        if error.raw_os_error() != Some(libc::ENOMEM) {
            is_gone(&error);
        }
        std::thread::yield_now();
    }
}

/// Ends the process: a panic would free memory that other threads may be copying.
#[cfg(not(loom))]
#[cold]
fn is_gone(error: &std::io::Error) -> ! {
    use std::io::Write;

    // Without `eprintln`, which panics where nothing can be written.
    let _ = writeln!(
        std::io::stderr(),
        "rpcrdma: membarrier(2) worked at first and fails now: {error}; without it memory in use \
         could be given back. Allow it, or forbid it (seccomp) before the engine starts"
    );
    std::process::abort();
}

#[cfg(not(loom))]
fn membarrier(command: libc::c_int) -> std::io::Result<()> {
    // SAFETY: membarrier takes three integers and no pointer.
    let code = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    if code == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Whether the kernel supports membarrier. The first call asks it and registers the process.
#[cfg(not(loom))]
#[inline]
pub fn is_there() -> bool {
    IS_THERE.load(Ordering::Relaxed) || ask()
}

#[cfg(not(loom))]
#[cold]
fn ask() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    let is_there =
        *REGISTERED.get_or_init(|| !cfg!(miri) && membarrier(REGISTER_PRIVATE_EXPEDITED).is_ok());
    IS_THERE.store(is_there, Ordering::Relaxed);
    is_there
}

/// A copy of a positive answer.
#[cfg(not(loom))]
static IS_THERE: AtomicBool = AtomicBool::new(false);

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` of linux/membarrier.h.
#[cfg(not(loom))]
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
/// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED` of linux/membarrier.h.
#[cfg(not(loom))]
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

/// Loom has no asymmetric fences: full ones on both sides give the same order.
#[cfg(loom)]
pub use self::full as light;
#[cfg(loom)]
pub use self::full as compiler;
#[cfg(loom)]
pub use self::full as heavy;

/// A full fence.
#[cfg(loom)]
pub fn full() {
    super::sync::fence(super::sync::Ordering::SeqCst);
}

/// As without loom.
#[cfg(loom)]
pub fn is_there() -> bool {
    true
}

#[cfg(test)]
#[cfg(all(not(loom), not(miri)))]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Output};

    use super::*;
    use rpcrdma_testing::denied::Denied;

    /// The role of the child process; without it these tests start a child.
    const ROLE: &str = "RPCRDMA_TEST_BARRIER";

    const DENIED: Denied<'_> = Denied { calls: &[libc::SYS_membarrier], errno: libc::EPERM };

    /// Runs the named test again, in a process of its own.
    fn in_child(test: &str, role: &str) -> Output {
        let test = format!("{}::{test}", module_path!().split_once("::").expect("a crate").1);
        let mut child = Command::new(std::env::current_exe().expect("this program"));
        child.args([&test, "--exact", "--nocapture"]).env(ROLE, role).output().expect("it runs")
    }

    #[test]
    fn a_process_that_loses_membarrier_ends_and_says_why() {
        if std::env::var(ROLE).is_ok() {
            assert!(is_there(), "asked before it is forbidden");
            heavy();
            DENIED.run(heavy);
            return;
        }
        if !is_there() {
            return;
        }
        let output = in_child("a_process_that_loses_membarrier_ends_and_says_why", "late");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{said}");
        assert!(said.contains("membarrier(2) worked at first"), "{said}");
    }

    #[test]
    fn a_process_that_never_had_membarrier_goes_on_with_fences() {
        if std::env::var(ROLE).is_ok() {
            DENIED.run(|| {
                assert!(!is_there());
                light();
                heavy();
            });
            return;
        }
        let output = in_child("a_process_that_never_had_membarrier_goes_on_with_fences", "early");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
    }
}
