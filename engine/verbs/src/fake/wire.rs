//! A device that is wired to itself: what one id asks for is an event of another, and what one queue
//! pair sends another receives.
//!
//! ```text
//!   connect ──▶ request at the listener ── accept ──▶ response at the asker ── establish ──▶ established
//!   post_send ──▶ the oldest Receive of the peer's queue ──▶ completions of both, at once
//! ```
//! Queue pairs send, bind windows and invalidate keys; no request reaches memory by a key. A message
//! that has no Receive, or no peer any more, fails at once. An end that leaves is not reported.
#![expect(unsafe_code, reason = "memory is copied by addresses")]

use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_uint;
use std::ptr;

use super::pointers::seen;
use crate::sys::cm::{rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel};
use crate::sys::verbs::*;

/// The connections of a device, and what is under way on them.
#[derive(Default)]
pub(super) struct Wire {
    /// Whether there are any. Without, requests to connect stay without an answer.
    pub is_there: bool,
    events: VecDeque<Box<FakeEvent>>,
    /// Who has asked with which queue pair, and the request at the listener.
    asked: Vec<Asked>,
    pairs: BTreeMap<u32, WiredPair>,
    receives: BTreeMap<*mut ibv_srq, VecDeque<(u64, Vec<ibv_sge>)>>,
    completions: BTreeMap<*mut ibv_cq, VecDeque<ibv_wc>>,
}

/// An event, which begins as the library's does, with its private data.
#[repr(C)]
pub(super) struct FakeEvent {
    raw: rdma_cm_event,
    channel: *mut rdma_event_channel,
    private: Vec<u8>,
}

struct Asked {
    asker: *mut rdma_cm_id,
    qp_num: u32,
    request: *mut rdma_cm_id,
}

struct WiredPair {
    cq: *mut ibv_cq,
    srq: *mut ibv_srq,
    peer: Option<u32>,
    is_in_error: bool,
}

impl FakeEvent {
    /// An event of an id, and of its listener for a request.
    pub fn new(
        id: *mut rdma_cm_id,
        listen_id: *mut rdma_cm_id,
        event: c_uint,
        conn: Option<&rdma_conn_param>,
    ) -> Box<FakeEvent> {
        // SAFETY: all members are integers and pointers, for which zeros are values.
        let nothing: rdma_cm_event = unsafe { std::mem::zeroed() };
        let mut conn = conn.copied().unwrap_or(nothing.conn);
        let private = match conn.private_data.is_null() {
            true => Vec::new(),
            // SAFETY: the caller's private data are that long.
            false => unsafe {
                let len = conn.private_data_len.into();
                std::slice::from_raw_parts(conn.private_data.cast::<u8>(), len).to_vec()
            },
        };
        conn.private_data = private.as_ptr().cast();
        let raw = rdma_cm_event { id, listen_id, event, conn, ..nothing };
        Box::new(FakeEvent { raw, channel: seen(id).channel, private })
    }

    /// Adds the reason of a rejection.
    pub fn because(mut self: Box<FakeEvent>, status: i32) -> Box<FakeEvent> {
        self.raw.status = status;
        self
    }
}

impl Wire {
    /// Queues an event for the owner of its id.
    pub fn push(&mut self, event: Box<FakeEvent>) {
        if self.is_there {
            self.events.push_back(event);
        }
    }

    /// The next event of a channel.
    pub fn next_event(&mut self, channel: *mut rdma_event_channel) -> Option<Box<FakeEvent>> {
        let at = self.events.iter().position(|it| it.channel == channel)?;
        self.events.remove(at)
    }

    pub fn ask(&mut self, asker: *mut rdma_cm_id, qp_num: u32, request: *mut rdma_cm_id) {
        self.asked.push(Asked { asker, qp_num, request });
    }

