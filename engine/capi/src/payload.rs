//! The payload of a message under construction: XDR, and data that are sent from their place.

use core::ffi::c_int;
use core::{mem, ptr};

use ::rpcrdma::onc::{CallHeader, ReplyHeader};
use ::rpcrdma::{Answer, Bulk, CallBuilder, OwnedCall, Payload, Reply, Unsent};
use ::rpcrdma::{ConnectionId, Resend, SessionRefused};

use crate::arguments::{OK, array, bytes, given};
use crate::failure::invalid;
use crate::loan::{rpcrdma_bytes, rpcrdma_loan};
use crate::provider::{AnySessionCall, each};

/// The payload of a call or reply that is being written, from behind transaction id and message
/// type. Errors are kept: sending the message returns them.
///
/// Cost: a function call for each item. To write a whole head with one `rpcrdma_put_fixed` is the
/// fast way.
pub struct rpcrdma_payload(pub(crate) Draft);

/// A message under construction. What it borrows is the shard's, and is used by it alone until it is
/// sent or discarded.
pub(crate) enum Draft {
    Nothing,
    /// It was a reply.
    Answered(Answer<'static>),
    Reply(Reply<'static>),
    Call(CallBuilder<'static>),
    Session(AnySessionCall),
    /// A call that was refused.
    Kept(Box<Kept>),
}

/// A call that was refused, with what sending it again needs.
pub(crate) enum Kept {
    Call {
        unsent: Unsent,
        connection: ConnectionId,
        cookie: u64,
        deadline: Option<u64>,
        xid: Option<u32>,
    },
    Session {
        unsent: Unsent<SessionRefused>,
        cookie: u64,
        resend: Resend,
    },
}

impl Draft {
    /// What it is, and nothing from now on.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Draft {
        mem::replace(self, Draft::Nothing)
    }

    /// Takes a reply that is open, and nothing else. Moves no more than it has to.
    #[inline(always)]
    pub(crate) fn take_reply(&mut self) -> Option<Reply<'static>> {
        let Draft::Reply(reply) = self else { return None };
        let reply = ptr::from_mut(reply);
        // SAFETY: it is in its place, which is overwritten at once.
        let taken = unsafe { reply.read() };
        self.set(Draft::Nothing);
        Some(taken)
    }

    /// Takes a call of a client or shard, and nothing else, as `take_reply`.
    #[inline(always)]
    pub(crate) fn take_call(&mut self) -> Option<CallBuilder<'static>> {
        let Draft::Call(call) = self else { return None };
        let call = ptr::from_mut(call);
        // SAFETY: it is in its place, which is overwritten at once.
        let taken = unsafe { call.read() };
        self.set(Draft::Nothing);
        Some(taken)
    }

    /// Puts a message where none is: drops nothing.
    #[inline(always)]
    pub(crate) fn set(&mut self, draft: Draft) {
        // SAFETY: the place is valid, and what is in it was moved out, or is nothing to be dropped.
        unsafe { ptr::from_mut(self).write(draft) };
    }
}

/// Writes by one of two functions; `None` if there is no message under construction.
#[inline(always)]
fn with<R>(
    payload: Option<&mut rpcrdma_payload>,
    registered: impl FnOnce(&mut Payload<'static>) -> R,
    owned: impl FnOnce(&mut OwnedCall) -> R,
) -> Option<R> {
    match &mut payload?.0 {
        Draft::Reply(reply) => Some(registered(reply.payload())),
        Draft::Call(call) => Some(registered(call.payload())),
        Draft::Session(call) => Some(each!(AnySessionCall, call, call => owned(call))),
        Draft::Nothing | Draft::Answered(_) | Draft::Kept(_) => None,
    }
}

#[inline(always)]
fn put(payload: Option<&mut rpcrdma_payload>, bytes: &[u8]) {
    let Some(payload) = payload else { return };
    match &mut payload.0 {
        Draft::Reply(reply) => reply.payload().put_fixed(bytes),
        Draft::Call(call) => call.payload().put_fixed(bytes),
        _ => put_in_session(payload, bytes),
    }
}

/// Out of the way of the others.
#[inline(never)]
fn put_in_session(payload: &mut rpcrdma_payload, bytes: &[u8]) {
    if let Draft::Session(call) = &mut payload.0 {
        each!(AnySessionCall, call, call => call.put_fixed(bytes));
    }
}

/// Places all of the loans, or none.
fn place_all(payload: &mut rpcrdma_payload, loans: &mut [rpcrdma_loan]) -> c_int {
    if loans.is_empty() || loans.iter().any(|loan| loan.data.is_null()) {
        return invalid("loan");
    }
    let mut pieces = loans.iter_mut().filter_map(rpcrdma_loan::take).map(Bulk::Loan);
    let taken = pieces.by_ref();
    match &mut payload.0 {
        Draft::Reply(reply) => reply.payload().place_pieces(taken),
        Draft::Call(call) => call.payload().place_pieces(taken),
        Draft::Session(call) => each!(AnySessionCall, call, call => call.place_pieces(taken)),
        // Nothing is taken.
        Draft::Nothing | Draft::Answered(_) | Draft::Kept(_) => return invalid("payload"),
    }
    // A message that has no room for all of them takes no more.
    pieces.for_each(drop);
    OK
}

/// Writes an unsigned integer.
///
/// Thread: that of the message.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_put_u32(payload: Option<&mut rpcrdma_payload>, value: u32) {
    put(payload, &value.to_be_bytes());
}

