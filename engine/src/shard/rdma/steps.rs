//! The steps of explicit RDMA: the data of calls are fetched, and what own calls have exposed is
//! closed before anybody reads it.
//!
//! ```text
//!   call ──▶ Fetch ──Reads──▶ settle ──▶ handler
//!   reply ──▶ Exposure ──Invalidates──▶ settle ──▶ Completion
//! ```

use rpcrdma_proto::{CallId, NO_MARK, Part, ReplyTo};

use super::exposures::{Exposures, Owner};
use crate::api::completion::Completion;
use crate::api::handler::Handler;
use crate::api::reply::ReplyContext;
use crate::error::{CallError, CloseReason};
use crate::message::incoming::{Buffers, Incoming};
use crate::message::rdma_target::RdmaTarget;
use crate::provider::Provider;
use crate::shard::core::Core;
use crate::shard::peers::{Peer, Phase};
use crate::shard::receive::transmission::{deliver, turn_back};
use crate::shard::send::messages::After;
use crate::shard::send::outbox::Outbox;

impl<P: Provider> Core<P> {
    /// Looks after messages that have completed, and calls that wait to be fetched or delivered.
    #[cold]
    pub fn step_rdma<H: Handler>(&mut self, handler: &mut H) {
        self.finish_released(handler);
        self.read_waiting();
        self.deliver_fetched(handler);
    }

    /// Completes the calls whose last message has.
    fn finish_released<H: Handler>(&mut self, handler: &mut H) {
        while let Some(after) = self.note_released() {
            if let After::Called(place) | After::Fenced(place) = after
                && !self.is_closing(place)
            {
                self.finish_exposure(place, handler);
            }
        }
    }

    /// Whether the connection of an exposure has ended: the end of its queue pair closes everything.
    fn is_closing(&mut self, place: u32) -> bool {
        let owner = self.outbox.exposures.at(place).owner;
        let peer = owner.and_then(|owner| self.peers.at(owner.peer));
        peer.is_some_and(|peer| matches!(peer.phase, Phase::Closing { .. }))
    }

    /// Takes note of one message that has completed, or was given up.
    fn note_released(&mut self) -> Option<After> {
        let after = self.outbox.released.pop()?;
        match after {
            After::Nobody => {}
            After::Called(place) => self.outbox.exposures.at(place).is_called = false,
            After::Fenced(place) => {
                let Core { outbox, peers, .. } = self;
                let exposure = outbox.exposures.at(place);
                let peer = exposure.owner.and_then(|owner| peers.at(owner.peer));
                // What a queue pair has flushed was not carried out.
                if peer.is_some_and(|peer| !matches!(peer.phase, Phase::Closing { .. })) {
                    exposure.on_dead();
                }
                exposure.is_fencing = false;
            }
            After::Fetched(place) => self.fetches.end_reading(place),
        }
        Some(after)
    }

    // Calls of peers.

    /// Takes in a call whose data are in the memory of its caller, and take so many buffers.
    #[cold]
    pub fn fetch_call(
        &mut self,
        index: u32,
        to: ReplyTo,
        needs: usize,
        (buffers, parts): (Buffers, &[Part]),
    ) {
        let Core { peers, outbox, fetches, life, .. } = self;
        let Some(peer) = peers.at(index).filter(|peer| peer.phase == Phase::Up) else {
            return self.free_buffers(buffers);
        };
        let place = if life.is_stopping() { None } else { fetches.open(peer.id, to, needs) };
        let Some(place) = place else {
            turn_back(peer, outbox, &to, life);
            return self.free_buffers(buffers);
        };
        peer.fetching += 1;
        fetches.at(place).keep(buffers, parts);
        self.read_waiting();
    }

    /// Begins to read the data of calls, as many as there are buffers for.
    fn read_waiting(&mut self) {
        let Core { fetches, peers, pool, outbox, .. } = self;
        let is_alone = peers.len() == 1;
        outbox.exposures.rdma_buffers.reclaim();
        while outbox.messages.free() > 0
            && let Some(place) = fetches.begin(&outbox.exposures.rdma_buffers, is_alone)
            && let Some(message) = outbox.messages.begin()
        {
            let fetch = fetches.at(place);
            let peer = fetch.owner.and_then(|(peer, _)| peers.named(peer));
            let Outbox { exposures, messages, scatter_max, .. } = outbox;
            let rdma_buffers = (&mut exposures.rdma_buffers, exposures.rdma_buffer_len);
            let body = messages.body_mut(message);
            let laid_out = peer.and_then(|peer| {
                fetch.lay_out(&peer.conn, pool, rdma_buffers, body, *scatter_max).map(|()| peer)
            });
            let requests = body.requests.len() as u16;
            let Some(peer) = laid_out else {
                outbox.release(message);
                fetches.fail(place);
                continue;
            };
            let head = messages.head_mut(message);
            (head.requests, head.after) = (requests, After::Fetched(place));
            outbox.stats.reads.add(requests.into());
            outbox.enqueue(&mut peer.lane, peer.id.index, message);
        }
    }

