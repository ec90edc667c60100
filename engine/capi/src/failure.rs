//! The last failure of each thread: a number at once, its text when it is asked for.

use core::cell::{Cell, RefCell};
use core::ffi::{CStr, c_char, c_int};
use std::ffi::CString;

use ::rpcrdma::{
    CallError, CallRefused, CloseReason, ConnectError, HostRefusal, ReadError, Refusal, Rejection,
    SendError, SessionError, SessionRefused, SetupError, TakeError,
};

use crate::status::rpcrdma_status::{self, *};
use crate::texts::text;

/// What failed, with its values.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Failure {
    /// An argument, by its name.
    Invalid(&'static str),
    /// Something that the text of the status states.
    Plain(rpcrdma_status),
    Refused(CallRefused),
    NotAccepted(SessionRefused),
    Call(CallError),
    SessionCall(SessionError),
    Connect(ConnectError),
    Close(CloseReason),
    Take(TakeError),
    Read(ReadError),
    /// The text is kept already.
    Kept(rpcrdma_status),
}

thread_local! {
    static LAST: Cell<Option<Failure>> = const { Cell::new(None) };
    /// The text of [`Failure::Kept`], and the one that was asked for.
    static TEXTS: RefCell<(CString, CString)> = RefCell::default();
}

/// Keeps a failure. Returns its number.
#[cold]
pub(crate) fn fail(failure: Failure) -> c_int {
    LAST.set(Some(failure));
    failure.status().number()
}

/// Fails with what the text of a status states.
#[cold]
pub(crate) fn plain(status: rpcrdma_status) -> c_int {
    fail(Failure::Plain(status))
}

/// Fails for an argument. Not inlined: what calls it needs no place for the failure.
#[cold]
#[inline(never)]
pub(crate) fn invalid(name: &'static str) -> c_int {
    fail(Failure::Invalid(name))
}

/// Fails with a text.
#[cold]
pub(crate) fn with_text(status: rpcrdma_status, text: &dyn core::fmt::Display) -> c_int {
    // At the end of a thread there may be no place for it any more.
    let _ = TEXTS.try_with(|texts| texts.borrow_mut().0 = c_text(text));
    fail(Failure::Kept(status))
}

/// Fails with an error of the set-up.
#[cold]
pub(crate) fn setup(error: &SetupError) -> c_int {
    let status = match error {
        SetupError::Limit { .. } => RPCRDMA_E_LIMIT,
        SetupError::Config(_) | SetupError::Invalid { .. } => RPCRDMA_E_CONFIG,
        SetupError::Unmet { .. } => RPCRDMA_E_UNMET,
        SetupError::System { .. } => RPCRDMA_E_SYSTEM,
        SetupError::Library { .. } => RPCRDMA_E_LIBRARY,
        SetupError::NoDevice { .. } => RPCRDMA_E_NO_DEVICE,
        SetupError::Memory { .. } => RPCRDMA_E_MEMORY,
        SetupError::Listen { .. } => RPCRDMA_E_LISTEN,
        SetupError::Connect { reason, .. } => connect(*reason),
        SetupError::Core { .. } => RPCRDMA_E_CORE,
        SetupError::Stopped => RPCRDMA_E_STOPPED,
        SetupError::Panicked(_) => RPCRDMA_E_PANICKED,
        _ => RPCRDMA_E_SYSTEM,
    };
    with_text(status, error)
}

/// The text of the last failure of this thread, with its values; empty if there was none. Valid
/// until the next call of this function by the thread. It is made when it is asked for: a refused
/// call costs no text.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_last_error() -> *const c_char {
    const NOTHING: &CStr = c"";
    let Some(failure) = LAST.get() else { return NOTHING.as_ptr() };
    let made = TEXTS.try_with(|texts| {
        let mut texts = texts.borrow_mut();
        texts.1 = match failure {
            Failure::Kept(_) => texts.0.clone(),
            _ => c_text(&failure.text()),
        };
        texts.1.as_ptr()
    });
    made.unwrap_or(NOTHING.as_ptr())
}

/// A value as a text of C.
pub(crate) fn c_text(shown: &dyn core::fmt::Display) -> CString {
    CString::new(shown.to_string().replace('\0', " ")).unwrap_or_default()
}

