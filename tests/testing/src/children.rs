//! Processes that a test starts, and what they say. They end with it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal};

/// A process, and what it says. Dropping it kills it.
#[derive(Debug)]
pub struct Started {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

/// When a process was killed, and when it was seen to be gone.
#[derive(Debug, Clone, Copy)]
pub struct Killed {
    /// Before the signal was sent.
    pub sent: Instant,
    /// After its end was collected.
    pub gone: Instant,
}

impl Started {
    /// Starts a command.
    ///
    /// # Panics
    /// If it cannot be started, as all of these if the process or its pipes are gone.
    pub fn by(command: &mut Command) -> Started {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("its program is built with the tests");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("it is a pipe"));
        Started { child, stdin, stdout }
    }

    /// Starts the program `peer`, which lies beside this one.
    pub fn peer(options: &[&str]) -> Started {
        Started::by(beside("peer").args(options))
    }

    /// Starts the program `stress`, which lies beside this one, in a role.
    pub fn stress(role: &str, options: impl IntoIterator<Item = String>) -> Started {
        Started::by(beside("stress").arg(role).args(options))
    }

    /// The number of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it says. None at its end.
    pub fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let len = self.stdout.read_line(&mut line).expect("it is a pipe");
        (len > 0).then(|| line.trim_end().to_owned())
    }

    /// The rest of what it prints until its end.
    pub fn rest(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.line()).collect()
    }

    /// Says a line to it.
    pub fn send(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("it is a pipe");
        writeln!(stdin, "{line}").expect("it listens");
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        rustix::process::kill_process(id.expect("a process has a number"), signal)
            .expect("it was not collected yet");
    }

    /// How it has ended, if it has.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it is a child of this process")
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("it is a child of this process")
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(mut self) -> Killed {
        let sent = Instant::now();
        self.child.kill().expect("it is a child of this process");
        self.child.wait().expect("it was killed");
        Killed { sent, gone: Instant::now() }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn beside(program: &str) -> Command {
    let this = std::env::current_exe().expect("this program has a path");
    Command::new(this.with_file_name(program))
}

/// Makes this process end with the one that has started it.
pub fn end_with_parent() {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).expect("it is allowed");
}
