//! Rights of callers. Only a server that runs as root assumes their identity.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use nfs3_types::nfs3::{
    ACCESS3_EXTEND, ACCESS3_MODIFY, ACCESS3_READ, Nfs3Option, createhow3, nfs_fh3, nfsstat3,
    nfstime3, sattr3, set_mtime, stable_how,
};
use rpcrdma_tests::nfs::Failure;
use rustix::fs::{Mode, Uid};
use rustix::thread::set_thread_res_uid;

use super::{Client, Running, Scratch, not_as_root};
use crate::nodes::OpenFiles;

fn make(
    client: &mut Client,
    dir: &nfs_fh3,
    file: &[u8],
    mode: Option<u32>,
) -> Result<nfs_fh3, Failure> {
    let mode = mode.map_or(Nfs3Option::None, Nfs3Option::Some);
    client.create_as(dir, file, createhow3::GUARDED(sattr3 { mode, ..sattr3::default() }))
}

fn is_kept_out<T>(done: &Result<T, Failure>) -> bool {
    matches!(done, Err(Failure::Status(nfsstat3::NFS3ERR_ACCES)))
}

#[test]
fn calls_are_executed_as_their_callers() {
    let mut nfs = Running::new();
    let root = nfs.client.root.clone();
    std::fs::set_permissions(nfs.export(), PermissionsExt::from_mode(0o755)).expect("ours");
    let is_root = rustix::process::geteuid().is_root();
    let secret = nfs.client.create(&root, b"secret").unwrap();
    let path = nfs.export().join("secret");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("ours");
    let write = |client: &mut Client| client.write(&secret, 0, b"x", stable_how::UNSTABLE);
    write(&mut nfs.client).unwrap();

    for user in [Some((1234, 1234)), None] {
        nfs.client.be(user);
        let (written, read) = (write(&mut nfs.client), nfs.client.read(&secret, 0, 1));
        assert_eq!(is_kept_out(&written) && is_kept_out(&read), is_root, "{user:?}");
        let changes = ACCESS3_READ | ACCESS3_MODIFY | ACCESS3_EXTEND;
        let granted = nfs.client.access(&secret, 0x3f).unwrap();
        assert_eq!(granted & changes == 0, is_root);
        assert_eq!(is_kept_out(&make(&mut nfs.client, &root, b"not-here", None)), is_root);
    }

    std::fs::set_permissions(nfs.export(), PermissionsExt::from_mode(0o777)).expect("ours");
    nfs.client.be(Some((1234, 99)));
    let own = make(&mut nfs.client, &root, b"own", None).unwrap();
    let metadata = std::fs::metadata(nfs.export().join("own")).expect("there");
    let (uid, gid) = if is_root {
        (1234, 99)
    } else {
        let process = (rustix::process::geteuid(), rustix::process::getegid());
        (process.0.as_raw(), process.1.as_raw())
    };
    assert_eq!((metadata.uid(), metadata.gid()), (uid, gid));
    // A right that the owner has removed from the mode does not stop the use of an open file.
    std::fs::set_permissions(nfs.export().join("own"), PermissionsExt::from_mode(0o000))
        .expect("ours");
    nfs.client.write(&own, 0, b"mine", stable_how::UNSTABLE).unwrap();
}

#[test]
fn the_owner_reads_and_writes_with_any_mode() {
    not_as_root(|| {
        let mut nfs = Running::new();
        let root = nfs.client.root.clone();
        for mode in [0o444, 0o200, 0] {
            let file = format!("mode-{mode:o}");
            let path = nfs.export().join(&file);
            let mode_now = || std::fs::metadata(&path).expect("there").mode() & 0o7777;
            let made = make(&mut nfs.client, &root, file.as_bytes(), Some(mode)).unwrap();
            let written = nfs.client.write(&made, 0, b"mine", stable_how::FILE_SYNC);
            assert!(written.is_ok(), "{mode:o}: {written:?}");
            assert_eq!(mode_now(), mode);
            let data = nfs.client.read(&made, 0, 10).unwrap().data;
            assert_eq!((data, mode_now()), (b"mine".to_vec(), mode));
            let cut = nfs.client.setattr(&made, of_size(2));
            assert!(cut.is_ok(), "{mode:o}: {cut:?}");
            assert_eq!((std::fs::metadata(&path).expect("there").len(), mode_now()), (2, mode));
        }
    });
}

#[test]
fn a_right_that_is_taken_away_is_gone_at_once() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let mut nfs = Running::new();
    std::fs::set_permissions(nfs.export(), PermissionsExt::from_mode(0o755)).expect("ours");
    let path = nfs.export().join("shared");
    std::fs::write(&path, "data").expect("written");
    let file = nfs.client.lookup(&nfs.server.root(), b"shared").unwrap().object;
    nfs.client.be(Some((1234, 1234)));
    for (mode, rights) in [(0o666, 6), (0o604, 4), (0o600, 0), (0o602, 2), (0o606, 6), (0o660, 0)] {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("ours");
        // First a thread answers, then the shard.
        for _ in 0..2 {
            let read = nfs.client.read(&file, 0, 4);
            assert_eq!((read.is_ok(), is_kept_out(&read)), (rights & 4 != 0, rights & 4 == 0));
            let written = nfs.client.write(&file, 0, b"data", stable_how::UNSTABLE);
            let may = rights & 2 != 0;
            let nothing = nfs.client.write(&file, 0, b"", stable_how::UNSTABLE);
            assert_eq!(nothing.is_ok(), may, "{mode:o}: {nothing:?}");
            assert_eq!((written.is_ok(), is_kept_out(&written)), (may, !may), "{mode:o}");
            let granted = nfs.client.access(&file, 0x3f).unwrap();
            assert_eq!(
                (granted & ACCESS3_READ != 0, granted & ACCESS3_MODIFY != 0),
                (read.is_ok(), may)
            );
        }
    }
}

