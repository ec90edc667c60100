//! The rules of a device, over TCP.

use rpcrdma_conformance::subject::{Options, Subject};
use rpcrdma_conformance::{chosen, host};
use rpcrdma_provider::{Address, SetupError};

use crate::{DeviceClock, Tcp, TcpOptions, TcpQp, TcpQueues};

pub(in crate::tests) type Host = host::Host<TcpQueues>;
pub(in crate::tests) type Qp = TcpQp;

impl Subject for Tcp {
    const HAS_ACKS: bool = false;

    fn made(options: &Options) -> Result<Tcp, SetupError> {
        Tcp::with_options(chosen!(TcpOptions: options, TcpOptions::default()))
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
