//! The findings of a host, by subject.

use rpcrdma::ProviderKind;
use serde::Serialize;

use super::conclusion::Conclusion;
use super::device::{self, FoundDevice};
use super::finding::{Finding, Severity};
use super::host::Host;
use super::wanted::{self, Wanted};
use super::{cores, link, memory, power, shm, system, tcp, time};
use crate::machine::Jitter;

/// What was found, by subject, and what it comes to.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkup {
    pub machine: String,
    pub sections: Vec<Section>,
    pub conclusion: Conclusion,
    /// What a thread saw that spun on each core, if one was let.
    pub jitter: Option<[Jitter; 2]>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Section {
    pub title: String,
    pub findings: Vec<Finding>,
}

impl Checkup {
    pub fn new(host: &Host<'_>, wanted: &Wanted) -> Checkup {
        let section = |title: &str, findings| Section { title: title.to_owned(), findings };
        let devices = FoundDevice::all(host);
        let jitter = time::probe(host, wanted);
        let mut sections = vec![
            section("Machine", system::findings(host)),
            section("Cores", cores::findings(host, wanted)),
            section("Power", power::findings(host, wanted)),
            section("Time", time::findings(host, jitter.as_ref())),
            section("Memory", memory::findings(host, wanted)),
            section("RDMA", device::findings(host, wanted, &devices)),
        ];
        if wanted.asks_for(ProviderKind::Shm) {
            sections.push(section("Shared memory", shm::findings(host, wanted)));
        }
        if wanted.asks_for(ProviderKind::Tcp) {
            sections.push(section("TCP", tcp::findings(host, wanted)));
        }
        for device in devices.iter().filter(|device| device.fits(wanted)).take(DEVICES_MAX) {
            let findings = link::findings(host, wanted, device);
            sections.push(section(&format!("Device {}", device.name), findings));
        }
        sections.push(section("Configuration", wanted::findings(host, wanted)));
        let findings: Vec<Finding> =
            sections.iter().flat_map(|section| section.findings.iter().cloned()).collect();
        Checkup {
            machine: machine(host),
            conclusion: Conclusion::new(host, wanted, &devices, &findings),
            sections,
            jitter,
        }
    }

    /// Everything that was found.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.sections.iter().flat_map(|section| &section.findings)
    }

    pub fn count(&self, severity: Severity) -> usize {
        self.findings().filter(|finding| finding.severity == severity).count()
    }
}

fn machine(host: &Host<'_>) -> String {
    let cpu = host.field("proc/cpuinfo", "model name").unwrap_or("unknown processor".to_owned());
    let (cores, nodes) = (host.topology.cores.len(), host.topology.nodes.len());
    format!("{cpu}, {cores} cores, {nodes} NUMA node(s), Linux {}", host.kernel())
}

const DEVICES_MAX: usize = 4;
