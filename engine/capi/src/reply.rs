//! The answer to a call: exactly one of sent, deferred, refused.

use core::ffi::c_int;
use core::mem::{ManuallyDrop, MaybeUninit, transmute};
use core::ptr;

use ::rpcrdma::onc::{AcceptStatus, ReplyHeader, RpcProgram};
use ::rpcrdma::{Answer, Reply};

use crate::arguments::{OK, given};
use crate::failure::{Failure, fail, invalid, plain};
use crate::message::rpcrdma_message;
use crate::payload::{Draft, rpcrdma_payload};
use crate::reader::rpcrdma_reader;
use crate::status::rpcrdma_status::RPCRDMA_E_DENIED;
use crate::ticket::rpcrdma_ticket;

/// The reply to one call. The callback answers by exactly one of `rpcrdma_reply_send`,
/// `rpcrdma_reply_try_send`, `rpcrdma_reply_defer`, `rpcrdma_reply_refuse`, `rpcrdma_reply_deny`
/// and a failed `rpcrdma_reply_arguments`. A callback that returns without an answer refuses the
/// call. Every function on an answered reply is `RPCRDMA_E_INVALID`.
pub struct rpcrdma_reply {
    pub(crate) payload: rpcrdma_payload,
}

impl rpcrdma_reply {
    /// The reply, for a callback. [`rpcrdma_reply::take_answer`] drops it.
    #[inline(always)]
    pub(crate) fn of(reply: Reply<'_>) -> ManuallyDrop<rpcrdma_reply> {
        // SAFETY: only the lifetime changes. `take_answer` ends it before what it borrows ends.
        let reply = unsafe { transmute::<Reply<'_>, Reply<'static>>(reply) };
        ManuallyDrop::new(rpcrdma_reply { payload: rpcrdma_payload(Draft::Reply(reply)) })
    }

    /// The answer that the callback has given. A call without one is refused.
    #[inline(always)]
    pub(crate) fn take_answer<'a>(&mut self) -> Answer<'a> {
        let answer = match &mut self.payload.0 {
            // SAFETY: it is in its place, has no content, and is not used there again: the reply
            // ends here.
            Draft::Answered(answer) => unsafe { ptr::from_mut(answer).read() },
            draft => not_answered(draft.take()),
        };
        // SAFETY: only the lifetime changes, which has no content: it is that of the reply that
        // this was made of.
        unsafe { transmute::<Answer<'static>, Answer<'a>>(answer) }
    }

    /// Answers, unless the call is answered.
    #[inline(always)]
    fn answer(&mut self, answer: impl FnOnce(Reply<'static>) -> Answer<'static>) -> c_int {
        let Some(open) = self.payload.0.take_reply() else { return invalid("reply") };
        self.payload.0.set(Draft::Answered(answer(open)));
        OK
    }
}

/// Sends a reply, with these results behind its header, or without if they are NULL. The only place
/// that does: what it calls is inlined here. Does not unwind: what calls it jumps here.
unsafe extern "C" fn send(
    reply: Option<&mut rpcrdma_reply>,
    results: *const u8,
    len: usize,
) -> c_int {
    given!(reply);
    let Draft::Reply(open) = &mut reply.payload.0 else { return invalid("reply") };
    if !results.is_null() {
        // SAFETY: the caller passes so many bytes.
        let results = unsafe { core::slice::from_raw_parts(results, len) };
        open.payload().put_fixed(&ReplyHeader::SUCCESS);
        open.payload().put_fixed(results);
    }
    // SAFETY: it is in its place, which is overwritten when it is sent: nothing unwinds from here.
    let open = unsafe { ptr::from_mut(open).read() };
    reply.payload.0.set(Draft::Answered(open.send()));
    OK
}

/// Refuses a call that a callback has not answered.
#[cold]
fn not_answered(draft: Draft) -> Answer<'static> {
    let _ = invalid("on_call: it has not answered");
    match draft {
        Draft::Reply(reply) => reply.refuse(),
        _ => panic!("a reply is open or answered"),
    }
}

/// An RPC program (RFC 5531).
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rpcrdma_program {
    /// Its number.
    pub number: u32,
    /// Its version.
    pub version: u32,
    /// One more than its last procedure.
    pub procedures: u32,
}

/// How a server accepts or denies a call (accept_stat of RFC 5531).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rpcrdma_accept_status {
    /// Executed; results follow.
    RPCRDMA_SUCCESS = 0,
    /// The program is not exported here.
    RPCRDMA_PROG_UNAVAIL = 1,
    /// The program has no such procedure.
    RPCRDMA_PROC_UNAVAIL = 3,
    /// The arguments cannot be read.
    RPCRDMA_GARBAGE_ARGS = 4,
    /// The server failed, for example to allocate memory.
    RPCRDMA_SYSTEM_ERR = 5,
}

