//! The path from a device to its peer and to the cores: port, MTU, bus, NUMA node.

use rpcrdma_mempool::pin::CoreList;

use super::device::{FoundDevice, Port};
use super::finding::{Finding, Fix, Severity, subjects};
use super::host::Host;
use super::wanted::Wanted;

pub fn findings(host: &Host<'_>, wanted: &Wanted, device: &FoundDevice) -> Vec<Finding> {
    let bad = if wanted.asks_for_device() { Severity::Error } else { Severity::Warning };
    let mut found = vec![link(host, bad, device)];
    if let Some(port) = device.active() {
        found.push(address(host, bad, device, port));
        found.extend(mtu(host, device, port));
        found.extend(losses(host, device, port));
    }
    if !device.is_soft {
        found.extend(near(host, wanted, device));
        found.extend(bus(host, device));
        found.extend(translation(host, device));
        found.extend(saving(host));
    }
    found
}

fn link(host: &Host<'_>, bad: Severity, device: &FoundDevice) -> Finding {
    let name = &device.name;
    if let Some(port) = device.active() {
        return LINK.ok(format!("{name}/{}: {}, {}", port.num, port.state, port.rate));
    }
    let Some(port) = device.ports.first() else {
        return LINK.at(bad, format!("{name} has no port"), Fix::new("dmesg | tail"));
    };
    let seen = format!("{name}/{}: {}", port.num, port.state);
    let interface = port.interface.as_deref().unwrap_or("ib0");
    let fix = host.root_fix(&format!("ip link set {interface} up"));
    LINK.at(bad, seen, fix.note("else the cable, or the port of the switch"))
}

fn address(host: &Host<'_>, bad: Severity, device: &FoundDevice, port: &Port) -> Finding {
    let interface = port.interface.as_deref().unwrap_or("ib0");
    let place = format!("{}/{}", device.name, port.num);
    let Some(address) = port.address else {
        let fix = host.root_fix(&format!("ip address add 192.168.77.1/24 dev {interface}"));
        let seen = format!("{place}: no IPv4 address on {interface}");
        return ADDRESS.at(bad, seen, fix.note("any free address; the peer needs its own"));
    };
    let is_old = !port.roce.is_empty() && !port.roce.iter().any(|kind| kind.contains("v2"));
    if is_old {
        let fix = host.root_fix(&format!("cma_roce_mode -d {} -p {} -m 2", device.name, port.num));
        return ADDRESS.warning(format!("{place}: {address}, by RoCE version 1"), fix);
    }
    ADDRESS.ok(format!("{place}: {address}"))
}

/// The longest packet of the port, beside what the interface would let through.
fn mtu(host: &Host<'_>, device: &FoundDevice, port: &Port) -> Option<Finding> {
    let interface = port.interface.as_ref()?;
    let outer = host.number(&format!("sys/class/net/{interface}/mtu"))?;
    // 64 to 100 bytes of headers go with the data.
    let fitting = [4096, 2048, 1024, 512, 256].into_iter().find(|data| data + 64 <= outer)?;
    let listed = host.ask().devices().unwrap_or_default();
    let listed = listed.iter().find(|seen| seen.name == device.name);
    let active = listed.and_then(|seen| seen.ports.iter().find(|(num, _)| *num == port.num));
    let active = active.map_or(fitting, |(_, mtu)| u64::from(*mtu));
    let seen = format!(
        "{}/{}: packets of {active} bytes, {interface} lets {outer} through",
        device.name, port.num
    );
    if active < fitting {
        let command = format!("ip link set {interface} down && ip link set {interface} up");
        return Some(
            MTU.warning(seen, host.root_fix(&command).note("the device looks again then")),
        );
    }
    if active >= 4096 {
        return Some(MTU.ok(seen));
    }
    let fix = host.root_fix(&format!("ip link set {interface} mtu 9000"));
    Some(MTU.hint(seen, fix.note("at both ends and on every switch between")))
}

/// Counters of the port that do not move on a network that is well.
fn losses(host: &Host<'_>, device: &FoundDevice, port: &Port) -> Option<Finding> {
    let folder = format!("sys/class/infiniband/{}/ports/{}/hw_counters", device.name, port.num);
    let counts: Vec<(&str, u64)> = COUNTERS
        .iter()
        .filter_map(|name| Some((*name, host.number(&format!("{folder}/{name}"))?)))
        .collect();
    if counts.is_empty() {
        return None;
    }
    let moved: Vec<String> = counts
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    if moved.is_empty() {
        return Some(LOSSES.ok("no counter of lost packets or missing Receives has moved"));
    }
    let fix = Fix::new(format!("rdma statistic show link {}/{}", device.name, port.num));
    let note =
        "before and after a run: if they move, look at flow control, cables, receive.buffers";
    Some(LOSSES.hint(format!("since the start: {}", moved.join(", ")), fix.note(note)))
}

