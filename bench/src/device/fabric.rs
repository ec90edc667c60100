//! The device of a contender: the trait, and software fabrics.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use rpcrdma::fabric::{Fabric, FabricOptions};
use rpcrdma::{Address, Provider};
use rpcrdma_config::Config;

use crate::device::Place;
use crate::error::BenchError;

/// Where contenders find their device, and where servers listen on it.
pub trait Device {
    type Provider: Provider;

    fn open(&self) -> Result<Self::Provider, BenchError>;

    /// Where servers listen; a free port is taken.
    fn at(&self) -> Address;

    /// Where a server is asked to answer, in place of one in this process.
    fn far(&self) -> Option<Place> {
        None
    }

    fn notes(&self) -> Vec<String>;
}

/// A fabric for each contender, so that one does not inherit the memory state of another.
#[derive(Debug, Clone)]
pub struct Fabrics(FabricOptions);

impl Fabrics {
    pub fn new(config: &Config) -> Fabrics {
        Fabrics(FabricOptions::from(config.fabric()))
    }
}

impl Device for Fabrics {
    type Provider = Fabric;

    fn open(&self) -> Result<Fabric, BenchError> {
        Ok(Fabric::with_options(self.0.clone())?)
    }

    fn at(&self) -> Address {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0).into()
    }

    fn notes(&self) -> Vec<String> {
        let FabricOptions { slots, delay_ns, .. } = self.0;
        vec![format!("fabric: rings of {slots} slots, delay {delay_ns} ns")]
    }
}
