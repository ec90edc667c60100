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
    /// All buffers with a smaller number can be posted.
    known: u32,
    /// The version of the keys that `buffers` agree with.
    version: u64,
    depth: u64,
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
            known: 0,
            version: 0,
            depth: depth.into(),
            oldest: 0,
            end: 0,
        }
    }

    /// Describes a buffer. `lend` makes each entry the device's.
    pub(crate) fn describe(
        &mut self,
        number: u32,
        sgl: &[Sge],
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
            self.known = self.known.min(number);
            return;
        }
        let list = &mut self.lists[index * sge_max..][..sgl.len()];
        for (place, sge) in list.iter_mut().zip(sgl) {
            *place = lend(*sge);
        }
        let mut first = FirstPart::of(list);
        first.check(keys);
        self.buffers[index] = Buffer { first, count: sgl.len() as u32 };
        while self.is_known(self.known) {
            self.known += 1;
        }
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
        let room = (self.oldest + self.depth - self.end) as usize;
        if wrs.len() > room {
            return self.post_some(wrs, room);
        }
        let (taken, is_valid) = self.append(wrs);
        if is_valid { Taken::without_error(taken) } else { invalid(taken) }
    }

    /// As [`Srq::post`], of more Receives than there is room for.
    #[cold]
    #[inline(never)]
    fn post_some(&mut self, mut wrs: impl Requests<RecvWr>, room: usize) -> Taken {
        let (taken, is_valid) = self.append(wrs.by_ref().take(room));
        let next = wrs.next().filter(|_| is_valid);
        if next.is_some_and(|wr| self.is_known(wr.buffer)) {
            Taken::with_error(taken, PostError::QueueFull)
        } else {
            invalid(taken)
        }
    }

    /// Appends Receives, for which there is room. Returns their number, and whether the next one
    /// names a buffer that can be posted.
    #[inline(always)]
    fn append(&mut self, wrs: impl Iterator<Item = RecvWr>) -> (usize, bool) {
        let (places, first) = (&mut *self.posted, self.end);
        if places.is_empty() {
            return (0, true);
        }
        let mut end = first;
        let mut is_valid = true;
        for wr in wrs {
            if wr.buffer >= self.known && !is_known(&self.buffers, wr.buffer) {
                is_valid = false;
                break;
            }
            places[end as usize & (places.len() - 1)] = wr;
            end += 1;
        }
        self.end = end;
        ((end - first) as usize, is_valid)
    }

    fn is_known(&self, buffer: u32) -> bool {
        is_known(&self.buffers, buffer)
    }

    /// The oldest Receives, for a run of short messages.
    #[inline(always)]
    pub(crate) fn fronts(&mut self) -> Fronts<'_> {
        let Srq { posted, buffers, oldest, end, .. } = self;
        Fronts { posted, buffers, oldest, end: *end }
    }

    /// The Receive of the next message.
    #[inline(always)]
    pub(crate) fn front(&self) -> Option<RecvWr> {
        if self.oldest == self.end {
            return None;
        }
        self.posted.get(self.oldest as usize & (self.posted.len() - 1)).copied()
    }

    /// The scatter list of a Receive.
    #[inline]
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

/// The Receives that a run of short messages takes, in order.
pub(crate) struct Fronts<'a> {
    posted: &'a [RecvWr],
    buffers: &'a [Buffer],
    oldest: &'a mut u64,
    end: u64,
}

impl Fronts<'_> {
    /// The number of Receives.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        if self.posted.is_empty() { 0 } else { (self.end - *self.oldest) as usize }
    }

    /// The identifier of the oldest Receive, of which there are some, and the first part of its
    /// memory.
    #[inline(always)]
    pub(crate) fn part(&self) -> Option<(WrId, FirstPart)> {
        debug_assert_ne!(*self.oldest, self.end);
        let RecvWr { wr_id, buffer } = self.posted[*self.oldest as usize & (self.posted.len() - 1)];
        Some((wr_id, self.buffers.get(buffer as usize)?.first))
    }

    /// Takes the oldest out.
    #[inline(always)]
    pub(crate) fn pop(&mut self) {
        *self.oldest += 1;
    }
}

/// Whether a buffer can be posted.
#[inline(never)]
fn is_known(buffers: &[Buffer], buffer: u32) -> bool {
    buffers.get(buffer as usize).is_some_and(|it| it.count != UNKNOWN)
}

#[cold]
fn invalid(taken: usize) -> Taken {
    Taken::with_error(taken, PostError::Invalid)
}

/// The number of entries of a list that was not described, or is too long.
const UNKNOWN: u32 = u32::MAX;
