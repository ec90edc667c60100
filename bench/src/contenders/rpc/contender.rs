//! The RPC itself: a client and a server of the engine, each on its core.
//!
//! Both shards are polled by the benchmark's own threads, as a host with a loop of its own would;
//! they are not polled during rounds of other contenders.

use std::iter;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rpcrdma::shard::audit::Audit;
use rpcrdma::{Address, Client, ConnectionId, Engine, Provider, Shard, Snapshot};
use rpcrdma_config::Config;

use super::caller::{Caller, NO_TIME};
use super::count::PerCall;
use super::ends::{connect, make_engine, make_server, poll, quiesce, serve};
use super::idle::Idling;
use super::message::WHO;
use super::server::Server;
use crate::call::Load;
use crate::contenders::far::Far;
use crate::contenders::tally::{Held, ServerPart, Tallied, Tally};
use crate::device::{Device, Place};
use crate::error::BenchError;
use crate::machine::pair::{self, PairOutcome, Stop};
use crate::machine::{CorePair, on_core};
use crate::stats::{Contender, Meter, Quota, Round, Spent};

/// A client and a server with some connections between them, kept over all rounds.
pub struct Rpc<P: Provider> {
    pub(super) name: &'static str,
    pub(super) cores: CorePair,
    pub(super) config: Config,
    pub(super) load: Load,
    pub(super) timed: bool,
    pub(super) caller: Caller<P>,
    /// Further clients, each on its core.
    pub(super) others: Vec<(Caller<P>, u32)>,
    pub(super) opposite: Opposite<P>,
    pub(super) address: Address,
    /// What the sides of this program had counted before the first call.
    pub(super) before: Vec<Snapshot>,
    // Last, so that the control plane outlives the shards.
    _engine: Arc<Engine<P>>,
}

impl<P: Provider> Rpc<P> {
    /// A client, and a server where the device says: here, or in another process. Round trips are
    /// timed when `timed` and only one is under way; else they are counted.
    pub fn on<D: Device<Provider = P>>(
        device: &D,
        name: &'static str,
        cores: CorePair,
        config: &Config,
        load: &Load,
        timed: bool,
    ) -> Result<Rpc<P>, BenchError> {
        let mut rpc = Rpc::of_clients(device, name, cores, &[], config, load)?;
        rpc.timed = timed && load.window == 1;
        Ok(rpc)
    }

    /// The same with further clients on these cores, each with a window and connections of its own.
    /// Calls are counted.
    pub fn of_clients<D: Device<Provider = P>>(
        device: &D,
        name: &'static str,
        cores: CorePair,
        others: &[u32],
        config: &Config,
        load: &Load,
    ) -> Result<Rpc<P>, BenchError> {
        Rpc::set_up(device, device.far(), name, (cores, others), config, load)
    }

    /// Clients that have one core leave it to each other.
    fn share_cores(&mut self) {
        let first = (&mut self.caller, self.cores.client);
        let others = self.others.iter_mut().map(|(caller, core)| (caller, *core));
        let mut all: Vec<(&mut Caller<P>, u32)> = iter::once(first).chain(others).collect();
        let cores: Vec<u32> = all.iter().map(|(_, core)| *core).collect();
        for (caller, core) in &mut all {
            if cores.iter().filter(|other| *other == core).count() > 1 {
                caller.share_core();
            }
        }
    }

    /// Sets both up in this process, each on its core, and connects them. Calls are counted.
    pub fn here<D: Device<Provider = P>>(
        device: &D,
        name: &'static str,
        cores: CorePair,
        config: &Config,
        load: &Load,
    ) -> Result<Rpc<P>, BenchError> {
        Rpc::set_up(device, None, name, (cores, &[]), config, load)
    }

    /// Sets up a server, in another process if there is a place for it, and a client on its core and
    /// on each of `others`, and connects them.
    fn set_up<D: Device<Provider = P>>(
        device: &D,
        far: Option<Place>,
        name: &'static str,
        (cores, others): (CorePair, &[u32]),
        config: &Config,
        load: &Load,
    ) -> Result<Rpc<P>, BenchError> {
        let engine = make_engine(device.open()?, config, load)?;
        let (mut opposite, address) = match far {
            Some(place) => {
                let (far, address) = Far::ask(place, cores, load, config)?;
                (Opposite::There(Box::new(far)), address)
            }
            None => {
                let address = engine.listen(device.at())?;
                let server = make_server(&engine, cores.server, load)?;
                (Opposite::Here(Box::new(server)), address)
            }
        };
        let mut clients = Vec::new();
        for core in iter::once(&cores.client).chain(others) {
            let mut client = on_core(*core, || Ok(engine.client()?))?;
            let turn = &mut |now| opposite.poll_once(now);
            let peers = connect(&mut client, address, load.connections, turn)?;
            clients.push((client, peers, *core));
        }
        Rpc::assemble(name, engine, address, Ends { clients, opposite, cores }, load)
    }

