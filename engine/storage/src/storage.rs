//! The storage of a thread: operations on files, which wait, are under way, or are done.
//!
//! ```text
//!              room                     answered: done ─▶ completed
//!   submit ─▶ waiting ─▶ under way ──┤
//!     │        in order      ▲       └── answered in part: the rest
//!     └▶ refused             └────────────┘
//! ```
//! The memory of an operation is in its slot until it is done. A slot whose request is under way is
//! not touched.
#![expect(unsafe_code, reason = "requests name memory by its address")]

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};

use rpcrdma_mempool::RegionHold;

use crate::files::{ALIGNMENT, Caching, FileId, Files, OpenFile};
use crate::operation::{Done, Operation, OperationId, Output, Refusal, Refused, SyncLevel};
use crate::options::{Note, StorageOptions};
use crate::request::{Request, Transfer};
use crate::ring::{Flush, Ring};
use crate::slot::{Place, Slot};
use crate::threads::Threads;
use crate::vector::{Buffer, EMPTY, Rest, Vector, buffers, rest, total};
use crate::way::Way;

/// Operations on files, of one thread that polls. It neither waits nor allocates once it is made.
///
/// A program submits operations with what it wants back, of type `T`; [`Storage::flush`] begins all
/// of them by one system call; [`Storage::completed`] returns those that are done. The order in
/// which operations are carried out is not stated: a read that must follow a write is submitted when
/// the write is done.
///
/// Dropped, it waits for what is under way, and drops what waits.
pub struct Storage<T> {
    way: Way,
    slots: Box<[Slot<T>]>,
    vectors: Box<[UnsafeCell<Vector>]>,
    free: Vec<u32>,
    waiting: VecDeque<u32>,
    /// Done without a request.
    ended: VecDeque<u32>,
    under_way: u32,
    depth: u32,
    files: Files,
    buffers: Vec<Buffer>,
    notes: Vec<Note>,
    has_worked: bool,
    has_joined: bool,
    /// Kept, so that no other memory has the addresses that the ring knows.
    holds: Vec<RegionHold>,
}

impl<T> Storage<T> {
    /// A storage with a ring; with threads where there is none, and a [`Note`] that says so.
    ///
    /// With a ring, SIGXFSZ is blocked in the calling thread from here on: a write beyond the limit
    /// of file sizes is an error.
    ///
    /// # Errors
    /// If neither a ring nor a thread can be had.
    pub fn new(options: &StorageOptions) -> io::Result<Storage<T>> {
        let depth = options.depth.clamp(1, DEPTH_MAX);
        let mut notes = Vec::new();
        let ring = match options.ring {
            true => Ring::new(depth).map_err(|source| notes.push(Note::NoRing { source })).ok(),
            false => None,
        };
        let way = match ring {
            Some(ring) => Way::Ring(ring),
            None => Way::Threads(Threads::start(options.threads, depth)?),
        };
        let mut storage = Storage::by(way, depth, options);
        storage.notes = notes;
        storage.make_places(options.files);
        Ok(storage)
    }

    /// A storage with this way to the system.
    pub(crate) fn by(way: Way, depth: u32, options: &StorageOptions) -> Storage<T> {
        let count = depth.saturating_add(options.waiting);
        Storage {
            way,
            slots: (0..count).map(|_| Slot::new()).collect(),
            vectors: (0..count).map(|_| UnsafeCell::new(EMPTY)).collect(),
            free: (0..count).rev().collect(),
            waiting: VecDeque::with_capacity(count as usize),
            ended: VecDeque::with_capacity(count as usize),
            under_way: 0,
            depth,
            files: Files::new(options.files),
            buffers: Vec::new(),
            notes: Vec::new(),
            has_worked: false,
            has_joined: false,
            holds: Vec::new(),
        }
    }

    fn make_places(&mut self, files: u32) {
        if let Way::Ring(ring) = &mut self.way {
            match ring.make_places(files.saturating_mul(2)) {
                Ok(()) => self.files.has_places = true,
                Err(source) => self.notes.push(Note::NoFileTable { source }),
            }
        }
    }

    /// Takes a file. With [`Caching::Direct`] it is opened once more, for aligned requests.
    ///
    /// # Errors
    /// If there are as many files as may be.
    pub fn add(&mut self, file: impl Into<OwnedFd>, caching: Caching) -> io::Result<FileId> {
        self.enter(OpenFile::new(file.into(), caching))
    }

