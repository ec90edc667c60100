//! The exposed memory of a shard's calls: the memory, its rights, and replies that wait for the end
//! of the rights.
//!
//! ```text
//!   open ──▶ exposed with the call ──reply, error──▶ answered ──rights dead──▶ delivered, closed
//!                    └──────────── connection lost ──▶ queue pair destroyed ──▶ delivered, closed
//! ```
//! Exposed memory is read only after the peer's right to it has ended (RFC 8166 4.5.4).

use core::mem::ManuallyDrop;

use arrayvec::ArrayVec;
use rpcrdma_mempool::{BulkPool, Loan, RecvPool, RecvToken};
use rpcrdma_proto::{
    CallId, Connection, Explicit, Exposed, ItemSet, KeptPlaced, Offered, SegmentLists, Violation,
};
use rpcrdma_xdr::chunk::RdmaSegment;
use rpcrdma_xdr::onc::MsgType;

use super::windows::{Exposer, Grant, Opening, Windows};
use crate::error::CallError;
use crate::message::bulk::{Bulk, PIECES_MAX};
use crate::message::incoming::Buffers;
use crate::message::map::{Map, WriteChunks};
use crate::message::rdma_target::{RdmaRange, RdmaTarget};
use crate::message::reading::{KeptReply, PartList, Reading, header_of};
use crate::provider::SendOp;

/// Pieces of memory that one call exposes for RDMA Write.
pub(crate) const TARGETS_MAX: usize = 32;
/// Pieces of memory that one call exposes for RDMA Read, besides its items: a long message.
const BODY_MAX: usize = 16;
/// Rights granted by one call.
const GRANTS_MAX: usize = TARGETS_MAX + BODY_MAX + PIECES_MAX;
/// Results of a call that have memory.
const LISTS_MAX: usize = 8;

/// All exposures of a shard.
pub(crate) struct Exposures {
    pub(super) entries: Box<[Exposure]>,
    free: Vec<u32>,
    /// The rights.
    pub(super) windows: Windows,
    /// Memory for results without a result buffer of the program.
    pub(super) rdma_buffers: BulkPool,
    /// Bytes of one RDMA buffer.
    pub(super) rdma_buffer_len: u32,
    /// RDMA buffers, without lost ones.
    pub(super) rdma_buffer_count: usize,
    /// RDMA buffers that own calls leave for fetching calls of peers. Without them two shards that
    /// call each other would deadlock: each would wait for answers that free buffers for fetching.
    pub(super) rdma_buffers_kept: usize,
    /// Places that are permanently out of use.
    lost: usize,
    /// Memory that a device may still touch: kept until the queues are destroyed.
    withheld: Vec<Bulk>,
    /// Memory that a peer may still reach: kept forever.
    abandoned: ManuallyDrop<Vec<Bulk>>,
}

/// The exposure of one call.
#[derive(Default)]
pub(crate) struct Exposure {
    /// Its call; `None` while the place is free.
    pub owner: Option<Owner>,
    /// Whether the device may still hold the work requests of the call.
    pub is_called: bool,
    /// Whether it was offered as the chunks of a base message, which the reply must use.
    pub has_chunks: bool,
    /// Whether the device may still hold the work requests that end the rights.
    pub is_fencing: bool,
    /// Whether the device did not complete them: the place stays out of use with their message.
    pub is_lost: bool,
    /// Whether its peer may reach the memory while it is connected, although the call is over.
    pub is_withheld: bool,
    /// Whether the program was notified of the end of the call.
    pub is_reported: bool,
    /// Whether its peer may still answer the call, although it is over.
    pub is_unanswered: bool,
    /// The result of the call, once it has one: what was found in its reply.
    pub outcome: Option<Result<KeptPlaced, CallError>>,
    /// The receive buffers of the reply.
    pub buffers: Buffers,
    /// Its transmissions.
    pub parts: PartList,
    /// Memory that the peer may write: for each want in order, a result buffer of the program or
    /// RDMA buffers; then for the whole reply. A piece that the program took is `None`.
    pub(super) targets: ArrayVec<Option<Loan>, TARGETS_MAX>,
    /// Memory that the peer may read: items of the call.
    pub kept: ArrayVec<Bulk, PIECES_MAX>,
    /// Memory that the peer may read: the whole call.
    pub(super) body: ArrayVec<Loan, BODY_MAX>,
    pub(super) grants: ArrayVec<Grant, GRANTS_MAX>,
    pub(super) segments: Segments,
    /// The range of each want's pieces in `targets`.
    pub(super) places: ArrayVec<RdmaRange, LISTS_MAX>,
}

