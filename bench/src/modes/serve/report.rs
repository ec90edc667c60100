//! What a server has to say when it ends: whom it has served, and what that took.

use std::net::SocketAddr;
use std::time::Duration;

use rpcrdma_engine::Snapshot;
use serde_json::{Map, Value, json};

use crate::output::outcome::{Distribution, Figure, Outcome, Scene, Unit, line};

/// The result of a server.
#[derive(Debug)]
pub struct Report {
    /// Where it was.
    pub what: String,
    /// The TCP port.
    pub port: u16,
    /// The machine.
    pub scene: Scene,
    /// Its clients, in the order they came.
    pub served: Vec<Served>,
}

/// One client.
#[derive(Debug)]
pub struct Served {
    /// Where it came from.
    pub from: SocketAddr,
    /// What it called, if it came to that.
    pub load: Option<String>,
    /// What the shard counted.
    pub counted: Snapshot,
    /// Why it could not be served, or not to its end.
    pub ended: Option<String>,
    /// How long it was there.
    pub time: Duration,
}

impl Served {
    /// In a line.
    pub fn sentence(&self) -> String {
        let Served { from, counted, time, .. } = self;
        let time = time.as_secs_f64();
        match (&self.load, &self.ended) {
            (Some(load), None) => {
                format!("{from}: {load}: {} calls answered in {time:.1} s", counted.calls_in)
            }
            (_, Some(why)) => format!("{from}: not served: {why}"),
            (None, None) => format!("{from}: nothing"),
        }
    }

    /// Counters that are not 0.
    fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.counted.iter().filter(|(_, count)| *count > 0)
    }
}

impl Outcome for Report {
    fn mode(&self) -> &str {
        "serve"
    }

    fn what(&self) -> &str {
        &self.what
    }

    fn scene(&self) -> &Scene {
        &self.scene
    }

    fn settings(&self) -> Value {
        json!({ "port": self.port })
    }

    fn figures(&self) -> Vec<Figure> {
        let figures = |(index, served): (usize, &Served)| {
            let (of, calls) = (format!("client{}", index + 1), served.counted.calls_in);
            let figure = move |(name, count): (&'static str, u64)| {
                Figure::new(&of, name, count as f64, Unit::Count, calls)
            };
            served.counters().map(figure).collect::<Vec<_>>()
        };
        self.served.iter().enumerate().flat_map(figures).collect()
    }

    fn distributions(&self) -> Vec<Distribution<'_>> {
        Vec::new()
    }

    fn table(&self) -> String {
        let mut out = String::new();
        self.scene.write_head(&mut out);
        for served in &self.served {
            line(&mut out, format_args!(""));
            line(&mut out, format_args!("{}", served.sentence()));
            for (name, count) in served.counters() {
                line(&mut out, format_args!("  {name:<28}{count:>16}"));
            }
        }
        if self.served.is_empty() {
            line(&mut out, format_args!("nobody came"));
        }
        out
    }

    fn detail(&self) -> Value {
        let one = |served: &Served| {
            let counters: Map<String, Value> =
                served.counters().map(|(name, count)| (name.to_owned(), count.into())).collect();
            json!({
                "from": served.from.to_string(),
                "calls": served.load,
                "not_served": served.ended,
                "seconds": served.time.as_secs_f64(),
                "counters": counters,
            })
        };
        json!({ "clients": self.served.iter().map(one).collect::<Vec<_>>() })
    }
}
