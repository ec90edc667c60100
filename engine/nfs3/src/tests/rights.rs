//! Who may do what. Only root can be somebody else: without that, everybody is the server's user.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use nfs3_types::nfs3::{
    ACCESS3_EXTEND, ACCESS3_MODIFY, ACCESS3_READ, ACCESS3args, ACCESS3res, CREATE3args, CREATE3res,
    Nfs3Option, Nfs3Result, SETATTR3args, SETATTR3res, createhow3, nfs_fh3, nfsstat3, sattr3,
    stable_how,
};
use rpcrdma_engine::ulb::nfs3;
use rustix::fs::{Mode, Uid};
use rustix::thread::set_thread_res_uid;

use super::client::{Client, handle, name};
use super::files::create;
use super::{Running, Scratch};
use crate::nodes::Nodes;

fn make(client: &mut Client, dir: &nfs_fh3, file: &str) -> CREATE3res {
    let how = createhow3::GUARDED(sattr3::default());
    client.call(nfs3::CREATE, &CREATE3args { where_: name(dir, file), how })
}

fn access(client: &mut Client, object: &nfs_fh3) -> u32 {
    let arguments = ACCESS3args { object: object.clone(), access: 0x3f };
    let granted: ACCESS3res = client.call(nfs3::ACCESS, &arguments);
    granted.unwrap().access
}

#[test]
fn calls_are_executed_as_their_callers() {
    let mut nfs = Running::new();
    let root = nfs.client.root.clone();
    std::fs::set_permissions(nfs.export(), PermissionsExt::from_mode(0o755)).expect("ours");
    let is_root = rustix::process::geteuid().is_root();
    let secret = create(&mut nfs.client, &root, "secret");
    let path = nfs.export().join("secret");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("ours");
    let write = |client: &mut Client| client.write(&secret, 0, b"x", stable_how::UNSTABLE);
    assert!(matches!(write(&mut nfs.client), Nfs3Result::Ok(_)));

    for user in [Some((1234, 1234)), None] {
        nfs.client.user = user;
        let refused = matches!(
            (write(&mut nfs.client), nfs.client.read(&secret, 0, 1)),
            (
                Nfs3Result::Err((nfsstat3::NFS3ERR_ACCES, _)),
                Nfs3Result::Err((nfsstat3::NFS3ERR_ACCES, _))
            )
        );
        assert_eq!(refused, is_root, "{user:?}");
        let changes = ACCESS3_READ | ACCESS3_MODIFY | ACCESS3_EXTEND;
        assert_eq!(access(&mut nfs.client, &secret) & changes == 0, is_root);
        let made = make(&mut nfs.client, &root, "not-here");
        assert_eq!(matches!(made, Nfs3Result::Err((nfsstat3::NFS3ERR_ACCES, _))), is_root);
    }

    std::fs::set_permissions(nfs.export(), PermissionsExt::from_mode(0o777)).expect("ours");
    nfs.client.user = Some((1234, 99));
    let own = handle(make(&mut nfs.client, &root, "own").unwrap().obj);
    let metadata = std::fs::metadata(nfs.export().join("own")).expect("there");
    let (uid, gid) = if is_root {
        (1234, 99)
    } else {
        let process = (rustix::process::geteuid(), rustix::process::getegid());
        (process.0.as_raw(), process.1.as_raw())
    };
    assert_eq!((metadata.uid(), metadata.gid()), (uid, gid));
    // Rights that the owner has taken from itself do not stop what it has opened before.
    std::fs::set_permissions(nfs.export().join("own"), PermissionsExt::from_mode(0o000))
        .expect("ours");
    let written = nfs.client.write(&own, 0, b"mine", stable_how::UNSTABLE);
    assert!(matches!(written, Nfs3Result::Ok(_)), "{written:?}");
}

/// Runs a test on a thread that is not root, nor are those that it starts.
fn as_somebody(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(|| {
        if rustix::process::geteuid().is_root() {
            set_thread_res_uid(None, Some(Uid::from_raw(1234)), None).expect("root may");
        }
        test();
    });
    thread.join().expect("the test passes");
}

#[test]
fn the_owner_reads_and_writes_whatever_the_mode_says() {
    as_somebody(|| {
        let mut nfs = Running::new();
        let root = nfs.client.root.clone();
        for mode in [0o444, 0o200, 0] {
            let file = format!("mode-{mode:o}");
            let path = nfs.export().join(&file);
            let mode_now = || std::fs::metadata(&path).expect("there").mode() & 0o7777;
            let attributes = sattr3 { mode: Nfs3Option::Some(mode), ..sattr3::default() };
            let how = createhow3::GUARDED(attributes);
            let arguments = CREATE3args { where_: name(&root, &file), how };
            let made: CREATE3res = nfs.client.call(nfs3::CREATE, &arguments);
            let made = handle(made.unwrap().obj);
            let written = nfs.client.write(&made, 0, b"mine", stable_how::FILE_SYNC);
            assert!(matches!(written, Nfs3Result::Ok(_)), "{mode:o}: {written:?}");
            assert_eq!(mode_now(), mode);
            let (_, data) = nfs.client.read(&made, 0, 10).unwrap();
            assert_eq!((data, mode_now()), (b"mine".to_vec(), mode));
            let new_attributes = sattr3 { size: Nfs3Option::Some(2), ..sattr3::default() };
            let arguments = SETATTR3args { object: made, new_attributes, guard: Nfs3Option::None };
            let cut: SETATTR3res = nfs.client.call(nfs3::SETATTR, &arguments);
            assert!(matches!(cut, Nfs3Result::Ok(_)), "{mode:o}: {cut:?}");
            assert_eq!((std::fs::metadata(&path).expect("there").len(), mode_now()), (2, mode));
        }
    });
}

#[test]
fn a_mode_that_is_set_while_a_file_is_opened_stays() {
    as_somebody(|| {
        let scratch = Scratch::new();
        std::fs::write(scratch.export().join("file"), "").expect("ours");
        let nodes = Nodes::open(&scratch.export()).expect("a directory");
        let look_up = || nodes.look_up(nodes.root(), b"file").expect("it is there");
        for round in 0..1000 {
            let mode = [0o400, 0o004][round % 2];
            look_up().set_mode(Mode::from_raw_mode(0o040)).expect("ours");
            // One that no descriptor for its data was opened of.
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
fn what_somebody_else_changes_is_set_to_no_user_any_more() {
    let mut nfs = Running::new();
    let root = nfs.client.root.clone();
    let tool = create(&mut nfs.client, &root, "tool");
    let path = nfs.export().join("tool");
    let mark = || std::fs::set_permissions(&path, PermissionsExt::from_mode(0o6777)).expect("ours");
    let mode = || std::fs::metadata(&path).expect("there").mode() & 0o7777;
    nfs.client.user = Some((1234, 99));

    mark();
    assert_eq!(mode(), 0o6777);
    let written = nfs.client.write(&tool, 0, b"x", stable_how::UNSTABLE);
    assert!(matches!(written, Nfs3Result::Ok(_)));
    assert_eq!(mode(), 0o777, "after a WRITE");

    mark();
    let new_attributes = sattr3 { size: Nfs3Option::Some(0), ..sattr3::default() };
    let arguments = SETATTR3args { object: tool, new_attributes, guard: Nfs3Option::None };
    let changed: SETATTR3res = nfs.client.call(nfs3::SETATTR, &arguments);
    assert!(matches!(changed, Nfs3Result::Ok(_)));
    assert_eq!(mode(), 0o777, "after a SETATTR of the length");
}
