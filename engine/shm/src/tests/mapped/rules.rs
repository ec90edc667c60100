//! The rules of a device, on shared memory with mapped pools.

use rpcrdma_conformance::host;
use rpcrdma_conformance::subject::{Options, Subject};
use rpcrdma_provider::{Address, SetupError};

use super::super::rules::made;
use crate::{Shm, ShmOptions};

pub(super) type Pair = host::Pair<Mapped>;

rpcrdma_conformance::rename!(pub(super) Mapped: Shm);

impl Subject for Mapped {
    const IS_SHARED: bool = true;

    fn made(options: &Options) -> Result<Mapped, SetupError> {
        let default = ShmOptions { map_pools: true, ..ShmOptions::default() };
        made(options, default).map(Mapped)
    }

    fn address() -> Address {
        Shm::address()
    }

    fn nowhere() -> Address {
        Shm::nowhere()
    }
}

rpcrdma_conformance::rules! {
    Mapped: acks, messages, remote, remote_model, remote_threads, teardown, threads
}
