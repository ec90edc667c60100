//! The content of a configuration file, before values are checked.
//!
//! [`Raw::default`] is the profile `laptop`; a key that a file leaves out keeps that value. To
//! change a configuration in a program, change its `Raw` and check it again:
//!
//! ```
//! use rpcrdma_config::{Config, Raw};
//! let mut raw = Raw::default();
//! raw.receive.inline = "8KiB".into();
//! raw.connections.max = 2;
//! let config = Config::try_from(raw)?;
//! assert_eq!(config.receive().inline_len.value(), 8192);
//! # Ok::<(), rpcrdma_config::ConfigError>(())
//! ```

use serde::{Deserialize, Serialize};

pub use crate::text::RawText;
pub use interop::RawInterop;

mod interop;

/// The content of a file. Every key is described in `docs/configuration.md`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Raw {
    /// Threads and the device they poll.
    pub engine: RawEngine,
    /// How memory is allocated.
    pub memory: RawMemory,
    /// Receive buffers.
    pub receive: RawReceive,
    /// Send slots.
    pub send: RawSend,
    /// Limits of and per connection.
    pub connections: RawConnections,
    /// Parts of the protocol that can be switched off.
    pub features: RawFeatures,
    /// The version of the protocol.
    pub protocol: RawProtocol,
    /// Explicit RDMA: data moved by RDMA Read and Write.
    pub explicit: RawExplicit,
    /// Limits of other implementations.
    pub interop: RawInterop,
    /// The software fabric.
    pub fabric: RawFabric,
    /// Shared memory.
    pub shm: RawShm,
    /// iWARP over TCP.
    pub tcp: RawTcp,
    /// RDMA devices.
    pub verbs: RawVerbs,
    /// Memory for the program.
    pub app: RawApp,
    /// What is measured.
    pub stats: RawStats,
}

/// `[engine]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawEngine {
    /// `auto`, `fabric`, `shm`, `tcp` or `verbs`.
    pub provider: RawText,
    /// `auto` or a core list.
    pub cores: RawText,
    /// The number of shards, one thread each.
    pub shards: i64,
    /// Whether a shard's memory is on the NUMA node of its core.
    pub numa_bind: bool,
    /// What an idle shard does.
    pub idle: RawIdle,
}

/// `engine.idle`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawIdle {
    /// `spin`, `backoff` or `block`.
    pub policy: RawText,
    /// How long to spin before backing off or blocking: a duration.
    pub spin: RawText,
}

/// `[memory]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawMemory {
    /// `1G`, `2M`, `transparent` or `4K`; `try-1G` or `try-2M`, which accept smaller pages.
    pub pages: RawText,
    /// `true`, `false` or `try`: whether to lock the memory.
    pub lock: RawText,
    /// Whether to touch every page at the start.
    pub prefault: bool,
}

/// `[receive]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawReceive {
    /// The leading segment, for headers and payload: a length.
    pub inline: RawText,
    /// The placement segments.
    pub placement: RawPlacement,
    /// `auto` or the number of Receives that a shard keeps posted.
    pub buffers: RawText,
    /// `auto` or the number of them that is reserved for replies to own calls.
    pub replies: RawText,
    /// Placement segments in reserve for loans, per shard.
    pub spares: i64,
}

/// `receive.placement`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawPlacement {
    /// The number of segments per receive buffer.
    pub count: i64,
    /// Of each segment: a length.
    pub length: RawText,
    /// Of each segment's address: a length.
    pub align: RawText,
}

/// `[send]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawSend {
    /// Send slots per shard.
    pub slots: i64,
    /// The payload that a slot can contain: a length.
    pub length: RawText,
    /// The longest message that is copied into its work request: a length.
    pub inline_max: RawText,
    /// One send in this number requests a completion.
    pub signal_every: i64,
    /// Doorbell batching: how long short messages may wait for others: a duration.
    pub hold: RawText,
    /// The zeros that padding is gathered from: a length.
    pub zero: RawText,
}

