//! The measurements: each is this program once more, with another mode and its result as JSON.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rpcrdma::ProviderKind;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::args::Args;
use super::suite::how;
use crate::contenders::far::own_program;
use crate::machine::CorePair;
use crate::modes::cmp;
use crate::output::{Distribution, Figure, Report};
use crate::stop;

/// One part: what is measured, in turns if both ends are here.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    pub part: &'static str,
    pub what: &'static str,
    pub sides: Vec<NamedMode>,
}

/// What is measured under a name, as a side of `cmp` or a mode.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedMode {
    pub name: &'static str,
    mode: &'static str,
    /// Whether it is a tool or has both ends in one process, and reaches no other host.
    is_local: bool,
}

/// What was measured of a part.
#[derive(Debug, Default)]
pub struct Measurements {
    pub figures: Vec<Figure>,
    pub distributions: Vec<Distribution>,
    pub notes: Vec<String>,
    pub noise: Vec<String>,
    /// Why something of it could not be measured.
    pub failures: Vec<String>,
    /// What is not installed.
    pub absent: Vec<String>,
}

/// All parts, in their order.
pub fn all() -> [Measurement; 3] {
    let ours = |name, mode| NamedMode { name, mode, is_local: false };
    let local = |name, mode| NamedMode { name, mode, is_local: true };
    [
        Measurement {
            part: "latency",
            what: "round trip of an echo of 64 bytes",
            sides: vec![
                ours("latency.rpc", "lat"),
                local("latency.raw", "raw"),
                local("latency.ib_send_lat", "ib_send_lat"),
            ],
        },
        Measurement {
            part: "rate",
            what: "echoes of 64 bytes, 32 in flight",
            sides: vec![
                ours("rate.rpc", "rate"),
                local("rate.raw", "raw -w 32"),
                local("rate.ib_send_bw", "ib_send_bw"),
            ],
        },
        Measurement {
            part: "bandwidth",
            what: "reads and writes of 64 KiB, by Sends and by explicit RDMA",
            sides: vec![
                ours("bandwidth.read_send", "bw --op read -p send"),
                ours("bandwidth.read_rdma", "bw --op read -p rdma"),
                ours("bandwidth.write_send", "bw --op write -p send"),
                ours("bandwidth.write_rdma", "bw --op write -p rdma"),
                local("bandwidth.ib_send_bw", "ib_send_bw"),
            ],
        },
    ]
}

impl Measurement {
    /// Measures, for no longer than `limit` each time a process is started.
    pub fn run(&self, args: &Args, cores: CorePair, limit: Duration) -> Measurements {
        let mut measured = Measurements::default();
        match args.peer {
            Some(peer) => {
                // One after the other: a server answers one client at a time.
                for side in self.sides.iter().filter(|side| !side.is_local) {
                    let mut words: Vec<String> = side.mode.split(' ').map(str::to_owned).collect();
                    words.extend(args.again());
                    words.extend(["--connect".to_owned(), peer.to_string()]);
                    let result = process(words, args, cores, limit);
                    measured.add(result, |_| vec![("rpc".to_owned(), side.name)], side.name);
                }
            }
            None => {
                let sides = self.present(args, &mut measured.absent);
                let texts = sides.iter().map(|side| side.text(args));
                let words = ["cmp".to_owned()].into_iter().chain(texts).collect();
                let names = |report: &Report| {
                    let labels = cmp::labels_of(&report.settings);
                    labels.into_iter().zip(sides.iter().map(|side| side.name)).collect()
                };
                measured.add(process(words, args, cores, limit), names, self.part);
            }
        }
        measured
    }

    /// The sides that can be run here; perftest is for devices only.
    fn present(&self, args: &Args, absent: &mut Vec<String>) -> Vec<&NamedMode> {
        let is_tool = |side: &&NamedMode| side.mode.starts_with("ib_");
        let mut present = Vec::new();
        for side in &self.sides {
            if is_tool(&side) && args.over() != ProviderKind::Verbs {
                continue;
            }
            match cmp::absence(side.mode).filter(|_| is_tool(&side)) {
                Some(why) => absent.push(why),
                None => present.push(side),
            }
        }
        present
    }
}

