//! Queue pairs: their states, and the requests that wait for room.
//!
//! ```text
//!   attach ─▶ Opening ── peer attached ─▶ Ready ── disconnect, error, peer gone ─▶ Error ─▶ destroy
//!                └─────────────── disconnect, peer gone ──────────────────────────────┘
//!   Ready ── the next request waits for Reads ─▶ Held ── a Read completes ─▶ Ready
//! ```

use std::num::NonZeroU64;
use std::sync::Arc;

use rpcrdma_provider::{SendOp, WcOpcode, WcStatus, WrId};

use super::body::Body;
use super::conn::{Conn, Progress};

/// The state of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// It receives, but the peer cannot yet: requests wait.
    Opening,
    /// It receives and sends.
    Ready,
    /// As `Ready`, but its oldest waiting request can begin only after a Read has completed.
    Held,
    /// It neither receives nor sends.
    Error,
}

/// The result of a request when its slot was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Disposition {
    /// Success, without a completion.
    Silent,
    /// Success, with a completion.
    Signaled,
    /// The queue pair entered the error state first.
    Flushed,
    /// Its own memory was invalid.
    Protection,
    /// The Bind or invalidation is not allowed.
    WindowBind,
    /// The peer's Receive was too short.
    TooLong,
    /// The peer had no Receive.
    NotReady,
    /// The memory of the peer's Receive was invalid.
    Broken,
    /// The peer does not allow it.
    RemoteAccess,
}

impl Disposition {
    #[inline]
    pub(crate) fn status(self) -> WcStatus {
        match self {
            Disposition::Silent | Disposition::Signaled => WcStatus::Success,
            Disposition::Flushed => WcStatus::Flushed,
            Disposition::Protection => WcStatus::LocalProtection,
            Disposition::WindowBind => WcStatus::MemoryWindowBind,
            Disposition::TooLong => WcStatus::RemoteInvalidRequest,
            Disposition::NotReady => WcStatus::RnrRetryExceeded,
            Disposition::Broken => WcStatus::Other(REMOTE_OPERATION_ERROR),
            Disposition::RemoteAccess => WcStatus::RemoteAccess,
        }
    }

    #[inline]
    pub(crate) fn is_success(self) -> bool {
        matches!(self, Disposition::Silent | Disposition::Signaled)
    }
}

/// `IBV_WC_REM_OP_ERR`: the peer could not do its own part.
const REMOTE_OPERATION_ERROR: u32 = 11;

/// A queue pair as a connection manager has connected it.
pub struct Connected {
    /// Its number.
    pub num: u32,
    /// The number of the peer's queue pair.
    pub peer: u32,
    /// The peer's retry count, for its messages to this side.
    pub peer_rnr_retry: u8,
    /// This side's index in `conn`.
    pub side: u8,
    /// The progress of both sides.
    pub conn: Arc<Conn>,
}

/// A queue pair in one cache line, so that cycling through a thousand costs one line each.
#[repr(align(64))]
pub(crate) struct QueuePair {
    /// [`VACANT`] for an unused entry.
    pub num: u32,
    pub state: State,
    /// The path to the peer.
    pub path: u32,
    /// The peer's queue pair.
    pub peer: u32,
    /// Requests that occupy the send queue: a completion frees its own place and those of the
    /// unsignaled requests before it. No more than fit in a send queue.
    pub outstanding: u16,
    /// Unsignaled requests since the last signaled one.
    pub unsignaled: u16,
    /// Reads that are published and not completed.
    pub reads: u16,
    /// The peer's retry count, for its messages to this side.
    pub peer_rnr_retry: u8,
    /// Position behind the last published slot, if there was one.
    pub sent_until: Option<NonZeroU64>,
    /// It is in its path's list of those that wait for room.
    pub is_waiting: bool,
    /// Its program has the event that the peer is gone, or has itself disconnected.
    pub is_reported: bool,
    pub backlog: Backlog,
    /// Requests that were executed here and complete behind earlier ones.
    pub locals: Backlog,
    /// The peer has left: its last message lies before this position of the path.
    pub messages_end: Option<NonZeroU64>,
    /// This side's index in `conn`.
    pub side: u8,
    pub conn: Option<Arc<Conn>>,
}

