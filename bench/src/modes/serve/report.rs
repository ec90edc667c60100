//! The report of a server: its clients, and their counters.

use std::time::Duration;

use rpcrdma::{Address, Snapshot};
use serde_json::{Map, Value, json};

use crate::output::{Environment, Figure, Report, Unit};

#[derive(Debug)]
pub struct Served {
    pub from: String,
    /// What it called, if it came to that.
    pub load: Option<String>,
    pub counted: Snapshot,
    /// Why it could not be served, or not to its end.
    pub ended: Option<String>,
    pub time: Duration,
}

impl Served {
    pub fn sentence(&self) -> String {
        let Served { from, counted, time, .. } = self;
        let time = time.as_secs_f64();
        match (&self.load, &self.ended) {
            (Some(load), None) => {
                format!("{from}: {load}: {} calls answered in {time:.1} s", counted.calls_received)
            }
            (_, Some(why)) => format!("{from}: not served: {why}"),
            (None, None) => format!("{from}: nothing"),
        }
    }

    fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.counted.iter().filter(|(_, count)| *count > 0)
    }
}

/// Sums up a server that was there: its clients, in the order they came.
pub(super) fn report(
    what: String,
    at: Option<Address>,
    environment: Environment,
    served: &[Served],
) -> Report {
    let figures = served.iter().enumerate().flat_map(|(index, served)| {
        let (of, calls) = (format!("client{}", index + 1), served.counted.calls_received);
        let figure = move |(name, count): (&'static str, u64)| {
            Figure::new(&of, name, count as f64, Unit::Count, calls)
        };
        served.counters().map(figure).collect::<Vec<_>>()
    });
    let (settings, figures) = (json!({ "at": at.map(|at| at.to_string()) }), figures.collect());
    let mut report = Report::new("serve", what, settings, environment, figures);
    for served in served {
        let counters = served.counters().map(|(name, count)| format!("\n  {name:<28}{count:>16}"));
        report.block(served.sentence() + &counters.collect::<String>());
    }
    if served.is_empty() {
        report.block("no client came");
    }
    let one = |served: &Served| {
        let counters: Map<String, Value> =
            served.counters().map(|(name, count)| (name.to_owned(), count.into())).collect();
        json!({
            "from": served.from,
            "calls": served.load,
            "not_served": served.ended,
            "seconds": served.time.as_secs_f64(),
            "counters": counters,
        })
    };
    report.detail(json!({ "clients": served.iter().map(one).collect::<Vec<_>>() }));
    report
}
