//! `serve`: the server in a process of its own, for clients with `--connect`.
//!
//! A client says over TCP or a Unix socket what it is going to call and how its engine is set up
//! (`agree`). For each client there is an engine of that kind, on one core, until the client has
//! gone. It serves one client at a time, so that no other one disturbs the measurement.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rpcrdma::{Address, Provider, ProviderKind, Snapshot, provider_for, with_provider};
use rpcrdma_config::{Config, Raw};

use crate::args::parse::{self, PORT};
use crate::args::{CoreArgs, DeviceArgs, NOT_SHM};
use crate::contenders::rendezvous::Rendezvous;
use crate::contenders::rpc::Answering;
use crate::contenders::tally::Tally;
use crate::device::{Device, Devices};
use crate::error::BenchError;
use crate::machine::CorePair;
use crate::machine::jitter::{self, PROBE_TIME};
use crate::machine::pair::Stop;
use crate::output::{Environment, OutputArgs, Report, Session};
use crate::stop;

mod report;

use self::report::Served;
use crate::contenders::agree::{
    ClientMessage, Lines, Received, Request, ServerCounts, ServerMessage,
};

/// The options of the mode.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// TCP port for the clients' requests
    #[arg(long, value_name = "PORT", default_value_t = PORT)]
    pub port: u16,
    /// Where clients ask: shm:PATH is a socket of this host, for --provider shm
    /// [default: the port, at the address of the device]
    #[arg(short, long, value_name = "ADDRESS[:PORT]|shm:PATH", value_parser = parse::address)]
    #[arg(conflicts_with = "port")]
    pub listen: Option<Address>,
    /// Exit after the first client
    #[arg(long)]
    pub once: bool,
    /// Serve the client at the other end of standard input, a socket, and no other.
    #[arg(long, hide = true)]
    pub on_stdin: bool,
    /// Where the thread runs: the second one of the pair.
    #[command(flatten)]
    pub cores: CoreArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

pub fn measure(args: &Args, session: &Session) -> Result<Report, BenchError> {
    let is_socket = matches!(args.listen, Some(Address::Shm(_)));
    let usual = || provider_for(&Config::default(), args.listen);
    let over = args.device.provider.unwrap_or_else(usual);
    if is_socket && over != ProviderKind::Shm {
        return Err(BenchError::Usage(NOT_SHM.into()));
    }
    if over == ProviderKind::Fabric {
        return Err(BenchError::Usage(NO_FABRIC.into()));
    }
    let device = listening(args, over);
    let own = own_config(&device)?;
    with_provider!(over, |Opened| {
        let devices = Devices::of_both_ends(Opened::from_config, &device, &own)?;
        measure_on(args, session, &own, &devices)
    })
}

/// The device, named: where it does not say so itself, the engine listens where clients ask, if that
/// is one address.
fn listening(args: &Args, over: ProviderKind) -> DeviceArgs {
    let at = args.listen.and_then(|at| at.as_ip()).map(|at| at.ip());
    let at = at.filter(|at| over != ProviderKind::Verbs && !at.is_unspecified());
    let address = args.device.address.or(at);
    DeviceArgs { provider: Some(over), address, ..args.device.clone() }
}

fn measure_on<P: Provider + Send>(
    args: &Args,
    session: &Session,
    own: &Config,
    device: &Devices<P>,
) -> Result<Report, BenchError> {
    // Of the requested sizes.
    let open = |config: &Config| device.open_as(config);
    let cores = CorePair::choose(args.cores.cores)?;
    let listens = beside(args.listen).map(|at| at.unwrap_or(device.at()))?;
    let here = Here { at: listens, core: cores.server, own: own.raw() };
    let mut served = Vec::new();
    let (what, at, probe_time, before);
    if args.on_stdin {
        what = format!("serve: a client on standard input, core {}", cores.server);
        // What the client does not show is not looked at for long.
        (at, probe_time) = (None, PROBE_TIME / 100);
        before = jitter::probe(cores, probe_time)?;
        served.push(here.serve(&open, None, on_stdin()?, "standard input".into()));
    } else {
        let ip = device.at().as_ip().map_or(Ipv4Addr::LOCALHOST.into(), |at| at.ip());
        let wanted = args.listen.unwrap_or(SocketAddr::new(ip, args.port).into());
        let listener = Rendezvous::open(wanted);
        let listener =
            listener.map_err(|error| BenchError::device(WHO, format!("{wanted}: {error}")))?;
        what = format!("serve: clients connect to {}, core {}", listener.at(), cores.server);
        say(session, &what);
        (at, probe_time) = (Some(listener.at()), PROBE_TIME);
        before = jitter::probe(cores, probe_time)?;
        while let Some((lines, from)) = next_client(&listener)? {
            let one = here.serve(&open, Some(&listener), lines, from);
            say(session, &one.sentence());
            served.push(one);
            if args.once {
                break;
            }
        }
    }
    let after = jitter::probe(cores, probe_time)?;
    let environment = Environment::new(cores, device.notes(), [before, after]);
    Ok(report::report(what, at, environment, &served))
}

