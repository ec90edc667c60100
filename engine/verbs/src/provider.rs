//! The provider: an RDMA device for the engine.
#![expect(unsafe_code, reason = "libibverbs is called")]

use std::sync::{Arc, Mutex, PoisonError};

use rpcrdma_config::{Config, ProviderKind};
use rpcrdma_mempool::Registrar;
use rpcrdma_provider::{DeviceCaps, Provider, QueueAttr, SetupError};

use crate::cm::VerbsCm;
use crate::counters::DeviceEvents;
use crate::device::find::Contexts;
use crate::device::{Device, Libraries};
use crate::error;
use crate::events;
use crate::options::VerbsOptions;
use crate::port::Port;
use crate::queues::VerbsQueues;
use crate::sys::verbs as sys;

/// An open RDMA device. Clones share the device.
#[derive(Clone)]
pub struct Verbs(Arc<Device>);

impl Verbs {
    /// Opens the device that the options name.
    ///
    /// # Errors
    /// If a library or the device is missing, or the device lacks what the engine needs.
    pub fn open(options: &VerbsOptions) -> Result<Verbs, SetupError> {
        Verbs::with_libraries(Libraries::load()?, options)
    }

    pub(crate) fn with_libraries(
        libraries: Libraries,
        options: &VerbsOptions,
    ) -> Result<Verbs, SetupError> {
        make_forks_safe(libraries.verbs)?;
        let contexts = Contexts::open(libraries.cm)?;
        let found = contexts.choose(libraries.verbs, options)?;
        let device = Device::open(libraries, contexts, found, options)?;
        let device = Arc::new(device);
        events::watch(&device)?;
        Ok(Verbs(device))
    }

    /// Opens the device that the section `[verbs]` of a configuration names.
    ///
    /// # Errors
    /// As for [`Verbs::open`].
    pub fn from_config(config: &Config) -> Result<Verbs, SetupError> {
        Verbs::open(&VerbsOptions::from(config.verbs()))
    }

    /// The device's events so far, apart from completions. The connection manager reads events:
    /// without one, the counters do not change.
    pub fn events(&self) -> DeviceEvents {
        self.0.events.snapshot()
    }
}

#[cfg(test)]
impl Verbs {
    pub(crate) fn device(&self) -> &Device {
        &self.0
    }
}

impl std::fmt::Debug for Verbs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Device { caps, port_num, .. } = &*self.0;
        f.debug_struct("Verbs").field("caps", caps).field("port", port_num).finish_non_exhaustive()
    }
}

impl Provider for Verbs {
    type Queues = VerbsQueues;
    type Cm = VerbsCm;

    fn caps(&self) -> &DeviceCaps {
        &self.0.caps
    }

    fn check(&self, config: &Config) -> Result<(), SetupError> {
        if !config.engine().provider.admits(ProviderKind::Verbs) {
            let reason = "the program opened an RDMA device; open the configured provider";
            return Err(SetupError::unmet(config, "engine.provider", reason));
        }
        match self.0.options.unmet(config) {
            None => Ok(()),
            Some(key) => {
                let reason = "the device was opened with other options; use Verbs::from_config";
                Err(SetupError::unmet(config, key, reason))
            }
        }
    }

    fn registrar(&self) -> Arc<dyn Registrar> {
        self.0.clone()
    }

    fn open_queues(&self, attr: &QueueAttr) -> Result<VerbsQueues, SetupError> {
        let port = Arc::new(Port::open(&self.0, attr)?);
        self.0.add_port(&port);
        Ok(VerbsQueues::new(port, attr))
    }

    fn open_cm(&self) -> Result<VerbsCm, SetupError> {
        VerbsCm::new(Arc::clone(&self.0))
    }
}

/// Calls `ibv_fork_init`, so that a fork does not separate this process from registered pages:
/// without it, the device may keep the child's copy of a page. Must precede the first registration.
/// Costs nothing where the kernel copies such pages for the child.
fn make_forks_safe(lib: &sys::Verbs) -> Result<(), SetupError> {
    /// Serializes the calls.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the call takes nothing.
    match unsafe { (lib.ibv_fork_init)() } {
        0 => Ok(()),
        code => Err(error::code("ibv_fork_init", code)),
    }
}