    fn enter(&mut self, file: OpenFile) -> io::Result<FileId> {
        let full = |_| io::Error::from_raw_os_error(libc::ENFILE);
        let id = self.files.add(file).map_err(full)?;
        let (at, fds) = self.files.pair(id);
        if let (Way::Ring(ring), true) = (&mut self.way, self.files.has_places)
            && let Err(source) = ring.place(at, &fds)
        {
            self.notes.push(Note::NoFileTable { source });
            self.files.has_places = false;
        }
        Ok(id)
    }

    /// Registers memory with the ring, once: pieces that lie in it need no look at their pages. What
    /// cannot be registered works as well, more slowly, and leaves a note.
    pub fn register(&mut self, regions: impl IntoIterator<Item = RegionHold>) {
        let Way::Ring(ring) = &mut self.way else { return };
        if !self.holds.is_empty() {
            return;
        }
        self.holds.extend(regions);
        let buffers = buffers(self.holds.iter().map(RegionHold::region));
        // SAFETY: the regions are mapped as long as they are held, which is longer than the ring
        // lives: it is declared before them, and dropped before.
        match unsafe { ring.register_buffers(&buffers) } {
            Ok(()) => self.buffers.extend(buffers.iter().map(Buffer::of)),
            Err(source) => self.notes.push(Note::NotRegistered { source }),
        }
    }

    /// Takes an operation. It begins with [`Storage::flush`], or later, in order, if as many are
    /// under way as may. Never waits.
    ///
    /// # Errors
    /// The operation and the tag, with the reason.
    #[expect(clippy::result_large_err, reason = "what was not taken is given back, not lost")]
    pub fn submit(&mut self, operation: Operation, tag: T) -> Result<OperationId, Refused<T>> {
        let Some(&index) = self.free.last() else {
            return Err(Refused { why: Refusal::Full, operation, tag });
        };
        let mut closing = None;
        if let Some(file) = operation.file() {
            if !self.files.enter(file) {
                return Err(Refused { why: Refusal::NotOpen, operation, tag });
            }
            if let Operation::Close { file } = operation {
                closing = self.close(file);
                self.files.leave(file);
                if closing.is_none() {
                    return Err(Refused { why: Refusal::InUse, operation, tag });
                }
            }
        }
        self.free.pop();
        let slot = &mut self.slots[index as usize];
        let generation = slot.generation;
        *slot = Slot { generation, body: Some((operation, tag)), closing, ..Slot::new() };
        self.has_worked = true;
        if self.under_way < self.depth && self.waiting.is_empty() {
            self.begin(index);
        } else {
            slot.place = Place::Waiting;
            self.waiting.push_back(index);
        }
        Ok(OperationId { slot: index, generation })
    }

    /// Takes a file out of the table, for its last operation.
    fn close(&mut self, file: FileId) -> Option<OwnedFd> {
        let (at, _) = self.files.pair(file);
        let OpenFile { buffered, direct: _ } = self.files.remove(file)?;
        if let (Way::Ring(ring), true) = (&mut self.way, self.files.has_places) {
            // What cannot be taken out stays open, and the table is not used any more.
            self.files.has_places = ring.place(at, &[-1, -1]).is_ok();
        }
        Some(buffered)
    }

    /// Begins what was submitted, by one system call. None if there is nothing to begin. True if the
    /// thread must not sleep before it has looked again: an operation is done already, or the kernel
    /// has not taken all.
    #[inline]
    pub fn flush(&mut self) -> bool {
        let Flush { begun, left } = self.way.flush();
        self.has_worked |= begun;
        left || !self.ended.is_empty()
    }

    /// An operation that is done. Without a system call, in most cases.
    #[inline]
    pub fn completed(&mut self) -> Option<Done<T>> {
        while self.ended.is_empty() {
            // Also with nothing under way: the answer to a cancel may be behind that of its operation.
            let (index, result) = self.way.reap()?;
            self.has_worked = true;
            self.under_way -= 1;
            if self.slots[index as usize].is_to_go_on(result) {
                self.begin(index);
            } else {
                self.begin_waiting();
                return self.end(index, result);
            }
        }
        let index = self.ended.pop_front()?;
        self.begin_waiting();
        self.end(index, self.slots[index as usize].result)
    }

    /// Asks for the end of an operation, which completes nevertheless: with ECANCELED if it was not
    /// carried out to its end. False if it is done, or closes a file.
    pub fn cancel(&mut self, id: OperationId) -> bool {
        let slot = self.slots.get_mut(id.slot as usize);
        let Some(slot) = slot.filter(|slot| slot.generation == id.generation) else { return false };
        if slot.is_cancelled || slot.closing.is_some() {
            return false;
        }
        match slot.place {
            Place::Waiting => {
                self.waiting.retain(|waiting| *waiting != id.slot);
                slot.place = Place::Ended;
                slot.result = -libc::ECANCELED;
                self.ended.push_back(id.slot);
            }
            Place::UnderWay => {
                if matches!(slot.body, Some((Operation::Close { .. }, _))) {
                    return false;
                }
                self.way.cancel(id.slot);
            }
            Place::Free | Place::Ended => return false,
        }
        slot.is_cancelled = true;
        self.has_worked = true;
        true
    }

