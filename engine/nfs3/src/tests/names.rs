//! Procedures on names: create, move, remove, and invalid names.

use std::os::unix::fs::MetadataExt;

use nfs3_types::nfs3::{
    Nfs3Option, SETATTR3args, SETATTR3resfail, SETATTR3resok, createhow3, createverf3, ftype3,
    nfsstat3, nfstime3, sattr3, set_mtime, stable_how,
};
use rpcrdma::ulb::nfs3;
use rpcrdma_tests::nfs::{Give, at};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, mknodat, utimensat};

use super::{Client, Running, failed};

#[test]
fn files_are_renamed_over_others_with_their_handles() {
    let mut nfs = Running::new();
    let (client, root) = (&mut nfs.client, nfs.server.root());
    let (one, other) =
        (client.create(&root, b"one").unwrap(), client.create(&root, b"other").unwrap());
    client.write(&one, 0, b"one", stable_how::UNSTABLE).unwrap();
    let inner = client.mkdir(&root, b"inner").unwrap();
    client.rename(at(&root, b"other"), at(&inner, b"moved")).unwrap();
    client.rename(at(&root, b"one"), at(&inner, b"moved")).unwrap();
    assert_eq!(client.read(&one, 0, 10).unwrap().data, b"one");
    assert_eq!(failed(client.read(&other, 0, 10)), nfsstat3::NFS3ERR_STALE);
    assert_eq!(client.lookup(&inner, b"moved").unwrap().object, one, "the same handle");
    assert_eq!(std::fs::read(nfs.scratch.export().join("inner/moved")).expect("there"), b"one");
    // A renamed directory keeps its content, and ".." leads to its new parent.
    client.rename(at(&root, b"inner"), at(&root, b"outer")).unwrap();
    assert_eq!(client.read(&one, 0, 10).unwrap().data, b"one");
    assert_eq!(client.lookup(&inner, b"..").unwrap().object, root);
    assert_eq!(client.lookup(&root, b"..").unwrap().object, root, "there is no way out");
    let missing = client.rename(at(&root, b"inner"), at(&root, b"x"));
    assert_eq!(failed(missing), nfsstat3::NFS3ERR_NOENT);
}

#[test]
fn links_of_both_kinds_are_made_and_removed() {
    let mut nfs = Running::new();
    let (client, root) = (&mut nfs.client, nfs.server.root());
    let file = client.create(&root, b"file").unwrap();
    client.link(&file, &root, b"hard").unwrap();
    assert_eq!(client.lookup(&root, b"hard").unwrap().object, file);
    let long = "x/".repeat(900);
    let link = client.symlink(&root, b"soft", long.as_bytes(), Give::InLine).unwrap();
    assert_eq!(client.readlink(&link).unwrap(), long.as_bytes());
    client.remove(&root, b"file").unwrap();
    client.read(&file, 0, 1).expect("it has another name");
    client.remove(&root, b"hard").unwrap();
    assert_eq!(failed(client.read(&file, 0, 1)), nfsstat3::NFS3ERR_STALE);
    assert_eq!(failed(client.remove(&root, b"hard")), nfsstat3::NFS3ERR_NOENT);
    let inner = client.mkdir(&root, b"inner").unwrap();
    client.create(&inner, b"file").unwrap();
    assert_eq!(failed(client.remove(&root, b"inner")), nfsstat3::NFS3ERR_ACCES);
    assert_eq!(failed(client.rmdir(&root, b"inner")), nfsstat3::NFS3ERR_NOTEMPTY);
}

#[test]
fn a_file_is_created_with_the_requested_attributes() {
    let mut nfs = Running::new();
    let root = nfs.server.root();
    let make = |client: &mut Client, how| client.create_as(&root, b"file", how);
    let verifier = |last| createhow3::EXCLUSIVE(createverf3([0x9a, 1, 2, 3, 0xf4, 5, 6, last]));
    let made = make(&mut nfs.client, verifier(7)).unwrap();
    // The same call again, also after a restart of the server; then another call.
    let mut nfs = nfs.restart();
    assert_eq!(make(&mut nfs.client, verifier(7)).unwrap(), made);
    assert_eq!(failed(make(&mut nfs.client, verifier(8))), nfsstat3::NFS3ERR_EXIST);
    let guarded = createhow3::GUARDED(sattr3::default());
    assert_eq!(failed(make(&mut nfs.client, guarded)), nfsstat3::NFS3ERR_EXIST);
    nfs.client.write(&made, 0, b"something", stable_how::UNSTABLE).unwrap();
    let cut = sattr3 { size: Nfs3Option::Some(4), ..sattr3::default() };
    assert_eq!(make(&mut nfs.client, createhow3::UNCHECKED(cut)).unwrap(), made);
    assert_eq!(nfs.client.read(&made, 0, 10).unwrap().data, b"some");
}

