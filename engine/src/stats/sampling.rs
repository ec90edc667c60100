//! The sampling of a shard: which calls are timed, and the open ones among them.
//!
//! The gap between two timed calls of a connection is random around its mean: a program that makes
//! its calls in turn would otherwise have only one of them timed.

use std::sync::Arc;

use super::latency::{Latencies, ProcedureKey};
use crate::clock::Clock;
use crate::connection_id::ConnectionId;

/// Of a call that is not timed.
pub(crate) const NO_TIMER: u32 = rpcrdma_proto::NO_MARK;

/// The timed calls of a shard.
pub(crate) struct Sampling {
    /// The mean gap; `None` if no call is timed.
    mean: Option<u32>,
    clock: Clock,
    random: u32,
    timers: Box<[CallTimer]>,
    free: Vec<u32>,
    latencies: Arc<Latencies>,
    /// The last own call that is timed, and its xid.
    newest: (u32, u32),
}

/// A timed call that is open.
#[derive(Clone, Copy)]
struct CallTimer {
    since: u64,
    /// The peer and the xid, of a call of a peer.
    answers: Option<(ConnectionId, u32)>,
    /// The place of its procedure.
    procedure: u32,
}

impl Sampling {
    /// One in `sample` calls is timed; 0: none.
    pub fn new(sample: u32, shard: u32, latencies: Arc<Latencies>) -> Sampling {
        let timers = if sample > 0 { TIMERS } else { 0 };
        Sampling {
            mean: (sample > 0).then_some(sample),
            clock: Clock::new(),
            random: shard.wrapping_mul(0x9e37_79b9) | 1,
            timers: vec![CallTimer { since: 0, answers: None, procedure: NO_TIMER }; timers].into(),
            free: (0..timers as u32).rev().collect(),
            latencies,
            newest: (NO_TIMER, 0),
        }
    }

    /// The number of calls from a timed one to the next.
    pub fn gap(&mut self) -> u32 {
        let mean = self.mean.unwrap_or(FOLD);
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        1 + ((u64::from(self.random) * u64::from(2 * mean - 1)) >> u32::BITS) as u32
    }

    /// Begins to time an own call. [`NO_TIMER`] if none is timed, or too many are.
    pub fn begin_call(&mut self, xid: u32) -> u32 {
        let timer = self.begin(None);
        self.newest = (timer, xid);
        timer
    }

    /// As [`Sampling::begin_call`], for a call of a peer.
    pub fn begin_service(&mut self, peer: ConnectionId, xid: u32) -> u32 {
        self.begin(Some((peer, xid)))
    }

    fn begin(&mut self, answers: Option<(ConnectionId, u32)>) -> u32 {
        let Some(timer) = self.free.pop() else { return NO_TIMER };
        let since = self.clock.now();
        self.timers[timer as usize] = CallTimer { since, answers, procedure: NO_TIMER };
        timer
    }

    /// States the procedure of an own call that was just sent, for the case that it is timed.
    #[inline]
    pub fn name_call(&mut self, xid: u32, key: impl FnOnce() -> ProcedureKey) {
        let (timer, newest) = self.newest;
        if newest == xid {
            self.name(timer, &key());
        }
    }

    /// As [`Sampling::name_call`], for a call of a peer.
    #[inline]
    pub fn name_service(&mut self, timer: u32, key: impl FnOnce() -> ProcedureKey) {
        if timer != NO_TIMER {
            self.name(timer, &key());
        }
    }

    #[cold]
    fn name(&mut self, timer: u32, key: &ProcedureKey) {
        if let Some(timer) = self.timers.get_mut(timer as usize) {
            timer.procedure = self.latencies.place_of(key).unwrap_or(NO_TIMER);
        }
    }

    /// A timed own call has ended.
    #[cold]
    pub fn end_call(&mut self, timer: u32) {
        let CallTimer { since, procedure, .. } = self.timers[timer as usize];
        self.discard_call(timer);
        let ns = self.clock.now().saturating_sub(since);
        self.latencies.calls.record(ns);
        if let Some(latency) = self.latencies.of_procedure(procedure) {
            latency.record(ns);
        }
    }

    /// A timed own call was not sent.
    #[cold]
    pub fn discard_call(&mut self, timer: u32) {
        self.free.push(timer);
        if self.newest.0 == timer {
            self.newest = (NO_TIMER, 0);
        }
    }

