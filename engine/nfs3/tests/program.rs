//! The program `rpcrdma-nfs3` in a process of its own, called over shared memory and over TCP.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use nfs3_types::nfs3::stable_how;
use rpcrdma_engine::{Address, Config, Engine, Provider, SetupError, Shm, Tcp};
use rpcrdma_tests::children::Started;
use rpcrdma_tests::denied::Denied;
use rpcrdma_tests::folder::Folder;
use rpcrdma_tests::nfs::mount::mount;
use rpcrdma_tests::nfs::{Give, Nfs, Take};
use rustix::fs::Mode;
use rustix::process::{Signal, umask};

/// The program, and what it says.
struct Program(Started);

impl Program {
    fn start(folder: &Folder, at: &str) -> Program {
        let [export, key] = ["export", "key"].map(|name| folder.join(name).display().to_string());
        let mut command = Command::new(env!("CARGO_BIN_EXE_rpcrdma-nfs3"));
        command.args(["--export", &export, "--key", &key, "--squash", "none"]).args([
            "--listen",
            at,
            "--mount",
            "127.0.0.1:0",
            "--metrics",
            "127.0.0.1:0",
        ]);
        if !at.starts_with("shm:") {
            command.args(["--provider", "tcp"]);
        }
        Program(Started::by(&mut command))
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