/// A client may have set the times of another file to those that stand for the verifier.
#[test]
fn an_exclusive_create_finds_an_empty_file_only() {
    let mut nfs = Running::new();
    let root = nfs.server.root();
    let path = nfs.export().join("name");
    let make = |nfs: &mut Running| {
        let how = createhow3::EXCLUSIVE(createverf3([1, 2, 3, 4, 5, 6, 7, 8]));
        nfs.client.create_as(&root, b"name", how)
    };
    let made = make(&mut nfs).unwrap();
    let there = std::fs::metadata(&path).expect("it was made");
    let time = |seconds| Timespec { tv_sec: seconds, tv_nsec: 0 };
    let (last_access, last_modification) = (time(there.atime()), time(there.mtime()));
    let stamp = || {
        let times = Timestamps { last_access, last_modification };
        utimensat(CWD, &path, &times, AtFlags::empty()).expect("ours");
    };
    std::fs::write(&path, "data").expect("ours");
    stamp();
    assert_eq!(failed(make(&mut nfs)), nfsstat3::NFS3ERR_EXIST, "it has data");
    std::fs::write(&path, "").expect("ours");
    stamp();
    assert_eq!(make(&mut nfs).unwrap(), made);
    std::fs::remove_file(&path).expect("ours");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).expect("anyone may");
    stamp();
    assert_eq!(failed(make(&mut nfs)), nfsstat3::NFS3ERR_EXIST, "it has no data");
}

#[test]
fn attributes_are_set_and_guarded() {
    let mut nfs = Running::new();
    let (client, root) = (&mut nfs.client, nfs.server.root());
    let file = client.create(&root, b"file").unwrap();
    let mtime = nfstime3 { seconds: 1_000_000_000, nseconds: 5 };
    let new_attributes = sattr3 {
        mode: Nfs3Option::Some(0o4751),
        size: Nfs3Option::Some(1 << 33),
        mtime: set_mtime::SET_TO_CLIENT_TIME(mtime),
        ..sattr3::default()
    };
    let mut arguments =
        SETATTR3args { object: file.clone(), new_attributes, guard: Nfs3Option::None };
    let set = |client: &mut Client, arguments: &SETATTR3args| {
        client.plain::<SETATTR3resok, SETATTR3resfail>(nfs3::SETATTR, arguments)
    };
    let after = set(client, &arguments).unwrap().obj_wcc.after.unwrap();
    assert_eq!((after.mode, after.size, after.mtime), (0o4751, 1 << 33, mtime));
    assert!(after.used < 1 << 20, "it is a hole");
    arguments.guard = Nfs3Option::Some(mtime);
    assert_eq!(failed(set(client, &arguments)), nfsstat3::NFS3ERR_NOT_SYNC);
    arguments.guard = Nfs3Option::Some(after.ctime);
    arguments.new_attributes.size = Nfs3Option::Some(3);
    set(client, &arguments).unwrap();
    let metadata = std::fs::metadata(nfs.scratch.export().join("file")).expect("there");
    assert_eq!((metadata.len(), metadata.mode() & 0o7777), (3, 0o4751));
    assert_eq!(client.getattr(&file).unwrap().fileid, metadata.ino());
}

#[test]
fn special_files_are_made_and_not_opened() {
    let mut nfs = Running::new();
    let root = nfs.server.root();
    let made = nfs.client.mkfifo(&root, b"pipe").unwrap();
    assert_eq!(nfs.client.getattr(&made).unwrap().type_, ftype3::NF3FIFO);
    // Opening it would wait for a writer for ever.
    assert_eq!(failed(nfs.client.read(&made, 0, 1)), nfsstat3::NFS3ERR_INVAL);
    let credentials = [2, 100_003, 3, nfs3::MKNOD, 0, 0, 0, 0];
    let directory: Vec<u32> = root
        .data
        .chunks(4)
        .map(|word| u32::from_be_bytes(word.try_into().expect("a handle is of whole words")))
        .collect();
    let mut call = credentials.to_vec();
    call.push(root.data.len() as u32);
    call.extend(directory);
    call.extend([1, u32::from_be_bytes(*b"file"), 1]);
    let words = nfs.client.words(&call);
    assert_eq!(words[4], 10_007, "a regular file is not made so: NFS3ERR_BADTYPE");
}

#[test]
fn invalid_names_are_refused() {
    let mut nfs = Running::new();
    let root = nfs.server.root();
    std::fs::write(nfs.scratch.export().join("../secret"), "secret").expect("written");
    let long = "n".repeat(255);
    nfs.client.create(&root, long.as_bytes()).unwrap();
    assert!(nfs.export().join(&long).exists());
    let too_long = "n".repeat(256);
    for (wrong, status) in [
        ("", nfsstat3::NFS3ERR_ACCES),
        ("../secret", nfsstat3::NFS3ERR_ACCES),
        ("/etc", nfsstat3::NFS3ERR_ACCES),
        ("a\0b", nfsstat3::NFS3ERR_ACCES),
        (&too_long, nfsstat3::NFS3ERR_NAMETOOLONG),
    ] {
        assert_eq!(failed(nfs.client.lookup(&root, wrong.as_bytes())), status, "{wrong:?}");
        let how = createhow3::UNCHECKED(sattr3::default());
        let made = nfs.client.create_as(&root, wrong.as_bytes(), how);
        assert_eq!(failed(made), status, "{wrong:?}");
    }
    for dots in [&b"."[..], b".."] {
        assert_eq!(failed(nfs.client.rmdir(&root, dots)), nfsstat3::NFS3ERR_INVAL);
    }
}
