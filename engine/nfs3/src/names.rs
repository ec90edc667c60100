//! Procedures on names: CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK and LOOKUP.

use std::sync::{Arc, MutexGuard};

use arrayvec::ArrayVec;
use nfs3_types::nfs3::{
    CREATE3args, CREATE3resfail, CREATE3resok, LINK3args, LINK3resfail, LINK3resok, LOOKUP3args,
    LOOKUP3resfail, LOOKUP3resok, MKDIR3args, MKNOD3args, REMOVE3args, REMOVE3resfail,
    REMOVE3resok, RENAME3args, RENAME3resfail, RENAME3resok, SYMLINK3args, createhow3, createverf3,
    diropargs3, mknoddata3, nfstime3, sattr3, set_atime, set_mtime, wcc_data,
};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, linkat, makedev, mkdirat, mknodat, openat, renameat,
    symlinkat, unlinkat,
};

use crate::attributes::{Attributes, some};
use crate::changes::{apply, mode, of_empty, sets_any, without_mode};
use crate::credentials::Identity;
use crate::export::{Export, Storage};
use crate::node::OpenFile;
use crate::nodes::NameIn;
use crate::rights::Rights;
use crate::status::{Results, Status, bare, status};

/// LOOKUP
pub fn lookup(
    export: &Export,
    who: &Identity,
    arguments: &LOOKUP3args<'_>,
) -> Results<LOOKUP3resok, LOOKUP3resfail> {
    let directory = export.find(&arguments.what.dir).map_err(bare)?;
    let found = match arguments.what.name.as_ref() {
        name @ (b"." | b"..") if directory.kind() == FileType::Directory => {
            let searched = directory.attributes().and_then(|now| {
                let rights = Rights::of(&directory, who, &now)?;
                rights.search
            });
            searched.and_then(|()| match name {
                b"." => Ok(directory.clone()),
                _ => export.nodes().above(&directory),
            })
        }
        name => sound(name).and_then(|()| who.act(|| named(export, who, &directory, name))),
    };
    let dir_attributes = directory.after();
    match found {
        Ok(node) => {
            let (object, obj_attributes) = (export.handle(&node), node.after());
            Ok(LOOKUP3resok { object, obj_attributes, dir_attributes })
        }
        Err(status) => Err((status, LOOKUP3resfail { dir_attributes })),
    }
}

/// Looks a name up with the identity of the calling thread, which is that of `who`.
fn named(
    export: &Export,
    who: &Identity,
    directory: &OpenFile,
    name: &[u8],
) -> Result<Arc<OpenFile>, Status> {
    let node = export.nodes().look_up(directory, name)?;
    // A client mostly asks for the rights next: a shard then has the answer.
    if *who != Identity::Server
        && let Ok(now) = node.attributes()
    {
        let _ = Rights::ask(&node, who, &now);
    }
    Ok(node)
}

/// The results of CREATE, MKDIR, SYMLINK and MKNOD, which have the same form (RFC 1813 3.3.8 to
/// 11).
type Made = Results<CREATE3resok, CREATE3resfail>;

/// CREATE
pub fn create(export: &Export, who: &Identity, arguments: &CREATE3args<'_>) -> Made {
    let making = Making { export, who, place: &arguments.where_, removal: AtFlags::empty() };
    making.run(|directory, name| match &arguments.how {
        createhow3::UNCHECKED(attributes) => {
            let mode = mode(attributes, 0o644);
            match plain(export, who, directory, name, mode) {
                Err(Status::NFS3ERR_EXIST) => reuse(export, who, directory, name, attributes),
                made => made.map(|()| New::Made(of_empty(attributes))),
            }
        }
        createhow3::GUARDED(attributes) => {
            let mode = mode(attributes, 0o644);
            plain(export, who, directory, name, mode)?;
            Ok(New::Made(of_empty(attributes)))
        }
        createhow3::EXCLUSIVE(verifier) => exclusive(export, directory, name, *verifier, who),
    })
}