impl QueuePair {
    pub(crate) fn new(connected: Connected, path: u32) -> QueuePair {
        let Connected { num, peer, peer_rnr_retry, side, conn } = connected;
        let (state, conn) = (State::Opening, Some(conn));
        QueuePair { num, state, path, peer, peer_rnr_retry, side, conn, ..QueuePair::vacant() }
    }

    fn vacant() -> QueuePair {
        QueuePair {
            num: VACANT,
            state: State::Error,
            path: 0,
            peer: 0,
            outstanding: 0,
            unsignaled: 0,
            reads: 0,
            peer_rnr_retry: 0,
            sent_until: None,
            is_waiting: false,
            is_reported: false,
            backlog: Backlog::EMPTY,
            locals: Backlog::EMPTY,
            messages_end: None,
            side: 0,
            conn: None,
        }
    }

    /// The result of a successful request, and the number of places that its completion frees.
    #[inline]
    pub(crate) fn account(&mut self, is_signaled: bool) -> (Disposition, u16) {
        self.unsignaled += 1;
        if is_signaled {
            (Disposition::Signaled, std::mem::take(&mut self.unsignaled))
        } else {
            (Disposition::Silent, 0)
        }
    }

    /// The peer's progress.
    pub(crate) fn peer_progress(&self) -> Progress {
        let conn = self.conn.as_ref();
        conn.map_or(Progress::Dropped, |conn| conn.progress(1 - usize::from(self.side)))
    }

    /// Shows the peer that this side is gone.
    pub(crate) fn leave(&self) {
        if let Some(conn) = &self.conn {
            conn.set(self.side.into(), Progress::Left);
        }
    }
}

/// The queue pairs of one set of queues, found by number.
pub(crate) struct QpTable {
    places: Box<[QueuePair]>,
    index_mask: u32,
}

impl QpTable {
    pub(crate) fn new(qp_max: u32) -> QpTable {
        let index_bits = index_bits(qp_max);
        QpTable {
            places: (0..1 << index_bits).map(|_| QueuePair::vacant()).collect(),
            index_mask: (1 << index_bits) - 1,
        }
    }

    /// The queue pair with that number, unless it was destroyed.
    #[inline]
    pub(crate) fn find(&mut self, num: u32) -> Option<&mut QueuePair> {
        self.places.get_mut((num & self.index_mask) as usize).filter(|qp| qp.num == num)
    }

    /// Whether messages for that queue pair are delivered.
    #[inline]
    pub(crate) fn receives(&self, num: u32) -> bool {
        self.peek(num).is_some_and(|qp| qp.state != State::Error)
    }

    /// As [`QpTable::find`], read-only.
    #[inline]
    pub(crate) fn peek(&self, num: u32) -> Option<&QueuePair> {
        self.places.get((num & self.index_mask) as usize).filter(|qp| qp.num == num)
    }

    /// Puts a new queue pair into the vacant place of its number.
    pub(crate) fn insert(&mut self, qp: QueuePair) {
        let place = &mut self.places[(qp.num & self.index_mask) as usize];
        debug_assert_eq!(place.num, VACANT, "a number is reserved once");
        *place = qp;
    }

    /// Makes the place of `num` vacant.
    pub(crate) fn remove(&mut self, num: u32) {
        if let Some(qp) = self.find(num) {
            *qp = QueuePair::vacant();
        }
    }

    /// The path with the index `before` has the index `now`.
    #[cold]
    pub(crate) fn renumber_path(&mut self, before: u32, now: u32) {
        let theirs = self.places.iter_mut().filter(|qp| qp.num != VACANT && qp.path == before);
        theirs.for_each(|qp| qp.path = now);
    }

    /// All queue pairs that exist.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &QueuePair> {
        self.places.iter().filter(|qp| qp.num != VACANT)
    }
}

/// A request that is not published yet, or one that was executed here and completes behind others.
pub(crate) struct Waiting {
    pub wr_id: WrId,
    pub disposition: Disposition,
    /// It begins only when no Read is outstanding.
    pub is_fenced: bool,
    /// Places of the send queue that its completion frees.
    pub covers: u16,
    next: u32,
    /// For an executed request: the position that must be free before it completes.
    pub behind: u64,
    pub op: SendOp,
    /// The image of its slot.
    pub body: Body,
}

impl Waiting {
    /// Whether it cannot begin while so many Reads are outstanding.
    #[inline]
    pub(crate) fn must_wait(&self, reads: u32, reads_max: u32) -> bool {
        must_wait(self.op, self.is_fenced, reads, reads_max)
    }
}