impl Failure {
    pub(crate) fn status(&self) -> rpcrdma_status {
        match self {
            Failure::Invalid(_) => RPCRDMA_E_INVALID,
            Failure::Plain(status) | Failure::Kept(status) => *status,
            Failure::Refused(why) | Failure::NotAccepted(SessionRefused::Call(why)) => refused(why),
            Failure::NotAccepted(SessionRefused::NoConnection(why))
            | Failure::SessionCall(SessionError::NoConnection(why, _)) => connect(*why),
            Failure::NotAccepted(SessionRefused::Full) => RPCRDMA_E_QUEUE_FULL,
            Failure::NotAccepted(SessionRefused::Closed) => RPCRDMA_E_CLOSED,
            Failure::Call(error) => call(error),
            Failure::SessionCall(SessionError::Call(error)) => call(error),
            Failure::SessionCall(SessionError::Refused(why, _)) => refused(why),
            Failure::SessionCall(SessionError::DeadlineExceeded(..)) => RPCRDMA_E_DEADLINE,
            Failure::SessionCall(SessionError::Closed(_)) => RPCRDMA_E_CLOSED,
            Failure::Connect(why) => connect(*why),
            Failure::Close(why) => close(why),
            Failure::Take(TakeError::NoSuchPiece) => RPCRDMA_E_NOTHING,
            Failure::Take(TakeError::Taken) => RPCRDMA_E_TAKEN,
            Failure::Take(TakeError::Shared { .. }) => RPCRDMA_E_SHARED,
            Failure::Take(TakeError::NoSpare) => RPCRDMA_E_NO_SPARE,
            Failure::Read(ReadError::End(_)) => RPCRDMA_E_END,
            Failure::Read(ReadError::TooLong { .. }) => RPCRDMA_E_OPAQUE_TOO_LONG,
            Failure::Read(ReadError::BadBool { .. }) => RPCRDMA_E_BAD_BOOL,
            // The engine's errors may become more; their text says which one it is.
            Failure::NotAccepted(_)
            | Failure::SessionCall(_)
            | Failure::Take(_)
            | Failure::Read(_) => RPCRDMA_E_OTHER,
        }
    }

    fn text(&self) -> String {
        match self {
            Failure::Invalid(name) => format!("invalid: {name}"),
            Failure::Plain(status) | Failure::Kept(status) => {
                text(*status).to_string_lossy().into_owned()
            }
            Failure::Refused(why) => why.to_string(),
            Failure::NotAccepted(why) => why.to_string(),
            Failure::Call(error) => error.to_string(),
            Failure::SessionCall(error) => error.to_string(),
            Failure::Connect(why) => why.to_string(),
            Failure::Close(why) => why.to_string(),
            Failure::Take(why) => why.to_string(),
            Failure::Read(why) => why.to_string(),
        }
    }
}

fn refused(why: &CallRefused) -> rpcrdma_status {
    match why {
        CallRefused::NoPeer => RPCRDMA_E_NO_PEER,
        CallRefused::Stopping => RPCRDMA_E_STOPPING,
        CallRefused::Busy => RPCRDMA_E_BUSY,
        CallRefused::PayloadTooLong => RPCRDMA_E_PAYLOAD_TOO_LONG,
        CallRefused::TooManyPieces => RPCRDMA_E_TOO_MANY_PIECES,
        CallRefused::Incomplete => RPCRDMA_E_INCOMPLETE,
        CallRefused::TooLittleMemory => RPCRDMA_E_TOO_LITTLE_MEMORY,
        CallRefused::CannotExpose => RPCRDMA_E_CANNOT_EXPOSE,
        CallRefused::Protocol(why) => match why {
            SendError::NeedsExplicitRdma { .. } => RPCRDMA_E_NEEDS_RDMA,
            SendError::NoRoute { .. } | SendError::TooLong { .. } => RPCRDMA_E_TOO_LONG,
            SendError::ReplyTooLong { .. } => RPCRDMA_E_REPLY_TOO_LONG,
            SendError::RoomTooSmall { .. } => RPCRDMA_E_ROOM_TOO_SMALL,
            SendError::NotEnoughCredits { .. } => RPCRDMA_E_NO_CREDITS,
            SendError::NotEnoughReceives { .. } => RPCRDMA_E_NO_RECEIVES,
            SendError::TableFull { .. } => RPCRDMA_E_TABLE_FULL,
            SendError::NoBackward => RPCRDMA_E_NO_BACKWARD,
            SendError::NotReady => RPCRDMA_E_NOT_READY,
            SendError::TooManyPieces { .. } => RPCRDMA_E_TOO_MANY_PIECES,
            SendError::XidInUse { .. } => RPCRDMA_E_XID_IN_USE,
            SendError::XidNotOurs { .. } => RPCRDMA_E_XID_INVALID,
            _ => RPCRDMA_E_PROTOCOL,
        },
        _ => RPCRDMA_E_OTHER,
    }
}