/// MKDIR
pub fn mkdir(export: &Export, who: &Identity, arguments: &MKDIR3args<'_>) -> Made {
    let making = Making { export, who, place: &arguments.where_, removal: AtFlags::REMOVEDIR };
    making.run(|directory, name| {
        let mode = mode(&arguments.attributes, 0o755);
        who.act(|| mkdirat(directory.fd(), name, mode).map_err(status))?;
        Ok(New::Made(without_mode(&arguments.attributes)))
    })
}

/// SYMLINK
pub fn symlink(export: &Export, who: &Identity, arguments: &SYMLINK3args<'_>) -> Made {
    let making = Making { export, who, place: &arguments.where_, removal: AtFlags::empty() };
    making.run(|directory, name| {
        let target = arguments.symlink.symlink_data.as_ref();
        if target.contains(&0) {
            return Err(Status::NFS3ERR_INVAL);
        }
        who.act(|| symlinkat(target, directory.fd(), name).map_err(status))?;
        Ok(New::Made(without_mode(&arguments.symlink.symlink_attributes)))
    })
}

/// MKNOD
pub fn mknod(export: &Export, who: &Identity, arguments: &MKNOD3args<'_>) -> Made {
    let making = Making { export, who, place: &arguments.where_, removal: AtFlags::empty() };
    making.run(|directory, name| {
        let (kind, attributes, device) = match &arguments.what {
            mknoddata3::NF3CHR(device) => {
                (FileType::CharacterDevice, &device.dev_attributes, Some(&device.spec))
            }
            mknoddata3::NF3BLK(device) => {
                (FileType::BlockDevice, &device.dev_attributes, Some(&device.spec))
            }
            mknoddata3::NF3SOCK(attributes) => (FileType::Socket, attributes, None),
            mknoddata3::NF3FIFO(attributes) => (FileType::Fifo, attributes, None),
            mknoddata3::default => return Err(Status::NFS3ERR_BADTYPE),
        };
        let device = device.map_or(0, |spec| makedev(spec.specdata1, spec.specdata2));
        let mode = mode(attributes, 0o600);
        who.act(|| mknodat(directory.fd(), name, kind, mode, device).map_err(status))?;
        Ok(New::Made(without_mode(attributes)))
    })
}

/// REMOVE, or RMDIR with `AtFlags::REMOVEDIR`: their results have the same form (RFC 1813 3.3.12
/// and 13).
pub fn remove(
    export: &Export,
    who: &Identity,
    arguments: &REMOVE3args<'_>,
    flags: AtFlags,
) -> Results<REMOVE3resok, REMOVE3resfail> {
    let directory = export.find(&arguments.object.dir).map_err(bare)?;
    let name = arguments.object.name.as_ref();
    let (removed, dir_wcc) = change(export, &directory, |storage| {
        ordinary(name)?;
        take_away(export, who, &directory, name, flags)?;
        storage.persist()
    });
    match removed {
        Ok(()) => Ok(REMOVE3resok { dir_wcc }),
        Err(status) => Err((status, REMOVE3resfail { dir_wcc })),
    }
}

/// RENAME
pub fn rename(
    export: &Export,
    who: &Identity,
    arguments: &RENAME3args<'_, '_>,
) -> Results<RENAME3resok, RENAME3resfail> {
    let from = export.find(&arguments.from.dir).map_err(bare)?;
    let to = export.find(&arguments.to.dir).map_err(bare)?;
    let (old, new) = (arguments.from.name.as_ref(), arguments.to.name.as_ref());
    let Alone { moved, _locks } = Alone::for_rename(export, &from, old, &to);
    let (from_before, to_before) = (from.before(), to.before());
    let renamed = ordinary(old).and_then(|()| ordinary(new)).and_then(|()| {
        let storages = [export.storage(&from)?, export.storage(&to)?];
        let replaced = seen_at(&to, new);
        let moving = export.nodes().moving();
        who.act(|| renameat(from.fd(), old, to.fd(), new).map_err(status))?;
        // A RENAME between two names of one file does nothing.
        let replaced_id = replaced.as_ref().map(Attributes::id);
        if let Some(moved) = moved.filter(|moved| Some(moved.id()) != replaced_id) {
            if let Some(replaced) = replaced {
                export.nodes().forget(&replaced, &to, new);
            }
            let place = |directory, name| NameIn { directory, name };
            moving.moved(&moved, place(&from, old), place(&to, new));
        }
        let count = if from.id() == to.id() { 1 } else { 2 };
        storages[..count].iter().try_for_each(Storage::persist)
    });
    let (fromdir_wcc, todir_wcc) = (from.wcc(from_before), to.wcc(to_before));
    match renamed {
        Ok(()) => Ok(RENAME3resok { fromdir_wcc, todir_wcc }),
        Err(status) => Err((status, RENAME3resfail { fromdir_wcc, todir_wcc })),
    }
}