/// Proof that no right to the memory of an exposure remains. Reading the memory, and returning it
/// to its pool, require this.
#[must_use = "the place is to be closed"]
pub(crate) struct Dead {
    index: u32,
}

/// The call of an exposure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    /// Its connection.
    pub peer: u32,
    /// The call.
    pub id: CallId,
}

/// The offered segments, in the protocol's form.
#[derive(Default)]
pub(crate) struct Segments {
    /// Of the items, then of the call itself.
    pub(super) reads: ArrayVec<RdmaSegment, { PIECES_MAX + BODY_MAX }>,
    pub(super) item_ends: ArrayVec<u16, LISTS_MAX>,
    pub(super) item_count: u16,
    /// Of the wants, then of the whole reply.
    pub(super) writes: ArrayVec<RdmaSegment, TARGETS_MAX>,
    pub(super) want_ends: ArrayVec<u16, LISTS_MAX>,
    pub(super) write_count: u16,
    pub(super) wants: ItemSet,
}

impl Segments {
    /// The segments that were offered with the call.
    pub fn exposed(&self) -> Exposed<'_> {
        let Offered { wants, reply, .. } = self.offered();
        let (segments, body) = self.reads.split_at(self.item_count.into());
        let items = SegmentLists { segments, ends: &self.item_ends };
        Exposed { items, wants, body, reply }
    }

    fn clear(&mut self) {
        self.reads.clear();
        self.item_ends.clear();
        self.writes.clear();
        self.want_ends.clear();
        (self.item_count, self.write_count) = (0, 0);
        self.wants = ItemSet::EMPTY;
    }

    /// The segments that were offered for the reply.
    pub fn offered(&self) -> Offered<'_> {
        let Segments { writes, want_ends, wants, .. } = self;
        let split = want_ends.last().map_or(0, |&end| usize::from(end));
        let (segments, reply) = writes.split_at(split);
        Offered { set: *wants, wants: SegmentLists { segments, ends: want_ends }, reply }
    }
}

/// The RDMA buffers for fetching calls of peers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FetchBuffers {
    /// How many there are.
    pub count: usize,
    /// Bytes of each.
    pub len: u32,
}

impl Exposures {
    /// Room for this number of calls with exposed memory.
    pub fn new(
        count: usize,
        windows: Windows,
        rdma_buffers: BulkPool,
        rdma_buffer_len: u32,
        fetches: bool,
    ) -> Exposures {
        let rdma_buffers_kept = if fetches { rdma_buffers.capacity().div_ceil(2) } else { 0 };
        Exposures {
            entries: (0..count).map(|_| Exposure::default()).collect(),
            free: (0..count as u32).rev().collect(),
            windows,
            rdma_buffer_count: rdma_buffers.capacity(),
            rdma_buffers,
            rdma_buffer_len,
            rdma_buffers_kept,
            lost: 0,
            withheld: Vec::new(),
            abandoned: ManuallyDrop::default(),
        }
    }

    /// The current capacity to expose memory for a call.
    pub fn ability(&self) -> Explicit {
        let has_rdma_buffers = self.rdma_buffer_count > self.rdma_buffers_kept;
        let rdma_buffer_len = if has_rdma_buffers { self.rdma_buffer_len } else { 0 };
        Explicit {
            enabled: self.entries.len() > self.lost,
            rdma_buffer_len,
            written_max: TARGETS_MAX as u32,
            body_max: BODY_MAX as u32,
        }
    }

