//! A server for a client in another process.

use std::sync::Arc;

use rpcrdma::{Address, Engine, Provider, Shard, Snapshot};
use rpcrdma_config::Config;

use super::contender::out;
use super::ends::{make_engine, make_server, serve};
use super::idle::Idling;
use super::server::Server;
use crate::call::Load;
use crate::contenders::agree::ServerCounts;
use crate::contenders::tally::{Held, ServerPart, Tally};
use crate::error::BenchError;
use crate::machine::pair::{Stop, preemptions};
use crate::machine::pin;

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
