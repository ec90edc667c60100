//! A world of shards: servers and clients on one device and one thread, in virtual time if the
//! device allows it.
//!
//! ```text
//!   step ──▶ Control of the servers, Control of the clients, every server, every client
//!   step ──▶ ...          a step is a microsecond of virtual time, or real time
//! ```

mod calls;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use rpcrdma::control::Control;
use rpcrdma::provider::{ConnectError, ConnectId, DeviceCaps};
use rpcrdma::shard::audit::Audit;
use rpcrdma::{Address, Client, Completion, ConnectionId, Engine, Provider, SetupError, Shard};
use rpcrdma_config::Raw;

pub use crate::done::{Arrived, Back, Done, is_passing};
use crate::done::{arrived, back, looked_at};
pub use crate::opener::Open;
use crate::opener::Time;
use crate::script::Script;
use crate::service::{Service, Source};
use crate::setup::{GATHERS_ALL, LAST_XIDS, suited};
pub use crate::setup::{checked, large, small};

/// Servers and clients.
pub struct World<P: Provider> {
    // Dropped before their shards.
    sources: Vec<Source>,
    /// The address that the servers listen on.
    pub at: Address,
    /// The serving shards.
    pub servers: Vec<Shard<P, Service>>,
    /// The shards that call.
    pub clients: Vec<Client<P>>,
    /// The time in nanoseconds.
    pub now: u64,
    time: Time,
    /// Whether a shard had work in the last turn.
    was_busy: bool,
    /// Completed calls that were not checked yet.
    pub done: Vec<Done>,
    /// Open calls by cookie, with the index of the client.
    open: HashMap<u64, (usize, Script)>,
    /// The open calls whose reply is not compared.
    distrusted: HashSet<u64>,
    cookies: u64,
    /// Whether items are placed from buffers instead of from the source.
    pub lends: bool,
    /// What the device can do: some results depend on it.
    pub caps: DeviceCaps,
    /// The control planes: that of the servers first.
    pub controls: Vec<Control<P>>,
    engines: Vec<Engine<P>>,
}

/// The size and configuration of a world.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The number of serving shards.
    pub servers: usize,
    /// The number of calling shards.
    pub clients: usize,
    /// The configuration of the servers.
    pub serve: Raw,
    /// The configuration of the clients.
    pub call: Raw,
    /// Whether both are used as they are, and not made to suit the device.
    pub is_exact: bool,
}

impl Default for Plan {
    /// One server, one client, small memory, parts of up to 64 KiB.
    fn default() -> Plan {
        Plan { servers: 1, clients: 1, serve: small(), call: small(), is_exact: false }
    }
}

impl Plan {
    /// The same for both sides.
    pub fn both(change: impl Fn(&mut Raw)) -> Plan {
        let mut plan = Plan::default();
        change(&mut plan.serve);
        change(&mut plan.call);
        plan
    }
}

impl<P: Provider> World<P> {
    /// Sets up a world without connections.
    ///
    /// # Panics
    /// If anything cannot be made.
    pub fn new(open: Open<'_, P>, plan: &Plan) -> World<P> {
        let engine = |raw: &Raw| {
            let device = open.open();
            let caps = device.caps().clone();
            let config = if plan.is_exact { checked(raw) } else { suited(&device, raw) };
            (Engine::without_threads(device, config).expect("an engine"), caps)
        };
        let ((server, mut serving), caps) = engine(&plan.serve);
        let ((client, calling), _) = engine(&plan.call);
        let at = serving.listen(open.at()).expect("a port");
        // One thread and virtual time: two runs are equal. XIDs wrap soon.
        let seeded = |engine: &Engine<P>| engine.seed_xids(LAST_XIDS);
        let servers = (0..plan.servers).map(|_| {
            seeded(&server);
            server.shard(Service::default())
        });
        let servers: Result<Vec<_>, SetupError> = servers.collect();
        let clients = (0..plan.clients).map(|_| {
            seeded(&client);
            client.client()
        });
        let clients: Result<Vec<_>, SetupError> = clients.collect();
        let mut world = World {
            at,
            caps,
            servers: servers.expect("the shards that serve"),
            clients: clients.expect("the shards that call"),
            now: 1,
            time: open.time(),
            was_busy: false,
            done: Vec::new(),
            open: HashMap::new(),
            distrusted: HashSet::new(),
            sources: (0..plan.clients).map(|_| Source::default()).collect(),
            cookies: 0,
            lends: false,
            controls: vec![serving, calling],
            engines: vec![server, client],
        };
        for (client, source) in world.clients.iter_mut().zip(&mut world.sources) {
            source.prepare(&mut client.turn(world.now));
        }
        world.step();
        world
    }

