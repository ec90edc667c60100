//! The two processes of a peer, each on its core, killed at the end.

use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::error::BenchError;
use crate::machine::{CorePair, on_core};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commands {
    pub who: &'static str,
    pub program: String,
    pub server: Vec<String>,
    pub client: Vec<String>,
    /// Where the server listens, before the client is started.
    pub port: Option<(u16, Listening)>,
}

/// Who listens for a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listening {
    /// TCP of this host, whose table has the port.
    OnHost,
    /// An iWARP device: software iWARP by TCP of this host, an adapter by its own, which no table
    /// shows.
    OnDevice,
}

/// Runs a server and a client, and returns what the client printed.
pub fn run(commands: &Commands, cores: CorePair, patience: Duration) -> Result<String, BenchError> {
    let who = commands.who;
    let deadline = Instant::now() + patience;
    let mut server = Running::start(who, &commands.program, &commands.server, cores.server)?;
    if let Some((port, how)) = commands.port {
        await_listener(who, &mut server, port, how, deadline)?;
    }
    let mut client = Running::start(who, &commands.program, &commands.client, cores.client)?;
    let status = client.wait(deadline)?;
    let [out, errors] = client.output();
    if !status.success() {
        server.kill();
        let [_, server_errors] = server.output();
        let why = [errors.trim(), out.trim(), server_errors.trim()];
        let why = why.into_iter().find(|text| !text.is_empty()).unwrap_or("without a word");
        let what = format!("its client ended with {status}: {}", shortened(why));
        return Err(BenchError::device(who, what));
    }
    // It ends by itself when its client has gone, and what it thinks of that does not matter.
    let parting = Instant::now() + PARTING;
    if server.wait(parting.min(deadline)).is_err() {
        server.kill();
    }
    Ok(out)
}

/// A port of this host without a listener.
pub fn free_port(who: &'static str) -> Result<u16, BenchError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let port = listener.and_then(|listener| listener.local_addr()).map(|address| address.port());
    port.map_err(|error| BenchError::device(who, format!("no free port: {error}")))
}

