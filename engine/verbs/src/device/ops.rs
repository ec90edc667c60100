//! The parts of a device: its functions, its protection domain, and its special behaviour.
#![expect(unsafe_code, reason = "libibverbs is called")]

use std::mem::offset_of;

use rpcrdma_provider::SetupError;

use crate::sys::verbs as sys;

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

/// A protection domain. Freed when dropped, if everything in it is.
pub(crate) struct Domain {
    pub lib: &'static sys::Verbs,
    pub pd: *mut sys::ibv_pd,
}

impl Ops {
    pub fn of(context: *mut sys::ibv_context) -> Result<Ops, SetupError> {
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

impl Drop for Domain {
    fn drop(&mut self) {
        // A domain that is still in use is kept by the library, which says EBUSY.
        // SAFETY: the domain is alive, and nobody uses it after this.
        let _ = unsafe { (self.lib.ibv_dealloc_pd)(self.pd) };
    }
}
