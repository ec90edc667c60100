//! The queues of one shard: a completion queue, a shared receive queue, and their queue pairs.
//!
//! ```text
//!   post_send ──▶ slot of a lane's ring ──────────────▶ the peer's poll_cq: matches a Receive, copies
//!       └─ ring full ─▶ backlog of the queue pair ─▶ (poll_cq)
//!   poll_cq ◀── acks ◀── slots of the other ring, or the ack line
//! ```
//!
//! Everything that arrives is carried out by `poll_cq`, on the thread that owns the queues. Nothing
//! reachable from `poll_cq`, `post_send` and `post_srq_recv` locks or allocates, but for the first
//! call after a registration has changed, which takes a new copy of the key table, and for a key that
//! the copy does not have.
#![expect(unsafe_code, reason = "posting is unsafe in the trait that is implemented here")]

use std::sync::Arc;
use std::time::Duration;

use rpcrdma_mempool::{Access, RegisterError, Sge};

use super::core::{Core, Posted};
use super::dma::{Lent, PIECES_MAX};
use super::endpoint::Endpoint;
use super::keys::Reader;
use super::lane::{Lane, Outlook};
use super::port::{Port, Progress};
use super::post::{self, Limits, NotTaken};
use super::qp::{Fate, QpTable, QueuePair, State};
use super::ring::INLINE_LEN;
use super::{FabricHandle, MESSAGE_LEN_MAX};
use rpcrdma_provider::SetupError;
use rpcrdma_provider::{
    Attached, CqError, PostError, QueueEvent, Queues, RecvWr, SendFlags, SendWr, Taken, Waker,
    WcBatch, WcOpcode, Window, WindowId,
};

/// The queues of one shard on the software fabric.
pub struct FabricQueues {
    port: Arc<Port>,
    /// What says to others that a poll is using keys.
    reader: Arc<Reader>,
    core: Core,
    lanes: Vec<Lane>,
    /// The lane to be polled first.
    turn: usize,
    slots: u32,
    limits: Limits,
}

/// Names a queue pair of the software fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FabricQp(u32);

impl FabricQueues {
    pub(super) fn new(
        port: Arc<Port>,
        (core, reader): (Core, Arc<Reader>),
        (slots, limits): (u32, Limits),
    ) -> FabricQueues {
        FabricQueues { port, reader, core, lanes: Vec::new(), turn: 0, slots, limits }
    }

    /// How many messages found no Receive when they arrived, since the beginning.
    pub fn rnr_count(&self) -> u64 {
        self.core.rnr_count
    }
}

impl Queues for FabricQueues {
    type Qp = FabricQp;
    type Endpoint = Endpoint;
    type Handle = FabricHandle;

    fn handle(&self) -> FabricHandle {
        FabricHandle { port: Arc::clone(&self.port) }
    }

    fn attach(&mut self, mut endpoint: Endpoint) -> Result<Attached<FabricQp>, SetupError> {
        if !Arc::ptr_eq(endpoint.port(), &self.port) {
            return Err(SetupError::Invalid {
                what: "endpoint",
                value: "one made for other queues".to_owned(),
                allowed: "one made for these queues".to_owned(),
            });
        }
        let lane = self.lane_of(&endpoint)?;
        self.lanes[lane].add_qp(self.core.reads_max);
        let num = endpoint.num;
        self.core.qps.insert(QueuePair {
            num,
            lane: lane as u32,
            peer: endpoint.peer_num,
            peer_rnr_retry: endpoint.peer_rnr_retry,
            side: endpoint.side as u8,
            conn: Some(Arc::clone(&endpoint.conn)),
            ..QpTable::fresh()
        });
        let count = self.core.qps.iter().count();
        self.core.events.reserve(count);
        self.core.opening.push(num);
        endpoint.take_over();
        self.lanes[lane].peer.doze.poke();
        Ok(Attached { qp: FabricQp(num), qp_num: num })
    }

