//! Tickets: the right to answer a call later.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::ptr;

use ::rpcrdma::handle::ticket::{FINISHED_BULK_MAX, FINISHED_HEAD_LEN, FINISHED_TAIL_LEN};
use ::rpcrdma::{Finished, Ticket};

use crate::arguments::{array, bytes, sized};
use crate::failure::invalid;
use crate::loan::{rpcrdma_loan, rpcrdma_slice};
use crate::message::rpcrdma_connection;

/// The right to answer one call, once, later, from any thread. Copying the structure moves the
/// ticket: only one copy may be used. A function that takes it sets its fields to 0, and one whose
/// `state` is 0 is none.
#[repr(C)]
#[derive(Debug)]
pub struct rpcrdma_ticket {
    /// Not 0 if it is one.
    pub state: u64,
    /// The peer whose call it answers.
    pub connection: rpcrdma_connection,
    /// The transaction id of the call.
    pub xid: u32,
    /// 0.
    pub reserved: u32,
    /// The library's.
    pub words: [MaybeUninit<u64>; 95],
}

/// An answer made on another thread: payload and bulk. If the reply cannot be sent, for instance
/// because it is longer than its caller can receive, the caller gets an error.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rpcrdma_finished {
    /// `sizeof(rpcrdma_finished)`.
    pub size: usize,
    /// The XDR in front of the bulk, from behind transaction id and message type.
    pub head: rpcrdma_slice,
    /// Data to place behind it, one item in several pieces; at most `RPCRDMA_FINISHED_BULK_MAX`.
    pub bulk: *mut rpcrdma_loan,
    /// How many pieces there are.
    pub bulk_count: usize,
    /// The XDR behind the bulk.
    pub tail: rpcrdma_slice,
    /// Where in the call the operation begins that the bulk is a result of; 0 for a call of one
    /// operation.
    pub origin: u32,
    /// 0; another value is `RPCRDMA_E_INVALID`.
    pub reserved: u32,
}

/// Bytes of a finished answer in front of its bulk that are copied without an allocation.
pub const RPCRDMA_FINISHED_HEAD_LEN: usize = 192;
/// Pieces of bulk of a finished answer.
pub const RPCRDMA_FINISHED_BULK_MAX: usize = 16;
/// Bytes of a finished answer behind its bulk that are copied without an allocation.
pub const RPCRDMA_FINISHED_TAIL_LEN: usize = 64;

const _: () = assert!(size_of::<Ticket>() <= size_of::<[u64; 95]>());
const _: () = assert!(align_of::<Ticket>() <= align_of::<u64>());
const _: () = assert!(RPCRDMA_FINISHED_HEAD_LEN == FINISHED_HEAD_LEN);
const _: () = assert!(RPCRDMA_FINISHED_BULK_MAX == FINISHED_BULK_MAX);
const _: () = assert!(RPCRDMA_FINISHED_TAIL_LEN == FINISHED_TAIL_LEN);

/// The state of a ticket that is one: less likely than 1 in memory that was never written.
const FULL: u64 = 0x7470_6372_6471_0001;

impl rpcrdma_ticket {
    /// No ticket.
    pub(crate) const NONE: rpcrdma_ticket = rpcrdma_ticket {
        state: 0,
        connection: rpcrdma_connection::NONE,
        xid: 0,
        reserved: 0,
        words: [MaybeUninit::uninit(); 95],
    };

    /// Gives it to the program.
    pub(crate) fn put(&mut self, ticket: Ticket) {
        (self.connection, self.xid) = (rpcrdma_connection::of(ticket.peer()), ticket.xid());
        let place = ptr::from_mut(&mut self.words).cast::<Ticket>();
        // SAFETY: the words have the size and the alignment of a ticket, as is asserted above.
        unsafe { place.write(ticket) };
        self.state = FULL;
    }

    /// Takes it from the program; `None` if it was given away.
    pub(crate) fn take(&mut self) -> Option<Ticket> {
        let place: *const Ticket = self.look()?;
        (self.state, self.connection, self.xid) = (0, rpcrdma_connection::NONE, 0);
        // SAFETY: a ticket is in this place, and is not used there again: the state says so.
        Some(unsafe { place.read() })
    }

    /// The ticket; `None` if it was given away.
    pub(crate) fn look(&self) -> Option<&Ticket> {
        let place = ptr::from_ref(&self.words).cast::<Ticket>();
        // SAFETY: `put` has set this state, and the program has changed nothing: one copy of it is
        // used.
        (self.state == FULL).then(|| unsafe { &*place })
    }
}

/// The answer of the program, with its bulk, and the places that the bulk was taken from.
///
/// # Safety
/// `finished` is NULL, or valid with what it points to.
pub(crate) unsafe fn finished_of<'a>(
    finished: *const rpcrdma_finished,
) -> Result<(Finished, &'a mut [rpcrdma_loan]), c_int> {
    const NONE: rpcrdma_finished = rpcrdma_finished {
        size: 0,
        head: rpcrdma_slice::NONE,
        bulk: ptr::null_mut(),
        bulk_count: 0,
        tail: rpcrdma_slice::NONE,
        origin: 0,
        reserved: 0,
    };
    // SAFETY: the caller guarantees it.
    let given = unsafe { sized(finished, NONE, "finished") }?;
    if given.reserved != 0 {
        return Err(invalid("finished.reserved"));
    }
    // SAFETY: the caller guarantees it.
    let head = unsafe { bytes(given.head.data, given.head.len) };
    // SAFETY: the caller guarantees it.
    let tail = unsafe { bytes(given.tail.data, given.tail.len) };
    // SAFETY: the caller guarantees it.
    let bulk = unsafe { array(given.bulk, given.bulk_count) };
    let mut answer = Finished { origin: given.origin, ..Finished::default() };
    let is_whole = bulk.iter().all(|loan| !loan.data.is_null());
    if bulk.len() > answer.bulk.capacity() || !is_whole {
        return Err(invalid("finished.bulk"));
    }
    answer.head.extend_from_slice(head);
    answer.tail.extend_from_slice(tail);
    answer.bulk.extend(bulk.iter_mut().filter_map(rpcrdma_loan::take));
    Ok((answer, bulk))
}

/// Gives the bulk of an answer that was not taken back to the program.
pub(crate) fn put_back(finished: Finished, places: &mut [rpcrdma_loan]) {
    for (place, loan) in places.iter_mut().zip(finished.bulk) {
        *place = rpcrdma_loan::of(loan);
    }
}

/// Drops a ticket: its caller gets a reply that states `RPCRDMA_SYSTEM_ERR`. One that was given
/// away is ignored.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_ticket_drop(ticket: Option<&mut rpcrdma_ticket>) {
    if let Some(ticket) = ticket {
        drop(ticket.take());
    }
}
