//! Plain messages: one RDMA_MSG with an RPC message in it and nothing else.

use rpcrdma_xdr::numbers::size;
use rpcrdma_xdr::onc::MsgType;
use rpcrdma_xdr::rtr::fixed::Stamp;

use super::{ShortKind, word};
use crate::calls::{CallId, CallState, NO_MARK};
use crate::connection::{Connection, ShardLedger};
use crate::ingress::ReplyTo;
use crate::placement::direct::WantSet;
use crate::placement::inline::Direction;
use crate::settings::Role;

/// Bytes of the header of a plain message.
pub const PLAIN_HEADER_LEN: usize = size::HEADER_MIN;

/// A transmission that has the header of a plain message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlainForm<'a> {
    pub(super) header: &'a [u8; PLAIN_HEADER_LEN],
    /// Its payload.
    pub payload: &'a [u8],
}

impl Connection {
    /// Takes a plain message if it breaks no rule. `None`: nothing has changed, and it is to be handed
    /// to [`Connection::on_transmission`].
    #[inline(always)]
    pub fn on_plain(
        &mut self,
        ledger: &mut ShardLedger,
        message: PlainForm<'_>,
    ) -> Option<ShortKind> {
        let PlainForm { header, payload } = message;
        let prefix = payload.first_chunk::<8>()?;
        if header[..4] != prefix[..4] {
            return None;
        }
        let (xid, credit) = (word(header, 0), word(header, 2));
        match word(prefix, 1) {
            CALL => self.on_plain_call(ledger, xid, credit),
            REPLY => self.on_plain_reply(ledger, xid, credit),
            _ => None,
        }
    }

    #[inline(always)]
    fn on_plain_call(
        &mut self,
        ledger: &mut ShardLedger,
        xid: u32,
        credit: u32,
    ) -> Option<ShortKind> {
        if self.role == Role::Client {
            return None;
        }
        // A peer that oversteps is left to the general way, which closes the connection.
        self.inflow.on_call(1).ok()?;
        self.idle_messages = 0;
        self.inflow.on_request(credit);
        self.inflow.grow(&mut ledger.grants);
        Some(ShortKind::Call(ReplyTo::plain(xid)))
    }

    #[inline]
    fn on_plain_reply(
        &mut self,
        ledger: &mut ShardLedger,
        xid: u32,
        credit: u32,
    ) -> Option<ShortKind> {
        let (id, entry) = ledger.calls.find_own(xid, self.peer)?;
        if entry.state != CallState::Sent || credit == 0 || entry.mark != NO_MARK {
            return None;
        }
        self.idle_messages = 0;
        self.credits.on_grant(credit);
        self.end_own_call(ledger, id).map(ShortKind::Reply)
    }

    /// Plans a call without items or wants, and encodes its header. `None` if it has to take the
    /// general way, [`Connection::begin_call`], which says what is in the way; nothing has changed
    /// then.
    #[inline]
    pub fn begin_plain_call(
        &mut self,
        ledger: &mut ShardLedger,
        id: CallId,
        payload: u32,
        reply_payload_max: u32,
    ) -> Option<[u8; PLAIN_HEADER_LEN]> {
        if reply_payload_max > self.reply_room() || payload > self.plain_room() {
            return None;
        }
        let (_, entry) = ledger.calls.find_own_mut(id.xid(), self.peer)?;
        if entry.state != CallState::Opened || self.credits.available() == 0 {
            return None;
        }
        ledger.replies.reserve(1).ok()?;
        let taken = self.credits.take(1);
        debug_assert!(taken.is_ok(), "a credit was just found available");
        entry.state = CallState::Sent;
        entry.credits = 1;
        entry.receives = 1;
        entry.reply_count_max = 1;
        entry.wants = WantSet::NONE;
        entry.is_xmt = false;
        Some(header(id.xid(), self.stamp(Direction::Call)))
    }

    /// Plans a reply without items to a call without directions, and encodes its header. `None` if
    /// it has to take the general way, [`Connection::begin_reply`]; nothing has changed then.
    #[inline]
    pub fn begin_plain_reply(
        &mut self,
        ledger: &mut ShardLedger,
        to: &ReplyTo,
        payload: u32,
    ) -> Option<[u8; PLAIN_HEADER_LEN]> {
        if payload > self.plain_room() || self.invalidated(to).is_some() {
            return None;
        }
        self.settle(ledger, to);
        Some(header(to.xid, self.stamp(Direction::Reply)))
    }
}

#[inline]
fn header(xid: u32, Stamp { vers, credit }: Stamp) -> [u8; PLAIN_HEADER_LEN] {
    let mut header = [0; PLAIN_HEADER_LEN];
    header[..4].copy_from_slice(&xid.to_be_bytes());
    header[4..8].copy_from_slice(&vers.to_be_bytes());
    header[8..12].copy_from_slice(&credit.to_be_bytes());
    header
}

const CALL: u32 = MsgType::Call as u32;
const REPLY: u32 = MsgType::Reply as u32;
