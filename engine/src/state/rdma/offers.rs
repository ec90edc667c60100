//! The offers of a call: collects the memory, then exposes all of it.
#![expect(unsafe_code, reason = "exposing memory is a promise about it")]

use rpcrdma_mempool::{Access, BulkPool, Loan, Sge};

use super::exposures::{Exposure, Exposures};
use super::windows::{Exposer, Grant, NoKey};
use crate::error::CallRefused;
use crate::message::rdma_target::RdmaRange;
use crate::message::sink::Sink;

/// No window, buffer or place is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lacking {
    /// Other calls use them.
    Now,
    /// The shard has fewer than the call needs.
    Ever,
    /// One call has no more places.
    Places,
    /// The device does not permit remote access to some of the memory.
    Right,
}

impl From<NoKey> for Lacking {
    fn from(why: NoKey) -> Lacking {
        match why {
            NoKey::Now => Lacking::Now,
            NoKey::Ever => Lacking::Right,
        }
    }
}

impl From<Lacking> for CallRefused {
    fn from(lacking: Lacking) -> CallRefused {
        match lacking {
            Lacking::Now => CallRefused::Busy,
            Lacking::Ever => CallRefused::TooLittleMemory,
            Lacking::Places => CallRefused::TooManyPieces,
            Lacking::Right => CallRefused::CannotExpose,
        }
    }
}

impl Exposures {
    /// Offers a piece of an item for RDMA Read.
    pub fn offer_item(&mut self, index: u32, sge: Sge) -> Result<(), Lacking> {
        let entry = &mut self.entries[index as usize];
        entry.segments.item_count += 1;
        entry.grant(sge, Access::REMOTE_READ)
    }

    /// Ends the list of an item.
    pub fn end_item(&mut self, index: u32) -> Result<(), Lacking> {
        let segments = &mut self.entries[index as usize].segments;
        segments.item_ends.try_push(segments.item_count).map_err(|_| Lacking::Places)
    }

    /// Offers the memory of a want for RDMA Write: the program's, or `len` bytes of the engine's.
    pub fn offer_want(
        &mut self,
        index: u32,
        want: usize,
        sink: Option<Sink>,
        len: u32,
    ) -> Result<(), Lacking> {
        let first = self.entries[index as usize].targets.len();
        let is_sink = sink.is_some();
        match sink {
            Some(sink) => self.keep_sink(index, want, sink)?,
            None => self.take_targets(index, len)?,
        }
        self.offer_writes(index, first, len)?;
        let entry = &mut self.entries[index as usize];
        let end = entry.segments.write_count;
        entry.segments.want_ends.try_push(end).map_err(|_| Lacking::Places)?;
        entry.segments.wants.insert(want);
        if is_sink { Ok(()) } else { entry.note_place(want, first, is_sink) }
    }

    /// Keeps a result buffer, which is returned with the end of the call.
    pub fn keep_sink(&mut self, index: u32, want: usize, sink: Sink) -> Result<(), Lacking> {
        let entry = &mut self.entries[index as usize];
        let first = entry.targets.len();
        if entry.targets.remaining_capacity() < sink.pieces.len() {
            return Err(Lacking::Places);
        }
        entry.targets.extend(sink.pieces.into_iter().map(Some));
        entry.note_place(want, first, true)
    }

    /// Offers `len` bytes for the whole reply, behind all wants.
    pub fn offer_reply(&mut self, index: u32, len: u32) -> Result<(), Lacking> {
        let first = self.entries[index as usize].targets.len();
        self.take_targets(index, len)?;
        self.offer_writes(index, first, len)
    }

    /// Offers `len` bytes of the call itself for RDMA Read; layout fills them.
    pub fn offer_body(&mut self, index: u32, len: u32) -> Result<(), Lacking> {
        let mut left = len as usize;
        while left > 0 {
            let mut loan = self.take_rdma_buffer(index, left)?;
            loan.truncate(left);
            left -= loan.len();
            let Exposures { entries, rdma_buffers, .. } = &mut *self;
            let pushed = entries[index as usize].body.try_push(loan);
            pushed.map_err(|full| too_many(rdma_buffers, full.element()))?;
        }
        let entry = &mut self.entries[index as usize];
        for at in 0..entry.body.len() {
            let sge = entry.body[at].sge(0..entry.body[at].len());
            entry.grant(sge, Access::REMOTE_READ)?;
        }
        Ok(())
    }

