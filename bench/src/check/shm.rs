//! Shared memory: what its connections and its wake-ups need.

use rpcrdma_config::IdlePolicy;

use super::finding::{Finding, Fix, Subject, subjects};
use super::host::Host;
use super::wanted::Wanted;

pub fn findings(host: &Host<'_>, wanted: &Wanted) -> Vec<Finding> {
    vec![open_files(FILES, EACH, host, wanted), wake(host, wanted)]
}

/// Whether `each` descriptors for every connection may be open.
pub fn open_files(files: Subject, each: u64, host: &Host<'_>, wanted: &Wanted) -> Finding {
    let connections = u64::from(wanted.config.connections().max.value()) * wanted.shards();
    let need = each * connections + OTHERS;
    let [soft, hard] = host.limit("Max open files");
    let Some(soft) = soft else { return files.ok("without limit") };
    let seen = format!("{soft} files may be open, {connections} connection(s) need {need}");
    if soft >= need {
        return files.ok(seen);
    }
    let fix = if hard.is_none_or(|hard| hard >= need) {
        Fix::new(format!("ulimit -n {need}")).note("in this shell; a unit: LimitNOFILE")
    } else {
        host.root_fix(&format!("echo \"* - nofile {need}\" >> /etc/security/limits.d/rdma.conf"))
            .note("then log in again; a unit: LimitNOFILE")
    };
    files.error(seen, fix)
}

fn wake(host: &Host<'_>, wanted: &Wanted) -> Finding {
    let kernel = host.kernel();
    let mut numbers = kernel.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let version = [numbers.next(), numbers.next()].map(|number| number?.ok());
    let seen = format!("Linux {kernel}");
    match version {
        [Some(major), Some(minor)] if (major, minor) < MEMBARRIER => {
            let fix = wanted.set("policy", "\"spin\"").note("or a kernel of version 4.16 or later");
            match wanted.config.engine().idle.policy {
                IdlePolicy::Block => WAKE.warning(seen, fix),
                _ => WAKE.ok(format!("{seen}; no thread sleeps")),
            }
        }
        _ => WAKE.ok(seen),
    }
}

/// Descriptors of a connection.
const EACH: u64 = 2;
/// Descriptors of everything else.
const OTHERS: u64 = 64;
/// The first kernel with a barrier across processes.
const MEMBARRIER: (u32, u32) = (4, 16);

subjects! {
    FILES = "shm-files": "Without descriptors no further connection over shared memory is made.";
    WAKE = "shm-wake":
        "Without a memory barrier across processes, sleeping threads look for messages every 200 us.";
}
