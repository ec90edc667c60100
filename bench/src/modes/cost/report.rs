//! What an RPC costs, as figures and as a table.

use std::fmt::Write as _;

use rpcrdma_engine::Snapshot;
use rpcrdma_instructions::callgrind::Count;
use serde_json::{Value, json};

use super::SIDES;
use super::calls::Calls;
use super::kernel::Kernel;
use crate::alloc::Allocations;
use crate::device::jitter::Jitter;
use crate::modes::contest::{Plan, Settings};
use crate::output::outcome::{Better, Distribution, Figure, Outcome, Scene, Unit, line};

/// What one side has done for some calls.
#[derive(Debug, Clone, Copy, Default)]
pub struct Side {
    /// The calls.
    pub calls: u64,
    /// Its thread's allocations.
    pub allocations: Allocations,
    /// What the kernel counted of its thread.
    pub kernel: Kernel,
    /// Posts to the send queue.
    pub doorbells: u64,
    /// Transmissions sent.
    pub sends: u64,
    /// Completions polled.
    pub completions: u64,
}

impl Side {
    /// What a side has done between two readings of its counters.
    pub fn new(
        calls: u64,
        allocations: Allocations,
        kernel: Kernel,
        before: &Snapshot,
        after: &Snapshot,
    ) -> Side {
        Side {
            calls,
            allocations,
            kernel,
            doorbells: after.doorbells - before.doorbells,
            sends: after.sent - before.sent,
            completions: after.completions - before.completions,
        }
    }
}

/// The instructions of one side for some calls.
#[derive(Debug, Clone)]
pub struct InstructionCount {
    /// The calls.
    pub calls: u64,
    /// By file.
    pub count: Count,
    /// The locked ones of the program's own file, or why they are not known.
    pub locked: Result<u64, String>,
}

/// What an RPC costs both sides.
#[derive(Debug, Clone)]
pub struct CostReport {
    what: String,
    settings: Settings,
    scene: Scene,
    /// Client and server.
    sides: [Side; 2],
    system_calls: Result<[Calls; 2], String>,
    instructions: Result<[InstructionCount; 2], String>,
}

/// A row of the table: a figure of each side, or why there is none.
struct Row {
    name: &'static str,
    unit: Unit,
    by: &'static str,
    /// The figure of each side, and the calls that it is over.
    values: Result<[(f64, u64); 2], String>,
}

impl CostReport {
    /// Sums a run up.
    pub(super) fn new(
        what: String,
        plan: &Plan,
        notes: Vec<String>,
        jitters: [[Jitter; 2]; 2],
        sides: [Side; 2],
        system_calls: Result<[Calls; 2], String>,
        instructions: Result<[InstructionCount; 2], String>,
    ) -> CostReport {
        let scene = Scene::new(plan.cores, notes, jitters, &[]);
        let settings = Settings { mode: MODE, ..plan.settings() };
        CostReport { what, settings, scene, sides, system_calls, instructions }
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        let (calls, each) = (Unit::PerCall, Unit::Instructions);
        let callgrind = |of: fn(&Count) -> u64| {
            let sides = self.instructions.as_ref().map_err(String::clone)?;
            Ok([&sides[0], &sides[1]].map(|side| per_call(of(&side.count), side.calls)))
        };
        rows.push(Row::new("instructions", each, CALLGRIND, callgrind(|count| count.own)));
        rows.push(Row::new(
            "library_instructions",
            each,
            CALLGRIND,
            callgrind(|count| count.library),
        ));
        rows.push(Row::new(
            "library_calls",
            calls,
            CALLGRIND,
            callgrind(|count| count.library_calls),
        ));
        rows.push(Row::new("locked_instructions", each, CALLGRIND, self.locked()));
        rows.push(Row::new("system_calls", calls, "strace", self.system_calls()));
        let here = |of: fn(&Side) -> u64| {
            Ok([&self.sides[0], &self.sides[1]].map(|side| per_call(of(side), side.calls)))
        };
        let mut put = |name, by, of| rows.push(Row::new(name, calls, by, here(of)));
        put("allocations", "allocator", |side| side.allocations.made);
        put("frees", "allocator", |side| side.allocations.freed);
        put("allocated_bytes", "allocator", |side| side.allocations.bytes);
        put("page_faults", "kernel", |side| side.kernel.faults);
        put("waits", "kernel", |side| side.kernel.waited);
        put("preemptions", "kernel", |side| side.kernel.preempted);
        put("doorbells", "shard", |side| side.doorbells);
        put("sends", "shard", |side| side.sends);
        put("completions", "shard", |side| side.completions);
        rows
    }

