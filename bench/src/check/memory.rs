//! Memory: size, huge pages, lock limit, NUMA node, swap.

use rpcrdma_config::units::Length;
use rpcrdma_config::{Lock, Pages};

use super::finding::{Finding, Fix, Severity, subjects};
use super::host::Host;
use super::wanted::Wanted;
use crate::machine::files::kib;

pub fn findings(host: &Host<'_>, wanted: &Wanted) -> Vec<Finding> {
    let mut found = vec![room(host, wanted), pages(host, wanted), transparent(host, wanted)];
    found.push(lock(host, wanted));
    found.extend(swap(host, wanted));
    found.extend(balancing(host));
    found.extend(merging(host));
    found
}

fn room(host: &Host<'_>, wanted: &Wanted) -> Finding {
    let need = wanted.memory_len();
    let available = host.text("proc/meminfo").and_then(|text| kib(&text, "MemAvailable"));
    let available = available.unwrap_or(u64::MAX);
    // Reserved pages count as used already.
    let reserved =
        if is_reserved(wanted) { free_pages(host, wanted) * page_len(wanted) } else { 0 };
    let seen = format!("{} wanted ({})", mib(need), wanted.title());
    if need <= available.saturating_add(reserved) {
        return ROOM.ok(seen);
    }
    let seen = format!("{seen}, {} available", mib(available));
    ROOM.error(
        seen,
        wanted
            .set("buffers", "256")
            .note("or lower connections.max and connections.credits, or other programs"),
    )
}

/// Reserved pages, on the nodes of the cores.
fn pages(host: &Host<'_>, wanted: &Wanted) -> Finding {
    if !is_reserved(wanted) {
        return PAGES.ok(match wanted.config.memory().pages {
            Pages::FourKiB => "4 KiB wanted, none to be reserved",
            _ => "transparent ones wanted, none to be reserved",
        });
    }
    let len = page_len(wanted);
    let need = pages_needed(wanted);
    let nodes = nodes(host, wanted);
    let free = free_pages(host, wanted);
    let seen = format!("{free} free of {}, {need} needed", mib(len));
    let total = |node: &u32| number_of_pages(host, *node, len, "nr_hugepages");
    if free >= need {
        return PAGES.ok(seen);
    }
    let share = (need - free).div_ceil(nodes.len().max(1) as u64);
    let commands: Vec<String> = nodes
        .iter()
        .map(|node| {
            let folder = folder(host, *node, len);
            format!("echo {} > /{folder}/nr_hugepages", total(node) + share)
        })
        .collect();
    let fix = if host.has(&folder(host, nodes.first().copied().unwrap_or(0), len)) {
        host.kernel_fix(&commands.join("; "))
    } else {
        host.boot_fix(&format!("hugepagesz={} hugepages={need}", boot_len(len)))
    };
    let fix = fix.note("soon after the start: later, memory is in pieces");
    // Where no smaller ones are to do, the engine does not start.
    if wanted.config.memory().smaller_pages {
        PAGES.warning(seen, fix)
    } else {
        PAGES.error(seen, fix)
    }
}

fn transparent(host: &Host<'_>, wanted: &Wanted) -> Finding {
    let folder = "sys/kernel/mm/transparent_hugepage";
    let choice = |file: &str| host.chosen(&format!("{folder}/{file}"));
    let Some(enabled) = choice("enabled") else { return TRANSPARENT.ok("this kernel has none") };
    let defrag = choice("defrag").unwrap_or_default();
    if enabled == "never" && wanted.config.memory().pages == Pages::Transparent {
        let command = format!("echo madvise > /{folder}/enabled");
        return TRANSPARENT
            .hint("never, and the configuration wants them", host.kernel_fix(&command));
    }
    if enabled == "always" && defrag == "always" {
        let command = format!("echo madvise > /{folder}/defrag");
        let seen = "always, and a page fault waits until one is put together";
        return TRANSPARENT.hint(seen, host.kernel_fix(&command));
    }
    TRANSPARENT.ok(enabled)
}

/// The limit of locked memory, which devices need and the fabric does without.
fn lock(host: &Host<'_>, wanted: &Wanted) -> Finding {
    let need = wanted.memory_len();
    let [soft, hard] = host.memlock();
    let Some(soft) = soft else { return LOCK.ok("without limit") };
    if host.has_capability(CAP_IPC_LOCK) {
        return LOCK.ok(format!("{}, which does not hold for root", mib(soft)));
    }
    let seen = format!("{} may be locked, {} wanted and the device's queues", mib(soft), mib(need));
    // A device locks its queues, too.
    let least = if wanted.asks_for_device() { need + need / 4 } else { need };
    let lock = wanted.config.memory().lock;
    if soft >= least || !wanted.asks_for_device() && lock == Lock::Never {
        return LOCK.ok(seen);
    }
    let fix = if host.is_container() {
        Fix::new("docker run --ulimit memlock=-1:-1 IMAGE").note("when the container is started")
    } else if hard.is_none() {
        Fix::new("ulimit -l unlimited").note("in this shell; a unit: LimitMEMLOCK=infinity")
    } else {
        host.root_fix("echo \"* - memlock unlimited\" >> /etc/security/limits.d/rdma.conf")
            .note("then log in again; a unit: LimitMEMLOCK=infinity")
    };
    // The fabric runs with memory that is not locked, unless the configuration insists.
    let needs = wanted.asks_for_device() || lock == Lock::Always;
    let severity = if needs { Severity::Error } else { Severity::Hint };
    LOCK.at(severity, seen, fix)
}

