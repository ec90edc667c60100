//! The device that the tests of the rules run on: here shared memory with mapped pools.

use rpcrdma_provider::SetupError;

use super::super::device;
pub(super) use super::super::device::{
    Clock, Device, DeviceCm, DeviceEndpoint, DeviceHandle, DeviceQp, DeviceQueues, HAS_ACKS,
    Options, address, nowhere, with_delay,
};

fn mapped(options: Options) -> Options {
    Options { map_pools: true, ..options }
}

pub(super) fn open() -> Device {
    open_with(Options::default()).expect("a thread")
}

pub(super) fn open_with(options: Options) -> Result<Device, SetupError> {
    device::open_with(mapped(options))
}

/// With rings whose first slots have the position `first`.
pub(super) fn open_at(options: Options, first: u64) -> Device {
    device::open_at(mapped(options), first)
}

/// Whether the memory of hosts is shared.
pub(super) const IS_SHARED: bool = true;
