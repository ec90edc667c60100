//! Lists of directories, with cookies that stay good.
//!
//! The position in a directory that a file system gives out may shift when names go: a client that
//! removes what it has listed so far would then miss others. So a cookie is a number made of the
//! name, and a directory is listed in the order of these numbers: after any change, and after a
//! restart, the list goes on behind the cookie where it would have gone on before. A list is made
//! anew when one begins, and when the directory was changed.
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
use crate::handles::{FileId, Key};
use crate::locks::lock;
use crate::node::Node;
use crate::status::{Status, status};

/// The names of a directory at one moment, by cookie.
#[derive(Debug)]
pub struct Listing {
    directory: FileId,
    /// When it was changed last, before it was listed.
    changed: (nfstime3, nfstime3),
    names: Vec<Name>,
}

/// A name in a directory.
#[derive(Debug)]
pub struct Name {
    /// Its place in the list.
    pub cookie: u64,
    /// What it names.
    pub inode: u64,
    /// The name.
    pub name: Box<[u8]>,
}

/// The directories that were listed last.
#[derive(Debug, Default)]
pub struct Listings(Mutex<VecDeque<Arc<Listing>>>);

impl Listing {
    /// Lists a directory.
    ///
    /// # Errors
    /// If the file system does not let it.
    pub fn make(node: &Node, attributes: &Attributes, key: &Key) -> Result<Listing, Status> {
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
                names.push(Name { cookie, inode: entry.ino(), name: name.into() });
            }
        }
        Ok(Listing {
            directory: attributes.id(),
            changed: attributes.changed(),
            names: order(names),
        })
    }

    /// The names behind a cookie, whether its own is still there or not.
    pub fn behind(&self, cookie: u64) -> &[Name] {
        let first = self.names.partition_point(|name| name.cookie <= cookie);
        &self.names[first..]
    }
}

/// Brings names in the order of their cookies, each with a cookie of its own.
fn order(mut names: Vec<Name>) -> Vec<Name> {
    names.sort_unstable_by(|one, other| (one.cookie, &one.name).cmp(&(other.cookie, &other.name)));
    let mut last = 0;
    for name in &mut names {
        name.cookie = name.cookie.max(last + 1);
        last = name.cookie;
    }
    names
}

impl Listings {
    /// The list of a directory, if it was not changed since.
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

/// Lists that are kept: continued by clients that have not seen their end.
const LISTINGS_MAX: usize = 16;
/// Below are those of "." and "..".
const COOKIE_MIN: u64 = 8;
const LIST_LEN: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn name(cookie: u64, name: &str) -> Name {
        Name { cookie, inode: 1, name: name.as_bytes().into() }
    }

    fn listing(names: Vec<Name>) -> Listing {
        let zero = nfstime3::default();
        Listing {
            directory: FileId { inode: 1, birth: 0 },
            changed: (zero, zero),
            names: order(names),
        }
    }

    #[test]
    fn a_list_goes_on_behind_a_cookie_whose_name_is_gone() {
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
