//! The shared receive queue: Receives in the order of posting, matched in that order.

use rpcrdma_mempool::Sge;
use rpcrdma_provider::{PostError, RecvWr, Taken, WrId};

use super::dma::Lent;

/// A FIFO of Receives. All memory is allocated at the beginning.
pub(crate) struct Srq {
    heads: Box<[Head]>,
    /// `sge_max` entries for each head.
    sges: Box<[Lent]>,
    sge_max: usize,
    depth: u64,
    mask: u64,
    /// Position of the oldest Receive.
    oldest: u64,
    /// Position behind the newest.
    end: u64,
}

/// A Receive with the part of its scatter list that a short message needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    /// As posted.
    pub wr_id: WrId,
    /// The first entry of its list; for an empty list an empty entry.
    pub first: Lent,
    /// Entries of the whole list.
    count: u32,
}

impl Srq {
    pub(crate) fn new(depth: u32, sge_max: u32) -> Srq {
        let places = depth.next_power_of_two();
        let sge_max = sge_max as usize;
        Srq {
            heads: vec![Head { wr_id: WrId(0), first: Lent::default(), count: 0 }; places as usize]
                .into_boxed_slice(),
            sges: vec![Lent::default(); places as usize * sge_max].into_boxed_slice(),
            sge_max,
            depth: depth.into(),
            mask: u64::from(places - 1),
            oldest: 0,
            end: 0,
        }
    }

    /// Appends Receives while they fit. `lend` makes each entry the device's.
    #[inline]
    pub(crate) fn post(&mut self, wr: &[RecvWr<'_>], lend: impl Fn(Sge) -> Lent) -> Taken {
        for (taken, wr) in wr.iter().enumerate() {
            if wr.sgl.len() > self.sge_max {
                return Taken::with_error(taken, PostError::Invalid);
            }
            if self.end - self.oldest >= self.depth {
                return Taken::with_error(taken, PostError::QueueFull);
            }
            let index = (self.end & self.mask) as usize;
            let places = &mut self.sges[index * self.sge_max..][..wr.sgl.len()];
            for (place, sge) in places.iter_mut().zip(wr.sgl) {
                *place = lend(*sge);
            }
            let first = places.first().copied().unwrap_or_default();
            self.heads[index] = Head { wr_id: wr.wr_id, first, count: wr.sgl.len() as u32 };
            self.end += 1;
        }
        Taken::without_error(wr.len())
    }

    /// The Receive of the next message.
    #[inline]
    pub(crate) fn front(&self) -> Option<&Head> {
        if self.oldest == self.end {
            return None;
        }
        self.heads.get((self.oldest & self.mask) as usize)
    }

    /// The scatter list of the front.
    pub(crate) fn list(&self) -> &[Lent] {
        let index = (self.oldest & self.mask) as usize;
        &self.sges[index * self.sge_max..][..self.heads[index].count as usize]
    }

    /// Takes the front out.
    #[inline]
    pub(crate) fn pop(&mut self) {
        debug_assert_ne!(self.oldest, self.end);
        self.oldest += 1;
    }
}
