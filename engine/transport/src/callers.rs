//! Callers: sockets that have connected to a listener and have sent nothing yet.

use std::collections::HashMap;
use std::hash::Hash;

use rpcrdma_mempool::process_limit::{ProcessLimit, Resource};

/// How many callers a connection manager holds at one time: 1024, or a quarter of the descriptors
/// that the process may have, if that is less. If the system does not report that number, it is
/// taken to be 1024.
pub fn callers_max() -> usize {
    let limit = ProcessLimit::of(Resource::Descriptors);
    share(limit.map_or(DESCRIPTORS, |limit| limit.current))
}

/// The callers to drop, by their numbers, where there can be no more than `most`: the oldest, which
/// have the lowest numbers, of the origin that has most of them. So callers of other origins wait
/// until these are dropped, and not until these are late. None if there is room.
pub fn callers_to_drop<Origin: Eq + Hash>(
    callers: impl Iterator<Item = (u64, Origin)>,
    most: usize,
) -> Vec<u64> {
    let mut of_origins = HashMap::<Origin, Vec<u64>>::new();
    let mut count = 0;
    for (number, origin) in callers {
        of_origins.entry(origin).or_default().push(number);
        count += 1;
    }
    let oldest = of_origins.into_values().max_by_key(Vec::len).filter(|_| count >= most);
    let mut oldest = oldest.unwrap_or_default();
    oldest.sort_unstable();
    oldest.truncate(DROPPED_MAX);
    oldest
}

/// The callers of a process that may have so many descriptors.
fn share(descriptors: u64) -> usize {
    let quarter = usize::try_from(descriptors / 4).unwrap_or(CALLERS_MAX);
    quarter.clamp(1, CALLERS_MAX)
}

const CALLERS_MAX: usize = 1024;
/// Callers that are dropped, or rejected, at one time.
pub const DROPPED_MAX: usize = 64;
/// Descriptors of a process that cannot ask how many it may have.
const DESCRIPTORS: u64 = 1024;

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use rpcrdma_testing::denied::Denied;

    #[test]
    fn callers_leave_three_quarters_of_the_descriptors() {
        for (descriptors, callers) in [(u64::MAX, 1024), (1 << 20, 1024), (400, 100), (3, 1)] {
            assert_eq!(share(descriptors), callers);
        }
    }

    #[test]
    fn the_oldest_callers_of_the_origin_that_has_most_make_room() {
        let callers = || [(9, 'b'), (8, 'a'), (7, 'b'), (3, 'a'), (5, 'b')].into_iter();
        assert_eq!(callers_to_drop(callers(), 5), [5, 7, 9]);
        assert!(callers_to_drop(callers(), 6).is_empty(), "there is room");
        let many = callers_to_drop((0..100).rev().map(|number| (number, ())), 100);
        assert_eq!(many, (0..64).collect::<Vec<_>>());
    }

    #[test]
    fn callers_have_a_limit_where_the_system_does_not_report_that_of_descriptors() {
        let denied = Denied { calls: &[libc::SYS_prlimit64], errno: libc::EPERM };
        assert_eq!(denied.run(callers_max), 256);
        assert_eq!(denied.run(callers_max), share(DESCRIPTORS));
    }
}