/// No other call changes the directories of a RENAME, or a name in the directory that it moves: such
/// a change would span the move, which changes that directory, too.
struct Alone<'a> {
    /// What is moved.
    moved: Option<Attributes>,
    _locks: ArrayVec<MutexGuard<'a, ()>, 3>,
}

impl<'a> Alone<'a> {
    fn for_rename(export: &'a Export, from: &OpenFile, old: &[u8], to: &OpenFile) -> Alone<'a> {
        let is_sound = ordinary(old).is_ok();
        let look = || if is_sound { seen_at(from, old) } else { None };
        let inode = |moved: &Option<Attributes>| {
            moved.as_ref().map_or(from.id().inode, |moved| moved.id().inode)
        };
        let mut moved = look();
        loop {
            let locks = export.change_all([from.id().inode, to.id().inode, inode(&moved)]);
            let now = look();
            if inode(&now) == inode(&moved) {
                return Alone { moved: now, _locks: locks };
            }
            // Before the locks were taken, the name became that of another file.
            moved = now;
        }
    }
}

/// LINK
pub fn link(
    export: &Export,
    who: &Identity,
    arguments: &LINK3args<'_>,
) -> Results<LINK3resok, LINK3resfail> {
    let (file, link) = (&arguments.file, &arguments.link);
    let both = export.find(file).and_then(|node| Ok((node, export.find(&link.dir)?)));
    let (node, directory) = both.map_err(|status| {
        let (file_attributes, linkdir_wcc) = (some(None), wcc_data::default());
        (status, LINK3resfail { file_attributes, linkdir_wcc })
    })?;
    let name = link.name.as_ref();
    let (linked, linkdir_wcc) = change(export, &directory, |storage| {
        fresh(name)?;
        let flags = AtFlags::SYMLINK_FOLLOW;
        // The link that is followed is that of the descriptor in /proc.
        let moving = export.nodes().moving();
        who.act(|| linkat(CWD, node.path(), directory.fd(), name, flags).map_err(status))?;
        moving.linked(&node, NameIn { directory: &directory, name });
        storage.persist().inspect_err(|_| {
            // The error is the answer, whether or not the link can be removed.
            let _ = take_away(export, who, &directory, name, AtFlags::empty());
        })
    });
    let file_attributes = node.after();
    match linked {
        Ok(()) => Ok(LINK3resok { file_attributes, linkdir_wcc }),
        Err(status) => Err((status, LINK3resfail { file_attributes, linkdir_wcc })),
    }
}

/// Changes a directory. What the change needs is there before it: `how` may change the directory,
/// and brings it to stable storage.
fn change<T>(
    export: &Export,
    directory: &OpenFile,
    how: impl FnOnce(&Storage<'_>) -> Result<T, Status>,
) -> (Result<T, Status>, wcc_data) {
    let _alone = export.change(directory);
    let before = directory.before();
    let changed = export.storage(directory).and_then(|storage| how(&storage));
    (changed, directory.wcc(before))
}

/// Removes a name.
fn take_away(
    export: &Export,
    who: &Identity,
    directory: &OpenFile,
    name: &[u8],
    flags: AtFlags,
) -> Result<(), Status> {
    let there = seen_at(directory, name);
    who.act(|| unlinkat(directory.fd(), name, flags).map_err(status))?;
    if let Some(there) = there {
        export.nodes().forget(&there, directory, name);
    }
    Ok(())
}

/// A file that a call creates.
struct Making<'a> {
    export: &'a Export,
    who: &'a Identity,
    place: &'a diropargs3<'a>,
    /// How it is removed again.
    removal: AtFlags,
}

/// What a call has created or found, and the attributes that remain to be set.
enum New {
    Made(sattr3),
    Found(Arc<OpenFile>, sattr3),
}

impl Making<'_> {
    fn run(&self, how: impl FnOnce(&OpenFile, &[u8]) -> Result<New, Status>) -> Made {
        let Making { export, who, place, .. } = *self;
        let directory = export.find(&place.dir).map_err(bare)?;
        let name = place.name.as_ref();
        let (made, dir_wcc) = change(export, &directory, |storage| {
            fresh(name)?;
            match how(&directory, name)? {
                New::Made(rest) => self.complete(&directory, storage, &rest),
                New::Found(node, rest) => {
                    let own = export.storage(&node)?;
                    apply(export.nodes(), &node, &rest, who)?;
                    // Also what was set when it was made: that call may have failed.
                    own.persist()?;
                    storage.persist()?;
                    Ok(Some(node.clone()))
                }
            }
        });
        match made {
            Ok(node) => {
                // Without a handle the client looks the name up.
                let obj = some(node.as_ref().map(|node| export.handle(node)));
                let obj_attributes = node.map_or(some(None), |node| node.after());
                Ok(CREATE3resok { obj, obj_attributes, dir_wcc })
            }
            Err(status) => Err((status, CREATE3resfail { dir_wcc })),
        }
    }

