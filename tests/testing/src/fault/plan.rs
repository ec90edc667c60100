//! The plan of faults, its pseudo-random numbers, and the log of injected faults.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rpcrdma_provider::QueueEvent;

/// Which faults are injected, and how often. Probabilities are in millionths; all default to zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultPlan {
    /// The seed of the pseudo-random numbers.
    pub seed: u64,
    /// Of a post of sends: it is refused, queue full.
    pub send_refused_ppm: u32,
    /// Of a post of two or more sends: only some are taken, queue full.
    pub send_cut_ppm: u32,
    /// Of a post of sends: all are taken, and an error is returned, queue full, as if the doorbell
    /// failed.
    pub send_failed_ppm: u32,
    /// Of a post of sends: none, some or all are taken, and the error is that the queue pair is
    /// gone.
    pub send_gone_ppm: u32,
    /// Of a post of sends: not all are taken, and no error is returned.
    pub send_silent_ppm: u32,
    /// Of a post of sends of which not all were taken: the first that was not taken still
    /// completes, some polls later.
    pub send_ghost_ppm: u32,
    /// Of a post of Receives: it is refused, queue full.
    pub recv_refused_ppm: u32,
    /// Of a post of two or more Receives: only some are taken, queue full.
    pub recv_cut_ppm: u32,
    /// Of a post of Receives: all are taken, and an error is returned, queue full.
    pub recv_failed_ppm: u32,
    /// Of a post of Receives: none, some or all are taken, and the error is that the queue is gone.
    pub recv_gone_ppm: u32,
    /// Of a post of Receives: not all are taken, and no error is returned.
    pub recv_silent_ppm: u32,
    /// Of a post of Receives of which not all were taken: the first that was not taken still
    /// completes, some polls later.
    pub recv_ghost_ppm: u32,
    /// Of a post of Receives: these and all later ones are posted late, so that the peer may find
    /// none.
    pub recv_withheld_ppm: u32,
    /// Of a queue pair that is destroyed while Receives are withheld: one of them completes as
    /// flushed, as if the queue pair had taken it from the shared queue.
    pub recv_taken_along_ppm: u32,
    /// Of a window that is renewed: it is unbound, and no other is returned.
    pub window_lost_ppm: u32,
    /// Of a window that is renewed: the call fails, and the window stays bound.
    pub window_kept_ppm: u32,
    /// Of a registration for one call: the device cannot register more.
    pub expose_refused_ppm: u32,
    /// Of a registration for one call: deregistration fails, and peers can still access the memory.
    pub conceal_failed_ppm: u32,
    /// Of a completion: it and all later ones of its queue pair are late.
    pub completion_delayed_ppm: u32,
    /// Of a completion of a Read, a Write, a Bind or an invalidation: it and all later ones of its
    /// queue pair are reported only when the queue pair fails.
    pub completion_withheld_ppm: u32,
    /// The maximum delay in polls, at least one.
    pub polls_late_max: u32,
    /// Of a poll: a queue pair fails, as if the peer had disconnected.
    pub disconnect_ppm: u32,
    /// Of a poll: a queue pair fails on this side; its sends are flushed, and the event follows
    /// later.
    pub flush_ppm: u32,
    /// Of a poll: the completion queue is overrun, permanently.
    pub overrun_ppm: u32,
    /// Of a poll: the completion queue fails with an error number of the device, permanently.
    pub cq_failed_ppm: u32,
    /// Of a poll: the device puts a queue pair into the error state; its sends are flushed, and the
    /// event follows at once or later.
    pub qp_failed_ppm: u32,
    /// Of a poll: the device reports that it, the completion queue or the shared receive queue has
    /// failed.
    pub device_lost_ppm: u32,
    /// Of a poll: the device's port goes down, or up again.
    pub port_changed_ppm: u32,
    /// Of a received message: up to four bytes are changed.
    pub bytes_changed_ppm: u32,
    /// The changed bytes are within this number of bytes from the start of the message.
    pub header_len: u32,
}

