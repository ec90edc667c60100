//! The device: how it is found and opened, what it can do, and what all queues on it share.
#![expect(unsafe_code, reason = "libibverbs and librdmacm are called")]

mod find;
mod limits;

use std::mem::offset_of;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rpcrdma_config::{Config, ProviderKind};
use rpcrdma_mempool::Registrar;
use rpcrdma_provider::SetupError;
use rpcrdma_provider::{DeviceCaps, Provider, QueueAttr};

pub use self::find::{ActivePort, DeviceName, devices, missing_libraries};
use self::find::{Contexts, Found};
use crate::cm::VerbsCm;
use crate::error;
use crate::events::{self, DeviceEvents};
use crate::options::VerbsOptions;
use crate::port::Port;
use crate::queues::VerbsQueues;
use crate::registrar::Regions;
use crate::sys::cm::Cm;
use crate::sys::verbs as sys;

/// An RDMA device, opened. Clones are the same device.
#[derive(Clone)]
pub struct Verbs(Arc<Device>);

/// What all queues on a device share.
pub(crate) struct Device {
    pub lib: &'static sys::Verbs,
    pub cm: &'static Cm,
    pub context: *mut sys::ibv_context,
    /// The port that connections go through.
    pub port_num: u8,
    /// The address that connections go out from, where it is not for the system to choose.
    pub source: Option<IpAddr>,
    /// What it has reported.
    pub events: events::Counters,
    pub options: VerbsOptions,
    pub caps: DeviceCaps,
    pub quirks: Quirks,
    pub ops: Ops,
    /// What is open on it, for events that name a queue pair or a queue.
    ports: Mutex<Vec<Weak<Port>>>,
    opened: AtomicUsize,
    // In this order they are dropped: nothing may be left in a protection domain that is freed.
    pub regions: Regions,
    pub domain: Domain,
    _contexts: Contexts,
}

/// What a device does otherwise than verbs.h says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quirks {
    /// The flags of a completion that mean that the peer has invalidated a key. Soft-RoCE has the
    /// kernel's flag in them, which is another bit than the library's.
    pub invalidated: u32,
    /// Whether the end of a queue pair's Receives is reported by an event.
    pub tells_last_receive: bool,
}

/// Functions that are in tables of the context.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ops {
    pub poll_cq: sys::PollCq,
    pub req_notify_cq: sys::ReqNotifyCq,
    pub post_srq_recv: sys::PostSrqRecv,
    pub post_send: sys::PostSend,
    pub alloc_mw: Option<sys::AllocMw>,
    pub dealloc_mw: Option<sys::DeallocMw>,
    pub create_cq_ex: Option<sys::CreateCqEx>,
    pub alloc_td: Option<sys::AllocTd>,
    pub dealloc_td: Option<sys::DeallocTd>,
    pub alloc_parent_domain: Option<sys::AllocParentDomain>,
}

// SAFETY: libibverbs may be called by any thread with the same context and protection domain; what
// must not be called by two at once (the data path) is called by queues only, which have one owner.
unsafe impl Send for Device {}
// SAFETY: as above; everything that changes is behind a lock or atomic.
unsafe impl Sync for Device {}

/// A protection domain. Freed when dropped, if everything in it is.
pub(crate) struct Domain {
    lib: &'static sys::Verbs,
    pub pd: *mut sys::ibv_pd,
}

impl Device {
    fn open(
        (lib, cm): (&'static sys::Verbs, &'static Cm),
        contexts: Contexts,
        Found { context, port_num, source }: Found,
        options: &VerbsOptions,
    ) -> Result<Device, SetupError> {
        let ops = Ops::of(context)?;
        // SAFETY: the context is open.
        let pd = unsafe { (lib.ibv_alloc_pd)(context) };
        if pd.is_null() {
            return Err(error::last("ibv_alloc_pd"));
        }
        let domain = Domain { lib, pd };
        let (mut caps, quirks) = limits::of(lib, context, port_num, &domain, &ops)?;
        caps.inline_len = caps.inline_len.min(options.inline_len);
        caps.rd_atomic = caps.rd_atomic.min(options.reads.into());
        Ok(Device {
            lib,
            cm,
            context,
            port_num,
            source,
            events: events::Counters::default(),
            options: options.clone(),
            caps,
            quirks,
            ops,
            ports: Mutex::new(Vec::new()),
            opened: AtomicUsize::new(0),
            regions: Regions::new(lib, pd),
            domain,
            _contexts: contexts,
        })
    }

