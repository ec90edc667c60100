//! The RDMA device of the environment variables, opened once for all tests of a program.

use std::env;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::OnceLock;

use rpcrdma_verbs::{Verbs, VerbsOptions};

use crate::opener::OnDevice;

/// The device, and an address of it.
///
/// `RPCRDMA_TEST_DEVICE` names the device; `RPCRDMA_TEST_ADDRESS` is an address of it.
///
/// # Panics
/// If the device cannot be opened.
pub fn device() -> OnDevice<Verbs> {
    static DEVICE: OnceLock<Verbs> = OnceLock::new();
    let device = DEVICE.get_or_init(|| {
        let name = env::var("RPCRDMA_TEST_DEVICE").ok();
        let options = VerbsOptions { device: name, ..VerbsOptions::default() };
        Verbs::open(&options).expect("the device that RPCRDMA_TEST_DEVICE names")
    });
    OnDevice { device: device.clone(), address: SocketAddr::new(address(), 0).into() }
}

/// The address of the device.
///
/// # Panics
/// If the value is not an address.
pub fn address() -> IpAddr {
    let address = env::var("RPCRDMA_TEST_ADDRESS");
    address.map_or(Ipv4Addr::LOCALHOST.into(), |address| {
        address.parse().expect("RPCRDMA_TEST_ADDRESS is an address")
    })
}
