//! Handles received transmissions: the classification of wire.md, and the state changes.

mod chunks;

use rpcrdma_xdr::header::{Body, Header, Optional, RdmaError};
use rpcrdma_xdr::numbers::limit::GROUP_MAX;
use rpcrdma_xdr::numbers::opttype;
use rpcrdma_xdr::onc::{MsgType, RpcPrefix};
use rpcrdma_xdr::property::{BackwardSupport, RtrSupport};
use rpcrdma_xdr::rtr::report::MsgId;
use rpcrdma_xdr::rtr::transmit::{XmtCont, XmtReq, XmtResp};

use crate::answer::note_reply_count;
use crate::connection::{Connection, ShardLedger};
use crate::credit::Overstep;
use crate::error::{Fatal, Violation};
use crate::group::{ContinuationError, Initial, OpenGroup, Part, Step};
use crate::incoming::{Incoming, XID_MISMATCH};
use crate::ingress::{Aborted, Complete, Ignored, Ingress, Message, Received};
use crate::placement::resolve::check_count;
use crate::report::{Report, direction_of, initial_of};
use crate::settings::Role;
use crate::version::Met;

impl Connection {
    /// Takes any transmission. `first_segment` holds the bytes received into the first segment of
    /// the buffer, at most `byte_len`: every header must lie in it.
    ///
    /// Costs tens of nanoseconds. Nearly everything that arrives is a plain message, for which
    /// [`Connection::on_short`] is the shorter way.
    pub fn on_transmission<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        at: Received,
        first_segment: &'a [u8],
    ) -> Ingress<'a> {
        debug_assert!(first_segment.len() <= at.byte_len as usize, "cut to what was received");
        if self.met != Met::Both {
            self.meet(first_segment);
        }
        let ingress = self.classify(ledger, at, first_segment);
        self.set_gate();
        self.note_progress(ingress)
    }

    #[inline]
    fn classify<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        at: Received,
        first_segment: &'a [u8],
    ) -> Ingress<'a> {
        if let Some(open) = self.group.open().copied()
            && let Some(ingress) = self.on_while_open(ledger, open, first_segment)
        {
            return ingress;
        }
        match Header::decode(first_segment) {
            Ok((Header { xid, vers, credit, body }, len)) if vers == self.vers => {
                let start = len as u32;
                let incoming = Incoming { at, bytes: first_segment, xid, credit, start };
                match body {
                    Body::Msg(chunks) if chunks.is_empty() => self.on_msg(ledger, incoming),
                    Body::Optional(Optional::XmtReq(req)) => self.on_xmtreq(ledger, incoming, &req),
                    Body::Optional(Optional::XmtResp(resp)) => {
                        self.on_xmtresp(ledger, incoming, &resp)
                    }
                    Body::Optional(Optional::XmtCont(cont)) => {
                        self.on_xmtcont(ledger, incoming, cont)
                    }
                    body => self.on_other(ledger, incoming, &body),
                }
            }
            Ok((Header { xid, body: Body::Error(RdmaError::Vers { low, high }), .. }, _)) => {
                // wire.md B4: an ERR_VERS of any version.
                self.on_error(ledger, xid, RdmaError::Vers { low, high })
            }
            Ok(_) => self.on_undecodable(ledger, first_segment, None),
            Err(error) => self.on_undecodable(ledger, first_segment, Some(error)),
        }
    }

    /// An RDMA_MSG without chunks.
    fn on_msg<'a>(&mut self, ledger: &mut ShardLedger, incoming: Incoming<'a>) -> Ingress<'a> {
        let Incoming { at, xid, credit, .. } = incoming;
        let kind = match incoming.rpc_prefix() {
            Ok(RpcPrefix { xid: rpc_xid, kind }) if rpc_xid == xid => kind,
            Ok(RpcPrefix { kind: MsgType::Reply, .. }) => return self.ignore(Ignored::BadReply),
            Ok(_) => return self.reject(&incoming, XID_MISMATCH, MsgType::Call),
            // RFC 8166 4.5: a requester does not answer messages that it cannot decode.
            Err(_) if self.role == Role::Client => return self.ignore(Ignored::BadReply),
            Err(error) => {
                return self.reject(&incoming, Violation::Undecodable(error), MsgType::Call);
            }
        };
        // Each arm makes the message where it is returned: no copy.
        match kind {
            MsgType::Call => match self.admit_call(ledger, credit, 1) {
                Ok(()) => Ingress::Call(Message::plain(xid, at)),
                Err(refused) => self.refused(xid, refused),
            },
            MsgType::Reply => match self.take_reply(ledger, xid, credit) {
                Ok(id) => Ingress::Reply(id, Message::plain(xid, at)),
                Err(reason) => self.ignore(reason),
            },
        }
    }

    #[inline]
    fn on_xmtreq<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        incoming: Incoming<'a>,
        req: &XmtReq<'a>,
    ) -> Ingress<'a> {
        let XmtReq { dp, rsd, count, rsbuf, pslen } = *req;
        let part = match self.check_initial(&incoming, RtrSupport::XREQ, MsgType::Call, pslen) {
            Ok(part) => part,
            Err(violation) => {
                return self.reject_initial(&incoming, violation, MsgType::Call, count);
            }
        };
        // wire.md P13: what we take as inline backward calls is single and without placement.
        if self.role == Role::Client
            && self.settings.backward != BackwardSupport::General
            && (count != 1 || !dp.is_empty() || !rsd.is_empty())
        {
            let violation = Violation::BadHeader("backward calls are inline only");
            return self.reject_initial(&incoming, violation, MsgType::Call, count);
        }
        let limit = match self.settings.rtr.contains(RtrSupport::XCONT) {
            true => self.settings.request_rx_limit,
            false => 1,
        };
        let initial = Initial { xid: incoming.xid, dir: MsgType::Call, count, limit };
        if count > limit.min(GROUP_MAX) {
            // Checked before the credits: a rejected message takes none.
            let violation = Violation::GroupSize { expect: limit, current: count };
            return self.reject_initial(&incoming, violation, MsgType::Call, count);
        }
        if count > 0
            && let Err(refused) = self.admit_call(ledger, incoming.credit, count)
        {
            return self.refused(incoming.xid, refused);
        }
        match self.group.on_initial(initial, part) {
            Ok(Step::Complete) => {
                let message = Message::xmt(incoming.xid, part, dp, count);
                Ingress::Call(Message { rsd, rsbuf, ..message })
            }
            Ok(Step::Partial) => Ingress::Partial,
            Err(violation) => self.reject(&incoming, violation, MsgType::Call),
        }
    }

    #[inline]
    fn on_xmtresp<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        incoming: Incoming<'a>,
        resp: &XmtResp<'a>,
    ) -> Ingress<'a> {
        let XmtResp { dp, count, pslen } = *resp;
        let part = match self.check_initial(&incoming, RtrSupport::XRESP, MsgType::Reply, pslen) {
            Ok(part) => part,
            Err(violation) => {
                return self.reject_reply_initial(ledger, &incoming, violation, count);
            }
        };
        let xid = incoming.xid;
        let Some((id, entry)) = self.admit_reply(ledger, xid, incoming.credit) else {
            if count > 1 {
                self.group.drop_rest(xid);
            }
            return self.ignore(Ignored::UnknownReply);
        };
        // wire.md E32
        if !entry.is_xmt {
            let violation = Violation::BadHeader("a transmit response answers a base call");
            return self.reject_reply_initial(ledger, &incoming, violation, count);
        }
        // wire.md E25: checked early, so that a plain message needs no resolution.
        if let Err(violation) = check_count(dp.len(), &entry.wants) {
            return self.reject_reply_initial(ledger, &incoming, violation, count);
        }
        let initial = Initial { xid, dir: MsgType::Reply, count, limit: entry.reply_count_max };
        match self.group.on_initial(initial, part) {
            Ok(Step::Complete) => match self.on_answer(ledger, id) {
                Ok(id) => Ingress::Reply(id, Message::xmt(xid, part, dp, count)),
                Err(reason) => self.ignore(reason),
            },
            Ok(Step::Partial) => {
                note_reply_count(ledger, id, self.peer, count);
                Ingress::Partial
            }
            Err(violation) => self.reject_reply_initial(ledger, &incoming, violation, 1),
        }
    }

    fn on_xmtcont<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        incoming: Incoming<'a>,
        cont: XmtCont,
    ) -> Ingress<'a> {
        let XmtCont { xnum, itype, pslen } = cont;
        let xid = incoming.xid;
        if !self.settings.rtr.contains(RtrSupport::XCONT) {
            let violation = Violation::UnknownOption { opttype: opttype::XMTCONT };
            return self.reject(&incoming, violation, MsgType::Call);
        }
        // It says which way it goes, unless it leaves that to its group (wire.md E3).
        let dir = direction_of(itype);
        let bad = |otherwise| MsgId { xid, dir: dir.unwrap_or(otherwise), seq: xnum };
        let part = match incoming.part(pslen, 0) {
            Ok(part) => part,
            // Its group is checked first; if that is open, the length is.
            Err(violation) => match self.group.open().copied() {
                Some(open) if open.xid == xid && open.next == xnum => {
                    self.group.abort();
                    return self.abort(ledger, open, violation, bad(open.dir), false);
                }
                _ => incoming.empty_part(),
            },
        };
        match self.group.on_continuation(xid, xnum, itype, part) {
            Ok((step, group)) => {
                self.on_credit(incoming.credit, group.dir);
                match step {
                    Step::Partial => Ingress::Partial,
                    Step::Complete => Ingress::Complete(self.on_complete(ledger, group)),
                }
            }
            Err(ContinuationError::Aborted(open, violation)) => {
                self.abort(ledger, open, violation, bad(open.dir), false)
            }
            Err(ContinuationError::Unexpected(violation)) => {
                self.counters.reported += 1;
                Ingress::Reject(Report::of(violation, bad(MsgType::Call), None))
            }
            Err(ContinuationError::Dropped) => self.ignore(Ignored::AbortedRest),
        }
    }

    pub(crate) fn on_complete(&mut self, ledger: &mut ShardLedger, group: OpenGroup) -> Complete {
        match group.dir {
            MsgType::Call => Complete::Call,
            MsgType::Reply => {
                let call = ledger.calls.find(group.xid, self.peer).map(|(id, _)| id);
                match call.map(|id| self.on_answer(ledger, id)) {
                    Some(Ok(id)) => Complete::Reply(id),
                    Some(Err(_)) | None => Complete::Unwanted,
                }
            }
        }
    }

    /// Whether a call is accepted: backward calls only if supported, and never more than granted.
    #[inline]
    pub(crate) fn admit_call(
        &mut self,
        ledger: &mut ShardLedger,
        credit: u32,
        count: u32,
    ) -> Result<(), Refused> {
        if self.role == Role::Client && self.settings.backward == BackwardSupport::None {
            return Err(Refused::Backward);
        }
        self.on_accepted();
        self.inflow.on_request(credit);
        self.inflow.grow(&mut ledger.grants);
        self.inflow.on_call(count).map_err(Refused::Overstep)
    }

    #[cold]
    pub(crate) fn refused<'a>(&mut self, xid: u32, refused: Refused) -> Ingress<'a> {
        match refused {
            Refused::Backward => {
                let violation = Violation::BadHeader("backward calls are not taken");
                self.counters.reported += 1;
                Ingress::Reject(Report::of(violation, initial_of(xid, MsgType::Call), None))
            }
            Refused::Overstep(Overstep { outstanding, granted }) => {
                Ingress::Fatal(Fatal::CreditOverstep { outstanding, granted })
            }
        }
    }

    /// wire.md B11: a call asks for credits, a reply grants them.
    #[inline]
    pub(crate) fn on_credit(&mut self, credit: u32, dir: MsgType) {
        match dir {
            MsgType::Call => self.inflow.on_request(credit),
            MsgType::Reply => {
                self.counters.zero_grants += u64::from(credit == 0);
                self.credits.on_grant(credit);
            }
        }
    }

    /// Any message of our version but an error of another is an acceptance (wire.md B2).
    #[inline]
    pub(crate) fn on_accepted(&mut self) {
        if self.met == Met::Neither {
            self.accept();
        }
    }

    /// Checks the first transmission of a message of the extension.
    #[inline]
    fn check_initial(
        &self,
        incoming: &Incoming<'_>,
        needs: RtrSupport,
        dir: MsgType,
        pslen: u32,
    ) -> Result<Part, Violation> {
        if !self.settings.rtr.contains(needs) {
            let opttype = match dir {
                MsgType::Call => opttype::XMTREQ,
                MsgType::Reply => opttype::XMTRESP,
            };
            return Err(Violation::UnknownOption { opttype });
        }
        let part = incoming.part(pslen, RpcPrefix::LEN as u32)?;
        let prefix = incoming.rpc_prefix().map_err(Violation::Undecodable)?;
        if prefix.xid != incoming.xid {
            return Err(XID_MISMATCH);
        }
        if prefix.kind != dir {
            return Err(Violation::BadHeader("the operation and the payload disagree"));
        }
        Ok(part)
    }

    /// Aborts the open group, whose rest does not come. Returns the actions, and the report to send
    /// (\[RTR\] 5.4; wire.md E39). [`Connection::group`] names the buffers parked for it. `None` if
    /// no group is open.
    #[cold]
    pub fn expire_group(&mut self, ledger: &mut ShardLedger) -> Option<Aborted> {
        let open = self.group.abort()?;
        self.set_gate();
        let OpenGroup { xid, dir, next, .. } = open;
        let bad = MsgId { xid, dir, seq: next - 1 };
        let violation = Violation::Missing { expect: next, current: next - 1 };
        Some(self.end_group(ledger, open, violation, bad, false))
    }

    /// As [`Connection::end_group`], for a group that a transmission ends.
    pub(crate) fn abort<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        open: OpenGroup,
        violation: Violation,
        bad: MsgId,
        again: bool,
    ) -> Ingress<'a> {
        Ingress::Aborted(self.end_group(ledger, open, violation, bad, again))
    }

    /// The end of an aborted group: its credits are as before it, and the call that it answers has
    /// failed.
    fn end_group(
        &mut self,
        ledger: &mut ShardLedger,
        open: OpenGroup,
        violation: Violation,
        bad: MsgId,
        again: bool,
    ) -> Aborted {
        let failed = match open.dir {
            MsgType::Call => {
                self.inflow.on_answer(open.count);
                None
            }
            MsgType::Reply => self.refuse_reply(ledger, open.xid).map(|id| (id, violation)),
        };
        self.counters.reported += 1;
        let report = Report::of(violation, bad, Some(initial_of(open.xid, open.dir)));
        Aborted { report, again, failed }
    }

    #[cold]
    fn reject_initial<'a>(
        &mut self,
        incoming: &Incoming<'_>,
        violation: Violation,
        dir: MsgType,
        count: u32,
    ) -> Ingress<'a> {
        if count > 1 {
            self.group.drop_rest(incoming.xid);
        }
        self.reject(incoming, violation, dir)
    }

    /// Rejects a reply, which fails its call.
    #[cold]
    fn reject_reply_initial<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        incoming: &Incoming<'_>,
        violation: Violation,
        count: u32,
    ) -> Ingress<'a> {
        if count > 1 {
            self.group.drop_rest(incoming.xid);
        }
        self.counters.reported += 1;
        let report = Report::of(violation, initial_of(incoming.xid, MsgType::Reply), None);
        match self.refuse_reply(ledger, incoming.xid) {
            Some(id) => Ingress::BadReply { id, violation, report },
            None => Ingress::Reject(report),
        }
    }

    #[cold]
    pub(crate) fn reject<'a>(
        &mut self,
        incoming: &Incoming<'_>,
        violation: Violation,
        dir: MsgType,
    ) -> Ingress<'a> {
        self.counters.reported += 1;
        Ingress::Reject(Report::of(violation, initial_of(incoming.xid, dir), None))
    }

    #[cold]
    pub(crate) fn ignore<'a>(&mut self, reason: Ignored) -> Ingress<'a> {
        self.counters.ignored[reason as usize] += 1;
        Ingress::Ignored(reason)
    }
}

/// Why a call is not accepted.
pub(crate) enum Refused {
    Backward,
    Overstep(Overstep),
}
