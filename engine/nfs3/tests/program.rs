//! The program `rpcrdma-nfs3` in a process of its own, called over shared memory and over TCP.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command};

use nfs3_types::nfs3::{nfsstat3, sattr3, set_size3, stable_how};
use rpcrdma::{Address, Config, Engine, Provider, SetupError, Shm, Tcp};
use rpcrdma_testing::children::Started;
use rpcrdma_testing::denied::Denied;
use rpcrdma_tests::folder::Folder;
use rpcrdma_tests::nfs::mount::mount;
use rpcrdma_tests::nfs::{Failure, Give, Nfs, Take};
use rustix::fs::Mode;
use rustix::process::{Pid, Signal, kill_process, umask};

/// The command that serves `export` in this folder, started by the words of another one.
fn command_by(words: &[&str], folder: &Folder, at: &str) -> Command {
    let [export, key] = ["export", "key"].map(|name| folder.join(name).display().to_string());
    let all = [words, &[env!("CARGO_BIN_EXE_rpcrdma-nfs3")]].concat();
    let mut command = Command::new(all[0]);
    command.args(&all[1..]).args(["--export", &export, "--key", &key, "--squash", "none"]);
    command.args(["--listen", at, "--mount", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]);
    if !at.starts_with("shm:") {
        command.args(["--provider", "tcp"]);
    }
    command
}

/// The program, and what it says.
struct Program(Started);

impl Program {
    fn start(folder: &Folder, at: &str) -> Program {
        Program(Started::by(&mut command_by(&[], folder, at)))
    }

    /// What it says in a line behind `key`.
    fn says(&mut self, key: &str) -> String {
        let mut lines = std::iter::from_fn(|| self.0.line());
        let said = lines.find_map(|line| Some(line.split_once(key)?.1.to_owned()));
        said.expect("the program gets that far")
    }
}

/// What the program shows to Prometheus.
fn scrape(at: &str) -> String {
    let mut stream = TcpStream::connect(at).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    answer
}

/// An engine of clients, whose provider has this name in a configuration.
fn engine<P: Provider>(name: &str, open: fn(&Config) -> Result<P, SetupError>) -> Engine<P> {
    let mut raw = Config::default().raw().clone();
    raw.engine.provider = name.into();
    let config = Config::try_from(raw).expect("a sound configuration");
    Engine::new(open(&config).expect("a thread"), config).expect("an engine")
}

#[test]
fn a_process_of_the_host_calls_the_server_over_shared_memory() {
    // The permissions of the socket are those that its user wants.
    umask(Mode::RWXG | Mode::RWXO);
    let folder = Folder::new();
    let path = folder.join("nfs.sock");
    is_called(&folder, &format!("shm:{}", path.display()), || {
        let socket = std::fs::metadata(&path).expect("it is there");
        assert_eq!(socket.mode() & 0o777, 0o700);
        engine("shm", Shm::from_config)
    });
    assert!(!path.exists(), "it has removed its socket");
}

#[test]
fn any_process_calls_the_server_over_tcp() {
    is_called(&Folder::new(), "127.0.0.1:0", || engine("tcp", Tcp::from_config));
}

/// Output that cannot be written: the reader has gone, or the disk is full.
fn unwritable() -> [OwnedFd; 2] {
    let full = File::options().write(true).open("/dev/full").expect("a device of Linux");
    [io::pipe().expect("two descriptors").1.into(), full.into()]
}