    /// The buffers for fetching calls of peers.
    pub fn for_calls(&self) -> FetchBuffers {
        FetchBuffers { count: self.rdma_buffers_kept, len: self.rdma_buffer_len }
    }

    /// Whether a call's memory is exposed by keys that never end.
    pub fn is_exposed_permanently(&self, index: u32) -> bool {
        self.windows.are_for_good() && !self.get(index).grants.is_empty()
    }

    /// Allocates a place for a call.
    pub fn open(&mut self, owner: Owner) -> Option<u32> {
        let index = self.free.pop()?;
        self.entries[index as usize].owner = Some(owner);
        Some(index)
    }

    /// The exposure in a place that [`Exposures::open`] gave.
    pub fn at(&mut self, index: u32) -> &mut Exposure {
        &mut self.entries[index as usize]
    }

    /// As [`Exposures::at`], for reading.
    pub fn get(&self, index: u32) -> &Exposure {
        &self.entries[index as usize]
    }

    /// Ends the rights of a call that is over, or was never posted. `None` if the device kept one
    /// of them: the memory must be abandoned.
    pub fn retire(&mut self, index: u32, exposer: &mut dyn Exposer) -> Option<Dead> {
        let Exposures { entries, windows, .. } = self;
        let Exposure { grants, owner, is_unanswered, .. } = &mut entries[index as usize];
        let is_dead = grants.drain(..).fold(true, |dead, it| match owner {
            Some(Owner { peer, .. }) if *is_unanswered => {
                windows.quarantine(it, *peer, exposer) & dead
            }
            _ => windows.retire(it, exposer) & dead,
        });
        is_dead.then_some(Dead { index })
    }

    /// Frees a place; its memory returns to its pools.
    pub fn close(&mut self, Dead { index }: Dead) {
        let Exposures { entries, free, rdma_buffers, .. } = self;
        let entry = &mut entries[index as usize];
        debug_assert!(entry.buffers.is_empty(), "the reply was dealt with");
        // Loans of the program return to their pool when dropped.
        let mut give_back = |loan| drop(rdma_buffers.give_back(loan).err());
        while let Some(target) = entry.targets.pop() {
            target.into_iter().for_each(&mut give_back);
        }
        while let Some(loan) = entry.body.pop() {
            give_back(loan);
        }
        entry.clear();
        free.push(index);
    }

    /// Retrieves the windows of a connection, before its queue pair is destroyed. Returns the
    /// number of lost ones.
    #[cold]
    pub fn unbind(&mut self, peer: u32, exposer: &mut dyn Exposer) -> u64 {
        let of_peer = |it: &&mut Exposure| it.owner.is_some_and(|owner| owner.peer == peer);
        let Exposures { entries, windows, .. } = self;
        let exposures = entries.iter_mut().filter(of_peer);
        let grants = exposures.flat_map(|exposure| &mut exposure.grants);
        grants.map(|grant| u64::from(!windows.renew(grant, exposer))).sum()
    }

    /// Frees a place but withholds its memory until the shard ends: this side's device may still
    /// touch it, but no peer.
    #[cold]
    pub fn leak(&mut self, Dead { index }: Dead) {
        let memory = self.take_memory(index);
        self.withheld.extend(memory);
    }

    /// Frees a place but withholds its memory forever: a peer may still reach it.
    #[cold]
    pub fn abandon(&mut self, index: u32) {
        let memory = self.take_memory(index);
        self.abandoned.extend(memory);
    }

    /// As [`Exposures::abandon`], including memory in the message of the call.
    #[cold]
    pub fn abandon_with(&mut self, index: u32, pieces: impl Iterator<Item = Bulk>) {
        self.abandon(index);
        self.abandoned.extend(pieces);
    }

    /// Memory that is out of use.
    pub fn lost(&self) -> impl Iterator<Item = &Bulk> {
        self.withheld.iter().chain(self.abandoned.iter())
    }