    /// Puts connected ends together, when nothing is on its way any more.
    pub(super) fn assemble(
        name: &'static str,
        engine: Arc<Engine<P>>,
        address: Address,
        ends: Ends<P>,
        load: &Load,
    ) -> Result<Rpc<P>, BenchError> {
        let Ends { mut clients, mut opposite, cores } = ends;
        let config = engine.config().clone();
        quiesce(opposite.quiet_time(&config), &mut |now| {
            clients.iter_mut().for_each(|(client, ..)| poll(client, now));
            opposite.poll_once(now);
        });
        if let Opposite::There(far) = &mut opposite {
            far.pause()?;
        }
        let callers = clients.into_iter();
        let callers =
            callers.map(|(client, peers, core)| Ok((Caller::new(client, peers, load)?, core)));
        let mut others = callers.collect::<Result<Vec<_>, BenchError>>()?;
        let (caller, _) = others.remove(0);
        let mut rpc = Rpc {
            name,
            cores,
            config,
            load: *load,
            timed: false,
            caller,
            others,
            opposite,
            address,
            before: Vec::new(),
            _engine: engine,
        };
        rpc.before = rpc.counters();
        rpc.share_cores();
        Ok(rpc)
    }

    /// What both shards have counted of each call so far, on average.
    pub fn per_call(&self) -> PerCall {
        PerCall::new(&self.before, &self.counters(), self.caller.received())
    }

    /// Makes `count` calls with both sides polled by the calling thread, in turns: software alone,
    /// no cache line travels. The window is kept full. For benches that count instructions, in
    /// `client_turn` and `server_turn`.
    pub fn on_this_thread(&mut self, count: u64) -> Result<(), BenchError> {
        let Rpc { caller, opposite, .. } = self;
        let (until, server) = (caller.sent() + count, opposite.here());
        while caller.received() < until {
            client_turn(caller, until)?;
            server_turn(server);
        }
        server.handler().failure()
    }

    pub(super) fn measure(&mut self, quota: Quota, timed: bool) -> Result<Round, BenchError> {
        let outcome = self.run(Tally::Nothing, |caller, idling, stop| {
            let meter = Meter::new(quota);
            if timed {
                caller.one_by_one(meter, idling, stop)
            } else {
                caller.window(meter, idling, stop)
            }
        })?;
        Ok(Round { preempted: outcome.preempted, ..outcome.client })
    }

    /// Runs the client's part of a round on its core, while the server answers on its own and
    /// counts what is named.
    pub(super) fn run<T: Send>(
        &mut self,
        tally: Tally,
        client: impl FnOnce(&mut Caller<P>, Idling, &Stop) -> Result<T, BenchError> + Send,
    ) -> Result<PairOutcome<T, ServerPart>, BenchError> {
        let Rpc { cores, config, caller, opposite, .. } = self;
        let idle = config.engine().idle;
        let client = move |stop: &Stop| client(caller, Idling::new(idle), stop);
        match opposite {
            Opposite::Here(server) => pair::run(*cores, client, |stop| {
                ServerPart::of(tally, || serve(server, Idling::new(idle), stop))
            }),
            Opposite::There(far) => far.round(cores.client, tally, client),
        }
    }

    /// What both shards have counted so far, the client's first.
    pub fn counters(&self) -> Vec<Snapshot> {
        let server = match &self.opposite {
            Opposite::Here(server) => server.handle().stats(),
            Opposite::There(far) => far.seen().counters,
        };
        vec![self.caller.counters(), server]
    }

    /// What both ends hold, in one process or in two. Between rounds only.
    pub fn held(&mut self) -> Held {
        let out = out(&self.caller.audit());
        match &mut self.opposite {
            Opposite::Here(server) => Held::here(out + self::out(&server.audit())),
            Opposite::There(far) => Held::here(out).and(far.seen().held),
        }
    }

    /// Calls that have ended since the connections were made.
    pub fn received(&self) -> u64 {
        self.caller.received()
    }

