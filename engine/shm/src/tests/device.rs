//! The device that the tests of the rules run on: here shared memory.

use rpcrdma_provider::{Address, SetupError};

pub(in crate::tests) use rpcrdma_transport::clock::DeviceClock as Clock;

pub(in crate::tests) use crate::{
    Shm as Device, ShmCm as DeviceCm, ShmEndpoint as DeviceEndpoint, ShmHandle as DeviceHandle,
    ShmOptions as Options, ShmQp as DeviceQp, ShmQueues as DeviceQueues,
};

pub(in crate::tests) fn open() -> Device {
    Device::new().expect("a thread")
}

pub(in crate::tests) fn open_with(options: Options) -> Result<Device, SetupError> {
    Device::with_options(options)
}

/// With rings whose first slots have the position `first`.
pub(in crate::tests) fn open_at(options: Options, first: u64) -> Device {
    Device::beginning_at(options, first).expect("allowed")
}

/// Whether the memory of hosts is shared.
pub(in crate::tests) const IS_SHARED: bool = false;

/// Whether a request is done when the peer has taken it, and fails as the peer says. Otherwise it is
/// done when it is sent, and a refusal ends the connection.
pub(in crate::tests) const HAS_ACKS: bool = true;

/// Shared memory has no delay.
pub(in crate::tests) fn with_delay(options: Options, _delay_ns: u64) -> Options {
    options
}

/// Where to listen: any free address.
pub(in crate::tests) fn address() -> Address {
    "shm:@".parse().expect("an address")
}

/// An address without a listener.
pub(in crate::tests) fn nowhere() -> Address {
    "shm:/nonexistent/rpcrdma.sock".parse().expect("an address")
}
