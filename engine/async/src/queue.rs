//! The calls that the session has no room for yet, in order, until their deadlines.

use std::collections::VecDeque;

use crate::shared::Job;

/// The calls that the session has no room for yet.
pub(crate) struct Queue {
    jobs: VecDeque<Job>,
    /// No deadline of them is earlier.
    earliest: u64,
}

impl Queue {
    pub fn new() -> Queue {
        Queue { jobs: VecDeque::new(), earliest: u64::MAX }
    }

    /// Adds a call behind all others.
    pub fn push(&mut self, job: Job) {
        self.earliest = self.earliest.min(until(&job));
        self.jobs.push_back(job);
    }

    /// Returns the first call to its place.
    pub fn put_back(&mut self, job: Job) {
        self.jobs.push_front(job);
    }

    /// The first call.
    pub fn pop(&mut self) -> Option<Job> {
        let job = self.jobs.pop_front();
        if self.jobs.is_empty() {
            self.earliest = job.as_ref().map_or(u64::MAX, until);
        }
        job
    }

    /// Removes the calls whose futures were dropped.
    pub fn remove_cancelled(&mut self) {
        self.jobs.retain(|job| !job.answer.is_canceled());
    }

    /// Removes the calls whose deadlines have passed.
    pub fn take_late(&mut self, now: u64) -> Vec<Job> {
        if now < self.earliest {
            return Vec::new();
        }
        let jobs = std::mem::take(&mut self.jobs).into_iter();
        let (late, others): (Vec<_>, Vec<_>) = jobs.partition(|job| until(job) <= now);
        self.jobs = others.into();
        self.earliest = self.jobs.iter().map(until).min().unwrap_or(u64::MAX);
        late
    }

    /// When [`Queue::take_late`] is to be asked again.
    pub fn earliest(&self) -> u64 {
        self.earliest
    }
}

/// When a call ends at the latest; `u64::MAX` if it has no deadline.
fn until(job: &Job) -> u64 {
    job.request.call.deadline_at().unwrap_or(u64::MAX)
}