#[test]
fn a_server_whose_output_cannot_be_written_serves_and_stops() {
    for output in unwritable() {
        let folder = Folder::new();
        std::fs::create_dir(folder.join("export")).expect("it is ours");
        let (socket, manager) = (folder.join("nfs.sock"), folder.join("manager"));
        let states = UnixDatagram::bind(&manager).expect("a new file");
        let at = format!("shm:{}", socket.display());
        let mut command = command_by(&[], &folder, &at);
        command.env("NOTIFY_SOCKET", &manager).stderr(output.try_clone().expect("a descriptor"));
        let mut server = Killed(command.stdout(output).spawn().expect("it is built"));
        let mut state = [0; 256];
        let len = states.recv(&mut state).expect("a message");
        assert!(state[..len].starts_with(b"READY=1"));

        let engine = engine("shm", Shm::from_config);
        let client = engine.client().expect("a client");
        let mut nfs = Nfs::connect(client, at.parse::<Address>().expect("an address"));
        nfs.as_mut().expect("a connection").null().expect("an answer");
        let id = i32::try_from(server.0.id()).ok().and_then(Pid::from_raw);
        kill_process(id.expect("a process"), Signal::TERM).expect("it is ours");
        let ended = server.0.wait().expect("it is ours");
        assert!(ended.success(), "{ended}");
        assert!(!socket.exists(), "it has removed its socket");
    }
}

/// Kills the process when it is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
    }
}

#[test]
fn a_page_whose_reader_has_gone_is_no_failure_and_one_for_a_full_disk_is() {
    for (output, code) in unwritable().into_iter().zip([0, 1]) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rpcrdma-nfs3"));
        let ended = command.arg("--man").stdout(output).output().expect("it is built");
        assert_eq!(ended.status.code(), Some(code));
        assert_eq!(ended.stderr.is_empty(), code == 0, "{:?}", ended.stderr);
    }
}

/// The signal of this limit, SIGXFSZ, would end the process.
#[test]
fn a_file_that_would_exceed_the_limit_of_file_sizes_is_an_answer() {
    let folder = Folder::new();
    let export = folder.join("export");
    std::fs::create_dir(&export).expect("it is ours");
    // In blocks of 512 bytes.
    let limited = ["sh", "-c", "ulimit -f 200; exec \"$@\"", "sh"];
    let mut program = Program(Started::by(&mut command_by(&limited, &folder, "127.0.0.1:0")));
    let ready = program.says("NFS at ");
    let (address, mount_at) = ready.split_once(", MOUNT at ").expect("both addresses");
    let mount_at = mount_at.parse().expect("an address of TCP");
    let root = mount(mount_at, export.as_os_str().as_encoded_bytes()).expect("it is exported");

    let engine = engine("tcp", Tcp::from_config);
    let client = engine.client().expect("a client");
    let mut nfs = Nfs::connect(client, address.parse::<Address>().expect("an address"));
    let nfs = nfs.as_mut().expect("a connection");
    let file = nfs.create(&root, b"file").expect("created");
    let mut write = |offset| {
        nfs.write(&file, offset, &[7; 4096], stable_how::UNSTABLE, Give::Apart(1))
            .map(|written| written.count)
    };
    assert_eq!(write(LIMIT - 1000).expect("a part"), 1000);
    assert!(matches!(write(LIMIT), Err(Failure::Status(nfsstat3::NFS3ERR_FBIG))));
    for (size, is_allowed) in [(LIMIT, true), (LIMIT + 1, false)] {
        let new = sattr3 { size: set_size3::Some(size), ..sattr3::default() };
        let status = nfs.setattr(&file, new).map(drop);
        assert_eq!(status.is_ok(), is_allowed, "{size}: {status:?}");
    }
    assert_eq!(std::fs::metadata(export.join("file")).expect("it is there").len(), LIMIT);
}

/// Bytes of a file of the limited server.
const LIMIT: u64 = 200 * 512;

