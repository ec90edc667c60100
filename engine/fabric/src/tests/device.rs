//! The device that the tests of the rules run on: here the fabric. Another provider on the transport
//! includes these tests with a `device` of its own.

use std::net::SocketAddr;

use rpcrdma_provider::{Address, SetupError};

pub(super) use crate::{
    DeviceClock as Clock, Fabric as Device, FabricCm as DeviceCm, FabricEndpoint as DeviceEndpoint,
    FabricHandle as DeviceHandle, FabricOptions as Options, FabricQp as DeviceQp,
    FabricQueues as DeviceQueues,
};

pub(super) fn open() -> Device {
    Device::new()
}

pub(super) fn open_with(options: Options) -> Result<Device, SetupError> {
    Device::with_options(options)
}

/// With rings whose first slots have the position `first`.
pub(super) fn open_at(options: Options, first: u64) -> Device {
    Device::beginning_at(options, first).expect("allowed")
}

/// Whether the memory of hosts is shared.
pub(super) const IS_SHARED: bool = false;

/// Whether a request is done when the peer has taken it, and fails as the peer says. Otherwise it is
/// done when it is sent, and a refusal ends the connection.
pub(super) const HAS_ACKS: bool = true;

/// The options with a delay, if the device can have one.
pub(super) fn with_delay(options: Options, delay_ns: u64) -> Options {
    Options { delay_ns, ..options }
}

/// Where to listen: any free address.
pub(super) fn address() -> Address {
    SocketAddr::from(([127, 0, 0, 1], 0)).into()
}

/// An address without a listener.
pub(super) fn nowhere() -> Address {
    SocketAddr::from(([127, 0, 0, 2], 1)).into()
}
