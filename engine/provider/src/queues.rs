//! The queues of one shard: posting, completions, windows, registrations for one call, events.
#![expect(unsafe_code, reason = "posting memory has safety conditions")]

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use rpcrdma_mempool::{Access, RegisterError, Sge};

use crate::{
    CqError, RecvWr, Requests, SendWr, SetupError, Taken, Waker, WcBatch, Window, WindowId,
    readable,
};
#[cfg(doc)]
use crate::{DeviceCaps, PostError, SendFlags, SendOp, WcStatus};

/// The queues of one shard. Data plane: called only by the thread that owns the value.
///
/// Dropping them destroys their queue pairs. After that, the device does not access memory that was
/// posted to them.
pub trait Queues: Send {
    /// Identifies a queue pair on these queues.
    type Qp: Copy + Eq + core::fmt::Debug + Send;
    /// A connected queue pair that the connection manager passes to its queues.
    type Endpoint: Send;
    /// Identifies these queues to the connection manager.
    type Handle: Clone + Send;

    /// The handle that the connection manager needs to create queue pairs on these queues.
    fn handle(&self) -> Self::Handle;

    /// Takes over a connected queue pair. Control plane: may allocate.
    fn attach(&mut self, endpoint: Self::Endpoint) -> Result<Attached<Self::Qp>, SetupError>;

    /// Appends completions to `out`, at most its free capacity.
    ///
    /// Completions of one queue pair are in the order of posting; completions of different queue
    /// pairs have no order. If the status is not [`WcStatus::Success`], only `wr_id`, `status` and
    /// `qp_num` are valid.
    fn poll_cq(&mut self, out: &mut WcBatch) -> Result<(), CqError>;

    /// Describes a receive buffer: the memory of all its Receives that are posted from now on, in
    /// order. The numbers of buffers should be small: memory for all up to the largest one is
    /// allocated when it is first described, and never later. Receives of a buffer that was not
    /// described, or whose list exceeds a limit of the device, are refused as
    /// [`PostError::Invalid`].
    ///
    /// # Safety
    /// No Receive of the buffer is outstanding.
    unsafe fn describe_recv(&mut self, buffer: u32, sgl: &[Sge]);

    /// Appends Receives to the shared receive queue.
    ///
    /// A Receive that is taken completes once. A Receive that is not taken does not complete.
    ///
    /// # Safety
    /// The described memory of every buffer stays valid and untouched until the completion with
    /// this `wr_id` has been polled. No other Receive of a buffer is outstanding or in `wrs`.
    unsafe fn post_srq_recv(&mut self, wrs: impl Requests<RecvWr>) -> Taken;

