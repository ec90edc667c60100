//! An RDMA device, and what it can do.

use std::sync::Arc;

use rpcrdma_config::Config;
use rpcrdma_mempool::Registrar;

use crate::{ConnectionManager, QueueAttr, Queues, SetupError};

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
    /// Scatter entries of a [`SendOp::Read`](crate::SendOp::Read), from 1.
    pub read_sge: u32,
    /// Scatter entries of a Receive on a shared receive queue.
    pub recv_sge: u32,
    /// Receives of a shared receive queue.
    pub srq_depth: u32,
    /// Entries of a completion queue.
    pub cq_depth: u32,
    /// Send requests of a queue pair.
    pub send_depth: u32,
    /// Bytes of a request posted with [`SendFlags::INLINE`](crate::SendFlags::INLINE).
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
