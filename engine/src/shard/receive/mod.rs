//! The receiving part of a shard: Receives, groups, and messages that wait for an answer.
//!
//! ```text
//!   pool ─▶ refill ─▶ posted ─▶ interpreted ─▶ delivered ─▶ refill
//!                                 ├▶ parked, until its group is whole
//!                                 └▶ waiting, until a send slot is free to answer it
//! ```

mod deliver;
pub(crate) mod disposition;
mod groups;
mod interpret;
mod one_chunk;
pub(crate) mod prepare;
pub(crate) mod transmission;
pub(crate) mod waiting;

use rpcrdma_mempool::{RecvPool, RecvToken};
use rpcrdma_proto::Part;

use self::disposition::RecvInfo;
use self::waiting::{Waiting, WaitingRoom};
use crate::message::incoming::Incoming;
use crate::message::map::Map;
use crate::message::rdma_target::RdmaTarget;
use crate::message::reading::Reading;
use crate::message::saved_offer::SavedOffer;
use crate::provider::{PostError, Queues};
use crate::state::io::{Io, Refill};
use crate::state::peers::Peer;
use crate::state::timers::Timers;
use crate::stats::SharedStats;

/// The receive buffers of a shard, and the messages in them.
pub(crate) struct Receive {
    pool: RecvPool,
    /// Buffers on their way back to the device.
    refill: Refill,
    /// Turns since the last work, while Receives are to be posted.
    idle: u32,
    /// Buffers of open groups, by their number.
    parked: Box<[Option<RecvToken>]>,
    /// Messages that arrived while no send slot was free to answer them.
    waiting: WaitingRoom,
    /// The locations of the parts of the current message.
    map: Map,
    /// The current call's offer for its reply.
    saved_offer: SavedOffer,
    stats: SharedStats,
}

impl Receive {
    /// For this number of buffers. The map limits the pieces and items of a message.
    pub fn new(pool: RecvPool, receives: usize, map: Map, stats: SharedStats) -> Receive {
        Receive {
            pool,
            refill: Refill::new(),
            idle: 0,
            parked: (0..receives).map(|_| None).collect(),
            waiting: WaitingRoom::new(receives),
            map,
            saved_offer: SavedOffer::none(),
            stats,
        }
    }

    /// The buffers.
    #[inline]
    pub fn pool(&self) -> &RecvPool {
        &self.pool
    }

    /// The buffers, mutable, to return segments to.
    #[inline]
    pub fn pool_mut(&mut self) -> &mut RecvPool {
        &mut self.pool
    }

    /// The state for reading a message.
    #[inline]
    pub fn reading(&mut self) -> Reading<'_> {
        let Receive { pool, map, saved_offer, .. } = self;
        Reading { pool, map, saved_offer }
    }

    /// The message in these buffers and in RDMA targets; the map locates its parts.
    #[inline]
    pub fn incoming<'a>(
        &'a mut self,
        buffers: &'a mut [RecvToken],
        rdma_target: RdmaTarget<'a>,
    ) -> Incoming<'a> {
        let Receive { pool, map, stats, .. } = self;
        Incoming::mapped(pool, buffers, rdma_target, map, stats)
    }

    /// Posts Receives in chains, or when there is no other work: the budget has a reserve.
    #[inline]
    pub fn refill_if_due<Q: Queues>(&mut self, io: &mut Io<Q>, timers: &Timers, busy: bool) {
        if self.is_topped_up() {
            return;
        }
        self.idle = if busy { 0 } else { self.idle + 1 };
        if self.refill.len() >= REFILL_CHAIN || self.idle >= IDLE_TURNS {
            self.idle = 0;
            self.post_receives(io, timers);
        }
    }

    /// Whether every free buffer is posted.
    #[inline]
    pub fn is_topped_up(&self) -> bool {
        self.refill.len() | self.pool.free() == 0
    }

    /// Posts Receives until every free buffer is posted, or the device refuses.
    pub fn top_up<Q: Queues>(&mut self, io: &mut Io<Q>, timers: &Timers) {
        if !self.is_topped_up() {
            self.post_receives(io, timers);
        }
    }

    #[inline(never)]
    fn post_receives<Q: Queues>(&mut self, io: &mut Io<Q>, timers: &Timers) {
        while !self.is_topped_up() {
            while !self.refill.is_full()
                && let Some(token) = self.pool.take()
            {
                self.refill.push(token);
            }
            match io.post_recv(&mut self.pool, &mut self.refill) {
                None => {}
                // Nothing is lost: the buffers stay in `refill` and are posted with the next chain.
                Some(PostError::QueueFull) => return,
                // Without Receives no message arrives, and no event would report it.
                Some(_) => {
                    if !timers.is_stopping() {
                        io.on_lost();
                    }
                    return;
                }
            }
        }
    }

    /// Whether the device has refused Receives.
    pub fn is_refused(&self) -> bool {
        !self.refill.is_empty()
    }

    /// Keeps a buffer until its group is complete, and sets the group's time limit.
    #[cold]
    fn park(&mut self, peer: Option<&mut Peer>, token: RecvToken, until: u64) {
        if let Some(peer) = peer {
            peer.group_until.get_or_insert(until);
        }
        let at = token.index() as usize;
        self.parked[at] = Some(token);
    }

    /// Returns the buffers of an open group to their pool.
    pub fn free_group(&mut self, peer: &mut Peer) {
        peer.group_until = None;
        self.unpark(peer.conn.parked());
    }

    /// Returns the buffers of a group to their pool.
    fn unpark(&mut self, parts: &[Part]) {
        for part in parts {
            if let Some(token) = self.parked[part.buffer as usize].take() {
                self.pool.put(token);
            }
        }
    }

    /// Messages that wait for a send slot.
    #[inline]
    pub fn waiting(&self) -> &WaitingRoom {
        &self.waiting
    }

    /// Keeps a message until a send slot is free to answer it, behind the others of its peer.
    #[cold]
    pub fn wait(&mut self, peer: &mut Peer, token: RecvToken, recv: RecvInfo) {
        let qp_num = peer.qp_num;
        self.waiting.push(peer, Waiting { token, recv, qp_num });
    }

    /// As [`Receive::wait`], in front of the others.
    #[cold]
    pub fn wait_first(&mut self, peer: &mut Peer, token: RecvToken, recv: RecvInfo) {
        let qp_num = peer.qp_num;
        self.waiting.push_first(peer, Waiting { token, recv, qp_num });
    }

    /// Drops the messages of an ended connection: its number may be used again.
    #[cold]
    pub fn drop_waiting(&mut self, qp_num: u32) {
        for _each_once in 0..self.waiting.len() {
            let Some(it) = self.waiting.pop() else { return };
            if it.qp_num == qp_num {
                self.stats.completions_late.add(1);
                self.free_buffer(it.token);
            } else {
                self.waiting.put_back(it);
            }
        }
    }

    /// Buffers on their way back to the device.
    pub fn refilling(&self) -> usize {
        self.refill.len()
    }

    /// Buffers of incomplete groups.
    pub fn parked(&self) -> usize {
        self.parked.iter().flatten().count()
    }

    /// Returns every buffer here and in `others` to the pool, when the shard ends.
    pub fn free_all(&mut self, others: impl Iterator<Item = RecvToken>) {
        let Receive { pool, refill, parked, waiting, .. } = self;
        let parked = parked.iter_mut().filter_map(Option::take);
        for token in parked.chain(waiting.drain()).chain(refill.drain(..)).chain(others) {
            pool.put(token);
        }
    }
}

