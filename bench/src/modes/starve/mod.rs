//! `starve`: clients ask for more than the server grants, and some calls are slow.
//!
//! ```text
//!   clients x connections x credits asked for = 4 x what the server's Receives can grant
//!   even ──▶ tickets ──▶ blocking ──▶ blocking ──▶ tickets ──▶ even ...    rounds in turns
//!     each: load for its time; then no slow calls any more, until all that were open are answered;
//!           then no calls any more, until none is open
//! ```
//! Connections are made with no retry for a message that finds no Receive: the first one that does
//! ends its connection, and is seen.

mod caller;
mod report;
mod server;

use std::time::Duration;

use rpcrdma_config::{Config, Raw};
use rpcrdma::{Address, Clock, Engine, Provider, Shard};
use serde_json::{Value, json};

use crate::args::{CoreArgs, DeviceArgs, LengthArgs, SeedArgs, parse};
use crate::contenders::rpc;
use crate::device::{Device, on_device};
use crate::error::BenchError;
use crate::machine::CorePair;
use crate::machine::pair::{self, Stop};
use crate::modes::experiment::Experiment;
use crate::output::{OutputArgs, Report, Session};
use crate::stats::End;
use caller::{CallTally, StarvedClient};
use report::Fed;
use server::{Orders, Slow, SlowServer};

/// The options of the mode.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Number of clients, each with its own shard
    #[arg(long, value_name = "N", default_value_t = 4)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    pub clients: u32,
    /// Connections per client
    #[arg(short = 'k', long, value_name = "N", default_value_t = 4)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    pub connections: u32,
    /// Calls in flight that each connection asks for
    #[arg(long, value_name = "N", default_value_t = 32)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=256))]
    pub credits: u32,
    /// Calls asked for in total, as a multiple of what the server grants
    #[arg(long, value_name = "TIMES", default_value_t = 4)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    pub over: u32,
    /// Share of slow calls
    #[arg(long, value_name = "SHARE", default_value_t = 0.001)]
    pub slow: f64,
    /// Duration of a slow call
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = parse::delay)]
    pub slow_time: Duration,
    /// Which calls are slow.
    #[command(flatten)]
    pub seed: SeedArgs,
    #[command(flatten)]
    pub cores: CoreArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
    #[command(flatten)]
    pub length: LengthArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

impl Args {
    fn wanted(&self) -> u32 {
        self.clients * self.connections * self.credits
    }

    /// Receives that the server grants at most: at least one for each connection, and as many as
    /// one alone may ask for.
    fn granted(&self) -> u32 {
        (self.wanted() / self.over).max(self.clients * self.connections).max(self.credits)
    }

    fn check(&self) -> Result<(), BenchError> {
        self.device.check()?;
        if !(0.0..=1.0).contains(&self.slow) {
            return Err(BenchError::Usage("--slow: a share from 0 to 1".into()));
        }
        if self.wanted() > WANTED_MAX {
            let text = format!("clients x connections x credits: {WANTED_MAX} at most");
            return Err(BenchError::Usage(text));
        }
        Ok(())
    }

    fn settings(&self, cores: CorePair) -> Value {
        json!({
            "mode": "starve", "clients": self.clients, "connections": self.connections,
            "credits": self.credits, "wanted": self.wanted(), "granted": self.granted(),
            "slow_share": self.slow, "slow_ns": self.slow_time.as_nanos() as u64,
            "seed": self.seed.seed, "cores": cores, "rounds": self.length.rounds,
        })
    }

    fn sentence(&self, cores: CorePair) -> String {
        format!(
            "starve: {} clients of {} connections want {} calls under way, the server grants {}; {} % \
             of calls take {} us; cores {cores}, {} rounds",
            self.clients,
            self.connections,
            self.wanted(),
            self.granted(),
            self.slow * 100.0,
            self.slow_time.as_micros(),
            self.length.rounds
        )
    }
}

pub fn measure(args: &Args, session: &Session) -> Result<Report, BenchError> {
    args.check()?;
    let cores = CorePair::choose(args.cores.cores)?;
    let config = config(args)?;
    session.announce(&args.sentence(cores))?;
    on_device!(&args.device, &config, of_both_ends, |device| measure_on(
        device, args, cores, &config, session
    ))
}

fn measure_on<D: Device>(
    device: &D,
    args: &Args,
    cores: CorePair,
    config: &Config,
    session: &Session,
) -> Result<Report, BenchError> {
    let mut setup = Setup::new(device.open()?, device.at(), args, config, cores)?;
    let quota = args.length.quota(SECONDS, 0);
    let rounds = args.length.rounds;
    let time = match quota.end {
        End::Time(time) => time,
        End::Count(_) => SECONDS / rounds,
    };
    let turns = CONTENDERS.len();
    let experiment = Experiment {
        mode: WHO,
        what: args.sentence(cores),
        settings: args.settings(cores),
        cores,
        rounds,
        turns,
        expected: time * rounds * turns as u32,
        notes: device.notes(),
    };
    let (records, report) = experiment.run(session, |_, turn, records| {
        let slow = CONTENDERS[turn];
        report::take(records, slow, &setup.round(slow, time)?);
        Ok(())
    })?;
    Ok(report::summed(&records, setup.closed(), report))
}

