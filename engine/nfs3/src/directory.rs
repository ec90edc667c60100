//! READDIR and READDIRPLUS.

use std::sync::Arc;

use nfs3_types::nfs3::{
    Nfs3Option, Nfs3Result, READDIR3args, READDIR3res, READDIR3resfail, READDIR3resok,
    READDIRPLUS3args, READDIRPLUS3res, READDIRPLUS3resfail, READDIRPLUS3resok, cookieverf3,
    dirlist3, dirlistplus3, entry3, entryplus3, nfs_fh3,
};
use nfs3_types::xdr_codec::{List, Pack};
use rustix::fs::FileType;

use crate::credentials::{Identity, Want};
use crate::export::Export;
use crate::listings::Listing;
use crate::node::Node;
use crate::status::Status;

/// READDIR
pub fn readdir(export: &Export, who: &Identity, arguments: &READDIR3args) -> READDIR3res<'static> {
    let from =
        From { handle: &arguments.dir, cookie: arguments.cookie, mark: arguments.cookieverf };
    let (node, listing) = match open(export, who, &from) {
        Ok(opened) => opened,
        Err((status, dir_attributes)) => {
            return Nfs3Result::Err((status, READDIR3resfail { dir_attributes }));
        }
    };
    let mut room = Room::new(arguments.count.min(export.limits().list_max), u32::MAX);
    let dir_attributes = node.after();
    let mut entries = Vec::new();
    let mut eof = true;
    for found in entries_behind(export, &node, &listing, from.cookie) {
        let (cookie, fileid, name) = found;
        let entry = entry3 { fileid, name: name.to_vec().into(), cookie };
        if !room.take(entry.packed_size(), entry.packed_size()) {
            eof = false;
            break;
        }
        entries.push(entry);
    }
    if entries.is_empty() && !eof {
        let failed = READDIR3resfail { dir_attributes };
        return Nfs3Result::Err((Status::NFS3ERR_TOOSMALL, failed));
    }
    Nfs3Result::Ok(READDIR3resok {
        dir_attributes,
        cookieverf: cookieverf3(export.key().mark()),
        reply: dirlist3 { entries: List(entries), eof },
    })
}

/// READDIRPLUS
pub fn readdirplus(
    export: &Export,
    who: &Identity,
    arguments: &READDIRPLUS3args,
) -> READDIRPLUS3res<'static> {
    let from =
        From { handle: &arguments.dir, cookie: arguments.cookie, mark: arguments.cookieverf };
    let (node, listing) = match open(export, who, &from) {
        Ok(opened) => opened,
        Err((status, dir_attributes)) => {
            return Nfs3Result::Err((status, READDIRPLUS3resfail { dir_attributes }));
        }
    };
    let maxcount = arguments.maxcount.min(export.limits().list_max);
    let mut room = Room::new(maxcount, arguments.dircount);
    let dir_attributes = node.after();
    let mut entries = Vec::new();
    let mut eof = true;
    for (cookie, fileid, name) in entries_behind(export, &node, &listing, from.cookie) {
        let short = entry3 { fileid, name: name.to_vec().into(), cookie }.packed_size();
        // Before anybody looks at a file that there is no room for.
        if !room.has(short) {
            eof = false;
            break;
        }
        let entry = with_attributes(export, &node, cookie, fileid, name);
        if !room.take(entry.packed_size(), short) {
            eof = false;
            break;
        }
        entries.push(entry);
    }
    if entries.is_empty() && !eof {
        let failed = READDIRPLUS3resfail { dir_attributes };
        return Nfs3Result::Err((Status::NFS3ERR_TOOSMALL, failed));
    }
    Nfs3Result::Ok(READDIRPLUS3resok {
        dir_attributes,
        cookieverf: cookieverf3(export.key().mark()),
        reply: dirlistplus3 { entries: List(entries), eof },
    })
}

/// Where a list is to go on.
struct From<'a> {
    handle: &'a nfs_fh3,
    cookie: u64,
    mark: cookieverf3,
}