/// Writes an unsigned hyper integer.
///
/// Thread: that of the message.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_put_u64(payload: Option<&mut rpcrdma_payload>, value: u64) {
    put(payload, &value.to_be_bytes());
}

/// Writes variable-length opaque data or a string: count, bytes, padding. Where `data` is NULL
/// there are no bytes, and the count is 0.
///
/// Thread: that of the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_put_opaque(
    payload: Option<&mut rpcrdma_payload>,
    data: *const u8,
    len: usize,
) {
    // SAFETY: the program passes so many bytes.
    let data = unsafe { bytes(data, len) };
    with(payload, |payload| payload.put_opaque(data), |call| call.put_opaque(data));
}

/// Writes fixed-length opaque data: bytes, padding. Where `data` is NULL there are no bytes.
///
/// Thread: that of the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_put_fixed(
    payload: Option<&mut rpcrdma_payload>,
    data: *const u8,
    len: usize,
) {
    // SAFETY: the program passes so many bytes.
    put(payload, unsafe { bytes(data, len) });
}

/// Writes the RPC header of a call (RFC 5531), with AUTH_NONE.
///
/// Thread: that of the message.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_put_call_header(
    payload: Option<&mut rpcrdma_payload>,
    program: u32,
    version: u32,
    procedure: u32,
) {
    put(payload, &CallHeader::plain(program, version, procedure));
}

/// Writes the RPC header of a reply that has results: accepted, SUCCESS.
///
/// Thread: that of the message.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_put_reply_header(payload: Option<&mut rpcrdma_payload>) {
    put(payload, &ReplyHeader::SUCCESS);
}

/// Writes the count of variable-length opaque data, and sends the bytes from their place: one data
/// item in `count` pieces. They go to placement segments or memory of the peer if it asks for that,
/// and follow in line otherwise. Takes all loans, which return to their pools when the message has
/// left, or none.
///
/// Thread: that of the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_place(
    payload: Option<&mut rpcrdma_payload>,
    loans: *mut rpcrdma_loan,
    count: usize,
) -> c_int {
    given!(payload);
    // SAFETY: the program passes so many loans.
    place_all(payload, unsafe { array(loans, count) })
}

/// As `rpcrdma_place`, for a part of constant bytes, which stay in place.
///
/// Thread: that of the message.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_place_bytes(
    payload: Option<&mut rpcrdma_payload>,
    bytes: Option<&rpcrdma_bytes>,
    offset: usize,
    len: usize,
) -> c_int {
    given!(payload, bytes);
    let range = offset.checked_add(len).and_then(|end| bytes.0.slice(offset..end));
    let Some(slice) = range else { return invalid("len") };
    match with(Some(payload), |it| it.place(slice.clone()), |call| call.place(slice.clone())) {
        Some(()) => OK,
        None => invalid("payload"),
    }
}

/// The current position in the unreduced XDR stream.
///
/// Thread: that of the message.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_position(payload: Option<&mut rpcrdma_payload>) -> u32 {
    with(payload, |payload| payload.position(), |call| call.position()).unwrap_or(0)
}
