//! A turn: a shard, lent to its program between two polls.

use core::ffi::{c_char, c_int, c_void};

use crate::call::{rpcrdma_call, rpcrdma_call_id};
use crate::handler::rpcrdma_limits;
use crate::loan::rpcrdma_loan;
use crate::message::rpcrdma_connection;
use crate::reply::rpcrdma_reply;
use crate::ticket::{rpcrdma_finished, rpcrdma_ticket};
use crate::unfinished;

/// A shard, lent to its program: in `on_turn`, or by `rpcrdma_shard_turn`, `rpcrdma_client_turn`
/// and `rpcrdma_session_turn` until the next call on that object.
pub struct rpcrdma_turn {
    _turn: (),
}

/// The time of this turn.
///
/// Thread: that of the turn.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_turn_now(turn: *const rpcrdma_turn) -> u64 {
    0
}

/// Begins a call, as `rpcrdma_client_call`. The completion is that of the shard: its `on_reply`.
///
/// Thread: that of the turn.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_turn_call(
    turn: *mut rpcrdma_turn,
    connection: rpcrdma_connection,
    cookie: u64,
    call: *mut *mut rpcrdma_call,
) -> c_int {
    unfinished()
}

/// Ends a call before its reply: it completes with `RPCRDMA_E_CANCELLED`, unless its reply arrives
/// first. `RPCRDMA_E_NOTHING` if it is over.
///
/// Thread: that of the turn.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_turn_cancel(
    turn: *mut rpcrdma_turn,
    call: rpcrdma_call_id,
) -> c_int {
    unfinished()
}

/// Answers a deferred call: calls `answer` with a reply, which it answers as `on_call` does. Takes
/// the ticket.
///
/// `RPCRDMA_E_NO_PEER` if the connection has ended or the ticket is of another shard,
/// `RPCRDMA_E_BUSY` if no send slot is free; then `answer` is not called, and the ticket stays with
/// the program.
///
/// Thread: that of the turn.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_turn_resume(
    turn: *mut rpcrdma_turn,
    ticket: *mut rpcrdma_ticket,
    answer: Option<unsafe extern "C" fn(arg: *mut c_void, reply: *mut rpcrdma_reply)>,
    arg: *mut c_void,
) -> c_int {
    unfinished()
}

/// As `rpcrdma_handle_finish`, at once. The results are those of `rpcrdma_turn_resume`.
///
/// Thread: that of the turn.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_turn_finish(
    turn: *mut rpcrdma_turn,
    ticket: *mut rpcrdma_ticket,
    finished: *const rpcrdma_finished,
) -> c_int {
    unfinished()
}

/// Whether a ticket can still be answered.
///
/// Thread: that of the turn.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_turn_is_open(
    turn: *mut rpcrdma_turn,
    ticket: *const rpcrdma_ticket,
) -> bool {
    false
}

/// A registered buffer of the configured length (`memory.bulk`): `loan` receives it.
/// `RPCRDMA_E_NO_BUFFER` if none is free.
///
/// Thread: that of the turn.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_turn_buffer(
    turn: *mut rpcrdma_turn,
    loan: *mut rpcrdma_loan,
) -> c_int {
    unfinished()
}

/// Returns a loan, without the atomic operations of `rpcrdma_loan_free`. Takes it.
///
/// Thread: that of the turn.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_turn_release(
    turn: *mut rpcrdma_turn,
    loan: *mut rpcrdma_loan,
) -> c_int {
    unfinished()
}

/// The address of a peer, as text with a NUL at its end, in at most `len` bytes; that of the
/// listener if this side has connected.
///
/// Thread: that of the turn.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_turn_address(
    turn: *mut rpcrdma_turn,
    connection: rpcrdma_connection,
    text: *mut c_char,
    len: usize,
) -> c_int {
    unfinished()
}

/// The limits of a peer. `RPCRDMA_E_NO_PEER` if the connection has ended.
///
/// Thread: that of the turn.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_turn_limits(
    turn: *mut rpcrdma_turn,
    connection: rpcrdma_connection,
    limits: *mut rpcrdma_limits,
) -> c_int {
    unfinished()
}

/// Transmissions that may be sent to a peer now; 0 if the connection has ended.
///
/// Thread: that of the turn.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_turn_credits(
    turn: *mut rpcrdma_turn,
    connection: rpcrdma_connection,
) -> u32 {
    0
}
