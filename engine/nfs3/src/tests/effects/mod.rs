//! An answer says what was done: each system call of each procedure fails in turn, and the files
//! and the answer are compared.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use libc::c_long;
use nfs3_types::nfs3::{
    ACCESS3args, COMMIT3args, CREATE3args, GETATTR3args, LINK3args, LOOKUP3args, MKDIR3args,
    MKNOD3args, Nfs3Option, READ3args, READDIR3args, READDIRPLUS3args, READLINK3args, REMOVE3args,
    RENAME3args, SETATTR3args, SYMLINK3args, cookieverf3, createhow3, createverf3, diropargs3,
    mknoddata3, nfs_fh3, nfspath3, nfsstat3, nfstime3, sattr3, set_mtime, stable_how, symlinkdata3,
};
use nfs3_types::xdr_codec::{Opaque, Pack};
use rpcrdma::ulb::nfs3;
use rpcrdma_testing::denied::{Denied, Fault};
use rpcrdma_tests::folder::Folder;
use rpcrdma_tests::nfs::at;

use crate::call::{CallOutcome, CallTask, WriteData};
use crate::credentials::{Credentials, Identity};
use crate::data::{self, WriteHead};
use crate::export::{DataLimits, Export};
use crate::status::Status;
use crate::{Options, Squash, files, procedures};

mod storage;

/// An export with some files. In memory, if there is a folder for that.
struct Files {
    folder: Folder,
    export: Export,
    root: nfs_fh3,
    dir: nfs_fh3,
    file: nfs_fh3,
    link: nfs_fh3,
}

/// What is below the exported directory, by path.
type State = BTreeMap<PathBuf, Entry>;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    /// With the type.
    mode: u32,
    uid: u32,
    gid: u32,
    links: u64,
    /// Of a symbolic link, its target.
    content: Vec<u8>,
    /// Whether the time is the one that a SETATTR sets.
    is_time_set: bool,
}

/// How the files are exported.
#[derive(Clone, Copy)]
struct Mode {
    is_async: bool,
    /// Whether the server knows the places of the files. Otherwise it searches for them.
    is_known: bool,
}

const KNOWN: Mode = Mode { is_async: true, is_known: true };

