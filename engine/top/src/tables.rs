//! The tables: what of two scrapes is shown, as columns and rows of cells.

use std::cmp::Ordering;
use std::collections::HashMap;

use crate::cell::Cell;
use crate::rows::{Key, Looks, Row, rows};
use crate::source::Scrape;

/// A table.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    pub title: &'static str,
    pub columns: &'static [&'static str],
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Sorts the rows by a column; rows that are equal there stay in their order.
    pub fn sort(&mut self, column: usize, is_reversed: bool) {
        let by = |a: &Vec<Cell>, b: &Vec<Cell>| {
            let order =
                a.get(column).zip(b.get(column)).map_or(Ordering::Equal, |(a, b)| a.order(b));
            if is_reversed { order.reverse() } else { order }
        };
        self.rows.sort_by(by);
    }

    /// The width of each column, with its title.
    pub fn widths(&self) -> Vec<usize> {
        let width = |(at, title): (usize, &&str)| {
            let cells = self.rows.iter().map(|row| row[at].to_string().chars().count());
            cells.max().unwrap_or(0).max(title.chars().count())
        };
        self.columns.iter().enumerate().map(width).collect()
    }
}

/// The tables of a look, with the rates since the one before.
pub fn tables(before: Option<&Scrape>, now: &Scrape) -> [Table; 4] {
    let looks = Looks { before, now };
    [shards(looks), peers(looks), times(looks), counters(looks)]
}

fn shards(looks: Looks<'_>) -> Table {
    let times = rows(looks, "rpcrdma_", &["shard"], "le");
    let of = |(key, row): (Key, Row<'_>)| {
        let pool = |pool: &str| {
            let value = |name| row.value_of(name, pool);
            Cell::Share(value("rpcrdma_pool_used"), value("rpcrdma_pool_size"))
        };
        let rate = |name| Cell::Rate(row.rate(name));
        let time =
            |name, share| Cell::Time(times.get(&key).and_then(|times| times.quantile(name, share)));
        let state = match row.value("rpcrdma_up") {
            Some(up) if up > 0.0 => "up",
            Some(_) => "no answer",
            None => "-",
        };
        vec![
            Cell::number(&key[0]),
            Cell::Text(state.to_owned()),
            pool("connections"),
            rate("rpcrdma_calls_received_total"),
            rate("rpcrdma_replies_sent_total"),
            time(SERVICE, 0.5),
            time(SERVICE, 0.99),
            rate("rpcrdma_calls_sent_total"),
            rate("rpcrdma_calls_failed_total"),
            time(CALLS, 0.5),
            time(CALLS, 0.99),
            Cell::Count(row.value("rpcrdma_calls_open")),
            pool("slots"),
            pool("segments"),
            pool("buffers"),
        ]
    };
    let all = rows(looks, "rpcrdma_", &["shard"], "pool");
    Table { title: "Shards", columns: SHARDS, rows: all.into_iter().map(of).collect() }
}

fn peers(looks: Looks<'_>) -> Table {
    let labels = ["shard", "connection", "peer"];
    let infos = looks.now.samples.iter().filter(|sample| sample.name == "rpcrdma_peer_info");
    let info = |name: &str| {
        let key = |sample: &crate::samples::Sample| {
            labels.map(|label| sample.label(label).to_owned()).to_vec()
        };
        infos.clone().map(|sample| (key(sample), sample.label(name).to_owned())).collect()
    };
    let [states, versions]: [HashMap<Key, String>; 2] = [info("state"), info("version")];
    let of = |(key, row): (Key, Row<'_>)| {
        let share = |used, limit| Cell::Share(row.value(used), row.value(limit));
        let text =
            |of: &HashMap<Key, String>| Cell::Text(of.get(&key).cloned().unwrap_or_default());
        let count = |name| Cell::Count(row.value(name));
        vec![
            Cell::number(&key[0]),
            Cell::number(&key[1]),
            Cell::Text(key[2].clone()),
            text(&states),
            text(&versions),
            Cell::Rate(row.rate("rpcrdma_peer_calls_received_total")),
            Cell::Rate(row.rate("rpcrdma_peer_calls_sent_total")),
            Cell::Rate(row.rate("rpcrdma_peer_calls_failed_total")),
            Cell::Rate(row.rate("rpcrdma_peer_failed_deadline_total")),
            Cell::Rate(row.rate("rpcrdma_peer_refusals_sent_total")),
            share("rpcrdma_peer_credits_used", "rpcrdma_peer_credits_limit"),
            share("rpcrdma_peer_granted_used", "rpcrdma_peer_granted_limit"),
            count("rpcrdma_peer_calls_open"),
            count("rpcrdma_peer_messages_waiting"),
            count("rpcrdma_peer_messages_pending"),
            count("rpcrdma_peer_slots"),
            Cell::Rate(row.rate("rpcrdma_peer_bytes_continued_total")),
            Cell::Rate(row.rate("rpcrdma_peer_bytes_read_total")),
            Cell::Rate(row.rate("rpcrdma_peer_bytes_written_total")),
        ]
    };
    let all = rows(looks, "rpcrdma_peer_", &labels, "");
    Table { title: "Peers", columns: PEERS, rows: all.into_iter().map(of).collect() }
}