    /// A timed call of a peer was answered.
    #[cold]
    pub fn end_service(&mut self, timer: u32, peer: ConnectionId, xid: u32) {
        // A ticket may be of an ended connection, and its timer that of another call.
        let Some(CallTimer { since, answers, procedure }) = self.timers.get_mut(timer as usize)
        else {
            return;
        };
        if *answers != Some((peer, xid)) {
            return;
        }
        *answers = None;
        self.free.push(timer);
        let ns = self.clock.now().saturating_sub(*since);
        self.latencies.service.record(ns);
        if let Some(latency) = self.latencies.of_procedure(*procedure) {
            latency.record(ns);
        }
    }

    /// Calls of a peer will not be answered: this one, or all.
    #[cold]
    pub fn forget_services(&mut self, peer: ConnectionId, xid: Option<u32>) {
        for (at, timer) in self.timers.iter_mut().enumerate() {
            if timer.answers.is_some_and(|(of, one)| of == peer && xid.is_none_or(|it| it == one)) {
                timer.answers = None;
                self.free.push(at as u32);
            }
        }
    }

    /// Timed calls that are open.
    #[cfg(test)]
    fn open(&self) -> usize {
        self.timers.len() - self.free.len()
    }
}

/// Timed calls that may be open at one time: with the default, of 32768 calls.
const TIMERS: usize = 512;
/// The mean number of calls from a fold to the next, if none is timed.
const FOLD: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn sampling(sample: u32) -> Sampling {
        Sampling::new(sample, 3, Arc::new(Latencies::new()))
    }

    #[test]
    fn gaps_are_around_their_mean_and_of_all_lengths() {
        for sample in [1, 2, 64, 1000] {
            let mut sampling = sampling(sample);
            let gaps: Vec<u32> = (0..20_000).map(|_| sampling.gap()).collect();
            let mean = gaps.iter().map(|gap| u64::from(*gap)).sum::<u64>() as f64 / 20_000.0;
            assert!((mean / f64::from(sample) - 1.0).abs() < 0.02, "{mean} for {sample}");
            let (least, most) = (gaps.iter().min(), gaps.iter().max());
            assert!(least <= Some(&(1 + sample / 50)) && most <= Some(&(2 * sample - 1)));
        }
    }

    #[test]
    fn a_timer_ends_once_and_for_its_own_call() {
        let mut sampling = sampling(64);
        let [one, two] = [1, 2].map(|index| ConnectionId { index, generation: 0 });
        let first = sampling.begin_service(one, 7);
        sampling.end_service(first, one, 8);
        sampling.end_service(first, two, 7);
        assert_eq!(sampling.open(), 1);
        sampling.end_service(first, one, 7);
        sampling.end_service(first, one, 7);
        sampling.end_service(NO_TIMER, one, 7);
        assert_eq!((sampling.open(), sampling.latencies.report().service.len()), (0, 1));
        let open = [Some((one, 1)), Some((one, 2)), Some((two, 1)), None];
        let own = open.map(|answers| sampling.begin(answers))[3];
        sampling.forget_services(one, Some(2));
        assert_eq!(sampling.open(), 3);
        sampling.forget_services(one, None);
        assert_eq!(sampling.open(), 2, "not those of others, and no own one");
        sampling.end_call(own);
        assert_eq!((sampling.open(), sampling.latencies.report().calls.len()), (1, 1));
    }

    #[test]
    fn the_procedure_of_a_call_that_ended_names_no_other() {
        for end in [Sampling::end_call, Sampling::discard_call] {
            let mut sampling = sampling(64);
            let ended = sampling.begin_call(7);
            end(&mut sampling, ended);
            let peer = ConnectionId { index: 0, generation: 0 };
            assert_eq!(sampling.begin_service(peer, 1), ended);
            sampling.name_call(7, || unreachable!("no open call has this xid"));
        }
    }

    #[test]
    fn without_sampling_nothing_is_timed() {
        let mut sampling = sampling(0);
        assert!(sampling.gap() > 0);
        assert_eq!(sampling.begin(None), NO_TIMER);
    }

    #[test]
    fn too_many_open_calls_are_not_timed() {
        let mut sampling = sampling(1);
        let timers: Vec<u32> = (0..=TIMERS).map(|_| sampling.begin(None)).collect();
        assert_eq!(timers.iter().filter(|timer| **timer == NO_TIMER).count(), 1);
    }
}
