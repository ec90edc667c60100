//! The rules of a device, over TCP.

use rpcrdma_conformance::host;
use rpcrdma_conformance::subject::{Options, Subject};
use rpcrdma_provider::{Address, SetupError};

use crate::{DeviceClock, Tcp, TcpOptions, TcpQp, TcpQueues};

pub(in crate::tests) type Host = host::Host<TcpQueues>;
pub(in crate::tests) type Qp = TcpQp;

impl Subject for Tcp {
    const HAS_ACKS: bool = false;

    fn made(options: &Options) -> Result<Tcp, SetupError> {
        let default = TcpOptions::default();
        Tcp::with_options(TcpOptions {
            rnr_timer_ns: options.rnr_timer_ns.unwrap_or(default.rnr_timer_ns),
            clock: options.clock.clone().map_or(default.clock, DeviceClock::Virtual),
            windows: options.windows.unwrap_or(default.windows),
            rd_atomic: options.rd_atomic.unwrap_or(default.rd_atomic),
            key_seed: options.key_seed,
            ..default
        })
    }

    fn address() -> Address {
        "127.0.0.1:0".parse().expect("an address")
    }

    fn nowhere() -> Address {
        "127.0.0.1:1".parse().expect("an address")
    }
}

rpcrdma_conformance::rules! {
    Tcp: connections, exposed, messages, model, remote, remote_model, remote_threads, teardown, threads, windows
}
