//! The device: the state that all its queues share.
#![expect(unsafe_code, reason = "libibverbs is called")]

mod filler;
pub(crate) mod find;
mod limits;
pub(crate) mod ops;
pub(crate) mod way;

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rpcrdma_mempool::{Keys, Region, RegisterError, Registrar, Rights};
use rpcrdma_provider::{DeviceCaps, SetupError};

use self::filler::Filler;
use self::find::{Contexts, Found};
use self::ops::{Domain, Ops, Quirks, Transport};
use crate::counters::Counters;
use crate::device_event::Listener;
use crate::error;
use crate::options::VerbsOptions;
use crate::registrar::Regions;
use crate::sys::cm::Cm;
use crate::sys::verbs as sys;

/// The state that all queues on a device share.
pub(crate) struct Device {
    pub lib: &'static sys::Verbs,
    pub cm: &'static Cm,
    pub context: *mut sys::ibv_context,
    /// The port that connections go through.
    pub port_num: u8,
    /// The source address of connections, unless the system chooses it.
    pub source: Option<IpAddr>,
    /// The events that it has reported.
    pub events: Counters,
    pub options: VerbsOptions,
    pub caps: DeviceCaps,
    pub quirks: Quirks,
    pub transport: Transport,
    pub ops: Ops,
    /// The open ports, for events that name a queue pair or a queue.
    ports: Mutex<Vec<Weak<dyn Listener>>>,
    opened: AtomicUsize,
    // The drop order: a protection domain must be empty when it is freed.
    pub regions: Regions,
    pub domain: Domain,
    _filler: Option<Filler>,
    _contexts: Contexts,
}

/// The functions of the RDMA libraries.
#[derive(Clone, Copy)]
pub(crate) struct Libraries {
    pub verbs: &'static sys::Verbs,
    pub cm: &'static Cm,
}

impl Libraries {
    /// Those of the system.
    pub fn load() -> Result<Libraries, SetupError> {
        Ok(Libraries { verbs: sys::Verbs::load()?, cm: Cm::load()? })
    }
}

// SAFETY: libibverbs may be called by any thread with the same context and protection domain. The
// data path, which must not be called concurrently, is called only by queues, which have one owner.
unsafe impl Send for Device {}
// SAFETY: as above; all mutable state is behind a lock or atomic.
unsafe impl Sync for Device {}

impl Device {
    pub fn open(
        Libraries { verbs: lib, cm }: Libraries,
        contexts: Contexts,
        Found { context, port_num, source }: Found,
        options: &VerbsOptions,
    ) -> Result<Device, SetupError> {
        let ops = Ops::of(context)?;
        // SAFETY: the context is open.
        let pd = error::made("ibv_alloc_pd", || unsafe { (lib.ibv_alloc_pd)(context) })?;
        let domain = Domain { lib, pd };
        let (mut caps, quirks) = limits::of(lib, context, port_num, &domain, &ops)?;
        let filler =
            quirks.has_invalid_mmap_key.then(|| Filler::share(lib, context)).transpose()?;
        caps.inline_len = caps.inline_len.min(options.inline_len);
        caps.rd_atomic = caps.rd_atomic.min(options.reads.into());
        Ok(Device {
            lib,
            cm,
            context,
            port_num,
            source,
            events: Counters::default(),
            options: options.clone(),
            caps,
            quirks,
            transport: Transport::of(context),
            ops,
            ports: Mutex::new(Vec::new()),
            opened: AtomicUsize::new(0),
            regions: Regions::new(lib, pd),
            domain,
            _filler: filler,
            _contexts: contexts,
        })
    }

    /// Registers open queues for events.
    pub fn add_port(&self, port: &Arc<impl Listener + 'static>) {
        let new: Weak<dyn Listener> = Arc::downgrade(port) as _;
        let mut ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        ports.retain(|port| port.strong_count() > 0);
        ports.push(new);
    }

    /// The queues that are open on the device.
    pub fn ports(&self) -> Vec<Arc<dyn Listener>> {
        let ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        ports.iter().filter_map(Weak::upgrade).collect()
    }

    /// The completion vector of the next queues. Vectors rotate, so that the interrupts of shards
    /// go to different cores.
    pub fn next_vector(&self) -> i32 {
        // SAFETY: the context is open; the number was written when it was opened.
        let count = unsafe { (*self.context).num_comp_vectors }.max(1);
        let opened = self.opened.fetch_add(1, Ordering::Relaxed);
        (opened % count.unsigned_abs() as usize) as i32
    }
}

impl Registrar for Device {
    fn register(&self, region: &Region, rights: Rights) -> Result<Keys, RegisterError> {
        self.regions.register(region, rights)
    }

    fn deregister(&self, keys: Keys) -> io::Result<()> {
        self.regions.deregister(keys)
    }
}
