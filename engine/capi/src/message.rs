//! Received messages: calls for the handler, replies of completions.

use core::ffi::{c_char, c_int, c_void};
use core::mem::{MaybeUninit, transmute};
use core::ptr::NonNull;

use ::rpcrdma::{Call, Completion, ConnectionId, Incoming, SessionCompletion};

use crate::arguments::{OK, array, given, write_text};
use crate::failure::{Failure, fail, invalid, plain};
use crate::loan::{loan_of, rpcrdma_loan, rpcrdma_slice, write_loans};
use crate::status::rpcrdma_status::RPCRDMA_E_NOTHING;

/// Names a connection of one shard. Stale once the connection has ended. All zero for none.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct rpcrdma_connection {
    /// The library's.
    pub id: u64,
}

/// A received call or reply, read in place.
#[derive(Debug, Clone, Copy)]
pub enum rpcrdma_message {
    #[doc(hidden)]
    Call(NonNull<Call<'static>>),
    #[doc(hidden)]
    Reply(NonNull<Completion<'static>>),
    #[doc(hidden)]
    Session(NonNull<SessionCompletion<'static, 'static>>),
}

/// A call, for the handler. It ends with the callback. Later versions may add fields.
#[repr(C)]
#[derive(Debug)]
pub struct rpcrdma_request {
    /// The calling peer.
    pub connection: rpcrdma_connection,
    /// The transaction id, unique among the open calls of the peer.
    pub xid: u32,
    /// 0.
    pub reserved: u32,
    /// The message, as it was received.
    pub message: *mut rpcrdma_message,
    /// Its payload, from the transaction id on, without placed items: the fast way to read it.
    /// `data` is NULL if it is not contiguous: use a reader. Short messages always are.
    pub bytes: rpcrdma_slice,
}

/// A call is over: its reply, or why there is none. It ends with the callback. Later versions may
/// add fields.
#[repr(C)]
#[derive(Debug)]
pub struct rpcrdma_completion {
    /// The value that the program attached to the call.
    pub cookie: u64,
    /// 0 if there is a reply; otherwise why there is none, as `rpcrdma_status`.
    pub status: c_int,
    /// What is known about the execution, as `rpcrdma_execution`.
    pub execution: c_int,
    /// The reply; NULL if there is none.
    pub message: *mut rpcrdma_message,
    /// The payload of the reply, as that of a request.
    pub bytes: rpcrdma_slice,
    /// The peer that was called; none for a call of a session.
    pub connection: rpcrdma_connection,
    /// The transaction id of the call, to repeat it with; 0 for a call of a session.
    pub xid: u32,
    /// What went wrong with the connection of a call without a reply, as `rpcrdma_status`: why it
    /// was lost (`RPCRDMA_E_CONNECTION_LOST`), or why there was none until the deadline
    /// (`RPCRDMA_E_DEADLINE`). 0 if that is not the reason.
    pub cause: c_int,
    /// The library's.
    pub source: *mut rpcrdma_message,
}

/// Receives each completion of a client or session. `arg` is that of the poll.
pub type rpcrdma_on_completion =
    Option<unsafe extern "C" fn(arg: *mut c_void, completion: *mut rpcrdma_completion)>;

/// An item outside of the payload stream.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct rpcrdma_placed {
    /// Its position in the unreduced XDR stream, or `RPCRDMA_NO_POSITION`: a reply in version one
    /// does not state it.
    pub position: u32,
    /// In a reply: the want that it answers, by the order of requests.
    pub index: u32,
    /// Its length in bytes.
    pub len: u32,
    /// Slices that it lies in.
    pub segments: u32,
}

const _: () = assert!(size_of::<ConnectionId>() == size_of::<rpcrdma_connection>());

impl rpcrdma_connection {
    /// No connection.
    pub(crate) const NONE: rpcrdma_connection = rpcrdma_connection { id: 0 };

    /// The name, for the program.
    #[inline]
    pub(crate) fn of(name: ConnectionId) -> rpcrdma_connection {
        // SAFETY: two numbers of 32 bits become one of 64, in any order: only `name` reads it. The
        // name of the first place is 0 when its generation has wrapped; inverted, no name is.
        rpcrdma_connection { id: !unsafe { transmute::<ConnectionId, u64>(name) } }
    }

    /// The name; one that the program made up names no connection.
    #[inline]
    pub(crate) fn name(self) -> ConnectionId {
        // SAFETY: a name is two numbers, of which any are valid.
        unsafe { transmute::<u64, ConnectionId>(!self.id) }
    }
}

impl rpcrdma_message {
    /// The message; `None` if a call failed without one.
    #[inline]
    pub(crate) fn incoming(&self) -> Option<&Incoming<'static>> {
        match self {
            // SAFETY: the object is in its callback, and nothing else uses it meanwhile.
            rpcrdma_message::Call(call) => Some(unsafe { call.as_ref() }),
            // SAFETY: as above.
            rpcrdma_message::Reply(done) => unsafe { done.as_ref() }.result().ok(),
            // SAFETY: as above.
            rpcrdma_message::Session(done) => unsafe { done.as_ref() }.result().ok(),
        }
    }

    fn incoming_mut(&mut self) -> Option<&mut Incoming<'static>> {
        match self {
            // SAFETY: the object is in its callback, and nothing else uses it meanwhile.
            rpcrdma_message::Call(call) => Some(unsafe { call.as_mut() }),
            // SAFETY: as above.
            rpcrdma_message::Reply(done) => unsafe { done.as_mut() }.result_mut().ok(),
            // SAFETY: as above.
            rpcrdma_message::Session(done) => unsafe { done.as_mut() }.result_mut().ok(),
        }
    }
}