    /// Frees a place, and returns its memory.
    fn take_memory(&mut self, index: u32) -> impl Iterator<Item = Bulk> + use<> {
        let entry = &mut self.entries[index as usize];
        let loans = entry.targets.drain(..).flatten().chain(entry.body.drain(..));
        let mut memory: Vec<Bulk> = loans.map(Bulk::Loan).collect();
        let ours = |it: &&Bulk| matches!(it, Bulk::Loan(loan) if self.rdma_buffers.owns(loan));
        self.rdma_buffer_count -= memory.iter().filter(ours).count();
        memory.extend(entry.kept.drain(..));
        // Each place has a message.
        let is_lost = entry.is_lost;
        entry.clear();
        match is_lost {
            true => self.lost += 1,
            false => self.free.push(index),
        }
        memory.into_iter()
    }

    /// Records lost buffers for fetching calls of peers.
    #[cold]
    pub fn lose_kept(&mut self, count: usize) {
        self.rdma_buffer_count -= count;
        self.rdma_buffers_kept = self.rdma_buffers_kept.saturating_sub(count);
    }

    /// Ends every right, when the shard ends: a registration does not end with the queues. False if
    /// the device kept one: memory in messages of calls may still be reachable.
    pub fn retire_all(&mut self, exposer: &mut dyn Exposer) -> bool {
        let mut is_dead = true;
        for index in 0..self.entries.len() as u32 {
            if self.retire(index, exposer).is_none() {
                self.abandon(index);
                is_dead = false;
            }
        }
        is_dead
    }

    /// The open exposure of a connection behind `after`, for its end.
    pub fn next_of(&self, peer: u32, after: Option<u32>) -> Option<u32> {
        let start = after.map_or(0, |index| index as usize + 1);
        let entries = self.entries.iter().enumerate().skip(start);
        let mut found = entries.filter(|(_, it)| it.owner.is_some_and(|owner| owner.peer == peer));
        found.next().map(|(index, _)| index as u32)
    }

    /// Records a right that a peer invalidated with a message that does not end its call.
    /// Invalidating it again would be an error.
    #[cold]
    pub fn on_invalidated(&mut self, peer: u32, rkey: u32) {
        let of_peer = |it: &&mut Exposure| it.owner.is_some_and(|owner| owner.peer == peer);
        self.entries.iter_mut().filter(of_peer).any(|it| it.on_invalidated(rkey));
    }

    /// The receive buffers of all waiting replies, when the shard ends.
    pub fn drain(&mut self) -> impl Iterator<Item = RecvToken> {
        self.entries.iter_mut().flat_map(|entry| entry.buffers.drain(..))
    }

    /// Memory that is exposed.
    pub fn loans(&self) -> impl Iterator<Item = &Loan> {
        self.entries.iter().flat_map(|entry| {
            let kept = entry.kept.iter().filter_map(|bulk| match bulk {
                Bulk::Loan(loan) => Some(loan),
                Bulk::Registered(_) => None,
            });
            entry.targets.iter().flatten().chain(&entry.body).chain(kept)
        })
    }

    /// The receive buffers that replies hold.
    pub fn receives(&self) -> usize {
        self.entries.iter().map(|entry| entry.buffers.len()).sum()
    }

    /// Exposures that are open.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len() - self.lost
    }
}

impl Exposure {
    /// The segments to offer, and the rights to open for them.
    pub fn opening(&mut self) -> (&Segments, Opening<'_>) {
        let Exposure { segments, grants, body, .. } = self;
        (segments, Opening { grants, message: body })
    }

