//! Opening the queues of a shard, and closing them.
#![expect(unsafe_code, reason = "libibverbs is called")]

use std::collections::VecDeque;
use std::ptr;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};

use rpcrdma_provider::{QueueAttr, SetupError, Waker};

use super::{Pairs, Port};
use crate::device::Device;
use crate::error;
use crate::fd::set_nonblocking;
use crate::names::Key;
use crate::sys::verbs as sys;

impl Port {
    /// The completion queue and the shared receive queue of a shard.
    pub fn open(device: &Arc<Device>, attr: &QueueAttr) -> Result<Port, SetupError> {
        let bell = Waker::new().map_err(|source| error::of("eventfd", source))?;
        let mut port = Port {
            device: Arc::clone(device),
            key: Key::new(),
            cq: ptr::null_mut(),
            srq: ptr::null_mut(),
            channel: ptr::null_mut(),
            pd: device.domain.pd,
            td: ptr::null_mut(),
            cap: sys::ibv_qp_cap {
                max_send_wr: attr.send_depth,
                max_recv_wr: 0,
                max_send_sge: attr.send_sge,
                max_recv_sge: 0,
                max_inline_data: device.caps.inline_len,
            },
            pairs_max: attr.qp_max as usize,
            pairs: Mutex::new(Pairs {
                list: Vec::new(),
                buried: Vec::new(),
                in_making: 0,
                is_closed: false,
            }),
            events: Mutex::new(VecDeque::new()),
            pending: AtomicU32::new(0),
            bell,
        };
        port.open_domain();
        port.open_channel()?;
        port.open_cq(attr.cq_depth)?;
        port.open_srq(attr)?;
        port.try_pair()?;
        Ok(port)
    }

    /// Creates a thread domain, and a parent domain of it and the device's domain: the driver then
    /// needs no locks for the objects of one shard. Without them, its locks are uncontended.
    fn open_domain(&mut self) {
        let ops = &self.device.ops;
        let (Some(alloc_td), Some(dealloc_td), Some(alloc_parent)) =
            (ops.alloc_td, ops.dealloc_td, ops.alloc_parent_domain)
        else {
            return;
        };
        let mut attr = sys::ibv_td_init_attr { comp_mask: 0 };
        // SAFETY: the context is open, and `attr` is as the header has it.
        let td = unsafe { alloc_td(self.device.context, &raw mut attr) };
        if td.is_null() {
            return;
        }
        let mut attr = sys::ibv_parent_domain_init_attr {
            pd: self.pd,
            td,
            comp_mask: 0,
            alloc: None,
            free: None,
            pd_context: ptr::null_mut(),
        };
        // SAFETY: the context is open, both domains are alive, and `attr` is as the header has it.
        let parent = unsafe { alloc_parent(self.device.context, &raw mut attr) };
        if parent.is_null() {
            // SAFETY: the thread domain was just created and is empty.
            let _ = unsafe { dealloc_td(td) };
            return;
        }
        (self.pd, self.td) = (parent, td);
    }

    fn open_channel(&mut self) -> Result<(), SetupError> {
        // SAFETY: the context is open.
        let channel = unsafe { (self.device.lib.ibv_create_comp_channel)(self.device.context) };
        if channel.is_null() {
            return Err(error::last("ibv_create_comp_channel"));
        }
        self.channel = channel;
        // SAFETY: the library has just returned the channel.
        let fd = unsafe { (*channel).fd };
        set_nonblocking(fd).map_err(|source| error::of("fcntl", source))
    }

    fn open_cq(&mut self, depth: u32) -> Result<(), SetupError> {
        let Device { lib, context, ops, .. } = &*self.device;
        let vector = self.device.next_vector();
        if let Some(create) = ops.create_cq_ex {
            let mut attr = sys::ibv_cq_init_attr_ex {
                cqe: depth,
                cq_context: self.key.as_context(),
                channel: self.channel,
                comp_vector: vector.unsigned_abs(),
                wc_flags: 0,
                comp_mask: sys::IBV_CQ_INIT_ATTR_MASK_FLAGS,
                flags: sys::IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
                parent_domain: ptr::null_mut(),
            };
            // SAFETY: the context is open, the channel is alive and `attr` is as the header has it.
            self.cq = unsafe { create(*context, &raw mut attr) };
        }
        if self.cq.is_null() {
            let depth = i32::try_from(depth).unwrap_or(i32::MAX);
            // SAFETY: the context is open and the channel is alive.
            self.cq = error::made("ibv_create_cq", || unsafe {
                (lib.ibv_create_cq)(*context, depth, self.key.as_context(), self.channel, vector)
            })?;
        }
        Ok(())
    }

    fn open_srq(&mut self, attr: &QueueAttr) -> Result<(), SetupError> {
        let mut attr = sys::ibv_srq_init_attr {
            srq_context: self.key.as_context(),
            attr: sys::ibv_srq_attr {
                max_wr: attr.srq_depth,
                max_sge: attr.recv_sge,
                srq_limit: 0,
            },
        };
        // SAFETY: the domain is alive and `attr` is as the header has it.
        self.srq = error::made("ibv_create_srq", || unsafe {
            (self.device.lib.ibv_create_srq)(self.pd, &raw mut attr)
        })?;
        Ok(())
    }

    /// A queue pair that no endpoint owns yet.
    pub(super) fn make_pair(&self, key: Key) -> Result<*mut sys::ibv_qp, SetupError> {
        let mut attr = self.pair_attr(key);
        // SAFETY: domain and queues are alive, and `attr` is as the header has it.
        error::made("ibv_create_qp", || unsafe {
            (self.device.lib.ibv_create_qp)(self.pd, &raw mut attr)
        })
    }

    /// Creates a queue pair and destroys it, so that missing device support shows now and not with
    /// the first connection.
    fn try_pair(&self) -> Result<(), SetupError> {
        let qp = self.make_pair(Key::new())?;
        // SAFETY: the queue pair was just created and has no other references.
        match unsafe { (self.device.lib.ibv_destroy_qp)(qp) } {
            0 => Ok(()),
            code => Err(error::code("ibv_destroy_qp", code)),
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let (lib, events) = (self.device.lib, &self.device.events);
        let note = |call: &'static str, code: i32| {
            if code != 0 {
                events.note_failure(&error::code(call, code));
            }
        };
        if !self.srq.is_null() {
            // SAFETY: the queue is alive; its queue pairs are gone, or it says EBUSY and stays.
            note("ibv_destroy_srq", unsafe { (lib.ibv_destroy_srq)(self.srq) });
        }
        if !self.cq.is_null() {
            // SAFETY: as above.
            note("ibv_destroy_cq", unsafe { (lib.ibv_destroy_cq)(self.cq) });
        }
        if !self.channel.is_null() {
            // SAFETY: as above; the completion queue was the only one on the channel.
            let code = unsafe { (lib.ibv_destroy_comp_channel)(self.channel) };
            note("ibv_destroy_comp_channel", code);
        }
        if let (false, Some(dealloc_td)) = (self.td.is_null(), self.device.ops.dealloc_td) {
            // SAFETY: the parent domain is alive and empty.
            note("ibv_dealloc_pd", unsafe { (lib.ibv_dealloc_pd)(self.pd) });
            // SAFETY: the thread domain is alive, and the parent domain around it is gone.
            note("ibv_dealloc_td", unsafe { dealloc_td(self.td) });
        }
    }
}
