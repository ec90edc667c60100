//! A scrape: what the shards of an engine have counted and have, as families of samples.

use std::thread;
use std::time::Duration;

use super::exposition::{Family, Kind, Labels};
use super::gauges::{PEER_COUNTERS, PEER_GAUGES, POOLS, SHARD_GAUGES};
use super::{help, latencies};
use crate::control::Admissions;
use crate::handle::ShardHandle;
use crate::stats::Snapshot;
use crate::stats::inspection::InspectError;
use crate::stats::latency::LatencyReport;
use crate::stats::report::{PeerReport, ShardReport};

/// What a scrape has found.
pub(super) struct Scrape {
    pub shards: Vec<ShardScrape>,
    pub admissions: Admissions,
    /// Threads that have panicked.
    pub panics: u64,
}

/// What a scrape has found of one shard.
pub(super) struct ShardScrape {
    handle: ShardHandle,
    counters: Snapshot,
    latencies: LatencyReport,
    /// `None` if it did not answer in time.
    report: Option<ShardReport>,
}

impl ShardScrape {
    /// Asks shards, all at one time. Those that have ended are left out.
    pub fn all(shards: &[ShardHandle]) -> Vec<ShardScrape> {
        thread::scope(|scope| {
            let ask = |shard| scope.spawn(move || ShardScrape::of(shard));
            let asked: Vec<_> = shards.iter().map(ask).collect();
            asked.into_iter().filter_map(|asked| asked.join().ok().flatten()).collect()
        })
    }

    fn of(handle: &ShardHandle) -> Option<ShardScrape> {
        let report = match handle.inspect(ANSWER_TIME_MAX) {
            Ok(report) => Some(report),
            Err(InspectError::Ended) => return None,
            Err(_) => None,
        };
        // Counters are there to read, whether the shard answers or not.
        let counters = report.as_ref().map_or_else(|| handle.stats(), |report| report.counters);
        let latencies = handle.latencies();
        Some(ShardScrape { handle: handle.clone(), counters, latencies, report })
    }

    fn labels(&self) -> Labels {
        vec![("shard", self.handle.shard().to_string())]
    }

    /// Its labels, and one more.
    fn labels_with(&self, name: &'static str, value: &str) -> Labels {
        let mut labels = self.labels();
        labels.push((name, value.to_owned()));
        labels
    }

    fn peers(&self) -> &[PeerReport] {
        self.report.as_ref().map_or(&[], |report| &report.peers)
    }

    fn peer_labels(&self, peer: &PeerReport) -> Labels {
        let connection = format!("{}.{}", peer.id.index, peer.id.generation);
        let mut labels = self.labels_with("connection", &connection);
        labels.push(("peer", peer.address.to_string()));
        labels
    }
}

impl Scrape {
    /// Everything, in the order in which it is shown.
    pub fn families(&self) -> Vec<Family> {
        let mut families = self.of_engine();
        families.extend(self.of_shards());
        families.extend(self.pools());
        families.extend(self.counters());
        let timed = self.shards.iter().map(|shard| (shard.labels(), &shard.latencies));
        families.extend(latencies::families(timed));
        families.extend(self.of_peers());
        families
    }

    /// What concerns all shards.
    fn of_engine(&self) -> Vec<Family> {
        let Admissions { accepted, not_allowed, refused, full, peer_full, busy, stopping } =
            self.admissions;
        let requests = [
            ("accepted", accepted),
            ("not_allowed", not_allowed),
            ("refused", refused),
            ("full", full),
            ("peer_full", peer_full),
            ("busy", busy),
            ("stopping", stopping),
        ];
        let request =
            |(outcome, count): (&str, u64)| (vec![("outcome", outcome.to_owned())], count);
        let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
        let (build, panics) = ("The version of the engine. Always 1.", "Threads that panicked.");
        let help = "Connection requests of peers, by what became of them.";
        vec![
            Family::new(Kind::Gauge, "build_info", build, vec![(version, 1)]),
            Family::new(Kind::Counter, "panics", panics, vec![(Labels::new(), self.panics)]),
            Family::new(Kind::Counter, "connection_requests", help, requests.map(request).into()),
        ]
    }

