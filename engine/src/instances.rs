//! The engine of each provider, compiled with this crate in builds for tests.
//!
//! The engine is generic over its provider, so that each program compiles all of it again. At
//! `opt-level` 0 and 1 the compiler takes what a crate that the program depends on has compiled. Above
//! that it does not, and without debug assertions nothing is compiled here.

use rpcrdma_config::Config;
use rpcrdma_fabric::Fabric;
use rpcrdma_provider::{Address, Provider};

use crate::api::handler::RefuseCalls;
use crate::engine::Engine;
use crate::error::SetupError;
use crate::session::{Session, SessionOptions};

#[used]
static FABRIC: Use<Fabric> = every_part;
#[cfg(feature = "shm")]
#[used]
static SHM: Use<rpcrdma_shm::Shm> = every_part;
#[cfg(feature = "tcp")]
#[used]
static TCP: Use<rpcrdma_iwarp::Tcp> = every_part;
#[cfg(feature = "verbs")]
#[used]
static VERBS: Use<rpcrdma_verbs::Verbs> = every_part;

type Use<P> = fn(P, Config, Address) -> Result<(), SetupError>;

/// Names what programs use, and is never called.
fn every_part<P: Provider>(provider: P, config: Config, at: Address) -> Result<(), SetupError> {
    let mut engine = Engine::new(provider, config)?;
    engine.listen(at)?;
    engine.start(|_| RefuseCalls)?;
    let client = engine.client()?;
    let mut session = Session::new(client, [at], &SessionOptions::default())?;
    session.wait(Default::default());
    session.poll(0, |_| ());
    let mut shard = engine.shard(RefuseCalls)?;
    shard.poll_once(0);
    shard.arm(0);
    shard.rest(false, 0, Default::default());
    Ok(())
}
