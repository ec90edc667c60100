//! Lists of directories: the names in the order of the file system, and its positions as cookies.
//!
//! ```text
//!   cookie 0 ───────────────────────────▶ open the directory
//!   cookie ──▶ a list that waits there? ─▶ go on with it
//!               └─ no ──────────────────▶ open the directory, and go to that position
//! ```
//! The cookie of a name is the position behind it, as getdents(2) returns it. Most file systems keep
//! the positions of names for as long as the directory exists: a list continues after any change of
//! the directory and after a restart. For the others (overlayfs, a tmpfs before Linux 6.6) the list
//! must be continued with the descriptor that began it; so the lists of the last calls stay open.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use rustix::fs::{Mode, OFlags, RawDir, SeekFrom, openat, seek};
use rustix::io::Errno;

use crate::handles::FileId;
use crate::locks::lock;
use crate::node::OpenFile;
use crate::status::{Status, status};

/// A directory that is being listed.
#[derive(Debug)]
pub struct Listing {
    directory: FileId,
    fd: OwnedFd,
    /// The cookie of the name that was taken last; 0 at the beginning.
    position: u64,
    /// The names behind it that were read and not taken.
    ahead: VecDeque<ListedName>,
}

/// A name in a directory.
#[derive(Debug)]
pub struct ListedName {
    /// The position behind it.
    pub cookie: u64,
    /// The inode number of the file.
    pub inode: u64,
    /// The name.
    pub name: Box<[u8]>,
}

/// The lists that were not ended.
#[derive(Debug)]
pub struct Listings {
    /// The last one is at the back.
    lists: Mutex<VecDeque<Listing>>,
    max: usize,
}

impl Listing {
    /// Opens a directory at the position of a cookie.
    ///
    /// # Errors
    /// `NFS3ERR_BAD_COOKIE` if the file system has no such position.
    pub fn open(node: &OpenFile, cookie: u64) -> Result<Listing, Status> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(node.fd(), c".", flags, Mode::empty()).map_err(status)?;
        if cookie != 0 {
            seek(&fd, SeekFrom::Start(cookie)).map_err(|error| match error {
                Errno::INVAL => Status::NFS3ERR_BAD_COOKIE,
                error => status(error),
            })?;
        }
        Ok(Listing { directory: node.id(), fd, position: cookie, ahead: VecDeque::new() })
    }

    /// The next name; `None` at the end. Reads some `len` bytes of names if it has none.
    ///
    /// # Errors
    /// If the file system returns an error.
    pub fn next(&mut self, len: usize) -> Result<Option<&ListedName>, Status> {
        if self.ahead.is_empty() {
            self.read(len)?;
        }
        Ok(self.ahead.front())
    }

    /// Takes the next name.
    pub fn take(&mut self) {
        if let Some(taken) = self.ahead.pop_front() {
            self.position = taken.cookie;
        }
    }

    /// Reads the names of one system call.
    fn read(&mut self, len: usize) -> Result<(), Status> {
        let mut buffer = Vec::with_capacity(len.clamp(READ_MIN, READ_MAX));
        let mut entries = RawDir::new(&self.fd, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(status)?;
            let (cookie, inode) = (entry.next_entry_cookie(), entry.ino());
            let name = entry.file_name().to_bytes().into();
            self.ahead.push_back(ListedName { cookie, inode, name });
            if entries.is_buffer_empty() {
                break;
            }
        }
        #[cfg(test)]
        NAMES_READ.with(|read| read.set(read.get() + self.ahead.len()));
        Ok(())
    }
}

impl Listings {
    /// None yet, in a process that may have so many descriptors.
    pub fn new(descriptors: u64) -> Listings {
        let share = usize::try_from(descriptors / 8).unwrap_or(usize::MAX);
        Listings { lists: Mutex::default(), max: share.clamp(1, LISTS_MAX) }
    }

    /// Takes the list of a directory that waits at this position.
    pub fn take(&self, directory: FileId, position: u64) -> Option<Listing> {
        let mut lists = lock(&self.lists);
        let is_it = |list: &Listing| list.directory == directory && list.position == position;
        let index = lists.iter().rposition(is_it)?;
        lists.remove(index)
    }

    /// Keeps a list for the call that continues it.
    pub fn keep(&self, list: Listing) {
        let mut lists = lock(&self.lists);
        lists.push_back(list);
        let oldest = if lists.len() > self.max { lists.pop_front() } else { None };
        // Closing a directory may take long: not under the lock.
        drop(lists);
        drop(oldest);
    }

    /// Closes the older half of the lists; false if there is none.
    pub fn give_back(&self) -> bool {
        let mut lists = lock(&self.lists);
        let half = lists.len().div_ceil(2);
        let ended: Vec<Listing> = lists.drain(..half).collect();
        drop(lists);
        !ended.is_empty()
    }
}

/// The largest number of lists that stay open.
const LISTS_MAX: usize = 32;
/// Bytes of one getdents call: enough for any name, and at most so many.
const READ_MIN: usize = 1 << 10;
const READ_MAX: usize = 64 << 10;

#[cfg(test)]
thread_local! {
    /// The number of names that this thread has read from directories.
    pub static NAMES_READ: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
