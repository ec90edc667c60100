//! The threads that write and read the file, so that a shard never waits for a disk.
//!
//! ```text
//!   shard ── Job { Ticket, Loans } ──▶ bounded channel ──▶ worker: writev, pread
//!     ▲                                                      │
//!     └──────────── ShardHandle::finish(Ticket, Finished) ◀──┘
//! ```

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use arrayvec::ArrayVec;
use rpcrdma_engine::onc::ReplyHeader;
use rpcrdma_engine::{Finished, Loan, ShardHandle, Ticket};

use crate::rpc;
use crate::setup::SEGMENT_LEN;
use crate::store::{Slices, Store};

/// Segments of one WRITE on their way to the file, in order.
pub type Segments = ArrayVec<Loan, { rpc::BLOCK_MAX / SEGMENT_LEN }>;

/// A call that the shard has let go of.
#[derive(Debug)]
pub struct Job {
    /// The right to answer it.
    pub ticket: Ticket,
    /// What is to be done.
    pub task: Task,
}

/// What is to be done with the file.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "moved in place; there are as many as calls")]
pub enum Task {
    /// Write what landed in these segments.
    Write { offset: u64, segments: Segments },
    /// Read into registered memory.
    Read { offset: u64, len: usize, into: Loan },
    /// Change the length.
    Resize { len: u64 },
    /// Wait for the medium.
    Commit,
}

/// The file with its threads.
#[derive(Debug)]
pub struct Disk {
    /// The shard's own descriptors, for what cannot be handed over.
    store: Store,
    queues: Vec<SyncSender<Job>>,
    shard: Arc<OnceLock<ShardHandle>>,
}

/// The threads of a disk, to be waited for when the disk is gone.
#[derive(Debug)]
pub struct Workers(Vec<JoinHandle<()>>);

impl Disk {
    /// Starts threads for a file that exists. Each takes `jobs_max` jobs ahead.
    pub fn start(
        path: &Path,
        direct: bool,
        workers: usize,
        jobs_max: usize,
    ) -> io::Result<(Disk, Workers)> {
        let shard = Arc::new(OnceLock::new());
        let mut disk = Disk {
            store: Store::open(path, direct)?,
            queues: Vec::with_capacity(workers),
            shard: shard.clone(),
        };
        let mut threads = Vec::with_capacity(workers);
        for _ in 0..workers {
            let (sender, receiver) = sync_channel(jobs_max);
            let (store, shard) = (Store::open(path, direct)?, shard.clone());
            let thread = std::thread::Builder::new().name("block-store-disk".into());
            threads.push(thread.spawn(move || work(&receiver, &store, &shard))?);
            disk.queues.push(sender);
        }
        Ok((disk, Workers(threads)))
    }

    /// Says which shard the answers go to. Before the first job.
    pub fn serve(&self, shard: ShardHandle) {
        // A second shard would be a second file: there is one.
        let _ = self.shard.set(shard);
    }

    /// Hands a job to a thread; `turn` chooses which. Gives it back if that has its hands full.
    #[expect(clippy::result_large_err, reason = "the job is what the caller wants back")]
    pub fn submit(&self, turn: usize, job: Job) -> Result<(), Job> {
        self.queues[turn % self.queues.len()].try_send(job).map_err(|refused| match refused {
            TrySendError::Full(job) | TrySendError::Disconnected(job) => job,
        })
    }

    /// Answers a call for a job that the shard did itself.
    pub fn finish(&self, ticket: Ticket, finished: Finished) {
        send(&self.shard, ticket, finished);
    }

    /// The descriptors of the shard.
    pub fn store(&self) -> &Store {
        &self.store
    }
}

impl Workers {
    /// Waits until the last job is done. The disk must be gone, or this waits for ever.
    pub fn join(self) {
        for thread in self.0 {
            // A panic has been reported by its thread.
            let _ = thread.join();
        }
    }
}

impl Job {
    /// Does it, however long it takes.
    pub fn run(self, store: &Store) -> (Ticket, Finished) {
        let Job { ticket, task } = self;
        let finished = match task {
            Task::Write { offset, segments } => {
                let slices: Slices<'_> = segments.iter().map(|segment| &segment[..]).collect();
                let len: usize = slices.iter().map(|slice| slice.len()).sum();
                match store.write(&slices, offset) {
                    Ok(()) => answer(0, &[len as u32]),
                    Err(error) => answer(status(&error), &[]),
                }
            }
            Task::Read { offset, len, mut into } => match store.read(&mut into, offset, len) {
                // No bytes are no bulk: the count stands for itself.
                Ok(0) => answer(0, &[0]),
                Ok(read) => {
                    into.truncate(read);
                    Finished { bulk: [into].into_iter().collect(), ..answer(0, &[]) }
                }
                Err(error) => answer(status(&error), &[]),
            },
            Task::Resize { len } => {
                answer(store.resize(len).map_or_else(|e| status(&e), |()| 0), &[])
            }
            Task::Commit => answer(store.commit().map_or_else(|e| status(&e), |()| 0), &[]),
        };
        (ticket, finished)
    }
}

/// The error number of the system, which is what goes over the wire.
pub fn status(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// An answer without bulk.
fn answer(status: i32, results: &[u32]) -> Finished {
    let words = [status.cast_unsigned()].into_iter().chain(results.iter().copied());
    let head = ReplyHeader::SUCCESS.into_iter().chain(words.flat_map(u32::to_be_bytes));
    Finished { head: head.collect(), ..Finished::default() }
}

fn work(jobs: &Receiver<Job>, store: &Store, shard: &OnceLock<ShardHandle>) {
    while let Ok(job) = jobs.recv() {
        let (ticket, finished) = job.run(store);
        send(shard, ticket, finished);
    }
}

fn send(shard: &OnceLock<ShardHandle>, ticket: Ticket, finished: Finished) {
    let shard = shard.get().expect("jobs come from the shard that was set before");
    // Refused only if the shard is gone; then nobody waits for the answer.
    let _ = shard.finish(ticket, finished);
}
