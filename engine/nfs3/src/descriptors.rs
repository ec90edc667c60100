//! The limit of descriptors of the process, and what each cache of open files may have of it.

use rpcrdma::process_limit::{self, ProcessLimit};
use rustix::process::{Resource, Rlimit, setrlimit};

/// Raises the limit to the largest that the process may set, and returns the limit that holds now.
/// Caches may have their share of it; connections and MOUNT need the rest.
pub fn raise() -> u64 {
    let limit = ProcessLimit::of(process_limit::Resource::Descriptors);
    let Some(ProcessLimit { current, maximum }) = limit else { return USUAL };
    let raised = Rlimit { current: Some(maximum), maximum: Some(maximum) };
    if setrlimit(Resource::Nofile, raised).is_ok() { maximum } else { current }
}

/// The usual limit, where the system does not say which one holds.
const USUAL: u64 = 1024;

#[cfg(test)]
mod tests {
    use rpcrdma_testing::denied::Denied;

    use super::*;

    #[test]
    fn the_soft_limit_is_raised() {
        let denied = Denied { calls: &[libc::SYS_prlimit64], errno: libc::EPERM };
        assert_eq!(denied.run(raise), USUAL);
        let before = rustix::process::getrlimit(Resource::Nofile);
        let maximum = before.maximum.expect("the kernel has one");
        // One less does no harm to the other tests of this process.
        let lower = Rlimit { current: Some(maximum - 1), maximum: before.maximum };
        setrlimit(Resource::Nofile, lower).expect("it is allowed");
        assert_eq!(raise(), maximum);
        assert_eq!(rustix::process::getrlimit(Resource::Nofile).current, Some(maximum));
    }
}
