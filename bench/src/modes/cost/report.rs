//! The report of `cost`: figures per call, and a table.

use rpcrdma::Snapshot;
use rpcrdma_instructions::callgrind::Count;
use serde_json::{Value, json};

use super::calls::{Calls, without_effect};
use crate::contenders::tally::Tallied;
use crate::modes::contest::Plan;
use crate::output::{Better, Environment, Figure, Report, Table, Unit};

#[derive(Debug, Clone, Copy, Default)]
pub struct SideCosts {
    pub calls: u64,
    pub tallied: Tallied,
    /// Posts to the send queue.
    pub doorbells: u64,
    /// Transmissions sent.
    pub sends: u64,
    /// Completions polled.
    pub completions: u64,
}

impl SideCosts {
    /// What a side has done between two readings of its counters.
    pub fn new(calls: u64, tallied: Tallied, before: &Snapshot, after: &Snapshot) -> SideCosts {
        SideCosts {
            calls,
            tallied,
            doorbells: after.doorbells - before.doorbells,
            sends: after.transmissions_sent - before.transmissions_sent,
            completions: after.completions - before.completions,
        }
    }
}

#[derive(Debug, Clone)]
pub struct InstructionCount {
    pub calls: u64,
    pub count: Count,
    /// The locked ones of the program's own file, or why they are not known.
    pub locked: Result<u64, String>,
}

/// What was counted, of client and server, or why it was not.
#[derive(Debug, Clone)]
pub struct Costs {
    pub sides: [SideCosts; 2],
    pub system_calls: Result<[Calls; 2], String>,
    pub instructions: Result<[InstructionCount; 2], String>,
}

/// A figure of each side, and the calls that it is over; or why there is none.
type Both = Result<[(f64, u64); 2], String>;

struct CostRow {
    name: &'static str,
    unit: Unit,
    by: &'static str,
    values: Both,
}

impl Costs {
    pub fn report(&self, plan: &Plan, what: String, environment: Environment) -> Report {
        let rows = self.rows();
        let figures = Figure::of_each(&rows, CostRow::figures);
        let settings = plan.settings("cost", json!({}));
        let mut report = Report::new("cost", what, settings, environment, figures);
        let mut table = Table::new(&[0, 4], ["per RPC", "client", "server", "calls", "counted by"]);
        rows.iter().for_each(|row| table.row(row.cells()));
        report.block(table);
        report.block(self.names());
        let why =
            |row: &CostRow| Some(json!({ "figure": row.name, "why": row.values.as_ref().err()? }));
        let missing: Vec<Value> = rows.iter().filter_map(why).collect();
        let names = self.system_calls.as_ref().ok();
        let names = names.map(|[client, server]| json!({ "client": client, "server": server }));
        report.detail(json!({ "missing": missing, "system_calls": names }));
        report
    }

    fn rows(&self) -> Vec<CostRow> {
        let (calls, each) = (Unit::PerCall, Unit::Instructions);
        let callgrind = |of: fn(&InstructionCount) -> Result<u64, String>| -> Both {
            let [client, server] = self.instructions.as_ref().map_err(String::clone)?;
            let of = |side: &InstructionCount| of(side).map(|count| per_call(count, side.calls));
            Ok([of(client)?, of(server)?])
        };
        let here = |of: fn(&SideCosts) -> u64| -> Both {
            Ok(self.sides.map(|side| per_call(of(&side), side.calls)))
        };
        let row = |name, unit, by, values| CostRow { name, unit, by, values };
        let own = callgrind(|side| Ok(side.count.own));
        let library = callgrind(|side| Ok(side.count.library));
        let library_calls = callgrind(|side| Ok(side.count.library_calls));
        let locked = callgrind(|side| side.locked.clone());
        vec![
            row("instructions", each, CALLGRIND, own),
            row("library_instructions", each, CALLGRIND, library),
            row("library_calls", calls, CALLGRIND, library_calls),
            row("locked_instructions", each, CALLGRIND, locked),
            row("system_calls", calls, "strace", self.system_calls(|calls| calls.values().sum())),
            row("system_calls_without_effect", calls, "strace", self.system_calls(without_effect)),
            row("allocations", calls, ALLOCATOR, here(|side| side.tallied.allocations.made)),
            row("frees", calls, ALLOCATOR, here(|side| side.tallied.allocations.freed)),
            row("allocated_bytes", calls, ALLOCATOR, here(|side| side.tallied.allocations.bytes)),
            row("page_faults", calls, "kernel", here(|side| side.tallied.kernel.faults)),
            row("waits", calls, "kernel", here(|side| side.tallied.kernel.waited)),
            row("preemptions", calls, "kernel", here(|side| side.tallied.kernel.preempted)),
            row("doorbells", calls, "shard", here(|side| side.doorbells)),
            row("sends", calls, "shard", here(|side| side.sends)),
            row("completions", calls, "shard", here(|side| side.completions)),
        ]
    }

