//! Errors of calls, and the reasons for the end of a connection.

pub use rpcrdma_provider::SetupError;

use rpcrdma_proto::{Fatal, Refusal, SendError, Violation};
use rpcrdma_provider::{ConnectError, Rejection};

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The program closed it.
    #[error("closed by this program")]
    Local,
    /// The shard was stopped.
    #[error("the shard was stopped")]
    Stopped,
    /// The peer disconnected or died.
    #[error("the peer disconnected")]
    PeerGone,
    /// The peer broke a rule, and no answer is possible.
    #[error("the peer broke the protocol: {0}")]
    Protocol(Fatal),
    /// The peer does not receive messages while it sends its own.
    #[error("the peer sends messages and does not receive the answers")]
    NotTaking,
    /// This side posted a request that exceeds a limit of its device.
    #[error("a work request exceeds a limit of the device")]
    Invalid,
    /// A work request of this connection failed.
    #[error("a work request failed: {0}")]
    Transport(crate::provider::WcStatus),
    /// The peer left a group of transmissions incomplete, or did not answer the first message or an
    /// RDMA Read, for too long.
    #[error(
        "the peer did not complete a message, a negotiation or an RDMA Read in time \
         (connections.group_timeout, connections.connect_timeout, protocol.negotiation_timeout)"
    )]
    TimedOut,
    /// The peer did not answer a call within `connections.call_timeout`.
    #[error("the peer did not answer a call in time (connections.call_timeout)")]
    NotAnswering,
    /// The peer made the connection and sent no call for `connections.idle_timeout`.
    #[error("the peer sent no call for too long (connections.idle_timeout)")]
    Idle,
    /// The handler rejected the connection.
    #[error("rejected by the handler")]
    Refused,
    /// The device put the queue pair into the error state.
    #[error("the device put the queue pair into the error state")]
    Failed,
    /// The device completed a work request that is not outstanding: one that it refused or had
    /// already completed.
    #[error("the device completed a work request that was not posted")]
    Unasked,
    /// The device was removed or has failed, with all its connections.
    #[error("the device was removed or has failed")]
    DeviceLost,
    /// The completion queue has failed, with all connections of the shard.
    #[error("the completion queue failed: {0}")]
    Queue(crate::provider::CqError),
}

impl CloseReason {
    /// The same reason for a connection that was not established.
    pub(crate) fn as_connect_error(self) -> ConnectError {
        match self {
            CloseReason::TimedOut => ConnectError::TimedOut,
            CloseReason::Refused => ConnectError::Rejected(Rejection::Refused { code: 0 }),
            CloseReason::Protocol(Fatal::VersionRefused { low, high }) => {
                ConnectError::Version { low, high }
            }
            _ => ConnectError::Lost,
        }
    }
}

/// Why a call has no reply. [`CallError::execution`] states what is known about its execution.
///
/// ```
/// use rpcrdma::{CallError, CloseReason, Execution};
///
/// let lost = CallError::ConnectionLost(CloseReason::PeerGone, Execution::Unknown);
/// assert_eq!(lost.execution(), Execution::Unknown); // repeat the call only if that does no harm
/// assert!(!lost.is_repeatable());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The connection ended. If something of the call had been sent, it may have been executed,
    /// unless the peer has refused the version of this side ([`Fatal::VersionRefused`]).
    #[error("the connection was lost: {0}; {1}")]
    ConnectionLost(CloseReason, Execution),
    /// The peer reports an error instead of a reply. It does so for a call that it cannot read, for
    /// a call that it rejects, and for a call that it has executed and cannot reply to (RFC 8166
    /// 4.5.3). Only an unsupported version ([`Refusal::Version`]) proves that what was sent to this
    /// peer was not executed.
    #[error("the peer sends no reply: {0}; {1}")]
    Rejected(Refusal, Execution),
    /// The peer does not support the form of the call, and has not executed it (\[RTR\] 5.4, 9.4).
    /// The connection does not use that form again: if the program repeats the call, it is sent in
    /// another form.
    #[error(
        "the peer does not support this form of call ({0}); a repeated call uses another form; {1}"
    )]
    FormRefused(Refusal, Execution),
    /// The device did not end a peer's right to memory that the call exposed, or did not release
    /// the memory. The memory stays out of use. The call may have been executed.
    #[error("the device did not release the memory of the call; {}", Execution::Unknown)]
    MemoryLost,
    /// The call took longer than its deadline allowed
    /// ([`CallBuilder::deadline`](crate::CallBuilder)). If it had not been sent by then, it was not
    /// executed; otherwise it may have been.
    #[error("the call exceeded its deadline; {0}")]
    DeadlineExceeded(Execution),
    /// The program cancelled the call ([`Turn::cancel`](crate::Turn::cancel)). If it had not been
    /// sent by then, it was not executed; otherwise it may have been.
    #[error("the call was cancelled; {0}")]
    Cancelled(Execution),
    /// The reply broke the rules of placement or continuation, and is lost. It may have been the
    /// refusal of the call.
    #[error("the reply was malformed: {0}; {known}", known = Execution::Unknown)]
    BadReply(Violation),
}

