//! The sections of a checked configuration. Values exist only inside a [`Config`](crate::Config).

use std::net::IpAddr;
use std::time::Duration;

use crate::bounded::Bounded;

/// Threads and the device they poll: `[engine]`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Engine {
    /// The device.
    pub provider: ProviderKind,
    /// Where the shards run.
    pub cores: Cores,
    /// How many shards, one thread each.
    pub shards: Bounded<1, 1024>,
    /// Whether a shard's memory comes from its core's node.
    pub numa_bind: bool,
    /// What a shard does when there is nothing to do.
    pub idle: Idle,
}

/// Who carries the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderKind {
    /// The software fabric inside this process.
    Fabric,
    /// An RDMA device by libibverbs and librdmacm.
    Verbs,
}

/// Where shards run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cores {
    /// The engine chooses.
    Auto,
    /// The first shard on the first of these, and so on: rising, at least one per shard.
    List(Vec<usize>),
}

/// What a shard does when there is nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Idle {
    /// What comes after spinning.
    pub policy: IdlePolicy,
    /// How long to spin first; without meaning for [`IdlePolicy::Spin`]. At most 60 s.
    pub spin: Duration,
}

/// What an idle shard does after spinning. Never changes what the protocol does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdlePolicy {
    /// Spin on: the core belongs to the shard.
    Spin,
    /// Pause and yield, longer and longer.
    Backoff,
    /// Ask for a wake-up and sleep.
    Block,
}

/// How memory is obtained: `[memory]`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// The page size.
    pub pages: Pages,
    /// Whether smaller pages do where the system has none of these. Without, there is no start.
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
    /// Ordinary memory that the kernel is asked to back with huge pages, as far as it does.
    Transparent,
    /// Ordinary pages.
    FourKiB,
}

/// Whether memory is locked, so that it is never swapped out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// It is not.
    Never,
    /// As much of it as the system allows.
    Try,
    /// All of it: where the system does not allow that, there is no start.
    Always,
}

/// What is received into: `[receive]`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receive {
    /// Bytes of the leading segment, for headers and payload; a multiple of four.
    pub inline_len: Bounded<1024, BUFFER_LEN_MAX>,
    /// The segments that data may be placed into.
    pub placement: Placement,
    /// Receives that a shard keeps posted.
    pub buffers: Bounded<1, RECEIVES_MAX>,
    /// How many of them are kept for replies to our own calls.
    pub replies: Bounded<0, RECEIVES_MAX>,
    /// Placement segments in reserve for loans, per shard.
    pub spares: Bounded<0, RECEIVES_MAX>,
}

/// The placement segments of one receive buffer: `receive.placement`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Placement {
    /// How many; 0 is none, and the rest has no meaning then. None if `features.placement` is off.
    pub count: Bounded<0, 63>,
    /// Bytes of each, a multiple of `align`.
    pub len: Bounded<4, BUFFER_LEN_MAX>,
    /// Alignment of each one's address in bytes, a power of two.
    pub align: Bounded<4, ALIGN_MAX>,
}

/// What is sent from: `[send]`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Send {
    /// Send slots per shard.
    pub slots: Bounded<2, 65_536>,
    /// Bytes of payload that a slot has room for, behind its header; a multiple of four.
    pub payload_len: Bounded<1024, BUFFER_LEN_MAX>,
    /// The longest message that is copied into its work request, in bytes; the device's own limit
    /// applies where it is lower.
    pub inline_max: Bounded<0, 1024>,
    /// One send in so many asks for a completion.
    pub signal_every: Bounded<1, 1024>,
    /// How long none may come until short messages that wait for others leave; zero holds none. At
    /// most 10 ms.
    pub hold: Duration,
    /// Bytes of zeros that padding is gathered from.
    pub zero_len: Bounded<4096, 1_048_576>,
}

