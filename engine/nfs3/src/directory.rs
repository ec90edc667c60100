//! READDIR and READDIRPLUS: list a directory.

use std::sync::Arc;

use nfs3_types::nfs3::{
    Nfs3Option, READDIR3args, READDIR3resfail, READDIR3resok, READDIRPLUS3args,
    READDIRPLUS3resfail, READDIRPLUS3resok, cookieverf3, dirlist3, dirlistplus3, entry3,
    entryplus3, nfs_fh3, post_op_attr,
};
use nfs3_types::xdr_codec::{List, Pack};
use rustix::fs::FileType;

use crate::credentials::Identity;
use crate::export::Export;
use crate::listings::{ListedName, Listing};
use crate::node::OpenFile;
use crate::rights::Rights;
use crate::status::{Results, Status, bare};

/// READDIR
pub fn readdir(
    export: &Export,
    who: &Identity,
    arguments: &READDIR3args,
) -> Results<READDIR3resok<'static>, READDIR3resfail> {
    let READDIR3args { dir: handle, cookie, cookieverf: mark, count } = arguments;
    let from = From { handle, cookie: *cookie, mark: *mark };
    let room = Room::new((*count).min(export.limits().list_max), u32::MAX);
    let listed = list(export, who, &from, room, |_, _, found| entry3 {
        fileid: found.inode,
        name: found.name.to_vec().into(),
        cookie: found.cookie,
    });
    match listed {
        Ok(Page { dir_attributes, entries, eof }) => {
            let (cookieverf, reply) = (verifier(export), dirlist3 { entries, eof });
            Ok(READDIR3resok { dir_attributes, cookieverf, reply })
        }
        Err((status, dir_attributes)) => Err((status, READDIR3resfail { dir_attributes })),
    }
}

/// READDIRPLUS
pub fn readdirplus(
    export: &Export,
    who: &Identity,
    arguments: &READDIRPLUS3args,
) -> Results<READDIRPLUS3resok<'static>, READDIRPLUS3resfail> {
    let READDIRPLUS3args { dir: handle, cookie, cookieverf: mark, dircount, maxcount } = arguments;
    let from = From { handle, cookie: *cookie, mark: *mark };
    let room = Room::new((*maxcount).min(export.limits().list_max), *dircount);
    let listed = list(export, who, &from, room, |node, rights, found| match rights.search {
        Ok(()) => with_attributes(export, node, found),
        // As a LOOKUP, which is refused then.
        Err(_) => without_attributes(found),
    });
    match listed {
        Ok(Page { dir_attributes, entries, eof }) => {
            let (cookieverf, reply) = (verifier(export), dirlistplus3 { entries, eof });
            Ok(READDIRPLUS3resok { dir_attributes, cookieverf, reply })
        }
        Err((status, dir_attributes)) => Err((status, READDIRPLUS3resfail { dir_attributes })),
    }
}

/// The position where a list continues.
struct From<'a> {
    handle: &'a nfs_fh3,
    cookie: u64,
    mark: cookieverf3,
}

/// An entry of a list.
#[derive(Clone, Copy)]
struct ListedEntry<'a> {
    cookie: u64,
    inode: u64,
    name: &'a [u8],
}

/// The part of a list that fits one reply.
struct Page<E> {
    dir_attributes: post_op_attr,
    entries: List<E>,
    eof: bool,
}

