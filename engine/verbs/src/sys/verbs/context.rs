//! An opened device as libibverbs has it: the tables of functions, that of the data path above all.

use std::ffi::{c_int, c_uint, c_void};

use super::{
    ibv_cq, ibv_cq_init_attr_ex, ibv_device, ibv_mw, ibv_parent_domain_init_attr, ibv_pd, ibv_qp,
    ibv_recv_wr, ibv_send_wr, ibv_srq, ibv_td, ibv_td_init_attr, ibv_wc,
};

/// A function of a table that is not called by way of it.
type Unused = *const c_void;
pub type AllocMw = unsafe extern "C" fn(*mut ibv_pd, c_uint) -> *mut ibv_mw;
pub type DeallocMw = unsafe extern "C" fn(*mut ibv_mw) -> c_int;
pub type PollCq = unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int;
pub type ReqNotifyCq = unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int;
pub type PostSrqRecv =
    unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;
pub type PostSend =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;
pub type AllocParentDomain =
    unsafe extern "C" fn(*mut ibv_context, *mut ibv_parent_domain_init_attr) -> *mut ibv_pd;
pub type DeallocTd = unsafe extern "C" fn(*mut ibv_td) -> c_int;
pub type AllocTd = unsafe extern "C" fn(*mut ibv_context, *mut ibv_td_init_attr) -> *mut ibv_td;
/// The `ibv_cq_ex` that the function returns begins as an `ibv_cq` does.
pub type CreateCqEx =
    unsafe extern "C" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq;

/// The function table of the data path.
#[repr(C)]
pub struct ibv_context_ops {
    pub _compat_query_device: Unused,
    pub _compat_query_port: Unused,
    pub _compat_alloc_pd: Unused,
    pub _compat_dealloc_pd: Unused,
    pub _compat_reg_mr: Unused,
    pub _compat_rereg_mr: Unused,
    pub _compat_dereg_mr: Unused,
    pub alloc_mw: Option<AllocMw>,
    pub bind_mw: Unused,
    pub dealloc_mw: Option<DeallocMw>,
    pub _compat_create_cq: Unused,
    pub poll_cq: Option<PollCq>,
    pub req_notify_cq: Option<ReqNotifyCq>,
    pub _compat_cq_event: Unused,
    pub _compat_resize_cq: Unused,
    pub _compat_destroy_cq: Unused,
    pub _compat_create_srq: Unused,
    pub _compat_modify_srq: Unused,
    pub _compat_query_srq: Unused,
    pub _compat_destroy_srq: Unused,
    pub post_srq_recv: Option<PostSrqRecv>,
    pub _compat_create_qp: Unused,
    pub _compat_query_qp: Unused,
    pub _compat_modify_qp: Unused,
    pub _compat_destroy_qp: Unused,
    pub post_send: Option<PostSend>,
    pub post_recv: Unused,
    pub _compat_create_ah: Unused,
    pub _compat_destroy_ah: Unused,
    pub _compat_attach_mcast: Unused,
    pub _compat_detach_mcast: Unused,
    pub _compat_async_event: Unused,
}

/// An opened device.
#[repr(C)]
pub struct ibv_context {
    pub device: *mut ibv_device,
    pub ops: ibv_context_ops,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
    pub mutex: libc::pthread_mutex_t,
    /// All ones if a [`verbs_context`] is around this one.
    pub abi_compat: *mut c_void,
}

/// What is in front of an extended [`ibv_context`]; it grows to the front, and `sz` says how far.
#[repr(C)]
pub struct verbs_context {
    pub query_port: Unused,
    pub advise_mr: Unused,
    pub alloc_null_mr: Unused,
    pub read_counters: Unused,
    pub attach_counters_point_flow: Unused,
    pub create_counters: Unused,
    pub destroy_counters: Unused,
    pub reg_dm_mr: Unused,
    pub alloc_dm: Unused,
    pub free_dm: Unused,
    pub modify_flow_action_esp: Unused,
    pub destroy_flow_action: Unused,
    pub create_flow_action_esp: Unused,
    pub modify_qp_rate_limit: Unused,
    pub alloc_parent_domain: Option<AllocParentDomain>,
    pub dealloc_td: Option<DeallocTd>,
    pub alloc_td: Option<AllocTd>,
    pub modify_cq: Unused,
    pub post_srq_ops: Unused,
    pub destroy_rwq_ind_table: Unused,
    pub create_rwq_ind_table: Unused,
    pub destroy_wq: Unused,
    pub modify_wq: Unused,
    pub create_wq: Unused,
    pub query_rt_values: Unused,
    pub create_cq_ex: Option<CreateCqEx>,
    pub r#priv: *mut c_void,
    pub query_device_ex: Unused,
    pub ibv_destroy_flow: Unused,
    pub abi_placeholder2: Unused,
    pub ibv_create_flow: Unused,
    pub abi_placeholder1: Unused,
    pub open_qp: Unused,
    pub create_qp_ex: Unused,
    pub get_srq_num: Unused,
    pub create_srq_ex: Unused,
    pub open_xrcd: Unused,
    pub close_xrcd: Unused,
    pub _abi_placeholder3: u64,
    pub sz: usize,
    pub context: ibv_context,
}
