//! Procedures that make, remove and move names: CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR,
//! RENAME, LINK; and LOOKUP, which finds them.

use std::sync::Arc;

use nfs3_types::nfs3::{
    CREATE3args, CREATE3res, CREATE3resfail, CREATE3resok, LINK3args, LINK3res, LINK3resfail,
    LINK3resok, LOOKUP3args, LOOKUP3res, LOOKUP3resfail, LOOKUP3resok, MKDIR3args, MKDIR3res,
    MKDIR3resfail, MKDIR3resok, MKNOD3args, MKNOD3res, MKNOD3resfail, MKNOD3resok, Nfs3Option,
    Nfs3Result, REMOVE3args, REMOVE3res, REMOVE3resfail, REMOVE3resok, RENAME3args, RENAME3res,
    RENAME3resfail, RENAME3resok, RMDIR3args, RMDIR3res, RMDIR3resfail, RMDIR3resok, SYMLINK3args,
    SYMLINK3res, SYMLINK3resfail, SYMLINK3resok, createhow3, createverf3, diropargs3, mknoddata3,
    nfstime3, sattr3, wcc_data,
};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Timestamps, futimens, linkat, makedev, mkdirat, mknodat,
    openat, renameat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use crate::attributes::Attributes;
use crate::changes::{apply, mode, timespec, without_mode};
use crate::credentials::Identity;
use crate::export::Export;
use crate::node::Node;
use crate::status::{Status, status};

/// LOOKUP
pub fn lookup(export: &Export, who: &Identity, arguments: &LOOKUP3args<'_>) -> LOOKUP3res {
    let directory = match export.find(&arguments.what.dir) {
        Ok(directory) => directory,
        Err(status) => return Nfs3Result::Err((status, LOOKUP3resfail::default())),
    };
    let found = match arguments.what.name.as_ref() {
        b"." if directory.kind() == FileType::Directory => Ok(directory.clone()),
        b".." if directory.kind() == FileType::Directory => export.nodes().above(&directory),
        name => sound(name).and_then(|()| who.act(|| export.nodes().look_up(&directory, name))),
    };
    let dir_attributes = directory.after();
    match found {
        Ok(node) => Nfs3Result::Ok(LOOKUP3resok {
            object: export.handle(&node),
            obj_attributes: node.after(),
            dir_attributes,
        }),
        Err(status) => Nfs3Result::Err((status, LOOKUP3resfail { dir_attributes })),
    }
}

/// CREATE
pub fn create(export: &Export, who: &Identity, arguments: &CREATE3args<'_>) -> CREATE3res {
    let made = make(export, who, &arguments.where_, |directory, name| match &arguments.how {
        createhow3::UNCHECKED(attributes) => match plain(directory, name, attributes, who) {
            Err(Errno::EXIST) => reuse(export, who, directory, name, attributes),
            made => made.map_err(status).map(|()| Rest::from(attributes)),
        },
        createhow3::GUARDED(attributes) => {
            plain(directory, name, attributes, who).map_err(status)?;
            Ok(Rest::from(attributes))
        }
        createhow3::EXCLUSIVE(verifier) => exclusive(directory, name, *verifier, who),
    });
    match made {
        (Ok(node), dir_wcc) => Nfs3Result::Ok(CREATE3resok {
            obj: Nfs3Option::Some(export.handle(&node)),
            obj_attributes: node.after(),
            dir_wcc,
        }),
        (Err(status), dir_wcc) => Nfs3Result::Err((status, CREATE3resfail { dir_wcc })),
    }
}