/// What was sent of a call. From this and from the error follows whether it was executed
/// ([`Execution::of`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Nothing of it.
    Nothing,
    /// Some or all of it, on the connection that its error is of.
    Here,
    /// Some or all of it on an earlier connection, and perhaps on this one.
    Before,
}

/// What is known about the execution of a call without a reply.
///
/// A call that was not sent ([`CallRefused`]) was not executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Execution {
    /// It was not executed: it may be repeated, whatever it does.
    #[error("the call was not executed")]
    NotExecuted,
    /// It may have been executed. The program may repeat it if it is idempotent, or if the server
    /// detects duplicates.
    #[error("the call may have been executed")]
    Unknown,
}

impl Execution {
    /// What is known of a call of which this was sent, and that ended with this error, or without
    /// one of its connection. Nothing else decides it.
    pub(crate) fn of(sent: Sent, error: Option<&CallError>) -> Execution {
        use CallError::{ConnectionLost, FormRefused, Rejected};
        let is_proof = match error {
            Some(FormRefused(..) | Rejected(Refusal::Version { .. }, _)) => true,
            // The peer refuses a version with its first message: it has accepted no other.
            Some(ConnectionLost(CloseReason::Protocol(Fatal::VersionRefused { .. }), _)) => true,
            _ => false,
        };
        match sent {
            Sent::Nothing => Execution::NotExecuted,
            Sent::Here if is_proof => Execution::NotExecuted,
            Sent::Here | Sent::Before => Execution::Unknown,
        }
    }
}

impl CallError {
    /// The error that `make` makes, of a call of which this was sent.
    pub(crate) fn of(sent: Sent, make: impl Fn(Execution) -> CallError) -> CallError {
        make(Execution::of(sent, Some(&make(Execution::Unknown))))
    }

    /// This error of a call of which this was sent.
    pub(crate) fn after(self, sent: Sent) -> CallError {
        let execution = Execution::of(sent, Some(&self));
        match self {
            CallError::ConnectionLost(why, _) => CallError::ConnectionLost(why, execution),
            CallError::Rejected(why, _) => CallError::Rejected(why, execution),
            CallError::FormRefused(why, _) => CallError::FormRefused(why, execution),
            CallError::DeadlineExceeded(_) => CallError::DeadlineExceeded(execution),
            CallError::Cancelled(_) => CallError::Cancelled(execution),
            // Neither comes before something was sent.
            CallError::MemoryLost | CallError::BadReply(_) => self,
        }
    }

    /// What is known about the execution of the call.
    pub fn execution(&self) -> Execution {
        match self {
            CallError::ConnectionLost(_, execution)
            | CallError::Rejected(_, execution)
            | CallError::FormRefused(_, execution)
            | CallError::DeadlineExceeded(execution)
            | CallError::Cancelled(execution) => *execution,
            CallError::MemoryLost | CallError::BadReply(_) => Execution::of(Sent::Here, Some(self)),
        }
    }

    /// Whether the call was not executed and can be repeated in another form, or in a version that
    /// the peer supports.
    pub fn is_repeatable(&self) -> bool {
        let is_refused = matches!(
            self,
            CallError::FormRefused(..) | CallError::Rejected(Refusal::Version { .. }, _)
        );
        is_refused && self.execution() == Execution::NotExecuted
    }
}

impl CallRefused {
    /// Whether the same call may succeed later: poll, and try again.
    pub fn is_transient(&self) -> bool {
        use SendError::{NotEnoughCredits, NotEnoughReceives, NotReady, TableFull, XidInUse};
        match self {
            CallRefused::Busy => true,
            CallRefused::Protocol(why) => matches!(
                why,
                NotEnoughCredits { .. }
                    | NotEnoughReceives { .. }
                    | NotReady
                    | TableFull { .. }
                    | XidInUse { .. }
            ),
            _ => false,
        }
    }
}

