//! A call being written, of a client, a shard or a session.

use core::ffi::c_int;
use core::mem::MaybeUninit;

use ::rpcrdma::{CallBuilder, OwnedCall, Resend, SINK_PIECES_MAX, Unsent};

use crate::arguments::{OK, array, given};
use crate::call_id::rpcrdma_call_id;
use crate::failure::{Failure, fail, invalid, plain};
use crate::loan::{loan_of, rpcrdma_loan, write_loans};
use crate::payload::{Draft, Kept, rpcrdma_payload};
use crate::polled::{self, rpcrdma_call};
use crate::provider::{AnySessionCall, each};
use crate::status::rpcrdma_status::{RPCRDMA_E_INCOMPLETE, RPCRDMA_E_NOTHING};

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
const _: () = assert!(rpcrdma::message::wanted::WANTS_MAX == RPCRDMA_WANTS_MAX);

impl rpcrdma_call {
    pub(crate) fn takes_want(&mut self) -> bool {
        let takes = self.is_open() && self.wants < RPCRDMA_WANTS_MAX;
        self.wants += usize::from(takes);
        takes
    }

    /// The number of its shard.
    fn shard(&self) -> u32 {
        // SAFETY: the call is this object's, which is there.
        unsafe { &*self.owner }.handle().0.shard()
    }

    /// Sends a call of a client or shard.
    #[inline(always)]
    fn submit(
        &mut self,
        mut builder: CallBuilder<'static>,
        id: Option<&mut MaybeUninit<rpcrdma_call_id>>,
    ) -> c_int {
        if let Some(id) = id {
            id.write(rpcrdma_call_id::of(builder.handle(), self.shard()));
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
            Ok(name) => Ok(rpcrdma_call_id::of(name, self.shard())),
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
        // SAFETY: the call is this object's, which is there.
        let owner = unsafe { &*self.owner };
        let object = match owner.with_kept_call() {
            Ok(object) => object,
            Err(number) => {
                self.payload.0 = Draft::Kept(kept);
                return Err(number);
            }
        };
        match *kept {
            Kept::Call { unsent, connection, cookie, deadline, xid } => {
                let Some(mut call) = unsent.into_call() else {
                    return Err(plain(RPCRDMA_E_INCOMPLETE));
                };
                if let Some(at) = deadline {
                    call.deadline(at);
                }
                let sent = polled::with(object, |turn| match xid {
                    Some(xid) => turn.submit_with_xid(connection, cookie, xid, call),
                    None => turn.submit(connection, cookie, call),
                });
                sent.map(|name| rpcrdma_call_id::of(name, self.shard()))
                    .map_err(|unsent| self.keep(unsent))
            }
            Kept::Session { unsent, cookie, resend } => {
                let Some(call) = unsent.into_call() else {
                    return Err(plain(RPCRDMA_E_INCOMPLETE));
                };
                let mut draft = object.session()?.call(cookie);
                each!(AnySessionCall, &mut draft, draft => {
                    **draft = call;
                    draft.resend(resend);
                });
                self.submit_to_session(draft)
            }
        }
    }
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
