//! The sections of a configuration, each option once: its name in a file, its default value, its
//! type and its check.
//!
//! What a file has is in the types whose names begin with `Raw`. Checked values exist only inside a
//! [`Config`](crate::Config).

mod derived;
mod devices;
mod limits;
mod peers;
mod table;

use std::time::Duration;

use crate::bounded::Bounded;
use crate::check::{self, MINUTE, as_it_is};
use crate::error::ConfigError;
use crate::text::RawText;
use table::section;

pub use crate::choice::{
    Cores, Exposure, IdlePolicy, Lock, Pages, ProviderKind, ReplyChunkUse, RnrTimer, VersionChoice,
};
pub(crate) use derived::control_reserve;
pub use devices::{
    FabricSection, RawFabric, RawShm, RawTcp, RawVerbs, ShmSection, TcpSection, VerbsSection,
};
pub use limits::{ALIGN_MAX, BUFFER_LEN_MAX, CHUNKS_MAX, RECEIVES_MAX, SEGMENTS_MAX};
pub use peers::{
    ConnectionsSection, FeaturesSection, GroupLimit, InteropSection, ProtocolSection,
    RawConnections, RawFeatures, RawInterop, RawProtocol,
};

section! {
    /// Threads and the device they poll: `[engine]`.
    "engine" EngineSection from RawEngine(raw) {
        /// The device: `auto`, `fabric`, `shm`, `tcp` or `verbs`.
        provider: RawText = "auto" => provider: ProviderKind, check::word;
        /// The cores of the shards: `auto` or a core list.
        cores: RawText = "auto" => cores: Cores, check::cores;
        /// The number of shards, one thread each.
        shards: i64 = 1 => shards: Bounded<1, 1024>, check::count;
        /// Whether a shard's memory is on the NUMA node of its core.
        numa_bind: bool = true => numa_bind: bool, as_it_is;
        /// What an idle shard does.
        idle: RawIdle = RawIdle::default() => idle: IdleSection, check_idle;
    }
}

fn check_idle(_: &'static str, given: &RawIdle) -> Result<IdleSection, ConfigError> {
    given.check()
}

section! {
    /// What an idle shard does.
    #[derive(Copy)]
    "engine.idle" IdleSection from RawIdle(raw) {
        /// What follows after spinning: `spin`, `backoff` or `block`.
        policy: RawText = "block" => policy: IdlePolicy, check::word;
        /// How long to spin first: a duration of at most 60 s; ignored for [`IdlePolicy::Spin`].
        spin: RawText = "1ms" => spin: Duration, check::duration::<0, MINUTE>;
    }
}

section! {
    /// How memory is allocated: `[memory]`.
    "memory" MemorySection from RawMemory(raw) {
        /// Whether to lock the memory: `true`, `false` or `try`.
        lock: RawText = false => lock: Lock, check::word;
        /// Whether to touch every page at the start.
        prefault: bool = true => prefault: bool, as_it_is;
    }
    file {
        /// `1G`, `2M`, `transparent` or `4K`; `try-1G` or `try-2M`, which accept smaller pages.
        pages: RawText = "transparent";
    }
    fields {
        /// The page size.
        pages: Pages = check::word("memory.pages", &raw.pages).map(|(pages, _)| pages);
        /// Whether smaller pages are accepted if the system has none of this size. Otherwise the
        /// start fails.
        smaller_pages: bool =
            check::word::<(Pages, bool)>("memory.pages", &raw.pages).map(|(_, smaller)| smaller);
    }
}

section! {
    /// Receive buffers: `[receive]`.
    "receive" ReceiveSection from RawReceive(
        raw,
        connections: &ConnectionsSection,
        features: &FeaturesSection
    ) {
        /// Bytes of the leading segment, for headers and payload; a multiple of four.
        inline: RawText = "4KiB" => inline_len: Bounded<1024, BUFFER_LEN_MAX>, check::word_length;
        /// Placement segments in reserve for loans, per shard.
        spares: i64 = 64 => spares: Bounded<0, RECEIVES_MAX>, check::count;
    }
    file {
        /// The placement segments.
        placement: RawPlacement = RawPlacement::default();
        /// `auto` or the number of Receives that a shard keeps posted.
        buffers: RawText = "auto";
        /// `auto` or the number of them that is reserved for replies to own calls.
        replies: RawText = "auto";
    }
    fields {
        /// The placement segments.
        placement: PlacementSection = placement(&raw.placement, features);
        /// Receives that a shard keeps posted.
        buffers: Bounded<1, RECEIVES_MAX> = buffers(raw, connections);
        /// The number of them that is reserved for replies to own calls.
        replies: Bounded<0, RECEIVES_MAX> = replies(raw, connections);
    }
}

fn placement(
    raw: &RawPlacement,
    features: &FeaturesSection,
) -> Result<PlacementSection, ConfigError> {
    let mut placement = raw.check()?;
    if !features.placement {
        // Peers place wherever there are segments.
        placement.count = check::count("receive.placement.count", &0)?;
    }
    Ok(placement)
}

fn replies(
    raw: &RawReceive,
    connections: &ConnectionsSection,
) -> Result<Bounded<0, RECEIVES_MAX>, ConfigError> {
    let given = check::count_or_auto("receive.replies", &raw.replies)?;
    given.map_or_else(|| derived::replies(connections), Ok)
}

