//! RDMA devices: presence, and permission to use them.

use std::net::IpAddr;

use super::finding::{Finding, Fix, Severity, subjects};
use super::host::Host;
use super::wanted::Wanted;
use crate::machine::address::{self, CLASS};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundDevice {
    /// `mlx5_0`
    pub name: String,
    /// Whether there is no hardware behind it: soft-RoCE.
    pub is_soft: bool,
    pub ports: Vec<Port>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Its number, from 1.
    pub num: u8,
    pub is_active: bool,
    /// `ACTIVE, LinkUp`
    pub state: String,
    /// `100 Gb/sec (4X EDR)`
    pub rate: String,
    pub interface: Option<String>,
    /// Its first IPv4 address.
    pub address: Option<IpAddr>,
    /// The versions of RoCE that its addresses have.
    pub roce: Vec<String>,
}

impl FoundDevice {
    pub fn all(host: &Host<'_>) -> Vec<FoundDevice> {
        let of = |name: String| {
            let folder = format!("{CLASS}/{name}");
            let mut ports: Vec<Port> = host
                .names(&format!("{folder}/ports"))
                .iter()
                .filter_map(|num| Some(Port::read(host, &folder, num.parse().ok()?)))
                .collect();
            ports.sort_by_key(|port| port.num);
            FoundDevice { is_soft: !host.has(&format!("{folder}/device")), name, ports }
        };
        host.names(CLASS).into_iter().map(of).collect()
    }

    /// The first port that messages can go through.
    pub fn active(&self) -> Option<&Port> {
        self.ports.iter().find(|port| port.is_active)
    }

    /// Whether it is the one that is asked for, or any will do.
    pub fn fits(&self, wanted: &Wanted) -> bool {
        wanted.device.as_ref().is_none_or(|name| *name == self.name)
            && wanted.address.is_none_or(|address| {
                self.ports.iter().any(|port| port.address == Some(address))
                    || !matches!(address, IpAddr::V4(_))
            })
    }
}

impl Port {
    fn read(host: &Host<'_>, device: &str, num: u8) -> Port {
        let folder = format!("{device}/ports/{num}");
        let word = |file: &str| {
            let text = host.text(&format!("{folder}/{file}")).unwrap_or_default();
            // `4: ACTIVE`
            text.split_once(": ").map_or(text.clone(), |(_, word)| word.to_owned())
        };
        let is_mapped = |gid: &(String, String)| address::mapped(&gid.1).is_some();
        let kind = |(gid, _)| host.text(&format!("{folder}/gid_attrs/types/{gid}"));
        let state = word("state");
        Port {
            num,
            is_active: state == "ACTIVE",
            state: format!("{state}, {}", word("phys_state")),
            rate: word("rate"),
            interface: address::interface(host, device, &folder),
            address: address::of_port(host, device, &folder),
            roce: address::gids(host, &folder).filter(is_mapped).filter_map(kind).collect(),
        }
    }
}

pub fn findings(host: &Host<'_>, wanted: &Wanted, devices: &[FoundDevice]) -> Vec<Finding> {
    // A missing device is only a hint if none is asked for.
    let bad = match (wanted.asks_for_device(), devices.is_empty()) {
        (true, _) => Severity::Error,
        (false, false) => Severity::Warning,
        (false, true) => Severity::Hint,
    };
    let mut found = vec![libraries(host, bad), there(host, wanted, devices)];
    if devices.is_empty() {
        return found;
    }
    found.push(modules(host, bad));
    found.push(files(host, bad));
    found.extend(drivers(host, bad, devices));
    found
}

fn libraries(host: &Host<'_>, bad: Severity) -> Finding {
    let missing = host.ask().missing_libraries();
    if missing.is_empty() {
        return LIBRARIES.ok("libibverbs and librdmacm can be opened");
    }
    let seen = format!("{} cannot be opened", missing.join(" and "));
    let fix =
        host.install("rdma-core ibverbs-providers librdmacm1", "rdma-core libibverbs librdmacm");
    LIBRARIES.at(bad, seen, fix)
}

fn there(host: &Host<'_>, wanted: &Wanted, devices: &[FoundDevice]) -> Finding {
    let names: Vec<&str> = devices.iter().map(|device| &*device.name).collect();
    if devices.iter().any(|device| device.fits(wanted)) {
        return DEVICE.ok(names.join(", "));
    }
    let asked = match (&wanted.device, wanted.address) {
        (Some(name), _) => format!("none is named {name}"),
        (None, Some(address)) => format!("none has the address {address}"),
        (None, None) => String::new(),
    };
    if !devices.is_empty() {
        let seen = format!("{asked}; there are: {}", names.join(", "));
        return DEVICE.error(seen, Fix::new("rdma link").note("shows names and interfaces"));
    }
    let severity = if wanted.asks_for_device() { Severity::Error } else { Severity::Hint };
    if let Some((card, module)) = idle_card(host) {
        let seen = format!("a card at {card} could do RDMA, and no driver offers it");
        let severity = severity.max(Severity::Warning);
        return DEVICE.at(severity, seen, host.kernel_fix(&format!("modprobe {module}")));
    }
    DEVICE.at(severity, "no RDMA device; soft-RoCE makes one of any interface", soft(host))
}