struct Setup<P: Provider> {
    cores: CorePair,
    credits: u32,
    orders: Orders,
    server: Shard<P, SlowServer>,
    callers: Vec<StarvedClient<P>>,
    // Last, so that the control plane outlives the shards.
    _engine: Engine<P>,
}

impl<P: Provider> Setup<P> {
    fn new(
        provider: P,
        at: Address,
        args: &Args,
        config: &Config,
        cores: CorePair,
    ) -> Result<Setup<P>, BenchError> {
        let engine = Engine::new(provider, config.clone())?;
        let address = engine.listen(at)?;
        let orders = Orders::default();
        let slow_ns = args.slow_time.as_nanos() as u64;
        let seed = args.seed.seed;
        let handler =
            SlowServer::new(orders.clone(), seed, args.slow, slow_ns, args.granted() as usize);
        let mut server = engine.shard(handler)?;
        let mut callers = Vec::new();
        for _ in 0..args.clients {
            let mut client = engine.client()?;
            let peers = rpc::connect(&mut client, address, args.connections, &mut |now| {
                server.poll_once(now);
            })?;
            callers.push(StarvedClient::new(client, &peers, args.credits));
        }
        Ok(Setup { cores, credits: args.credits, orders, server, callers, _engine: engine })
    }

    fn round(&mut self, slow: Slow, time: Duration) -> Result<Fed, BenchError> {
        let Setup { cores, credits, orders, server, callers, .. } = self;
        let slow_before = server.handler().slow;
        orders.set(slow);
        let (orders, each) = (orders.clone(), *credits);
        let outcome = pair::run(
            *cores,
            move |stop| feed(callers, &orders, each, time, stop),
            |stop| {
                serve(server, stop);
                Ok(server.handler().slow)
            },
        )?;
        let slow = outcome.server - slow_before;
        Ok(Fed { slow, preempted: outcome.preempted, ..outcome.client })
    }

    fn closed(&self) -> u64 {
        self.callers.iter().map(StarvedClient::closed).sum()
    }
}

fn feed<P: Provider>(
    callers: &mut [StarvedClient<P>],
    orders: &Orders,
    each: u32,
    time: Duration,
    stop: &Stop,
) -> Result<Fed, BenchError> {
    let clock = Clock::new();
    let mut tally = CallTally::default();
    let turn = |callers: &mut [StarvedClient<P>], tally: &mut CallTally| {
        callers.iter_mut().try_for_each(|caller| caller.turn(&clock, each, tally))
    };
    let began = clock.now();
    let until = began + time.as_nanos() as u64;
    let mut now = began;
    while now < until {
        turn(callers, &mut tally)?;
        now = clock.now();
        if stop.is_set() {
            return Err(BenchError::PeerGone { who: WHO });
        }
    }
    let elapsed_ns = now - began;
    orders.set(Slow::None);
    let (even, patience) = (now, now + PATIENCE.as_nanos() as u64);
    // What comes now still counts as answered or not, and neither as rate nor as latency.
    let mut rest = CallTally::default();
    while callers.iter().any(|caller| caller.has_open_before(even)) && now < patience {
        turn(callers, &mut rest)?;
        now = clock.now();
    }
    let recovered_ns = (now < patience).then_some(now - even);
    while callers.iter().any(|caller| caller.open() > 0) && now < patience {
        callers.iter_mut().for_each(|caller| caller.poll(&clock, &mut rest));
        now = clock.now();
    }
    callers.iter_mut().for_each(StarvedClient::forget_waiting);
    tally.twice += rest.twice;
    tally.failed += rest.failed;
    let lost = callers.iter().map(StarvedClient::open).sum();
    Ok(Fed { tally, elapsed_ns, recovered_ns, lost, slow: 0, preempted: 0 })
}

fn serve<P: Provider>(server: &mut Shard<P, SlowServer>, stop: &Stop) {
    let clock = Clock::new();
    let (mut now, mut idle) = (clock.now(), 0_u32);
    loop {
        if server.poll_once(now) {
            now = clock.now();
            continue;
        }
        idle = idle.wrapping_add(1);
        if idle.is_multiple_of(TURNS_PER_READING) || server.handler().is_busy() {
            now = clock.now();
        }
        if stop.is_set() {
            return;
        }
    }
}

/// An engine whose Receives do not suffice for what is asked of it.
fn config(args: &Args) -> Result<Config, BenchError> {
    let mut raw: Raw = Config::profile("latency")?.raw().clone();
    let (connections, credits) = (args.clients * args.connections, i64::from(args.credits));
    let calls = args.connections * args.credits;
    raw.connections.max = connections.into();
    raw.connections.credits = credits;
    raw.connections.credits_requested = credits;
    raw.connections.calls_max = calls.into();
    // An echo of 64 bytes takes one Send each way.
    raw.connections.call_transmissions_max = 1;
    raw.connections.reply_transmissions_max = 1;
    raw.connections.request_transmissions_max = 1;
    raw.connections.response_transmissions_max = 1;
    // The first message that finds no Receive ends its connection.
    raw.connections.rnr_retry = 0;
    raw.receive.replies = calls.into();
    raw.receive.buffers = (args.granted() + calls + CONTROL).into();
    raw.send.slots = i64::from(2 * args.granted().max(calls)) + i64::from(CONTROL);
    raw.app.bulk.count = 1;
    args.device.name_in(&mut raw);
    Ok(Config::try_from(raw)?)
}

