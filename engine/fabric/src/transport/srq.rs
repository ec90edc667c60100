//! The shared receive queue: Receives in the order of posting, matched in that order.
//!
//! A buffer is described once; its Receives name it by number. Whether its memory may be written is
//! found out when it is described and again when registrations have changed, so that a short
//! message costs one comparison.

use rpcrdma_mempool::Sge;
use rpcrdma_provider::{PostError, RecvWr, Requests, Taken, WrId};

use super::dma::{FirstPart, Lent};
use super::keys::KeyCache;

/// A FIFO of Receives.
pub(crate) struct Srq {
    posted: Box<[RecvWr]>,
    /// By the number of a buffer.
    buffers: Vec<Buffer>,
    /// `sge_max` entries for each buffer.
    lists: Vec<Lent>,
    sge_max: usize,
    /// The version of the keys that `buffers` agree with.
    version: u64,
    depth: u64,
    mask: u64,
    /// Position of the oldest Receive.
    oldest: u64,
    /// Position behind the newest.
    end: u64,
}

/// A buffer, as a short message needs it.
#[derive(Debug, Clone, Copy)]
struct Buffer {
    first: FirstPart,
    /// Entries of its list; [`UNKNOWN`] if it cannot be posted.
    count: u32,
}

impl Srq {
    pub(crate) fn new(depth: u32, sge_max: u32) -> Srq {
        let places = depth.next_power_of_two();
        let nothing = RecvWr { wr_id: WrId(0), buffer: 0 };
        Srq {
            posted: vec![nothing; places as usize].into_boxed_slice(),
            buffers: Vec::new(),
            lists: Vec::new(),
            sge_max: sge_max as usize,
            version: 0,
            depth: depth.into(),
            mask: u64::from(places - 1),
            oldest: 0,
            end: 0,
        }
    }

    /// Describes a buffer. `lend` makes each entry the device's.
    pub(crate) fn describe(
        &mut self,
        (number, sgl): (u32, &[Sge]),
        lend: impl Fn(Sge) -> Lent,
        keys: &KeyCache,
    ) {
        let (index, sge_max) = (number as usize, self.sge_max);
        if index >= self.buffers.len() {
            let unknown = Buffer { first: FirstPart::default(), count: UNKNOWN };
            self.buffers.resize(index + 1, unknown);
            self.lists.resize((index + 1) * sge_max, Lent::default());
        }
        if sgl.len() > sge_max {
            self.buffers[index].count = UNKNOWN;
            return;
        }
        let list = &mut self.lists[index * sge_max..][..sgl.len()];
        for (place, sge) in list.iter_mut().zip(sgl) {
            *place = lend(*sge);
        }
        let mut first = FirstPart::of(list);
        first.check(keys);
        self.buffers[index] = Buffer { first, count: sgl.len() as u32 };
    }

    /// Finds out what may be written under these keys, if they have changed since.
    #[inline(always)]
    pub(crate) fn check(&mut self, keys: &KeyCache) {
        if self.version != keys.version() {
            self.check_all(keys);
        }
    }

    #[cold]
    #[inline(never)]
    fn check_all(&mut self, keys: &KeyCache) {
        self.buffers.iter_mut().for_each(|buffer| buffer.first.check(keys));
        self.version = keys.version();
    }

    /// Appends Receives while they fit.
    #[inline(always)]
    pub(crate) fn post(&mut self, wrs: impl Requests<RecvWr>) -> Taken {
        let (first, limit) = (self.end, self.oldest + self.depth);
        let mut end = first;
        let mut why = None;
        for wr in wrs {
            if self.buffers.get(wr.buffer as usize).is_none_or(|it| it.count == UNKNOWN) {
                why = Some(PostError::Invalid);
                break;
            }
            if end == limit {
                why = Some(PostError::QueueFull);
                break;
            }
            self.posted[(end & self.mask) as usize] = wr;
            end += 1;
        }
        self.end = end;
        let taken = (end - first) as usize;
        match why {
            None => Taken::without_error(taken),
            Some(why) => Taken::with_error(taken, why),
        }
    }

    /// The identifier of the next message's Receive, and the first part of its memory.
    #[inline(always)]
    pub(crate) fn front_part(&self) -> Option<(WrId, FirstPart)> {
        let RecvWr { wr_id, buffer } = self.front()?;
        Some((wr_id, self.buffers.get(buffer as usize)?.first))
    }

    /// The Receive of the next message.
    #[inline(always)]
    pub(crate) fn front(&self) -> Option<RecvWr> {
        if self.oldest == self.end {
            return None;
        }
        self.posted.get((self.oldest & self.mask) as usize).copied()
    }

    /// The scatter list of a Receive.
    pub(crate) fn list(&self, RecvWr { buffer, .. }: RecvWr) -> &[Lent] {
        let index = buffer as usize;
        &self.lists[index * self.sge_max..][..self.buffers[index].count as usize]
    }

    /// Takes the front out.
    #[inline]
    pub(crate) fn pop(&mut self) {
        debug_assert_ne!(self.oldest, self.end);
        self.oldest += 1;
    }
}

/// The number of entries of a list that was not described, or is too long.
const UNKNOWN: u32 = u32::MAX;
