//! The export: the directory, its options, and the state that all calls share.

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use arrayvec::ArrayVec;
use nfs3_types::nfs3::{nfs_fh3, writeverf3};
use rpcrdma::Config;
use rustix::fs::{FileType, fdatasync, fsync, syncfs};
use rustix::io::retry_on_intr;

use crate::credentials::{Policy, Squash};
use crate::handles::HandleKey;
use crate::locks::lock;
use crate::node::OpenFile;
use crate::nodes::OpenFiles;
use crate::status::{Status, status};

/// The options of an export.
#[derive(Debug, Clone)]
pub struct Options {
    /// The directory.
    pub directory: PathBuf,
    /// The file with the key of its file handles; it is created if it does not exist.
    pub key: PathBuf,
    /// Which callers act as the anonymous user.
    pub squash: Squash,
    /// Whether to answer before changes are on stable storage. Data that are written UNSTABLE wait
    /// for their COMMIT in any case.
    pub is_async: bool,
    /// The number of worker threads that call the file system.
    pub workers: usize,
}

/// An exported directory.
#[derive(Debug)]
pub struct Export {
    path: PathBuf,
    nodes: OpenFiles,
    key: HandleKey,
    policy: Policy,
    is_async: bool,
    limits: DataLimits,
    verifier: AtomicU64,
    changing: [Mutex<()>; STRIPES],
    /// What [`Export::change_all`] was called with.
    #[cfg(test)]
    asked: Mutex<Vec<Vec<u64>>>,
}

/// A file or directory whose changes must be on stable storage before a call is answered.
#[derive(Debug)]
pub struct Storage<'a> {
    export: &'a Export,
    node: &'a OpenFile,
    /// `None` if nothing is waited for.
    way: Option<StorageWay<'a>>,
}

#[derive(Debug)]
enum StorageWay<'a> {
    /// The file itself.
    File(BorrowedFd<'a>),
    /// All of its file system, by a descriptor of the exported directory.
    FileSystem(BorrowedFd<'a>),
}

/// The longest data of a call.
#[derive(Debug, Clone, Copy)]
pub struct DataLimits {
    /// In bytes, of one READ.
    pub read_max: u32,
    /// In bytes, of one WRITE.
    pub write_max: u32,
    /// In bytes, the results of one READDIR or READDIRPLUS.
    pub list_max: u32,
}

impl DataLimits {
    /// The limits that follow from a configuration of the engine: a READ uses one registered
    /// buffer, and the data of a WRITE use at most half of the RDMA buffers.
    pub fn of(config: &Config) -> DataLimits {
        let length = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX) & !(BLOCK - 1);
        let buffers = config.explicit().buffers;
        let fetched =
            (buffers.len.as_usize() as u64).saturating_mul(buffers.count.value() as u64 / 2);
        let read_max = length(config.app().bulk.len.as_usize() as u64).min(DATA_MAX);
        let sent = config.send().payload_len.as_usize() as u64 * SLOTS_OF_A_REPLY;
        DataLimits {
            read_max,
            write_max: length(fetched).min(DATA_MAX),
            list_max: length(sent).min(LIST_MAX),
        }
    }
}

impl Export {
    /// Opens the directory and the key.
    ///
    /// # Errors
    /// A message that names the directory or the key file.
    pub fn open(options: &Options, limits: DataLimits) -> Result<Export, String> {
        let of = |path: &Path| path.display().to_string();
        let path = options.directory.canonicalize();
        let path = path.map_err(|error| format!("{}: {error}", of(&options.directory)))?;
        let nodes = OpenFiles::open(&path).map_err(|error| format!("{}: {error}", of(&path)))?;
        // A search lists it, and its descriptor stands for the file system.
        nodes.root().data(false).map_err(|status| {
            format!("{}: the server must be able to list it: {status}", of(&path))
        })?;
        let beside = match options.key.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        // A client that can read the key can forge handles.
        if beside.canonicalize().is_ok_and(|beside| beside.starts_with(&path)) {
            return Err(format!(
                "{}: the key of the file handles must not be inside the exported directory; \
                 use --key FILE",
                of(&options.key)
            ));
        }
        let key = HandleKey::load(&options.key).map_err(|error| {
            format!("{}: cannot use the key of the file handles: {error}", of(&options.key))
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
            changing: std::array::from_fn(|_| Mutex::new(())),
            #[cfg(test)]
            asked: Mutex::default(),
        })
    }

    /// Its path on the server.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its files.
    pub fn nodes(&self) -> &OpenFiles {
        &self.nodes
    }

