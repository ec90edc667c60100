//! The engine of each provider, compiled with this crate in builds with debug assertions.
//!
//! The engine is generic over its provider, so each program would compile all of it again. At
//! `opt-level` 0 and 1 the compiler uses generic code that a dependency has compiled (share-generics
//! of rustc). At higher levels it does not, and without debug assertions nothing is compiled here.
//! Only the statics below name these functions; `#[used]` keeps them.

use rpcrdma_config::Config;
use rpcrdma_provider::{Address, Provider};

use crate::api::handler::RefuseCalls;
use crate::engine::Engine;
use crate::error::SetupError;
use crate::session::{Session, SessionOptions};

/// A static for each provider.
macro_rules! instances {
    ([] $($name:ident)+) => {
        $(const _: () = {
            #[used]
            static INSTANCE: Use<crate::built::$name> = what_programs_use;
        };)+
    };
}
crate::each_provider! { [instances] }
type Use<P> = fn(P, Config, Address) -> Result<(), SetupError>;

/// Never called. A part that it does not name is compiled by each program that uses it.
fn what_programs_use<P: Provider>(
    provider: P,
    config: Config,
    at: Address,
) -> Result<(), SetupError> {
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
    shard.idle(false, 0, Default::default());
    Ok(())
}
