//! The described receive buffers, as the driver takes them: posting one links its entry to a chain.
#![expect(unsafe_code, reason = "a chain is linked by pointers")]

use std::ptr;

use rpcrdma_mempool::Sge;
use rpcrdma_provider::{RecvWr, Requests};

use crate::sys::verbs as sys;
use crate::wc::RECEIVE;

/// The receive buffers of a shared receive queue, by number.
pub(super) struct Receives {
    /// Each with the place of its list.
    entries: Vec<sys::ibv_recv_wr>,
    /// `sge_max` entries for each buffer.
    lists: Vec<sys::ibv_sge>,
    sge_max: usize,
    /// The buffers below this number can be posted.
    ready: usize,
}

impl Receives {
    /// None yet.
    pub fn new(sge_max: u32) -> Receives {
        Receives { entries: Vec::new(), lists: Vec::new(), sge_max: sge_max as usize, ready: 0 }
    }

    /// Describes a buffer. One whose list is too long cannot be posted.
    pub fn describe(&mut self, buffer: u32, sgl: &[Sge]) {
        let (index, sge_max) = (buffer as usize, self.sge_max);
        if index >= self.entries.len() {
            self.grow(index + 1);
        }
        if sgl.len() > sge_max {
            self.entries[index].num_sge = UNKNOWN.num_sge;
            self.ready = self.ready.min(index);
            return;
        }
        self.lists[index * sge_max..][..sgl.len()].copy_from_slice(sgl);
        self.entries[index].num_sge = sgl.len() as i32;
        while self.is_described(self.ready) {
            self.ready += 1;
        }
    }

    /// Makes room for so many buffers.
    fn grow(&mut self, count: usize) {
        self.entries.resize(count, UNKNOWN);
        self.lists.resize(count * self.sge_max, Sge::default());
        let lists = self.lists.as_mut_ptr();
        for (index, entry) in self.entries.iter_mut().enumerate() {
            entry.sg_list = lists.wrapping_add(index * self.sge_max);
        }
    }

    fn is_described(&self, index: usize) -> bool {
        self.entries.get(index).is_some_and(|entry| entry.num_sge >= 0)
    }

    /// Links Receives to a chain, up to the first whose buffer is not described. Returns its first
    /// entry and its length.
    #[inline]
    pub fn link(&mut self, wrs: impl Requests<RecvWr>) -> (*mut sys::ibv_recv_wr, usize) {
        let (entries, ready) = (self.entries.as_mut_ptr(), self.ready);
        let mut head = UNKNOWN;
        let mut last = &raw mut head;
        let mut count = 0;
        for RecvWr { wr_id, buffer } in wrs {
            let index = buffer as usize;
            if index >= ready && !self.is_described(index) {
                break;
            }
            let place = entries.wrapping_add(index);
            // SAFETY: the index is that of an entry, and nothing else refers to it.
            unsafe { (*place).wr_id = wr_id.0 | RECEIVE };
            // SAFETY: this is `head`, or the entry before, of another buffer.
            unsafe { (*last).next = place };
            last = place;
            count += 1;
        }
        // SAFETY: as above.
        unsafe { (*last).next = ptr::null_mut() };
        (head.next, count)
    }

    /// How many Receives of a chain the driver has taken, from the first one that it rejected. If
    /// it rejected none, all are in its queue, and a later step has failed.
    #[cold]
    pub fn taken(
        &self,
        first: *mut sys::ibv_recv_wr,
        bad: *mut sys::ibv_recv_wr,
        count: usize,
    ) -> usize {
        let mut at = first;
        for taken in 0..count {
            if at == bad {
                return taken;
            }
            // SAFETY: the chain has so many entries.
            at = unsafe { (*at).next };
        }
        count
    }
}

/// The entry of a buffer that cannot be posted.
const UNKNOWN: sys::ibv_recv_wr =
    sys::ibv_recv_wr { wr_id: 0, next: ptr::null_mut(), sg_list: ptr::null_mut(), num_sge: -1 };