/// Limits of and per connection: `[connections]`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Connections {
    /// Connections per shard.
    pub max: Bounded<1, 16_384>,
    /// Credits granted to one connection at most, in transmissions.
    pub credits: Bounded<1, 1024>,
    /// Credits asked for on a connection, in transmissions.
    pub credits_requested: Bounded<1, 1024>,
    /// Outstanding calls of our own, per shard; 0 for a server that never calls.
    pub calls_max: Bounded<0, RECEIVES_MAX>,
    /// Transmissions that a call of ours may have.
    pub call_transmissions_max: GroupLimit,
    /// Transmissions that a reply to us may have (`optxrq_rsbuf`).
    pub reply_transmissions_max: GroupLimit,
    /// Transmissions that a request to us may have (property REQRXLIM).
    pub request_transmissions_max: GroupLimit,
    /// Transmissions that a reply of ours may have (property RESPSXLIM).
    pub response_transmissions_max: GroupLimit,
    /// Bytes of the longest RPC message with everything that was placed.
    pub rpc_len_max: Bounded<1024, 1_073_741_824>,
    /// How long a message may stay incomplete; 1 ms to 1 h.
    pub group_timeout: Duration,
    /// How long a peer may owe an answer to a call before it loses its connection; 1 ms to 1 h, and
    /// `None` for ever.
    pub call_timeout: Option<Duration>,
    /// How long a peer may take nothing of what it is sent before it loses its connection; 1 ms to
    /// 1 h, and `None` for ever.
    pub send_timeout: Option<Duration>,
    /// How long a peer that has connected may ask for nothing before it loses its connection; 1 ms
    /// to 24 h, and `None` for ever.
    pub idle_timeout: Option<Duration>,
    /// How often a Send is tried again when the peer has no Receive; 7 is without end.
    pub rnr_retry: Bounded<0, 7>,
    /// How long to wait for a connection; 1 ms to 1 h.
    pub connect_timeout: Duration,
    /// How long a stop waits for what is outstanding; 1 ms to 1 h.
    pub stop_timeout: Duration,
}

/// A number of transmissions of one message (`wire.md` E40).
pub type GroupLimit = Bounded<1, 64>;

/// Parts of the protocol that may be switched off: `[features]`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Features {
    /// Transport properties: CONNPROP and its three companions (`wire.md` P14).
    pub properties: bool,
    /// Send-based placement, in both directions.
    pub placement: bool,
    /// Message continuation, in both directions.
    pub continuation: bool,
}

/// Which version of the protocol is spoken: `[protocol]`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Protocol {
    /// The version, or that the peer may decide.
    pub version: VersionChoice,
    /// How long the first message of version two may stay without an answer before the connection
    /// is given up and the next one begins with version one; 1 ms to 1 h.
    pub negotiation_timeout: Duration,
    /// How long it is remembered which version a peer speaks; zero is not at all, at most 24 h.
    pub version_memory: Duration,
}

/// The versions that this side takes part in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionChoice {
    /// A client begins with two and goes on with one where the peer has no other; a server takes
    /// what comes.
    Auto,
    /// Only version one.
    One,
    /// Only version two.
    Two,
}

/// Data that moves by RDMA Read and Write: `[explicit]`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explicit {
    /// Whether it does at all: without, a call offers no chunk and one that comes is refused.
    pub enabled: bool,
    /// How memory is shown to a peer.
    pub exposure: Exposure,
    /// Memory windows per shard; 0 where nothing is to be shown.
    pub windows: Bounded<0, 65_536>,
    /// Whether their number follows from other keys: then a device that has fewer of them does.
    pub derives_windows: bool,
    /// Calls whose data are being read at one time, per shard; 0 refuses them all.
    pub fetches: Bounded<0, 65_536>,
    /// Registered buffers that such data are read into, and that replies are written to where the
    /// program gave no memory of its own. They also hold messages that are too long for Sends.
    pub buffers: Bulk,
}

/// How memory is shown to a peer for the time of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposure {
    /// Windows where the device has them, a registration for each call where it has none.
    Auto,
    /// Windows, which belong to one connection; a device without them is refused.
    Windows,
    /// A registration for each call.
    Registration,
    /// One registration for all calls and all peers: each of them can read and write all of the
    /// memory at any time.
    StaticInsecure,
}

/// Habits of other implementations where they are narrower than the protocol: `[interop]`.
///
/// The defaults suit all that are known, except where a key names one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Interop {
    /// Arguments of one call that the peer may be asked to read; the others stay in the stream.
    pub read_chunks_max: Bounded<1, CHUNKS_MAX>,
    /// Whether only an argument that ends its call may be read by the peer.
    pub read_chunk_last: bool,
    /// Results of one call that the peer may be asked to write.
    pub write_chunks_max: Bounded<1, CHUNKS_MAX>,
    /// Segments that one of the chunks we offer may have.
    pub segments_max: Bounded<1, SEGMENTS_MAX>,
    /// When a server uses a Reply chunk that it was offered.
    pub reply_chunk: ReplyChunkUse,
    /// Whether a call that is read as a whole may have an argument read beside it.
    pub long_call_with_chunks: bool,
    /// Whether a Write chunk and a Reply chunk may be offered together.
    pub write_with_reply: bool,
    /// Whether we say that our memory may be invalidated by the Send that answers, and do so to a
    /// peer that says the same.
    pub remote_invalidation: bool,
}