impl Files {
    fn new(Mode { is_async, is_known }: Mode) -> Files {
        // As a server does, which another test may start at any moment.
        rustix::process::umask(rustix::fs::Mode::empty());
        let shm = Path::new("/dev/shm");
        let folder = if shm.is_dir() { Folder::within(shm) } else { Folder::new() };
        let directory = folder.join("export");
        fs::create_dir_all(directory.join("dir")).expect("ours");
        fs::write(directory.join("file"), "content").expect("ours");
        fs::write(directory.join("dir/inner"), "inner").expect("ours");
        fs::create_dir(directory.join("empty")).expect("ours");
        std::os::unix::fs::symlink("target", directory.join("link")).expect("ours");
        if rustix::process::geteuid().is_root() {
            for name in ["", "dir", "empty", "file", "dir/inner"] {
                let path = directory.join(name);
                std::os::unix::fs::chown(path, Some(USER), Some(USER)).expect("root may");
            }
        }
        let key = folder.join("key");
        fs::write(&key, [7; 16]).expect("ours");
        fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).expect("ours");
        let limits = DataLimits { read_max: 1 << 20, write_max: 1 << 20, list_max: 1 << 16 };
        let options = Options { directory, key, squash: Squash::None, is_async, workers: 0 };
        let export = Export::open(&options, limits).expect("a directory");
        // The files are not open.
        let root = export.nodes().root().clone();
        let [dir, file, link] = [b"dir".as_slice(), b"file", b"link"].map(|name| {
            let id = root.attributes_of(name).expect("it was made").id();
            if is_known {
                export.nodes().note(id.inode, &root, name);
            }
            export.key().handle(id)
        });
        let root = export.handle(&root);
        Files { folder, export, root, dir, file, link }
    }

    fn state(&self) -> State {
        let (mut state, mut waiting) = (State::new(), vec![self.folder.join("export")]);
        while let Some(path) = waiting.pop() {
            let it = fs::symlink_metadata(&path).expect("it is there");
            let content = if it.is_dir() {
                let names = fs::read_dir(&path).expect("ours");
                waiting.extend(names.map(|name| name.expect("ours").path()));
                Vec::new()
            } else if it.is_symlink() {
                fs::read_link(&path).expect("ours").into_os_string().into_encoded_bytes()
            } else if it.is_file() {
                fs::read(&path).expect("ours")
            } else {
                Vec::new()
            };
            let entry = Entry {
                mode: it.mode(),
                uid: it.uid(),
                gid: it.gid(),
                links: it.nlink(),
                content,
                is_time_set: it.mtime() == i64::from(TIME.seconds),
            };
            state.insert(path.strip_prefix(self.folder.join("")).expect("below").into(), entry);
        }
        state
    }

    fn call(&self, call: &Call) -> CallTask {
        let Files { root, dir, file, .. } = self;
        let (new, old) = (at(root, b"new"), at(root, b"file"));
        let bare = || sattr3 { mode: Nfs3Option::Some(0o640), ..sattr3::default() };
        let timed = || sattr3 { mtime: set_mtime::SET_TO_CLIENT_TIME(TIME), ..bare() };
        let sized = |size| sattr3 { size: Nfs3Option::Some(size), ..timed() };
        let create = |where_: diropargs3<'static>, how| CREATE3args { where_, how };
        match call {
            Call::Create => {
                task(nfs3::CREATE, &create(owned(new), createhow3::UNCHECKED(sized(5))))
            }
            Call::CreateExisting => {
                task(nfs3::CREATE, &create(owned(old), createhow3::UNCHECKED(sized(2))))
            }
            Call::CreateGuarded => {
                task(nfs3::CREATE, &create(owned(new), createhow3::GUARDED(timed())))
            }
            Call::CreateExclusive => {
                let seconds = TIME.seconds.to_be_bytes();
                let verifier = createverf3([seconds, seconds].concat().try_into().expect("8"));
                task(nfs3::CREATE, &create(owned(new), createhow3::EXCLUSIVE(verifier)))
            }
            Call::MakeDirectory => {
                task(nfs3::MKDIR, &MKDIR3args { where_: new, attributes: timed() })
            }
            Call::MakeLink => {
                let symlink_data = nfspath3(Opaque::borrowed(b"target"));
                let symlink = symlinkdata3 { symlink_attributes: timed(), symlink_data };
                task(nfs3::SYMLINK, &SYMLINK3args { where_: new, symlink })
            }
            Call::MakeFifo => {
                let what = mknoddata3::NF3FIFO(timed());
                task(nfs3::MKNOD, &MKNOD3args { where_: new, what })
            }
            Call::Remove => task(nfs3::REMOVE, &REMOVE3args { object: old }),
            Call::RemoveDirectory => task(nfs3::RMDIR, &REMOVE3args { object: at(root, b"empty") }),
            Call::Rename => task(nfs3::RENAME, &RENAME3args { from: old, to: at(dir, b"moved") }),
            Call::RenameOver => {
                task(nfs3::RENAME, &RENAME3args { from: old, to: at(dir, b"inner") })
            }
            Call::Link => {
                task(nfs3::LINK, &LINK3args { file: file.clone(), link: at(dir, b"link") })
            }
            Call::SetAttributes => {
                let (object, guard) = (file.clone(), Nfs3Option::None);
                task(nfs3::SETATTR, &SETATTR3args { object, new_attributes: sized(3), guard })
            }
            Call::Write(stable) => {
                let head = WriteHead { file: file.clone(), offset: 2, count: 3, stable: *stable };
                let data = vec![WriteData::Copy(b"new".to_vec())];
                CallTask { data, ..task(nfs3::WRITE, &head) }
            }
            Call::Ask(procedure) => self.ask(*procedure),
        }
    }

    /// A call of a procedure that changes nothing.
    fn ask(&self, procedure: u32) -> CallTask {
        let Files { dir, file, .. } = self;
        match procedure {
            nfs3::LOOKUP => task(nfs3::LOOKUP, &LOOKUP3args { what: at(dir, b"inner") }),
            nfs3::ACCESS => task(nfs3::ACCESS, &ACCESS3args { object: file.clone(), access: 0x3f }),
            nfs3::READDIR => {
                let (dir, cookieverf) = (dir.clone(), cookieverf3::default());
                task(nfs3::READDIR, &READDIR3args { dir, cookie: 0, cookieverf, count: 8192 })
            }
            nfs3::READDIRPLUS => {
                let (dir, cookieverf) = (dir.clone(), cookieverf3::default());
                let (cookie, dircount, maxcount) = (0, 8192, 8192);
                let list = READDIRPLUS3args { dir, cookie, cookieverf, dircount, maxcount };
                task(nfs3::READDIRPLUS, &list)
            }
            nfs3::COMMIT => {
                task(nfs3::COMMIT, &COMMIT3args { file: file.clone(), offset: 0, count: 0 })
            }
            // The others have a handle alone.
            procedure => task(procedure, &GETATTR3args { object: file.clone() }),
        }
    }

    /// Executes a call as a caller, and returns its status.
    fn execute(&self, call: &Call, who: &Identity) -> Status {
        let Files { export, file, link, .. } = self;
        // These two are executed with registered memory.
        let failed = match call {
            Call::Ask(nfs3::READ) => {
                let arguments = READ3args { file: file.clone(), offset: 0, count: 4 };
                data::read(export, who, &arguments, &mut [0; 4]).err().map(|(status, _)| status)
            }
            Call::Ask(nfs3::READLINK) => {
                let arguments = READLINK3args { symlink: link.clone() };
                files::readlink(export, &arguments, &mut [0; 16]).err().map(|(status, _)| status)
            }
            call => {
                let task = CallTask { who: who.clone(), ..self.call(call) };
                return status_of(&procedures::execute(export, task));
            }
        };
        failed.unwrap_or(Status::NFS3_OK)
    }
}

