//! The data path of the fake device: requests are taken, and complete when a test decides.

use super::*;

/// The functions in the table of a context.
pub(super) fn fill(ops: &mut ibv_context_ops) {
    ops.alloc_mw = Some(alloc_mw);
    ops.dealloc_mw = Some(dealloc_mw);
    ops.poll_cq = Some(poll_cq);
    ops.req_notify_cq = Some(req_notify_cq);
    ops.post_srq_recv = Some(post_srq_recv);
    ops.post_send = Some(post_send);
}

extern "C" fn alloc_mw(pd: *mut ibv_pd, type_: c_uint) -> *mut ibv_mw {
    let context = seen(pd).context;
    let board = board_of(context);
    let mw = ibv_mw { context, pd, rkey: board.number() << 8, handle: 0, type_ };
    board.make("ibv_alloc_mw", "mw", mw)
}

extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    board_of(seen(mw).context).destroy("ibv_dealloc_mw", "mw", mw)
}

extern "C" fn poll_cq(cq: *mut ibv_cq, room: c_int, out: *mut ibv_wc) -> c_int {
    let mut state = board_of(seen(cq).context).state();
    let count = state.completions.len().min(room as usize);
    for (at, wc) in state.completions.drain(..count).enumerate() {
        *seen(out.wrapping_add(at)) = wc;
    }
    count as c_int
}

extern "C" fn req_notify_cq(cq: *mut ibv_cq, _: c_int) -> c_int {
    board_of(seen(cq).context).code("ibv_req_notify_cq")
}

extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    _: *mut ibv_recv_wr,
    _: *mut *mut ibv_recv_wr,
) -> c_int {
    board_of(seen(srq).context).code("ibv_post_srq_recv")
}

extern "C" fn post_send(qp: *mut ibv_qp, _: *mut ibv_send_wr, _: *mut *mut ibv_send_wr) -> c_int {
    board_of(seen(qp).context).code("ibv_post_send")
}
