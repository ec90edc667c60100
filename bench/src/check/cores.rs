//! Cores: number, hardware threads, NUMA nodes, isolation, interrupts and load.

use rpcrdma_mempool::pin::CoreList;

use super::finding::{Finding, Fix, Severity, subjects};
use super::host::Host;
use super::wanted::Wanted;

pub fn findings(host: &Host<'_>, wanted: &Wanted) -> Vec<Finding> {
    let cores = wanted.cores(host);
    let mut found = vec![count(host)];
    found.extend(siblings(host, &cores));
    found.extend(nodes(host, &cores));
    found.extend(quota(host));
    found.push(isolation(host, &cores));
    found.push(interrupts(host, &cores));
    found.push(load(host));
    found.extend(pressure(host));
    found
}

fn count(host: &Host<'_>) -> Finding {
    let (allowed, online) = (host.ask().allowed_cores(), host.topology.cores.len());
    let seen = format!("{} of {online} cores may be used", allowed.len());
    match allowed.len() {
        2.. => COUNT.ok(seen),
        _ if online >= 2 => {
            let all = host.topology.cores.iter().map(|core| core.id).collect();
            COUNT.error(seen, Fix::new(format!("taskset -c {} rpcrdma-bench lat", CoreList(all))))
        }
        _ => COUNT.error(seen, Fix::new("nproc").note("run it where this says 2 or more")),
    }
}

fn siblings(host: &Host<'_>, cores: &[u32]) -> Option<Finding> {
    let of = |core: u32| host.topology.core(core).map_or(&[][..], |core| &core.siblings);
    let shared = cores.iter().find_map(|one| {
        let other = of(*one).iter().find(|other| *other != one && cores.contains(other))?;
        Some((*one, *other))
    });
    if let Some((one, other)) = shared {
        let seen = format!("cores {one} and {other} are two threads of one core");
        let apart: Vec<u32> = whole_cores(host).into_iter().take(2).collect();
        let fix = match apart[..] {
            [a, b] => Fix::new(format!("rpcrdma-bench lat --cores {a},{b}")),
            _ => host.kernel_fix("echo off > /sys/devices/system/cpu/smt/control"),
        };
        return Some(SIBLINGS.warning(seen, fix));
    }
    let beside: Vec<u32> = cores
        .iter()
        .flat_map(|core| of(*core).iter().copied().filter(move |other| other != core))
        .filter(|other| host.topology.core(*other).is_some_and(|core| !core.isolated))
        .collect();
    if beside.is_empty() {
        return Some(SIBLINGS.ok(format!("cores {} are whole cores", CoreList(cores.to_vec()))));
    }
    let off: Vec<String> = beside
        .iter()
        .map(|core| format!("echo 0 > /sys/devices/system/cpu/cpu{core}/online"))
        .collect();
    let (cores, beside) = (CoreList(cores.to_vec()), CoreList(beside));
    let seen = format!("threads {beside} share the cores of {cores} and are used by others");
    Some(SIBLINGS.hint(seen, host.kernel_fix(&off.join("; "))))
}

/// The first thread of each core, the best first.
fn whole_cores(host: &Host<'_>) -> Vec<u32> {
    let allowed = host.ask().allowed_cores();
    let order = host.topology.cores_by_preference(None);
    let first = order
        .into_iter()
        .filter(|id| allowed.contains(id))
        .filter(|id| host.topology.core(*id).is_some_and(|core| core.siblings.first() == Some(id)));
    first.collect()
}

fn nodes(host: &Host<'_>, cores: &[u32]) -> Option<Finding> {
    if host.topology.nodes.len() < 2 {
        return None;
    }
    let node = |core: &u32| host.topology.core(*core).map(|core| core.node);
    let first = cores.first().and_then(node)?;
    let Some(other) = cores.iter().find(|core| node(core) != Some(first)) else {
        let seen = format!("cores {} are on node {first}", CoreList(cores.to_vec()));
        return Some(NODES.ok(seen));
    };
    let near = host.topology.nodes.iter().find(|node| node.id == first)?;
    let allowed = host.ask().allowed_cores();
    let near: Vec<u32> =
        near.cores.iter().copied().filter(|core| allowed.contains(core)).take(2).collect();
    let seen = format!("core {} is on node {first}, core {other} is not", cores[0]);
    let fix = match near[..] {
        [a, b] => Fix::new(format!("rpcrdma-bench lat --cores {a},{b}")),
        _ => Fix::new("lscpu --extended=CPU,NODE").note("shows the node of every core"),
    };
    Some(NODES.warning(seen, fix))
}

/// A container may be given a share of the time of its cores, and is stopped when it is used up.
fn quota(host: &Host<'_>) -> Option<Finding> {
    let text = host.text("sys/fs/cgroup/cpu.max")?;
    let (quota, period) = text.split_once(' ')?;
    let Ok(quota) = quota.parse::<f64>() else {
        return Some(QUOTA.ok("no limit on processor time"));
    };
    let period: f64 = period.trim().parse().ok()?;
    let seen = format!("{:.1} cores' worth of time in each {:.0} ms", quota / period, period / 1e3);
    let fix = Fix::new("docker update --cpus 0 CONTAINER").note("on the host; a unit: CPUQuota=");
    Some(QUOTA.warning(seen, fix))
}

