//! `serve`: the server on another host, for clients with `--connect`.
//!
//! A client says over TCP what it is going to call and how its engine is set up (`agree`); for each
//! client there is an engine of that kind, on one core, until the client has gone. One at a time:
//! who measures does not share.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rpcrdma_config::{Config, Raw};
use rpcrdma_engine::{Address, Provider, Snapshot};

use crate::args::{CoreArgs, DeviceArgs, OutputArgs, Over};
use crate::contenders::rpc::Answering;
use crate::device::jitter::{self, PROBE_TIME};
use crate::device::pair::Stop;
use crate::device::verbs::VerbsDevice;
use crate::device::{CorePair, Device};
use crate::error::BenchError;
use crate::output::{Environment, Report, Session};
use crate::stop;

mod report;

use self::report::Served;
use crate::contenders::agree::{Heard, Lines, PORT, Wish, Word};

/// The options of the mode.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// TCP port for the clients' requests
    #[arg(long, value_name = "PORT", default_value_t = PORT)]
    pub port: u16,
    /// Exit after the first client
    #[arg(long)]
    pub once: bool,
    /// Where the thread runs: the second one of the pair.
    #[command(flatten)]
    pub cores: CoreArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

pub fn measure(args: &Args, session: &Session) -> Result<Report, BenchError> {
    if args.device.provider == Over::Fabric {
        return Err(BenchError::Usage(NO_FABRIC.into()));
    }
    let own = own_config(&args.device)?;
    let device = VerbsDevice::open(&args.device, &own)?;
    let cores = CorePair::choose(args.cores.cores)?;
    let at = device.ip();
    let listener = TcpListener::bind(SocketAddr::new(at, args.port))
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(|error| BenchError::device(WHO, format!("{at}:{}: {error}", args.port)))?;
    let what = format!("serve: clients connect to {at}:{}, core {}", args.port, cores.server);
    session.announce(&what)?;
    let before = jitter::probe(cores, PROBE_TIME)?;
    let here = Here { at: device.at(), core: cores.server, own: own.raw() };
    let mut served = Vec::new();
    while let Some((stream, from)) = next_client(&listener)? {
        let one = here.serve(device.open()?, &listener, stream, from);
        session.announce(&one.sentence())?;
        served.push(one);
        if args.once {
            break;
        }
    }
    let after = jitter::probe(cores, PROBE_TIME)?;
    let environment = Environment::new(cores, device.notes(), [before, after]);
    Ok(report::report(what, args.port, environment, &served))
}

pub(crate) struct Here<'a> {
    /// Where its engines listen.
    pub at: Address,
    pub core: u32,
    /// Whose device is taken.
    pub own: &'a Raw,
}

impl Here<'_> {
    /// Serves one client until it has gone. What goes wrong is told to it, and is in the result.
    pub fn serve<P: Provider + Send>(
        &self,
        provider: P,
        listener: &TcpListener,
        stream: TcpStream,
        from: SocketAddr,
    ) -> Served {
        let started = Instant::now();
        let mut lines = Lines::new(stream);
        let outcome = self.answer(provider, listener, &mut lines);
        let (load, counted, ended) = match outcome {
            Ok((load, counted)) => (Some(load), counted, None),
            Err(why) => (None, Snapshot::default(), Some(why)),
        };
        Served { from, load, counted, ended, time: started.elapsed() }
    }

    fn answer<P: Provider + Send>(
        &self,
        provider: P,
        listener: &TcpListener,
        lines: &mut Lines,
    ) -> Result<(String, Snapshot), String> {
        let wish = wish_of(lines)?;
        let asked = wish.load.what();
        let config =
            wish.config(self.own).inspect_err(|why| tell(lines, Word::Refused(why.clone())))?;
        let stop = Stop::default();
        let (ready, is_ready) = mpsc::channel();
        let counted = thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let answering = Answering::new(provider, self.at, self.core, &config, &wish.load);
                let (mut answering, at) = answering.map_err(|error| error.to_string())?;
                // The other thread is there as long as this one.
                let _ = ready.send(at);
                let served = answering.serve(&stop);
                served.map(|()| answering.counters()).map_err(|error| error.to_string())
            });
            let is_done = || thread.is_finished();
            let prepares = || tell(lines, Word::Preparing);
            if let Ok(at) = wait_for(&is_ready, is_done, prepares) {
                tell(lines, Word::At(at));
                until_gone(lines, listener, is_done);
            }
            stop.set();
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        let counted = counted.inspect_err(|why| tell(lines, Word::Failed(why.clone())))?;
        Ok((asked, counted))
    }
}