fn call(error: &CallError) -> rpcrdma_status {
    match error {
        CallError::ConnectionLost(..) => RPCRDMA_E_CONNECTION_LOST,
        CallError::Rejected(Refusal::Version { .. }, _) => RPCRDMA_E_CALL_VERSION,
        CallError::Rejected(..) => RPCRDMA_E_CALL_REJECTED,
        CallError::FormRefused(..) => RPCRDMA_E_FORM_REFUSED,
        CallError::MemoryLost => RPCRDMA_E_MEMORY_LOST,
        CallError::DeadlineExceeded(_) => RPCRDMA_E_DEADLINE,
        CallError::Cancelled(_) => RPCRDMA_E_CANCELLED,
        CallError::BadReply(_) => RPCRDMA_E_BAD_REPLY,
        _ => RPCRDMA_E_OTHER,
    }
}

fn connect(why: ConnectError) -> rpcrdma_status {
    match why {
        ConnectError::NoListener => RPCRDMA_E_NO_LISTENER,
        ConnectError::WrongAddress { .. } => RPCRDMA_E_WRONG_ADDRESS,
        ConnectError::Rejected(why) => match why {
            Rejection::NotAllowed => RPCRDMA_E_NOT_ALLOWED,
            Rejection::Refused { .. } => RPCRDMA_E_REFUSED,
            Rejection::Full => RPCRDMA_E_PEER_FULL,
            Rejection::PeerFull => RPCRDMA_E_QUOTA_FULL,
            Rejection::Busy => RPCRDMA_E_PEER_BUSY,
            Rejection::Stopping => RPCRDMA_E_PEER_STOPPING,
            Rejection::Unfit => RPCRDMA_E_UNFIT,
            _ => RPCRDMA_E_REJECTED,
        },
        ConnectError::TimedOut => RPCRDMA_E_CONNECT_TIMED_OUT,
        ConnectError::NoRoute => RPCRDMA_E_NO_ROUTE,
        ConnectError::RefusedHere(why) => match why {
            HostRefusal::Limit { .. } => RPCRDMA_E_LIMIT,
            HostRefusal::Memory { .. } => RPCRDMA_E_MEMORY,
            HostRefusal::Invalid { .. } | HostRefusal::Config => RPCRDMA_E_CONFIG,
            HostRefusal::Unmet { .. } => RPCRDMA_E_UNMET,
            _ => RPCRDMA_E_CONNECT_FAILED,
        },
        ConnectError::Failed | ConnectError::CallFailed { .. } => RPCRDMA_E_CONNECT_FAILED,
        ConnectError::Stopped => RPCRDMA_E_STOPPED,
        ConnectError::NoRoom => RPCRDMA_E_NO_ROOM,
        ConnectError::Lost => RPCRDMA_E_CONNECT_LOST,
        ConnectError::Version { .. } => RPCRDMA_E_VERSION,
        _ => RPCRDMA_E_OTHER,
    }
}

fn close(why: &CloseReason) -> rpcrdma_status {
    match why {
        CloseReason::Local => RPCRDMA_E_CLOSED_HERE,
        CloseReason::Stopped => RPCRDMA_E_SHARD_STOPPED,
        CloseReason::PeerGone => RPCRDMA_E_PEER_GONE,
        CloseReason::Protocol(_) => RPCRDMA_E_PEER_BROKE_RULES,
        CloseReason::NotTaking => RPCRDMA_E_NOT_TAKING,
        CloseReason::Invalid => RPCRDMA_E_WORK_INVALID,
        CloseReason::Transport(_) => RPCRDMA_E_TRANSPORT,
        CloseReason::TimedOut => RPCRDMA_E_PEER_TIMED_OUT,
        CloseReason::NotAnswering => RPCRDMA_E_NOT_ANSWERING,
        CloseReason::Idle => RPCRDMA_E_IDLE,
        CloseReason::Refused => RPCRDMA_E_REFUSED_HERE,
        CloseReason::Failed => RPCRDMA_E_QP_FAILED,
        CloseReason::Unasked => RPCRDMA_E_UNASKED,
        CloseReason::DeviceLost => RPCRDMA_E_DEVICE_LOST,
        CloseReason::Queue(_) => RPCRDMA_E_CQ_FAILED,
        _ => RPCRDMA_E_OTHER,
    }
}

