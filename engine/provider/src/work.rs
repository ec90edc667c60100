//! Work requests and their completions, as ibverbs has them.

use arrayvec::ArrayVec;
use rpcrdma_mempool::{Access, Sge};

/// Identifies a work request in its completion: any number without [`WrId::PROVIDER_BIT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WrId(pub u64);

impl WrId {
    /// A bit that the program must not set: a provider may use it to distinguish Receives from
    /// other requests.
    pub const PROVIDER_BIT: u64 = 1 << 62;
}

/// The requests of one post. A provider reads them once, in order, and makes its own form of each
/// on the way: between the program and the provider there is no array of them.
///
/// A clone yields the same requests; wrappers read one before they pass the requests on.
pub trait Requests<W>: ExactSizeIterator<Item = W> + Clone {}

impl<W, I: ExactSizeIterator<Item = W> + Clone> Requests<W> for I {}

/// A Receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecvWr {
    /// Returned by the completion.
    pub wr_id: WrId,
    /// The buffer for the message: [`Queues::describe_recv`](crate::Queues::describe_recv).
    pub buffer: u32,
}

/// A request on the send queue of a queue pair. Requests are executed in the order of posting.
#[derive(Debug, Clone, Copy)]
pub struct SendWr<'a> {
    /// Returned by the completion.
    pub wr_id: WrId,
    /// The operation.
    pub op: SendOp,
    /// Local memory, in order: the source of the bytes, or the destination of a [`SendOp::Read`].
    /// Empty for [`SendOp::Bind`] and [`SendOp::Invalidate`].
    pub sgl: &'a [Sge],
    /// The options.
    pub flags: SendFlags,
}

impl<'a> SendWr<'a> {
    /// A Send.
    #[inline]
    pub fn send(wr_id: WrId, sgl: &'a [Sge], flags: SendFlags) -> SendWr<'a> {
        SendWr { wr_id, op: SendOp::Send, sgl, flags }
    }
}

/// The operation of a request on a send queue. Names as in `enum ibv_wr_opcode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendOp {
    /// Sends a message to a Receive of the peer.
    Send,
    /// Sends a message, and invalidates `rkey` at the peer before the Receive completes. The peer
    /// must have bound `rkey` to a window of this queue pair.
    SendInvalidate {
        /// The key.
        rkey: u32,
    },
    /// Writes to memory of the peer, without a completion at the peer.
    Write(Remote),
    /// Reads from memory of the peer, without a completion at the peer. Later requests may be
    /// executed before it completes, unless they have [`SendFlags::FENCE`]; completions keep their
    /// order.
    Read(Remote),
    /// Binds a memory window: gives the peer access to memory of this side.
    Bind(Bind),
    /// Invalidates the key of a [`SendOp::Bind`]. When it has completed, no access under the key is
    /// in progress. An unknown key, or one of another queue pair, is an error.
    Invalidate {
        /// The key.
        rkey: u32,
    },
}

impl SendOp {
    /// Whether it is a message that consumes a Receive of the peer.
    #[must_use]
    pub fn is_send(&self) -> bool {
        matches!(self, SendOp::Send | SendOp::SendInvalidate { .. })
    }
}

/// Memory of the peer, as long as the local memory of the request.
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
    /// The window, which is not bound.
    pub window: WindowId,
    /// Its new key: [`Window::next_rkey`].
    pub rkey: u32,
    /// The local key of the region, which was registered with [`Access::MW_BIND`].
    pub lkey: u32,
    /// The first byte.
    pub addr: u64,
    /// The number of bytes.
    pub len: u32,
    /// The rights of the peer.
    pub access: Access,
}

/// Identifies a memory window of a set of queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WindowId(pub u32);

/// A memory window and its last key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The window.
    pub id: WindowId,
    /// Its last key.
    pub rkey: u32,
}

impl Window {
    /// The key for the next binding. The low byte, which the program may choose, is incremented, so
    /// that an invalidated key is not used again for the next 255 bindings.
    #[inline]
    #[must_use]
    pub fn next_rkey(self) -> u32 {
        self.rkey & !0xff | self.rkey.wrapping_add(1) & 0xff
    }
}

bitflags::bitflags! {
    /// How a send request is to be treated. Numbers as in `enum ibv_send_flags`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct SendFlags: u32 {
        /// Report a completion also on success.
        const SIGNALED = 2;
        /// Copy the bytes while posting; at most [`DeviceCaps::inline_len`].
        const INLINE = 8;
        /// Begin only when every [`SendOp::Read`] posted before has completed.
        const FENCE = 1;
    }
}

/// Completions of one poll.
pub type WcBatch = ArrayVec<WorkCompletion, WC_BATCH>;

/// The maximum number of completions of one poll.
pub const WC_BATCH: usize = 32;

/// A completed work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkCompletion {
    /// As posted.
    pub wr_id: WrId,
    /// The queue pair.
    pub qp_num: u32,
    /// The status.
    pub status: WcStatus,
    /// Valid on success only.
    pub opcode: WcOpcode,
    /// Bytes received; valid only for a successful Receive.
    pub byte_len: u32,
    /// The key that the peer's Send invalidated; valid only for a successful Receive.
    pub invalidated: Option<u32>,
}