    fn locked(&self) -> Result<[(f64, u64); 2], String> {
        let sides = self.instructions.as_ref().map_err(String::clone)?;
        let of = |side: &InstructionCount| {
            let locked = side.locked.as_ref().map_err(String::clone)?;
            Ok::<_, String>(per_call(*locked, side.calls))
        };
        Ok([of(&sides[0])?, of(&sides[1])?])
    }

    fn system_calls(&self) -> Result<[(f64, u64); 2], String> {
        let sides = self.system_calls.as_ref().map_err(String::clone)?;
        let of = |index: usize| per_call(sides[index].values().sum(), self.sides[index].calls);
        Ok([of(0), of(1)])
    }

    /// The system calls by name, most frequent first; nothing where there are none.
    fn write_names(&self, out: &mut String) {
        let Ok(sides) = &self.system_calls else { return };
        for (side, calls) in SIDES.iter().zip(sides).filter(|(_, calls)| !calls.is_empty()) {
            let mut calls: Vec<(&String, &u64)> = calls.iter().collect();
            calls.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            let mut names = String::new();
            for (name, count) in calls {
                write!(names, " {name} {count}").expect("writing to a string does not fail");
            }
            line(out, format_args!("system calls of the {side}:{names}"));
        }
    }
}

impl Row {
    fn new(
        name: &'static str,
        unit: Unit,
        by: &'static str,
        values: Result<[(f64, u64); 2], String>,
    ) -> Row {
        Row { name, unit, by, values }
    }

    fn figures(&self) -> Vec<Figure> {
        let Ok(values) = &self.values else { return Vec::new() };
        let figure = |(side, (value, calls)): (&&str, &(f64, u64))| {
            Figure::new(*side, self.name, *value, self.unit, *calls).better(Better::Lower)
        };
        SIDES.iter().zip(values).map(figure).collect()
    }

    fn write(&self, out: &mut String) {
        let Row { name, by, .. } = self;
        let name = name.replace('_', " ");
        match &self.values {
            Ok([(client, calls), (server, _)]) => line(
                out,
                format_args!("{name:<22}{client:>12.3}{server:>12.3}   {by}, {calls} calls"),
            ),
            Err(why) => line(out, format_args!("{name:<22}{:>12}{:>12}   {why}", "-", "-")),
        }
    }
}

impl Outcome for CostReport {
    fn mode(&self) -> &str {
        MODE
    }

    fn what(&self) -> &str {
        &self.what
    }

    fn scene(&self) -> &Scene {
        &self.scene
    }

    fn settings(&self) -> Value {
        json!(self.settings)
    }

    fn figures(&self) -> Vec<Figure> {
        self.rows().iter().flat_map(Row::figures).collect()
    }

    fn distributions(&self) -> Vec<Distribution<'_>> {
        Vec::new()
    }

    fn table(&self) -> String {
        let mut out = String::new();
        self.scene.write_head(&mut out);
        line(&mut out, format_args!(""));
        line(
            &mut out,
            format_args!("{:<22}{:>12}{:>12}   counted by", "per RPC", "client", "server"),
        );
        self.rows().iter().for_each(|row| row.write(&mut out));
        self.write_names(&mut out);
        self.scene.write_noise(&mut out);
        out
    }

    fn detail(&self) -> Value {
        let missing: Vec<Value> = self
            .rows()
            .iter()
            .filter_map(|row| {
                row.values.as_ref().err().map(|why| json!({"figure": row.name, "why": why}))
            })
            .collect();
        let names = self.system_calls.as_ref().ok();
        json!({ "missing": missing, "system_calls": names.map(|[client, server]| json!({"client": client, "server": server})) })
    }
}

