//! The provider of the software fabric, and the state that its clones share.

use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rpcrdma_config::{Config, section};
use rpcrdma_mempool::Registrar;
use rpcrdma_provider::{DeviceCaps, Provider, QueueAttr, SetupError};
use rpcrdma_transport::device::{Device, Opened};

use crate::cm::{FabricCm, Network};
use crate::options::FabricOptions;
use crate::port::Port;
use crate::queues::FabricQueues;
use crate::rings::{Links, Size};

/// The software fabric. Clones share the fabric: their queues can reach each other.
///
/// ```
/// use rpcrdma_fabric::Fabric;
///
/// let server = Fabric::new();
/// let client = server.clone(); // for another engine, which reaches the first
/// assert_eq!(client.in_use(), server.in_use());
/// let apart = Fabric::new(); // reaches neither
/// # assert_eq!(apart.in_use().queues, 0);
/// ```
#[derive(Clone)]
pub struct Fabric(Arc<Shared>);

/// What all clones of a fabric share. Control plane only.
struct Shared {
    options: FabricOptions,
    ports: Mutex<Vec<Weak<Port>>>,
    network: Network,
}

/// The open objects of a fabric. All counts are 0 when all its objects are gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FabricUse {
    /// Registered regions.
    pub regions: usize,
    /// Sets of queues.
    pub queues: usize,
    /// Queue pairs, including those of connections in progress.
    pub queue_pairs: usize,
    /// Memory windows.
    pub windows: usize,
    /// Addresses with a listener.
    pub listeners: usize,
}

impl Fabric {
    /// A fabric with the default options.
    pub fn new() -> Fabric {
        Fabric::of(FabricOptions::default(), 0)
    }

    /// A fabric with options.
    ///
    /// # Errors
    /// If an option has a value that is not allowed.
    pub fn with_options(options: FabricOptions) -> Result<Fabric, SetupError> {
        options.check()?;
        Ok(Fabric::of(options, 0))
    }

    /// The fabric of a configuration's section `[fabric]`.
    ///
    /// # Errors
    /// As for [`Fabric::with_options`].
    pub fn from_config(config: &Config) -> Result<Fabric, SetupError> {
        Fabric::with_options(FabricOptions::from(config.fabric()))
    }

    /// Counts the open objects.
    pub fn in_use(&self) -> FabricUse {
        let Shared { ports, network, .. } = &*self.0;
        let ports = ports.lock().unwrap_or_else(PoisonError::into_inner);
        let ports: Vec<Arc<Port>> = ports.iter().filter_map(Weak::upgrade).collect();
        FabricUse {
            regions: network.device.keys().held(),
            queues: ports.len(),
            queue_pairs: ports.iter().map(|port| port.numbers.taken()).sum(),
            windows: network.device.windows(),
            listeners: network.listeners.count(),
        }
    }

    /// With rings whose first slots have the position `first`.
    fn of(options: FabricOptions, first: u64) -> Fabric {
        let device = Arc::new(Device::new("fabric", options.settings(), options.key_seed));
        let size = Size { slots: options.slots, is_delayed: options.delay_ns > 0, first };
        let links = Arc::new(Links::new(Arc::clone(&device), size));
        let network = Network { device, links, listeners: Arc::default() };
        Fabric(Arc::new(Shared { options, ports: Mutex::default(), network }))
    }
}

#[cfg(test)]
#[cfg(not(loom))]
impl Fabric {
    /// As [`Fabric::with_options`], with rings whose first slots have the position `first`.
    pub(crate) fn beginning_at(options: FabricOptions, first: u64) -> Result<Fabric, SetupError> {
        options.check()?;
        Ok(Fabric::of(options, first))
    }
}

impl std::fmt::Debug for Fabric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fabric").field("options", &self.0.options).finish_non_exhaustive()
    }
}

impl Default for Fabric {
    fn default() -> Fabric {
        Fabric::new()
    }
}

impl Provider for Fabric {
    type Queues = FabricQueues;
    type Cm = FabricCm;

    fn caps(&self) -> &DeviceCaps {
        self.0.network.device.caps()
    }

    fn check(&self, config: &Config) -> Result<(), SetupError> {
        let (made, configured) = (&self.0.options, FabricOptions::from(config.fabric()));
        let options: [(_, &dyn Display, &dyn Display); 2] = [
            ("fabric.delay", &made.delay_ns, &configured.delay_ns),
            ("fabric.ring_slots", &made.slots, &configured.slots),
        ];
        OPENED.check(config, &options)
    }

    fn registrar(&self) -> Arc<dyn Registrar> {
        self.0.network.device.keys().clone()
    }

    fn open_queues(&self, attr: &QueueAttr) -> Result<FabricQueues, SetupError> {
        self.0.network.device.open_queues(attr, |id| {
            let port = Arc::new(Port::new(id, attr.qp_max)?);
            self.0.add_port(&port);
            Ok(port)
        })
    }

    fn open_cm(&self) -> Result<FabricCm, SetupError> {
        FabricCm::new(self.0.network.clone())
    }
}

impl Shared {
    /// Keeps a weak reference to a port.
    fn add_port(&self, port: &Arc<Port>) {
        let mut ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        ports.retain(|port| port.strong_count() > 0);
        ports.push(Arc::downgrade(port));
    }
}

/// What a program opened that has a fabric.
const OPENED: Opened = Opened {
    kind: section::ProviderKind::Fabric,
    device: "the software fabric",
    made_with: "the fabric was made with",
    from_config: "Fabric::from_config",
};

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_fabric_keeps_no_more_ports_than_are_open() {
        let fabric = Fabric::new();
        let attr = QueueAttr {
            srq_depth: 1,
            cq_depth: 2,
            qp_max: 1,
            send_depth: 1,
            send_sge: 1,
            recv_sge: 1,
        };
        let open = || fabric.open_queues(&attr).expect("allowed");
        let kept = || fabric.0.ports.lock().expect("no test has panicked").len();
        let first = open();
        for _ in 0..3 {
            drop(open());
        }
        assert_eq!((kept(), fabric.in_use().queues), (2, 1), "the last is forgotten by the next");
        let _last = open();
        drop(first);
        assert_eq!((kept(), fabric.in_use().queues), (2, 1));
    }
}