#[cfg(test)]
mod tests {
    use ::rpcrdma::provider::{CqError, WcStatus};
    use ::rpcrdma::{Address, EngineThread, Execution, Fatal, Panicked, Violation};

    use super::*;

    /// Compares the status of each failure.
    fn check<T: core::fmt::Debug>(
        table: &[(T, rpcrdma_status)],
        status: impl Fn(&T) -> rpcrdma_status,
    ) {
        for (failure, expected) in table {
            assert_eq!(status(failure), *expected, "{failure:?}");
        }
    }

    #[test]
    fn what_cannot_be_set_up_has_a_status_of_its_own() {
        let text = String::new;
        let at = || Box::new("127.0.0.1:1".parse::<Address>().expect("an address"));
        let missing = std::io::Error::from_raw_os_error(2);
        let table = [
            (SetupError::Limit { what: "", needed: 2, limit: 1, device: text() }, RPCRDMA_E_LIMIT),
            (SetupError::Config(text()), RPCRDMA_E_CONFIG),
            (SetupError::Invalid { what: "", value: text(), allowed: text() }, RPCRDMA_E_CONFIG),
            (SetupError::Unmet { key: "", given: text(), reason: text() }, RPCRDMA_E_UNMET),
            (SetupError::System { call: "", source: missing, hint: "" }, RPCRDMA_E_SYSTEM),
            (SetupError::Library { library: "", reason: text(), advice: "" }, RPCRDMA_E_LIBRARY),
            (SetupError::NoDevice { wanted: text(), found: text() }, RPCRDMA_E_NO_DEVICE),
            (SetupError::Memory { what: "", reason: text() }, RPCRDMA_E_MEMORY),
            (SetupError::Listen { address: at(), reason: "" }, RPCRDMA_E_LISTEN),
            (SetupError::Connect { to: at(), reason: ConnectError::NoRoom }, RPCRDMA_E_NO_ROOM),
            (SetupError::Core { core: 1, reason: text() }, RPCRDMA_E_CORE),
            (SetupError::Stopped, RPCRDMA_E_STOPPED),
            (SetupError::Panicked(Panicked::new(EngineThread::Control, "")), RPCRDMA_E_PANICKED),
        ];
        for (error, expected) in table {
            assert_eq!(setup(&error), expected.number(), "{error:?}");
        }
    }

    #[test]
    fn a_call_that_is_not_made_has_a_status_of_its_own() {
        let (need, have, max, len) = (2, 1, 1, 2);
        let table = [
            (CallRefused::NoPeer, RPCRDMA_E_NO_PEER),
            (CallRefused::Stopping, RPCRDMA_E_STOPPING),
            (CallRefused::Busy, RPCRDMA_E_BUSY),
            (CallRefused::PayloadTooLong, RPCRDMA_E_PAYLOAD_TOO_LONG),
            (CallRefused::TooManyPieces, RPCRDMA_E_TOO_MANY_PIECES),
            (CallRefused::Incomplete, RPCRDMA_E_INCOMPLETE),
            (CallRefused::TooLittleMemory, RPCRDMA_E_TOO_LITTLE_MEMORY),
            (CallRefused::CannotExpose, RPCRDMA_E_CANNOT_EXPOSE),
        ];
        check(&table, refused);
        let table = [
            (
                SendError::NeedsExplicitRdma { payload: 1, bulk: 1, transmissions: 2, limit: 1 },
                RPCRDMA_E_NEEDS_RDMA,
            ),
            (
                SendError::NoRoute { payload: 1, bulk: 1, reply: 1, call_max: 1, reply_max: 1 },
                RPCRDMA_E_TOO_LONG,
            ),
            (SendError::TooLong { len, max }, RPCRDMA_E_TOO_LONG),
            (SendError::ReplyTooLong { len: 2, max }, RPCRDMA_E_REPLY_TOO_LONG),
            (SendError::RoomTooSmall { need, have: 1 }, RPCRDMA_E_ROOM_TOO_SMALL),
            (SendError::NotEnoughCredits { need, have }, RPCRDMA_E_NO_CREDITS),
            (SendError::NotEnoughReceives { need, have }, RPCRDMA_E_NO_RECEIVES),
            (SendError::TableFull { max }, RPCRDMA_E_TABLE_FULL),
            (SendError::NoBackward, RPCRDMA_E_NO_BACKWARD),
            (SendError::NotReady, RPCRDMA_E_NOT_READY),
            (SendError::TooManyPieces { need, max }, RPCRDMA_E_TOO_MANY_PIECES),
            (SendError::XidInUse { xid: 1 }, RPCRDMA_E_XID_IN_USE),
            (SendError::XidNotOurs { xid: 1, min: 2, max: 3 }, RPCRDMA_E_XID_INVALID),
            (SendError::UnknownCall, RPCRDMA_E_PROTOCOL),
        ];
        check(&table, |why| refused(&CallRefused::Protocol(*why)));
    }