    /// Connects the queue pairs of both ends. Returns who has asked.
    pub fn accept(&mut self, request: *mut rdma_cm_id, qp_num: u32) -> Option<*mut rdma_cm_id> {
        let asked = self.asked.iter().find(|it| it.request == request)?;
        for (num, peer) in [(qp_num, asked.qp_num), (asked.qp_num, qp_num)] {
            self.pairs.get_mut(&num)?.peer = Some(peer);
        }
        Some(asked.asker)
    }

    /// Who has asked with this request.
    pub fn asker(&self, request: *mut rdma_cm_id) -> Option<*mut rdma_cm_id> {
        self.asked.iter().find(|it| it.request == request).map(|it| it.asker)
    }

    /// The other end of a connection, for who has asked.
    pub fn accepter(&self, asker: *mut rdma_cm_id) -> Option<*mut rdma_cm_id> {
        self.asked.iter().find(|it| it.asker == asker).map(|it| it.request)
    }

    pub fn forget_id(&mut self, id: *mut rdma_cm_id) {
        self.asked.retain(|it| it.asker != id && it.request != id);
        self.events.retain(|it| it.raw.id != id && it.raw.listen_id != id);
    }

    pub fn forget_cq(&mut self, cq: *mut ibv_cq) {
        self.completions.remove(&cq);
    }

    pub fn forget_srq(&mut self, srq: *mut ibv_srq) {
        self.receives.remove(&srq);
    }

    pub fn add(&mut self, qp: &ibv_qp) {
        let pair = WiredPair { cq: qp.send_cq, srq: qp.srq, peer: None, is_in_error: false };
        self.pairs.insert(qp.qp_num, pair);
    }

    /// Moves a queue pair to the error state.
    pub fn fail(&mut self, qp_num: u32) {
        self.pairs.entry(qp_num).and_modify(|pair| pair.is_in_error = true);
    }

    pub fn remove(&mut self, qp_num: u32) {
        self.pairs.remove(&qp_num);
    }

