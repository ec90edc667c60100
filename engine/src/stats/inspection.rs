//! Inspections: other threads ask a shard for a report.
//!
//! ```text
//!   another thread                       the shard, a turn that has messages
//!   ask ─▶ blank report, ring ─▶ wait      begin ─▶ some peers each turn ─▶ answer ─▶ all who asked
//! ```
//! Threads that ask before the shard begins get the same report. The shard never waits for the
//! lock: if a thread holds it, the shard tries again in its next turn.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use super::Snapshot;
use super::report::{Gauges, ShardReport};
use super::tally::Counts;
use crate::mailbox::{ShardEnd, Wakeup};

/// Why a shard did not report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// It took no turn in time: its thread is busy, or does not poll it.
    #[error("the shard took no turn within {0:?}")]
    TimedOut(Duration),
    /// It is gone, with all its resources.
    #[error("the shard has ended")]
    Ended,
    /// A panic left it inconsistent.
    #[error("a panic has ended the shard")]
    Panicked,
}

/// What is asked of a shard, and its answers.
pub(crate) struct Inspections {
    shard: u32,
    wakeup: Arc<Wakeup>,
    is_asked: AtomicBool,
    requests: Mutex<ReportRequests>,
    answered: Condvar,
}

/// A report that its shard is writing.
#[derive(Default)]
pub(crate) struct Inspection {
    pub report: Option<ShardReport>,
    /// The first place for a connection that was not looked at.
    pub next: u32,
    /// A connection in the report may have ended since. The next report begins without.
    pub is_outdated: bool,
}

#[derive(Default)]
struct ReportRequests {
    /// For the shard to fill.
    blank: Option<ShardReport>,
    /// Reports that the shard has begun, and finished.
    begun: u64,
    done: u64,
    /// The last one finished, while threads wait for it.
    report: Option<Arc<ShardReport>>,
    waiting: usize,
}

impl Inspections {
    pub fn new(shard: u32, wakeup: Arc<Wakeup>) -> Inspections {
        let (requests, answered) = (Mutex::default(), Condvar::new());
        Inspections { shard, wakeup, is_asked: AtomicBool::new(false), requests, answered }
    }

    /// Waits for a report that the shard begins after this.
    pub fn ask(&self, timeout: Duration) -> Result<ShardReport, InspectError> {
        let until = Instant::now().checked_add(timeout);
        let blank = self.blank();
        let mut requests = self.lock();
        let number = requests.begun + 1;
        requests.blank.get_or_insert(blank);
        requests.waiting += 1;
        self.is_asked.store(true, Ordering::SeqCst);
        self.wakeup.ring();
        let found = loop {
            if requests.done >= number
                && let Some(report) = requests.report.clone()
            {
                break Ok(report);
            }
            match self.wakeup.ended() {
                Some(ShardEnd::Panicked) => break Err(InspectError::Panicked),
                Some(ShardEnd::Dropped) => break Err(InspectError::Ended),
                None => {}
            }
            let left =
                until.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                break Err(InspectError::TimedOut(timeout));
            }
            let waited = self.answered.wait_timeout(requests, left);
            requests = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        requests.waiting -= 1;
        if requests.waiting == 0 {
            requests.report = None;
        }
        drop(requests);
        found.map(Arc::unwrap_or_clone)
    }

    /// A report to be filled.
    pub fn blank(&self) -> ShardReport {
        ShardReport {
            shard: self.shard,
            counters: Snapshot::default(),
            gauges: Gauges::default(),
            gone: Counts::default(),
            peers: Vec::with_capacity(self.wakeup.connections()),
        }
    }

    /// Whether a report was asked for that was not begun.
    pub fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::SeqCst)
    }

    /// Begins a report. `None` if a thread is about to ask, or none has asked.
    pub fn begin(&self) -> Option<ShardReport> {
        let mut requests = self.try_lock()?;
        let blank = requests.blank.take()?;
        self.is_asked.store(false, Ordering::SeqCst);
        requests.begun += 1;
        Some(blank)
    }

    /// Hands a finished report to all threads that asked before it was begun. Returns it if a
    /// thread is about to ask.
    pub fn answer(&self, report: ShardReport) -> Option<ShardReport> {
        let Some(mut requests) = self.try_lock() else { return Some(report) };
        requests.done = requests.begun;
        requests.report = (requests.waiting > 0).then(|| Arc::new(report));
        self.answered.notify_all();
        None
    }

    /// The shard has ended: no thread waits any longer.
    #[cold]
    pub fn end(&self) {
        drop(self.lock());
        self.answered.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, ReportRequests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, ReportRequests>> {
        match self.requests.try_lock() {
            Ok(requests) => Some(requests),
            Err(TryLockError::Poisoned(requests)) => Some(requests.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::Waker;

    #[test]
    fn a_report_that_no_thread_waits_for_any_more_is_dropped() {
        let wakeup = Arc::new(Wakeup::new(Waker::new().expect("an eventfd")));
        let inspections = Inspections::new(3, wakeup);
        let asked = inspections.ask(Duration::ZERO).err();
        assert_eq!(asked, Some(InspectError::TimedOut(Duration::ZERO)));
        let report = inspections.begin().expect("it was asked for");
        assert!(inspections.answer(report).is_none());
        assert!(inspections.lock().report.is_none());
    }

    #[test]
    fn a_report_that_was_begun_before_a_thread_asks_is_not_for_it() {
        let wakeup = Arc::new(Wakeup::new(Waker::new().expect("an eventfd")));
        let inspections = Inspections::new(3, wakeup);
        let ask = || inspections.ask(Duration::ZERO).map(|report| report.shard);
        let timed_out = Err(InspectError::TimedOut(Duration::ZERO));
        assert_eq!(ask(), timed_out);
        for _ in 0..3 {
            let report = inspections.begin().expect("it was asked for");
            // A thread that has asked in time, and is slow to take the report.
            inspections.lock().waiting += 1;
            assert!(inspections.answer(report).is_none());
            assert_eq!(ask(), timed_out);
            inspections.lock().waiting -= 1;
        }
    }
}
