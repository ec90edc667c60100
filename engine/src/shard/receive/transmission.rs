//! The general way of a transmission: group, call or reply, and reposting of the buffer.

use rpcrdma_mempool::RecvToken;
use rpcrdma_proto::{CallId, ReplyTo};

use super::disposition::{Disposition, RecvInfo};
use super::prepare::ExposedReply;
use crate::api::completion::Completion;
use crate::api::handler::Handler;
use crate::error::CallError;
use crate::message::incoming::Buffers;
use crate::message::rdma_target::RdmaTarget;
use crate::message::reading::KeptReply;
use crate::provider::Provider;
use crate::shard::Core;
use crate::state::peers::Phase;
use crate::state::rdma::fetch::RemoteCall;

impl<P: Provider> Core<P> {
    /// Processes waiting messages, as far as slots are free. Goes through all of them once.
    #[cold]
    pub fn serve_waiting(&mut self, now: u64, handler: &mut dyn Handler) {
        let mut scan = self.receive.waiting.begin_scan();
        while let Some((index, it)) =
            self.receive.waiting.next(&mut scan, &mut self.peers, &self.parts.outbox)
        {
            let Some(index) = index else {
                self.receive.free_buffer(it.token);
                continue;
            };
            if let Err(token) = self.receive_short(index, it.token, it.recv, false, handler) {
                self.receive_other(index, token, it.recv, now, handler);
            }
        }
    }

    /// Processes a transmission that is not a short message.
    #[inline(never)]
    pub(in crate::shard) fn receive_other(
        &mut self,
        index: u32,
        token: RecvToken,
        recv: RecvInfo,
        now: u64,
        handler: &mut dyn Handler,
    ) {
        let token = self.receive_part(index, token, recv, now, handler);
        let Some(token) = token else { return };
        let token = self.receive_one_chunk(index, token, recv, handler);
        let Some(mut token) = token else { return };
        loop {
            let disposition = self.classify(index, &token, recv, now, handler);
            let buffers = core::slice::from_mut(&mut token);
            match disposition {
                Disposition::Done | Disposition::Aborted { .. } => break,
                // The report may have taken the slot for answering the message.
                Disposition::Again if self.parts.outbox.slots_free() == 0 => {
                    let Some(peer) = self.peers.at(index) else { break };
                    return self.receive.wait_first(peer, token, recv);
                }
                Disposition::Again => continue,
                Disposition::Properties(outcome) => {
                    if let Some(peer) = self.peers.at(index) {
                        peer.finish_properties(&outcome, handler);
                    }
                    break;
                }
                Disposition::Call(to) => {
                    self.deliver_call(index, to, buffers, handler);
                    break;
                }
                Disposition::Reply(id) => {
                    self.deliver_reply(index, id, buffers, handler);
                    break;
                }
                Disposition::Failed(id, error) => {
                    self.fail_call(index, id, error, handler);
                    break;
                }
                Disposition::Fetch(to, part, found) => {
                    let (buffers, transmissions) = (Buffers::from_iter([token]), &[part][..]);
                    let call = RemoteCall { to, found, buffers, transmissions };
                    return self.fetch_call(index, call);
                }
                Disposition::Exposed(ExposedReply { place, placed }, part) => {
                    let (buffers, parts) = (Buffers::from_iter([token]), &[part][..]);
                    let reply = KeptReply { buffers, parts, placed };
                    return self.end_exposed(place, Ok(reply), recv.invalidated, handler);
                }
                Disposition::Park => {
                    self.parts.rdma.on_invalidated(index, recv.invalidated);
                    let until = self.parts.timers.group_until(now);
                    return self.receive.park(self.peers.at(index), token, until);
                }
                Disposition::Complete(complete) => {
                    return self.on_group(index, complete, token, recv, handler);
                }
                Disposition::Close(why) => {
                    self.close(index, why, now, handler);
                    break;
                }
            }
        }
        self.receive.free_buffer(token);
        self.offer_properties(index);
    }

    /// Interprets a transmission, and applies its side effects.
    #[inline]
    fn classify(
        &mut self,
        index: u32,
        token: &RecvToken,
        recv: RecvInfo,
        now: u64,
        handler: &mut dyn Handler,
    ) -> Disposition {
        let Core { peers, parts, receive, .. } = &mut *self;
        let disposition = match peers.at(index) {
            Some(peer) => receive.interpret(peer, parts, recv.byte_len, token),
            None => Disposition::Done,
        };
        // Any message may be the one that confirms the version.
        self.note_ready(index, now, handler);
        match disposition {
            // Their invalidations are processed later.
            Disposition::Exposed(..) | Disposition::Complete(_) | Disposition::Park => {}
            _ => self.parts.rdma.on_invalidated(index, recv.invalidated),
        }
        let Disposition::Aborted { again, id, why } = disposition else { return disposition };
        self.fail_call(index, id, CallError::BadReply(why), handler);
        if again { Disposition::Again } else { Disposition::Done }
    }

    /// Offers a peer this side's properties, if that is due and possible now.
    pub fn offer_properties(&mut self, index: u32) {
        if let Some(peer) = self.peers.at(index).filter(|peer| peer.phase == Phase::Up) {
            self.parts.outbox.offer_properties(peer);
        }
    }

    pub(super) fn deliver_call(
        &mut self,
        index: u32,
        to: ReplyTo,
        buffers: &mut [RecvToken],
        handler: &mut dyn Handler,
    ) {
        let Core { peers, parts, receive, .. } = self;
        if let Some(peer) = peers.with_address(index) {
            receive.deliver_call(peer, parts, to, (buffers, RdmaTarget::nothing()), handler);
        }
    }

    pub(super) fn deliver_reply(
        &mut self,
        index: u32,
        id: CallId,
        buffers: &mut [RecvToken],
        handler: &mut dyn Handler,
    ) {
        let Core { peers, parts, receive, .. } = self;
        if let Some(peer) = peers.at(index) {
            receive.deliver_reply(peer, parts, id, buffers, handler);
        }
    }

    /// Completes an own call with an error.
    #[cold]
    pub fn fail_call(
        &mut self,
        index: u32,
        call: CallId,
        error: CallError,
        handler: &mut dyn Handler,
    ) {
        if let Some(place) = self.parts.exposure_of(index, call) {
            return self.end_exposed(place, Err(error), None, handler);
        }
        self.report_failed(index, call, error, handler);
    }

    /// Completes an own call with an error, and without its memory.
    #[cold]
    pub fn report_failed(
        &mut self,
        index: u32,
        call: CallId,
        error: CallError,
        handler: &mut dyn Handler,
    ) {
        let Some(peer) = self.peers.at(index) else { return };
        let parts = &mut self.parts;
        let Some(finished) = peer.end_call(&mut parts.ledger, call) else { return };
        parts.count_failed(peer, &finished, &error);
        let (id, token) = (peer.id, finished.token);
        handler.on_reply(Completion::failed(id, token, call, error, RdmaTarget::nothing()));
    }
}
