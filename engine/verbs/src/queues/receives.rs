//! The described receive buffers, as the driver takes them: posting one links its entry to a chain.
#![expect(unsafe_code, reason = "a chain is linked by pointers")]

use std::ptr;

use rpcrdma_mempool::Sge;
use rpcrdma_provider::{RecvWr, Requests};

use crate::sys::verbs as sys;
use crate::wc::RECEIVE;

/// The receive buffers of a shared receive queue, by number.
pub(super) struct Receives {
    entries: Vec<sys::ibv_recv_wr>,
    /// `sge_max` entries for each buffer.
    lists: Vec<sys::ibv_sge>,
    sge_max: usize,
}

impl Receives {
    /// None yet.
    pub fn new(sge_max: u32) -> Receives {
        Receives { entries: Vec::new(), lists: Vec::new(), sge_max: sge_max as usize }
    }

    /// Describes a buffer. One whose list is too long cannot be posted.
    pub fn describe(&mut self, buffer: u32, sgl: &[Sge]) {
        let (index, sge_max) = (buffer as usize, self.sge_max);
        if index >= self.entries.len() {
            self.entries.resize(index + 1, UNKNOWN);
            self.lists.resize((index + 1) * sge_max, Sge::default());
        }
        if sgl.len() > sge_max {
            self.entries[index].num_sge = UNKNOWN.num_sge;
            return;
        }
        self.lists[index * sge_max..][..sgl.len()].copy_from_slice(sgl);
        self.entries[index].num_sge = sgl.len() as i32;
    }

    /// Links Receives to a chain, up to the first whose buffer is not described. Returns its first
    /// entry and its length.
    #[inline]
    pub fn link(&mut self, wrs: impl Requests<RecvWr>) -> (*mut sys::ibv_recv_wr, usize) {
        let known = self.entries.len();
        let (entries, lists) = (self.entries.as_mut_ptr(), self.lists.as_mut_ptr());
        let (mut first, mut last) = (ptr::null_mut(), ptr::null_mut::<sys::ibv_recv_wr>());
        let mut count = 0;
        for RecvWr { wr_id, buffer } in wrs {
            let index = buffer as usize;
            if index >= known {
                break;
            }
            let place = entries.wrapping_add(index);
            // SAFETY: the index is that of an entry, and nothing else refers to the entries.
            let entry = unsafe { &mut *place };
            if entry.num_sge < 0 {
                break;
            }
            entry.wr_id = wr_id.0 | RECEIVE;
            entry.next = ptr::null_mut();
            entry.sg_list = lists.wrapping_add(index * self.sge_max);
            if last.is_null() {
                first = place;
            } else {
                // SAFETY: the entry before, of another buffer; nothing else refers to it.
                unsafe { (*last).next = place };
            }
            last = place;
            count += 1;
        }
        (first, count)
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
}
