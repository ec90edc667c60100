//! Names over the wire: made, moved, removed, and those that cannot be.

use std::os::unix::fs::MetadataExt;

use nfs3_types::nfs3::{
    CREATE3args, CREATE3res, GETATTR3args, GETATTR3res, LINK3args, LINK3res, LOOKUP3args,
    LOOKUP3res, MKDIR3args, MKDIR3res, MKNOD3args, MKNOD3res, Nfs3Option, Nfs3Result, REMOVE3args,
    REMOVE3res, RENAME3args, RENAME3res, RMDIR3args, RMDIR3res, SETATTR3args, SETATTR3res,
    SYMLINK3args, SYMLINK3res, createhow3, createverf3, ftype3, mknoddata3, nfs_fh3, nfsstat3,
    nfstime3, sattr3, set_mtime, stable_how, symlinkdata3,
};
use rpcrdma_engine::ulb::nfs3;

use super::Running;
use super::client::{Client, handle, name};
use super::files::create;

fn rename(client: &mut Client, from: (&nfs_fh3, &str), to: (&nfs_fh3, &str)) -> RENAME3res {
    let arguments = RENAME3args { from: name(from.0, from.1), to: name(to.0, to.1) };
    client.call(nfs3::RENAME, &arguments)
}

fn lookup(client: &mut Client, dir: &nfs_fh3, file: &str) -> LOOKUP3res {
    client.call(nfs3::LOOKUP, &LOOKUP3args { what: name(dir, file) })
}

fn mkdir(client: &mut Client, dir: &nfs_fh3, file: &str) -> nfs_fh3 {
    let arguments = MKDIR3args { where_: name(dir, file), attributes: sattr3::default() };
    let made: MKDIR3res = client.call(nfs3::MKDIR, &arguments);
    handle(made.unwrap().obj)
}

fn failed<T: std::fmt::Debug, E>(result: Nfs3Result<T, E>) -> nfsstat3 {
    match result {
        Nfs3Result::Ok(value) => panic!("it cannot be done: {value:?}"),
        Nfs3Result::Err((status, _)) => status,
    }
}

#[test]
fn files_are_renamed_over_others_with_their_handles() {
    let mut nfs = Running::new();
    let root = nfs.client.root.clone();
    let (one, other) =
        (create(&mut nfs.client, &root, "one"), create(&mut nfs.client, &root, "other"));
    nfs.client.write(&one, 0, b"one", stable_how::UNSTABLE).unwrap();
    let inner = mkdir(&mut nfs.client, &root, "inner");
    rename(&mut nfs.client, (&root, "other"), (&inner, "moved")).unwrap();
    rename(&mut nfs.client, (&root, "one"), (&inner, "moved")).unwrap();
    assert_eq!(nfs.client.read(&one, 0, 10).unwrap().1, b"one");
    assert_eq!(failed(nfs.client.read(&other, 0, 10)), nfsstat3::NFS3ERR_STALE);
    assert_eq!(lookup(&mut nfs.client, &inner, "moved").unwrap().object, one, "the same handle");
    assert_eq!(std::fs::read(nfs.export().join("inner/moved")).expect("there"), b"one");
    // A directory takes along what is below it, and its parent is where it is now.
    rename(&mut nfs.client, (&root, "inner"), (&root, "outer")).unwrap();
    assert_eq!(nfs.client.read(&one, 0, 10).unwrap().1, b"one");
    assert_eq!(lookup(&mut nfs.client, &inner, "..").unwrap().object, root);
    assert_eq!(lookup(&mut nfs.client, &root, "..").unwrap().object, root, "there is no way out");
    let missing = rename(&mut nfs.client, (&root, "inner"), (&root, "x"));
    assert_eq!(failed(missing), nfsstat3::NFS3ERR_NOENT);
}

#[test]
fn links_of_both_kinds_are_made_and_removed() {
    let mut nfs = Running::new();
    let root = nfs.client.root.clone();
    let file = create(&mut nfs.client, &root, "file");
    let arguments = LINK3args { file: file.clone(), link: name(&root, "hard") };
    let linked: LINK3res = nfs.client.call(nfs3::LINK, &arguments);
    linked.unwrap();
    assert_eq!(lookup(&mut nfs.client, &root, "hard").unwrap().object, file);
    let long = "x/".repeat(900);
    let symlink = symlinkdata3 {
        symlink_attributes: sattr3::default(),
        symlink_data: long.clone().into_bytes().into(),
    };
    let arguments = SYMLINK3args { where_: name(&root, "soft"), symlink };
    let made: SYMLINK3res = nfs.client.call(nfs3::SYMLINK, &arguments);
    let link = handle(made.unwrap().obj);
    assert_eq!(nfs.client.readlink(&link).unwrap(), long.as_bytes());
    let remove = |client: &mut Client, file: &str| -> REMOVE3res {
        client.call(nfs3::REMOVE, &REMOVE3args { object: name(&root, file) })
    };
    remove(&mut nfs.client, "file").unwrap();
    assert!(matches!(nfs.client.read(&file, 0, 1), Nfs3Result::Ok(_)), "it has another name");
    remove(&mut nfs.client, "hard").unwrap();
    assert_eq!(failed(nfs.client.read(&file, 0, 1)), nfsstat3::NFS3ERR_STALE);
    assert_eq!(failed(remove(&mut nfs.client, "hard")), nfsstat3::NFS3ERR_NOENT);
    let inner = mkdir(&mut nfs.client, &root, "inner");
    create(&mut nfs.client, &inner, "file");
    assert_eq!(failed(remove(&mut nfs.client, "inner")), nfsstat3::NFS3ERR_ISDIR);
    let arguments = RMDIR3args { object: name(&root, "inner") };
    let removed: RMDIR3res = nfs.client.call(nfs3::RMDIR, &arguments);
    assert_eq!(failed(removed), nfsstat3::NFS3ERR_NOTEMPTY);
}

