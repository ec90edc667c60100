//! A client whose server is in another process, and a server for such a client.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rpcrdma::{Address, Clock, Engine, Provider, Shard, Snapshot};
use rpcrdma_config::Config;

use super::caller::Caller;
use super::contender::{Opposite, Rpc, out};
use super::ends::{connect, make_engine, make_server, poll, serve};
use super::idle::Idling;
use super::server::Server;
use crate::call::Load;
use crate::contenders::agree::ServerCounts;
use crate::contenders::far::Far;
use crate::contenders::tally::{Held, ServerPart, Tally};
use crate::device::Place;
use crate::error::BenchError;
use crate::machine::pair::{Stop, preemptions};
use crate::machine::{CorePair, on_core, pin};

impl<P: Provider> Rpc<P> {
    /// A client whose server is elsewhere: has it set itself up, and connects with it.
    pub(super) fn distant(
        name: &'static str,
        provider: P,
        place: Place,
        cores: CorePair,
        others: &[u32],
        config: &Config,
        load: &Load,
    ) -> Result<Rpc<P>, BenchError> {
        let engine = make_engine(provider, config, load)?;
        let (mut far, at) = Far::ask(place, cores, load, config)?;
        let mut clients = Vec::new();
        for core in [cores.client].iter().chain(others) {
            let mut client = on_core(*core, || Ok(engine.client()?))?;
            let peers = connect(&mut client, at, load.connections, &mut |_| {})?;
            clients.push((client, peers, *core));
        }
        // Credits and properties are still on their way.
        let (until, clock) = (Instant::now() + QUIESCE_TIME, Clock::new());
        while Instant::now() < until {
            clients.iter_mut().for_each(|(client, ..)| poll(client, clock.now()));
            thread::yield_now();
        }
        far.pause()?;
        let before = vec![clients[0].0.handle().stats(), far.seen().counters];
        let mut callers = Vec::new();
        for (client, peers, core) in clients {
            callers.push((Caller::new(client, peers, load)?, core));
        }
        let (caller, _) = callers.remove(0);
        Ok(Rpc {
            name,
            cores,
            config: config.clone(),
            load: *load,
            timed: false,
            before,
            caller,
            others: callers,
            opposite: Opposite::There(Box::new(far)),
            address: at,
            engine,
        })
    }
}

/// A server that answers the calls of a client in another process, on one core.
pub struct Answering<P: Provider> {
    shard: Shard<P, Server>,
    core: u32,
    config: Config,
    // Last, so that the control plane outlives the shard.
    _engine: Arc<Engine<P>>,
}

impl<P: Provider> Answering<P> {
    /// Sets one up for such calls, and says where it listens.
    pub fn new(
        provider: P,
        at: Address,
        core: u32,
        config: &Config,
        load: &Load,
    ) -> Result<(Answering<P>, Address), BenchError> {
        let engine = make_engine(provider, config, load)?;
        let address = engine.listen(at)?;
        let shard = make_server(&engine, core, load)?;
        Ok((Answering { shard, core, config: config.clone(), _engine: engine }, address))
    }

    /// Answers calls on the calling thread until it is stopped, and counts what is named.
    pub fn serve(&mut self, stop: &Stop, tally: Tally) -> Result<ServerCounts, BenchError> {
        pin(self.core)?;
        let (before, idle) = (preemptions(), self.config.engine().idle);
        let part = ServerPart::of(tally, || serve(&mut self.shard, Idling::new(idle), stop))?;
        let part = ServerPart { preempted: preemptions().saturating_sub(before), ..part };
        let held = Held::here(out(&self.shard.audit()));
        Ok(ServerCounts { counters: self.counters(), part, held })
    }

    pub fn counters(&self) -> Snapshot {
        self.shard.handle().stats()
    }
}

/// For control messages after the last connection.
const QUIESCE_TIME: Duration = Duration::from_millis(50);
