//! Watches over the process that runs the scenarios, and starts another behind one that has ended.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::args::Args;
use super::messages::{OpenedDevice, ScenarioMessage, ScenarioName};
use super::part::PartOutcome;
use crate::contenders::agree::{Lines, Received};
use crate::contenders::far::OwnProcess;
use crate::stop;

/// What became of the scenarios.
#[derive(Debug, Default)]
pub struct Suite {
    /// The device, if it was opened.
    pub opened: Option<OpenedDevice>,
    pub ended: Vec<Ended>,
    /// Why not all scenarios were run, if that is so.
    pub broken: Option<String>,
}

/// What became of one scenario.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ended {
    pub version: &'static str,
    pub subject: &'static str,
    pub name: &'static str,
    pub result: PartOutcome,
    pub seconds: f64,
    pub reason: Option<String>,
}

impl Ended {
    /// As its test is called: `inline::every_length_is_echoed`, with the version if that is given.
    pub fn title(&self) -> String {
        let Ended { version, subject, name, .. } = self;
        let one = if *version == "one" { ", version one" } else { "" };
        format!("{subject}::{name}{one}")
    }
}

/// A process that runs scenarios.
#[derive(Debug)]
pub struct Process {
    lines: Lines,
    /// Nothing if the test plays it.
    child: Option<OwnProcess>,
}

impl Suite {
    pub fn count(&self, result: PartOutcome) -> usize {
        self.ended.iter().filter(|one| one.result == result).count()
    }

    /// Why the part fails: the scenarios that failed, and why others were not run.
    pub fn reasons(&self) -> Vec<String> {
        let failed = self.ended.iter().filter(|one| one.result == PartOutcome::Failed);
        let sentence = |one: &Ended| {
            let why = one.reason.as_deref().unwrap_or_default();
            format!("{}: {why}", one.title())
        };
        let not_run = self.broken.as_ref().map(|why| {
            format!("{} scenarios were not run: {why}", self.count(PartOutcome::Skipped))
        });
        failed.map(sentence).chain(not_run).collect()
    }

    /// Runs all scenarios, each for no longer than `limit`, and all in no more than `most`. `start`
    /// starts a process that runs them from a number on; `progress` is called with the number that are over.
    pub fn run(
        names: &[ScenarioName],
        [limit, most]: [Duration; 2],
        start: &mut dyn FnMut(usize) -> Result<Process, String>,
        progress: &dyn Fn(usize),
    ) -> Suite {
        let (begun, mut suite) = (Instant::now(), Suite::default());
        while suite.ended.len() < names.len() && suite.broken.is_none() {
            let before = suite.ended.len();
            suite.broken = match start(before) {
                Ok(process) => suite.watch(names, process, limit, begun + most, progress).err(),
                Err(why) => Some(why),
            };
            if suite.ended.len() == before && suite.broken.is_none() {
                suite.broken = Some("a process ended before its first scenario".into());
            }
        }
        let reason = suite.broken.clone();
        for ScenarioName { version, subject, name } in names.iter().skip(suite.ended.len()) {
            let (result, reason) = (PartOutcome::Skipped, reason.clone());
            let (version, subject, name) = (*version, *subject, *name);
            suite.ended.push(Ended { version, subject, name, result, seconds: 0.0, reason });
        }
        suite
    }