fn swap(host: &Host<'_>, wanted: &Wanted) -> Option<Finding> {
    let text = host.text("proc/swaps")?;
    let devices = text.lines().skip(1).count();
    if devices == 0 || wanted.config.memory().lock != Lock::Never {
        return Some(SWAP.ok(if devices == 0 {
            "none"
        } else {
            "there is some; memory is locked, as far as the limit goes"
        }));
    }
    Some(SWAP.hint("there is some, and memory.lock is off", host.kernel_fix("swapoff -a")))
}

fn balancing(host: &Host<'_>) -> Option<Finding> {
    let on = host.number("proc/sys/kernel/numa_balancing")? != 0;
    if host.topology.nodes.len() < 2 {
        return None;
    }
    if !on {
        return Some(BALANCING.ok("off"));
    }
    Some(BALANCING.warning("on", host.kernel_fix("sysctl -w kernel.numa_balancing=0")))
}

fn merging(host: &Host<'_>) -> Option<Finding> {
    if host.number("sys/kernel/mm/ksm/run")? != 1 {
        return None;
    }
    let fix = host.kernel_fix("echo 2 > /sys/kernel/mm/ksm/run");
    Some(MERGING.hint("the kernel merges equal pages", fix))
}

/// Whether the configuration needs reserved huge pages.
fn is_reserved(wanted: &Wanted) -> bool {
    matches!(wanted.config.memory().pages, Pages::TwoMiB | Pages::OneGiB)
}

fn page_len(wanted: &Wanted) -> u64 {
    if wanted.config.memory().pages == Pages::OneGiB { 1 << 30 } else { 2 << 20 }
}

/// As many as hold the memory, and one more for each region, which begins a page of its own.
fn pages_needed(wanted: &Wanted) -> u64 {
    wanted.memory_len().div_ceil(page_len(wanted)) + REGIONS * wanted.shards()
}

/// The nodes whose memory the shards take: those of their cores, or all.
fn nodes(host: &Host<'_>, wanted: &Wanted) -> Vec<u32> {
    let cores = wanted.cores(host);
    let mut nodes: Vec<u32> = if wanted.config.engine().numa_bind {
        cores.iter().filter_map(|core| host.topology.core(*core)).map(|core| core.node).collect()
    } else {
        host.topology.nodes.iter().map(|node| node.id).collect()
    };
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

fn free_pages(host: &Host<'_>, wanted: &Wanted) -> u64 {
    let free = |node| number_of_pages(host, node, page_len(wanted), "free_hugepages");
    nodes(host, wanted).into_iter().map(free).sum()
}

fn number_of_pages(host: &Host<'_>, node: u32, len: u64, file: &str) -> u64 {
    host.number(&format!("{}/{file}", folder(host, node, len))).unwrap_or(0)
}

/// Where the pages of a node are counted; a kernel without nodes counts all together.
fn folder(host: &Host<'_>, node: u32, len: u64) -> String {
    let name = format!("hugepages-{}kB", len >> 10);
    let of_node = format!("sys/devices/system/node/node{node}/hugepages/{name}");
    if host.has(&of_node) { of_node } else { format!("sys/kernel/mm/hugepages/{name}") }
}

fn boot_len(len: u64) -> &'static str {
    if len == 1 << 30 { "1G" } else { "2M" }
}

/// Bytes for people: whole MiB from one MiB on.
fn mib(bytes: u64) -> String {
    match bytes {
        0..MIB => Length(bytes.next_multiple_of(1024)).to_string(),
        _ => format!("{} MiB", bytes.div_ceil(MIB)),
    }
}

const MIB: u64 = 1 << 20;
/// Regions of a shard: what is received, sent, padded with, read into, and the program's own.
const REGIONS: u64 = 5;
/// Who has it may lock without limit.
const CAP_IPC_LOCK: u32 = 14;

subjects! {
    ROOM = "memory": "All buffers are allocated at the start; without enough memory the engine does not start.";
    PAGES = "huge-pages":
        "Small pages miss in the TLBs of processor and device, which costs up to half of the speed.";
    TRANSPARENT = "transparent-huge-pages":
        "Without reserved pages the kernel can still use large ones; assembling them takes time.";
    LOCK = "memlock":
        "A device needs memory that does not move; above the limit, registration fails.";
    SWAP = "swap": "A swapped page returns in milliseconds.";
    BALANCING = "numa-balancing":
        "The kernel unmaps pages to sample their use, which causes page faults during calls.";
    MERGING = "page-merging":
        "A kernel thread scans all memory and takes caches and a core.";
}