impl NamedMode {
    /// As `cmp` reads it.
    fn text(&self, args: &Args) -> String {
        if self.mode.starts_with("ib_") {
            return self.mode.to_owned();
        }
        format!("{} {}", self.mode, args.again().join(" "))
    }
}

impl Measurements {
    /// With those of another part.
    pub fn extend(&mut self, other: Measurements) {
        self.figures.extend(other.figures);
        self.distributions.extend(other.distributions);
        add_new(&mut self.notes, other.notes);
        add_new(&mut self.noise, other.noise);
    }

    /// With the result of a process, whose contenders get other names; `of` is what was measured.
    fn add(
        &mut self,
        result: Result<Report, String>,
        names: impl FnOnce(&Report) -> Vec<(String, &'static str)>,
        of: &str,
    ) {
        let report = match result {
            Ok(report) => report,
            Err(why) => {
                self.failures.push(format!("{of}: {why}"));
                return;
            }
        };
        let names = names(&report);
        let new = |of: &str| names.iter().find(|(old, _)| *old == of).map(|(_, new)| *new);
        let renamed = |of: &str| match of.split_once('/') {
            Some((one, other)) => Some(format!("{}/{}", new(one)?, new(other)?)),
            None => new(of).map(str::to_owned),
        };
        // Nothing here is worse than it was.
        for figure in report.figures.into_iter().filter(|figure| figure.name != "regression") {
            if let Some(of) = renamed(&figure.of) {
                self.figures.push(Figure { of, ..figure });
            }
        }
        for one in report.distributions {
            if let Some(name) = renamed(&one.name) {
                self.distributions.push(Distribution { name, ..one });
            }
        }
        add_new(&mut self.notes, report.environment.notes);
        // What the probe of a short process sees, that of the whole run sees too.
        let is_of_contender = |reason: &String| !reason.starts_with("core ");
        let noise = report.environment.noise.into_iter().filter(is_of_contender);
        add_new(&mut self.noise, noise.map(|reason| format!("{of}: {reason}")).collect());
    }
}

/// Adds what is not there yet.
fn add_new(to: &mut Vec<String>, new: Vec<String>) {
    for one in new {
        if !to.contains(&one) {
            to.push(one);
        }
    }
}

/// The result of this program with such a mode, on these cores, for as long as the options say.
fn process(
    mut words: Vec<String>,
    args: &Args,
    cores: CorePair,
    limit: Duration,
) -> Result<Report, String> {
    words.extend(args.lengths());
    words.extend(["-c".to_owned(), format!("{},{}", cores.client, cores.server)]);
    words.extend(["--quiet".to_owned(), "--json".to_owned(), "-".to_owned()]);
    let mut command = Command::new(own_program()?);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // In a group of its own, which is ended as a whole: it may have started others.
    let child = command.process_group(0).spawn().map_err(|error| error.to_string())?;
    RunningMode::new(child).result(limit)
}

struct RunningMode {
    child: Child,
    /// The lines of its output and of its errors.
    lines: [Option<Receiver<Vec<u8>>>; 2],
}

impl RunningMode {
    fn new(mut child: Child) -> RunningMode {
        let out = child.stdout.take().map(lines);
        let errors = child.stderr.take().map(lines);
        RunningMode { child, lines: [out, errors] }
    }

    fn result(mut self, limit: Duration) -> Result<Report, String> {
        let ended = self.wait(limit);
        let status = self.end().map_err(|error| error.to_string());
        ended?;
        let status = status?;
        let [out, errors] = self.lines.map(|lines| lines.map(text).unwrap_or_default());
        if !status.success() {
            let errors = errors.replace("rpcrdma-bench: ", "");
            let why = errors.trim();
            return Err(if why.is_empty() { how(status) } else { why.to_owned() });
        }
        Report::parse(&out)
    }