/// The next client; `None` if the program is asked to end.
fn next_client(listener: &TcpListener) -> Result<Option<(TcpStream, SocketAddr)>, BenchError> {
    while !stop::is_wished() {
        match accepted(listener) {
            Ok(Some(client)) => return Ok(Some(client)),
            Ok(None) => thread::sleep(LOOK),
            Err(error) => return Err(BenchError::device(WHO, error)),
        }
    }
    Ok(None)
}

fn accepted(listener: &TcpListener) -> io::Result<Option<(TcpStream, SocketAddr)>> {
    match listener.accept() {
        Ok(client) => Ok(Some(client)),
        // A client that has gone before it was looked at is none.
        Err(error)
            if crate::contenders::agree::is_for_now(&error)
                || error.kind() == ErrorKind::ConnectionAborted =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn wish_of(lines: &mut Lines) -> Result<Wish, String> {
    let stream = lines.stream();
    let prepared = stream.set_nonblocking(false).and_then(|()| stream.set_nodelay(true));
    prepared.and_then(|()| stream.set_read_timeout(Some(LOOK))).map_err(|e| e.to_string())?;
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline && !stop::is_wished() {
        match lines.hear::<Wish>() {
            Ok(Heard::Line(wish)) => return Ok(wish),
            Ok(Heard::Nothing) => {}
            Ok(Heard::Gone) => return Err("it went without a word".into()),
            Err(error) => {
                let why = format!("invalid request, use the same version on both hosts: {error}");
                tell(lines, Word::Refused(why.clone()));
                return Err(why);
            }
        }
    }
    Err("no request in time".into())
}

/// Waits until the other thread listens, or has ended without that; `prepares` is called meanwhile.
fn wait_for(
    is_ready: &mpsc::Receiver<Address>,
    is_done: impl Fn() -> bool,
    mut prepares: impl FnMut(),
) -> Result<Address, mpsc::RecvTimeoutError> {
    let mut told = Instant::now();
    loop {
        match is_ready.recv_timeout(LOOK) {
            Err(mpsc::RecvTimeoutError::Timeout) if !is_done() => {
                if told.elapsed() >= TOLD_EVERY {
                    told = Instant::now();
                    prepares();
                }
            }
            result => return result,
        }
    }
}

/// Waits until the client closes, the other thread has ended, or the program is to end. Who comes
/// meanwhile is told to come later.
fn until_gone(lines: &mut Lines, listener: &TcpListener, is_done: impl Fn() -> bool) {
    while !is_done() && !stop::is_wished() {
        if !matches!(lines.hear::<Word>(), Ok(Heard::Nothing)) {
            return;
        }
        if let Ok(Some((stream, _))) = accepted(listener) {
            let busy = "it is measuring with another client; try again when that has gone";
            tell(&mut Lines::new(stream), Word::Refused(busy.into()));
        }
    }
}

/// Says something to a client that may not listen any more.
fn tell(lines: &mut Lines, word: Word) {
    let _ = lines.say(&word);
}

fn own_config(device: &DeviceArgs) -> Result<Config, BenchError> {
    let config = Config::profile("latency").and_then(|config| {
        let mut raw = config.raw().clone();
        device.name_in(&mut raw);
        Config::try_from(raw)
    });
    config.map_err(|error| BenchError::Usage(error.to_string()))
}

const WHO: &str = "serve";
/// What a client gets to say what it wants.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a client is told that this end is not ready yet.
const TOLD_EVERY: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(5);
const NO_FABRIC: &str = "the software fabric lives inside one process, and no other host can reach \
    it: serve over a device, with --provider verbs. Without --connect, every mode runs both ends \
    itself";

pub const EXAMPLES: &str = "\
Examples:
  rpcrdma-bench serve --provider verbs                        on one host
  rpcrdma-bench lat --provider verbs --connect 10.0.0.2       on the other, with all options
  rpcrdma-bench rate -w 64 --provider verbs --connect 10.0.0.2

  rpcrdma-bench serve --provider verbs -a 10.0.0.2 --port 4000 --once

Sizes, credits, placement and the engine's configuration are those of the client's options; the
server rejects what it cannot do. The TCP port carries these settings only; RPCs use RDMA. The port
has no authentication: use it in a trusted network.";

#[cfg(test)]
mod tests;