    /// Ends the connection of a peer whose data do not arrive: an open message has its time.
    pub fn check_reads<H: Handler>(&mut self, index: u32, now: u64, handler: &mut H) {
        if self.fetches.is_late(index, now, self.life.patience()) {
            self.stats.read_timeouts.add(1);
            self.close(index, CloseReason::TimedOut, now, handler);
        }
    }

    /// Hands calls up whose data are here, as many as there are send slots to answer them.
    fn deliver_fetched<H: Handler>(&mut self, handler: &mut H) {
        for _each_once in 0..self.fetches.here_len() {
            let Some(place) = self.fetches.pop_here() else { return };
            let Core { fetches, peers, pool, outbox, map, saved_offer, stats, life, .. } = self;
            let fetch = fetches.at(place);
            let owner = fetch.owner.and_then(|(id, to)| Some((peers.named_with_address(id)?, to)));
            let owner = owner.filter(|((peer, _), _)| peer.phase == Phase::Up);
            match owner {
                None => {}
                Some(((peer, _), to)) if life.is_stopping() => turn_back(peer, outbox, &to, life),
                Some(((peer, _), _)) if !outbox.has_slot_for(&peer.lane) => {
                    // Those of others need not wait for it.
                    fetches.retry_here(place);
                    continue;
                }
                Some(((peer, address), to)) => {
                    let rdma_buffer_len = outbox.exposures.rdma_buffer_len;
                    match fetch.prepare(&peer.conn, &to, pool, rdma_buffer_len, (map, saved_offer))
                    {
                        Err(violation) => outbox.reject(peer, &to, violation),
                        Ok(()) => {
                            let (buffers, rdma_target) = fetch.rdma_target();
                            let incoming = Incoming::mapped(pool, buffers, rdma_target, map, stats);
                            let asked = (to.xid, Some(ReplyContext { to: &to, saved_offer }));
                            deliver((peer, address, outbox), asked, incoming, life, handler);
                        }
                    }
                }
            }
            let owner = self.fetches.at(place).owner;
            self.free_fetch(place);
            if let Some((id, _)) = owner {
                self.offer_properties(id.index);
            }
        }
    }

    /// Gives everything back that a call was fetched into.
    fn free_fetch(&mut self, place: u32) {
        let Core { fetches, outbox, peers, .. } = self;
        let fetch = fetches.at(place);
        if let Some((id, _)) = fetch.owner
            && let Some(peer) = peers.named(id)
        {
            peer.fetching -= 1;
        }
        fetch.give_back(&mut outbox.exposures.rdma_buffers);
        let buffers = core::mem::take(&mut fetch.buffers);
        fetches.close(place);
        self.free_buffers(buffers);
    }

    /// Buffers that nobody needs any more.
    pub fn free_buffers(&mut self, buffers: Buffers) {
        for token in buffers {
            self.free_buffer(token);
        }
    }

    // Own calls.

    /// The place of what a call has exposed.
    #[inline]
    pub fn exposure_of(&self, index: u32, id: CallId) -> Option<u32> {
        let (_, entry) = self.outbox.ledger.calls.find(id.xid(), index)?;
        (entry.mark != NO_MARK).then_some(entry.mark)
    }

    /// A call that has memory exposed is over: its reply is here, with these buffers, or it failed.
    /// What was exposed is closed first. `invalidated` is the key that the peer has given up.
    #[cold]
    pub fn end_exposed<H: Handler>(
        &mut self,
        place: u32,
        outcome: Result<(Buffers, &[Part]), CallError>,
        invalidated: Option<u32>,
        handler: &mut H,
    ) {
        let Core { peers, outbox, .. } = &mut *self;
        let exposure = outbox.exposures.at(place);
        let Some(owner) = exposure.owner else { return };
        if exposure.outcome.is_some() {
            if let Ok((buffers, _)) = outcome {
                self.free_buffers(buffers);
            }
            return;
        }
        exposure.outcome = Some(outcome.map(|(buffers, parts)| exposure.keep(buffers, parts)));
        if let Some(rkey) = invalidated
            && !exposure.on_invalidated(rkey)
        {
            outbox.exposures.on_invalidated(owner.peer, rkey);
        }
        let exposure = outbox.exposures.at(place);
        let Some(peer) = peers.at(owner.peer) else { return };
        // The end of the queue pair closes everything.
        if matches!(peer.phase, Phase::Closing { .. }) {
            return;
        }
        if exposure.is_open() {
            let message = outbox.messages.begin().expect("there is a message for each exposure");
            let body = outbox.messages.body_mut(message);
            let ops = exposure.closing();
            let posted = ops.map_while(|op| body.end_request(op)).count() as u16;
            let head = outbox.messages.head_mut(message);
            (head.requests, head.after) = (posted, After::Fenced(place));
            exposure.is_fencing = true;
            outbox.stats.invalidations.add(posted.into());
            outbox.enqueue(&mut peer.lane, owner.peer, message);
        }
        self.finish_exposure(place, handler);
    }