#[test]
fn a_file_is_created_as_the_client_says() {
    let mut nfs = Running::new();
    let root = nfs.client.root.clone();
    let make = |client: &mut Client, how| -> CREATE3res {
        client.call(nfs3::CREATE, &CREATE3args { where_: name(&root, "file"), how })
    };
    let verifier = |last| createhow3::EXCLUSIVE(createverf3([0x9a, 1, 2, 3, 0xf4, 5, 6, last]));
    let made = handle(make(&mut nfs.client, verifier(7)).unwrap().obj);
    // The same call again, be it to another run of the server; and another call.
    let mut nfs = nfs.restart();
    assert_eq!(handle(make(&mut nfs.client, verifier(7)).unwrap().obj), made);
    assert_eq!(failed(make(&mut nfs.client, verifier(8))), nfsstat3::NFS3ERR_EXIST);
    let guarded = createhow3::GUARDED(sattr3::default());
    assert_eq!(failed(make(&mut nfs.client, guarded)), nfsstat3::NFS3ERR_EXIST);
    nfs.client.write(&made, 0, b"something", stable_how::UNSTABLE).unwrap();
    let cut = sattr3 { size: Nfs3Option::Some(4), ..sattr3::default() };
    let reused = make(&mut nfs.client, createhow3::UNCHECKED(cut)).unwrap();
    assert_eq!(handle(reused.obj), made);
    assert_eq!(nfs.client.read(&made, 0, 10).unwrap().1, b"some");
}

#[test]
fn attributes_are_set_and_guarded() {
    let mut nfs = Running::new();
    let root = nfs.client.root.clone();
    let file = create(&mut nfs.client, &root, "file");
    let mtime = nfstime3 { seconds: 1_000_000_000, nseconds: 5 };
    let new_attributes = sattr3 {
        mode: Nfs3Option::Some(0o4751),
        size: Nfs3Option::Some(1 << 33),
        mtime: set_mtime::SET_TO_CLIENT_TIME(mtime),
        ..sattr3::default()
    };
    let mut arguments =
        SETATTR3args { object: file.clone(), new_attributes, guard: Nfs3Option::None };
    let set: SETATTR3res = nfs.client.call(nfs3::SETATTR, &arguments);
    let after = set.unwrap().obj_wcc.after.unwrap();
    assert_eq!((after.mode, after.size, after.mtime), (0o4751, 1 << 33, mtime));
    assert!(after.used < 1 << 20, "it is a hole");
    arguments.guard = Nfs3Option::Some(mtime);
    let set: SETATTR3res = nfs.client.call(nfs3::SETATTR, &arguments);
    assert_eq!(failed(set), nfsstat3::NFS3ERR_NOT_SYNC);
    arguments.guard = Nfs3Option::Some(after.ctime);
    arguments.new_attributes.size = Nfs3Option::Some(3);
    let set: SETATTR3res = nfs.client.call(nfs3::SETATTR, &arguments);
    set.unwrap();
    let metadata = std::fs::metadata(nfs.export().join("file")).expect("there");
    assert_eq!((metadata.len(), metadata.mode() & 0o7777), (3, 0o4751));
    let seen: GETATTR3res = nfs.client.call(nfs3::GETATTR, &GETATTR3args { object: file });
    assert_eq!(seen.unwrap().obj_attributes.fileid, metadata.ino());
}

#[test]
fn special_files_are_made_and_not_opened() {
    let mut nfs = Running::new();
    let root = nfs.client.root.clone();
    let arguments =
        MKNOD3args { where_: name(&root, "pipe"), what: mknoddata3::NF3FIFO(sattr3::default()) };
    let made: MKNOD3res = nfs.client.call(nfs3::MKNOD, &arguments);
    let made = made.unwrap();
    assert_eq!(made.obj_attributes.unwrap().type_, ftype3::NF3FIFO);
    // Who opened it would wait for a writer for ever.
    assert_eq!(failed(nfs.client.read(&handle(made.obj), 0, 1)), nfsstat3::NFS3ERR_INVAL);
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
fn names_that_lead_elsewhere_or_nowhere_are_refused() {
    let mut nfs = Running::new();
    let root = nfs.client.root.clone();
    std::fs::write(nfs.scratch.export().join("../secret"), "secret").expect("written");
    let long = "n".repeat(255);
    create(&mut nfs.client, &root, &long);
    assert!(nfs.export().join(&long).exists());
    let too_long = "n".repeat(256);
    for (wrong, status) in [
        ("", nfsstat3::NFS3ERR_ACCES),
        ("../secret", nfsstat3::NFS3ERR_ACCES),
        ("/etc", nfsstat3::NFS3ERR_ACCES),
        ("a\0b", nfsstat3::NFS3ERR_ACCES),
        (&too_long, nfsstat3::NFS3ERR_NAMETOOLONG),
    ] {
        assert_eq!(failed(lookup(&mut nfs.client, &root, wrong)), status, "{wrong:?}");
        let how = createhow3::UNCHECKED(sattr3::default());
        let made: CREATE3res =
            nfs.client.call(nfs3::CREATE, &CREATE3args { where_: name(&root, wrong), how });
        assert_eq!(failed(made), status, "{wrong:?}");
    }
    for dots in [".", ".."] {
        let removed: RMDIR3res =
            nfs.client.call(nfs3::RMDIR, &RMDIR3args { object: name(&root, dots) });
        assert_eq!(failed(removed), nfsstat3::NFS3ERR_INVAL);
    }
}