/// Says something of the server, which serves wherever its output goes.
fn say(session: &Session, sentence: &str) {
    let _ = session.announce(sentence);
}

/// Where engines listen if clients ask at a path: beside it, where who may connect is the same.
fn beside(at: Option<Address>) -> Result<Option<Address>, BenchError> {
    match at {
        Some(Address::Shm(name)) if name.path().is_some() => {
            let beside = format!("shm:{name}{BESIDE}").parse();
            beside.map(Some).map_err(|error| BenchError::Usage(format!("{name}{BESIDE}: {error}")))
        }
        _ => Ok(None),
    }
}

fn on_stdin() -> Result<Lines, BenchError> {
    let stdin = io::stdin().as_fd().try_clone_to_owned();
    let lines = stdin.and_then(|stdin| Lines::new(stdin, RECEIVE_WAIT));
    lines.map_err(|error| BenchError::device(WHO, format!("standard input: {error}")))
}

pub(crate) struct Here<'a> {
    /// Where its engines listen.
    pub at: Address,
    pub core: u32,
    /// Whose device is taken.
    pub own: &'a Raw,
}

impl Here<'_> {
    /// Serves one client until it has gone. What goes wrong is reported to it, and is in the result.
    /// Other clients are refused meanwhile.
    pub fn serve<P: Provider + Send>(
        &self,
        open: &dyn Fn(&Config) -> Result<P, BenchError>,
        listener: Option<&Rendezvous>,
        mut lines: Lines,
        from: String,
    ) -> Served {
        let started = Instant::now();
        let outcome = self.answer(open, listener, &mut lines);
        let (load, counted, ended) = match outcome {
            Ok((load, counted)) => (Some(load), counted, None),
            Err(why) => (None, Snapshot::default(), Some(why)),
        };
        Served { from, load, counted, ended, time: started.elapsed() }
    }

    fn answer<P: Provider + Send>(
        &self,
        open: &dyn Fn(&Config) -> Result<P, BenchError>,
        listener: Option<&Rendezvous>,
        lines: &mut Lines,
    ) -> Result<(String, Snapshot), String> {
        let request = read_request(lines)?;
        let asked = request.load.what();
        let config = request
            .config(self.own)
            .inspect_err(|why| notify(lines, ServerMessage::Refused(why.clone())))?;
        let provider = open(&config).map_err(|error| error.to_string());
        let provider =
            provider.inspect_err(|why| notify(lines, ServerMessage::Refused(why.clone())))?;
        let (ready, is_ready) = mpsc::channel();
        let (mut rounds, ordered, paused) = Rounds::new();
        let counted = thread::scope(|scope| {
            let (config, load) = (&config, &request.load);
            let thread = scope.spawn(move || {
                let answering = Answering::new(provider, self.at, self.core, config, load);
                let (mut answering, at) = answering.map_err(|error| error.to_string())?;
                // The other thread is there as long as this one.
                let _ = ready.send(at);
                for (tally, stop) in ordered {
                    let seen = answering.serve(&stop, tally).map_err(|error| error.to_string())?;
                    let _ = paused.send(seen);
                }
                Ok::<_, String>(answering.counters())
            });
            let is_done = || thread.is_finished();
            let prepares = || notify(lines, ServerMessage::Preparing);
            if let Ok(at) = wait_for(&is_ready, is_done, prepares) {
                notify(lines, ServerMessage::At(at));
                rounds.go(Tally::Nothing);
                until_gone(lines, listener, &mut rounds, is_done);
            }
            rounds.end();
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        let counted =
            counted.inspect_err(|why| notify(lines, ServerMessage::Failed(why.clone())))?;
        Ok((asked, counted))
    }
}

/// A round of the serving thread: what it counts, and what ends it.
type OrderedRound = (Tally, Arc<Stop>);

/// The rounds of a server, as its client orders them.
struct Rounds {
    orders: mpsc::Sender<OrderedRound>,
    stop: Arc<Stop>,
    seen: mpsc::Receiver<ServerCounts>,
}

impl Rounds {
    /// With both ends of the serving thread.
    fn new() -> (Rounds, mpsc::Receiver<OrderedRound>, mpsc::Sender<ServerCounts>) {
        let (orders, ordered) = mpsc::channel();
        let (paused, seen) = mpsc::channel();
        (Rounds { orders, stop: Arc::default(), seen }, ordered, paused)
    }

    fn go(&mut self, tally: Tally) {
        self.stop.set();
        self.stop = Arc::default();
        // A thread that has failed takes none, and is found to have ended.
        let _ = self.orders.send((tally, Arc::clone(&self.stop)));
    }

    /// `None` if the thread has failed.
    fn pause(&mut self) -> Option<ServerCounts> {
        self.stop.set();
        self.seen.recv().ok()
    }

    /// The thread ends.
    fn end(self) {
        self.stop.set();
    }
}

/// The next client; `None` if the program is asked to end.
fn next_client(listener: &Rendezvous) -> Result<Option<(Lines, String)>, BenchError> {
    while !stop::is_requested() {
        match listener.accept(RECEIVE_WAIT) {
            Ok(Some(client)) => return Ok(Some(client)),
            Ok(None) => thread::sleep(LOOK),
            Err(error) => return Err(BenchError::device(WHO, error)),
        }
    }
    Ok(None)
}

fn read_request(lines: &mut Lines) -> Result<Request, String> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline && !stop::is_requested() {
        match lines.receive::<Request>() {
            Ok(Received::Line(request)) => return Ok(request),
            Ok(Received::Nothing) => {}
            Ok(Received::Gone) => return Err("the client disconnected before its request".into()),
            Err(error) => {
                let why = format!("invalid request, use the same version on both hosts: {error}");
                notify(lines, ServerMessage::Refused(why.clone()));
                return Err(why);
            }
        }
    }
    Err("no request within 5 s".into())
}

