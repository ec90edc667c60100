//! The sections of a checked configuration. Values exist only inside a [`Config`](crate::Config).

use std::net::IpAddr;
use std::time::Duration;

use crate::access::Access;
use crate::bounded::Bounded;

/// Threads and the device they poll: `[engine]`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineSection {
    /// The device.
    pub provider: ProviderKind,
    /// The cores of the shards.
    pub cores: Cores,
    /// The number of shards, one thread each.
    pub shards: Bounded<1, 1024>,
    /// Whether a shard's memory is on the NUMA node of its core.
    pub numa_bind: bool,
    /// What an idle shard does.
    pub idle: IdleSection,
}

/// The transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderKind {
    /// The one that the program opens.
    Auto,
    /// The software fabric inside this process.
    Fabric,
    /// Shared memory between the processes of this host.
    Shm,
    /// Any host over TCP: iWARP in user space.
    Tcp,
    /// An RDMA device, through libibverbs and librdmacm.
    Verbs,
}

impl ProviderKind {
    /// Whether a program with this configuration may open a provider of that kind.
    pub fn admits(self, opened: ProviderKind) -> bool {
        self == ProviderKind::Auto || self == opened
    }

    /// The word of a configuration for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            ProviderKind::Auto => "auto",
            ProviderKind::Fabric => "fabric",
            ProviderKind::Shm => "shm",
            ProviderKind::Tcp => "tcp",
            ProviderKind::Verbs => "verbs",
        }
    }
}

/// The cores of the shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cores {
    /// The engine chooses.
    Auto,
    /// The first shard on the first of these, and so on: in rising order, at least one per shard.
    List(Vec<usize>),
}

/// What an idle shard does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct IdleSection {
    /// What follows after spinning.
    pub policy: IdlePolicy,
    /// How long to spin first; ignored for [`IdlePolicy::Spin`]. At most 60 s.
    pub spin: Duration,
}

/// What an idle shard does after spinning. It has no effect on the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdlePolicy {
    /// Continue to spin: the core is used by the shard only.
    Spin,
    /// Pause and yield, for increasing times.
    Backoff,
    /// Request a wake-up and sleep.
    Block,
}

/// How memory is allocated: `[memory]`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemorySection {
    /// The page size.
    pub pages: Pages,
    /// Whether smaller pages are accepted if the system has none of this size. Otherwise the start
    /// fails.
    pub smaller_pages: bool,
    /// Whether to lock the memory.
    pub lock: Lock,
    /// Whether to touch every page at the start.
    pub prefault: bool,
}

/// Page sizes, largest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// Reserved pages of 1 GiB.
    OneGiB,
    /// Reserved pages of 2 MiB.
    TwoMiB,
    /// Transparent huge pages, as far as the kernel provides them.
    Transparent,
    /// Ordinary pages.
    FourKiB,
}

/// Whether memory is locked, so that it is not swapped out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// Not locked.
    Never,
    /// As much of it as the system allows.
    Try,
    /// All of it; if the system does not allow that, the start fails.
    Always,
}

/// Receive buffers: `[receive]`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiveSection {
    /// Bytes of the leading segment, for headers and payload; a multiple of four.
    pub inline_len: Bounded<1024, BUFFER_LEN_MAX>,
    /// The placement segments.
    pub placement: PlacementSection,
    /// Receives that a shard keeps posted.
    pub buffers: Bounded<1, RECEIVES_MAX>,
    /// The number of them that is reserved for replies to own calls.
    pub replies: Bounded<0, RECEIVES_MAX>,
    /// Placement segments in reserve for loans, per shard.
    pub spares: Bounded<0, RECEIVES_MAX>,
}

/// The placement segments of one receive buffer: `receive.placement`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlacementSection {
    /// The number; 0 if `features.placement` is off. If it is 0, the other values are ignored.
    pub count: Bounded<0, 63>,
    /// Bytes of each, a multiple of `align`.
    pub len: Bounded<4, BUFFER_LEN_MAX>,
    /// Alignment of each one's address in bytes, a power of two.
    pub align: Bounded<4, ALIGN_MAX>,
}