    /// Sets the remaining attributes of what was made. If that fails, it is removed again. If it
    /// cannot be removed, the call has made it, and says so.
    fn complete(
        &self,
        directory: &OpenFile,
        storage: &Storage<'_>,
        rest: &sattr3,
    ) -> Result<Option<Arc<OpenFile>>, Status> {
        let Making { export, who, place, removal } = *self;
        let name = place.name.as_ref();
        let undo = || take_away(export, who, directory, name, removal);
        let found = export.nodes().look_up(directory, name);
        let set = found.as_ref().map_err(|status| *status).and_then(|node| {
            // The directory brings to stable storage what the file was made with, and no more.
            let own = if sets_any(rest) { Some(export.storage(node)?) } else { None };
            apply(export.nodes(), node, rest, who)?;
            Ok((own, node.clone()))
        });
        let (own, node) = match set {
            Ok((own, node)) => (own, Some(node)),
            Err(status) if undo().is_ok() => return Err(status),
            Err(_) => (None, None),
        };
        let persisted = own.as_ref().map_or(Ok(()), Storage::persist);
        persisted.and_then(|()| storage.persist()).inspect_err(|_| {
            // The error is the answer, whether or not it can be removed.
            let _ = undo();
        })?;
        Ok(node)
    }
}

/// Creates an empty regular file that does not exist.
fn plain(
    export: &Export,
    who: &Identity,
    directory: &OpenFile,
    name: &[u8],
    mode: Mode,
) -> Result<(), Status> {
    let create = || openat(directory.fd(), name, NEW, mode).map(drop).map_err(status);
    export.nodes().opening(|| who.act(create))
}

/// An UNCHECKED CREATE of an existing file: it may set the length.
fn reuse(
    export: &Export,
    who: &Identity,
    directory: &OpenFile,
    name: &[u8],
    attributes: &sattr3,
) -> Result<New, Status> {
    let node = who.act(|| export.nodes().look_up(directory, name))?;
    if node.kind() != FileType::RegularFile {
        return Err(Status::NFS3ERR_EXIST);
    }
    Ok(New::Found(node, sattr3 { size: attributes.size, ..sattr3::default() }))
}

