//! Running a test program with a mutation: whether a test fails, or does not end.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::cargo::Executable;
use crate::switch::{REACHED, VARIABLE};

/// How many runs of the simulation a test makes, as in `tests/run quick`.
const SEEDS: &str = "300";

/// What a run showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// All tests passed.
    Passed,
    /// This test failed, the first to.
    Failed(String),
    /// The program crashed, or ended otherwise.
    Crashed(String),
    /// It did not end in its time.
    Hung,
}

impl Ending {
    /// Whether the mutation was noticed.
    #[must_use]
    pub fn is_caught(&self) -> bool {
        *self != Ending::Passed
    }
}

/// What is run.
#[derive(Debug)]
pub struct Trial<'a> {
    /// The program.
    pub executable: &'a Executable,
    /// The mutation that is switched on.
    pub number: Option<usize>,
    /// A folder that gets a file of each switch that is reached.
    pub reached: Option<&'a Path>,
    /// Arguments of the program.
    pub arguments: &'a [String],
    /// How long it may take.
    pub limit: Duration,
}

impl Trial<'_> {
    /// Runs the program until a test fails, it ends, or its time is over. Nothing that it started
    /// in its process group is left.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn run(&self) -> Result<Ending, String> {
        let mut child = self.start()?;
        let lines = lines_of(&mut child);
        let end = Instant::now() + self.limit;
        let mut last = String::new();
        let mut is_well = false;
        let ending = loop {
            match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    if let Some(test) = failed_test(&line) {
                        break Some(Ending::Failed(test.to_owned()));
                    }
                    is_well |= line.starts_with("test result: ok");
                    if !line.trim().is_empty() {
                        last = line;
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => break Some(Ending::Hung),
                Err(mpsc::RecvTimeoutError::Disconnected) => break None,
            }
        };
        if ending.is_some() {
            end_group(&child);
        }
        let status = ended(&mut child, end)?;
        end_group(&child);
        Ok(match (ending, status) {
            (Some(ending), _) => ending,
            (None, None) => Ending::Hung,
            (None, Some(status)) if status.success() && is_well => Ending::Passed,
            (None, Some(status)) => Ending::Crashed(format!("{status}, after: {last}")),
        })
    }

    /// The tests of the program that it would run.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn list(executable: &Executable) -> Result<Vec<String>, String> {
        let mut command = Command::new(&executable.path);
        command.current_dir(&executable.folder).args(["--list", "--format", "terse"]);
        let output = command.output().map_err(|error| format!("{executable:?}: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let tests = text.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok(tests.map(str::to_owned).collect())
    }

    fn start(&self) -> Result<Child, String> {
        let Executable { path, folder } = self.executable;
        let mut command = Command::new(path);
        command.current_dir(folder).env("CARGO_MANIFEST_DIR", folder).args(self.arguments);
        command.env_remove(VARIABLE).env_remove(REACHED).process_group(0);
        command.env("RPCRDMA_SIMULATION_SEEDS", SEEDS);
        if let Some(folder) = self.reached {
            command.env(REACHED, folder);
        }
        if let Some(number) = self.number {
            command.env(VARIABLE, number.to_string());
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.spawn().map_err(|error| format!("{}: {error}", path.display()))
    }
}

/// What the program writes. Another process that keeps its output open is not waited for.
fn lines_of(child: &mut Child) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    let stdout = child.stdout.take().expect("a pipe");
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            let is_over = line.starts_with("test result:");
            if sender.send(line).is_err() || is_over {
                break;
            }
        }
    });
    receiver
}

/// `name` of `test name ... FAILED`, or of `test name - should panic ... FAILED`.
fn failed_test(line: &str) -> Option<&str> {
    let (head, tail) = line.rsplit_once(" ... ")?;
    let name = head.rsplit_once("test ").map_or(head, |(_, name)| name);
    let is_failed = tail.trim_end() == "FAILED";
    is_failed.then(|| name.strip_suffix(" - should panic").unwrap_or(name))
}

/// How the program ended, if it did in time. One that did not is killed.
fn ended(child: &mut Child, end: Instant) -> Result<Option<ExitStatus>, String> {
    loop {
        let status = child.try_wait().map_err(|error| error.to_string())?;
        if status.is_some() {
            return Ok(status);
        }
        if Instant::now() >= end {
            end_group(child);
            return child.wait().map(|_| None).map_err(|error| error.to_string());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn end_group(child: &Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It may be gone.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str) -> Ending {
        let executable = Executable { path: "/bin/sh".into(), folder: "/".into() };
        let arguments = ["-c".to_owned(), script.to_owned()];
        let limit = Duration::from_secs(if script.contains("sleep") { 1 } else { 60 });
        let trial = Trial {
            executable: &executable,
            number: Some(7),
            reached: None,
            arguments: &arguments,
            limit,
        };
        trial.run().expect("a shell")
    }

    #[test]
    fn what_a_program_says_and_how_it_ends_is_understood() {
        assert_eq!(run("echo 'test result: ok. 1 passed'"), Ending::Passed);
        assert_eq!(run("echo 'test a::b ... FAILED'; sleep 100"), Ending::Failed("a::b".into()));
        let should = "echo \"test a::b - should panic ... FAILED\"";
        assert_eq!(run(should), Ending::Failed("a::b".into()));
        assert_eq!(run("echo test a::b ... ok; sleep 100"), Ending::Hung);
        assert!(matches!(run("echo 'test result: ok'; kill -SEGV $$"), Ending::Crashed(_)));
        assert!(matches!(run("echo 'test result: FAILED'; exit 1"), Ending::Crashed(_)));
        // A program without a result has run no test.
        assert!(matches!(run("exit 0"), Ending::Crashed(_)));
        assert_eq!(
            run("echo test result: ok $RPCRDMA_MUTANT; exit $((RPCRDMA_MUTANT - 7))"),
            Ending::Passed
        );
    }
}