/// MKDIR
pub fn mkdir(export: &Export, who: &Identity, arguments: &MKDIR3args<'_>) -> MKDIR3res {
    let made = make(export, who, &arguments.where_, |directory, name| {
        let mode = mode(&arguments.attributes, 0o755);
        who.act(|| mkdirat(directory.fd(), name, mode).map_err(status))?;
        Ok(Rest::from(&arguments.attributes))
    });
    match made {
        (Ok(node), dir_wcc) => Nfs3Result::Ok(MKDIR3resok {
            obj: Nfs3Option::Some(export.handle(&node)),
            obj_attributes: node.after(),
            dir_wcc,
        }),
        (Err(status), dir_wcc) => Nfs3Result::Err((status, MKDIR3resfail { dir_wcc })),
    }
}

/// SYMLINK
pub fn symlink(export: &Export, who: &Identity, arguments: &SYMLINK3args<'_>) -> SYMLINK3res {
    let made = make(export, who, &arguments.where_, |directory, name| {
        let target = arguments.symlink.symlink_data.as_ref();
        if target.contains(&0) {
            return Err(Status::NFS3ERR_INVAL);
        }
        who.act(|| symlinkat(target, directory.fd(), name).map_err(status))?;
        Ok(Rest::from(&arguments.symlink.symlink_attributes))
    });
    match made {
        (Ok(node), dir_wcc) => Nfs3Result::Ok(SYMLINK3resok {
            obj: Nfs3Option::Some(export.handle(&node)),
            obj_attributes: node.after(),
            dir_wcc,
        }),
        (Err(status), dir_wcc) => Nfs3Result::Err((status, SYMLINK3resfail { dir_wcc })),
    }
}

/// MKNOD
pub fn mknod(export: &Export, who: &Identity, arguments: &MKNOD3args<'_>) -> MKNOD3res {
    let made = make(export, who, &arguments.where_, |directory, name| {
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
        Ok(Rest::from(attributes))
    });
    match made {
        (Ok(node), dir_wcc) => Nfs3Result::Ok(MKNOD3resok {
            obj: Nfs3Option::Some(export.handle(&node)),
            obj_attributes: node.after(),
            dir_wcc,
        }),
        (Err(status), dir_wcc) => Nfs3Result::Err((status, MKNOD3resfail { dir_wcc })),
    }
}

/// REMOVE
pub fn remove(export: &Export, who: &Identity, arguments: &REMOVE3args<'_>) -> REMOVE3res {
    match take_away(export, who, &arguments.object, AtFlags::empty()) {
        (Ok(()), dir_wcc) => Nfs3Result::Ok(REMOVE3resok { dir_wcc }),
        (Err(status), dir_wcc) => Nfs3Result::Err((status, REMOVE3resfail { dir_wcc })),
    }
}

/// RMDIR
pub fn rmdir(export: &Export, who: &Identity, arguments: &RMDIR3args<'_>) -> RMDIR3res {
    match take_away(export, who, &arguments.object, AtFlags::REMOVEDIR) {
        (Ok(()), dir_wcc) => Nfs3Result::Ok(RMDIR3resok { dir_wcc }),
        (Err(status), dir_wcc) => Nfs3Result::Err((status, RMDIR3resfail { dir_wcc })),
    }
}

/// RENAME
pub fn rename(export: &Export, who: &Identity, arguments: &RENAME3args<'_, '_>) -> RENAME3res {
    let fail = |status| Nfs3Result::Err((status, RENAME3resfail::default()));
    let (from, to) = match (export.find(&arguments.from.dir), export.find(&arguments.to.dir)) {
        (Ok(from), Ok(to)) => (from, to),
        (Err(status), _) | (_, Err(status)) => return fail(status),
    };
    let _alone = export.change_both(&from, &to);
    let (from_before, to_before) = (from.before(), to.before());
    let (old, new) = (arguments.from.name.as_ref(), arguments.to.name.as_ref());
    let renamed = ordinary(old).and_then(|()| ordinary(new)).and_then(|()| {
        let (moved, replaced) = (seen_at(&from, old), seen_at(&to, new));
        who.act(|| renameat(from.fd(), old, to.fd(), new).map_err(status))?;
        // Two names of one file stay as they were.
        let replaced_id = replaced.as_ref().map(Attributes::id);
        if let Some(moved) = moved.map(|moved| moved.id()).filter(|id| Some(*id) != replaced_id) {
            if let Some(replaced) = replaced {
                export.nodes().forget(&replaced, &to, new);
            }
            export.nodes().note(moved.inode, &to, new);
        }
        export.settle(&from)?;
        if from.id() == to.id() { Ok(()) } else { export.settle(&to) }
    });
    let (fromdir_wcc, todir_wcc) = (from.wcc(from_before), to.wcc(to_before));
    match renamed {
        Ok(()) => Nfs3Result::Ok(RENAME3resok { fromdir_wcc, todir_wcc }),
        Err(status) => Nfs3Result::Err((status, RENAME3resfail { fromdir_wcc, todir_wcc })),
    }
}