    /// Remembers queues that were opened, for events.
    fn add_port(&self, port: &Arc<Port>) {
        let mut ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        ports.retain(|port| port.strong_count() > 0);
        ports.push(Arc::downgrade(port));
    }

    /// The queues that are open on the device.
    pub fn ports(&self) -> Vec<Arc<Port>> {
        let ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        ports.iter().filter_map(Weak::upgrade).collect()
    }

    /// The completion vector of the next queues: they take turns, so that the interrupts of shards
    /// go to different cores.
    pub fn next_vector(&self) -> i32 {
        // SAFETY: the context is open; the number was written when it was opened.
        let count = unsafe { (*self.context).num_comp_vectors }.max(1);
        let opened = self.opened.fetch_add(1, Ordering::Relaxed);
        (opened % count.unsigned_abs() as usize) as i32
    }
}

impl Ops {
    fn of(context: *mut sys::ibv_context) -> Result<Ops, SetupError> {
        let lacking = |what: &str| SetupError::Library {
            library: "libibverbs.so.1",
            reason: format!("the driver of the device has no {what}"),
        };
        // SAFETY: the context is open; the table in it was filled in before it was returned, and
        // changes no more.
        let table = unsafe { &(*context).ops };
        macro_rules! extension {
            ($field:ident, $type:ty) => {{
                let offset = offset_of!(sys::verbs_context, $field);
                // SAFETY: the context is open, and the type is that of the field at this offset.
                unsafe { extension::<$type>(context, offset) }
            }};
        }
        Ok(Ops {
            poll_cq: table.poll_cq.ok_or_else(|| lacking("poll_cq"))?,
            req_notify_cq: table.req_notify_cq.ok_or_else(|| lacking("req_notify_cq"))?,
            post_srq_recv: table.post_srq_recv.ok_or_else(|| lacking("post_srq_recv"))?,
            post_send: table.post_send.ok_or_else(|| lacking("post_send"))?,
            alloc_mw: table.alloc_mw,
            dealloc_mw: table.dealloc_mw,
            create_cq_ex: extension!(create_cq_ex, sys::CreateCqEx),
            alloc_td: extension!(alloc_td, sys::AllocTd),
            dealloc_td: extension!(dealloc_td, sys::DeallocTd),
            alloc_parent_domain: extension!(alloc_parent_domain, sys::AllocParentDomain),
        })
    }
}

/// A function out of the structure around a context (`verbs_get_ctx_op` of the header): `None` if
/// there is no such structure, it does not reach as far, or the driver does not have the function.
///
/// # Safety
/// The context is open, and at this offset of [`sys::verbs_context`] there is an `Option<F>`.
unsafe fn extension<F: Copy>(context: *mut sys::ibv_context, offset: usize) -> Option<F> {
    // SAFETY: the caller knows that the context is open.
    let mark = unsafe { (*context).abi_compat };
    if mark.addr() != usize::MAX {
        return None;
    }
    let start = context.cast::<u8>().wrapping_sub(offset_of!(sys::verbs_context, context));
    let size = start.wrapping_add(offset_of!(sys::verbs_context, sz)).cast::<usize>();
    // SAFETY: the mark says that there is an extended context around this one; in all versions of it
    // its size is the word in front of the context.
    let size = unsafe { size.read() };
    if size < size_of::<sys::verbs_context>() - offset {
        return None;
    }
    let field = start.wrapping_add(offset).cast::<Option<F>>();
    // SAFETY: the structure grows at its front, and its size says that it has this field, of which
    // the caller knows the type.
    unsafe { field.read() }
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

impl Drop for Domain {
    fn drop(&mut self) {
        // A domain that is still in use is kept by the library, which says EBUSY.
        // SAFETY: the domain is alive, and nobody uses it after this.
        let _ = unsafe { (self.lib.ibv_dealloc_pd)(self.pd) };
    }
}

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