/// Send slots: `[send]`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SendSection {
    /// Send slots per shard.
    pub slots: Bounded<2, 65_536>,
    /// Bytes of payload that a slot can contain after the header; a multiple of four.
    pub payload_len: Bounded<1024, BUFFER_LEN_MAX>,
    /// The longest message that is copied into its work request, in bytes; the device's own limit
    /// applies where it is lower.
    pub inline_max: Bounded<0, 1024>,
    /// One send in this number requests a completion.
    pub signal_every: Bounded<1, 1024>,
    /// Doorbell batching: a waiting short message is sent when no other has come for this time;
    /// zero disables waiting. At most 10 ms.
    pub hold: Duration,
    /// Bytes of zeros that padding is gathered from.
    pub zero_len: Bounded<4096, 1_048_576>,
}

/// Limits of and per connection: `[connections]`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionsSection {
    /// Connections per shard.
    pub max: Bounded<1, 16_384>,
    /// Connections of one peer, over all shards; 0 is without limit.
    pub max_per_peer: Bounded<0, 65_536>,
    /// Who may connect.
    pub access: Access,
    /// The maximum of credits granted to one connection, in transmissions.
    pub credits: Bounded<1, 1024>,
    /// Credits requested on a connection, in transmissions.
    pub credits_requested: Bounded<1, 1024>,
    /// The maximum of outstanding own calls, per shard; 0 for a server that makes no calls.
    pub calls_max: Bounded<0, RECEIVES_MAX>,
    /// The maximum of transmissions of an own call.
    pub call_transmissions_max: GroupLimit,
    /// The maximum of transmissions of a reply to an own call (`optxrq_rsbuf`).
    pub reply_transmissions_max: GroupLimit,
    /// The maximum of transmissions of a received call (property REQRXLIM).
    pub request_transmissions_max: GroupLimit,
    /// The maximum of transmissions of an own reply (property RESPSXLIM).
    pub response_transmissions_max: GroupLimit,
    /// Bytes of the longest RPC message, including placed data.
    pub rpc_len_max: Bounded<1024, 1_073_741_824>,
    /// How long a message may stay incomplete; 1 ms to 1 h.
    pub group_timeout: Duration,
    /// How long a peer may take to answer a call before its connection is closed; 1 ms to 1 h,
    /// `None` is without limit.
    pub call_timeout: Option<Duration>,
    /// How long a peer may receive nothing of what it is sent before its connection is closed; 1 ms
    /// to 1 h, `None` is without limit.
    pub send_timeout: Option<Duration>,
    /// How long a connected peer may send no call before its connection is closed; 1 ms to 24 h,
    /// `None` is without limit.
    pub idle_timeout: Option<Duration>,
    /// How often a Send is retried when the peer has no Receive; 7 is without limit.
    pub rnr_retry: Bounded<0, 7>,
    /// How long to wait for a connection; 1 ms to 1 h.
    pub connect_timeout: Duration,
    /// How long a stop waits for open calls; 1 ms to 1 h.
    pub stop_timeout: Duration,
}

/// A number of transmissions of one message (`wire.md` E40).
pub type GroupLimit = Bounded<1, 64>;

/// Parts of the protocol that can be switched off: `[features]`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FeaturesSection {
    /// Transport properties: CONNPROP and its three companions (`wire.md` P14).
    pub properties: bool,
    /// Send-based placement, in both directions.
    pub placement: bool,
    /// Message continuation, in both directions.
    pub continuation: bool,
}

/// The version of the protocol: `[protocol]`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProtocolSection {
    /// The version, or negotiation.
    pub version: VersionChoice,
    /// How long the first message of version two may stay unanswered before the connection is
    /// closed and the next one uses version one; 1 ms to 1 h.
    pub negotiation_timeout: Duration,
    /// How long the version of a peer is remembered; zero is not at all, at most 24 h.
    pub version_memory: Duration,
}

