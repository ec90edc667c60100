//! An external tool as a peer: found, run on the cores of the benchmark, and parsed.

use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use super::process::{self, Listening};
use super::{Measure, Pattern, PeerTask, ToolRound, patience};
use crate::args::{DeviceArgs, parse};
use crate::error::BenchError;
use crate::machine::CorePair;
use crate::stats::{End, Quota};

pub trait ToolKind: fmt::Debug {
    fn what(&self) -> ToolName<'_>;

    fn arguments(&self, task: &PeerTask, run: &ToolRun) -> [Vec<String>; 2];

    fn parse(&self, task: &PeerTask, out: &str) -> Result<ToolRound, OutputError>;

    /// How it was run, and what is weak about its figures; `device` is that of the other side.
    fn notes(&self, task: &PeerTask, device: Option<&str>) -> Vec<String>;

    fn can(&self, _pattern: Pattern) -> bool {
        true
    }

    /// Where its server listens on the port of a run, before which its client does not start, if it
    /// does; `device` is that of the other side.
    fn listens(&self, _device: Option<&str>) -> Option<Listening> {
        Some(Listening::OnHost)
    }

    /// How often a run is tried that fails by no fault of the device; `device` is that of the other
    /// side.
    fn attempts(&self, _device: Option<&str>) -> u32 {
        1
    }

    /// What it needs beside its program and does not find.
    fn missing(&self) -> Option<String> {
        None
    }
}

#[derive(Debug, Clone, Copy)]
pub struct ToolName<'a> {
    pub name: &'static str,
    /// Its name on the PATH, or its file.
    pub program: &'a str,
    pub source: PackageSource,
}

/// Where a program comes from.
#[derive(Debug, Clone, Copy)]
pub enum PackageSource {
    /// A package of Debian and its descendants.
    Package(&'static str),
    /// A folder of this repository with a crate of its own.
    Crate(&'static str),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolRun {
    pub port: u16,
    pub count: u64,
    /// The device of the other side, if it has one.
    pub device: Option<String>,
    pub address: Option<IpAddr>,
}

/// An output that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    #[error("its output is not known: it says nothing where there should be figures")]
    Short,
    #[error("its output is not known: it says `{line}` where there should be {expected}")]
    Other { line: String, expected: &'static str },
}

impl OutputError {
    /// A line in place of what was expected.
    pub fn of(line: &str, expected: &'static str) -> OutputError {
        match line.trim() {
            "" => OutputError::Short,
            line => OutputError::Other { line: line.to_owned(), expected },
        }
    }
}

/// The row under the names of the columns; behind it stand only rules.
pub fn row_under<'a>(
    names: &str,
    lines: impl Iterator<Item = &'a str>,
) -> Result<&'a str, OutputError> {
    let mut lines = lines.map(str::trim_end).filter(|line| !line.is_empty());
    let head = lines.next().ok_or(OutputError::Short)?;
    if !head.split_whitespace().eq(names.split_whitespace()) {
        return Err(OutputError::of(head, "the names of the columns"));
    }
    let row = lines.next().ok_or(OutputError::Short)?;
    match lines.find(|line| !line.bytes().all(|byte| byte == b'-')) {
        Some(more) => Err(OutputError::of(more, "the end")),
        None => Ok(row),
    }
}

pub struct Tool {
    kind: Rc<dyn ToolKind>,
    task: PeerTask,
    cores: CorePair,
    device: Option<String>,
    address: Option<IpAddr>,
    /// The time of one round trip or message, as it was last.
    each_ns: Option<f64>,
}

impl Tool {
    /// A tool that is installed and can send what the task asks for, on the device of the other
    /// side where it has a choice.
    pub fn new(
        kind: Rc<dyn ToolKind>,
        task: PeerTask,
        cores: CorePair,
        device: &DeviceArgs,
    ) -> Result<Tool, BenchError> {
        let DeviceArgs { device, address, .. } = device.clone();
        if !kind.can(task.pattern) {
            let how = match task.pattern {
                Pattern::Messages => "has one message in flight: compare it with `lat` or `raw`",
                Pattern::RoundTrips => "times no round trips: compare it with `rate` or `bw`",
            };
            return Err(BenchError::Usage(format!("{} {how}", kind.what().name)));
        }
        match absence(&*kind) {
            Some(absence) => Err(BenchError::Usage(format!("{}: {absence}", kind.what().name))),
            None => Ok(Tool { kind, task, cores, device, address, each_ns: None }),
        }
    }

    /// How it is run, and what is weak about its figures.
    pub fn notes(&self) -> Vec<String> {
        let notes = self.kind.notes(&self.task, self.device.as_deref()).into_iter();
        notes.map(|note| format!("{}: {note}", self.kind.what().name)).collect()
    }

