//! The queues of one shard: posting, completions, windows, registrations for one call, events.
#![expect(unsafe_code, reason = "whoever posts memory makes a promise about it")]

use std::time::Duration;

use rpcrdma_mempool::{Access, RegisterError, Sge};

use crate::{CqError, RecvWr, SendWr, SetupError, Taken, Waker, WcBatch, Window, WindowId};
#[cfg(doc)]
use crate::{DeviceCaps, SendFlags, SendOp, WcStatus};

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
    /// # use rpcrdma_provider::Queues;
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

/// A queue pair that was taken over by its queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attached<Qp> {
    /// For posting.
    pub qp: Qp,
    /// As it appears in completions.
    pub qp_num: u32,
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
