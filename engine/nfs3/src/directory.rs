//! READDIR and READDIRPLUS: list a directory.

use nfs3_types::nfs3::{
    Nfs3Option, READDIR3args, READDIR3resfail, READDIR3resok, READDIRPLUS3args,
    READDIRPLUS3resfail, READDIRPLUS3resok, cookieverf3, dirlist3, dirlistplus3, entry3,
    entryplus3, nfs_fh3, post_op_attr,
};
use nfs3_types::xdr_codec::{List, Pack};
use rustix::fs::FileType;

use crate::credentials::Identity;
use crate::export::Export;
use crate::handles::HANDLE_LEN;
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
    let all = (*count).min(export.limits().list_max);
    let room = Room::new(all, u32::MAX, ENTRY_LEN);
    let listed = list(export, who, &from, room, |_, _, found| entry3 {
        fileid: found.inode,
        name: found.name.to_vec().into(),
        cookie: found.cookie,
    });
    match listed {
        Ok(Page { dir_attributes, entries, eof }) => {
            let (cookieverf, reply) = (VERIFIER, dirlist3 { entries, eof });
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
    let all = (*maxcount).min(export.limits().list_max);
    let room = Room::new(all, *dircount, ENTRY_PLUS_LEN);
    let listed = list(export, who, &from, room, |node, rights, found| match rights.search {
        Ok(()) => with_attributes(export, node, found),
        // As a LOOKUP, which is refused then.
        Err(_) => without_attributes(found),
    });
    match listed {
        Ok(Page { dir_attributes, entries, eof }) => {
            let (cookieverf, reply) = (VERIFIER, dirlistplus3 { entries, eof });
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
    let Opened { mut listing, rights } = opened;
    let dir_attributes = node.after();
    let mut entries = Vec::new();
    loop {
        let found = match listing.next(room.names_len()) {
            Ok(Some(found)) => listed(export, &node, found),
            Ok(None) => return Ok(Page { dir_attributes, entries: List(entries), eof: true }),
            Err(status) => return Err((status, dir_attributes)),
        };
        let short = ENTRY_LEN + found.name.len().next_multiple_of(4);
        // Checked before the attributes of the file are read.
        let entry = room.has(short).then(|| entry(&node, &rights, found));
        match entry.filter(|entry| room.take(entry.packed_size(), short)) {
            Some(entry) => entries.push(entry),
            None if entries.is_empty() => return Err((Status::NFS3ERR_TOOSMALL, dir_attributes)),
            None => break,
        }
        listing.take();
    }
    export.nodes().listings().keep(listing);
    Ok(Page { dir_attributes, entries: List(entries), eof: false })
}

/// A directory that the caller may read.
struct Opened {
    listing: Listing,
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
    // A cookie of another server.
    if from.cookie != 0 && from.mark != VERIFIER {
        return Err(Status::NFS3ERR_BAD_COOKIE);
    }
    let (nodes, cookie) = (export.nodes(), from.cookie);
    let waiting = (cookie != 0).then(|| nodes.listings().take(&attributes, cookie));
    let listing = match waiting.flatten() {
        Some(listing) => listing,
        None if nodes.medium().keeps_positions() => {
            nodes.opening(|| Listing::open(node, cookie))?
        }
        None => nodes.opening(|| Listing::whole(node, export.key(), cookie))?,
    };
    Ok(Opened { listing, rights })
}

/// A name with the inode number that a client sees: the parent of the export is not in it.
fn listed<'a>(export: &Export, node: &OpenFile, found: &'a ListedName) -> ListedEntry<'a> {
    let inode = match &*found.name {
        b".." => export.nodes().above(node).map_or(node.id().inode, |above| above.id().inode),
        _ => found.inode,
    };
    ListedEntry { cookie: found.cookie, inode, name: &found.name }
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
    /// Bytes of an entry without its name.
    entry: usize,
}

impl Room {
    fn new(all: u32, names: u32, entry: usize) -> Room {
        let left = (all as usize).saturating_sub(AROUND);
        Room { left, names_left: names as usize, entry }
    }

    /// Bytes of the names that are likely to fit, with an entry of READDIR each.
    fn names_len(&self) -> usize {
        self.names_left.min(self.left / self.entry * ENTRY_LEN)
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
/// Bytes of `entryplus3` without the name.
const ENTRY_PLUS_LEN: usize = ENTRY_LEN + 88 + 4 + 4 + HANDLE_LEN;
/// Cookies are valid as long as the directory exists.
const VERIFIER: cookieverf3 = cookieverf3([0; 8]);
/// Status, attributes, verifier, and the two words at the end.
const AROUND: usize = 4 + 88 + 8 + 8;

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::HashMap;
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;

    use super::*;
    use crate::listings::NAMES_READ;
    use crate::tests::Scratch;

    #[test]
    fn a_reply_has_room_for_entries_and_for_names() {
        let plus = AROUND + 3 * ENTRY_PLUS_LEN + 1;
        let mut room = Room::new(plus as u32, 1_000, ENTRY_PLUS_LEN);
        assert_eq!((room.left, room.names_len()), (3 * ENTRY_PLUS_LEN + 1, 3 * ENTRY_LEN));
        assert_eq!(Room::new(plus as u32, 59, ENTRY_PLUS_LEN).names_len(), 59);
        assert_eq!(Room::new(AROUND as u32 - 1, 59, ENTRY_LEN).left, 0);
        assert!(room.has(1_000) == (1_004 <= room.left) && !room.has(1_001));
        // A word says that there is an entry.
        assert!(!room.take(room.left - 3, 1) && room.take(room.left - 104, 990));
        assert_eq!((room.left, room.names_left), (100, 10));
        assert!(room.has(10) && !room.has(11), "dircount");
        room.names_left = 1_000;
        assert!(room.has(96) && !room.has(97), "the reply");
        assert!(!room.take(97, 1) && room.take(96, 1_000) && !room.take(0, 0));
    }

    const NAMES: usize = 4_000;

    /// Directories of `NAMES` files: on the file system of temporary files, and in memory, where
    /// positions are not used.
    fn both() -> [Scratch; 2] {
        [full(Scratch::new()), full(Scratch::within("/dev/shm".as_ref()))]
    }

    fn full(scratch: Scratch) -> Scratch {
        for number in 0..NAMES {
            fs::write(scratch.export().join(format!("file-{number}")), "").expect("made");
        }
        scratch
    }

    type Part = Results<READDIR3resok<'static>, READDIR3resfail>;

    /// Lists a directory in calls of 4 KiB: how often each name came, and how many names were read
    /// for that. `between` is called behind each call, with its number.
    fn list_all(
        dir: &nfs_fh3,
        list: impl Fn(&READDIR3args) -> Part,
        between: impl Fn(usize),
    ) -> (HashMap<Vec<u8>, usize>, usize) {
        let (mut seen, mut cookie, mut cookieverf) = (HashMap::new(), 0, VERIFIER);
        NAMES_READ.set(0);
        for call in 0.. {
            let arguments = READDIR3args { dir: dir.clone(), cookie, cookieverf, count: 4_096 };
            let part = list(&arguments).map_err(|(status, _)| status).expect("a part of the list");
            cookieverf = part.cookieverf;
            for entry in part.reply.entries.into_inner() {
                cookie = entry.cookie;
                *seen.entry(entry.name.as_ref().to_vec()).or_default() += 1;
            }
            if part.reply.eof {
                break;
            }
            between(call);
        }
        (seen, NAMES_READ.get())
    }

    fn check(seen: &HashMap<Vec<u8>, usize>, is_kept: impl Fn(usize) -> bool) {
        for number in (0..NAMES).filter(|number| is_kept(*number)) {
            let name = format!("file-{number}");
            assert_eq!(seen.get(name.as_bytes()), Some(&1), "{name}");
        }
        assert!(seen.values().all(|count| *count == 1), "no name comes twice");
    }

    #[test]
    fn a_list_reads_each_name_once_however_often_the_directory_changes() {
        let scratch = full(Scratch::new());
        let export = scratch.opened();
        let (seen, read) = list_all(
            &export.handle(export.nodes().root()),
            |arguments| readdir(&export, &Identity::Server, arguments),
            |call| fs::write(scratch.export().join(format!("new-{call}")), "").expect("made"),
        );
        check(&seen, |_| true);
        let keeps_positions = export.nodes().medium().keeps_positions();
        assert!(read < NAMES + NAMES / 4 || !keeps_positions, "{read} names were read");
    }

    #[test]
    fn a_list_of_a_directory_that_does_not_change_reads_each_name_once() {
        for scratch in both() {
            let export = scratch.opened();
            let dir = export.handle(export.nodes().root());
            let list = |arguments: &_| readdir(&export, &Identity::Server, arguments);
            let (seen, read) = list_all(&dir, list, |_| {});
            check(&seen, |_| true);
            assert_eq!(read, NAMES + 2);
        }
    }

    #[test]
    fn names_that_stay_come_once_while_others_are_removed_and_added() {
        // Of the removed names some were listed, and some were not.
        let is_kept = |number| number % 4 != 0;
        for scratch in both() {
            let export = scratch.opened();
            let path = |name: String| scratch.export().join(name);
            let (seen, _) = list_all(
                &export.handle(export.nodes().root()),
                |arguments| readdir(&export, &Identity::Server, arguments),
                |call| {
                    let removed = (0..NAMES).filter(|number| !is_kept(*number));
                    for number in removed.skip(call * 40).take(40) {
                        fs::remove_file(path(format!("file-{number}"))).expect("there");
                    }
                    fs::write(path(format!("new-{call}")), "").expect("made");
                },
            );
            check(&seen, is_kept);
        }
    }

    /// A client removes what it has listed, and each call is answered by a server that has just
    /// begun.
    #[test]
    fn a_list_continues_after_a_restart_without_reading_the_names_before() {
        for scratch in both() {
            let export = scratch.opened();
            let listed = RefCell::new(Vec::new());
            let (seen, read) = list_all(
                &export.handle(export.nodes().root()),
                |arguments| {
                    let part = readdir(&scratch.opened(), &Identity::Server, arguments);
                    let names = part.iter().flat_map(|part| &part.reply.entries.0);
                    listed.borrow_mut().extend(names.map(|entry| entry.name.as_ref().to_vec()));
                    part
                },
                |_| {
                    for name in listed.borrow_mut().drain(..).filter(|name| name.len() > 2) {
                        let name = OsStr::from_bytes(&name);
                        fs::remove_file(scratch.export().join(name)).expect("it is there");
                    }
                },
            );
            check(&seen, |_| true);
            let keeps_positions = export.nodes().medium().keeps_positions();
            assert!(read < NAMES + NAMES / 4 || !keeps_positions, "{read} names were read");
        }
    }

    #[test]
    fn the_room_of_a_listing_includes_its_frame() {
        let mut room = Room::new(AROUND as u32 + 100, 50, ENTRY_LEN);
        assert!(room.take(46, 20));
        assert!(!room.take(47, 20), "one byte too many");
        assert!(!room.take(46, 31), "names have their own limit");
        assert!(room.take(46, 30));
        assert!(!Room::new(10, 10, ENTRY_LEN).has(1));
    }
}
