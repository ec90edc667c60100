//! Posting: converts requests to the driver's as they come, in chains with one doorbell each.
#![expect(unsafe_code, reason = "the driver is given memory")]

use std::ptr;

use arrayvec::ArrayVec;
use rpcrdma_provider::{
    Bind, PostError, RecvWr, Remote, Requests, SendFlags, SendOp, SendWr, Taken, WC_BATCH,
};

use super::{VerbsQp, VerbsQueues};
use crate::sys::verbs as sys;

/// Requests of one doorbell.
const CHAIN: usize = WC_BATCH;

/// A chain under construction. `next` is set when it is complete: until then it may move.
type Chain = ArrayVec<sys::ibv_send_wr, CHAIN>;

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
        mut wrs: impl Requests<SendWr<'a>>,
    ) -> Taken {
        let Some(pair) = self.find(qp) else { return Taken::with_error(0, PostError::QpGone) };
        let mut done = 0;
        let mut next = wrs.next();
        while next.is_some() {
            let mut chain = Chain::new();
            let (cut, is_binding) = self.chain(&mut next, &mut wrs, &mut chain);
            // SAFETY: the caller's promise is passed on: these are its requests, with its memory.
            let (taken, why) = unsafe { self.ring(pair, &mut chain) }.of(chain.len());
            if is_binding {
                self.note_binds(&chain[..taken]);
            }
            done += taken;
            if let Some(why) = why {
                return Taken::with_error(done, why);
            }
            if cut == Cut::Invalid {
                return Taken::with_error(done, PostError::Invalid);
            }
        }
        Taken::without_error(done)
    }

    /// Puts requests into a chain, as many as fit, and leaves the first other one in `next`. Also
    /// returns whether one binds a window.
    #[inline]
    fn chain<'a>(
        &mut self,
        next: &mut Option<SendWr<'a>>,
        wrs: &mut impl Iterator<Item = SendWr<'a>>,
        chain: &mut Chain,
    ) -> (Cut, bool) {
        let mut is_binding = false;
        while let Some(wr) = next {
            if chain.is_full() {
                return (Cut::Full, is_binding);
            }
            let mut request = EMPTY;
            let is_good = match wr.op {
                SendOp::Send => {
                    request.opcode = sys::IBV_WR_SEND;
                    true
                }
                SendOp::SendInvalidate { rkey } => {
                    request.opcode = sys::IBV_WR_SEND_WITH_INV;
                    request.invalidate_rkey = rkey;
                    true
                }
                SendOp::Write(Remote { addr, rkey }) => {
                    request.opcode = sys::IBV_WR_RDMA_WRITE;
                    (request.wr.remote_addr, request.wr.rkey) = (addr, rkey);
                    true
                }
                SendOp::Read(Remote { addr, rkey }) => {
                    request.opcode = sys::IBV_WR_RDMA_READ;
                    (request.wr.remote_addr, request.wr.rkey) = (addr, rkey);
                    true
                }
                SendOp::Invalidate { rkey } => {
                    request.opcode = sys::IBV_WR_LOCAL_INV;
                    request.invalidate_rkey = rkey;
                    wr.sgl.is_empty()
                }
                SendOp::Bind(bind) => {
                    // The driver keeps a window's last key, which it reads for each binding.
                    if is_binding && chain.iter().any(|it| self.is_of(it, &bind)) {
                        return (Cut::Full, is_binding);
                    }
                    is_binding = true;
                    wr.sgl.is_empty() && self.bind(&bind, &mut request)
                }
            };
            if !is_good || !self.fits(wr) {
                return (Cut::Invalid, is_binding);
            }
            request.wr_id = wr.wr_id.0;
            request.sg_list = wr.sgl.as_ptr().cast_mut();
            request.num_sge = wr.sgl.len() as i32;
            request.send_flags = flags(wr.flags);
            chain.push(request);
            *next = wrs.next();
        }
        (Cut::Done, is_binding)
    }

    /// Whether a request meets the limits of its queue pair.
    #[inline]
    fn fits(&self, wr: &SendWr<'_>) -> bool {
        let is_short = || {
            let len: u64 = wr.sgl.iter().map(|sge| u64::from(sge.length)).sum();
            len <= u64::from(self.limits.inline_len)
        };
        wr.sgl.len() <= self.limits.send_sge
            && (!wr.flags.contains(SendFlags::INLINE) || is_short())
    }

    /// Fills in a window binding. False if the window or the region does not exist.
    fn bind(&mut self, bind: &Bind, request: &mut sys::ibv_send_wr) -> bool {
        let Some(mw) = self.shown.window(bind.window) else { return false };
        let Some(mr) = self.regions.find(&self.port.device.regions, bind.lkey) else {
            return false;
        };
        request.opcode = sys::IBV_WR_BIND_MW;
        request.bind_mw = sys::ibv_send_wr_bind_mw {
            mw,
            rkey: bind.rkey,
            bind_info: sys::ibv_mw_bind_info {
                mr,
                addr: bind.addr,
                length: bind.len.into(),
                mw_access_flags: bind.access.bits(),
            },
        };
        true
    }

    /// Whether a request binds the same window.
    fn is_of(&self, request: &sys::ibv_send_wr, bind: &Bind) -> bool {
        request.opcode == sys::IBV_WR_BIND_MW
            && self.shown.window(bind.window) == Some(request.bind_mw.mw)
    }

    /// Records the new keys of windows.
    #[cold]
    fn note_binds(&mut self, taken: &[sys::ibv_send_wr]) {
        for request in taken.iter().filter(|it| it.opcode == sys::IBV_WR_BIND_MW) {
            let sys::ibv_send_wr_bind_mw { mw, rkey, .. } = request.bind_mw;
            // SAFETY: `bind` has put it there during this post, and none was freed since.
            unsafe { self.shown.on_bound(mw, rkey) };
        }
    }

    /// Posts a chain of requests.
    ///
    /// # Safety
    /// The requests' memory meets the contract of [`VerbsQueues::post_requests`].
    #[inline]
    unsafe fn ring(&mut self, qp: *mut sys::ibv_qp, chain: &mut Chain) -> Taken {
        let count = chain.len();
        let first = chain.as_mut_ptr();
        for at in 1..count {
            let request = first.wrapping_add(at - 1);
            // SAFETY: the chain has so many requests.
            unsafe { (*request).next = first.wrapping_add(at) };
        }
        if count == 0 {
            return Taken::without_error(0);
        }
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is alive, only this thread posts to it, and the chain is as the
        // header has it: it ends with a null, and its gather lists are the caller's.
        let code = unsafe { (self.ops.post_send)(qp, first, &raw mut bad) };
        if code == 0 {
            return Taken::without_error(count);
        }
        failed(code, taken(first, bad, count), count)
    }
}

