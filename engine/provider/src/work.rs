//! Work requests and their completions, as ibverbs has them.

use arrayvec::ArrayVec;
use rpcrdma_mempool::{Access, Sge};

/// The program's name for a work request, returned by its completion: any number without
/// [`WrId::PROVIDER_BIT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WrId(pub u64);

impl WrId {
    /// A bit that is not the program's: a provider may use it to tell Receives from other requests.
    pub const PROVIDER_BIT: u64 = 1 << 62;
}

/// A Receive.
#[derive(Debug, Clone, Copy)]
pub struct RecvWr<'a> {
    /// Returned by the completion.
    pub wr_id: WrId,
    /// Where the message is scattered to, in order.
    pub sgl: &'a [Sge],
}

/// A request on the send queue of a queue pair. They are carried out in the order of posting.
#[derive(Debug, Clone, Copy)]
pub struct SendWr<'a> {
    /// Returned by the completion.
    pub wr_id: WrId,
    /// What is to be done.
    pub op: SendOp,
    /// Local memory, in order: where the bytes are gathered from, or of [`SendOp::Read`] where they
    /// go to. Empty for [`SendOp::Bind`] and [`SendOp::Invalidate`].
    pub sgl: &'a [Sge],
    /// How it is to be treated.
    pub flags: SendFlags,
}

impl<'a> SendWr<'a> {
    /// A Send.
    #[inline]
    pub fn send(wr_id: WrId, sgl: &'a [Sge], flags: SendFlags) -> SendWr<'a> {
        SendWr { wr_id, op: SendOp::Send, sgl, flags }
    }
}

/// What a request on a send queue does. Names as in `enum ibv_wr_opcode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendOp {
    /// A message to a Receive of the peer.
    Send,
    /// A Send that takes the peer's own rights to `rkey` back before the Receive completes. The
    /// peer must have bound a window of this queue pair to it.
    SendInvalidate {
        /// The key.
        rkey: u32,
    },
    /// Bytes to memory of the peer, which is not told.
    Write(Remote),
    /// Bytes from memory of the peer, which is not told. What is posted behind it may overtake it,
    /// unless it has [`SendFlags::FENCE`]; completions keep their order.
    Read(Remote),
    /// Opens memory of this side to the peer.
    Bind(Bind),
    /// Closes what [`SendOp::Bind`] opened under this key. When it has completed, nothing is on its
    /// way under the key. An unknown key, or one of another queue pair, is an error.
    Invalidate {
        /// The key.
        rkey: u32,
    },
}

impl SendOp {
    /// Whether it is a transmission: a message that takes a Receive of the peer.
    #[must_use]
    pub fn is_send(&self) -> bool {
        matches!(self, SendOp::Send | SendOp::SendInvalidate { .. })
    }
}

/// Memory of the peer, of as many bytes as the local side of the request has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// The address as the peer stated it.
    pub addr: u64,
    /// The peer's key.
    pub rkey: u32,
}

/// Binds a type-2 memory window to bytes of a region, for the peer of one queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bind {
    /// The window: bound to nothing.
    pub window: WindowId,
    /// The key it shall have: [`Window::next_rkey`] of the one before.
    pub rkey: u32,
    /// The local key of the region, which was registered with [`Access::MW_BIND`].
    pub lkey: u32,
    /// The first byte.
    pub addr: u64,
    /// How many.
    pub len: u32,
    /// What the peer may do.
    pub access: Access,
}

/// Names a memory window of a set of queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WindowId(pub u32);

/// A memory window and the key that it had last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The window.
    pub id: WindowId,
    /// Its last key.
    pub rkey: u32,
}

impl Window {
    /// The key for the next binding: the low byte, which belongs to the program, counts on, so that
    /// a key is dead for the next 255 bindings once it was invalidated.
    #[inline]
    #[must_use]
    pub fn next_rkey(self) -> u32 {
        self.rkey & !0xff | self.rkey.wrapping_add(1) & 0xff
    }
}

bitflags::bitflags! {
    /// How a send request is to be treated.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct SendFlags: u32 {
        /// A completion is wanted even on success.
        const SIGNALED = 1;
        /// The bytes are copied while posting; at most [`DeviceCaps::inline_len`].
        const INLINE = 2;
        /// Begins only when every [`SendOp::Read`] posted before has completed.
        const FENCE = 4;
    }
}

