//! What the process that runs the scenarios says to the one that watches it.

use std::fs;

use rpcrdma::Fabric;
use rpcrdma::provider::DeviceCaps;
use rpcrdma_suite::Scenario;
use serde::{Deserialize, Serialize};

/// One line of JSON each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScenarioMessage {
    /// The device is open.
    Opened(Box<OpenedDevice>),
    /// It cannot be opened: why.
    Closed(String),
    /// The scenario of this number begins.
    Begins(usize),
    /// It has ended, with the reason if it failed.
    Ended { seconds: f64, failure: Option<String> },
}

/// What a program sees of a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenedDevice {
    pub name: String,
    pub limits: Limits,
    /// The files of the RDMA libraries, whose names have their versions.
    pub libraries: Vec<String>,
}

/// What the engine can use of the device: see [`DeviceCaps`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub send_sge: u32,
    pub read_sge: u32,
    pub recv_sge: u32,
    pub srq_depth: u32,
    pub cq_depth: u32,
    pub send_depth: u32,
    pub inline_bytes: u32,
    pub message_bytes: u32,
    pub windows: u32,
    pub reads_at_a_time: u32,
}

impl OpenedDevice {
    /// A device that this process has open.
    pub fn new(caps: &DeviceCaps) -> OpenedDevice {
        let limits = Limits {
            send_sge: caps.send_sge,
            read_sge: caps.read_sge,
            recv_sge: caps.recv_sge,
            srq_depth: caps.srq_depth,
            cq_depth: caps.cq_depth,
            send_depth: caps.send_depth,
            inline_bytes: caps.inline_len,
            message_bytes: caps.message_len,
            windows: caps.windows,
            reads_at_a_time: caps.rd_atomic,
        };
        OpenedDevice { name: caps.name.clone(), limits, libraries: libraries() }
    }
}

/// A scenario: the version that it is in, its subject and its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScenarioName {
    pub version: &'static str,
    pub subject: &'static str,
    pub name: &'static str,
}

/// The scenarios of these subjects, or all if none is named; the same list on every provider.
pub fn names(only: &[String]) -> Vec<ScenarioName> {
    let all = Scenario::<Fabric>::all().into_iter();
    let name = |one: Scenario<Fabric>| ScenarioName {
        version: one.version,
        subject: one.subject,
        name: one.name,
    };
    all.map(name).filter(|one| is_chosen(one.subject, only)).collect()
}

pub fn is_chosen(subject: &str, only: &[String]) -> bool {
    only.is_empty() || only.iter().any(|chosen| chosen == subject)
}

/// The real files of the RDMA libraries that this process has loaded, without their folders.
fn libraries() -> Vec<String> {
    of_maps(&fs::read_to_string("/proc/self/maps").unwrap_or_default())
}

fn of_maps(maps: &str) -> Vec<String> {
    let files = maps.lines().filter_map(|line| line.split_once('/')?.1.rsplit('/').next());
    let is_rdma = |file: &&str| {
        file.starts_with("libibverbs")
            || file.starts_with("librdmacm")
            || file.contains("rdmav")
            || DRIVERS.iter().any(|driver| file.starts_with(driver))
    };
    let mut files: Vec<String> = files.filter(is_rdma).map(str::to_owned).collect();
    files.sort();
    files.dedup();
    files
}

/// Libraries of drivers whose names do not have `rdmav`.
const DRIVERS: [&str; 4] = ["libmlx4", "libmlx5", "libefa", "libmana"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_the_files_that_are_mapped() {
        let maps = "\
7f00-7f01 r--p 0000 00:1 5 /usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0
7f01-7f02 r-xp 0000 00:1 5 /usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0
7f02-7f03 r-xp 0000 00:1 6 /usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so
7f03-7f04 r-xp 0000 00:1 7 /usr/lib/x86_64-linux-gnu/libc.so.6
7f04-7f05 rw-p 0000 00:0 0 [heap]
";
        assert_eq!(of_maps(maps), ["libibverbs.so.1.14.44.0", "librxe-rdmav34.so"]);
        assert!(of_maps("").is_empty());
    }

    #[test]
    fn scenarios_are_chosen_by_subject() {
        let all = names(&[]);
        assert!(all.len() > 100, "{}", all.len());
        let inline = names(&["inline".into()]);
        assert!(!inline.is_empty() && inline.iter().all(|one| one.subject == "inline"));
        assert!(inline.len() < all.len() && names(&["nonsense".into()]).is_empty());
    }
}
