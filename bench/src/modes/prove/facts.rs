//! What a device and its host are: vendor, firmware, driver, ports, versions.

use std::path::Path;

use serde::Serialize;

use super::messages::{Limits, OpenedDevice};
use crate::machine::files::Files;

/// A device, without what identifies its owner: no address, no GUID, no name of the host.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Facts {
    pub name: String,
    pub provider: &'static str,
    /// `0x15b3 (NVIDIA Mellanox)`; nothing without hardware.
    pub vendor: Option<String>,
    /// The device of the vendor, as the bus numbers it.
    pub model: Option<String>,
    pub firmware: Option<String>,
    pub board: Option<String>,
    /// The module of the kernel.
    pub driver: Option<String>,
    pub ports: Vec<PortFacts>,
    pub limits: Option<Limits>,
    pub libraries: Vec<String>,
    /// The version of rdma-core, as its libraries have it.
    pub rdma_core: Option<String>,
    pub kernel: String,
    pub distribution: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PortFacts {
    pub num: String,
    /// `4: ACTIVE`
    pub state: Option<String>,
    pub rate: Option<String>,
    /// `Ethernet` or `InfiniBand`.
    pub link: Option<String>,
    /// The versions of RoCE that it has addresses of.
    pub roce: Vec<String>,
}

impl Facts {
    /// The device of this name, as the files below `/sys` have it, and as a program sees it.
    pub fn read(
        files: &Files,
        provider: &'static str,
        name: &str,
        opened: Option<&OpenedDevice>,
    ) -> Facts {
        let name = opened.map_or(name, |opened| &opened.name).to_owned();
        let folder = format!("sys/class/infiniband/{name}");
        let text = |file: &str| files.text(&format!("{folder}/{file}")).filter(|it| !it.is_empty());
        let libraries = opened.map(|opened| opened.libraries.clone()).unwrap_or_default();
        let ports = files.names(&format!("{folder}/ports"));
        Facts {
            provider,
            vendor: text("device/vendor").map(|id| vendor(&id)),
            model: text("device/device"),
            firmware: text("fw_ver"),
            board: text("board_id"),
            driver: driver(&files.path(&format!("{folder}/device/driver"))),
            ports: ports.iter().map(|num| PortFacts::read(files, &folder, num)).collect(),
            limits: opened.map(|opened| opened.limits),
            rdma_core: libraries.iter().find_map(|file| rdma_core(file)),
            libraries,
            kernel: files.kernel(),
            distribution: distribution(files),
            name,
        }
    }

    /// In lines for people: a name, and what it stands for.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![("device", format!("{}, by {}", self.name, self.provider))];
        let mut line = |name, value: &Option<String>| {
            lines.extend(value.iter().map(|value| (name, value.clone())));
        };
        line("vendor", &self.vendor);
        line("model", &self.model);
        line("board", &self.board);
        line("firmware", &self.firmware);
        line("driver", &self.driver);
        for PortFacts { num, state, rate, link, roce } in &self.ports {
            let parts = [state, rate, link].into_iter().flatten().cloned().chain(roce.clone());
            lines.push(("port", format!("{num}: {}", parts.collect::<Vec<_>>().join(", "))));
        }
        if let Some(limits) = self.limits {
            lines.push(("limits", limits.words()));
        }
        if !self.libraries.is_empty() {
            let version = self.rdma_core.as_deref().unwrap_or("of an unknown version");
            let files = self.libraries.join(", ");
            lines.push(("rdma-core", format!("{version} ({files})")));
        }
        lines.extend(self.distribution.iter().map(|name| ("system", name.clone())));
        lines
    }
}

impl PortFacts {
    fn read(files: &Files, device: &str, num: &str) -> PortFacts {
        let folder = format!("{device}/ports/{num}");
        let text = |file: &str| files.text(&format!("{folder}/{file}"));
        let types = files.names(&format!("{folder}/gid_attrs/types"));
        let mut roce: Vec<String> =
            types.iter().filter_map(|gid| text(&format!("gid_attrs/types/{gid}"))).collect();
        roce.sort();
        roce.dedup();
        let (state, rate, link) = (text("state"), text("rate"), text("link_layer"));
        PortFacts { num: num.to_owned(), state, rate, link, roce }
    }
}

