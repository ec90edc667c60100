//! The gauges of shards, and the gauges and counters of connections: their names, their
//! descriptions, and where they are found.

use crate::stats::report::{Gauges, PeerReport, Usage};
use crate::stats::tally::Counts;

/// Where the number of a pool is found.
pub(super) type Pool = fn(&Gauges) -> Usage;

/// The pools of a shard: values of the label `pool`.
pub(super) const POOLS: &[(&str, Pool)] = &[
    ("connections", |it| it.connections),
    ("calls", |it| it.calls),
    ("slots", |it| it.slots),
    ("segments", |it| it.segments),
    ("buffers", |it| it.buffers),
    ("rdma_buffers", |it| it.rdma_buffers),
    ("windows", |it| it.windows),
    ("fetches", |it| it.fetches),
    ("grants", |it| it.grants),
    ("replies", |it| it.replies),
];

type ShardGauge = (&'static str, &'static str, fn(&Gauges) -> u64);

/// Other numbers of a shard.
pub(super) const SHARD_GAUGES: &[ShardGauge] = &[
    ("receives", "Receive buffers.", |it| it.receives),
    ("receives_posted", "Receive buffers that are posted.", |it| it.receives_posted),
    (
        "receives_waiting",
        "Receive buffers whose message waits for a send slot to answer it.",
        |it| it.receives_waiting,
    ),
    ("calls_open", "Calls delivered to the handler and not yet answered.", |it| it.calls_open),
    ("messages_pending", "Messages that wait to be posted.", |it| it.messages_pending),
    ("sends_outstanding", "Work requests posted and not known to be complete.", |it| {
        it.sends_outstanding
    }),
];

type PeerGauge = (&'static str, &'static str, fn(&PeerReport) -> u32);

/// Numbers of a connection.
pub(super) const PEER_GAUGES: &[PeerGauge] = &[
    (
        "peer_credits_limit",
        "Transmissions of own calls that the peer allows to be outstanding.",
        |it| it.credits.limit,
    ),
    ("peer_credits_used", "Transmissions of own calls that were not answered.", |it| {
        it.credits.used
    }),
    (
        "peer_granted_limit",
        "Transmissions of the peer's calls that this side allows to be outstanding.",
        |it| it.granted.limit,
    ),
    ("peer_granted_used", "Transmissions of the peer's calls that were not answered.", |it| {
        it.granted.used
    }),
    ("peer_calls_open", "Calls of the peer delivered to the handler and not yet answered.", |it| {
        it.calls_open
    }),
    ("peer_calls_fetching", "Calls of the peer whose data is being fetched.", |it| {
        it.calls_fetching
    }),
    ("peer_calls_exposed", "Own calls with exposed memory.", |it| it.calls_exposed),
    (
        "peer_messages_waiting",
        "Messages of the peer that wait for a send slot to answer them.",
        |it| it.messages_waiting,
    ),
    ("peer_messages_pending", "Messages to the peer that wait to be posted.", |it| {
        it.messages_pending
    }),
    (
        "peer_sends_outstanding",
        "Work requests to the peer posted and not known to be complete.",
        |it| it.sends_outstanding,
    ),
    ("peer_slots", "Send slots held by messages to the peer.", |it| it.slots),
];

type PeerCounter = (&'static str, &'static str, fn(&Counts) -> u64);

/// What a connection has counted.
pub(super) const PEER_COUNTERS: &[PeerCounter] = &[
    ("peer_calls_received", "Calls of the peer delivered to the handler.", |it| it.calls_received),
    ("peer_replies_sent", "Replies sent to the peer, deferred ones included.", |it| {
        it.replies_sent
    }),
    ("peer_refusals_sent", "Calls of the peer answered without a reply of the program.", |it| {
        it.refusals_sent
    }),
    ("peer_refusals_handler", "Calls of the peer that the handler rejected.", |it| {
        it.refusals_handler
    }),
    ("peer_refusals_unsent", "Calls of the peer whose reply could not be sent.", |it| {
        it.refusals_unsent
    }),
    ("peer_refusals_dropped", "Calls of the peer whose ticket was dropped.", |it| {
        it.refusals_dropped
    }),
    ("peer_calls_unanswered", "Calls of the peer left without an answer.", |it| {
        it.calls_unanswered
    }),
    (
        "peer_calls_rejected",
        "Calls of the peer not delivered for lack of resources, and answered with an error.",
        |it| it.calls_rejected,
    ),
    (
        "peer_calls_dropped",
        "Calls of the peer that arrived while the shard stopped, and were not answered.",
        |it| it.calls_dropped,
    ),
    ("peer_calls_sent", "Calls sent to the peer.", |it| it.calls_sent),
    ("peer_calls_completed", "Calls to the peer completed, failures included.", |it| {
        it.calls_completed
    }),
    ("peer_calls_failed", "Calls to the peer completed with an error.", |it| it.calls_failed),
    ("peer_failed_deadline", "Calls to the peer whose deadline passed.", |it| it.failed_deadline),
    (
        "peer_bytes_continued",
        "Bytes received from the peer in groups of more than one transmission.",
        |it| it.bytes_continued,
    ),
    ("peer_bytes_read", "Bytes of RDMA Reads of the peer's memory.", |it| it.bytes_read),
    ("peer_bytes_written", "Bytes of RDMA Writes to the peer's memory.", |it| it.bytes_written),
];