    fn poll_cq(&mut self, out: &mut WcBatch) -> Result<(), CqError> {
        let FabricQueues { reader, core, lanes, turn, .. } = self;
        if core.has_chores() {
            open(core, lanes);
            core.cq.drain(out);
        }
        if let [lane] = lanes.as_mut_slice() {
            lane.poll(core, reader, out, usize::MAX);
        } else {
            poll_in_turn((core, reader), lanes, turn, out);
        }
        if core.cq.is_overrun() { Err(CqError::Overrun) } else { Ok(()) }
    }

    unsafe fn post_srq_recv(&mut self, wr: &[RecvWr<'_>]) -> Taken {
        // SAFETY: the caller keeps the memory valid and untouched until the Receive has completed.
        self.core.srq.post(wr, |sge| unsafe { Lent::new(sge) })
    }

    unsafe fn post_send(&mut self, qp: FabricQp, wrs: &[SendWr<'_>]) -> Taken {
        if !self.core.opening.is_empty() {
            open(&mut self.core, &mut self.lanes);
        }
        let now = self.core.now_if_delayed();
        let Core { qps, keys, .. } = &mut self.core;
        let Some(qp) = qps.find(qp.0).filter(|qp| qp.state != State::Error) else {
            return self.post_to_failed(qp.0, wrs);
        };
        let (num, index) = (qp.num, qp.lane as usize);
        let lane = &mut self.lanes[index];
        let before = lane.tx.head();
        // SAFETY: the caller's promise is passed on.
        let taken = unsafe { post::post_plain((lane, qp, keys), self.limits, wrs, now) };
        let mut outcome = Taken::without_error(taken);
        if taken < wrs.len() {
            // SAFETY: the caller's promise is passed on.
            outcome = unsafe { self.post_rest((num, index), (wrs, taken), now) };
        }
        let lane = &self.lanes[index];
        if lane.tx.head() != before {
            lane.peer.doze.poke();
        }
        outcome
    }

    fn open_window(&mut self) -> Result<Window, SetupError> {
        self.core.rights.open_window().ok_or_else(super::no_window_left)
    }

    fn renew_window(&mut self, id: WindowId) -> Result<Option<Window>, SetupError> {
        self.core.rights.renew_window(id).map(Some).ok_or_else(super::no_such_window)
    }

    unsafe fn expose(&mut self, sge: &Sge, access: Access) -> Result<u32, RegisterError> {
        let Core { keys, rights, .. } = &mut self.core;
        keys.refresh();
        rights.expose(keys, sge, access).ok_or_else(|| RegisterError::Device {
            bytes: sge.length as usize,
            source: std::io::ErrorKind::PermissionDenied.into(),
        })
    }

    fn conceal(&mut self, rkey: u32) -> std::io::Result<()> {
        self.core.rights.conceal(rkey);
        Ok(())
    }

    fn disconnect(&mut self, FabricQp(num): FabricQp) {
        let now = self.core.now_if_delayed();
        let Some(qp) = self.core.qps.find(num).filter(|qp| qp.state != State::Error) else {
            return;
        };
        qp.is_told = true;
        let peer = qp.peer;
        qp.leave();
        let lane = &mut self.lanes[qp.lane as usize];
        // What the peer took before is a success.
        lane.read_ack_line();
        lane.retire(&mut self.core, None, now);
        lane.fail(&mut self.core, None, num);
        lane.say_goodbye(peer);
        lane.drain(&mut self.core, None, now);
        lane.peer.doze.poke();
    }

    fn destroy(&mut self, FabricQp(num): FabricQp) {
        self.disconnect(FabricQp(num));
        let Core { qps, cq, events, opening, rights, .. } = &mut self.core;
        let Some(qp) = qps.find(num) else { return };
        let lane = &mut self.lanes[qp.lane as usize];
        lane.forget(num);
        lane.qps -= 1;
        cq.forget(num);
        events.retain(|event| *event != QueueEvent::Disconnected { qp_num: num });
        opening.retain(|opening| *opening != num);
        qps.remove(num);
        rights.release(num);
        self.port.give_back(num);
    }

    #[inline]
    fn next_event(&mut self) -> Option<QueueEvent> {
        self.core.events.pop_front()
    }

    fn wait(&mut self, waker: &Waker, timeout: Duration) -> Result<(), CqError> {
        self.lanes.iter_mut().filter(|lane| !lane.is_dead).for_each(Lane::announce);
        let timeout = match self.outlook() {
            Outlook::Now => return Ok(()),
            Outlook::Soon => timeout.min(BLOCKED_NAP),
            Outlook::At(due_ns) => {
                let left_ns = due_ns.saturating_sub(self.core.clock.now_ns());
                timeout.min(Duration::from_nanos(left_ns)).min(self.core.clock.nap_max())
            }
            Outlook::Nothing => timeout,
        };
        let doze = &self.port.doze;
        let slept = doze.sleep(waker, timeout, || self.outlook() == Outlook::Now);
        slept.map_err(|error| CqError::Device(error.raw_os_error().unwrap_or(0)))
    }
}

impl FabricQueues {
    /// Posts what is left of a chain, beginning with a request that is no plain Send or cannot
    /// leave at once.
    ///
    /// # Safety
    /// That of `post_send`.
    #[cold]
    #[inline(never)]
    unsafe fn post_rest(
        &mut self,
        (num, lane): (u32, usize),
        (wrs, first): (&[SendWr<'_>], usize),
        now: u64,
    ) -> Taken {
        self.core.keys.refresh();
        let lane = &mut self.lanes[lane];
        for (taken, wr) in wrs.iter().enumerate().skip(first) {
            // SAFETY: the caller's promise is passed on.
            let posted = unsafe { post::post((&mut self.core, lane), self.limits, num, wr, now) };
            match posted {
                Ok(()) => {}
                Err(NotTaken::Full) => return Taken::with_error(taken, PostError::QueueFull),
                Err(NotTaken::Invalid) => return Taken::with_error(taken, PostError::Invalid),
            }
        }
        Taken::without_error(wrs.len())
    }

    /// A queue pair in the error state takes requests and flushes them: so a program learns that
    /// nothing that it posted before is on its way any more.
    #[cold]
    fn post_to_failed(&mut self, num: u32, wrs: &[SendWr<'_>]) -> Taken {
        if self.core.qps.find(num).is_none() {
            return Taken::with_error(0, PostError::QpGone);
        }
        for wr in wrs {
            let (wr_id, fate, opcode) = (wr.wr_id, Fate::Flushed, WcOpcode::Send);
            let flushed = Posted { wr_id, qp_num: num, covers: 0, fate, opcode };
            self.core.complete(&flushed, None);
        }
        Taken::without_error(wrs.len())
    }

    /// The lane to the peer of an endpoint; a new one for the first.
    fn lane_of(&mut self, endpoint: &Endpoint) -> Result<usize, SetupError> {
        let end = endpoint.link_end();
        if let Some(index) = self.lanes.iter().position(|lane| lane.link_end() == end) {
            return Ok(index);
        }
        let free = self.lanes.iter().position(|lane| lane.is_dead && lane.qps == 0);
        let index = free.unwrap_or(self.lanes.len());
        let place = (self.slots, index as u32, self.core.delay_ns != 0);
        let lane = endpoint.make_lane(place).ok_or(SetupError::Invalid {
            what: "endpoint",
            value: "one whose peer is gone".to_owned(),
            allowed: "one of a living connection".to_owned(),
        })?;
        match self.lanes.get_mut(index) {
            Some(place) => *place = lane,
            None => self.lanes.push(lane),
        }
        Ok(index)
    }

    /// What a poll can expect.
    fn outlook(&self) -> Outlook {
        let core = &self.core;
        if !core.cq.is_empty() || !core.events.is_empty() || self.can_open() {
            return Outlook::Now;
        }
        let outlooks = self.lanes.iter().map(|lane| lane.outlook(core));
        outlooks.fold(Outlook::Nothing, Outlook::sooner)
    }

    fn can_open(&self) -> bool {
        let is_decided = |qp: &QueuePair| qp.peer_progress() != Progress::Made;
        let mut opening = self.core.opening.iter();
        opening.any(|num| self.core.qps.peek(*num).is_some_and(is_decided))
    }
}

impl std::fmt::Debug for FabricQueues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FabricQueues").field("port", &self.port.id).finish_non_exhaustive()
    }
}

impl Drop for FabricQueues {
    fn drop(&mut self) {
        self.reader.end_for_good();
        self.core.qps.iter().for_each(QueuePair::leave);
        for lane in self.lanes.drain(..) {
            let peer = Arc::clone(&lane.peer);
            // Closes its rings.
            drop(lane);
            peer.doze.poke();
        }
    }
}

/// Polls several lanes, a few messages from each, beginning where the last poll stopped.
#[inline(never)]
fn poll_in_turn(
    (core, reader): (&mut Core, &Reader),
    lanes: &mut [Lane],
    turn: &mut usize,
    out: &mut WcBatch,
) {
    for _ in 0..lanes.len() {
        if out.is_full() {
            return;
        }
        if *turn >= lanes.len() {
            *turn = 0;
        }
        let lane = &mut lanes[*turn];
        *turn += 1;
        if !lane.is_dead {
            lane.poll(core, reader, out, TURN_MESSAGES);
        }
    }
}

/// Lets those queue pairs send whose peer is attached by now.
#[cold]
fn open(core: &mut Core, lanes: &mut [Lane]) {
    let mut opening = std::mem::take(&mut core.opening);
    opening.retain(|&num| {
        let Some(qp) = core.qps.find(num).filter(|qp| qp.state == State::Opening) else {
            return false;
        };
        let lane = &mut lanes[qp.lane as usize];
        match qp.peer_progress() {
            Progress::Made => return true,
            Progress::Attached => {
                qp.state = State::Ready;
                if !qp.backlog.is_empty() && !std::mem::replace(&mut qp.is_waiting, true) {
                    lane.enqueue(num);
                }
            }
            // Its goodbye may have come before we were there to hear it.
            Progress::Left if lane.has_more(qp) => return true,
            Progress::Left | Progress::Dropped => {
                lane.fail(core, None, num);
                core.tell(num);
            }
        }
        false
    });
    core.opening = opening;
}

/// The length of a message, if it is one that the device can send.
#[inline(always)]
pub(super) fn message_len(wr: &SendWr<'_>, sge_max: usize) -> Option<u32> {
    let len: u64 = match wr.sgl {
        [sge] => sge.length.into(),
        sgl => sgl.iter().map(|sge: &Sge| u64::from(sge.length)).sum(),
    };
    let limit = if wr.flags.contains(SendFlags::INLINE) {
        INLINE_LEN as u64
    } else {
        u64::from(MESSAGE_LEN_MAX)
    };
    (wr.sgl.len() <= sge_max.min(PIECES_MAX) && len <= limit).then_some(len as u32)
}

/// Messages taken from one lane before it is the next one's turn.
const TURN_MESSAGES: usize = 8;
/// How long to sleep when a message waits for a Receive: its sender may give up meanwhile.
const BLOCKED_NAP: Duration = Duration::from_millis(1);

/// Lets `slots` slots go by between two sets of queues that have one lane each.
#[cfg(all(test, not(loom)))]
pub(super) fn skip([a, b]: [&mut FabricQueues; 2], slots: u64) {
    super::lane::skip([a, b].map(|queues| &mut queues.lanes[0]), slots);
}

/// The position of the next slot that queues with one lane publish.
#[cfg(all(test, not(loom)))]
pub(super) fn next_slot(queues: &FabricQueues) -> u64 {
    queues.lanes[0].tx.head()
}
