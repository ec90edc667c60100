//! The provider, and the state that its clones share.

use std::fmt::Display;
use std::sync::Arc;

use rpcrdma_config::{Config, section};
use rpcrdma_mempool::Registrar;
use rpcrdma_provider::{DeviceCaps, Provider, QueueAttr, SetupError};
use rpcrdma_transport::device::{Device, Opened};

use crate::closer::Closer;
use crate::cm::ShmCm;
use crate::layout::Dimensions;
use crate::options::ShmOptions;
use crate::pools::Files;
use crate::port::{EndSpec, Port};
use crate::queues::ShmQueues;
use crate::watch::Watch;

/// Shared memory as an RDMA device. Clones share its registrations; a process needs only one.
#[derive(Clone)]
pub struct Shm(Arc<Shared>);

/// What all clones share. Control plane only.
pub(crate) struct Shared {
    options: ShmOptions,
    device: Device,
    /// The registrations, with the memory of those that peers may map.
    files: Arc<Files>,
    watch: Arc<Watch>,
    closer: Closer,
    /// The position of the first slot of each ring: 0, except in tests of wrap-around.
    first: u64,
}

impl Shm {
    /// Shared memory with the default options.
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
        let watch = Watch::start().map_err(|source| SetupError::System {
            call: "starting a thread",
            source,
            hint: "check the limits of open files (ulimit -n) and of threads (ulimit -u)",
        })?;
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
        ShmCm::new(Arc::clone(&self.0))
    }
}

impl Shared {
    /// The device: numbers, registrations.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn device_name(&self) -> &str {
        &self.device.caps().name
    }

    /// The dimensions of the links that this side makes.
    pub(crate) fn dimensions(&self) -> Dimensions {
        self.options.dimensions()
    }

    /// Whether a user may see the pools of this process: its own.
    pub(crate) fn is_owner(&self, uid: u32) -> bool {
        is_same_user(uid, rustix::process::geteuid().as_raw())
    }

    pub(crate) fn maps_pools(&self) -> bool {
        self.options.map_pools
    }

    /// Closes what peers have sent.
    pub(crate) fn closer(&self) -> &Closer {
        &self.closer
    }

    pub(crate) fn watch(&self) -> &Arc<Watch> {
        &self.watch
    }
}

impl std::fmt::Debug for Shm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shm").field("options", &self.0.options).finish_non_exhaustive()
    }
}

/// Whether both are the same user. In a user namespace all users of outside have one number, which
/// a user of the namespace may have, too.
fn is_same_user(one: u32, other: u32) -> bool {
    one == other && one != NOBODY
}

/// The number of users that a namespace does not have: `DEFAULT_OVERFLOWUID` of linux/highuid.h.
const NOBODY: u32 = 65534;
/// What a program opened that has shared memory.
const OPENED: Opened = Opened {
    kind: section::ProviderKind::Shm,
    device: "shared memory",
    made_with: "the provider was made with",
    from_config: "Shm::from_config",
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_that_may_be_anybody_owns_nothing() {
        assert!(is_same_user(0, 0) && is_same_user(1000, 1000));
        assert!(!is_same_user(1000, 1001) && !is_same_user(65534, 65534));
    }
}
