//! Safe types for the ids of librdmacm and their event channel.
//!
//! ```text
//!   Channel::take ──▶ read ──▶ copied ──▶ acknowledged ──▶ IdEvent     by value: no pointer to the id
//! ```
//! Destroying an id waits until the events that were read are acknowledged, so an event is
//! acknowledged before it is handled, and its owner is identified by a unique number. Other threads
//! pass their requests for an id to the connection manager as tasks: disconnecting a peer, and
//! destroying a dropped id, are system calls that no shard makes.
#![expect(unsafe_code, reason = "librdmacm and libibverbs are called")]

pub(crate) mod address;
pub(crate) mod find;
pub(crate) mod offer;

use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rpcrdma_provider::{PrivateBytes, SetupError, Waker};

use self::address::RawAddress;
use self::offer::{Depths, Offer, private_data};
use crate::error;
use crate::fd::set_nonblocking;
use crate::options::VerbsOptions;
use crate::sys::{cm as sys, verbs};

/// The source of id events. It lives as long as its ids.
#[derive(Debug)]
pub(crate) struct Channel {
    lib: &'static verbs::Verbs,
    cm: &'static sys::Cm,
    raw: *mut sys::rdma_event_channel,
    tasks: Mutex<Tasks>,
    /// Rung when there are tasks.
    bell: Waker,
}

/// Work for the connection manager, requested by other threads.
#[derive(Debug, Default)]
struct Tasks {
    list: Vec<Task>,
    /// The connection manager is gone: each thread runs its own tasks.
    is_closed: bool,
}

/// An operation on an id.
#[derive(Debug)]
pub(crate) enum Task {
    /// Disconnect the peer.
    Leave(Arc<Id>),
    /// Report that the peer has sent a message, though its last connection message was lost.
    Establish(Arc<Id>),
    /// Destroy what was an [`Id`].
    Destroy(*mut sys::rdma_cm_id),
}

/// An endpoint of a connection in librdmacm, or a listener. When it is dropped, the connection
/// manager destroys it. librdmacm does not know its queue pair, whose attributes it would choose.
#[derive(Debug)]
pub(crate) struct Id {
    channel: Arc<Channel>,
    raw: *mut sys::rdma_cm_id,
}

/// An acknowledged event.
pub(crate) struct IdEvent {
    /// The key of the id; for a request, the key of the listener.
    pub key: u64,
    /// One of `RDMA_CM_EVENT_…`, or an unknown number.
    pub event: u32,
    pub status: i32,
    /// The peer's private data.
    pub private: PrivateBytes,
    pub depths: Depths,
    /// For a connection request: the new id, and the peer's address.
    pub request: Option<(Id, Option<SocketAddr>)>,
}

// SAFETY: librdmacm may be called by any thread.
unsafe impl Send for Channel {}
// SAFETY: as above; what is in the channel is behind the locks of the library and the kernel.
unsafe impl Sync for Channel {}
// SAFETY: librdmacm may be called by any thread. Calls for one id are serialized: only the
// connection manager makes them, or after it is gone, the thread that holds the tasks' lock.
unsafe impl Send for Id {}
// SAFETY: as above.
unsafe impl Sync for Id {}
// SAFETY: as above.
unsafe impl Send for Task {}

impl Channel {
    /// A channel that never blocks.
    pub fn open(
        lib: &'static verbs::Verbs,
        cm: &'static sys::Cm,
    ) -> Result<Arc<Channel>, SetupError> {
        let bell = Waker::new().map_err(|source| error::of("eventfd", source))?;
        // SAFETY: the call takes nothing.
        let raw = unsafe { (cm.rdma_create_event_channel)() };
        if raw.is_null() {
            return Err(error::last("rdma_create_event_channel"));
        }
        let channel = Channel { lib, cm, raw, tasks: Mutex::default(), bell };
        set_nonblocking(channel.fd()).map_err(|source| error::of("fcntl", source))?;
        Ok(Arc::new(channel))
    }

    /// Readable while there are events.
    pub fn fd(&self) -> RawFd {
        // SAFETY: the channel is open.
        unsafe { (*self.raw).fd }
    }

    /// Readable while there are tasks.
    pub fn bell(&self) -> RawFd {
        self.bell.fd()
    }

