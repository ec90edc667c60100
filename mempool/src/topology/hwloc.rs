//! Reads a topology from the library hwloc.

use hwlocality::Topology as Hwloc;
use hwlocality::object::TopologyObject;
use hwlocality::object::attributes::ObjectAttributes;
use hwlocality::object::types::{OSDeviceType, ObjectType};
use hwlocality::topology::builder::{TopologyBuilder, TypeFilter};

use super::machine::{CpuCore, Nic, NicKind, NumaNode, Topology, TopologyError, TopologySource};

pub(super) fn this_system() -> Result<Topology, TopologyError> {
    build(Hwloc::builder())
}

pub(super) fn from_xml(xml: &str) -> Result<Topology, TopologyError> {
    build(Hwloc::builder().from_xml(xml).map_err(failed)?)
}

fn build(builder: TopologyBuilder) -> Result<Topology, TopologyError> {
    let builder = builder.with_io_type_filter(TypeFilter::KeepImportant).map_err(failed)?;
    let hwloc = builder.build().map_err(failed)?;
    let mut topology = Topology {
        source: TopologySource::Hwloc,
        cores: hwloc.objects_with_type(ObjectType::PU).filter_map(core).collect(),
        nodes: hwloc.objects_with_type(ObjectType::NUMANode).filter_map(node).collect(),
        nics: hwloc.objects_with_type(ObjectType::OSDevice).filter_map(nic).collect(),
    };
    topology.cores.sort_by_key(|core| core.id);
    topology.nodes.sort_by_key(|node| node.id);
    topology.nics.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    Ok(topology)
}

fn core(unit: &TopologyObject) -> Option<CpuCore> {
    let id = number(unit.os_index()?);
    let siblings = unit
        .ancestors()
        .find(|ancestor| ancestor.object_type() == ObjectType::Core)
        .map_or_else(|| vec![id], cores_of);
    let node = unit.nodeset()?.first_set().map_or(0, |node| number(node.into()));
    Some(CpuCore { id, node, isolated: false, siblings })
}

fn node(node: &TopologyObject) -> Option<NumaNode> {
    let bytes = match node.attributes() {
        Some(ObjectAttributes::NUMANode(attributes)) => attributes.local_memory(),
        _ => None,
    };
    let id = number(node.os_index()?);
    Some(NumaNode { id, cores: cores_of(node), bytes: bytes.map(|bytes| bytes.get()) })
}

fn nic(device: &TopologyObject) -> Option<Nic> {
    let Some(ObjectAttributes::OSDevice(attributes)) = device.attributes() else { return None };
    let kind = match attributes.device_type() {
        OSDeviceType::OpenFabrics => NicKind::Rdma,
        OSDeviceType::Network => NicKind::Interface,
        _ => return None,
    };
    let near = device.first_non_io_ancestor()?;
    let nodes = near.nodeset()?;
    let mut nodes = nodes.iter_set();
    let node = nodes.next().map(|node| number(node.into()));
    // A device below an object with several nodes is equally near to all of them.
    let node = node.filter(|_| nodes.next().is_none());
    let name = device.name()?.to_string_lossy().into_owned();
    Some(Nic { name, kind, node, cores: cores_of(near) })
}

fn cores_of(object: &TopologyObject) -> Vec<u32> {
    let set = object.cpuset();
    set.iter().flat_map(|set| set.iter_set()).map(|core| number(core.into())).collect()
}

/// hwloc itself numbers with `unsigned int`.
fn number(index: usize) -> u32 {
    index as u32
}

fn failed(error: impl std::fmt::Display) -> TopologyError {
    TopologyError::Hwloc(error.to_string())
}
