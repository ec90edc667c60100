//! Lists of directories: the names in the order of the file system, and its positions as cookies.
//!
//! ```text
//!   cookie 0 ───────────────────────────▶ open the directory
//!   cookie ──▶ a list that waits there? ─▶ go on with it
//!               └─ no ──────────────────▶ open the directory, and go to that position
//! ```
//! The cookie of a name is the position behind it, as getdents(2) returns it. Most file systems
//! keep the positions of names for as long as the directory exists: a list continues after any
//! change of the directory and after a restart. On the others the positions shift, and a client
//! that removes what it has listed would miss names. There the cookie is a hash of the name, and
//! the list is in the order of the hashes: the directory is read as a whole at the beginning, and
//! when it has changed.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use nfs3_types::nfs3::nfstime3;
use rustix::fs::{Mode, OFlags, RawDir, SeekFrom, openat, seek};
use rustix::io::Errno;

use crate::attributes::Attributes;
use crate::handles::{FileId, HandleKey};
use crate::locks::lock;
use crate::node::OpenFile;
use crate::status::{Status, status};

/// A directory that is being listed.
#[derive(Debug)]
pub struct Listing {
    directory: FileId,
    source: NameSource,
    /// The cookie of the name that was taken last; 0 at the beginning.
    position: u64,
    /// The names behind it that were read and not taken.
    ahead: VecDeque<ListedName>,
}

/// Where names come from.
#[derive(Debug)]
enum NameSource {
    /// The directory, at the position of the next names.
    Descriptor(OwnedFd),
    /// All were read; with the directory's time of change before that.
    Whole((nfstime3, nfstime3)),
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
        let fd = openat(node.fd(), c".", LIST, Mode::empty()).map_err(status)?;
        if cookie != 0 {
            seek(&fd, SeekFrom::Start(cookie)).map_err(|error| match error {
                Errno::INVAL => Status::NFS3ERR_BAD_COOKIE,
                error => status(error),
            })?;
        }
        let source = NameSource::Descriptor(fd);
        Ok(Listing { directory: node.id(), source, position: cookie, ahead: VecDeque::new() })
    }

    /// Reads a directory as a whole, in the order of a hash of the names with this key, which are
    /// the cookies. Begins behind a cookie, whether or not its own name still exists.
    ///
    /// # Errors
    /// If the file system returns an error.
    pub fn whole(node: &OpenFile, key: &HandleKey, cookie: u64) -> Result<Listing, Status> {
        let before = node.attributes()?;
        let mut names = Vec::new();
        let mut listing = Listing::open(node, 0)?;
        while listing.next(READ_MAX)?.is_some() {
            names.extend(listing.ahead.drain(..));
        }
        names.iter_mut().for_each(|found| found.cookie = key.number(&found.name) >> 1);
        let mut ahead = order(names);
        ahead.retain(|found| found.cookie > cookie);
        let source = NameSource::Whole(before.changed());
        Ok(Listing { source, position: cookie, ahead: ahead.into(), ..listing })
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
        let NameSource::Descriptor(fd) = &self.source else { return Ok(()) };
        let mut buffer = Vec::with_capacity(len.clamp(READ_MIN, READ_MAX));
        let mut entries = RawDir::new(fd, buffer.spare_capacity_mut());
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
    pub fn take(&self, directory: &Attributes, position: u64) -> Option<Listing> {
        let mut lists = lock(&self.lists);
        let is_it = |list: &Listing| {
            let is_there = list.directory == directory.id() && list.position == position;
            is_there
                && match &list.source {
                    NameSource::Descriptor(_) => true,
                    NameSource::Whole(changed) => *changed == directory.changed(),
                }
        };
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

/// Sorts names by cookie, and makes equal cookies unique. No cookie is 0.
fn order(mut names: Vec<ListedName>) -> Vec<ListedName> {
    names.sort_unstable_by(|one, other| (one.cookie, &one.name).cmp(&(other.cookie, &other.name)));
    let mut last = 0;
    for name in &mut names {
        name.cookie = name.cookie.max(last + 1);
        last = name.cookie;
    }
    names
}

const LIST: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_number_have_cookies_of_their_own() {
        let name =
            |cookie, name: &str| ListedName { cookie, inode: 1, name: name.as_bytes().into() };
        let list = order(vec![name(10, "b"), name(10, "a"), name(0, "d"), name(11, "c")]);
        let cookies: Vec<u64> = list.iter().map(|name| name.cookie).collect();
        assert_eq!(cookies, [1, 10, 11, 12]);
    }
}