    /// Passes a task to the connection manager, or runs it if there is none.
    fn ask(&self, task: Task) {
        let mut tasks = self.tasks();
        if !tasks.is_closed {
            tasks.list.push(task);
            self.bell.ring();
            return;
        }
        self.run(&task);
        // Dropping the last reference to an id is a task of its own.
        drop(tasks);
        drop(task);
    }

    /// Runs the pending tasks. Called by the connection manager.
    pub fn run_tasks(&self) {
        self.bell.drain();
        loop {
            let list = std::mem::take(&mut self.tasks().list);
            if list.is_empty() {
                return;
            }
            for task in list {
                self.run(&task);
            }
        }
    }

    /// The connection manager ends.
    pub fn close(&self) {
        loop {
            self.run_tasks();
            let mut tasks = self.tasks();
            if tasks.list.is_empty() {
                tasks.is_closed = true;
                return;
            }
        }
    }

    fn run(&self, task: &Task) {
        match task {
            Task::Leave(id) => id.disconnect(),
            Task::Establish(id) => id.notify_established(),
            Task::Destroy(raw) => {
                // An id that cannot be destroyed stays until its channel is closed.
                // SAFETY: the id is alive, its only owner has dropped it, and it has no queue pair.
                // Its channel is alive, too.
                let _ = unsafe { (self.cm.rdma_destroy_id)(*raw) };
            }
        }
    }

    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next event, if there is one. A new id gets `key`.
    ///
    /// # Errors
    /// If the channel delivers no more events, as when the device was removed.
    pub fn take(self: &Arc<Self>, key: u64) -> Result<Option<IdEvent>, SetupError> {
        let mut event = ptr::null_mut();
        // SAFETY: the channel is open and does not block; `event` is a pointer to be written.
        let code = unsafe { (self.cm.rdma_get_cm_event)(self.raw, &raw mut event) };
        if code != 0 {
            let why = io::Error::last_os_error();
            return match why.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error::of("rdma_get_cm_event", why)),
            };
        }
        if event.is_null() {
            return Ok(None);
        }
        // SAFETY: the library has returned an event, which stays valid until it is acknowledged.
        let copy = unsafe { event.read() };
        // SAFETY: the event is not acknowledged yet, so its private data are there.
        let private = unsafe { private_data(&copy.conn) };
        let is_request = copy.event == sys::RDMA_CM_EVENT_CONNECT_REQUEST;
        let whose = if is_request { copy.listen_id } else { copy.id };
        // SAFETY: an id is not freed while an event of it is not acknowledged.
        let whose_key = unsafe { (*whose).context }.addr() as u64;
        let request = is_request.then(|| {
            let id = Id { channel: Arc::clone(self), raw: copy.id };
            id.set_key(key);
            let from = id.peer();
            (id, from)
        });
        // SAFETY: the event was returned by this library, and is acknowledged once.
        let _ = unsafe { (self.cm.rdma_ack_cm_event)(event) };
        Ok(Some(IdEvent {
            key: whose_key,
            event: copy.event,
            status: copy.status,
            private,
            depths: Depths {
                responder: copy.conn.responder_resources,
                initiator: copy.conn.initiator_depth,
            },
            request,
        }))
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // Without a connection manager, the ends of its ids are still to be run.
        self.close();
        // SAFETY: the channel is open. It has no ids left: each id holds a reference to it.
        unsafe { (self.cm.rdma_destroy_event_channel)(self.raw) };
    }
}

impl Id {
    /// A new id, whose events carry `key`.
    pub fn new(channel: &Arc<Channel>, key: u64) -> Result<Id, SetupError> {
        let mut raw = ptr::null_mut();
        let context = ptr::without_provenance_mut(key as usize);
        let create = channel.cm.rdma_create_id;
        // SAFETY: the channel is open, `raw` is a pointer to be written, and the context is a
        // number that is never dereferenced.
        let code = unsafe { create(channel.raw, &raw mut raw, context, sys::RDMA_PS_TCP) };
        if code != 0 {
            return Err(error::last("rdma_create_id"));
        }
        Ok(Id { channel: Arc::clone(channel), raw })
    }

    fn set_key(&self, key: u64) {
        // SAFETY: the id is alive; the library passes this member through and does not read it.
        unsafe { (*self.raw).context = ptr::without_provenance_mut(key as usize) };
    }

