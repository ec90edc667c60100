//! The provider of the software fabric, and the state that its clones share.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rpcrdma_config::{Config, section};
use rpcrdma_mempool::Registrar;
use rpcrdma_provider::{DeviceCaps, Provider, QueueAttr, SetupError};
use rpcrdma_transport::Transport;
use rpcrdma_transport::body::{INLINE_LEN, MESSAGE_LEN_MAX, PIECES_MAX};
use rpcrdma_transport::keys::KeyTable;
use rpcrdma_transport::queue_set::Settings;
use rpcrdma_transport::rights::Rights;

use crate::cm::{FabricCm, Network};
use crate::options::FabricOptions;
use crate::port::Port;
use crate::queues::FabricQueues;
use crate::rings::{Links, Size};

/// The software fabric. Clones share the fabric: their queues can reach each other.
#[derive(Clone)]
pub struct Fabric(Arc<Shared>);

/// What all clones of a fabric share. Control plane only.
struct Shared {
    options: FabricOptions,
    caps: DeviceCaps,
    keys: Arc<KeyTable>,
    ids: Arc<AtomicU64>,
    windows_left: Arc<AtomicU32>,
    /// The secret that scrambles remote keys.
    key_secret: u64,
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

    /// A fabric with options. Fails if the number of slots is not allowed.
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
        let Shared { options, keys, windows_left, ports, network, .. } = &*self.0;
        let ports = ports.lock().unwrap_or_else(PoisonError::into_inner);
        let ports: Vec<Arc<Port>> = ports.iter().filter_map(Weak::upgrade).collect();
        let windows_left = windows_left.load(Ordering::Relaxed);
        FabricUse {
            regions: keys.held(),
            queues: ports.len(),
            queue_pairs: ports.iter().map(|port| port.numbers.taken()).sum(),
            windows: (options.windows - windows_left) as usize,
            listeners: network.listeners.count(),
        }
    }

    /// With rings whose first slots have the position `first`.
    fn of(options: FabricOptions, first: u64) -> Fabric {
        let caps = DeviceCaps {
            name: "fabric".to_owned(),
            send_sge: PIECES_MAX as u32,
            read_sge: PIECES_MAX as u32,
            recv_sge: 32,
            srq_depth: 1 << 20,
            cq_depth: 1 << 22,
            send_depth: 1 << 14,
            inline_len: INLINE_LEN as u32,
            message_len: MESSAGE_LEN_MAX,
            windows: options.windows,
            rd_atomic: options.rd_atomic,
        };
        let ids = Arc::new(AtomicU64::new(1));
        let (slots, is_delayed) = (options.slots, options.delay_ns > 0);
        let links = Arc::new(Links::new(Arc::clone(&ids), Size { slots, is_delayed, first }));
        let key_secret = options.key_seed.unwrap_or_else(|| RandomState::new().hash_one(0));
        Fabric(Arc::new(Shared {
            windows_left: Arc::new(AtomicU32::new(options.windows)),
            key_secret,
            options,
            network: Network { device: caps.name.clone(), links, listeners: Arc::default() },
            caps,
            keys: Arc::new(KeyTable::default()),
            ids,
            ports: Mutex::new(Vec::new()),
        }))
    }
}

#[cfg(all(test, not(loom)))]
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
        &self.0.caps
    }

    fn check(&self, config: &Config) -> Result<(), SetupError> {
        let (options, named) = (&self.0.options, FabricOptions::from(config.fabric()));
        if config.engine().provider != section::ProviderKind::Fabric {
            let reason = "the program opened the software fabric; open the configured provider";
            return Err(SetupError::unmet(config, "engine.provider", reason));
        }
        let keys = [
            ("fabric.delay", options.delay_ns, named.delay_ns),
            ("fabric.ring_slots", options.slots.into(), named.slots.into()),
        ];
        for (key, made, named) in keys {
            if made != named {
                let reason = format!("the fabric was made with {made}; {FROM_CONFIG}");
                return Err(SetupError::unmet(config, key, reason));
            }
        }
        Ok(())
    }

    fn registrar(&self) -> Arc<dyn Registrar> {
        self.0.keys.clone()
    }

    fn open_queues(&self, attr: &QueueAttr) -> Result<FabricQueues, SetupError> {
        let (caps, options) = (&self.0.caps, &self.0.options);
        rpcrdma_transport::check(attr, caps)?;
        let id = self.0.ids.fetch_add(1, Ordering::Relaxed);
        let port = Port::new(id, attr.qp_max).map_err(|source| SetupError::System {
            call: "eventfd",
            source,
            hint: "check the limit of open files (ulimit -n)",
        })?;
        let rights =
            Rights::new(self.0.key_secret.wrapping_add(id), Arc::clone(&self.0.windows_left));
        let settings = Settings {
            delay_ns: options.delay_ns,
            rnr_timer_ns: options.rnr_timer_ns,
            reads_max: options.rd_atomic,
            message_len: self.0.caps.message_len,
            has_windows: options.windows > 0,
            clock: options.clock.clone(),
        };
        let port = Arc::new(port);
        self.0.add_port(&port);
        let keys = Arc::clone(&self.0.keys);
        Ok(FabricQueues::new(port, Transport::new(attr, (keys, rights), settings)))
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

/// How to make a fabric that matches its configuration.
const FROM_CONFIG: &str = "Fabric::from_config makes one that is as configured";
