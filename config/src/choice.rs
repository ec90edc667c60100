//! The choices of a configuration: words, lists and timers, and how a file names them.

use std::ffi::CStr;
use std::time::Duration;

/// A choice that a file names by a word.
pub(crate) trait Words: Copy + 'static {
    /// The words, each with its meaning.
    const WORDS: &[(&str, Self)];
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
    /// All that a program can open.
    pub const OPENED: [ProviderKind; 4] = [Self::Fabric, Self::Shm, Self::Tcp, Self::Verbs];

    /// What it reaches, for the help of a program.
    pub const fn about(self) -> &'static str {
        match self {
            ProviderKind::Auto => "What the address is of",
            ProviderKind::Fabric => "The software fabric: reaches only this process; for tests",
            ProviderKind::Shm => "Shared memory: reaches the processes of this host",
            ProviderKind::Tcp => "iWARP over TCP: reaches every host",
            ProviderKind::Verbs => "An RDMA device: reaches the hosts of its network",
        }
    }

    /// Whether a program with this configuration may open a provider of that kind.
    pub fn admits(self, opened: ProviderKind) -> bool {
        self == ProviderKind::Auto || self == opened
    }

    /// The word of a configuration for it.
    pub const fn as_str(self) -> &'static str {
        match self.as_c_str().to_str() {
            Ok(word) => word,
            Err(_) => panic!("the words are ASCII"),
        }
    }

    /// The same for C.
    pub const fn as_c_str(self) -> &'static CStr {
        match self {
            ProviderKind::Auto => c"auto",
            ProviderKind::Fabric => c"fabric",
            ProviderKind::Shm => c"shm",
            ProviderKind::Tcp => c"tcp",
            ProviderKind::Verbs => c"verbs",
        }
    }
}

impl Words for ProviderKind {
    const WORDS: &[(&str, Self)] = &[
        (Self::Auto.as_str(), Self::Auto),
        (Self::Fabric.as_str(), Self::Fabric),
        (Self::Shm.as_str(), Self::Shm),
        (Self::Tcp.as_str(), Self::Tcp),
        (Self::Verbs.as_str(), Self::Verbs),
    ];
}

/// The cores of the shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cores {
    /// The engine chooses.
    Auto,
    /// The first shard on the first of these, and so on: in rising order, at least one per shard.
    List(Vec<usize>),
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

impl Words for IdlePolicy {
    const WORDS: &[(&str, Self)] =
        &[("spin", Self::Spin), ("backoff", Self::Backoff), ("block", Self::Block)];
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

/// A page size, and whether smaller pages are accepted.
impl Words for (Pages, bool) {
    const WORDS: &[(&str, Self)] = &[
        ("1G", (Pages::OneGiB, false)),
        ("try-1G", (Pages::OneGiB, true)),
        ("2M", (Pages::TwoMiB, false)),
        ("try-2M", (Pages::TwoMiB, true)),
        ("transparent", (Pages::Transparent, true)),
        ("4K", (Pages::FourKiB, true)),
    ];
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

impl Words for Lock {
    const WORDS: &[(&str, Self)] =
        &[("true", Self::Always), ("false", Self::Never), ("try", Self::Try)];
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

impl Words for VersionChoice {
    const WORDS: &[(&str, Self)] = &[("auto", Self::Auto), ("one", Self::One), ("two", Self::Two)];
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

impl Words for Exposure {
    const WORDS: &[(&str, Self)] = &[
        ("auto", Self::Auto),
        ("windows", Self::Windows),
        ("registration", Self::Registration),
        ("static-insecure", Self::StaticInsecure),
    ];
}

/// When a server uses an offered Reply chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyChunkUse {
    /// For replies that are too long for a Send.
    WhenNeeded,
    /// For every reply.
    Always,
}

impl Words for ReplyChunkUse {
    const WORDS: &[(&str, Self)] = &[("when-needed", Self::WhenNeeded), ("always", Self::Always)];
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
