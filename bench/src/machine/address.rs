//! The interface of an RDMA device's port, and its IPv4 address, as files of the system say.
//!
//! A port of RoCE has its addresses among its GIDs, mapped into IPv6. The one GID of an iWARP port is
//! the hardware address of its interface, whose addresses are looked for among those of the host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::files::Files;

/// The folder of the devices.
pub const CLASS: &str = "sys/class/infiniband";

/// The first IPv4 address of a device.
pub fn of_device(files: &Files, device: &str) -> Option<IpAddr> {
    let device = format!("{CLASS}/{device}");
    let ports = files.names(&format!("{device}/ports"));
    ports.iter().find_map(|port| of_port(files, &device, &format!("{device}/ports/{port}")))
}

/// The first IPv4 address of a port. `device` and `port` are their folders.
pub fn of_port(files: &Files, device: &str, port: &str) -> Option<IpAddr> {
    let mapped = gids(files, port).find_map(|(_, gid)| mapped(&gid));
    mapped.or_else(|| of_interface(files, &interface(files, device, port)?))
}

/// The interface of a port.
pub fn interface(files: &Files, device: &str, port: &str) -> Option<String> {
    files
        .text(&format!("{port}/gid_attrs/ndevs/0"))
        .or_else(|| files.text(&format!("{device}/parent")))
        .or_else(|| with_hardware_address_of(files, port))
        .or_else(|| files.names(&format!("{device}/device/net")).into_iter().next())
}

/// The interface whose hardware address is the first GID of a port.
fn with_hardware_address_of(files: &Files, port: &str) -> Option<String> {
    let gid = gids(files, port).next()?.1.parse::<Ipv6Addr>().ok()?.octets();
    let hardware: Vec<_> = gid[..6].iter().map(|byte| format!("{byte:02x}")).collect();
    let hardware = hardware.join(":");
    let has_it = |name: &String| {
        files.text(&format!("sys/class/net/{name}/address")).as_ref() == Some(&hardware)
    };
    files.names("sys/class/net").into_iter().find(has_it)
}

/// The GIDs of a port, with their indices.
pub fn gids<'a>(files: &'a Files, port: &'a str) -> impl Iterator<Item = (String, String)> + 'a {
    files.names(&format!("{port}/gids")).into_iter().filter_map(move |index| {
        let gid = files.text(&format!("{port}/gids/{index}"))?;
        Some((index, gid))
    })
}

/// The IPv4 address that a GID stands for.
pub fn mapped(gid: &str) -> Option<IpAddr> {
    gid.parse::<Ipv6Addr>().ok()?.to_ipv4_mapped().map(IpAddr::from)
}

/// The first address of this host in a network that an interface leads to, and no other interface.
fn of_interface(files: &Files, interface: &str) -> Option<IpAddr> {
    let routes = files.text("proc/net/route")?;
    let networks: Vec<(&str, u32, u32)> = routes.lines().filter_map(network).collect();
    let own = own_addresses(&files.text("proc/net/fib_trie")?);
    let is_there = |at: &Ipv4Addr| {
        let mut to = networks.iter().filter(|(_, network, mask)| u32::from(*at) & mask == *network);
        to.clone().count() > 0 && to.all(|(name, ..)| *name == interface)
    };
    own.into_iter().find(is_there).map(IpAddr::from)
}

/// The interface, the network and its mask in a line of the kernel's table of routes, if the network
/// is reached without a gateway.
fn network(line: &str) -> Option<(&str, u32, u32)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [name, network, gateway, .., mask, _, _, _] = fields[..] else { return None };
    let word = |hex: &str| u32::from_str_radix(hex, 16).ok().map(u32::from_be);
    let (network, mask) = (word(network)?, word(mask)?);
    (word(gateway)? == 0 && mask != 0).then_some((name, network, mask))
}

/// The addresses of this host, in the order of its tables.
fn own_addresses(tables: &str) -> Vec<Ipv4Addr> {
    let lines: Vec<&str> = tables.lines().map(str::trim).collect();
    let is_own = |pair: &&[&str]| pair[1] == "/32 host LOCAL";
    let address = |pair: &[&str]| pair[0].strip_prefix("|-- ")?.parse().ok();
    lines.windows(2).filter(is_own).filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Folder;

    const ROUTES: &str = "Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eth1	00000000	0101000A	0003	0	0	0	00000000	0	0	0
eth1	0001000A	00000000	0001	0	0	0	00FFFFFF	0	0	0
eth0	0000000A	00000000	0001	0	0	0	00FFFFFF	0	0	0
";
    const TABLES: &str = "Local:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 10.0.0.0/23 2 0 2
        |-- 10.0.0.0
           /24 link UNICAST
        |-- 10.0.0.1
           /32 host LOCAL
        |-- 10.0.1.2
           /32 host LOCAL
     |-- 127.0.0.1
        /32 host LOCAL
";

    #[test]
    fn a_gid_that_is_an_ipv4_address_is_seen_as_one() {
        let gid = "0000:0000:0000:0000:0000:ffff:0a00:0001";
        assert_eq!(mapped(gid), "10.0.0.1".parse().ok());
        assert_eq!(mapped("fe80:0000:0000:0000:1c4a:5cff:fe06:0001"), None);
        assert_eq!(mapped(""), None);
    }

    #[test]
    fn a_port_of_iwarp_has_the_address_of_the_interface_with_its_hardware_address() {
        let (root, port) = (Folder::new("siw"), "sys/class/infiniband/siw0/ports/1");
        root.write(&format!("{port}/gids/0"), "5254:0012:3456:0000:0000:0000:0000:0000");
        root.write("sys/class/net/eth0/address", "52:54:00:12:34:55");
        root.write("sys/class/net/eth1/address", "52:54:00:12:34:56");
        root.write("proc/net/route", ROUTES);
        root.write("proc/net/fib_trie", TABLES);
        let files = Files::new(root.path());
        assert_eq!(interface(&files, "sys/class/infiniband/siw0", port).as_deref(), Some("eth1"));
        assert_eq!(of_device(&files, "siw0"), "10.0.1.2".parse().ok());
        assert_eq!(of_device(&files, "siw1"), None);
        // Another interface leads there, too: whose the address is, is not known.
        root.write("proc/net/route", &ROUTES.replace("0000000A", "0001000A"));
        assert_eq!(of_device(&files, "siw0"), None);
        root.write("proc/net/route", "eth1\tnonsense\n\n1 2 3 4 5 6 7 8 9 10 11 12\n");
        assert_eq!(of_device(&files, "siw0"), None);
    }

    #[test]
    fn a_port_of_roce_has_the_address_among_its_gids() {
        let (root, port) = (Folder::new("roce"), "sys/class/infiniband/rxe0/ports/1");
        root.write(&format!("{port}/gids/0"), "fe80:0000:0000:0000:5054:00ff:fe12:3456");
        root.write(&format!("{port}/gids/1"), "0000:0000:0000:0000:0000:ffff:0a00:020f");
        let files = Files::new(root.path());
        assert_eq!(of_device(&files, "rxe0"), "10.0.2.15".parse().ok());
        assert_eq!(interface(&files, "sys/class/infiniband/rxe0", port), None);
    }
}
