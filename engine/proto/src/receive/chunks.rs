//! Received base messages with chunks: calls whose data are fetched, and replies to own calls

use rpcrdma_xdr::chunk::ChunkLists;
use rpcrdma_xdr::header::Body;
use rpcrdma_xdr::numbers::VERSION_ONE;
use rpcrdma_xdr::onc::{MsgType, RpcPrefix};
use rpcrdma_xdr::property::BackwardSupport;

use crate::connection::{Connection, ShardLedger};
use crate::error::Violation;
use crate::incoming::{Incoming, XID_MISMATCH};
use crate::ingress::{Ignored, Ingress, Message, Via};
use crate::settings::Role;

impl Connection {
    /// A base message that has chunks, or consists only of chunks.
    pub(crate) fn on_chunks<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        incoming: &Incoming<'_>,
        body: &Body<'_>,
        chunks: &ChunkLists<'a>,
    ) -> Ingress<'a> {
        let (via, kind) = match body {
            // wire.md B9: a caller fetches nothing, so only a reply has nothing to be fetched.
            Body::NoMsg(_) if chunks.reads.is_empty() => (Via::NoMsg, MsgType::Reply),
            Body::NoMsg(_) => (Via::NoMsg, MsgType::Call),
            _ => match incoming.rpc_prefix() {
                Ok(RpcPrefix { xid, kind }) if xid == incoming.xid => (Via::Msg, kind),
                Ok(RpcPrefix { kind: MsgType::Reply, .. }) => {
                    return self.ignore(Ignored::BadReply);
                }
                Ok(_) => return self.reject(incoming, XID_MISMATCH, MsgType::Call),
                // wire.md B14: a requester does not answer messages that it cannot decode.
                Err(_) if self.role == Role::Client => return self.ignore(Ignored::BadReply),
                Err(error) => {
                    return self.reject(incoming, Violation::Undecodable(error), MsgType::Call);
                }
            },
        };
        // [V2] 4.2, RFC 8166 4.2.4: the message is elsewhere, and nothing follows the lists.
        if via == Via::NoMsg && incoming.at.byte_len > incoming.start {
            return match kind {
                MsgType::Reply => self.ignore(Ignored::BadReply),
                MsgType::Call => {
                    let violation = Violation::BadHeader("a payload follows RDMA_NOMSG");
                    self.reject(incoming, violation, MsgType::Call)
                }
            };
        }
        let message = incoming.with_chunks(via, chunks);
        match kind {
            MsgType::Call => self.on_chunk_call(ledger, incoming, message),
            MsgType::Reply => match self.take_reply(ledger, incoming.xid, incoming.credit) {
                Ok(id) => Ingress::Reply(id, message),
                Err(reason) => self.ignore(reason),
            },
        }
    }

    fn on_chunk_call<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        incoming: &Incoming<'_>,
        message: Message<'a>,
    ) -> Ingress<'a> {
        let refusal = match self.role {
            _ if !self.settings.explicit => Some("explicit RDMA is not supported"),
            // wire.md P13; version one has no others.
            Role::Client
                if self.vers == VERSION_ONE
                    || self.settings.backward != BackwardSupport::General =>
            {
                Some("backward calls are inline only")
            }
            _ => None,
        };
        if let Some(why) = refusal {
            return self.reject(incoming, Violation::BadHeader(why), MsgType::Call);
        }
        match self.admit_call(ledger, incoming.credit, 1) {
            Ok(()) => Ingress::Call(message),
            Err(refused) => self.refused(incoming.xid, refused),
        }
    }
}