/// LINK
pub fn link(export: &Export, who: &Identity, arguments: &LINK3args<'_>) -> LINK3res {
    let (node, directory) = match (export.find(&arguments.file), export.find(&arguments.link.dir)) {
        (Ok(node), Ok(directory)) => (node, directory),
        (Err(status), _) | (_, Err(status)) => {
            let nothing = LINK3resfail {
                file_attributes: Nfs3Option::None,
                linkdir_wcc: wcc_data::default(),
            };
            return Nfs3Result::Err((status, nothing));
        }
    };
    let _alone = export.change(&directory);
    let linkdir_before = directory.before();
    let name = arguments.link.name.as_ref();
    let linked = fresh(name).and_then(|()| {
        let flags = AtFlags::SYMLINK_FOLLOW;
        // What is followed is the descriptor, to the file itself.
        who.act(|| linkat(CWD, node.path(), directory.fd(), name, flags).map_err(status))?;
        export.nodes().note(node.id().inode, &directory, name);
        export.settle(&directory)
    });
    let (file_attributes, linkdir_wcc) = (node.after(), directory.wcc(linkdir_before));
    match linked {
        Ok(()) => Nfs3Result::Ok(LINK3resok { file_attributes, linkdir_wcc }),
        Err(status) => Nfs3Result::Err((status, LINK3resfail { file_attributes, linkdir_wcc })),
    }
}

/// What is left to be set of something that was made.
struct Rest(sattr3);

impl From<&sattr3> for Rest {
    fn from(attributes: &sattr3) -> Rest {
        Rest(without_mode(attributes))
    }
}

type Made = (Result<Arc<Node>, Status>, wcc_data);

/// Makes something in a directory, and sees to everything around it.
fn make(
    export: &Export,
    who: &Identity,
    place: &diropargs3<'_>,
    how: impl FnOnce(&Node, &[u8]) -> Result<Rest, Status>,
) -> Made {
    let directory = match export.find(&place.dir) {
        Ok(directory) => directory,
        Err(status) => return (Err(status), wcc_data::default()),
    };
    let _alone = export.change(&directory);
    let dir_before = directory.before();
    let name = place.name.as_ref();
    let made = fresh(name).and_then(|()| {
        let Rest(attributes) = how(&directory, name)?;
        let node = export.nodes().look_up(&directory, name)?;
        apply(&node, &attributes, who)?;
        export.settle(&directory)?;
        Ok(node)
    });
    (made, directory.wcc(dir_before))
}

/// Makes an empty file that was not there.
fn plain(directory: &Node, name: &[u8], attributes: &sattr3, who: &Identity) -> Result<(), Errno> {
    let mode = mode(attributes, 0o644);
    let mut outcome = Ok(());
    let acted = who.act(|| {
        outcome = openat(directory.fd(), name, NEW, mode).map(drop);
        Ok(())
    });
    acted.map_err(|_| Errno::PERM)?;
    outcome
}

