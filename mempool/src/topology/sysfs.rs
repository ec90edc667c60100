//! Reads a topology from sysfs.
//!
//! ```text
//!   devices/system/cpu/{online,isolated}
//!   devices/system/cpu/cpu3/topology/thread_siblings_list
//!   devices/system/node/online
//!   devices/system/node/node1/{cpulist,meminfo}
//!   class/{infiniband,net}/NAME/device/{numa_node,local_cpulist}
//! ```

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::machine::{CpuCore, Nic, NicKind, NumaNode, Topology, TopologyError, TopologySource};

pub(super) fn read(root: &Path) -> Result<Topology, TopologyError> {
    let online = required_list(&root.join("devices/system/cpu/online"))?;
    let mut nodes = nodes(root, &online)?;
    nodes.sort_by_key(|node| node.id);
    let mut topology = Topology {
        source: TopologySource::Sysfs,
        cores: online.iter().map(|&id| core(root, id, &nodes)).collect::<Result<_, _>>()?,
        nics: nics(root, &online)?,
        nodes,
    };
    topology.mark_isolated(&isolated(root)?);
    Ok(topology)
}

/// The isolated cores.
pub(super) fn isolated(root: &Path) -> Result<Vec<u32>, TopologyError> {
    Ok(list(&root.join("devices/system/cpu/isolated"))?.unwrap_or_default())
}

fn core(root: &Path, id: u32, nodes: &[NumaNode]) -> Result<CpuCore, TopologyError> {
    let path = root.join(format!("devices/system/cpu/cpu{id}/topology/thread_siblings_list"));
    let siblings = list(&path)?.unwrap_or_else(|| vec![id]);
    let node = nodes.iter().find(|node| node.cores.contains(&id)).map_or(0, |node| node.id);
    Ok(CpuCore { id, node, isolated: false, siblings })
}

/// A kernel without NUMA has no `node` folder: all cores are then on node 0.
fn nodes(root: &Path, online: &[u32]) -> Result<Vec<NumaNode>, TopologyError> {
    let folder = root.join("devices/system/node");
    let Some(ids) = list(&folder.join("online"))? else {
        return Ok(vec![NumaNode { id: 0, cores: online.to_vec(), bytes: None }]);
    };
    ids.iter()
        .map(|&id| {
            let folder = folder.join(format!("node{id}"));
            let mut cores = required_list(&folder.join("cpulist"))?;
            cores.retain(|core| online.contains(core));
            Ok(NumaNode { id, cores, bytes: memory(&folder.join("meminfo"))? })
        })
        .collect()
}

/// `Node 1 MemTotal:       98974720 kB`
fn memory(path: &Path) -> Result<Option<u64>, TopologyError> {
    let Some(text) = text(path)? else { return Ok(None) };
    let total = || {
        let line = text.lines().find_map(|line| line.split_once("MemTotal:"))?.1;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    let expected = "a line `MemTotal: N kB`";
    match total() {
        Some(bytes) => Ok(Some(bytes)),
        None => Err(TopologyError::Parse { path: path.to_owned(), text, expected }),
    }
}

fn nics(root: &Path, online: &[u32]) -> Result<Vec<Nic>, TopologyError> {
    let mut nics = Vec::new();
    for (class, kind) in [("infiniband", NicKind::Rdma), ("net", NicKind::Interface)] {
        let folder = root.join("class").join(class);
        let names = match fs::read_dir(&folder) {
            Ok(names) => names,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(source) => return Err(TopologyError::Read { path: folder, source }),
        };
        for name in names {
            let name =
                name.map_err(|source| TopologyError::Read { path: folder.clone(), source })?;
            // Software interfaces have no device, and are near to every core.
            let device = name.path().join("device");
            if device.is_dir() {
                let name = name.file_name().to_string_lossy().into_owned();
                nics.push(nic(&device, name, kind, online)?);
            }
        }
    }
    nics.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    Ok(nics)
}

fn nic(device: &Path, name: String, kind: NicKind, online: &[u32]) -> Result<Nic, TopologyError> {
    let path = device.join("numa_node");
    // The kernel writes -1 for a device that is equally near to several nodes.
    let node = match text(&path)? {
        None => None,
        Some(text) => match text.trim().parse::<i32>() {
            Ok(node) => u32::try_from(node).ok(),
            Err(_) => {
                return Err(TopologyError::Parse { path, text, expected: "a node or -1" });
            }
        },
    };
    // Devices that are not on a PCI bus have no such file.
    let mut cores = list(&device.join("local_cpulist"))?.unwrap_or_else(|| online.to_vec());
    cores.retain(|core| online.contains(core));
    Ok(Nic { name, kind, node, cores })
}

/// A list as the kernel writes it: `0-3,8`. `None` if there is no such file.
fn list(path: &Path) -> Result<Option<Vec<u32>>, TopologyError> {
    let Some(text) = text(path)? else { return Ok(None) };
    match parse_list(&text) {
        Some(ids) => Ok(Some(ids)),
        None => {
            let expected = "a list like `0-3,8`";
            Err(TopologyError::Parse { path: path.to_owned(), text, expected })
        }
    }
}

fn required_list(path: &Path) -> Result<Vec<u32>, TopologyError> {
    list(path)?.ok_or_else(|| TopologyError::Read {
        path: path.to_owned(),
        source: ErrorKind::NotFound.into(),
    })
}

fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut ids = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u32 = first.trim().parse().ok()?;
        let last: u32 = last.trim().parse().ok()?;
        if first > last || last >= IDS_MAX {
            return None;
        }
        ids.extend(first..=last);
    }
    ids.sort_unstable();
    ids.dedup();
    Some(ids)
}

fn text(path: &Path) -> Result<Option<String>, TopologyError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TopologyError::Read { path: path.to_owned(), source }),
    }
}

/// Far above every kernel's limit: bounds the memory for a list.
const IDS_MAX: u32 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::parse_list;

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_list("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(parse_list("\n"), Some(vec![]));
        assert_eq!(parse_list("5"), Some(vec![5]));
    }

    #[test]
    fn text_that_is_no_list_is_refused() {
        for text in ["3-1", "a", "1-", "-1", "0-4294967295", "65536"] {
            assert_eq!(parse_list(text), None, "{text}");
        }
    }
}
