//! What is exported, to whom, and what all calls share.

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use nfs3_types::nfs3::{nfs_fh3, writeverf3};
use rpcrdma_engine::Config;
use rustix::fs::{FileType, fdatasync, fsync};

use crate::credentials::{Policy, Squash};
use crate::handles::Key;
use crate::listings::Listings;
use crate::locks::lock;
use crate::node::Node;
use crate::nodes::Nodes;
use crate::status::{Status, status};

/// What is exported and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// The directory.
    pub directory: PathBuf,
    /// The file with the key of its handles, made if there is none.
    pub key: PathBuf,
    /// Whom to take for the anonymous user.
    pub squash: Squash,
    /// Whether to answer before the medium has what was done. Data that are written UNSTABLE wait
    /// for their COMMIT in any case.
    pub is_async: bool,
    /// Threads that work for the shards.
    pub workers: usize,
}

/// An exported directory.
#[derive(Debug)]
pub struct Export {
    path: PathBuf,
    nodes: Nodes,
    key: Key,
    policy: Policy,
    is_async: bool,
    limits: Limits,
    verifier: AtomicU64,
    listings: Listings,
    changing: [Mutex<()>; STRIPES],
}

/// How long data can be.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Of one READ.
    pub read_max: u32,
    /// Of one WRITE.
    pub write_max: u32,
    /// Results of one READDIR or READDIRPLUS.
    pub list_max: u32,
}

impl Limits {
    /// What a configuration of the engine has room for: a READ is one registered buffer, and the data
    /// of a WRITE lie in at most half of the buffers that they are fetched into.
    pub fn of(config: &Config) -> Limits {
        let length = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX) & !(BLOCK - 1);
        let buffers = config.explicit().buffers;
        let fetched =
            (buffers.len.as_usize() as u64).saturating_mul(buffers.count.value() as u64 / 2);
        let read_max = length(config.app().bulk.len.as_usize() as u64).min(DATA_MAX);
        let sent = config.send().payload_len.as_usize() as u64 * SLOTS_OF_A_REPLY;
        Limits {
            read_max,
            write_max: length(fetched).min(DATA_MAX),
            list_max: length(sent).min(LIST_MAX),
        }
    }
}

