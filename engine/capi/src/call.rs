//! A call being written, of a client, a turn or a session.

use core::ffi::c_int;
use core::mem::{MaybeUninit, transmute};
use core::ptr::NonNull;

use ::rpcrdma_engine::{CallBuilder, CallHandle, OwnedCall, Resend, SINK_PIECES_MAX, Turn, Unsent};

use crate::arguments::{OK, array, given};
use crate::call_id::rpcrdma_call_id;
use crate::failure::{Failure, fail, invalid, plain};
use crate::loan::{loan_of, rpcrdma_loan, write_loans};
use crate::message::rpcrdma_connection;
use crate::payload::{Draft, Kept, rpcrdma_payload};
use crate::provider::{AnySessionCall, each};
use crate::status::rpcrdma_status::{RPCRDMA_E_INCOMPLETE, RPCRDMA_E_NOTHING};

/// A call under construction. It belongs to the client, turn or session that began it, which has
/// one at a time: beginning another discards it. Until it is submitted or discarded, its owner does
/// nothing else (`RPCRDMA_E_INVALID`): take buffers before.
pub struct rpcrdma_call {
    pub(crate) payload: rpcrdma_payload,
    /// Whose it is.
    owner: Lender,
    /// The number of its shard.
    shard: u32,
    connection: rpcrdma_connection,
    cookie: u64,
    deadline: Option<u64>,
    /// If the program has chosen one.
    xid: Option<u32>,
    resend: Resend,
    /// Results requested so far.
    wants: usize,
}

/// What becomes of a call of a session when its connection is lost.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rpcrdma_resend {
    /// It completes with the loss.
    RPCRDMA_RESEND_NEVER = 0,
    /// It is sent again on the next connection with the same xid, by which a server with a reply
    /// cache executes it once.
    RPCRDMA_RESEND_SAME_XID = 1,
}

/// Results that a call may request by `rpcrdma_call_want` and the like.
pub const RPCRDMA_WANTS_MAX: usize = 8;
/// Pieces of a result buffer.
pub const RPCRDMA_SINK_PIECES_MAX: usize = 16;

const _: () = assert!(SINK_PIECES_MAX == RPCRDMA_SINK_PIECES_MAX);
const _: () = assert!(rpcrdma_engine::message::wanted::WANTS_MAX == RPCRDMA_WANTS_MAX);
impl rpcrdma_call {
    /// The place of calls without an owner.
    pub(crate) fn nothing() -> rpcrdma_call {
        rpcrdma_call::of(Lender::Nothing, 0)
    }

    /// The place of the calls of `owner`, the shard with this number, one after the other.
    pub(crate) fn of(owner: Lender, shard: u32) -> rpcrdma_call {
        rpcrdma_call {
            payload: rpcrdma_payload(Draft::Nothing),
            owner,
            shard,
            connection: rpcrdma_connection::NONE,
            cookie: 0,
            deadline: None,
            xid: None,
            resend: Resend::Never,
            wants: 0,
        }
    }

    /// Whose it is.
    pub(crate) fn owner(&mut self) -> &mut Lender {
        &mut self.owner
    }

    /// Begins a call in its place, which is empty.
    #[inline(always)]
    pub(crate) fn begin(
        &mut self,
        builder: CallBuilder<'_>,
        connection: rpcrdma_connection,
        cookie: u64,
    ) -> &mut rpcrdma_call {
        // SAFETY: only the lifetime changes. The call ends before what it borrows from is used
        // again: `Polled` and `rpcrdma_turn` see to that.
        let builder = unsafe { transmute::<CallBuilder<'_>, CallBuilder<'static>>(builder) };
        self.payload.0.set(Draft::Call(builder));
        (self.connection, self.cookie, self.wants) = (connection, cookie, 0);
        (self.deadline, self.xid) = (None, None);
        self
    }

    /// Begins a call of a session in its place, which is empty.
    #[inline(always)]
    pub(crate) fn begin_for_session(
        &mut self,
        draft: AnySessionCall,
        cookie: u64,
    ) -> &mut rpcrdma_call {
        self.payload.0.set(Draft::Session(draft));
        (self.cookie, self.resend, self.wants) = (cookie, Resend::Never, 0);
        self
    }

