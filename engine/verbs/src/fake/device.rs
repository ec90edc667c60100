//! A fake libibverbs: objects are made and destroyed, and nothing is asked of a device.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::pointers::seen;
use super::state::{current, event_fd, fake_of, set_errno};
use crate::sys::verbs as sys;
use crate::sys::verbs::*;

extern "C" fn fork_init() -> c_int {
    current().code("ibv_fork_init")
}

extern "C" fn device_name(_: *mut ibv_device) -> *const c_char {
    c"fake0".as_ptr()
}

extern "C" fn query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
    let attr = seen(attr);
    (attr.max_sge, attr.max_sge_rd, attr.max_srq_sge) = (32, 32, 32);
    (attr.max_srq_wr, attr.max_cqe, attr.max_qp_wr) = (1 << 16, 1 << 16, 1 << 16);
    (attr.max_mw, attr.max_qp_rd_atom, attr.max_qp_init_rd_atom) = (1 << 10, 16, 16);
    attr.device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    let fake = fake_of(context);
    if fake.is_iwarp() {
        // What siw of Linux 6.1 says.
        (attr.max_sge, attr.max_sge_rd, attr.max_srq_sge) = (6, 1, 6);
        (attr.max_mw, attr.device_cap_flags, attr.vendor_id) = (0, 0, 0x62_6d74);
    }
    fake.code("ibv_query_device")
}

extern "C" fn query_port(context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr) -> c_int {
    if port != 1 {
        return libc::EINVAL;
    }
    (seen(attr).state, seen(attr).max_msg_sz) = (IBV_PORT_ACTIVE, 1 << 31);
    fake_of(context).code("ibv_query_port")
}

/// There is one entry: 192.0.2.1.
extern "C" fn query_gid(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    if (port, index) != (1, 0) {
        return -1;
    }
    *seen(gid) = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1];
    fake_of(context).checked("ibv_query_gid")
}

extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    fake_of(context).make("ibv_alloc_pd", "pd", ibv_pd { context, handle: 0 })
}

extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    fake_of(seen(pd).context).destroy("ibv_dealloc_pd", "pd", pd)
}

extern "C" fn reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, _: c_int) -> *mut ibv_mr {
    let context = seen(pd).context;
    let fake = fake_of(context);
    let key = fake.number();
    let mr = ibv_mr { context, pd, addr, length, handle: 0, lkey: key, rkey: key };
    fake.make("ibv_reg_mr", "mr", mr)
}

extern "C" fn dereg_mr(mr: *mut ibv_mr) -> c_int {
    fake_of(seen(mr).context).destroy("ibv_dereg_mr", "mr", mr)
}

extern "C" fn create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    let channel = ibv_comp_channel { context, fd: event_fd(), refcnt: 0 };
    fake_of(context).make("ibv_create_comp_channel", "channel", channel)
}

extern "C" fn destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    fake_of(seen(channel).context).destroy("ibv_destroy_comp_channel", "channel", channel)
}

extern "C" fn create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    _: c_int,
) -> *mut ibv_cq {
    let len = 32 * cqe.unsigned_abs() as usize + 8;
    let cq = ibv_cq { context, channel, cq_context };
    fake_of(context).make_mapped("ibv_create_cq", "cq", len, cq)
}

extern "C" fn destroy_cq(cq: *mut ibv_cq) -> c_int {
    let fake = fake_of(seen(cq).context);
    fake.state().wire.forget_cq(cq);
    fake.destroy("ibv_destroy_cq", "cq", cq)
}

extern "C" fn cq_event(
    channel: *mut ibv_comp_channel,
    _: *mut *mut ibv_cq,
    _: *mut *mut c_void,
) -> c_int {
    let fake = fake_of(seen(channel).context);
    fake.called("ibv_get_cq_event").map_or_else(set_errno, |()| set_errno(libc::EAGAIN))
}

