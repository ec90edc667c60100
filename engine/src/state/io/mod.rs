//! The ledger of the buffers that the device owns, and the only caller of the posting functions.
//!
//! ```text
//!   RecvToken ───post_recv──▶ (a number, owned by the device) ──take_recv──▶ RecvToken
//!   message in a lane ──flush──▶ lane.flight ──on_sent──▶ released to its pools
//! ```
//! A posted receive buffer has no Rust value until its completion. A posted message is in its lane:
//! in `pending` while only a part of it is posted, then in `flight`, where its bytes are not
//! accessed, until the completion of its last sequence number or a later one. An inline send has
//! been copied when posting returns. So this module meets the safety conditions of posting.
#![expect(unsafe_code, reason = "posting hands memory to the device")]

mod chain;
mod events;
mod inline_send;
mod receives;

use core::cell::Cell;

use arrayvec::ArrayVec;
use rpcrdma_mempool::{Access, Quiet, RecvPool, RecvToken, RegisterError, Sge};

use self::chain::{Chain, Rule, SEND};
use self::events::QueueEvents;
use self::receives::Receives;
use super::lane::Lane;
use super::parts::Parts;
use super::rdma::windows::Exposer;
use super::send::outbox::Outbox;
use crate::error::{CloseReason, SetupError};
use crate::provider::{
    CqError, PostError, QueueEvent, Queues, RecvWr, Remote, SendFlags, SendOp, SendWr, WC_BATCH,
    WcBatch, Window, WindowId, WrId,
};

/// Work requests of one doorbell.
const CHAIN: usize = 16;
/// Why there are queues.
const OPEN: &str = "queues are there until the shard is torn down";
/// Work requests of a lane that may hold memory without a signal.
const HOLD_MAX: u32 = 16;

/// Receive buffers on their way back to the device.
pub(crate) type Refill = ArrayVec<RecvToken, REFILL_MAX>;

/// Receive buffers that may be on their way back at one time.
pub(crate) const REFILL_MAX: usize = 2 * WC_BATCH;

/// The subject of a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// A Receive.
    Recv,
    /// Sends up to and including the one with this identifier.
    Sent(u64),
}

/// The result of flushing a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flush {
    /// Nothing is pending.
    Empty,
    /// The send queue is full: continue when a send has completed.
    Full,
    /// The device took fewer than it has room for: continue next turn.
    Refused,
    /// The queue pair sends no more.
    Gone,
    /// A work request exceeds a limit of the device: an error of this side.
    Invalid,
}

impl Flush {
    #[cold]
    fn after(why: PostError) -> Flush {
        match why {
            PostError::QueueFull => Flush::Refused,
            PostError::QpGone => Flush::Gone,
            // Also what a later provider states: it ends the connection.
            _ => Flush::Invalid,
        }
    }
}

/// The queues of a shard, with the buffers that they own.
pub(crate) struct Io<Q: Queues> {
    /// `Some` until the shard is dropped.
    queues: Option<Q>,
    qps: Box<[Option<Q::Qp>]>,
    /// The token number of each receive buffer that the device owns.
    posted: Receives,
    depths: Depths,
    events: QueueEvents,
}

/// The parameters of the queues.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Depths {
    /// Work requests of one queue pair's send queue.
    pub send_depth: u32,
    /// Sends of which one is signaled.
    pub signal_every: u32,
    /// The maximum of bytes copied while posting.
    pub inline_len: u32,
    /// With fewer send slots free than this, every send that holds one is signaled.
    pub low_water: usize,
}

impl<Q: Queues> Io<Q> {
    pub fn new(queues: Q, peers_max: usize, buffers: usize, depths: Depths) -> Io<Q> {
        let qps = (0..peers_max).map(|_| None).collect();
        Io {
            queues: Some(queues),
            qps,
            posted: Receives::new(buffers),
            depths,
            events: QueueEvents::default(),
        }
    }

    /// The queues, for operations other than posting.
    #[inline]
    pub fn queues(&mut self) -> &mut Q {
        self.queues.as_mut().expect(OPEN)
    }

    /// The next event of the queues. Costs two branches when there is none.
    #[inline]
    pub fn next_event(&mut self) -> Option<QueueEvent> {
        let Io { queues, events, .. } = self;
        queues.as_mut().and_then(|queues| events.next(queues))
    }

    /// Why a queue pair is in the error state, if its queues have reported it.
    #[cold]
    pub fn why_failed(&mut self, qp_num: u32) -> Option<CloseReason> {
        let Io { queues, events, .. } = self;
        queues.as_mut().and_then(|queues| events.reason(queues, qp_num))
    }

    /// Drops events of a queue pair that is gone: its number may be used again.
    pub fn forget_events(&mut self, qp_num: u32) {
        self.events.forget(qp_num);
    }

    /// Records that the queues have failed: the next event reports it.
    #[cold]
    pub fn on_lost(&mut self) {
        self.events.on_lost();
    }

    /// Remembers the queue pair of a peer.
    pub fn bind(&mut self, peer: u32, qp: Q::Qp) {
        self.qps[peer as usize] = Some(qp);
    }

