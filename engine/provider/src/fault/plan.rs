//! The plan of faults, the numbers that it is drawn with, and the log of what has gone wrong.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::QueueEvent;

/// What goes wrong, and how often. Chances are in millionths; the default has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultPlan {
    /// Where the pseudo-random numbers begin.
    pub seed: u64,
    /// Of a post of sends: it is refused, queue full.
    pub send_refused_ppm: u32,
    /// Of a post of two or more sends: only some are taken, queue full.
    pub send_cut_ppm: u32,
    /// Of a post of sends: all are taken, and then there is an error, queue full: the doorbell.
    pub send_failed_ppm: u32,
    /// Of a post of sends: none, some or all are taken, and the queue pair is said to be gone.
    pub send_gone_ppm: u32,
    /// Of a post of sends: not all are taken, and there is no error.
    pub send_silent_ppm: u32,
    /// Of a post of sends of which not all were taken: the first of those that were not completes all
    /// the same, some polls later.
    pub send_ghost_ppm: u32,
    /// Of a post of Receives: it is refused, queue full.
    pub recv_refused_ppm: u32,
    /// Of a post of two or more Receives: only some are taken, queue full.
    pub recv_cut_ppm: u32,
    /// Of a post of Receives: all are taken, and there is an error, queue full.
    pub recv_failed_ppm: u32,
    /// Of a post of Receives: none, some or all are taken, and the queue is said to be gone.
    pub recv_gone_ppm: u32,
    /// Of a post of Receives: not all are taken, and there is no error.
    pub recv_silent_ppm: u32,
    /// Of a post of Receives of which not all were taken: the first of those that were not completes
    /// all the same, some polls later.
    pub recv_ghost_ppm: u32,
    /// Of a post of Receives: these and all later ones are handed on late, so that the peer may
    /// find none.
    pub recv_withheld_ppm: u32,
    /// Of a queue pair that is destroyed while Receives are withheld: one of them was with it, and
    /// comes back flushed, as a device flushes those of a shared queue.
    pub recv_taken_along_ppm: u32,
    /// Of a window that is renewed: there is no other, and it is bound to nothing.
    pub window_lost_ppm: u32,
    /// Of a window that is renewed: the device does not give it back, and it stays bound.
    pub window_kept_ppm: u32,
    /// Of a registration for one call: the device has none left.
    pub expose_refused_ppm: u32,
    /// Of a registration for one call: the device does not give it back, and peers reach the memory
    /// as before.
    pub conceal_failed_ppm: u32,
    /// Of a completion: it and all later ones of its queue pair are late.
    pub completion_delayed_ppm: u32,
    /// Of a completion of a Read, a Write, a Bind or an invalidation: it and all later ones of its
    /// queue pair come only when the queue pair fails.
    pub completion_withheld_ppm: u32,
    /// How many polls late at most, at least one.
    pub polls_late_max: u32,
    /// Of a poll: a queue pair fails, as if the peer had gone.
    pub disconnect_ppm: u32,
    /// Of a poll: a queue pair fails on this side; its sends are flushed, and the program hears of
    /// it otherwise only later.
    pub flush_ppm: u32,
    /// Of a poll: the completion queue is overrun, and stays so.
    pub overrun_ppm: u32,
    /// Of a poll: the completion queue fails with an error number of the device, and stays so.
    pub cq_failed_ppm: u32,
    /// Of a poll: the device gives a queue pair up, whose sends are flushed; the program hears of it
    /// at once or later.
    pub qp_failed_ppm: u32,
    /// Of a poll: the device says that it is broken, or the completion queue or the shared receive
    /// queue.
    pub device_lost_ppm: u32,
    /// Of a poll: the device's port goes down, or up again.
    pub port_changed_ppm: u32,
    /// Of a received message: up to four bytes are changed.
    pub bytes_changed_ppm: u32,
    /// Bytes from the beginning of a message within which they are changed.
    pub header_len: u32,
}

macro_rules! log {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What has gone wrong so far, and the means to end it. All queues of a provider share one.
        #[derive(Debug, Default)]
        pub struct FaultLog {
            is_off: AtomicBool,
            $($(#[$doc])* pub $name: AtomicU64,)*
            /// Messages that were changed: which queues of the provider, and the queue pair.
            pub changed: Mutex<Vec<(u64, u32)>>,
            /// Events that queues are still to be told.
            told: Mutex<VecDeque<(u64, QueueEvent)>>,
        }

        impl FaultLog {
            /// Every kind of fault by its name, and how often it has happened.
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
    /// Posts of sends, however many were taken, to a queue pair that was said to be gone.
    sends_gone,
    /// Posts of sends of which not all were taken, without an error.
    sends_silent,
    /// Sends that were refused and completed.
    send_ghosts,
    /// Posts of Receives of which none was taken, queue full.
    recvs_refused,
    /// Posts of Receives of which some were taken, queue full.
    recvs_cut,
    /// Posts of Receives of which all were taken, queue full.
    recvs_failed,
    /// Posts of Receives, however many were taken, to a queue that was said to be gone.
    recvs_gone,
    /// Posts of Receives of which not all were taken, without an error.
    recvs_silent,
    /// Receives that were refused and completed.
    recv_ghosts,
    /// Posts of Receives that were withheld.
    recvs_withheld,
    /// Receives that came back with a queue pair that was destroyed.
    recvs_taken_along,
    /// Windows that there were no others for.
    windows_lost,
    /// Windows that were not given back.
    windows_kept,
    /// Registrations for one call that were refused.
    exposures_refused,
    /// Registrations for one call that were not given back.
    exposures_kept,
    /// Completions that were kept back.
    delayed,
    /// Completions that were kept back until the end.
    completions_withheld,
    /// Connections that were lost.
    disconnected,
    /// Queue pairs that failed on this side.
    flushed,
    /// Completion queues that were overrun.
    overrun,
    /// Completion queues that failed with an error number.
    cqs_failed,
    /// Queue pairs that the device gave up.
    qps_failed,
    /// Queues that were told that their device is broken.
    devices_lost,
    /// Times that a port went down or up.
    ports_changed,
    /// Messages that were changed.
    messages_changed,
}

impl FaultLog {
    /// From now on nothing goes wrong any more; what was kept back comes in its time.
    pub fn end(&self) {
        self.is_off.store(true, Ordering::Relaxed);
    }

    /// From now on things go wrong again, as at first.
    pub fn begin(&self) {
        self.is_off.store(false, Ordering::Relaxed);
    }

    /// Tells some queues of the provider an event, as their device would.
    pub fn tell(&self, which: u64, event: QueueEvent) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).push_back((which, event));
    }

    /// The first event that these queues are still to be told.
    pub(super) fn told(&self, queues: u64) -> Option<QueueEvent> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let at = told.iter().position(|(which, _)| *which == queues)?;
        told.remove(at).map(|(_, event)| event)
    }

    /// Whether nothing goes wrong any more.
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

    /// Evenly from 0 to `bound` - 1, as even as 64 bits allow.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(super) fn chance(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.below(1_000_000) < u64::from(ppm)
    }
}
