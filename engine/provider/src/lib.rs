//! The seam: what the engine requires of an RDMA device, in the terms of ibverbs.
//!
//! ```text
//!   Engine ──▶ Provider      one per device; control plane: may allocate, may be slow
//!                │ open_queues ──▶ Queues             one per shard; data plane: single-threaded
//!                └ open_cm ──────▶ ConnectionManager  listen, connect, accept; makes Endpoints
//!                                     └── Endpoint ──(mailbox)──▶ Queues::attach ──▶ Qp
//! ```
//!
//! The program chooses the type of the provider once; the fast path has no `dyn`.
//!
//! # Layers
//!
//! A module uses only modules that stand below it.
//!
//! - `fault`
//! - `interposed`
//! - `cm`
//! - `queues`
//! - `waker`
//! - `error`
//! - `address`, `fd`, `fork`, `rejection`, `work`, `wrap`

mod address;
mod cm;
#[cfg(test)]
#[path = "../../../tests/src/denied.rs"]
mod denied;
mod error;
pub mod fault;
mod fd;
mod fork;
pub mod interposed;
mod queues;
mod rejection;
mod waker;
mod work;
mod wrap;

use std::sync::Arc;

use rpcrdma_config::Config;
use rpcrdma_mempool::Registrar;

pub use self::address::{Address, AddressError, Credentials, Origin, ShmName};
pub use self::cm::{
    CmEvent, ConnParam, ConnectId, ConnectionManager, Endpoint, Handle, PrivateBytes,
    RNR_RETRY_FOREVER,
};
pub use self::error::{ConnectError, EngineThread, HostRefusal, Panicked, SetupError};
pub use self::fd::readable;
pub use self::fork::{CloseOnFork, UnshareOnFork};
pub use self::queues::{Armed, Attached, Bells, QueueAttr, QueueEvent, Queues, ring_of};
pub use self::rejection::{Rejection, RejectionBytes};
pub use self::waker::Waker;
pub use self::work::{
    Bind, CqError, PostError, RecvWr, Remote, Requests, SendFlags, SendOp, SendWr, Taken, WC_BATCH,
    WcBatch, WcOpcode, WcStatus, Window, WindowId, WorkCompletion, WrId,
};
pub use self::wrap::shortly_before_end;

/// An RDMA device.
pub trait Provider: Send + Sync + Sized + 'static {
    /// The queues of one shard.
    type Queues: Queues;
    /// The connection manager.
    type Cm: ConnectionManager<Queues = Self::Queues>;

    /// What the device can do.
    fn caps(&self) -> &DeviceCaps;
    /// Checks that this is the device that the configuration names, opened with its options; an
    /// engine starts only then. A provider that has no keys returns `Ok`.
    ///
    /// # Errors
    /// [`SetupError::Unmet`] with the key that differs.
    fn check(&self, config: &Config) -> Result<(), SetupError>;
    /// Registers memory with the device. Set-up only. The registrar keeps the device open, because
    /// memory may outlive all other objects of the device.
    fn registrar(&self) -> Arc<dyn Registrar>;
    /// Opens one completion queue and one shared receive queue, for one shard.
    fn open_queues(&self, attr: &QueueAttr) -> Result<Self::Queues, SetupError>;
    /// Opens a connection manager with its own event channel.
    fn open_cm(&self) -> Result<Self::Cm, SetupError>;
}

/// What a device can do. All counts are maxima.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceCaps {
    /// The device's name.
    pub name: String,
    /// Gather entries of a send request.
    pub send_sge: u32,
    /// Scatter entries of a [`SendOp::Read`], from 1.
    pub read_sge: u32,
    /// Scatter entries of a Receive on a shared receive queue.
    pub recv_sge: u32,
    /// Receives of a shared receive queue.
    pub srq_depth: u32,
    /// Entries of a completion queue.
    pub cq_depth: u32,
    /// Send requests of a queue pair.
    pub send_depth: u32,
    /// Bytes of a request posted with [`SendFlags::INLINE`].
    pub inline_len: u32,
    /// Bytes of one message.
    pub message_len: u32,
    /// Type-2 memory windows; 0 if the device has none.
    pub windows: u32,
    /// RDMA Reads of a queue pair in progress at one time; further Reads wait.
    pub rd_atomic: u32,
    /// Whether the memory that a Read fills must be registered for writes of peers, to which
    /// the Read states its key: iWARP (RFC 5040 4.4). Such memory is made by [`Queues::expose`] for
    /// the time of the Read.
    pub reads_expose: bool,
}
