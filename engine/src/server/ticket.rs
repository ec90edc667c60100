//! The right to answer a call later.

use arrayvec::ArrayVec;
use rpcrdma_mempool::Loan;
use rpcrdma_proto::ReplyTo;
use rpcrdma_xdr::array::Array;
use rpcrdma_xdr::cursor::{Reader, Writer};
use rpcrdma_xdr::numbers::limit::RSD_SETS_MAX;
use rpcrdma_xdr::rtr::placement::RsdSet;

use crate::shard::peers::PeerId;

/// Bytes of reply directions that a call may carry. Eleven sets of one item to be sent.
pub(crate) const DIRECTIONS_MAX: usize = 256;

/// The reply directions of a call, kept as they came (\[RTR\] 7.4).
#[derive(Debug, Clone, Default)]
pub(crate) struct Directions(ArrayVec<u8, DIRECTIONS_MAX>);

/// The right to answer one call, once, at some later time; from any thread.
///
/// A ticket that is dropped leaves its call unanswered until the connection ends. A ticket whose
/// connection has ended is void: answering returns it.
#[derive(Debug)]
#[must_use = "a call that gets no reply holds a credit of its peer for ever"]
pub struct Ticket {
    pub(crate) peer: PeerId,
    pub(crate) shard: u32,
    pub(crate) to: ReplyTo,
    pub(crate) directions: Directions,
}

/// An answer made on another thread: payload of bounded length, and bulk.
#[derive(Debug, Default)]
pub struct Finished {
    /// The XDR in front of the bulk, from behind transaction id and message type.
    pub head: ArrayVec<u8, FINISHED_HEAD_MAX>,
    /// Data to be placed behind it, one item in several pieces; none for a reply without bulk.
    pub bulk: ArrayVec<Loan, FINISHED_BULK_MAX>,
    /// Where in the call the operation began that the bulk is a result of; see
    /// [`Reply::operation`](crate::Reply::operation).
    pub origin: u32,
    /// The XDR behind the bulk.
    pub tail: ArrayVec<u8, FINISHED_TAIL_MAX>,
}

/// Bytes of a finished answer in front of its bulk.
pub const FINISHED_HEAD_MAX: usize = 192;
/// Pieces of bulk of a finished answer.
pub const FINISHED_BULK_MAX: usize = 16;
/// Bytes of a finished answer behind its bulk.
pub const FINISHED_TAIL_MAX: usize = 64;

impl Ticket {
    pub(crate) fn new(peer: PeerId, shard: u32, to: ReplyTo, directions: Directions) -> Ticket {
        Ticket { peer, shard, to, directions }
    }

    /// Whose call it answers.
    pub fn peer(&self) -> PeerId {
        self.peer
    }

    /// The transaction id of the call.
    pub fn xid(&self) -> u32 {
        self.to.xid
    }
}

impl Directions {
    /// No directions.
    pub const fn none() -> Directions {
        Directions(ArrayVec::new_const())
    }

    /// Copies directions out of a call; false if they are longer than a call may carry.
    pub fn set(&mut self, sets: &Array<'_, RsdSet<'_>>) -> bool {
        self.0.clear();
        if sets.is_empty() {
            return true;
        }
        let mut bytes = [0; DIRECTIONS_MAX];
        let mut writer = Writer::new(&mut bytes);
        if sets.encode(&mut writer).is_err() {
            return false;
        }
        let len = writer.position();
        self.0.extend(bytes[..len].iter().copied());
        true
    }

    /// Forgets them.
    #[inline]
    pub fn clear(&mut self) {
        self.0.clear();
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The directions.
    pub fn sets(&self) -> Array<'_, RsdSet<'_>> {
        if self.0.is_empty() {
            return Array::EMPTY;
        }
        Array::decode(&mut Reader::new(&self.0), RSD_SETS_MAX).unwrap_or(Array::EMPTY)
    }
}
