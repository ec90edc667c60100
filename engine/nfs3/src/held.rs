//! Files that are held open: found by their number, each for some seconds.
//!
//! ```text
//!   worker ── get ──▶ a share of the file       whoever is the last to let go of one closes it
//!   shard ─── with ─▶ the file, borrowed        as long as a shard looks, nothing is let go of
//! ```
//! A file that was removed ends with its last descriptor, and that may wait for a disk. So a shard has
//! no share of a file, and waits for nobody who changes what is held.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use std::time::{Duration, Instant};

use crate::handles::FileId;
use crate::node::Node;

/// The files that are held.
#[derive(Debug, Default)]
pub struct Held(RwLock<HashMap<FileId, Entry>>);

#[derive(Debug)]
struct Entry {
    node: Arc<Node>,
    since: Instant,
}

impl Held {
    /// A file that is held, if it is still there.
    pub fn get(&self, id: FileId) -> Option<Arc<Node>> {
        let found = {
            let files = self.0.read().unwrap_or_else(PoisonError::into_inner);
            let entry = files.get(&id)?;
            entry.is_fresh().then(|| entry.node.clone())
        };
        let found = found.filter(|node| node.linked_attributes().is_some());
        if found.is_none() {
            self.forget(id);
        }
        found
    }

    /// Looks at a file that is held; whether it is still there is to be seen by its attributes. `None`
    /// if it is not held, or somebody changes what is.
    pub fn with<T>(&self, id: FileId, look: impl FnOnce(&Node) -> Option<T>) -> Option<T> {
        let files = self.0.try_read().ok()?;
        let entry = files.get(&id).filter(|entry| entry.is_fresh())?;
        look(&entry.node)
    }

    /// Holds a file from now on.
    pub fn keep(&self, node: Node) -> Arc<Node> {
        let node = Arc::new(node);
        let entry = Entry { node: node.clone(), since: Instant::now() };
        let mut files = self.write();
        let ended = if files.len() < HELD_MAX { Vec::new() } else { older_half(&mut files) };
        let replaced = files.insert(node.id(), entry);
        // What is closed may take its time.
        drop(files);
        drop((ended, replaced));
        node
    }

    /// As [`Held::keep`], if that takes no time: there is room, the file is not held, and nobody else
    /// changes what is.
    pub fn keep_at_once(&self, node: Node) {
        let Ok(mut files) = self.0.try_write() else { return };
        if files.len() < HELD_MAX {
            let since = Instant::now();
            files.entry(node.id()).or_insert_with(|| Entry { node: Arc::new(node), since });
        }
    }

    /// Holds a file no longer.
    pub fn forget(&self, id: FileId) {
        let ended = self.write().remove(&id);
        drop(ended);
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<FileId, Entry>> {
        // What is guarded is opened again when it is needed.
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn is_fresh(&self) -> bool {
        self.since.elapsed() < HELD_FOR
    }
}

/// Takes out half of the files, the longest held: one sweep for many.
fn older_half(files: &mut HashMap<FileId, Entry>) -> Vec<Entry> {
    let mut since: Vec<Instant> = files.values().map(|entry| entry.since).collect();
    let half = since.len() / 2;
    let (_, middle, _) = since.select_nth_unstable(half);
    let middle = *middle;
    files.extract_if(|_, entry| entry.since <= middle).map(|(_, entry)| entry).collect()
}

/// Files held at one time; each has up to three descriptors.
const HELD_MAX: usize = 256;
/// After that a file is looked for at its place again: somebody on the server may have moved it out
/// of the export.
const HELD_FOR: Duration = Duration::from_secs(5);