    /// Discards the call that is in its place.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        if !matches!(self.payload.0, Draft::Nothing) {
            self.payload.0 = Draft::Nothing;
        }
    }

    /// Whether a call is under construction, which borrows from its owner.
    #[inline(always)]
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.payload.0, Draft::Nothing | Draft::Answered(_) | Draft::Kept(_))
    }

    pub(crate) fn takes_want(&mut self) -> bool {
        let takes = self.is_open() && self.wants < RPCRDMA_WANTS_MAX;
        self.wants += usize::from(takes);
        takes
    }

    /// Sends a call of a client or turn.
    #[inline(always)]
    fn submit(
        &mut self,
        mut builder: CallBuilder<'static>,
        id: Option<&mut MaybeUninit<rpcrdma_call_id>>,
    ) -> c_int {
        if let Some(id) = id {
            id.write(rpcrdma_call_id::of(builder.handle(), self.shard));
        }
        match builder.try_submit() {
            Ok(()) => OK,
            Err(unsent) => self.keep(unsent),
        }
    }

    /// Keeps a call that was refused.
    #[cold]
    fn keep(&mut self, unsent: Unsent) -> c_int {
        let failure = Failure::Refused(unsent.why());
        let (connection, cookie) = (self.connection.name(), self.cookie);
        let (deadline, xid) = (self.deadline, self.xid);
        let kept = Kept::Call { unsent, connection, cookie, deadline, xid };
        self.payload.0 = Draft::Kept(Box::new(kept));
        fail(failure)
    }

    /// Sends any other call.
    #[inline(never)]
    fn submit_other(&mut self, id: Option<&mut MaybeUninit<rpcrdma_call_id>>) -> c_int {
        let sent = match self.payload.0.take() {
            Draft::Session(draft) => self.submit_to_session(draft),
            Draft::Kept(kept) => self.submit_again(kept),
            _ => return invalid("call"),
        };
        match (sent, id) {
            (Err(number), _) => return number,
            (Ok(name), Some(id)) => _ = id.write(name),
            (Ok(_), None) => {}
        }
        OK
    }

    fn submit_to_session(&mut self, draft: AnySessionCall) -> Result<rpcrdma_call_id, c_int> {
        match each!(AnySessionCall, draft, draft => draft.submit()) {
            Ok(name) => Ok(rpcrdma_call_id::of(name, self.shard)),
            Err(unsent) => {
                let failure = Failure::NotAccepted(unsent.why());
                let (cookie, resend) = (self.cookie, self.resend);
                let kept = Kept::Session { unsent, cookie, resend };
                self.payload.0 = Draft::Kept(Box::new(kept));
                Err(fail(failure))
            }
        }
    }

    /// Sends a call that was refused before.
    #[cold]
    #[expect(clippy::result_large_err, reason = "what was not taken is given back, not lost")]
    fn submit_again(&mut self, kept: Box<Kept>) -> Result<rpcrdma_call_id, c_int> {
        if let Err(number) = self.owner.look() {
            self.payload.0 = Draft::Kept(kept);
            return Err(number);
        }
        match *kept {
            Kept::Call { unsent, connection, cookie, deadline, xid } => {
                let Some(mut call) = unsent.into_call() else {
                    return Err(plain(RPCRDMA_E_INCOMPLETE));
                };
                if let Some(at) = deadline {
                    call.deadline(at);
                }
                let sent = self.owner.submit(|turn| match xid {
                    Some(xid) => turn.submit_with_xid(connection, cookie, xid, call),
                    None => turn.submit(connection, cookie, call),
                })?;
                sent.map(|name| rpcrdma_call_id::of(name, self.shard))
                    .map_err(|unsent| self.keep(unsent))
            }
            Kept::Session { unsent, cookie, resend } => {
                let Some(call) = unsent.into_call() else {
                    return Err(plain(RPCRDMA_E_INCOMPLETE));
                };
                let mut draft = self.owner.session_call(cookie)?;
                each!(AnySessionCall, &mut draft, draft => {
                    **draft = call;
                    draft.resend(resend);
                });
                self.submit_to_session(draft)
            }
        }
    }
}