/// `[connections]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawConnections {
    /// Connections per shard.
    pub max: i64,
    /// Connections of one peer, over all shards; 0 is without limit.
    pub max_per_peer: i64,
    /// Who may connect: networks, addresses, `uid:` and `gid:` with a number; all if it is empty.
    pub allow: Vec<String>,
    /// Who may not connect, though `allow` permits it.
    pub deny: Vec<String>,
    /// The maximum of credits granted to one connection.
    pub credits: i64,
    /// Credits requested on a connection.
    pub credits_requested: i64,
    /// The maximum of outstanding own calls, per shard.
    pub calls_max: i64,
    /// The maximum of transmissions of an own call.
    pub call_transmissions_max: i64,
    /// The maximum of transmissions of a reply to an own call.
    pub reply_transmissions_max: i64,
    /// The maximum of transmissions of a received call.
    pub request_transmissions_max: i64,
    /// The maximum of transmissions of an own reply.
    pub response_transmissions_max: i64,
    /// The longest RPC message, including placed data: a length.
    pub rpc_len_max: RawText,
    /// How long a message may stay incomplete: a duration.
    pub group_timeout: RawText,
    /// How long a peer may take to answer a call before its connection is closed; `0s` is without
    /// limit: a duration.
    pub call_timeout: RawText,
    /// How long a peer may receive nothing of what it is sent; `0s` is without limit: a duration.
    pub send_timeout: RawText,
    /// How long a connected peer may send no call; `0s` is without limit: a duration.
    pub idle_timeout: RawText,
    /// How often a Send is retried when the peer has no Receive; 7 is without limit.
    pub rnr_retry: i64,
    /// How long to wait for a connection: a duration.
    pub connect_timeout: RawText,
    /// How long a stop waits for open calls: a duration.
    pub stop_timeout: RawText,
}

/// `[features]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawFeatures {
    /// Transport properties.
    pub properties: bool,
    /// Send-based placement.
    pub placement: bool,
    /// Message continuation.
    pub continuation: bool,
}

/// `[protocol]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawProtocol {
    /// `auto`, `one` or `two`.
    pub version: RawText,
    /// How long the first message of version two may stay without an answer: a duration.
    pub negotiation_timeout: RawText,
    /// How long the version of a peer is remembered; `0s` is not at all: a duration.
    pub version_memory: RawText,
}

/// `[explicit]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawExplicit {
    /// Whether explicit RDMA is used.
    pub enabled: bool,
    /// `auto`, `windows`, `registration` or `static-insecure`.
    pub exposure: RawText,
    /// `auto` or the number of memory windows per shard.
    pub windows: RawText,
    /// The maximum of calls whose data are read at one time, per shard.
    pub fetches: i64,
    /// RDMA buffers: registered buffers for data that is read and written.
    pub buffers: RawBulk,
}

/// `[fabric]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawFabric {
    /// The delay from sender to receiver: a duration.
    pub delay: RawText,
    /// The maximum of messages in transit on one queue pair, per direction.
    pub ring_slots: i64,
}

/// `[shm]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawShm {
    /// The maximum of messages in transit on one connection, per direction.
    pub ring_slots: i64,
    /// The bytes in transit on one connection, per direction: a length.
    pub staging: RawText,
    /// Whether peers that do so, too, map this side's pools, read-only.
    pub map_pools: bool,
}

/// `[tcp]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawTcp {
    /// Whether this side asks for checksums.
    pub crc: bool,
    /// The longest message: a length.
    pub message_len: RawText,
}

/// `[verbs]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawVerbs {
    /// `auto` or the name of a device.
    pub device: RawText,
    /// `auto` or an address of the device.
    pub address: RawText,
    /// `auto` or the number of a port of the device.
    pub port: RawText,
    /// `auto` or the index of a GID of the port.
    pub gid: RawText,
    /// The longest inline send of a queue pair: a length.
    pub inline: RawText,
    /// The maximum of outstanding RDMA Reads of one connection, in each direction.
    pub reads: i64,
    /// How long a peer waits before it retries a Send without a Receive (RNR timer): a duration.
    pub rnr_timer: RawText,
    /// How often an unacknowledged request is retried.
    pub retry_count: i64,
    /// The acknowledgement timeout: 4.096 us times two to the power of this.
    pub ack_timeout: i64,
    /// `auto` or the traffic class of the packets.
    pub traffic_class: RawText,
    /// The maximum of waiting connection requests of one listener.
    pub backlog: i64,
    /// The timeout for resolving an address or a route: a duration.
    pub resolve_timeout: RawText,
    /// The timeout for the answer to a connection request: a duration.
    pub answer_timeout: RawText,
    /// The number of attempts to resolve the address and to connect.
    pub attempts: i64,
    /// The pause after the first failed attempt: a duration.
    pub pause: RawText,
    /// The longest pause between two attempts: a duration.
    pub pause_max: RawText,
}

