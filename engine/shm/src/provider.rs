//! The provider, and the state that its clones share.

use std::fmt::Display;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rpcrdma_config::{Config, section};
use rpcrdma_mempool::Registrar;
use rpcrdma_provider::{DeviceCaps, Provider, QueueAttr, SetupError};
use rpcrdma_transport::Transport;
use rpcrdma_transport::body::{INLINE_LEN, PIECES_MAX};
use rpcrdma_transport::keys::KeyTable;
use rpcrdma_transport::queue_set::Settings;
use rpcrdma_transport::rights::Rights;

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
    caps: DeviceCaps,
    keys: Arc<KeyTable>,
    /// The registrations, with the memory of those that peers may map.
    files: Arc<Files>,
    windows_left: Arc<AtomicU32>,
    /// The secret that scrambles remote keys.
    key_secret: u64,
    /// Numbers of links and ports.
    numbers: AtomicU64,
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
        let caps = DeviceCaps {
            name: "shm".to_owned(),
            send_sge: PIECES_MAX as u32,
            read_sge: PIECES_MAX as u32,
            recv_sge: 32,
            srq_depth: 1 << 20,
            cq_depth: 1 << 22,
            send_depth: 1 << 14,
            inline_len: INLINE_LEN as u32,
            message_len: options.staging,
            windows: options.windows,
            rd_atomic: options.rd_atomic,
        };
        let keys: Arc<KeyTable> = Arc::default();
        Ok(Shm(Arc::new(Shared {
            windows_left: Arc::new(AtomicU32::new(options.windows)),
            key_secret: options.key_seed.unwrap_or_else(|| RandomState::new().hash_one(0)),
            first,
            options,
            caps,
            files: Arc::new(Files::new(Arc::clone(&keys))),
            keys,
            numbers: AtomicU64::new(1),
            watch: Arc::new(watch),
            closer: Closer::default(),
        })))
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
}

impl Provider for Shm {
    type Queues = ShmQueues;
    type Cm = ShmCm;

    fn caps(&self) -> &DeviceCaps {
        &self.0.caps
    }

    fn check(&self, config: &Config) -> Result<(), SetupError> {
        let (options, named) = (&self.0.options, ShmOptions::from(config.shm()));
        if config.engine().provider != section::ProviderKind::Shm {
            let reason = "the program opened shared memory; open the configured provider";
            return Err(SetupError::unmet(config, "engine.provider", reason));
        }
        let keys: [(_, &dyn Display, bool); 3] = [
            ("shm.map_pools", &options.map_pools, options.map_pools == named.map_pools),
            ("shm.ring_slots", &options.slots, options.slots == named.slots),
            ("shm.staging", &options.staging, options.staging == named.staging),
        ];
        for (key, made, is_as_named) in keys {
            if !is_as_named {
                let reason = format!("the provider was made with {made}; {FROM_CONFIG}");
                return Err(SetupError::unmet(config, key, reason));
            }
        }
        Ok(())
    }

    fn registrar(&self) -> Arc<dyn Registrar> {
        self.0.files.clone()
    }

    fn open_queues(&self, attr: &QueueAttr) -> Result<ShmQueues, SetupError> {
        let Shared { options, caps, keys, windows_left, key_secret, .. } = &*self.0;
        rpcrdma_transport::check(attr, caps)?;
        let ends = EndSpec {
            files: Arc::clone(&self.0.files),
            reads_max: options.rd_atomic,
            first: self.0.first,
        };
        let port = Arc::new(Port::new(attr.qp_max, ends)?);
        let rights =
            Rights::new(key_secret.wrapping_add(self.0.number()), Arc::clone(windows_left));
        let settings = Settings {
            delay_ns: 0,
            rnr_timer_ns: options.rnr_timer_ns,
            reads_max: options.rd_atomic,
            has_windows: options.windows > 0,
            message_len: options.staging,
            clock: options.clock.clone(),
        };
        let transport = Transport::new(attr, (Arc::clone(keys), rights), settings);
        Ok(ShmQueues::new(port, transport))
    }

    fn open_cm(&self) -> Result<ShmCm, SetupError> {
        ShmCm::new(Arc::clone(&self.0))
    }
}

impl Shared {
    /// A number for a link or a set of queues.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn device_name(&self) -> &str {
        &self.caps.name
    }

    /// The dimensions of the links that this side makes.
    pub(crate) fn dimensions(&self) -> Dimensions {
        self.options.dimensions()
    }

    /// Whether a user may see the pools of this process: its own.
    pub(crate) fn is_owner(&self, uid: u32) -> bool {
        uid == rustix::process::geteuid().as_raw()
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

/// How to make a provider that matches its configuration.
const FROM_CONFIG: &str = "Shm::from_config makes one that is as configured";
