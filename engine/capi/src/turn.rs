//! What a program does with a shard, client or session between two polls, and with a shard in its
//! `on_turn`: calls, answers to deferred calls, memory, peers.

use core::ffi::{c_char, c_int, c_void};
use core::mem::MaybeUninit;

use ::rpcrdma::Turn;

use crate::arguments::{OK, bytes, given, shared, value, write_text};
use crate::call_id::rpcrdma_call_id;
use crate::failure::{invalid, plain};
use crate::limits::rpcrdma_limits;
use crate::loan::rpcrdma_loan;
use crate::message::rpcrdma_connection;
use crate::polled::{Message, rpcrdma_call, rpcrdma_polled};
use crate::reply::rpcrdma_reply;
use crate::status::rpcrdma_status::{
    RPCRDMA_E_BUSY, RPCRDMA_E_NO_BUFFER, RPCRDMA_E_NO_PEER, RPCRDMA_E_NOTHING,
};
use crate::ticket::{finished_of, put_back, rpcrdma_finished, rpcrdma_ticket};

/// Begins a call of a client or shard. `cookie` comes back with its completion: in a poll of the
/// client, or with the shard's `on_reply`. A call under construction is discarded.
///
/// Thread: polling, or in `on_turn`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_begin_call(
    polled: *mut rpcrdma_polled,
    connection: rpcrdma_connection,
    cookie: u64,
    call: Option<&mut MaybeUninit<*mut rpcrdma_call>>,
) -> c_int {
    shared!(polled);
    given!(call);
    let (object, place) = value!(polled.beginning());
    value!(object.begin(connection, cookie, place));
    place.owner = polled;
    call.write(place);
    OK
}

/// Begins a call of a client or shard, writes `len` bytes and their padding behind transaction id
/// and message type, and submits it, in one call: the fast way for calls without placed data and
/// wants. The bytes begin with the RPC header of the call, which a program may prepare once.
/// `reply_payload_max` is that of `rpcrdma_call_reply_payload_max`; 0 for the default. Of a call
/// that is refused nothing is kept.
///
/// Thread: polling, or in `on_turn`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_send(
    polled: *mut rpcrdma_polled,
    connection: rpcrdma_connection,
    cookie: u64,
    data: *const u8,
    len: usize,
    reply_payload_max: u32,
) -> c_int {
    shared!(polled);
    // SAFETY: the program passes so many bytes.
    let message = Message { bytes: unsafe { bytes(data, len) }, reply_payload_max };
    let (object, _) = value!(polled.beginning());
    value!(object.send(connection.name(), cookie, &message));
    OK
}

/// Ends a call before its reply: it completes with `RPCRDMA_E_CANCELLED` in the next poll, unless
/// its reply arrives first. `RPCRDMA_E_NOTHING` if it is over, `RPCRDMA_E_INVALID` if the id is not
/// of this shard, client or session.
///
/// Thread: polling, or in `on_turn`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_cancel(
    polled: *mut rpcrdma_polled,
    call: rpcrdma_call_id,
) -> c_int {
    shared!(polled);
    let object = value!(polled.free());
    match value!(object.cancel(&call, polled.handle().0.shard())) {
        true => OK,
        false => plain(RPCRDMA_E_NOTHING),
    }
}

/// Answers a deferred call: calls `answer` with a reply, which it answers as `on_call` does. Takes
/// the ticket.
///
/// `RPCRDMA_E_NO_PEER` if the connection has ended or the ticket is of another shard,
/// `RPCRDMA_E_BUSY` if no send slot is free; then `answer` is not called, and the ticket stays with
/// the program. `answer` must not use the shard; it may defer the call again, to the same `ticket`.
///
/// Thread: polling, or in `on_turn`.
#[unsafe(no_mangle)]
#[expect(clippy::result_large_err, reason = "what was not taken is given back, not lost")]
pub unsafe extern "C" fn rpcrdma_ticket_resume(
    polled: *mut rpcrdma_polled,
    ticket: *mut rpcrdma_ticket,
    answer: Option<unsafe extern "C" fn(arg: *mut c_void, reply: *mut rpcrdma_reply)>,
    arg: *mut c_void,
) -> c_int {
    shared!(polled);
    given!(answer);
    // SAFETY: the program passes NULL or a ticket.
    let mut right = unsafe { ticket.as_mut() }.and_then(rpcrdma_ticket::take);
    if right.is_none() {
        return invalid("ticket");
    }
    let resume = |turn: &mut Turn<'_>| {
        let right = right.take().expect("it is there");
        let is_open = turn.is_open(&right);
        let resumed = turn.resume(right, |reply| {
            let mut reply = rpcrdma_reply::of(reply);
            // SAFETY: the program gave it for this; the reply stays during the call.
            unsafe { answer(arg, &mut *reply) };
            reply.take_answer()
        });
        resumed.map_err(|right| (right, is_open))
    };
    let (back, number) = match polled.with_turn(resume) {
        Ok(Ok(())) => return OK,
        Ok(Err((right, true))) => (right, plain(RPCRDMA_E_BUSY)),
        Ok(Err((right, false))) => (right, plain(RPCRDMA_E_NO_PEER)),
        Err(number) => (right.expect("it was not used"), number),
    };
    // SAFETY: as above; it is not NULL, and the program has not filled it: `answer` was not called.
    unsafe { &mut *ticket }.put(back);
    number
}