    /// Whether the device gathers the pieces of any message that scenarios send. Where it does not,
    /// items may be copied and come in line, and long messages are refused.
    pub fn gathers_all(&self) -> bool {
        self.caps.send_sge >= GATHERS_ALL
    }

    /// One server, one client, connected.
    pub fn pair(open: Open<'_, P>, plan: &Plan) -> (World<P>, ConnectionId) {
        let mut world = World::new(open, plan);
        let peer = world.connect(0);
        (world, peer)
    }

    /// One turn of every control plane and shard.
    pub fn step(&mut self) {
        for control in &mut self.controls {
            control.step(Duration::ZERO);
        }
        self.turn();
    }

    /// One turn of every shard; connections do not change.
    pub fn turn(&mut self) {
        self.was_busy = self.turn_servers();
        for at in 0..self.clients.len() {
            self.turn_client(at);
        }
    }

    /// One turn of every server; returns whether one had work.
    pub fn turn_servers(&mut self) -> bool {
        self.now = self.time.behind(self.now);
        let now = self.now;
        self.servers.iter_mut().fold(false, |is_busy, server| server.poll_once(now) | is_busy)
    }

    /// Passes the completion of a call that was not made by [`World::call`] to `done`.
    ///
    /// # Panics
    /// If no call completes.
    pub fn completion(&mut self, client: usize, mut done: impl FnMut(Completion<'_>)) {
        let mut count = 0;
        let mut patience = self.time.patience();
        while patience.is_left() {
            self.turn_servers();
            self.clients[client].poll(self.now, |completion| {
                done(completion);
                count += 1;
            });
            if count > 0 {
                assert_eq!(count, 1, "a call is completed once");
                return;
            }
        }
        panic!("a test waits no longer: a completion");
    }

    /// One turn of one client.
    pub fn turn_client(&mut self, at: usize) {
        let World { clients, open, done, now, distrusted, was_busy, .. } = self;
        *was_busy |= clients[at].poll(*now, |mut completion| {
            let cookie = completion.cookie();
            let (client, script) = open.remove(&cookie).expect("a call is completed once");
            assert_eq!(client, at, "by who made it");
            let result = completion.result().map(|reply| match distrusted.remove(&cookie) {
                true => looked_at(reply),
                false => arrived(reply, &script),
            });
            let sinks = (0..script.wants.len()).map(|want| back(&mut completion, want)).collect();
            done.push(Done { client: at, peer: completion.peer(), cookie, script, result, sinks });
        });
    }

    /// Steps until a condition holds.
    ///
    /// # Panics
    /// If it does not hold in time.
    pub fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut World<P>) -> bool) {
        let mut patience = self.time.patience();
        while patience.is_left() {
            if is_so(self) {
                return;
            }
            self.step();
        }
        let stats = self.servers.iter().map(|server| server.handle().stats());
        let stats = stats.chain(self.clients.iter().map(|client| client.handle().stats()));
        for stats in stats {
            println!("{:?}", stats.iter().filter(|(_, count)| *count > 0).collect::<Vec<_>>());
        }
        panic!("a test waits no longer: {what}; {} calls are open", self.open.len());
    }

    /// Steps until there was no work for a while, so that all messages have arrived.
    pub fn quiesce(&mut self) {
        let mut patience = self.time.quiet();
        while patience.is_left() {
            self.step();
            if self.was_busy {
                patience.begin_again(&self.time);
            }
        }
    }

    /// Connects a client.
    ///
    /// # Panics
    /// If that fails.
    pub fn connect(&mut self, client: usize) -> ConnectionId {
        self.try_connect(client).expect("a connection")
    }

    /// Requests a connection and waits for the outcome.
    ///
    /// # Errors
    /// Why it failed.
    pub fn try_connect(&mut self, client: usize) -> Result<ConnectionId, ConnectError> {
        let id = match self.clients[client].begin_connect(self.at) {
            Ok(id) => id,
            Err(SetupError::Connect { reason, .. }) => return Err(reason),
            Err(other) => panic!("an attempt: {other}"),
        };
        self.outcome(client, id)
    }

    /// Waits for the outcome of an attempt to connect.
    ///
    /// # Errors
    /// Why the connection failed.
    pub fn outcome(&mut self, client: usize, id: ConnectId) -> Result<ConnectionId, ConnectError> {
        self.outcome_with(client, id, || {})
    }

    /// As [`World::outcome`], with a closure called between the steps.
    ///
    /// # Errors
    /// Why the connection failed.
    pub fn outcome_with(
        &mut self,
        client: usize,
        id: ConnectId,
        mut other: impl FnMut(),
    ) -> Result<ConnectionId, ConnectError> {
        let mut outcome = None;
        self.until("the attempt to connect is over", |world| {
            other();
            outcome = world.clients[client].connected(id);
            outcome.is_some()
        });
        outcome.expect("it is over")
    }

    /// Drops a client and forgets its open calls. The indices of later clients decrease by one.
    pub fn drop_client(&mut self, at: usize) {
        self.open.retain(|_, (client, _)| *client != at);
        self.open.values_mut().for_each(|(client, _)| *client -= usize::from(*client > at));
        drop(self.sources.remove(at));
        drop(self.clients.remove(at));
    }

    /// The number of open calls.
    pub fn open_calls(&self) -> usize {
        self.open.len()
    }

    /// The engine of the servers.
    pub fn serving(&self) -> &Engine<P> {
        &self.engines[0]
    }

    /// The engine of the clients.
    pub fn calling(&self) -> &Engine<P> {
        &self.engines[1]
    }

    /// The source that the clients place from.
    pub fn source(&self, client: usize) -> &Source {
        &self.sources[client]
    }

    /// Waits until no shard uses resources of explicit RDMA.
    ///
    /// # Panics
    /// If one stays in use.
    pub fn check_all_returned(&mut self) {
        self.until("all resources of explicit RDMA are free", |world| {
            let servers = world.servers.iter().map(Shard::audit);
            let clients = world.clients.iter_mut().map(|client| client.shard().audit());
            servers.chain(clients).all(|audit| is_returned(&audit))
        });
    }

    /// Checks that no shard has lost memory, and that the counters account for every call.
    ///
    /// # Panics
    /// If something was lost, or counters do not add up.
    pub fn check_nothing_leaked(&self) {
        for server in &self.servers {
            let open = server.audit().peers.iter().map(|peer| u64::from(peer.open_calls)).sum();
            let stats = server.handle().stats();
            let ends = [stats.replies_sent, stats.refusals_sent, stats.calls_unanswered, open];
            assert_eq!(stats.calls_received, ends.iter().sum::<u64>(), "{ends:?}");
            let Audit { peers, gone, .. } = server.audit();
            let mut counts = gone;
            peers.iter().for_each(|peer| counts.add(&peer.counts));
            let of_connections =
                [counts.replies_sent, counts.refusals_sent, counts.calls_unanswered, open];
            assert_eq!(of_connections, ends, "what connections have counted");
            assert!(!peers.iter().any(|peer| peer.is_up && peer.is_closing), "{peers:?}");
        }
        let servers = self.servers.iter().map(Shard::handle);
        for handle in servers.chain(self.clients.iter().map(Client::handle)) {
            assert_eq!(handle.stats().buffers_leaked, 0, "{handle:?}");
        }
    }
}

/// Whether no resource of explicit RDMA is in use.
fn is_returned(audit: &Audit) -> bool {
    let Audit { windows, rdma_buffers, .. } = *audit;
    assert_eq!(windows.total, windows.free + windows.held, "no window is lost");
    let fetching: u32 = audit.peers.iter().map(|peer| peer.fetching).sum();
    let in_use = windows.held + rdma_buffers.leaving + audit.receives_held + fetching as usize;
    in_use + audit.exposures + audit.fetches == 0
        && rdma_buffers.free + rdma_buffers.returning == rdma_buffers.total
}