/// A client, session or shard: what lends turns, and has calls.
pub(crate) trait Owner {
    /// Runs `act` with a turn at this time. What the program does meanwhile cannot use the object
    /// again.
    fn with(&self, now: u64, act: &mut dyn FnMut(&mut Turn<'_>)) -> Result<(), c_int>;

    /// Whether a call that was refused can be sent now: not inside a callback of the object.
    fn look(&self) -> Result<(), c_int>;

    /// Begins a call.
    #[expect(clippy::mut_from_ref, reason = "one call at a time: `Polled` sees to that")]
    fn begin(
        &self,
        connection: rpcrdma_connection,
        cookie: u64,
    ) -> Result<&mut rpcrdma_call, c_int>;

    /// Runs `act` with a turn, to send a call that was refused. The time has no effect on it.
    fn submit(&self, act: &mut dyn FnMut(&mut Turn<'_>)) -> Result<(), c_int>;

    /// A new call of a session.
    fn session_call(&self, _cookie: u64) -> Result<AnySessionCall, c_int> {
        Err(invalid("call"))
    }
}

/// Whose a turn is, or a call.
pub(crate) enum Lender {
    Nothing,
    /// A shard's, in `on_turn`.
    Turn(NonNull<Turn<'static>>),
    Object(NonNull<dyn Owner>),
}

impl Lender {
    /// That of an object, which is there for as long as this.
    pub(crate) fn of<T: Owner + 'static>(object: &T) -> Lender {
        let object: NonNull<T> = NonNull::from(object);
        Lender::Object(object)
    }

    /// What it is; it has no owner from now on.
    pub(crate) fn take(&mut self) -> Lender {
        core::mem::replace(self, Lender::Nothing)
    }

    /// Whether a call that was refused can be sent now.
    fn look(&self) -> Result<(), c_int> {
        match self {
            Lender::Nothing => Err(invalid("call: the turn answers another one")),
            Lender::Turn(_) => Ok(()),
            // SAFETY: the call is the object's, which is there.
            Lender::Object(object) => unsafe { object.as_ref() }.look(),
        }
    }

    /// Sends a call that was refused before, by its turn.
    fn submit(
        &mut self,
        submit: impl FnOnce(&mut Turn<'_>) -> Result<CallHandle, Unsent>,
    ) -> Result<Result<CallHandle, Unsent>, c_int> {
        match self {
            Lender::Nothing => Err(invalid("call")),
            // SAFETY: the turn is in its callback, and the call borrows nothing.
            Lender::Turn(turn) => Ok(submit(unsafe { turn.as_mut() })),
            Lender::Object(object) => {
                // SAFETY: the call is the object's, which is there.
                let object = unsafe { object.as_ref() };
                once(submit, |submit| object.submit(submit))
            }
        }
    }

    /// A new call of the session.
    fn session_call(&self, cookie: u64) -> Result<AnySessionCall, c_int> {
        let Lender::Object(object) = self else { return Err(invalid("call")) };
        // SAFETY: the call is the object's, which is there.
        unsafe { object.as_ref() }.session_call(cookie)
    }
}

/// What `act` returns, which `run` calls once if it succeeds.
pub(crate) fn once<R>(
    act: impl FnOnce(&mut Turn<'_>) -> R,
    run: impl FnOnce(&mut dyn FnMut(&mut Turn<'_>)) -> Result<(), c_int>,
) -> Result<R, c_int> {
    let (mut act, mut done) = (Some(act), None);
    run(&mut |turn| done = act.take().map(|act| act(turn)))?;
    Ok(done.expect("it was called"))
}

#[cold]
pub(crate) fn under_construction() -> c_int {
    invalid("a call is under construction: submit or discard it first")
}

/// Writes by one of two functions.
pub(crate) fn with(
    call: Option<&mut rpcrdma_call>,
    built: impl FnOnce(&mut CallBuilder<'static>),
    owned: impl FnOnce(&mut OwnedCall),
) -> c_int {
    given!(call);
    match &mut call.payload.0 {
        Draft::Call(call) => built(call),
        Draft::Session(call) => each!(AnySessionCall, call, call => owned(call)),
        _ => return invalid("call"),
    }
    OK
}

/// The payload to write. NULL if there is no call.
///
/// Thread: that of the call's owner.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_call_payload(
    call: Option<&mut rpcrdma_call>,
) -> Option<&mut rpcrdma_payload> {
    let payload = &mut call?.payload;
    matches!(payload.0, Draft::Call(_) | Draft::Session(_)).then_some(payload)
}

/// Begins an operation of the call: results requested from here on belong to it. A call without
/// this is one operation.
///
/// Thread: that of the call's owner.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_call_operation(call: Option<&mut rpcrdma_call>) -> c_int {
    with(call, |call| _ = call.operation(), OwnedCall::operation)
}

/// Sets the maximum length of the reply's payload, from the transaction id on, without placed
/// items. The default is 1024 bytes, or the capacity of one message if that is less.
///
/// Thread: that of the call's owner.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_call_reply_payload_max(
    call: Option<&mut rpcrdma_call>,
    bytes: u32,
) -> c_int {
    with(call, |call| _ = call.reply_payload_max(bytes), |call| call.reply_payload_max(bytes))
}

/// Ends the call with `RPCRDMA_E_DEADLINE` if its reply has not arrived by `at_ns`, on the clock
/// that its owner is polled with: also while it waits in its session, for a connection or for
/// credits. The granularity is 1 ms.
///
/// Thread: that of the call's owner.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_call_deadline(call: Option<&mut rpcrdma_call>, at_ns: u64) -> c_int {
    given!(call);
    call.deadline = Some(at_ns);
    with(Some(call), |call| _ = call.deadline(at_ns), |call| call.deadline(at_ns))
}

/// Sets the xid, to that of an earlier call that this one repeats. Not for calls of sessions.
///
/// Thread: that of the call's owner.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_call_xid(call: Option<&mut rpcrdma_call>, xid: u32) -> c_int {
    given!(call);
    let Draft::Call(builder) = &mut call.payload.0 else { return invalid("call") };
    match builder.xid(xid) {
        Ok(_) => call.xid = Some(xid),
        Err(why) => return fail(Failure::Refused(why)),
    }
    OK
}

/// What becomes of a call of a session when its connection is lost: a value of `rpcrdma_resend`.
///
/// Thread: that of the call's owner.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_call_resend(call: Option<&mut rpcrdma_call>, resend: c_int) -> c_int {
    given!(call);
    let Draft::Session(draft) = &mut call.payload.0 else { return invalid("call") };
    let resend = match resend {
        0 => Resend::Never,
        1 => Resend::SameXid,
        _ => return invalid("resend"),
    };
    call.resend = resend;
    each!(AnySessionCall, draft, draft => draft.resend(resend));
    OK
}

/// Sends the call with the next poll. `id` receives its identity, to cancel it; NULL if it is not
/// needed, which costs less.
///
/// A refused call stays with its memory: if `rpcrdma_is_transient(status)`, poll, and submit it
/// again, or discard it. Beginning another discards it, too.
///
/// Thread: that of the call's owner.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_call_submit(
    call: Option<&mut rpcrdma_call>,
    id: Option<&mut MaybeUninit<rpcrdma_call_id>>,
) -> c_int {
    given!(call);
    match call.payload.0.take_call() {
        Some(builder) => call.submit(builder, id),
        None => call.submit_other(id),
    }
}

/// Takes back the memory placed in a call that was refused, in the order of placing; once. Writes
/// at most `capacity` loans, and how many to `count`. Further ones return to their pool. Constant
/// bytes are not among them.
///
/// Thread: that of the call's owner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_call_take_placed(
    call: Option<&mut rpcrdma_call>,
    loans: *mut rpcrdma_loan,
    capacity: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> c_int {
    given!(call, count);
    let Draft::Kept(kept) = &mut call.payload.0 else { return invalid("call") };
    // SAFETY: the program passes so many places.
    let places = unsafe { array(loans.cast(), capacity) };
    count.write(match &mut **kept {
        Kept::Call { unsent, .. } => write_loans(unsent.take_placed().filter_map(loan_of), places),
        Kept::Session { unsent, .. } => {
            write_loans(unsent.take_placed().filter_map(loan_of), places)
        }
    });
    OK
}

/// Takes back the result buffer of a want of a call that was refused, as
/// `rpcrdma_completion_take_sink`.
///
/// Thread: that of the call's owner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_call_take_sink(
    call: Option<&mut rpcrdma_call>,
    want: usize,
    pieces: *mut rpcrdma_loan,
    capacity: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> c_int {
    given!(call, count);
    let Draft::Kept(kept) = &mut call.payload.0 else { return invalid("call") };
    let sink = match &mut **kept {
        Kept::Call { unsent, .. } => unsent.take_sink(want),
        Kept::Session { unsent, .. } => unsent.take_sink(want),
    };
    let Some(sink) = sink else { return plain(RPCRDMA_E_NOTHING) };
    // SAFETY: the program passes so many places.
    let places = unsafe { array(pieces.cast(), capacity) };
    count.write(write_loans(sink.into_pieces(), places));
    OK
}

/// Discards the call; its memory returns to its pools.
///
/// Thread: that of the call's owner.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_call_discard(call: Option<&mut rpcrdma_call>) -> c_int {
    given!(call);
    call.clear();
    OK
}
