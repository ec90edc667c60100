//! A block store: a server that keeps a file, and a client that fills it and reads it back.
//!
//! ```text
//!   client: file ─▶ registered block ═▶ WRITE ═▶ placement segments ─▶ writev ─▶ file :server
//!           compared where it landed ◀═ READ ◀═ registered block ◀─ pread ◀─ file
//! ```
//! Both are in this process, on the software fabric: the server on a thread of its own with a core
//! of its own, the client on the main thread. Neither copies data: what crosses `═▶` is what an
//! RNIC would move. The server's shard does not wait for its file: the segments that data landed in
//! are taken out of their receive buffers, spares take their place, and threads write them.

mod args;
mod checksum;
mod client;
mod disk;
mod passes;
mod progress;
mod rpc;
mod server;
mod setup;
mod store;

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use args::{Args, Command};
use checksum::{Checksum, Summing};
use passes::{Blocks, Pass};
use setup::{Pair, Shape};
use store::Temporary;

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
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("block_store: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Outcome<()> {
    let input = Input::open(args.file.as_deref())?;
    let target = Target::make(args.store.as_deref(), &input.path)?;
    println!("file   {}, {} bytes", input.path.display(), input.len);
    println!("store  {}, {}", target.path.display(), target.manner());
    println!(
        "calls  {} on their way at a time, {} threads at the store",
        args.window, args.workers
    );
    println!(
        "\n{:>8} {:>12} {:>10} {:>9} {:>13} {:>7} {:>10} {:>8}  {}",
        "block",
        "continuation",
        "write GB/s",
        "read GB/s",
        "groups w/r",
        "taken",
        "spares out",
        "inline",
        "checksum: sent = stored = read"
    );
    let mut original = None;
    for &continuation in &args.continuation {
        let shape = Shape {
            block_max: args.blocks.iter().copied().max().unwrap_or(rpc::BLOCK_MAX),
            window: args.window,
            spares: args.spares,
            continuation,
        };
        let mut pair = Pair::start(&shape, &target.path, target.direct(), args.workers)?;
        for &block in &args.blocks {
            let row = Row::measure(&mut pair, &input, &target, block, args.window)?;
            row.print(&shape);
            row.check(*original.get_or_insert(row.sent.checksum))?;
        }
        pair.stop();
    }
    println!("\nevery byte of every run was compared: all are as they were");
    Ok(())
}

/// The file that is written to the server.
struct Input {
    file: File,
    path: PathBuf,
    len: u64,
    _temporary: Option<Temporary>,
}

impl Input {
    fn open(path: Option<&Path>) -> Outcome<Input> {
        let Some(path) = path else { return Input::make() };
        let failed = |error| format!("--file {}: {error}", path.display());
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(format!("--file {}: not a regular file", path.display()).into());
        }
        Ok(Input { file, path: path.to_owned(), len: metadata.len(), _temporary: None })
    }

    /// Fills a temporary file with noise: a generator of Marsaglia's, from a fixed seed.
    fn make() -> Outcome<Input> {
        let path = std::env::temp_dir().join(format!("block_store-{}.noise", std::process::id()));
        println!("no --file: making {} of {} MiB of noise", path.display(), NOISE_LEN >> 20);
        let failed = |error| format!("{}: {error}; name a file with --file", path.display());
        let made = File::create_new(&path).map_err(failed)?;
        let temporary = Temporary(path.clone());
        let mut writer = BufWriter::with_capacity(1 << 20, made);
        let mut word = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..NOISE_LEN / 8 {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            writer.write_all(&word.to_le_bytes()).map_err(failed)?;
        }
        writer.flush().map_err(failed)?;
        let file = File::open(&path).map_err(failed)?;
        Ok(Input { file, path, len: NOISE_LEN, _temporary: Some(temporary) })
    }
}

/// The file that the server keeps.
struct Target {
    path: PathBuf,
    /// Why it is written through the page cache, if it is.
    buffered: Option<std::io::Error>,
    _temporary: Option<Temporary>,
}

impl Target {
    fn make(wanted: Option<&Path>, input: &Path) -> Outcome<Target> {
        let (directory, file) = match wanted {
            Some(path) if path.is_dir() => (path, None),
            Some(path) => (path, Some(path)),
            None => (input.parent().unwrap_or(Path::new("")), None),
        };
        let path = file.map_or_else(
            || directory.join(format!("block_store-{}.data", std::process::id())),
            Path::to_owned,
        );
        let probed = store::create(&path).map_err(|error| {
            format!("the store {}: {error}; name another place with --store", path.display())
        })?;
        let temporary = file.is_none().then(|| Temporary(path.clone()));
        Ok(Target { path, buffered: probed.err(), _temporary: temporary })
    }

    fn direct(&self) -> bool {
        self.buffered.is_none()
    }

    fn manner(&self) -> String {
        match &self.buffered {
            None => "past the page cache (O_DIRECT)".to_owned(),
            Some(why) => format!("through the page cache: O_DIRECT is not to be had ({why})"),
        }
    }

    /// The checksum of the store as any program sees it.
    fn checksum(&self) -> Outcome<Checksum> {
        let failed = |error| format!("the store {}: {error}", self.path.display());
        let mut file = File::open(&self.path).map_err(failed)?;
        let mut bytes = vec![0; 1 << 20];
        let mut summing = Summing::at(0);
        loop {
            match file.read(&mut bytes).map_err(failed)? {
                0 => return Ok(summing.finish()),
                read => summing.feed(&bytes[..read]),
            }
        }
    }
}

/// One run: the file there and back in blocks of one length.
struct Row {
    block: usize,
    len: u64,
    sent: Pass,
    stored: Checksum,
    read: Pass,
    groups_written: u64,
    groups_read: u64,
    taken: u64,
    spares_out: u64,
    inline: u64,
}

impl Row {
    fn measure(
        pair: &mut Pair,
        input: &Input,
        target: &Target,
        block: usize,
        window: usize,
    ) -> Outcome<Row> {
        let blocks = Blocks { file: &input.file, len: input.len, block };
        let (server, own) = (pair.server.stats(), pair.session.stats());
        let inline = pair.counts.inline.load(Ordering::Relaxed);
        let unspared = pair.counts.unspared.load(Ordering::Relaxed);
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
            spares_out: pair.counts.unspared.load(Ordering::Relaxed) - unspared,
            inline: pair.counts.inline.load(Ordering::Relaxed) - inline,
        })
    }

    fn print(&self, shape: &Shape) {
        let rate = |pass: &Pass| self.len as f64 / 1e9 / pass.time.as_secs_f64();
        println!(
            "{:>8} {:>12} {:>10.3} {:>9.3} {:>13} {:>7} {:>10} {:>8}  {}",
            length(self.block),
            if shape.continuation { "on" } else { "off" },
            rate(&self.sent),
            rate(&self.read),
            format!("{}/{}", self.groups_written, self.groups_read),
            self.taken,
            self.spares_out,
            self.inline,
            self.sent.checksum,
        );
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

/// Bytes of the file that is made if none is named.
const NOISE_LEN: u64 = 256 << 20;
