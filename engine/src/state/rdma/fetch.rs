//! A call whose data is fetched from its caller's memory by RDMA Read.
//!
//! ```text
//!   call with chunks ──▶ waiting for buffers ──▶ reading ──▶ here ──▶ delivered
//!                              └────────── connection lost ─────────▶ freed
//! ```
//! A call takes all the buffers that it needs or none, so that two calls never deadlock.

use arrayvec::ArrayVec;
use rpcrdma_mempool::{BulkPool, Loan, RecvPool, RecvToken};
use rpcrdma_proto::{
    Connection, Message, Part, Place, Placed, ReplyTo, Segments, Violation, payload_pieces,
};
use rpcrdma_xdr::chunk::RdmaSegment;
use rpcrdma_xdr::onc::MsgType;

use super::exposures::FetchBuffers;
use super::read_keys::{LOANS_MAX, ReadKeys};
use super::windows::Exposer;
use crate::connection_id::ConnectionId;
use crate::message::incoming::Buffers;
use crate::message::rdma_target::RdmaTarget;
use crate::message::reading::{PartList, Reading, first_segment};
use crate::provider::{Remote, SendOp};
use crate::state::lane::messages::{Body, REQUESTS_MAX};

/// A call whose data is being fetched.
#[derive(Default)]
pub(crate) struct Fetch {
    /// Its connection and reply context; `None` while the place is free.
    pub owner: Option<(ConnectionId, ReplyTo)>,
    /// Its receive buffers.
    pub buffers: Buffers,
    /// Its transmissions.
    pub parts: PartList,
    /// The buffers for its data: for the message or for each item, as many as needed. A buffer that
    /// the handler took is `None`.
    pub(super) loans: Loans,
    /// The keys of the buffers, on devices where the peer writes to them.
    pub(super) keys: ReadKeys,
    pub(super) is_reading: bool,
    pub(super) is_read: bool,
    /// Whether it was not read because the device did not register its buffers, or keeps one.
    pub(super) is_unregistered: bool,
    /// The number of buffers it needs.
    pub(super) needs: usize,
    /// The number of buffers it has.
    pub(super) held: usize,
    /// Whether the device did not complete its message: the place stays out of use with it.
    pub(super) is_lost: bool,
    /// The next waiting call of the same peer.
    pub(super) next: Option<u32>,
}

type Loans = ArrayVec<Option<Loan>, LOANS_MAX>;

/// A call with data in the memory of its caller.
pub(crate) struct RemoteCall<'a> {
    pub to: ReplyTo,
    /// Buffers that the data needs.
    pub needs: usize,
    /// The receive buffers of the call, and its transmissions in them.
    pub buffers: Buffers,
    pub transmissions: &'a [Part],
}

impl Fetch {
    /// Keeps the call until it can be delivered.
    pub fn keep(&mut self, buffers: Buffers, parts: &[Part]) {
        self.buffers = buffers;
        self.parts.extend(parts.iter().copied());
    }

    /// Assigns buffers to all remote data, and creates the work requests that read it.
    pub fn lay_out(
        &mut self,
        conn: &Connection,
        pool: &RecvPool,
        rdma_buffers: &mut BulkPool,
        rdma_buffer_len: u32,
        body: &mut Body,
        scatter_max: u32,
    ) -> Option<()> {
        let Fetch { buffers, parts, loans, needs, .. } = self;
        // Since it arrived, buffers that it needs were lost.
        if *needs == 0 {
            return None;
        }
        let (_, placed) = found(conn, pool, buffers, parts).ok()?;
        for thing in remote_things(&placed) {
            let first = loans.len();
            let mut left = thing.len as usize;
            for _ in 0..buffers_for(thing.len, rdma_buffer_len) {
                let mut loan = rdma_buffers.take()?;
                loan.truncate(left);
                left -= loan.len();
                loans.try_push(Some(loan)).ok()?;
            }
            // Each item begins in a separate buffer.
            let mut reads = Reads { loans: &loans[first..], at: 0, done: 0, body, scatter_max };
            for segment in thing.segments.iter() {
                reads.segment(&segment)?;
            }
        }
        Some(())
    }