type Opened = Result<(Arc<Node>, Arc<Listing>), (Status, nfs3_types::nfs3::post_op_attr)>;

fn open(export: &Export, who: &Identity, from: &From<'_>) -> Opened {
    let node = export.find(from.handle).map_err(|status| (status, Nfs3Option::None))?;
    let listed = node.attributes().and_then(|attributes| {
        if node.kind() != FileType::Directory {
            return Err(Status::NFS3ERR_NOTDIR);
        }
        if !attributes.may(who, Want::Read) {
            return Err(Status::NFS3ERR_ACCES);
        }
        // A cookie of another server, or of before its key was lost.
        if from.cookie != 0 && from.mark.0 != export.key().mark() {
            return Err(Status::NFS3ERR_BAD_COOKIE);
        }
        let known = (from.cookie != 0).then(|| export.listings().find(&attributes)).flatten();
        match known {
            Some(listing) => Ok(listing),
            None => {
                let listing = Arc::new(Listing::make(&node, &attributes, export.key())?);
                export.listings().keep(listing.clone());
                Ok(listing)
            }
        }
    });
    match listed {
        Ok(listing) => Ok((node, listing)),
        Err(status) => Err((status, node.after())),
    }
}

/// What follows a cookie: cookie, inode and name of each.
fn entries_behind<'a>(
    export: &'a Export,
    node: &'a Node,
    listing: &'a Listing,
    cookie: u64,
) -> impl Iterator<Item = (u64, u64, &'a [u8])> {
    let above = || export.nodes().above(node).map_or(node.id().inode, |above| above.id().inode);
    let dots = [(1, node.id().inode, &b"."[..]), (2, 0, b"..")];
    let dots = dots.into_iter().filter(move |(own, ..)| *own > cookie);
    let dots =
        dots.map(move |(own, inode, name)| (own, if own == 2 { above() } else { inode }, name));
    let names = listing.behind(cookie).iter().map(|it| (it.cookie, it.inode, &*it.name));
    dots.chain(names)
}

/// An entry with attributes and handle, as far as they are to be had.
fn with_attributes(
    export: &Export,
    directory: &Node,
    cookie: u64,
    fileid: u64,
    name: &[u8],
) -> entryplus3<'static> {
    let mut entry = entryplus3 {
        fileid,
        name: name.to_vec().into(),
        cookie,
        name_attributes: Nfs3Option::None,
        name_handle: Nfs3Option::None,
    };
    let node = match name {
        b"." => directory.attributes(),
        b".." => export.nodes().above(directory).and_then(|above| above.attributes()),
        name => directory.attributes_of(name),
    };
    // What is mounted there is not exported, and what is gone has nothing.
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

/// Room in a list.
struct Room {
    left: usize,
    /// For names alone, as READDIRPLUS counts them.
    names_left: usize,
}

impl Room {
    fn new(all: u32, names: u32) -> Room {
        Room { left: (all as usize).saturating_sub(AROUND), names_left: names as usize }
    }

    fn has(&self, name: usize) -> bool {
        name + 4 <= self.left && name <= self.names_left
    }

    /// Takes room for an entry, if there is so much.
    fn take(&mut self, entry: usize, name: usize) -> bool {
        // Each entry stands behind a word that says that there is one.
        let Some(left) = self.left.checked_sub(entry + 4) else { return false };
        let Some(names_left) = self.names_left.checked_sub(name) else { return false };
        (self.left, self.names_left) = (left, names_left);
        true
    }
}

/// Status, attributes, verifier, and the two words at the end.
const AROUND: usize = 4 + 88 + 8 + 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_counted_with_what_is_around() {
        let mut room = Room::new(AROUND as u32 + 100, 50);
        assert!(room.take(46, 20));
        assert!(!room.take(47, 20), "one byte too many");
        assert!(!room.take(46, 31), "names have their own limit");
        assert!(room.take(46, 30));
        assert!(!Room::new(10, 10).has(1));
    }
}