    /// What each shard has.
    fn of_shards(&self) -> impl Iterator<Item = Family> {
        let up = |shard: &ShardScrape| (shard.labels(), shard.report.is_some().into());
        let resources =
            |shard: &ShardScrape| (shard.labels(), shard.handle.resources().bytes() as u64);
        let locked =
            |shard: &ShardScrape| (shard.labels(), shard.handle.resources().locked() as u64);
        let all = |sample: &dyn Fn(&ShardScrape) -> (Labels, u64)| {
            self.shards.iter().map(sample).collect::<Vec<_>>()
        };
        let gauges = SHARD_GAUGES.iter().map(|(name, help, value)| {
            let value =
                |shard: &ShardScrape| Some((shard.labels(), value(&shard.report.as_ref()?.gauges)));
            Family::new(Kind::Gauge, name, *help, self.shards.iter().filter_map(value).collect())
        });
        [
            Family::new(Kind::Gauge, "up", UP, all(&up)),
            Family::new(Kind::Bytes, "memory", "Memory of the shard.", all(&resources)),
            Family::new(Kind::Bytes, "memory_locked", "Memory that is locked.", all(&locked)),
        ]
        .into_iter()
        .chain(gauges)
    }

    /// The pools of each shard.
    fn pools(&self) -> [Family; 2] {
        let samples = |is_used: bool| {
            let of_shard = |shard: &ShardScrape| {
                let gauges = shard.report.as_ref().map(|report| report.gauges);
                let sample = |(pool, usage): &(&str, super::gauges::Pool)| {
                    let usage = usage(&gauges?);
                    let value = if is_used { usage.used() } else { usage.total };
                    Some((shard.labels_with("pool", pool), value))
                };
                POOLS.iter().filter_map(sample).collect::<Vec<_>>()
            };
            self.shards.iter().flat_map(of_shard).collect()
        };
        let (size, used) = ("What a pool has.", "What is in use of a pool.");
        [
            Family::new(Kind::Gauge, "pool_size", size, samples(false)),
            Family::new(Kind::Gauge, "pool_used", used, samples(true)),
        ]
    }

    /// What each shard has counted.
    fn counters(&self) -> Vec<Family> {
        let family = |(at, (field, help, _)): (usize, (&'static str, &str, u64))| {
            let sample = |shard: &ShardScrape| {
                let counted = shard.counters.iter().nth(at);
                let (_, value) = counted.expect("all shards have the same counters");
                (shard.labels(), value)
            };
            let samples = self.shards.iter().map(sample).collect();
            Family::new(Kind::Counter, field, help::of_counter(help), samples)
        };
        Snapshot::default().described().enumerate().map(family).collect()
    }

    /// What is outstanding on each connection.
    fn of_peers(&self) -> impl Iterator<Item = Family> {
        let all = |sample: &dyn Fn(&ShardScrape, &PeerReport) -> (Labels, u64)| {
            let of_shard = |shard| ShardScrape::peers(shard).iter().map(move |peer| (shard, peer));
            let peers = self.shards.iter().flat_map(of_shard);
            peers.map(|(shard, peer)| sample(shard, peer)).collect::<Vec<_>>()
        };
        let info = all(&|shard, peer| {
            let mut labels = shard.peer_labels(peer);
            let version = peer.version.map_or(0, |version| version.number());
            let by = if peer.is_requested { "this_side" } else { "peer" };
            labels.push(("state", format!("{:?}", peer.state).to_lowercase()));
            labels.push(("version", version.to_string()));
            labels.push(("requested_by", by.to_owned()));
            (labels, 1)
        });
        let gauges = PEER_GAUGES.iter().map(move |(name, help, value)| {
            let samples = all(&|shard, peer| (shard.peer_labels(peer), u64::from(value(peer))));
            Family::new(Kind::Gauge, name, *help, samples)
        });
        let counters = PEER_COUNTERS.iter().map(move |(name, help, value)| {
            let samples = all(&|shard, peer| (shard.peer_labels(peer), value(&peer.counts)));
            Family::new(Kind::Counter, name, *help, samples)
        });
        let info = Family::new(Kind::Gauge, "peer_info", INFO, info);
        [info].into_iter().chain(gauges).chain(counters)
    }
}

/// The longest time that a shard may take to answer a scrape.
const ANSWER_TIME_MAX: Duration = Duration::from_millis(500);
const UP: &str = "1 if the shard answered the scrape in time, 0 if it did not or has panicked.";
const INFO: &str = "A connection: its state, its version (0 until that is known), and the side \
     that requested it. Always 1.";