    /// The device that the id is bound to, or null, and its port.
    pub fn device(&self) -> (*mut verbs::ibv_context, u8) {
        // SAFETY: the id is alive.
        let context = unsafe { (*self.raw).verbs };
        // SAFETY: as above.
        (context, unsafe { (*self.raw).port_num })
    }

    /// The address of the other end.
    pub fn peer(&self) -> Option<SocketAddr> {
        // SAFETY: the id is alive, and its addresses are not written after it was returned.
        let raw = unsafe { (*self.raw).route.addr.dst_addr };
        RawAddress::of(&raw)
    }

    /// Binds the id to a local address.
    pub fn bind(&self, at: SocketAddr) -> io::Result<()> {
        let mut at = RawAddress::from(at);
        // SAFETY: the id is alive, and the address is as long as its family says.
        checked(unsafe { (self.channel.cm.rdma_bind_addr)(self.raw, at.as_mut_ptr()) })
    }

    /// Listens at the bound address. Returns the port number.
    pub fn listen(&self, backlog: u32) -> io::Result<u16> {
        let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
        // SAFETY: the id is alive.
        checked(unsafe { (self.channel.cm.rdma_listen)(self.raw, backlog) })?;
        // SAFETY: as above.
        Ok(u16::from_be(unsafe { (self.channel.cm.rdma_get_src_port)(self.raw) }))
    }

    /// Sets the traffic class byte of packets.
    pub fn set_traffic_class(&self, mut class: u8) -> io::Result<()> {
        let set = self.channel.cm.rdma_set_option;
        let (level, name) = (sys::RDMA_OPTION_ID, sys::RDMA_OPTION_ID_TOS);
        // SAFETY: the id is alive, and this option is one byte.
        checked(unsafe { set(self.raw, level, name, (&raw mut class).cast(), 1) })
    }

    /// Starts resolving a peer's address to a device.
    pub fn resolve_address(
        &self,
        from: Option<SocketAddr>,
        to: SocketAddr,
        timeout: Duration,
    ) -> io::Result<()> {
        let (mut from, mut to) = (from.map(RawAddress::from), RawAddress::from(to));
        let from = from.as_mut().map_or(ptr::null_mut(), RawAddress::as_mut_ptr);
        let resolve = self.channel.cm.rdma_resolve_addr;
        // SAFETY: the id is alive, and the addresses are as long as their families say.
        checked(unsafe { resolve(self.raw, from, to.as_mut_ptr(), millis(timeout)) })
    }

    /// Starts resolving the route to the peer.
    pub fn resolve_route(&self, timeout: Duration) -> io::Result<()> {
        // SAFETY: the id is alive, and its device is known.
        checked(unsafe { (self.channel.cm.rdma_resolve_route)(self.raw, millis(timeout)) })
    }

    /// Sends a connection request to the peer.
    pub fn connect(&self, offer: &Offer<'_>) -> io::Result<()> {
        let mut param = offer.as_param();
        // SAFETY: the id is alive and has a route; the private data live longer than the call.
        checked(unsafe { (self.channel.cm.rdma_connect)(self.raw, &raw mut param) })
    }

    /// Accepts a connection request.
    pub fn accept(&self, offer: &Offer<'_>) -> io::Result<()> {
        let mut param = offer.as_param();
        // SAFETY: the id is that of a request; the private data live longer than the call.
        checked(unsafe { (self.channel.cm.rdma_accept)(self.raw, &raw mut param) })
    }

    /// Rejects a connection request.
    pub fn reject(&self, private: &[u8]) {
        let length = private.len().min(REJECT_LEN_MAX);
        // A peer that does not receive it times out.
        // SAFETY: the id is that of a request; so many bytes are there.
        let _ = unsafe {
            (self.channel.cm.rdma_reject)(self.raw, private.as_ptr().cast(), length as u8)
        };
    }

    /// Confirms the peer's answer.
    pub fn establish(&self) -> io::Result<()> {
        // SAFETY: the id is alive, and the peer has answered it.
        checked(unsafe { (self.channel.cm.rdma_establish)(self.raw) })
    }

    /// Passes a task on this id to the connection manager.
    pub fn ask(&self, task: Task) {
        self.channel.ask(task);
    }

    /// Reports that the peer has sent a message, though its last connection message was lost.
    fn notify_established(&self) {
        // If the call fails, the connection is established later.
        // SAFETY: the id is alive.
        let _ = unsafe { (self.channel.cm.rdma_notify)(self.raw, verbs::IBV_EVENT_COMM_EST) };
    }

