//! librdmacm, after `rdma/rdma_cma.h`.
#![expect(unsafe_code, reason = "the signatures of foreign functions")]
#![expect(non_camel_case_types, reason = "the names of the header")]

use std::ffi::{c_int, c_uint, c_void};

use super::verbs::{ibv_context, ibv_qp};
use crate::load::library;

library! {
    /// The functions of librdmacm that this crate calls.
    pub struct Cm in "librdmacm.so.1" {
        fn rdma_get_devices(count: *mut c_int) -> *mut *mut ibv_context;
        fn rdma_free_devices(list: *mut *mut ibv_context);
        fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int;
        fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int;
    }
}

/// An end of a connection, as far as it is looked at: the library's structure goes on.
#[repr(C)]
pub struct rdma_cm_id {
    pub verbs: *mut ibv_context,
    pub channel: *mut c_void,
    pub context: *mut c_void,
    pub qp: *mut ibv_qp,
}

/// An enumeration of this library.
pub type rdma_port_space = c_uint;
