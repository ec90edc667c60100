//! The system: virtualisation, watchdog, and the build of this program.

use super::finding::{Finding, Fix, Severity, subjects};
use super::host::Host;

/// Things that bear on everything.
pub fn findings(host: &Host<'_>) -> Vec<Finding> {
    let mut found = vec![build(host), place(host)];
    found.extend(stolen(host));
    found.extend(watchdog(host));
    found
}

fn build(host: &Host<'_>) -> Finding {
    if host.ask().is_optimised() {
        return BUILD.ok("an optimised build");
    }
    let fix = Fix::new("cargo build --release -p rpcrdma-bench");
    BUILD.warning("not an optimised build", fix.note("then target/release/rpcrdma-bench"))
}

fn place(host: &Host<'_>) -> Finding {
    let kind = match (host.is_virtual(), host.is_container()) {
        (true, true) => "a container in a virtual machine",
        (true, false) => "a virtual machine",
        (false, true) => "a container",
        (false, false) => return PLACE.ok("a machine of its own"),
    };
    if !host.is_virtual() {
        return PLACE.ok(kind);
    }
    let fix = Fix::new("virsh vcpupin GUEST 0 2; virsh vcpupin GUEST 1 3");
    PLACE.hint(kind, fix.note("on the machine below, if it is yours: a core for each virtual one"))
}

/// The share of the time since the start that the machine below gave to others.
fn stolen(host: &Host<'_>) -> Option<Finding> {
    let text = host.text("proc/stat")?;
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let times: Vec<u64> = line.split_whitespace().filter_map(|time| time.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; the guests' are in user and nice.
    let (all, stolen) = (times.iter().take(8).sum::<u64>(), *times.get(7)?);
    if !host.is_virtual() || all == 0 {
        return None;
    }
    let share = stolen as f64 * 100.0 / all as f64;
    let seen = format!("{share:.2} % of the time since the start was given to other guests");
    let severity = if share > STOLEN_MAX { Severity::Warning } else { Severity::Ok };
    let fix = Fix::new("vmstat 1 5").note("column st; a guest with dedicated cores has none");
    Some(STOLEN.at(severity, seen, fix))
}

fn watchdog(host: &Host<'_>) -> Option<Finding> {
    let on = host.number("proc/sys/kernel/nmi_watchdog")? != 0;
    if !on || host.topology.isolated().next().is_none() {
        return None;
    }
    Some(WATCHDOG.hint("on", host.kernel_fix("sysctl -w kernel.nmi_watchdog=0")))
}

/// Percent; more shows in the tails.
const STOLEN_MAX: f64 = 0.5;

subjects! {
    BUILD = "build": "Without optimisation everything takes several times longer.";
    PLACE = "machine": "Times in a guest are valid for guests only; ratios within one run are valid anywhere.";
    STOLEN = "steal":
        "A virtual core that is not running stalls all calls for milliseconds.";
    WATCHDOG = "watchdog": "It interrupts every core every few seconds, including isolated ones.";
}
