//! The texts of the statuses, and the statuses of numbers.

use core::ffi::{CStr, c_char, c_int};

use crate::status::rpcrdma_status;
use rpcrdma_status::*;

/// The meaning of a status.
pub(crate) fn text(status: rpcrdma_status) -> &'static CStr {
    match status {
        RPCRDMA_OK => c"success",
        RPCRDMA_E_INVALID => c"an argument is invalid: NULL, out of its range, an object that was given away, or a second answer to a call",
        RPCRDMA_E_PANICKED => c"the library or the shard has panicked: a defect of the library",
        RPCRDMA_E_NOTHING => c"there is no such thing: no event, no item, no memory to take",
        RPCRDMA_E_TRUNCATED => c"the text does not fit the given memory; it is cut off",
        RPCRDMA_E_UNSUPPORTED => c"the library was built without this",
        RPCRDMA_E_STOPPED => c"the engine, shard, client or session has stopped",
        RPCRDMA_E_PENDING => c"the connection attempt is not decided yet: poll, and ask again",
        RPCRDMA_E_NO_BUFFER => c"no registered buffer is free: poll, so that others return",
        RPCRDMA_E_OTHER => c"a reason that has no number",
        RPCRDMA_E_NO_TURN => c"the shard took no turn in time",
        RPCRDMA_E_CONFIG => c"the configuration is wrong, or does not fit the device or the machine",
        RPCRDMA_E_LIMIT => c"a limit of the device is exceeded",
        RPCRDMA_E_UNMET => c"the device or the system cannot do what a key of the configuration requires",
        RPCRDMA_E_SYSTEM => c"a system call, or a call of an RDMA library, failed",
        RPCRDMA_E_LIBRARY => c"an RDMA library is missing",
        RPCRDMA_E_NO_DEVICE => c"the RDMA device does not exist",
        RPCRDMA_E_MEMORY => c"memory could not be allocated or registered",
        RPCRDMA_E_LISTEN => c"the address cannot be listened on",
        RPCRDMA_E_CORE => c"a thread could not be pinned to its core",
        RPCRDMA_E_ADDRESS => c"the text is no address: ADDR:PORT, [ADDR]:PORT, shm:/PATH or shm:@NAME",
        RPCRDMA_E_NO_LISTENER => c"no program listens at the address",
        RPCRDMA_E_WRONG_ADDRESS => c"the provider takes no address of this kind",
        RPCRDMA_E_REJECTED => c"the peer rejects the connection and states no reason",
        RPCRDMA_E_NOT_ALLOWED => c"the peer's configuration does not allow this host or user",
        RPCRDMA_E_REFUSED => c"the peer's program refuses the connection",
        RPCRDMA_E_PEER_FULL => c"the peer has no room for a connection",
        RPCRDMA_E_QUOTA_FULL => c"the peer has as many connections of this host or user as it allows",
        RPCRDMA_E_PEER_BUSY => c"the peer could not take the connection in time",
        RPCRDMA_E_PEER_STOPPING => c"the peer is shutting down",
        RPCRDMA_E_UNFIT => c"the sizes of both sides do not fit (shm.staging)",
        RPCRDMA_E_CONNECT_TIMED_OUT => c"the peer did not answer the attempt to connect in time",
        RPCRDMA_E_NO_ROUTE => c"there is no route to the address from this device",
        RPCRDMA_E_CONNECT_FAILED => c"a call of this host failed while it connected",
        RPCRDMA_E_NO_ROOM => c"this side has as many connections as its configuration allows (connections.max)",
        RPCRDMA_E_CONNECT_LOST => c"the connection was lost before it could be used",
        RPCRDMA_E_VERSION => c"both sides have no version of RPC-over-RDMA in common",
        RPCRDMA_E_NO_PEER => c"not sent: the connection has ended, or belongs to another shard",
        RPCRDMA_E_STOPPING => c"not sent: the shard is stopping",
        RPCRDMA_E_BUSY => c"not sent: no send slot or call slot is free: poll, then try again",
        RPCRDMA_E_PAYLOAD_TOO_LONG => c"not sent: the payload is longer than the send slots of one message (send.length, send.slots)",
        RPCRDMA_E_TOO_MANY_PIECES => c"not sent: more items or pieces than one message can carry",
        RPCRDMA_E_INCOMPLETE => c"not sent: memory of the call was taken out of it",
        RPCRDMA_E_TOO_LITTLE_MEMORY => c"not sent: more memory windows or RDMA buffers than the shard has (explicit.windows, explicit.buffers)",
        RPCRDMA_E_CANNOT_EXPOSE => c"not sent: memory of the call cannot be exposed to the peer",
        RPCRDMA_E_NEEDS_RDMA => c"not sent: the message needs explicit RDMA, which is off (explicit.enabled)",
        RPCRDMA_E_TOO_LONG => c"not sent: the message exceeds the limits of this side or of the peer",
        RPCRDMA_E_REPLY_TOO_LONG => c"not sent: the reply may be longer than this side accepts",
        RPCRDMA_E_ROOM_TOO_SMALL => c"not sent: the caller offers less memory than the reply needs",
        RPCRDMA_E_NO_CREDITS => c"not sent: the peer's credits are used up",
        RPCRDMA_E_NO_RECEIVES => c"not sent: no Receives are free for the reply",
        RPCRDMA_E_TABLE_FULL => c"not sent: the maximum of calls is outstanding",
        RPCRDMA_E_NO_BACKWARD => c"not sent: the peer does not accept calls in this direction",
        RPCRDMA_E_NOT_READY => c"not sent: the connection is not ready",
        RPCRDMA_E_XID_IN_USE => c"not sent: the xid is in use",
        RPCRDMA_E_XID_INVALID => c"not sent: the xid is outside the range for calls of this side",
        RPCRDMA_E_PROTOCOL => c"not sent: the protocol does not permit it, for another reason",
        RPCRDMA_E_QUEUE_FULL => c"not accepted by a session: too many calls or bytes wait",
        RPCRDMA_E_CLOSED => c"not accepted by a session, or not executed: the session was closed",
        RPCRDMA_E_CONNECTION_LOST => c"the call's connection was lost",
        RPCRDMA_E_CALL_REJECTED => c"the peer reports an error instead of a reply",
        RPCRDMA_E_CALL_VERSION => c"the peer does not support this version of RPC-over-RDMA",
        RPCRDMA_E_FORM_REFUSED => c"the peer does not support the form of the call: repeat it, it is sent in another form",
        RPCRDMA_E_MEMORY_LOST => c"the device did not release the memory of the call",
        RPCRDMA_E_BAD_REPLY => c"the reply broke the rules, and is lost",
        RPCRDMA_E_DEADLINE => c"the call exceeded its deadline",
        RPCRDMA_E_CANCELLED => c"the program cancelled the call",
        RPCRDMA_E_END => c"the message ends before the data",
        RPCRDMA_E_OPAQUE_TOO_LONG => c"opaque data are longer than the caller allows",
        RPCRDMA_E_BAD_BOOL => c"a boolean of the message is neither 0 nor 1",
        RPCRDMA_E_TAKEN => c"the piece was taken before",
        RPCRDMA_E_SHARED => c"the segment holds other data in front of the piece: copy it",
        RPCRDMA_E_NO_SPARE => c"no spare segment is left: copy the piece",
        RPCRDMA_E_HEADER => c"the RPC header of a message is invalid",
        RPCRDMA_E_DENIED => c"the server did not execute the call, as the RPC header of its reply states; or the call was denied, and its caller got an error",
        RPCRDMA_E_CLOSED_HERE => c"connection ended: this program closed it",
        RPCRDMA_E_SHARD_STOPPED => c"connection ended: the shard was stopped",
        RPCRDMA_E_PEER_GONE => c"connection ended: the peer disconnected or died",
        RPCRDMA_E_PEER_BROKE_RULES => c"connection ended: the peer broke the protocol",
        RPCRDMA_E_NOT_TAKING => c"connection ended: the peer does not receive while it sends",
        RPCRDMA_E_WORK_INVALID => c"connection ended: a work request exceeded a limit of the device",
        RPCRDMA_E_TRANSPORT => c"connection ended: a work request failed",
        RPCRDMA_E_PEER_TIMED_OUT => c"connection ended: the peer did not complete a message, a negotiation or an RDMA Read in time",
        RPCRDMA_E_NOT_ANSWERING => c"connection ended: the peer did not answer a call in time (connections.call_timeout)",
        RPCRDMA_E_IDLE => c"connection ended: the peer sent no call for too long (connections.idle_timeout)",
        RPCRDMA_E_REFUSED_HERE => c"connection ended: the handler rejected it",
        RPCRDMA_E_QP_FAILED => c"connection ended: the device put the queue pair into the error state",
        RPCRDMA_E_UNASKED => c"connection ended: the device completed what was not posted",
        RPCRDMA_E_DEVICE_LOST => c"connection ended: the device was removed or has failed",
        RPCRDMA_E_CQ_FAILED => c"connection ended: the completion queue failed",
    }
}