/// An UNCHECKED CREATE of what is there: of a file, its length may be set.
fn reuse(
    export: &Export,
    who: &Identity,
    directory: &Node,
    name: &[u8],
    attributes: &sattr3,
) -> Result<Rest, Status> {
    let node = who.act(|| export.nodes().look_up(directory, name))?;
    if node.kind() != FileType::RegularFile {
        return Err(Status::NFS3ERR_EXIST);
    }
    Ok(Rest(sattr3 { size: attributes.size, ..sattr3::default() }))
}

/// An EXCLUSIVE CREATE: the verifier is kept in the times of the file until the client sets them, so
/// that a call that is repeated, to whatever run of the server, finds its own file.
fn exclusive(
    directory: &Node,
    name: &[u8],
    verifier: createverf3,
    who: &Identity,
) -> Result<Rest, Status> {
    let (high, low) = verifier.0.split_first_chunk().unwrap_or((&[0; 4], &[]));
    let low = low.first_chunk().unwrap_or(&[0; 4]);
    // There are file systems that keep 31 bits.
    let stamps = [high, low].map(|word| u32::from_be_bytes(*word) & 0x7fff_ffff);
    let mut made = Err(Errno::EXIST);
    who.act(|| {
        made = openat(directory.fd(), name, NEW, Mode::RUSR | Mode::WUSR);
        Ok(())
    })?;
    match made {
        Ok(fd) => {
            let at = |seconds| timespec(nfstime3 { seconds, nseconds: 0 });
            let [last_access, last_modification] = stamps.map(at);
            futimens(fd, &Timestamps { last_access, last_modification }).map_err(status)?;
            Ok(Rest(sattr3::default()))
        }
        Err(Errno::EXIST) => {
            let there = directory.attributes_of(name)?;
            let [accessed, modified] = stamps.map(i64::from);
            let is_ours = there.kind() == FileType::RegularFile
                && there.size() == 0
                && there.stamps() == (accessed, modified);
            if is_ours { Ok(Rest(sattr3::default())) } else { Err(Status::NFS3ERR_EXIST) }
        }
        Err(error) => Err(status(error)),
    }
}

fn take_away(
    export: &Export,
    who: &Identity,
    place: &diropargs3<'_>,
    flags: AtFlags,
) -> (Result<(), Status>, wcc_data) {
    let directory = match export.find(&place.dir) {
        Ok(directory) => directory,
        Err(status) => return (Err(status), wcc_data::default()),
    };
    let _alone = export.change(&directory);
    let dir_before = directory.before();
    let name = place.name.as_ref();
    let removed = ordinary(name).and_then(|()| {
        let there = seen_at(&directory, name);
        who.act(|| unlinkat(directory.fd(), name, flags).map_err(status))?;
        if let Some(there) = there {
            export.nodes().forget(&there, &directory, name);
        }
        export.settle(&directory)
    });
    (removed, directory.wcc(dir_before))
}

fn seen_at(directory: &Node, name: &[u8]) -> Option<Attributes> {
    directory.attributes_of(name).ok()
}

/// A name that can be in a directory at all.
fn sound(name: &[u8]) -> Result<(), Status> {
    if name.len() > NAME_MAX {
        return Err(Status::NFS3ERR_NAMETOOLONG);
    }
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(Status::NFS3ERR_ACCES);
    }
    Ok(())
}

/// A name for something new.
fn fresh(name: &[u8]) -> Result<(), Status> {
    if matches!(name, b"." | b"..") { Err(Status::NFS3ERR_EXIST) } else { sound(name) }
}

/// A name that can be taken away, or looked up in its directory alone.
///
/// # Errors
/// What is wrong with it.
pub fn ordinary(name: &[u8]) -> Result<(), Status> {
    if matches!(name, b"." | b"..") { Err(Status::NFS3ERR_INVAL) } else { sound(name) }
}

/// A file that must not be there yet, whatever is: not even a link is followed.
const NEW: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// Bytes of a name.
pub const NAME_MAX: usize = 255;
