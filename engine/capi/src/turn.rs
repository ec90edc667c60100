//! A turn: a shard, lent to its program between two polls.

use core::ffi::{c_char, c_int, c_void};
use core::mem::{MaybeUninit, transmute};
use core::ptr::NonNull;

use ::rpcrdma_engine::{Loan, Turn};

use crate::arguments::{OK, given, value, write_text};
use crate::call::{Lender, once, rpcrdma_call, under_construction};
use crate::call_id::rpcrdma_call_id;
use crate::failure::{Failure, fail, invalid, plain};
use crate::limits::rpcrdma_limits;
use crate::loan::rpcrdma_loan;
use crate::message::rpcrdma_connection;
use crate::reply::rpcrdma_reply;
use crate::status::rpcrdma_status::{
    RPCRDMA_E_BUSY, RPCRDMA_E_NO_BUFFER, RPCRDMA_E_NO_PEER, RPCRDMA_E_NOTHING,
};
use crate::ticket::{finished_of, put_back, rpcrdma_finished, rpcrdma_ticket};

/// A shard, lent to its program: in `on_turn`, or by `rpcrdma_shard_turn`, `rpcrdma_client_turn`
/// and `rpcrdma_session_turn` until the next call on that object.
pub struct rpcrdma_turn {
    lender: Lender,
    now: u64,
    /// That of a turn of a handler: others have a place for it.
    call: rpcrdma_call,
}

impl rpcrdma_turn {
    /// Without an owner.
    pub(crate) fn nothing() -> rpcrdma_turn {
        rpcrdma_turn { lender: Lender::Nothing, now: 0, call: rpcrdma_call::nothing() }
    }

    /// That of a handler, for its callback.
    pub(crate) fn of(turn: &mut Turn<'_>) -> rpcrdma_turn {
        let (now, shard) = (turn.now(), turn.handle().shard());
        // SAFETY: only the lifetime changes. This ends with the callback.
        let turn = unsafe { transmute::<&mut Turn<'_>, &mut Turn<'static>>(turn) };
        let turn = NonNull::from(turn);
        let call = rpcrdma_call::of(Lender::Turn(turn), shard);
        rpcrdma_turn { lender: Lender::Turn(turn), now, call }
    }

    /// From now on it is the lender's.
    pub(crate) fn lend(&mut self, lender: Lender, now: u64) {
        (self.lender, self.now) = (lender, now);
    }
}

