//! The requests of one doorbell, as the driver takes them: linked once, and written by each post.
#![expect(unsafe_code, reason = "gather lists of the caller are read")]

use std::ptr;

use rpcrdma_provider::WC_BATCH;

use crate::sys::verbs as sys;

/// Requests of one doorbell.
pub(super) const CHAIN: usize = WC_BATCH;

/// Places for requests, each of which names the one behind it as its next.
///
/// A place keeps what earlier requests have left in the fields that its operation does not have: a
/// driver reads only the fields of the operation. Soft-RoCE also reads the immediate data of a Bind,
/// which therefore is 0.
pub(super) struct Chain {
    places: Vec<sys::ibv_send_wr>,
    /// Whether one of the requests may bind a window.
    pub is_binding: bool,
}

impl Chain {
    pub fn new() -> Chain {
        let mut chain = Chain { places: vec![EMPTY; CHAIN], is_binding: false };
        (1..=CHAIN).for_each(|count| chain.join(count));
        chain
    }

    /// The first of [`CHAIN`] places. They stay where they are.
    #[inline]
    pub fn first(&mut self) -> *mut sys::ibv_send_wr {
        self.places.as_mut_ptr()
    }

    /// How many places are before this one.
    #[inline]
    pub fn count(&self, place: *const sys::ibv_send_wr) -> usize {
        let count = (place.addr() - self.places.as_ptr().addr()) / size_of::<sys::ibv_send_wr>();
        debug_assert!(count <= CHAIN);
        count
    }

    /// The first requests.
    pub fn requests(&self, count: usize) -> &[sys::ibv_send_wr] {
        &self.places[..count]
    }

    /// Ends the chain behind the first `count` requests, of which there is one at least. Returns
    /// the first one.
    #[inline]
    pub fn end(&mut self, count: usize) -> *mut sys::ibv_send_wr {
        self.places[count - 1].next = ptr::null_mut();
        debug_assert!(self.is_linked(count), "each place names the one behind it");
        self.first()
    }

    /// Has those of the first `count` requests that report their completion wait for all earlier
    /// Reads, which cannot wait themselves.
    #[cold]
    pub fn fence(&mut self, count: usize) {
        for request in &mut self.places[..count] {
            let reports = request.send_flags & sys::IBV_SEND_SIGNALED != 0;
            if reports && request.opcode != sys::IBV_WR_RDMA_READ {
                request.send_flags |= sys::IBV_SEND_FENCE;
            }
        }
    }

    /// Has the long ones of the first `count` requests report their completion, those that siw would
    /// send from where they are.
    ///
    /// # Safety
    /// Their gather lists are readable.
    #[cold]
    pub unsafe fn report_long(&mut self, count: usize) {
        let sent = [sys::IBV_WR_SEND, sys::IBV_WR_SEND_WITH_INV, sys::IBV_WR_RDMA_WRITE];
        for request in self.places[..count].iter_mut().filter(|it| sent.contains(&it.opcode)) {
            let pieces = (0..request.num_sge as usize).map(|at| {
                // SAFETY: so many are there, as the caller guarantees.
                unsafe { (*request.sg_list.wrapping_add(at)).length }
            });
            if pieces.map(u64::from).sum::<u64>() >= LENT_FROM {
                request.send_flags |= sys::IBV_SEND_SIGNALED;
            }
        }
    }

    /// Links the last of the first `count` requests to the place behind it, as it was before
    /// [`Chain::end`].
    #[inline]
    pub fn join(&mut self, count: usize) {
        let behind = self.first().wrapping_add(count);
        self.places[count - 1].next = behind;
    }

    fn is_linked(&self, count: usize) -> bool {
        let places = self.places.as_ptr();
        let mut linked = self.places[..count - 1].iter().zip(1..);
        linked.all(|(it, next)| it.next.cast_const() == places.wrapping_add(next))
    }
}

/// The length from which siw sends a request from where it is: a page (`SENDPAGE_THRESH`).
const LENT_FROM: u64 = 4096;

/// An empty request.
pub(super) const EMPTY: sys::ibv_send_wr = sys::ibv_send_wr {
    wr_id: 0,
    next: ptr::null_mut(),
    sg_list: ptr::null_mut(),
    num_sge: 0,
    opcode: sys::IBV_WR_SEND,
    send_flags: 0,
    invalidate_rkey: 0,
    wr: sys::ibv_send_wr_remote { remote_addr: 0, rkey: 0, rest: [0; 5] },
    remote_srqn: 0,
    bind_mw: sys::ibv_send_wr_bind_mw {
        mw: ptr::null_mut(),
        rkey: 0,
        bind_info: sys::ibv_mw_bind_info {
            mr: ptr::null_mut(),
            addr: 0,
            length: 0,
            mw_access_flags: 0,
        },
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reports_its_completion_waits_for_reads() {
        let mut chain = Chain::new();
        let (read, send) = (sys::IBV_WR_RDMA_READ, sys::IBV_WR_SEND);
        let signaled = sys::IBV_SEND_SIGNALED;
        let fenced = signaled | sys::IBV_SEND_FENCE;
        let requests =
            [(read, 0, 0), (read, signaled, signaled), (send, 0, 0), (send, signaled, fenced)];
        for (place, (opcode, flags, _)) in chain.places.iter_mut().zip(requests) {
            (place.opcode, place.send_flags) = (opcode, flags);
        }
        (chain.places[4].opcode, chain.places[4].send_flags) = (send, signaled);
        chain.fence(4);
        let flags: Vec<u32> = chain.places[..5].iter().map(|it| it.send_flags).collect();
        assert_eq!(flags, [0, signaled, 0, fenced, signaled], "the last is of another chain");
    }

    #[test]
    fn a_chain_ends_where_it_is_cut_whatever_it_was_before() {
        let mut chain = Chain::new();
        for count in [1, 3, CHAIN, 2, CHAIN, CHAIN - 1, 1, CHAIN] {
            assert_eq!(chain.end(count), chain.first());
            let ends = |it: &sys::ibv_send_wr| it.next.is_null();
            assert_eq!(chain.places.iter().position(ends), Some(count - 1));
            assert!(chain.is_linked(count));
            chain.join(count);
            assert!(!chain.places.iter().any(ends));
        }
    }
}