/// How this host gets a device without hardware.
pub fn soft(host: &Host<'_>) -> Fix {
    let up = |name: &String| {
        name != "lo"
            && host.text(&format!("sys/class/net/{name}/operstate")).as_deref() == Some("up")
    };
    let interface = host.names("sys/class/net").into_iter().find(up).unwrap_or("eth0".to_owned());
    let command = format!("modprobe rdma_rxe && rdma link add rxe0 type rxe netdev {interface}");
    let fix = host.kernel_fix(&command);
    if has_soft(host) {
        fix
    } else {
        fix.note("this kernel does not come with the module rdma_rxe")
    }
}

/// Whether the kernel comes with soft-RoCE.
pub fn has_soft(host: &Host<'_>) -> bool {
    let folder = format!("lib/modules/{}/kernel/drivers/infiniband/sw/rxe", host.kernel());
    host.has("sys/module/rdma_rxe") || !host.names(&folder).is_empty()
}

/// A network card of a kind that does RDMA, and the module that is missing.
fn idle_card(host: &Host<'_>) -> Option<(String, &'static str)> {
    let cards = host.names("sys/bus/pci/devices");
    cards.into_iter().find_map(|card| {
        let folder = format!("sys/bus/pci/devices/{card}");
        let class = host.text(&format!("{folder}/class"))?;
        // Network controllers: Ethernet 0x0200.., InfiniBand 0x0207..
        if !class.starts_with("0x02") {
            return None;
        }
        let vendor = host.text(&format!("{folder}/vendor"))?;
        let module = CARDS.iter().find(|(id, _)| *id == vendor)?.1;
        let bound = host.names(&format!("{folder}/infiniband")).is_empty();
        bound.then_some((card, module))
    })
}

fn modules(host: &Host<'_>, bad: Severity) -> Finding {
    // Compiled in, a module has no folder of its own, and its files are there all the same.
    let lacks = |module: &str, class: &str| {
        !host.has(&format!("sys/module/{module}")) && !host.has(&format!("sys/class/{class}"))
    };
    let needed = [("ib_uverbs", "infiniband_verbs"), ("rdma_ucm", "misc/rdma_cm")];
    let missing: Vec<&str> =
        needed.iter().filter(|(name, class)| lacks(name, class)).map(|(name, _)| *name).collect();
    if missing.is_empty() {
        return MODULES.ok("ib_uverbs and rdma_ucm are loaded");
    }
    let seen = format!("not loaded: {}", missing.join(", "));
    MODULES.at(bad, seen, host.kernel_fix(&format!("modprobe -a {}", missing.join(" "))))
}

fn files(host: &Host<'_>, bad: Severity) -> Finding {
    let mut files: Vec<String> = host
        .names("sys/class/infiniband_verbs")
        .into_iter()
        .filter(|name| name.starts_with("uverbs"))
        .collect();
    files.push("rdma_cm".to_owned());
    for file in &files {
        let path = format!("dev/infiniband/{file}");
        let Some(reason) = host.ask().closed(&host.path(&path)) else { continue };
        let seen = format!("/{path}: {reason}");
        let fix = if host.is_container() {
            Fix::new("docker run --device=/dev/infiniband --network=host IMAGE")
                .note("when the container is started")
        } else {
            host.root_fix("chmod 0666 /dev/infiniband/uverbs* /dev/infiniband/rdma_cm")
                .note("for good: the udev rules of rdma-core")
        };
        return FILES.at(bad, seen, fix);
    }
    FILES.ok(format!("/dev/infiniband: {} can be opened", files.join(", ")))
}

/// Devices that the kernel has and the libraries do not see.
fn drivers(host: &Host<'_>, bad: Severity, devices: &[FoundDevice]) -> Option<Finding> {
    let seen = host.ask().devices().ok()?;
    let unseen: Vec<&str> = devices
        .iter()
        .map(|device| &*device.name)
        .filter(|name| !seen.iter().any(|seen| seen.name == *name))
        .collect();
    if unseen.is_empty() {
        return Some(DRIVERS.ok("the libraries see every device of the kernel"));
    }
    let text = format!("the libraries do not see {}", unseen.join(", "));
    Some(DRIVERS.at(bad, text, host.install("ibverbs-providers", "libibverbs")))
}

/// Vendors of cards with RDMA, and the module that offers it.
const CARDS: &[(&str, &str)] = &[
    ("0x15b3", "mlx5_ib"),
    ("0x14e4", "bnxt_re"),
    ("0x1425", "iw_cxgb4"),
    ("0x1077", "qedr"),
    ("0x1d0f", "efa"),
];

subjects! {
    LIBRARIES = "libraries":
        "A device needs them; without them TCP, shared memory and the software fabric work.";
    DEVICE = "device": "An RDMA device; TCP, shared memory and the software fabric need none.";
    MODULES = "modules":
        "They pass requests to the device: without them it cannot be opened.";
    FILES = "device-files": "A device is opened through these files, for reading and writing.";
    DRIVERS = "device-drivers": "Each kind of device needs its own driver library below libibverbs.";
}