impl Limits {
    fn words(&self) -> String {
        let Limits { send_sge, read_sge, recv_sge, inline_bytes, windows, .. } = self;
        format!(
            "{inline_bytes} bytes inline; {send_sge} gather, {recv_sge} scatter entries, {read_sge} \
             of a Read; queues of {} Sends, {} Receives, {} completions; {windows} windows, {} \
             Reads at a time",
            self.send_depth, self.srq_depth, self.cq_depth, self.reads_at_a_time
        )
    }
}

fn vendor(id: &str) -> String {
    let name = VENDORS.iter().find(|(known, _)| *known == id);
    name.map_or_else(|| id.to_owned(), |(id, name)| format!("{id} ({name})"))
}

/// The module that a link to the driver leads to.
fn driver(link: &Path) -> Option<String> {
    let to = std::fs::read_link(link).ok()?;
    Some(to.file_name()?.to_string_lossy().into_owned())
}

/// `libibverbs.so.1.14.44.0` is of rdma-core 44.0.
fn rdma_core(file: &str) -> Option<String> {
    let version = file.strip_prefix("libibverbs.so.")?;
    let parts: Vec<&str> = version.split('.').collect();
    match parts[..] {
        [_, _, major, minor] => Some(format!("{major}.{minor}")),
        _ => None,
    }
}

fn distribution(files: &Files) -> Option<String> {
    let release = files.text("etc/os-release")?;
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim_matches('"').to_owned())
}

const VENDORS: [(&str, &str); 8] = [
    ("0x15b3", "NVIDIA Mellanox"),
    ("0x8086", "Intel"),
    ("0x14e4", "Broadcom"),
    ("0x1425", "Chelsio"),
    ("0x1077", "Marvell QLogic"),
    ("0x1d0f", "Amazon"),
    ("0x19e5", "Huawei"),
    ("0x1414", "Microsoft"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Folder;

    #[test]
    fn a_device_is_described_by_its_files_and_without_its_address() {
        let folder = Folder::new("facts");
        let device = "sys/class/infiniband/mlx5_0";
        for (file, text) in [
            ("fw_ver", "20.31.1014\n"),
            ("board_id", "MT_0000000224\n"),
            ("node_guid", "0c42:a103:0065:1f3a\n"),
            ("device/vendor", "0x15b3\n"),
            ("device/device", "0x101b\n"),
            ("ports/1/state", "4: ACTIVE\n"),
            ("ports/1/rate", "100 Gb/sec (4X EDR)\n"),
            ("ports/1/link_layer", "Ethernet\n"),
            ("ports/1/gids/0", "0000:0000:0000:0000:0000:ffff:0a00:0001\n"),
            ("ports/1/gid_attrs/types/0", "IB/RoCE v1\n"),
            ("ports/1/gid_attrs/types/1", "RoCE v2\n"),
        ] {
            folder.write(&format!("{device}/{file}"), text);
        }
        folder.write("proc/sys/kernel/osrelease", "6.1.0\n");
        folder.write("etc/os-release", "ID=debian\nPRETTY_NAME=\"Debian 12\"\n");
        let libraries = vec!["libibverbs.so.1.14.44.0".to_owned()];
        let limits = Limits { windows: 7, ..Limits::default() };
        let opened = OpenedDevice { name: "mlx5_0".to_owned(), limits, libraries };
        let facts = Facts::read(&Files::new(folder.path()), "verbs", "other", Some(&opened));
        assert_eq!(facts.vendor.as_deref(), Some("0x15b3 (NVIDIA Mellanox)"));
        assert_eq!(facts.rdma_core.as_deref(), Some("44.0"));
        assert_eq!(facts.ports[0].roce, ["IB/RoCE v1", "RoCE v2"]);
        let text = format!("{:?} {}", facts.lines(), serde_json::json!(facts));
        for seen in ["mlx5_0", "20.31.1014", "MT_0000000224", "0x101b", "100 Gb/sec", "7 windows"] {
            assert!(text.contains(seen), "no {seen} in {text}");
        }
        assert!(text.contains("Debian 12") && text.contains("6.1.0"), "{text}");
        assert!(!text.contains("0a00") && !text.contains("1f3a"), "{text}");
    }

    #[test]
    fn without_hardware_there_is_little_to_say() {
        let folder = Folder::new("no-facts");
        let facts = Facts::read(&Files::new(folder.path()), "fabric", "fabric", None);
        assert_eq!(facts.lines(), [("device", "fabric, by fabric".to_owned())]);
        assert_eq!(rdma_core("libibverbs.so.1"), None);
        assert_eq!(vendor("0x1234"), "0x1234");
    }
}
