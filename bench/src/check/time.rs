//! Clock source, timer tick, and the jitter that a spinning thread sees.

use super::finding::{Finding, Fix, Severity, subjects};
use super::host::Host;
use super::wanted::Wanted;
use crate::machine::{CorePair, Jitter};

/// What a thread sees that spins on the first two cores to be used, if one may.
pub fn probe(host: &Host<'_>, wanted: &Wanted) -> Option<[Jitter; 2]> {
    match wanted.cores(host)[..] {
        [client, server, ..] => host.ask().jitter(CorePair { client, server }),
        _ => None,
    }
}

/// The clock, the tick, and the jitter of the cores that are to be used.
pub fn findings(host: &Host<'_>, probed: Option<&[Jitter; 2]>) -> Vec<Finding> {
    let mut found = vec![clock(host)];
    found.extend(tick(host, probed));
    found.extend(probed.map(|probed| jitter(host, probed)));
    found
}

fn clock(host: &Host<'_>) -> Finding {
    let folder = "sys/devices/system/clocksource/clocksource0";
    let Some(source) = host.text(&format!("{folder}/current_clocksource")) else {
        return CLOCK.ok("not to be seen");
    };
    // These are read without a system call, in some tens of nanoseconds.
    if ["tsc", "arch_sys_counter"].contains(&&*source) {
        return CLOCK.ok(source);
    }
    let available = host.text(&format!("{folder}/available_clocksource")).unwrap_or_default();
    let fix = if available.split(' ').any(|name| name == "tsc") {
        host.kernel_fix(&format!("echo tsc > /{folder}/current_clocksource"))
    } else {
        host.boot_fix("tsc=reliable").note("if the kernel's reason in dmesg allows it")
    };
    let fast = ["kvm-clock", "hyperv_clocksource_tsc_page"].contains(&&*source);
    let severity = if fast { Severity::Hint } else { Severity::Warning };
    CLOCK.at(severity, format!("the kernel's clock is {source}; available: {available}"), fix)
}

fn tick(host: &Host<'_>, probed: Option<&[Jitter; 2]>) -> Option<Finding> {
    let configured = configured_hz(host);
    let gaps =
        probed.map(|probed| probed.map(|core| core.gaps_per_second).iter().sum::<f64>() / 2.0);
    let seen = match (configured, gaps) {
        (Some(hz), Some(gaps)) => {
            format!("{hz} ticks a second; {gaps:.0} gaps of more than 5 us a second were seen")
        }
        (Some(hz), None) => format!("{hz} ticks a second"),
        (None, Some(gaps)) => format!("{gaps:.0} gaps of more than 5 us a second were seen"),
        (None, None) => return None,
    };
    let rate = gaps.unwrap_or_else(|| f64::from(configured.unwrap_or_default()));
    if rate < QUIET_HZ {
        return Some(TICK.ok(seen));
    }
    let fix = Fix::new("rpcrdma-bench floor")
        .note("shows the tail of this machine without any protocol: compare tails with it only");
    Some(TICK.hint(seen, fix))
}

/// What the kernel was built with, where its configuration lies beside it.
fn configured_hz(host: &Host<'_>) -> Option<u32> {
    let release = host.kernel();
    let config = host
        .text(&format!("boot/config-{release}"))
        .or_else(|| host.text(&format!("lib/modules/{release}/config")))?;
    config.lines().find_map(|line| line.strip_prefix("CONFIG_HZ="))?.parse().ok()
}

fn jitter(host: &Host<'_>, probed: &[Jitter; 2]) -> Finding {
    let longest = probed.iter().map(|core| core.longest_ns).max().unwrap_or_default();
    let lost = probed.iter().map(|core| core.lost_share).fold(0.0, f64::max) * 100.0;
    let seen = format!("longest gap {} us, {lost:.2} % of the time lost", longest / 1000);
    let Some(noise) = probed.iter().find_map(Jitter::noise) else { return JITTER.ok(seen) };
    let fix = if host.is_virtual() {
        Fix::new("grep ^cpu /proc/stat")
            .note("the eighth number is time stolen by the host; else see `load` and `interrupts`")
    } else {
        Fix::new("ps -eo pid,psr,pcpu,comm --sort=-pcpu | head").note("see `load`, `interrupts`")
    };
    JITTER.warning(format!("{noise}; {seen}"), fix)
}

/// Fewer gaps a second are no tick.
const QUIET_HZ: f64 = 50.0;

subjects! {
    CLOCK = "clock":
        "Every sample reads the clock twice; a clock behind a system call costs more than a message.";
    TICK = "tick":
        "Each tick takes the core for 2 to 25 us, which sets p99.9 and p99.99 of a short call.";
    JITTER = "jitter":
        "Whatever interrupts a spinning thread also interrupts a round trip.";
}
