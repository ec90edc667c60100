//! Completions of clients and sessions, on their way to the program.

use core::ffi::{c_int, c_void};
use core::ptr::{self, NonNull};

use ::rpcrdma::{
    CallError, Completion, Execution, Incoming, Outage, SessionCompletion, SessionError,
};

use crate::arguments::OK;
use crate::failure::{Failure, fail};
use crate::loan::rpcrdma_slice;
use crate::message::{
    rpcrdma_completion, rpcrdma_connection, rpcrdma_message, rpcrdma_on_completion,
};
use crate::status::rpcrdma_execution::{
    RPCRDMA_EXECUTED, RPCRDMA_MAY_BE_EXECUTED, RPCRDMA_NOT_EXECUTED,
};

/// The function of the program that gets completions.
pub(crate) struct Done {
    callback: unsafe extern "C" fn(arg: *mut c_void, completion: *mut rpcrdma_completion),
    arg: *mut c_void,
}

impl Done {
    /// No function drops every completion.
    #[inline(always)]
    pub fn of(done: rpcrdma_on_completion, arg: *mut c_void) -> Done {
        Done { callback: done.unwrap_or(forget), arg }
    }

    /// Reports a call of a client or shard.
    #[inline(always)]
    pub fn report(&self, mut done: Completion<'_>) {
        let (connection, xid) = (rpcrdma_connection::of(done.peer()), done.xid());
        let cookie = done.cookie();
        let result = done.result().map(bytes_of);
        let source = rpcrdma_message::Reply(NonNull::from(&mut done).cast());
        self.report_of(cookie, connection, xid, source, result, call_failed);
    }

    /// Reports a call of a session.
    #[inline(always)]
    pub fn report_of_session(&self, mut done: SessionCompletion<'_, '_>) {
        let cookie = done.cookie();
        let result = done.result().map(bytes_of);
        let source = rpcrdma_message::Session(NonNull::from(&mut done).cast());
        let none = rpcrdma_connection::NONE;
        self.report_of(cookie, none, 0, source, result, session_call_failed);
    }

    #[inline(always)]
    fn report_of<E>(
        &self,
        cookie: u64,
        connection: rpcrdma_connection,
        xid: u32,
        mut source: rpcrdma_message,
        result: Result<rpcrdma_slice, E>,
        failed: fn(&mut rpcrdma_completion, E),
    ) {
        let source = ptr::from_mut(&mut source);
        let mut completion = rpcrdma_completion {
            cookie,
            status: OK,
            execution: RPCRDMA_EXECUTED as c_int,
            message: source,
            bytes: rpcrdma_slice::NONE,
            connection,
            xid,
            cause: OK,
            source,
        };
        match result {
            Ok(bytes) => completion.bytes = bytes,
            Err(why) => failed(&mut completion, why),
        }
        // SAFETY: the program gave it for this; all that the completion points to stays during the
        // call, and nothing else uses it.
        unsafe { (self.callback)(self.arg, &mut completion) };
    }
}

#[cold]
fn call_failed(completion: &mut rpcrdma_completion, why: CallError) {
    failed(completion, Failure::Call(why), SessionError::Call(why));
}

#[cold]
fn session_call_failed(completion: &mut rpcrdma_completion, why: SessionError) {
    failed(completion, Failure::SessionCall(why), why);
}

/// States why there is no reply.
fn failed(completion: &mut rpcrdma_completion, failure: Failure, why: SessionError) {
    completion.status = fail(failure);
    completion.execution = match why.execution() {
        Execution::NotExecuted => RPCRDMA_NOT_EXECUTED,
        Execution::Unknown => RPCRDMA_MAY_BE_EXECUTED,
    } as c_int;
    completion.message = ptr::null_mut();
    let cause = match why {
        SessionError::Call(CallError::ConnectionLost(why, _))
        | SessionError::DeadlineExceeded(Outage::Lost(why), _) => Failure::Close(why),
        SessionError::DeadlineExceeded(Outage::NotConnected(why), _) => Failure::Connect(why),
        _ => return,
    };
    completion.cause = cause.status().number();
}

#[inline(always)]
pub(crate) fn bytes_of(incoming: &Incoming<'_>) -> rpcrdma_slice {
    incoming.contiguous().map_or(rpcrdma_slice::NONE, rpcrdma_slice::of)
}

extern "C" fn forget(_arg: *mut c_void, _completion: *mut rpcrdma_completion) {}