#[test]
fn a_server_that_is_not_root_loses_a_right_with_its_file_open() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    not_as_root(|| {
        let mut nfs = Running::new();
        let path = nfs.export().join("shared");
        let as_root = |act: &dyn Fn()| {
            let be = |uid| set_thread_res_uid(None, Some(uid), None).expect("it was root");
            be(Uid::ROOT);
            act();
            be(Uid::from_raw(1234));
        };
        let set_mode = |mode| {
            as_root(&|| {
                std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("root may")
            });
        };
        as_root(&|| std::fs::write(&path, "data").expect("root may"));
        set_mode(0o666);
        let file = nfs.client.lookup(&nfs.server.root(), b"shared").unwrap().object;
        nfs.client.read(&file, 0, 4).unwrap();
        nfs.client.write(&file, 0, b"more", stable_how::UNSTABLE).unwrap();
        set_mode(0o600);
        let (read, written) = (
            nfs.client.read(&file, 0, 4),
            nfs.client.write(&file, 0, b"lost", stable_how::UNSTABLE),
        );
        assert!(is_kept_out(&read) && is_kept_out(&written), "{read:?} {written:?}");
    });
}

#[test]
fn a_mode_that_is_set_while_a_file_is_opened_stays() {
    not_as_root(|| {
        let scratch = Scratch::new();
        std::fs::write(scratch.export().join("file"), "").expect("ours");
        let nodes = OpenFiles::open(&scratch.export()).expect("a directory");
        let look_up = || nodes.look_up(nodes.root(), b"file").expect("it is there");
        for round in 0..1000 {
            let mode = [0o400, 0o004][round % 2];
            look_up().set_mode(Mode::from_raw_mode(0o040)).expect("ours");
            // A file without an open descriptor for its data.
            nodes.forget(&look_up().attributes().expect("there"), nodes.root(), b"file");
            let node = look_up();
            std::thread::scope(|scope| {
                scope.spawn(|| node.data(true).map(drop).expect("the owner may"));
                scope.spawn(|| node.set_mode(Mode::from_raw_mode(mode)).expect("ours"));
            });
            let now = std::fs::metadata(scratch.export().join("file")).expect("there").mode();
            assert_eq!(now & 0o7777, mode, "round {round}");
        }
    });
}

#[test]
fn a_change_by_another_user_clears_the_setuid_bit() {
    let mut nfs = Running::new();
    let root = nfs.client.root.clone();
    let tool = nfs.client.create(&root, b"tool").unwrap();
    let path = nfs.export().join("tool");
    let mark = || std::fs::set_permissions(&path, PermissionsExt::from_mode(0o6777)).expect("ours");
    let mode = || std::fs::metadata(&path).expect("there").mode() & 0o7777;
    nfs.client.be(Some((1234, 99)));

    mark();
    assert_eq!(mode(), 0o6777);
    nfs.client.write(&tool, 0, b"x", stable_how::UNSTABLE).unwrap();
    assert_eq!(mode(), 0o777, "after a WRITE");

    mark();
    nfs.client.setattr(&tool, of_size(0)).unwrap();
    assert_eq!(mode(), 0o777, "after a SETATTR of the length");
}

#[test]
fn a_length_is_left_alone_if_another_change_is_refused() {
    let mut nfs = Running::new();
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let path = nfs.export().join("shared");
    std::fs::write(&path, "data").expect("written");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).expect("ours");
    let file = nfs.client.lookup(&nfs.server.root(), b"shared").unwrap().object;
    nfs.client.be(Some((1234, 1234)));
    let moment = nfstime3 { seconds: 1, nseconds: 0 };
    for refused in [
        sattr3 { mode: Nfs3Option::Some(0o777), ..of_size(0) },
        sattr3 { uid: Nfs3Option::Some(1234), ..of_size(0) },
        sattr3 { mtime: set_mtime::SET_TO_CLIENT_TIME(moment), ..of_size(0) },
    ] {
        let done = nfs.client.setattr(&file, refused);
        assert!(matches!(done, Err(Failure::Status(nfsstat3::NFS3ERR_PERM))), "{done:?}");
        assert_eq!(std::fs::metadata(&path).expect("there").len(), 4);
    }
    nfs.client.setattr(&file, of_size(0)).unwrap();
}

#[test]
fn an_id_that_is_none_is_that_of_the_anonymous_user() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let mut nfs = Running::new();
    let root = nfs.server.root();
    std::fs::set_permissions(nfs.export(), PermissionsExt::from_mode(0o777)).expect("ours");
    let none = u32::MAX;
    for (uid, gid, owner) in [(none, 7, (65_534, 7)), (7, none, (7, 65_534))] {
        nfs.client.be(Some((uid, gid)));
        let file = format!("{uid}-{gid}");
        // An attribute that is no id changes nothing.
        let attributes = sattr3 { uid: Nfs3Option::Some(none), ..of_size(0) };
        nfs.client.create_as(&root, file.as_bytes(), createhow3::GUARDED(attributes)).unwrap();
        let metadata = std::fs::metadata(nfs.export().join(file)).expect("there");
        assert_eq!((metadata.uid(), metadata.gid()), owner);
    }
}

fn of_size(size: u64) -> sattr3 {
    sattr3 { size: Nfs3Option::Some(size), ..sattr3::default() }
}