    /// Disconnects the peer.
    pub fn disconnect(&self) {
        // An id that is not connected has no peer: the call fails without effect.
        // SAFETY: the id is alive.
        let _ = unsafe { (self.channel.cm.rdma_disconnect)(self.raw) };
    }

    /// Moves a queue pair to the state for a request: not connected, but with a port.
    ///
    /// # Safety
    /// The queue pair is alive, and of the device of this id.
    pub unsafe fn begin_qp(&self, qp: *mut verbs::ibv_qp) -> Result<(), SetupError> {
        let (mut attr, mask) = self.qp_attr(verbs::IBV_QPS_INIT)?;
        attr.qp_access_flags = verbs::IBV_ACCESS_REMOTE_READ | verbs::IBV_ACCESS_REMOTE_WRITE;
        // SAFETY: the caller has said so.
        unsafe { self.modify_qp(qp, &mut attr, mask | verbs::IBV_QP_ACCESS_FLAGS) }
    }

    /// Connects a queue pair after [`Id::begin_qp`] to the peer that has sent a request or an
    /// answer.
    ///
    /// This crate sets the timers. librdmacm proposes the peer's values or zero: some peers send
    /// zero retries of a Send, and a zero timeout is the longest. It proposes as many Reads as the
    /// peer asks for, which may be more than this device can make.
    ///
    /// # Safety
    /// As for [`Id::begin_qp`].
    pub unsafe fn connect_qp(
        &self,
        qp: *mut verbs::ibv_qp,
        options: &VerbsOptions,
        depths: Depths,
        rnr_retry: u8,
    ) -> Result<(), SetupError> {
        let (mut attr, mask) = self.qp_attr(verbs::IBV_QPS_RTR)?;
        attr.min_rnr_timer = options.rnr_timer;
        attr.max_dest_rd_atomic = attr.max_dest_rd_atomic.min(depths.responder);
        // SAFETY: the caller has said so.
        unsafe { self.modify_qp(qp, &mut attr, mask | verbs::IBV_QP_MIN_RNR_TIMER) }?;
        let (mut attr, mask) = self.qp_attr(verbs::IBV_QPS_RTS)?;
        (attr.timeout, attr.retry_cnt) = (options.ack_timeout, options.retry_count);
        attr.rnr_retry = rnr_retry;
        attr.max_rd_atomic = attr.max_rd_atomic.min(depths.initiator);
        let timers = verbs::IBV_QP_TIMEOUT | verbs::IBV_QP_RETRY_CNT | verbs::IBV_QP_RNR_RETRY;
        // SAFETY: as above.
        unsafe { self.modify_qp(qp, &mut attr, mask | timers) }
    }

    /// The attributes that its queue pair needs to enter a state.
    fn qp_attr(&self, state: u32) -> Result<(verbs::ibv_qp_attr, i32), SetupError> {
        // SAFETY: all members are integers, for which zeros are values.
        let mut attr: verbs::ibv_qp_attr = unsafe { std::mem::zeroed() };
        attr.qp_state = state;
        let mut mask = 0;
        let init = self.channel.cm.rdma_init_qp_attr;
        // SAFETY: the id is alive, and both are as the header has them.
        let code = unsafe { init(self.raw, &raw mut attr, &raw mut mask) };
        if code == 0 { Ok((attr, mask)) } else { Err(error::last("rdma_init_qp_attr")) }
    }

    /// # Safety
    /// The queue pair is alive.
    unsafe fn modify_qp(
        &self,
        qp: *mut verbs::ibv_qp,
        attr: &mut verbs::ibv_qp_attr,
        mask: i32,
    ) -> Result<(), SetupError> {
        // SAFETY: the queue pair is alive, and `attr` is as the header has it.
        let code = unsafe { (self.channel.lib.ibv_modify_qp)(qp, attr, mask) };
        if code == 0 { Ok(()) } else { Err(error::code("ibv_modify_qp", code)) }
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        self.channel.ask(Task::Destroy(self.raw));
    }
}

fn checked(code: i32) -> io::Result<()> {
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn millis(timeout: Duration) -> i32 {
    i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX)
}

/// The longest private data of a rejection.
const REJECT_LEN_MAX: usize = 148;
