//! THE SEAM: an RDMA device as ibverbs shows it, and nothing more.
//!
//! ```text
//!   Engine ──▶ Provider      one per device; control plane: may allocate, may be slow
//!                │ open_queues ──▶ Queues             one per shard; data plane: single-threaded
//!                └ open_cm ──────▶ ConnectionManager  listen, connect, accept; makes Endpoints
//!                                     └── Endpoint ──(mailbox)──▶ Queues::attach ──▶ Qp
//! ```
//!
//! The type of the provider is chosen once, at the top; nothing below is `dyn` on the fast path.

mod cm;
mod error;
pub mod fault;
pub mod interposed;
mod queues;
mod waker;
mod work;
mod wrap;

use std::sync::Arc;

use rpcrdma_config::Config;
use rpcrdma_mempool::Registrar;

pub use self::cm::{
    CmEvent, ConnParam, ConnectError, ConnectId, ConnectionManager, Endpoint, Handle, PrivateBytes,
};
pub use self::error::{EngineThread, Panicked, SetupError};
pub use self::queues::{Attached, QueueAttr, QueueEvent, Queues};
pub use self::waker::Waker;
pub use self::work::{
    Bind, CqError, PostError, RecvWr, Remote, SendFlags, SendOp, SendWr, Taken, WC_BATCH, WcBatch,
    WcOpcode, WcStatus, Window, WindowId, WorkCompletion, WrId,
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
    /// Whether this is the device that a configuration names, opened as it says: an engine starts
    /// with no other. A provider that no key is about agrees to everything.
    ///
    /// # Errors
    /// [`SetupError::Unmet`] with the key that says otherwise.
    fn check(&self, config: &Config) -> Result<(), SetupError>;
    /// Registers memory with the device. Setup only. Whoever keeps it keeps the device open: memory
    /// may outlive everything else that was made on the device.
    fn registrar(&self) -> Arc<dyn Registrar>;
    /// One completion queue and one shared receive queue, for one shard.
    fn open_queues(&self, attr: &QueueAttr) -> Result<Self::Queues, SetupError>;
    /// A connection manager: an event channel of its own.
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
    /// RDMA Reads of a queue pair that are under way at one time; more of them wait in line.
    pub rd_atomic: u32,
}
