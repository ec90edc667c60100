//! The examined host: a tree of files, and a few questions that files do not answer.

use std::fs;
use std::ops::Deref;
use std::path::Path;

use rpcrdma_mempool::pin::allowed_cores;
use rpcrdma_mempool::topology::Topology;

use super::finding::Fix;
use crate::machine::env::Build;
use crate::machine::files::Files;
use crate::machine::jitter::{self, PROBE_TIME};
use crate::machine::{CorePair, Jitter};

/// What no file answers.
pub trait Ask {
    fn allowed_cores(&self) -> Vec<u32>;
    /// The files of the libraries that cannot be used.
    fn missing_libraries(&self) -> Vec<&'static str>;
    /// The devices that the libraries see, or why they see none.
    fn devices(&self) -> Result<Vec<Seen>, String>;
    /// Why a file cannot be opened to read and write; `None` if it can.
    fn closed(&self, path: &Path) -> Option<String>;
    /// What a spinning thread sees on two cores, if the probe is enabled.
    fn jitter(&self, cores: CorePair) -> Option<[Jitter; 2]>;
    fn is_optimised(&self) -> bool;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub name: String,
    /// The numbers of its active ports, and the data bytes of their longest packet.
    pub ports: Vec<(u8, u32)>,
}

/// A host: its files, and who answers the rest.
pub struct Host<'a> {
    files: Files,
    ask: &'a dyn Ask,
    pub topology: Topology,
}

impl Deref for Host<'_> {
    type Target = Files;

    fn deref(&self) -> &Files {
        &self.files
    }
}

impl<'a> Host<'a> {
    /// The host whose files begin at `root`: `/`, or a copy of another's.
    pub fn new(root: &Path, ask: &'a dyn Ask) -> Host<'a> {
        let topology = Topology::from_sysfs(&root.join("sys"))
            .unwrap_or_else(|_| Topology::flat(ask.allowed_cores()));
        Host { files: Files::new(root), ask, topology }
    }

    /// What no file answers.
    pub fn ask(&self) -> &dyn Ask {
        self.ask
    }

    /// What an option of the kernel's command line is set to; empty if it has no value.
    pub fn boot_option(&self, name: &str) -> Option<String> {
        let line = self.text("proc/cmdline")?;
        let mut options = line.split_whitespace().map(|it| it.split_once('=').unwrap_or((it, "")));
        options.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
    }

    /// Whether this is the inside of a container: the kernel's settings are then the host's.
    pub fn is_container(&self) -> bool {
        let groups = self.text("proc/1/cgroup").unwrap_or_default();
        let kinds = ["docker", "kubepods", "containerd", "lxc", "libpod"];
        self.has(".dockerenv")
            || self.has("run/.containerenv")
            || kinds.iter().any(|kind| groups.contains(kind))
    }

    /// Whether this program may do what only root may.
    pub fn is_root(&self) -> bool {
        let ids = self.field("proc/self/status", "Uid").unwrap_or_default();
        ids.split_whitespace().nth(1) == Some("0")
    }

    /// Whether this program holds a capability: a bit of the kernel's mask.
    pub fn has_capability(&self, bit: u32) -> bool {
        let mask = self.field("proc/self/status", "CapEff");
        let mask = mask.and_then(|mask| u64::from_str_radix(&mask, 16).ok());
        mask.is_some_and(|mask| mask >> bit & 1 == 1)
    }

    /// A command for root, that changes the kernel.
    pub fn kernel_fix(&self, command: &str) -> Fix {
        let fix = self.root_fix(command);
        if self.is_container() { fix.note("on the host of this container") } else { fix }
    }

    /// A command for root, here.
    pub fn root_fix(&self, command: &str) -> Fix {
        if self.is_root() {
            return Fix::new(command);
        }
        if command.contains(['>', '|', '&', ';', '*']) {
            return Fix::new(format!("sudo sh -c '{command}'"));
        }
        Fix::new(format!("sudo {command}"))
    }

    pub fn install(&self, debian: &str, redhat: &str) -> Fix {
        let release = self.text("etc/os-release").unwrap_or_default();
        let ids: Vec<String> = release
            .lines()
            .filter_map(|line| line.strip_prefix("ID=").or(line.strip_prefix("ID_LIKE=")))
            .flat_map(|ids| ids.trim_matches('"').split(' ').map(str::to_owned))
            .collect();
        let is = |names: &[&str]| ids.iter().any(|id| names.contains(&&**id));
        self.root_fix(&if is(&["rhel", "fedora", "centos"]) {
            format!("dnf install -y {redhat}")
        } else if is(&["suse", "opensuse"]) {
            format!("zypper install -y {redhat}")
        } else if is(&["arch"]) {
            format!("pacman -S {redhat}")
        } else {
            format!("apt-get install -y {debian}")
        })
    }

    /// An option of the kernel's command line, added for the next boot.
    pub fn boot_fix(&self, options: &str) -> Fix {
        let command = if self.has("usr/sbin/grubby") || self.has("sbin/grubby") {
            format!("grubby --update-kernel=ALL --args=\"{options}\"")
        } else {
            format!(
                "sed -i \"s/^GRUB_CMDLINE_LINUX=./&{options} /\" /etc/default/grub && update-grub"
            )
        };
        self.kernel_fix(&command).note("then reboot")
    }
}

#[derive(Debug, Clone, Copy)]
pub struct This {
    /// Whether the jitter probe may spin for a quarter of a second.
    pub probe: bool,
}

impl Ask for This {
    fn allowed_cores(&self) -> Vec<u32> {
        allowed_cores()
    }

    fn missing_libraries(&self) -> Vec<&'static str> {
        rpcrdma_verbs::missing_libraries().into_iter().map(|(file, _)| file).collect()
    }

    fn devices(&self) -> Result<Vec<Seen>, String> {
        let devices = rpcrdma_verbs::devices().map_err(|error| error.to_string())?;
        Ok(devices
            .into_iter()
            .map(|device| {
                let ports = device.active_ports.iter().map(|port| (port.num, port.mtu));
                Seen { ports: ports.collect(), name: device.name }
            })
            .collect())
    }

    fn closed(&self, path: &Path) -> Option<String> {
        let opened = fs::OpenOptions::new().read(true).write(true).open(path);
        opened.err().map(|error| error.to_string())
    }

    fn jitter(&self, cores: CorePair) -> Option<[Jitter; 2]> {
        if !self.probe {
            return None;
        }
        jitter::probe(cores, PROBE_TIME).ok()
    }

    fn is_optimised(&self) -> bool {
        Build::THIS.is_optimised()
    }
}
