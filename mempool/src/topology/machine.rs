//! What is known of a machine: its cores, nodes and network devices.

use std::path::PathBuf;

/// Cores, NUMA nodes and network devices of a machine, each sorted by its number or name.
///
/// A *core* is a hardware thread, as the kernel numbers them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// The source of the information.
    pub source: TopologySource,
    /// The cores that are online.
    pub cores: Vec<CpuCore>,
    /// The nodes that are online. At least one: a machine without NUMA has node 0.
    pub nodes: Vec<NumaNode>,
    /// RDMA devices, and network interfaces with hardware.
    pub nics: Vec<Nic>,
}

impl Topology {
    /// A machine with these cores, all on node 0.
    pub fn flat(mut ids: Vec<u32>) -> Topology {
        ids.sort_unstable();
        ids.dedup();
        let core = |&id: &u32| CpuCore { id, node: 0, isolated: false, siblings: vec![id] };
        Topology {
            source: TopologySource::Flat,
            cores: ids.iter().map(core).collect(),
            nodes: vec![NumaNode { id: 0, cores: ids, bytes: None }],
            nics: Vec::new(),
        }
    }

    /// A core by its number, if it is online.
    pub fn core(&self, id: u32) -> Option<&CpuCore> {
        let at = self.cores.binary_search_by_key(&id, |core| core.id).ok()?;
        self.cores.get(at)
    }

    /// A network device by the name of the RDMA device (`mlx5_0`) or of the interface (`eth0`).
    pub fn nic(&self, name: &str) -> Option<&Nic> {
        self.nics.iter().find(|nic| nic.name == name)
    }

    /// The cores of the boot option `isolcpus`.
    pub fn isolated(&self) -> impl Iterator<Item = &CpuCore> {
        self.cores.iter().filter(|core| core.isolated)
    }

    /// All cores, the best for a shard first: those near the device, then isolated ones, then the
    /// first hardware thread of each physical core, then by number. Without a device every core is
    /// near.
    pub fn cores_by_preference(&self, nic: Option<&Nic>) -> Vec<u32> {
        let far = |core: &CpuCore| nic.is_some_and(|nic| !nic.cores.contains(&core.id));
        let mut cores: Vec<&CpuCore> = self.cores.iter().collect();
        cores.sort_by_key(|core| {
            let sibling = core.siblings.iter().position(|id| *id == core.id);
            (far(core), !core.isolated, sibling, core.id)
        });
        cores.iter().map(|core| core.id).collect()
    }

    /// Marks the cores that `isolcpus` names.
    pub(super) fn mark_isolated(&mut self, isolated: &[u32]) {
        for core in &mut self.cores {
            core.isolated = isolated.contains(&core.id);
        }
    }
}

/// The source of a topology.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopologySource {
    /// The files of the kernel.
    Sysfs,
    /// The library hwloc.
    Hwloc,
    /// Only the numbers of the cores are known.
    Flat,
}

/// A core: one hardware thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuCore {
    /// Its number in the kernel.
    pub id: u32,
    /// The node whose memory is nearest.
    pub node: u32,
    /// Whether the boot option `isolcpus` keeps it free of other work.
    pub isolated: bool,
    /// The hardware threads that share its execution units, itself included, sorted.
    pub siblings: Vec<u32>,
}

/// A NUMA node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumaNode {
    /// Its number in the kernel.
    pub id: u32,
    /// Its cores, sorted; none if it has memory only.
    pub cores: Vec<u32>,
    /// Bytes of its memory, if known.
    pub bytes: Option<u64>,
}

/// A network device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nic {
    /// `mlx5_0`, or `eth0`.
    pub name: String,
    /// Its kind.
    pub kind: NicKind,
    /// The node that it is attached to, if it is nearest to one.
    pub node: Option<u32>,
    /// The cores nearest to it, sorted.
    pub cores: Vec<u32>,
}

/// The kind of a network device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NicKind {
    /// An RDMA device.
    Rdma,
    /// A network interface.
    Interface,
}

/// Why a topology cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// A file that every kernel has cannot be read.
    #[error("reading {path} failed: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the call.
        source: std::io::Error,
    },
    /// The content of a file is not in the kernel's format.
    #[error("{path} contains {text:?}; expected {expected}", path = path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Its text.
        text: String,
        /// What was expected.
        expected: &'static str,
    },
    /// The library hwloc reports an error.
    #[cfg(feature = "hwloc")]
    #[error("hwloc: {0}")]
    Hwloc(String),
}
