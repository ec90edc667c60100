//! The provider: an RDMA device for the engine.
#![expect(unsafe_code, reason = "libibverbs is called")]

use std::sync::{Arc, Mutex, PoisonError};

use rpcrdma_config::{Config, ProviderKind};
use rpcrdma_mempool::Registrar;
use rpcrdma_provider::{DeviceCaps, Provider, QueueAttr, SetupError};

use crate::cm::VerbsCm;
use crate::counters::DeviceEvents;
use crate::device::Device;
use crate::device::find::Contexts;
use crate::error;
use crate::events;
use crate::options::VerbsOptions;
use crate::port::Port;
use crate::queues::VerbsQueues;
use crate::sys::cm::Cm;
use crate::sys::verbs as sys;

/// An RDMA device, opened. Clones are the same device.
#[derive(Clone)]
pub struct Verbs(Arc<Device>);

impl Verbs {
    /// Opens the device that the options choose.
    ///
    /// # Errors
    /// If the libraries are not there, there is no such device, or it lacks what the engine needs.
    pub fn open(options: &VerbsOptions) -> Result<Verbs, SetupError> {
        Verbs::with_libraries((sys::Verbs::load()?, Cm::load()?), options)
    }

    pub(crate) fn with_libraries(
        (lib, cm): (&'static sys::Verbs, &'static Cm),
        options: &VerbsOptions,
    ) -> Result<Verbs, SetupError> {
        make_forks_safe(lib)?;
        let contexts = Contexts::open(cm)?;
        let found = contexts.choose(lib, options)?;
        let device = Device::open((lib, cm), contexts, found, options)?;
        let device = Arc::new(device);
        events::watch(&device)?;
        Ok(Verbs(device))
    }

    /// Opens the device that a configuration chooses, in its section `[verbs]`.
    ///
    /// # Errors
    /// As for [`Verbs::open`].
    pub fn from_config(config: &Config) -> Result<Verbs, SetupError> {
        Verbs::open(&VerbsOptions::from(config.verbs()))
    }

    /// What the device has reported so far, beside completions. Events are read by the connection
    /// manager: without one nobody reads them.
    pub fn events(&self) -> DeviceEvents {
        self.0.events.snapshot()
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
        if config.engine().provider != ProviderKind::Verbs {
            let reason = "the engine was given an RDMA device; the program opens what is named";
            return Err(SetupError::unmet(config, "engine.provider", reason));
        }
        match self.0.options.unmet(config) {
            None => Ok(()),
            Some(key) => {
                let reason = "the device was opened otherwise; Verbs::from_config opens it so";
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

/// Has the library see to it that a fork of this process takes no page away that a device was given:
/// else the child's copy may stay with the device, and this process goes on with another. Before
/// anything is registered. Costs nothing where the kernel copies such pages for the child.
fn make_forks_safe(lib: &sys::Verbs) -> Result<(), SetupError> {
    /// The call is not made for two threads at once.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the call takes nothing.
    match unsafe { (lib.ibv_fork_init)() } {
        0 => Ok(()),
        code => Err(error::code("ibv_fork_init", code)),
    }
}
