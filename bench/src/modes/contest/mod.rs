//! Contenders against each other, in turns: what `floor`, `raw`, `lat`, `rate` and `bw` have in
//! common.
//!
//! ```text
//!   options ──▶ plan ──▶ contenders: floor, raw, ... ──▶ probe, rounds, probe ──▶ report
//! ```

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use clap::Args;

use crate::args::{
    CallArgs, CoreArgs, DeviceArgs, EngineArgs, LengthArgs, Mode, Over, WindowArgs, parse,
};
use crate::contenders::call::Shape;
use crate::contenders::floor::Floor;
use crate::contenders::raw::{Posting, Raw};
use crate::contenders::rpc::{Distant, Rpc};
use crate::contenders::stat::Stat;
use crate::device::jitter::{self, Jitter};
use crate::device::site::{Fabrics, Site};
use crate::device::verbs::Device;
use crate::error::BenchError;
use crate::output::outcome::{Lost, Scene};
use crate::output::session::Session;
use crate::stats::rounds::{self, Contender, Series};

pub mod bw;
pub mod floor;
pub mod lat;
pub mod plan;
pub mod rate;
pub mod raw;
pub mod report;
pub(crate) mod table;

pub use plan::{Kind, Load, Plan, Settings};
pub use report::{ContenderReport, RatioReport, Report, RoundReport};

/// What is measured, and on what.
#[derive(Debug, Clone, Args)]
pub struct ContestArgs {
    /// What one call does.
    #[command(flatten)]
    pub call: CallArgs,
    /// How many are under way.
    #[command(flatten)]
    pub window: WindowArgs,
    /// Where the threads run.
    #[command(flatten)]
    pub cores: CoreArgs,
    /// What carries the messages.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// How the engine is set up.
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// How `raw` posts its Sends.
#[derive(Debug, Clone, Args)]
pub struct PostingArgs {
    /// Sends of `raw` for one doorbell, as in 1,4,16: powers of two up to 32, a contender of each
    /// [default: as many as there are to be sent]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', value_parser = parse::per_post)]
    pub sends_per_post: Vec<u32>,
}

/// The options of any of these modes.
#[derive(Debug, Clone, Copy)]
pub struct PlanArgs<'a> {
    /// What is measured, and on what.
    pub contest: &'a ContestArgs,
    /// How long.
    pub length: &'a LengthArgs,
    /// How `raw` posts its Sends.
    pub sends_per_post: &'a [u32],
    /// A file that is looked at beside the other contenders.
    pub stat: Option<&'a Path>,
}

/// The plan of a mode that is a contest; `None` of another.
pub fn plan_of(mode: &Mode) -> Option<Result<Plan, BenchError>> {
    Some(match mode {
        Mode::Floor(args) => floor::plan(args),
        Mode::Raw(args) => raw::plan(args),
        Mode::Lat(args) => lat::plan(args),
        Mode::Rate(args) => rate::plan(args),
        Mode::Bw(args) => bw::plan(args),
        _ => return None,
    })
}

/// The options that the contests share, of a mode that is one; `None` of another.
pub fn args_of(mode: &Mode) -> Option<PlanArgs<'_>> {
    let (contest, length) = match mode {
        Mode::Floor(args) => (&args.contest, &args.length),
        Mode::Raw(args) => (&args.contest, &args.length),
        Mode::Lat(args) => (&args.contest, &args.length),
        Mode::Rate(args) => (&args.contest, &args.length),
        Mode::Bw(args) => (&args.contest, &args.length),
        _ => return None,
    };
    Some(PlanArgs { contest, length, sends_per_post: &[], stat: None })
}

/// The contender that a contest is about, without those it is measured against, and what it uses.
///
/// # Errors
/// If it is not to be had.
pub fn alone(
    plan: &Plan,
    device: &DeviceArgs,
) -> Result<(Box<dyn Contender>, Vec<String>), BenchError> {
    match device.provider {
        Over::Fabric => alone_on(&Fabrics::new(&plan.config), plan),
        Over::Verbs => alone_on(&Device::towards(device, &plan.config)?, plan),
    }
}

