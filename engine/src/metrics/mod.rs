//! Metrics for Prometheus: the counters of all shards of an engine, as text and over HTTP.
//!
//! ```text
//!   GET /metrics ─▶ endpoint ─▶ Metrics::scrape ─▶ every shard, at one time ─▶ exposition
//! ```
//! Nothing is counted for this: a scrape reads what the shards count anyway, and asks each of them
//! for a report of its state. A shard that does not answer in time has `rpcrdma_up` 0; the others
//! are reported. The names are those of docs/embedding.md.

mod endpoint;
mod exposition;
mod gauges;
mod help;
mod latencies;
mod scrape;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

pub use self::endpoint::{MetricsError, MetricsServer};
use self::scrape::{Scrape, ShardScrape};
use crate::control::AdmissionTally;
use crate::failure::Failures;
use crate::registry::ShardRegistry;

/// The metrics of an engine ([`Engine::metrics`](crate::Engine::metrics)). It does not keep the
/// engine, or its shards, alive.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<ShardRegistry>,
    tally: Arc<AdmissionTally>,
    failures: Arc<Failures>,
}

impl Metrics {
    pub(crate) fn new(
        registry: Arc<ShardRegistry>,
        tally: Arc<AdmissionTally>,
        failures: Arc<Failures>,
    ) -> Metrics {
        Metrics { registry, tally, failures }
    }

    /// All metrics as of now, in the text format of OpenMetrics. Waits for the answers of the
    /// shards: a shard that the calling thread polls cannot answer.
    pub fn scrape(&self) -> String {
        let scrape = Scrape {
            shards: ShardScrape::all(&self.registry.shards()),
            admissions: self.tally.snapshot(),
            panics: self.failures.list().len() as u64,
        };
        exposition::text(scrape.families())
    }

    /// Serves the metrics over HTTP, on a thread of its own: at `GET /metrics` of this address and
    /// of no other. Port 0 selects a free port. There is neither encryption nor authentication.
    ///
    /// # Errors
    /// If the address cannot be listened on, or no thread can be made.
    pub fn serve(self, at: SocketAddr) -> Result<MetricsServer, MetricsError> {
        let listener = TcpListener::bind(at).map_err(|source| MetricsError { at, source })?;
        MetricsServer::start(listener, Arc::new(move || self.scrape()))
            .map_err(|source| MetricsError { at, source })
    }
}