/// `[stats]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawStats {
    /// One call in so many is timed; 0: none.
    pub sample: i64,
}

/// `[app]`
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawApp {
    /// Registered buffers for bulk data.
    pub bulk: RawBulk,
}

/// `app.bulk`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawBulk {
    /// The number of buffers per shard.
    pub count: i64,
    /// Of each: a length.
    pub length: RawText,
}

impl Default for RawStats {
    fn default() -> Self {
        Self { sample: 64 }
    }
}

impl Default for RawEngine {
    fn default() -> Self {
        Self {
            provider: "auto".into(),
            cores: "auto".into(),
            shards: 1,
            numa_bind: true,
            idle: RawIdle::default(),
        }
    }
}

impl Default for RawIdle {
    fn default() -> Self {
        Self { policy: "block".into(), spin: "1ms".into() }
    }
}

impl Default for RawMemory {
    fn default() -> Self {
        Self { pages: "transparent".into(), lock: false.into(), prefault: true }
    }
}

impl Default for RawReceive {
    fn default() -> Self {
        Self {
            inline: "4KiB".into(),
            placement: RawPlacement::default(),
            buffers: "auto".into(),
            replies: "auto".into(),
            spares: 64,
        }
    }
}

impl Default for RawPlacement {
    fn default() -> Self {
        Self { count: 4, length: "16KiB".into(), align: "4KiB".into() }
    }
}

impl Default for RawSend {
    fn default() -> Self {
        Self {
            slots: 256,
            length: "8KiB".into(),
            inline_max: "192B".into(),
            signal_every: 64,
            hold: "0us".into(),
            zero: "64KiB".into(),
        }
    }
}

impl Default for RawConnections {
    fn default() -> Self {
        Self {
            max: 8,
            max_per_peer: 0,
            allow: Vec::new(),
            deny: Vec::new(),
            credits: 32,
            credits_requested: 32,
            calls_max: 64,
            call_transmissions_max: 16,
            reply_transmissions_max: 16,
            request_transmissions_max: 16,
            response_transmissions_max: 16,
            rpc_len_max: "4MiB".into(),
            group_timeout: "5s".into(),
            call_timeout: "0s".into(),
            send_timeout: "30s".into(),
            idle_timeout: "10min".into(),
            rnr_retry: 7,
            connect_timeout: "5s".into(),
            stop_timeout: "5s".into(),
        }
    }
}

impl Default for RawFeatures {
    fn default() -> Self {
        Self { properties: true, placement: true, continuation: true }
    }
}

impl Default for RawProtocol {
    fn default() -> Self {
        Self {
            version: "auto".into(),
            negotiation_timeout: "5s".into(),
            version_memory: "10min".into(),
        }
    }
}

impl Default for RawExplicit {
    fn default() -> Self {
        Self {
            enabled: true,
            exposure: "auto".into(),
            windows: "auto".into(),
            fetches: 64,
            buffers: RawBulk { count: 16, length: "512KiB".into() },
        }
    }
}

impl Default for RawShm {
    fn default() -> Self {
        Self { ring_slots: 128, staging: "4MiB".into(), map_pools: false }
    }
}

impl Default for RawTcp {
    fn default() -> Self {
        Self { crc: false, message_len: "4MiB".into() }
    }
}

impl Default for RawFabric {
    fn default() -> Self {
        Self { delay: "0us".into(), ring_slots: 256 }
    }
}

impl Default for RawVerbs {
    fn default() -> Self {
        Self {
            device: "auto".into(),
            address: "auto".into(),
            port: "auto".into(),
            gid: "auto".into(),
            inline: "512B".into(),
            reads: 16,
            rnr_timer: "10us".into(),
            retry_count: 7,
            ack_timeout: 17,
            traffic_class: "auto".into(),
            backlog: 128,
            resolve_timeout: "500ms".into(),
            answer_timeout: "2s".into(),
            attempts: 16,
            pause: "20ms".into(),
            pause_max: "1s".into(),
        }
    }
}

impl Default for RawBulk {
    fn default() -> Self {
        Self { count: 16, length: "1MiB".into() }
    }
}
