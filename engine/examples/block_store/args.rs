//! The command line, and the configuration that it makes.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::Parser;
use rpcrdma::storage::StorageOptions;
use rpcrdma::{Address, Config, provider_for};
use rpcrdma_config::units::parse_length;
use rpcrdma_config::{ProviderKind, Raw};

use crate::server::BLOCK_MAX;
use crate::{Outcome, SEGMENT_LEN};

/// Writes a file in blocks to a server, reads it back, and compares every byte.
#[derive(Debug, Clone, Parser)]
#[command(name = "block_store")]
pub struct Args {
    /// The file.
    #[arg(long, required_unless_present = "listen")]
    pub file: Option<PathBuf>,
    /// Where the server keeps its data: a directory, or a new file, which stays; without it a
    /// temporary file next to FILE, or in the current directory.
    #[arg(long, value_name = "PATH", conflicts_with = "connect")]
    pub store: Option<PathBuf>,
    /// One block length, 4KiB to 1MiB, a multiple of 4KiB; without it five of them.
    #[arg(long, value_name = "LENGTH", value_parser = block)]
    pub block: Option<u64>,
    /// Calls under way at a time.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub window: u32,
    /// Clients that a server serves at a time.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub connections: u32,
    /// Threads that write and read the store's file, where there is no io_uring.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: u32,
    /// Segments of 64 KiB that may be at the disk at a time; without it enough.
    #[arg(long, value_name = "N")]
    pub spares: Option<u32>,
    /// What carries the messages; without it what the address is of, or the fabric.
    #[arg(long, value_parser = ["fabric", "shm", "tcp", "verbs"])]
    pub provider: Option<String>,
    /// Only serve: here, until a signal comes.
    #[arg(short, long, value_name = "ADDR:PORT|shm:PATH", conflicts_with_all = ["connect", "file"])]
    pub listen: Option<Address>,
    /// Only call: the server there, with options as it has.
    #[arg(short, long, value_name = "ADDR:PORT|shm:PATH")]
    pub connect: Option<Address>,
    /// An address of the RDMA device.
    #[arg(short, long, value_name = "IP")]
    pub address: Option<IpAddr>,
    /// The RDMA device; without it the one that has the address.
    #[arg(short, long, value_name = "NAME")]
    pub device: Option<String>,
    /// Serve metrics for Prometheus here, over HTTP at /metrics.
    #[arg(long, value_name = "ADDR:PORT", conflicts_with_all = ["connect", "file"])]
    pub metrics: Option<SocketAddr>,
}

impl Args {
    /// The configuration of both ends.
    ///
    /// # Errors
    /// If the device is not named, or the provider cannot do it.
    pub fn config(&self, is_continued: bool) -> Outcome<Config> {
        let (window, clients) = (i64::from(self.window), i64::from(self.connections));
        let longest = self.block.unwrap_or(BLOCK_MAX as u64).div_ceil(SEGMENT_LEN) as i64;
        // With continuation, messages are continued from 128 KiB on; without, a block must fit a
        // buffer.
        let segments = if is_continued { 2 } else { longest };
        let transmissions = (longest + segments - 1) / segments;
        // A window of the longest messages and one more; the profile's longest message has 16.
        let credits = (window * transmissions + 1).max(16);
        let mut raw = Raw::default();
        raw.engine.idle.policy = "backoff".into();
        raw.engine.idle.spin = "50us".into();
        self.choose_provider(&mut raw)?;
        raw.receive.placement.count = segments;
        raw.receive.placement.length = format!("{SEGMENT_LEN}B").into();
        raw.receive.placement.align = "4KiB".into();
        raw.receive.spares = self.spares.map_or(clients * window * longest, i64::from);
        raw.receive.replies = (credits as u32).into();
        raw.connections.max = clients;
        raw.connections.credits = credits;
        raw.connections.credits_requested = credits;
        raw.connections.calls_max = window;
        raw.features.continuation = is_continued;
        raw.app.bulk.count = 2 * clients * window;
        raw.app.bulk.length = format!("{}B", longest as u64 * SEGMENT_LEN).into();
        let config = Config::try_from(raw)?;
        match (config.engine().provider, self.listen.or(self.connect)) {
            (ProviderKind::Fabric, Some(_)) => Err(ONE_PROCESS.into()),
            (ProviderKind::Verbs, None) if self.address.is_none() => Err(NO_ADDRESS.into()),
            _ => Ok(config),
        }
    }

    /// How a shard drives the store's file.
    pub fn storage(&self) -> StorageOptions {
        let depth = self.window * self.connections;
        StorageOptions { depth, files: 1, threads: self.threads, ..StorageOptions::default() }
    }

    /// The file, which only a server does without.
    pub fn file(&self) -> &Path {
        self.file.as_deref().unwrap_or(Path::new(""))
    }

    /// Names the provider, and the device if it is one.
    fn choose_provider(&self, raw: &mut Raw) -> Outcome {
        self.provider.iter().for_each(|name| raw.engine.provider = name.as_str().into());
        self.device.iter().for_each(|name| raw.verbs.device = name.as_str().into());
        self.address.iter().for_each(|at| raw.verbs.address = at.to_string().into());
        let config = Config::try_from(raw.clone())?;
        let kind = provider_for(&config, self.listen.or(self.connect));
        raw.engine.provider = kind.as_str().into();
        // The address to listen on selects the device, if nothing else does.
        let listens_at = self.listen.and_then(|at| at.as_ip()).map(|at| at.ip());
        let listens_at = listens_at.filter(|at| !at.is_unspecified());
        let is_named = self.device.is_some() || self.address.is_some();
        if let (ProviderKind::Verbs, false, Some(address)) = (kind, is_named, listens_at) {
            raw.verbs.address = address.to_string().into();
        }
        Ok(())
    }
}

pub fn block(text: &str) -> Result<u64, String> {
    let len = parse_length(text).map_err(|why| why.to_string())?;
    let is_possible = (4096..=BLOCK_MAX as u64).contains(&len) && len.is_multiple_of(4096);
    is_possible.then_some(len).ok_or_else(|| "4KiB to 1MiB, in multiples of 4KiB".to_owned())
}

const ONE_PROCESS: &str = "the fabric ends with this process: --listen and --connect want an address of shared memory \
     (shm:/PATH), or --provider tcp or verbs";
const NO_ADDRESS: &str = "both ends on one device: --address says at which of its addresses";
