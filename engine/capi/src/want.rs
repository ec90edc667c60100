//! Results that a call requests outside of the payload of its reply.

use core::ffi::c_int;

use ::rpcrdma_engine::{SINK_PIECES_MAX, Sink, Want};

use crate::arguments::{OK, array, given, value};
use crate::call::{rpcrdma_call, with};
use crate::failure::invalid;
use crate::loan::rpcrdma_loan;
use crate::payload::Draft;
use crate::provider::{AnySessionCall, each};

/// Requests a result by a method that calls of clients and those of sessions have.
macro_rules! request {
    ($call:ident.$method:ident($($argument:expr),+)) => {
        match &mut $call.payload.0 {
            Draft::Call(call) => _ = call.$method($($argument),+),
            Draft::Session(call) => {
                each!(AnySessionCall, call, call => call.$method($($argument),+))
            }
            _ => return invalid("call"),
        }
    };
}

/// Requests one more data item of the reply outside of its payload, in placement segments. A
/// shorter item than `len_min` stays in the payload; at most `len_max` bytes are received.
///
/// Thread: that of the call's owner.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_call_want(
    call: Option<&mut rpcrdma_call>,
    len_min: u32,
    len_max: u32,
) -> c_int {
    given!(call);
    if !call.takes_want() {
        return invalid("call");
    }
    let want = Want { len_min, len_max };
    with(Some(call), |call| _ = call.want(want), |call| call.want(want))
}

/// As `rpcrdma_call_want`, but the peer writes the item to a result buffer by RDMA Write. It has
/// `count` pieces, in all at least `len_max` bytes. Takes the loans, which come back by
/// `rpcrdma_completion_take_sink`.
///
/// Thread: that of the call's owner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_call_want_into(
    call: Option<&mut rpcrdma_call>,
    len_min: u32,
    len_max: u32,
    sink: *mut rpcrdma_loan,
    count: usize,
) -> c_int {
    let want = Want { len_min, len_max };
    // SAFETY: the program passes so many loans.
    let (call, sink) = value!(sink_of(call, want, unsafe { array(sink, count) }));
    request!(call.want_into(want, sink));
    OK
}

/// As `rpcrdma_call_want_into`, but the peer may choose to place the item by Send.
///
/// Thread: that of the call's owner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_call_want_either(
    call: Option<&mut rpcrdma_call>,
    len_min: u32,
    len_max: u32,
    sink: *mut rpcrdma_loan,
    count: usize,
) -> c_int {
    let want = Want { len_min, len_max };
    // SAFETY: the program passes so many loans.
    let (call, sink) = value!(sink_of(call, want, unsafe { array(sink, count) }));
    request!(call.want_either(want, sink));
    OK
}

/// As `rpcrdma_call_want_into`, but the peer places an item of at most `sent_max` bytes by Send.
///
/// Thread: that of the call's owner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_call_want_by_size(
    call: Option<&mut rpcrdma_call>,
    len_min: u32,
    len_max: u32,
    sent_max: u32,
    sink: *mut rpcrdma_loan,
    count: usize,
) -> c_int {
    let want = Want { len_min, len_max };
    // SAFETY: the program passes so many loans.
    let (call, sink) = value!(sink_of(call, want, unsafe { array(sink, count) }));
    request!(call.want_by_size(want, sent_max, sink));
    OK
}

/// The result buffer of a want that the call takes. Takes the loans.
fn sink_of<'c>(
    call: Option<&'c mut rpcrdma_call>,
    want: Want,
    pieces: &mut [rpcrdma_loan],
) -> Result<(&'c mut rpcrdma_call, Sink), c_int> {
    let Some(call) = call else { return Err(invalid("call")) };
    let len: usize = pieces.iter().map(|piece| piece.len as usize).sum();
    let is_whole = pieces.iter().all(|piece| !piece.data.is_null());
    if pieces.len() > SINK_PIECES_MAX || !is_whole || len < want.len_max as usize {
        return Err(invalid("sink"));
    }
    if !call.takes_want() {
        return Err(invalid("call"));
    }
    let mut sink = Sink::new();
    for piece in pieces.iter_mut().filter_map(rpcrdma_loan::take) {
        // There are no more than it holds.
        drop(sink.push(piece));
    }
    Ok((call, sink))
}