    /// As [`Rpc::closed`]. What is named is counted on the thread of each side, the client's first.
    pub fn counted(&mut self, quota: Quota, tally: Tally) -> Result<[Tallied; 2], BenchError> {
        let outcome = self.run(tally, |caller, idling, stop| {
            let mut parts = Some((Meter::new(quota), idling));
            let mut round = Err(BenchError::PeerGone { who: WHO });
            let seen = tally.around("client", &mut || {
                if let Some((meter, idling)) = parts.take() {
                    round = caller.window(meter, idling, stop);
                }
            });
            round.map(|_| seen)
        })?;
        Ok([outcome.client, outcome.server.tallied])
    }

    pub fn notes(&self) -> Vec<String> {
        let (name, config, structure) = (self.name, &self.config, self.config.recv_structure());
        let (leading, whole) = (structure.leading_len(), structure.total_len());
        let receives = format!(
            "{} Receives of {leading} + {} bytes, {} send slots",
            config.receive().buffers.value(),
            whole - leading,
            config.send().slots.value(),
        );
        let (connections, idle) = (self.load.connections, config.engine().idle.policy);
        match &self.opposite {
            Opposite::Here(server) => vec![
                format!("{name}: {connections} connection(s), {receives}, idle policy {idle:?}"),
                format!("{name}: {}", server.handle().resources()),
            ],
            Opposite::There(_) => vec![
                format!("{name}: the server is at {}, set up as this client is", self.address),
                format!("{name}: {receives} on each side"),
                format!("{name}: {}", self.caller.resources()),
            ],
        }
    }
}

impl<P: Provider> Contender for Rpc<P> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn round(&mut self, quota: Quota) -> Result<Round, BenchError> {
        self.measure(quota, self.timed)
    }

    fn spent(&self) -> Vec<Spent> {
        let sides = self.before.iter().zip(self.counters()).zip(["client", "server"]);
        let spent = |((before, after), side): ((&Snapshot, Snapshot), &'static str)| {
            let spent = [
                after.doorbells - before.doorbells,
                after.transmissions_sent - before.transmissions_sent,
                after.completions - before.completions,
            ];
            Spent::new(self.name, side, spent, self.caller.received())
        };
        sides.map(spent).collect()
    }
}

pub(super) enum Opposite<P: Provider> {
    Here(Box<Shard<P, Server>>),
    There(Box<Far>),
}

impl<P: Provider> Opposite<P> {
    /// One that is elsewhere polls itself.
    fn poll_once(&mut self, now: u64) {
        match self {
            Opposite::Here(server) => _ = server.poll_once(now),
            Opposite::There(_) => thread::yield_now(),
        }
    }

    /// How long control messages go on after the last connection.
    fn quiet_time(&self, config: &Config) -> Duration {
        match self {
            Opposite::Here(_) => config.fabric().delay * QUIESCE_TRIPS,
            Opposite::There(_) => QUIESCE_TIME,
        }
    }

    pub(super) fn here(&mut self) -> &mut Shard<P, Server> {
        match self {
            Opposite::Here(server) => server,
            Opposite::There(_) => panic!("a mode that needs it sets both ends up here"),
        }
    }
}

/// Clients, each with its connections and its core, and the server that they are connected with.
pub(super) struct Ends<P: Provider> {
    pub clients: Vec<(Client<P>, Vec<ConnectionId>, u32)>,
    pub opposite: Opposite<P>,
    pub cores: CorePair,
}

/// Fills the window, up to `until` calls in all, and polls once.
#[inline(never)]
fn client_turn<P: Provider>(caller: &mut Caller<P>, until: u64) -> Result<(), BenchError> {
    caller.turn(until)
}

#[inline(never)]
fn server_turn<P: Provider>(server: &mut Shard<P, Server>) {
    server.poll_once(NO_TIME);
}

/// What is missing from the pools of a shard.
pub(super) fn out(audit: &Audit) -> u64 {
    let receives = audit.receives_free + audit.receives_posted + audit.receives_refill;
    let held = [audit.send, audit.headers, audit.messages, audit.windows];
    let lent = [audit.spares, audit.bulk, audit.rdma_buffers];
    let held = held.into_iter().map(|one| one.total.saturating_sub(one.free));
    let lent = lent.into_iter().map(|one| one.total.saturating_sub(one.free));
    (held.chain(lent).sum::<usize>() + audit.receives.saturating_sub(receives)) as u64
}

