//! Several clients and servers of one engine, each pair on its own cores.

use std::sync::Arc;
use std::thread;

use rpcrdma::{Address, Client, Provider, Shard};
use rpcrdma_config::Config;

use super::contender::{Ends, Opposite, Rpc};
use super::ends::{connect, make_engine, make_server};
use super::message::WHO;
use super::server::Server;
use crate::call::Load;
use crate::error::BenchError;
use crate::machine::{CorePair, on_core};
use crate::stats::{Quota, Round};

impl<P: Provider> Rpc<P> {
    /// One engine with a shard and a client for each pair of cores. Each client has a connection to
    /// a shard of its own.
    pub fn several(
        name: &'static str,
        provider: P,
        at: Address,
        pairs: &[CorePair],
        config: &Config,
        load: &Load,
    ) -> Result<Vec<Rpc<P>>, BenchError> {
        let engine = make_engine(provider, config, load)?;
        let address = engine.listen(at)?;
        let servers = pairs.iter().map(|pair| make_server(&engine, pair.server, load));
        let mut servers = servers.collect::<Result<Vec<_>, _>>()?;
        let mut connected = Vec::new();
        for pair in pairs {
            let mut client: Client<P> = on_core(pair.client, || Ok(engine.client()?))?;
            let peers = connect(&mut client, address, 1, &mut |now| {
                for server in &mut servers {
                    server.poll_once(now);
                }
            })?;
            connected.push((client, peers, pair.client, newest(&servers, &connected)?));
        }
        let mut servers: Vec<Option<Shard<P, Server>>> = servers.into_iter().map(Some).collect();
        let mut all = Vec::new();
        for (client, peers, core, index) in connected {
            let server = servers[index].take().expect("no shard is given twice");
            let cores = CorePair { client: core, server: pairs[index].server };
            let (clients, opposite) =
                (vec![(client, peers, core)], Opposite::Here(Box::new(server)));
            let ends = Ends { clients, opposite, cores };
            all.push(Rpc::assemble(name, Arc::clone(&engine), address, ends, load)?);
        }
        Ok(all)
    }
}

/// Runs a round of all of them at the same time, each with its window full.
///
/// # Panics
/// If one of the threads panics.
pub fn together<P: Provider>(all: &mut [Rpc<P>], quota: Quota) -> Result<Vec<Round>, BenchError> {
    thread::scope(|scope| {
        let rounds = all.iter_mut().map(|rpc| scope.spawn(move || rpc.closed(quota)));
        let rounds: Vec<_> = rounds.collect();
        let ends = rounds.into_iter().map(|round| round.join());
        ends.map(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// The shard with a connection that has no client yet.
fn newest<P: Provider, C>(
    servers: &[Shard<P, Server>],
    taken: &[(Client<P>, C, u32, usize)],
) -> Result<usize, BenchError> {
    let connections = |index: &usize| servers[*index].handle().connections();
    let is_new = |index: &usize| {
        connections(index) == 1 && !taken.iter().any(|(_, _, _, other)| other == index)
    };
    let what = || "two clients got to the same shard: there is no one pair for each core".into();
    let found = (0..servers.len()).find(is_new);
    found.ok_or_else(|| BenchError::NotAsNamed { who: WHO, what: what() })
}

#[cfg(test)]
mod tests {
    use rpcrdma::Fabric;

    use super::*;
    use crate::args::EngineArgs;
    use crate::call::Shape;
    use crate::settings::Need;
    use crate::stats::End;
    use crate::values::{Op, Placement, Switch, Touch};

    #[test]
    fn each_client_has_a_shard_of_its_own_and_all_carry_calls() {
        let Ok(cores) = CorePair::choose(None) else { return };
        let need = Need { data_len: 64, window: 4, connections: 1, by_rdma: false };
        let config = EngineArgs::default().raised(need, Switch::On).expect("it adds up");
        let load = Load {
            shape: Shape::new(Op::Echo, 64, 64),
            placement: Placement::Inline,
            window: 4,
            connections: 1,
            touch: Touch::All,
            sinks: 0,
        };
        let at = "127.0.0.1:0".parse().expect("an address");
        // On the same cores: how fast they are does not matter here.
        let pairs = [cores; 3];
        let all = Rpc::several(
            "rpc",
            Fabric::from_config(&config).expect("a fabric"),
            at,
            &pairs,
            &config,
            &load,
        );
        let mut all = all.expect("the engine has room");
        let quota = Quota { warm_up: 0, end: End::Count(50) };
        let rounds = together(&mut all, quota).expect("every call ends");
        assert!(rounds.iter().all(|round| round.completed >= 50), "{rounds:?}");
        for rpc in &mut all {
            let server = rpc.opposite.here().handle();
            assert_eq!(server.connections(), 1);
            assert!(server.stats().calls_received >= 50);
        }
    }
}