/// Why a chain ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// There are no more requests.
    Done,
    /// The next request goes into another chain.
    Full,
    /// The next request exceeds a limit.
    Invalid,
}

#[inline]
fn flags(flags: SendFlags) -> u32 {
    let mut theirs = 0;
    for (ours, its) in [
        (SendFlags::SIGNALED, sys::IBV_SEND_SIGNALED),
        (SendFlags::INLINE, sys::IBV_SEND_INLINE),
        (SendFlags::FENCE, sys::IBV_SEND_FENCE),
    ] {
        if flags.contains(ours) {
            theirs |= its;
        }
    }
    theirs
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

/// An empty request.
const EMPTY: sys::ibv_send_wr = sys::ibv_send_wr {
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
    fn requests_the_driver_did_not_take_are_counted_from_the_first_refused() {
        let mut chain = [EMPTY; 3];
        let first = chain.as_mut_ptr();
        assert_eq!(taken(first, first, 3), 0);
        assert_eq!(taken(first, first.wrapping_add(2), 3), 2);
        assert_eq!(taken(first, ptr::null_mut(), 3), 3, "the doorbell has failed");
        assert_eq!(taken(first, first.wrapping_add(9), 3), 3, "nonsense");
    }

    #[test]
    fn a_refusal_tells_whether_to_wait_stop_or_fix_the_program() {
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
        assert_eq!(flags(SendFlags::empty()), 0);
        assert_eq!(flags(SendFlags::SIGNALED), sys::IBV_SEND_SIGNALED);
        let all = sys::IBV_SEND_SIGNALED | sys::IBV_SEND_INLINE | sys::IBV_SEND_FENCE;
        assert_eq!(flags(SendFlags::all()), all);
    }
}