/// As `rpcrdma_handle_finish`, at once. The results are those of `rpcrdma_ticket_resume`.
///
/// Thread: polling, or in `on_turn`.
#[unsafe(no_mangle)]
#[expect(clippy::result_large_err, reason = "what was not taken is given back, not lost")]
pub unsafe extern "C" fn rpcrdma_ticket_finish(
    polled: *mut rpcrdma_polled,
    ticket: Option<&mut rpcrdma_ticket>,
    finished: *const rpcrdma_finished,
) -> c_int {
    shared!(polled);
    given!(ticket);
    if ticket.look().is_none() {
        return invalid("ticket");
    }
    // SAFETY: the program passes a structure with its size, and what it points to.
    let (finished, bulk) = value!(unsafe { finished_of(finished) });
    let Some(right) = ticket.take() else { return invalid("ticket") };
    let mut both = Some((right, finished));
    let done = polled.with_turn(|turn| {
        let (right, finished) = both.take().expect("they are there");
        let is_open = turn.is_open(&right);
        turn.finish(right, finished).map_err(|both| (both, is_open))
    });
    let ((right, finished), number) = match done {
        Ok(Ok(())) => return OK,
        Ok(Err((both, true))) => (both, plain(RPCRDMA_E_BUSY)),
        Ok(Err((both, false))) => (both, plain(RPCRDMA_E_NO_PEER)),
        Err(number) => (both.expect("they were not used"), number),
    };
    ticket.put(right);
    put_back(finished, bulk);
    number
}

/// Whether a ticket can still be answered.
///
/// Thread: polling, or in `on_turn`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_ticket_is_open(
    polled: *mut rpcrdma_polled,
    ticket: Option<&rpcrdma_ticket>,
) -> bool {
    // SAFETY: the program passes NULL or what it was given, and has not freed it.
    let polled = unsafe { polled.as_ref() };
    let (Some(polled), Some(ticket)) = (polled, ticket.and_then(rpcrdma_ticket::look)) else {
        return false;
    };
    polled.with_turn(|turn| turn.is_open(ticket)).unwrap_or(false)
}

/// A registered buffer of the configured length (`memory.bulk`): `loan` receives it.
/// `RPCRDMA_E_NO_BUFFER` if none is free.
///
/// Thread: polling, or in `on_turn`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_buffer(
    polled: *mut rpcrdma_polled,
    loan: Option<&mut MaybeUninit<rpcrdma_loan>>,
) -> c_int {
    shared!(polled);
    given!(loan);
    let Some(taken) = value!(polled.with_turn(|turn| turn.buffer())) else {
        return plain(RPCRDMA_E_NO_BUFFER);
    };
    loan.write(rpcrdma_loan::of(taken));
    OK
}

/// Returns a loan, without the atomic operations of `rpcrdma_loan_free`. Takes it.
///
/// Thread: polling, or in `on_turn`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_release(
    polled: *mut rpcrdma_polled,
    loan: Option<&mut rpcrdma_loan>,
) -> c_int {
    shared!(polled);
    given!(loan);
    value!(polled.with_turn(|turn| match loan.take() {
        Some(loan) => {
            turn.release(loan);
            OK
        }
        None => invalid("loan"),
    }))
}

/// The address of a peer, as text with a NUL at its end, in at most `len` bytes; that of the
/// listener if this side has connected.
///
/// Thread: polling, or in `on_turn`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_peer_address(
    polled: *mut rpcrdma_polled,
    connection: rpcrdma_connection,
    text: *mut c_char,
    len: usize,
) -> c_int {
    shared!(polled);
    match value!(polled.with_turn(|turn| turn.address(connection.name()))) {
        // SAFETY: the program passes room for `len` bytes.
        Some(address) => unsafe { write_text(&address, text, len) },
        None => plain(RPCRDMA_E_NO_PEER),
    }
}

/// The limits of a peer, and the credits that are free. `RPCRDMA_E_NO_PEER` if the connection has
/// ended.
///
/// Thread: polling, or in `on_turn`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_peer_limits(
    polled: *mut rpcrdma_polled,
    connection: rpcrdma_connection,
    limits: Option<&mut MaybeUninit<rpcrdma_limits>>,
) -> c_int {
    shared!(polled);
    given!(limits);
    let found = value!(polled.with_turn(|turn| {
        let credits = turn.credits(connection.name());
        let limits = turn.limits(connection.name())?;
        Some(rpcrdma_limits { credits, ..rpcrdma_limits::of(limits) })
    }));
    match found {
        Some(found) => limits.write(found),
        None => return plain(RPCRDMA_E_NO_PEER),
    };
    OK
}