/// So much over so many calls, and the calls.
fn per_call(count: u64, calls: u64) -> (f64, u64) {
    (count as f64 / calls.max(1) as f64, calls)
}

const MODE: &str = "cost";
const CALLGRIND: &str = "callgrind";

#[cfg(test)]
mod tests {
    use super::*;

    fn side(calls: u64) -> Side {
        let before = Snapshot { doorbells: 10, sent: 20, completions: 30, ..Snapshot::default() };
        let after = Snapshot { doorbells: 11, sent: 52, completions: 94, ..Snapshot::default() };
        let allocations = Allocations { made: 16, freed: 8, bytes: 320 };
        let kernel = Kernel { waited: 4, preempted: 2, faults: 1 };
        Side::new(calls, allocations, kernel, &before, &after)
    }

    fn report(system_calls: Result<[Calls; 2], String>) -> Option<CostReport> {
        let cores = crate::device::cores::CorePair::choose(None).ok()?;
        let jitter = Jitter { core: 0, gaps_per_second: 0.0, longest_ns: 0, lost_share: 0.0 };
        let instructions = [1, 2].map(|side| InstructionCount {
            calls: 10,
            count: Count { own: 1000 * side, library: 50, library_calls: 20 },
            locked: if side == 1 { Ok(5) } else { Err("unknown".into()) },
        });
        let (_, plan) = super::super::tests::parsed("cost");
        Some(CostReport {
            what: "cost".into(),
            settings: plan.settings(),
            scene: Scene::new(cores, Vec::new(), [[jitter; 2]; 2], &[]),
            sides: [side(32); 2],
            system_calls,
            instructions: Ok(instructions),
        })
    }

    fn value(report: &CostReport, id: &str) -> Option<f64> {
        report.figures().iter().find(|figure| figure.id() == id).map(|figure| figure.value)
    }

    #[test]
    fn everything_is_divided_by_the_calls_it_was_counted_over() {
        let Some(report) = report(Err("strace is missing".into())) else { return };
        for (id, expected) in [
            ("client.allocations", 0.5),
            ("client.frees", 0.25),
            ("server.allocated_bytes", 10.0),
            ("server.doorbells", 1.0 / 32.0),
            ("server.sends", 1.0),
            ("client.completions", 2.0),
            ("client.waits", 0.125),
            ("client.instructions", 100.0),
            ("server.instructions", 200.0),
            ("server.library_calls", 2.0),
        ] {
            assert_eq!(value(&report, id), Some(expected), "{id}");
        }
    }

    #[test]
    fn what_is_missing_is_no_figure_and_says_why() {
        let Some(report) = report(Err("strace is missing".into())) else { return };
        assert_eq!(value(&report, "client.system_calls"), None);
        assert_eq!(value(&report, "client.locked_instructions"), None, "half of it is not told");
        let table = report.table();
        assert!(table.contains("strace is missing") && table.contains("unknown"), "{table}");
        assert_eq!(report.detail()["missing"][1]["figure"], "system_calls");
    }

    #[test]
    fn system_calls_are_named_most_frequent_first() {
        let calls = Calls::from([("futex".into(), 1), ("ppoll".into(), 3)]);
        let Some(report) = report(Ok([Calls::new(), calls])) else { return };
        assert_eq!(value(&report, "server.system_calls"), Some(4.0 / 32.0));
        assert_eq!(value(&report, "client.system_calls"), Some(0.0));
        let table = report.table();
        assert!(table.contains("system calls of the server: ppoll 3 futex 1"), "{table}");
        assert!(!table.contains("system calls of the client"), "{table}");
    }
}
