//! Taking back the message of a call that ends.

use rpcrdma_proto::CallId;
use rpcrdma_xdr::onc::{MsgType, RpcPrefix};

use super::Parts;
use crate::error::Sent;
use crate::state::lane::messages::After;
use crate::state::peers::Peer;

impl Parts {
    /// What was sent of a call that ends. If it is nothing, its message is removed.
    pub fn unsend(&mut self, peer: &mut Peer, id: CallId) -> Sent {
        let place = self.exposure_of(peer.id.index, id);
        // Only the payload of a call begins with these words: the second word of a reply, and of a
        // header, is different.
        let words = RpcPrefix { xid: id.xid(), kind: MsgType::Call }.bytes();
        if self.outbox.take_back_inline(&mut peer.lane, peer.id.index, &words) {
            return Sent::Nothing;
        }
        let mut next = peer.lane.pending.front();
        while let Some(message) = next {
            let messages = self.outbox.messages_mut();
            next = messages.next(message);
            let is_it = match place {
                Some(place) => messages.head(message).after == After::Called(place),
                None => messages.begins_with(message, &words),
            };
            if !is_it {
                continue;
            }
            if messages.head(message).posted > 0 {
                return Sent::Here;
            }
            peer.lane.remove(messages, message);
            if let Some(place) = place {
                self.rdma.on_unposted(place);
            }
            self.release(message);
            return Sent::Nothing;
        }
        Sent::Here
    }
}
