//! Errors of setting up, of calls, and why a connection ended.

use std::net::SocketAddr;

use crate::provider::ConnectError;

/// Why something could not be set up. Cold path only.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A sum of the configuration exceeds what the device has.
    #[error("{what}: {needed} needed, {device} has {limit}")]
    Limit {
        /// What is short.
        what: &'static str,
        /// What the configuration adds up to.
        needed: u64,
        /// What there is.
        limit: u64,
        /// The device.
        device: String,
    },
    /// The configuration does not fit the device or the machine.
    #[error("configuration: {0}")]
    Config(String),
    /// A call of the system or of a foreign library failed.
    #[error("{call} failed: {source}; {hint}")]
    System {
        /// The call.
        call: &'static str,
        /// Its error.
        source: std::io::Error,
        /// The likely cause.
        hint: &'static str,
    },
    /// A foreign library is not there, or is not what it should be.
    #[error(
        "verbs are not there: {library} cannot be used ({reason}); install libibverbs1 and librdmacm1 \
         and the driver of the device (ibverbs-providers), or use the fabric"
    )]
    Library {
        /// The library.
        library: &'static str,
        /// Why not.
        reason: String,
    },
    /// There is no such RDMA device.
    #[error("there is no RDMA device {wanted}; there are: {found}")]
    NoDevice {
        /// What was asked for.
        wanted: String,
        /// What there is.
        found: String,
    },
    /// Memory could not be had or registered.
    #[error("memory for {what}: {reason}")]
    Memory {
        /// Which memory.
        what: &'static str,
        /// Why not.
        reason: String,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {reason}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        reason: &'static str,
    },
    /// The connection could not be had.
    #[error("cannot connect to {to}: {reason}")]
    Connect {
        /// The address.
        to: SocketAddr,
        /// Why not.
        reason: ConnectError,
    },
    /// A thread could not be placed.
    #[error("core {core}: {reason}")]
    Core {
        /// The core.
        core: u32,
        /// Why not.
        reason: String,
    },
    /// A value is outside of what is allowed.
    #[error("{what} is {value}; allowed: {allowed}")]
    Invalid {
        /// Which value.
        what: &'static str,
        /// What was given.
        value: String,
        /// What is allowed.
        allowed: String,
    },
    /// The engine is stopping or stopped.
    #[error("the engine is stopped")]
    Stopped,
    /// The thread that was to do it has panicked.
    #[error(transparent)]
    Panicked(#[from] crate::failure::Panicked),
}

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// This side closed it.
    #[error("closed by this side")]
    Local,
    /// The shard was stopped.
    #[error("the shard was stopped")]
    Stopped,
    /// The peer disconnected or died.
    #[error("the peer disconnected")]
    PeerGone,
    /// The peer broke a rule that leaves nothing to answer.
    #[error("the peer broke the protocol: {0}")]
    Protocol(rpcrdma_proto::Fatal),
    /// The peer takes no messages while it sends its own.
    #[error("the peer sends and takes no answers")]
    NotTaking,
    /// This side posted what its device cannot take.
    #[error("a work request breaks a limit of the device")]
    Invalid,
    /// A work request of this connection failed.
    #[error("a work request failed: {0:?}")]
    Transport(crate::provider::WcStatus),
    /// The peer let a group of transmissions stand open, or did not answer the opening or the RDMA
    /// Reads of its calls, too long.
    #[error("the peer did not go on in time")]
    TimedOut,
    /// The peer owed an answer to a call for longer than `connections.call_timeout`.
    #[error("the peer did not answer a call in time")]
    NotAnswering,
    /// The peer, which had made the connection, asked for nothing for `connections.idle_timeout`.
    #[error("the peer asked for nothing for too long")]
    Idle,
    /// The handler turned the connection down.
    #[error("refused by the handler")]
    Refused,
    /// The device gave up the queue pair.
    #[error("the device gave up the queue pair")]
    Failed,
    /// The device completed a work request that it did not have: one that it had refused, or had
    /// completed before.
    #[error("the device completed a work request that it did not have")]
    Unasked,
    /// The device is gone or broken, and every connection on it with it.
    #[error("the device is gone or broken")]
    DeviceLost,
    /// The completion queue is lost, and every connection of the shard with it.
    #[error("the completion queue failed: {0}")]
    Queue(crate::provider::CqError),
}