    /// Creates keys for everything that is offered.
    pub fn key(&mut self, index: u32, exposer: &mut dyn Exposer) -> Result<(), Lacking> {
        let Exposures { entries, windows, .. } = self;
        let Exposure { grants, segments, .. } = &mut entries[index as usize];
        if !windows.has(grants.len()) {
            return Err(Lacking::Ever);
        }
        for (own, grant) in grants.iter_mut().enumerate() {
            // SAFETY: offered memory is owned by the entry, or by the message of the call and later
            // by the entry. The entry releases its memory only for a `Dead`, which exists only if
            // every right was retired; otherwise it is forgotten, with the memory of the message.
            // Until then, memory that a peer may write is not accessed, and memory that it may read
            // is written only before the call is posted. A user of permanent registration chose, by
            // its name, that none of this holds.
            let segment = unsafe { windows.key(grant, own, exposer) }?;
            let pushed = match grant.is_write() {
                true => segments.writes.try_push(segment),
                false => segments.reads.try_push(segment),
            };
            pushed.map_err(|_| Lacking::Places)?;
        }
        Ok(())
    }

    fn take_targets(&mut self, index: u32, len: u32) -> Result<(), Lacking> {
        let mut left = len as usize;
        while left > 0 {
            let loan = self.take_rdma_buffer(index, left)?;
            left = left.saturating_sub(loan.len());
            let Exposures { entries, rdma_buffers, .. } = &mut *self;
            let pushed = entries[index as usize].targets.try_push(Some(loan));
            pushed.map_err(|full| match full.element() {
                Some(loan) => too_many(rdma_buffers, loan),
                None => Lacking::Places,
            })?;
        }
        Ok(())
    }

    /// Offers `len` bytes of the targets from `first` on.
    fn offer_writes(&mut self, index: u32, first: usize, len: u32) -> Result<(), Lacking> {
        let entry = &mut self.entries[index as usize];
        let mut left = len as usize;
        for at in first..entry.targets.len() {
            let Some(loan) = &entry.targets[at] else { continue };
            let part = loan.len().min(left);
            if part == 0 {
                continue;
            }
            let sge = loan.sge(0..part);
            left -= part;
            // The peer writes, through this side's device.
            entry.grant(sge, Access::REMOTE_WRITE)?;
            entry.segments.write_count += 1;
        }
        Ok(())
    }

    /// An RDMA buffer, for a call that needs `left` more bytes.
    fn take_rdma_buffer(&mut self, index: u32, left: usize) -> Result<Loan, Lacking> {
        let Exposures {
            entries,
            rdma_buffers,
            rdma_buffer_len,
            rdma_buffer_count,
            rdma_buffers_kept,
            ..
        } = self;
        if rdma_buffers.free() <= *rdma_buffers_kept {
            rdma_buffers.reclaim();
        }
        if rdma_buffers.free() > *rdma_buffers_kept
            && let Some(loan) = rdma_buffers.take()
        {
            return Ok(loan);
        }
        let Exposure { targets, body, .. } = &entries[index as usize];
        let has =
            targets.iter().flatten().chain(body).filter(|loan| rdma_buffers.owns(loan)).count();
        let needs = left.div_ceil((*rdma_buffer_len).max(1) as usize);
        let ever = *rdma_buffer_count - *rdma_buffers_kept;
        Err(if has + needs > ever { Lacking::Ever } else { Lacking::Now })
    }
}

impl Exposure {
    fn note_place(&mut self, want: usize, first: usize, is_sink: bool) -> Result<(), Lacking> {
        let count = (self.targets.len() - first) as u8;
        let place = RdmaRange { want: want as u8, first: first as u8, count, is_sink };
        self.places.try_push(place).map_err(|_| Lacking::Places)
    }

    fn grant(&mut self, sge: Sge, access: Access) -> Result<(), Lacking> {
        self.grants.try_push(Grant::new(sge, access)).map_err(|_| Lacking::Places)
    }
}

/// A call has no place for another piece.
fn too_many(rdma_buffers: &mut BulkPool, loan: Loan) -> Lacking {
    drop(rdma_buffers.give_back(loan));
    Lacking::Places
}
