//! The parts of a device: its functions, its protection domain, and its special behaviour.
#![expect(unsafe_code, reason = "libibverbs is called")]

use std::mem::offset_of;

use rpcrdma_provider::SetupError;

use crate::sys::verbs as sys;

/// The device's deviations from verbs.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quirks {
    /// The completion flags that mean that the peer has invalidated a key. Soft-RoCE uses the
    /// kernel's flag, which is another bit than the library's.
    pub invalidated: u32,
    /// Whether an event reports a queue pair's last Receive.
    pub reports_last_receive: bool,
    /// Whether a Send or Write completes before an earlier Read: software iWARP. Those that report
    /// their completion are fenced there, because a completion stands for all earlier requests.
    pub fences_reports: bool,
    /// Whether a long Send or Write that reports no completion is sent from its memory, which is read
    /// until the peer has acknowledged it, also after a later completion: software iWARP. All long
    /// ones report theirs there, and are copied.
    pub lends_unreported: bool,
    /// Whether what is posted to a queue pair in the error state is taken and never completed:
    /// software iWARP, which has completed everything that was posted before when `ibv_modify_qp`
    /// returns.
    pub swallows_posts: bool,
    /// Whether the library takes one valid mmap key for an invalid one: libsiw.
    pub has_invalid_mmap_key: bool,
}

/// Who moves the queue pairs of a device through their states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// InfiniBand and RoCE: this crate, from what the connection manager says.
    Infiniband,
    /// iWARP: the kernel's connection manager, as MPA negotiates (RFC 5044, RFC 6581).
    Iwarp,
}

impl Transport {
    /// That of an open device.
    pub fn of(context: *mut sys::ibv_context) -> Transport {
        // SAFETY: the context is open, and has its device.
        let device = unsafe { (*context).device };
        // SAFETY: the device is that of an open context.
        match unsafe { (*device).transport_type } {
            sys::IBV_TRANSPORT_IWARP => Transport::Iwarp,
            // Unknown ones take queue pairs as InfiniBand does, or say that they do not.
            _ => Transport::Infiniband,
        }
    }
}

/// Functions from the tables of the context.
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

/// A protection domain. Dropping it frees it if it is empty.
pub(crate) struct Domain {
    pub lib: &'static sys::Verbs,
    pub pd: *mut sys::ibv_pd,
}

impl Ops {
    pub fn of(context: *mut sys::ibv_context) -> Result<Ops, SetupError> {
        let lacking = |what: &str| SetupError::Library {
            library: "libibverbs.so.1",
            reason: format!("the driver of the device has no {what}"),
            advice: "use another device",
        };
        // SAFETY: the context is open; its table was filled in before the context was returned, and
        // does not change.
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
    // SAFETY: the mark says that there is an extended context around this one; in all versions of
    // it its size is the word in front of the context.
    let size = unsafe { size.read() };
    if size < size_of::<sys::verbs_context>() - offset {
        return None;
    }
    let field = start.wrapping_add(offset).cast::<Option<F>>();
    // SAFETY: the structure grows at its front, and its size says that it has this field, of which
    // the caller knows the type.
    unsafe { field.read() }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // The library keeps a domain that is still in use, and returns EBUSY.
        // SAFETY: the domain is alive, and is not used after this.
        let _ = unsafe { (self.lib.ibv_dealloc_pd)(self.pd) };
    }
}