impl CloseReason {
    /// The same, said of a connection that did not come up.
    pub(crate) fn as_connect_error(self) -> ConnectError {
        match self {
            CloseReason::TimedOut => ConnectError::TimedOut,
            CloseReason::Refused => ConnectError::Rejected,
            CloseReason::Protocol(rpcrdma_proto::Fatal::VersionRefused { low, high }) => {
                ConnectError::Version { low, high }
            }
            _ => ConnectError::Lost,
        }
    }
}

/// Why a call did not get its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The connection ended first. Whether the call was executed is not known.
    #[error("the connection was lost: {0}")]
    ConnectionLost(CloseReason),
    /// The peer reported an error; the call was not executed.
    #[error("the peer rejected the call: {0:?}")]
    Rejected(rpcrdma_proto::Refusal),
    /// The peer does not take the form that the call was sent in, and has not executed it (\[RTR\] 5.4,
    /// 9.4). The connection does not use that form again: the same call may be made again, and goes
    /// another way.
    #[error("the peer does not take calls in this form ({0:?}); made again, it goes another way")]
    FormRefused(rpcrdma_proto::Refusal),
    /// The device did not give memory back that the call had exposed; it stays out of use.
    #[error("the device did not give the memory of the call back")]
    MemoryLost,
    /// The reply broke the rules of placement or continuation.
    #[error("the reply was malformed: {0:?}")]
    BadReply(rpcrdma_proto::Violation),
}

impl CallError {
    /// Whether the call was not executed and may go another way if it is made again: in another form,
    /// or in the version that the peer speaks.
    pub fn is_repeatable(&self) -> bool {
        use rpcrdma_proto::Refusal::Version;
        matches!(self, CallError::FormRefused(_) | CallError::Rejected(Version { .. }))
    }
}

impl CallRefused {
    /// Whether the same call may go through later: after polls that complete other calls.
    pub fn is_transient(&self) -> bool {
        use rpcrdma_proto::SendError::{NotEnoughCredits, NotEnoughReceives, NotReady, TableFull};
        match self {
            CallRefused::Busy => true,
            CallRefused::Protocol(why) => matches!(
                why,
                NotEnoughCredits { .. } | NotEnoughReceives { .. } | NotReady | TableFull { .. }
            ),
            _ => false,
        }
    }
}

/// Why a call could not be sent. Nothing of it has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallRefused {
    /// There is no such connection any more.
    #[error("there is no such connection")]
    NoPeer,
    /// The shard is stopping.
    #[error("the shard is stopping")]
    Stopping,
    /// All send slots or call slots are in use: poll, then try again.
    #[error("no send slot or call slot is free: poll and try again")]
    Busy,
    /// The payload is longer than the send slots of one message hold.
    #[error("the payload is longer than one message can hold")]
    PayloadTooLong,
    /// More bulk items, or more pieces of them, than one message can carry; or a payload that lies
    /// in more slots than one work request gathers.
    #[error(
        "more bulk items, pieces, payload slots or padding than one work request gathers; larger \
         slots (send.length) and more zeros (send.zero) make them fewer"
    )]
    TooManyPieces,
    /// More memory windows, or more landing buffers, than the shard has at all.
    #[error(
        "the call needs more memory windows or landing buffers than there are; explicit.windows and \
         explicit.buffers make them more"
    )]
    TooLittleMemory,
    /// The device does not let peers reach some of the call's memory: it refused the registration, or
    /// the memory is none of those that are registered for good.
    #[error(
        "the device does not show memory of the call to the peer: registering it failed (ulimit -l, \
         or explicit.exposure = \"windows\"), or it is the memory of another shard"
    )]
    CannotExpose,
    /// The protocol does not let it go out, or not now.
    #[error("the call cannot be sent: {0:?}")]
    Protocol(rpcrdma_proto::SendError),
}