fn near(host: &Host<'_>, wanted: &Wanted, device: &FoundDevice) -> Option<Finding> {
    let nic = host.topology.nic(&device.name)?;
    let node = nic.node?;
    let cores = wanted.cores(host);
    let far: Vec<u32> = cores.iter().copied().filter(|core| !nic.cores.contains(core)).collect();
    if far.is_empty() {
        let seen = format!("{} and cores {} are on node {node}", device.name, CoreList(cores));
        return Some(NEAR.ok(seen));
    }
    let distance = far.iter().filter_map(|core| {
        let of_core = host.topology.core(*core)?.node;
        let row = host.text(&format!("sys/devices/system/node/node{node}/distance"))?;
        let at = host.topology.nodes.iter().position(|node| node.id == of_core)?;
        row.split_whitespace().nth(at)?.parse::<u32>().ok()
    });
    let distance = distance.max().map_or_else(String::new, |most| format!(", distance {most}"));
    let seen = format!(
        "{} is on node {node}, cores {} are not{distance} (the same node is 10)",
        device.name,
        CoreList(far)
    );
    let allowed = host.ask().allowed_cores();
    let best = host.topology.cores_by_preference(Some(nic));
    let best: Vec<u32> = best.into_iter().filter(|core| allowed.contains(core)).take(2).collect();
    let fix = match best[..] {
        [a, b] => Fix::new(format!("rpcrdma-bench lat --provider verbs --cores {a},{b}")),
        _ => Fix::new("lscpu --extended=CPU,NODE"),
    };
    Some(NEAR.warning(seen, fix.note("and engine.cores of a deployment")))
}

fn bus(host: &Host<'_>, device: &FoundDevice) -> Option<Finding> {
    let folder = format!("sys/class/infiniband/{}/device", device.name);
    let text = |file: &str| host.text(&format!("{folder}/{file}"));
    let speed = |text: String| text.split(' ').next().and_then(|word| word.parse::<f64>().ok());
    let is = (
        speed(text("current_link_speed")?)?,
        host.number(&format!("{folder}/current_link_width"))?,
    );
    let could =
        (speed(text("max_link_speed")?)?, host.number(&format!("{folder}/max_link_width"))?);
    let seen = format!("{}: {} GT/s x{} of {} GT/s x{}", device.name, is.0, is.1, could.0, could.1);
    if is.0 >= could.0 && is.1 >= could.1 {
        return Some(BUS.ok(seen));
    }
    let fix = host.root_fix("lspci -vv | grep -E \"Mellanox|Broadcom|LnkCap:|LnkSta:\"");
    Some(BUS.hint(seen, fix.note("another slot, or its settings in the firmware")))
}

/// Whether an IOMMU translates every address of the device.
fn translation(host: &Host<'_>, device: &FoundDevice) -> Option<Finding> {
    let kind =
        host.text(&format!("sys/class/infiniband/{}/device/iommu_group/type", device.name))?;
    if kind == "identity" {
        return Some(IOMMU.ok("addresses pass through"));
    }
    let seen = format!("the IOMMU translates every access of {} ({kind})", device.name);
    Some(IOMMU.hint(seen, host.boot_fix("iommu=pt")))
}

fn saving(host: &Host<'_>) -> Option<Finding> {
    let policy = host.text("sys/module/pcie_aspm/parameters/policy")?;
    if !policy.contains("[powersave]") && !policy.contains("[powersupersave]") {
        return Some(SAVING.ok(policy));
    }
    let command = "echo performance > /sys/module/pcie_aspm/parameters/policy";
    Some(SAVING.hint(policy, host.kernel_fix(command)))
}

/// Lost packets three times, then a side that posts too few Receives.
const COUNTERS: &[&str] =
    &["out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err"];

subjects! {
    LINK = "link": "Connections need an active port.";
    ADDRESS = "address":
        "Connections are made by IP addresses; RoCE version 1 does not cross routers.";
    MTU = "mtu":
        "Each packet costs headers and work in both devices; the maximum is 4096 bytes.";
    LOSSES = "losses":
        "A lost packet costs a timeout of up to half a second, a missing Receive the RNR timer.";
    NEAR = "device-node":
        "Doorbells and completions across nodes take some hundred nanoseconds longer each way.";
    BUS = "bus": "A bus narrower or slower than the card limits throughput.";
    IOMMU = "iommu":
        "A missed translation costs a page-table walk, for doorbells and data.";
    SAVING = "bus-power": "A sleeping link takes microseconds to wake up.";
}
