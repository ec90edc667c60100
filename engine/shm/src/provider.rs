//! The provider.

use std::fmt::Display;
use std::sync::Arc;

use rpcrdma_config::{Config, section};
use rpcrdma_mempool::Registrar;
use rpcrdma_provider::{DeviceCaps, Provider, QueueAttr, SetupError};
use rpcrdma_transport::device::{Device, Opened};

use crate::closer::Closer;
use crate::cm::{ShmCm, ShmSockets};
use crate::fence;
use crate::options::ShmOptions;
use crate::pools::Files;
use crate::port::{EndSpec, Port};
use crate::queues::ShmQueues;
use crate::shared::Shared;
use crate::watch::Watch;

/// Shared memory as an RDMA device. Clones share its registrations; a process needs only one.
#[derive(Clone)]
pub struct Shm(Arc<Shared>);

impl Shm {
    /// Shared memory with the default options.
    ///
    /// Made before the process has other threads, it registers for barriers at once; later the kernel
    /// takes tens of ms for that.
    ///
    /// # Errors
    /// If the thread that watches for peers that are gone cannot be started.
    pub fn new() -> Result<Shm, SetupError> {
        Shm::with_options(ShmOptions::default())
    }

    /// Shared memory with options.
    ///
    /// # Errors
    /// As for [`Shm::new`], and if an option has a value that is not allowed.
    pub fn with_options(options: ShmOptions) -> Result<Shm, SetupError> {
        Shm::of(options, 0)
    }

    /// With rings whose first slots have the position `first`.
    fn of(options: ShmOptions, first: u64) -> Result<Shm, SetupError> {
        options.check()?;
        fence::register();
        let watch = Watch::start()?;
        let device = Device::new("shm", options.settings(), options.key_seed);
        let files = Arc::new(Files::new(Arc::clone(device.keys()), options.map_pools));
        let (watch, closer) = (Arc::new(watch), Closer::default());
        Ok(Shm(Arc::new(Shared { options, device, files, watch, closer, first })))
    }

    /// The shared memory of a configuration's section `[shm]`.
    ///
    /// # Errors
    /// As for [`Shm::with_options`].
    pub fn from_config(config: &Config) -> Result<Shm, SetupError> {
        Shm::with_options(ShmOptions::from(config.shm()))
    }
}

#[cfg(test)]
impl Shm {
    /// As [`Shm::with_options`], with rings whose first slots have the position `first`.
    pub(crate) fn beginning_at(options: ShmOptions, first: u64) -> Result<Shm, SetupError> {
        Shm::of(options, first)
    }

    /// The keys of its registrations so far.
    pub(crate) fn keys(&self) -> rpcrdma_transport::keys::KeyCache {
        rpcrdma_transport::keys::KeyCache::of(Arc::clone(self.0.device.keys()))
    }
}

impl Provider for Shm {
    type Queues = ShmQueues;
    type Cm = ShmCm;

    fn caps(&self) -> &DeviceCaps {
        self.0.device.caps()
    }

    fn check(&self, config: &Config) -> Result<(), SetupError> {
        let (made, configured) = (&self.0.options, ShmOptions::from(config.shm()));
        let options: [(_, &dyn Display, &dyn Display); 3] = [
            ("shm.map_pools", &made.map_pools, &configured.map_pools),
            ("shm.ring_slots", &made.slots, &configured.slots),
            ("shm.staging", &made.staging, &configured.staging),
        ];
        OPENED.check(config, &options)
    }

    fn registrar(&self) -> Arc<dyn Registrar> {
        self.0.files.clone()
    }

    fn open_queues(&self, attr: &QueueAttr) -> Result<ShmQueues, SetupError> {
        let Shared { options, device, files, first, .. } = &*self.0;
        device.open_queues(attr, |_| {
            let (files, reads_max) = (Arc::clone(files), options.rd_atomic);
            let ends = EndSpec { files, reads_max, first: *first };
            Ok(Arc::new(Port::new(attr.qp_max, ends)?))
        })
    }

    fn open_cm(&self) -> Result<ShmCm, SetupError> {
        ShmSockets::new(Arc::clone(&self.0)).map(ShmCm::new)
    }
}

impl std::fmt::Debug for Shm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shm").field("options", &self.0.options).finish_non_exhaustive()
    }
}

/// What a program opened that has shared memory.
const OPENED: Opened = Opened {
    kind: section::ProviderKind::Shm,
    device: "shared memory",
    made_with: "the provider was made with",
    from_config: "Shm::from_config",
};
