//! The parts of a continued reply, without the general way.
//!
//! ```text
//!   XMTRESP(count=3), one item ──▶ Partial    XMTCONT ──▶ Partial    XMTCONT ──▶ Complete
//! ```
//! [`Connection::on_part`] takes the transmissions, [`Connection::find_segmented`] finds the item
//! of the complete reply. A transmission that is not exactly of this form, or breaks a rule, takes
//! the general way, the only one that reports errors. Both ways leave the connection in the same
//! state.

use rpcrdma_xdr::numbers::{VERSION_TWO, opttype, proc};
use rpcrdma_xdr::onc::Rpc;
use rpcrdma_xdr::onc::{MsgType, RpcPrefix};
use rpcrdma_xdr::property::RtrSupport;
use rpcrdma_xdr::rtr::fixed::{FixedXmtCont, Operation};
use rpcrdma_xdr::rtr::segmented::SegmentedResp;

use crate::answer::note_reply_count;
use crate::calls::{CallId, CallState, NO_MARK};
use crate::connection::{Connection, ShardLedger};
use crate::group::{Initial, Part, Step};
use crate::ingress::{Complete, Received};
use crate::placement::find::SegmentedItem;
use crate::placement::resolve::resolve_segmented;
use crate::version::Met;

/// The effect of a part of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyPart {
    /// More follow. The buffer stays parked.
    Partial,
    /// The last part. The buffer stays; the group is complete.
    Complete(Complete),
}

impl Connection {
    /// Takes a part of a reply of several transmissions, if it is valid and has the form of nearly
    /// all of them. `None`, without effect: pass it to [`Connection::on_transmission`].
    #[inline]
    pub fn on_part(
        &mut self,
        ledger: &mut ShardLedger,
        at: Received,
        first_segment: &[u8],
    ) -> Option<ReplyPart> {
        if self.met != Met::Both || self.vers != VERSION_TWO {
            return None;
        }
        let operation = Operation::peek(first_segment)?;
        let is_ours = operation.vers.get() == VERSION_TWO && operation.proc.get() == proc::OPTIONAL;
        match operation.opttype.get() {
            opttype::XMTCONT if is_ours => self.on_next_part(ledger, at, first_segment),
            opttype::XMTRESP if is_ours => self.on_first_part(ledger, at, first_segment),
            _ => None,
        }
    }

    fn on_next_part(
        &mut self,
        ledger: &mut ShardLedger,
        at: Received,
        bytes: &[u8],
    ) -> Option<ReplyPart> {
        let FixedXmtCont { operation, end } = FixedXmtCont::read(bytes)?;
        let (xid, number, itype) = (operation.xid.get(), end.xnum.get(), end.itype.get());
        let part = part(at, FixedXmtCont::LEN as u32, end.pslen.get(), 0)?;
        let open = self.group.open()?;
        let credit = operation.credit.get();
        let is_it = open.dir == MsgType::Reply
            && open.check(xid, number, itype).is_ok()
            && credit > 0
            && self.settings.rtr.contains(RtrSupport::XCONT);
        if !is_it {
            return None;
        }
        let (step, group) = self.group.on_next(part)?;
        self.set_gate();
        self.credits.on_grant(credit);
        if step == Step::Partial {
            return Some(ReplyPart::Partial);
        }
        self.idle_messages = 0;
        Some(ReplyPart::Complete(self.on_complete(ledger, group)))
    }

    fn on_first_part(
        &mut self,
        ledger: &mut ShardLedger,
        at: Received,
        bytes: &[u8],
    ) -> Option<ReplyPart> {
        let header = SegmentedResp::read(bytes)?;
        let (xid, credit) = (header.operation.xid.get(), header.operation.credit.get());
        let (count, pslen) = (header.end.count.get(), header.end.pslen.get());
        let part = part(at, header.len, pslen, RpcPrefix::LEN as u32)?;
        let rpc = Rpc::peek(bytes.get(header.len as usize..)?)?;
        let is_reply = rpc.xid.get() == xid && rpc.kind.get() == MsgType::Reply as u32;
        if !is_reply || count < 2 || credit == 0 || self.group.open().is_some() {
            return None;
        }
        let (id, entry) = ledger.calls.find(xid, self.peer)?;
        let limit = entry.reply_count_max;
        let is_due = entry.state == CallState::Sent && entry.is_xmt && entry.wants.len() == 1;
        let initial = Initial { xid, dir: MsgType::Reply, count, limit };
        if !is_due || initial.expect().is_some() || !self.settings.rtr.contains(RtrSupport::XRESP) {
            return None;
        }
        self.credits.on_grant(credit);
        let step = self.group.on_initial(initial, part);
        debug_assert_eq!(step, Ok(Step::Partial), "its count was checked");
        self.set_gate();
        note_reply_count(ledger, id, self.peer, count);
        Some(ReplyPart::Partial)
    }

    /// Checks the item of a complete reply, and finds it. `first_segment` is that of the first
    /// buffer of [`Connection::group`]. `None` if the general way is needed.
    #[inline]
    pub fn find_segmented(
        &self,
        ledger: &ShardLedger,
        id: CallId,
        first_segment: &[u8],
    ) -> Option<SegmentedItem> {
        let (_, entry) = ledger.calls.find(id.xid(), self.peer)?;
        let header = SegmentedResp::read(first_segment)?;
        if entry.mark != NO_MARK {
            return None;
        }
        let (structure, max) = (&self.settings.structure, self.settings.rpc_len_max);
        resolve_segmented(structure, self.group(), &header, &entry.wants, max)
    }
}

/// A transmission with so much payload behind its header, if that is possible (wire.md E10).
#[inline]
fn part(at: Received, payload_start: u32, payload_len: u32, min: u32) -> Option<Part> {
    let Received { buffer, byte_len } = at;
    let max = byte_len.checked_sub(payload_start)?;
    let is_possible = payload_len.is_multiple_of(4) && (min..=max).contains(&payload_len);
    is_possible.then_some(Part { buffer, byte_len, payload_start, payload_len })
}
