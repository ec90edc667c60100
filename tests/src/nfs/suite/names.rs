//! Attributes and names: creating, renaming and removing.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use nfs3_types::nfs3::*;
use rpcrdma::Provider;
use rpcrdma::onc::AcceptStatus;

use super::{Scene, pattern};
use crate::nfs::{Failure, Give, at};

/// GETATTR returns the attributes of the file system, for every type of file.
///
/// # Panics
/// If not.
pub fn attributes_are_those_of_the_file_system<P: Provider>(scene: &mut Scene<'_, P>) {
    let (dir, path) = scene.fresh("attributes");
    fs::write(path.join("file"), pattern(1, 12_345)).expect("a file");
    fs::create_dir(path.join("directory")).expect("a directory");
    symlink("file", path.join("link")).expect("a link");
    let read_only = fs::Permissions::from_mode(0o440);
    fs::set_permissions(path.join("file"), read_only).expect("a mode");
    for name in ["file", "directory", "link"] {
        let found = scene.nfs.lookup(&dir, name.as_bytes()).expect(name);
        let said = scene.nfs.getattr(&found.object).expect(name);
        assert_same(&said, &path.join(name));
        // A reply may come without attributes, but not with others.
        if let post_op_attr::Some(said) = found.obj_attributes {
            assert_same(&said, &path.join(name));
        }
    }
    let said = scene.nfs.getattr(&scene.root.clone()).expect("the root has attributes");
    assert_eq!(said.fileid, fs::metadata(scene.path).expect("the root").ino());
}

/// # Panics
/// If the attributes differ from those of the file system.
pub fn assert_same(said: &fattr3, path: &Path) {
    let is = fs::symlink_metadata(path).expect("the object is there");
    let kind = match is.file_type() {
        kind if kind.is_dir() => ftype3::NF3DIR,
        kind if kind.is_symlink() => ftype3::NF3LNK,
        kind if kind.is_fifo() => ftype3::NF3FIFO,
        _ => ftype3::NF3REG,
    };
    assert_eq!(said.type_, kind, "{path:?}");
    assert_eq!(said.mode & 0o7777, is.mode() & 0o7777, "{path:?}");
    assert_eq!((said.uid, said.gid), (is.uid(), is.gid()), "{path:?}");
    assert_eq!(u64::from(said.nlink), is.nlink(), "{path:?}");
    assert_eq!((said.fileid, said.size), (is.ino(), is.size()), "{path:?}");
    let mtime = (i64::from(said.mtime.seconds), i64::from(said.mtime.nseconds));
    assert_eq!(mtime, (is.mtime(), is.mtime_nsec()), "{path:?}");
}

/// LOOKUP finds names of every length, and reports missing ones.
///
/// # Panics
/// If not.
pub fn names_of_every_length_are_found<P: Provider>(scene: &mut Scene<'_, P>) {
    let (dir, path) = scene.fresh("names");
    for len in (1..=9).chain(250..=255) {
        let name = "n".repeat(len);
        fs::write(path.join(&name), pattern(len as u32, len)).expect("a file");
        let found = scene.nfs.lookup(&dir, name.as_bytes()).expect("the name is there");
        let said = scene.nfs.getattr(&found.object).expect("it has attributes");
        assert_eq!(said.size, len as u64);
    }
    let strange = "käse \\ \u{1f9c0}\n";
    fs::write(path.join(strange), "x").expect("a file");
    scene.nfs.lookup(&dir, strange.as_bytes()).expect("the name is there");
    let up = scene.nfs.lookup(&dir, b"..").expect("the directory above");
    assert_eq!(up.object, scene.root);
    assert_eq!(scene.nfs.lookup(&dir, b".").expect("the directory").object, dir);
    let missing = scene.nfs.lookup(&dir, b"not there");
    assert!(matches!(missing, Err(Failure::Status(nfsstat3::NFS3ERR_NOENT))), "{missing:?}");
    // Linux answers GARBAGE_ARGS to names that are longer than any file system permits.
    let too_long = scene.nfs.lookup(&dir, "n".repeat(256).as_bytes());
    let is_refused = match &too_long {
        Err(Failure::Status(status)) => *status == nfsstat3::NFS3ERR_NAMETOOLONG,
        Err(Failure::NotExecuted(status)) => *status == AcceptStatus::GarbageArguments,
        _ => false,
    };
    assert!(is_refused, "{too_long:?}");
}

