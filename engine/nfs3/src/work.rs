//! The worker threads, which execute calls so that no shard waits for a disk.
//!
//! ```text
//!   shard ── Job { tickets, arguments, loans } ──▶ queue ──▶ worker: openat2, pread, pwritev, …
//!     ▲                                                        │
//!     └── on_turn: resume(ticket) ◀── answers of the shard ◀───────┘ wake
//! ```
//! Why threads and not io_uring: io_uring cannot list a directory or make most changes of
//! attributes, so threads are needed anyway; many containers disable it; and it would need unsafe
//! code here. A call through the queue costs two wake-ups, which are short compared to a disk
//! access. A job that no thread has begun is dropped when its connection ends, so there are never
//! more jobs than credits of all connections. The bytes that jobs have copied from their calls are
//! limited separately.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use rpcrdma::{ConnectionId, Origin, ShardHandle, Ticket, file_size};

use crate::call::{CallOutcome, CallTask, WriteData};
use crate::drc::{Drc, Fingerprint, Waits};
use crate::export::Export;
use crate::locks::lock;
use crate::procedures;
use crate::rpc::CallDenial;

/// A call that a shard has passed to the worker threads.
#[derive(Debug)]
pub struct Job {
    /// The call that waits for the answer.
    pub waiter: Waiter,
    /// The fingerprint under which the answer is stored, if it must be.
    pub repeat: Option<Fingerprint>,
    /// The call to execute.
    pub task: CallTask,
}

impl Job {
    /// Whether a call still waits for it after connections have ended: a repetition may take it
    /// over.
    pub fn is_wanted(&mut self, is_gone: impl Fn(&Waiter) -> bool, drc: &Drc<Waiter>) -> bool {
        if !is_gone(&self.waiter) {
            return true;
        }
        let heir = self.repeat.as_ref().and_then(|call| drc.hand_over(call));
        heir.map(|heir| self.waiter = heir).is_some()
    }

    /// The origin that it is counted for, if its answer must be stored: so it is with all data that are
    /// copied.
    fn share(&self) -> Option<Origin> {
        self.repeat.as_ref().map(Fingerprint::share)
    }

    /// The number of copied bytes of its data.
    fn copied(&self) -> usize {
        let len = |part: &WriteData| match part {
            WriteData::Loan(_) => 0,
            WriteData::Copy(bytes) => bytes.len(),
        };
        self.task.data.iter().map(len).sum()
    }
}

/// The right to answer a call, and the queue for the answer.
#[derive(Debug)]
pub struct Waiter {
    /// The ticket of the call.
    pub ticket: Ticket,
    /// The procedure of the call.
    pub procedure: u32,
    /// The answers of its shard.
    pub answers: Arc<AnswerQueue>,
}

/// A finished job: an answer that is passed to the shard.
#[derive(Debug)]
pub struct FinishedJob {
    /// The ticket of the call.
    pub ticket: Ticket,
    /// The procedure of the call.
    pub procedure: u32,
    /// The answer.
    pub outcome: CallOutcome,
}

/// The answers that wait for a shard.
#[derive(Debug)]
pub struct AnswerQueue {
    shard: ShardHandle,
    done: Mutex<VecDeque<FinishedJob>>,
}

impl AnswerQueue {
    /// An empty queue for a shard.
    pub fn new(shard: ShardHandle) -> AnswerQueue {
        AnswerQueue { shard, done: Mutex::default() }
    }

    /// A connection of its shard.
    pub fn connection(&self, peer: ConnectionId) -> ShardConnection {
        ShardConnection { shard: self.shard.shard(), peer }
    }

    /// Adds an answer, and wakes the shard.
    pub fn leave(&self, done: FinishedJob) {
        lock(&self.done).push_back(done);
        self.shard.wake();
    }

    /// Moves the answers to `into`.
    pub fn collect(&self, into: &mut VecDeque<FinishedJob>) {
        into.append(&mut lock(&self.done));
    }
}

/// A connection of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShardConnection {
    /// The number of the shard.
    pub shard: u32,
    /// The connection.
    pub peer: ConnectionId,
}

impl Waits for Waiter {
    type Connection = ShardConnection;

    fn connection(&self) -> ShardConnection {
        self.answers.connection(self.ticket.peer())
    }
}

impl Waiter {
    /// Passes the answer to the shard of the call.
    pub fn answer(self, outcome: CallOutcome) {
        let answers = self.answers.clone();
        answers.leave(self.done(outcome));
    }

    /// Whether this is a call of this peer, at the shard of these answers.
    pub fn is_of(&self, answers: &Arc<AnswerQueue>, peer: ConnectionId) -> bool {
        self.ticket.peer() == peer && Arc::ptr_eq(&self.answers, answers)
    }

    /// The finished job, for an answer that the shard gives itself.
    pub fn done(self, outcome: CallOutcome) -> FinishedJob {
        let Waiter { ticket, procedure, .. } = self;
        FinishedJob { ticket, procedure, outcome }
    }
}

/// The queue of the worker threads.
#[derive(Debug, Default)]
pub struct JobQueue {
    jobs: Mutex<Jobs>,
    more: Condvar,
}

#[derive(Debug, Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    /// The number of copied bytes of all jobs.
    copied: usize,
    is_over: bool,
}