    /// The key of its handles.
    pub fn key(&self) -> &HandleKey {
        &self.key
    }

    /// Which identity executes a call.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The longest data of a call.
    pub fn limits(&self) -> DataLimits {
        self.limits
    }

    /// The handle of a file.
    pub fn handle(&self, node: &OpenFile) -> nfs_fh3 {
        self.key.handle(node.id())
    }

    /// The file of a handle.
    ///
    /// # Errors
    /// `NFS3ERR_BADHANDLE` if this server did not make it, `NFS3ERR_STALE` if its file was removed.
    pub fn find(&self, handle: &nfs_fh3) -> Result<Arc<OpenFile>, Status> {
        self.nodes.find(self.key.open(handle).ok_or(Status::NFS3ERR_BADHANDLE)?)
    }

    /// The write verifier. It changes with each start of the server, and when data were lost before
    /// they reached stable storage: clients then repeat the WRITEs that were not committed.
    pub fn verifier(&self) -> writeverf3 {
        writeverf3(self.verifier.load(Ordering::Acquire).to_be_bytes())
    }

    /// The way of a file, or of the entries of a directory, to stable storage. It is opened before
    /// a call changes anything, so that later only the storage itself can fail.
    ///
    /// A symbolic link, a FIFO, a device or a socket cannot be opened to be synced, nor can a
    /// directory that the server may not list; and syncing its directory does not cover its
    /// attributes: the way is that of the file system.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn storage<'a>(&'a self, node: &'a OpenFile) -> Result<Storage<'a>, Status> {
        let way = if self.is_async { None } else { Some(self.way(node)?) };
        Ok(Storage { export: self, node, way })
    }

    fn way<'a>(&'a self, node: &'a OpenFile) -> Result<StorageWay<'a>, Status> {
        if matches!(node.kind(), FileType::RegularFile | FileType::Directory) {
            match self.nodes.syncable(node) {
                Err(Status::NFS3ERR_ACCES) => {}
                opened => return opened.map(StorageWay::File),
            }
        }
        self.nodes.syncable(self.nodes.root()).map(StorageWay::FileSystem)
    }

    /// Waits until the data and the attributes of an open file are on stable storage; `file` is its
    /// descriptor.
    ///
    /// # Errors
    /// If the file system reports an error.
    pub fn persist(&self, node: &OpenFile, file: BorrowedFd<'_>) -> Result<(), Status> {
        self.persisted(node, || fsync(file))
    }

    /// Waits until the data of an open file are on stable storage; `file` is its descriptor.
    ///
    /// # Errors
    /// If the file system reports an error.
    pub fn persist_data(&self, node: &OpenFile, file: BorrowedFd<'_>) -> Result<(), Status> {
        self.persisted(node, || fdatasync(file))
    }

    /// Brings a file to stable storage. The verifier that is read afterwards has changed if data
    /// of the file were lost, whichever call got the error.
    fn persisted(
        &self,
        node: &OpenFile,
        sync: impl FnMut() -> rustix::io::Result<()>,
    ) -> Result<(), Status> {
        node.sync(|| {
            retry_on_intr(sync).map_err(|error| {
                // Data written earlier may be lost, and the kernel reports the error only once.
                self.verifier.fetch_add(1, Ordering::AcqRel);
                match status(error) {
                    // The change was made: a repetition would find it, or nothing to be done.
                    Status::NFS3ERR_JUKEBOX => Status::NFS3ERR_IO,
                    status => status,
                }
            })
        })
    }

    /// Prevents other threads from changing a directory, or the attributes of a file, while the
    /// guard lives.
    pub fn change(&self, node: &OpenFile) -> MutexGuard<'_, ()> {
        lock(&self.changing[stripe(node.id().inode)])
    }

    /// As [`Export::change`], for all files with these inode numbers.
    pub fn change_all<const N: usize>(&self, inodes: [u64; N]) -> ArrayVec<MutexGuard<'_, ()>, N> {
        #[cfg(test)]
        lock(&self.asked).push(inodes.to_vec());
        let mut stripes = inodes.map(stripe);
        // Always in this order, to avoid a deadlock.
        stripes.sort_unstable();
        let each_once = stripes.chunk_by(|one, other| one == other).map(|same| same[0]);
        each_once.map(|stripe| lock(&self.changing[stripe])).collect()
    }
}

#[cfg(test)]
impl Export {
    /// The inode numbers of the last call of [`Export::change_all`], and the number of those calls.
    pub fn asked_last(&self) -> (Vec<u64>, usize) {
        let asked = lock(&self.asked);
        (asked.last().cloned().unwrap_or_default(), asked.len())
    }
}

