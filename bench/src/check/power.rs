//! Frequencies and sleep states of the cores.

use rpcrdma_config::IdlePolicy;

use super::finding::{Finding, Severity, subjects};
use super::host::Host;
use super::wanted::Wanted;

/// Frequencies and sleep of the cores that are to be used.
pub fn findings(host: &Host<'_>, wanted: &Wanted) -> Vec<Finding> {
    let cores = wanted.cores(host);
    let mut found = vec![governor(host, &cores)];
    found.extend(turbo(host));
    found.extend(sleep(host, wanted, &cores));
    found.extend(throttled(host, &cores));
    found
}

fn governor(host: &Host<'_>, cores: &[u32]) -> Finding {
    let governors: Vec<(u32, String)> =
        cores.iter().filter_map(|core| Some((*core, host.governor(*core)?))).collect();
    let Some((core, governor)) = governors.iter().find(|(_, name)| name != "performance") else {
        return GOVERNOR.ok(match governors.is_empty() {
            true if host.is_virtual() => "none: the host of this virtual machine decides",
            true => "none: the frequency is fixed",
            false => "performance",
        });
    };
    let seen = format!("core {core} runs under `{governor}`");
    let command = "echo performance | tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor";
    GOVERNOR
        .warning(seen, host.kernel_fix(command).note("or cpupower frequency-set -g performance"))
}

fn turbo(host: &Host<'_>) -> Option<Finding> {
    let intel = "sys/devices/system/cpu/intel_pstate/no_turbo";
    let other = "sys/devices/system/cpu/cpufreq/boost";
    let (path, on, off) = match (host.number(intel), host.number(other)) {
        (Some(no_turbo), _) => (intel, no_turbo == 0, 1),
        (None, Some(boost)) => (other, boost == 1, 0),
        (None, None) => return None,
    };
    if !on {
        return Some(TURBO.ok("off"));
    }
    let seen = "on: as fast as heat and neighbours allow just then";
    Some(TURBO.hint(seen, host.kernel_fix(&format!("echo {off} > /{path}"))))
}

/// States of sleep that take long to wake up from.
fn sleep(host: &Host<'_>, wanted: &Wanted, cores: &[u32]) -> Option<Finding> {
    let mut deepest: Option<(u64, String)> = None;
    for core in cores {
        let folder = format!("sys/devices/system/cpu/cpu{core}/cpuidle");
        for state in host.names(&folder) {
            let latency = host.number(&format!("{folder}/{state}/latency")).unwrap_or(0);
            let disabled = host.number(&format!("{folder}/{state}/disable")) == Some(1);
            if !disabled && deepest.as_ref().is_none_or(|(most, _)| latency > *most) {
                let name = host.text(&format!("{folder}/{state}/name")).unwrap_or(state);
                deepest = Some((latency, name));
            }
        }
    }
    let (latency, name) = deepest?;
    let seen = format!("cores may sleep in {name}, {latency} us to wake up from");
    if latency <= SHALLOW_US {
        return Some(SLEEP.ok(seen));
    }
    // Who spins does not sleep.
    let spins = wanted.config.engine().idle.policy == IdlePolicy::Spin;
    let severity = if spins { Severity::Hint } else { Severity::Warning };
    let command = format!("cpupower idle-set --disable-by-latency {SHALLOW_US}");
    Some(SLEEP.at(severity, seen, host.kernel_fix(&command)))
}

fn throttled(host: &Host<'_>, cores: &[u32]) -> Option<Finding> {
    let of = |core: &u32| {
        let folder = format!("sys/devices/system/cpu/cpu{core}/thermal_throttle");
        host.number(&format!("{folder}/core_throttle_count"))
    };
    let counts: Vec<u64> = cores.iter().filter_map(of).collect();
    let most = counts.iter().max()?;
    let seen = format!("a core was slowed down for its heat {most} times since the start");
    let fix = super::finding::Fix::new("sensors").note("better cooling, or turbo off");
    let severity = if *most > 0 { Severity::Hint } else { Severity::Ok };
    Some(HEAT.at(severity, seen, fix))
}

/// A core that wakes up in this time hardly slept.
const SHALLOW_US: u64 = 10;

subjects! {
    GOVERNOR = "governor": "A core at low frequency is slow when a message arrives.";
    TURBO = "turbo":
        "Times then depend on temperature and other cores; ratios of interleaved rounds are valid.";
    SLEEP = "sleep-states": "A core in a deep sleep state wakes up late; a spinning core never sleeps.";
    HEAT = "heat": "A processor that is too hot slows down during a run.";
}
