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
#![expect(unsafe_code, reason = "whoever posts memory makes a promise about it")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use rpcrdma_config::Config;
use rpcrdma_mempool::{Access, RegisterError, Registrar, Sge};

use crate::error::SetupError;

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

/// The queues of one shard. Data plane: called only by the thread that owns the value.
///
/// Dropping them destroys their queue pairs. When that has returned, nobody reads or writes memory
/// that was posted to them.
pub trait Queues: Send {
    /// Names a queue pair on these queues.
    type Qp: Copy + Eq + core::fmt::Debug + Send;
    /// A connected queue pair on its way from the connection manager to its queues.
    type Endpoint: Send;
    /// Names these queues to the connection manager.
    type Handle: Clone + Send;

    /// What the connection manager needs to place a queue pair on these queues.
    fn handle(&self) -> Self::Handle;

    /// Takes a connected queue pair over. Control plane: may allocate.
    fn attach(&mut self, endpoint: Self::Endpoint) -> Result<Attached<Self::Qp>, SetupError>;

    /// Appends at most the free capacity of `out`.
    ///
    /// Completions of one queue pair come in the order of posting; between queue pairs there is no
    /// order. Of a completion whose status is not [`WcStatus::Success`] only `wr_id`, `status` and
    /// `qp_num` are valid.
    fn poll_cq(&mut self, out: &mut WcBatch) -> Result<(), CqError>;

