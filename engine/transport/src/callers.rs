//! Callers: sockets that have connected to a listener and have said nothing yet.

use rpcrdma_mempool::process_limit::{ProcessLimit, Resource};

/// How many callers a connection manager holds at one time: 1024, or a quarter of the descriptors
/// that the process may have, if that is less. If the system does not say that, there are 1024
/// descriptors.
pub fn callers_max() -> usize {
    let limit = ProcessLimit::of(Resource::Descriptors);
    share(limit.map_or(DESCRIPTORS, |limit| limit.current))
}

/// The callers of a process that may have so many descriptors.
fn share(descriptors: u64) -> usize {
    let quarter = usize::try_from(descriptors / 4).unwrap_or(CALLERS_MAX);
    quarter.clamp(1, CALLERS_MAX)
}

const CALLERS_MAX: usize = 1024;
/// Descriptors of a process that cannot ask how many it may have.
const DESCRIPTORS: u64 = 1024;

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::tests::denied::Denied;

    #[test]
    fn callers_leave_three_quarters_of_the_descriptors() {
        for (descriptors, callers) in [(u64::MAX, 1024), (1 << 20, 1024), (400, 100), (3, 1)] {
            assert_eq!(share(descriptors), callers);
        }
    }

    #[test]
    fn callers_have_a_limit_where_the_system_does_not_say_that_of_descriptors() {
        let denied = Denied { calls: &[libc::SYS_prlimit64], errno: libc::EPERM };
        assert_eq!(denied.run(callers_max), 256);
        assert_eq!(denied.run(callers_max), share(DESCRIPTORS));
    }
}