/// The versions that this side supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionChoice {
    /// A client begins with version two, and uses version one if the peer does not support two; a
    /// server accepts both.
    Auto,
    /// Only version one.
    One,
    /// Only version two.
    Two,
}

/// Explicit RDMA, data moved by RDMA Read and Write: `[explicit]`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExplicitSection {
    /// Whether it is used. If not, calls offer no chunks, and received chunks are rejected.
    pub enabled: bool,
    /// How memory is exposed to a peer.
    pub exposure: Exposure,
    /// Memory windows per shard; 0 if no memory is exposed.
    pub windows: Bounded<0, 65_536>,
    /// Whether their number is derived from other keys: then a device with fewer windows is
    /// accepted.
    pub derives_windows: bool,
    /// The maximum of calls whose data are read at one time, per shard; 0 rejects all.
    pub fetches: Bounded<0, 65_536>,
    /// RDMA buffers: data is read into them, and results are written to them if the program
    /// provides no result buffer. They also hold messages that are too long for a Send.
    pub buffers: BulkSection,
}

/// How memory is exposed to a peer during a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposure {
    /// Windows if the device has them; otherwise nothing is exposed.
    Auto,
    /// Windows, which belong to one connection; a device without them is rejected.
    Windows,
    /// A registration for each call.
    Registration,
    /// One registration for all calls and all peers: each peer can read and write all of the memory
    /// at any time.
    StaticInsecure,
}

/// Limits of other implementations that are narrower than the protocol: `[interop]`.
///
/// The defaults suit all known implementations, except where a key names one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InteropSection {
    /// The maximum of arguments of one call that the peer reads; the others stay in the payload
    /// stream.
    pub read_chunks_max: Bounded<1, CHUNKS_MAX>,
    /// Whether the peer reads only the argument at the end of a call.
    pub read_chunk_last: bool,
    /// The maximum of results of one call that the peer writes.
    pub write_chunks_max: Bounded<1, CHUNKS_MAX>,
    /// Whether up to three bytes behind a result in its Write chunk are taken for padding.
    pub write_chunk_padding: bool,
    /// Whether the targets of links are requested in the payload stream.
    pub links_in_line: bool,
    /// The maximum of segments of an offered chunk.
    pub segments_max: Bounded<1, SEGMENTS_MAX>,
    /// When a server uses an offered Reply chunk.
    pub reply_chunk: ReplyChunkUse,
    /// Whether a call that is read as a whole may also have a Read chunk for an argument.
    pub long_call_with_chunks: bool,
    /// Whether a Write chunk and a Reply chunk may be offered together.
    pub write_with_reply: bool,
    /// Whether this side permits remote invalidation by the reply's Send, and uses it if the peer
    /// permits it.
    pub remote_invalidation: bool,
}

/// When a server uses an offered Reply chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyChunkUse {
    /// For replies that are too long for a Send.
    WhenNeeded,
    /// For every reply.
    Always,
}

/// The software fabric: `[fabric]`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FabricSection {
    /// The delay from sender to receiver; at most 1 s.
    pub delay: Duration,
    /// The maximum of messages in transit on one queue pair, per direction; a power of two.
    pub ring_slots: Bounded<16, 65_536>,
}

/// Shared memory: `[shm]`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShmSection {
    /// The maximum of messages in transit on one connection, per direction; a power of two.
    pub ring_slots: Bounded<16, 16_384>,
    /// The bytes of messages in transit on one connection, per direction, beyond those in slots:
    /// also the longest message, RDMA Read or RDMA Write. A power of two.
    pub staging: Bounded<65_536, 1_073_741_824>,
    /// Whether peers that do so, too, map this side's pools, read-only.
    pub map_pools: bool,
}

/// iWARP in user space, over TCP: `[tcp]`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpSection {
    /// Whether this side asks for checksums (CRC32c); they are checked if either side does.
    pub crc: bool,
    /// The longest message, RDMA Read or RDMA Write in bytes; a power of two.
    pub message_len: Bounded<65_536, 1_073_741_824>,
}

