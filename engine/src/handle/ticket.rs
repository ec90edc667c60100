//! The right to answer a call later.

use std::sync::Arc;

use arrayvec::ArrayVec;
use crossbeam_queue::SegQueue;
use rpcrdma_mempool::Loan;
use rpcrdma_proto::ReplyTo;

use crate::connection_id::ConnectionId;
use crate::mailbox::Wakeup;
use crate::message::saved_offer::SavedOffer;
use crate::message::xdr_bytes::XdrBytes;

/// The right to answer one call, once, later, from any thread.
///
/// Dropping a ticket answers its call: the caller gets a reply of RFC 5531 that states SYSTEM_ERR,
/// as [`AcceptStatus::SystemError`](crate::onc::AcceptStatus). It means that the program has failed
/// to answer, for instance because it has panicked. A ticket whose connection has ended is void:
/// answering returns it.
///
/// ```
/// use std::sync::mpsc::{Receiver, Sender};
///
/// use rpcrdma::{Answer, Call, Finished, Handler, Reply, ShardHandle, Ticket};
///
/// /// Leaves the work to another thread.
/// struct Front {
///     jobs: Sender<Ticket>,
/// }
///
/// impl Handler for Front {
///     fn on_call<'a>(&mut self, _call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
///         let (answer, ticket) = reply.defer();
///         let _ = self.jobs.send(ticket); // if the worker is gone, the ticket is dropped
///         answer
///     }
/// }
///
/// fn worker(shard: &ShardHandle, jobs: &Receiver<Ticket>) {
///     for ticket in jobs {
///         let mut finished = Finished::default();
///         finished.head.put_u32(42);
///         if shard.finish(ticket, finished).is_err() {
///             break; // the shard has as many answers as it takes, or has stopped
///         }
///     }
/// }
/// ```
#[derive(Debug)]
#[must_use = "the caller of a ticket that is dropped gets SYSTEM_ERR"]
pub struct Ticket {
    pub(crate) peer: ConnectionId,
    pub(crate) shard: u32,
    pub(crate) to: ReplyTo,
    pub(crate) offer: SavedOffer,
    /// Its timer, if it is timed.
    pub(crate) timer: u32,
    /// Notified if the ticket is dropped; `None` once it is answered, or on its way to its shard.
    pub(crate) dropped: Option<Arc<Dropped>>,
}

/// An answer made on another thread: payload and bulk. If the reply cannot be sent, for instance
/// because it is longer than its caller can receive, the caller gets an RDMA_ERROR.
#[derive(Debug, Default)]
pub struct Finished {
    /// The XDR in front of the bulk, from behind transaction id and message type.
    pub head: XdrBytes<FINISHED_HEAD_LEN>,
    /// Data to place behind it, one item in several pieces; empty for a reply without bulk.
    pub bulk: ArrayVec<Loan, FINISHED_BULK_MAX>,
    /// Where in the call the operation begins that the bulk is a result of; see
    /// [`Reply::operation`](crate::Reply::operation).
    pub origin: u32,
    /// The XDR behind the bulk.
    pub tail: XdrBytes<FINISHED_TAIL_LEN>,
}

/// Bytes of a finished answer in front of its bulk that need no allocation.
pub const FINISHED_HEAD_LEN: usize = 192;
/// Pieces of bulk of a finished answer.
pub const FINISHED_BULK_MAX: usize = 16;
/// Bytes of a finished answer behind its bulk that need no allocation.
pub const FINISHED_TAIL_LEN: usize = 64;

/// The calls of a shard with dropped tickets: no more than there were tickets.
pub(crate) struct Dropped {
    shard: u32,
    calls: SegQueue<DroppedCall>,
    wakeup: Arc<Wakeup>,
}

/// A call whose ticket was dropped.
pub(crate) struct DroppedCall {
    pub peer: ConnectionId,
    pub to: ReplyTo,
    /// What the call offers for its reply.
    pub offer: SavedOffer,
}

impl Dropped {
    /// Empty, for this shard.
    pub fn new(shard: u32, wakeup: Arc<Wakeup>) -> Dropped {
        Dropped { shard, calls: SegQueue::new(), wakeup }
    }

    /// A ticket was dropped: its call is to be answered.
    #[cold]
    fn push(&self, call: DroppedCall) {
        self.calls.push(call);
        self.wakeup.ring();
    }

    /// A call to answer.
    pub fn pop(&self) -> Option<DroppedCall> {
        self.calls.pop()
    }
}

impl core::fmt::Debug for Dropped {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Dropped({})", self.shard)
    }
}

impl Ticket {
    pub(crate) fn new(
        peer: ConnectionId,
        dropped: &Arc<Dropped>,
        to: ReplyTo,
        timer: u32,
        offer: SavedOffer,
    ) -> Ticket {
        Ticket { peer, shard: dropped.shard, to, offer, timer, dropped: Some(dropped.clone()) }
    }

    /// The peer whose call it answers.
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
        if let Some(dropped) = self.dropped.take() {
            let offer = core::mem::take(&mut self.offer);
            dropped.push(DroppedCall { peer: self.peer, to: self.to, offer });
        }
    }
}
