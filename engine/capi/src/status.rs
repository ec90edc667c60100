//! Errors: numbers that never change their meaning.

use core::ffi::c_int;

use rpcrdma_status::*;

/// The result of a function, the outcome of a call, or the reason for the end of a connection. No
/// number ever changes its meaning; later versions may add numbers.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rpcrdma_status {
    /// Success.
    RPCRDMA_OK = 0,

    /// An argument is invalid: NULL, out of its range, an object that was given away, or a second
    /// answer to a call. Nothing has happened.
    RPCRDMA_E_INVALID = -1,
    /// The library or the shard has panicked: a defect of the library. The shard has ended.
    RPCRDMA_E_PANICKED = -2,
    /// There is no such thing: no event, no item, no memory to take.
    RPCRDMA_E_NOTHING = -3,
    /// The text does not fit the given memory; it is cut off.
    RPCRDMA_E_TRUNCATED = -4,
    /// The library was built without this.
    RPCRDMA_E_UNSUPPORTED = -5,
    /// The engine, shard, client or session has stopped.
    RPCRDMA_E_STOPPED = -6,
    /// The connection attempt is not decided yet: poll, and ask again.
    RPCRDMA_E_PENDING = -7,
    /// No registered buffer is free: poll, so that others return.
    RPCRDMA_E_NO_BUFFER = -8,
    /// A reason that has no number: `rpcrdma_last_error` says which.
    RPCRDMA_E_OTHER = -9,
    /// The shard took no turn in time: its thread is busy, or does not poll it.
    RPCRDMA_E_NO_TURN = -10,

    /// The configuration is wrong, or does not fit the device or the machine.
    RPCRDMA_E_CONFIG = -20,
    /// A limit of the device is exceeded.
    RPCRDMA_E_LIMIT = -21,
    /// The device or the system cannot do what a key of the configuration requires.
    RPCRDMA_E_UNMET = -22,
    /// A system call, or a call of an RDMA library, failed.
    RPCRDMA_E_SYSTEM = -23,
    /// An RDMA library is missing.
    RPCRDMA_E_LIBRARY = -24,
    /// The RDMA device does not exist.
    RPCRDMA_E_NO_DEVICE = -25,
    /// Memory could not be allocated or registered.
    RPCRDMA_E_MEMORY = -26,
    /// The address cannot be listened on.
    RPCRDMA_E_LISTEN = -27,
    /// A thread could not be pinned to its core.
    RPCRDMA_E_CORE = -28,
    /// The text is no address.
    RPCRDMA_E_ADDRESS = -29,

    /// No program listens at the address.
    RPCRDMA_E_NO_LISTENER = -40,
    /// The provider takes no address of this kind.
    RPCRDMA_E_WRONG_ADDRESS = -41,
    /// The peer rejects the connection and states no reason. Transient.
    RPCRDMA_E_REJECTED = -42,
    /// The peer's configuration does not allow this host or user.
    RPCRDMA_E_NOT_ALLOWED = -43,
    /// The peer's program refuses the connection.
    RPCRDMA_E_REFUSED = -44,
    /// The peer has no room for a connection. Transient.
    RPCRDMA_E_PEER_FULL = -45,
    /// The peer has as many connections of this host or user as it allows. Transient.
    RPCRDMA_E_QUOTA_FULL = -46,
    /// The peer could not take the connection in time. Transient.
    RPCRDMA_E_PEER_BUSY = -47,
    /// The peer stops. Transient.
    RPCRDMA_E_PEER_STOPPING = -48,
    /// The sizes of both sides do not fit (shm.staging).
    RPCRDMA_E_UNFIT = -49,
    /// The peer did not answer the attempt to connect in time.
    RPCRDMA_E_CONNECT_TIMED_OUT = -50,
    /// There is no route to the address from this device.
    RPCRDMA_E_NO_ROUTE = -51,
    /// A call of this host failed while it connected.
    RPCRDMA_E_CONNECT_FAILED = -52,
    /// This side has as many connections as its configuration allows (connections.max).
    RPCRDMA_E_NO_ROOM = -53,
    /// The connection was lost before it could be used.
    RPCRDMA_E_CONNECT_LOST = -54,
    /// Both sides have no version of RPC-over-RDMA in common.
    RPCRDMA_E_VERSION = -55,

    /// Not sent: the connection has ended, or belongs to another shard.
    RPCRDMA_E_NO_PEER = -60,
    /// Not sent: the shard is stopping.
    RPCRDMA_E_STOPPING = -61,
    /// Not sent: no send slot or call slot is free. Transient: poll, then try again.
    RPCRDMA_E_BUSY = -62,
    /// Not sent: the payload is longer than the send slots of one message.
    RPCRDMA_E_PAYLOAD_TOO_LONG = -63,
    /// Not sent: more items or pieces than one message can carry.
    RPCRDMA_E_TOO_MANY_PIECES = -64,
    /// Not sent: memory of the call was taken out of it.
    RPCRDMA_E_INCOMPLETE = -65,
    /// Not sent: more memory windows or RDMA buffers than the shard has.
    RPCRDMA_E_TOO_LITTLE_MEMORY = -66,
    /// Not sent: memory of the call cannot be exposed to the peer.
    RPCRDMA_E_CANNOT_EXPOSE = -67,
    /// Not sent: the message needs explicit RDMA, which is off.
    RPCRDMA_E_NEEDS_RDMA = -68,
    /// Not sent: the message exceeds the limits of this side or of the peer.
    RPCRDMA_E_TOO_LONG = -69,
    /// Not sent: the reply may be longer than this side accepts.
    RPCRDMA_E_REPLY_TOO_LONG = -70,
    /// Not sent: the caller offers less memory than the reply needs.
    RPCRDMA_E_ROOM_TOO_SMALL = -71,
    /// Not sent: the peer's credits are used up. Transient.
    RPCRDMA_E_NO_CREDITS = -72,
    /// Not sent: no Receives are free for the reply. Transient.
    RPCRDMA_E_NO_RECEIVES = -73,
    /// Not sent: the maximum of calls is outstanding. Transient.
    RPCRDMA_E_TABLE_FULL = -74,
    /// Not sent: the peer takes no calls in this direction.
    RPCRDMA_E_NO_BACKWARD = -75,
    /// Not sent: the connection is not ready. Transient.
    RPCRDMA_E_NOT_READY = -76,
    /// Not sent: the xid is in use. Transient.
    RPCRDMA_E_XID_IN_USE = -77,
    /// Not sent: the xid is none of those for calls of this side.
    RPCRDMA_E_XID_INVALID = -78,
    /// Not sent: the protocol does not permit it, for another reason.
    RPCRDMA_E_PROTOCOL = -79,
    /// Not accepted by a session: too many calls or bytes wait. Transient.
    RPCRDMA_E_QUEUE_FULL = -80,
    /// Not accepted by a session, or not executed: the session was closed.
    RPCRDMA_E_CLOSED = -81,

    /// The call's connection was lost.
    RPCRDMA_E_CONNECTION_LOST = -100,
    /// The peer reports an error instead of a reply.
    RPCRDMA_E_CALL_REJECTED = -101,
    /// The peer does not support this version. The next call uses one that it supports.
    RPCRDMA_E_CALL_VERSION = -102,
    /// The peer does not support the form of the call: repeat it, it is sent in another form.
    RPCRDMA_E_FORM_REFUSED = -103,
    /// The device did not release the memory of the call.
    RPCRDMA_E_MEMORY_LOST = -104,
    /// The reply broke the rules, and is lost.
    RPCRDMA_E_BAD_REPLY = -105,
    /// The call exceeded its deadline.
    RPCRDMA_E_DEADLINE = -106,
    /// The program cancelled the call.
    RPCRDMA_E_CANCELLED = -107,

    /// The message ends before the data.
    RPCRDMA_E_END = -120,
    /// Opaque data are longer than the caller allows.
    RPCRDMA_E_OPAQUE_TOO_LONG = -121,
    /// The piece was taken before.
    RPCRDMA_E_TAKEN = -122,
    /// The segment holds other data in front of the piece: copy it.
    RPCRDMA_E_SHARED = -123,
    /// No spare segment is left: copy the piece.
    RPCRDMA_E_NO_SPARE = -124,
    /// The RPC header of a message is invalid.
    RPCRDMA_E_HEADER = -125,
    /// The server did not execute the call, as the RPC header of its reply states; or the call was
    /// denied, and its caller got an error.
    RPCRDMA_E_DENIED = -126,
    /// A boolean, or the word in front of optional data, is neither 0 nor 1.
    RPCRDMA_E_BAD_BOOL = -127,

    /// Connection ended: this program closed it.
    RPCRDMA_E_CLOSED_HERE = -140,
    /// Connection ended: the shard was stopped.
    RPCRDMA_E_SHARD_STOPPED = -141,
    /// Connection ended: the peer disconnected or died.
    RPCRDMA_E_PEER_GONE = -142,
    /// Connection ended: the peer broke the protocol.
    RPCRDMA_E_PEER_BROKE_RULES = -143,
    /// Connection ended: the peer does not receive while it sends.
    RPCRDMA_E_NOT_TAKING = -144,
    /// Connection ended: a work request exceeded a limit of the device.
    RPCRDMA_E_WORK_INVALID = -145,
    /// Connection ended: a work request failed.
    RPCRDMA_E_TRANSPORT = -146,
    /// Connection ended: the peer did not complete a message in time.
    RPCRDMA_E_PEER_TIMED_OUT = -147,
    /// Connection ended: the peer did not answer a call in time.
    RPCRDMA_E_NOT_ANSWERING = -148,
    /// Connection ended: the peer sent no call for too long.
    RPCRDMA_E_IDLE = -149,
    /// Connection ended: the handler rejected it.
    RPCRDMA_E_REFUSED_HERE = -150,
    /// Connection ended: the device put the queue pair into the error state.
    RPCRDMA_E_QP_FAILED = -151,
    /// Connection ended: the device completed what was not posted.
    RPCRDMA_E_UNASKED = -152,
    /// Connection ended: the device was removed or has failed.
    RPCRDMA_E_DEVICE_LOST = -153,
    /// Connection ended: the completion queue failed.
    RPCRDMA_E_CQ_FAILED = -154,
}

