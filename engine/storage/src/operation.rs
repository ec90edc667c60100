//! What a program asks of its files, and what comes back.

use std::ffi::CString;
use std::io;

use arrayvec::ArrayVec;
use rpcrdma_mempool::Loan;

use crate::files::{Caching, FileId};
use crate::stat::Stat;

/// The memory of a read or a write: pieces of a file that follow each other.
pub type Pieces = ArrayVec<Loan, PIECES_MAX>;

/// Pieces of one operation.
pub const PIECES_MAX: usize = 16;

/// An operation on a file, with the memory that it needs. Both come back when it is done.
#[derive(Debug)]
pub enum Operation {
    /// Fills the pieces, one after the other. Ends early at the end of the file only.
    Read {
        /// What to read from.
        file: FileId,
        /// Where to begin.
        offset: u64,
        /// Where the bytes go. What is filled is stated by the result; the lengths stay.
        into: Pieces,
    },
    /// Writes all bytes of the pieces, one after the other.
    Write {
        /// What to write to.
        file: FileId,
        /// Where to begin.
        offset: u64,
        /// The bytes.
        from: Pieces,
    },
    /// Brings to the medium what the writes that are already done have written.
    Sync {
        /// The file.
        file: FileId,
        /// How much of it.
        level: SyncLevel,
    },
    /// Reserves room on the medium; the file has it, as zeros, where it had nothing.
    Allocate {
        /// The file.
        file: FileId,
        /// Where to begin.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Shortens a file, or lengthens it with zeros. A kernel before 6.9 does it while the program
    /// waits.
    SetLen {
        /// The file.
        file: FileId,
        /// Bytes.
        len: u64,
    },
    /// Asks for the properties of a file.
    Stat {
        /// The file.
        file: FileId,
        /// Where they go.
        into: Box<Stat>,
    },
    /// Opens a file; the result is [`Output::File`].
    Open {
        /// Its path.
        path: CString,
        /// As in `open(2)`: `O_RDWR`, `O_CREAT`, and so on.
        flags: i32,
        /// The permissions of a file that is created.
        mode: u32,
        /// Whether aligned requests pass by the page cache.
        caching: Caching,
    },
    /// Closes a file that no other operation names. It cannot be cancelled.
    Close {
        /// The file.
        file: FileId,
    },
}

impl Operation {
    /// The file that it names.
    pub fn file(&self) -> Option<FileId> {
        match self {
            Operation::Read { file, .. }
            | Operation::Write { file, .. }
            | Operation::Sync { file, .. }
            | Operation::Allocate { file, .. }
            | Operation::SetLen { file, .. }
            | Operation::Stat { file, .. }
            | Operation::Close { file } => Some(*file),
            Operation::Open { .. } => None,
        }
    }

    /// The memory of a read or a write.
    pub fn into_pieces(self) -> Pieces {
        match self {
            Operation::Read { into: pieces, .. } | Operation::Write { from: pieces, .. } => pieces,
            _ => Pieces::new(),
        }
    }
}

/// What a [`Operation::Sync`] brings to the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncLevel {
    /// The data, and what is necessary to read them, as `fdatasync(2)`.
    Data,
    /// All properties as well, as `fsync(2)`.
    All,
}

/// An operation that is under way or waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OperationId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// An operation that is done.
#[derive(Debug)]
#[must_use = "it has the memory of the operation, and what the program wanted back"]
pub struct Done<T> {
    /// What the program wanted back.
    pub tag: T,
    /// The operation, with its memory.
    pub operation: Operation,
    /// The result. An error is that of the system, whatever had been read or written before it;
    /// ECANCELED if the operation was cancelled.
    pub result: io::Result<Output>,
}

/// The result of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Bytes that were read or written.
    Bytes(u64),
    /// The file that was opened.
    File(FileId),
    /// There is nothing to say.
    Nothing,
}

impl Output {
    /// Bytes that were read or written.
    pub fn bytes(self) -> u64 {
        match self {
            Output::Bytes(bytes) => bytes,
            Output::File(_) | Output::Nothing => 0,
        }
    }
}

/// An operation that was not taken, with all that belongs to it.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct Refused<T> {
    /// The reason.
    pub why: Refusal,
    /// The operation, with its memory.
    pub operation: Operation,
    /// What the program wanted back.
    pub tag: T,
}

/// Why an operation was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// As many operations are under way and wait as may: try again when one is done.
    #[error("as many operations wait as may")]
    Full,
    /// The file was closed.
    #[error("the file is not open")]
    NotOpen,
    /// Other operations name a file that is to be closed.
    #[error("other operations use the file")]
    InUse,
}