/// The payload to write. NULL if the call is answered.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_reply_payload(
    reply: Option<&mut rpcrdma_reply>,
) -> Option<&mut rpcrdma_payload> {
    let payload = &mut reply?.payload;
    matches!(payload.0, Draft::Reply(_)).then_some(payload)
}

/// Reads the RPC header of the call: its procedure, and a reader positioned at its arguments. A
/// call that is invalid, or to another program, is answered by this function
/// (`RPCRDMA_E_DENIED`): return from the callback.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_reply_arguments(
    reply: Option<&mut rpcrdma_reply>,
    message: Option<&rpcrdma_message>,
    program: Option<&rpcrdma_program>,
    procedure: Option<&mut MaybeUninit<u32>>,
    reader: Option<&mut MaybeUninit<rpcrdma_reader>>,
) -> c_int {
    given!(reply, message, program, procedure, reader);
    let Some(incoming) = message.incoming() else { return invalid("message") };
    let rpcrdma_program { number, version, procedures } = *program;
    match incoming.arguments(&RpcProgram { number, version, procedures }) {
        Ok((called, arguments)) => {
            procedure.write(called);
            rpcrdma_reader::put(reader, arguments)
        }
        Err(denial) => match reply.answer(|open| open.deny(&denial)) {
            OK => plain(RPCRDMA_E_DENIED),
            number => number,
        },
    }
}

/// Sets the operation whose results are placed from now on: the one that begins at `origin` in the
/// unreduced XDR stream of the call. A call of one operation does not need this.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_reply_operation(reply: Option<&mut rpcrdma_reply>, origin: u32) -> c_int {
    given!(reply);
    let Draft::Reply(open) = &mut reply.payload.0 else { return invalid("reply") };
    open.operation(origin);
    OK
}

/// Sends the reply at the end of the turn. If it cannot be sent, the caller gets an error;
/// `rpcrdma_reply_try_send` returns the reason.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_reply_send(reply: Option<&mut rpcrdma_reply>) -> c_int {
    // SAFETY: there are no results.
    unsafe { send(reply, ptr::null(), 0) }
}

/// Writes the RPC header of a reply that has results, these results and their padding, and sends
/// the reply as `rpcrdma_reply_send`: the fast way for short results, in one call. `results` must
/// not be NULL, also if `len` is 0.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_reply_send_results(
    reply: Option<&mut rpcrdma_reply>,
    results: *const u8,
    len: usize,
) -> c_int {
    if results.is_null() {
        return invalid("results");
    }
    // SAFETY: the program passes so many bytes.
    unsafe { send(reply, results, len) }
}

/// As `rpcrdma_reply_send`, but a reply that cannot be sent stays open, to be deferred or refused.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_reply_try_send(reply: Option<&mut rpcrdma_reply>) -> c_int {
    given!(reply);
    let Some(open) = reply.payload.0.take_reply() else { return invalid("reply") };
    match open.try_send() {
        Ok(answer) => {
            reply.payload.0.set(Draft::Answered(answer));
            OK
        }
        Err((open, why)) => {
            reply.payload.0.set(Draft::Reply(open));
            fail(Failure::Refused(why))
        }
    }
}

/// Keeps the right to answer later, on this thread or another: `ticket` receives it. What was
/// written is discarded.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_reply_defer(
    reply: Option<&mut rpcrdma_reply>,
    ticket: Option<&mut MaybeUninit<rpcrdma_ticket>>,
) -> c_int {
    given!(reply, ticket);
    let Some(open) = reply.payload.0.take_reply() else { return invalid("reply") };
    let (answer, right) = open.defer();
    reply.payload.0.set(Draft::Answered(answer));
    ticket.write(rpcrdma_ticket::NONE).put(right);
    OK
}

/// Rejects the call: the caller learns that there will be no reply.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_reply_refuse(reply: Option<&mut rpcrdma_reply>) -> c_int {
    given!(reply);
    reply.answer(Reply::refuse)
}

/// Sends a reply without results, with this `rpcrdma_accept_status`: the call is not executed. The
/// payload must be empty.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_reply_deny(reply: Option<&mut rpcrdma_reply>, status: c_int) -> c_int {
    given!(reply);
    let status = match status {
        1 => AcceptStatus::ProgramUnavailable,
        3 => AcceptStatus::ProcedureUnavailable,
        4 => AcceptStatus::GarbageArguments,
        5 => AcceptStatus::SystemError,
        _ => return invalid("status"),
    };
    reply.answer(|open| open.deny(&status.into()))
}
