//! The conclusion: what this machine can measure, and what to run next.

use serde::Serialize;

use super::device::{self, FoundDevice};
use super::finding::{Finding, Severity};
use super::host::Host;
use super::wanted::Wanted;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    Nothing,
    Fabric,
    /// An RDMA device without hardware.
    SoftRoce,
    Nic,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Conclusion {
    pub reach: Reach,
    pub device: Option<String>,
    pub sentences: Vec<String>,
    pub next: Vec<String>,
}

impl Conclusion {
    pub fn new(
        host: &Host<'_>,
        wanted: &Wanted,
        devices: &[FoundDevice],
        findings: &[Finding],
    ) -> Conclusion {
        let is_bad = |names: &[&str]| {
            findings
                .iter()
                .any(|found| names.contains(&found.name) && found.severity >= Severity::Warning)
        };
        let usable = !is_bad(&["libraries", "modules", "device-files"]);
        let usable_device = |is_soft: bool| {
            let fits = |device: &&FoundDevice| {
                let port = device.active();
                device.is_soft == is_soft
                    && device.fits(wanted)
                    && port.is_some_and(|port| port.address.is_some())
            };
            devices.iter().find(fits).filter(|_| usable)
        };
        let cores = host.ask().allowed_cores().len();
        let (reach, device) = match (cores, usable_device(false), usable_device(true)) {
            (..=1, ..) => (Reach::Nothing, None),
            (_, Some(nic), _) => (Reach::Nic, Some(nic)),
            (_, None, Some(soft)) => (Reach::SoftRoce, Some(soft)),
            (_, None, None) => (Reach::Fabric, None),
        };
        let device = device.map(|device| device.name.clone());
        let mut sentences = vec![reach.sentence(device.as_deref())];
        sentences.extend(trust(findings));
        sentences.extend(further(host, reach, devices));
        Conclusion { reach, next: reach.next(device.as_deref()), device, sentences }
    }
}

impl Reach {
    fn sentence(self, device: Option<&str>) -> String {
        let device = device.unwrap_or_default();
        match self {
            Reach::Nothing => {
                "This machine can show nothing today: two threads that spin need two \
                               cores."
                    .to_owned()
            }
            Reach::Fabric => {
                "This machine can show the software fabric, and shared memory and TCP \
                              between two processes: what the protocol costs, beside the floor of the \
                              machine. Its times are those of this processor, its ratios hold for \
                              others."
                    .to_owned()
            }
            Reach::SoftRoce => format!(
                "This machine can show soft-RoCE ({device}): the whole way through verbs and the \
                 kernel's driver, with messages of some 20 us; and TCP, shared memory and the \
                 software fabric."
            ),
            Reach::Nic => format!(
                "This machine can show a NIC ({device}): the times of a deployment; and TCP, \
                 shared memory and the software fabric."
            ),
        }
    }

    fn next(self, device: Option<&str>) -> Vec<String> {
        let device = device.unwrap_or_default();
        match self {
            Reach::Nothing => vec!["nproc".to_owned()],
            Reach::Fabric => vec![
                "rpcrdma-bench cmp".to_owned(),
                "rpcrdma-bench cmp \"lat --provider shm\"".to_owned(),
            ],
            Reach::SoftRoce | Reach::Nic => vec![
                format!("rpcrdma-bench lat --provider verbs --device {device}"),
                format!("rpcrdma-bench cmp \"lat --provider verbs --device {device}\" ib_send_lat"),
                "rpcrdma-bench cmp".to_owned(),
            ],
        }
    }
}

fn trust(findings: &[Finding]) -> Option<String> {
    let disturbing: Vec<&str> = findings
        .iter()
        .filter(|found| found.severity == Severity::Warning && DISTURBING.contains(&found.name))
        .map(|found| found.name)
        .collect();
    let isolated =
        findings.iter().any(|found| found.name == "isolation" && found.severity == Severity::Ok);
    if !disturbing.is_empty() {
        let names = disturbing.join(", ");
        return Some(format!("Until this is fixed, trust medians and ratios, not tails: {names}."));
    }
    Some(match isolated {
        true => "Medians, ratios and tails can be believed.".to_owned(),
        false => {
            "Medians and ratios can be believed; read tails beside those of the floor.".to_owned()
        }
    })
}

fn further(host: &Host<'_>, reach: Reach, devices: &[FoundDevice]) -> Option<String> {
    if reach != Reach::Fabric {
        return None;
    }
    Some(match devices.first() {
        Some(device) => format!(
            "There is an RDMA device, {}; see above for what keeps it from being used.",
            device.name
        ),
        None if device::has_soft(host) => {
            let fix = device::soft(host);
            format!("For soft-RoCE, which needs no hardware: {}", fix.command)
        }
        None => {
            "For soft-RoCE, which needs no hardware, the kernel lacks the module rdma_rxe; the \
                 emulated machine of the tests has it: tests/run vm."
                .to_owned()
        }
    })
}

const DISTURBING: &[&str] = &[
    "siblings",
    "core-nodes",
    "cpu-quota",
    "load",
    "pressure",
    "governor",
    "clock",
    "jitter",
    "steal",
    "build",
    "numa-balancing",
    "device-node",
];
