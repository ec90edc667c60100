//! A cache of open files, found by their identity, each kept for some seconds.
//!
//! ```text
//!   worker ── get ──▶ a reference to the file   the last reference that is dropped closes it
//!   shard ─── with ─▶ the file, borrowed        no file is closed while a shard borrows it
//! ```
//! Closing the last descriptor of a removed file may wait for a disk. So a shard never owns a
//! reference to a file, and does not wait for a thread that changes the cache.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use std::time::{Duration, Instant};

use crate::handles::FileId;
use crate::node::OpenFile;

/// The cache of open files.
#[derive(Debug)]
pub struct HeldFiles {
    files: RwLock<HashMap<FileId, HeldFile>>,
    /// Its capacity.
    max: usize,
}

#[derive(Debug)]
struct HeldFile {
    node: Arc<OpenFile>,
    since: Instant,
}

impl HeldFiles {
    /// An empty cache, for a process that may have so many descriptors: it takes at most half of
    /// them.
    pub fn new(descriptors: u64) -> HeldFiles {
        let max = usize::try_from(descriptors / 2).unwrap_or(usize::MAX) / DESCRIPTORS_OF_FILE;
        HeldFiles { files: RwLock::default(), max: max.clamp(1, HELD_MAX) }
    }

    /// A cached file, unless it was removed.
    pub fn get(&self, id: FileId) -> Option<Arc<OpenFile>> {
        let found = {
            let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
            let entry = files.get(&id)?;
            entry.is_fresh().then(|| entry.node.clone())
        };
        let found = found.filter(|node| node.linked_attributes().is_some());
        if found.is_none() {
            self.forget(id);
        }
        found
    }

    /// Calls `look` with a cached file, which may have been removed: its attributes show that.
    /// `None` if it is not cached, or if another thread changes the cache now.
    pub fn with<T>(&self, id: FileId, look: impl FnOnce(&OpenFile) -> Option<T>) -> Option<T> {
        let files = self.files.try_read().ok()?;
        let entry = files.get(&id).filter(|entry| entry.is_fresh())?;
        look(&entry.node)
    }

    /// Adds a file to the cache.
    pub fn keep(&self, node: OpenFile) -> Arc<OpenFile> {
        let node = Arc::new(node);
        let entry = HeldFile { node: node.clone(), since: Instant::now() };
        let mut files = self.write();
        let ended = if files.len() < self.max { Vec::new() } else { older_half(&mut files) };
        let replaced = files.insert(node.id(), entry);
        // Closing a file may take long: not under the lock.
        drop(files);
        drop((ended, replaced));
        node
    }

    /// As [`HeldFiles::keep`], if that does not wait: the cache has room, the file is not cached,
    /// and no other thread changes the cache.
    pub fn keep_at_once(&self, node: OpenFile) {
        let Ok(mut files) = self.files.try_write() else { return };
        if files.len() < self.max {
            let since = Instant::now();
            files.entry(node.id()).or_insert_with(|| HeldFile { node: Arc::new(node), since });
        }
    }

    /// Removes the older half of the files; false if there is none.
    pub fn give_back(&self) -> bool {
        let mut files = self.write();
        let ended = if files.is_empty() { Vec::new() } else { older_half(&mut files) };
        drop(files);
        !ended.is_empty()
    }

    /// Removes a file from the cache.
    pub fn forget(&self, id: FileId) {
        let ended = self.write().remove(&id);
        drop(ended);
    }

    /// The number of cached files.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.write().len()
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<FileId, HeldFile>> {
        // After a panic the cache is still consistent: a missing file is opened again.
        self.files.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldFile {
    fn is_fresh(&self) -> bool {
        self.since.elapsed() < HELD_FOR
    }
}

/// Removes the older half of the files.
fn older_half(files: &mut HashMap<FileId, HeldFile>) -> Vec<HeldFile> {
    let mut since: Vec<Instant> = files.values().map(|entry| entry.since).collect();
    let half = since.len() / 2;
    let (_, middle, _) = since.select_nth_unstable(half);
    let middle = *middle;
    files.extract_if(|_, entry| entry.since <= middle).map(|(_, entry)| entry).collect()
}

/// The largest capacity of the cache.
const HELD_MAX: usize = 256;
/// To identify it, to read it and to write it.
const DESCRIPTORS_OF_FILE: usize = 3;
/// After this time a file is opened by its path again: a program on the server may have moved it
/// out of the export.
const HELD_FOR: Duration = Duration::from_secs(5);
