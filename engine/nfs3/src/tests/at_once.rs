//! Calls that are answered on the thread of the shard: this server has no worker threads.

use std::os::unix::fs::PermissionsExt;

use nfs3_types::nfs3::{GETATTR3args, LOOKUP3args, READ3args, nfsstat3};
use nfs3_types::xdr_codec::Pack;
use rpcrdma::ulb::nfs3;
use rpcrdma_tests::nfs::at;
use rpcrdma_tests::pair::Pair;

use super::{Running, Scratch};
use crate::at_once::execute;
use crate::call::CallTask;
use crate::credentials::{Credentials, Identity};

/// Whether the file system of the tests keeps attributes of open files in memory.
fn caches(scratch: &Scratch) -> bool {
    scratch.opened().nodes().medium().caches_attributes()
}

fn task(procedure: u32, who: Identity, arguments: &impl Pack) -> CallTask {
    let mut head = Vec::new();
    arguments.pack(&mut head).expect("it is short");
    CallTask { procedure, who, head, data: Vec::new(), into: None }
}

#[test]
fn calls_for_cached_data_are_answered_without_a_thread() {
    let scratch = Scratch::new();
    if !caches(&scratch) {
        return;
    }
    std::fs::write(scratch.export().join("file"), b"kept").expect("written");
    let mut nfs = Running::working(scratch, 0);
    let (client, root) = (&mut nfs.client, nfs.server.root());
    client.getattr(&root).unwrap();
    let file = client.lookup(&root, b"file").unwrap().object;
    assert_eq!(client.getattr(&file).unwrap().size, 4);
    client.access(&file, 0x3f).unwrap();
}

#[test]
fn calls_that_may_block_go_to_the_threads() {
    let scratch = Scratch::new();
    std::fs::write(scratch.export().join("file"), b"kept").expect("written");
    let export = scratch.opened();
    let root = export.nodes().root().clone();
    let node = export.nodes().look_up(&root, b"file").expect("it is there");
    let handle = export.handle(&node);
    let getattr =
        || task(nfs3::GETATTR, Identity::Server, &GETATTR3args { object: handle.clone() });
    assert_eq!(execute(&export, &mut getattr()).is_some(), caches(&scratch), "it is held");
    // A file that is not cached must be opened, and a removed file must be searched for.
    let other = scratch.opened();
    assert!(execute(&other, &mut getattr()).is_none());
    std::fs::remove_file(scratch.export().join("file")).expect("ours");
    assert!(execute(&export, &mut getattr()).is_none());
    // Without a buffer nothing is read, and a shard never executes a call that changes something.
    let read = READ3args { file: handle.clone(), offset: 0, count: 4 };
    assert!(execute(&export, &mut task(nfs3::READ, Identity::Server, &read)).is_none());
    for procedure in (0..=nfs3::COMMIT).filter(|it| ![1, 3, 4, 6].contains(it)) {
        let other = &GETATTR3args { object: handle.clone() };
        assert!(execute(&export, &mut task(procedure, Identity::Server, other)).is_none());
    }
}

#[test]
fn what_is_cached_is_read_at_once_in_part_and_up_to_the_end() {
    let scratch = Scratch::new();
    if !caches(&scratch) {
        return;
    }
    std::fs::write(scratch.export().join("file"), b"0123456789").expect("written");
    let export = scratch.opened();
    let node =
        export.nodes().look_up(&export.nodes().root().clone(), b"file").expect("it is there");
    node.data(false).expect("it is opened");
    let handle = export.handle(&node);
    let mut pair = Pair::new(|_, _, reply| reply.refuse());
    for (offset, count) in [(0, 4), (6, 4), (6, 5), (10, 4)] {
        let read = READ3args { file: handle.clone(), offset, count };
        let mut task = task(nfs3::READ, Identity::Server, &read);
        task.into = Some(pair.buffer(&[0; 5]));
        assert!(execute(&export, &mut task).is_some(), "{count} bytes at {offset}");
    }
}

#[test]
fn long_reads_go_to_the_threads() {
    const READ_MAX: usize = 64 << 10;
    let scratch = Scratch::new();
    if !caches(&scratch) {
        return;
    }
    std::fs::write(scratch.export().join("file"), [7; READ_MAX + 2]).expect("written");
    let export = scratch.opened();
    let node = export.nodes().look_up(export.nodes().root(), b"file").expect("it is there");
    node.data(false).expect("it is opened");
    let handle = export.handle(&node);
    let mut pair = Pair::new(|_, _, reply| reply.refuse());
    for (longer, is_at_once) in [(0, true), (1, false), (2, false)] {
        let len = READ_MAX + longer;
        let read = READ3args { file: handle.clone(), offset: 0, count: len as u32 };
        let mut task = task(nfs3::READ, Identity::Server, &read);
        task.into = Some(pair.buffer(&vec![0; len]));
        assert_eq!(execute(&export, &mut task).is_some(), is_at_once, "{len} bytes");
    }
}

#[test]
fn a_name_is_looked_up_as_its_caller() {
    let scratch = Scratch::new();
    if !caches(&scratch) || !rustix::process::geteuid().is_root() {
        return;
    }
    let closed = scratch.export().join("closed");
    std::fs::create_dir(&closed).expect("made");
    std::fs::write(closed.join("file"), b"kept").expect("written");
    std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o700)).expect("ours");
    let export = scratch.opened();
    let root = export.nodes().root().clone();
    let directory = export.nodes().look_up(&root, b"closed").expect("it is there");
    export.nodes().look_up(&directory, b"file").expect("it is in the cache");
    let handle = export.handle(&directory);
    let lookup = |who, called: &str| {
        let what = at(&handle, called.as_bytes());
        execute(&export, &mut task(nfs3::LOOKUP, who, &LOOKUP3args { what }))
    };
    assert!(lookup(Identity::Server, "file").is_some());
    let groups = arrayvec::ArrayVec::new();
    let other = Identity::Other(Credentials { uid: 1234, gid: 1234, groups });
    assert!(lookup(other.clone(), "file").is_none(), "a worker thread reports the error");
    assert!(lookup(other.clone(), "missing").is_none());
    std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o755)).expect("ours");
    assert!(lookup(other, "file").is_none(), "the shard keeps its identity: RDMA needs that");
    assert!(lookup(Identity::Server, "..").is_none());
    assert!(rustix::process::geteuid().is_root());
}

#[test]
fn a_read_is_the_same_from_a_shard_and_from_a_thread() {
    let mut nfs = Running::new();
    let root = nfs.client.root.clone();
    let data: Vec<u8> = (0..100_000_u32).map(|at| (at * 7) as u8).collect();
    std::fs::write(nfs.export().join("file"), &data).expect("written");
    let file = nfs.client.lookup(&root, b"file").unwrap().object;
    // The first call is executed by a worker thread, which opens the file.
    for _ in 0..2 {
        for (offset, count) in [(0, 1), (0, 4096), (4096, 65_536), (1, 100_000), (99_000, 4096)] {
            let read = nfs.client.read(&file, offset, count).unwrap();
            let end = data.len().min(offset as usize + count as usize);
            assert!(read.data == data[offset as usize..end], "{count} bytes at {offset}");
            assert_eq!(read.eof, end == data.len());
        }
        let read = nfs.client.read(&file, 200_000, 4096).unwrap();
        assert_eq!((read.eof, read.data.len()), (true, 0));
    }
    std::fs::remove_file(nfs.export().join("file")).expect("ours");
    assert_eq!(nfs.client.read_gone(&file), nfsstat3::NFS3ERR_STALE);
}