/// All of them.
pub(crate) const ALL: &[rpcrdma_status] = &[
    RPCRDMA_OK,
    RPCRDMA_E_INVALID,
    RPCRDMA_E_PANICKED,
    RPCRDMA_E_NOTHING,
    RPCRDMA_E_TRUNCATED,
    RPCRDMA_E_UNSUPPORTED,
    RPCRDMA_E_STOPPED,
    RPCRDMA_E_PENDING,
    RPCRDMA_E_NO_BUFFER,
    RPCRDMA_E_OTHER,
    RPCRDMA_E_NO_TURN,
    RPCRDMA_E_CONFIG,
    RPCRDMA_E_LIMIT,
    RPCRDMA_E_UNMET,
    RPCRDMA_E_SYSTEM,
    RPCRDMA_E_LIBRARY,
    RPCRDMA_E_NO_DEVICE,
    RPCRDMA_E_MEMORY,
    RPCRDMA_E_LISTEN,
    RPCRDMA_E_CORE,
    RPCRDMA_E_ADDRESS,
    RPCRDMA_E_NO_LISTENER,
    RPCRDMA_E_WRONG_ADDRESS,
    RPCRDMA_E_REJECTED,
    RPCRDMA_E_NOT_ALLOWED,
    RPCRDMA_E_REFUSED,
    RPCRDMA_E_PEER_FULL,
    RPCRDMA_E_QUOTA_FULL,
    RPCRDMA_E_PEER_BUSY,
    RPCRDMA_E_PEER_STOPPING,
    RPCRDMA_E_UNFIT,
    RPCRDMA_E_CONNECT_TIMED_OUT,
    RPCRDMA_E_NO_ROUTE,
    RPCRDMA_E_CONNECT_FAILED,
    RPCRDMA_E_NO_ROOM,
    RPCRDMA_E_CONNECT_LOST,
    RPCRDMA_E_VERSION,
    RPCRDMA_E_NO_PEER,
    RPCRDMA_E_STOPPING,
    RPCRDMA_E_BUSY,
    RPCRDMA_E_PAYLOAD_TOO_LONG,
    RPCRDMA_E_TOO_MANY_PIECES,
    RPCRDMA_E_INCOMPLETE,
    RPCRDMA_E_TOO_LITTLE_MEMORY,
    RPCRDMA_E_CANNOT_EXPOSE,
    RPCRDMA_E_NEEDS_RDMA,
    RPCRDMA_E_TOO_LONG,
    RPCRDMA_E_REPLY_TOO_LONG,
    RPCRDMA_E_ROOM_TOO_SMALL,
    RPCRDMA_E_NO_CREDITS,
    RPCRDMA_E_NO_RECEIVES,
    RPCRDMA_E_TABLE_FULL,
    RPCRDMA_E_NO_BACKWARD,
    RPCRDMA_E_NOT_READY,
    RPCRDMA_E_XID_IN_USE,
    RPCRDMA_E_XID_INVALID,
    RPCRDMA_E_PROTOCOL,
    RPCRDMA_E_QUEUE_FULL,
    RPCRDMA_E_CLOSED,
    RPCRDMA_E_CONNECTION_LOST,
    RPCRDMA_E_CALL_REJECTED,
    RPCRDMA_E_CALL_VERSION,
    RPCRDMA_E_FORM_REFUSED,
    RPCRDMA_E_MEMORY_LOST,
    RPCRDMA_E_BAD_REPLY,
    RPCRDMA_E_DEADLINE,
    RPCRDMA_E_CANCELLED,
    RPCRDMA_E_END,
    RPCRDMA_E_OPAQUE_TOO_LONG,
    RPCRDMA_E_BAD_BOOL,
    RPCRDMA_E_TAKEN,
    RPCRDMA_E_SHARED,
    RPCRDMA_E_NO_SPARE,
    RPCRDMA_E_HEADER,
    RPCRDMA_E_DENIED,
    RPCRDMA_E_CLOSED_HERE,
    RPCRDMA_E_SHARD_STOPPED,
    RPCRDMA_E_PEER_GONE,
    RPCRDMA_E_PEER_BROKE_RULES,
    RPCRDMA_E_NOT_TAKING,
    RPCRDMA_E_WORK_INVALID,
    RPCRDMA_E_TRANSPORT,
    RPCRDMA_E_PEER_TIMED_OUT,
    RPCRDMA_E_NOT_ANSWERING,
    RPCRDMA_E_IDLE,
    RPCRDMA_E_REFUSED_HERE,
    RPCRDMA_E_QP_FAILED,
    RPCRDMA_E_UNASKED,
    RPCRDMA_E_DEVICE_LOST,
    RPCRDMA_E_CQ_FAILED,
];

