//! Requests by io_uring: written to memory, submitted by one system call a turn, and answered in
//! memory.
//!
//! ```text
//!   push ─▶ submission queue ── flush: one system call ──▶ kernel ─▶ completion queue ─▶ reap
//! ```
#![expect(unsafe_code, reason = "the kernel reads and writes memory that is named by its address")]

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use io_uring::squeue::Entry;
use io_uring::types::{Fd, Fixed, FsyncFlags};
use io_uring::{IoUring, Probe, opcode};
use rpcrdma_mempool::file_size;

use crate::request::{Request, STAT_MASK, Transfer};

/// An entry for a file, by its place in the table or by its descriptor.
macro_rules! on_file {
    ($file:expr, |$fd:ident| $entry:expr) => {
        match $file.place {
            Some(place) => {
                let $fd = Fixed(place);
                $entry
            }
            None => {
                let $fd = Fd($file.fd);
                $entry
            }
        }
    };
}

/// An entry for a read or a write: of one registered piece, of several, or of any memory.
macro_rules! transfer {
    ($ring:expr, $transfer:expr, $fixed:ident, $vectored_fixed:ident, $vectored:ident) => {{
        let Transfer { file, offset, vector, pieces, buffer } = $transfer;
        match (buffer, pieces) {
            (Some(buffer), 1) => {
                let libc::iovec { iov_base, iov_len } = $transfer.first();
                let (memory, len) = (iov_base.cast(), iov_len as u32);
                on_file!(file, |fd| opcode::$fixed::new(fd, memory, len, buffer)
                    .offset(offset)
                    .build())
            }
            (Some(buffer), _) if $ring.has_vectored => {
                on_file!(file, |fd| opcode::$vectored_fixed::new(fd, vector, pieces, buffer)
                    .offset(offset)
                    .build())
            }
            _ => on_file!(file, |fd| opcode::$vectored::new(fd, vector, pieces)
                .offset(offset)
                .build()),
        }
    }};
}

/// The ring of a storage.
pub(crate) struct Ring {
    ring: IoUring,
    /// Requests that were pushed and not answered.
    under_way: u32,
    /// Answers to requests that this kernel has no operation for.
    at_once: VecDeque<(u32, i32)>,
    /// What the kernel has of the operations that not every kernel has.
    has_set_len: bool,
    has_vectored: bool,
}

impl Ring {
    /// A ring for so many requests at a time. From here on, a write of this thread beyond the limit
    /// of file sizes is an error, and does not end the process.
    pub fn new(depth: u32) -> io::Result<Ring> {
        let build = |ring: &mut io_uring::Builder| ring.dontfork().build(depth);
        // Without an interrupt of the thread that polls: it sees in memory that there is work to
        // take from the kernel. Since 6.0.
        let mut builder = IoUring::builder();
        let ring = build(builder.setup_single_issuer().setup_coop_taskrun().setup_taskrun_flag())
            .or_else(|_| build(&mut IoUring::builder()))?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [opcode::Read::CODE, opcode::OpenAt::CODE, opcode::Statx::CODE];
        if !needed.iter().all(|code| probe.is_supported(*code)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        file_size::block_signal();
        let has_set_len = probe.is_supported(opcode::Ftruncate::CODE);
        let has_vectored = probe.is_supported(opcode::WritevFixed::CODE);
        Ok(Ring {
            ring,
            under_way: 0,
            at_once: VecDeque::with_capacity(depth as usize),
            has_set_len,
            has_vectored,
        })
    }

    /// Adds a request, which begins with [`Ring::flush`]. At most `depth` are under way.
    ///
    /// # Safety
    /// What the request points to stays valid and untouched until [`Ring::reap`] has returned its
    /// slot.
    pub unsafe fn push(&mut self, slot: u32, request: Request) {
        self.under_way += 1;
        if matches!(request, Request::SetLen { .. }) && !self.has_set_len {
            // SAFETY: it points to nothing.
            return self.at_once.push_back((slot, unsafe { request.perform() }));
        }
        let entry = self.entry(request).user_data(u64::from(slot));
        // SAFETY: the caller guarantees what the entry needs.
        unsafe { self.add(&entry) };
    }

    /// Asks for the end of a request, which is answered nevertheless.
    pub fn cancel(&mut self, slot: u32) {
        self.under_way += 1;
        let entry = opcode::AsyncCancel::new(u64::from(slot)).build().user_data(CANCEL);
        // SAFETY: the entry points to nothing.
        unsafe { self.add(&entry) };
    }

    /// # Safety
    /// As in [`Ring::push`].
    unsafe fn add(&mut self, entry: &Entry) {
        loop {
            // SAFETY: the caller guarantees what the entry needs.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return;
            }
            // Full of requests to cancel. The kernel takes all entries, or those that it has memory
            // for.
            let _ = self.ring.submit();
        }
    }

