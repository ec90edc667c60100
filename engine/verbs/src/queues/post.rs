//! Posting: converts requests to the driver's as they come, in chains with one doorbell each.
#![expect(unsafe_code, reason = "the driver is given memory")]

use std::ptr;

use rpcrdma_provider::{
    Bind, PostError, RecvWr, Remote, Requests, SendFlags, SendOp, SendWr, Taken,
};

use super::chain::CHAIN;
use super::{Limits, VerbsQp, VerbsQueues};
use crate::device::ops::Quirks;
use crate::error;
use crate::sys::verbs as sys;

impl VerbsQueues {
    /// Appends Receives to the shared receive queue.
    ///
    /// # Safety
    /// That of [`Queues::post_srq_recv`](rpcrdma_provider::Queues::post_srq_recv).
    #[inline]
    pub(super) unsafe fn post_receives(&mut self, wrs: impl Requests<RecvWr>) -> Taken {
        let asked = wrs.len();
        let (first, count) = self.receives.link(wrs);
        let mut outcome = Taken::without_error(count);
        if count > 0 {
            let mut bad = ptr::null_mut();
            // SAFETY: the queue is alive, only this thread posts to it, and the chain is as the
            // header has it: it ends with a null, and its scatter lists are the caller's.
            let code = unsafe { (self.ops.post_srq_recv)(self.srq, first, &raw mut bad) };
            if code != 0 {
                outcome = failed(code, self.receives.taken(first, bad, count), count);
                self.note_refusal("ibv_post_srq_recv", code);
            }
        }
        match outcome.of(count) {
            (taken, None) if taken < asked => Taken::with_error(taken, PostError::Invalid),
            _ => outcome,
        }
    }

