//! The loops of one client and its server: closed, open, and with pauses.

use rpcrdma_engine::Provider;
use rustix::time::{ClockId, clock_gettime};

use super::churn::OpenLoop;
use super::contender::Rpc;
use super::ends::stopwatch;
use super::idle::{Idling, PausedRound, Pauses};
use crate::contenders::open::{Offer, OpenRound, drive};
use crate::device::pair;
use crate::error::BenchError;
use crate::stats::{Quota, Round};

impl<P: Provider> Rpc<P> {
    /// Keeps the window full for one round and counts: what it can do at most.
    pub fn closed(&mut self, quota: Quota) -> Result<Round, BenchError> {
        self.measure(quota, false)
    }

    /// Times calls one after the other for one round, with any window.
    pub fn one_by_one(&mut self, quota: Quota) -> Result<Round, BenchError> {
        self.measure(quota, true)
    }

    /// Offers calls for one round, whether or not others have come back, up to the window.
    pub fn open(&mut self, offer: &Offer) -> Result<OpenRound, BenchError> {
        let outcome = self.run(|caller, _, stop| {
            drive(&mut OpenLoop::new(caller, stop, None), offer, &stopwatch())
        })?;
        Ok(OpenRound { preempted: outcome.preempted, ..outcome.client })
    }

    /// Makes calls with pauses before them for one round, both threads idle as the configuration
    /// says.
    pub fn paused(&mut self, pauses: &Pauses) -> Result<PausedRound, BenchError> {
        let Rpc { cores, config, caller, opposite, .. } = self;
        let idle = config.engine().idle;
        let outcome = pair::run(
            *cores,
            move |stop| with_cpu(|| caller.paused(pauses, Idling::new(idle), stop)),
            move |stop| with_cpu(|| opposite.attend(idle, stop)),
        )?;
        let ((round, client_cpu), ((), server_cpu)) = (outcome.client, outcome.server);
        let cpu = [client_cpu, server_cpu];
        Ok(PausedRound { cpu, preempted: outcome.preempted, ..round })
    }
}

/// Does something, and says which share of its time the thread had a processor.
fn with_cpu<T>(work: impl FnOnce() -> Result<T, BenchError>) -> Result<(T, f64), BenchError> {
    let before = [ClockId::Monotonic, ClockId::ThreadCPUTime].map(clock_ns);
    let value = work()?;
    let after = [ClockId::Monotonic, ClockId::ThreadCPUTime].map(clock_ns);
    let [time, cpu] = [0, 1].map(|clock| (after[clock] - before[clock]).max(0) as f64);
    Ok((value, if time > 0.0 { (cpu / time).min(1.0) } else { 0.0 }))
}

fn clock_ns(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

#[cfg(test)]
mod tests {
    use std::hint::spin_loop;
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_that_computes_has_its_core_and_one_that_waits_has_not() {
        let computing = || {
            let until = clock_ns(ClockId::ThreadCPUTime) + 10_000_000;
            while clock_ns(ClockId::ThreadCPUTime) < until {
                spin_loop();
            }
            Ok(())
        };
        let wait = || Ok(thread::spawn(move || with_cpu(computing)).join());
        let (computed, waiting) = with_cpu(wait).expect("it ends");
        let ((), computing) = computed.expect("no panic").expect("it ends");
        assert!(computing > waiting && computing > 0.0, "{computing} and {waiting}");
        assert!(computing <= 1.0);
    }
}