macro_rules! log {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The log of injected faults, and the switch to stop injecting. All queues of a provider
        /// share one.
        #[derive(Debug, Default)]
        pub struct FaultLog {
            is_off: AtomicBool,
            $($(#[$doc])* pub $name: AtomicU64,)*
            /// Messages that were changed: the number of the queues, and the queue pair.
            pub changed: Mutex<Vec<(u64, u32)>>,
            /// Injected events that queues have not reported yet.
            injected: Mutex<VecDeque<(u64, QueueEvent)>>,
        }

        impl FaultLog {
            /// The number of faults of each kind, with its name.
            pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
                let counts = [$((stringify!($name), &self.$name),)*];
                counts.map(|(name, count)| (name, count.load(Ordering::Relaxed))).into_iter()
            }
        }
    };
}

log! {
    /// Posts of sends of which none was taken, queue full.
    sends_refused,
    /// Posts of sends of which some were taken, queue full.
    sends_cut,
    /// Posts of sends of which all were taken, queue full.
    sends_failed,
    /// Posts of sends that returned that the queue pair is gone, however many were taken.
    sends_gone,
    /// Posts of sends of which not all were taken, without an error.
    sends_silent,
    /// Sends that were not taken and completed.
    send_ghosts,
    /// Posts of Receives of which none was taken, queue full.
    recvs_refused,
    /// Posts of Receives of which some were taken, queue full.
    recvs_cut,
    /// Posts of Receives of which all were taken, queue full.
    recvs_failed,
    /// Posts of Receives that returned that the queue is gone, however many were taken.
    recvs_gone,
    /// Posts of Receives of which not all were taken, without an error.
    recvs_silent,
    /// Receives that were not taken and completed.
    recv_ghosts,
    /// Posts of Receives that were withheld.
    recvs_withheld,
    /// Receives that completed as flushed with a destroyed queue pair.
    recvs_taken_along,
    /// Windows that were unbound without a replacement.
    windows_lost,
    /// Windows that stayed bound.
    windows_kept,
    /// Registrations for one call that failed.
    exposures_refused,
    /// Deregistrations that failed.
    exposures_kept,
    /// Completions that were reported late.
    delayed,
    /// Completions that were withheld until their queue pair failed.
    completions_withheld,
    /// Connections that were lost.
    disconnected,
    /// Queue pairs that failed on this side.
    flushed,
    /// Completion queues that were overrun.
    overrun,
    /// Completion queues that failed with an error number.
    cqs_failed,
    /// Queue pairs that the device put into the error state.
    qps_failed,
    /// Queues that reported that their device has failed.
    devices_lost,
    /// Times that a port went down or up.
    ports_changed,
    /// Messages that were changed.
    messages_changed,
}

impl FaultLog {
    /// Stops injecting faults. Late completions and Receives still follow when they are due.
    pub fn end(&self) {
        self.is_off.store(true, Ordering::Relaxed);
    }

    /// Starts injecting faults again.
    pub fn begin(&self) {
        self.is_off.store(false, Ordering::Relaxed);
    }

    /// Injects an event into the queues with this number.
    pub fn inject_event(&self, which: u64, event: QueueEvent) {
        let mut injected = self.injected.lock().unwrap_or_else(PoisonError::into_inner);
        injected.push_back((which, event));
    }

    /// The next injected event of these queues.
    pub(super) fn next_injected(&self, queues: u64) -> Option<QueueEvent> {
        let mut injected = self.injected.lock().unwrap_or_else(PoisonError::into_inner);
        let at = injected.iter().position(|(which, _)| *which == queues)?;
        injected.remove(at).map(|(_, event)| event)
    }

    /// Whether injecting is stopped.
    pub(super) fn is_off(&self) -> bool {
        self.is_off.load(Ordering::Relaxed)
    }

    pub(super) fn note(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Steele, Lea and Flood: Fast splittable pseudorandom number generators (OOPSLA 2014).
#[derive(Debug, Clone)]
pub(super) struct SplitMix(pub u64);

impl SplitMix {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from 0 to `bound` - 1, uniform up to the precision of 64 bits.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(super) fn chance(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.below(1_000_000) < u64::from(ppm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_published_generator() {
        let mut random = SplitMix(1_234_567);
        let numbers = [(); 5].map(|()| random.next());
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(numbers, published);
    }

    #[test]
    fn what_cannot_happen_takes_no_number_from_the_sequence() {
        let (mut random, mut other) = (SplitMix(7), SplitMix(7));
        assert!(!random.chance(0));
        assert_eq!(random.next(), other.next());
        assert!(random.chance(1_000_000));
    }
}