fn isolation(host: &Host<'_>, cores: &[u32]) -> Finding {
    let list = CoreList(cores.to_vec());
    let isolated = |core: &u32| host.topology.core(*core).is_some_and(|core| core.isolated);
    let options = format!("isolcpus={list} nohz_full={list} rcu_nocbs={list}");
    if !cores.iter().all(isolated) {
        let seen = format!("cores {list} are shared with every other program");
        // Two cores cannot both be given away.
        if host.topology.cores.len() <= cores.len() {
            let fix = Fix::new("uptime").note("keep the load near 0 while it measures");
            return ISOLATION.hint(format!("{seen}, and there are no others"), fix);
        }
        return ISOLATION.hint(seen, host.boot_fix(&options));
    }
    let nohz = host.text("sys/devices/system/cpu/nohz_full").unwrap_or_default();
    let tickless = cores_of(&nohz);
    // nohz_full takes the callbacks of RCU along.
    let quiet = |core: &u32| {
        tickless.contains(core)
            || cores_of(&host.boot_option("rcu_nocbs").unwrap_or_default()).contains(core)
    };
    if !cores.iter().all(|core| tickless.contains(core)) {
        let rcu = if cores.iter().all(quiet) { "" } else { " and the callbacks of RCU" };
        let seen = format!("cores {list} are isolated, and keep the timer tick{rcu}");
        let options = format!("nohz_full={list} rcu_nocbs={list}");
        return ISOLATION.hint(seen, host.boot_fix(&options));
    }
    ISOLATION.ok(format!("cores {list} are isolated, without tick"))
}

fn interrupts(host: &Host<'_>, cores: &[u32]) -> Finding {
    let balanced = host.names("proc").iter().any(|process| {
        process.starts_with(|first: char| first.is_ascii_digit())
            && host.text(&format!("proc/{process}/comm")).as_deref() == Some("irqbalance")
    });
    let lines = host.names("proc/irq");
    let here = lines.iter().filter(|line| {
        let path = format!("proc/irq/{line}/effective_affinity_list");
        let of_line = host.text(&path).map(|text| cores_of(&text)).unwrap_or_default();
        cores.iter().any(|core| of_line.contains(core))
    });
    let (here, list) = (here.count(), CoreList(cores.to_vec()));
    let seen = format!("{here} interrupt lines go to cores {list}");
    if balanced {
        let seen = format!("irqbalance runs and moves interrupts at will; {seen}");
        return INTERRUPTS.hint(seen, host.kernel_fix("systemctl stop irqbalance"));
    }
    let others: Vec<u32> = (host.topology.cores.iter().map(|core| core.id))
        .filter(|core| !cores.contains(core))
        .collect();
    if here == 0 || others.is_empty() {
        return INTERRUPTS.ok(seen);
    }
    let (others, command) = (CoreList(others), "for i in /proc/irq/[0-9]*; do echo");
    let fix = host.kernel_fix(&format!("{command} {others} > $i/smp_affinity_list; done"));
    INTERRUPTS.hint(seen, fix.note("lines that cannot be moved say so"))
}

fn load(host: &Host<'_>) -> Finding {
    let text = host.text("proc/loadavg").unwrap_or_default();
    let Some(load) = text.split(' ').next().and_then(|load| load.parse::<f64>().ok()) else {
        return LOAD.ok("not to be seen");
    };
    let spare = host.topology.cores.len().saturating_sub(2) as f64;
    let seen = format!("load {load:.2} on {} cores", host.topology.cores.len());
    let fix = Fix::new("ps -eo pid,psr,pcpu,comm --sort=-pcpu | head");
    let severity = if load > spare.max(0.5) { Severity::Warning } else { Severity::Ok };
    LOAD.at(severity, seen, fix.note("shows who works; stop or move it"))
}

/// The kernel's own measure of waiting for a core, where it keeps one.
fn pressure(host: &Host<'_>) -> Option<Finding> {
    let text = host.text("proc/pressure/cpu")?;
    let line = text.lines().find(|line| line.starts_with("some"))?;
    let waited = line.split(' ').find_map(|part| part.strip_prefix("avg10="))?;
    let waited: f64 = waited.parse().ok()?;
    let seen = format!("threads waited for a core in {waited:.1} % of the last 10 s");
    let fix = Fix::new("ps -eo pid,psr,pcpu,comm --sort=-pcpu | head");
    let severity = if waited > 10.0 { Severity::Warning } else { Severity::Ok };
    Some(PRESSURE.at(severity, seen, fix.note("shows who works; stop or move it")))
}

/// A list as the kernel writes it: `0-3,8`; what is none is empty.
fn cores_of(text: &str) -> Vec<u32> {
    let cores = rpcrdma_config::units::parse_cores(text.trim()).unwrap_or_default();
    cores.into_iter().filter_map(|core| u32::try_from(core).ok()).collect()
}

subjects! {
    COUNT = "cores":
        "A client and a server that spin need a core each; on one core they alternate in milliseconds.";
    SIBLINGS = "siblings":
        "Two hardware threads share execution units and caches: neither runs at full speed.";
    NODES = "core-nodes": "A cache line from another node takes two to three times longer.";
    QUOTA = "cpu-quota":
        "A spinning thread uses up the quota and then stops for the rest of the period.";
    ISOLATION = "isolation":
        "Everything else on the core, including the tick, shows in the tail: p99.9 and above.";
    INTERRUPTS = "interrupts":
        "An interrupt takes the core for some microseconds during a round trip.";
    LOAD = "load": "Another program takes the core for milliseconds at a time.";
    PRESSURE = "pressure":
        "A thread that waits for a core competes with the benchmark for its cores.";
}