impl JobQueue {
    /// Adds a job. If its data exceed the limit of copied bytes, the call is answered with
    /// NFS3ERR_JUKEBOX.
    pub fn put(&self, job: Job, drc: &Drc<Waiter>) {
        let mut jobs = lock(&self.jobs);
        if jobs.are_too_many(&job) {
            drop(jobs);
            return end(job.waiter, job.repeat, procedures::later(job.task.procedure), drc);
        }
        jobs.copied += job.copied();
        jobs.waiting.push_back(job);
        drop(jobs);
        self.more.notify_one();
    }

    /// Drops the jobs that no call waits for after connections have ended. Jobs in execution are
    /// not affected.
    pub fn withdraw(&self, is_gone: impl Fn(&Waiter) -> bool, drc: &Drc<Waiter>) {
        // All under the lock: a job that is handed over to a call of another shard is then found by
        // that shard.
        let mut jobs = lock(&self.jobs);
        jobs.waiting.retain_mut(|job| job.is_wanted(&is_gone, drc));
        jobs.copied = jobs.waiting.iter().map(Job::copied).sum();
    }

    fn take(&self) -> Option<Job> {
        let mut jobs = lock(&self.jobs);
        loop {
            if let Some(job) = jobs.waiting.pop_front() {
                jobs.copied -= job.copied();
                return Some(job);
            }
            if jobs.is_over {
                return None;
            }
            jobs = self.more.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn end(&self) {
        lock(&self.jobs).is_over = true;
        self.more.notify_all();
    }
}

impl Jobs {
    /// Whether there is no room for the copied data of a job. The jobs are counted only when half
    /// of the room is used.
    fn are_too_many(&self, job: &Job) -> bool {
        let more = job.copied();
        if more == 0 || self.copied + more <= COPIED_MAX / 2 {
            return false;
        }
        let own = self.waiting.iter().filter(|other| other.share() == job.share());
        let used = CopiedBytes { all: self.copied, own: own.map(Job::copied).sum() };
        !used.leave_room_for(more)
    }
}

/// The copied bytes of waiting jobs.
#[derive(Debug, Clone, Copy)]
struct CopiedBytes {
    all: usize,
    /// Those of one client.
    own: usize,
}

impl CopiedBytes {
    /// Whether the client may have more. It leaves half of the room to the others, and one job
    /// always finds room.
    fn leave_room_for(self, more: usize) -> bool {
        let fits = |copied, max| copied == 0 || copied + more <= max;
        fits(self.all, COPIED_MAX) && fits(self.own, COPIED_MAX / 2)
    }
}

/// The worker threads.
#[derive(Debug)]
pub struct Workers {
    queue: Arc<JobQueue>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts `count` threads.
    ///
    /// # Errors
    /// If a thread cannot be created.
    pub fn start(
        count: usize,
        queue: &Arc<JobQueue>,
        export: &Arc<Export>,
        drc: &Arc<Drc<Waiter>>,
    ) -> std::io::Result<Workers> {
        let mut workers = Workers { queue: queue.clone(), threads: Vec::with_capacity(count) };
        for _ in 0..count {
            let (queue, export, drc) = (queue.clone(), export.clone(), drc.clone());
            let thread = std::thread::Builder::new().name("nfs3-worker".into());
            workers.threads.push(thread.spawn(move || {
                // A WRITE beyond the limit of file sizes is answered, and ends no process.
                file_size::block_signal();
                while let Some(job) = queue.take() {
                    run(job, &export, &drc);
                }
            })?);
        }
        Ok(workers)
    }

    /// The number of jobs in the queue.
    pub fn waiting(&self) -> usize {
        lock(&self.queue.jobs).waiting.len()
    }
}

impl Drop for Workers {
    /// Waits until the last job is done.
    fn drop(&mut self) {
        self.queue.end();
        for thread in self.threads.drain(..) {
            // A panic was reported by its thread.
            let _ = thread.join();
        }
    }
}

fn run(job: Job, export: &Export, drc: &Drc<Waiter>) {
    let Job { waiter, repeat, task } = job;
    // A panic fails one call, and not those behind it in the queue.
    let executed = catch_unwind(AssertUnwindSafe(|| procedures::execute(export, task)));
    end(waiter, repeat, executed.unwrap_or(CallOutcome::Denied(CallDenial::Busy)), drc);
}

/// Answers a call and its waiting repetitions.
fn end(waiter: Waiter, repeat: Option<Fingerprint>, outcome: CallOutcome, drc: &Drc<Waiter>) {
    if let Some(fingerprint) = repeat {
        for other in drc.finish(&fingerprint, &outcome) {
            other.answer(outcome.repeated());
        }
    }
    waiter.answer(outcome);
}

/// The maximum number of copied bytes of the data of all waiting calls. Placed data are in
/// registered memory and do not count; data in a message that was fetched as a whole do.
pub const COPIED_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_leaves_half_of_the_room_to_others() {
        let fits = |own, others, more| CopiedBytes { all: own + others, own }.leave_room_for(more);
        let half = COPIED_MAX / 2;
        assert!(fits(half - 1, 0, 1) && !fits(half, 0, 1), "alone");
        assert!(fits(0, half, half) && !fits(1, half, half), "beside one that has its half");
        assert!(!fits(0, COPIED_MAX, 1), "no room is left");
        assert!(fits(0, 0, COPIED_MAX + 1), "the only job");
        assert!(fits(0, 1, COPIED_MAX - 1) && !fits(0, 1, COPIED_MAX));
    }
}