    /// Begins what was submitted, and sleeps until an operation is done or a signal comes: for a
    /// thread that has nothing else to do. Returns at once if there is nothing to wait for.
    ///
    /// # Errors
    /// If the system cannot wait.
    pub fn wait(&mut self) -> io::Result<()> {
        if self.under_way == 0 || !self.ended.is_empty() {
            return Ok(());
        }
        self.way.wait()
    }

    /// Operations that are under way, and operations that wait.
    pub fn open(&self) -> (u32, u32) {
        (self.under_way, self.waiting.len() as u32)
    }

    /// Whether there is a ring. Otherwise there are threads.
    pub fn has_ring(&self) -> bool {
        matches!(self.way, Way::Ring(_))
    }

    /// What was asked for and cannot be had.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Joins it to the thread that polls it, once, so that operations end its sleep. `watch` takes a
    /// descriptor that is readable while operations of the ring are done; threads call `wake`.
    pub fn join(
        &mut self,
        watch: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
        wake: impl Fn() + Send + Sync + 'static,
    ) {
        let watched = match &mut self.way {
            _ if self.has_joined => return,
            Way::Ring(ring) => watch(ring.descriptor()),
            Way::Threads(threads) => {
                threads.wake_by(Box::new(wake));
                Ok(())
            }
            #[cfg(test)]
            Way::Faults(_) => Ok(()),
        };
        self.notes.extend(watched.err().map(|source| Note::NotWatched { source }));
        self.has_joined = true;
    }

    /// Whether it was joined to a thread.
    #[inline]
    pub fn has_joined(&self) -> bool {
        self.has_joined
    }

    /// Whether there was work since the last call.
    #[inline]
    pub fn take_worked(&mut self) -> bool {
        std::mem::replace(&mut self.has_worked, false)
    }

    /// Begins operations that wait, as many as there is room for.
    fn begin_waiting(&mut self) {
        while self.under_way < self.depth
            && let Some(next) = self.waiting.pop_front()
        {
            self.begin(next);
        }
    }

    /// Begins the next request of an operation, for which there is room.
    fn begin(&mut self, index: u32) {
        match self.request(index) {
            Ok(request) => {
                self.slots[index as usize].place = Place::UnderWay;
                self.under_way += 1;
                // SAFETY: the memory of the request is in the slot, or belongs to loans in it, and
                // its vector is that of the slot; neither is touched until the request is answered.
                // If the answer cannot be waited for, they are never freed (`drop`).
                unsafe { self.way.push(index, request) };
            }
            Err(result) => {
                let slot = &mut self.slots[index as usize];
                (slot.place, slot.result) = (Place::Ended, result);
                self.ended.push_back(index);
            }
        }
    }

    /// The next request of an operation, or its result if it needs none.
    fn request(&mut self, index: u32) -> Result<Request, i32> {
        let slot = &mut self.slots[index as usize];
        let Some((operation, _)) = &mut slot.body else { return Err(-libc::EINVAL) };
        let closed = -libc::EBADF;
        let number = |number: u64| i64::try_from(number).map(|_| number).map_err(|_| -libc::EINVAL);
        let buffered =
            |file: FileId| self.files.descriptor(file, false).map(|(file, _)| file).ok_or(closed);
        match operation {
            Operation::Read { .. } | Operation::Write { .. } => self.transfer(index),
            Operation::Sync { file, level } => {
                let is_data_only = *level == SyncLevel::Data;
                Ok(Request::Sync { file: buffered(*file)?, is_data_only })
            }
            Operation::Allocate { file, offset, len } => Ok(Request::Allocate {
                file: buffered(*file)?,
                offset: number(*offset)?,
                len: number(*len)?,
            }),
            Operation::SetLen { file, len } => {
                Ok(Request::SetLen { file: buffered(*file)?, len: number(*len)? })
            }
            Operation::Stat { file, into } => {
                Ok(Request::Stat { fd: buffered(*file)?.fd, into: &raw mut into.0 })
            }
            Operation::Open { path, flags, mode, .. } => {
                Ok(Request::Open { path: path.as_ptr(), flags: *flags, mode: *mode })
            }
            Operation::Close { .. } => {
                Ok(Request::Close { fd: slot.closing.take().ok_or(closed)?.into_raw_fd() })
            }
        }
    }

