//! The steps of explicit RDMA: fetches the data of received calls, and ends the exposure of own
//! calls before they complete.
//!
//! ```text
//!   call ──▶ Fetch ──Reads──▶ finish ──▶ handler
//!   reply ──▶ Exposure ──Invalidates──▶ finish ──▶ Completion
//! ```

use super::Core;
use crate::api::completion::Completion;
use crate::api::handler::Handler;
use crate::error::CallError;
use crate::message::rdma_target::RdmaTarget;
use crate::message::reading::KeptReply;
use crate::provider::Provider;
use crate::state::lane::messages::After;
use crate::state::parts::{Parts, count_done};
use crate::state::peers::{Peer, Phase};
use crate::state::rdma::exposures::{Exposures, Owner};
use crate::state::rdma::fetch::RemoteCall;

impl<P: Provider> Core<P> {
    /// Whether explicit RDMA has a step to do.
    #[inline]
    pub fn has_rdma_steps(&self) -> bool {
        self.parts.rdma.released() | self.fetches.waiting() != 0
    }

    /// Processes completed messages, and calls that wait to be fetched or delivered.
    #[cold]
    pub fn step_rdma(&mut self, handler: &mut dyn Handler) {
        self.finish_released(handler);
        let Core { io, peers, parts, fetches, receive, .. } = self;
        fetches.read_waiting(peers, parts, receive.pool(), io);
        fetches.deliver(peers, parts, receive, handler);
    }

    /// Completes the calls whose last message has completed.
    fn finish_released(&mut self, handler: &mut dyn Handler) {
        while let Some(after) = self.note_released() {
            if let After::Called(place) | After::Fenced(place) = after
                && !self.is_closing(place)
            {
                self.finish_exposure(place, handler);
            }
        }
    }

    /// Whether the connection of an exposure has ended: the end of its queue pair ends all rights.
    fn is_closing(&mut self, place: u32) -> bool {
        let owner = self.parts.rdma.exposures_mut().at(place).owner;
        let peer = owner.and_then(|owner| self.peers.at(owner.peer));
        peer.is_some_and(|peer| peer.phase == Phase::Closing)
    }

    /// Processes one message that has completed or was discarded.
    fn note_released(&mut self) -> Option<After> {
        let Core { io, parts, fetches, peers, .. } = self;
        let rdma = &mut parts.rdma;
        let after = rdma.pop_released()?;
        match after {
            After::Nothing => {}
            After::Called(place) => rdma.exposures_mut().at(place).is_called = false,
            After::Fenced(place) => {
                let exposure = rdma.exposures_mut().at(place);
                let peer = exposure.owner.and_then(|owner| peers.at(owner.peer));
                // A flushed work request was not executed.
                if peer.is_some_and(|peer| peer.phase != Phase::Closing) {
                    exposure.on_dead();
                }
                exposure.is_fencing = false;
            }
            After::Fetched(place) => {
                fetches.end_reading(place);
                parts.on_buffers_lost(fetches.close_buffers(place, io));
            }
        }
        Some(after)
    }

    /// Whether steps can proceed without a further event. Buffers that a program returns from
    /// another thread are found when the shard wakes.
    pub fn can_step_rdma(&mut self) -> bool {
        let Core { parts, fetches, peers, .. } = self;
        parts.rdma.released() > 0 || fetches.can_step(peers, parts)
    }

    /// Accepts a call with data in the memory of its caller.
    #[cold]
    pub fn fetch_call(&mut self, index: u32, call: RemoteCall<'_>) {
        let Core { io, peers, parts, fetches, receive, .. } = self;
        if fetches.take_in(peers.at(index), parts, receive, call) {
            fetches.read_waiting(peers, parts, receive.pool(), io);
        }
    }

    /// A call with exposed memory has its reply, or has failed. Its rights are
    /// ended before it completes. `invalidated` is the key that the peer has invalidated.
    #[cold]
    pub fn end_exposed(
        &mut self,
        place: u32,
        outcome: Result<KeptReply<'_>, CallError>,
        invalidated: Option<u32>,
        handler: &mut dyn Handler,
    ) {
        let Core { peers, parts, receive, .. } = &mut *self;
        let Parts { outbox, rdma, stats, .. } = parts;
        let exposure = rdma.exposures_mut().at(place);
        let Some(owner) = exposure.owner else { return };
        if exposure.outcome.is_some() {
            if let Ok(reply) = outcome {
                receive.free_buffers(reply.buffers);
            }
            return;
        }
        exposure.outcome = Some(outcome.map(|reply| exposure.keep(reply)));
        if let Some(rkey) = invalidated
            && !exposure.on_invalidated(rkey)
        {
            rdma.exposures_mut().on_invalidated(owner.peer, rkey);
        }
        let exposure = rdma.exposures_mut().at(place);
        let Some(peer) = peers.at(owner.peer) else { return };
        // The end of the queue pair ends all rights.
        if peer.phase == Phase::Closing {
            return;
        }
        if exposure.is_open() {
            let messages = outbox.messages_mut();
            let message = messages.begin().expect("there is a message for each exposure");
            let body = messages.body_mut(message);
            let ops = exposure.closing();
            let posted = ops.map_while(|op| body.end_request(op)).count() as u16;
            let head = messages.head_mut(message);
            (head.requests, head.after) = (posted, After::Fenced(place));
            exposure.is_fencing = true;
            stats.invalidations.add(posted.into());
            outbox.enqueue(&mut peer.lane, owner.peer, message);
        }
        self.finish_exposure(place, handler);
    }