    pub fn round(&mut self, quota: Quota) -> Result<ToolRound, BenchError> {
        let (count, time) = match quota.end {
            End::Count(count) => (count, Duration::ZERO),
            End::Time(time) => (self.count_for(time)?, time),
        };
        self.run(count, time)
    }

    /// How often it goes there and back in such a time, by its last run or a short one for that.
    fn count_for(&mut self, time: Duration) -> Result<u64, BenchError> {
        if self.each_ns.is_none() {
            self.run(TRIAL, Duration::ZERO)?;
        }
        let each_ns = self.each_ns.unwrap_or(TRIAL_NS).max(1.0);
        Ok(((time.as_nanos() as f64 / each_ns) as u64).clamp(TRIAL, COUNT_MAX))
    }

    fn run(&mut self, count: u64, time: Duration) -> Result<ToolRound, BenchError> {
        let who = self.kind.what().name;
        let mut left = self.kind.attempts(self.device.as_deref());
        let out = loop {
            left -= 1;
            match self.output(count, time) {
                Err(_) if left > 0 => {}
                last => break last?,
            }
        };
        let round = self.kind.parse(&self.task, &out);
        let round = round.map_err(|shape| BenchError::Device { who, what: shape.to_string() })?;
        self.each_ns = each_ns(&round).or(self.each_ns);
        Ok(round)
    }

    /// What its client prints in one run.
    fn output(&self, count: u64, time: Duration) -> Result<String, BenchError> {
        let who = self.kind.what().name;
        let port = process::free_port(who)?;
        let run = ToolRun { port, count, device: self.device.clone(), address: self.address };
        let [server, client] = self.kind.arguments(&self.task, &run);
        let port = self.kind.listens(self.device.as_deref()).map(|how| (port, how));
        let program = self.kind.what().program.to_owned();
        let commands = process::Commands { who, program, server, client, port };
        process::run(&commands, self.cores, patience(time))
    }
}

/// Why a tool cannot be run here, and what can be done about it; `None` if it can.
pub fn absence(kind: &dyn ToolKind) -> Option<String> {
    let ToolName { program, source, .. } = kind.what();
    if !process::is_installed(program) {
        let how = match source {
            PackageSource::Package(package) => format!(
                "`apt-get install {package}` on Debian and Ubuntu, or the package of that name \
                 elsewhere"
            ),
            PackageSource::Crate(folder) => {
                format!("`cargo install --locked --path {folder}` in the repository of rpcrdma")
            }
        };
        return Some(format!("{program} is not installed: {how}"));
    }
    kind.missing().map(|missing| format!("{program} needs {missing}"))
}

pub fn length(text: &str) -> Result<usize, String> {
    usize::try_from(parse::bytes(text)?).map_err(|error| error.to_string())
}

/// The time of one round trip, or of one message.
fn each_ns(round: &ToolRound) -> Option<f64> {
    let of = |measure| round.find(measure).map(|one| one.value).filter(|value| *value > 0.0);
    // Twice: the rate is of round trips, and messages are counted.
    of(Measure::Mean).or_else(|| of(Measure::Rate).map(|rate| 1e9 / (2.0 * rate)))
}