/// Who runs against each other; the first is what the others are compared with.
const CONTENDERS: [Slow; 3] = [Slow::None, Slow::Tickets, Slow::Blocking];
const WHO: &str = "starve";
const SECONDS: Duration = Duration::from_secs(2);
/// The longest that anything may take after the load has ended.
const PATIENCE: Duration = Duration::from_secs(10);
/// Turns without work between two readings of the clock.
const TURNS_PER_READING: u32 = 16;
/// Receives for control messages, at most.
const CONTROL: u32 = 64;
const WANTED_MAX: u32 = 1 << 15;

pub const EXAMPLES: &str = "\
Examples:
  rpcrdma-bench starve                          512 calls wanted, 128 granted, one in 1000 slow
  rpcrdma-bench starve --over 1                 the same with enough Receives for all
  rpcrdma-bench starve --slow 0.01 --slow-time 100us
  rpcrdma-bench starve -k 16 --clients 8        128 connections
  rpcrdma-bench starve --fail-if 'tickets/even.ratio.rate<0.95'

`even` has no slow calls, `tickets` defers slow calls, and `blocking` spends their time in the
handler, so that all other calls wait.";

#[cfg(test)]
mod tests {
    use rpcrdma::Fabric;

    use super::*;
    use crate::testing::parsed;

    fn args(options: &str) -> Args {
        parsed(options)
    }

    #[test]
    fn the_server_grants_a_quarter_of_what_is_wanted_and_one_to_each_connection() {
        assert_eq!((args("").wanted(), args("").granted()), (512, 128));
        assert_eq!(args("--over 1").granted(), 512);
        assert_eq!(args("--credits 1 --over 64").granted(), 16);
        assert_eq!(args("--over 64").granted(), 32, "what one alone may ask for");
    }

    #[test]
    fn every_load_within_the_limits_can_be_configured() {
        for options in
            ["", "--over 64", "--credits 1", "-k 64 --clients 64 --credits 8", "--clients 1 -k 1"]
        {
            let args = args(options);
            args.check().unwrap_or_else(|error| panic!("{options}: {error}"));
            config(&args).unwrap_or_else(|error| panic!("{options}: {error}"));
        }
        assert!(args("-k 64 --clients 64 --credits 256").check().is_err());
        assert!(args("--slow 1.5").check().is_err());
    }

    fn setup(args: &Args) -> Option<Setup<Fabric>> {
        let cores = CorePair::choose(None).ok()?;
        let config = config(args).expect("it adds up");
        let (at, fabric) =
            ("127.0.0.1:0".parse().expect("an address"), Fabric::from_config(&config));
        let setup = Setup::new(fabric.expect("a fabric"), at, args, &config, cores);
        Some(setup.expect("the engine has room"))
    }

    fn fed(options: &str, slow: Slow) -> Option<(Fed, u64)> {
        let mut setup = setup(&args(options))?;
        let time = Duration::from_millis(100);
        // On a loaded machine both threads may not get their cores within the time of a round.
        let mut rounds = (0..20).map(|_| setup.round(slow, time).expect("the calls are answered"));
        let fed = rounds.find(|Fed { tally, lost, .. }| {
            *lost > 0 || tally.twice > 0 || tally.failed > 0 || tally.answered > 1000
        });
        drop(rounds);
        Some((fed.expect("one of the rounds has calls"), setup.closed()))
    }

    #[test]
    fn nothing_is_lost_however_slow_calls_are_handled() {
        for slow in CONTENDERS {
            let Some((fed, closed)) = fed("--slow 0.01 --slow-time 100us", slow) else { return };
            assert_eq!(
                (fed.lost, fed.tally.twice, fed.tally.failed, closed),
                (0, 0, 0, 0),
                "{slow:?}"
            );
            assert!(fed.tally.answered > 0 && fed.recovered_ns.is_some(), "{slow:?}");
            assert_eq!(fed.slow > 0, slow != Slow::None, "{slow:?}: {}", fed.slow);
        }
    }

    #[test]
    fn the_server_keeps_as_many_receives_for_calls_as_the_sentence_says() {
        for options in ["", "--over 1 --credits 8"] {
            let args = args(options);
            let Some(setup) = setup(&args) else { return };
            let audit = setup.server.audit();
            assert_eq!(audit.grant_receives, args.granted(), "{options}");
            assert!(audit.granted <= args.granted(), "{options}: {}", audit.granted);
        }
    }

    #[test]
    fn calls_wait_for_credits_where_too_few_are_granted() {
        let Some((fed, _)) = fed("", Slow::None) else { return };
        assert!(fed.tally.stalls.count() > 0);
    }
}