    /// Submits what was pushed. Without a system call if there is nothing.
    #[inline]
    pub fn flush(&mut self) -> Flush {
        let mut left = !self.at_once.is_empty();
        let begun = !self.ring.submission().is_empty();
        if begun {
            // What fails is tried again in the next turn: the kernel has no memory for requests, or
            // completions to be read first.
            left |= self.ring.submit().is_err() || !self.ring.submission().is_empty();
        }
        Flush { begun, left }
    }

    /// The slot and the result of a request that is done. Without a system call, except for what the
    /// kernel has done and not written.
    #[inline]
    pub fn reap(&mut self) -> Option<(u32, i32)> {
        while self.under_way > 0 {
            let Some(entry) = self.ring.completion().next() else {
                match self.at_once.pop_front() {
                    None if self.fetch() => continue,
                    None => return None,
                    done => {
                        self.under_way -= 1;
                        return done;
                    }
                }
            };
            self.under_way -= 1;
            if entry.user_data() != CANCEL {
                return Some((entry.user_data() as u32, entry.result()));
            }
        }
        None
    }

    /// Takes what the kernel has done and not written. False if there is nothing.
    #[inline]
    fn fetch(&mut self) -> bool {
        let queue = self.ring.submission();
        let has_some = queue.taskrun() || queue.cq_overflow();
        drop(queue);
        has_some && self.ring.submit().is_ok()
    }

    /// Sleeps until a request is done, or a signal comes.
    pub fn wait(&mut self) -> io::Result<()> {
        if !self.at_once.is_empty() {
            return Ok(());
        }
        match self.ring.submit_and_wait(1) {
            Err(error) if !is_transient(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Lets requests name these buffers by number.
    ///
    /// # Safety
    /// They are mapped until the ring is dropped.
    pub unsafe fn register_buffers(&mut self, buffers: &[libc::iovec]) -> io::Result<()> {
        // SAFETY: the caller guarantees that the buffers are mapped.
        unsafe { self.ring.submitter().register_buffers(buffers) }
    }

    /// Makes a table for so many descriptors.
    pub fn make_places(&mut self, count: u32) -> io::Result<()> {
        self.ring.submitter().register_files_sparse(count)
    }

    /// Enters descriptors into the table, or takes out what is there (-1).
    pub fn place(&mut self, at: u32, fds: &[RawFd]) -> io::Result<()> {
        let entered = self.ring.submitter().register_files_update(at, fds)?;
        let is_whole = entered == fds.len();
        is_whole.then_some(()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// Readable while there are completions.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring keeps it open at least as long as it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    fn entry(&self, request: Request) -> Entry {
        match request {
            Request::Read(transfer) => {
                transfer!(self, transfer, ReadFixed, ReadvFixed, Readv)
            }
            Request::Write(transfer) => {
                transfer!(self, transfer, WriteFixed, WritevFixed, Writev)
            }
            Request::Sync { file, is_data_only } => {
                let level = if is_data_only { FsyncFlags::DATASYNC } else { FsyncFlags::empty() };
                on_file!(file, |fd| opcode::Fsync::new(fd).flags(level).build())
            }
            Request::Allocate { file, offset, len } => {
                on_file!(file, |fd| opcode::Fallocate::new(fd, len).offset(offset).build())
            }
            Request::SetLen { file, len } => {
                on_file!(file, |fd| opcode::Ftruncate::new(fd, len).build())
            }
            Request::Stat { fd, into } => opcode::Statx::new(Fd(fd), c"".as_ptr(), into.cast())
                .flags(libc::AT_EMPTY_PATH)
                .mask(STAT_MASK)
                .build(),
            Request::Open { path, flags, mode } => opcode::OpenAt::new(Fd(libc::AT_FDCWD), path)
                .flags(flags | libc::O_CLOEXEC)
                .mode(mode)
                .build(),
            Request::Close { fd } => opcode::Close::new(Fd(fd)).build(),
        }
    }
}

/// What has become of the requests that were pushed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Flush {
    /// There were some.
    pub begun: bool,
    /// Some are to be begun, or answered, by the next look.
    pub left: bool,
}

/// Whether to try again.
fn is_transient(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}

/// What the answer to a request to cancel is marked with: no slot has this number.
const CANCEL: u64 = u64::MAX;
