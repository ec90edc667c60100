//! The software fabric: an RDMA provider inside the process, the embedded default.
//!
//! ```text
//!   Fabric ── open_queues ──▶ FabricQueues ──┐ lane ── ring ──▶ ┌── FabricQueues
//!     │                        (one thread)  └───── ◀── ring ── ┘    (another, or the same)
//!     ├────── open_cm ──────▶ FabricCm: the address space of the fabric is the process
//!     └────── registrar ────▶ memory keys
//! ```
//!
//! It keeps an RNIC's rules: Receives of a shared receive queue are matched in order; a message
//! without a Receive waits and in the end fails its queue pair; lengths, keys and rights are
//! checked; completions of a queue pair come in the order of posting; an error flushes. Memory that
//! was posted belongs to the fabric until its completion has been polled.
//!
//! Reads and Writes are carried out by the responder's `poll_cq`, which checks key, bounds and rights
//! before it touches a byte; a request is carried out as a whole or not at all, but for memory that is
//! deregistered while it is under way. A wrong one fails its queue pair on both sides, and the
//! requester learns of [`WcStatus::RemoteAccess`]. A Read is taken in its turn and carried out behind
//! what is posted after it, not before its data could have travelled back: fences are needed.
//! At most [`FabricOptions::rd_atomic`] of them are under way; more wait, and what is behind
//! them. Binds and invalidations take no time and complete in their place.
//!
//! Windows. A key is of one queue pair and names nothing on any other. When the queue pair is in the
//! error state at this side, whether its program knows it or not, nothing that arrives under the
//! key is carried out: the memory is not touched any more, and the window cannot be bound again
//! before `destroy`, after which it is bound to nothing. A registration by `expose` is of
//! these queues: all their queue pairs can use its key, and, unlike with a device, those of other
//! queues cannot.
//!
//! Registrations. A key is good as soon as there is one. Deregistering waits for the polls that are
//! going on; when it has returned, nothing is done under the key, whoever polls.
//!
//! Depths. A send queue has `send_depth` places; a completion frees that of its request and of the
//! unsignaled ones before it, so a program that never signals runs out of places. Requests that do
//! not fit in a ring wait in memory reserved for them. Receives complete as they are polled and
//! take no entry of the completion queue; send completions that do not fit in the batch of a poll
//! do, and one more than `cq_depth` of them is an overrun.
//!
//! Retries. A message without a Receive waits at the head of its ring and is delivered as soon as
//! there is one. It counts as retried once in every [`FabricOptions::rnr_timer_ns`]; after as many
//! retries as its connection was made with (0: at once) its queue pair fails on both sides.
//!
//! What differs from a device: the receiver's `poll_cq` does the copying, so an endpoint that is
//! not polled takes nothing; the queue pairs between two sets of queues share a ring, so a message
//! that waits for a Receive holds up those behind it, which need a Receive of the same queue.

mod barrier;
mod cm;
mod core;
mod dma;
mod doze;
mod endpoint;
mod keys;
mod lane;
mod port;
mod post;
mod prefetch;
mod qp;
mod queues;
mod rights;
mod ring;
mod srq;
mod sync;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rpcrdma_config::{Config, section};
use rpcrdma_mempool::Registrar;

pub use self::cm::{FabricCm, FabricRequest};
pub use self::endpoint::Endpoint as FabricEndpoint;
pub use self::queues::{FabricQp, FabricQueues};

use self::cm::Inbox;
use self::core::{Clock, CompletionQueue, Core};
use self::endpoint::Link;
use self::keys::{KeyCache, KeyTable};
use self::port::{Port, QP_MAX};
use self::post::Limits;
use self::qp::{BacklogPool, QpTable};
use self::rights::Rights;
use self::srq::Srq;
use rpcrdma_provider::SetupError;
#[cfg(doc)]
use rpcrdma_provider::WcStatus;
use rpcrdma_provider::{DeviceCaps, Provider, QueueAttr};

/// The software fabric. Clones are the same fabric: what they open can reach each other.
#[derive(Clone)]
pub struct Fabric(Arc<Shared>);

/// How a fabric behaves.
#[derive(Debug, Clone)]
pub struct FabricOptions {
    /// Slots of a ring, a power of two from 16 to 65536. A slot has 256 bytes; each pair of shards
    /// that talk to each other has two rings.
    pub slots: u32,
    /// How long everything is on its way in one direction, in ns; acknowledgements, too.
    pub delay_ns: u64,
    /// How long a message waits for a Receive before it counts as retried once, in ns.
    pub rnr_timer_ns: u64,
    /// What the delay and the retries are measured with. Not read without either.
    pub clock: FabricClock,
    /// Type-2 memory windows of all queues together; 0 is a device that has none.
    pub windows: u32,
    /// RDMA Reads of a queue pair that are under way at one time, from 1. More of them wait.
    pub rd_atomic: u32,
    /// What the remote keys of windows and registrations begin with: the same ones for the same
    /// number. Without it nobody knows them before.
    pub key_seed: Option<u64>,
}