    /// Forgets the queue pair of a peer, here and in the device, which reports no more about it.
    pub fn unbind(&mut self, peer: u32) {
        if let Some(qp) = self.qps[peer as usize].take() {
            self.queues().destroy(qp);
        }
    }

    /// Moves the queue pair of a peer to the error state; the peer is notified.
    pub fn disconnect(&mut self, peer: u32) -> Option<Q::Qp> {
        self.qps[peer as usize].inspect(|&qp| self.queues().disconnect(qp))
    }

    /// Makes every send signaled from now on: a stopping shard must know which messages arrived.
    pub fn signal_all(&mut self) {
        self.depths.signal_every = 1;
    }

    /// Makes the next work request of a lane signaled.
    pub fn signal_next(&self, lane: &mut Lane) {
        lane.signal_next(self.depths.signal_every);
    }

    /// Polls the completion queue.
    #[inline]
    pub fn poll(&mut self, out: &mut WcBatch) -> Result<(), CqError> {
        self.queues().poll_cq(out)
    }

    /// The subject of a completion with this number.
    #[inline]
    pub fn work(id: WrId) -> Work {
        if id.0 & SEND != 0 { Work::Sent(id.0 & !SEND) } else { Work::Recv }
    }

    /// The receive buffer of a completion. `None` if the device does not own it: it completed the
    /// Receive twice, or had refused it.
    #[inline]
    pub fn take_recv(&mut self, id: WrId) -> Option<RecvToken> {
        let raw = self.posted.take(id)?;
        // SAFETY: `post_recv` stored the number, which it got from `into_raw`, and it is removed
        // here once. The completion is of the Receive that the device took the buffer with, so the
        // device no longer accesses it.
        Some(unsafe { RecvToken::from_raw(raw) })
    }

    /// Posts receive buffers in one chain. Buffers that the device does not take stay in `refill`.
    /// Returns the error; `None` only if the device took all of them.
    pub fn post_recv(&mut self, pool: &mut RecvPool, refill: &mut Refill) -> Option<PostError> {
        if refill.is_empty() {
            return None;
        }
        let Io { queues, posted, .. } = self;
        let queues = queues.as_mut().expect(OPEN);
        while let Some((buffer, sgl)) = pool.next_changed() {
            // SAFETY: a list changes only while its buffer's token exists, so that the device does
            // not own the buffer. It is posted only below, when no changed list is left.
            unsafe { queues.describe_recv(buffer, sgl) };
        }
        let (names, numbers) = (posted.names(), &*pool);
        let wrs = refill.iter().map(move |token| {
            let buffer = numbers.number(token);
            RecvWr { wr_id: names.of(buffer), buffer }
        });
        // SAFETY: the described memory is that of the segments of buffers whose tokens are in
        // `refill`. The tokens of those that are taken are consumed below, before any other code
        // runs, and come back only from `take_recv`, when the completion was polled.
        let (taken, why) = unsafe { queues.post_srq_recv(wrs) }.of(refill.len());
        posted.on_taken(refill.drain(..taken).map(|token| (token.index(), token.into_raw())));
        if !refill.is_empty() {
            self.posted.on_refused();
        }
        why
    }

    /// Posts pending work requests of a lane, as far as the queue has room.
    #[inline]
    pub fn flush(&mut self, parts: &mut Parts, lane: &mut Lane, peer: u32) -> Flush {
        let Some(qp) = self.qps[peer as usize] else { return Flush::Gone };
        loop {
            if lane.pending.front().is_none() {
                lane.forget_unsolicited();
                return lane.trouble.map_or(Flush::Empty, Flush::after);
            }
            let room = self.depths.send_depth.saturating_sub(lane.outstanding());
            if room == 0 {
                return Flush::Full;
            }
            match self.post_chain(parts, lane, qp, (room as usize).min(CHAIN)) {
                None => {}
                Some(why) => return Flush::after(why),
            }
        }
    }

    /// Posts the first work requests of a lane with one doorbell. Returns the error.
    fn post_chain(
        &mut self,
        parts: &mut Parts,
        lane: &mut Lane,
        qp: Q::Qp,
        room: usize,
    ) -> Option<PostError> {
        let rule = self.rule(&parts.outbox);
        let signaled = Cell::default();
        let chain = Chain::new(&parts.outbox, lane, rule, &signaled, room);
        let count = chain.len();
        // SAFETY: the gather lists of Sends and Writes name slots, loans and registered bytes that
        // their message owns. The scatter lists of Reads name loans of the Fetch that is in its
        // head; they are neither read nor returned before the message is released. Memory that a
        // Bind opens is owned by the Exposure of its call, or by the message and then kept by the
        // Exposure, until the right has ended. The message stays in `pending` or goes to `flight`
        // below, in which state none of that is accessed, until `on_sent` learns that its last
        // sequence number has completed; a message that never completes is leaked. A request with
        // the inline flag was copied on return.
        let (taken, why) = unsafe { self.queues().post_send(qp, chain) }.of(count);
        parts.stats.doorbells.add(1);
        let (mut sends, mut left, mut seq) = (0, taken as u32, lane.last_seq());
        lane.on_run_posted(left, signaled.get().unsignaled_behind(left, lane.unsignaled()));
        while left > 0
            && let Some(message) = lane.pending.front()
        {
            let messages = parts.outbox.messages_mut();
            let posted = messages.on_posted(message, left);
            left -= posted.requests;
            seq = seq.wrapping_add(posted.requests);
            sends += posted.sends;
            if !posted.is_whole {
                break;
            }
            let is_inline = messages.is_inline(message, rule.inline_len);
            messages.head_mut(message).seq = seq;
            lane.pop(messages);
            if is_inline {
                parts.stats.transmissions_sent_inline.add(1);
                parts.release(message);
            } else {
                lane.hold(parts.outbox.messages_mut(), message);
            }
        }
        parts.stats.transmissions_sent.add(sends);
        if taken < count {
            lane.on_refused();
        }
        why
    }