    /// Posts requests to a queue pair.
    ///
    /// # Safety
    /// That of [`Queues::post_send`](rpcrdma_provider::Queues::post_send).
    #[inline]
    pub(super) unsafe fn post_requests<'a>(
        &mut self,
        qp: VerbsQp,
        wrs: impl Requests<SendWr<'a>>,
    ) -> Taken {
        let Some(pair) = self.find(qp) else { return self.flush(qp, wrs) };
        let (limits, first) = (self.limits, self.chain.first());
        let (mut done, mut place) = (0, first);
        for wr in wrs {
            if place == first.wrapping_add(CHAIN) || self.must_wait(&wr.op, place) {
                // SAFETY: the caller's promise is passed on: these are its requests, with its
                // memory.
                match unsafe { self.ring_early(pair, place) } {
                    (taken, None) => done += taken,
                    (taken, Some(why)) => return Taken::with_error(done + taken, why),
                }
                place = first;
            }
            // SAFETY: it is one of the `CHAIN` places, and nothing else refers to it.
            let request = unsafe { &mut *place };
            if !limits.allow(&wr) || !self.put(&wr, request) {
                // SAFETY: as above.
                let (taken, why) = unsafe { self.ring_early(pair, place) };
                return Taken::with_error(done + taken, why.unwrap_or(PostError::Invalid));
            }
            place = place.wrapping_add(1);
        }
        // SAFETY: as above.
        match unsafe { self.ring(pair, place) } {
            (taken, None) => Taken::without_error(done + taken),
            (taken, Some(why)) => Taken::with_error(done + taken, why),
        }
    }

    /// Whether a request goes into another chain than those before `place`: it binds a window that
    /// one of them binds. The driver keeps a window's last key, which it reads for each binding.
    #[inline]
    fn must_wait(&self, op: &SendOp, place: *const sys::ibv_send_wr) -> bool {
        let SendOp::Bind(bind) = op else { return false };
        self.chain.is_binding
            && self.chain.requests(self.chain.count(place)).iter().any(|it| self.is_of(it, bind))
    }

    /// Writes a request to its place in the chain. False if it is not possible.
    #[inline]
    fn put(&mut self, wr: &SendWr<'_>, request: &mut sys::ibv_send_wr) -> bool {
        let opcode = match &wr.op {
            SendOp::Send => sys::IBV_WR_SEND,
            other => match self.put_operation(other, wr.sgl.is_empty(), request) {
                Some(opcode) => opcode,
                None => return false,
            },
        };
        request.wr_id = wr.wr_id.0;
        request.sg_list = wr.sgl.as_ptr().cast_mut();
        request.num_sge = wr.sgl.len() as i32;
        request.opcode = opcode;
        request.send_flags = wr.flags.bits();
        true
    }

    /// Writes what an operation has and a Send has not. Returns its number; `None` for an
    /// operation that is not possible.
    fn put_operation(
        &mut self,
        op: &SendOp,
        is_without_memory: bool,
        request: &mut sys::ibv_send_wr,
    ) -> Option<u32> {
        Some(match op {
            SendOp::Send => sys::IBV_WR_SEND,
            SendOp::SendInvalidate { rkey } => {
                request.invalidate_rkey = *rkey;
                // Software iWARP (libsiw) takes the key from here; others do not read it.
                request.wr.rkey = *rkey;
                sys::IBV_WR_SEND_WITH_INV
            }
            SendOp::Write(Remote { addr, rkey }) => {
                (request.wr.remote_addr, request.wr.rkey) = (*addr, *rkey);
                sys::IBV_WR_RDMA_WRITE
            }
            SendOp::Read(Remote { addr, rkey }) => {
                (request.wr.remote_addr, request.wr.rkey) = (*addr, *rkey);
                sys::IBV_WR_RDMA_READ
            }
            SendOp::Invalidate { rkey } if is_without_memory => {
                request.invalidate_rkey = *rkey;
                sys::IBV_WR_LOCAL_INV
            }
            SendOp::Bind(bind) if is_without_memory => {
                request.bind_mw = self.binding(bind)?;
                // In the place of immediate data, which soft-RoCE does not take here.
                request.invalidate_rkey = 0;
                self.chain.is_binding = true;
                sys::IBV_WR_BIND_MW
            }
            SendOp::Invalidate { .. } | SendOp::Bind(_) => return None,
        })
    }

    /// A window binding. `None` if the window or the region does not exist.
    fn binding(&mut self, bind: &Bind) -> Option<sys::ibv_send_wr_bind_mw> {
        let mw = self.exposed.window(bind.window)?;
        let mr = self.regions.find(&self.port.device.regions, bind.lkey)?;
        Some(sys::ibv_send_wr_bind_mw {
            mw,
            rkey: bind.rkey,
            bind_info: sys::ibv_mw_bind_info {
                mr,
                addr: bind.addr,
                length: bind.len.into(),
                mw_access_flags: bind.access.bits(),
            },
        })
    }

    /// Records why the driver took no more requests, unless its queue is full.
    #[cold]
    fn note_refusal(&self, call: &'static str, code: i32) {
        if code.saturating_abs() != libc::ENOMEM {
            self.port.device.events.note_failure(&error::code(call, code));
        }
    }

    /// As [`VerbsQueues::note_refusal`], of a queue pair. Nothing is recorded of one that has ended,
    /// whose requests some drivers refuse (siw: ENOTCONN): each disconnection would replace the
    /// cause of an earlier failure.
    #[cold]
    fn note_refused_send(&self, qp: *mut sys::ibv_qp, code: i32) {
        let pairs = self.pairs.iter().filter_map(|slot| slot.pair.as_ref());
        let has_ended = pairs.filter(|pair| pair.qp == qp).any(|pair| pair.is_in_error());
        if !has_ended && code.saturating_abs() != libc::ENOTCONN {
            self.note_refusal("ibv_post_send", code);
        }
    }

    /// Whether a request binds the same window.
    fn is_of(&self, request: &sys::ibv_send_wr, bind: &Bind) -> bool {
        request.opcode == sys::IBV_WR_BIND_MW
            && self.exposed.window(bind.window) == Some(request.bind_mw.mw)
    }

    /// Records the new keys of the windows that the first `taken` requests bind.
    #[cold]
    fn note_binds(&mut self, taken: usize) {
        self.chain.is_binding = false;
        let is_binding = |it: &&sys::ibv_send_wr| it.opcode == sys::IBV_WR_BIND_MW;
        for request in self.chain.requests(taken).iter().filter(is_binding) {
            let sys::ibv_send_wr_bind_mw { mw, rkey, .. } = request.bind_mw;
            // SAFETY: `binding` has found it during this post, and none was freed since.
            unsafe { self.exposed.on_bound(mw, rkey) };
        }
    }

    /// Has the first `count` requests of the chain complete when they are done, as the quirks of the
    /// device need.
    ///
    /// # Safety
    /// Their gather lists are readable.
    #[cold]
    unsafe fn complete_late(&mut self, count: usize) {
        let Quirks { fences_reports, lends_unreported, .. } = self.port.device.quirks;
        if lends_unreported {
            // SAFETY: the caller's promise is passed on.
            unsafe { self.chain.report_long(count) };
        }
        if fences_reports {
            self.chain.fence(count);
        }
    }

    /// Posts a chain that is not the last one.
    ///
    /// # Safety
    /// As for [`VerbsQueues::ring`].
    #[cold]
    unsafe fn ring_early(
        &mut self,
        qp: *mut sys::ibv_qp,
        end: *mut sys::ibv_send_wr,
    ) -> (usize, Option<PostError>) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.ring(qp, end) }
    }

    /// Posts the requests of the chain before `end`. Returns how many were taken, and the error.
    ///
    /// # Safety
    /// The requests' memory meets the contract of [`VerbsQueues::post_requests`].
    #[inline]
    unsafe fn ring(
        &mut self,
        qp: *mut sys::ibv_qp,
        end: *mut sys::ibv_send_wr,
    ) -> (usize, Option<PostError>) {
        let count = self.chain.count(end);
        if count == 0 {
            return (0, None);
        }
        if self.completes_early {
            // SAFETY: the gather lists are the caller's.
            unsafe { self.complete_late(count) };
        }
        let first = self.chain.end(count);
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is alive, only this thread posts to it, and the chain is as the
        // header has it: it ends with a null, and its gather lists are the caller's.
        let code = unsafe { (self.ops.post_send)(qp, first, &raw mut bad) };
        self.chain.join(count);
        let (taken, why) = match code {
            0 => (count, None),
            code => {
                self.note_refused_send(qp, code);
                failed(code, taken(first, bad, count), count).of(count)
            }
        };
        if self.chain.is_binding {
            self.note_binds(taken);
        }
        (taken, why)
    }
}