    #[test]
    fn a_call_that_fails_has_a_status_of_its_own() {
        let known = Execution::Unknown;
        let version = Refusal::Version { low: 3, high: 4 };
        let table = [
            (CallError::ConnectionLost(CloseReason::Local, known), RPCRDMA_E_CONNECTION_LOST),
            (CallError::Rejected(version, known), RPCRDMA_E_CALL_VERSION),
            (CallError::Rejected(Refusal::BadHeader, known), RPCRDMA_E_CALL_REJECTED),
            (CallError::FormRefused(Refusal::InvalOption, known), RPCRDMA_E_FORM_REFUSED),
            (CallError::MemoryLost, RPCRDMA_E_MEMORY_LOST),
            (CallError::DeadlineExceeded(known), RPCRDMA_E_DEADLINE),
            (CallError::Cancelled(known), RPCRDMA_E_CANCELLED),
            (CallError::BadReply(Violation::BadHeader("")), RPCRDMA_E_BAD_REPLY),
        ];
        check(&table, |error| Failure::Call(*error).status());
        check(&table, |error| Failure::SessionCall(SessionError::Call(*error)).status());
    }

    #[test]
    fn a_connection_that_is_not_made_has_a_status_of_its_own() {
        let rejected = ConnectError::Rejected;
        let table = [
            (ConnectError::NoListener, RPCRDMA_E_NO_LISTENER),
            (ConnectError::WrongAddress { reason: "" }, RPCRDMA_E_WRONG_ADDRESS),
            (rejected(Rejection::NotAllowed), RPCRDMA_E_NOT_ALLOWED),
            (rejected(Rejection::Refused { code: 1 }), RPCRDMA_E_REFUSED),
            (rejected(Rejection::Full), RPCRDMA_E_PEER_FULL),
            (rejected(Rejection::PeerFull), RPCRDMA_E_QUOTA_FULL),
            (rejected(Rejection::Busy), RPCRDMA_E_PEER_BUSY),
            (rejected(Rejection::Stopping), RPCRDMA_E_PEER_STOPPING),
            (rejected(Rejection::Unfit), RPCRDMA_E_UNFIT),
            (rejected(Rejection::Unstated), RPCRDMA_E_REJECTED),
            (ConnectError::TimedOut, RPCRDMA_E_CONNECT_TIMED_OUT),
            (ConnectError::NoRoute, RPCRDMA_E_NO_ROUTE),
            (ConnectError::Failed, RPCRDMA_E_CONNECT_FAILED),
            (HostRefusal::Limit { what: "", needed: 2, limit: 1 }.into(), RPCRDMA_E_LIMIT),
            (HostRefusal::Memory { what: "" }.into(), RPCRDMA_E_MEMORY),
            (HostRefusal::Invalid { what: "" }.into(), RPCRDMA_E_CONFIG),
            (HostRefusal::Config.into(), RPCRDMA_E_CONFIG),
            (HostRefusal::Unmet { key: "" }.into(), RPCRDMA_E_UNMET),
            (ConnectError::CallFailed { call: "", errno: 1, hint: "" }, RPCRDMA_E_CONNECT_FAILED),
            (ConnectError::Stopped, RPCRDMA_E_STOPPED),
            (ConnectError::NoRoom, RPCRDMA_E_NO_ROOM),
            (ConnectError::Lost, RPCRDMA_E_CONNECT_LOST),
            (ConnectError::Version { low: 3, high: 4 }, RPCRDMA_E_VERSION),
        ];
        check(&table, |why| Failure::Connect(*why).status());
    }

