//! Groups: buffers are kept until the last transmission has arrived.

use rpcrdma_mempool::RecvToken;
use rpcrdma_proto::{Complete, Received, ReplyPart};

use super::disposition::{Disposition, RecvInfo};
use super::prepare::ExposedReply;
use crate::api::handler::Handler;
use crate::error::{CallError, CloseReason};
use crate::message::incoming::Buffers;
use crate::message::reading::{KeptReply, first_segment};
use crate::provider::Provider;
use crate::shard::Core;
use crate::state::peers::Phase;
use crate::state::rdma::fetch::RemoteCall;

impl<P: Provider> Core<P> {
    /// Takes a part of a reply, if it needs no general way. Otherwise returns its buffer.
    #[inline]
    pub(super) fn receive_part(
        &mut self,
        index: u32,
        token: RecvToken,
        recv: RecvInfo,
        now: u64,
        handler: &mut dyn Handler,
    ) -> Option<RecvToken> {
        let Core { peers, parts, receive, .. } = &mut *self;
        let Some(peer) = peers.at(index) else { return Some(token) };
        if peer.phase != Phase::Up || recv.invalidated.is_some() {
            return Some(token);
        }
        let at = Received { buffer: token.index(), byte_len: recv.byte_len };
        let first = first_segment(&receive.pool, &token, recv.byte_len);
        match peer.conn.on_part(&mut parts.ledger, at, first) {
            None => return Some(token),
            Some(ReplyPart::Partial) => {
                let until = parts.timers.group_until(now);
                receive.park(Some(peer), token, until);
            }
            Some(ReplyPart::Complete(complete)) => {
                self.on_group(index, complete, token, recv, handler);
            }
        }
        None
    }

    /// The last transmission of a group has arrived: delivers the message of the group.
    #[inline(never)]
    pub(super) fn on_group(
        &mut self,
        index: u32,
        complete: Complete,
        last: RecvToken,
        recv: RecvInfo,
        handler: &mut dyn Handler,
    ) {
        let mut buffers = Buffers::new();
        let Core { peers, parts, receive, .. } = &mut *self;
        let Some(peer) = peers.at(index) else { return receive.free_buffer(last) };
        let disposition = receive.complete(peer, parts, complete, last, &mut buffers);
        if !matches!(disposition, Disposition::Exposed(..)) {
            self.parts.rdma.on_invalidated(index, recv.invalidated);
        }
        match disposition {
            Disposition::Call(to) => self.deliver_call(index, to, &mut buffers, handler),
            Disposition::Reply(id) => self.deliver_reply(index, id, &mut buffers, handler),
            Disposition::Failed(id, error) => self.fail_call(index, id, error, handler),
            Disposition::Fetch(to, _, found) => {
                let transmissions = &self.peers.group_of(index);
                let call = RemoteCall { to, found, buffers, transmissions };
                return self.fetch_call(index, call);
            }
            Disposition::Exposed(ExposedReply { place, placed }, _) => {
                let reply = KeptReply { buffers, parts: &self.peers.group_of(index), placed };
                return self.end_exposed(place, Ok(reply), recv.invalidated, handler);
            }
            _ => {}
        }
        self.receive.free_buffers(buffers);
        self.offer_properties(index);
    }

    /// Drops a group that was open for too long: reports the missing transmissions to its sender,
    /// then closes the connection (wire.md E39).
    #[cold]
    pub fn expire_group(&mut self, index: u32, now: u64, handler: &mut dyn Handler) {
        let Core { peers, parts, receive, .. } = &mut *self;
        let Some(peer) = peers.at(index) else { return };
        let ended = peer.conn.expire_group(&mut parts.ledger);
        let is_reported = ended.is_some_and(|ended| receive.abort(peer, parts, &ended.report));
        if let Some((id, why)) = ended.and_then(|ended| ended.failed) {
            self.fail_call(index, id, CallError::BadReply(why), handler);
        }
        match is_reported {
            true => self.leave(index, CloseReason::TimedOut, now, handler),
            false => self.close(index, CloseReason::TimedOut, now, handler),
        }
    }
}