impl rpcrdma_completion {
    /// What it is made of.
    fn source(&self) -> Option<rpcrdma_message> {
        // SAFETY: the completion is in its callback, and so is what it is made of.
        unsafe { self.source.as_ref() }.copied()
    }
}

/// The position of an item is not stated.
pub const RPCRDMA_NO_POSITION: u32 = u32::MAX;

/// Bytes of a payload in front of its RPC body: transaction id and message type.
pub const RPCRDMA_PREFIX_LEN: usize = 8;

/// An item that was placed outside of the payload stream, in stream order. `RPCRDMA_E_NOTHING`
/// behind the last.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_message_placed(
    message: Option<&rpcrdma_message>,
    item: usize,
    placed: Option<&mut MaybeUninit<rpcrdma_placed>>,
) -> c_int {
    given!(message, placed);
    let found = message.incoming().and_then(|incoming| incoming.placed().nth(item));
    let Some(found) = found else { return plain(RPCRDMA_E_NOTHING) };
    placed.write(rpcrdma_placed {
        position: found.position().unwrap_or(RPCRDMA_NO_POSITION),
        index: found.index() as u32,
        len: found.len(),
        segments: found.segments().len() as u32,
    });
    OK
}

/// A slice of a placed item; empty if it was taken. `RPCRDMA_E_NOTHING` if there is none.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_message_segment(
    message: Option<&rpcrdma_message>,
    item: usize,
    segment: usize,
    slice: Option<&mut MaybeUninit<rpcrdma_slice>>,
) -> c_int {
    given!(message, slice);
    let found = message.incoming().and_then(|incoming| incoming.placed().nth(item));
    let Some(bytes) = found.and_then(|found| found.segments().nth(segment)) else {
        return plain(RPCRDMA_E_NOTHING);
    };
    slice.write(rpcrdma_slice::of(bytes));
    OK
}

/// Takes a slice of a placed item out of its receive buffer, without a copy: `loan` receives it. It
/// counts as in `rpcrdma_message_segment`. `RPCRDMA_E_NO_SPARE`, `RPCRDMA_E_SHARED`: read and copy
/// the slice instead.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_message_take(
    message: Option<&mut rpcrdma_message>,
    item: usize,
    segment: usize,
    loan: Option<&mut MaybeUninit<rpcrdma_loan>>,
) -> c_int {
    given!(message, loan);
    let Some(incoming) = message.incoming_mut() else { return plain(RPCRDMA_E_NOTHING) };
    match incoming.take(item, segment) {
        Ok(taken) => {
            loan.write(rpcrdma_loan::of(taken));
            OK
        }
        Err(why) => fail(Failure::Take(why)),
    }
}

/// The address of the caller, as text with a NUL at its end, in at most `len` bytes.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_request_address(
    request: Option<&rpcrdma_request>,
    text: *mut c_char,
    len: usize,
) -> c_int {
    given!(request);
    // SAFETY: the request is in its callback, and so is its message.
    let message = unsafe { request.message.as_ref() };
    let Some(rpcrdma_message::Call(call)) = message else { return invalid("request") };
    // SAFETY: the message is in its callback, and nothing else uses the call meanwhile.
    let call = unsafe { call.as_ref() };
    // SAFETY: the program passes room for `len` bytes.
    unsafe { write_text(&call.address(), text, len) }
}

/// Takes back the result buffer of a want, by the order of requests; once. Writes at most
/// `capacity` pieces, which is as many as were given, and how many to `count`. Further ones return
/// to their pool. `RPCRDMA_E_NOTHING` if the want had none, or the device may still write to it.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_completion_take_sink(
    completion: Option<&mut rpcrdma_completion>,
    want: usize,
    pieces: *mut rpcrdma_loan,
    capacity: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> c_int {
    given!(completion, count);
    let sink = match completion.source() {
        // SAFETY: the completion is in its callback, and nothing else uses it meanwhile.
        Some(rpcrdma_message::Reply(mut it)) => unsafe { it.as_mut() }.take_sink(want),
        // SAFETY: as above.
        Some(rpcrdma_message::Session(mut it)) => unsafe { it.as_mut() }.take_sink(want),
        _ => return invalid("completion"),
    };
    let Some(sink) = sink else { return plain(RPCRDMA_E_NOTHING) };
    // SAFETY: the program passes so many places.
    let places = unsafe { array(pieces.cast(), capacity) };
    count.write(write_loans(sink.into_pieces(), places));
    OK
}

/// Takes back the memory placed in a call of a session that ended while it waited; once. As
/// `rpcrdma_completion_take_sink`. That of a call that was under way returns to its pools.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_completion_take_placed(
    completion: Option<&mut rpcrdma_completion>,
    loans: *mut rpcrdma_loan,
    capacity: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> c_int {
    given!(completion, count);
    // SAFETY: the program passes so many places.
    let places = unsafe { array(loans.cast(), capacity) };
    count.write(match completion.source() {
        Some(rpcrdma_message::Session(mut it)) => {
            // SAFETY: the completion is in its callback, and nothing else uses it meanwhile.
            write_loans(unsafe { it.as_mut() }.take_placed().filter_map(loan_of), places)
        }
        _ => 0,
    });
    OK
}