/// Starts the program at this address, and calls it with a client of an engine that is opened then.
fn is_called<P: Provider>(folder: &Folder, at: &str, open: impl FnOnce() -> Engine<P>) {
    let export = folder.join("export");
    std::fs::create_dir(&export).expect("it is ours");
    let mut program = Program::start(folder, at);
    let ready = program.says("NFS at ");
    let (address, mount_at) = ready.split_once(", MOUNT at ").expect("both addresses");
    let metrics_at = program.says("metrics at http://");
    let mount_at = mount_at.parse().expect("an address of TCP");
    let root = mount(mount_at, export.as_os_str().as_encoded_bytes()).expect("it is exported");

    let address: Address = address.parse().expect("an address");
    let engine = open();
    let client = engine.client().expect("a client");
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

    let metrics = scrape(metrics_at.strip_suffix("/metrics").expect("the path"));
    let calls = metrics.lines().find_map(|line| line.strip_prefix("rpcrdma_calls_received_total{"));
    // CREATE, four WRITEs, two READs.
    let calls = calls.and_then(|rest| rest.split(' ').nth(1)?.parse::<u32>().ok());
    assert!(calls.is_some_and(|calls| calls >= 6), "{metrics}");

    // A server that stops waits for its clients.
    drop(nfs);
    program.0.signal(Signal::TERM);
    assert_eq!(program.says("nfs3: shard 0: 1 connections, ").split(' ').next(), Some("6"));
    assert!(program.0.wait().success());
}

/// What a program that is refused something prints when it does not start.
fn refusal(through: &[&str], denied: Option<Denied<'_>>) -> String {
    let folder = Folder::new();
    std::fs::create_dir(folder.join("export")).expect("it is ours");
    let [export, key] = ["export", "key"].map(|name| folder.join(name).display().to_string());
    // One that starts would never end.
    let line = [&["timeout", "20"], through, &[env!("CARGO_BIN_EXE_rpcrdma-nfs3")]].concat();
    let mut command = Command::new(line[0]);
    command.args(&line[1..]).args(["--export", &export, "--key", &key, "--provider", "tcp"]);
    command.args(["--listen", "127.0.0.1:0", "--mount", "127.0.0.1:0"]);
    if let Some(denied) = denied {
        denied.apply(&mut command);
    }
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(!folder.join("key").exists(), "nothing is made before: {said}");
    said
}

#[test]
fn a_program_without_a_system_call_says_so_and_does_not_start() {
    let denied = Denied { calls: &[libc::SYS_openat2], errno: libc::EPERM };
    let said = refusal(&[], Some(denied));
    assert!(said.contains("openat2(2): Operation not permitted"), "{said}");
    assert!(said.contains("RestrictSUIDSGID"), "{said}");
}

#[test]
fn a_program_without_a_capability_of_root_says_so_and_does_not_start() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for (capability, said_so) in [
        ("setuid", "setresuid(2), CAP_SETUID: Operation not permitted"),
        ("setgid", "setgroups(2), CAP_SETGID: Operation not permitted"),
        ("setgid", "setresgid(2), CAP_SETGID: Operation not permitted"),
        ("dac_override", "CAP_DAC_OVERRIDE: Operation not permitted"),
    ] {
        let without = format!("-{capability}");
        let said = refusal(&["setpriv", "--bounding-set", &without], None);
        assert!(said.contains(said_so), "{capability}: {said}");
    }
}

#[test]
fn a_program_in_a_user_namespace_without_its_callers_says_so_and_does_not_start() {
    let is_allowed = Command::new("unshare").args(["-r", "true"]).status();
    if !is_allowed.is_ok_and(|status| status.success()) {
        // Not eprintln!: the harness would keep it to itself.
        let _ = writeln!(std::io::stderr(), "SKIPPED user_namespace (unshare -r is not allowed)");
        return;
    }
    let said = refusal(&["unshare", "-r"], None);
    assert!(said.contains("setgroups(2), CAP_SETGID: Operation not permitted"), "{said}");
    assert!(said.contains("setresuid(2), CAP_SETUID: Invalid argument"), "{said}");
    assert!(said.contains("setresgid(2), CAP_SETGID: Invalid argument"), "{said}");
    assert!(said.contains("unshare -r maps root alone"), "{said}");
}
