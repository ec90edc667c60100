//! A store of values by key: a server, a client with a session, and a client on tokio.
//!
//! ```text
//!   key_value serve --at shm:/tmp/store.sock --config server.toml      until SIGINT or SIGTERM
//!   key_value call  --at shm:/tmp/store.sock --config client.toml      until --calls are done
//!   key_value tokio --at shm:/tmp/store.sock --config client.toml
//! ```
//! Over TCP, which reaches other hosts, `--at 10.0.0.1:7777` takes the place of the socket.
//! The clients compare every value, and survive the server: kill it, and start it again.

mod client;
mod futures;
mod protocol;
mod server;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::fmt::Arguments;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use rpcrdma::{Address, Config, Engine, Provider, ProviderKind, with_provider};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// What the program does and fails with.
type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// How long a call may take, with the time that its server is away.
const CALL_TIME: Duration = Duration::from_secs(60);

/// Stores values by key.
#[derive(Debug, Parser)]
#[command(name = "key_value")]
struct Args {
    role: Role,
    /// Where the server listens: an address of shared memory, or of TCP.
    #[arg(long, value_name = "ADDR:PORT|shm:PATH")]
    at: Address,
    /// What carries the messages; without it what the address is of.
    #[arg(short, long)]
    provider: Option<ProviderKind>,
    /// The configuration of the engine.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// How many calls a client makes.
    #[arg(long, default_value_t = 100_000)]
    calls: u64,
    /// Serve metrics for Prometheus here, over HTTP at /metrics.
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<SocketAddr>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Role {
    Serve,
    Call,
    Tokio,
}

fn main() -> Outcome<()> {
    run(&Args::parse())
}

fn run(args: &Args) -> Outcome<()> {
    // Before there are threads: no other thread handles the signals.
    let stopped = stop_on_signal()?;
    let config = Config::load(&args.config)?;
    let usual = if args.at.as_ip().is_some() { ProviderKind::Tcp } else { ProviderKind::Shm };
    with_provider!(args.provider.unwrap_or(usual), |Device| {
        play(Device::from_config(&config)?, config, args, &stopped)
    })
}

/// Plays the role of this process over a device.
fn play<P: Provider>(
    device: P,
    config: Config,
    args: &Args,
    stopped: &Arc<AtomicBool>,
) -> Outcome<()> {
    let engine = Engine::new(device, config)?;
    let metrics = args.metrics.map(|at| engine.metrics().serve(at)).transpose()?;
    metrics.iter().for_each(|metrics| say(format_args!("key_value: metrics at {}", metrics.url())));
    match args.role {
        Role::Serve => server::run(engine, args.at, stopped),
        Role::Call => client::run(&engine, args.at, args.calls, stopped),
        Role::Tokio => futures::run(&engine, args.at, args.calls, stopped),
    }
}

/// Prints a line. A server whose output cannot be written, because its reader has gone, say, serves
/// on.
fn say(line: Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Turns true, and wakes this thread, when a signal asks the program to end.
fn stop_on_signal() -> io::Result<Arc<AtomicBool>> {
    let stopped = Arc::new(AtomicBool::new(false));
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let (stop, this) = (stopped.clone(), thread::current());
    thread::spawn(move || {
        for _ in signals.forever() {
            stop.store(true, Ordering::Relaxed);
            this.unpark();
        }
    });
    Ok(stopped)
}