/// The kind of a completed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WcOpcode {
    /// A Send left and was acknowledged.
    Send,
    /// A message arrived.
    Recv,
    /// Bytes were written to memory of the peer.
    Write,
    /// Bytes were read from memory of the peer.
    Read,
    /// A window is bound.
    Bind,
    /// A key was invalidated.
    Invalidate,
}

/// How a work request ended. Names as in `enum ibv_wc_status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WcStatus {
    /// Success.
    #[error("success")]
    Success,
    /// A message was longer than its Receive.
    #[error("a message is longer than its Receive")]
    LocalLength,
    /// The queue pair could not execute the request. Soft-RoCE reports this when its link is down.
    #[error("the queue pair could not execute the request")]
    LocalOperation,
    /// A local key was wrong, or its bounds or rights were.
    #[error("a local key, its bounds or its rights are wrong")]
    LocalProtection,
    /// A memory window could not be bound with these arguments, or the key to invalidate is not
    /// valid.
    #[error("a memory window cannot be bound with these arguments, or the key is not valid")]
    MemoryWindowBind,
    /// The queue pair was in the error state.
    #[error("the queue pair is in the error state")]
    Flushed,
    /// The peer could not execute the request.
    #[error("the peer cannot execute the request")]
    RemoteInvalidRequest,
    /// A remote key was wrong, or its bounds or rights were.
    #[error("a remote key, its bounds or its rights are wrong")]
    RemoteAccess,
    /// The peer does not acknowledge.
    #[error("the peer does not acknowledge (retries exceeded)")]
    RetryExceeded,
    /// The peer had no Receive posted, and the retries were exceeded.
    #[error("the peer had no Receive posted (receiver-not-ready retries exceeded)")]
    RnrRetryExceeded,
    /// Any other status of the device.
    #[error("the device reports status {0}")]
    Other(u32),
}

/// The number of requests of a post that the device has taken, and the error, if any.
///
/// A driver may fail after it has taken some or all requests, and may take fewer than given without
/// an error. It executes the requests that it has taken; posting them again would execute them
/// twice. So the number is always present, and is read together with the error.
#[must_use = "what the device has taken must not be posted again"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    count: usize,
    why: Option<PostError>,
}

impl Taken {
    /// The first `count` requests were taken, without an error.
    #[inline]
    pub fn without_error(count: usize) -> Taken {
        Taken { count, why: None }
    }

    /// The first `count` requests were taken, which may be all, and an error was returned.
    #[inline]
    pub fn with_error(count: usize, why: PostError) -> Taken {
        Taken { count, why: Some(why) }
    }

    /// The number taken of a post of `requests`, and the error. The number is at most `requests`.
    /// If fewer were taken without an error, the error is [`PostError::QueueFull`].
    #[inline]
    #[must_use]
    pub fn of(self, requests: usize) -> (usize, Option<PostError>) {
        if self.count >= requests {
            return (requests, self.why);
        }
        (self.count, Some(self.why.unwrap_or(PostError::QueueFull)))
    }
}

/// The error of a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// The queue or the device has no room now.
    #[error("the queue is full")]
    QueueFull,
    /// The queue pair does not take requests.
    #[error("the queue pair cannot send: it is in the error state or gone")]
    QpGone,
    /// The first request that was not taken exceeds a limit of the device.
    #[error("a work request exceeds a limit of the device")]
    Invalid,
}

/// The completion queue is unusable; every queue pair on it is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CqError {
    /// More completions than the queue has entries.
    #[error("completion queue overrun")]
    Overrun,
    /// The device reports an error number.
    #[error("the device failed with errno {0}")]
    Device(i32),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_low_byte_of_a_key_changes() {
        let next = |rkey| Window { id: WindowId(1), rkey }.next_rkey();
        assert_eq!(next(0x1234_5678), 0x1234_5679);
        assert_eq!(next(0x1234_56ff), 0x1234_5600);
        assert_eq!(next(u32::MAX), 0xffff_ff00);
        assert_eq!(next(0), 1);
    }

    #[test]
    fn fewer_than_all_are_never_without_an_error() {
        let (full, gone) = (Some(PostError::QueueFull), Some(PostError::QpGone));
        for (count, of_three) in [(0, (0, full)), (2, (2, full)), (3, (3, None)), (4, (3, None))] {
            assert_eq!(Taken::without_error(count).of(3), of_three, "{count}");
        }
        for (count, taken) in [(0, 0), (2, 2), (3, 3), (4, 3)] {
            let posted = Taken::with_error(count, PostError::QpGone);
            assert_eq!(posted.of(3), (taken, gone), "{count}");
        }
        assert_eq!(Taken::without_error(0).of(0), (0, None));
    }

    #[test]
    fn messages_alone_consume_a_receive() {
        let remote = Remote { addr: 1, rkey: 2 };
        assert!(SendOp::Send.is_send() && SendOp::SendInvalidate { rkey: 1 }.is_send());
        for op in [SendOp::Write(remote), SendOp::Read(remote), SendOp::Invalidate { rkey: 1 }] {
            assert!(!op.is_send(), "{op:?}");
        }
    }
}
