//! The program `rpcrdma-nfs3` in a process of its own, called over shared memory.

use std::io::{BufRead, BufReader, Lines};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, ChildStdout, Command, Stdio};

use nfs3_types::nfs3::stable_how;
use rpcrdma_engine::{Address, Config, Engine, Shm};
use rpcrdma_tests::folder::Folder;
use rpcrdma_tests::nfs::mount::mount;
use rpcrdma_tests::nfs::{Give, Nfs, Take};
use rustix::fs::Mode;
use rustix::process::{Pid, Signal, kill_process, umask};

/// The program, and what it says.
struct Program(Child, Lines<BufReader<ChildStdout>>);

impl Program {
    fn start(folder: &Folder) -> Program {
        let [export, key, socket] =
            ["export", "key", "nfs.sock"].map(|name| folder.join(name).display().to_string());
        let child = Command::new(env!("CARGO_BIN_EXE_rpcrdma-nfs3"))
            .args(["--export", &export, "--key", &key, "--squash", "none"])
            .args(["--listen", &format!("shm:{socket}"), "--mount", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.expect("the program is built with its tests");
        let stdout = child.stdout.take().expect("it is a pipe");
        Program(child, BufReader::new(stdout).lines())
    }

    /// What it says in a line behind `key`.
    fn says(&mut self, key: &str) -> String {
        let mut lines = self.1.by_ref().map_while(Result::ok);
        let said = lines.find_map(|line| Some(line.split_once(key)?.1.to_owned()));
        said.expect("the program gets that far")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_of_the_host_calls_the_server_over_shared_memory() {
    // The permissions of the socket are those that its user wants.
    umask(Mode::RWXG | Mode::RWXO);
    let folder = Folder::new();
    let export = folder.join("export");
    std::fs::create_dir(&export).expect("it is ours");
    let mut program = Program::start(&folder);
    let ready = program.says("NFS at ");
    let socket = std::fs::metadata(folder.join("nfs.sock")).expect("it is there");
    assert_eq!(socket.mode() & 0o777, 0o700);
    let (address, mount_at) = ready.split_once(", MOUNT at ").expect("both addresses");
    let mount_at = mount_at.parse().expect("an address of TCP");
    let root = mount(mount_at, export.as_os_str().as_encoded_bytes()).expect("it is exported");

    let mut raw = Config::default().raw().clone();
    raw.engine.provider = "shm".into();
    let config = Config::try_from(raw).expect("a sound configuration");
    let engine = Engine::new(Shm::from_config(&config).expect("a thread"), config);
    let client = engine.as_ref().expect("an engine").client().expect("a client");
    let address: Address = address.parse().expect("an address");
    let mut nfs = Nfs::connect(client, address).expect("a connection");
    let file = nfs.create(&root, b"file").expect("created");
    let data: Vec<u8> = (0..300_000_u32).map(|at| (at * 7 + at / 251) as u8).collect();
    for (at, part) in data.chunks(100_000).enumerate() {
        let offset = at as u64 * 100_000;
        nfs.write(&file, offset, part, stable_how::UNSTABLE, Give::Apart(1)).expect("written");
    }
    assert!(std::fs::read(export.join("file")).expect("it is there") == data);
    for take in [Take::RdmaBuffer, Take::InLine] {
        let read = nfs.read(&file, 1_000, 4_000, take).expect("read");
        assert_eq!(read.data, data[1_000..5_000]);
    }

    // A server that stops waits for its clients.
    drop(nfs);
    let process = Pid::from_child(&program.0);
    kill_process(process, Signal::TERM).expect("it runs");
    assert_eq!(program.says("nfs3: shard 0: 1 connections, ").split(' ').next(), Some("6"));
    assert!(program.0.wait().expect("a child").success());
    assert!(!folder.join("nfs.sock").exists(), "it has removed its socket");
}
