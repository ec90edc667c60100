//! One run: probe, rounds, probe, report.

use std::fs;
use std::io::{Write, stdout};
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::args::{Args, Mode, Over};
use crate::call::Shape;
use crate::device::Device;
use crate::distance;
use crate::error::BenchError;
use crate::floor::Floor;
use crate::jitter::{self, Jitter};
use crate::plan::{Load, Plan};
use crate::progress::Progress;
use crate::raw::Raw;
use crate::report::{ContenderReport, Lost, RatioReport, Report, Scene, Tabular};
use crate::rounds::{self, Contender, Series};
use crate::rpc::Rpc;
use crate::site::{Fabrics, Site};
use crate::stat::Stat;

/// Measures what the options ask for and writes the result.
///
/// # Errors
/// Whatever keeps the run from a result that can be believed.
pub fn run(args: &Args) -> Result<(), BenchError> {
    if args.mode == Some(Mode::Distance) {
        let plan = distance::Plan::new(args)?;
        return show(args, &plan.sentence(), || distance::measure(&plan, args.quiet));
    }
    let plan = Plan::new(args)?;
    show(args, &plan.sentence(), || measure(&plan, args))
}

/// Says what is going to be measured, measures, and writes the result as the options want it.
fn show<R: Tabular>(
    args: &Args,
    sentence: &str,
    measure: impl FnOnce() -> Result<R, BenchError>,
) -> Result<(), BenchError> {
    let json_only = args.json.as_deref() == Some(Path::new("-"));
    if !json_only {
        say(&format!("{sentence}\n"))?;
    }
    let report = measure()?;
    if !json_only {
        say(&report.table())?;
    }
    match &args.json {
        Some(path) => write_json(&report, path),
        None => Ok(()),
    }
}

/// Measures over the provider that the options name.
fn measure(plan: &Plan, args: &Args) -> Result<Report, BenchError> {
    match args.provider {
        Over::Fabric => measure_on(&Fabrics::new(&plan.config), plan, args.quiet),
        Over::Verbs => measure_on(&Device::open(args, &plan.config)?, plan, args.quiet),
    }
}

fn measure_on<S: Site>(site: &S, plan: &Plan, quiet: bool) -> Result<Report, BenchError> {
    let Field { mut contenders, notes } = field(site, plan)?;
    let total = plan.rounds * contenders.len() as u32;
    let progress = Progress::new(total, plan.expected(contenders.len() as u32), quiet);
    let jitter_before = jitter::probe(plan.cores, PROBE_TIME)?;
    let series = rounds::interleave(&mut contenders, plan.rounds, plan.quota, |done| {
        progress.step(done);
    })?;
    drop(progress);
    let jitter_after = jitter::probe(plan.cores, PROBE_TIME)?;
    let spent = contenders.iter().flat_map(|contender| contender.spent()).collect();
    Ok(Report { spent, ..sum_up(plan, notes, &series, [jitter_before, jitter_after]) })
}

/// Who runs against each other, and what they use.
struct Field {
    contenders: Vec<Box<dyn Contender>>,
    notes: Vec<String>,
}

fn field<S: Site>(site: &S, plan: &Plan) -> Result<Field, BenchError> {
    let (cores, timed) = (plan.cores, plan.is_timed());
    let mut field = Field { contenders: Vec::new(), notes: Vec::new() };
    if plan.load.shape.data_len() > LONG {
        field.notes.push(LONG_NOTE.into());
    }
    field.contenders.push(Box::new(Floor::new(cores, plan.traffic(), timed)));
    if plan.mode == Mode::Floor {
        return Ok(field);
    }
    field.notes.extend(site.notes());
    for posting in &plan.postings {
        let raw = Raw::new(&site.open()?, site.at(), cores, plan.traffic(), *posting, timed)?;
        field.notes.extend(raw.notes());
        field.contenders.push(Box::new(raw));
    }
    if let Some(path) = &plan.stat {
        field.contenders.push(Box::new(Stat::new(path, cores)?));
    }
    if plan.mode == Mode::Raw {
        return Ok(field);
    }
    if plan.load.connections > 1 {
        let single = Load { connections: 1, ..plan.load };
        field.add_rpc("rpc, one", plan, &single, site)?;
    }
    field.add_rpc("rpc", plan, &plan.load, site)?;
    Ok(field)
}

impl Field {
    fn add_rpc<S: Site>(
        &mut self,
        name: &'static str,
        plan: &Plan,
        load: &Load,
        site: &S,
    ) -> Result<(), BenchError> {
        let (cores, timed) = (plan.cores, plan.is_timed());
        let rpc = Rpc::new(name, site.open()?, site.at(), cores, &plan.config, load, timed)?;
        self.notes.extend(rpc.notes());
        self.contenders.push(Box::new(rpc));
        Ok(())
    }
}

fn sum_up(plan: &Plan, notes: Vec<String>, series: &[Series], jitters: [[Jitter; 2]; 2]) -> Report {
    let Shape { request_data, reply_data, .. } = plan.load.shape;
    let data_len = request_data + reply_data;
    let contenders: Vec<ContenderReport> =
        series.iter().map(|one| ContenderReport::new(one, data_len)).collect();
    let lost: Vec<Lost> = contenders.iter().map(ContenderReport::lost).collect();
    Report {
        what: plan.sentence(),
        settings: plan.settings(),
        scene: Scene::new(plan.cores, notes, jitters, &lost),
        contenders,
        ratios: ratios(plan, series),
        spent: Vec::new(),
    }
}

/// Each contender against each that was named before it, the last one first.
fn ratios(plan: &Plan, series: &[Series]) -> Vec<RatioReport> {
    let ratio = if plan.is_timed() { RatioReport::of_medians } else { RatioReport::of_rates };
    let mut ratios = Vec::new();
    for (index, of) in series.iter().enumerate().rev() {
        ratios.extend(series[..index].iter().map(|to| ratio(of, to)));
    }
    ratios
}

fn write_json(report: &impl Serialize, path: &Path) -> Result<(), BenchError> {
    let mut json = serde_json::to_string_pretty(report)
        .expect("a report is strings and finite numbers with string keys");
    json.push('\n');
    if path == Path::new("-") {
        return say(&json);
    }
    fs::write(path, json).map_err(|source| BenchError::Write { path: path.to_owned(), source })
}

/// Writes to the standard output; a reader that has gone away, as `head` does, is an error and not
/// a panic.
fn say(text: &str) -> Result<(), BenchError> {
    let mut out = stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|source| BenchError::Write { path: "the standard output".into(), source })
}

/// Longer data make the note below worth its line.
const LONG: usize = 512;
const LONG_NOTE: &str = "floor: writes every line anew for every message; raw and rpc send long \
    data from memory that stays as it is, which the receiver's cache may still hold";
/// Long enough for sixty ticks of a 250 Hz timer.
pub(crate) const PROBE_TIME: Duration = Duration::from_millis(250);
