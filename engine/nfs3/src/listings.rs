//! Lists of directories, with cookies that stay valid when the directory changes.
//!
//! The positions of a file system may shift when names are removed: a client that removes the
//! entries it has listed would then miss others. So a cookie is a hash of the name, and a directory
//! is listed in the order of these hashes. After any change, and after a restart, a list continues
//! after the cookie of the client. The names are read again when a client begins a list, and when
//! the directory has changed.
//!
//! ```text
//!   cookie:  0       1     2      8 ..                                2^63
//!            begin   "."   ".."   names, by SipHash of the name
//! ```

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use nfs3_types::nfs3::nfstime3;
use rustix::fs::{Mode, OFlags, RawDir, openat};

use crate::attributes::Attributes;
use crate::handles::{FileId, HandleKey};
use crate::locks::lock;
use crate::node::OpenFile;
use crate::status::{Status, status};

/// The names of a directory at one moment, in the order of their cookies.
#[derive(Debug)]
pub struct Listing {
    directory: FileId,
    /// The directory's time of change before it was read.
    changed: (nfstime3, nfstime3),
    names: Vec<ListedName>,
}

/// A name in a directory.
#[derive(Debug)]
pub struct ListedName {
    /// Its position in the list.
    pub cookie: u64,
    /// The inode number of the file.
    pub inode: u64,
    /// The name.
    pub name: Box<[u8]>,
}

/// The directories that were listed last.
#[derive(Debug, Default)]
pub struct Listings(Mutex<VecDeque<Arc<Listing>>>);

impl Listing {
    /// Reads the names of a directory.
    ///
    /// # Errors
    /// If the file system returns an error.
    pub fn make(
        node: &OpenFile,
        attributes: &Attributes,
        key: &HandleKey,
    ) -> Result<Listing, Status> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(node.fd(), c".", flags, Mode::empty()).map_err(status)?;
        let mut buffer = Vec::with_capacity(LIST_LEN);
        let mut entries = RawDir::new(fd, buffer.spare_capacity_mut());
        let mut names = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(status)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                let cookie = (key.number(name) >> 1).max(COOKIE_MIN);
                names.push(ListedName { cookie, inode: entry.ino(), name: name.into() });
            }
        }
        Ok(Listing {
            directory: attributes.id(),
            changed: attributes.changed(),
            names: order(names),
        })
    }

    /// The names after a cookie, whether or not its own name still exists.
    pub fn behind(&self, cookie: u64) -> &[ListedName] {
        let first = self.names.partition_point(|name| name.cookie <= cookie);
        &self.names[first..]
    }
}

/// Sorts names by cookie, and makes equal cookies unique.
fn order(mut names: Vec<ListedName>) -> Vec<ListedName> {
    names.sort_unstable_by(|one, other| (one.cookie, &one.name).cmp(&(other.cookie, &other.name)));
    let mut last = 0;
    for name in &mut names {
        name.cookie = name.cookie.max(last + 1);
        last = name.cookie;
    }
    names
}

impl Listings {
    /// The list of a directory, if the directory has not changed since.
    pub fn find(&self, attributes: &Attributes) -> Option<Arc<Listing>> {
        let listings = lock(&self.0);
        let (id, changed) = (attributes.id(), attributes.changed());
        let found = listings.iter().find(|listing| listing.directory == id)?;
        (found.changed == changed).then(|| found.clone())
    }

    /// Keeps a list.
    pub fn keep(&self, listing: Arc<Listing>) {
        let mut listings = lock(&self.0);
        listings.retain(|other| other.directory != listing.directory);
        if listings.len() == LISTINGS_MAX {
            listings.pop_back();
        }
        listings.push_front(listing);
    }
}

/// The number of lists kept for clients that continue them.
const LISTINGS_MAX: usize = 16;
/// Smaller cookies are those of "." and "..".
const COOKIE_MIN: u64 = 8;
const LIST_LEN: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn name(cookie: u64, name: &str) -> ListedName {
        ListedName { cookie, inode: 1, name: name.as_bytes().into() }
    }

    fn listing(names: Vec<ListedName>) -> Listing {
        let zero = nfstime3::default();
        Listing {
            directory: FileId { inode: 1, birth: 0 },
            changed: (zero, zero),
            names: order(names),
        }
    }

    #[test]
    fn a_list_continues_after_a_cookie_whose_name_was_removed() {
        let all = listing(vec![name(30, "c"), name(10, "a"), name(20, "b")]);
        let names = |list: &Listing, cookie| {
            let names = list.behind(cookie).iter();
            names.map(|name| String::from_utf8_lossy(&name.name).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(&all, 2), ["a", "b", "c"]);
        assert_eq!(names(&all, 20), ["c"]);
        let less = listing(vec![name(30, "c"), name(10, "a")]);
        assert_eq!(names(&less, 20), ["c"]);
        assert_eq!(names(&less, 30), [""; 0]);
    }

    #[test]
    fn two_names_of_one_number_have_two_cookies() {
        let list = listing(vec![name(10, "b"), name(10, "a"), name(11, "c")]);
        let cookies: Vec<u64> = list.names.iter().map(|name| name.cookie).collect();
        assert_eq!(cookies, [10, 11, 12]);
    }
}
