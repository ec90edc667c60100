//! Inline sends: short messages that are copied while they are posted, and those with an item
//! between them.
#![expect(unsafe_code, reason = "posting hands memory to the device")]

use core::cell::Cell;
use core::ops::Range;

use super::chain::{SEND, Signaled};
use super::{CHAIN, Io, OPEN};
use crate::provider::{PostError, Queues, SendFlags, SendOp, SendWr, Taken, WrId};
use crate::state::lane::Lane;
use crate::state::parts::Parts;
use crate::state::peers::Peers;
use crate::state::send::batch::{InlineSend, With};
use crate::state::send::outbox::Outbox;

impl<Q: Queues> Io<Q> {
    /// Posts the messages that precede the lanes, one chain for each run of messages to the same
    /// peer. The slots of short ones are free on return; those with an item are in flight. Without
    /// `OTHERS` all are plain. Messages that a queue pair does not take wait in its lane.
    #[inline(always)]
    pub fn flush_inline<const OTHERS: bool>(&mut self, parts: &mut Parts, peers: &mut Peers) {
        let Parts { outbox, stats, .. } = parts;
        let (mut done, mut doorbells, mut sent, mut items) = (0, 0, 0, 0);
        let mut trouble = None;
        while let Some(rest @ [first, ..]) = outbox.inline_sends().get(done..) {
            let to = first.peer;
            let mut run = 1;
            while run < CHAIN && rest.get(run).is_some_and(|next| next.peer == to) {
                run += 1;
            }
            if let Some(peer) = peers.at(to) {
                let posted = match OTHERS {
                    false => self.post_inline(&rest[..run], to, &mut peer.lane),
                    true => self.post_others(outbox, (done, run), to, &mut peer.lane, &mut items),
                };
                doorbells += u64::from(posted.is_some());
                let full = Taken::with_error(0, PostError::QueueFull);
                let (taken, why) = posted.unwrap_or(full).of(run);
                sent += taken as u64;
                if let Some(why) = why {
                    trouble = Some((to, why, taken));
                    break;
                }
            } else {
                debug_assert!(false, "the end of a connection takes its messages along");
            }
            done += run;
        }
        stats.doorbells.add(doorbells);
        stats.transmissions_sent.add(sent);
        stats.transmissions_sent_inline.add(sent - items);
        match trouble {
            None if OTHERS => outbox.end_posted(),
            None => outbox.free_inline(),
            Some((to, why, taken)) => on_trouble(outbox, peers, to, why, done..done + taken),
        }
    }

    /// Posts short messages to one peer. `None` if its queue has no room for them.
    #[inline]
    fn post_inline(&mut self, run: &[InlineSend], to: u32, lane: &mut Lane) -> Option<Taken> {
        let room = self.depths.send_depth.saturating_sub(lane.outstanding()) as usize;
        let qp = self.qps[to as usize].filter(|_| room >= run.len())?;
        let every = self.depths.signal_every;
        let (mut names, before) = (lane.names(), lane.unsignaled());
        let mut unsignaled = before;
        let wrs = run.iter().map(move |it| {
            unsignaled += 1;
            let mut flags = SendFlags::INLINE;
            if unsignaled >= every {
                flags |= SendFlags::SIGNALED;
                unsignaled = 0;
            }
            SendWr::send(WrId(SEND | names.take()), core::slice::from_ref(&it.sge), flags)
        });
        // SAFETY: the gather entries name slots that `run` owns, and every request is inline, so
        // that they have been read on return.
        let posted = unsafe { self.queues.as_mut().expect(OPEN).post_send(qp, wrs) };
        let (taken, _) = posted.of(run.len());
        lane.on_run_posted(taken as u32, unsignaled_behind(before, taken as u32, every));
        if taken < run.len() {
            lane.on_refused();
        }
        Some(posted)
    }

    /// As [`Io::post_inline`], for `count` messages from `first` on, which need not be plain. Those
    /// with an item are in flight, and counted in `items`.
    #[inline]
    fn post_others(
        &mut self,
        outbox: &mut Outbox,
        (first, count): (usize, usize),
        to: u32,
        lane: &mut Lane,
        items: &mut u64,
    ) -> Option<Taken> {
        let room = self.depths.send_depth.saturating_sub(lane.outstanding()) as usize;
        let qp = self.qps[to as usize].filter(|_| room >= count)?;
        let rule = self.rule(outbox);
        let (mut names, mut unsignaled) = (lane.names(), lane.unsignaled());
        let (noted, sender) = (Cell::<Signaled>::default(), &*outbox);
        let (signaled, run) = (&noted, &outbox.inline_sends()[first..first + count]);
        let wrs = run.iter().enumerate().map(move |(at, it)| {
            let (mut sgl, mut flags) = (core::slice::from_ref(&it.sge), SendFlags::INLINE);
            let mut op = SendOp::Send;
            unsignaled += 1;
            let mut is_due = unsignaled >= rule.signal_every;
            match it.with {
                With::Nothing => {}
                With::Invalidate(rkey) => op = SendOp::SendInvalidate { rkey },
                With::Item(item) => {
                    (sgl, flags) = (&sender.messages().body(item).gather, SendFlags::empty());
                    is_due |= unsignaled >= rule.hold_max || sender.is_awaited(item);
                }
            }
            if is_due {
                flags |= SendFlags::SIGNALED;
                unsignaled = 0;
                signaled.set(signaled.get().with(at));
            }
            SendWr { wr_id: WrId(SEND | names.take()), op, sgl, flags }
        });
        // SAFETY: a request without an item is inline, so that its slot has been read on return.
        // One with an item names a slot, loans and registered bytes that its message owns; it goes
        // to `flight` below if it is taken, as in `post_chain`.
        let posted = unsafe { self.queues.as_mut().expect(OPEN).post_send(qp, wrs) };
        let (taken, _) = posted.of(count);
        for at in 0..taken {
            let seq = lane.on_posted(noted.get().contains(at));
            *items += u64::from(outbox.on_inline_posted(lane, first + at, seq));
        }
        if taken < count {
            lane.on_refused();
        }
        Some(posted)
    }
}

/// After a post of messages to a peer with an error: the post took those of `posted`.
#[cold]
#[inline(never)]
fn on_trouble(
    outbox: &mut Outbox,
    peers: &mut Peers,
    to: u32,
    why: PostError,
    posted: Range<usize>,
) {
    // A retry of a message from its lane reports the reason.
    let is_retry = posted.is_empty() && outbox.inline_sends().len() == 1;
    // Later messages must not overtake: all go through the lanes.
    outbox.requeue_inline(peers, posted.end);
    if let Some(peer) = peers.at(to).filter(|_| !is_retry) {
        outbox.note_trouble(&mut peer.lane, to, why);
    }
}

/// The work requests behind the last signaled one, after `count` more of which every `every`-th is
/// signaled.
#[inline]
fn unsignaled_behind(before: u32, count: u32, every: u32) -> u32 {
    let first = every.saturating_sub(before).max(1);
    if count < first {
        return before + count;
    }
    let mut left = count - first;
    while left >= every.max(1) {
        left -= every.max(1);
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unsignaled_behind_a_run_is_what_counting_it_gives() {
        for every in 0..6 {
            for before in 0..8 {
                let mut unsignaled = before;
                for count in 0..20 {
                    let behind = unsignaled_behind(before, count, every);
                    assert_eq!(behind, unsignaled, "{count} behind {before}, of {every}");
                    unsignaled = if unsignaled + 1 >= every { 0 } else { unsignaled + 1 };
                }
            }
        }
    }
}
