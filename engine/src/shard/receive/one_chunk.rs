//! Calls with one chunk of the base protocol, and the replies to own ones, without the general way.

use rpcrdma_mempool::RecvToken;
use rpcrdma_proto::{ChunkCall, KeptOffer, Received, ShortKind};

use super::disposition::RecvInfo;
use crate::api::handler::Handler;
use crate::message::incoming::Buffers;
use crate::message::rdma_target::RdmaTarget;
use crate::message::reading::{KeptReply, first_segment};
use crate::provider::Provider;
use crate::shard::Core;
use crate::state::peers::Phase;
use crate::state::rdma::fetch::{Found, RemoteCall, buffers_needed_for_one};

impl<P: Provider> Core<P> {
    /// Takes a call with one chunk, or the reply to an own one, if it needs no general way.
    /// Otherwise returns its buffer.
    #[inline]
    pub(super) fn receive_one_chunk(
        &mut self,
        index: u32,
        mut token: RecvToken,
        recv: RecvInfo,
        handler: &mut dyn Handler,
    ) -> Option<RecvToken> {
        let Core { peers, parts, receive, .. } = &mut *self;
        let Some((peer, address)) = peers.with_address(index) else { return Some(token) };
        if peer.phase != Phase::Up {
            return Some(token);
        }
        let at = Received { buffer: token.index(), byte_len: recv.byte_len };
        let first = first_segment(&receive.pool, &token, recv.byte_len);
        if peer.exposed > 0
            && let Some(place) = peer.conn.exposed_for(&parts.ledger, first)
        {
            let offered = parts.rdma.offered(place);
            let taken = peer.conn.on_one_chunk_reply(&mut parts.ledger, at, first, &offered);
            let Some((part, placed)) = taken else { return Some(token) };
            let (buffers, parts) = (Buffers::from_iter([token]), &[part][..]);
            let reply = Ok(KeptReply { buffers, parts, placed });
            self.end_exposed(place, reply, recv.invalidated, handler);
            return None;
        }
        if recv.invalidated.is_some() {
            return Some(token);
        }
        match peer.conn.on_one_chunk(&mut parts.ledger, at, first) {
            None => return Some(token),
            Some(ChunkCall::Write { to, part, list }) => {
                receive.map.set_single_item((part.payload_start, part.payload_len), None);
                receive.saved_offer.set_one_write(list);
                let buffers = (core::slice::from_mut(&mut token), RdmaTarget::nothing());
                let what = (&ShortKind::Call(to), true);
                receive.deliver_mapped((peer, address), parts, what, buffers, handler);
                receive.free_buffer(token);
            }
            Some(ChunkCall::Read { to, part, placed, len }) => {
                match buffers_needed_for_one(len, parts.rdma.for_calls()) {
                    Ok(needs) => {
                        let found = Found { needs, placed, offer: KeptOffer::None };
                        let (buffers, transmissions) = (Buffers::from_iter([token]), &[part][..]);
                        self.fetch_call(index, RemoteCall { to, found, buffers, transmissions });
                    }
                    Err(violation) => {
                        parts.reject(peer, &to, violation);
                        receive.free_buffer(token);
                    }
                }
            }
        }
        None
    }
}
