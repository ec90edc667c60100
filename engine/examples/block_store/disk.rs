//! The server's file, and the threads that write and read it, so that a shard never waits for a disk.
//!
//! ```text
//!   shard ── Job { Ticket, Loans } ──▶ bounded channel ──▶ worker: write, read
//!     ▲                                                      │
//!     └──────────── ShardHandle::finish(Ticket, Finished) ◀──┘
//! ```

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};

use arrayvec::ArrayVec;
use rpcrdma_engine::onc::ReplyHeader;
use rpcrdma_engine::{Finished, Loan, ShardHandle, Ticket};

use crate::rpc::BLOCK_MAX;

/// Segments of one WRITE, in order.
pub type Segments = ArrayVec<Loan, { BLOCK_MAX / crate::SEGMENT_LEN as usize }>;

/// What is to be done for a call that the shard has let go of.
#[expect(clippy::large_enum_variant, reason = "moved in place; there are as many as calls")]
pub enum Task {
    Write { offset: u64, segments: Segments },
    Read { offset: u64, len: usize, into: Loan },
    Commit { len: u64 },
}

/// The file, through two descriptors.
pub struct Store {
    /// Past the page cache, if the file system has that: for aligned memory, offsets and lengths.
    direct: Option<File>,
    buffered: File,
}

/// The threads of a store. They end when this is dropped.
pub struct Disk {
    pub store: Arc<Store>,
    shard: ShardHandle,
    jobs: SyncSender<(Ticket, Task)>,
}

impl Store {
    pub fn open(path: &Path) -> io::Result<Store> {
        let how = || OpenOptions::new().read(true).write(true).clone();
        let direct = how().custom_flags(libc::O_DIRECT).open(path).ok();
        Ok(Store { direct, buffered: how().open(path)? })
    }

    /// The descriptor past the page cache, for what it can take.
    fn direct(&self, bytes: &[u8], offset: u64) -> Option<&File> {
        let is_aligned = bytes.as_ptr().addr().is_multiple_of(SECTOR)
            && offset.is_multiple_of(SECTOR as u64)
            && bytes.len().is_multiple_of(SECTOR);
        self.direct.as_ref().filter(|_| is_aligned)
    }

    /// Writes all bytes; past the page cache if possible.
    pub fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let direct = self.direct(bytes, offset);
        if direct.is_some_and(|direct| direct.write_all_at(bytes, offset).is_ok()) {
            return Ok(());
        }
        self.buffered.write_all_at(bytes, offset)
    }

    /// Reads up to `len` bytes or the end of the file; `into` has whole sectors.
    pub fn read(&self, into: &mut [u8], offset: u64, len: usize) -> io::Result<usize> {
        let whole = len.next_multiple_of(SECTOR).min(into.len());
        let direct = self.direct(&into[..whole], offset);
        let read = direct.and_then(|direct| direct.read_at(&mut into[..whole], offset).ok());
        let mut done = read.unwrap_or_default().min(len);
        while done < len {
            match self.buffered.read_at(&mut into[done..len], offset + done as u64)? {
                0 => break,
                more => done += more,
            }
        }
        Ok(done)
    }

    fn run(&self, task: Task) -> io::Result<Finished> {
        match task {
            Task::Write { mut offset, segments } => {
                let begin = offset;
                for segment in &segments {
                    self.write(segment, offset)?;
                    offset += segment.len() as u64;
                }
                Ok(answer(0, &[(offset - begin) as u32]))
            }
            Task::Read { offset, len, mut into } => match self.read(&mut into, offset, len)? {
                // No bytes are no bulk: the count stands for itself.
                0 => Ok(answer(0, &[0])),
                read => {
                    into.truncate(read);
                    Ok(Finished { bulk: [into].into_iter().collect(), ..answer(0, &[]) })
                }
            },
            Task::Commit { len } => {
                self.buffered.set_len(len)?;
                self.buffered.sync_data()?;
                Ok(answer(0, &[]))
            }
        }
    }
}

impl Disk {
    /// Starts threads that answer calls of this shard, of which at most `calls_max` are open.
    pub fn start(store: Store, shard: ShardHandle, calls_max: usize) -> Disk {
        let store = Arc::new(store);
        let (jobs, queue) = sync_channel::<(Ticket, Task)>(calls_max);
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..THREADS {
            let (store, shard, queue) = (store.clone(), shard.clone(), queue.clone());
            let next = move || queue.lock().ok()?.recv().ok();
            std::thread::spawn(move || {
                while let Some((ticket, task)) = next() {
                    finish(&store, &shard, ticket, task);
                }
            });
        }
        Disk { store, shard, jobs }
    }

    /// Hands a task to a thread. If none takes it, it is done here: slow beats silent.
    pub fn submit(&self, ticket: Ticket, task: Task) {
        if let Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) =
            self.jobs.try_send((ticket, task))
        {
            finish(&self.store, &self.shard, job.0, job.1);
        }
    }
}

/// Carries a task out, however long it takes, and answers its call.
fn finish(store: &Store, shard: &ShardHandle, ticket: Ticket, task: Task) {
    let finished = store.run(task).unwrap_or_else(|error| answer(status(&error), &[]));
    // Refused only if the shard is gone, and the caller with it.
    let _ = shard.finish(ticket, finished);
}

/// The error number of the system, which goes over the wire.
pub fn status(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// An answer without bulk.
fn answer(status: i32, results: &[u32]) -> Finished {
    let words = [status.cast_unsigned()].into_iter().chain(results.iter().copied());
    let head = ReplyHeader::SUCCESS.into_iter().chain(words.flat_map(u32::to_be_bytes));
    Finished { head: head.collect(), ..Finished::default() }
}

/// What O_DIRECT wants offsets, lengths and addresses to be multiples of; no device wants more.
const SECTOR: usize = 4096;
/// Threads of a store.
const THREADS: usize = 2;