/// One-way trips that control messages may go on for after the last connection.
const QUIESCE_TRIPS: u32 = 6;
/// The same with another process.
const QUIESCE_TIME: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use rpcrdma::Fabric;

    use super::*;
    use crate::device::Devices;
    use crate::modes::contest::{Contest, Plan};
    use crate::stats::End;

    /// Some calls with these options, over two rounds; `None` on a machine with one core.
    fn calls(options: &str, spoil: impl FnOnce(&mut Rpc<Fabric>)) -> Option<Called> {
        let contest = Contest::parse(options).expect("the options parse");
        let plan = match contest.plan() {
            Err(BenchError::OneCore { .. }) => return None,
            plan => plan.expect("the options fit together"),
        };
        let config = &plan.config;
        let device = Devices::fabrics(config).expect("a fabric");
        let rpc = Rpc::on(&device, "rpc", plan.cores, config, &plan.load, plan.is_timed());
        let mut rpc = rpc.expect("the engine has room");
        spoil(&mut rpc);
        let quota = Quota { warm_up: 3, end: End::Count(600) };
        let rounds = (0..2).map(|_| rpc.round(quota)).collect::<Result<Vec<_>, _>>();
        let stats = rpc.opposite.here().handle().stats();
        Some(Called { rounds, calls: stats.calls_received, sent: stats.transmissions_sent, plan })
    }

    struct Called {
        rounds: Result<Vec<Round>, BenchError>,
        calls: u64,
        sent: u64,
        plan: Plan,
    }

    fn good(options: &str) {
        let Some(outcome) = calls(options, |_| {}) else { return };
        let rounds = outcome.rounds.unwrap_or_else(|error| panic!("{options}: {error}"));
        assert!(rounds.iter().all(|round| round.completed >= 600), "{options}: {rounds:?}");
        assert!(outcome.calls >= 1200, "{options}: the server saw {} calls", outcome.calls);
    }

    #[test]
    fn every_operation_is_carried_in_line() {
        for op in ["null", "echo", "read", "write"] {
            good(&format!("lat --op {op} --size 1000 --touch all"));
        }
    }

    #[test]
    fn every_operation_is_carried_by_placement() {
        for op in ["echo", "read", "write"] {
            for size in ["4KiB", "64KiB"] {
                good(&format!("lat --op {op} --size {size} -p send --touch all"));
            }
        }
    }

    #[test]
    fn placed_data_longer_than_one_buffer_are_continued() {
        for op in ["read", "write"] {
            good(&format!("bw --op {op} --size 1MiB --window 2 --touch all -p send"));
        }
    }

    #[test]
    fn data_in_line_may_be_longer_than_a_segment() {
        for op in ["echo", "read", "write"] {
            good(&format!("lat --op {op} --size 12000 --touch all"));
        }
    }

    #[test]
    fn windows_and_connections_are_kept_full() {
        good("rate --window 32");
        good("rate --window 100 --connections 7 --touch all");
        good("rate --window 3 --connections 20");
        good("rate --window 16 --op read -p send");
    }

    #[test]
    fn every_idle_policy_ends_its_rounds() {
        for idle in ["spin", "backoff", "block"] {
            good(&format!("lat --idle {idle}"));
        }
    }

    #[test]
    fn replies_of_another_length_than_the_request_come() {
        good("lat --size 64 --reply 900 --touch all");
        good("lat --size 900 --reply 64 --touch all");
        good("lat --size 4096 --reply 100 -p send --touch all");
        good("lat --size 100 --reply 8192 -p send --touch all");
        good("lat --size 0 --touch all");
        good("lat --size 5 --reply 3 --touch all");
    }

    #[test]
    fn replies_take_as_many_transmissions_as_floor_and_raw_are_made_for() {
        for options in [
            "lat",
            "lat --op read -p send",
            "lat --op read -s 12000",
            "bw -s 64KiB",
            "bw -s 1MiB -w 1",
            "bw -s 300000 -w 1 -p inline",
        ] {
            let Some(Called { rounds, calls, sent, plan }) = calls(options, |_| {}) else {
                return;
            };
            rounds.unwrap_or_else(|error| panic!("{options}: {error}"));
            let [_, reply] = plan.on_wire();
            let replies = calls * reply.transmissions as u64;
            // A handful of control messages come on top.
            assert!((replies..replies + 100).contains(&sent), "{options}: {reply:?}, sent {sent}");
        }
    }

    #[test]
    fn a_server_with_other_data_is_found_out() {
        let spoil = |rpc: &mut Rpc<Fabric>| rpc.opposite.here().handler().spoil_file();
        let Some(outcome) = calls("lat --op read --touch all", spoil) else { return };
        assert!(matches!(outcome.rounds, Err(BenchError::WrongBytes { .. })));
    }
}
