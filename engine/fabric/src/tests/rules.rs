//! The rules of a device, on the fabric.

use std::net::SocketAddr;

use rpcrdma_conformance::subject::{Options, Subject};
use rpcrdma_conformance::{chosen, host};
use rpcrdma_provider::{Address, SetupError};

use crate::{DeviceClock, Fabric, FabricOptions};

pub(super) type Pair = host::Pair<Fabric>;
pub(super) type Open = rpcrdma_conformance::open::Open<Fabric>;

impl Subject for Fabric {
    fn made(options: &Options) -> Result<Fabric, SetupError> {
        let default = FabricOptions::default();
        let made = FabricOptions {
            slots: options.slots.unwrap_or(default.slots),
            delay_ns: options.delay_ns,
            ..chosen!(FabricOptions: options, default)
        };
        Fabric::beginning_at(made, options.first_slot)
    }

    fn address() -> Address {
        SocketAddr::from(([127, 0, 0, 1], 0)).into()
    }

    fn nowhere() -> Address {
        SocketAddr::from(([127, 0, 0, 2], 1)).into()
    }
}

rpcrdma_conformance::rules! {
    Fabric:
    acks, connections, exposed, messages, model, remote, remote_model, remote_threads, teardown, threads, windows,
}
