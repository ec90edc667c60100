//! The two ends apart: a client whose server is on another host, and a server for such a client.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use rpcrdma_config::Config;
use rpcrdma_engine::{Client, Clock, Engine, PeerId, Provider, Shard, Snapshot};

use super::caller::Caller;
use super::idle::Idling;
use super::server::Server;
use super::ways::offered;
use super::{PATIENCE, device, make_server, on_core, serve};
use crate::contenders::call::Load;
use crate::contenders::far::Far;
use crate::contenders::open::{Offer, OpenRound};
use crate::contenders::pair::{self, Stop};
use crate::device::cores::{CorePair, pin};
use crate::error::BenchError;
use crate::stats::meter::{Meter, Quota, Round};
use crate::stats::rounds::{Contender, Spent};

/// A client that is connected with a server on another host.
pub struct Distant<P: Provider> {
    cores: CorePair,
    config: Config,
    timed: bool,
    caller: Caller<P>,
    server: SocketAddr,
    far: Far,
    /// What the client had counted before the first call.
    before: Snapshot,
    // Last, so that the control plane outlives the shard.
    _engine: Engine<P>,
}

impl<P: Provider> Distant<P> {
    /// Has a server set itself up, and connects with it. Round trips are timed when `timed` and
    /// only one is under way; else they are counted.
    ///
    /// # Errors
    /// When the server refuses, the engine cannot be set up, or a connection is not to be had.
    pub fn new(
        provider: P,
        server: SocketAddr,
        cores: CorePair,
        config: &Config,
        load: &Load,
        timed: bool,
    ) -> Result<Distant<P>, BenchError> {
        let engine = Engine::new(provider, config.clone())?;
        let mut client = on_core(cores.client, || Ok(engine.client()?))?;
        let (far, at) = Far::ask(server, load, config)?;
        let peers = connect(&mut client, at, load.connections)?;
        let before = client.handle().stats();
        let caller = Caller::new(client, peers, load)?;
        let timed = timed && load.window == 1;
        let config = config.clone();
        Ok(Distant { cores, config, timed, caller, server, far, before, _engine: engine })
    }

    /// Keeps the window full for one round and counts: what it can do at most.
    ///
    /// # Errors
    /// When a call fails, or the server goes.
    pub fn closed(&mut self, quota: Quota) -> Result<Round, BenchError> {
        self.measure(quota, false)
    }

    /// Offers calls for one round, whether or not others have come back, up to the window.
    ///
    /// # Errors
    /// When a call fails, or the server goes.
    pub fn open(&mut self, offer: &Offer) -> Result<OpenRound, BenchError> {
        let Distant { cores, caller, far, .. } = self;
        let outcome = pair::run(
            *cores,
            move |stop| offered(caller, offer, stop),
            move |stop| far.watch(stop),
        )?;
        Ok(OpenRound { preempted: outcome.preempted, ..outcome.client })
    }

    /// What it uses, for the report.
    pub fn notes(&self) -> Vec<String> {
        let structure = self.config.recv_structure();
        vec![
            format!("rpc: the server is at {}, set up as this client is", self.server),
            format!(
                "rpc: {} Receives of {} + {} bytes, {} send slots on each side",
                self.config.receive().buffers.value(),
                structure.leading_len(),
                structure.total_len() - structure.leading_len(),
                self.config.send().slots.value(),
            ),
            format!("rpc: {}", self.caller.obtained()),
        ]
    }

    fn measure(&mut self, quota: Quota, timed: bool) -> Result<Round, BenchError> {
        let Distant { cores, config, caller, far, .. } = self;
        let idle = config.engine().idle;
        let outcome = pair::run(
            *cores,
            move |stop| {
                let meter = Meter::new(quota);
                if timed {
                    caller.one_by_one(meter, Idling::new(idle), stop)
                } else {
                    caller.window(meter, Idling::new(idle), stop)
                }
            },
            move |stop| far.watch(stop),
        )?;
        Ok(Round { preempted: outcome.preempted, ..outcome.client })
    }
}

impl<P: Provider> Contender for Distant<P> {
    fn name(&self) -> &'static str {
        "rpc"
    }

    fn round(&mut self, quota: Quota) -> Result<Round, BenchError> {
        self.measure(quota, self.timed)
    }

    fn spent(&self) -> Vec<Spent> {
        let (before, after) = (&self.before, self.caller.counters());
        let spent = [
            after.doorbells - before.doorbells,
            after.sent - before.sent,
            after.completions - before.completions,
        ];
        vec![Spent::new("rpc", "client", spent, self.caller.received())]
    }
}

/// A server that answers the calls of a client on another host, on one core.
pub struct Answering<P: Provider> {
    shard: Shard<P, Server>,
    core: u32,
    config: Config,
    // Last, so that the control plane outlives the shard.
    _engine: Engine<P>,
}

impl<P: Provider> Answering<P> {
    /// Sets one up for such calls, and says where it listens.
    ///
    /// # Errors
    /// When the engine cannot be set up.
    pub fn new(
        provider: P,
        at: SocketAddr,
        core: u32,
        config: &Config,
        load: &Load,
    ) -> Result<(Answering<P>, SocketAddr), BenchError> {
        let engine = Engine::new(provider, config.clone())?;
        let address = engine.listen(at)?;
        let shard = make_server(&engine, core, load)?;
        Ok((Answering { shard, core, config: config.clone(), _engine: engine }, address))
    }

    /// Answers calls on the calling thread until it is stopped.
    ///
    /// # Errors
    /// The first call that could not be answered as it should have been.
    pub fn serve(&mut self, stop: &Stop) -> Result<(), BenchError> {
        pin(self.core)?;
        serve(&mut self.shard, Idling::new(self.config.engine().idle), stop)
    }

    /// What it has counted.
    pub fn counters(&self) -> Snapshot {
        self.shard.handle().stats()
    }
}

/// Connects as often as wished with a server that somebody else polls.
fn connect<P: Provider>(
    client: &mut Client<P>,
    to: SocketAddr,
    connections: u32,
) -> Result<Vec<PeerId>, BenchError> {
    let clock = Clock::new();
    let mut peers = Vec::new();
    for _ in 0..connections {
        let attempt = client.begin_connect(to)?;
        let deadline = Instant::now() + PATIENCE;
        let peer = loop {
            client.poll(clock.now(), |_| {});
            if let Some(outcome) = client.connected(attempt) {
                break outcome.map_err(|reason| device(&reason))?;
            }
            if Instant::now() > deadline {
                return Err(device(&"no connection in time"));
            }
            thread::yield_now();
        };
        peers.push(peer);
    }
    // Credits and properties are still on their way.
    let until = Instant::now() + SETTLE;
    while Instant::now() < until {
        client.poll(clock.now(), |_| {});
        thread::yield_now();
    }
    Ok(peers)
}

/// For control messages after the last connection.
const SETTLE: Duration = Duration::from_millis(50);