extern "C" fn ack_cq_events(_: *mut ibv_cq, _: c_uint) {}

extern "C" fn create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    let context = seen(pd).context;
    let srq = ibv_srq { context, srq_context: seen(attr).srq_context, pd };
    fake_of(context).make_mapped("ibv_create_srq", "srq", 4096, srq)
}

extern "C" fn destroy_srq(srq: *mut ibv_srq) -> c_int {
    let fake = fake_of(seen(srq).context);
    fake.state().wire.forget_srq(srq);
    fake.destroy("ibv_destroy_srq", "srq", srq)
}

extern "C" fn create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    let (context, attr) = (seen(pd).context, seen(attr));
    let fake = fake_of(context);
    if fake.is_iwarp() {
        attr.cap.max_inline_data = 0;
    }
    let again = fake.state().free_numbers.pop();
    let qp = ibv_qp {
        context,
        qp_context: attr.qp_context,
        pd,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        handle: 0,
        qp_num: again.unwrap_or_else(|| fake.number()),
        state: 0,
        qp_type: attr.qp_type,
    };
    let made = fake.make_mapped("ibv_create_qp", "qp", 4096, qp);
    if !made.is_null() {
        fake.state().wire.add(seen(made));
    }
    made
}

extern "C" fn modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, _: c_int) -> c_int {
    let function = match seen(attr).qp_state {
        IBV_QPS_ERR => "ibv_modify_qp to ERR",
        _ => "ibv_modify_qp",
    };
    let fake = fake_of(seen(qp).context);
    let moved = [IBV_QPS_RTR, IBV_QPS_RTS].contains(&seen(attr).qp_state);
    assert!(!(moved && fake.is_iwarp()), "the connection manager moves queue pairs on iWARP");
    let code = fake.code(function);
    if code == 0 && seen(attr).qp_state == IBV_QPS_ERR {
        fake.state().wire.fail(seen(qp).qp_num);
    }
    code
}

extern "C" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    let (fake, num) = (fake_of(seen(qp).context), seen(qp).qp_num);
    let code = fake.destroy("ibv_destroy_qp", "qp", qp);
    if code == 0 {
        fake.state().wire.remove(num);
    }
    code
}

extern "C" fn async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int {
    let fake = fake_of(context);
    fake.state().looks += 1;
    if let Some(errno) = fake.state().refused.get("ibv_get_async_event").copied() {
        return set_errno(errno);
    }
    let next = fake.state().events.pop_front();
    let Some(next) = next else { return set_errno(libc::EAGAIN) };
    *seen(event) = next;
    fake.state().unacknowledged += 1;
    0
}

extern "C" fn ack_async_event(_: *mut ibv_async_event) {
    current().state().unacknowledged -= 1;
    let _ = current().called("ibv_ack_async_event");
}

pub(crate) static VERBS: sys::Verbs = sys::Verbs {
    ibv_fork_init: fork_init,
    ibv_get_device_name: device_name,
    ibv_query_device: query_device,
    ibv_query_port: query_port,
    ibv_query_gid: query_gid,
    ibv_alloc_pd: alloc_pd,
    ibv_dealloc_pd: dealloc_pd,
    ibv_reg_mr: reg_mr,
    ibv_dereg_mr: dereg_mr,
    ibv_create_comp_channel: create_comp_channel,
    ibv_destroy_comp_channel: destroy_comp_channel,
    ibv_create_cq: create_cq,
    ibv_destroy_cq: destroy_cq,
    ibv_get_cq_event: cq_event,
    ibv_ack_cq_events: ack_cq_events,
    ibv_create_srq: create_srq,
    ibv_destroy_srq: destroy_srq,
    ibv_create_qp: create_qp,
    ibv_modify_qp: modify_qp,
    ibv_destroy_qp: destroy_qp,
    ibv_get_async_event: async_event,
    ibv_ack_async_event: ack_async_event,
};
