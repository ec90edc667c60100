//! The right to answer a call later.

use arrayvec::ArrayVec;
use rpcrdma_mempool::Loan;
use rpcrdma_proto::ReplyTo;

use super::handle::ShardHandle;
use crate::message::saved_offer::SavedOffer;
use crate::shard::peers::ConnectionId;

/// The right to answer one call, once, at some later time; from any thread.
///
/// A ticket that is dropped refuses its call: the caller is told that there will be no reply, as by
/// [`Reply::refuse`](crate::Reply::refuse). A ticket whose connection has ended is void: answering
/// returns it.
#[derive(Debug)]
#[must_use = "a ticket that is dropped refuses its call"]
pub struct Ticket {
    pub(crate) peer: ConnectionId,
    pub(crate) shard: u32,
    pub(crate) to: ReplyTo,
    pub(crate) offer: SavedOffer,
    /// Who is told if it is dropped; nobody once it is answered, or on its way home.
    pub(crate) home: Option<ShardHandle>,
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
    pub(crate) fn new(
        peer: ConnectionId,
        home: &ShardHandle,
        to: ReplyTo,
        offer: SavedOffer,
    ) -> Ticket {
        Ticket { peer, shard: home.shard(), to, offer, home: Some(home.clone()) }
    }

    /// Whose call it answers.
    pub fn peer(&self) -> ConnectionId {
        self.peer
    }

    /// The transaction id of the call.
    pub fn xid(&self) -> u32 {
        self.to.xid
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            home.on_dropped(self.peer, self.to);
        }
    }
}
