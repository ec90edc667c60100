//! Context switches and page faults of a thread, from `/proc`.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::machine::files::field;

/// The counters of the calling thread; those that the kernel does not report are 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    pub waited: u64,
    /// Context switches because the kernel gave the core to another thread.
    pub preempted: u64,
    /// Page faults, those that needed a disk included.
    pub faults: u64,
}

impl Kernel {
    pub fn now() -> Kernel {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Kernel::parse(&read("/proc/thread-self/status"), &read("/proc/thread-self/stat"))
    }

    pub fn since(self, before: Kernel) -> Kernel {
        Kernel {
            waited: self.waited.saturating_sub(before.waited),
            preempted: self.preempted.saturating_sub(before.preempted),
            faults: self.faults.saturating_sub(before.faults),
        }
    }

    fn parse(status: &str, stat: &str) -> Kernel {
        let of_status = |name| field(status, name).and_then(|it| it.parse().ok()).unwrap_or(0);
        // Behind the name, which may hold anything, in parentheses: state, ppid, and so on.
        let fields: Vec<&str> =
            stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
        let of_stat =
            |field: usize| fields.get(field).and_then(|field| field.parse().ok()).unwrap_or(0);
        let (minor, major): (u64, u64) = (of_stat(MINOR), of_stat(MAJOR));
        Kernel {
            waited: of_status("voluntary_ctxt_switches"),
            preempted: of_status("nonvoluntary_ctxt_switches"),
            faults: minor + major,
        }
    }
}

/// Fields of `stat` behind the name (proc(5): 10 and 12, counted from 1 with pid and name).
const MINOR: usize = 7;
const MAJOR: usize = 9;

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tx\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t7\n";
    const STAT: &str = "12 (a) b) R 1 2 3 4 5 6 100 0 3 0 8 9";

    #[test]
    fn both_kinds_of_switches_and_of_faults_are_read() {
        let kernel = Kernel::parse(STATUS, STAT);
        assert_eq!(kernel, Kernel { waited: 5, preempted: 7, faults: 103 });
    }

    #[test]
    fn what_the_kernel_does_not_report_is_nothing() {
        assert_eq!(Kernel::parse("", ""), Kernel::default());
        assert_eq!(Kernel::parse("", "12 (a) R 1"), Kernel::default());
    }

    #[test]
    fn a_thread_that_touches_new_memory_has_faults() {
        let before = Kernel::now();
        // More than the allocator ever takes from memory that it has kept.
        let pages = vec![1_u8; 64 << 20];
        assert!(Kernel::now().since(before).faults > 0 && pages.len() > 1);
    }
}