    /// Posts work requests to a queue pair, one doorbell for all.
    ///
    /// A request that is taken is executed or flushed, even if an error was returned as well. A
    /// request that is not taken is neither executed nor completed. A request with
    /// [`SendFlags::INLINE`] has been copied when the call returns. A queue pair in the error state
    /// also takes requests, and completes them as flushed after all others: the device has then
    /// finished with the requests posted before.
    ///
    /// # Safety
    /// The memory named by every `sgl` of a request without [`SendFlags::INLINE`] stays valid and
    /// unwritten until the request has completed: its own completion, or a later one of the same
    /// queue pair, has been polled. That of a [`SendOp::Read`] is untouched until then: the device
    /// writes to it. Memory that a [`SendOp::Bind`] opens to the peer stays valid, and is touched
    /// only as its rights leave room for, until an invalidation of its key has completed or the
    /// queue pair is destroyed.
    unsafe fn post_send<'a>(&mut self, qp: Self::Qp, wrs: impl Requests<SendWr<'a>>) -> Taken;

    /// Opens a memory window, not bound. Set-up only. It is closed with the queues.
    ///
    /// # Errors
    /// If the device has no windows, or no more ([`DeviceCaps::windows`]).
    fn open_window(&mut self) -> Result<Window, SetupError>;

    /// Unbinds a window that is bound on a queue pair in the error state; its key may change. Call
    /// it before the queue pair is destroyed: some devices cannot destroy a queue pair with bound
    /// windows. Returns `None` if the window is unbound and the device cannot provide another.
    ///
    /// # Errors
    /// If the device does not unbind it: the peer may still access the memory. The window is lost.
    fn renew_window(&mut self, id: WindowId) -> Result<Option<Window>, SetupError>;

    /// Gives peers the right to `access` the bytes of `sge` until [`Queues::conceal`] has
    /// succeeded, and returns the key. For devices without memory windows. Slow: it registers
    /// memory. Every queue pair of the device's protection domain can use the key.
    ///
    /// ```compile_fail,E0133
    /// # use rpcrdma_provider::Queues;
    /// # use rpcrdma_mempool::{Access, Loan};
    /// fn borrowed(queues: &mut impl Queues, loan: &Loan) {
    ///     let _key = queues.expose(&loan.sge(0..8), Access::REMOTE_WRITE);
    /// }
    /// ```
    ///
    /// Where [`DeviceCaps::reads_expose`](crate::DeviceCaps::reads_expose) holds, the key is a local
    /// key of the bytes, too.
    ///
    /// # Errors
    /// If the device cannot register more memory, or not these bytes.
    ///
    /// # Safety
    /// The bytes stay valid until [`Queues::conceal`] of the key has succeeded, for ever if it
    /// never does; meanwhile the program accesses them only as the peer's rights permit. Dropping
    /// the queues does not end the right.
    unsafe fn expose(&mut self, sge: &Sge, access: Access) -> Result<u32, RegisterError>;

    /// Ends the right that [`Queues::expose`] gave. After success, no peer can use the key, and no
    /// access under it is in progress.
    ///
    /// # Errors
    /// If deregistration fails: peers can still use the right.
    fn conceal(&mut self, rkey: u32) -> std::io::Result<()>;

    /// Moves a queue pair to the error state. Its outstanding sends complete with
    /// [`WcStatus::Flushed`]; the peer gets [`QueueEvent::Disconnected`].
    fn disconnect(&mut self, qp: Self::Qp);

    /// Destroys a queue pair that is in the error state and has no bound windows
    /// ([`Queues::renew_window`]). Its outstanding sends are dropped and not reported, even if its
    /// number is used again. Receives that it has taken from the shared queue complete as flushed,
    /// with queue pair number 0, so that their memory returns to its pool.
    fn destroy(&mut self, qp: Self::Qp);

    /// The next asynchronous event. Without an event it costs one branch.
    fn next_event(&mut self) -> Option<QueueEvent>;

    /// The descriptors of which one is readable while an armed thread has to wake up. They are the
    /// same for as long as the queues exist.
    fn bells(&self) -> Bells<'_>;

    /// Announces that the thread is about to sleep, then looks once more. With [`Armed::Ready`]
    /// nothing is announced. Otherwise a completion or event that comes from now on rings a bell,
    /// until [`Queues::disarm`].
    fn arm(&mut self) -> Result<Armed, CqError>;

    /// The thread is awake: no other thread rings for it any more. `is_rung` says whether a bell is; it is
    /// silent afterwards.
    fn disarm(&mut self, is_rung: bool) -> Result<(), CqError>;

    /// Sleeps until a completion or event may be available, `waker` is rung, or the time has
    /// elapsed. May return early. For a thread that has queues and no shard.
    fn wait(&mut self, waker: &Waker, timeout: Duration) -> Result<(), CqError> {
        let Armed::AtMost(most) = self.arm()? else { return Ok(()) };
        let rung = ring_of(self.bells(), waker, timeout.min(most));
        let [_, bells @ ..] = *rung.as_ref().unwrap_or(&[true; 3]);
        self.disarm(bells.contains(&true))?;
        rung.map(drop).map_err(|error| CqError::Device(error.raw_os_error().unwrap_or(0)))
    }
}

/// Waits for a ring: of the waker, then of each bell.
pub fn ring_of(
    bells: Bells<'_>,
    waker: &Waker,
    timeout: Duration,
) -> std::io::Result<[bool; 1 + BELLS]> {
    let [first, second] = bells.map(|bell| bell.map_or(-1, |bell| bell.as_raw_fd()));
    readable([waker.fd(), first, second], timeout)
}

/// The descriptors that wake the thread of a set of queues.
pub type Bells<'a> = [Option<BorrowedFd<'a>>; BELLS];

/// Bells of a set of queues.
const BELLS: usize = 2;

/// Whether a thread that has announced its sleep may sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Armed {
    /// It may not: there is work. Poll.
    Ready,
    /// It may, until its descriptor is readable, and at most this long. `Duration::MAX` is without
    /// a limit.
    AtMost(Duration),
}

/// A queue pair that is attached to its queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attached<Qp> {
    /// For posting.
    pub qp: Qp,
    /// Its number in completions.
    pub qp_num: u32,
}

/// The sizes that a shard needs.
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

/// An asynchronous event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueEvent {
    /// The peer disconnected. The queue pair is in the error state.
    Disconnected {
        /// The queue pair.
        qp_num: u32,
    },
    /// The device put a queue pair into the error state, because of a request of this side or of
    /// the peer.
    Failed {
        /// The queue pair.
        qp_num: u32,
    },
    /// The device or these queues have failed: none of their queue pairs can be used.
    DeviceLost,
    /// The device's port went down. Connections survive as long as their requests are retried.
    PortDown,
    /// The device's port is up.
    PortUp,
}
