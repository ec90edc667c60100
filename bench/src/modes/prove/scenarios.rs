//! The process that runs the scenarios, one after the other, until one fails.

use std::any::Any;
use std::io;
use std::os::fd::AsFd;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rpcrdma::{Provider, ProviderKind, with_provider};
use rpcrdma_config::Config;
use rpcrdma_suite::Scenario;
use rpcrdma_suite::opener::{OnDevice, Opener};

use super::args::Args;
use super::messages::{OpenedDevice, ScenarioMessage, is_chosen};
use crate::contenders::agree::Lines;
use crate::device::{Device as _, Devices, Open};
use crate::error::BenchError;
use crate::stop;

/// Runs the scenarios from this one on, and says so at the other end of standard input. Ends behind
/// the first that fails: what it leaves is not to make others fail.
pub fn play(args: &Args, from: usize) -> Result<(), BenchError> {
    let stdin = io::stdin().as_fd().try_clone_to_owned();
    let lines = stdin.and_then(|stdin| Lines::new(stdin, PATIENCE));
    let mut lines = lines.map_err(|error| BenchError::device(WHO, error))?;
    let mut say =
        |word: ScenarioMessage| lines.say(&word).map_err(|error| BenchError::device(WHO, error));
    with_provider!(args.over(), |Opened| run_over(Opened::from_config, args, from, &mut say))
}

/// Runs the scenarios over a provider, each on a device of its own.
fn run_over<P: Provider + Clone>(
    open: Open<P>,
    args: &Args,
    from: usize,
    say: &mut dyn FnMut(ScenarioMessage) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let devices = match devices(open, args) {
        Ok(devices) => devices,
        Err(error) => return say(ScenarioMessage::Closed(error.to_string())),
    };
    say(ScenarioMessage::Opened(Box::new(OpenedDevice::new(devices.open()?.caps()))))?;
    let (chosen, at) = (chosen(args, from), devices.at());
    let device = || devices.open().expect("as the first");
    if args.over() == ProviderKind::Fabric {
        // Its time is that of the scenario.
        let open = || {
            let fabric = device();
            move || fabric.clone()
        };
        return run(&open, &chosen, from, say);
    }
    run(&|| OnDevice { device: device(), address: at }, &chosen, from, say)
}

fn devices<P: Provider>(open: Open<P>, args: &Args) -> Result<Devices<P>, BenchError> {
    let device = args.device();
    let mut raw = Config::profile("laptop")?.raw().clone();
    device.name_in(&mut raw);
    Devices::of_both_ends(open, &device, &Config::try_from(raw)?)
}

fn chosen<P: Provider>(args: &Args, from: usize) -> Vec<Scenario<P>> {
    let all = Scenario::all().into_iter();
    all.filter(|one| is_chosen(one.subject, &args.only)).skip(from).collect()
}

/// Runs scenarios, each on a device that is opened for it, until one fails; the first has the number
/// `from`.
pub fn run<P: Provider, O: Opener<P>>(
    open: &dyn Fn() -> O,
    scenarios: &[Scenario<P>],
    from: usize,
    say: &mut dyn FnMut(ScenarioMessage) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let before = panic::take_hook();
    panic::set_hook(Box::new(note));
    for (at, scenario) in scenarios.iter().enumerate() {
        if stop::is_requested() {
            break;
        }
        say(ScenarioMessage::Begins(from + at))?;
        let begun = Instant::now();
        let failure = failure(|| scenario.check(&open()));
        let is_last = failure.is_some();
        say(ScenarioMessage::Ended { seconds: begun.elapsed().as_secs_f64(), failure })?;
        if is_last {
            break;
        }
    }
    panic::set_hook(before);
    Ok(())
}

/// Why a scenario fails; `None` if it does not. Of several threads that panic, what the first says.
fn failure(scenario: impl FnOnce()) -> Option<String> {
    *noted() = None;
    let ended = panic::catch_unwind(AssertUnwindSafe(scenario));
    let first = noted().take();
    ended.err().map(|payload| first.unwrap_or_else(|| text(&*payload).to_owned()))
}

/// Keeps what the first thread that panics says, and where.
fn note(info: &PanicHookInfo<'_>) {
    let place = info.location().map_or_else(String::new, |at| {
        // The folder is of the machine that compiled it.
        let file = at.file().rsplit('/').take(2).collect::<Vec<_>>();
        format!(" ({}:{})", file.into_iter().rev().collect::<Vec<_>>().join("/"), at.line())
    });
    let said: String = text(info.payload()).chars().take(REASON_MAX).collect();
    noted().get_or_insert_with(|| said + &place);
}

fn noted() -> std::sync::MutexGuard<'static, Option<String>> {
    // It is whole whatever panicked meanwhile.
    NOTED.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The text of a panic.
fn text(payload: &(dyn Any + Send)) -> &str {
    let owned = payload.downcast_ref::<String>().map(String::as_str);
    owned.or(payload.downcast_ref::<&str>().copied()).unwrap_or("a panic without a text")
}

static NOTED: Mutex<Option<String>> = Mutex::new(None);
const WHO: &str = "the scenarios";
/// It receives nothing; the socket needs a time.
const PATIENCE: Duration = Duration::from_secs(1);
/// Letters of a reason: a script may be long.
const REASON_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use rpcrdma::Fabric;
    use rpcrdma_suite::scenarios::inline;
    use rpcrdma_testing::fault::{FaultPlan, FaultyProvider};

    use super::*;

    type Faulty = FaultyProvider<Fabric>;

    const ECHO: Scenario<Faulty> = Scenario {
        version: "auto",
        subject: "inline",
        name: "an_empty_call_is_answered",
        run: inline::an_empty_call_is_answered::<Faulty>,
    };

    /// What is said of two scenarios over a fabric with such faults.
    fn said(plan: &FaultPlan) -> Vec<ScenarioMessage> {
        let open = || {
            let (fabric, plan) = (Fabric::new(), *plan);
            move || FaultyProvider::new(fabric.clone(), plan)
        };
        let mut words = Vec::new();
        run(&open, &[ECHO, ECHO], 5, &mut |word| {
            words.push(word);
            Ok(())
        })
        .expect("it is read");
        words
    }

    /// One test: what panics is noted for the whole process.
    #[test]
    fn scenarios_are_numbered_and_timed_and_one_that_fails_is_the_last() {
        let words = said(&FaultPlan::default());
        assert_eq!(
            (&words[0], &words[2]),
            (&ScenarioMessage::Begins(5), &ScenarioMessage::Begins(6))
        );
        for at in [1, 3] {
            let ScenarioMessage::Ended { seconds, failure: None } = words[at] else {
                panic!("{words:?}")
            };
            assert!((0.0..60.0).contains(&seconds));
        }
        assert_eq!(words.len(), 4);
        // No Send is ever taken.
        let words = said(&FaultPlan { send_refused_ppm: 1_000_000, ..FaultPlan::default() });
        let [ScenarioMessage::Begins(5), ScenarioMessage::Ended { failure: Some(reason), .. }] =
            &words[..]
        else {
            panic!("{words:?}")
        };
        assert!(reason.contains("a test waits no longer"), "{reason}");
        assert!(reason.contains("(world/mod.rs:"), "{reason}");
    }
}