/// A fabric's clock.
#[derive(Debug, Clone)]
pub enum FabricClock {
    /// The machine's.
    Real,
    /// A count of ns that a test moves.
    Virtual(Arc<AtomicU64>),
}

impl Default for FabricOptions {
    fn default() -> FabricOptions {
        FabricOptions {
            slots: 256,
            delay_ns: 0,
            // The shortest timer of InfiniBand but for the one that means the longest.
            rnr_timer_ns: 10_000,
            clock: FabricClock::Real,
            windows: 1 << 16,
            rd_atomic: 16,
            key_seed: None,
        }
    }
}

impl From<&section::Fabric> for FabricOptions {
    fn from(given: &section::Fabric) -> FabricOptions {
        FabricOptions {
            slots: given.ring_slots.value(),
            delay_ns: u64::try_from(given.delay.as_nanos()).unwrap_or(u64::MAX),
            ..FabricOptions::default()
        }
    }
}

/// What all clones of a fabric share. Control plane only.
pub(crate) struct Shared {
    options: FabricOptions,
    caps: DeviceCaps,
    keys: Arc<KeyTable>,
    ids: AtomicU64,
    windows_left: Arc<AtomicU32>,
    /// What remote keys are scrambled with.
    key_secret: u64,
    ports: Mutex<Vec<Weak<Port>>>,
    /// The position that rings begin with: 0, but for tests of what comes late.
    first_slot: u64,
    links: Mutex<HashMap<(u64, u64), Weak<Link>>>,
    listeners: Mutex<HashMap<SocketAddr, Arc<Inbox>>>,
}

/// What is open on a fabric. When everything that was made on it is gone, all of it is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FabricUse {
    /// Regions that are registered.
    pub regions: usize,
    /// Sets of queues.
    pub queues: usize,
    /// Queue pairs, those of connections that are being made among them.
    pub queue_pairs: usize,
    /// Memory windows.
    pub windows: usize,
    /// Addresses that somebody listens on.
    pub listeners: usize,
}

/// Names a set of queues of the fabric to a connection manager.
#[derive(Clone)]
pub struct FabricHandle {
    port: Arc<Port>,
}

impl Fabric {
    /// A fabric with the default options.
    pub fn new() -> Fabric {
        Fabric::of(FabricOptions::default())
    }

    /// A fabric with options. Fails when the number of slots is not one of those allowed.
    pub fn with_options(options: FabricOptions) -> Result<Fabric, SetupError> {
        let is_allowed = options.slots.is_power_of_two() && (16..=65536).contains(&options.slots);
        if !is_allowed {
            return Err(SetupError::Invalid {
                what: "slots of a ring",
                value: options.slots.to_string(),
                allowed: "a power of two from 16 to 65536".to_owned(),
            });
        }
        for (what, value, allowed, is_allowed) in [
            ("Reads at one time", options.rd_atomic, "1 or more", options.rd_atomic > 0),
            ("memory windows", options.windows, "2^22 at most", options.windows <= 1 << 22),
        ] {
            if !is_allowed {
                let (value, allowed) = (value.to_string(), allowed.to_owned());
                return Err(SetupError::Invalid { what, value, allowed });
            }
        }
        Ok(Fabric::of(options))
    }

    /// A fabric as a configuration has it, in its section `[fabric]`.
    ///
    /// # Errors
    /// As for [`Fabric::with_options`].
    pub fn from_config(config: &Config) -> Result<Fabric, SetupError> {
        Fabric::with_options(FabricOptions::from(config.fabric()))
    }

    /// Counts what is open on it.
    pub fn in_use(&self) -> FabricUse {
        let Shared { options, keys, windows_left, ports, listeners, .. } = &*self.0;
        let ports = ports.lock().unwrap_or_else(PoisonError::into_inner);
        let ports: Vec<Arc<Port>> = ports.iter().filter_map(Weak::upgrade).collect();
        let windows_left = windows_left.load(Ordering::Relaxed);
        FabricUse {
            regions: keys.held(),
            queues: ports.len(),
            queue_pairs: ports.iter().map(|port| port.taken()).sum(),
            windows: (options.windows - windows_left) as usize,
            listeners: listeners.lock().unwrap_or_else(PoisonError::into_inner).len(),
        }
    }

    fn of(options: FabricOptions) -> Fabric {
        let caps = DeviceCaps {
            name: "fabric".to_owned(),
            send_sge: dma::PIECES_MAX as u32,
            read_sge: dma::PIECES_MAX as u32,
            recv_sge: 32,
            srq_depth: 1 << 20,
            cq_depth: 1 << 22,
            send_depth: 1 << 14,
            inline_len: ring::INLINE_LEN as u32,
            message_len: MESSAGE_LEN_MAX,
            windows: options.windows,
            rd_atomic: options.rd_atomic,
        };
        let key_secret = options.key_seed.unwrap_or_else(|| RandomState::new().hash_one(0));
        Fabric(Arc::new(Shared {
            windows_left: Arc::new(AtomicU32::new(options.windows)),
            key_secret,
            options,
            caps,
            keys: Arc::new(KeyTable::default()),
            ids: AtomicU64::new(1),
            ports: Mutex::new(Vec::new()),
            first_slot: 0,
            links: Mutex::new(HashMap::new()),
            listeners: Mutex::new(HashMap::new()),
        }))
    }
}

