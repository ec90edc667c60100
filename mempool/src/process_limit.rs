//! Limits of the process: `getrlimit(2)`, which may be forbidden (seccomp).
#![expect(unsafe_code, reason = "getrlimit(2) of rustix panics where it is forbidden")]

/// What is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// The number of descriptors (`RLIMIT_NOFILE`).
    Descriptors,
    /// The length of a file that the process makes (`RLIMIT_FSIZE`).
    FileSize,
}

/// A limit that holds, and the largest that the process may set. `u64::MAX`: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessLimit {
    /// The one that holds.
    pub current: u64,
    /// The largest that the process may set.
    pub maximum: u64,
}

impl ProcessLimit {
    /// That of a resource; `None` if the system does not say it.
    pub fn of(resource: Resource) -> Option<ProcessLimit> {
        let resource = match resource {
            Resource::Descriptors => libc::RLIMIT_NOFILE,
            Resource::FileSize => libc::RLIMIT_FSIZE,
        };
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: getrlimit writes to the structure, which is ours.
        let is_known = unsafe { libc::getrlimit(resource, &raw mut limit) } == 0;
        const { assert!(libc::RLIM_INFINITY == u64::MAX) };
        is_known.then_some(ProcessLimit { current: limit.rlim_cur, maximum: limit.rlim_max })
    }
}
