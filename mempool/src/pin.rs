//! Pins a thread to a core, and verifies it.

/// Binds the calling thread to one core. Control plane: two system calls.
///
/// # Errors
/// If the thread may not run on the core, or the kernel refuses. The error lists the allowed cores;
/// the thread is not moved.
pub fn pin_to(core: u32) -> Result<(), PinError> {
    // core_affinity indexes a fixed mask with the number and aborts beyond it.
    if core >= CORES_MAX {
        return Err(PinError::OutOfRange { core });
    }
    let allowed = allowed_cores();
    let taken = core_affinity::set_for_current(core_affinity::CoreId { id: core as usize });
    // The kernel ignores invalid cores of a mask; reading the mask back is the only proof.
    if taken && allowed_cores() == [core] {
        return Ok(());
    }
    Err(PinError::Refused { core, allowed: CoreList(allowed) })
}

/// The cores that the calling thread may run on, sorted.
pub fn allowed_cores() -> Vec<u32> {
    // `sched_getaffinity` underneath. It fails only on machines with more cores than its mask.
    let ids = core_affinity::get_core_ids().unwrap_or_default();
    ids.iter().map(|core| core.id as u32).collect()
}

/// Why a thread was not pinned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PinError {
    /// The number is higher than any core's.
    #[error("core {core} is out of range; the highest number is {last}", last = CORES_MAX - 1)]
    OutOfRange {
        /// The requested core.
        core: u32,
    },
    /// The thread may not run there, or the core does not exist.
    #[error("this thread may not run on core {core}; it may run on {allowed}")]
    Refused {
        /// The requested core.
        core: u32,
        /// The allowed cores.
        allowed: CoreList,
    },
}

/// Core numbers, shown as the kernel writes them: `0-3,8`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoreList(
    /// Sorted, each once.
    pub Vec<u32>,
);

impl std::fmt::Display for CoreList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let runs = self.0.chunk_by(|a, b| a.checked_add(1) == Some(*b));
        for (at, run) in runs.enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match run {
                [first, .., last] => write!(f, "{comma}{first}-{last}")?,
                [one] => write!(f, "{comma}{one}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

/// Cores in a `cpu_set_t`.
const CORES_MAX: u32 = libc::CPU_SETSIZE as u32;

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs on a thread of its own, so that no other test runs pinned.
    fn on_a_thread<T: Send>(run: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| scope.spawn(run).join().expect("does not panic"))
    }

    #[test]
    fn a_thread_is_pinned_to_an_allowed_core() {
        on_a_thread(|| {
            let last = *allowed_cores().last().expect("a thread runs somewhere");
            assert_eq!(pin_to(last), Ok(()));
            assert_eq!(allowed_cores(), [last]);
        });
    }

    #[test]
    fn a_missing_core_is_refused_by_number() {
        on_a_thread(|| {
            let before = allowed_cores();
            let absent = CORES_MAX - 1;
            assert!(!before.contains(&absent), "this machine has 1024 cores");
            let error = pin_to(absent).expect_err("no such core");
            assert_eq!(
                error.to_string(),
                format!(
                    "this thread may not run on core {absent}; it may run on {}",
                    CoreList(before.clone())
                )
            );
            assert_eq!(allowed_cores(), before);
        });
    }

    #[test]
    fn a_number_beyond_the_mask_is_an_error_and_no_abort() {
        for core in [CORES_MAX, u32::MAX] {
            assert_eq!(pin_to(core), Err(PinError::OutOfRange { core }));
        }
    }

    #[test]
    fn lists_of_cores_are_short() {
        let list = |cores: &[u32]| CoreList(cores.to_vec()).to_string();
        assert_eq!(list(&[]), "");
        assert_eq!(list(&[4]), "4");
        assert_eq!(list(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
    }
}