#[cfg(all(test, not(loom)))]
impl Fabric {
    /// As [`Fabric::with_options`], with rings whose first slots have the position `first_slot`.
    fn beginning_at(options: FabricOptions, first_slot: u64) -> Result<Fabric, SetupError> {
        let mut fabric = Fabric::with_options(options)?;
        Arc::get_mut(&mut fabric.0).expect("nobody else has it yet").first_slot = first_slot;
        Ok(fabric)
    }
}

impl std::fmt::Debug for Fabric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fabric").field("options", &self.0.options).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for FabricHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FabricHandle").field("port", &self.port.id).finish()
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
            let reason =
                "the engine was given the software fabric; the program opens what is named";
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
        let limits = [
            ("Receives of a shared receive queue", attr.srq_depth, caps.srq_depth),
            ("entries of a completion queue", attr.cq_depth, caps.cq_depth),
            ("queue pairs of one shard", attr.qp_max, QP_MAX),
            ("send requests of a queue pair", attr.send_depth, caps.send_depth),
            ("gather entries of a send request", attr.send_sge, caps.send_sge),
            ("scatter entries of a Receive", attr.recv_sge, caps.recv_sge),
        ];
        for (what, needed, limit) in limits {
            if needed > limit {
                let (needed, limit) = (needed.into(), limit.into());
                return Err(SetupError::Limit { what, needed, limit, device: caps.name.clone() });
            }
        }
        let requests_max = u64::from(attr.qp_max) * u64::from(attr.send_depth);
        if requests_max > BACKLOG_MAX {
            return Err(SetupError::Limit {
                what: "send requests of all queue pairs",
                needed: requests_max,
                limit: BACKLOG_MAX,
                device: caps.name.clone(),
            });
        }
        let id = self.0.ids.fetch_add(1, Ordering::Relaxed);
        let port = Port::new(id, attr.qp_max).map_err(|source| SetupError::System {
            call: "eventfd",
            source,
            hint: "check the limit of open files (ulimit -n)",
        })?;
        let (keys, reader) = KeyCache::new(Arc::clone(&self.0.keys));
        let core = Core {
            qps: QpTable::new(attr.qp_max),
            backlog: BacklogPool::new(requests_max as usize),
            srq: Srq::new(attr.srq_depth, attr.recv_sge),
            keys,
            rights: Rights::new(
                self.0.key_secret.wrapping_add(id),
                Arc::clone(&self.0.windows_left),
            ),
            cq: CompletionQueue::new(attr.cq_depth),
            events: Default::default(),
            opening: Vec::with_capacity(attr.qp_max as usize),
            delay_ns: options.delay_ns,
            rnr_timer_ns: options.rnr_timer_ns,
            reads_max: options.rd_atomic,
            clock: Clock::new(&options.clock),
            rnr_count: 0,
        };
        let limits = Limits {
            send_depth: attr.send_depth,
            send_sge: attr.send_sge as usize,
            has_windows: options.windows > 0,
        };
        let port = Arc::new(port);
        self.0.add_port(&port);
        Ok(FabricQueues::new(port, (core, reader), (options.slots, limits)))
    }

    fn open_cm(&self) -> Result<FabricCm, SetupError> {
        FabricCm::new(Arc::clone(&self.0))
    }
}

impl Shared {
    /// Remembers a port for as long as it lives.
    fn add_port(&self, port: &Arc<Port>) {
        let mut ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        ports.retain(|port| port.strong_count() > 0);
        ports.push(Arc::downgrade(port));
    }

    /// The link between two ports, of which the first has the smaller number or they are the same.
    fn link(&self, ports: [&Arc<Port>; 2]) -> Arc<Link> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (ports[0].id, ports[1].id);
        if let Some(link) = links.get(&key).and_then(Weak::upgrade) {
            return link;
        }
        links.retain(|_, link| link.strong_count() > 0);
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let options = &self.options;
        let rings = (options.slots, options.delay_ns > 0, self.first_slot);
        let link = Arc::new(Link::new(id, ports.map(Arc::clone), rings));
        links.insert(key, Arc::downgrade(&link));
        link
    }
}

/// All windows of the device are taken, or it has none.
#[cold]
fn no_window_left() -> SetupError {
    SetupError::Invalid {
        what: "memory windows",
        value: "one more than the device has left".to_owned(),
        allowed: "as many as its capabilities say (windows)".to_owned(),
    }
}

/// A window that was never opened.
#[cold]
fn no_such_window() -> SetupError {
    SetupError::Invalid {
        what: "memory window",
        value: "one that these queues do not have".to_owned(),
        allowed: "one that they have opened".to_owned(),
    }
}

/// How a fabric comes to be what its configuration says.
const FROM_CONFIG: &str = "Fabric::from_config makes one that is as configured";
/// Bytes of the longest message.
const MESSAGE_LEN_MAX: u32 = 1 << 30;
/// Requests that may wait for room in one set of queues: at most 4 GiB, touched only when used.
const BACKLOG_MAX: u64 = 1 << 24;