impl rpcrdma_status {
    /// The status of a number; `None` for one that this version does not have.
    pub fn of(number: c_int) -> Option<rpcrdma_status> {
        ALL.iter().copied().find(|status| status.number() == number)
    }
}

/// The meaning of a status, as a constant text. Never NULL.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_strerror(status: c_int) -> *const c_char {
    rpcrdma_status::of(status).map_or(c"unknown status", text).as_ptr()
}

/// The version of the library that the program runs with, such as "0.1.0"; `RPCRDMA_VERSION` is the
/// one that it was compiled for. A constant text.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Whether the same may succeed later: poll, and try again.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_is_transient(status: c_int) -> bool {
    rpcrdma_status::of(status).is_some_and(rpcrdma_status::is_transient)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_status_has_a_number_and_a_text_of_its_own() {
        let numbers: BTreeSet<_> = ALL.iter().map(|status| status.number()).collect();
        let texts: BTreeSet<_> = ALL.iter().map(|status| text(*status)).collect();
        assert_eq!((numbers.len(), texts.len()), (ALL.len(), ALL.len()));
        assert!(numbers.iter().all(|number| *number <= 0));
        for status in ALL {
            assert_eq!(rpcrdma_status::of(status.number()), Some(*status));
        }
        assert_eq!(rpcrdma_status::of(1), None);
    }

    #[test]
    fn the_list_of_all_is_complete() {
        let source = include_str!("status.rs");
        let is_one = |line: &&str| line.starts_with("    RPCRDMA_") && line.contains(" = -");
        // And success.
        assert_eq!(source.lines().filter(is_one).count() + 1, ALL.len());
    }
}
