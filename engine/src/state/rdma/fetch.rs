//! A call whose data is fetched from its caller's memory by RDMA Read.
//!
//! ```text
//!   call with chunks ──▶ waiting for buffers ──▶ reading ──▶ here ──▶ delivered
//!                              └────────── connection lost ─────────▶ freed
//! ```
//! A call takes all the buffers that it needs or none, so that two calls never deadlock.

use arrayvec::ArrayVec;
use rpcrdma_mempool::{BulkPool, Loan, RecvPool};
use rpcrdma_proto::{
    Connection, KeptOffer, KeptPlaced, MessageBody, Part, Place, Placed, ReplyTo, Violation,
};
use rpcrdma_xdr::chunk::RdmaSegment;
use rpcrdma_xdr::onc::MsgType;

use super::exposures::FetchBuffers;
use super::read_keys::{LOANS_MAX, ReadKeys};
use super::windows::Exposer;
use crate::connection_id::ConnectionId;
use crate::message::incoming::Buffers;
use crate::message::rdma_target::RdmaTarget;
use crate::message::reading::{PartList, Reading, header_of};
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
    /// What was found in it when it arrived.
    found: Option<Found>,
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
    pub found: Found,
    /// The receive buffers of the call, and its transmissions in them.
    pub buffers: Buffers,
    pub transmissions: &'a [Part],
}

/// What was found in such a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    /// Buffers that the data needs.
    pub needs: usize,
    pub placed: KeptPlaced,
    /// The offer for its reply.
    pub offer: KeptOffer,
}

impl Fetch {
    /// Keeps the call until it can be delivered.
    pub fn keep(&mut self, buffers: Buffers, parts: &[Part], found: Found) {
        self.buffers = buffers;
        self.parts.extend(parts.iter().copied());
        self.found = Some(found);
    }

    /// Assigns buffers to all remote data, and creates the work requests that read it.
    pub fn lay_out(
        &mut self,
        pool: &RecvPool,
        rdma_buffers: &mut BulkPool,
        body: &mut Body,
        scatter_max: u32,
    ) -> Option<()> {
        let Fetch { buffers, parts, loans, needs, found, .. } = self;
        // Since it arrived, buffers that it needs were lost.
        if *needs == 0 {
            return None;
        }
        let placed = found.as_ref()?.placed.of(header_of(pool, buffers, parts));
        let mut lay_out = |len: u32, at: Place<'_>| {
            let Place::Remote(segments) = at else { return Some(()) };
            let first = loans.len();
            let mut left = len as usize;
            while left > 0 {
                let mut loan = rdma_buffers.take()?;
                loan.truncate(left);
                left -= loan.len();
                loans.try_push(Some(loan)).ok()?;
            }
            // Each item begins in a separate buffer.
            let mut reads = Reads { loans: &loans[first..], at: 0, done: 0, body, scatter_max };
            segments.iter().try_for_each(|segment| reads.segment(&segment))
        };
        if let Some(MessageBody { len, at }) = placed.body() {
            lay_out(len, at)?;
        }
        placed.iter().try_for_each(|item| lay_out(item.len, item.at))
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
        let header = header_of(pool, &self.buffers, &self.parts);
        let Found { placed, offer, .. } = self.found.as_ref().ok_or(TOO_MUCH)?;
        let placed = placed.of(header);
        let structure = &conn.settings().structure;
        let mut next = 0;
        map.clear();
        match placed.body() {
            None => map.set_payload(structure, &self.parts),
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
        saved_offer.set(&offer.of(header));
        Ok(())
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

/// More data than can be fetched for one call.
pub(crate) const TOO_MUCH: Violation =
    Violation::BadHeader("the chunks are more than can be fetched for one call");
/// Buffers for the data that the device does not register, or whose registration it does not end.
pub(crate) const UNREGISTERED: Violation =
    Violation::BadHeader("the device cannot register the buffers for the chunks at present");
/// A longer offer than a reply can return.
pub(crate) const OFFER_TOO_LONG: Violation =
    Violation::BadHeader("the memory offered for the reply does not fit the header of a reply");

/// The number of buffers for fetching a call's data: 0 if all of it is here.
///
/// # Errors
/// [`Violation`] if it needs more buffers or work requests than one call may have.
pub(crate) fn buffers_needed(
    placed: &Placed<'_>,
    available: FetchBuffers,
) -> Result<usize, Violation> {
    let (mut count, mut requests) = (0, 0);
    let mut add = |len: u32, at: Place<'_>| {
        if let Place::Remote(segments) = at {
            count += buffers_for(len, available.len);
            requests += segments.iter().count();
        }
    };
    if let Some(MessageBody { len, at }) = placed.body() {
        add(len, at);
    }
    placed.iter().for_each(|item| add(item.len, item.at));
    check_needs(count, requests, available)
}

/// As [`buffers_needed`], for a call with one item, of `len` bytes in one segment.
pub(crate) fn buffers_needed_for_one(
    len: u32,
    available: FetchBuffers,
) -> Result<usize, Violation> {
    check_needs(buffers_for(len, available.len), 1, available)
}

fn check_needs(count: usize, requests: usize, available: FetchBuffers) -> Result<usize, Violation> {
    // Each end of a buffer and each end of a segment begins another scatter entry.
    let fits = count <= available.count.min(LOANS_MAX) && requests + count <= REQUESTS_MAX;
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
