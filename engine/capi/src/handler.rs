//! The handler: the program's callbacks on a shard.

use core::ffi::{c_char, c_int, c_void};

use crate::handle::rpcrdma_handle;
use crate::loan::rpcrdma_slice;
use crate::message::{rpcrdma_completion, rpcrdma_connection, rpcrdma_request};
use crate::reply::rpcrdma_reply;
use crate::turn::rpcrdma_turn;

/// The callbacks of a program on a shard. All run on the shard's thread, one at a time, and must
/// not block. A NULL callback has its default.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rpcrdma_handler {
    /// `sizeof(rpcrdma_handler)`.
    pub size: usize,
    /// For `start`; shared by all shards.
    pub arg: *mut c_void,
    /// Makes the context of a shard, on its thread. The handle is valid while the context is; clone
    /// it to keep it for longer. NULL: `arg` is the context of every shard.
    pub start:
        Option<unsafe extern "C" fn(arg: *mut c_void, shard: *const rpcrdma_handle) -> *mut c_void>,
    /// The shard has ended: frees the context.
    pub end: Option<unsafe extern "C" fn(context: *mut c_void)>,
    /// A call has arrived: answers it, or keeps the right to answer. NULL refuses every call.
    pub on_call: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            request: *const rpcrdma_request,
            reply: *mut rpcrdma_reply,
        ),
    >,
    /// Once a turn, after the queues: poll a disk or a timer here, and finish tickets. A shard that
    /// sleeps takes a turn at least every 10 ms while a call is to be answered.
    pub on_turn: Option<unsafe extern "C" fn(context: *mut c_void, turn: *mut rpcrdma_turn)>,
    /// A call of this shard has ended.
    pub on_reply:
        Option<unsafe extern "C" fn(context: *mut c_void, completion: *mut rpcrdma_completion)>,
    /// A peer requests a connection: 0 accepts it, a number up to 65535 rejects it with that code,
    /// a negative number without one. NULL accepts.
    pub admit: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            request: *const rpcrdma_connect_request,
        ) -> c_int,
    >,
    /// A connection is up. `attempt` is that of `rpcrdma_shard_connect`, or 0 if the peer made it.
    /// 0 keeps it; anything else closes it.
    pub on_connect: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            connection: rpcrdma_connection,
            attempt: u64,
            limits: *const rpcrdma_limits,
        ) -> c_int,
    >,
    /// A connection that this shard requested was not made; `status` states why.
    pub on_refused: Option<unsafe extern "C" fn(context: *mut c_void, attempt: u64, status: c_int)>,
    /// A connection has ended; `status` states why. Its calls have completed, its tickets are void.
    pub on_close: Option<
        unsafe extern "C" fn(context: *mut c_void, connection: rpcrdma_connection, status: c_int),
    >,
    /// Calls from servers that this shard accepts on connections that it requested, as
    /// `rpcrdma_backward`.
    pub backward: c_int,
}

/// Which calls a side accepts from the server that it has connected to.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rpcrdma_backward {
    /// Calls that fit one short message: the default.
    RPCRDMA_BACKWARD_INLINE = 0,
    /// None.
    RPCRDMA_BACKWARD_NONE = 1,
    /// Every call that the forward direction allows.
    RPCRDMA_BACKWARD_GENERAL = 2,
}

/// A connection request from a peer. Later versions may add fields.
#[repr(C)]
#[derive(Debug)]
pub struct rpcrdma_connect_request {
    /// The address of the peer, as text.
    pub address: *const c_char,
    /// Its origin: the host without the port, or the user without the process, as text.
    pub origin: *const c_char,
    /// Connections of the same origin that this shard has.
    pub connections: usize,
    /// The peer's private data, with padding.
    pub private_data: rpcrdma_slice,
    /// The process, user and group of a peer over shared memory, as the kernel states them;
    /// `UINT32_MAX` otherwise.
    pub pid: u32,
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

/// The limits of a peer. Later versions may add fields where the library makes it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct rpcrdma_limits {
    /// The version that it speaks: 1 or 2; 0 before its first message.
    pub version: u32,
    /// The longest transmission that it takes.
    pub recv_size: u32,
    /// The longest transmission that it sends.
    pub send_size: u32,
    /// The most transmissions of a call that it takes.
    pub request_rx_limit: u32,
    /// The most transmissions of a reply that it sends.
    pub response_sx_limit: u32,
    /// Which backward calls it takes, as `rpcrdma_backward`.
    pub backward: c_int,
    /// Whether items can be placed in its buffers.
    pub placement: bool,
    /// Whether its memory may be invalidated by replies.
    pub remote_invalidation: bool,
    /// 0.
    pub reserved: [u8; 6],
}
