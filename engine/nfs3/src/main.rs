//! `rpcrdma-nfs3`: an NFSv3 server over RDMA for a directory, which the Linux kernel can mount.
//!
//! ```text
//!   rpcrdma-nfs3 --export /srv/data --listen 10.0.0.1:20049
//!   mount -t nfs -o vers=3,proto=rdma,port=20049,nolock,mountproto=tcp,mountport=20048 \
//!         10.0.0.1:/srv/data /mnt
//! ```
//! An address that no RDMA device has is served by iWARP over TCP, which the kernel mounts through
//! its software iWARP, siw. With `--listen shm:PATH` it serves the processes of its own host, without a device.
//! The server is in the library `rpcrdma_nfs3`.

mod args;
mod file;
mod man;

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::CommandFactory;
#[cfg(feature = "metrics")]
use rpcrdma::metrics::MetricsServer;
use rpcrdma::{Config, Provider, ProviderKind, SetupError, with_provider};
use rpcrdma_nfs3::Server;
use sd_notify::NotifyState;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use args::Args;
use file::Stated;

fn main() -> ExitCode {
    let line: Vec<OsString> = env::args_os().collect();
    match act(&line).map_err(|error| error.downcast::<clap::Error>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Ok(usage)) => usage.exit(),
        Err(Err(error)) => {
            let _ = writeln!(io::stderr(), "nfs3: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What the command line asks for.
fn act(line: &[OsString]) -> Result<(), Box<dyn Error>> {
    match file::stated(line)? {
        Some(Stated { args, config }) => serve(&args, config),
        None => print(&man::page(Args::command())?),
    }
}

/// Prints a page. A reader that wants only its beginning is no failure.
fn print(page: &[u8]) -> Result<(), Box<dyn Error>> {
    match io::stdout().write_all(page) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Says something of the running server. That it cannot be written, because the reader is gone or
/// a disk is full, is no failure of the server.
fn say(line: impl Display) {
    let _ = writeln!(io::stdout(), "nfs3: {line}");
}

/// Opens the configured device and serves.
fn serve(args: &Args, config: Config) -> Result<(), Box<dyn Error>> {
    let kind = config.engine().provider;
    let hint = |error: SetupError| match kind {
        ProviderKind::Verbs => format!("{error}; --provider tcp needs no device"),
        _ => error.to_string(),
    };
    with_provider!(kind, |Device| run(Device::from_config(&config).map_err(hint)?, config, args))
}

/// Serves metrics, if they are asked for, until the value is dropped.
#[cfg(feature = "metrics")]
fn serve_metrics<P: Provider>(
    server: &Server<P>,
    args: &Args,
) -> Result<Option<MetricsServer>, Box<dyn Error>> {
    let metrics = args.metrics.map(|at| server.metrics().serve(at)).transpose()?;
    if let Some(metrics) = &metrics {
        say(format_args!("metrics at {}", metrics.url()));
    }
    Ok(metrics)
}

/// Serves until a signal arrives, or until no thread of the engine is left that serves.
fn run<P: Provider>(provider: P, config: Config, args: &Args) -> Result<(), Box<dyn Error>> {
    // Before any thread is created, so that no thread handles the signals by default.
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let server = Server::start(provider, config, &args.options(), args.listen, args.mount()?)?;
    let waiting = signals.handle();
    server.on_end(move || waiting.close());
    let (address, mount) = (server.address(), server.mount_address());
    let export = args.export.display();
    say(format_args!("serving {export}: NFS at {address}, MOUNT at {mount}"));
    let handle: String = server.root().data.iter().map(|byte| format!("{byte:02x}")).collect();
    #[cfg(feature = "metrics")]
    let _metrics = serve_metrics(&server, args)?;
    say(format_args!("the file handle of the directory is {handle}"));
    for shard in server.shards() {
        say(format_args!("shard {}: {}", shard.shard(), shard.resources()));
    }
    let status = format!("serving {export}");
    notify_manager(&[NotifyState::Ready, NotifyState::Status(&status)]);
    signals.forever().next();
    notify_manager(&[NotifyState::Stopping]);
    say(format_args!("stopping; {} calls wait for a worker thread", server.waiting()));
    for shard in server.shards() {
        let stats = shard.stats();
        say(format_args!(
            "shard {}: {} connections, {} calls, {} RDMA Reads, {} RDMA Writes, {} loans",
            shard.shard(),
            stats.connections_established,
            stats.calls_received,
            stats.rdma_reads,
            stats.rdma_writes,
            stats.segments_taken
        ));
    }
    server.stop()
}

/// Reports the state of this program to the service manager, if one started it.
fn notify_manager(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        let _ = writeln!(io::stderr(), "nfs3: cannot notify the service manager: {error}");
    }
}