/// Turns without work after which remaining Receives are posted.
const IDLE_TURNS: u32 = 64;
/// Receives that are posted at a time while there is other work.
const REFILL_CHAIN: usize = 16;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crossbeam_utils::CachePadded;
    use rpcrdma_config::Config;
    use rpcrdma_proto::report::{Report, ReportKind};

    use super::*;
    use crate::Engine;
    use crate::budget::Budget;
    use crate::fabric::Fabric;
    use crate::provider::Provider;
    use crate::shard::Core;
    use crate::shard::memory::Memory;
    use crate::state::send::outbox::UNSOLICITED_MAX;
    use crate::stats::Stats;

    #[test]
    fn a_message_that_waits_first_is_answered_before_all_that_wait() {
        let (fabric, config) = (Fabric::new(), Config::default());
        let budget = Budget::new(&config, fabric.caps()).expect("it fits");
        let memory = Memory::new(&config, &budget, fabric.registrar(), None).expect("memory");
        let stats = Arc::new(CachePadded::new(Stats::default()));
        let mut receive = Receive::new(memory.recv, 3, Map::new(1, 1), stats);
        let mut peer = Peer::up();
        for (byte_len, is_first) in [(1, false), (2, false), (0, true)] {
            let token = receive.pool.take().expect("a buffer");
            let recv = RecvInfo { byte_len, invalidated: None };
            match is_first {
                true => receive.wait_first(&mut peer, token, recv),
                false => receive.wait(&mut peer, token, recv),
            }
        }
        assert_eq!((peer.waiting, receive.waiting().len()), (3, 3));
        let waiting: Vec<_> = core::iter::from_fn(|| receive.waiting.pop()).collect();
        assert!(waiting.iter().map(|it| it.recv.byte_len).eq(0..3), "{waiting:?}");
        waiting.into_iter().for_each(|it| receive.free_buffer(it.token));
    }

    #[test]
    fn an_aborted_group_is_not_reported_to_a_peer_that_takes_no_reports() {
        let made = Engine::without_threads(Fabric::new(), Config::default());
        let (engine, _control) = made.expect("an engine");
        let mut client = engine.client().expect("a shard");
        let Core { receive, parts, .. } = &mut client.shard().core;
        let mut peer = Peer::up();
        let report = Report { xid: 7, kind: ReportKind::BadHeader };
        let room = peer.conn.inflow().granted() + UNSOLICITED_MAX;
        for count in 0..room + 2 {
            peer.group_until = Some(1);
            let is_reported = receive.abort(&mut peer, parts, &report);
            assert_eq!((is_reported, peer.group_until), (count < room, None), "{count} of {room}");
        }
        assert_eq!(parts.stats.snapshot().violations_unreported, 2);
    }
}
