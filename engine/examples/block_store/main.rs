//! A block store: a server that keeps a file, and a client that fills it and reads it back.
//!
//! ```text
//!   client: file ─▶ registered block ═▶ WRITE ═▶ placement segments ─▶ writev ─▶ file :server
//!           compared where it landed ◀═ READ ◀═ registered block ◀─ pread ◀─ file
//! ```
//! Both are in this process, on the software fabric or on an RDMA device: the server on a thread of its own with a core
//! of its own, the client on the main thread. Neither copies data: what crosses `═▶` is what an
//! RNIC would move. The server's shard does not wait for its file: the segments that data landed in
//! are taken out of their receive buffers, spares take their place, and threads write them.

mod args;
mod checksum;
mod client;
mod disk;
mod files;
mod passes;
mod progress;
mod rpc;
mod server;
mod setup;
mod store;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use args::{Args, Command};
use checksum::Checksum;
use files::{Input, Target};
use passes::{Blocks, Pass};
use rpcrdma_engine::verbs::Verbs;
use rpcrdma_engine::{Fabric, Provider};
use setup::{Pair, Shape};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let args = match args::parse(std::env::args_os().skip(1)) {
        Ok(Command::Run(args)) => args,
        Ok(Command::Help) => {
            print!("{}", args::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(sentence) => {
            eprintln!("block_store: {sentence}");
            return ExitCode::from(2);
        }
    };
    match run(&args, &mut std::io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("block_store: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs on the device that was asked for.
fn run(args: &Args, out: &mut impl Write) -> Outcome<()> {
    match &args.verbs {
        // The fabric's addresses are its own.
        None => run_on((Fabric::new(), Ipv4Addr::LOCALHOST.into()), args, out),
        Some(wanted) => run_on((Verbs::open(&wanted.options())?, wanted.address), args, out),
    }
}

fn run_on<P: Provider + Clone>(
    site: (P, IpAddr),
    args: &Args,
    out: &mut impl Write,
) -> Outcome<()> {
    writeln!(out, "device {}", site.0.caps().name)?;
    let input = Input::open(args.file.as_deref(), out)?;
    let target = Target::make(args.store.as_deref(), &input.path, args.direct)?;
    writeln!(out, "file   {}, {} bytes", input.path.display(), input.len)?;
    writeln!(out, "store  {}, {}", target.path.display(), target.manner())?;
    writeln!(
        out,
        "calls  {} on their way at a time, {} threads at the store",
        args.window, args.workers
    )?;
    writeln!(out, "\n{HEADING}")?;
    let mut original = None;
    for &continuation in &args.continuation {
        let shape = Shape {
            provider: if args.verbs.is_some() { "verbs" } else { "fabric" },
            block_max: args.blocks.iter().copied().max().unwrap_or(rpc::BLOCK_MAX),
            window: args.window,
            spares: args.spares,
            continuation,
        };
        let mut pair =
            Pair::start(site.clone(), &shape, &target.path, target.direct, args.workers)?;
        for &block in &args.blocks {
            let row = Row::measure(&mut pair, &input, &target, block, args.window)?;
            row.print(&shape, out)?;
            row.check(*original.get_or_insert(row.sent.checksum))?;
        }
        pair.stop();
    }
    writeln!(out, "\nevery byte of every run was compared: all are as they were")?;
    Ok(())
}

/// One run: the file there and back in blocks of one length.
struct Row {
    block: usize,
    len: u64,
    sent: Pass,
    stored: Checksum,
    read: Pass,
    /// Messages of several transmissions, WRITEs and READs.
    groups_written: u64,
    groups_read: u64,
    /// Segments that went to the disk's threads.
    taken: u64,
    /// Segments that could not, for want of spares.
    spares_out: u64,
    /// WRITEs that the shard did itself.
    own_writes: u64,
}

impl Row {
    fn measure<P: Provider + Clone>(
        pair: &mut Pair<P>,
        input: &Input,
        target: &Target,
        block: usize,
        window: usize,
    ) -> Outcome<Row> {
        let blocks = Blocks { file: &input.file, len: input.len, block };
        let (server, own) = (pair.server.stats(), pair.session.stats());
        let own_writes = pair.own_writes.load(Ordering::Relaxed);
        let failed = |error| format!("blocks of {}: {error}", length(block));
        let session = &mut pair.session;
        passes::empty(session).map_err(failed)?;
        let sent = passes::write(session, blocks, window as u64).map_err(failed)?;
        let stored = target.checksum()?;
        let read = passes::read(session, blocks, window as u64).map_err(failed)?;
        let (server_after, own_after) = (pair.server.stats(), pair.session.stats());
        Ok(Row {
            block,
            len: input.len,
            sent,
            stored,
            read,
            groups_written: server_after.groups - server.groups,
            groups_read: own_after.groups - own.groups,
            taken: server_after.taken - server.taken,
            spares_out: server_after.spares_out - server.spares_out,
            own_writes: pair.own_writes.load(Ordering::Relaxed) - own_writes,
        })
    }

    fn print(&self, shape: &Shape, out: &mut impl Write) -> std::io::Result<()> {
        let rate = |pass: &Pass| self.len as f64 / 1e9 / pass.time.as_secs_f64();
        writeln!(
            out,
            "{:>8} {:>12} {:>10.3} {:>9.3} {:>13} {:>7} {:>10} {:>8}  {}",
            length(self.block),
            if shape.continuation { "on" } else { "off" },
            rate(&self.sent),
            rate(&self.read),
            format!("{}/{}", self.groups_written, self.groups_read),
            self.taken,
            self.spares_out,
            self.own_writes,
            self.sent.checksum,
        )
    }

    /// All checksums are those of the first run.
    fn check(&self, original: Checksum) -> Outcome<()> {
        let (sent, stored, read) = (self.sent.checksum, self.stored, self.read.checksum);
        if [sent, stored, read] != [original; 3] {
            let block = length(self.block);
            return Err(format!(
                "blocks of {block}: checksums differ: {original} of the file at first, {sent} \
                 sent, {stored} stored, {read} read back"
            )
            .into());
        }
        Ok(())
    }
}

/// A length in the largest unit that divides it.
fn length(bytes: usize) -> String {
    rpcrdma_config::units::Length(bytes as u64).to_string()
}

/// Above the rows, column by column as [`Row::print`] has them.
const HEADING: &str = "   block continuation write GB/s read GB/s    groups w/r   taken spares out   \
                    by shard  sum of what was sent = stored = read";
