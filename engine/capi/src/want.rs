//! Results that a call requests outside of the payload of its reply.

use core::ffi::c_int;
use core::ptr;

use ::rpcrdma::{SINK_PIECES_MAX, Sink, Want};

use crate::arguments::{OK, array, given, sized, value};
use crate::call::with;
use crate::failure::invalid;
use crate::loan::rpcrdma_loan;
use crate::payload::Draft;
use crate::polled::rpcrdma_call;
use crate::provider::{AnySessionCall, each};

/// How a result that a call requests may reach its buffer.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rpcrdma_placement {
    /// The peer writes it there by RDMA Write: the default.
    RPCRDMA_PLACE_BY_WRITE = 0,
    /// As the peer chooses: by RDMA Write, or by Send in placement segments.
    RPCRDMA_PLACE_EITHER = 1,
    /// By Send if it has at most `sent_max` bytes.
    RPCRDMA_PLACE_BY_SIZE = 2,
}

/// A result that a call requests outside of the payload of its reply.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rpcrdma_want {
    /// `sizeof(rpcrdma_want)`.
    pub size: usize,
    /// The shortest item to be placed: a shorter one stays in the payload.
    pub len_min: u32,
    /// The most bytes to receive.
    pub len_max: u32,
    /// Its result buffer, of at least `len_max` bytes in `sink_count` pieces. The loans are taken, and come back by `rpcrdma_completion_take_sink`.
    pub sink: *mut rpcrdma_loan,
    /// How many pieces there are; at most `RPCRDMA_SINK_PIECES_MAX`.
    pub sink_count: usize,
    /// How it may reach the buffer: a value of `rpcrdma_placement`.
    pub placement: c_int,
    /// For `RPCRDMA_PLACE_BY_SIZE`.
    pub sent_max: u32,
}

impl rpcrdma_want {
    /// Nothing.
    pub const NONE: rpcrdma_want = rpcrdma_want {
        size: size_of::<rpcrdma_want>(),
        len_min: 0,
        len_max: 0,
        sink: ptr::null_mut(),
        sink_count: 0,
        placement: 0,
        sent_max: 0,
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

/// As `rpcrdma_call_want`, with a result buffer. Takes its loans.
///
/// Thread: that of the call's owner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_call_want_into(
    call: Option<&mut rpcrdma_call>,
    want: *const rpcrdma_want,
) -> c_int {
    given!(call);
    // SAFETY: the program passes a structure with its size.
    let given = value!(unsafe { sized(want, rpcrdma_want::NONE, "want") });
    let want = Want { len_min: given.len_min, len_max: given.len_max };
    // SAFETY: the program passes so many loans.
    let pieces = unsafe { array(given.sink, given.sink_count) };
    if !(0..=2).contains(&given.placement) {
        return invalid("want.placement");
    }
    let sink = value!(sink_of(call, want, pieces));
    macro_rules! request {
        ($call:ident) => {
            match given.placement {
                0 => _ = $call.want_into(want, sink),
                1 => _ = $call.want_either(want, sink),
                _ => _ = $call.want_by_size(want, given.sent_max, sink),
            }
        };
    }
    match &mut call.payload.0 {
        Draft::Call(call) => request!(call),
        Draft::Session(call) => each!(AnySessionCall, call, call => request!(call)),
        _ => return invalid("call"),
    }
    OK
}

/// The result buffer of a want that the call takes. Takes the loans.
fn sink_of(
    call: &mut rpcrdma_call,
    want: Want,
    pieces: &mut [rpcrdma_loan],
) -> Result<Sink, c_int> {
    let len: usize = pieces.iter().map(|piece| piece.len as usize).sum();
    let is_whole = pieces.iter().all(|piece| !piece.data.is_null());
    if pieces.len() > SINK_PIECES_MAX || !is_whole || len < want.len_max as usize {
        return Err(invalid("want.sink"));
    }
    if !call.takes_want() {
        return Err(invalid("call"));
    }
    let mut sink = Sink::new();
    for piece in pieces.iter_mut().filter_map(rpcrdma_loan::take) {
        // There are no more than it holds.
        drop(sink.push(piece));
    }
    Ok(sink)
}
