//! Shared memory between processes of this host.

use rpcrdma::shm::ShmOptions;
use rpcrdma::{Address, Shm};
use rpcrdma_config::Config;

use super::Device;
use super::verbs::BOTH_ENDS;
use crate::args::DeviceArgs;
use crate::device::Place;
use crate::error::BenchError;
use crate::values::Over;

/// Shared memory, with the server of an RPC in a second process. What sets up both ends itself has
/// them in one process.
#[derive(Debug, Clone)]
pub struct ShmDevice {
    config: Config,
    far: Place,
}

impl ShmDevice {
    /// Shared memory as configured. The second process is started by this one.
    pub fn open(args: &DeviceArgs, config: &Config) -> Result<ShmDevice, BenchError> {
        if args.connect.is_some() {
            return Err(BenchError::Usage(BOTH_ENDS.into()));
        }
        ShmDevice::towards(args, config)
    }

    /// The same, where the second process may be one that was started before.
    pub fn towards(args: &DeviceArgs, config: &Config) -> Result<ShmDevice, BenchError> {
        let far = args.connect.map_or(Place::Process(Over::Shm, None), Place::Host);
        Ok(ShmDevice { config: config.clone(), far })
    }
}

impl Device for ShmDevice {
    type Provider = Shm;

    fn open(&self) -> Result<Shm, BenchError> {
        Ok(Shm::from_config(&self.config)?)
    }

    fn at(&self) -> Address {
        ANY.parse().expect("the address of any unused socket")
    }

    fn far(&self) -> Option<Place> {
        Some(self.far)
    }

    fn notes(&self) -> Vec<String> {
        let ShmOptions { slots, staging, .. } = ShmOptions::from(self.config.shm());
        vec![format!("shm: rings of {slots} slots, staging areas of {} KiB", staging >> 10)]
    }
}

/// An unused abstract socket.
const ANY: &str = "shm:@";