impl Export {
    /// Opens what is to be exported.
    ///
    /// # Errors
    /// A sentence with the name of the directory or of the file of the key.
    pub fn open(options: &Options, limits: Limits) -> Result<Export, String> {
        let of = |path: &Path| path.display().to_string();
        let path = options.directory.canonicalize();
        let path = path.map_err(|error| format!("{}: {error}", of(&options.directory)))?;
        let nodes = Nodes::open(&path).map_err(|error| format!("{}: {error}", of(&path)))?;
        // Files are opened a second time by their descriptors.
        nodes.root().data(false).map_err(|status| {
            format!("{}: cannot be opened by /proc/self/fd: {status}", of(&path))
        })?;
        let beside = match options.key.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        // Who can read it can make handles.
        if beside.canonicalize().is_ok_and(|beside| beside.starts_with(&path)) {
            return Err(format!(
                "{}: the key of the file handles may not be in what is exported: --key FILE",
                of(&options.key)
            ));
        }
        let key = Key::load(&options.key).map_err(|error| {
            format!("{}: the key of the file handles: {error}", of(&options.key))
        })?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Export {
            path,
            nodes,
            key,
            policy: Policy::of_process(options.squash),
            is_async: options.is_async,
            limits,
            verifier: AtomicU64::new(since.as_nanos() as u64),
            listings: Listings::default(),
            changing: std::array::from_fn(|_| Mutex::new(())),
        })
    }

    /// Its path, as the server's machine has it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its files.
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// The key of its handles.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// As whom calls are executed.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// How long data can be.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// What was listed last.
    pub fn listings(&self) -> &Listings {
        &self.listings
    }

    /// The handle of a file.
    pub fn handle(&self, node: &Node) -> nfs_fh3 {
        self.key.handle(node.id())
    }

    /// The file of a handle.
    ///
    /// # Errors
    /// `NFS3ERR_BADHANDLE` if this server has not made it, `NFS3ERR_STALE` if its file is gone.
    pub fn find(&self, handle: &nfs_fh3) -> Result<Arc<Node>, Status> {
        self.nodes.find(self.key.open(handle).ok_or(Status::NFS3ERR_BADHANDLE)?)
    }

    /// Another one after each start of the server, and after each time that data were lost on their
    /// way to the medium: clients then write again what they have not seen committed.
    pub fn verifier(&self) -> writeverf3 {
        writeverf3(self.verifier.load(Ordering::Acquire).to_be_bytes())
    }

    /// Waits until the medium has a file, or what is listed in a directory, if that is wanted.
    ///
    /// # Errors
    /// If it cannot be said that the medium has it.
    pub fn settle(&self, node: &Node) -> Result<(), Status> {
        let has_data = matches!(node.kind(), FileType::RegularFile | FileType::Directory);
        if self.is_async || !has_data {
            return Ok(());
        }
        self.persist(node)
    }

    /// Waits until the medium has everything of a file.
    ///
    /// # Errors
    /// If it cannot be said that the medium has it.
    pub fn persist(&self, node: &Node) -> Result<(), Status> {
        self.persisted(fsync(node.data(false)?))
    }

    /// Waits until the medium has the data of a file that is open.
    ///
    /// # Errors
    /// If it cannot be said that the medium has them.
    pub fn persist_data(&self, file: BorrowedFd<'_>) -> Result<(), Status> {
        self.persisted(fdatasync(file))
    }

    fn persisted(&self, outcome: rustix::io::Result<()>) -> Result<(), Status> {
        outcome.map_err(|error| {
            // What was written before may be lost, and the next call will not be told.
            self.verifier.fetch_add(1, Ordering::AcqRel);
            status(error)
        })
    }

    /// Keeps others from changing a directory, or the attributes of a file, between two looks at it.
    pub fn change(&self, node: &Node) -> MutexGuard<'_, ()> {
        lock(&self.changing[stripe(node)])
    }

    /// As [`Export::change`], for two.
    pub fn change_both(
        &self,
        one: &Node,
        other: &Node,
    ) -> (MutexGuard<'_, ()>, Option<MutexGuard<'_, ()>>) {
        let (low, high) = (stripe(one).min(stripe(other)), stripe(one).max(stripe(other)));
        // Always in this order, so that two who want the same two do not wait for each other.
        let first = lock(&self.changing[low]);
        (first, (low != high).then(|| lock(&self.changing[high])))
    }
}

fn stripe(node: &Node) -> usize {
    (node.id().inode % STRIPES as u64) as usize
}

const STRIPES: usize = 64;
/// Lengths of data are multiples of it.
pub const BLOCK: u32 = 4096;
/// The longest data that any client asks for.
const DATA_MAX: u32 = 1 << 20;
/// The longest list.
const LIST_MAX: u32 = 64 << 10;
/// Slots that a reply surely may take.
const SLOTS_OF_A_REPLY: u64 = 8;

#[cfg(test)]
mod tests {
    use rpcrdma_tests::folder::Folder;

    use super::*;

    #[test]
    fn a_key_that_would_be_exported_is_refused() {
        let base = Folder::new();
        let directory = base.join("export");
        std::fs::create_dir_all(directory.join("below")).expect("a writable directory");
        let limits = Limits { read_max: BLOCK, write_max: BLOCK, list_max: BLOCK };
        let open = |key: PathBuf| {
            let directory = directory.clone();
            let options =
                Options { directory, key, squash: Squash::Root, is_async: true, workers: 1 };
            Export::open(&options, limits)
        };
        for key in ["key", "below/key", "below/../key", "../export/key"] {
            let refused = open(directory.join(key)).expect_err(key);
            assert!(refused.contains("may not be in"), "{refused}");
            assert!(!directory.join(key).exists());
        }
        assert!(open(base.join("export.nfs3-key")).is_ok());
    }
}