    /// Reads the messages of a process until it has ended. An error is a reason to run no further scenario.
    fn watch(
        &mut self,
        names: &[ScenarioName],
        mut process: Process,
        limit: Duration,
        last: Instant,
        progress: &dyn Fn(usize),
    ) -> Result<(), String> {
        // What is under way, and since when; at first that is the opening of the device.
        let (mut begun, mut since) = (false, Instant::now());
        loop {
            let received = process.lines.receive::<ScenarioMessage>();
            match received {
                Ok(Received::Line(ScenarioMessage::Opened(opened))) => self.opened = Some(*opened),
                Ok(Received::Line(ScenarioMessage::Closed(why))) => return Err(why),
                Ok(Received::Line(ScenarioMessage::Begins(at)))
                    if at == self.ended.len() && at < names.len() =>
                {
                    (begun, since) = (true, Instant::now());
                }
                Ok(Received::Line(ScenarioMessage::Ended { seconds, failure })) if begun => {
                    begun = false;
                    self.ended(names, seconds, failure);
                    progress(self.ended.len());
                }
                Ok(Received::Line(word)) => {
                    return Err(format!("a scenario says {word:?} too soon"));
                }
                Err(error) => return Err(format!("the process of the scenarios: {error}")),
                Ok(Received::Gone) => {
                    let how = process.end();
                    if begun {
                        let why = format!("its process ended: {how}");
                        self.ended(names, since.elapsed().as_secs_f64(), Some(why));
                    }
                    return Ok(());
                }
                Ok(Received::Nothing) if since.elapsed() > limit => {
                    let time = limit.as_secs();
                    if !begun {
                        return Err(format!("the device was not open after {time} s"));
                    }
                    let why = format!("it did not end within {time} s");
                    self.ended(names, since.elapsed().as_secs_f64(), Some(why));
                    return Ok(());
                }
                Ok(Received::Nothing) => {}
            }
            if stop::is_requested() {
                return Err("the run was interrupted".into());
            }
            if Instant::now() > last {
                return Err("the scenarios took too long together".into());
            }
        }
    }

    fn ended(&mut self, names: &[ScenarioName], seconds: f64, reason: Option<String>) {
        let ScenarioName { version, subject, name } = names[self.ended.len()];
        let result = if reason.is_some() { PartOutcome::Failed } else { PartOutcome::Passed };
        self.ended.push(Ended { version, subject, name, result, seconds, reason });
    }
}

impl Process {
    /// This program once more, which runs the scenarios from this one on.
    pub fn start(args: &Args, from: usize) -> Result<Process, String> {
        let words = ["prove", "--quiet", "--on-stdin"].map(str::to_owned).into_iter();
        let mut words: Vec<String> = words.chain([from.to_string()]).chain(args.again()).collect();
        if !args.only.is_empty() {
            words.extend(["--only".to_owned(), args.only.join(",")]);
        }
        let (lines, child) = OwnProcess::start(&words, LOOK)?;
        Ok(Process { lines, child: Some(child) })
    }

    /// How it has ended.
    fn end(&mut self) -> String {
        let status = self.child.as_mut().and_then(|child| child.wait().ok());
        status.map_or_else(|| "it has gone".to_owned(), how)
    }
}

/// How a process has ended, in words.
pub fn how(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(11), _) => "a segmentation fault".to_owned(),
        (Some(signal), _) => format!("signal {signal}"),
        (None, code) => format!("exit code {}", code.unwrap_or_default()),
    }
}