    #[test]
    fn the_end_of_a_connection_has_a_status_of_its_own() {
        let fatal = Fatal::CreditOverstep { outstanding: 5, granted: 4 };
        let table = [
            (CloseReason::Local, RPCRDMA_E_CLOSED_HERE),
            (CloseReason::Stopped, RPCRDMA_E_SHARD_STOPPED),
            (CloseReason::PeerGone, RPCRDMA_E_PEER_GONE),
            (CloseReason::Protocol(fatal), RPCRDMA_E_PEER_BROKE_RULES),
            (CloseReason::NotTaking, RPCRDMA_E_NOT_TAKING),
            (CloseReason::Invalid, RPCRDMA_E_WORK_INVALID),
            (CloseReason::Transport(WcStatus::RnrRetryExceeded), RPCRDMA_E_TRANSPORT),
            (CloseReason::TimedOut, RPCRDMA_E_PEER_TIMED_OUT),
            (CloseReason::NotAnswering, RPCRDMA_E_NOT_ANSWERING),
            (CloseReason::Idle, RPCRDMA_E_IDLE),
            (CloseReason::Refused, RPCRDMA_E_REFUSED_HERE),
            (CloseReason::Failed, RPCRDMA_E_QP_FAILED),
            (CloseReason::Unasked, RPCRDMA_E_UNASKED),
            (CloseReason::DeviceLost, RPCRDMA_E_DEVICE_LOST),
            (CloseReason::Queue(CqError::Device(5)), RPCRDMA_E_CQ_FAILED),
        ];
        check(&table, |why| Failure::Close(*why).status());
    }

    #[test]
    fn what_a_session_or_a_message_refuses_has_a_status_of_its_own() {
        let (known, no_room) = (Execution::NotExecuted, ConnectError::NoRoom);
        let table = [
            (Failure::Invalid(""), RPCRDMA_E_INVALID),
            (Failure::Plain(RPCRDMA_E_NOTHING), RPCRDMA_E_NOTHING),
            (Failure::Kept(RPCRDMA_E_UNMET), RPCRDMA_E_UNMET),
            (Failure::Refused(CallRefused::Busy), RPCRDMA_E_BUSY),
            (Failure::NotAccepted(SessionRefused::Call(CallRefused::Busy)), RPCRDMA_E_BUSY),
            (Failure::NotAccepted(SessionRefused::NoConnection(no_room)), RPCRDMA_E_NO_ROOM),
            (Failure::NotAccepted(SessionRefused::Full), RPCRDMA_E_QUEUE_FULL),
            (Failure::NotAccepted(SessionRefused::Closed), RPCRDMA_E_CLOSED),
            (Failure::SessionCall(SessionError::NoConnection(no_room, known)), RPCRDMA_E_NO_ROOM),
            (
                Failure::SessionCall(SessionError::Refused(CallRefused::Incomplete, known)),
                RPCRDMA_E_INCOMPLETE,
            ),
            (Failure::SessionCall(SessionError::Closed(known)), RPCRDMA_E_CLOSED),
            (Failure::Take(TakeError::NoSuchPiece), RPCRDMA_E_NOTHING),
            (Failure::Take(TakeError::Taken), RPCRDMA_E_TAKEN),
            (Failure::Take(TakeError::Shared { offset: 4 }), RPCRDMA_E_SHARED),
            (Failure::Take(TakeError::NoSpare), RPCRDMA_E_NO_SPARE),
            (Failure::Read(ReadError::End(::rpcrdma::EndOfMessage)), RPCRDMA_E_END),
            (Failure::Read(ReadError::TooLong { len: 2, max: 1 }), RPCRDMA_E_OPAQUE_TOO_LONG),
            (Failure::Read(ReadError::BadBool { value: 2 }), RPCRDMA_E_BAD_BOOL),
            (Failure::Read(ReadError::BadText { valid_up_to: 0 }), RPCRDMA_E_OTHER),
        ];
        check(&table, Failure::status);
    }
}