/// RDMA devices: `[verbs]`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerbsSection {
    /// The device name; `None` is the device with the address, or the first with an active port.
    pub device: Option<String>,
    /// An address of the device: selects the device, and is the source address of connections.
    pub address: Option<IpAddr>,
    /// The number of the port, which must be active, from 1.
    pub port: Option<Bounded<1, 254>>,
    /// The index of the port's GID whose address is used if `address` is not given.
    pub gid: Option<Bounded<0, 255>>,
    /// The longest inline send of a queue pair, in bytes; the device's own limit applies if it is
    /// lower.
    pub inline_len: Bounded<0, 1024>,
    /// The maximum of outstanding RDMA Reads of one connection, in each direction.
    pub reads: Bounded<1, 255>,
    /// How long a peer waits before it retries a Send without a Receive.
    pub rnr_timer: RnrTimer,
    /// How often an unacknowledged request is retried.
    pub retry_count: Bounded<0, 7>,
    /// The acknowledgement timeout: 4.096 us times two to the power of this.
    pub ack_timeout: Bounded<1, 31>,
    /// The traffic class of the packets, a byte of their IP header. `None` is the system's default.
    pub traffic_class: Option<Bounded<0, 255>>,
    /// The maximum of waiting connection requests of one listener.
    pub backlog: Bounded<1, 4096>,
    /// The timeout for resolving an address or a route; 1 ms to 1 min.
    pub resolve_timeout: Duration,
    /// The timeout for the answer to a connection request; 1 ms to 1 min.
    pub answer_timeout: Duration,
    /// The number of attempts to resolve the address and to connect.
    pub attempts: Bounded<1, 1000>,
    /// The pause after the first failed attempt, doubled after each further one. 1 ms to 1 min.
    pub pause: Duration,
    /// The longest pause between two attempts; `pause` to 1 min.
    pub pause_max: Duration,
}

/// A receiver-not-ready timer: one of 32 values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RnrTimer(u8);

impl RnrTimer {
    /// All values, shortest first.
    pub fn all() -> impl Iterator<Item = RnrTimer> {
        (1..32).chain([0]).map(RnrTimer)
    }

    /// The timer of exactly this duration, if there is one.
    pub fn exactly(span: Duration) -> Option<RnrTimer> {
        RnrTimer::all().find(|timer| timer.span() == span)
    }

    /// Its code in the attributes of a queue pair (`min_rnr_timer`).
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Its duration.
    pub const fn span(self) -> Duration {
        // InfiniBand, table 45: 10 us, then steps of a half and of a third. 0 is the longest.
        let ten_us = match self.0 {
            0 => 65_536,
            1 => 1,
            code if code % 2 == 0 => 1 << (code / 2),
            code => 3 << (code / 2 - 1),
        };
        Duration::from_micros(10 * ten_us)
    }
}

/// Memory for the program: `[app]`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AppSection {
    /// Registered buffers for bulk data.
    pub bulk: BulkSection,
}

/// What is measured: `[stats]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StatsSection {
    /// One call in so many is timed; 0: none.
    pub sample: Bounded<0, 1024>,
}

/// Registered buffers for bulk data: `app.bulk`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BulkSection {
    /// Buffers per shard; 0 is none.
    pub count: Bounded<0, 65_536>,
    /// The length of each in bytes.
    pub len: Bounded<4096, 1_073_741_824>,
}

/// The longest receive buffer with all its segments: 4 MiB.
pub const BUFFER_LEN_MAX: u32 = 4 << 20;
/// The largest alignment of a placement segment: a huge page.
pub const ALIGN_MAX: u32 = 2 << 20;
/// The maximum of items of one message (`wire.md` E40).
pub const CHUNKS_MAX: u32 = 64;
/// The maximum of segments of one chunk (`wire.md` E40).
pub const SEGMENTS_MAX: u32 = 256;
/// The maximum of Receives of one shard.
pub const RECEIVES_MAX: u32 = 65_536;