impl Limits {
    /// Whether a request meets the limits of its queue pair.
    #[inline]
    fn allow(&self, wr: &SendWr<'_>) -> bool {
        let is_short = || {
            let len: u64 = wr.sgl.iter().map(|sge| u64::from(sge.length)).sum();
            len <= u64::from(self.inline_len)
        };
        wr.sgl.len() <= self.send_sge && (!wr.flags.contains(SendFlags::INLINE) || is_short())
    }
}

/// How many requests of a chain the driver has taken, from the first one that it rejected. If it
/// rejected none, all are in its queue, and a later step has failed.
#[cold]
fn taken<T>(first: *mut T, bad: *mut T, count: usize) -> usize {
    if bad.is_null() {
        return count;
    }
    (bad.addr().wrapping_sub(first.addr()) / size_of::<T>()).min(count)
}

/// The meaning of a driver's error, when it took so many requests of a chain of `count`.
#[cold]
fn failed(code: i32, taken: usize, count: usize) -> Taken {
    let why = match code.abs() {
        // All requests are in the queue, but the doorbell has failed: the device may never see
        // them.
        _ if taken == count => PostError::QpGone,
        libc::ENOMEM => PostError::QueueFull,
        libc::EINVAL => PostError::Invalid,
        _ => PostError::QpGone,
    };
    Taken::with_error(taken, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queues::chain::EMPTY;

    #[test]
    fn requests_the_driver_did_not_take_are_counted_from_the_first_refused() {
        let mut chain = [EMPTY; 3];
        let first = chain.as_mut_ptr();
        assert_eq!(taken(first, first, 3), 0);
        assert_eq!(taken(first, first.wrapping_add(2), 3), 2);
        assert_eq!(taken(first, ptr::null_mut(), 3), 3, "the doorbell has failed");
        assert_eq!(taken(first, first.wrapping_add(9), 3), 3, "nonsense");
    }

    #[test]
    fn a_refusal_states_whether_to_wait_stop_or_fix_the_program() {
        let mut chain = [EMPTY; 3];
        let first = chain.as_mut_ptr();
        let failed = |code, at| failed(code, taken(first, first.wrapping_add(at), 3), 3).of(3);
        assert_eq!(failed(libc::ENOMEM, 2), (2, Some(PostError::QueueFull)));
        assert_eq!(failed(-libc::EINVAL, 0), (0, Some(PostError::Invalid)));
        assert_eq!(failed(libc::EIO, 1), (1, Some(PostError::QpGone)));
        for code in [libc::ENOMEM, libc::EINVAL, libc::EIO] {
            assert_eq!(failed(code, 9), (3, Some(PostError::QpGone)), "the doorbell has failed");
        }
    }

    #[test]
    fn flags_are_those_of_the_header() {
        for (ours, its) in [
            (SendFlags::SIGNALED, sys::IBV_SEND_SIGNALED),
            (SendFlags::INLINE, sys::IBV_SEND_INLINE),
            (SendFlags::FENCE, sys::IBV_SEND_FENCE),
        ] {
            assert_eq!(ours.bits(), its);
        }
        let all = sys::IBV_SEND_SIGNALED | sys::IBV_SEND_INLINE | sys::IBV_SEND_FENCE;
        assert_eq!(SendFlags::all().bits(), all);
    }
}