#[cfg(test)]
mod tests {
    use rpcrdma_provider::WrId;

    use super::*;

    fn sge(addr: u64) -> Sge {
        Sge { addr, length: 8, lkey: 1 }
    }

    #[test]
    fn a_chain_has_the_described_lists_in_the_order_of_posting() {
        let mut receives = Receives::new(2);
        receives.describe(3, &[sge(30), sge(31)]);
        receives.describe(0, &[sge(1)]);
        receives.describe(1, &[sge(0); 3]);
        let wrs = [3, 0].map(|buffer| RecvWr { wr_id: WrId(buffer.into()), buffer });
        let (first, count) = receives.link(wrs.into_iter());
        assert_eq!(count, 2);
        // SAFETY: the chain has two entries.
        let one = unsafe { *first };
        // SAFETY: as above.
        let two = unsafe { *one.next };
        assert_eq!((one.wr_id, one.num_sge), (3 | RECEIVE, 2));
        assert_eq!((two.wr_id, two.num_sge, two.next), (RECEIVE, 1, ptr::null_mut()));
        // SAFETY: a list of two entries.
        let list = unsafe { std::slice::from_raw_parts(one.sg_list, 2) };
        assert_eq!(list, [sge(30), sge(31)]);
        // SAFETY: a list of one entry.
        assert_eq!(unsafe { *two.sg_list }, sge(1));
        for (bad, taken) in [(first, 0), (one.next, 1), (ptr::null_mut(), 2)] {
            assert_eq!(receives.taken(first, bad, 2), taken);
        }
        // The chain before has left nothing in its entries.
        let wrs = [0, 3].map(|buffer| RecvWr { wr_id: WrId(buffer.into()), buffer });
        let (first, count) = receives.link(wrs.into_iter());
        assert_eq!(count, 2);
        // SAFETY: the chain has two entries.
        let one = unsafe { *first };
        // SAFETY: as above.
        let two = unsafe { *one.next };
        assert_eq!((one.wr_id, two.wr_id, two.next), (RECEIVE, 3 | RECEIVE, ptr::null_mut()));
    }

    #[test]
    fn a_chain_ends_before_a_buffer_that_is_not_described() {
        let mut receives = Receives::new(2);
        receives.describe(2, &[sge(2)]);
        receives.describe(1, &[sge(0); 3]);
        for other in [0, 1, 3, u32::MAX] {
            let wrs = [2, other].map(|buffer| RecvWr { wr_id: WrId(9), buffer });
            assert_eq!(receives.link(wrs.into_iter()).1, 1, "{other}");
        }
        receives.describe(1, &[]);
        let wrs = [RecvWr { wr_id: WrId(9), buffer: 1 }];
        assert_eq!(receives.link(wrs.into_iter()).1, 1, "described again");
    }

    #[test]
    fn a_buffer_whose_list_became_too_long_is_not_posted_until_it_is_described_again() {
        let mut receives = Receives::new(1);
        (0..4).rev().for_each(|buffer| receives.describe(buffer, &[sge(buffer.into())]));
        let all = || (0..4).map(|buffer| RecvWr { wr_id: WrId(1), buffer }).collect::<Vec<_>>();
        for (list, posted) in [(&[sge(0); 2][..], 1), (&[sge(7)], 4)] {
            assert_eq!(receives.link(all().into_iter()).1, 4);
            receives.describe(1, list);
            assert_eq!(receives.link(all().into_iter()).1, posted);
            assert_eq!(receives.link(all().into_iter().skip(2)).1, 2, "others are as before");
            receives.describe(1, &[sge(1)]);
        }
        let (first, _) = receives.link(all().into_iter().skip(1).take(1));
        // SAFETY: the chain has one entry, with a list of one.
        let list = unsafe { (*first).sg_list };
        // SAFETY: as above.
        assert_eq!(unsafe { *list }, sge(1));
    }
}
