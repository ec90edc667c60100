//! A polling thread without work, by the idle policy of the configuration.

use std::hint::spin_loop;
use std::thread;
use std::time::Duration;

use rpcrdma_config::IdlePolicy;
use rpcrdma_config::section::IdleSection;

use crate::stats::Latency;

#[derive(Debug)]
pub struct Idling {
    policy: IdlePolicy,
    spin_ns: u64,
    since: Option<u64>,
    pauses: u32,
}

impl Idling {
    pub fn new(idle: IdleSection) -> Idling {
        let spin_ns = u64::try_from(idle.spin.as_nanos()).unwrap_or(u64::MAX);
        Idling { policy: idle.policy, spin_ns, since: None, pauses: 0 }
    }

    #[inline]
    pub fn busy(&mut self) {
        self.since = None;
        self.pauses = 0;
    }

    /// There was nothing to do at `now`, in ns: goes on at once, pauses, or says how long to sleep.
    #[inline]
    pub fn idle(&mut self, now: u64) -> Option<Duration> {
        if self.policy == IdlePolicy::Spin { None } else { self.rest(now) }
    }

    #[cold]
    fn rest(&mut self, now: u64) -> Option<Duration> {
        let since = *self.since.get_or_insert(now);
        if now.saturating_sub(since) < self.spin_ns {
            spin_loop();
            return None;
        }
        if self.policy == IdlePolicy::Block {
            return Some(SLEEP);
        }
        self.pauses = (self.pauses + 1).min(PAUSES_MAX);
        if self.pauses < PAUSES_MAX {
            (0..1 << self.pauses).for_each(|_| spin_loop());
        } else {
            thread::yield_now();
        }
        None
    }
}

/// Calls one after the other, with pauses before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pauses {
    /// The shortest pause; the longest is a quarter longer.
    pub length: Duration,
    pub calls: u64,
    pub warm_up: u64,
    pub seed: u64,
}

#[derive(Debug, Clone)]
pub struct PausedRound {
    /// From the submit of each call to its end.
    pub latency: Latency,
    /// Time of the counted calls and their pauses.
    pub elapsed_ns: u64,
    /// Processor time of the threads over the whole round, the client's first, as a share of the
    /// time that each was there.
    pub cpu: [f64; 2],
    /// How often a measuring thread lost its core to another program.
    pub preempted: u64,
}

/// One sleep: the end of the round is noticed after it.
const SLEEP: Duration = Duration::from_millis(10);
/// Pauses that double before the thread lets others run.
const PAUSES_MAX: u32 = 8;

#[cfg(test)]
mod tests {
    use rpcrdma_config::{Config, Raw};

    use super::*;

    fn idling(policy: &str) -> Idling {
        let mut raw = Raw::default();
        raw.engine.idle.policy = policy.into();
        raw.engine.idle.spin = "100ns".into();
        Idling::new(Config::try_from(raw).expect("a valid policy").engine().idle)
    }

    #[test]
    fn a_thread_that_spins_never_sleeps() {
        let mut idling = idling("spin");
        assert!((0..1000).all(|now| idling.idle(now).is_none()));
    }

    #[test]
    fn a_thread_that_blocks_spins_first() {
        let mut idling = idling("block");
        assert_eq!(idling.idle(1000), None);
        assert_eq!(idling.idle(1099), None);
        assert_eq!(idling.idle(1100), Some(SLEEP));
        idling.busy();
        assert_eq!(idling.idle(5000), None);
    }

    #[test]
    fn a_thread_that_backs_off_never_sleeps() {
        let mut idling = idling("backoff");
        assert!((0..1000).all(|now| idling.idle(now).is_none()));
    }
}
