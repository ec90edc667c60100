//! The rules of a device, on shared memory.

use rpcrdma_conformance::subject::{Options, Subject};
use rpcrdma_conformance::{chosen, host};
use rpcrdma_provider::{Address, SetupError};

use crate::{DeviceClock, Shm, ShmOptions, ShmQp, ShmQueues};

pub(in crate::tests) type Host = host::Host<ShmQueues>;
pub(in crate::tests) type Qp = ShmQp;

/// Its options where tests choose none.
pub(in crate::tests) fn made(options: &Options, default: ShmOptions) -> Result<Shm, SetupError> {
    let made = ShmOptions {
        slots: options.slots.unwrap_or(default.slots),
        ..chosen!(ShmOptions: options, default)
    };
    Shm::beginning_at(made, options.first_slot)
}

impl Subject for Shm {
    fn made(options: &Options) -> Result<Shm, SetupError> {
        made(options, ShmOptions::default())
    }

    fn address() -> Address {
        "shm:@".parse().expect("an address")
    }

    fn nowhere() -> Address {
        "shm:/nonexistent/rpcrdma.sock".parse().expect("an address")
    }
}

rpcrdma_conformance::rules! {
    Shm:
    acks, connections, exposed, messages, model, remote, remote_model, remote_threads, teardown, threads, windows,
}
