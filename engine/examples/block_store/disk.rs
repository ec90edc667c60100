//! The server's file, and what the storage of a shard does with it.
//!
//! ```text
//!   WRITE   segments ─▶ Write ─▶ answer: count
//!   READ    a registered buffer ─▶ Read ─▶ answer: the buffer, placed
//!   COMMIT  SetLen, if it states a length ─▶ Sync ─▶ answer
//! ```

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use rpcrdma::onc::ReplyHeader;
use rpcrdma::storage::{
    ALIGNMENT, Caching, Done, FileId, Operation, Pieces, Refused, Storage, StorageOptions,
    SyncLevel,
};
use rpcrdma::{Finished, Ticket};

use crate::complain;
use crate::server::SAME_LENGTH;

/// The file, and how its shards drive it.
pub struct Store {
    file: File,
    options: StorageOptions,
    syncs: Syncs,
}

impl Store {
    /// Creates the file, which must not exist.
    pub fn create(path: &Path, options: StorageOptions) -> io::Result<Arc<Store>> {
        let mut how = OpenOptions::new();
        let file = how.read(true).write(true).create_new(true).open(path)?;
        Ok(Arc::new(Store { file, options, syncs: Syncs::default() }))
    }

    /// The disk of a shard, of which at most `calls_max` calls are open. Aligned requests pass by
    /// the page cache, if the file system permits it.
    pub fn disk(&self, calls_max: usize) -> io::Result<Disk> {
        let mut storage =
            Storage::new(&StorageOptions { waiting: calls_max as u32, ..self.options })?;
        storage.notes().iter().for_each(complain);
        let file = storage.add(self.file.try_clone()?, Caching::Direct)?;
        Ok(Disk { storage, file, syncs: self.syncs.clone() })
    }
}

/// A call that the shard has deferred.
pub struct Task {
    pub ticket: Ticket,
    /// Bytes of data.
    pub len: usize,
}

/// The file, for one shard.
pub struct Disk {
    pub storage: Storage<Task>,
    file: FileId,
    syncs: Syncs,
}

/// Whether all that was synced is on the medium. The system reports data that it could not write
/// once, to the sync that comes first, and forgets which they were: no later one may succeed.
#[derive(Clone, Default)]
pub struct Syncs(Arc<AtomicI32>);

impl Syncs {
    /// The outcome of a sync with this result, for all shards.
    pub fn outcome(&self, result: io::Result<()>) -> io::Result<()> {
        if let Err(why) = &result {
            self.0.store(why.raw_os_error().unwrap_or(libc::EIO), Ordering::SeqCst);
        }
        match self.0.load(Ordering::SeqCst) {
            0 => result,
            number => Err(io::Error::from_raw_os_error(number)),
        }
    }
}

impl Disk {
    /// Writes all pieces.
    pub fn write(&mut self, task: Task, offset: u64, from: Pieces) {
        self.submit(task, Operation::Write { file: self.file, offset, from });
    }

    /// Reads as much as the task wants. What passes by the page cache is read in whole sectors, for
    /// which `into` has room.
    pub fn read(&mut self, task: Task, offset: u64, mut into: Pieces) {
        into.iter_mut()
            .for_each(|piece| piece.truncate(task.len.next_multiple_of(ALIGNMENT as usize)));
        self.submit(task, Operation::Read { file: self.file, offset, into });
    }

    /// Gives the file a length, and then brings all of it to the medium. What is to be on the medium
    /// was answered, so it is written.
    pub fn commit(&mut self, task: Task, len: u64) {
        let file = self.file;
        let operation = match len {
            SAME_LENGTH => Operation::Sync { file, level: SyncLevel::Data },
            len => Operation::SetLen { file, len },
        };
        self.submit(task, operation);
    }

    /// An answer that is ready, with the ticket of its call.
    pub fn answer(&mut self) -> Option<(Ticket, Finished)> {
        loop {
            let Done { tag: task, operation, result } = self.storage.completed()?;
            match (result, operation) {
                (result, Operation::Sync { .. }) => {
                    let outcome = self.syncs.outcome(result.map(drop));
                    let answer = outcome.map_or_else(|why| failure(&why), |()| answer(&[0]));
                    return Some((task.ticket, answer));
                }
                (Err(why), _) => return Some((task.ticket, failure(&why))),
                (Ok(_), Operation::SetLen { .. }) => self.commit(task, SAME_LENGTH),
                (Ok(read), Operation::Read { mut into, .. }) => {
                    into[0].truncate(task.len.min(read.bytes() as usize));
                    return Some((task.ticket, Finished { bulk: into, ..answer(&[0]) }));
                }
                (Ok(written), Operation::Write { .. }) => {
                    return Some((task.ticket, answer(&[0, written.bytes() as u32])));
                }
                (Ok(_), _) => return Some((task.ticket, answer(&[0]))),
            }
        }
    }

    /// The storage has room for every open call. If it had none, the ticket would be dropped, and
    /// the caller would get SYSTEM_ERR.
    fn submit(&mut self, task: Task, operation: Operation) {
        if let Err(Refused { why, .. }) = self.storage.submit(operation, task) {
            complain(&why);
        }
    }
}

/// An answer without bulk: a status and results.
pub fn answer(words: &[u32]) -> Finished {
    let mut finished = Finished::default();
    finished.head.put_fixed(&ReplyHeader::SUCCESS);
    words.iter().for_each(|word| finished.head.put_u32(*word));
    finished
}

/// The answer to a call that has failed.
pub fn failure(why: &io::Error) -> Finished {
    answer(&[why.raw_os_error().unwrap_or(libc::EIO) as u32])
}