    /// Completes a call when nobody can reach its memory any more.
    fn finish_exposure<H: Handler>(&mut self, place: u32, handler: &mut H) {
        let Core { io, peers, pool, outbox, map, stats, .. } = self;
        let Outbox { exposures, ledger, .. } = outbox;
        let exposure = exposures.at(place);
        if !exposure.is_over() {
            return;
        }
        if let Some(Owner { peer, id }) = exposure.owner {
            let is_closing = |peer: &mut Peer| matches!(peer.phase, Phase::Closing { .. });
            let goes_on = peers.at(peer).is_some_and(|peer| !is_closing(peer));
            exposure.is_unanswered = goes_on && ledger.calls.may_be_answered(id, peer);
        }
        let Some(dead) = exposures.retire(place, io) else {
            stats.rights_lost.add(1);
            return self.fail_exposed(place, Exposures::abandon, handler);
        };
        let exposure = exposures.at(place);
        let Some(Owner { peer: index, id }) = exposure.owner else { return };
        let Some(peer) = peers.at(index) else { return };
        let is_told = exposure.is_told;
        let result = exposure.prepare(&dead, &peer.conn, ledger, pool, map);
        peer.exposed -= 1;
        let finished = if is_told { None } else { peer.end_call(ledger, id) };
        if let Some(finished) = finished {
            stats.calls_done.add(1);
            stats.calls_failed.add(result.is_err().into());
            let (buffers, rdma_target) = exposure.rdma_target(&dead);
            let token = finished.token;
            let done = match result {
                Ok(()) => {
                    let incoming = Incoming::mapped(pool, buffers, rdma_target, map, stats);
                    Completion::new(peer.id, token, incoming)
                }
                Err(error) => Completion::failed(peer.id, token, (id, error), rdma_target),
            };
            handler.on_reply(done);
        }
        let buffers = core::mem::take(&mut exposure.buffers);
        exposures.close(dead);
        self.free_buffers(buffers);
    }

    /// Completes a call without the memory that it has exposed.
    #[cold]
    fn fail_exposed<H: Handler>(
        &mut self,
        place: u32,
        give_up: impl FnOnce(&mut Exposures, u32),
        handler: &mut H,
    ) {
        let Core { peers, outbox, stats, .. } = &mut *self;
        let exposure = outbox.exposures.at(place);
        let (owner, is_told) = (exposure.owner, exposure.is_told);
        let error = exposure.outcome.take().and_then(Result::err);
        let buffers = core::mem::take(&mut exposure.buffers);
        give_up(&mut outbox.exposures, place);
        if let Some(owner) = owner
            && let Some(peer) = peers.at(owner.peer)
        {
            peer.exposed -= 1;
            // On a connection that goes on, the reply to a call that was given up may still come.
            let finished = if is_told { None } else { peer.end_call(&mut outbox.ledger, owner.id) };
            if let Some(finished) = finished {
                stats.calls_done.add(1);
                stats.calls_failed.add(1);
                let failed = (owner.id, error.unwrap_or(CallError::MemoryLost));
                let rdma_target = RdmaTarget::nothing();
                handler.on_reply(Completion::failed(peer.id, finished.token, failed, rdma_target));
            }
        }
        self.free_buffers(buffers);
    }

    /// Completes the calls of a connection that have memory exposed. Its queue pair is destroyed,
    /// and with it every right that the peer had.
    #[cold]
    pub fn finish_exposures<H: Handler>(&mut self, index: u32, handler: &mut H) {
        // Among what is released may be calls of other connections.
        self.finish_released(handler);
        let mut last = None;
        while let Some(place) = self.outbox.exposures.next_of(index, last) {
            let exposure = self.outbox.exposures.at(place);
            exposure.on_dead();
            (exposure.is_called, exposure.is_fencing, exposure.is_withheld) = (false, false, false);
            self.finish_exposure(place, handler);
            last = Some(place);
        }
    }

    /// Completes the calls of a connection that have memory exposed which the device may still touch:
    /// without that memory, which is lost.
    #[cold]
    pub fn leak_exposures<H: Handler>(&mut self, index: u32, handler: &mut H) {
        let mut last = None;
        while let Some(place) = self.outbox.exposures.next_of(index, last) {
            let Core { io, outbox, stats, .. } = &mut *self;
            stats.leaked.add(1);
            let dead = outbox.exposures.retire(place, io);
            stats.rights_lost.add(dead.is_none().into());
            let give_up = |exposures: &mut Exposures, place| match dead {
                Some(dead) => exposures.leak(dead),
                None => exposures.abandon(place),
            };
            self.fail_exposed(place, give_up, handler);
            last = Some(place);
        }
    }
}
