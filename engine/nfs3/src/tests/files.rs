//! Procedures on files, compared with the server's file system.

use std::os::fd::AsFd;

use nfs3_types::nfs3::{Nfs3Option, nfsstat3, sattr3, stable_how};
use rpcrdma::CallError;
use rpcrdma::ulb::nfs3;
use rpcrdma_tests::nfs::ListFrom;

use super::{Running, content, failed};

#[test]
fn written_data_is_in_the_file_and_can_be_read() {
    let mut nfs = Running::new();
    let root = nfs.client.root.clone();
    let file = nfs.client.create(&root, b"data").unwrap();
    // Around the inline threshold, a page, and every residue of four.
    let mut expected = Vec::new();
    for len in [1, 2, 3, 4, 700, 3_500, 4_096, 65_537, 262_143, 1 << 20] {
        let data: Vec<u8> = (0..len).map(|at| (at * 31 + len) as u8).collect();
        let offset = expected.len() as u64;
        let written = nfs.client.write(&file, offset, &data, stable_how::FILE_SYNC).unwrap();
        assert_eq!((written.count as usize, written.committed), (len, stable_how::FILE_SYNC));
        let read = nfs.client.read(&file, offset, len as u32).unwrap();
        assert_eq!((read.data.len(), read.eof), (len, true));
        assert!(read.data == data, "{len} bytes come back");
        expected.extend(data);
    }
    assert!(content(&nfs.export().join("data")) == expected);
    let read = nfs.client.read(&file, expected.len() as u64, 100).unwrap();
    assert_eq!((read.eof, read.data), (true, Vec::new()));
    assert_eq!(nfs.client.getattr(&file).unwrap().size, expected.len() as u64);
}

#[test]
fn handles_survive_a_restart_and_a_rename() {
    let mut nfs = Running::new();
    let root = nfs.client.root.clone();
    let file = nfs.client.create(&root, b"before").unwrap();
    nfs.client.write(&file, 0, b"kept", stable_how::UNSTABLE).unwrap();
    std::fs::create_dir(nfs.export().join("deeper")).expect("made");
    std::fs::rename(nfs.export().join("before"), nfs.export().join("deeper/after"))
        .expect("renamed");
    let mut nfs = nfs.restart();
    assert_eq!(nfs.client.read(&file, 0, 100).unwrap().data, b"kept");
    std::fs::remove_file(nfs.export().join("deeper/after")).expect("removed");
    assert_eq!(nfs.client.read_gone(&file), nfsstat3::NFS3ERR_STALE);
    nfs.client.lookup(&root, b"deeper").unwrap();
}

#[test]
fn a_link_is_read_and_never_followed() {
    let mut nfs = Running::new();
    let root = nfs.client.root.clone();
    std::os::unix::fs::symlink("/etc/passwd", nfs.export().join("out")).expect("made");
    let link = nfs.client.lookup(&root, b"out").unwrap().object;
    assert_eq!(nfs.client.readlink(&link).unwrap(), b"/etc/passwd");
    assert_eq!(failed(nfs.client.read(&link, 0, 100)), nfsstat3::NFS3ERR_INVAL);
    assert_eq!(failed(nfs.client.lookup(&link, b"passwd")), nfsstat3::NFS3ERR_NOTDIR);
}

#[test]
fn a_call_that_cannot_be_executed_gets_its_status() {
    let mut nfs = Running::new();
    // Version, program, version of the program, procedure, no credentials, no verifier.
    for (call, answer) in [
        (&[3, 100_003, 3, 0, 0, 0, 0, 0][..], &[1, 0, 2, 2][..]),
        (&[2, 100_005, 3, 0, 0, 0, 0, 0], &[0, 0, 0, 1]),
        (&[2, 100_003, 4, 0, 0, 0, 0, 0], &[0, 0, 0, 2, 3, 3]),
        (&[2, 100_003, 3, 22, 0, 0, 0, 0], &[0, 0, 0, 3]),
        (&[2, 100_003, 3, 1, 0, 0, 0, 0], &[0, 0, 0, 4]),
        (&[2, 100_003, 3, 1, 0, 0, 0, 0, u32::MAX], &[0, 0, 0, 4]),
        // An invalid handle, and a CREATE without a mode.
        (&[2, 100_003, 3, 1, 0, 0, 0, 0, 4, 7], &[0, 0, 0, 0, 10_001]),
        (&[2, 100_003, 3, 8, 0, 0, 0, 0, 4, 7, 1, 0, 9], &[0, 0, 0, 4]),
        (&[2, 100_003, 3, 1, 6, 0, 0, 0], &[1, 1, 1]),
        (&[2, 100_003, 3, 0, 0, 0, 0, 0], &[0, 0, 0, 0]),
    ] {
        assert_eq!(nfs.client.words(call), answer, "{call:?}");
    }
}