    /// Appends Receives to the shared receive queue.
    ///
    /// What is taken completes once. What is not taken does not complete.
    ///
    /// # Safety
    /// The memory named by every `sgl` stays valid and untouched until the completion with this
    /// `wr_id` has been polled.
    unsafe fn post_srq_recv(&mut self, wr: &[RecvWr<'_>]) -> Taken;

    /// Posts work requests to a queue pair, one doorbell for all.
    ///
    /// What is taken is carried out, or flushed, even if there was an error as well: a doorbell that
    /// failed. What is not taken is neither carried out nor completed.
    /// A request with [`SendFlags::INLINE`] has been copied when the call returns.
    /// A queue pair in the error state takes requests, too, and completes them as flushed, behind
    /// all others: what it posted before is then out of the device's hands.
    ///
    /// # Safety
    /// The memory named by every `sgl` of a request without [`SendFlags::INLINE`] stays valid and
    /// unwritten until the request has completed: its own completion, or a later one of the same
    /// queue pair, has been polled. That of a [`SendOp::Read`] is untouched until then: the device
    /// writes to it. Memory that a [`SendOp::Bind`] opens to the peer stays valid, and is touched
    /// only as its rights leave room for, until an invalidation of its key has completed or the
    /// queue pair is destroyed.
    unsafe fn post_send(&mut self, qp: Self::Qp, wr: &[SendWr<'_>]) -> Taken;

    /// A memory window, bound to nothing. Setup only. It is gone with the queues.
    ///
    /// # Errors
    /// If the device has none, or no more ([`DeviceCaps::windows`]).
    fn open_window(&mut self) -> Result<Window, SetupError>;

    /// The window with this number, bound to nothing, whatever it was bound to; with another key,
    /// perhaps. Windows that are still bound on a queue pair in the error state are taken back so,
    /// before it is destroyed: some devices do not let go of a queue pair with windows. `None` if the
    /// device gives no other: what it was bound to is out of reach all the same.
    ///
    /// # Errors
    /// If the device does not give it back: what it is bound to may be reached as before. The window
    /// is lost.
    fn renew_window(&mut self, id: WindowId) -> Result<Option<Window>, SetupError>;

    /// Gives peers the right to `access` the bytes of `sge` until [`Queues::conceal`] has succeeded,
    /// and returns the key: what is done on a device without memory windows. Slow: a registration.
    /// Every queue pair of the device's protection domain can use the key.
    ///
    /// ```compile_fail,E0133
    /// # use rpcrdma_engine::provider::Queues;
    /// # use rpcrdma_mempool::{Access, Loan};
    /// fn borrowed(queues: &mut impl Queues, loan: &Loan) {
    ///     let _key = queues.expose(&loan.sge(0..8), Access::REMOTE_WRITE);
    /// }
    /// ```
    ///
    /// # Errors
    /// If the device takes no more registrations, or not these bytes.
    ///
    /// # Safety
    /// The bytes stay valid, and are touched only as the right leaves room for, until
    /// [`Queues::conceal`] of the key has succeeded; if it never does, for ever. The end of the queues
    /// ends no right.
    unsafe fn expose(&mut self, sge: &Sge, access: Access) -> Result<u32, RegisterError>;

    /// Takes the right back that [`Queues::expose`] gave. When it has succeeded, nobody uses the key
    /// any more and nothing is on its way under it.
    ///
    /// # Errors
    /// If the device does not give the registration back: the right may be used as before.
    fn conceal(&mut self, rkey: u32) -> std::io::Result<()>;

    /// Moves a queue pair to the error state. Its outstanding sends complete with
    /// [`WcStatus::Flushed`]; the peer gets [`QueueEvent::Disconnected`].
    fn disconnect(&mut self, qp: Self::Qp);

    /// Forgets a queue pair that is in the error state and on which no window is bound any more
    /// ([`Queues::renew_window`]). Its sends that are outstanding are dropped: none is reported any
    /// more, even if its number is used again. Receives that it has taken from the shared queue
    /// still complete, as flushed and of queue pair 0, which is none, so that their memory comes home.
    fn destroy(&mut self, qp: Self::Qp);

    /// The next asynchronous event. Costs one branch when there is none.
    fn next_event(&mut self) -> Option<QueueEvent>;

    /// Sleeps until a completion or event may be there, `waker` is rung, or the time is over.
    /// May return early. Only the idle policy `block` calls it.
    fn wait(&mut self, waker: &Waker, timeout: Duration) -> Result<(), CqError>;
}

/// Establishes connections. Control plane.
pub trait ConnectionManager: Send {
    /// The queues that its queue pairs are placed on.
    type Queues: Queues;
    /// A connection request that was neither accepted nor rejected yet.
    type Request: Send;

    /// Starts to listen; port 0 takes a free one. Returns the address taken.
    fn listen(&mut self, at: SocketAddr) -> Result<SocketAddr, SetupError>;
    /// Stops to listen at an address that [`ConnectionManager::listen`] returned. Requests that are
    /// on their way may still come; later ones find nobody who listens.
    fn unlisten(&mut self, at: SocketAddr);
    /// Starts to connect. The outcome comes from [`ConnectionManager::next`].
    fn connect(
        &mut self,
        to: SocketAddr,
        on: &Handle<Self>,
        param: &ConnParam<'_>,
    ) -> Result<ConnectId, SetupError>;
    /// Accepts a request and places its queue pair. The peer may send from now on.
    fn accept(
        &mut self,
        request: Self::Request,
        on: &Handle<Self>,
        param: &ConnParam<'_>,
    ) -> Result<Endpoint<Self>, SetupError>;
    /// Gives an attempt up: nobody waits for it any more. An outcome that is on its way may still
    /// come; whoever takes it then drops it. Returns why it has not come about yet, if that is known.
    fn cancel(&mut self, id: ConnectId) -> Option<ConnectError>;
    /// Turns a request down.
    fn reject(&mut self, request: Self::Request, private: &[u8]);
    /// The next event, waiting for it at most `timeout`. Returns early when `waker` is rung.
    fn next(&mut self, waker: &Waker, timeout: Duration) -> Option<CmEvent<Self>>;
}

/// The handle type of a connection manager's queues.
pub type Handle<C> = <<C as ConnectionManager>::Queues as Queues>::Handle;
/// The endpoint type of a connection manager's queues.
pub type Endpoint<C> = <<C as ConnectionManager>::Queues as Queues>::Endpoint;

/// What a connection manager reports.
pub enum CmEvent<C: ConnectionManager + ?Sized> {
    /// A peer asks for a connection.
    Request {
        /// To be accepted or rejected.
        request: C::Request,
        /// Where it comes from.
        from: SocketAddr,
        /// What it sent along (RFC 8797); a prefix is meant, trailing bytes are padding.
        private: PrivateBytes,
    },
    /// A connection that this side asked for is up.
    Connected {
        /// As [`ConnectionManager::connect`] returned it.
        id: ConnectId,
        /// To be attached to the queues that it was made for.
        endpoint: Endpoint<C>,
        /// What the peer sent along.
        private: PrivateBytes,
    },
    /// A connection that this side asked for is not to be had.
    Refused {
        /// As [`ConnectionManager::connect`] returned it.
        id: ConnectId,
        /// Why.
        reason: ConnectError,
    },
}

impl<C: ConnectionManager> CmEvent<C> {
    /// The same event of a connection manager that wraps this one and hands on what it makes.
    pub fn passed_on<D>(self) -> CmEvent<D>
    where
        D: ConnectionManager<Request = C::Request>,
        D::Queues: Queues<Endpoint = Endpoint<C>>,
    {
        match self {
            CmEvent::Request { request, from, private } => {
                CmEvent::Request { request, from, private }
            }
            CmEvent::Connected { id, endpoint, private } => {
                CmEvent::Connected { id, endpoint, private }
            }
            CmEvent::Refused { id, reason } => CmEvent::Refused { id, reason },
        }
    }
}

/// Connection private data, as large as a connection request carries.
pub type PrivateBytes = ArrayVec<u8, 56>;

/// Names a connection attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectId(pub u64);

/// A queue pair that was taken over by its queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attached<Qp> {
    /// For posting.
    pub qp: Qp,
    /// As it appears in completions.
    pub qp_num: u32,
}

/// What a connection is made with.
#[derive(Debug, Clone, Copy)]
pub struct ConnParam<'a> {
    /// Connection private data (RFC 8797), at most 56 bytes.
    pub private: &'a [u8],
    /// How often a Send is retried when the peer has no Receive posted; 7 is without end.
    pub rnr_retry: u8,
}

/// Why a connection could not be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// Nobody listens there.
    #[error("nobody listens at this address")]
    Unreachable,
    /// The peer turned the request down.
    #[error("the peer rejected the connection")]
    Rejected,
    /// No answer in time.
    #[error("the peer did not answer in time")]
    TimedOut,
    /// The network has no way from this device to that address: none at all, or one that leaves by
    /// another device.
    #[error("no route leads there from this device (verbs.device, verbs.address)")]
    NoRoute,
    /// This side could not make its end of the connection.
    #[error("this side could not make its end of the connection")]
    Failed,
    /// This side has as many connections as it was configured for.
    #[error("this side has as many connections as its configuration allows (connections.max)")]
    NoRoom,
    /// The connection was lost before it could be used.
    #[error("the connection was lost before it could be used")]
    Lost,
    /// The peer speaks no version of the protocol that this side speaks.
    #[error("the peer speaks versions {low} to {high} only (protocol.version)")]
    Version {
        /// Its lowest version.
        low: u32,
        /// Its highest version.
        high: u32,
    },
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

/// What a shard needs of its queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueAttr {
    /// Receives posted at one time.
    pub srq_depth: u32,
    /// Completions that may be outstanding at one time.
    pub cq_depth: u32,
    /// Queue pairs at one time.
    pub qp_max: u32,
    /// Send requests of one queue pair at one time.
    pub send_depth: u32,
    /// Gather entries of a send request.
    pub send_sge: u32,
    /// Scatter entries of a Receive.
    pub recv_sge: u32,
}

/// What happened to a queue pair outside of its completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueEvent {
    /// The peer is gone. The queue pair is in the error state.
    Disconnected {
        /// The queue pair.
        qp_num: u32,
    },
    /// The device has given a queue pair up: what its own side asked for, or what the peer did, it
    /// cannot do.
    Failed {
        /// The queue pair.
        qp_num: u32,
    },
    /// The device is gone or broken, or these queues are: none of their queue pairs is of use.
    DeviceLost,
    /// The device's port went down. Its connections live on, for as long as their requests are
    /// tried again.
    PortDown,
    /// The device's port is up.
    PortUp,
}

pub use crate::waker::Waker;
pub use crate::work::{
    Bind, CqError, PostError, RecvWr, Remote, SendFlags, SendOp, SendWr, Taken, WC_BATCH, WcBatch,
    WcOpcode, WcStatus, Window, WindowId, WorkCompletion, WrId,
};
