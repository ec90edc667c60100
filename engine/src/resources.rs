//! The actual resources of a shard, where the system and the device could choose.

use core::fmt;

use rpcrdma_config::section::Exposure;
use rpcrdma_mempool::{PageSize, Region};

/// The actual resources of a shard, to read and print after the start. A missing resource that
/// the configuration requires fails the start.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardResources {
    /// The device.
    pub device: String,
    /// The regions of its memory.
    pub memory: Vec<ShardMemory>,
    /// The way of exposing memory to peers. `None` if it exposes none, and rejects calls whose data
    /// the peer would have to read or write. Never [`Exposure::Auto`].
    pub exposure: Option<Exposure>,
    /// Memory windows, with [`Exposure::Windows`].
    pub windows: u32,
    /// Calls of peers whose data it reads at one time; 0 if it rejects such calls.
    pub fetches: u32,
    /// Whether the buffer of such data is registered, during the Read, for writes of every
    /// connection of the device: iWARP, with [`Exposure::Registration`].
    pub reads_expose: bool,
    /// The longest message that is copied into its work request, in bytes.
    pub inline_max: u32,
}

/// One region of a shard's memory, as the system has allocated it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardMemory {
    /// Its purpose.
    pub what: &'static str,
    /// Bytes.
    pub bytes: usize,
    /// The size of its pages.
    pub pages: PageSize,
    /// Bytes that are locked: all or none.
    pub locked: usize,
    /// The NUMA node that it is bound to, if any.
    pub numa_node: Option<u32>,
    /// Refused attempts, with the reasons.
    pub refused: Vec<String>,
}

impl ShardResources {
    /// Bytes of all regions.
    pub fn bytes(&self) -> usize {
        self.memory.iter().map(|memory| memory.bytes).sum()
    }

    /// Bytes that are locked.
    pub fn locked(&self) -> usize {
        self.memory.iter().map(|memory| memory.locked).sum()
    }

    /// Bytes in pages of this size.
    pub fn bytes_in(&self, pages: PageSize) -> usize {
        let of_them = self.memory.iter().filter(|memory| memory.pages == pages);
        of_them.map(|memory| memory.bytes).sum()
    }
}

impl ShardMemory {
    pub(crate) fn new(what: &'static str, region: &Region) -> ShardMemory {
        ShardMemory {
            what,
            bytes: region.len(),
            pages: region.page_size(),
            locked: if region.is_locked() { region.len() } else { 0 },
            numa_node: region.numa_node(),
            refused: region.notes().iter().map(ToString::to_string).collect(),
        }
    }
}

/// One line: `fabric: 62 MiB in transparent 2 MiB pages, 4 MiB of it locked; memory is exposed by
/// 256 windows`.
impl fmt::Display for ShardResources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.device)?;
        let sizes = PageSize::LADDER.into_iter().filter(|pages| self.bytes_in(*pages) > 0);
        for (at, pages) in sizes.enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            write!(f, "{comma}{} in {pages} pages", Mib(self.bytes_in(pages)))?;
        }
        match self.locked() {
            0 => f.write_str(", none of it locked")?,
            locked if locked == self.bytes() => f.write_str(", all of it locked")?,
            locked => write!(f, ", {} of it locked", Mib(locked))?,
        }
        let mut nodes: Vec<u32> = self.memory.iter().filter_map(|it| it.numa_node).collect();
        nodes.dedup();
        if let [node] = nodes[..] {
            write!(f, ", on NUMA node {node}")?;
        }
        match self.exposure {
            None => f.write_str("; no memory is exposed to peers"),
            Some(Exposure::Registration) => f.write_str(
                "; memory is exposed by registrations, whose keys every connection of the device can use",
            ),
            Some(Exposure::StaticInsecure) => f.write_str(
                "; ALL MEMORY IS EXPOSED FOR GOOD to every peer that is given a key (static-insecure)",
            ),
            Some(Exposure::Windows | Exposure::Auto) => {
                write!(f, "; memory is exposed by {} windows", self.windows)
            }
        }?;
        match (self.fetches, self.reads_expose) {
            (0, _) => f.write_str("; no data of calls are read from peers"),
            (_, true) => f.write_str(
                "; data of calls are read into memory that every connection of the device can write \
                 meanwhile (iWARP)",
            ),
            (_, false) => Ok(()),
        }
    }
}

/// Bytes, in readable form.
struct Mib(usize);

impl fmt::Display for Mib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes < 10 << 20 => write!(f, "{} KiB", bytes >> 10),
            bytes => write!(f, "{} MiB", bytes >> 20),
        }
    }
}
