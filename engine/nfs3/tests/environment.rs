//! The program `rpcrdma-nfs3` in a process that may have few descriptors, and one with mounts of
//! its own.

use std::process::Command;

use nfs3_types::nfs3::{nfs_fh3, nfsstat3, stable_how};
use rpcrdma::{Address, Config, Engine, Tcp};
use rpcrdma_testing::children::Started;
use rpcrdma_tests::folder::Folder;
use rpcrdma_tests::nfs::{Failure, Give, Nfs, Take, at};
use rustix::process::Signal;

/// A server that a shell has started, and a client.
struct Served {
    // Dropped first: a server that stops waits for its clients.
    nfs: Nfs<Tcp>,
    root: nfs_fh3,
    program: Started,
    _engine: Engine<Tcp>,
    _folder: Folder,
}

impl Served {
    /// Serves the folder `export` after these commands.
    fn after(commands: &str) -> Served {
        let folder = Folder::new();
        std::fs::create_dir(folder.join("export")).expect("it is ours");
        let mut command = Command::new("unshare");
        let line = format!("set -e; {commands}; exec \"$@\"");
        command.current_dir(folder.join(""));
        command.args(["-m", "sh", "-c", &line, "sh", env!("CARGO_BIN_EXE_rpcrdma-nfs3")]);
        command.args(["--export", "export", "--key", "key", "--squash", "none", "--async"]);
        command.args(["--provider", "tcp", "--listen", "127.0.0.1:0", "--mount", "127.0.0.1:0"]);
        let mut program = Started::by(&mut command);
        let mut says = |key: &str| {
            let mut lines = std::iter::from_fn(|| program.line());
            let said = lines.find_map(|line| Some(line.split_once(key)?.1.to_owned()));
            said.expect("the program gets that far")
        };
        let ready = says("NFS at ");
        let address = ready.split(',').next().expect("the first part").parse::<Address>();
        let handle = says("handle of the directory is ");
        let bytes = (0..handle.len() / 2).map(|at| u8::from_str_radix(&handle[2 * at..][..2], 16));
        let bytes: Result<Vec<u8>, _> = bytes.collect();
        let root = nfs_fh3 { data: bytes.expect("a number").into() };

        let mut raw = Config::default().raw().clone();
        raw.engine.provider = "tcp".into();
        let config = Config::try_from(raw).expect("a sound configuration");
        let device = Tcp::from_config(&config).expect("a thread");
        let engine = Engine::new(device, config).expect("an engine");
        let client = engine.client().expect("a client");
        let nfs = Nfs::connect(client, address.expect("an address")).expect("a connection");
        Served { nfs, root, program, _engine: engine, _folder: folder }
    }

    fn stop(self) {
        let Served { nfs, mut program, .. } = self;
        drop(nfs);
        program.signal(Signal::TERM);
        assert!(program.wait().success());
    }
}

fn failed<T>(done: Result<T, Failure>) -> nfsstat3 {
    match done {
        Err(Failure::Status(status)) => status,
        Err(other) => panic!("not a status: {other:?}"),
        Ok(_) => nfsstat3::NFS3_OK,
    }
}

/// Only root may mount.
fn may_mount() -> bool {
    Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|status| status.success())
}

#[test]
fn a_server_without_proc_does_not_start_and_names_it() {
    if !may_mount() {
        return;
    }
    let folder = Folder::new();
    std::fs::create_dir(folder.join("export")).expect("it is ours");
    let line = "mount -t tmpfs none /proc; exec \"$@\"";
    let mut command = Command::new("unshare");
    command.current_dir(folder.join(""));
    command.args(["-m", "sh", "-c", line, "sh", env!("CARGO_BIN_EXE_rpcrdma-nfs3")]);
    command.args(["--export", "export", "--key", "key", "--squash", "none"]);
    command.args(["--provider", "tcp", "--listen", "127.0.0.1:0", "--mount", "127.0.0.1:0"]);
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("the server needs"), "{said}");
    assert!(said.contains("  /proc: No such file or directory (os error 2); "), "{said}");
}

/// The hard limit; and a soft one, which the program raises.
#[test]
fn more_files_are_used_than_the_process_may_have_descriptors() {
    if !may_mount() {
        return;
    }
    for limit in ["ulimit -n 256", "ulimit -S -n 64"] {
        let mut served = Served::after(limit);
        let (nfs, root) = (&mut served.nfs, &served.root);
        for number in 0..400 {
            let file = nfs.create(root, format!("file-{number}").as_bytes()).expect("created");
            nfs.write(&file, 0, b"data", stable_how::UNSTABLE, Give::Apart(1)).expect("written");
            let read = nfs.read(&file, 0, 4, Take::RdmaBuffer).expect("read");
            assert_eq!(read.data, b"data", "{limit}: file {number}");
        }
        served.stop();
    }
}

#[test]
fn a_mount_point_can_be_neither_looked_up_nor_removed() {
    if !may_mount() {
        return;
    }
    let mut served =
        Served::after("mkdir export/mount export/dir; mount -t tmpfs none export/mount");
    let (nfs, root) = (&mut served.nfs, &served.root);
    assert_eq!(failed(nfs.lookup(root, b"mount")), nfsstat3::NFS3ERR_ACCES);
    assert_eq!(failed(nfs.rmdir(root, b"mount")), nfsstat3::NFS3ERR_ACCES);
    let renamed = nfs.rename(at(root, b"dir"), at(root, b"mount"));
    assert_eq!(failed(renamed), nfsstat3::NFS3ERR_ACCES);
    served.stop();
}

/// A directory of a lower layer cannot be renamed: programs copy it then.
#[test]
fn a_rename_between_file_systems_says_so() {
    if !may_mount() {
        return;
    }
    let mut served = Served::after(
        "mkdir base; mount -t tmpfs none base; mkdir -p base/lower/dir base/upper base/work; \
         mount -t overlay -o lowerdir=base/lower,upperdir=base/upper,workdir=base/work none export",
    );
    let renamed = served.nfs.rename(at(&served.root, b"dir"), at(&served.root, b"moved"));
    assert_eq!(failed(renamed), nfsstat3::NFS3ERR_XDEV);
    served.stop();
}
