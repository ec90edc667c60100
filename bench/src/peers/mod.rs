//! Peers: other ways to carry messages on this machine, measured beside the RPC.
//!
//! ```text
//!   sockets   our own ping-pong over unix and TCP sockets            a contender: every sample
//!   tools     ucx_perftest, fi_pingpong, ib_send_lat,
//!             rpcrdma-peer-iceoryx2              ──▶ process ──▶ what they print, parsed
//! ```
//! A tool is run once for each round: its server and its client, each on the core that our own
//! would have. Its output is parsed strictly: an unexpected line is an error that shows
//! it, since a number out of the wrong column is worse than none.

use std::time::Duration;

use strum::{IntoStaticStr, VariantArray};

pub mod iceoryx2;
pub mod libfabric;
pub mod perftest;
pub mod process;
pub mod socket;
pub mod tool;
pub mod ucx;

/// What a peer is to do, as far as it can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerTask {
    pub pattern: Pattern,
    /// Bytes of a message that has headers of the tool's own beside them.
    pub data_len: usize,
    /// Bytes of a message that is all there is on the wire.
    pub wire_len: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    RoundTrips,
    Messages,
}

/// What a tool printed about one round, of whole round trips.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolRound {
    pub figures: Vec<Printed>,
    pub count: u64,
}

impl ToolRound {
    pub fn find(&self, measure: Measure) -> Option<Printed> {
        self.figures.iter().copied().find(|one| one.measure == measure)
    }

    /// Of `count` round trips: the median, mean, minimum, p99, p99.9 and maximum, in nanoseconds.
    fn of_times(count: u64, [median, mean, min, p99, p999, max]: [f64; 6]) -> ToolRound {
        let times = [
            (Measure::Median, median),
            (Measure::Mean, mean),
            (Measure::Min, min),
            (Measure::P99, p99),
            (Measure::P999, p999),
            (Measure::Max, max),
        ];
        let printed = |(measure, value)| Printed { measure, value, samples: count };
        ToolRound { figures: times.map(printed).to_vec(), count }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Printed {
    pub measure: Measure,
    /// In nanoseconds, in 1/s, or in 10^9 bytes per second.
    pub value: f64,
    pub samples: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum Measure {
    #[strum(serialize = "round_trip.median")]
    Median,
    #[strum(serialize = "round_trip.mean")]
    Mean,
    #[strum(serialize = "round_trip.p99")]
    P99,
    #[strum(serialize = "round_trip.p99.9")]
    P999,
    #[strum(serialize = "round_trip.min")]
    Min,
    #[strum(serialize = "round_trip.max")]
    Max,
    Rate,
    /// Data in 10^9 bytes a second.
    Data,
}

/// A time in us as tools print it, of half a round trip: the whole one, in ns.
fn whole_ns(half_us: f64) -> f64 {
    half_us * 2.0 * 1e3
}

/// A number as a tool prints it: digits and a point, and neither a sign nor a unit.
fn number(text: &str) -> Option<f64> {
    let is_plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    text.parse().ok().filter(|_| is_plain)
}

/// How long a peer may take for a round of so long: it may have to start two processes, find a
/// device, and warm up.
fn patience(round: Duration) -> Duration {
    round * 20 + Duration::from_secs(60)
}