fn list<E: Pack>(
    export: &Export,
    who: &Identity,
    from: &From<'_>,
    mut room: Room,
    entry: impl Fn(&OpenFile, &Rights, ListedEntry<'_>) -> E,
) -> Results<Page<E>, post_op_attr> {
    let node = export.find(from.handle).map_err(bare)?;
    let opened = open(export, who, &node, from).map_err(|status| (status, node.after()))?;
    let Opened { listing, rights } = opened;
    let dir_attributes = node.after();
    let mut entries = Vec::new();
    for found in entries_behind(export, &node, &listing, from.cookie) {
        let short = ENTRY_LEN + found.name.len().next_multiple_of(4);
        // Checked before the attributes of the file are read.
        let entry = room.has(short).then(|| entry(&node, &rights, found));
        match entry.filter(|entry| room.take(entry.packed_size(), short)) {
            Some(entry) => entries.push(entry),
            None if entries.is_empty() => return Err((Status::NFS3ERR_TOOSMALL, dir_attributes)),
            None => return Ok(Page { dir_attributes, entries: List(entries), eof: false }),
        }
    }
    Ok(Page { dir_attributes, entries: List(entries), eof: true })
}

/// A directory that the caller may read.
struct Opened {
    listing: Arc<Listing>,
    rights: Rights,
}

fn open(
    export: &Export,
    who: &Identity,
    node: &OpenFile,
    from: &From<'_>,
) -> Result<Opened, Status> {
    let attributes = node.attributes()?;
    if node.kind() != FileType::Directory {
        return Err(Status::NFS3ERR_NOTDIR);
    }
    let rights = Rights::of(node, who, &attributes)?;
    rights.read?;
    // A cookie of another server, or of an earlier key.
    if from.cookie != 0 && from.mark != verifier(export) {
        return Err(Status::NFS3ERR_BAD_COOKIE);
    }
    let known = (from.cookie != 0).then(|| export.listings().find(&attributes)).flatten();
    if let Some(listing) = known {
        return Ok(Opened { listing, rights });
    }
    let listing = Arc::new(Listing::make(node, &attributes, export.key())?);
    export.listings().keep(listing.clone());
    Ok(Opened { listing, rights })
}

/// The cookie verifier of this server's key.
fn verifier(export: &Export) -> cookieverf3 {
    cookieverf3(export.key().mark())
}

/// The entries after a cookie.
fn entries_behind<'a>(
    export: &'a Export,
    node: &'a OpenFile,
    listing: &'a Listing,
    cookie: u64,
) -> impl Iterator<Item = ListedEntry<'a>> {
    let itself = node.id().inode;
    let above = move || export.nodes().above(node).map_or(itself, |above| above.id().inode);
    let dots = [(1, &b"."[..]), (2, b"..")].into_iter().filter(move |(own, _)| *own > cookie);
    let dots = dots.map(move |(own, name)| {
        let inode = if own == 2 { above() } else { itself };
        ListedEntry { cookie: own, inode, name }
    });
    let names = listing.behind(cookie).iter();
    let found =
        |it: &'a ListedName| ListedEntry { cookie: it.cookie, inode: it.inode, name: &it.name };
    dots.chain(names.map(found))
}

fn without_attributes(found: ListedEntry<'_>) -> entryplus3<'static> {
    let ListedEntry { cookie, inode, name } = found;
    entryplus3 {
        fileid: inode,
        name: name.to_vec().into(),
        cookie,
        name_attributes: Nfs3Option::None,
        name_handle: Nfs3Option::None,
    }
}

/// An entry with its attributes and handle, if they are available.
fn with_attributes(
    export: &Export,
    directory: &OpenFile,
    found: ListedEntry<'_>,
) -> entryplus3<'static> {
    let mut entry = without_attributes(found);
    let name = found.name;
    let node = match name {
        b"." => directory.attributes(),
        b".." => export.nodes().above(directory).and_then(|above| above.attributes()),
        name => directory.attributes_of(name),
    };
    // A mount point is not exported, and a removed file has no attributes.
    if let Ok(attributes) = node
        && attributes.device() == export.nodes().device()
    {
        let id = attributes.id();
        if name != b"." && name != b".." {
            export.nodes().note(id.inode, directory, name);
        }
        entry.fileid = id.inode;
        entry.name_attributes = Nfs3Option::Some(attributes.fattr());
        entry.name_handle = Nfs3Option::Some(export.key().handle(id));
    }
    entry
}

/// The room that is left in a reply.
struct Room {
    left: usize,
    /// For names without attributes, which READDIRPLUS limits separately (`dircount`).
    names_left: usize,
}

impl Room {
    fn new(all: u32, names: u32) -> Room {
        Room { left: (all as usize).saturating_sub(AROUND), names_left: names as usize }
    }

    fn has(&self, name: usize) -> bool {
        name + 4 <= self.left && name <= self.names_left
    }

    /// Reserves room for an entry, if it fits.
    fn take(&mut self, entry: usize, name: usize) -> bool {
        // A word in front of each entry states that it exists.
        let Some(left) = self.left.checked_sub(entry + 4) else { return false };
        let Some(names_left) = self.names_left.checked_sub(name) else { return false };
        (self.left, self.names_left) = (left, names_left);
        true
    }
}

/// Bytes of `entry3` without the name.
const ENTRY_LEN: usize = 20;
/// Status, attributes, verifier, and the two words at the end.
const AROUND: usize = 4 + 88 + 8 + 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_of_a_listing_includes_its_frame() {
        let mut room = Room::new(AROUND as u32 + 100, 50);
        assert!(room.take(46, 20));
        assert!(!room.take(47, 20), "one byte too many");
        assert!(!room.take(46, 31), "names have their own limit");
        assert!(room.take(46, 30));
        assert!(!Room::new(10, 10).has(1));
    }
}