/// Runs `act` with the turn. What the program does meanwhile cannot use the object again.
fn with_lender<R>(
    lender: &mut Lender,
    now: u64,
    act: impl FnOnce(&mut Turn<'_>) -> R,
) -> Result<R, c_int> {
    match lender {
        Lender::Nothing => Err(invalid("turn")),
        // SAFETY: the turn is in its callback, and no call borrows from it: the caller has looked.
        Lender::Turn(turn) => Ok(act(unsafe { turn.as_mut() })),
        Lender::Object(object) => {
            // SAFETY: the object lent this, and is there.
            let object = unsafe { object.as_ref() };
            once(act, |act| object.with(now, act))
        }
    }
}

/// Runs `act` with a turn of the program.
fn with<R>(
    turn: Option<&mut rpcrdma_turn>,
    act: impl FnOnce(&mut Turn<'_>) -> R,
) -> Result<R, c_int> {
    let Some(turn) = turn else { return Err(invalid("turn")) };
    if turn.call.is_open() {
        return Err(under_construction());
    }
    with_lender(&mut turn.lender, turn.now, act)
}

/// As `with`, while the program may use this turn: it has no owner.
///
/// # Safety
/// `turn` is NULL, or a turn that is lent.
unsafe fn with_program<R>(
    turn: *mut rpcrdma_turn,
    act: impl FnOnce(&mut Turn<'_>) -> R,
) -> Result<R, c_int> {
    // SAFETY: the caller guarantees it.
    let (mut lender, own, now) = match unsafe { turn.as_mut() } {
        None => return Err(invalid("turn")),
        Some(turn) if turn.call.is_open() => return Err(under_construction()),
        Some(turn) => (turn.lender.take(), turn.call.owner().take(), turn.now),
    };
    let done = with_lender(&mut lender, now, act);
    // SAFETY: as above; the program has only looked at it.
    let turn = unsafe { &mut *turn };
    (turn.lender, *turn.call.owner()) = (lender, own);
    done
}

/// Gives the program a buffer, if there is one.
pub(crate) fn buffer(taken: Option<Loan>, loan: &mut MaybeUninit<rpcrdma_loan>) -> c_int {
    let Some(taken) = taken else { return plain(RPCRDMA_E_NO_BUFFER) };
    loan.write(rpcrdma_loan::of(taken));
    OK
}

/// Takes a buffer back.
pub(crate) fn release(turn: &mut Turn<'_>, loan: &mut rpcrdma_loan) -> c_int {
    let Some(loan) = loan.take() else { return invalid("loan") };
    turn.release(loan);
    OK
}

/// The time of this turn.
///
/// Thread: that of the turn.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_turn_now(turn: Option<&rpcrdma_turn>) -> u64 {
    turn.map_or(0, |turn| turn.now)
}

/// Begins a call, as `rpcrdma_client_call`. The completion is that of the shard: its `on_reply`.
///
/// Thread: that of the turn.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_turn_call(
    turn: Option<&mut rpcrdma_turn>,
    connection: rpcrdma_connection,
    cookie: u64,
    call: Option<&mut MaybeUninit<*mut rpcrdma_call>>,
) -> c_int {
    given!(turn, call);
    turn.call.clear();
    let begun = match &mut turn.lender {
        Lender::Nothing => return invalid("turn"),
        // SAFETY: the object lent this, and is there.
        Lender::Object(object) => unsafe { object.as_ref() }.begin(connection, cookie),
        Lender::Turn(lent) => {
            // SAFETY: the turn is in its callback, and no call borrows from it: the last one is
            // discarded above.
            let lent = unsafe { lent.as_mut() };
            match lent.call(connection.name(), cookie) {
                Ok(builder) => Ok(turn.call.begin(builder, connection, cookie)),
                Err(why) => Err(fail(Failure::Refused(why))),
            }
        }
    };
    call.write(value!(begun));
    OK
}

/// Ends a call before its reply: it completes with `RPCRDMA_E_CANCELLED`, unless its reply arrives
/// first. `RPCRDMA_E_NOTHING` if it is over, `RPCRDMA_E_INVALID` if the id is not of this shard.
///
/// Thread: that of the turn.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_turn_cancel(
    turn: Option<&mut rpcrdma_turn>,
    call: rpcrdma_call_id,
) -> c_int {
    let cancelled = value!(with(turn, |turn| {
        let name = call.name(turn.handle().shard())?;
        Ok(turn.cancel(name))
    }));
    if value!(cancelled) { OK } else { plain(RPCRDMA_E_NOTHING) }
}

/// Answers a deferred call: calls `answer` with a reply, which it answers as `on_call` does. Takes
/// the ticket.
///
/// `RPCRDMA_E_NO_PEER` if the connection has ended or the ticket is of another shard,
/// `RPCRDMA_E_BUSY` if no send slot is free; then `answer` is not called, and the ticket stays with
/// the program. `answer` must not use the turn; it may defer the call again, to the same `ticket`.
///
/// Thread: that of the turn.
#[unsafe(no_mangle)]
#[expect(clippy::result_large_err, reason = "what was not taken is given back, not lost")]
pub unsafe extern "C" fn rpcrdma_turn_resume(
    turn: *mut rpcrdma_turn,
    ticket: *mut rpcrdma_ticket,
    answer: Option<unsafe extern "C" fn(arg: *mut c_void, reply: *mut rpcrdma_reply)>,
    arg: *mut c_void,
) -> c_int {
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
    // SAFETY: the program passes NULL or a turn that it was given.
    let (back, number) = match unsafe { with_program(turn, resume) } {
        Ok(Ok(())) => return OK,
        Ok(Err((right, true))) => (right, plain(RPCRDMA_E_BUSY)),
        Ok(Err((right, false))) => (right, plain(RPCRDMA_E_NO_PEER)),
        Err(number) => (right.expect("it was not used"), number),
    };
    // SAFETY: as above; it is not NULL, and the program has not filled it: `answer` was not called.
    unsafe { &mut *ticket }.put(back);
    number
}

