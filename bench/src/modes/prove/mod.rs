//! `prove`: whether a device does what the engine asks of it, and how fast, as one result.
//!
//! ```text
//!   host         check
//!   scenarios    suite ──▶ a process of this program; another behind one that ended
//!   latency ┐
//!   rate    ├    measured ──▶ a process of this program each, with another mode and --json
//!   bandwidth ┘
//!      └──▶ parts, facts about the device ──▶ report, without addresses
//! ```

mod args;
mod facts;
mod hide;
mod measured;
mod messages;
mod part;
mod report;
mod scenarios;
mod suite;

use std::path::Path;
use std::time::{Duration, Instant};

use rpcrdma::ProviderKind;
use serde_json::{Value, json};

use crate::check;
use crate::check::finding::Severity;
use crate::error::BenchError;
use crate::machine::CorePair;
use crate::machine::files::Files;
use crate::machine::jitter::{self, PROBE_TIME};
use crate::output::{Environment, Report, Session};
use crate::stop;
pub use args::{Args, EXAMPLES};
use facts::Facts;
use measured::Measurements;
use part::{Part, PartOutcome};
use report::Proof;
use suite::{Process, Suite};

pub fn measure(args: &Args, session: &Session) -> Result<Report, BenchError> {
    args.check()?;
    let cores = CorePair::choose(args.cores.cores)?;
    if let Some(from) = args.on_stdin {
        scenarios::play(args, from)?;
        return Ok(Report::silent("prove", cores));
    }
    let names = messages::names(&args.only);
    if let Some(wrong) = args.only.iter().find(|one| !names.iter().any(|it| it.subject == **one)) {
        return Err(unknown(wrong));
    }
    let what = sentence(args, names.len());
    session.announce(&what)?;
    let before = jitter::probe(cores, PROBE_TIME)?;
    let (host, found) = host(args)?;
    let (scenarios, suite) = scenarios_part(args, &names, session);
    let mut parts = vec![host, scenarios];
    let mut all = Measurements::default();
    for measurement in measured::all() {
        let begun = Instant::now();
        if stop::is_requested() {
            parts.push(skipped(measurement.part, measurement.what));
            continue;
        }
        let measured = measurement.run(args, cores, MEASUREMENT_MAX);
        let result =
            if measured.failures.is_empty() { PartOutcome::Passed } else { PartOutcome::Failed };
        let reasons = measured.failures.iter().chain(&measured.absent).cloned().collect();
        parts.push(Part {
            name: measurement.part,
            result,
            seconds: begun.elapsed().as_secs_f64(),
            what: measurement.what.to_owned(),
            reasons,
        });
        all.extend(measured);
    }
    let after = jitter::probe(cores, PROBE_TIME)?;
    let mut environment = Environment::new(cores, all.notes.clone(), [before, after]);
    environment.noise.extend(all.noise.clone());
    let files = Files::new(Path::new("/"));
    let provider = args.over().as_str();
    let facts = Facts::read(&files, provider, args.name(), suite.opened.as_ref());
    let proof = Proof { what, args, cores, facts, parts, suite, measured: all, found };
    Ok(proof.report(environment))
}

/// Looks at the host: what does not work fails the part.
fn host(args: &Args) -> Result<(Part, Value), BenchError> {
    let begun = Instant::now();
    let asked = check::Args {
        profile: None,
        config: None,
        // The cores are looked at for the whole run.
        no_probe: true,
        root: "/".into(),
        cores: args.cores.clone(),
        device: args.device(),
        output: args.output.clone(),
    };
    let wanted = check::wanted(&asked)?;
    let checkup = check::look(&asked, &wanted);
    let errors = checkup.findings().filter(|found| found.severity == Severity::Error);
    let reasons: Vec<String> =
        errors.map(|found| format!("{}: {}", found.name, found.seen)).collect();
    let warnings = checkup.count(Severity::Warning);
    let part = Part {
        name: "host",
        result: if reasons.is_empty() { PartOutcome::Passed } else { PartOutcome::Failed },
        seconds: begun.elapsed().as_secs_f64(),
        what: format!("what `rpcrdma-bench check` finds: {warnings} warnings"),
        reasons,
    };
    Ok((part, json!({ "sections": checkup.sections, "conclusion": checkup.conclusion })))
}

/// Runs the scenarios. Without one that passed, and where not all were run, the part fails.
fn scenarios_part(
    args: &Args,
    names: &[messages::ScenarioName],
    session: &Session,
) -> (Part, Suite) {
    let begun = Instant::now();
    let progress = session.progress(names.len() as u32, SCENARIOS_USUAL);
    let suite = Suite::run(
        names,
        [args.limit, SCENARIOS_MAX],
        &mut |from| Process::start(args, from),
        &|done| progress.step(done as u32),
    );
    drop(progress);
    let [passed, failed] =
        [PartOutcome::Passed, PartOutcome::Failed].map(|result| suite.count(result));
    let is_good = failed == 0 && suite.broken.is_none();
    let part = Part {
        name: "scenarios",
        result: if is_good { PartOutcome::Passed } else { PartOutcome::Failed },
        seconds: begun.elapsed().as_secs_f64(),
        what: format!("{passed} of {} scenarios pass", names.len()),
        reasons: suite.reasons(),
    };
    (part, suite)
}

fn skipped(name: &'static str, what: &str) -> Part {
    let (result, what) = (PartOutcome::Skipped, what.to_owned());
    Part { name, result, seconds: 0.0, what, reasons: vec!["the run was interrupted".into()] }
}

fn sentence(args: &Args, scenarios: usize) -> String {
    let far = if args.peer.is_some() { ", with another host" } else { "" };
    let provider = args.over().as_str();
    let trial = if args.over() == ProviderKind::Fabric { ", for a trial" } else { "" };
    format!(
        "prove: {}, provider {provider}{trial}: {scenarios} scenarios, then measurements{far}",
        args.name()
    )
}

fn unknown(subject: &str) -> BenchError {
    let mut subjects: Vec<&str> = messages::names(&[]).iter().map(|one| one.subject).collect();
    subjects.sort_unstable();
    subjects.dedup();
    let subjects = subjects.join(", ");
    BenchError::Usage(format!("--only {subject}: no such subject; there are {subjects}"))
}

/// What the scenarios take on soft-RoCE in an emulated machine; on a NIC it is seconds.
const SCENARIOS_USUAL: Duration = Duration::from_secs(120);
const SCENARIOS_MAX: Duration = Duration::from_secs(30 * 60);
/// Of each process that measures: tools have to start, and a device to be found.
const MEASUREMENT_MAX: Duration = Duration::from_secs(10 * 60);