    /// The rest of a read or a write.
    fn transfer(&mut self, index: u32) -> Result<Request, i32> {
        let slot = &mut self.slots[index as usize];
        let (is_write, file, offset, pieces) = match &mut slot.body {
            Some((Operation::Read { file, offset, into }, _)) => (false, *file, *offset, into),
            Some((Operation::Write { file, offset, from }, _)) => (true, *file, *offset, from),
            _ => return Err(-libc::EINVAL),
        };
        let vector = self.vectors[index as usize].get_mut();
        let Rest { count, len, bits } = rest(pieces, slot.done, vector);
        if count == 0 {
            return Err(0);
        }
        let offset = offset.checked_add(slot.done).ok_or(-libc::EINVAL)?;
        let end = offset.checked_add(len).filter(|end| i64::try_from(*end).is_ok());
        end.ok_or(-libc::EINVAL)?;
        let is_aligned = (bits | offset).is_multiple_of(ALIGNMENT) && !slot.is_buffered;
        let found = self.files.descriptor(file, is_aligned);
        let (file, is_direct) = found.ok_or(-libc::EBADF)?;
        slot.is_direct = is_direct;
        let buffer = self.buffers.iter().position(|it| it.contains(&vector[..count]));
        let transfer = Transfer {
            file,
            offset,
            vector: self.vectors[index as usize].get().cast_const().cast(),
            pieces: count as u32,
            buffer: buffer.map(|number| number as u16),
        };
        Ok(if is_write { Request::Write(transfer) } else { Request::Read(transfer) })
    }

    /// Ends an operation that has a result.
    #[inline]
    fn end(&mut self, index: u32, result: i32) -> Option<Done<T>> {
        let slot = &mut self.slots[index as usize];
        let (operation, tag) = slot.body.take()?;
        let (done, is_cancelled) = (slot.done, slot.is_cancelled);
        slot.generation = slot.generation.wrapping_add(1);
        slot.place = Place::Free;
        slot.closing = None;
        self.free.push(index);
        if let Some(file) = operation.file()
            && !matches!(operation, Operation::Close { .. })
        {
            self.files.leave(file);
        }
        let error = |number: i32| Err(io::Error::from_raw_os_error(number));
        let result = match &operation {
            _ if is_cancelled && result == -libc::EINTR => error(libc::ECANCELED),
            _ if result < 0 => error(-result),
            Operation::Read { into: pieces, .. } | Operation::Write { from: pieces, .. } => {
                let is_whole = done == total(pieces);
                let is_write = matches!(operation, Operation::Write { .. });
                match (is_whole, is_cancelled, is_write) {
                    (false, true, _) => error(libc::ECANCELED),
                    // The system has written nothing, and states no reason.
                    (false, false, true) => error(libc::EIO),
                    _ => Ok(Output::Bytes(done)),
                }
            }
            Operation::Open { caching, .. } => {
                // SAFETY: the system has just returned this descriptor, and nothing else has it.
                let file = unsafe { OwnedFd::from_raw_fd(result) };
                self.enter(OpenFile::new(file, *caching)).map(Output::File)
            }
            _ => Ok(Output::Nothing),
        };
        Some(Done { tag, operation, result })
    }
}

impl<T> Drop for Storage<T> {
    fn drop(&mut self) {
        self.waiting.clear();
        while self.under_way > 0 {
            // What the program wanted back is dropped with the slots, behind this: it may panic.
            if let Some((index, result)) = self.way.reap() {
                self.under_way -= 1;
                let body = &self.slots[index as usize].body;
                if let (Some((Operation::Open { .. }, _)), 0..) = (body, result) {
                    // SAFETY: the system has just returned this descriptor, and nothing else has it.
                    drop(unsafe { OwnedFd::from_raw_fd(result) });
                }
            } else if self.way.wait().is_err() {
                // What the system may still write to is never used again.
                std::mem::forget(std::mem::take(&mut self.slots));
                std::mem::forget(std::mem::take(&mut self.vectors));
                std::mem::forget(std::mem::take(&mut self.holds));
                return;
            }
        }
    }
}

impl<T> std::fmt::Debug for Storage<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (under_way, waiting) = self.open();
        write!(f, "Storage({under_way} of {} under way, {waiting} waiting)", self.depth)
    }
}

/// The most requests under way: half of what a ring has room for.
const DEPTH_MAX: u32 = 16 << 10;
