//! Inline sends: short messages that are copied while they are posted.
#![expect(unsafe_code, reason = "posting hands memory to the device")]

use arrayvec::ArrayVec;
use rpcrdma_mempool::Sge;

use crate::io::{CHAIN, Io, SEND};
use crate::provider::{PostError, Queues, SendFlags, SendWr, Taken, WrId};
use crate::shard::parts::Parts;
use crate::shard::peers::Peers;
use crate::shard::send::lane::Lane;
use crate::shard::send::messages::InlineSend;
use crate::shard::send::outbox::Outbox;
use crate::stats::SharedStats;

impl<Q: Queues> Io<Q> {
    /// Posts the short messages that precede the lanes, one chain for each run of messages to the
    /// same peer. Their slots are free on return. Messages that a queue pair does not take wait in
    /// its lane.
    #[inline]
    pub fn flush_inline(&mut self, parts: &mut Parts, peers: &mut Peers) {
        let Parts { outbox, stats, .. } = parts;
        if outbox.inline_sends().len() > 1 {
            return self.flush_many(outbox, stats, peers);
        }
        let Some(message) = outbox.pop_inline() else { return };
        let to = message.peer;
        if let Some(peer) = peers.at(to)
            && let Some(qp) = self.qps[to as usize]
            && peer.lane.outstanding() < self.depths.send_depth
        {
            let is_signaled = self.is_due(peer.lane.unsignaled() + 1);
            let signaled = if is_signaled { SendFlags::SIGNALED } else { SendFlags::empty() };
            let wr_id = WrId(SEND | peer.lane.name(0));
            let sge = message.sge();
            let flags = SendFlags::INLINE | signaled;
            let wr = SendWr::send(wr_id, core::slice::from_ref(&sge), flags);
            // SAFETY: the gather entry names a slot that `message` owns, and the request is inline,
            // so that it has been read on return.
            let (taken, why) = unsafe { self.queues().post_send(qp, &[wr]) }.of(1);
            if taken == 1 {
                peer.lane.on_posted(is_signaled);
                stats.doorbells.add(1);
                stats.sent.add(1);
                stats.sent_inline.add(1);
                outbox.put_slot(message.slot);
                if let Some(why) = why {
                    outbox.note_trouble(&mut peer.lane, to, why);
                }
                return;
            }
            // A retry from the lane reports the reason.
            peer.lane.on_refused();
        }
        outbox.put_inline(message);
        outbox.requeue_inline(peers, 0);
    }

    /// Posts several short messages.
    fn flush_many(&mut self, outbox: &mut Outbox, stats: &SharedStats, peers: &mut Peers) {
        let mut taken = 0_u64;
        let mut start = 0;
        let mut trouble = None;
        while let Some(first) = outbox.inline_sends().get(start) {
            let to = first.peer;
            let rest = &outbox.inline_sends()[start..];
            let run = rest.iter().take(CHAIN).take_while(|it| it.peer == to).count();
            if let Some(peer) = peers.at(to) {
                let posted = self.post_inline(&rest[..run], &mut peer.lane, stats);
                let (posted, why) = posted.of(run);
                taken |= ((1 << posted) - 1) << start;
                if let Some(why) = why {
                    trouble = Some((to, why));
                    // Later messages must not overtake: all go through the lanes.
                    break;
                }
            }
            start += run;
        }
        if trouble.is_some() || taken.count_ones() as usize != outbox.inline_sends().len() {
            outbox.requeue_inline(peers, taken);
            if let Some((to, why)) = trouble
                && let Some(peer) = peers.at(to)
            {
                outbox.note_trouble(&mut peer.lane, to, why);
            }
            return;
        }
        while let Some(InlineSend { slot, .. }) = outbox.pop_inline() {
            outbox.put_slot(slot);
        }
    }

    /// Posts short messages to one peer.
    #[inline]
    fn post_inline(&mut self, run: &[InlineSend], lane: &mut Lane, stats: &SharedStats) -> Taken {
        let room = self.depths.send_depth.saturating_sub(lane.outstanding()) as usize;
        let qp = run.first().and_then(|first| self.qps[first.peer as usize]);
        let Some(qp) = qp.filter(|_| room >= run.len()) else {
            return Taken::with_error(0, PostError::QueueFull);
        };
        let mut unsignaled = lane.unsignaled();
        let mut sges = [Sge::default(); CHAIN];
        let mut flags = [SendFlags::INLINE; CHAIN];
        for ((it, sge), flags) in run.iter().zip(&mut sges).zip(&mut flags) {
            *sge = it.sge();
            unsignaled += 1;
            if self.is_due(unsignaled) {
                *flags |= SendFlags::SIGNALED;
                unsignaled = 0;
            }
        }
        let wr = |at: usize| {
            let wr_id = WrId(SEND | lane.name(at));
            SendWr::send(wr_id, core::slice::from_ref(&sges[at]), flags[at])
        };
        let mut chain = ArrayVec::<SendWr<'_>, CHAIN>::new();
        chain.extend((0..run.len()).map(wr));
        // SAFETY: the gather entries name slots that `run` owns, and every request is inline, so
        // that they have been read on return.
        let posted = unsafe { self.queues().post_send(qp, &chain) };
        let (taken, _) = posted.of(run.len());
        if taken == run.len() {
            lane.on_run_posted(taken as u32, unsignaled);
        } else {
            for flags in &flags[..taken] {
                lane.on_posted(flags.contains(SendFlags::SIGNALED));
            }
            lane.on_refused();
        }
        stats.doorbells.add(1);
        stats.sent.add(taken as u64);
        stats.sent_inline.add(taken as u64);
        posted
    }
}