    /// The completions of a queue, or others if it has none.
    pub fn completions<'a>(
        &'a mut self,
        cq: *mut ibv_cq,
        others: &'a mut VecDeque<ibv_wc>,
    ) -> &'a mut VecDeque<ibv_wc> {
        match self.completions.get_mut(&cq) {
            Some(own) if !own.is_empty() => own,
            _ => others,
        }
    }

    /// Takes a chain of Receives.
    pub fn receive(&mut self, srq: *mut ibv_srq, first: *mut ibv_recv_wr) {
        let queue = self.receives.entry(srq).or_default();
        let mut next = first;
        // SAFETY: the caller's chain ends with a null.
        while let Some(wr) = unsafe { next.as_ref() } {
            queue.push_back((wr.wr_id, list(wr.sg_list, wr.num_sge)));
            next = wr.next;
        }
    }

    /// Delivers a chain of Sends, if the queue pair is connected. Those of one in error are flushed,
    /// or `swallows` them, as siw does: they never complete.
    pub fn send(&mut self, qp_num: u32, first: *mut ibv_send_wr, swallows: bool) {
        let mut next = first;
        // SAFETY: the caller's chain ends with a null.
        while let Some(wr) = unsafe { next.as_ref() } {
            next = wr.next;
            match self.pairs.get(&qp_num) {
                Some(WiredPair { is_in_error: true, .. }) if swallows => {}
                Some(WiredPair { is_in_error: true, peer: Some(_), .. }) => {
                    self.end(qp_num, wr, IBV_WC_WR_FLUSH_ERR, IBV_WC_SEND);
                }
                Some(WiredPair { peer: Some(peer), .. }) => {
                    let len: u32 = list(wr.sg_list, wr.num_sge).iter().map(|sge| sge.length).sum();
                    let is_reported = wr.send_flags & IBV_SEND_SIGNALED != 0;
                    let is_lent = swallows && len >= 4096 && !is_reported;
                    assert!(!is_lent, "siw reads the memory after a later request has completed");
                    self.deliver(qp_num, *peer, wr);
                }
                _ => {}
            }
        }
    }

    fn deliver(&mut self, qp_num: u32, peer: u32, wr: &ibv_send_wr) {
        let is_invalidating = wr.opcode == IBV_WR_SEND_WITH_INV;
        match wr.opcode {
            // As soft-RoCE does.
            IBV_WR_BIND_MW if wr.invalidate_rkey != 0 => panic!("a Bind has no immediate data"),
            IBV_WR_BIND_MW => return self.end(qp_num, wr, bind(wr), IBV_WC_BIND_MW),
            IBV_WR_LOCAL_INV => return self.end(qp_num, wr, IBV_WC_SUCCESS, IBV_WC_LOCAL_INV),
            opcode => assert!(is_invalidating || opcode == IBV_WR_SEND, "the fake device sends"),
        }
        let status = match self.pairs.get(&peer).map(|pair| (pair.cq, pair.srq)) {
            None => IBV_WC_RETRY_EXC_ERR,
            Some((cq, srq)) => match self.receives.entry(srq).or_default().pop_front() {
                None => IBV_WC_RNR_RETRY_EXC_ERR,
                Some((wr_id, to)) => {
                    let byte_len = copy(&list(wr.sg_list, wr.num_sge), &to);
                    self.complete(
                        cq,
                        ibv_wc {
                            wr_id,
                            opcode: IBV_WC_RECV,
                            byte_len,
                            qp_num: peer,
                            wc_flags: if is_invalidating { IBV_WC_WITH_INV } else { 0 },
                            invalidated_rkey: wr.invalidate_rkey,
                            ..ibv_wc::EMPTY
                        },
                    );
                    IBV_WC_SUCCESS
                }
            },
        };
        self.end(qp_num, wr, status, IBV_WC_SEND);
    }

    /// Completes a request of the sender.
    fn end(&mut self, qp_num: u32, wr: &ibv_send_wr, status: c_uint, opcode: c_uint) {
        if status != IBV_WC_SUCCESS || wr.send_flags & IBV_SEND_SIGNALED != 0 {
            let cq = self.pairs[&qp_num].cq;
            self.complete(cq, ibv_wc { wr_id: wr.wr_id, status, opcode, qp_num, ..ibv_wc::EMPTY });
        }
    }

    fn complete(&mut self, cq: *mut ibv_cq, wc: ibv_wc) {
        self.completions.entry(cq).or_default().push_back(wc);
    }
}

/// The status of a window binding: the key is the one behind the last, which the window has.
fn bind(wr: &ibv_send_wr) -> c_uint {
    let last = seen(wr.bind_mw.mw).rkey;
    let next = last & !0xff | last.wrapping_add(1) & 0xff;
    if wr.bind_mw.rkey == next { IBV_WC_SUCCESS } else { IBV_WC_MW_BIND_ERR }
}

/// The entries of a request.
fn list(first: *mut ibv_sge, count: i32) -> Vec<ibv_sge> {
    // SAFETY: the caller's request has so many entries.
    (0..count as usize).map(|at| unsafe { *first.wrapping_add(at) }).collect()
}

/// Copies what one list gathers to where the other scatters it. Returns how much.
fn copy(from: &[ibv_sge], to: &[ibv_sge]) -> u32 {
    let place = |addr: u64| ptr::with_exposed_provenance_mut::<u8>(addr as usize);
    let mut places = to.iter().flat_map(|it| it.addr..it.addr + u64::from(it.length));
    let mut len = 0;
    for addr in from.iter().flat_map(|it| it.addr..it.addr + u64::from(it.length)) {
        let to = places.next().expect("the Receive is long enough");
        // SAFETY: both are memory of posted requests, which their owners leave alone.
        unsafe { place(to).copy_from_nonoverlapping(place(addr), 1) };
        len += 1;
    }
    len
}