fn owned(place: diropargs3<'_>) -> diropargs3<'static> {
    diropargs3 { dir: place.dir, name: place.name.as_ref().to_vec().into() }
}

fn task(procedure: u32, arguments: &impl Pack) -> CallTask {
    let mut head = Vec::new();
    arguments.pack(&mut head).expect("it is short");
    CallTask { procedure, who: Identity::Server, head, data: Vec::new(), into: None }
}

fn status_of(outcome: &CallOutcome) -> Status {
    let CallOutcome::Results { head, .. } = outcome else { panic!("{outcome:?}") };
    let word = head.first_chunk().map(|word| u32::from_be_bytes(*word));
    let statuses = [
        nfsstat3::NFS3_OK,
        nfsstat3::NFS3ERR_PERM,
        nfsstat3::NFS3ERR_IO,
        nfsstat3::NFS3ERR_ACCES,
        nfsstat3::NFS3ERR_STALE,
        nfsstat3::NFS3ERR_SERVERFAULT,
        nfsstat3::NFS3ERR_JUKEBOX,
    ];
    let status = statuses.into_iter().find(|status| Some(*status as u32) == word);
    status.unwrap_or_else(|| panic!("another status: {word:?}"))
}

#[derive(Debug)]
enum Call {
    Create,
    CreateExisting,
    CreateGuarded,
    CreateExclusive,
    MakeDirectory,
    MakeLink,
    MakeFifo,
    Remove,
    RemoveDirectory,
    Rename,
    RenameOver,
    Link,
    SetAttributes,
    Write(stable_how),
    /// A procedure that changes nothing.
    Ask(u32),
}

/// Every procedure, and each way of those that change something.
const CALLS: [Call; 27] = [
    Call::Create,
    Call::CreateExisting,
    Call::CreateGuarded,
    Call::CreateExclusive,
    Call::MakeDirectory,
    Call::MakeLink,
    Call::MakeFifo,
    Call::Remove,
    Call::RemoveDirectory,
    Call::Rename,
    Call::RenameOver,
    Call::Link,
    Call::SetAttributes,
    Call::Write(stable_how::UNSTABLE),
    Call::Write(stable_how::DATA_SYNC),
    Call::Write(stable_how::FILE_SYNC),
    Call::Ask(nfs3::GETATTR),
    Call::Ask(nfs3::LOOKUP),
    Call::Ask(nfs3::ACCESS),
    Call::Ask(nfs3::READ),
    Call::Ask(nfs3::READLINK),
    Call::Ask(nfs3::READDIR),
    Call::Ask(nfs3::READDIRPLUS),
    Call::Ask(nfs3::FSSTAT),
    Call::Ask(nfs3::FSINFO),
    Call::Ask(nfs3::PATHCONF),
    Call::Ask(nfs3::COMMIT),
];

const USER: u32 = 1234;
const TIME: nfstime3 = nfstime3 { seconds: 1_000_000_000, nseconds: 0 };
/// What brings a change to stable storage.
const SYNCS: [c_long; 3] = [libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_syncfs];
/// Failing to return to the server's identity ends the process.
const IDENTITY: [c_long; 3] = [libc::SYS_setresuid, libc::SYS_setresgid, libc::SYS_setgroups];

fn user() -> Identity {
    let groups = arrayvec::ArrayVec::new();
    Identity::Other(Credentials { uid: USER, gid: USER, groups })
}

#[test]
fn an_answer_says_what_was_done_whichever_system_call_fails() {
    let is_root = rustix::process::geteuid().is_root();
    let callers = if is_root { vec![Identity::Server, user()] } else { vec![Identity::Server] };
    for call in &CALLS {
        let modes = [Mode { is_async: false, is_known: false }, KNOWN];
        for (who, mode) in callers.iter().zip(modes) {
            let files = Files::new(mode);
            let before = files.state();
            assert_eq!(files.execute(call, who), Status::NFS3_OK, "{call:?}");
            let after = files.state();
            assert_eq!(before == after, matches!(call, Call::Ask(_)), "{call:?}");
            for errno in [libc::EIO, libc::EMFILE] {
                let mut failed = 0;
                for nth in 0.. {
                    let files = Files::new(mode);
                    let fault = Fault { nth, errno, spared: &IDENTITY };
                    let (status, which) = fault.run(|| files.execute(call, who));
                    let Some(which) = which else { break };
                    failed += 1;
                    let outcome = Outcome { status, which, now: files.state() };
                    let wrong = outcome.check(call, &before, &after);
                    let says = format!("{call:?} of {who:?}, call {nth}, {which} fails: {errno}");
                    assert_eq!(wrong, None, "{says}\n{outcome:?}\n{before:?}");
                }
                assert!(failed > 0, "{call:?} makes a system call");
            }
        }
    }
}

#[derive(Debug)]
struct Outcome {
    status: Status,
    /// The system call that failed.
    which: c_long,
    now: State,
}

impl Outcome {
    /// What is wrong with the answer.
    fn check(&self, call: &Call, before: &State, after: &State) -> Option<&'static str> {
        let Outcome { status, which, now } = self;
        let is_storage = SYNCS.contains(which);
        match *status {
            Status::NFS3_OK if now == after => None,
            Status::NFS3_OK => Some("it was not done"),
            Status::NFS3ERR_STALE | Status::NFS3ERR_ACCES => Some("the file is there"),
            _ if now == before => None,
            // RFC 1813 3.3.2: a failed SETATTR may have changed some attributes; its repetition
            // sets all of them. An UNCHECKED CREATE of an existing file sets its length.
            _ if matches!(call, Call::SetAttributes | Call::CreateExisting) => None,
            Status::NFS3ERR_JUKEBOX => Some("a repetition finds what it has done"),
            // It was done, and may be lost. What was made was removed.
            _ if is_storage && now == after && !is_making(call) => None,
            _ => Some("something was done"),
        }
    }
}

