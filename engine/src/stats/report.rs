//! The report on a shard: its gauges, and its peers, at one moment.

use rpcrdma_proto::{PeerLimits, Version};

use super::Snapshot;
use super::tally::Counts;
use crate::connection_id::ConnectionId;
use crate::provider::Address;

/// A shard at one moment, with all its connections
/// ([`ShardHandle::inspect`](crate::ShardHandle::inspect)).
///
/// The shard writes it between two turns. With very many connections it writes some of them in each
/// of several turns: then those were looked at some microseconds apart.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ShardReport {
    /// The number of the shard, unique in its process.
    pub shard: u32,
    /// Its counters.
    pub counters: Snapshot,
    /// What it has, and how much of that is in use.
    pub gauges: Gauges,
    /// What connections have counted that are gone.
    pub gone: Counts,
    /// Its connections.
    pub peers: Vec<PeerReport>,
}

impl ShardReport {
    /// What all connections have counted since the start of the shard.
    pub fn counts(&self) -> Counts {
        let mut sum = self.gone;
        self.peers.iter().for_each(|peer| sum.add(&peer.counts));
        sum
    }
}

/// What a shard has, and how much of that is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Gauges {
    /// Places for connections.
    pub connections: Usage,
    /// Places for own calls. One is in use until the call's reply has arrived or can no longer
    /// arrive.
    pub calls: Usage,
    /// Send slots.
    pub slots: Usage,
    /// Segments of receive buffers that can be lent. Those in use are loans of the program, or
    /// leave with messages.
    pub segments: Usage,
    /// The program's registered buffers. Those in use are loans of the program, or leave with
    /// messages.
    pub buffers: Usage,
    /// Buffers for explicit RDMA.
    pub rdma_buffers: Usage,
    /// Memory windows. Those in use are bound, or wait until their peer has no use for them.
    pub windows: Usage,
    /// Calls of peers that the shard can fetch data for.
    pub fetches: Usage,
    /// Receives for calls of peers. Those in use are granted as credits.
    pub grants: Usage,
    /// Receives for replies to own calls. Those in use are reserved for open calls.
    pub replies: Usage,
    /// Receive buffers.
    pub receives: u64,
    /// Of these, those that are posted.
    pub receives_posted: u64,
    /// Of these, those whose message waits for a send slot to answer it.
    pub receives_waiting: u64,
    /// Calls delivered to the handler and not yet answered.
    pub calls_open: u64,
    /// Messages that wait to be posted.
    pub messages_pending: u64,
    /// Work requests posted and not known to be complete.
    pub sends_outstanding: u64,
}

/// Things of which a shard has a fixed number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// All of them.
    pub total: u64,
    /// Those that are free.
    pub free: u64,
}

impl Usage {
    pub(crate) fn new(total: impl TryInto<u64>, free: impl TryInto<u64>) -> Usage {
        let count = |count: Option<u64>| count.unwrap_or(u64::MAX);
        Usage { total: count(total.try_into().ok()), free: count(free.try_into().ok()) }
    }

    /// Those that are in use.
    pub fn used(&self) -> u64 {
        self.total.saturating_sub(self.free)
    }
}

/// A connection of a shard at one moment.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PeerReport {
    /// The connection.
    pub id: ConnectionId,
    /// The address of the peer; that of the listener if this side has connected.
    pub address: Address,
    /// Whether this side requested the connection.
    pub is_requested: bool,
    /// Its state.
    pub state: PeerState,
    /// The version that both sides speak; `None` until that is known.
    pub version: Option<Version>,
    /// The limits of the peer.
    pub limits: PeerLimits,
    /// What it has counted.
    pub counts: Counts,
    /// Credits of own calls.
    pub credits: Credits,
    /// Credits of the peer's calls.
    pub granted: Credits,
    /// Calls delivered to the handler and not yet answered.
    pub calls_open: u32,
    /// Calls of the peer whose data is being fetched.
    pub calls_fetching: u32,
    /// Own calls with exposed memory.
    pub calls_exposed: u32,
    /// Messages of the peer that wait for a send slot to answer them.
    pub messages_waiting: u32,
    /// Messages to the peer that wait to be posted.
    pub messages_pending: u32,
    /// Work requests posted and not known to be complete.
    pub sends_outstanding: u32,
    /// Send slots held by messages to the peer.
    pub slots: u32,
}

/// Credits of one direction: transmissions of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Credits {
    /// The maximum of transmissions outstanding at one time.
    pub limit: u32,
    /// Transmissions of calls that were not answered.
    pub used: u32,
}

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerState {
    /// The peers do not know each other's properties yet.
    Opening,
    /// Calls may go both ways.
    Up,
    /// It closes once the peer has received the last messages.
    Leaving,
    /// It has ended, and waits for its sends to complete.
    Closing,
}
