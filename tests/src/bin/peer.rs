//! One end of a connection under faults: a server that checks the calls, or a caller that continues
//! after losses.
#![expect(unsafe_code, reason = "a server forks")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rpcrdma::{
    Address, Client, Config, Engine, Provider, ProviderKind, SetupError, provider_for,
    with_provider,
};
use rpcrdma_tests::caller::{Account, Caller, Task};
use rpcrdma_tests::service::Service;
use rpcrdma_tests::setup::{checked, small, suited};
use rpcrdma_verbs::Verbs;

const USAGE: &str = "peer serve ADDRESS --until FILE [--fork FILE] [--device NAME] [--map yes]
                   [--deny ENTRY]
peer call ADDRESS [--until FILE] [--calls N] [--lines N] [--bytes N] [--again yes] [--progress FILE]
                  [--seconds N] [--device NAME] [--map yes]

ADDRESS is that of an RDMA device, or another one of this host for TCP, or a socket of shared
memory: shm:PATH.

  --provider P      tcp or verbs (what the address is of)
  --until FILE      goes on until the file exists
  --fork FILE       forks a child when the file exists, which lives as long (serve)
  --calls N         calls of each line (all there is time for, if --until is given; else 1000)
  --lines N         connections (2)
  --bytes N         of a call and of its reply, at most (30000)
  --again yes       connects again when a connection is lost, and repeats its calls
  --progress FILE   how many calls each line has had answered, at least; - says it in lines
  --seconds N       after that it has hung (120)
  --map yes         maps the pools of a peer that does so, too (shm.map_pools)
  --deny ENTRY      rejects these peers (connections.deny)

Ends with 0 if every call was answered, with 3 if a line was lost, with 4 if it has hung.";

/// The command line.
struct Wanted {
    serves: bool,
    at: Address,
    provider: Option<String>,
    device: Option<String>,
    until: Option<PathBuf>,
    fork: Option<PathBuf>,
    progress: Option<PathBuf>,
    calls: Option<u64>,
    lines: u32,
    bytes_max: u32,
    again: bool,
    maps_pools: bool,
    deny: Vec<String>,
    seconds: u64,
}

fn main() -> ExitCode {
    let Some(wanted) = wanted() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let config = config(&wanted);
    let ended = match config.engine().provider {
        ProviderKind::Verbs => Verbs::from_config(&config).and_then(|device| {
            let ended = run(device.clone(), config, &wanted);
            println!("{:?}", device.events());
            ended
        }),
        kind => with_provider!(kind, |Device| {
            Device::from_config(&config).and_then(|device| run(device, config, &wanted))
        }),
    };
    ended.unwrap_or_else(|why| {
        eprintln!("{why}");
        ExitCode::FAILURE
    })
}

fn config(wanted: &Wanted) -> Config {
    let mut raw = small();
    raw.shm.map_pools = wanted.maps_pools;
    if let Some(device) = &wanted.device {
        raw.verbs.device = device.as_str().into();
    }
    if let Some(provider) = &wanted.provider {
        raw.engine.provider = provider.as_str().into();
    }
    let kind = provider_for(&checked(&raw), Some(wanted.at));
    raw.engine.provider = kind.as_str().into();
    // Lost packets are sent again soon. Soft-RoCE retries for ever if the count is seven, so it is
    // six.
    raw.verbs.ack_timeout = 16;
    raw.verbs.retry_count = 6;
    raw.engine.idle.policy = "block".into();
    raw.engine.idle.spin = "20us".into();
    raw.connections.max = i64::from(wanted.lines.max(8));
    raw.connections.deny.clone_from(&wanted.deny);
    raw.connections.stop_timeout = "2s".into();
    // A peer that does not learn of the end of a connection never answers.
    raw.connections.call_timeout = "3s".into();
    checked(&raw)
}

fn run<P: Provider>(device: P, config: Config, wanted: &Wanted) -> Result<ExitCode, SetupError> {
    let config = suited(&device, config.raw());
    let engine = Engine::new(device, config)?;
    if wanted.serves { serve(engine, wanted) } else { call(&engine, wanted) }
}

fn serve<P: Provider>(mut engine: Engine<P>, wanted: &Wanted) -> Result<ExitCode, SetupError> {
    let shards = engine.start(|_| Service::default())?;
    println!("listening at {}", engine.listen(wanted.at)?);
    let mut fork = wanted.fork.as_deref();
    while !exists(wanted.until.as_deref()) {
        if fork.is_some_and(Path::exists) {
            fork = None;
            println!("forked {}", fork_child(wanted));
        }
        std::thread::sleep(LOOK);
    }
    engine.stop();
    let stats = shards[0].stats();
    println!(
        "{} transmissions came, {} buffers leaked",
        stats.transmissions_received, stats.buffers_leaked
    );
    Ok(ExitCode::from(u8::from(stats.buffers_leaked > 0)))
}