/// Completions of one poll.
pub type WcBatch = ArrayVec<WorkCompletion, WC_BATCH>;

/// How many completions are polled at a time.
pub const WC_BATCH: usize = 32;

/// A completed work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkCompletion {
    /// As posted.
    pub wr_id: WrId,
    /// The queue pair.
    pub qp_num: u32,
    /// How it ended.
    pub status: WcStatus,
    /// Valid on success only.
    pub opcode: WcOpcode,
    /// Bytes received; valid for a successful Receive only.
    pub byte_len: u32,
    /// The key that the peer's Send took back; of a successful Receive only.
    pub invalidated: Option<u32>,
}

/// What was completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WcOpcode {
    /// A Send left and was acknowledged.
    Send,
    /// A message arrived.
    Recv,
    /// Bytes were written to memory of the peer.
    Write,
    /// Bytes of the peer's memory are here.
    Read,
    /// A window is bound.
    Bind,
    /// A key is dead.
    Invalidate,
}

/// How a work request ended. Names as in `enum ibv_wc_status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WcStatus {
    /// As wished.
    #[error("success")]
    Success,
    /// A message was longer than the Receive that it met.
    #[error("a message is longer than its Receive")]
    LocalLength,
    /// The queue pair could not carry the request out. Soft-RoCE says so when its link is down.
    #[error("the queue pair could not execute the request")]
    LocalOperation,
    /// A local key was wrong, or its bounds or rights were.
    #[error("a local key, its bounds or its rights are wrong")]
    LocalProtection,
    /// A memory window could not be bound so, or there is nothing to invalidate.
    #[error(
        "a memory window cannot be bound with these arguments, or the key to invalidate is not valid"
    )]
    MemoryWindowBind,
    /// The queue pair was in the error state.
    #[error("the queue pair is in the error state")]
    Flushed,
    /// The peer could not take the request.
    #[error("the peer cannot execute the request")]
    RemoteInvalidRequest,
    /// A remote key was wrong, or its bounds or rights were.
    #[error("a remote key, its bounds or its rights are wrong")]
    RemoteAccess,
    /// The peer does not answer.
    #[error("the peer does not acknowledge (retries exceeded)")]
    RetryExceeded,
    /// The peer had no Receive posted, too many times.
    #[error("the peer had no Receive posted (receiver-not-ready retries exceeded)")]
    RnrRetryExceeded,
    /// Any other status of the device.
    #[error("the device reports status {0}")]
    Other(u32),
}

/// How many requests of a post the device has taken, and why no more.
///
/// A driver may fail after it has taken a request, or all of them, and may take fewer than it was
/// given without a reason. What it has taken it carries out, and whoever posts it again has it
/// carried out twice. So the number is always there, and is read together with the reason.
#[must_use = "what the device has taken must not be posted again"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    count: usize,
    why: Option<PostError>,
}

impl Taken {
    /// The first `count` requests were taken, and there was no error.
    #[inline]
    pub fn without_error(count: usize) -> Taken {
        Taken { count, why: None }
    }

    /// The first `count` requests were taken, which may be all, and there was an error.
    #[inline]
    pub fn with_error(count: usize, why: PostError) -> Taken {
        Taken { count, why: Some(why) }
    }

    /// Of a post of so many `requests`, how many were taken, and what went wrong. Never more than
    /// there were; and fewer never without an error: then the queue counts as full.
    #[inline]
    #[must_use]
    pub fn of(self, requests: usize) -> (usize, Option<PostError>) {
        if self.count >= requests {
            return (requests, self.why);
        }
        (self.count, Some(self.why.unwrap_or(PostError::QueueFull)))
    }
}

/// What went wrong with a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The queue has no room, or the device none for now.
    #[error("the queue is full")]
    QueueFull,
    /// The queue pair takes no requests.
    #[error("the queue pair cannot send: it is in the error state or gone")]
    QpGone,
    /// The first request that was not taken breaks a limit of the device.
    #[error("a work request exceeds a limit of the device")]
    Invalid,
}

/// The completion queue is unusable; every queue pair on it is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CqError {
    /// More completions than the queue has entries.
    #[error("completion queue overrun")]
    Overrun,
    /// The device reports an error number.
    #[error("the device failed with errno {0}")]
    Device(i32),
}
