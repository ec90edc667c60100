//! The machine and the program, as a report names them.

use std::borrow::Cow;
use std::env::args_os;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rpcrdma_mempool::pin::CoreList;
use rpcrdma_mempool::topology::Topology;
use serde::{Deserialize, Serialize};

use crate::machine::cores::CorePair;
use crate::machine::files::{Files, field, kib};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub cpu: String,
    pub cores_online: usize,
    pub virtual_machine: bool,
    /// Cores that the kernel keeps other programs off.
    pub isolated: Vec<u32>,
    pub numa_nodes: usize,
    /// The frequency governor of the client's core and of the server's, where there is one.
    pub governor: [Option<String>; 2],
    pub kernel: String,
    /// Huge pages of the default size that are set aside, and how many of them are free.
    pub huge_pages: HugePages,
    /// How the kernel gives huge pages unasked: `always`, `madvise` or `never`.
    pub transparent_huge_pages: Option<String>,
    /// Bytes that the program may lock; `None` is without limit.
    pub memlock_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HugePages {
    pub page_bytes: u64,
    pub total: u64,
    pub free: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    pub rpcrdma: Cow<'static, str>,
    pub rustc: Cow<'static, str>,
    /// The profile of cargo: `release` is the one to be measured.
    pub profile: Cow<'static, str>,
    pub opt_level: Cow<'static, str>,
    pub target: Cow<'static, str>,
}

impl Build {
    pub const THIS: Build = Build {
        rpcrdma: Cow::Borrowed(env!("CARGO_PKG_VERSION")),
        rustc: Cow::Borrowed(env!("BENCH_RUSTC")),
        profile: Cow::Borrowed(env!("BENCH_PROFILE")),
        opt_level: Cow::Borrowed(env!("BENCH_OPT_LEVEL")),
        target: Cow::Borrowed(env!("BENCH_TARGET")),
    };

    pub fn line(&self) -> String {
        let Build { rpcrdma, rustc, profile, target, .. } = self;
        format!("rpcrdma {rpcrdma}, {profile}, {target}, {rustc}")
    }

    /// Whether its times mean anything.
    pub fn is_optimised(&self) -> bool {
        self.opt_level == "3"
    }
}

impl Machine {
    /// The values of `/proc` and `/sys`; missing ones are empty or 0.
    pub fn read(cores: CorePair) -> Machine {
        let files = Files::new(Path::new("/"));
        let topology = Topology::detect();
        Machine {
            cpu: files.field("proc/cpuinfo", "model name").unwrap_or("unknown".to_owned()),
            cores_online: topology.cores.len(),
            virtual_machine: files.is_virtual(),
            isolated: topology.isolated().map(|core| core.id).collect(),
            numa_nodes: topology.nodes.len(),
            governor: cores.both().map(|core| files.governor(core)),
            kernel: files.kernel(),
            huge_pages: huge_pages(&files.text("proc/meminfo").unwrap_or_default()),
            transparent_huge_pages: files.chosen("sys/kernel/mm/transparent_hugepage/enabled"),
            memlock_bytes: files.memlock()[0],
        }
    }

    pub fn lines(&self) -> Vec<String> {
        let kind = if self.virtual_machine { " (virtual)" } else { "" };
        let HugePages { page_bytes, total, free } = self.huge_pages;
        let isolated = if self.isolated.is_empty() {
            "no core isolated".to_owned()
        } else {
            format!("cores {} isolated", CoreList(self.isolated.clone()))
        };
        let governor = self.governor[0].as_deref().unwrap_or("none to be seen");
        let memlock = self
            .memlock_bytes
            .map_or_else(|| "without limit".into(), |bytes| format!("{} KiB", bytes >> 10));
        let thp = self.transparent_huge_pages.as_deref().unwrap_or("not there");
        vec![
            format!(
                "{}, {} cores{kind}, {} NUMA node(s), Linux {}",
                self.cpu, self.cores_online, self.numa_nodes, self.kernel
            ),
            format!("{isolated}, frequency governor {governor}, memlock {memlock}"),
            format!(
                "huge pages: {free} of {total} free ({} KiB), on demand: {thp}",
                page_bytes >> 10
            ),
        ]
    }
}

pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The day and the minute of a time in milliseconds since 1970, in UTC: `2026-11-24-0153`.
pub fn date(ms: u64) -> String {
    let (days, minutes) = (ms / 86_400_000, ms / 60_000 % 1440);
    // Days since 0000-03-01, in eras of 400 years: February, with its leap day, ends a year.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + later;
    format!("{year:04}-{month:02}-{day:02}-{:02}{:02}", minutes / 60, minutes % 60)
}

pub fn command() -> Vec<String> {
    args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}

fn huge_pages(meminfo: &str) -> HugePages {
    let number = |name| field(meminfo, name)?.parse::<u64>().ok();
    HugePages {
        page_bytes: kib(meminfo, "Hugepagesize").unwrap_or(0),
        total: number("HugePages_Total").unwrap_or(0),
        free: number("HugePages_Free").unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_read_from_meminfo() {
        let text = "HugePages_Total:     512\nHugePages_Free:      500\nHugepagesize:    2048 kB\n";
        assert_eq!(huge_pages(text), HugePages { page_bytes: 2 << 20, total: 512, free: 500 });
        assert_eq!(huge_pages(""), HugePages::default());
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, date) in [
            (0, "1970-01-01-0000"),
            (951_782_400, "2000-02-29-0000"),
            (951_868_800, "2000-03-01-0000"),
            (1_704_067_199, "2023-12-31-2359"),
            (1_795_485_180, "2026-11-24-0153"),
            (4_107_542_400, "2100-03-01-0000"),
        ] {
            assert_eq!(super::date(seconds * 1000), date, "{seconds}");
        }
    }

    #[test]
    fn this_machine_can_be_read() {
        let machine = Machine::read(CorePair { client: 0, server: 1 });
        assert!(machine.cores_online > 0 && !machine.kernel.is_empty(), "{machine:?}");
        assert_eq!(machine.lines().len(), 3);
    }
}