    /// How work requests are posted now.
    #[inline]
    fn rule(&self, outbox: &Outbox) -> Rule {
        // A shard that is short of slots learns of the end of every send that holds one.
        let is_low = outbox.slots_free() < self.depths.low_water;
        Rule {
            signal_every: self.depths.signal_every,
            inline_len: self.depths.inline_len,
            hold_max: if is_low { 0 } else { HOLD_MAX },
        }
    }

    /// Records that all sends of a lane up to this identifier have completed, successfully or not.
    /// False if no such send is outstanding.
    #[inline]
    pub fn on_sent(&mut self, parts: &mut Parts, lane: &mut Lane, name: u64) -> bool {
        if !lane.on_completed(name) {
            return false;
        }
        while let Some(message) = lane.flight.front() {
            if !lane.is_done(parts.outbox.messages().head(message).seq) {
                break;
            }
            lane.pop_flight(parts.outbox.messages());
            parts.release(message);
        }
        true
    }

    /// Moves a queue pair to the error state and posts a marker behind all other sends, whose
    /// completion proves that the device holds no memory of this lane any more. False if there is
    /// no room for it yet.
    pub fn drain(&mut self, lane: &mut Lane, peer: u32) -> bool {
        let Some(qp) = self.disconnect(peer) else { return false };
        if lane.outstanding() >= self.depths.send_depth {
            return false;
        }
        self.post_marker(lane, qp, SendOp::Send)
    }

    /// Posts a marker behind all other requests of a live queue pair, whose completion proves that
    /// the peer has accepted them: a Write of no bytes, whose key is not checked and which the peer
    /// does not notice. If there is no room now, a later call posts it.
    #[cold]
    pub fn mark(&mut self, lane: &mut Lane, peer: u32) {
        if let Some(qp) = self.qps[peer as usize]
            && lane.outstanding() < self.depths.send_depth
        {
            self.post_marker(lane, qp, SendOp::Write(Remote { addr: 0, rkey: 0 }));
        }
    }

    /// Posts a signaled request without bytes. False if it was not taken.
    fn post_marker(&mut self, lane: &mut Lane, qp: Q::Qp, op: SendOp) -> bool {
        let wr_id = WrId(SEND | lane.name(0));
        let marker = SendWr { wr_id, op, sgl: &[], flags: SendFlags::SIGNALED };
        // SAFETY: the marker names no memory.
        let (taken, _) = unsafe { self.queues().post_send(qp, [marker].into_iter()) }.of(1);
        // Any other error of a device that took it has no effect: the marker completes, or the
        // deadline of the connection's end passes. A second one would wait for the same.
        match taken {
            1 => _ = lane.on_posted(true),
            _ => lane.on_refused(),
        }
        taken == 1
    }

    /// Destroys the queues and returns every buffer, when the shard is dropped: those that the
    /// device owned, and those whose holder was lost, as by a panic. All receive buffers that the
    /// shard holds elsewhere must be in the pool already.
    pub fn destroy(&mut self, pool: &mut RecvPool, outbox: &mut Outbox) {
        drop(self.queues.take());
        self.posted.clear();
        outbox.drop_messages();
        // SAFETY: tokens of these pools are in the parts of their shard, or held by its methods.
        // The shard is being dropped, so none of its methods is running. The caller has emptied the
        // parts that hold receive buffers; `posted`, which held the numbers of others, is empty,
        // and so is the outbox, which has all slots. The queues that buffers and slots were posted
        // to are destroyed, after which no device accesses them.
        let quiet = || unsafe { Quiet::assume() };
        pool.recall(quiet());
        outbox.recall(quiet);
    }

    /// Receive buffers owned by the device.
    pub fn posted_receives(&self) -> usize {
        self.posted.count()
    }
}

impl<Q: Queues> Exposer for Io<Q> {
    unsafe fn expose(&mut self, sge: &Sge, access: Access) -> Result<u32, RegisterError> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.queues().expose(sge, access) }
    }

    fn conceal(&mut self, rkey: u32) -> bool {
        self.queues().conceal(rkey).is_ok()
    }

    fn renew(&mut self, id: WindowId) -> Result<Option<Window>, SetupError> {
        self.queues().renew_window(id)
    }
}
