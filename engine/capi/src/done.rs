//! Completions of clients and sessions, on their way to the program.

use core::ffi::c_void;
use core::ptr::{self, NonNull};

use ::rpcrdma_engine::{Completion, Execution, Incoming, SessionCompletion, SessionError};

use crate::arguments::OK;
use crate::failure::{Failure, fail};
use crate::loan::rpcrdma_slice;
use crate::message::{
    rpcrdma_completion, rpcrdma_connection, rpcrdma_message, rpcrdma_on_completion,
};
use crate::status::rpcrdma_execution::{
    self, RPCRDMA_EXECUTED, RPCRDMA_MAY_BE_EXECUTED, RPCRDMA_NOT_EXECUTED,
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
        let connection = rpcrdma_connection::of(done.peer());
        let cookie = done.cookie();
        let result = done.result().map(bytes_of);
        let result = result.map_err(|error| (Failure::Call(error), error.execution()));
        let source = rpcrdma_message::Reply(NonNull::from(&mut done).cast());
        self.report_of(cookie, connection, source, result);
    }

    /// Reports a call of a session.
    #[inline(always)]
    pub fn report_of_session(&self, mut done: SessionCompletion<'_, '_>) {
        let cookie = done.cookie();
        let result = done.result().map(bytes_of);
        let result =
            result.map_err(|error: SessionError| (Failure::SessionCall(error), error.execution()));
        let source = rpcrdma_message::Session(NonNull::from(&mut done).cast());
        self.report_of(cookie, rpcrdma_connection::NONE, source, result);
    }

    #[inline(always)]
    fn report_of(
        &self,
        cookie: u64,
        connection: rpcrdma_connection,
        mut source: rpcrdma_message,
        result: Result<rpcrdma_slice, (Failure, Execution)>,
    ) {
        let source = ptr::from_mut(&mut source);
        let (status, execution, message, bytes) = match result {
            Ok(bytes) => (OK, RPCRDMA_EXECUTED, source, bytes),
            Err((failure, execution)) => {
                (fail(failure), of(execution), ptr::null_mut(), rpcrdma_slice::NONE)
            }
        };
        let execution = execution as core::ffi::c_int;
        let mut completion =
            rpcrdma_completion { cookie, status, execution, message, bytes, connection, source };
        // SAFETY: the program gave it for this; all that the completion points to stays during the
        // call, and nothing else uses it.
        unsafe { (self.callback)(self.arg, &mut completion) };
    }
}

#[inline(always)]
pub(crate) fn bytes_of(incoming: &Incoming<'_>) -> rpcrdma_slice {
    incoming.contiguous().map_or(rpcrdma_slice::NONE, rpcrdma_slice::of)
}

#[cold]
fn of(execution: Execution) -> rpcrdma_execution {
    match execution {
        Execution::NotExecuted => RPCRDMA_NOT_EXECUTED,
        Execution::Unknown => RPCRDMA_MAY_BE_EXECUTED,
    }
}

extern "C" fn forget(_arg: *mut c_void, _completion: *mut rpcrdma_completion) {}