/// How often the time is looked at.
const LOOK: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::thread::{self, JoinHandle};

    use super::*;

    const LONG: [Duration; 2] = [Duration::from_secs(60); 2];
    const NAMES: [ScenarioName; 3] = [name("first"), name("second"), name("third")];

    const fn name(name: &'static str) -> ScenarioName {
        ScenarioName { version: "auto", subject: "inline", name }
    }

    /// A process that has said these words and has ended, or waits until the other end is closed.
    fn played(words: &[ScenarioMessage], waits: bool) -> (Process, JoinHandle<()>) {
        let (here, there) = UnixStream::pair().expect("two sockets");
        let lines = Lines::new(here, Duration::from_millis(1)).expect("a socket");
        let mut own = Lines::new(there, Duration::from_secs(60)).expect("a socket");
        words.iter().for_each(|word| own.say(word).expect("it is read"));
        let player = thread::spawn(move || {
            if waits {
                let received = own.receive::<ScenarioMessage>().expect("a socket");
                assert!(matches!(received, Received::Gone), "it is sent nothing");
            }
        });
        (Process { lines, child: None }, player)
    }

    fn ended(failure: Option<&str>) -> ScenarioMessage {
        ScenarioMessage::Ended { seconds: 0.5, failure: failure.map(str::to_owned) }
    }

    /// The outcome of three scenarios, and from where processes were started: what each says, and
    /// whether it then waits.
    fn outcome(
        processes: Vec<(Vec<ScenarioMessage>, bool)>,
        limits: [Duration; 2],
    ) -> (Suite, Vec<usize>) {
        let (mut processes, mut starts) = (processes.into_iter(), Vec::new());
        let mut players = Vec::new();
        let mut start = |from: usize| -> Result<Process, String> {
            starts.push(from);
            let (words, waits) = processes.next().ok_or("there is no further process")?;
            let (process, player) = played(&words, waits);
            players.push(player);
            Ok(process)
        };
        let suite = Suite::run(&NAMES, limits, &mut start, &|_| {});
        players.into_iter().for_each(|player| player.join().expect("it was read"));
        (suite, starts)
    }

    fn results(suite: &Suite) -> Vec<(PartOutcome, Option<&str>)> {
        suite.ended.iter().map(|one| (one.result, one.reason.as_deref())).collect()
    }

    #[test]
    fn behind_a_scenario_that_fails_the_rest_run_in_another_process() {
        let first = vec![
            ScenarioMessage::Begins(0),
            ended(None),
            ScenarioMessage::Begins(1),
            ended(Some("no reply")),
        ];
        let second = vec![ScenarioMessage::Begins(2), ended(None)];
        let (suite, starts) = outcome(vec![(first, false), (second, false)], LONG);
        assert_eq!(starts, [0, 2]);
        let failed = (PartOutcome::Failed, Some("no reply"));
        assert_eq!(
            results(&suite),
            [(PartOutcome::Passed, None), failed, (PartOutcome::Passed, None)]
        );
        assert_eq!((suite.ended[1].name, suite.ended[1].seconds), ("second", 0.5));
        assert_eq!(suite.broken, None);
    }

    #[test]
    fn a_process_that_crashes_fails_what_it_was_at() {
        let crash = vec![ScenarioMessage::Begins(0), ended(None), ScenarioMessage::Begins(1)];
        let second = vec![ScenarioMessage::Begins(2), ended(None)];
        let (suite, starts) = outcome(vec![(crash, false), (second, false)], LONG);
        assert_eq!(starts, [0, 2]);
        let (result, reason) = results(&suite)[1];
        assert_eq!(result, PartOutcome::Failed);
        assert!(reason.is_some_and(|why| why.contains("its process ended")), "{reason:?}");
    }

    #[test]
    fn a_scenario_that_hangs_fails_and_its_process_is_left() {
        let second =
            vec![ScenarioMessage::Begins(1), ended(None), ScenarioMessage::Begins(2), ended(None)];
        let limits = [Duration::ZERO, LONG[1]];
        let (suite, starts) =
            outcome(vec![(vec![ScenarioMessage::Begins(0)], true), (second, false)], limits);
        let (result, reason) = results(&suite)[0];
        assert_eq!((starts[0], result), (0, PartOutcome::Failed));
        assert_eq!(reason, Some("it did not end within 0 s"));
        // Together they have a limit, too.
        let (suite, _) =
            outcome(vec![(vec![ScenarioMessage::Begins(0)], true)], [LONG[0], Duration::ZERO]);
        assert!(suite.broken.is_some_and(|why| why.contains("too long together")));
        assert_eq!(suite.ended.iter().filter(|one| one.result == PartOutcome::Skipped).count(), 3);
    }

    #[test]
    fn a_device_that_cannot_be_opened_is_a_reason_and_no_scenario_runs() {
        let (suite, starts) =
            outcome(vec![(vec![ScenarioMessage::Closed("no mlx5_9".into())], false)], LONG);
        assert_eq!((starts.len(), suite.broken.as_deref()), (1, Some("no mlx5_9")));
        assert_eq!(results(&suite), [(PartOutcome::Skipped, Some("no mlx5_9")); 3]);
        let (suite, starts) = outcome(vec![(vec![], false), (vec![], false)], LONG);
        assert_eq!(starts.len(), 1, "it is not started again and again");
        assert!(suite.broken.is_some_and(|why| why.contains("before its first scenario")));
    }

    #[test]
    fn words_out_of_turn_are_an_error() {
        for words in [vec![ended(None)], vec![ScenarioMessage::Begins(1)]] {
            let (suite, _) = outcome(vec![(words, false)], LONG);
            assert!(suite.broken.is_some_and(|why| why.contains("too soon")));
        }
    }
}