/// An EXCLUSIVE CREATE: the verifier is stored in the times of the file until the client sets them,
/// so that a repeated call finds its own file, also after a restart of the server.
fn exclusive(
    export: &Export,
    directory: &OpenFile,
    name: &[u8],
    verifier: createverf3,
    who: &Identity,
) -> Result<New, Status> {
    let verifier = u64::from_be_bytes(verifier.0);
    // Some file systems store only 31 bits.
    let stamps = [verifier >> 32, verifier].map(|word| word as u32 & 0x7fff_ffff);
    match plain(export, who, directory, name, Mode::RUSR | Mode::WUSR) {
        Ok(()) => {
            let [accessed, modified] = stamps.map(|seconds| nfstime3 { seconds, nseconds: 0 });
            Ok(New::Made(sattr3 {
                atime: set_atime::SET_TO_CLIENT_TIME(accessed),
                mtime: set_mtime::SET_TO_CLIENT_TIME(modified),
                ..sattr3::default()
            }))
        }
        Err(Status::NFS3ERR_EXIST) => {
            let node = export.nodes().look_up(directory, name)?;
            let there = node.attributes()?;
            let [accessed, modified] = stamps.map(i64::from);
            let is_ours = there.kind() == FileType::RegularFile
                && there.size() == 0
                && there.stamps() == (accessed, modified);
            let found = New::Found(node, sattr3::default());
            if is_ours { Ok(found) } else { Err(Status::NFS3ERR_EXIST) }
        }
        Err(status) => Err(status),
    }
}

fn seen_at(directory: &OpenFile, name: &[u8]) -> Option<Attributes> {
    directory.attributes_of(name).ok()
}

/// Checks that a name can exist in a directory.
fn sound(name: &[u8]) -> Result<(), Status> {
    if name.len() > NAME_MAX {
        return Err(Status::NFS3ERR_NAMETOOLONG);
    }
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(Status::NFS3ERR_ACCES);
    }
    Ok(())
}

/// Checks a name for a new file.
fn fresh(name: &[u8]) -> Result<(), Status> {
    if matches!(name, b"." | b"..") { Err(Status::NFS3ERR_EXIST) } else { sound(name) }
}

/// Checks a name that is to be removed or looked up in its directory.
///
/// # Errors
/// The status that says why the name is invalid.
pub fn ordinary(name: &[u8]) -> Result<(), Status> {
    if matches!(name, b"." | b"..") { Err(Status::NFS3ERR_INVAL) } else { sound(name) }
}