    /// The segments that were offered for the reply.
    pub fn offered(&self) -> Offered<'_> {
        self.segments.offered()
    }

    /// Keeps the reply until it can be delivered.
    pub fn keep(&mut self, KeptReply { buffers, parts, placed }: KeptReply<'_>) -> KeptPlaced {
        self.buffers = buffers;
        self.parts.extend(parts.iter().copied());
        placed
    }

    /// The work requests that end the open rights.
    pub fn closing(&self) -> impl Iterator<Item = SendOp> {
        self.grants.iter().filter_map(Grant::close)
    }

    /// Whether any right is open that a work request ends.
    pub fn is_open(&self) -> bool {
        self.closing().next().is_some()
    }

    /// Records that the peer invalidated a right. False if the key is none of these.
    pub fn on_invalidated(&mut self, rkey: u32) -> bool {
        self.grants.iter_mut().any(|grant| grant.on_invalidated(rkey))
    }

    /// Records that nothing of the call was posted.
    pub fn on_unposted(&mut self) {
        self.grants.iter_mut().for_each(Grant::on_unposted);
    }

    /// Records that all rights have ended.
    pub fn on_dead(&mut self) {
        self.grants.iter_mut().for_each(Grant::on_dead);
    }

    /// Whether the call is over, and no peer can reach its memory.
    pub fn is_over(&self) -> bool {
        self.outcome.is_some()
            && !(self.is_called || self.is_fencing || self.is_withheld)
            && !self.is_open()
    }

    /// Locates the parts of the reply. The reply was checked on arrival, but one that lies in the
    /// memory offered for it is checked only now.
    pub fn prepare(
        &mut self,
        _: &Dead,
        conn: &Connection,
        Reading { pool, map, .. }: Reading<'_>,
    ) -> Result<(), CallError> {
        let placed = self.outcome.take().unwrap_or(Err(CallError::MemoryLost))?;
        self.find_parts(conn, &placed, pool, map).map_err(CallError::BadReply)
    }

    fn find_parts(
        &self,
        conn: &Connection,
        placed: &KeptPlaced,
        pool: &RecvPool,
        map: &mut Map,
    ) -> Result<(), Violation> {
        let placed = placed.of(header_of(pool, &self.buffers, &self.parts));
        let structure = &conn.settings().structure;
        map.clear();
        match placed.body() {
            None => map.set_payload(structure, &self.parts),
            Some(body) => {
                let gone = Violation::BadHeader("the reply is not where it was");
                let first = self.target_of_reply();
                let bytes = self.targets.get(first).and_then(Option::as_deref);
                let prefix = bytes.and_then(|bytes| bytes.first_chunk());
                let (owner, prefix) = self.owner.zip(prefix).ok_or(gone)?;
                conn.check_body(owner.id.xid(), prefix, MsgType::Reply)?;
                map.set_body(&self.targets, first, body.len);
            }
        }
        map.set_items(structure, &placed, &self.targets, |item| self.target_of(item.index));
        if self.has_chunks {
            let may_have_padding = conn.settings().interop.write_chunk_padding;
            map.set_chunks(WriteChunks { offered: self.segments.wants, may_have_padding });
        }
        Ok(())
    }

    /// The index in `targets` where the memory of a want begins.
    pub fn target_of(&self, want: usize) -> usize {
        let place = self.places.iter().find(|place| usize::from(place.want) == want);
        place.map_or(self.targets.len(), |place| place.first.into())
    }

    /// The index in `targets` where the memory of the whole reply begins.
    pub fn target_of_reply(&self) -> usize {
        self.places.iter().map(|place| usize::from(place.first + place.count)).max().unwrap_or(0)
    }

    /// The receive buffers of the reply, and the memory that was exposed for it.
    pub fn rdma_target(&mut self, _: &Dead) -> (&mut Buffers, RdmaTarget<'_>) {
        let Exposure { buffers, targets, places, .. } = self;
        (buffers, RdmaTarget { loans: targets, places })
    }

    fn clear(&mut self) {
        self.segments.clear();
        self.places.clear();
        self.kept.clear();
        self.parts.clear();
        self.owner = None;
        self.outcome = None;
        (self.is_called, self.is_fencing, self.has_chunks) = (false, false, false);
        (self.is_lost, self.is_withheld) = (false, false);
        (self.is_reported, self.is_unanswered) = (false, false);
    }
}
