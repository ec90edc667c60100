//! The device that the tests of the rules run on: here TCP.

use rpcrdma_provider::{Address, SetupError};

pub(in crate::tests) use rpcrdma_transport::clock::DeviceClock as Clock;

use crate::TcpOptions;
pub(in crate::tests) use crate::{
    Tcp as Device, TcpCm as DeviceCm, TcpEndpoint as DeviceEndpoint, TcpHandle as DeviceHandle,
    TcpQp as DeviceQp, TcpQueues as DeviceQueues,
};

/// What the tests of the rules choose.
#[derive(Debug, Clone)]
pub(in crate::tests) struct Options {
    /// TCP has no slots that are seen from outside.
    #[expect(dead_code, reason = "the tests choose it for other devices")]
    pub slots: u32,
    pub rnr_timer_ns: u64,
    pub clock: Clock,
    pub windows: u32,
    pub rd_atomic: u32,
    pub key_seed: Option<u64>,
}

impl Default for Options {
    fn default() -> Options {
        let TcpOptions { rnr_timer_ns, clock, windows, rd_atomic, key_seed, .. } =
            TcpOptions::default();
        Options { slots: 0, rnr_timer_ns, clock, windows, rd_atomic, key_seed }
    }
}

pub(in crate::tests) fn open() -> Device {
    Device::new().expect("the default options are allowed")
}

pub(in crate::tests) fn open_with(options: Options) -> Result<Device, SetupError> {
    let Options { rnr_timer_ns, clock, windows, rd_atomic, key_seed, .. } = options;
    let default = TcpOptions::default();
    let options = TcpOptions { rnr_timer_ns, clock, windows, rd_atomic, key_seed, ..default };
    Device::with_options(options)
}

pub(in crate::tests) fn open_at(options: Options, _first: u64) -> Device {
    open_with(options).expect("allowed")
}

/// Whether the memory of hosts is shared.
pub(in crate::tests) const IS_SHARED: bool = false;

/// Whether a request is done when the peer has taken it, and fails as the peer reports. Otherwise
/// it is done when it is sent, and a refusal ends the connection.
pub(in crate::tests) const HAS_ACKS: bool = false;

/// TCP has no delay that can be chosen.
pub(in crate::tests) fn with_delay(options: Options, _delay_ns: u64) -> Options {
    options
}

/// Where to listen: any free port.
pub(in crate::tests) fn address() -> Address {
    "127.0.0.1:0".parse().expect("an address")
}

/// An address without a listener.
pub(in crate::tests) fn nowhere() -> Address {
    "127.0.0.1:1".parse().expect("an address")
}
