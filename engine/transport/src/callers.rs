//! Callers: sockets that have connected to a listener and have said nothing yet.

use rustix::process::{Resource, getrlimit};

/// How many callers a connection manager holds at one time: 1024, or a quarter of the descriptors
/// that the process may have, if that is less. Asking for it is a system call.
pub fn callers_max() -> usize {
    share(getrlimit(Resource::Nofile).current)
}

/// The callers of a process that may have so many descriptors, or any number.
fn share(descriptors: Option<u64>) -> usize {
    let quarter = descriptors.and_then(|all| usize::try_from(all / 4).ok());
    quarter.map_or(CALLERS_MAX, |quarter| quarter.clamp(1, CALLERS_MAX))
}

const CALLERS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_leave_three_quarters_of_the_descriptors() {
        let cases = [(None, 1024), (Some(1 << 20), 1024), (Some(400), 100), (Some(3), 1)];
        for (descriptors, callers) in cases {
            assert_eq!(share(descriptors), callers);
        }
    }
}