fn is_making(call: &Call) -> bool {
    match call {
        Call::Create | Call::CreateGuarded | Call::CreateExclusive => true,
        Call::MakeDirectory | Call::MakeLink | Call::MakeFifo | Call::Link => true,
        Call::CreateExisting | Call::Remove | Call::RemoveDirectory => false,
        Call::Rename | Call::RenameOver | Call::SetAttributes => false,
        Call::Write(_) | Call::Ask(_) => false,
    }
}

#[test]
fn what_cannot_be_opened_is_not_made() {
    for call in [Call::MakeDirectory, Call::MakeLink, Call::MakeFifo, Call::CreateGuarded] {
        let files = Files::new(KNOWN);
        let before = files.state();
        let denied = Denied { calls: &[libc::SYS_openat2], errno: libc::EMFILE };
        let status = denied.run(|| files.execute(&call, &Identity::Server));
        assert_eq!((status, files.state()), (Status::NFS3ERR_JUKEBOX, before), "{call:?}");
    }
}

#[test]
fn what_cannot_be_removed_again_is_answered_as_made() {
    for call in [Call::MakeDirectory, Call::MakeLink, Call::MakeFifo, Call::CreateGuarded] {
        let files = Files::new(KNOWN);
        let calls = &[libc::SYS_openat2, libc::SYS_unlinkat];
        let denied = Denied { calls, errno: libc::EMFILE };
        let status = denied.run(|| files.execute(&call, &Identity::Server));
        assert_eq!(status, Status::NFS3_OK, "{call:?}");
        assert!(files.state().contains_key(Path::new("export/new")), "{call:?}");
    }
}

