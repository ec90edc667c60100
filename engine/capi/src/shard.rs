//! A shard that the program polls on its own thread.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::time::Duration;
use std::os::fd::{AsFd, AsRawFd};

use ::rpcrdma::{Address, Armed, ConnectId, Provider, SetupError, Shard, Turn};

use crate::arguments::{caught, give, given, value};
use crate::done::Done;
use crate::engine::rpcrdma_engine;
use crate::failure::setup;
use crate::handler::{Callbacks, Factory, rpcrdma_handler};
use crate::polled::{Polled, rpcrdma_polled};
use crate::provider::{AnyEngine, each};

/// A shard for the calling thread to poll, which serves the engine's listeners. It calls
/// `handler->start` before it returns. Freed by `rpcrdma_polled_free`.
///
/// Thread: one at a time; the calling thread polls it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_shard_new(
    engine: Option<&mut rpcrdma_engine>,
    handler: *const rpcrdma_handler,
    shard: Option<&mut MaybeUninit<*mut rpcrdma_polled>>,
) -> c_int {
    given!(engine, shard);
    // SAFETY: the program passes a structure with its size.
    let factory = value!(unsafe { Factory::of(handler) });
    caught(|| match each!(AnyEngine, &engine.engine, it => it.shard(factory.later()).map(made)) {
        Ok(made) => give(shard, made),
        Err(error) => setup(&error),
    })
}

fn made<P: Provider>(mut shard: Shard<P, Callbacks>) -> Box<rpcrdma_polled> {
    let handle = shard.handle().clone();
    shard.handler().start(handle.clone());
    let fd = shard.as_fd().as_raw_fd();
    rpcrdma_polled::new(shard, handle, fd)
}

impl<P: Provider> Polled for Shard<P, Callbacks> {
    fn poll(&mut self, now: u64, _: &Done) -> bool {
        self.poll_once(now)
    }

    fn poll_for(&mut self, timeout: Duration, _: &Done) -> bool {
        Shard::poll_for(self, timeout)
    }

    fn idle(&mut self, busy: bool, now: u64, timeout: Duration) -> bool {
        Shard::idle(self, busy, now, timeout)
    }

    fn arm(&mut self, now: u64) -> Armed {
        Shard::arm(self, now)
    }

    fn wait(&mut self, timeout: Duration) {
        Shard::wait(self, timeout);
    }

    fn is_stopped(&mut self) -> bool {
        Shard::is_stopped(self)
    }

    fn run(&mut self) -> Result<(), c_int> {
        Shard::run(self);
        Ok(())
    }

    fn begin_connect(&mut self, to: Address) -> Result<Result<ConnectId, SetupError>, c_int> {
        Ok(Shard::connect(self, to))
    }

    fn with_turn(&mut self, act: &mut dyn FnMut(&mut Turn<'_>)) {
        act(&mut self.turn(0));
    }
}