/// When a server uses a Reply chunk that it was offered.
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
pub struct Fabric {
    /// One way from sender to receiver; at most 1 s.
    pub delay: Duration,
    /// Messages on their way on one queue pair, per direction; a power of two.
    pub ring_slots: Bounded<16, 65_536>,
}

/// RDMA devices: `[verbs]`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verbs {
    /// The device by its name; `None` is the one with the address, or the first with an active port.
    pub device: Option<String>,
    /// An address of the device: what it is found by, and where connections go out from.
    pub address: Option<IpAddr>,
    /// The port that must be active, from 1.
    pub port: Option<Bounded<1, 254>>,
    /// The entry of the port's table of GIDs whose address is taken where `address` is not given.
    pub gid: Option<Bounded<0, 255>>,
    /// The longest request that a queue pair is to copy, in bytes; the device's own limit applies
    /// where it is lower.
    pub inline_len: Bounded<0, 1024>,
    /// RDMA Reads of one connection that may be under way at one time, each way.
    pub reads: Bounded<1, 255>,
    /// What a peer is told to wait when it sends and no Receive is posted.
    pub rnr_timer: RnrTimer,
    /// How often a request is sent again that nobody acknowledges.
    pub retry_count: Bounded<0, 7>,
    /// How long an acknowledgement is waited for: 4.096 us times two to the power of this.
    pub ack_timeout: Bounded<1, 31>,
    /// The traffic class of the packets: the byte of their IP header. `None` is the system's.
    pub traffic_class: Option<Bounded<0, 255>>,
    /// Connection requests of one listener that may wait for an answer.
    pub backlog: Bounded<1, 4096>,
    /// How long an address or a route may take to be found; 1 ms to 1 min.
    pub resolve_timeout: Duration,
    /// How long a connection request may stay without an answer; 1 ms to 1 min.
    pub answer_timeout: Duration,
    /// How often it is tried to find the peer and to get its answer.
    pub attempts: Bounded<1, 1000>,
    /// The pause after the first attempt that failed; twice as long after each further one. 1 ms to
    /// 1 min.
    pub pause: Duration,
    /// The longest pause between two attempts; `pause` to 1 min.
    pub pause_max: Duration,
}

/// A time that a device can tell a peer to wait: there are 32 of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RnrTimer(u8);

impl RnrTimer {
    /// All of them, shortest first.
    pub fn all() -> impl Iterator<Item = RnrTimer> {
        (1..32).chain([0]).map(RnrTimer)
    }

    /// The one of exactly this time, if there is one.
    pub fn exactly(span: Duration) -> Option<RnrTimer> {
        RnrTimer::all().find(|timer| timer.span() == span)
    }

    /// As an attribute of a queue pair (`min_rnr_timer`).
    pub const fn code(self) -> u8 {
        self.0
    }

    /// How long it is.
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

/// Memory for the program that embeds the engine: `[app]`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct App {
    /// Registered buffers for bulk data.
    pub bulk: Bulk,
}

/// Registered buffers for bulk data: `app.bulk`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bulk {
    /// Buffers per shard; 0 is none.
    pub count: Bounded<0, 65_536>,
    /// Bytes of each.
    pub len: Bounded<4096, 1_073_741_824>,
}

/// The longest receive buffer, all segments together, and so the longest segment: 4 MiB.
pub const BUFFER_LEN_MAX: u32 = 4 << 20;
/// The largest alignment of a placement segment: a huge page.
pub const ALIGN_MAX: u32 = 2 << 20;
/// The most items of one message (`wire.md` E40).
pub const CHUNKS_MAX: u32 = 64;
/// The most segments of one chunk (`wire.md` E40).
pub const SEGMENTS_MAX: u32 = 256;
/// The most Receives of one shard.
pub const RECEIVES_MAX: u32 = 65_536;
