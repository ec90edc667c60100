//! The topology of the machine: cores, NUMA nodes, and the cores near a network device.

use std::path::Path;

#[cfg(feature = "hwloc")]
mod hwloc;
mod machine;
mod sysfs;

pub use machine::{CpuCore, Nic, NicKind, NumaNode, Topology, TopologyError, TopologySource};

impl Topology {
    /// Reads this machine's sysfs. If it is not mounted: the cores that this thread may run on, all
    /// on node 0, as [`TopologySource::Flat`].
    pub fn detect() -> Topology {
        Topology::from_sysfs(Path::new("/sys")).unwrap_or_else(|_| {
            let allowed = core_affinity::get_core_ids().unwrap_or_default();
            Topology::flat(allowed.iter().map(|core| core.id as u32).collect())
        })
    }

    /// Reads a sysfs tree whose `root` is usually `/sys`.
    pub fn from_sysfs(root: &Path) -> Result<Topology, TopologyError> {
        sysfs::read(root)
    }

    /// Reads this machine's topology from libhwloc, and the isolated cores from sysfs.
    #[cfg(feature = "hwloc")]
    pub fn detect_hwloc() -> Result<Topology, TopologyError> {
        let mut topology = hwloc::this_system()?;
        topology.mark_isolated(&sysfs::isolated(Path::new("/sys"))?);
        Ok(topology)
    }

    /// Reads the XML that `lstopo --of xml` writes, which has no isolated cores.
    #[cfg(feature = "hwloc")]
    pub fn from_hwloc_xml(xml: &str) -> Result<Topology, TopologyError> {
        hwloc::from_xml(xml)
    }
}