/// As `rpcrdma_handle_finish`, at once. The results are those of `rpcrdma_turn_resume`.
///
/// Thread: that of the turn.
#[unsafe(no_mangle)]
#[expect(clippy::result_large_err, reason = "what was not taken is given back, not lost")]
pub unsafe extern "C" fn rpcrdma_turn_finish(
    turn: Option<&mut rpcrdma_turn>,
    ticket: Option<&mut rpcrdma_ticket>,
    finished: *const rpcrdma_finished,
) -> c_int {
    given!(ticket);
    if ticket.look().is_none() {
        return invalid("ticket");
    }
    // SAFETY: the program passes a structure with its size, and what it points to.
    let (finished, bulk) = value!(unsafe { finished_of(finished) });
    let Some(right) = ticket.take() else { return invalid("ticket") };
    let mut both = Some((right, finished));
    let done = with(turn, |turn| {
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
/// Thread: that of the turn.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_turn_is_open(
    turn: Option<&mut rpcrdma_turn>,
    ticket: Option<&rpcrdma_ticket>,
) -> bool {
    let Some(ticket) = ticket.and_then(rpcrdma_ticket::look) else { return false };
    with(turn, |turn| turn.is_open(ticket)).unwrap_or(false)
}

/// A registered buffer of the configured length (`memory.bulk`): `loan` receives it.
/// `RPCRDMA_E_NO_BUFFER` if none is free.
///
/// Thread: that of the turn.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_turn_buffer(
    turn: Option<&mut rpcrdma_turn>,
    loan: Option<&mut MaybeUninit<rpcrdma_loan>>,
) -> c_int {
    given!(loan);
    buffer(value!(with(turn, |turn| turn.buffer())), loan)
}

/// Returns a loan, without the atomic operations of `rpcrdma_loan_free`. Takes it.
///
/// Thread: that of the turn.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_turn_release(
    turn: Option<&mut rpcrdma_turn>,
    loan: Option<&mut rpcrdma_loan>,
) -> c_int {
    given!(loan);
    value!(with(turn, |turn| release(turn, loan)))
}

/// The address of a peer, as text with a NUL at its end, in at most `len` bytes; that of the
/// listener if this side has connected.
///
/// Thread: that of the turn.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_turn_address(
    turn: Option<&mut rpcrdma_turn>,
    connection: rpcrdma_connection,
    text: *mut c_char,
    len: usize,
) -> c_int {
    match value!(with(turn, |turn| turn.address(connection.name()))) {
        // SAFETY: the program passes room for `len` bytes.
        Some(address) => unsafe { write_text(&address, text, len) },
        None => plain(RPCRDMA_E_NO_PEER),
    }
}

/// The limits of a peer. `RPCRDMA_E_NO_PEER` if the connection has ended.
///
/// Thread: that of the turn.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_turn_limits(
    turn: Option<&mut rpcrdma_turn>,
    connection: rpcrdma_connection,
    limits: Option<&mut MaybeUninit<rpcrdma_limits>>,
) -> c_int {
    given!(limits);
    let found = with(turn, |turn| turn.limits(connection.name()).map(rpcrdma_limits::of));
    match value!(found) {
        Some(found) => limits.write(found),
        None => return plain(RPCRDMA_E_NO_PEER),
    };
    OK
}

/// Transmissions that may be sent to a peer now; 0 if the connection has ended.
///
/// Thread: that of the turn.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_turn_credits(
    turn: Option<&mut rpcrdma_turn>,
    connection: rpcrdma_connection,
) -> u32 {
    with(turn, |turn| turn.credits(connection.name())).unwrap_or(0)
}