    /// Locates the parts of the call, and keeps its offer for the reply.
    ///
    /// # Errors
    /// [`Violation`] if the data was not fetched, or is not the announced message.
    pub fn prepare(
        &self,
        conn: &Connection,
        to: &ReplyTo,
        rdma_buffer_len: u32,
        Reading { pool, map, saved_offer, .. }: Reading<'_>,
    ) -> Result<(), Violation> {
        if !self.is_read {
            return Err(if self.is_unregistered { UNREGISTERED } else { TOO_MUCH });
        }
        let (message, placed) = found(conn, pool, &self.buffers, &self.parts)?;
        let structure = &conn.settings().structure;
        let mut next = 0;
        match placed.body() {
            None => map.set_payload(payload_pieces(structure, &self.parts)),
            Some(body) => {
                let bytes = self.loans.first().and_then(Option::as_deref);
                let prefix = bytes.and_then(|bytes| bytes.first_chunk()).ok_or(TOO_MUCH)?;
                conn.check_body(to.xid, prefix, MsgType::Call)?;
                map.set_body(&self.loans, 0, body.len);
                next = buffers_for(body.len, rdma_buffer_len);
            }
        }
        map.set_items(structure, &placed, &self.loans, |item| {
            let first = next;
            next += buffers_for(item.len, rdma_buffer_len);
            first
        });
        // wire.md W6, checked when the call arrived.
        let is_kept = saved_offer.set(&message.offer());
        if is_kept { Ok(()) } else { Err(OFFER_TOO_LONG) }
    }

    /// The receive buffers of the call, and the memory that it was fetched into.
    pub fn rdma_target(&mut self) -> (&mut Buffers, RdmaTarget<'_>) {
        let Fetch { buffers, loans, .. } = self;
        (buffers, RdmaTarget { loans, places: &[] })
    }

    /// Opens the buffers of the Reads in `body` to the peer, if it writes to them. False if it
    /// does not register all; what was registered is closed by [`Fetches::close_buffers`].
    ///
    /// [`Fetches::close_buffers`]: crate::state::rdma::fetches::Fetches::close_buffers
    pub fn open(&mut self, body: &mut Body, exposer: &mut dyn Exposer) -> bool {
        let Fetch { loans, keys, .. } = self;
        keys.open(loans.iter().flatten(), &mut body.gather, exposer)
    }

    /// Returns the buffers that the handler has not taken.
    pub fn give_back(&mut self, rdma_buffers: &mut BulkPool) {
        give_back(&mut self.loans, rdma_buffers);
    }
}

fn give_back(loans: &mut Loans, rdma_buffers: &mut BulkPool) {
    for loan in loans.drain(..).flatten() {
        drop(rdma_buffers.give_back(loan).err());
    }
}

/// Decodes the call in these buffers again.
fn found<'a>(
    conn: &Connection,
    pool: &'a RecvPool,
    buffers: &'a [RecvToken],
    parts: &[Part],
) -> Result<(Message<'a>, Placed<'a>), Violation> {
    let gone = Violation::BadHeader("the call is not where it was");
    let (token, part) = buffers.first().zip(parts.first()).ok_or(gone)?;
    let message = Message::decode(*part, first_segment(pool, token, part.byte_len));
    let message = message.ok_or(gone)?;
    let placed = conn.resolve_call(&message, parts)?;
    Ok((message, placed))
}

/// More data than can be fetched for one call.
pub(crate) const TOO_MUCH: Violation =
    Violation::BadHeader("the chunks are more than can be fetched for one call");
/// Buffers for the data that the device does not register, or whose registration it does not end.
pub(crate) const UNREGISTERED: Violation =
    Violation::BadHeader("the device cannot register the buffers for the chunks at present");
/// A longer offer than a reply can return.
pub(crate) const OFFER_TOO_LONG: Violation =
    Violation::BadHeader("the memory offered for the reply does not fit the header of a reply");

/// Data to fetch: the message, or an item.
pub(crate) struct Remotely<'a> {
    /// Its bytes.
    pub len: u32,
    segments: Segments<'a>,
}

/// The data to fetch for a call, in the order of the buffers.
pub(crate) fn remote_things<'a>(
    placed: &Placed<'a>,
) -> impl Iterator<Item = Remotely<'a>> + use<'a> {
    let body = placed.body().map(|body| (body.len, body.at));
    let items = placed.iter().map(|item| (item.len, item.at));
    body.into_iter().chain(items).filter_map(|(len, at)| match at {
        Place::Remote(segments) => Some(Remotely { len, segments }),
        Place::Sent(_) | Place::Sink => None,
    })
}