fn times(looks: Looks<'_>) -> Table {
    let of_name = |(name, labels): (&'static str, &'static [&'static str])| {
        let all = rows(looks, name, labels, "le").into_iter();
        all.map(move |(key, row)| {
            let time = |share| Cell::Time(row.quantile(name, share));
            let what = match (name, &key[1..]) {
                (SERVICE, _) => "calls of peers".to_owned(),
                (CALLS, _) => "own calls".to_owned(),
                (_, named) => named.join(" "),
            };
            let rate = row.rate(&format!("{name}_count"));
            let of = Cell::number(&key[0]);
            vec![
                of,
                Cell::Text(what),
                Cell::Rate(rate),
                time(0.5),
                time(0.9),
                time(0.99),
                time(0.999),
            ]
        })
    };
    let rows = HISTOGRAMS.into_iter().flat_map(of_name).collect();
    Table { title: "Latencies", columns: TIMES, rows }
}

/// Every counter, summed over the shards.
fn counters(looks: Looks<'_>) -> Table {
    let shards = rows(looks, "rpcrdma_", &["shard"], "connection");
    let names = shards.values().flat_map(|row| row.names());
    let is_counter =
        |(name, connection): &(&str, &str)| name.ends_with("_total") && connection.is_empty();
    let mut names: Vec<&str> = names.filter(is_counter).map(|(name, _)| name).collect();
    names.sort_unstable();
    names.dedup();
    let row = |name: &str| {
        // What began anew in one shard has no sum.
        let rates: Option<Vec<f64>> = shards.values().map(|row| row.rate(name)).collect();
        let total = shards.values().filter_map(|row| row.value(name)).sum();
        let short = name.trim_start_matches("rpcrdma_").trim_end_matches("_total");
        let rate = rates.map(|rates| rates.iter().sum());
        vec![Cell::Text(short.to_owned()), Cell::Count(Some(total)), Cell::Rate(rate)]
    };
    Table { title: "Counters", columns: COUNTERS, rows: names.into_iter().map(row).collect() }
}

/// From delivery to answer.
const SERVICE: &str = "rpcrdma_service_seconds";
/// From beginning to completion.
const CALLS: &str = "rpcrdma_call_seconds";
const HISTOGRAMS: [(&str, &[&str]); 3] = [
    (SERVICE, &["shard"]),
    (CALLS, &["shard"]),
    ("rpcrdma_procedure_seconds", &["shard", "side", "program", "version", "procedure"]),
];

const SHARDS: &[&str] = &[
    "shard",
    "state",
    "conns",
    "in/s",
    "replies/s",
    "p50",
    "p99",
    "out/s",
    "failed/s",
    "p50",
    "p99",
    "open",
    "slots",
    "segments",
    "buffers",
];
const PEERS: &[&str] = &[
    "shard",
    "conn",
    "peer",
    "state",
    "v",
    "in/s",
    "out/s",
    "failed/s",
    "late/s",
    "refused/s",
    "credits",
    "granted",
    "open",
    "waiting",
    "pending",
    "slots",
    "cont. B/s",
    "read B/s",
    "written B/s",
];
const TIMES: &[&str] = &["shard", "what", "timed/s", "p50", "p90", "p99", "p99.9"];
const COUNTERS: &[&str] = &["counter", "total", "per second"];