#[test]
fn attributes_that_the_caller_may_not_set_leave_no_file() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let files = Files::new(KNOWN);
    let before = files.state();
    let attributes = || sattr3 { uid: Nfs3Option::Some(0), ..sattr3::default() };
    let where_ = || at(&files.root, b"new");
    let how = createhow3::GUARDED(attributes());
    let tasks = [
        task(nfs3::CREATE, &CREATE3args { where_: where_(), how }),
        task(nfs3::MKDIR, &MKDIR3args { where_: where_(), attributes: attributes() }),
        task(
            nfs3::MKNOD,
            &MKNOD3args { where_: where_(), what: mknoddata3::NF3FIFO(attributes()) },
        ),
    ];
    for task in tasks {
        let task = CallTask { who: user(), ..task };
        let status = status_of(&procedures::execute(&files.export, task));
        assert_eq!((status, files.state()), (Status::NFS3ERR_ACCES, before.clone()));
    }
}

#[test]
fn a_thread_that_cannot_assume_an_identity_keeps_its_own() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for call in IDENTITY {
        let files = Files::new(KNOWN);
        let before = files.state();
        let (status, ids) = Denied { calls: &[call], errno: libc::EPERM }.run(|| {
            let status = files.execute(&Call::MakeDirectory, &user());
            (status, (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()))
        });
        assert_eq!((status, ids), (Status::NFS3ERR_SERVERFAULT, (0, 0)), "{call}");
        assert_eq!(files.state(), before);
    }
}

#[test]
fn a_server_that_cannot_return_to_its_identity_ends_and_says_why() {
    const TEST: &str =
        "tests::effects::a_server_that_cannot_return_to_its_identity_ends_and_says_why";
    const ROLE: &str = "RPCRDMA_TEST_IDENTITY";
    if !rustix::process::geteuid().is_root() {
        return;
    }
    if std::env::var_os(ROLE).is_some() {
        // The first of the three calls that return.
        let fault = Fault { nth: 3, errno: libc::EPERM, spared: &[] };
        fault.run(|| user().act(|| Ok(()))).0.expect("it ends before");
        return;
    }
    let mut child = Command::new(std::env::current_exe().expect("this program has a path"));
    let child = child.args([TEST, "--exact", "--nocapture"]).env(ROLE, "child");
    let output = child.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{said}");
    assert!(said.contains("cannot return") && said.contains("setresuid(2)"), "{said}");
}