/// Creating, changing, renaming and removing through the server has the same effect in the file
/// system.
///
/// # Panics
/// If not.
pub fn changes_are_made_in_the_file_system<P: Provider>(scene: &mut Scene<'_, P>) {
    let (dir, path) = scene.fresh("changes");
    let nfs = &mut scene.nfs;
    let long = "l".repeat(255);
    for name in ["file", long.as_str()] {
        let file = nfs.create(&dir, name.as_bytes()).expect("a file is made");
        assert_same(&nfs.getattr(&file).expect("attributes"), &path.join(name));
    }
    let again = createhow3::GUARDED(sattr3::default());
    let again = nfs.create_as(&dir, b"file", again);
    assert!(matches!(again, Err(Failure::Status(nfsstat3::NFS3ERR_EXIST))), "{again:?}");
    let verifier = createverf3(*b"verifier");
    let first = nfs.create_as(&dir, b"only", createhow3::EXCLUSIVE(verifier)).expect("made");
    let same = nfs.create_as(&dir, b"only", createhow3::EXCLUSIVE(verifier)).expect("the same");
    assert_eq!(first, same, "a repeated exclusive CREATE finds what it has made");

    let file = nfs.lookup(&dir, b"file").expect("there").object;
    let new = sattr3 {
        mode: set_mode3::Some(0o640),
        size: set_size3::Some(1_000_003),
        mtime: set_mtime::SET_TO_CLIENT_TIME(nfstime3 {
            seconds: 1_234_567_890,
            nseconds: 987_000_000,
        }),
        ..sattr3::default()
    };
    nfs.setattr(&file, new).expect("attributes are set");
    let is = fs::metadata(path.join("file")).expect("the file");
    assert_eq!((is.size(), is.mode() & 0o777, is.mtime()), (1_000_003, 0o640, 1_234_567_890));

    let inner = nfs.mkdir(&dir, b"inner").expect("a directory is made");
    assert!(path.join("inner").is_dir());
    nfs.mkfifo(&dir, b"pipe").expect("a pipe is made");
    let pipe = fs::metadata(path.join("pipe")).expect("the pipe");
    assert!(pipe.file_type().is_fifo());
    nfs.symlink(&dir, b"link", b"../file", Give::Apart(1)).expect("a link is made");
    let target = fs::read_link(path.join("link")).expect("the link");
    assert_eq!(target.as_os_str().as_bytes(), b"../file");
    nfs.link(&file, &inner, b"second").expect("a hard link is made");
    assert_eq!(fs::metadata(path.join("inner/second")).expect("the second").nlink(), 2);

    fs::write(path.join("old"), "old").expect("a file");
    nfs.rename(at(&dir, b"old"), at(&inner, b"second")).expect("renamed over another");
    assert_eq!(fs::read(path.join("inner/second")).expect("the new"), b"old");
    assert_eq!(fs::metadata(path.join("file")).expect("the file").nlink(), 1);
    let full = nfs.rmdir(&dir, b"inner");
    assert!(matches!(full, Err(Failure::Status(nfsstat3::NFS3ERR_NOTEMPTY))), "{full:?}");
    nfs.remove(&inner, b"second").expect("a name is removed");
    nfs.rmdir(&dir, b"inner").expect("the directory is empty");
    for name in ["file", long.as_str(), "only", "pipe", "link"] {
        nfs.remove(&dir, name.as_bytes()).expect("a name is removed");
    }
    assert_eq!(fs::read_dir(&path).expect("the directory").count(), 0);
    let gone = nfs.lookup(&dir, b"file");
    assert!(matches!(gone, Err(Failure::Status(nfsstat3::NFS3ERR_NOENT))), "{gone:?}");
}

/// FSINFO, FSSTAT, PATHCONF and ACCESS return plausible values.
///
/// # Panics
/// If not.
pub fn the_file_system_describes_itself<P: Provider>(scene: &mut Scene<'_, P>) {
    scene.nfs.null().expect("the server is there");
    let root = scene.root.clone();
    let info = scene.nfs.fsinfo(&root).expect("FSINFO");
    assert!(info.rtmax >= 4096 && info.wtmax >= 4096, "{info:?}");
    assert!(info.rtpref <= info.rtmax && info.wtpref <= info.wtmax, "{info:?}");
    let state = scene.nfs.fsstat(&root).expect("FSSTAT");
    assert!(state.tbytes >= state.fbytes && state.fbytes >= state.abytes, "{state:?}");
    let limits = scene.nfs.pathconf(&root).expect("PATHCONF");
    assert!(limits.name_max >= 255 && !limits.case_insensitive, "{limits:?}");
    let rights = ACCESS3_READ | ACCESS3_LOOKUP | ACCESS3_MODIFY | ACCESS3_EXTEND | ACCESS3_DELETE;
    assert_eq!(scene.nfs.access(&root, rights).expect("ACCESS"), rights);
}