/// Forks a child that uses nothing of the engine, and lives until the server is to end, or its
/// folder is gone.
fn fork_child(wanted: &Wanted) -> libc::pid_t {
    // SAFETY: the child uses nothing that another thread may have locked but the allocator, which
    // the C library keeps usable.
    let child = unsafe { libc::fork() };
    if child != 0 {
        return child;
    }
    let until = wanted.until.as_deref();
    while !exists(until) && exists(until.and_then(Path::parent)) {
        std::thread::sleep(LOOK);
    }
    // SAFETY: nothing of this process is used afterwards.
    unsafe { libc::_exit(0) }
}

fn call<P: Provider>(engine: &Engine<P>, wanted: &Wanted) -> Result<ExitCode, SetupError> {
    let task = Task {
        to: wanted.at,
        lines: wanted.lines as usize,
        calls: wanted.calls.unwrap_or(if wanted.until.is_some() { u64::MAX } else { 1_000 }),
        bytes_max: wanted.bytes_max,
        again: wanted.again,
    };
    let mut caller = Caller::new(engine, task)?;
    let hung = Instant::now() + Duration::from_secs(wanted.seconds);
    let mut look = Instant::now();
    let mut is_finishing = false;
    while caller.turn() {
        let now = Instant::now();
        if now < look {
            continue;
        }
        look = now + LOOK;
        report_progress(wanted.progress.as_deref(), caller.accounts());
        if !is_finishing && exists(wanted.until.as_deref()) {
            is_finishing = true;
            caller.finish();
        }
        if now > hung {
            println!("hung with {} calls open", caller.open());
            print(caller.accounts());
            return Ok(ExitCode::from(4));
        }
    }
    report_progress(wanted.progress.as_deref(), caller.accounts());
    Ok(outcome(&mut caller))
}

/// The outcome of every connection, and whether all buffers returned.
fn outcome<P: Provider>(caller: &mut Caller<P>) -> ExitCode {
    print(caller.accounts());
    let client: &mut Client<P> = caller.client();
    let stats = client.handle().stats();
    println!(
        "{} transmissions came, {} buffers leaked",
        stats.transmissions_received, stats.buffers_leaked
    );
    let is_lost = caller.accounts().any(|line| !line.failed.is_empty() || line.connected != 1);
    match (stats.buffers_leaked, is_lost) {
        (0, false) => ExitCode::SUCCESS,
        (0, true) => ExitCode::from(3),
        _ => ExitCode::FAILURE,
    }
}

fn print<'a>(accounts: impl Iterator<Item = &'a Account>) {
    for (index, Account { answered, failed, connected, unconnected }) in accounts.enumerate() {
        println!("line {index}: {answered} calls answered, connected {connected} times");
        for (why, count) in failed {
            println!("line {index}: {count} calls failed: {why}");
        }
        for (why, count) in unconnected {
            println!("line {index}: {count} times not connected: {why}");
        }
    }
}

fn report_progress<'a>(file: Option<&Path>, accounts: impl Iterator<Item = &'a Account>) {
    let Some(file) = file else { return };
    let least = accounts.map(|line| line.answered).min().unwrap_or_default();
    if file == Path::new("-") {
        return println!("answered {least}");
    }
    let new = file.with_extension("new");
    let written = std::fs::write(&new, format!("{least}\n"));
    written.and_then(|()| std::fs::rename(&new, file)).expect("progress can be written");
}

fn exists(file: Option<&Path>) -> bool {
    file.is_some_and(Path::exists)
}

fn wanted() -> Option<Wanted> {
    let mut args = std::env::args().skip(1);
    let serves = match args.next()?.as_str() {
        "serve" => true,
        "call" => false,
        _ => return None,
    };
    let at = args.next()?.parse().ok()?;
    let mut wanted = Wanted {
        serves,
        at,
        provider: None,
        device: None,
        until: None,
        fork: None,
        progress: None,
        calls: None,
        lines: 2,
        bytes_max: 30_000,
        again: false,
        maps_pools: false,
        deny: Vec::new(),
        seconds: 120,
    };
    while let Some(key) = args.next() {
        let value = args.next()?;
        match key.as_str() {
            "--provider" => wanted.provider = Some(value),
            "--device" => wanted.device = Some(value),
            "--until" => wanted.until = Some(value.into()),
            "--fork" => wanted.fork = Some(value.into()),
            "--progress" => wanted.progress = Some(value.into()),
            "--calls" => wanted.calls = Some(value.parse().ok()?),
            "--lines" => wanted.lines = value.parse().ok()?,
            "--bytes" => wanted.bytes_max = value.parse().ok()?,
            "--again" => wanted.again = value == "yes",
            "--map" => wanted.maps_pools = value == "yes",
            "--deny" => wanted.deny.push(value),
            "--seconds" => wanted.seconds = value.parse().ok()?,
            _ => return None,
        }
    }
    (wanted.until.is_some() || !serves).then_some(wanted)
}

/// How often files are looked for.
const LOOK: Duration = Duration::from_millis(50);
