//! A block store: a server that keeps a file, and a client that writes it in blocks, reads it back
//! and compares every byte.
//!
//! ```text
//!   client: file ─▶ registered block ═▶ WRITE ═▶ placement segments ─▶ write ─▶ file :server
//!           compared in place       ◀═ READ ◀═ registered block ◀─ read ◀─ file
//! ```
//! Neither end copies data: an RNIC moves what crosses `═▶`. The server's shard does not wait for
//! its file: it takes the segments that hold data out of their receive buffers, spares replace
//! them, and threads write them.

mod client;
mod disk;
mod server;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use client::{Block, Session};
use disk::Store;
use rpcrdma_config::units::{Length, parse_length};
use rpcrdma_config::{ProviderKind, Raw};
use rpcrdma_engine::verbs::Verbs;
use rpcrdma_engine::{Config, Fabric, Provider, Shm};
use server::BLOCK_MAX;

/// Writes a file in blocks to a server in this process, reads it back, and compares every byte.
#[derive(Debug, Clone, Parser)]
#[command(name = "block_store")]
struct Args {
    /// The file.
    #[arg(long)]
    file: PathBuf,
    /// Where the server keeps its data: a directory, or a new file, which stays; without it a
    /// temporary file next to FILE.
    #[arg(long, value_name = "PATH")]
    store: Option<PathBuf>,
    /// One block length, 4KiB to 1MiB, a multiple of 4KiB; without it five of them.
    #[arg(long, value_name = "LENGTH", value_parser = block)]
    block: Option<u64>,
    /// Calls under way at a time.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=64))]
    window: u32,
    /// Segments of 64 KiB that may be at the disk at a time; without it enough.
    #[arg(long, value_name = "N")]
    spares: Option<u32>,
    /// What carries the messages.
    #[arg(long, default_value = "fabric", value_parser = ["fabric", "shm", "verbs"])]
    provider: String,
    /// An address of the RDMA device.
    #[arg(short, long, value_name = "IP", required_if_eq("provider", "verbs"))]
    address: Option<IpAddr>,
    /// The RDMA device; without it the one that has the address.
    #[arg(short, long, value_name = "NAME")]
    device: Option<String>,
}

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    match run(&Args::parse(), &mut std::io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("block_store: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Every block length, with continuation and without.
fn run(args: &Args, out: &mut impl Write) -> Outcome {
    File::open(&args.file).map_err(|why| format!("{}: {why}", args.file.display()))?;
    let store = store(args)?;
    writeln!(out, "   block continuation write GB/s read GB/s  groups   taken spares out")?;
    for is_continued in [true, false] {
        let (config, store) = (config(args, is_continued)?, store.clone());
        match config.engine().provider {
            ProviderKind::Fabric => rows(Fabric::from_config(&config)?, config, args, store, out)?,
            ProviderKind::Shm => rows(Shm::from_config(&config)?, config, args, store, out)?,
            ProviderKind::Verbs => rows(Verbs::from_config(&config)?, config, args, store, out)?,
        }
    }
    Ok(writeln!(out, "\nevery byte was compared: all are as they were")?)
}

/// A row for each block length.
fn rows<P: Provider>(
    device: P,
    config: Config,
    args: &Args,
    store: Arc<Store>,
    out: &mut impl Write,
) -> Outcome {
    let file = &File::open(&args.file)?;
    let len = file.metadata()?.len();
    let continuation = if config.features().continuation { "on" } else { "off" };
    let mut session = Session::start(device, config, store)?;
    for &block in args.block.as_ref().map_or(&BLOCKS[..], std::slice::from_ref) {
        let blocks = Block::all(len, block);
        let before = session.server.stats();
        session.commit(0)?;
        let written = session.write(file, &blocks, args.window)?;
        let read = session.read(file, &blocks, args.window)?;
        let after = session.server.stats();
        let rate = |time: Duration| len as f64 / 1e9 / time.as_secs_f64();
        writeln!(
            out,
            "{:>8} {continuation:>12} {:>10.3} {:>9.3} {:>7} {:>7} {:>10}",
            Length(block).to_string(),
            rate(written),
            rate(read),
            after.groups - before.groups,
            after.taken - before.taken,
            after.spares_out - before.spares_out,
        )?;
    }
    Ok(())
}

/// The configuration of both ends.
fn config(args: &Args, is_continued: bool) -> Outcome<Config> {
    let window = i64::from(args.window);
    let longest = args.block.unwrap_or(BLOCK_MAX as u64).div_ceil(SEGMENT_LEN) as i64;
    // With continuation, messages are continued from 128 KiB on; without, a block must fit a
    // buffer.
    let segments = if is_continued { 2 } else { longest };
    let transmissions = (longest + segments - 1) / segments;
    // A window of the longest messages and one more; the profile's longest message has 16.
    let credits = (window * transmissions + 1).max(16);
    let mut raw = Raw::default();
    raw.engine.provider = args.provider.as_str().into();
    raw.engine.idle.policy = "backoff".into();
    raw.engine.idle.spin = "50us".into();
    args.device.iter().for_each(|name| raw.verbs.device = name.as_str().into());
    args.address.iter().for_each(|at| raw.verbs.address = at.to_string().into());
    raw.receive.placement.count = segments;
    raw.receive.placement.length = format!("{SEGMENT_LEN}B").into();
    raw.receive.placement.align = "4KiB".into();
    raw.receive.spares = args.spares.map_or(window * longest, i64::from);
    raw.receive.replies = (credits as u32).into();
    raw.connections.max = 1;
    raw.connections.credits = credits;
    raw.connections.credits_requested = credits;
    raw.connections.calls_max = window;
    raw.features.continuation = is_continued;
    raw.app.bulk.count = 2 * window;
    raw.app.bulk.length = format!("{}B", longest as u64 * SEGMENT_LEN).into();
    Ok(Config::try_from(raw)?)
}

/// The new file that the server keeps. A temporary one has no name any more, and ends with the
/// process.
fn store(args: &Args) -> Outcome<Arc<Store>> {
    let place = args.store.as_deref().or(args.file.parent()).unwrap_or(Path::new(""));
    let is_temporary = args.store.is_none() || place.is_dir();
    let own = || place.join(format!("block_store-{}.data", std::process::id()));
    let path = if is_temporary { own() } else { place.to_owned() };
    let store = Store::create(&path)
        .map_err(|why| format!("{}: {why}; --store names another place", path.display()))?;
    if is_temporary {
        std::fs::remove_file(&path)?;
    }
    Ok(store)
}

fn block(text: &str) -> Result<u64, String> {
    let len = parse_length(text).map_err(|why| why.to_string())?;
    let is_possible = (4096..=BLOCK_MAX as u64).contains(&len) && len.is_multiple_of(4096);
    is_possible.then_some(len).ok_or_else(|| "4KiB to 1MiB, in multiples of 4KiB".to_owned())
}

const BLOCKS: [u64; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Bytes of a placement segment.
const SEGMENT_LEN: u64 = 64 << 10;
