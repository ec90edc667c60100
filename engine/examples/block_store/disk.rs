//! The server's file, and the threads that write and read it, so that a shard never waits for a disk.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};

use arrayvec::ArrayVec;
use rpcrdma_engine::onc::ReplyHeader;
use rpcrdma_engine::{Finished, Loan, ShardHandle, Ticket};

/// What is to be done for a call that the shard has let go of.
#[expect(clippy::large_enum_variant, reason = "moved in place; there are as many as calls")]
pub enum Task {
    Write { offset: u64, segments: Segments },
    Read { offset: u64, len: usize, into: Loan },
    Commit { len: u64 },
}

/// Segments of one WRITE, in order.
pub type Segments = ArrayVec<Loan, { crate::rpc::BLOCK_MAX / crate::SEGMENT_LEN as usize }>;

/// The file, through two descriptors.
pub struct Store {
    /// Past the page cache, if the file system has that: for aligned memory, offsets and lengths.
    direct: Option<File>,
    buffered: File,
}

/// A store with its threads, which end when this is dropped.
pub struct Disk {
    pub store: Arc<Store>,
    shard: ShardHandle,
    jobs: SyncSender<(Ticket, Task)>,
}

impl Store {
    pub fn open(path: &Path) -> io::Result<Store> {
        let mut how = OpenOptions::new();
        let buffered = how.read(true).write(true).open(path)?;
        Ok(Store { direct: how.custom_flags(libc::O_DIRECT).open(path).ok(), buffered })
    }

    /// The descriptor past the page cache, if it can take these bytes.
    fn direct(&self, bytes: &[u8], offset: u64) -> Option<&File> {
        let is_whole = |number: usize| number.is_multiple_of(SECTOR);
        let is_aligned = [bytes.as_ptr().addr(), bytes.len(), offset as usize].map(is_whole);
        self.direct.as_ref().filter(|_| is_aligned == [true; 3])
    }

    pub fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        match self.direct(bytes, offset).map(|direct| direct.write_all_at(bytes, offset)) {
            Some(Ok(())) => Ok(()),
            _ => self.buffered.write_all_at(bytes, offset),
        }
    }

    /// Reads up to `len` bytes or the end of the file; `into` has whole sectors.
    fn read(&self, into: &mut [u8], offset: u64, len: usize) -> io::Result<usize> {
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

    /// Carries a task out, however long it takes; returns the answer.
    fn run(&self, task: Task) -> io::Result<Finished> {
        match task {
            Task::Write { offset, segments } => {
                let mut len = 0;
                for segment in &segments {
                    self.write(segment, offset + len)?;
                    len += segment.len() as u64;
                }
                Ok(answer(&[0, len as u32]))
            }
            Task::Read { offset, len, mut into } => match self.read(&mut into, offset, len)? {
                // No bytes are no bulk: the count stands for itself.
                0 => Ok(answer(&[0, 0])),
                read => {
                    into.truncate(read);
                    Ok(Finished { bulk: [into].into_iter().collect(), ..answer(&[0]) })
                }
            },
            Task::Commit { len } => {
                self.buffered.set_len(len)?;
                self.buffered.sync_data()?;
                Ok(answer(&[0]))
            }
        }
    }

    fn finish(&self, shard: &ShardHandle, (ticket, task): (Ticket, Task)) {
        let finished = self.run(task).unwrap_or_else(|error| answer(&[status(&error)]));
        // Refused only if the shard is gone, and the caller with it.
        let _ = shard.finish(ticket, finished);
    }
}

impl Disk {
    /// Starts threads that answer calls of this shard, of which at most `calls_max` are open.
    pub fn start(store: Store, shard: ShardHandle, calls_max: usize) -> Disk {
        let (jobs, queue) = sync_channel(calls_max);
        let (store, queue) = (Arc::new(store), Arc::new(Mutex::new(queue)));
        for _ in 0..THREADS {
            let (store, shard, queue) = (store.clone(), shard.clone(), queue.clone());
            let next = move || queue.lock().ok()?.recv().ok();
            std::thread::spawn(move || {
                while let Some(job) = next() {
                    store.finish(&shard, job);
                }
            });
        }
        Disk { store, shard, jobs }
    }

    /// Hands a task to a thread. If none takes it, it is done here: slow beats silent.
    pub fn submit(&self, ticket: Ticket, task: Task) {
        match self.jobs.try_send((ticket, task)) {
            Ok(()) => {}
            Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) => {
                self.store.finish(&self.shard, job);
            }
        }
    }
}

/// The error number of the system, which goes over the wire.
pub fn status(error: &io::Error) -> u32 {
    error.raw_os_error().unwrap_or(libc::EIO).cast_unsigned()
}

/// An answer without bulk: a status and results.
fn answer(words: &[u32]) -> Finished {
    let words = words.iter().flat_map(|word| word.to_be_bytes());
    Finished {
        head: ReplyHeader::SUCCESS.into_iter().chain(words).collect(),
        ..Finished::default()
    }
}

/// What O_DIRECT wants offsets, lengths and addresses to be multiples of; no device wants more.
const SECTOR: usize = 4096;
const THREADS: usize = 2;