#[test]
fn arbitrary_arguments_are_answered() {
    let mut nfs = Running::new();
    let root = nfs.client.root.data.to_vec();
    let root = root.chunks(4).map(|word| word.try_into().map_or(0, u32::from_be_bytes));
    let handle: Vec<u32> = std::iter::once(36).chain(root).collect();
    // Marsaglia's generator; mostly small numbers, which lead further.
    let mut state = 0x2545_f491_u32;
    let mut draw = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        if state.is_multiple_of(5) { state } else { state % 7 }
    };
    for round in 0..40 {
        for procedure in nfs3::GETATTR..=nfs3::COMMIT {
            let mut call = vec![2, 100_003, 3, procedure, 1, 20, 0, 0, 0, 0, 0, 0, 0];
            if round % 4 > 0 {
                call.extend(&handle);
            }
            if procedure == nfs3::LINK && round % 4 > 1 {
                call.extend(&handle);
            }
            call.extend((0..draw() % 40).map(|_| draw()));
            match nfs.client.try_words(&call) {
                Ok(words) => assert!(words.len() >= 3, "{call:?}: {words:?}"),
                Err(error) => {
                    assert!(matches!(error, CallError::Rejected(..)), "{call:?}: {error}")
                }
            }
        }
    }
    assert_eq!(nfs.client.words(&[2, 100_003, 3, 0, 0, 0, 0, 0]), [0, 0, 0, 0]);
}

#[test]
fn a_failure_on_the_way_to_the_medium_changes_the_verifier() {
    let nfs = Running::new();
    let export = &nfs.server.export;
    let before = export.verifier().0;
    // A socket has no medium.
    let (one, _other) = std::os::unix::net::UnixStream::pair().expect("two sockets");
    assert!(export.persist_data(export.nodes().root(), one.as_fd()).is_err());
    assert_ne!(export.verifier().0, before);
}

/// An offset of 2^64 - 1 is the current position for some system calls.
#[test]
fn a_read_behind_the_largest_file_is_empty_and_a_write_there_is_too_large() {
    let mut nfs = Running::new();
    let root = nfs.client.root.clone();
    let data = b"0123456789abcdef";
    std::fs::write(nfs.export().join("file"), data).expect("written");
    let file = nfs.client.lookup(&root, b"file").unwrap().object;
    let last = i64::MAX as u64;
    // The first READ is executed by a worker thread, which opens the file; a shard executes the
    // others where it can.
    for round in 0..3 {
        assert_eq!(nfs.client.read(&file, 0, 16).unwrap().data, data);
        for offset in [16, 1 << 40, last - 3, last, last + 1, u64::MAX - 7, u64::MAX] {
            let read = nfs.client.read(&file, offset, 8).unwrap();
            assert_eq!((read.data, read.eof), (Vec::new(), true), "{round}: {offset:#x}");
        }
    }
    for offset in [last - 3, last, last + 1, u64::MAX - 7, u64::MAX] {
        let written = nfs.client.write(&file, offset, b"abcdefgh", stable_how::UNSTABLE);
        assert_eq!(failed(written), nfsstat3::NFS3ERR_FBIG, "{offset:#x}");
    }
    for offset in [last + 1, u64::MAX - 7, u64::MAX] {
        let size = sattr3 { size: Nfs3Option::Some(offset), ..sattr3::default() };
        let set = nfs.client.setattr(&file, size);
        assert_eq!(failed(set), nfsstat3::NFS3ERR_INVAL, "{offset:#x}");
    }
    assert_eq!(nfs.client.write(&file, u64::MAX, b"", stable_how::UNSTABLE).unwrap().count, 0);
    assert_eq!(content(&nfs.export().join("file")), data);
}

#[test]
fn a_commit_of_what_has_no_data_fails_with_a_status_of_its_list() {
    let mut nfs = Running::new();
    let root = nfs.client.root.clone();
    let pipe = nfs.client.mkfifo(&root, b"pipe").unwrap();
    std::os::unix::fs::symlink("target", nfs.export().join("link")).expect("made");
    let link = nfs.client.lookup(&root, b"link").unwrap().object;
    for object in [pipe, link, root] {
        assert_eq!(failed(nfs.client.commit(&object)), nfsstat3::NFS3ERR_IO);
    }
}

/// The attributes before a SETATTR may be those before a WRITE of another client.
#[test]
fn setattr_states_no_attributes_before_it() {
    let mut nfs = Running::new();
    let root = nfs.client.root.clone();
    let file = nfs.client.create(&root, b"file").unwrap();
    for object in [file, root] {
        let mode = sattr3 { mode: Nfs3Option::Some(0o755), ..sattr3::default() };
        let changed = nfs.client.setattr(&object, mode).unwrap();
        assert!(matches!(changed.before, Nfs3Option::None));
        assert!(matches!(changed.after, Nfs3Option::Some(_)));
    }
}

#[test]
fn an_export_that_was_removed_is_stale() {
    let mut nfs = Running::new();
    let root = nfs.client.root.clone();
    nfs.client.getattr(&root).unwrap();
    std::fs::remove_dir(nfs.export()).expect("it is empty");
    let stale = nfsstat3::NFS3ERR_STALE;
    assert_eq!(failed(nfs.client.getattr(&root)), stale);
    assert_eq!(failed(nfs.client.access(&root, 1)), stale);
    assert_eq!(failed(nfs.client.lookup(&root, b"file")), stale);
    assert_eq!(failed(nfs.client.create(&root, b"file")), stale);
    assert_eq!(failed(nfs.client.readdir(&root, ListFrom::default(), 4096)), stale);
}
