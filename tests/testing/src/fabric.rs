//! The software fabric as a subject of the rules, for crates that its own tests do not reach.

use std::net::SocketAddr;

use rpcrdma_conformance::chosen;
use rpcrdma_conformance::subject::{Options, Subject};
use rpcrdma_fabric::{Fabric, FabricOptions};
use rpcrdma_provider::{Address, SetupError};
use rpcrdma_transport::clock::DeviceClock;

rpcrdma_conformance::rename!(
    /// The fabric, with rings that begin at their first slot.
    pub Rings: Fabric
);

impl Subject for Rings {
    fn made(options: &Options) -> Result<Rings, SetupError> {
        let default = FabricOptions::default();
        let made = FabricOptions {
            slots: options.slots.unwrap_or(default.slots),
            delay_ns: options.delay_ns,
            ..chosen!(FabricOptions: options, default)
        };
        Fabric::with_options(made).map(Rings)
    }

    fn address() -> Address {
        SocketAddr::from(([127, 0, 0, 1], 0)).into()
    }

    fn nowhere() -> Address {
        SocketAddr::from(([127, 0, 0, 2], 1)).into()
    }
}
