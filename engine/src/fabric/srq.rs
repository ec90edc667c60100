//! The shared receive queue: Receives in the order of posting, matched in that order.

use rpcrdma_mempool::Sge;

use super::dma::Lent;
use crate::provider::{PostError, RecvWr, WrId};

/// Receives, first in, first out. All memory is taken at the beginning.
pub(super) struct Srq {
    heads: Box<[Head]>,
    /// `sge_max` entries for each head.
    sges: Box<[Lent]>,
    sge_max: usize,
    depth: u32,
    mask: u32,
    /// Position of the oldest Receive.
    oldest: u32,
    /// Position behind the newest.
    end: u32,
}

/// A Receive without its scatter list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    /// As posted.
    pub wr_id: WrId,
    /// The sum of the lengths of its list.
    pub room: u64,
    count: u32,
}

impl Srq {
    pub(super) fn new(depth: u32, sge_max: u32) -> Srq {
        let places = depth.next_power_of_two();
        let sge_max = sge_max as usize;
        Srq {
            heads: (0..places).map(|_| Head { wr_id: WrId(0), room: 0, count: 0 }).collect(),
            sges: vec![Lent::default(); places as usize * sge_max].into_boxed_slice(),
            sge_max,
            depth,
            mask: places - 1,
            oldest: 0,
            end: 0,
        }
    }

    /// Appends Receives until one does not fit. `lend` makes each entry the device's.
    #[inline]
    pub(super) fn post(
        &mut self,
        wr: &[RecvWr<'_>],
        lend: impl Fn(Sge) -> Lent,
    ) -> Result<(), PostError> {
        for (taken, wr) in wr.iter().enumerate() {
            if wr.sgl.len() > self.sge_max {
                return Err(PostError::Invalid { taken });
            }
            if self.end.wrapping_sub(self.oldest) >= self.depth {
                return Err(PostError::QueueFull { taken });
            }
            let index = (self.end & self.mask) as usize;
            let mut room = 0;
            for (place, sge) in self.sges[index * self.sge_max..].iter_mut().zip(wr.sgl) {
                room += u64::from(sge.length);
                *place = lend(*sge);
            }
            self.heads[index] = Head { wr_id: wr.wr_id, room, count: wr.sgl.len() as u32 };
            self.end = self.end.wrapping_add(1);
        }
        Ok(())
    }

    /// The Receive that the next message meets.
    #[inline]
    pub(super) fn front(&self) -> Option<(Head, &[Lent])> {
        if self.oldest == self.end {
            return None;
        }
        let index = (self.oldest & self.mask) as usize;
        let head = self.heads[index];
        let first = index * self.sge_max;
        Some((head, &self.sges[first..first + head.count as usize]))
    }

    /// Takes the front out.
    #[inline]
    pub(super) fn pop(&mut self) {
        debug_assert_ne!(self.oldest, self.end);
        self.oldest = self.oldest.wrapping_add(1);
    }
}