impl Storage<'_> {
    /// Waits until the changes are on stable storage, unless the export is asynchronous.
    ///
    /// # Errors
    /// If the file system reports an error.
    pub fn persist(&self) -> Result<(), Status> {
        match self.way {
            None => Ok(()),
            Some(StorageWay::File(file)) => self.export.persist(self.node, file),
            Some(StorageWay::FileSystem(root)) => self.export.persisted(self.node, || syncfs(root)),
        }
    }
}

fn stripe(inode: u64) -> usize {
    (inode % STRIPES as u64) as usize
}

const STRIPES: usize = 64;
/// Limits of data lengths are multiples of it.
pub const BLOCK: u32 = 4096;
/// The longest data that a client requests.
const DATA_MAX: u32 = 1 << 20;
/// The longest list.
const LIST_MAX: u32 = 64 << 10;
/// The number of send slots that one reply may use.
const SLOTS_OF_A_REPLY: u64 = 8;

#[cfg(test)]
mod tests {
    use rpcrdma::Raw;
    use rpcrdma_tests::folder::Folder;

    use super::*;
    use crate::tests::Scratch;

    #[test]
    fn the_buffers_of_the_engine_limit_the_data_of_a_call() {
        let limits = |raw: &Raw| {
            let config = Config::try_from(raw.clone()).expect("a configuration");
            let DataLimits { read_max, write_max, list_max } = DataLimits::of(&config);
            (read_max, write_max, list_max)
        };
        let mut raw = Raw::default();
        raw.explicit.buffers.count = 5;
        raw.explicit.buffers.length = "6KiB".into();
        raw.app.bulk.count = 2;
        raw.app.bulk.length = "10KiB".into();
        raw.send.length = "2KiB".into();
        // Whole blocks; two buffers of five; eight slots.
        assert_eq!(limits(&raw), (8 << 10, 12 << 10, 16 << 10));
        (raw.app.bulk.length, raw.explicit.buffers.length) = ("2MiB".into(), "1MiB".into());
        raw.send.length = "64KiB".into();
        assert_eq!(limits(&raw), (1 << 20, 1 << 20, 64 << 10), "the most");
    }

    /// As two COMMITs: the kernel reports an error to one of them, and its caller does not know of
    /// the other.
    #[test]
    fn an_error_of_one_call_is_seen_by_all_that_end_after_it() {
        let scratch = Scratch::new();
        let export = scratch.opened();
        let node = export.nodes().root().clone();
        let before = export.verifier().0;
        let (failing, other) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let failed = export.persisted(&node, || {
                    failing.wait();
                    // The error is with this call, and the other has none.
                    other.wait();
                    for _each in 0..1000 {
                        std::thread::yield_now();
                    }
                    Err(rustix::io::Errno::IO)
                });
                assert_eq!(failed, Err(Status::NFS3ERR_IO));
            });
            failing.wait();
            let done = export.persisted(&node, || {
                other.wait();
                Ok(())
            });
            assert_eq!(done, Ok(()));
            assert_ne!(export.verifier().0, before);
        });
    }

    #[test]
    fn a_sync_that_is_interrupted_goes_on() {
        let scratch = Scratch::new();
        let export = scratch.opened();
        let (before, mut calls) = (export.verifier().0, 0);
        let done = export.persisted(export.nodes().root(), || {
            calls += 1;
            if calls == 3 { Ok(()) } else { Err(rustix::io::Errno::INTR) }
        });
        assert_eq!((done, calls, export.verifier().0), (Ok(()), 3, before));
    }

    #[test]
    fn a_key_that_would_be_exported_is_refused() {
        let base = Folder::new();
        let directory = base.join("export");
        std::fs::create_dir_all(directory.join("below")).expect("a writable directory");
        let limits = DataLimits { read_max: BLOCK, write_max: BLOCK, list_max: BLOCK };
        let open = |key: PathBuf| {
            let directory = directory.clone();
            let options =
                Options { directory, key, squash: Squash::Root, is_async: true, workers: 1 };
            Export::open(&options, limits)
        };
        for key in ["key", "below/key", "below/../key", "../export/key"] {
            let refused = open(directory.join(key)).expect_err(key);
            assert!(refused.contains("must not be inside"), "{refused}");
            assert!(!directory.join(key).exists());
        }
        assert!(open(base.join("export.nfs3-key")).is_ok());
    }
}
