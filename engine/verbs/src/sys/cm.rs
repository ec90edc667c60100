//! Bindings of librdmacm (`rdma/rdma_cma.h`).
#![expect(unsafe_code, reason = "the signatures of foreign functions")]

use std::ffi::{c_int, c_uint, c_void};

use libc::{sockaddr, sockaddr_storage};

use super::verbs::{ibv_context, ibv_cq, ibv_gid_aligned, ibv_pd, ibv_qp, ibv_qp_attr, ibv_srq};
use crate::load::library;

library! {
    /// The functions of librdmacm that this crate calls.
    pub struct Cm in "librdmacm.so.1" {
        fn rdma_get_devices(count: *mut c_int) -> *mut *mut ibv_context;
        fn rdma_free_devices(list: *mut *mut ibv_context);
        fn rdma_create_event_channel() -> *mut rdma_event_channel;
        fn rdma_destroy_event_channel(channel: *mut rdma_event_channel);
        fn rdma_get_cm_event(
            channel: *mut rdma_event_channel,
            event: *mut *mut rdma_cm_event
        ) -> c_int;
        fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int;
        fn rdma_create_id(
            channel: *mut rdma_event_channel,
            id: *mut *mut rdma_cm_id,
            context: *mut c_void,
            ps: c_uint
        ) -> c_int;
        fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int;
        fn rdma_set_option(
            id: *mut rdma_cm_id,
            level: c_int,
            name: c_int,
            value: *mut c_void,
            length: usize
        ) -> c_int;
        fn rdma_bind_addr(id: *mut rdma_cm_id, address: *mut sockaddr) -> c_int;
        fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int;
        fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16;
        fn rdma_resolve_addr(
            id: *mut rdma_cm_id,
            from: *mut sockaddr,
            to: *mut sockaddr,
            timeout_ms: c_int
        ) -> c_int;
        fn rdma_resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> c_int;
        fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
        /// Of rdma-core 22, from 2019.
        fn rdma_establish(id: *mut rdma_cm_id) -> c_int;
        fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
        fn rdma_reject(id: *mut rdma_cm_id, private: *const c_void, length: u8) -> c_int;
        fn rdma_notify(id: *mut rdma_cm_id, event: c_uint) -> c_int;
        fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int;
        /// The attributes of a queue pair for the state that is in `attr`.
        fn rdma_init_qp_attr(
            id: *mut rdma_cm_id,
            attr: *mut ibv_qp_attr,
            mask: *mut c_int
        ) -> c_int;
    }
}

/// The source of id events.
#[repr(C)]
pub struct rdma_event_channel {
    pub fd: c_int,
}

/// The addresses of a path, as InfiniBand has them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rdma_ib_addr {
    pub sgid: ibv_gid_aligned,
    pub dgid: ibv_gid_aligned,
    pub pkey: u16,
}

/// The addresses of both ends.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rdma_addr {
    pub src_addr: sockaddr_storage,
    pub dst_addr: sockaddr_storage,
    pub ibaddr: rdma_ib_addr,
}

/// The route to the peer.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rdma_route {
    pub addr: rdma_addr,
    pub path_rec: *mut c_void,
    pub num_paths: c_int,
}

/// An endpoint of a connection, or a listener.
#[repr(C)]
pub struct rdma_cm_id {
    pub verbs: *mut ibv_context,
    pub channel: *mut rdma_event_channel,
    pub context: *mut c_void,
    pub qp: *mut ibv_qp,
    pub route: rdma_route,
    pub ps: c_uint,
    pub port_num: u8,
    pub event: *mut rdma_cm_event,
    pub send_cq_channel: *mut c_void,
    pub send_cq: *mut ibv_cq,
    pub recv_cq_channel: *mut c_void,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub pd: *mut ibv_pd,
    pub qp_type: c_uint,
}

/// The parameters of a connection request or its answer.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rdma_conn_param {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: u8,
    pub qp_num: u32,
}

/// An event of an id.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rdma_cm_event {
    pub id: *mut rdma_cm_id,
    pub listen_id: *mut rdma_cm_id,
    pub event: c_uint,
    pub status: c_int,
    pub conn: rdma_conn_param,
    /// The rest of the longer one of the header's union, for datagrams.
    pub rest: [u64; 4],
}

/// Ports like those of TCP.
pub const RDMA_PS_TCP: c_uint = 0x0106;

pub const RDMA_CM_EVENT_ADDR_RESOLVED: c_uint = 0;
pub const RDMA_CM_EVENT_ADDR_ERROR: c_uint = 1;
pub const RDMA_CM_EVENT_ROUTE_RESOLVED: c_uint = 2;
pub const RDMA_CM_EVENT_ROUTE_ERROR: c_uint = 3;
pub const RDMA_CM_EVENT_CONNECT_REQUEST: c_uint = 4;
pub const RDMA_CM_EVENT_CONNECT_RESPONSE: c_uint = 5;
pub const RDMA_CM_EVENT_CONNECT_ERROR: c_uint = 6;
pub const RDMA_CM_EVENT_UNREACHABLE: c_uint = 7;
pub const RDMA_CM_EVENT_REJECTED: c_uint = 8;
pub const RDMA_CM_EVENT_ESTABLISHED: c_uint = 9;
pub const RDMA_CM_EVENT_DISCONNECTED: c_uint = 10;
pub const RDMA_CM_EVENT_DEVICE_REMOVAL: c_uint = 11;
pub const RDMA_CM_EVENT_ADDR_CHANGE: c_uint = 14;
pub const RDMA_CM_EVENT_TIMEWAIT_EXIT: c_uint = 15;

pub const RDMA_OPTION_ID: c_int = 0;
pub const RDMA_OPTION_ID_TOS: c_int = 0;