/// Why a call was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallRefused {
    /// The connection has ended.
    #[error("no such connection: it has ended, or the handle is of another shard")]
    NoPeer,
    /// The shard is stopping.
    #[error("the shard is stopping")]
    Stopping,
    /// All send slots or call slots are in use: poll, then try again.
    #[error("no send slot or call slot is free; poll, then try again")]
    Busy,
    /// The payload is longer than the send slots of one message.
    #[error(
        "the payload does not fit into the send slots of one message; raise send.length or \
         send.slots, or pass data as bulk items"
    )]
    PayloadTooLong,
    /// More bulk items, or more pieces of them, than one message can carry; or a payload that lies
    /// in more slots than one work request gathers.
    #[error(
        "bulk items, pieces, payload slots and padding exceed the gather entries of one work \
         request; raise send.length or send.zero, or pass fewer pieces"
    )]
    TooManyPieces,
    /// Memory placed in an [`OwnedCall`](crate::OwnedCall), or given for its results, was taken out
    /// of it.
    #[error("memory placed in the call, or given for its results, was taken out of it")]
    Incomplete,
    /// More memory windows or RDMA buffers than the shard has.
    #[error(
        "the call needs more memory windows or RDMA buffers than the shard has; raise \
         explicit.windows or explicit.buffers"
    )]
    TooLittleMemory,
    /// Memory of the call cannot be exposed to the peer: its registration failed, or with
    /// `static-insecure` it is not in a region that is exposed permanently.
    #[error(
        "memory of the call cannot be exposed to the peer: its registration failed (check \
         ulimit -l, or set explicit.exposure = \"windows\"), or it belongs to another shard"
    )]
    CannotExpose,
    /// The protocol does not allow the call, or not now: [`CallRefused::is_transient`] states
    /// which.
    #[error("the call cannot be sent: {0}")]
    Protocol(SendError),
}

#[cfg(test)]
mod tests {
    use rpcrdma_proto::Misuse;
    use rpcrdma_xdr::error::DecodeError;
    use rpcrdma_xdr::rtr::report::{Mismatch, OutOfRange, ReptInfo};

    use super::*;
    use crate::provider::{CqError, WcStatus};

    fn refusals() -> Vec<Refusal> {
        let mismatch = Mismatch { expect: 1, current: 2 };
        let range = OutOfRange { value: 9, min: 0, max: 4 };
        let reported = [
            ReptInfo::BadHmt(mismatch),
            ReptInfo::BadOmt(mismatch),
            ReptInfo::BadCont,
            ReptInfo::BadSeq(mismatch),
            ReptInfo::BadXid(mismatch),
            ReptInfo::BadOff(range),
            ReptInfo::BadTbsn(range),
            ReptInfo::BadPl(range),
        ];
        let version = Refusal::Version { low: 3, high: 4 };
        let others = [version, Refusal::BadHeader, Refusal::InvalOption, Refusal::BadReply];
        others.into_iter().chain(reported.map(Refusal::Reported)).collect()
    }

    fn reasons() -> Vec<CloseReason> {
        let fatal = Fatal::CreditOverstep { outstanding: 5, granted: 4 };
        vec![
            CloseReason::Local,
            CloseReason::Stopped,
            CloseReason::PeerGone,
            CloseReason::Protocol(fatal),
            CloseReason::Protocol(Fatal::VersionRefused { low: 2, high: 2 }),
            CloseReason::NotTaking,
            CloseReason::Invalid,
            CloseReason::Transport(WcStatus::RnrRetryExceeded),
            CloseReason::Transport(WcStatus::Other(37)),
            CloseReason::TimedOut,
            CloseReason::NotAnswering,
            CloseReason::Refused,
            CloseReason::Failed,
            CloseReason::DeviceLost,
            CloseReason::Queue(CqError::Device(5)),
        ]
    }

    fn violations() -> [Violation; 3] {
        [
            Violation::BadHeader("the payload has another xid"),
            Violation::Undecodable(DecodeError::NoChunk),
            Violation::Offset { value: 9, min: 0, max: 4 },
        ]
    }

