//! The threads that do what calls ask for, so that no shard ever waits for a disk.
//!
//! ```text
//!   shard ── Job { tickets, arguments, loans } ──▶ queue ──▶ worker: openat2, pread, pwritev, …
//!     ▲                                                        │
//!     └── on_turn: resume(ticket) ◀── Desk of the shard ◀──────┘ wake
//! ```
//! Threads and tickets, and not io_uring: it has no call that lists a directory, nor most of those
//! that change attributes, so threads are needed all the same; it is switched off in many
//! containers; and it would need unsafe code here, because the kernel writes into memory that a
//! safe program has no claim on meanwhile. A queue costs two wake-ups a call, which a disk hides.
//! A job that nobody has begun goes when its connection ends, so there are never more of them than calls
//! that connections have credits for; and what they have copied of their calls has a bound of its own.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use rpcrdma_engine::{ConnectionId, ShardHandle, Ticket};

use crate::call::{Outcome, Part, Task};
use crate::drc::{Drc, Fingerprint};
use crate::export::Export;
use crate::locks::lock;
use crate::procedures;
use crate::rpc::Denial;

/// A call that a shard has let go of.
#[derive(Debug)]
pub struct Job {
    /// Who waits for the answer.
    pub waiter: Waiter,
    /// What is to be remembered of the answer.
    pub repeat: Option<Fingerprint>,
    /// What is to be done.
    pub task: Task,
}

impl Job {
    /// Whether somebody still waits for it, though some are gone: whoever has repeated a call is the one
    /// who waits for it then.
    pub fn is_wanted(&mut self, is_gone: impl Fn(&Waiter) -> bool, drc: &Drc<Waiter>) -> bool {
        if !is_gone(&self.waiter) {
            return true;
        }
        let heir = self.repeat.as_ref().and_then(|call| drc.hand_over(call));
        heir.map(|heir| self.waiter = heir).is_some()
    }

    /// Bytes of its call that are copies.
    fn copied(&self) -> usize {
        let len = |part: &Part| match part {
            Part::Loan(_) => 0,
            Part::Copy(bytes) => bytes.len(),
        };
        self.task.head.len() + self.task.data.iter().map(len).sum::<usize>()
    }
}

/// The right to answer a call, and the desk of the shard where answers are left.
#[derive(Debug)]
pub struct Waiter {
    /// The right.
    pub ticket: Ticket,
    /// The procedure of the call.
    pub procedure: u32,
    /// The desk.
    pub desk: Arc<Desk>,
}

/// An answer on its way back.
#[derive(Debug)]
pub struct Done {
    /// The right to give it.
    pub ticket: Ticket,
    /// The procedure of the call.
    pub procedure: u32,
    /// The answer.
    pub outcome: Outcome,
}

/// Where answers are left for a shard.
#[derive(Debug)]
pub struct Desk {
    shard: ShardHandle,
    done: Mutex<VecDeque<Done>>,
}

impl Desk {
    /// The desk of a shard.
    pub fn new(shard: ShardHandle) -> Desk {
        Desk { shard, done: Mutex::default() }
    }

    /// Leaves an answer.
    pub fn leave(&self, done: Done) {
        lock(&self.done).push_back(done);
        self.shard.wake();
    }

    /// Takes what was left.
    pub fn collect(&self, into: &mut VecDeque<Done>) {
        into.append(&mut lock(&self.done));
    }
}

impl Waiter {
    /// Leaves the answer.
    pub fn answer(self, outcome: Outcome) {
        let desk = self.desk.clone();
        desk.leave(self.done(outcome));
    }

    /// Whether it waits for the answer to a call of this peer.
    pub fn is_of(&self, desk: &Arc<Desk>, peer: ConnectionId) -> bool {
        self.ticket.peer() == peer && Arc::ptr_eq(&self.desk, desk)
    }

    /// The answer, for a shard that has it itself.
    pub fn done(self, outcome: Outcome) -> Done {
        let Waiter { ticket, procedure, .. } = self;
        Done { ticket, procedure, outcome }
    }
}

/// The queue in front of the threads.
#[derive(Debug, Default)]
pub struct Queue {
    jobs: Mutex<Jobs>,
    more: Condvar,
}

#[derive(Debug, Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    /// Bytes of all that wait.
    copied: usize,
    is_over: bool,
}

impl Queue {
    /// Hands a job over; if there is no room for what it has copied, its client is told to ask again.
    pub fn put(&self, job: Job, drc: &Drc<Waiter>) {
        let mut jobs = lock(&self.jobs);
        let copied = jobs.copied + job.copied();
        if copied > COPIED_MAX && !jobs.waiting.is_empty() {
            drop(jobs);
            return end(job.waiter, job.repeat, procedures::later(job.task.procedure), drc);
        }
        jobs.copied = copied;
        jobs.waiting.push_back(job);
        drop(jobs);
        self.more.notify_one();
    }

    /// Drops the jobs that nobody waits for any more, when some are gone. What was begun is not among them.
    pub fn withdraw(&self, is_gone: impl Fn(&Waiter) -> bool, drc: &Drc<Waiter>) {
        // All under the lock: a job that another shard's waiter has now is found by that shard.
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

/// The threads.
#[derive(Debug)]
pub struct Workers {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts as many threads.
    ///
    /// # Errors
    /// If no more threads can be had.
    pub fn start(
        count: usize,
        queue: &Arc<Queue>,
        export: &Arc<Export>,
        drc: &Arc<Drc<Waiter>>,
    ) -> std::io::Result<Workers> {
        let mut workers = Workers { queue: queue.clone(), threads: Vec::with_capacity(count) };
        for _ in 0..count {
            let (queue, export, drc) = (queue.clone(), export.clone(), drc.clone());
            let thread = std::thread::Builder::new().name("nfs3-worker".into());
            workers.threads.push(thread.spawn(move || {
                while let Some(job) = queue.take() {
                    run(job, &export, &drc);
                }
            })?);
        }
        Ok(workers)
    }

    /// How many jobs wait for one of them.
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
    // A mistake of ours costs one call, and not all that wait behind it.
    let executed = catch_unwind(AssertUnwindSafe(|| procedures::execute(export, task)));
    end(waiter, repeat, executed.unwrap_or(Outcome::Denied(Denial::Busy)), drc);
}

/// Answers whoever waits for a call.
fn end(waiter: Waiter, repeat: Option<Fingerprint>, outcome: Outcome, drc: &Drc<Waiter>) {
    if let Some(fingerprint) = repeat {
        for other in drc.finish(&fingerprint, &outcome) {
            other.answer(outcome.repeated());
        }
    }
    waiter.answer(outcome);
}

/// Bytes that calls which wait may have copied. Data that came by themselves lie in registered memory and
/// do not count; those in a message that was fetched as a whole do.
pub const COPIED_MAX: usize = 16 << 20;
