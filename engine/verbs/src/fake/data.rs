//! The data path of the fake device: requests are taken, and complete when a test decides, or when
//! the device is wired.
//!
//! The functions of the fast path also have names that callgrind finds: `driver_...`.

use std::ffi::{c_int, c_uint};
use std::hint::black_box;

use super::pointers::seen;
use super::state::{State, fake_of};
use crate::sys::verbs::*;

/// The functions in the table of a context.
pub(super) fn fill(ops: &mut ibv_context_ops) {
    ops.alloc_mw = Some(alloc_mw);
    ops.dealloc_mw = Some(dealloc_mw);
    ops.req_notify_cq = Some(req_notify_cq);
    ops.poll_cq = Some(poll_cq);
    ops.post_srq_recv = Some(post_srq_recv);
    ops.post_send = Some(post_send);
}

/// The functions of the fast path, under names that callgrind finds.
pub(super) fn name(ops: &mut ibv_context_ops) {
    ops.poll_cq = Some(driver_poll_cq);
    ops.post_srq_recv = Some(driver_post_srq_recv);
    ops.post_send = Some(driver_post_send);
}

extern "C" fn alloc_mw(pd: *mut ibv_pd, type_: c_uint) -> *mut ibv_mw {
    let context = seen(pd).context;
    let fake = fake_of(context);
    let mw = ibv_mw { context, pd, rkey: fake.number() << 8, handle: 0, type_ };
    fake.make("ibv_alloc_mw", "mw", mw)
}

extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    fake_of(seen(mw).context).destroy("ibv_dealloc_mw", "mw", mw)
}

extern "C" fn poll_cq(cq: *mut ibv_cq, room: c_int, out: *mut ibv_wc) -> c_int {
    let mut state = fake_of(seen(cq).context).state();
    let State { completions, wire, .. } = &mut *state;
    let completions = wire.completions(cq, completions);
    let count = completions.len().min(room as usize);
    for (at, wc) in completions.drain(..count).enumerate() {
        *seen(out.wrapping_add(at)) = wc;
    }
    drop(state);
    count as c_int
}

extern "C" fn req_notify_cq(cq: *mut ibv_cq, _: c_int) -> c_int {
    fake_of(seen(cq).context).code("ibv_req_notify_cq")
}

extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    first: *mut ibv_recv_wr,
    _: *mut *mut ibv_recv_wr,
) -> c_int {
    let fake = fake_of(seen(srq).context);
    let code = fake.code("ibv_post_srq_recv");
    if code == 0 {
        fake.state().wire.receive(srq, first);
    }
    code
}

extern "C" fn post_send(
    qp: *mut ibv_qp,
    first: *mut ibv_send_wr,
    _: *mut *mut ibv_send_wr,
) -> c_int {
    let fake = fake_of(seen(qp).context);
    let code = fake.code("ibv_post_send");
    if code == 0 {
        let swallows = fake.is_iwarp();
        fake.state().wire.send(seen(qp).qp_num, first, swallows);
    }
    code
}

// None of these ends in a jump, by which callgrind would take it for left.

extern "C" fn driver_poll_cq(cq: *mut ibv_cq, room: c_int, out: *mut ibv_wc) -> c_int {
    black_box(poll_cq(cq, room, out))
}

extern "C" fn driver_post_srq_recv(
    srq: *mut ibv_srq,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    black_box(post_srq_recv(srq, first, bad))
}

extern "C" fn driver_post_send(
    qp: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    black_box(post_send(qp, first, bad))
}
