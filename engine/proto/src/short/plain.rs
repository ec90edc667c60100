//! Plain messages: one RDMA_MSG without chunks.

use rpcrdma_xdr::numbers::msg_type;
use rpcrdma_xdr::rtr::fixed::{Msg, Rpc};

use super::message::{Short, ShortHeader, ShortKind, ShortPlan};
use crate::calls::{CallId, CallState, NO_MARK};
use crate::connection::{Connection, Finished, ShardLedger};
use crate::ingress::ReplyTo;
use crate::placement::direct::WantSet;
use crate::placement::inline::Direction;
use crate::settings::Role;

impl Connection {
    /// Takes a plain message if it breaks no rule.
    #[inline(always)]
    pub(super) fn on_plain<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        header: &Msg,
        payload: &'a [u8],
    ) -> Option<Short<'a>> {
        let rpc = Rpc::peek(payload)?;
        if header.xid != rpc.xid {
            return None;
        }
        let (xid, credit) = (header.xid.get(), header.credit.get());
        match rpc.kind.get() {
            msg_type::CALL => {
                let kind = ShortKind::Call(self.on_plain_call(ledger, xid, credit)?);
                Some(Short::Plain { kind, payload })
            }
            msg_type::REPLY => {
                let kind = ShortKind::Reply(self.on_plain_reply(ledger, xid, credit)?);
                Some(Short::Plain { kind, payload })
            }
            _ => None,
        }
    }

    #[inline(always)]
    fn on_plain_call(
        &mut self,
        ledger: &mut ShardLedger,
        xid: u32,
        credit: u32,
    ) -> Option<ReplyTo> {
        if self.role == Role::Client {
            return None;
        }
        self.admit_short(ledger, credit)?;
        Some(ReplyTo::plain(xid))
    }

    /// Accepts one transmission of a call. The general way handles a peer that exceeds its grant,
    /// and closes the connection.
    #[inline(always)]
    pub(super) fn admit_short(&mut self, ledger: &mut ShardLedger, credit: u32) -> Option<()> {
        self.inflow.on_call(1).ok()?;
        self.idle_messages = 0;
        self.inflow.on_request(credit);
        self.inflow.grow(&mut ledger.grants);
        Some(())
    }

    #[inline(always)]
    fn on_plain_reply(
        &mut self,
        ledger: &mut ShardLedger,
        xid: u32,
        credit: u32,
    ) -> Option<Finished> {
        let (id, entry) = ledger.calls.find_own(xid, self.peer)?;
        if entry.state != CallState::Sent || credit == 0 || entry.mark != NO_MARK {
            return None;
        }
        self.idle_messages = 0;
        self.credits.on_grant(credit);
        self.end_own_call(ledger, id)
    }

    /// Plans a call without items or results.
    #[inline]
    pub(super) fn begin_plain_call(
        &mut self,
        ledger: &mut ShardLedger,
        id: CallId,
        (payload, reply_payload_max): (u32, u32),
    ) -> Option<ShortPlan> {
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
        let header = Msg::new(id.xid(), self.stamp(Direction::Call));
        Some(ShortPlan::without_item(ShortHeader::Plain(header)))
    }

    /// Plans a reply without items to a call without directions.
    #[inline]
    pub(super) fn begin_plain_reply(
        &mut self,
        ledger: &mut ShardLedger,
        to: &ReplyTo,
        payload: u32,
    ) -> Option<ShortPlan> {
        if payload > self.plain_room() || self.invalidated(to).is_some() {
            return None;
        }
        self.settle(ledger, to);
        let header = Msg::new(to.xid, self.stamp(Direction::Reply));
        Some(ShortPlan::without_item(ShortHeader::Plain(header)))
    }
}