/// The number of buffers for fetching a call's data: 0 if all of it is here.
///
/// # Errors
/// [`Violation`] if it needs more buffers or work requests than one call may have.
pub(crate) fn buffers_needed(
    placed: &Placed<'_>,
    available: FetchBuffers,
) -> Result<usize, Violation> {
    let (mut count, mut segments) = (0, 0);
    for thing in remote_things(placed) {
        count += buffers_for(thing.len, available.len);
        segments += thing.segments.iter().count();
    }
    // Each end of a buffer and each end of a segment begins another scatter entry.
    let fits = count <= available.count.min(LOANS_MAX) && segments + count <= REQUESTS_MAX;
    if fits { Ok(count) } else { Err(TOO_MUCH) }
}

/// How many buffers of `rdma_buffer_len` bytes hold `len` bytes.
fn buffers_for(len: u32, rdma_buffer_len: u32) -> usize {
    len.div_ceil(rdma_buffer_len.max(1)) as usize
}

/// Work requests under construction.
struct Reads<'a> {
    loans: &'a [Option<Loan>],
    /// The buffer that is being filled, and its fill level.
    at: usize,
    done: usize,
    body: &'a mut Body,
    scatter_max: u32,
}

impl Reads<'_> {
    /// Reads a segment, in as many requests as its scatter lists need.
    fn segment(&mut self, segment: &RdmaSegment) -> Option<()> {
        let RdmaSegment { handle: rkey, length, offset } = *segment;
        let (mut addr, mut left) = (offset, length as usize);
        while left > 0 {
            let mut taken = 0;
            while left > taken && self.body.open_entries() < self.scatter_max as usize {
                let loan = self.loans.get(self.at)?.as_ref()?;
                let part = (left - taken).min(loan.len() - self.done);
                self.body.gather.try_push(loan.sge(self.done..self.done + part)).ok()?;
                taken += part;
                self.done += part;
                if self.done == loan.len() {
                    (self.at, self.done) = (self.at + 1, 0);
                }
            }
            self.body.end_request(SendOp::Read(Remote { addr, rkey }))?;
            addr = addr.wrapping_add(taken as u64);
            left -= taken;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use rpcrdma_mempool::Sge;

    use super::*;
    use crate::state::rdma::read_keys::tests::loans;

    #[test]
    fn a_read_has_as_many_buffers_as_a_request_can_name_and_ends_with_its_segment() {
        let buffers: Vec<Option<Loan>> = loans(3).into_iter().map(Some).collect();
        let at = |buffer: usize, range| buffers[buffer].as_ref().expect("a buffer").sge(range);
        let mut body = Body::default();
        let mut reads = Reads { loans: &buffers, at: 0, done: 0, body: &mut body, scatter_max: 2 };
        let segment = |length, offset| RdmaSegment { handle: 7, length, offset };
        assert_eq!(reads.segment(&segment(100, 1000)), Some(()));
        assert_eq!(reads.segment(&segment(0, 1)), Some(()), "nothing is read");
        assert_eq!(reads.segment(&segment(3 * 4096 - 200, 5000)), Some(()));
        assert_eq!(reads.segment(&segment(101, 1)), None, "only 100 bytes are left");
        let read = |addr| SendOp::Read(Remote { addr, rkey: 7 });
        let parts: [(SendOp, &[Sge]); 3] = [
            (read(1000), &[at(0, 0..100)]),
            (read(5000), &[at(0, 100..4096), at(1, 0..4096)]),
            (read(5000 + 2 * 4096 - 100), &[at(2, 0..3996)]),
        ];
        for (index, (op, list)) in parts.into_iter().enumerate() {
            assert_eq!(body.request(index), (op, list), "{index}");
        }
    }

    #[test]
    fn a_part_of_a_buffer_takes_a_buffer() {
        let counts = [(0, 0), (1, 1), (4096, 1), (4097, 2)];
        assert!(counts.into_iter().all(|(len, count)| buffers_for(len, 4096) == count));
        assert_eq!(buffers_for(3, 0), 3);
    }
}