    /// Every error, as of a call of which this was sent.
    fn errors(sent: Sent) -> Vec<CallError> {
        let known = Execution::Unknown;
        let lost = reasons().into_iter().map(|why| CallError::ConnectionLost(why, known));
        let rejected = refusals().into_iter().map(|why| CallError::Rejected(why, known));
        let forms = refusals().into_iter().map(|why| CallError::FormRefused(why, known));
        let replies = violations().map(CallError::BadReply);
        let ends = [
            CallError::DeadlineExceeded(known),
            CallError::Cancelled(known),
            CallError::MemoryLost,
        ];
        let all = lost.chain(rejected).chain(forms).chain(replies).chain(ends);
        all.map(|error| error.after(sent)).collect()
    }

    #[test]
    fn execution_follows_from_what_was_sent() {
        for sent in [Sent::Nothing, Sent::Here, Sent::Before] {
            for error in errors(sent) {
                // An exhaustive match, so that a new variant must be added here, too.
                let is_proof = match error {
                    CallError::ConnectionLost(
                        CloseReason::Protocol(Fatal::VersionRefused { .. }),
                        _,
                    ) => true,
                    CallError::ConnectionLost(..)
                    | CallError::DeadlineExceeded(_)
                    | CallError::Cancelled(_)
                    | CallError::Rejected(
                        Refusal::BadHeader
                        | Refusal::InvalOption
                        | Refusal::BadReply
                        | Refusal::Reported(_),
                        _,
                    ) => false,
                    CallError::FormRefused(..)
                    | CallError::Rejected(Refusal::Version { .. }, _) => true,
                    CallError::Rejected(refusal, _) => panic!("nothing is expected of {refusal}"),
                    // Something was sent, whatever is said.
                    CallError::MemoryLost | CallError::BadReply(_) => {
                        assert_eq!(error.execution(), Execution::Unknown, "{error}");
                        continue;
                    }
                };
                let expected = match sent {
                    Sent::Nothing => Execution::NotExecuted,
                    Sent::Here if is_proof => Execution::NotExecuted,
                    Sent::Here | Sent::Before => Execution::Unknown,
                };
                assert_eq!(error.execution(), expected, "{sent:?}: {error}");
                assert!(error.to_string().ends_with(&expected.to_string()), "{error}");
                let is_known = expected == Execution::NotExecuted;
                let is_lost = matches!(error, CallError::ConnectionLost(..));
                let is_repeatable = is_proof && is_known && !is_lost;
                assert_eq!(error.is_repeatable(), is_repeatable, "{sent:?}: {error}");
            }
        }
    }

    /// Error texts contain no names of the code and no braces.
    #[test]
    fn error_texts_contain_no_rust_names() {
        let sent = [
            SendError::NotEnoughCredits { need: 4, have: 3 },
            SendError::NotEnoughReceives { need: 4, have: 3 },
            SendError::TableFull { max: 64 },
            SendError::NoBackward,
            SendError::NotReady,
            SendError::TooLong { len: 5 << 20, max: 4 << 20 },
            SendError::ReplyTooLong { len: 5 << 20, max: 4 << 20 },
            SendError::Misuse(Misuse("a payload is a multiple of four bytes")),
        ];
        let refused = sent.map(CallRefused::Protocol);
        let texts = errors(Sent::Here).iter().map(ToString::to_string).collect::<Vec<_>>();
        let texts = texts.into_iter().chain(refused.iter().map(ToString::to_string));
        for text in texts.chain(reasons().iter().map(ToString::to_string)) {
            let is_code = text.contains(['{', '}']) || text.contains("Error(");
            let has_name = text.split(|it: char| !it.is_alphanumeric()).any(|word| {
                word.chars().skip(1).any(char::is_uppercase)
                    && word.chars().any(char::is_lowercase)
                    && word != "RDMAs"
            });
            assert!(!is_code && !has_name, "{text}");
        }
        let long = CallRefused::Protocol(sent[5]).to_string();
        assert!(long.contains("5242880") && long.contains("4194304"), "{long}");
    }

    #[test]
    fn transient_refusals_are_distinguished_from_permanent_ones() {
        let later = |why| CallRefused::Protocol(why).is_transient();
        assert!(CallRefused::Busy.is_transient());
        assert!(later(SendError::NotEnoughCredits { need: 4, have: 3 }));
        assert!(later(SendError::NotEnoughReceives { need: 4, have: 3 }));
        assert!(later(SendError::NotReady) && later(SendError::TableFull { max: 1 }));
        assert!(!later(SendError::TooLong { len: 2, max: 1 }) && !later(SendError::NoBackward));
        assert!(!CallRefused::NoPeer.is_transient() && !CallRefused::Stopping.is_transient());
    }
}