/// Round trips of a run that reports only how long they are.
const TRIAL: u64 = 1000;
const TRIAL_NS: f64 = 10_000.0;
const COUNT_MAX: u64 = 100_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::Printed;
    use crate::testing::Folder;

    #[derive(Debug)]
    struct Fake(&'static str);

    impl ToolKind for Fake {
        fn what(&self) -> ToolName<'_> {
            ToolName { name: "fake", program: self.0, source: PackageSource::Package("fake-utils") }
        }

        fn arguments(&self, _task: &PeerTask, _run: &ToolRun) -> [Vec<String>; 2] {
            [Vec::new(), Vec::new()]
        }

        fn parse(&self, _task: &PeerTask, _out: &str) -> Result<ToolRound, OutputError> {
            Err(OutputError::Short)
        }

        fn notes(&self, _task: &PeerTask, _device: Option<&str>) -> Vec<String> {
            vec!["a note".into()]
        }

        fn can(&self, pattern: Pattern) -> bool {
            pattern == Pattern::RoundTrips
        }
    }

    fn no_device() -> DeviceArgs {
        DeviceArgs { provider: None, device: None, address: None, connect: None }
    }

    const TASK: PeerTask = PeerTask { pattern: Pattern::RoundTrips, data_len: 64, wire_len: 136 };

    #[test]
    fn a_tool_that_is_not_there_is_named_with_its_package_and_the_command() {
        let Ok(cores) = CorePair::choose(None) else { return };
        let missing = Tool::new(Rc::new(Fake("rpcrdma-no-such-tool")), TASK, cores, &no_device());
        let error = missing.err().expect("no machine has it").to_string();
        assert!(error.contains("rpcrdma-no-such-tool is not installed"), "{error}");
        assert!(error.contains("apt-get install fake-utils"), "{error}");
    }

    /// Fails the first time: whether it has run is a file of this name.
    #[derive(Debug)]
    struct FailsOnce {
        attempts: u32,
        file: String,
    }

    impl ToolKind for FailsOnce {
        fn what(&self) -> ToolName<'_> {
            ToolName { name: "fails", program: "sh", source: PackageSource::Package("fake-utils") }
        }

        fn arguments(&self, _task: &PeerTask, _run: &ToolRun) -> [Vec<String>; 2] {
            let file = &self.file;
            let client = format!("test -e {file} && exit; echo refused >&2; echo >{file}; exit 1");
            ["exit 0".to_owned(), client].map(|script| vec!["-c".to_owned(), script])
        }

        fn parse(&self, _task: &PeerTask, _out: &str) -> Result<ToolRound, OutputError> {
            Ok(ToolRound { figures: Vec::new(), count: 7 })
        }

        fn notes(&self, _task: &PeerTask, _device: Option<&str>) -> Vec<String> {
            Vec::new()
        }

        fn listens(&self, _device: Option<&str>) -> Option<Listening> {
            None
        }

        fn attempts(&self, _device: Option<&str>) -> u32 {
            self.attempts
        }
    }

    #[test]
    fn a_run_that_fails_is_repeated_as_often_as_the_tool_says() {
        let Ok(cores) = CorePair::choose(None) else { return };
        for attempts in [1, 2] {
            let folder = Folder::new("fails-once");
            let file = folder.path().join("ran").display().to_string();
            let kind = Rc::new(FailsOnce { attempts, file });
            let mut tool = Tool::new(kind, TASK, cores, &no_device()).expect("there is a shell");
            let round = tool.round(Quota { warm_up: 0, end: End::Count(7) });
            match attempts {
                1 => assert!(round.expect_err("it failed").to_string().contains("refused")),
                _ => assert_eq!(round.expect("the second time").count, 7),
            }
        }
    }

    #[test]
    fn a_tool_is_not_asked_for_what_it_cannot_do() {
        let Ok(cores) = CorePair::choose(None) else { return };
        let task = PeerTask { pattern: Pattern::Messages, ..TASK };
        let refused = Tool::new(Rc::new(Fake("sh")), task, cores, &no_device());
        let error = refused.err().expect("it has one under way").to_string();
        assert!(error.contains("compare it with `lat`"), "{error}");
        let tool =
            Tool::new(Rc::new(Fake("sh")), TASK, cores, &no_device()).expect("there is a shell");
        assert_eq!(tool.notes(), ["fake: a note"]);
    }

    #[test]
    fn the_count_of_a_round_follows_from_the_time_of_the_last() {
        let round = |measure, value| ToolRound {
            figures: vec![Printed { measure, value, samples: 1 }],
            count: 1,
        };
        assert_eq!(each_ns(&round(Measure::Mean, 500.0)), Some(500.0));
        assert_eq!(each_ns(&round(Measure::Rate, 1e6)), Some(500.0));
        assert_eq!(each_ns(&round(Measure::Median, 500.0)), None);
    }

    /// Where the tools are installed: other machines have nothing to run.
    #[test]
    fn tools_that_are_installed_are_run_and_understood() {
        let Ok(cores) = CorePair::choose(None) else { return };
        let ucx = || Rc::new(parsed::<crate::peers::ucx::Ucx>());
        let pingpong = || Rc::new(parsed::<crate::peers::libfabric::FiPingpong>());
        let messages = PeerTask { pattern: Pattern::Messages, ..TASK };
        let kinds: [(Rc<dyn ToolKind>, PeerTask, Measure); 4] = [
            (Rc::new(parsed::<crate::peers::iceoryx2::Iceoryx2>()), TASK, Measure::Median),
            (ucx(), TASK, Measure::Median),
            (ucx(), messages, Measure::Data),
            (pingpong(), TASK, Measure::Mean),
        ];
        for (kind, task, measure) in kinds {
            let name = kind.what().name;
            if absence(&*kind).is_some() {
                continue;
            }
            let mut tool = Tool::new(kind, task, cores, &no_device()).expect("it is there");
            for _ in 0..2 {
                let quota = Quota { warm_up: 10, end: End::Count(2000) };
                let round = tool.round(quota).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!(round.count, 2000, "{name}");
                assert!(round.find(measure).is_some_and(|one| one.value > 0.0));
            }
        }
    }

    fn parsed<P: clap::Parser>() -> P {
        P::try_parse_from([""; 0]).expect("everything has a default")
    }
}