/// What is known about the execution of a call without a reply.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rpcrdma_execution {
    /// It was not executed: it may be repeated, whatever it does.
    RPCRDMA_NOT_EXECUTED = 0,
    /// It may have been executed: repeat it if it is idempotent, or with its xid if the server
    /// detects duplicates.
    RPCRDMA_MAY_BE_EXECUTED = 1,
    /// It may be taken as executed: there is a reply, which states what became of it.
    RPCRDMA_EXECUTED = 2,
}

impl rpcrdma_status {
    /// As an int, as functions return it.
    pub fn number(self) -> c_int {
        self as c_int
    }

    /// Whether the same may succeed later.
    pub fn is_transient(self) -> bool {
        matches!(
            self,
            RPCRDMA_E_BUSY
                | RPCRDMA_E_NO_BUFFER
                | RPCRDMA_E_PENDING
                | RPCRDMA_E_NO_CREDITS
                | RPCRDMA_E_NO_RECEIVES
                | RPCRDMA_E_TABLE_FULL
                | RPCRDMA_E_NOT_READY
                | RPCRDMA_E_XID_IN_USE
                | RPCRDMA_E_QUEUE_FULL
                | RPCRDMA_E_REJECTED
                | RPCRDMA_E_PEER_FULL
                | RPCRDMA_E_QUOTA_FULL
                | RPCRDMA_E_PEER_BUSY
                | RPCRDMA_E_PEER_STOPPING
        )
    }
}
