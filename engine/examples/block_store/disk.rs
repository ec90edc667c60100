//! The server's file, and the threads that write and read it, so that a shard never waits for a
//! disk.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use arrayvec::ArrayVec;
use rpcrdma::file_size;
use rpcrdma::onc::ReplyHeader;
use rpcrdma::{Finished, Loan, ShardHandle, Ticket};

use crate::SEGMENT_LEN;
use crate::server::{BLOCK_MAX, COMMIT, NULL, READ, SAME_LENGTH};

/// A call that the shard has deferred.
pub struct Task {
    pub procedure: u32,
    /// An offset, or the length of a COMMIT.
    pub at: u64,
    /// Bytes of data.
    pub len: usize,
    /// The segments of a WRITE, in order, or registered memory for a READ.
    pub memory: ArrayVec<Loan, { BLOCK_MAX / SEGMENT_LEN as usize }>,
    /// The data of a WRITE behind its segments.
    pub rest: Vec<u8>,
}

/// The file, through two descriptors.
pub struct Store {
    /// Past the page cache, if the file system has that: for aligned memory, offsets and lengths.
    direct: Option<File>,
    buffered: File,
    threads: u32,
}

impl Store {
    /// Creates the file, which must not exist, for so many threads of each shard.
    pub fn create(path: &Path, threads: u32) -> io::Result<Arc<Store>> {
        let mut how = OpenOptions::new();
        let buffered = how.read(true).write(true).create_new(true).open(path)?;
        let direct = how.create_new(false).custom_flags(libc::O_DIRECT).open(path).ok();
        Ok(Arc::new(Store { direct, buffered, threads }))
    }

    /// The descriptor past the page cache, if it can take these bytes.
    fn direct(&self, bytes: &[u8], offset: u64) -> Option<&File> {
        let numbers = [bytes.as_ptr().addr(), bytes.len(), offset as usize];
        let is_aligned = numbers.iter().all(|number| number.is_multiple_of(SECTOR));
        self.direct.as_ref().filter(|_| is_aligned)
    }

    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        match self.direct(bytes, offset).map(|direct| direct.write_all_at(bytes, offset)) {
            Some(Ok(())) => Ok(()),
            _ => self.buffered.write_all_at(bytes, offset),
        }
    }

    /// Reads up to `len` bytes, or as many as there are; `into` has room for them in whole sectors.
    fn read(&self, into: &mut [u8], offset: u64, len: usize) -> io::Result<usize> {
        let whole = &mut into[..len.next_multiple_of(SECTOR)];
        let direct = self.direct(whole, offset).map(|direct| direct.read_at(whole, offset));
        let mut done = direct.and_then(Result::ok).unwrap_or_default().min(len);
        while done < len {
            match self.buffered.read_at(&mut into[done..len], offset + done as u64)? {
                0 => break,
                more => done += more,
            }
        }
        Ok(done)
    }

    /// Executes a call, however long it takes; returns the answer.
    fn run(&self, mut task: Task) -> io::Result<Finished> {
        match task.procedure {
            NULL => Ok(answer(&[])),
            COMMIT => {
                if task.at != SAME_LENGTH {
                    self.buffered.set_len(task.at)?;
                }
                self.buffered.sync_data()?;
                Ok(answer(&[0]))
            }
            _ if task.len > BLOCK_MAX => Err(too_long()),
            READ if task.len > task.memory[0].len() => Err(too_long()),
            READ => {
                let into = &mut task.memory[0];
                let read = self.read(into, task.at, task.len)?;
                into.truncate(read);
                Ok(Finished { bulk: task.memory, ..answer(&[0]) })
            }
            _ => {
                let mut at = task.at;
                for piece in task.memory.iter().map(|segment| &**segment).chain([&task.rest[..]]) {
                    self.write(piece, at)?;
                    at += piece.len() as u64;
                }
                Ok(answer(&[0, task.len as u32]))
            }
        }
    }
}

/// Starts threads that answer calls of this shard, of which at most `calls_max` are open. They end
/// when the sender is dropped.
pub fn start(
    store: &Arc<Store>,
    shard: &ShardHandle,
    calls_max: usize,
) -> SyncSender<(Ticket, Task)> {
    let (jobs, queue) = sync_channel(calls_max);
    let queue = Arc::new(Mutex::new(queue));
    for _ in 0..store.threads {
        let (store, shard, queue) = (store.clone(), shard.clone(), queue.clone());
        let next = move || queue.lock().ok()?.recv().ok();
        std::thread::spawn(move || {
            // A write beyond the limit of file sizes is an error, and ends no process.
            file_size::block_signal();
            while let Some((ticket, task)) = next() {
                let status = |why: io::Error| why.raw_os_error().unwrap_or(libc::EIO) as u32;
                let finished = store.run(task).unwrap_or_else(|why| answer(&[status(why)]));
                // The ticket comes back only if the connection or the shard has ended.
                let _ = shard.finish(ticket, finished);
            }
        });
    }
    jobs
}

/// An answer without bulk: a status and results.
fn answer(words: &[u32]) -> Finished {
    let mut finished = Finished::default();
    finished.head.put_fixed(&ReplyHeader::SUCCESS);
    words.iter().for_each(|word| finished.head.put_u32(*word));
    finished
}

fn too_long() -> io::Error {
    io::Error::from_raw_os_error(libc::EMSGSIZE)
}

/// What O_DIRECT wants offsets, lengths and addresses to be multiples of; no device wants more.
const SECTOR: usize = 4096;