    /// Waits until it has ended, and leaves its number to it, which is that of its group.
    fn wait(&self, limit: Duration) -> Result<(), String> {
        let deadline = Instant::now() + limit;
        let id = WaitId::Pid(Pid::from_child(&self.child));
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        loop {
            match waitid(id.clone(), how) {
                Ok(Some(_)) => return Ok(()),
                Ok(None) if stop::is_requested() => return Err("the run was interrupted".into()),
                Ok(None) if Instant::now() < deadline => thread::sleep(LOOK),
                Ok(None) => return Err(format!("it did not end within {} s", limit.as_secs())),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Ends it and what it has started in its group.
    fn end(&mut self) -> io::Result<ExitStatus> {
        // It fails only if nothing is left of the group.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        self.child.wait()
    }
}

/// Reads lines until their end, which is as late as the last process that has them open.
fn lines(from: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (to, lines) = mpsc::channel();
    thread::spawn(move || {
        // What was read until an error is what there is.
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            if to.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

/// What a process that has ended has written. One that it left in another group may have the
/// pipe open still, and is not waited for.
fn text(lines: Receiver<Vec<u8>>) -> String {
    let (last, mut text) = (Instant::now() + REST, Vec::new());
    while let Ok(line) = lines.recv_timeout(last.saturating_duration_since(Instant::now())) {
        text.extend(line);
        text.push(b'\n');
    }
    String::from_utf8_lossy(&text).into_owned()
}

const LOOK: Duration = Duration::from_millis(20);
/// Until what was in a pipe when its process ended has been read.
const REST: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Unit;
    use crate::testing::{parsed, quiet};

    fn shell(script: &str) -> RunningMode {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        RunningMode::new(command.process_group(0).spawn().expect("there is a shell"))
    }

    #[test]
    fn a_process_that_fails_crashes_hangs_or_says_nonsense_is_a_reason() {
        let long = Duration::from_secs(60);
        let said = |script: &str, limit| shell(script).result(limit).expect_err("it fails");
        assert_eq!(said("echo 'rpcrdma-bench: no device' >&2; exit 1", long), "no device");
        assert_eq!(said("kill -SEGV $$", long), "a segmentation fault");
        assert_eq!(said("exit 7", long), "exit code 7");
        assert_eq!(said("sleep 1000 & wait", Duration::ZERO), "it did not end within 0 s");
        assert!(said("echo '{}'", long).contains("schema"));
    }

    #[test]
    fn what_a_process_leaves_behind_is_ended_or_not_waited_for() {
        let (long, begun) = (Duration::from_secs(60), Instant::now());
        let said = |script: &str| shell(script).result(long).expect_err("it fails");
        let left = said("sleep 30 & echo $! >&2; exit 1");
        // Nothing, or empty, of a process that has ended.
        let line = std::fs::read_to_string(format!("/proc/{left}/cmdline")).unwrap_or_default();
        assert!(left.parse::<u32>().is_ok() && !line.contains("sleep"), "{left}: {line}");
        // In a group of its own, with the errors open, before the shell says anything.
        let other = "x=$(setsid sh -c 'exec sleep 30 >&2' &); echo 'no device' >&2; exit 1";
        assert_eq!(said(other), "no device");
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    }

    #[test]
    fn figures_get_the_names_of_the_parts() {
        let figure = |of: &str| Figure::new(of, "rate", 1.0, Unit::PerSecond, 1);
        let figures = ["lat", "raw", "lat/raw", "other"].map(figure).to_vec();
        let report =
            Report::new("cmp", "x".into(), serde_json::Value::Null, quiet(vec![]), figures);
        let mut measured = Measurements::default();
        let names =
            |_: &Report| vec![("lat".to_owned(), "latency.rpc"), ("raw".to_owned(), "latency.raw")];
        measured.add(Ok(report), names, "latency");
        let of: Vec<&str> = measured.figures.iter().map(|one| &*one.of).collect();
        assert_eq!(of, ["latency.rpc", "latency.raw", "latency.rpc/latency.raw"]);
        measured.add(Err("no device".into()), names, "latency");
        assert_eq!(measured.failures, ["latency: no device"]);
    }

    #[test]
    fn every_side_is_one_of_cmp_on_the_device() {
        if CorePair::choose(None).is_err() {
            return;
        }
        let args: Args = parsed("");
        for measurement in all() {
            let mut absent = Vec::new();
            let present = measurement.present(&args, &mut absent);
            assert!(present.len() > 1 && absent.is_empty(), "the fabric has no perftest");
            let texts: Vec<String> = present.iter().map(|side| side.text(&args)).collect();
            assert!(texts.iter().all(|text| text.ends_with("--provider fabric")), "{texts:?}");
            assert!(texts.iter().all(|text| cmp::absence(text).is_none()), "{texts:?}");
        }
    }
}
