//! A block store: a server that keeps a file, and a client that writes it in blocks, reads it back
//! and compares every byte.
//!
//! ```text
//!   client: file ─▶ registered block ═▶ WRITE ═▶ placement segments ─▶ write ─▶ file :server
//!           compared in place       ◀═ READ ◀═ registered block ◀─ read ◀─ file
//! ```
//! Neither end copies data: an RNIC moves what crosses `═▶`. The server's shard drives its file in
//! its turns, by io_uring: it takes the segments that hold data out of their receive buffers, spares
//! replace them, and the kernel writes them from where they arrived. Where io_uring is forbidden,
//! threads write them.
//!
//! ```text
//!   block_store --file FILE                               both ends in this process
//!   block_store --listen shm:/tmp/store.sock              the server, until SIGINT or SIGTERM
//!   block_store --connect shm:/tmp/store.sock --file FILE the client, in another process
//! ```

mod args;
mod client;
mod disk;
mod server;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::fmt::{Arguments, Display};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use args::Args;
use clap::Parser;
use client::{Block, Session};
use disk::Store;
use rpcrdma::{Address, Config, Engine, Provider, SetupError, with_provider};
use rpcrdma_config::ProviderKind;
use rpcrdma_config::units::Length;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    match run(&Args::parse(), &mut io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&*error);
            ExitCode::FAILURE
        }
    }
}

fn complain(what: &(impl Display + ?Sized)) {
    let _ = writeln!(io::stderr(), "block_store: {what}");
}

/// What this process is.
#[derive(Clone)]
enum Role {
    Both(Arc<Store>),
    Server(Arc<Store>, Address),
    Client(Address),
}

fn run(args: &Args, out: &mut impl Write) -> Outcome {
    if let Some(at) = args.listen {
        return open(args.config(true)?, &Role::Server(store(args)?, at), args, out);
    }
    File::open(args.file()).map_err(|why| format!("{}: {why}", args.file().display()))?;
    let role = match args.connect {
        Some(server) => Role::Client(server),
        None => Role::Both(store(args)?),
    };
    writeln!(out, "   block continuation write GB/s read GB/s  groups   taken spares out")?;
    // A server in another process has one configuration.
    let continuation = if args.connect.is_some() { &[true][..] } else { &[true, false] };
    for is_continued in continuation {
        open(args.config(*is_continued)?, &role, args, out)?;
    }
    Ok(writeln!(out, "\nevery byte was compared: all are as they were")?)
}

/// Opens the device. Everything behind is the same for all of them.
fn open(config: Config, role: &Role, args: &Args, out: &mut impl Write) -> Outcome {
    let kind = config.engine().provider;
    let hint = |error: SetupError| match kind {
        ProviderKind::Verbs => format!("{error}; shm:PATH and --provider tcp need no device"),
        _ => error.to_string(),
    };
    with_provider!(kind, |Device| {
        play(Device::from_config(&config).map_err(hint)?, config, role, args, out)
    })
}

fn play<P: Provider>(
    device: P,
    config: Config,
    role: &Role,
    args: &Args,
    out: &mut impl Write,
) -> Outcome {
    let continuation = if config.features().continuation { "on" } else { "off" };
    match role {
        Role::Server(store, at) => serve(device, config, (store, *at), args, out),
        Role::Client(server) => {
            rows(Session::connect(device, config, *server)?, continuation, args, out)
        }
        Role::Both(store) => rows(Session::start(device, config, store)?, continuation, args, out),
    }
}

/// The server, until a signal comes.
fn serve<P: Provider>(
    device: P,
    config: Config,
    (store, at): (&Arc<Store>, Address),
    args: &Args,
    out: &mut impl Write,
) -> Outcome {
    // Before there are threads: no other thread handles the signals.
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let mut engine = Engine::new(device, config)?;
    let (server, address) = server::start(&mut engine, store, at)?;
    let metrics = args.metrics.map(|at| engine.metrics().serve(at)).transpose()?;
    // A server whose output cannot be written, because its reader has gone, say, serves on.
    let mut say = |line: Arguments<'_>| drop(writeln!(out, "block_store: {line}"));
    if let Some(metrics) = &metrics {
        say(format_args!("metrics at {}", metrics.url()));
    }
    say(format_args!("listening at {address}"));
    signals.forever().next();
    say(format_args!("{} calls answered", server.stats().replies_sent));
    Ok(())
}

/// A row for each block length.
fn rows<P: Provider>(
    mut session: Session<P>,
    continuation: &str,
    args: &Args,
    out: &mut impl Write,
) -> Outcome {
    let file = &File::open(args.file())?;
    let len = file.metadata()?.len();
    for &block in args.block.as_ref().map_or(&BLOCKS[..], std::slice::from_ref) {
        let blocks = Block::all(len, block);
        let before = session.counts();
        session.commit(0)?;
        let written = session.write(file, &blocks, args.window)?;
        let read = session.read(file, &blocks, args.window)?;
        let after = session.counts();
        let rate = |time: Duration| len as f64 / 1e9 / time.as_secs_f64();
        // Only the server's process knows them.
        let count = |at: usize| match (before, after) {
            (Some(before), Some(after)) => (after[at] - before[at]).to_string(),
            _ => "-".to_owned(),
        };
        writeln!(
            out,
            "{:>8} {continuation:>12} {:>10.3} {:>9.3} {:>7} {:>7} {:>10}",
            Length(block).to_string(),
            rate(written),
            rate(read),
            count(0),
            count(1),
            count(2),
        )?;
    }
    Ok(())
}

/// The new file that the server keeps. A temporary one has no name any more, and ends with the
/// process.
fn store(args: &Args) -> Outcome<Arc<Store>> {
    let place = args
        .store
        .as_deref()
        .or(args.file.as_ref().and_then(|file| file.parent()))
        .unwrap_or(Path::new(""));
    let is_temporary = args.store.is_none() || place.is_dir();
    let own = || place.join(format!("block_store-{}.data", std::process::id()));
    let path = if is_temporary { own() } else { place.to_owned() };
    let store = Store::create(&path, args.storage())
        .map_err(|why| format!("{}: {why}; --store names another place", path.display()))?;
    if is_temporary {
        std::fs::remove_file(&path)?;
    }
    Ok(store)
}

const BLOCKS: [u64; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Bytes of a placement segment.
const SEGMENT_LEN: u64 = 64 << 10;