/// Whether a request cannot begin while so many Reads are outstanding.
#[inline]
pub(crate) fn must_wait(op: SendOp, is_fenced: bool, reads: u32, reads_max: u32) -> bool {
    let is_read = matches!(op, SendOp::Read(_));
    (is_fenced && reads > 0) || (is_read && reads >= reads_max)
}

/// The opcode of a request's completion.
#[inline]
pub(crate) fn opcode_of(op: SendOp) -> WcOpcode {
    match op {
        SendOp::Send | SendOp::SendInvalidate { .. } => WcOpcode::Send,
        SendOp::Write(_) => WcOpcode::Write,
        SendOp::Read(_) => WcOpcode::Read,
        SendOp::Bind(_) => WcOpcode::Bind,
        SendOp::Invalidate { .. } => WcOpcode::Invalidate,
    }
}

/// The waiting requests of one queue pair, first in, first out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backlog {
    first: u32,
    last: u32,
}

impl Backlog {
    pub(crate) const EMPTY: Backlog = Backlog { first: NONE, last: NONE };

    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.first == NONE
    }
}

/// The memory of all backlogs: as many requests as all queue pairs together may have posted.
///
/// It is reserved at the beginning and touched on first use.
pub(crate) struct BacklogPool {
    requests: Vec<Waiting>,
    vacant: u32,
}

impl BacklogPool {
    pub(crate) fn new(requests_max: usize) -> BacklogPool {
        BacklogPool { requests: Vec::with_capacity(requests_max), vacant: NONE }
    }

    /// Appends a request; `fill` writes it, for a plain Send only its slot. There is memory for as
    /// many requests as all send queues together hold.
    #[cold]
    #[inline(never)]
    pub(crate) fn append(
        &mut self,
        backlog: &mut Backlog,
        wr_id: WrId,
        disposition: Disposition,
        covers: u16,
        fill: impl FnOnce(&mut Waiting),
    ) {
        let mut index = self.vacant;
        if let Some(request) = self.requests.get_mut(index as usize) {
            self.vacant = std::mem::replace(&mut request.next, NONE);
            (request.wr_id, request.disposition, request.covers) = (wr_id, disposition, covers);
            (request.op, request.is_fenced) = (SendOp::Send, false);
        } else {
            debug_assert!(self.requests.len() < self.requests.capacity());
            index = self.requests.len() as u32;
            let body = Body::empty();
            let (op, is_fenced, behind) = (SendOp::Send, false, 0);
            let next = NONE;
            let request = Waiting { wr_id, disposition, is_fenced, covers, next, behind, op, body };
            self.requests.push(request);
        }
        fill(&mut self.requests[index as usize]);
        match self.requests.get_mut(backlog.last as usize) {
            Some(last) => last.next = index,
            None => backlog.first = index,
        }
        backlog.last = index;
    }

    /// The oldest request.
    #[inline]
    pub(crate) fn front(&self, backlog: &Backlog) -> Option<&Waiting> {
        self.requests.get(backlog.first as usize)
    }

    /// Marks the oldest request as failed.
    pub(crate) fn mark_failed(&mut self, backlog: &Backlog, disposition: Disposition) {
        if let Some(request) = self.requests.get_mut(backlog.first as usize) {
            request.disposition = disposition;
        }
    }

    /// Takes the oldest request out.
    #[inline]
    pub(crate) fn pop(&mut self, backlog: &mut Backlog) {
        let Some(request) = self.requests.get_mut(backlog.first as usize) else { return };
        let next = std::mem::replace(&mut request.next, self.vacant);
        self.vacant = std::mem::replace(&mut backlog.first, next);
        if backlog.first == NONE {
            backlog.last = NONE;
        }
    }
}

/// The number of index bits in a number.
pub fn index_bits(qp_max: u32) -> u32 {
    qp_max.max(2).next_power_of_two().trailing_zeros()
}

/// As on real devices: a queue pair number has 24 bits.
pub const NUMBER_BITS: u32 = 24;
/// Leaves at least 256 generations above the index.
pub const QP_MAX: u32 = 1 << 16;
/// Not a queue pair's number: those have 24 bits.
const VACANT: u32 = u32::MAX;
/// No request. Never an index: the pool is smaller.
const NONE: u32 = u32::MAX;

const _: () = assert!(size_of::<QueuePair>() == 64, "a queue pair is one cache line");
