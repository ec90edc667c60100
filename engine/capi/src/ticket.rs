//! Tickets: the right to answer a call later.

use crate::loan::{rpcrdma_loan, rpcrdma_slice};
use crate::message::rpcrdma_connection;

/// The right to answer one call, once, later, from any thread. Copying the structure moves the
/// ticket: only one copy may be used. Its content is the library's; a function that takes it sets
/// the first word to 0.
#[repr(C)]
#[derive(Debug)]
pub struct rpcrdma_ticket {
    /// The library's.
    pub words: [u64; 96],
}

/// An answer made on another thread: payload of bounded length, and bulk.
#[repr(C)]
#[derive(Debug)]
pub struct rpcrdma_finished {
    /// `sizeof(rpcrdma_finished)`.
    pub size: usize,
    /// The XDR in front of the bulk, from behind transaction id and message type; at most
    /// `RPCRDMA_FINISHED_HEAD_MAX` bytes.
    pub head: rpcrdma_slice,
    /// Data to place behind it, one item in several pieces; at most `RPCRDMA_FINISHED_BULK_MAX`.
    pub bulk: *mut rpcrdma_loan,
    /// How many pieces there are.
    pub bulk_count: usize,
    /// The XDR behind the bulk; at most `RPCRDMA_FINISHED_TAIL_MAX` bytes.
    pub tail: rpcrdma_slice,
    /// Where in the call the operation begins that the bulk is a result of; 0 for a call of one
    /// operation.
    pub origin: u32,
}

/// Bytes of a finished answer in front of its bulk.
pub const RPCRDMA_FINISHED_HEAD_MAX: usize = 192;
/// Pieces of bulk of a finished answer.
pub const RPCRDMA_FINISHED_BULK_MAX: usize = 16;
/// Bytes of a finished answer behind its bulk.
pub const RPCRDMA_FINISHED_TAIL_MAX: usize = 64;

/// Drops a ticket, which rejects its call. One that was given away is ignored.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_ticket_drop(ticket: *mut rpcrdma_ticket) {}

/// The peer whose call it answers; none for a ticket that was given away.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_ticket_connection(
    ticket: *const rpcrdma_ticket,
) -> rpcrdma_connection {
    rpcrdma_connection { id: 0 }
}

/// The transaction id of the call; 0 for a ticket that was given away.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_ticket_xid(ticket: *const rpcrdma_ticket) -> u32 {
    0
}