/// Waits until the other thread listens, or has ended without that; `prepares` is called meanwhile.
fn wait_for(
    is_ready: &mpsc::Receiver<Address>,
    is_done: impl Fn() -> bool,
    mut prepares: impl FnMut(),
) -> Result<Address, mpsc::RecvTimeoutError> {
    let mut notified = Instant::now();
    loop {
        match is_ready.recv_timeout(LOOK) {
            Err(mpsc::RecvTimeoutError::Timeout) if !is_done() => {
                if notified.elapsed() >= NOTIFY_EVERY {
                    notified = Instant::now();
                    prepares();
                }
            }
            result => return result,
        }
    }
}

/// Does what the client orders until it closes, the other thread has ended, or the program is to
/// end. Other clients are refused meanwhile.
fn until_gone(
    lines: &mut Lines,
    listener: Option<&Rendezvous>,
    rounds: &mut Rounds,
    is_done: impl Fn() -> bool,
) {
    while !is_done() && !stop::is_requested() {
        match lines.receive::<ClientMessage>() {
            Ok(Received::Line(ClientMessage::Go(tally))) => {
                rounds.go(tally);
                notify(lines, ServerMessage::Going);
            }
            Ok(Received::Line(ClientMessage::Pause)) => {
                let Some(seen) = rounds.pause() else { return };
                notify(lines, ServerMessage::Paused(Box::new(seen)));
            }
            Ok(Received::Nothing) => {}
            Ok(Received::Gone) | Err(_) => return,
        }
        if let Some(Ok(Some((mut other, _)))) =
            listener.map(|listener| listener.accept(RECEIVE_WAIT))
        {
            let busy = "it is measuring with another client; try again when that has gone";
            notify(&mut other, ServerMessage::Refused(busy.into()));
        }
    }
}

/// Says something to a client that may not listen any more.
fn notify(lines: &mut Lines, message: ServerMessage) {
    let _ = lines.say(&message);
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
/// What the name of an engine's socket has behind that of the clients'.
const BESIDE: &str = ".rpc";
/// What a client gets to say what it wants.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a client is notified that this end is not ready yet.
const NOTIFY_EVERY: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(5);
/// How long words are waited for at a time. They come between rounds; within one, who looks takes
/// time of a core that measures.
const RECEIVE_WAIT: Duration = Duration::from_millis(250);
const NO_FABRIC: &str = "the software fabric lives inside one process, and no other host can reach \
    it: serve with --provider shm, tcp or verbs. Without --connect, every mode runs both ends itself";

pub const EXAMPLES: &str = "\
Examples:
  rpcrdma-bench serve --provider verbs                        on one host
  rpcrdma-bench lat --provider verbs --connect 10.0.0.2       on the other, with all options
  rpcrdma-bench rate -w 64 --provider verbs --connect 10.0.0.2

  rpcrdma-bench serve --provider verbs -a 10.0.0.2 --port 4000 --once

  rpcrdma-bench serve --provider tcp -a 10.0.0.2              the same without RDMA devices
  rpcrdma-bench lat --provider tcp --connect 10.0.0.2

  rpcrdma-bench serve --listen shm:/tmp/b.sock                in one terminal
  rpcrdma-bench lat --connect shm:/tmp/b.sock                 in another

Sizes, credits, placement and the engine's configuration are those of the client's options; the
server rejects what it cannot do. The TCP port or the socket carries these settings only; RPCs use
RDMA, TCP or shared memory. The port has no authentication: use it in a trusted network. Who may connect
to a socket is decided by the permissions of its path.";

#[cfg(test)]
mod tests;