    fn system_calls(&self, count: fn(&Calls) -> u64) -> Both {
        let sides = self.system_calls.as_ref().map_err(String::clone)?;
        let of = |index: usize| per_call(count(&sides[index]), self.sides[index].calls);
        Ok([of(0), of(1)])
    }

    /// The system calls by name, most frequent first; nothing where there are none.
    fn names(&self) -> String {
        let Ok(sides) = &self.system_calls else { return String::new() };
        let line = |(side, calls): (&&str, &Calls)| {
            let mut calls: Vec<(&String, &u64)> = calls.iter().collect();
            calls.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            let names = calls.iter().map(|(name, count)| format!(" {name} {count}"));
            format!("system calls of the {side}:{}\n", names.collect::<String>())
        };
        SIDES.iter().zip(sides).filter(|(_, calls)| !calls.is_empty()).map(line).collect()
    }
}

impl CostRow {
    fn figures(&self) -> Vec<Figure> {
        let Ok(values) = &self.values else { return Vec::new() };
        let figure = |(side, (value, calls)): (&&str, &(f64, u64))| {
            Figure::new(*side, self.name, *value, self.unit, *calls).better(Better::Lower)
        };
        SIDES.iter().zip(values).map(figure).collect()
    }

    fn cells(&self) -> [String; 5] {
        let name = self.name.replace('_', " ");
        let none = || "-".to_owned();
        match &self.values {
            Ok([(client, calls), (server, _)]) => {
                let [client, server] = [client, server].map(|value| format!("{value:.3}"));
                [name, client, server, calls.to_string(), self.by.to_owned()]
            }
            Err(why) => [name, none(), none(), none(), why.clone()],
        }
    }
}

fn per_call(count: u64, calls: u64) -> (f64, u64) {
    (count as f64 / calls.max(1) as f64, calls)
}

pub(super) const SIDES: [&str; 2] = ["client", "server"];
const CALLGRIND: &str = "callgrind";
const ALLOCATOR: &str = "allocator";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::Allocations;
    use crate::machine::kernel::Kernel;
    use crate::testing::quiet;

    fn side(calls: u64) -> SideCosts {
        let before = Snapshot {
            doorbells: 10,
            transmissions_sent: 20,
            completions: 30,
            ..Snapshot::default()
        };
        let after = Snapshot {
            doorbells: 11,
            transmissions_sent: 52,
            completions: 94,
            ..Snapshot::default()
        };
        let allocations = Allocations { made: 16, freed: 8, bytes: 320 };
        let kernel = Kernel { waited: 4, preempted: 2, faults: 1 };
        SideCosts::new(calls, Tallied { allocations, kernel }, &before, &after)
    }

    fn report(system_calls: Result<[Calls; 2], String>) -> Option<Report> {
        let instructions = [1, 2].map(|side| InstructionCount {
            calls: 10,
            count: Count { own: 1000 * side, source: 0, library: 50, library_calls: 20 },
            locked: if side == 1 { Ok(5) } else { Err("unknown".into()) },
        });
        let plan = super::super::plan(&crate::testing::parsed("")).ok()?;
        let environment = quiet(Vec::new());
        let counted = Costs { sides: [side(32); 2], system_calls, instructions: Ok(instructions) };
        Some(counted.report(&plan, "cost".into(), environment))
    }

    fn value(report: &Report, id: &str) -> Option<f64> {
        report.figures.iter().find(|figure| figure.id() == id).map(|figure| figure.value)
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
        assert_eq!(value(&report, "client.locked_instructions"), None, "half of it is unknown");
        let table = report.text();
        assert!(table.contains("strace is missing") && table.contains("unknown"), "{table}");
        assert_eq!(report.detail["missing"][1]["figure"], "system_calls");
    }

    #[test]
    fn system_calls_are_named_most_frequent_first() {
        let calls = Calls::from([("futex".into(), 1), ("ppoll".into(), 3)]);
        let Some(report) = report(Ok([Calls::new(), calls])) else { return };
        assert_eq!(value(&report, "server.system_calls"), Some(4.0 / 32.0));
        assert_eq!(value(&report, "client.system_calls"), Some(0.0));
        let table = report.text();
        assert!(table.contains("system calls of the server: ppoll 3 futex 1"), "{table}");
        assert!(!table.contains("system calls of the client"), "{table}");
    }
}