fn alone_on<S: Site>(
    site: &S,
    plan: &Plan,
) -> Result<(Box<dyn Contender>, Vec<String>), BenchError> {
    let mut field = Field { contenders: Vec::new(), notes: Vec::new() };
    if plan.kind != Kind::Floor {
        field.notes.extend(site.notes());
    }
    match plan.kind {
        Kind::Floor => field.add_floor(plan),
        Kind::Raw => field.add_raw(plan, plan.postings[0], site)?,
        Kind::Lat | Kind::Rate | Kind::Bw => match site.far() {
            Some(server) => field.add_distant(plan, server, site)?,
            None => field.add_rpc("rpc", plan, &plan.load, site)?,
        },
    }
    let Field { mut contenders, notes } = field;
    Ok((contenders.pop().expect("one was added above"), notes))
}

/// Measures over the provider that the options name.
///
/// # Errors
/// Whatever keeps the run from a result that can be believed.
pub fn measure(plan: &Plan, device: &DeviceArgs, session: &Session) -> Result<Report, BenchError> {
    session.announce(&plan.sentence())?;
    match device.provider {
        Over::Fabric => measure_on(&Fabrics::new(&plan.config), plan, session),
        Over::Verbs => measure_on(&Device::towards(device, &plan.config)?, plan, session),
    }
}

fn measure_on<S: Site>(site: &S, plan: &Plan, session: &Session) -> Result<Report, BenchError> {
    let Field { mut contenders, notes } = field(site, plan)?;
    let total = plan.rounds * contenders.len() as u32;
    let progress = session.progress(total, plan.expected(contenders.len() as u32));
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
    let mut field = Field { contenders: Vec::new(), notes: Vec::new() };
    if let Some(server) = site.far() {
        // Its other end is not in this program: neither has the floor one, nor raw.
        field.notes.extend(site.notes());
        field.add_distant(plan, server, site)?;
        return Ok(field);
    }
    if plan.load.shape.data_len() > LONG {
        field.notes.push(LONG_NOTE.into());
    }
    field.add_floor(plan);
    if plan.kind == Kind::Floor {
        return Ok(field);
    }
    field.notes.extend(site.notes());
    for posting in &plan.postings {
        field.add_raw(plan, *posting, site)?;
    }
    if let Some(path) = &plan.stat {
        field.contenders.push(Box::new(Stat::new(path, plan.cores)?));
    }
    if plan.kind == Kind::Raw {
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
    fn add_floor(&mut self, plan: &Plan) {
        let floor = Floor::new(plan.cores, plan.traffic(), plan.is_timed());
        self.contenders.push(Box::new(floor));
    }

    fn add_raw<S: Site>(
        &mut self,
        plan: &Plan,
        posting: Posting,
        site: &S,
    ) -> Result<(), BenchError> {
        let (cores, timed) = (plan.cores, plan.is_timed());
        let raw = Raw::new(&site.open()?, site.at(), cores, plan.traffic(), posting, timed)?;
        self.notes.extend(raw.notes());
        self.contenders.push(Box::new(raw));
        Ok(())
    }

    fn add_distant<S: Site>(
        &mut self,
        plan: &Plan,
        server: SocketAddr,
        site: &S,
    ) -> Result<(), BenchError> {
        let Plan { cores, config, load, .. } = plan;
        let rpc = Distant::new(site.open()?, server, *cores, config, load, plan.is_timed())?;
        self.notes.extend(rpc.notes());
        self.contenders.push(Box::new(rpc));
        Ok(())
    }

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

/// Longer data make the note below worth its line.
const LONG: usize = 512;
const LONG_NOTE: &str = "floor: writes every line anew for every message; raw and rpc send long \
    data from memory that stays as it is, which the receiver's cache may still hold";
/// Long enough for sixty ticks of a 250 Hz timer.
pub const PROBE_TIME: Duration = Duration::from_millis(250);
