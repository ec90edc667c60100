//! Bindings of libibverbs (`infiniband/verbs.h`).
#![expect(unsafe_code, reason = "the signatures of foreign functions")]

mod attributes;
mod objects;
mod work;

use std::ffi::{c_char, c_int, c_uint, c_void};

pub use self::attributes::*;
pub use self::objects::*;
pub use self::work::*;
use crate::load::library;

library! {
    /// The functions of libibverbs that this crate calls by name. The data path goes through
    /// [`ibv_context_ops`] instead.
    pub struct Verbs in "libibverbs.so.1" {
        /// Keeps a forked child from getting copies of registered pages, if the kernel does not.
        fn ibv_fork_init() -> c_int;
        fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char;
        fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int;
        /// Writes the fields that the library knows into `attr`, which the caller zeroes.
        fn ibv_query_port(context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr) -> c_int;
        fn ibv_query_gid(
            context: *mut ibv_context,
            port: u8,
            index: c_int,
            gid: *mut ibv_gid
        ) -> c_int;
        fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
        fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int;
        fn ibv_reg_mr(
            pd: *mut ibv_pd,
            addr: *mut c_void,
            length: usize,
            access: c_int
        ) -> *mut ibv_mr;
        fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;
        fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
        fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
        fn ibv_create_cq(
            context: *mut ibv_context,
            cqe: c_int,
            cq_context: *mut c_void,
            channel: *mut ibv_comp_channel,
            comp_vector: c_int
        ) -> *mut ibv_cq;
        fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
        fn ibv_get_cq_event(
            channel: *mut ibv_comp_channel,
            cq: *mut *mut ibv_cq,
            cq_context: *mut *mut c_void
        ) -> c_int;
        fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint);
        fn ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq;
        fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;
        fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp;
        fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, attr_mask: c_int) -> c_int;
        fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
        fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int;
        fn ibv_ack_async_event(event: *mut ibv_async_event);
    }
}
