//! Topologies read from recorded machines.

use std::path::{Path, PathBuf};

use rpcrdma_mempool::topology::{NicKind, Topology, TopologyError, TopologySource};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn two_nodes() -> Topology {
    Topology::from_sysfs(&fixture("two-node-sysfs")).expect("a recorded machine")
}

#[test]
fn a_two_node_machine_shows_its_cores_and_nodes() {
    let machine = two_nodes();
    assert_eq!(machine.source, TopologySource::Sysfs);
    assert_eq!(machine.cores.len(), 16);
    let core = machine.core(13).expect("online");
    assert_eq!((core.node, core.isolated, &*core.siblings), (1, true, &[5, 13][..]));
    let core = machine.core(3).expect("online");
    assert_eq!((core.node, core.isolated, &*core.siblings), (0, false, &[3, 11][..]));
    assert_eq!(machine.core(16), None);
    let isolated: Vec<u32> = machine.isolated().map(|core| core.id).collect();
    assert_eq!(isolated, [5, 6, 7, 13, 14, 15]);
    assert_eq!(machine.nodes.len(), 2);
    assert_eq!(machine.nodes[1].cores, [4, 5, 6, 7, 12, 13, 14, 15]);
    assert_eq!(machine.nodes[1].bytes, Some(99_051_136 * 1024));
}

#[test]
fn a_nic_shows_its_node_and_the_cores_near_it() {
    let machine = two_nodes();
    let names: Vec<&str> = machine.nics.iter().map(|nic| &*nic.name).collect();
    assert_eq!(names, ["mlx5_0", "eno1", "ens2f0np0"], "lo has no hardware");
    let nic = machine.nic("mlx5_0").expect("recorded");
    assert_eq!((nic.kind, nic.node), (NicKind::Rdma, Some(1)));
    assert_eq!(nic.cores, [4, 5, 6, 7, 12, 13, 14, 15]);
    assert_eq!(machine.nic("eno1").expect("recorded").kind, NicKind::Interface);
    assert_eq!(machine.nic("lo"), None);
}

#[test]
fn shards_go_near_the_nic_then_to_isolated_cores_then_to_whole_cores() {
    let machine = two_nodes();
    let near = machine.cores_by_preference(machine.nic("mlx5_0"));
    assert_eq!(near, [5, 6, 7, 13, 14, 15, 4, 12, 0, 1, 2, 3, 8, 9, 10, 11]);
    let other = machine.cores_by_preference(machine.nic("eno1"));
    assert_eq!(other[..8], [0, 1, 2, 3, 8, 9, 10, 11]);
    let anywhere = machine.cores_by_preference(None);
    assert_eq!(anywhere[..8], [5, 6, 7, 13, 14, 15, 0, 1]);
}

#[test]
fn in_a_virtual_machine_every_core_is_near() {
    let machine = Topology::from_sysfs(&fixture("one-node-vm-sysfs")).expect("a recorded machine");
    let nic = machine.nic("eth0").expect("recorded");
    assert_eq!((nic.node, &*nic.cores), (None, &[0, 1][..]));
    assert_eq!(machine.cores_by_preference(Some(nic)), [0, 1]);
    assert_eq!(machine.isolated().count(), 0);
    assert_eq!(machine.nodes[0].bytes, Some(5_728_476 * 1024));
}

#[test]
fn a_kernel_without_numa_is_one_node() {
    let machine = Topology::from_sysfs(&fixture("no-numa-sysfs")).expect("a recorded machine");
    let ids: Vec<u32> = machine.cores.iter().map(|core| core.id).collect();
    assert_eq!(ids, [0, 2, 3], "core 1 is offline");
    assert_eq!(machine.core(2).expect("online").siblings, [2]);
    assert_eq!((machine.nodes.len(), &*machine.nodes[0].cores), (1, &[0, 2, 3][..]));
}

#[test]
fn a_folder_that_is_no_sysfs_is_an_error_with_its_path() {
    let error =
        Topology::from_sysfs(&fixture("nothing-here")).expect_err("there is no such folder");
    assert!(matches!(error, TopologyError::Read { .. }));
    assert!(error.to_string().contains("nothing-here/devices/system/cpu/online"), "{error}");
}

#[test]
fn this_machine_has_the_core_that_the_test_runs_on() {
    let machine = Topology::detect();
    let allowed = rpcrdma_mempool::allowed_cores();
    assert!(allowed.iter().all(|id| machine.core(*id).is_some()), "{machine:?}");
    assert!(machine.cores.iter().all(|core| machine.nodes.iter().any(|node| node.id == core.node)));
}

#[cfg(feature = "hwloc")]
mod hwloc {
    use super::*;

    #[test]
    fn hwloc_and_sysfs_agree_on_the_same_machine() {
        let xml = std::fs::read_to_string(fixture("two-node.xml")).expect("recorded");
        let hwloc = Topology::from_hwloc_xml(&xml).expect("a recorded machine");
        let mut sysfs = two_nodes();
        // XML does not say which cores are isolated.
        sysfs.cores.iter_mut().for_each(|core| core.isolated = false);
        assert_eq!(hwloc.source, TopologySource::Hwloc);
        assert_eq!(hwloc.cores, sysfs.cores);
        assert_eq!(hwloc.nodes, sysfs.nodes);
        assert_eq!(hwloc.nics, sysfs.nics);
    }

    #[test]
    fn text_that_is_no_topology_is_an_error() {
        let error = Topology::from_hwloc_xml("<nothing/>").expect_err("no topology");
        assert!(matches!(error, TopologyError::Hwloc(_)), "{error}");
    }

    #[test]
    fn this_machine_is_the_same_to_both() {
        let (hwloc, sysfs) = (Topology::detect_hwloc().expect("this machine"), Topology::detect());
        // hwloc shows only the cores that this process may use.
        assert!(!hwloc.cores.is_empty());
        for core in &hwloc.cores {
            assert_eq!(sysfs.core(core.id).map(|known| known.node), Some(core.node));
        }
    }
}