/// Whether a program is installed: a file, or a name on the PATH.
pub fn is_installed(program: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

struct Running {
    who: &'static str,
    child: Child,
    readers: [Option<JoinHandle<String>>; 2],
}

impl Running {
    /// Starts a program on a core. Threads and processes inherit the core of the thread that makes
    /// them.
    fn start(
        who: &'static str,
        program: &str,
        arguments: &[String],
        core: u32,
    ) -> Result<Running, BenchError> {
        let mut command = Command::new(program);
        command.args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = on_core(core, || {
            command.spawn().map_err(|error| BenchError::device(who, format!("{program}: {error}")))
        })?;
        let out = child.stdout.take().map(|out| reader(Box::new(out)));
        let errors = child.stderr.take().map(|errors| reader(Box::new(errors)));
        Ok(Running { who, child, readers: [out, errors] })
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>, BenchError> {
        self.child.try_wait().map_err(|error| BenchError::device(self.who, error))
    }

    /// Waits for its end, and kills it at the deadline.
    fn wait(&mut self, deadline: Instant) -> Result<ExitStatus, BenchError> {
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                self.kill();
                let what = format!("it did not end in time; {}", self.said());
                return Err(BenchError::device(self.who, what));
            }
            thread::sleep(LOOK);
        }
    }

    /// What it wrote to its output and to its errors. It has ended.
    fn output(&mut self) -> [String; 2] {
        let [out, errors] = &mut self.readers;
        [out, errors]
            .map(|reader| reader.take().and_then(|reader| reader.join().ok()).unwrap_or_default())
    }

    /// Its errors, or its output if there are none, cut short. It has ended.
    fn said(&mut self) -> String {
        let [out, errors] = self.output();
        shortened(if errors.trim().is_empty() { &out } else { &errors })
    }

    fn kill(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits for a listener on a port without connecting, which the server would take for the client.
/// One that cannot be seen is there after a while.
fn await_listener(
    who: &'static str,
    server: &mut Running,
    port: u16,
    how: Listening,
    deadline: Instant,
) -> Result<(), BenchError> {
    let unseen = Instant::now() + UNSEEN;
    while !is_listening(port) {
        if let Some(status) = server.ended()? {
            let what = format!("its server ended with {status}: {}", server.said());
            return Err(BenchError::device(who, what));
        }
        if how == Listening::OnDevice && Instant::now() > unseen {
            return Ok(());
        }
        if Instant::now() > deadline {
            let what = format!("its server does not listen on port {port}");
            return Err(BenchError::device(who, what));
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Whether a TCP socket of this host listens on a port, by the kernel's table.
fn is_listening(port: u16) -> bool {
    let listens = |table: &str| {
        let table = fs::read_to_string(table).unwrap_or_default();
        listening(&table).any(|listening| listening == port)
    };
    listens("/proc/net/tcp") || listens("/proc/net/tcp6")
}

/// The ports that a table of the kernel shows as listened on.
fn listening(table: &str) -> impl Iterator<Item = u16> {
    table.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, _remote, state) = (fields.next()?, fields.next()?, fields.next()?);
        let (_, port) = local.rsplit_once(':')?;
        (state == LISTEN).then(|| u16::from_str_radix(port, 16).ok())?
    })
}

fn reader(mut from: Box<dyn Read + Send>) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before a failure is what there is.
        let _ = from.by_ref().take(OUTPUT_MAX).read_to_end(&mut bytes);
        // The rest is taken and dropped, so that the process does not wait for it to be read.
        let _ = std::io::copy(&mut from, &mut std::io::sink());
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn shortened(text: &str) -> String {
    let mut lines: Vec<&str> = text.trim().lines().take(LINES_MAX).collect();
    if text.trim().lines().count() > LINES_MAX {
        lines.push("...");
    }
    lines.join("\n")
}

const LISTEN: &str = "0A";
const LOOK: Duration = Duration::from_millis(5);
const PARTING: Duration = Duration::from_secs(1);
/// Until a server listens that no table shows.
const UNSEEN: Duration = Duration::from_secs(3);
const OUTPUT_MAX: u64 = 1 << 20;
const LINES_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Option<Running> {
        let cores = CorePair::choose(None).ok()?;
        let arguments = ["-c".to_owned(), script.to_owned()];
        Some(Running::start("sh", "sh", &arguments, cores.client).expect("there is a shell"))
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn a_process_runs_on_the_core_it_was_given() {
        let Some(mut shell) = shell("grep Cpus_allowed_list /proc/self/status") else { return };
        assert!(shell.wait(soon()).expect("it ends").success());
        let cores = CorePair::choose(None).expect("there were two");
        let [out, _] = shell.output();
        assert_eq!(out.split_whitespace().last(), Some(cores.client.to_string().as_str()));
    }

    #[test]
    fn a_process_that_does_not_end_is_killed_and_its_words_are_kept() {
        let Some(mut shell) = shell("echo waiting; exec tail -f /dev/null") else { return };
        let error = shell.wait(Instant::now()).expect_err("it would go on for ever");
        assert!(error.to_string().contains("did not end in time"), "{error}");
        assert!(shell.ended().expect("it is known").is_some());
    }

    #[test]
    fn a_process_that_says_a_lot_does_not_wait_for_a_reader() {
        let Some(mut shell) = shell("head -c 4000000 /dev/zero; echo no >&2; exit 3") else {
            return;
        };
        assert_eq!(shell.wait(soon()).expect("it ends").code(), Some(3));
        let [out, errors] = shell.output();
        assert_eq!((out.len() as u64, errors.as_str()), (OUTPUT_MAX, "no\n"));
    }

    #[test]
    fn a_server_that_ends_before_it_listens_is_an_error_with_its_words() {
        let Some(mut shell) = shell("echo no device >&2; exit 1") else { return };
        let port = free_port("sh").expect("there are many");
        let error = await_listener("sh", &mut shell, port, Listening::OnHost, soon())
            .expect_err("it has ended");
        assert!(error.to_string().contains("no device"), "{error}");
    }

    #[test]
    fn a_listener_is_seen_and_gone_ports_are_not() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        assert!(is_listening(port));
        let table = "  sl  local_address rem_address   st\n\
            0: 0100007F:5BA0 00000000:0000 0A 00000000:00000000\n\
            1: 0100007F:5BA1 0100007F:1234 01 00000000:00000000\n";
        assert_eq!(listening(table).collect::<Vec<_>>(), [0x5ba0]);
    }

    #[test]
    fn a_program_is_installed_if_it_is_on_the_path_or_a_file() {
        assert!(is_installed("sh") && is_installed("/bin/sh"));
        assert!(!is_installed("rpcrdma-has-no-such-peer") && !is_installed("./sh"));
    }

    #[test]
    fn long_complaints_are_cut() {
        assert_eq!(shortened("a\nb\n"), "a\nb");
        assert_eq!(shortened("1\n2\n3\n4\n5\n"), "1\n2\n3\n4\n...");
    }
}
