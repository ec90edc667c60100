//! The capabilities of a device: those that it reports, and those found by trying.
#![expect(unsafe_code, reason = "libibverbs is called")]

use std::ptr;

use rpcrdma_provider::{DeviceCaps, SetupError};

use super::find::{name_of, port_attr};
use super::ops::{Domain, Ops, Quirks, Transport};
use crate::error;
use crate::sys::verbs as sys;

/// The capabilities of a device, and its quirks.
pub(super) fn of(
    lib: &sys::Verbs,
    context: *mut sys::ibv_context,
    port_num: u8,
    domain: &Domain,
    ops: &Ops,
) -> Result<(DeviceCaps, Quirks), SetupError> {
    // SAFETY: all members are integers, for which zeros are values.
    let mut attr: sys::ibv_device_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the context is open and `attr` is as the header has it.
    let code = unsafe { (lib.ibv_query_device)(context, &raw mut attr) };
    if code != 0 {
        return Err(error::code("ibv_query_device", code));
    }
    let port = port_attr(lib, context, port_num)?;
    let has_windows = attr.device_cap_flags & sys::IBV_DEVICE_MEM_WINDOW_TYPE_2B != 0
        && ops.alloc_mw.is_some()
        && ops.dealloc_mw.is_some();
    let is_iwarp = Transport::of(context) == Transport::Iwarp;
    let is_soft = attr.vendor_id == RXE_VENDOR;
    let is_siw = attr.vendor_id == SIW_VENDOR;
    let send_sge = count(attr.max_sge);
    let caps = DeviceCaps {
        name: name_of(lib, context),
        send_sge,
        // Not all devices report it; one is always allowed.
        read_sge: count(attr.max_sge_rd).clamp(1, send_sge.max(1)),
        recv_sge: count(attr.max_srq_sge),
        srq_depth: count(attr.max_srq_wr),
        cq_depth: count(attr.max_cqe),
        send_depth: count(attr.max_qp_wr),
        inline_len: inline_len(lib, context, domain, send_sge)?,
        message_len: port.max_msg_sz,
        windows: if has_windows { count(attr.max_mw) } else { 0 },
        rd_atomic: count(attr.max_qp_rd_atom.min(attr.max_qp_init_rd_atom)).min(u8::MAX.into()),
        reads_expose: is_iwarp,
    };
    let rxe_flag = if is_soft { RXE_WITH_INV } else { 0 };
    let quirks = Quirks {
        invalidated: sys::IBV_WC_WITH_INV | rxe_flag,
        reports_last_receive: !is_soft,
        fences_reports: is_siw,
        lends_unreported: is_siw,
        swallows_posts: is_siw,
        has_invalid_mmap_key: is_siw,
    };
    Ok((caps, quirks))
}

/// The bytes that a request can carry inline. Libraries do not report the limit; creation fails
/// above it.
fn inline_len(
    lib: &sys::Verbs,
    context: *mut sys::ibv_context,
    domain: &Domain,
    send_sge: u32,
) -> Result<u32, SetupError> {
    // SAFETY: the context is open; a completion queue without a channel has the first vector.
    let cq = error::made("ibv_create_cq", || unsafe {
        (lib.ibv_create_cq)(context, 1, ptr::null_mut(), ptr::null_mut(), 0)
    })?;
    let (mut kept, mut found) = (0, Ok(0));
    for wanted in INLINE_LENGTHS {
        let mut attr = sys::ibv_qp_init_attr {
            qp_context: ptr::null_mut(),
            send_cq: cq,
            recv_cq: cq,
            srq: ptr::null_mut(),
            cap: sys::ibv_qp_cap {
                max_send_wr: 1,
                max_recv_wr: 1,
                max_send_sge: send_sge.min(PROBE_SGE),
                max_recv_sge: 1,
                max_inline_data: wanted,
            },
            qp_type: sys::IBV_QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: domain and queue are alive, and `attr` is as the header has it.
        let made = error::made("ibv_create_qp", || unsafe {
            (lib.ibv_create_qp)(domain.pd, &raw mut attr)
        });
        match made {
            Ok(qp) => {
                // SAFETY: the queue pair was just created and has no other references.
                kept = unsafe { (lib.ibv_destroy_qp)(qp) };
                // A driver may grant more than requested; how much more depends on the other limits.
                found = Ok(wanted.min(attr.cap.max_inline_data));
                break;
            }
            Err(why) => found = Err(why),
        }
    }
    // SAFETY: the queue was made above; its queue pair is gone, or it says EBUSY and stays.
    let code = unsafe { (lib.ibv_destroy_cq)(cq) };
    match (kept, code) {
        (0, 0) => found,
        (0, code) => Err(error::code("ibv_destroy_cq", code)),
        (code, _) => Err(error::code("ibv_destroy_qp", code)),
    }
}

/// A maximum as a count; 0 if it is negative.
fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// The lengths to try, the longest first.
const INLINE_LENGTHS: [u32; 7] = [1024, 512, 256, 128, 64, 32, 0];
/// Gather entries of the probe queue pair; they share space with inline data.
const PROBE_SGE: u32 = 16;
/// The vendor of soft-RoCE.
const RXE_VENDOR: u32 = 0xff_ffff;
/// The vendor of software iWARP.
const SIW_VENDOR: u32 = 0x62_6d74;
/// `IB_WC_WITH_INVALIDATE` of the kernel, which soft-RoCE passes on unchanged.
const RXE_WITH_INV: u32 = 1 << 2;