    /// Completes a call when no peer can reach its memory any more.
    fn finish_exposure(&mut self, place: u32, handler: &mut dyn Handler) {
        let Core { io, peers, parts, receive, .. } = self;
        let Parts { rdma, ledger, stats, sampling, .. } = parts;
        let exposures = rdma.exposures_mut();
        let exposure = exposures.at(place);
        if !exposure.is_over() {
            return;
        }
        if let Some(Owner { peer, id }) = exposure.owner {
            let is_closing = |peer: &mut Peer| peer.phase == Phase::Closing;
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
        let is_reported = exposure.is_reported;
        let result = exposure.prepare(&dead, &peer.conn, receive.reading());
        peer.exposed -= 1;
        let finished = if is_reported { None } else { peer.end_call(ledger, id) };
        if let Some(finished) = finished {
            count_done(stats, sampling, peer, &finished, result.as_ref().err());
            let (buffers, rdma_target) = exposure.rdma_target(&dead);
            let token = finished.token;
            let done = match result {
                Ok(()) => {
                    let incoming = receive.incoming(buffers, rdma_target);
                    Completion::new(peer.id, token, incoming)
                }
                Err(error) => Completion::failed(peer.id, token, id, error, rdma_target),
            };
            handler.on_reply(done);
        }
        let buffers = core::mem::take(&mut exposure.buffers);
        exposures.close(dead);
        receive.free_buffers(buffers);
    }

    /// Completes a call without its exposed memory.
    #[cold]
    fn fail_exposed(
        &mut self,
        place: u32,
        give_up: impl FnOnce(&mut Exposures, u32),
        handler: &mut dyn Handler,
    ) {
        let Core { peers, parts, receive, .. } = &mut *self;
        let Parts { rdma, ledger, stats, sampling, .. } = parts;
        let exposure = rdma.exposures_mut().at(place);
        let (owner, is_reported) = (exposure.owner, exposure.is_reported);
        let error = exposure.outcome.take().and_then(Result::err);
        let buffers = core::mem::take(&mut exposure.buffers);
        give_up(rdma.exposures_mut(), place);
        if let Some(owner) = owner
            && let Some(peer) = peers.at(owner.peer)
        {
            peer.exposed -= 1;
            // While the connection lasts, the reply to an abandoned call may still arrive.
            let finished = if is_reported { None } else { peer.end_call(ledger, owner.id) };
            if let Some(finished) = finished {
                let error = error.unwrap_or(CallError::MemoryLost);
                count_done(stats, sampling, peer, &finished, Some(&error));
                let (token, rdma_target) = (finished.token, RdmaTarget::nothing());
                handler.on_reply(Completion::failed(peer.id, token, owner.id, error, rdma_target));
            }
        }
        receive.free_buffers(buffers);
    }

    /// Completes the calls of a connection that have exposed memory. Its queue pair is destroyed,
    /// and with it every right of the peer.
    #[cold]
    pub fn finish_exposures(&mut self, index: u32, handler: &mut dyn Handler) {
        // This may include calls of other connections.
        self.finish_released(handler);
        let mut last = None;
        while let Some(place) = self.parts.rdma.exposures().next_of(index, last) {
            let exposure = self.parts.rdma.exposures_mut().at(place);
            exposure.on_dead();
            (exposure.is_called, exposure.is_fencing, exposure.is_withheld) = (false, false, false);
            self.finish_exposure(place, handler);
            last = Some(place);
        }
    }

    /// Completes the calls of a connection with exposed memory that the device may still touch:
    /// without that memory, which is lost.
    #[cold]
    pub fn leak_exposures(&mut self, index: u32, handler: &mut dyn Handler) {
        let mut last = None;
        while let Some(place) = self.parts.rdma.exposures().next_of(index, last) {
            let Parts { rdma, stats, .. } = &mut self.parts;
            stats.buffers_leaked.add(1);
            let dead = rdma.exposures_mut().retire(place, &mut self.io);
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
