//! Contenders against each other, in turns: what `floor`, `raw`, `lat`, `rate` and `bw` have in
//! common.
//!
//! ```text
//!   options ──▶ plan ──▶ contenders: floor, raw, ... ──▶ probe, rounds, probe ──▶ report
//! ```

mod args;
mod plan;
mod report;

pub use args::Contest;
pub(crate) use args::{Args, ContestArgs, Kind, LatArgs, PlanArgs};
pub(crate) use plan::{Plan, SECONDS, WARM_UP};
pub(crate) use report::{data_len, take};

use serde_json::json;

use crate::args::DeviceArgs;
use crate::call::Load;
use crate::contenders::floor::{Floor, ReadOrder};
use crate::contenders::raw::{Posting, Raw};
use crate::contenders::rpc::{Polled, Rpc, Tasks};
use crate::contenders::stat::Stat;
use crate::device::{Device, Place, on_device};
use crate::error::BenchError;
use crate::output::{Report, Session};
use crate::stats::Contender;

pub fn measure(contest: &Contest, session: &Session) -> Result<Report, BenchError> {
    let plan = &contest.plan()?;
    session.announce(&plan.sentence())?;
    let device = &contest.args().contest.device;
    on_device!(device, &plan.config, towards, |device| measure_on(device, plan, session))
}

fn measure_on<D: Device>(device: &D, plan: &Plan, session: &Session) -> Result<Report, BenchError> {
    let Contenders { all: mut contenders, notes } = contenders(device, plan)?;
    let mode = plan.kind.into_str();
    let experiment =
        plan.experiment(mode, plan.sentence(), json!({}), contenders.len()).noting(notes);
    let data_len = data_len(plan);
    let (records, report) = experiment.run(session, |_, index, records| {
        let contender = &mut contenders[index];
        let round = contender.round(plan.quota)?;
        take(records.of(contender.name()), &round, data_len);
        Ok(())
    })?;
    let spent: Vec<_> = contenders.iter().flat_map(|contender| contender.spent()).collect();
    Ok(report::report(plan, &records, &spent, report))
}

/// The contender that a contest is about, without those it is measured against, and what it uses.
pub fn alone(
    plan: &Plan,
    device: &DeviceArgs,
) -> Result<(Box<dyn Contender>, Vec<String>), BenchError> {
    on_device!(device, &plan.config, towards, |device| alone_on(device, plan))
}

fn alone_on<D: Device>(
    device: &D,
    plan: &Plan,
) -> Result<(Box<dyn Contender>, Vec<String>), BenchError> {
    let mut contenders = Contenders::default();
    if plan.kind != Kind::Floor {
        contenders.notes.extend(device.notes());
    }
    match plan.kind {
        Kind::Floor => contenders.add_floor(plan, ReadOrder::Serial),
        Kind::Raw => contenders.add_raw(plan, plan.postings[0], device)?,
        Kind::Lat | Kind::Rate | Kind::Bw => contenders.add_rpc("rpc", plan, &plan.load, device)?,
    }
    let Contenders { mut all, notes } = contenders;
    Ok((all.pop().expect("one was added above"), notes))
}

/// Who runs against each other, and what they use.
#[derive(Default)]
struct Contenders {
    all: Vec<Box<dyn Contender>>,
    notes: Vec<String>,
}

fn contenders<D: Device>(device: &D, plan: &Plan) -> Result<Contenders, BenchError> {
    let mut contenders = Contenders::default();
    if let Some(Place::Host(_)) = device.far() {
        // Its other end is started by hand: neither has the floor one, nor raw.
        contenders.notes.extend(device.notes());
        contenders.add_rpc("rpc", plan, &plan.load, device)?;
        return Ok(contenders);
    }
    if plan.load.shape.data_len() > LONG {
        contenders.notes.push(LONG_NOTE.into());
    }
    if plan.prefetched_floor {
        contenders.add_floor(plan, ReadOrder::Prefetched);
    }
    contenders.add_floor(plan, ReadOrder::Serial);
    if plan.kind == Kind::Floor {
        return Ok(contenders);
    }
    contenders.notes.extend(device.notes());
    for posting in &plan.postings {
        contenders.add_raw(plan, *posting, device)?;
    }
    if let Some(path) = &plan.stat {
        contenders.all.push(Box::new(Stat::new(path, plan.cores)?));
    }
    if plan.kind == Kind::Raw {
        return Ok(contenders);
    }
    if plan.load.connections > 1 {
        let single = Load { connections: 1, ..plan.load };
        contenders.add_rpc("rpc, one", plan, &single, device)?;
    }
    contenders.add_rpc("rpc", plan, &plan.load, device)?;
    if plan.futures {
        contenders.add_tasks(plan, device, Polled::ByOwnThread)?;
        contenders.add_tasks(plan, device, Polled::ByTasks)?;
    }
    Ok(contenders)
}

impl Contenders {
    fn add_floor(&mut self, plan: &Plan, order: ReadOrder) {
        let floor = Floor::new(order, plan.cores, plan.traffic(), plan.is_timed());
        self.notes.push(floor.note());
        self.all.push(Box::new(floor));
    }

    fn add_raw<D: Device>(
        &mut self,
        plan: &Plan,
        posting: Posting,
        device: &D,
    ) -> Result<(), BenchError> {
        let (cores, timed) = (plan.cores, plan.is_timed());
        let raw = Raw::new(&device.open()?, device.at(), cores, plan.traffic(), posting, timed)?;
        self.notes.extend(raw.notes());
        self.all.push(Box::new(raw));
        Ok(())
    }

    fn add_tasks<D: Device>(
        &mut self,
        plan: &Plan,
        device: &D,
        polled: Polled,
    ) -> Result<(), BenchError> {
        let Plan { cores, config, load, .. } = plan;
        let tasks = Tasks::new(device, *cores, config, load, plan.is_timed(), polled)?;
        self.notes.push(tasks.note());
        self.all.push(Box::new(tasks));
        Ok(())
    }

    fn add_rpc<D: Device>(
        &mut self,
        name: &'static str,
        plan: &Plan,
        load: &Load,
        device: &D,
    ) -> Result<(), BenchError> {
        let Plan { cores, config, .. } = plan;
        let rpc = Rpc::on(device, name, *cores, config, load, plan.is_timed())?;
        self.notes.extend(rpc.notes());
        self.all.push(Box::new(rpc));
        Ok(())
    }
}

/// Longer data make the note below worth its line.
const LONG: usize = 512;
const LONG_NOTE: &str = "a floor writes every line anew for every message; raw and rpc send long \
    data from memory that stays as it is, which the receiver's cache may still hold";
