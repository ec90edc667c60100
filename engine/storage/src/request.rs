//! A request to the system: one step of an operation, as numbers and addresses.
#![expect(unsafe_code, reason = "system calls on memory that is named by its address")]

use std::io;
use std::os::fd::RawFd;

use crate::files::Descriptor;

/// One step of an operation.
///
/// The maker of one keeps what it points to valid and untouched until its result is there.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Request {
    Read(Transfer),
    Write(Transfer),
    Sync { file: Descriptor, is_data_only: bool },
    Allocate { file: Descriptor, offset: u64, len: u64 },
    SetLen { file: Descriptor, len: u64 },
    Stat { fd: RawFd, into: *mut libc::statx },
    Open { path: *const libc::c_char, flags: i32, mode: u32 },
    Close { fd: RawFd },
}

/// Bytes between a file and memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transfer {
    pub file: Descriptor,
    pub offset: u64,
    /// The pieces of memory.
    pub vector: *const libc::iovec,
    pub pieces: u32,
    /// The registered buffer that all pieces lie in, if they do.
    pub buffer: Option<u16>,
}

impl Transfer {
    /// The first piece.
    pub fn first(&self) -> libc::iovec {
        // SAFETY: the maker of the transfer keeps its vector, which has a piece, untouched.
        unsafe { *self.vector }
    }
}

// SAFETY: a request is numbers; who sends one to another thread keeps what it points to untouched
// until that thread has answered.
unsafe impl Send for Request {}

impl Request {
    /// Does it, however long it takes. Returns what the ring would: a count, or an error number with
    /// a minus.
    ///
    /// # Safety
    /// What it points to is valid, and nothing else accesses it.
    pub unsafe fn perform(&self) -> i32 {
        let result = match *self {
            Request::Read(Transfer { file, offset, vector, pieces, .. }) => {
                // SAFETY: the caller guarantees that the vector and its memory are valid.
                unsafe { libc::preadv(file.fd, vector, pieces as i32, offset.cast_signed()) as i64 }
            }
            Request::Write(Transfer { file, offset, vector, pieces, .. }) => {
                // SAFETY: as above.
                unsafe {
                    libc::pwritev(file.fd, vector, pieces as i32, offset.cast_signed()) as i64
                }
            }
            Request::Sync { file, is_data_only: true } => {
                // SAFETY: takes a number.
                i64::from(unsafe { libc::fdatasync(file.fd) })
            }
            // SAFETY: as above.
            Request::Sync { file, .. } => i64::from(unsafe { libc::fsync(file.fd) }),
            Request::Allocate { file, offset, len } => {
                let (offset, len) = (offset.cast_signed(), len.cast_signed());
                // SAFETY: takes numbers.
                i64::from(unsafe { libc::fallocate(file.fd, 0, offset, len) })
            }
            Request::SetLen { file, len } => {
                // SAFETY: takes numbers.
                i64::from(unsafe { libc::ftruncate(file.fd, len.cast_signed()) })
            }
            Request::Stat { fd, into } => {
                let path = c"".as_ptr();
                // SAFETY: the path is empty, and the caller guarantees that `into` can be written.
                i64::from(unsafe { libc::statx(fd, path, libc::AT_EMPTY_PATH, STAT_MASK, into) })
            }
            Request::Open { path, flags, mode } => {
                // SAFETY: the caller guarantees that the path is valid.
                i64::from(unsafe { libc::open(path, flags | libc::O_CLOEXEC, mode) })
            }
            // SAFETY: the descriptor was taken from its owner for this.
            Request::Close { fd } => i64::from(unsafe { libc::close(fd) }),
        };
        match result {
            0.. => result as i32,
            _ => -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
        }
    }
}

/// The properties that are asked for.
pub(crate) const STAT_MASK: u32 = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
