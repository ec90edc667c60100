//! How large a storage is, and what it does without.

use std::io;

/// The sizes of a storage. They are fixed once it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageOptions {
    /// Operations that are under way at a time, 1 to 16,384.
    pub depth: u32,
    /// Operations that wait behind them.
    pub waiting: u32,
    /// Files that are open at a time.
    pub files: u32,
    /// Whether to make a ring. Without one there are threads.
    pub ring: bool,
    /// Threads, if there is no ring.
    pub threads: u32,
}

impl Default for StorageOptions {
    fn default() -> StorageOptions {
        StorageOptions { depth: 128, waiting: 1024, files: 64, ring: true, threads: 4 }
    }
}

/// Something that was asked for and cannot be had. The storage works without it, more slowly.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Note {
    /// Threads do the work.
    #[error(
        "io_uring refused: {source}; threads read and write in its place (a container's seccomp \
         profile or kernel.io_uring_disabled may forbid it)"
    )]
    NoRing {
        /// The error of the system.
        source: io::Error,
    },
    /// The kernel looks at the pages of each request.
    #[error(
        "registering memory with io_uring refused: {source}; check the memlock limit (ulimit -l)"
    )]
    NotRegistered {
        /// The error of the system.
        source: io::Error,
    },
    /// A thread that sleeps is not woken by the ring: operations wait until it looks.
    #[error("waiting for io_uring refused: {source}")]
    NotWatched {
        /// The error of the system.
        source: io::Error,
    },
    /// Each request names its file by descriptor.
    #[error("a table of files of io_uring refused: {source}")]
    NoFileTable {
        /// The error of the system.
        source: io::Error,
    },
}