fn buffers(
    raw: &RawReceive,
    connections: &ConnectionsSection,
) -> Result<Bounded<1, RECEIVES_MAX>, ConfigError> {
    let replies = replies(raw, connections)?.value();
    let given = check::count_or_auto("receive.buffers", &raw.buffers)?;
    given.map_or_else(|| derived::buffers(connections, replies), Ok)
}

section! {
    /// The placement segments of one receive buffer: `receive.placement`.
    #[derive(Copy)]
    "receive.placement" PlacementSection from RawPlacement(raw) {
        /// The number of segments per receive buffer; 0 if `features.placement` is off. If it is 0,
        /// the other values are ignored.
        count: i64 = 4 => count: Bounded<0, 63>, check::count;
        /// Bytes of each, a multiple of `align`.
        length: RawText = "16KiB" => len: Bounded<4, BUFFER_LEN_MAX>, check::word_length;
        /// Alignment of each one's address in bytes, a power of two.
        align: RawText = "4KiB" => align: Bounded<4, ALIGN_MAX>, check::power_of_two_length;
    }
}

section! {
    /// Send slots: `[send]`.
    "send" SendSection from RawSend(raw) {
        /// Send slots per shard.
        slots: i64 = 256 => slots: Bounded<2, 65_536>, check::count;
        /// Bytes of payload that a slot can contain after the header; a multiple of four.
        length: RawText = "8KiB" => payload_len: Bounded<1024, BUFFER_LEN_MAX>, check::word_length;
        /// The longest message that is copied into its work request, in bytes; the device's own
        /// limit applies where it is lower.
        inline_max: RawText = "192B" => inline_max: Bounded<0, 1024>, check::length;
        /// One send in this number requests a completion.
        signal_every: i64 = 64 => signal_every: Bounded<1, 1024>, check::count;
        /// Doorbell batching: a waiting short message is sent when no other has come for this time;
        /// zero disables waiting. At most 10 ms.
        hold: RawText = "0us" => hold: Duration, check::duration::<0, { 10 * check::MS }>;
        /// Bytes of zeros that padding is gathered from.
        zero: RawText = "64KiB" => zero_len: Bounded<4096, 1_048_576>, check::word_length;
    }
}

section! {
    /// Explicit RDMA, data moved by RDMA Read and Write: `[explicit]`.
    "explicit" ExplicitSection from RawExplicit(raw, connections: &ConnectionsSection) {
        /// Whether it is used. If not, calls offer no chunks, and received chunks are rejected.
        enabled: bool = true => enabled: bool, as_it_is;
        /// How memory is exposed to a peer: `auto`, `windows`, `registration` or `static-insecure`.
        exposure: RawText = "auto" => exposure: Exposure, check::word;
        /// The maximum of calls whose data are read at one time, per shard; 0 rejects all.
        fetches: i64 = 64 => fetches: Bounded<0, 65_536>, check::count;
    }
    file {
        /// `auto` or the number of memory windows per shard.
        windows: RawText = "auto";
        /// RDMA buffers: registered buffers for data that is read and written.
        buffers: RawBulk = RawBulk { count: 16, length: "512KiB".into() };
    }
    fields {
        /// Memory windows per shard; 0 if no memory is exposed.
        windows: Bounded<0, 65_536> = check::count_or_auto("explicit.windows", &raw.windows)
            .map(|given| given.unwrap_or_else(|| derived::windows(connections)));
        /// Whether their number is derived from other keys: then a device with fewer windows is
        /// accepted.
        derives_windows: bool = Ok::<_, ConfigError>(raw.windows.as_str() == "auto");
        /// RDMA buffers: data is read into them, and results are written to them if the program
        /// provides no result buffer. They also hold messages that are too long for a Send.
        buffers: BulkSection =
            raw.buffers.check("explicit.buffers.count", "explicit.buffers.length");
    }
}

section! {
    /// Memory for the program: `[app]`.
    "app" AppSection from RawApp(raw) {
        /// Registered buffers for bulk data.
        bulk: RawBulk = RawBulk::default() => bulk: BulkSection, check_bulk;
    }
}

fn check_bulk(_: &'static str, given: &RawBulk) -> Result<BulkSection, ConfigError> {
    given.check("app.bulk.count", "app.bulk.length")
}

section! {
    /// What is measured: `[stats]`.
    #[derive(Copy)]
    "stats" StatsSection from RawStats(raw) {
        /// One call in so many is timed; 0: none.
        sample: i64 = 64 => sample: Bounded<0, 1024>, check::count;
    }
}

/// Registered buffers for bulk data: `app.bulk`, `explicit.buffers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BulkSection {
    /// Buffers per shard; 0 is none.
    pub count: Bounded<0, 65_536>,
    /// The length of each in bytes.
    pub len: Bounded<4096, 1_073_741_824>,
}

/// `app.bulk` and `explicit.buffers`, before values are checked.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawBulk {
    /// The number of buffers per shard.
    pub count: i64,
    /// Of each: a length.
    pub length: RawText,
}

impl Default for RawBulk {
    fn default() -> Self {
        Self { count: 16, length: "1MiB".into() }
    }
}

impl RawBulk {
    fn check(&self, count: &'static str, length: &'static str) -> Result<BulkSection, ConfigError> {
        let count = check::count(count, &self.count)?;
        Ok(BulkSection { count, len: check::length(length, &self.length)? })
    }
}
