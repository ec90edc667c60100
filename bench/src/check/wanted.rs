//! The requirements: a configuration, a device, and cores.

use std::net::IpAddr;
use std::path::PathBuf;

use rpcrdma::ProviderKind;
use rpcrdma_config::{Config, ConfigError, Cores, IdlePolicy};
use rpcrdma_mempool::pin::CoreList;

use super::finding::{Finding, Fix, subjects};
use super::host::Host;
use crate::machine::{CorePair, pick};
use crate::settings;

#[derive(Debug, Clone)]
pub struct Wanted {
    pub config: Config,
    pub source: Source,
    /// Those asked for, and not only looked for: by the configuration, and by the options.
    pub providers: Vec<ProviderKind>,
    pub device: Option<String>,
    pub address: Option<IpAddr>,
    pub cores: Option<CorePair>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The built-in default of the bench.
    Default,
    Profile(String),
    File(PathBuf),
}

impl Wanted {
    /// The default: profile `latency`, any device.
    pub fn new(source: Source) -> Result<Wanted, ConfigError> {
        let config = match &source {
            Source::Default => Config::profile("latency")?,
            Source::Profile(name) => Config::profile(name)?,
            Source::File(path) => settings::file(path)?,
        };
        Ok(Wanted {
            providers: vec![config.engine().provider],
            device: config.verbs().device.clone(),
            address: config.verbs().address,
            cores: None,
            config,
            source,
        })
    }

    /// Whether this provider is asked for.
    pub fn asks_for(&self, kind: ProviderKind) -> bool {
        self.providers.contains(&kind)
    }

    /// Whether an RDMA device is asked for.
    pub fn asks_for_device(&self) -> bool {
        self.asks_for(ProviderKind::Verbs)
    }

    /// The cores that are looked at: those asked for, those of the configuration, or those that the
    /// bench would take; sorted.
    pub fn cores(&self, host: &Host<'_>) -> Vec<u32> {
        let mut cores = self.chosen(host);
        cores.sort_unstable();
        cores
    }

    fn chosen(&self, host: &Host<'_>) -> Vec<u32> {
        if let Some(cores) = self.cores {
            return cores.both().to_vec();
        }
        if let Cores::List(cores) = &self.config.engine().cores {
            return cores.iter().filter_map(|core| u32::try_from(*core).ok()).collect();
        }
        let allowed = host.ask().allowed_cores();
        if allowed.len() < 2 {
            return allowed;
        }
        pick(&allowed, &host.topology).both().to_vec()
    }

    /// Engines that the memory is for: both ends of a benchmark, or the shards of a deployment.
    pub fn shards(&self) -> u64 {
        let shards = u64::from(self.config.engine().shards.value());
        match self.source {
            Source::Default => 2 * shards,
            _ => shards,
        }
    }

    /// Bytes that all shards ask for, before they are rounded up to pages.
    pub fn memory_len(&self) -> u64 {
        self.config.shard_memory_len() * self.shards()
    }

    pub fn set(&self, key: &str, value: &str) -> Fix {
        let value = value.replace('"', "\\\"");
        let command = |file: &str| format!("sed -i \"s/^{key} = .*/{key} = {value}/\" {file}");
        match &self.source {
            Source::File(path) => Fix::new(command(&path.display().to_string())),
            _ => Fix::new(command("CONFIG")).note("in a file of yours, given by --config"),
        }
    }

    pub fn title(&self) -> String {
        let shards = self.shards();
        match &self.source {
            Source::Default => "profile latency, both ends of a benchmark".to_owned(),
            Source::Profile(name) => format!("profile {name}, {shards} shard(s)"),
            Source::File(path) => format!("{}, {shards} shard(s)", path.display()),
        }
    }
}

/// What the configuration asks for and the host has not.
pub fn findings(host: &Host<'_>, wanted: &Wanted) -> Vec<Finding> {
    let mut found = vec![cores_there(host, wanted), shards(host, wanted)];
    if wanted.asks_for_device() {
        found.push(rnr(wanted));
    }
    found
}

fn cores_there(host: &Host<'_>, wanted: &Wanted) -> Finding {
    let allowed = host.ask().allowed_cores();
    let asked = wanted.cores(host);
    let absent: Vec<u32> = asked.iter().copied().filter(|core| !allowed.contains(core)).collect();
    let usable = CoreList(allowed.clone());
    if absent.is_empty() {
        return CORES.ok(format!("cores {} are there ({})", CoreList(asked), wanted.title()));
    }
    let seen =
        format!("core {} is not among {usable}, which this program may use", CoreList(absent));
    let online: Vec<u32> = host.topology.cores.iter().map(|core| core.id).collect();
    let fix = if asked.iter().all(|core| online.contains(core)) {
        Fix::new(format!("taskset -c {} rpcrdma-bench check", CoreList(online)))
            .note("or give the container or the unit these cores")
    } else {
        wanted.set("cores", &format!("\"{usable}\"")).note("or other --cores")
    };
    CORES.error(seen, fix)
}

fn shards(host: &Host<'_>, wanted: &Wanted) -> Finding {
    let engine = wanted.config.engine();
    let (shards, allowed) = (engine.shards.as_usize(), host.ask().allowed_cores().len());
    let policy = match engine.idle.policy {
        IdlePolicy::Spin => "spin",
        IdlePolicy::Backoff => "backoff",
        IdlePolicy::Block => "block",
    };
    let seen = format!("{shards} shard(s) that {policy} when idle, {allowed} core(s)");
    if shards <= allowed {
        return SHARDS.ok(seen);
    }
    let fix = wanted.set("shards", &allowed.to_string());
    match engine.idle.policy {
        IdlePolicy::Spin => SHARDS.error(seen, fix.note("or engine.idle.policy = \"block\"")),
        _ => SHARDS.hint(seen, fix),
    }
}

fn rnr(wanted: &Wanted) -> Finding {
    let timer = wanted.config.verbs().rnr_timer.span();
    let retries = wanted.config.connections().rnr_retry.value();
    let seen = format!("rnr_timer {timer:?}, rnr_retry {retries}");
    if timer.as_millis() >= 1 {
        return RNR.warning(seen, wanted.set("rnr_timer", "\"10us\""));
    }
    if retries < 7 {
        let seen = format!("{seen}: then the connection is lost");
        return RNR.hint(seen, wanted.set("rnr_retry", "7"));
    }
    RNR.ok(seen)
}

subjects! {
    CORES = "config-cores": "A shard does not start if its core is not available.";
    SHARDS = "config-shards":
        "Shards that spin on a shared core wait for each other's time slices of milliseconds.";
    RNR = "config-rnr":
        "A Send without a Receive waits for this time; a long time turns one miss into a stall.";
}