/// Creates a file that must not exist; symbolic links are not followed.
const NEW: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// The longest name in bytes.
pub const NAME_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, metadata, set_permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use nfs3_types::nfs3::{Nfs3Option, filename3};
    use nfs3_types::xdr_codec::Opaque;
    use rpcrdma_tests::nfs::at;

    use super::*;
    use crate::Options;
    use crate::tests::{Scratch, not_as_root};

    #[test]
    fn a_directory_that_the_server_may_not_list_has_attributes_and_names() {
        not_as_root(|| {
            let scratch = Scratch::new();
            let export = scratch.opened_as(&Options { is_async: false, ..scratch.options() });
            let (root, path) = (export.handle(export.nodes().root()), scratch.export().join("new"));
            let time = nfstime3 { seconds: 1_000_000_000, nseconds: 0 };
            let mtime = set_mtime::SET_TO_CLIENT_TIME(time);
            let attributes = sattr3 { mode: Nfs3Option::Some(0o300), mtime, ..sattr3::default() };
            let arguments = MKDIR3args { where_: at(&root, b"new"), attributes };
            let made = mkdir(&export, &Identity::Server, &arguments).map_err(|it| it.0);
            let new = made.expect("it is made").obj.unwrap();
            let now = metadata(&path).expect("it is there");
            assert_eq!((now.mode() & 0o7777, now.mtime()), (0o300, 1_000_000_000));
            let arguments =
                MKDIR3args { where_: at(&new, b"below"), attributes: sattr3::default() };
            let made = mkdir(&export, &Identity::Server, &arguments).map_err(|it| it.0);
            set_permissions(&path, Permissions::from_mode(0o700)).expect("ours");
            assert!(made.is_ok() && path.join("below").exists());
        });
    }

    /// Waits until a thread has asked for locks so many times. Returns for which files: so long as
    /// the test has one of them, the thread waits.
    fn asked(export: &Export, count: usize, is_over: impl Fn() -> bool) -> Vec<u64> {
        loop {
            let (inodes, asked) = export.asked_last();
            if asked >= count {
                return inodes;
            }
            assert!(!is_over(), "it has asked for no locks");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_directory_is_not_moved_while_a_name_in_it_changes() {
        let scratch = Scratch::new();
        std::fs::create_dir(scratch.export().join("old")).expect("made");
        let export = scratch.opened();
        let root = export.nodes().root().clone();
        let moving = export.nodes().look_up(&root, b"old").expect("it is there");
        let place = |name: &'static [u8]| diropargs3 {
            dir: export.handle(&root),
            name: filename3(Opaque::borrowed(name)),
        };
        let arguments = RENAME3args { from: place(b"old"), to: place(b"new") };
        std::thread::scope(|scope| {
            let changing = export.change(&moving);
            let renamed = scope.spawn(|| rename(&export, &Identity::Server, &arguments).is_ok());
            let locked = asked(&export, 1, || renamed.is_finished());
            assert!(locked.contains(&moving.id().inode), "{locked:?}");
            let is_moved = scratch.export().join("new").exists();
            drop(changing);
            assert!(renamed.join().expect("no panic"));
            assert!(!is_moved);
        });
        assert!(scratch.export().join("new").exists());
        // Two names of one directory, whose lock is taken once.
        let arguments = RENAME3args { from: place(b"new"), to: place(b"new") };
        assert!(rename(&export, &Identity::Server, &arguments).is_ok());
    }

    #[test]
    fn a_directory_that_gets_the_name_before_it_is_moved_is_not_moved_during_a_change_in_it() {
        let scratch = Scratch::new();
        let export = scratch.opened();
        let (root, path) = (export.nodes().root().clone(), scratch.export());
        std::fs::create_dir(path.join("old")).expect("made");
        let first = export.nodes().look_up(&root, b"old").expect("it is there");
        // One whose changes have a lock of their own.
        let second = (0..).find_map(|number| {
            let name = format!("second-{number}");
            std::fs::create_dir(path.join(&name)).expect("made");
            let node = export.nodes().look_up(&root, name.as_bytes()).expect("it is there");
            let locks = export.change_all([&root, &first, &node].map(|it| it.id().inode));
            (locks.len() == 3).then(|| (name, node.clone()))
        });
        let (name, second) = second.expect("inode numbers differ");
        let place = |name: &'static [u8]| diropargs3 {
            dir: export.handle(&root),
            name: filename3(Opaque::borrowed(name)),
        };
        let arguments = RENAME3args { from: place(b"old"), to: place(b"new") };
        let before = export.asked_last().1;
        std::thread::scope(|scope| {
            let (names, changing) = (export.change(&root), export.change(&second));
            let renamed = scope.spawn(|| rename(&export, &Identity::Server, &arguments).is_ok());
            // It has looked the name up.
            let is_over = || renamed.is_finished();
            let locked = asked(&export, before + 1, is_over);
            assert!(locked.contains(&first.id().inode), "{locked:?}");
            std::fs::rename(path.join("old"), path.join("aside")).expect("ours");
            std::fs::rename(path.join(&name), path.join("old")).expect("ours");
            drop(names);
            let locked = asked(&export, before + 2, is_over);
            assert!(locked.contains(&second.id().inode), "{locked:?}");
            let is_moved = path.join("new").exists();
            drop(changing);
            assert!(renamed.join().expect("no panic"));
            assert!(!is_moved);
        });
        assert!(path.join("new").exists());
    }
}
