//! Received transmissions off the data path: properties, errors, and invalid messages.

use rpcrdma_xdr::error::DecodeError;
use rpcrdma_xdr::header::{Body, Header, Optional, Prefix, RdmaError};
use rpcrdma_xdr::numbers::{VERSION_ONE, VERSION_TWO, opttype, proc, size};
use rpcrdma_xdr::onc::{MsgType, RpcPrefix};
use rpcrdma_xdr::property::RtrSupport;
use rpcrdma_xdr::rtr::report::{MsgId, ReptErr, ReptInfo};

use crate::calls::CallId;
use crate::connection::{Connection, ShardLedger};
use crate::error::{Fatal, Violation};
use crate::group::OpenGroup;
use crate::incoming::Incoming;
use crate::ingress::{Control, ControlSend, Ignored, Ingress};
use crate::property::Applied;
use crate::report::{Refusal, Report, ReportKind, direction_of, initial_of, subject_of};
use crate::settings::Role;
use crate::version::UNDECIDED;

impl Connection {
    /// While a group is open: any message but its continuation ends it, also an error (wire.md E5).
    /// What is dropped unread is not a message.
    #[cold]
    pub(crate) fn on_while_open<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        open: OpenGroup,
        bytes: &[u8],
    ) -> Option<Ingress<'a>> {
        let prefix = Prefix::decode(bytes).ok()?;
        let is_of_ours = prefix.vers == VERSION_TWO || prefix.proc == proc::ERROR;
        if !is_of_ours || bytes.len() < prefix.shortest() {
            return None;
        }
        let option = (prefix.proc == proc::OPTIONAL).then(|| word(bytes, size::PREFIX));
        if option == Some(opttype::XMTCONT) {
            return None;
        }
        let violation = open.intervention(prefix.proc, option);
        self.group.abort();
        let dir = match option {
            Some(option) => direction_of(option),
            None => direction_in_base(bytes),
        };
        let bad = MsgId { xid: prefix.xid, dir: dir.unwrap_or(open.dir), seq: 0 };
        Some(self.abort(ledger, open, violation, bad, true))
    }

    /// Handles everything outside of the data path.
    #[cold]
    pub(crate) fn on_other<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        incoming: Incoming<'a>,
        body: &Body<'a>,
    ) -> Ingress<'a> {
        match body {
            Body::Error(error) => self.on_error(ledger, incoming.xid, *error),
            // wire.md B12: the only one that decodes despite being too short.
            Body::Done if incoming.at.byte_len < size::HEADER_MIN as u32 => {
                self.ignore(Ignored::Short)
            }
            Body::Done => self.ignore(Ignored::Done),
            Body::Msg(chunks) | Body::NoMsg(chunks) => {
                self.on_chunks(ledger, &incoming, body, chunks)
            }
            Body::Msgp { .. } => self.on_msgp(&incoming),
            Body::Optional(optional) => self.on_optional(ledger, &incoming, optional),
        }
    }

    /// Operations of RFC 5666 that RFC 8166 removed: an error for a call, nothing for a reply
    /// (wire.md B6).
    fn on_msgp<'a>(&mut self, incoming: &Incoming<'_>) -> Ingress<'a> {
        let is_call = match incoming.rpc_prefix() {
            Ok(RpcPrefix { kind, .. }) => kind == MsgType::Call,
            Err(_) => self.role == Role::Server,
        };
        match is_call {
            true => self.reject(incoming, Violation::BadHeader("RDMA_MSGP is gone"), MsgType::Call),
            false => self.ignore(Ignored::BadReply),
        }
    }

    fn on_optional<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        incoming: &Incoming<'_>,
        optional: &Optional<'_>,
    ) -> Ingress<'a> {
        if let Optional::ReptErr(report) = optional {
            // [RTR] 9.1, Table 4: no message follows.
            return match incoming.at.byte_len > incoming.start {
                true => self.ignore(Ignored::BadError),
                false => self.on_rept_err(ledger, report),
            };
        }
        let opttype = optional.opttype();
        if !self.supports(opttype) {
            self.on_accepted();
            let violation = Violation::UnknownOption { opttype };
            return self.reject(incoming, violation, MsgType::Call);
        }
        // [XCHAR] 2.2, Table 2: no message follows.
        if incoming.at.byte_len > incoming.start {
            let violation = Violation::BadHeader("a payload follows a property operation");
            return self.reject(incoming, violation, MsgType::Call);
        }
        let became_ready = !self.ready;
        self.on_accepted();
        // wire.md B11
        match self.role {
            Role::Client => self.on_credit(incoming.credit, MsgType::Reply),
            Role::Server => self.on_credit(incoming.credit, MsgType::Call),
        }
        self.inflow.grow(&mut ledger.grants);
        let applied = match optional {
            Optional::ConnProp(properties) => self.revise(|it, _| it.on_connprop(properties)),
            Optional::UpdProp(update) => self.revise(|it, _| it.on_updprop(update)),
            Optional::ReqProp(request) => {
                let answer = self.revise(|exchange, own| exchange.on_reqprop(request, own));
                let answer = Some(ControlSend::RespProp { xid: incoming.xid, answer });
                return Ingress::Control(Control { became_ready, answer });
            }
            Optional::RespProp(answer) => {
                let xid = incoming.xid;
                return match self.revise(|exchange, _| exchange.on_resprop(xid, answer)) {
                    Some(outcome) => Ingress::PropertiesAnswered(outcome),
                    None => self.ignore(Ignored::UnaskedProperties),
                };
            }
            // All other operations are handled above.
            _ => return self.ignore(Ignored::UnaskedProperties),
        };
        match applied {
            Applied::Taken { skipped } => self.counters.skipped_properties += u64::from(skipped),
            Applied::Repeated => return self.ignore(Ignored::RepeatedProperties),
        }
        // wire.md B2: the server answers with the xid of the client's message.
        let due = self.role == Role::Server && !self.exchange().is_sent();
        let answer = due.then(|| self.state_properties(incoming.xid));
        Ingress::Control(Control { became_ready, answer })
    }

    /// RDMA_ERROR: own calls first, then our properties (wire.md B9). Errors carry no credits
    /// (wire.md B11).
    pub(crate) fn on_error<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        xid: u32,
        error: RdmaError,
    ) -> Ingress<'a> {
        self.counters.errors += 1;
        if let RdmaError::Vers { low, high } = error
            && self.role == Role::Client
            && !self.is_accepted()
        {
            return self.on_version_refused(ledger, xid, [low, high]);
        }
        if let Some(failed) = self.fail_sent(ledger, xid) {
            self.on_accepted();
            return match (failed, error) {
                // wire.md E33: an unknown operation was not executed.
                (Ok((id, true)), RdmaError::InvalOption) => self.again(ledger, id, error.into()),
                (Ok((id, _)), _) => Ingress::Failed(id, error.into()),
                (Err(reason), _) => self.ignore(reason),
            };
        }
        // wire.md B9: own requests come after own calls.
        if let Some(outcome) = self.revise(|exchange, _| exchange.on_error(xid, error)) {
            return Ingress::PropertiesAnswered(outcome);
        }
        let asked = self.role == Role::Client && self.exchange().is_sent();
        if asked && xid == self.control_xid() && !self.exchange().is_received() {
            // wire.md B3: version two, without properties.
            let became_ready = !self.ready;
            self.on_accepted();
            return Ingress::Control(Control { became_ready, answer: None });
        }
        self.ignore(Ignored::UnmatchedError)
    }

    /// REPTERR: never answered (wire.md E34). Like any error, one about an unknown message shows
    /// nothing of the peer (wire.md B2).
    fn on_rept_err<'a>(&mut self, ledger: &mut ShardLedger, report: &ReptErr) -> Ingress<'a> {
        self.counters.errors += 1;
        let MsgId { xid, dir, .. } = subject_of(report);
        let refusal = Refusal::Reported(report.info);
        let failed = match dir {
            // A reply can only have gone to a peer that is accepted.
            MsgType::Reply if self.is_accepted() => return Ingress::ReplyRefused { xid, refusal },
            MsgType::Reply => None,
            MsgType::Call => self.fail_sent(ledger, xid),
        };
        let Some(failed) = failed else { return self.ignore(Ignored::UnmatchedError) };
        self.on_accepted();
        match failed {
            // wire.md E35: what is reported is found before anything is executed.
            Ok((id, true)) => self.again(ledger, id, refusal),
            Ok((id, false)) => Ingress::Failed(id, refusal),
            Err(reason) => self.ignore(reason),
        }
    }

    /// The peer refused a call for its form: calls no longer use the extension. If the extension
    /// was in use before, the length of groups is the first suspect.
    fn again<'a>(&mut self, ledger: &ShardLedger, id: CallId, refusal: Refusal) -> Ingress<'a> {
        let is_group = ledger.calls.find(id.xid(), self.peer).is_some_and(|(_, it)| it.credits > 1);
        let operation = match (is_group, refusal) {
            (true, Refusal::Reported(ReptInfo::BadSeq(_))) => RtrSupport::XCONT,
            _ => RtrSupport::XREQ,
        };
        self.revise(|exchange, _| exchange.on_unsupported(operation));
        Ingress::Again(id, refusal)
    }

    /// Whether an operation of version two is supported and enabled. Reports always are.
    fn supports(&self, opttype: u32) -> bool {
        match opttype {
            opttype::CONNPROP..=opttype::UPDPROP => self.settings.properties,
            opttype::XMTREQ => self.settings.rtr.contains(RtrSupport::XREQ),
            opttype::XMTRESP => self.settings.rtr.contains(RtrSupport::XRESP),
            opttype::XMTCONT => self.settings.rtr.contains(RtrSupport::XCONT),
            opttype::REPTERR => true,
            _ => false,
        }
    }

    /// Counts the peer's messages without effect. A conforming peer sends few of them between calls
    /// and replies (wire.md W13).
    #[inline]
    pub(crate) fn note_progress<'a>(&mut self, ingress: Ingress<'a>) -> Ingress<'a> {
        match ingress {
            Ingress::Call(_)
            | Ingress::Reply(..)
            | Ingress::Complete(_)
            | Ingress::Again(..)
            | Ingress::Failed(..)
            | Ingress::BadReply { .. } => {
                self.idle_messages = 0;
                ingress
            }
            // The late reply to a cancelled call is no fault of the peer, and ends the call.
            Ingress::Partial | Ingress::Ignored(Ignored::LateReply) | Ingress::Fatal(_) => ingress,
            other => self.count_idle(other),
        }
    }

    #[cold]
    fn count_idle<'a>(&mut self, ingress: Ingress<'a>) -> Ingress<'a> {
        if self.idle_messages < IDLE_MESSAGES_MAX {
            self.idle_messages += 1;
            return ingress;
        }
        if matches!(ingress, Ingress::Aborted(_)) {
            self.group.keep_parts();
        }
        let limit = u32::from(IDLE_MESSAGES_MAX);
        Ingress::Fatal(Fatal::ControlFlood { messages: limit + 1, limit })
    }

    /// Subtracts so many messages without effect. Called at intervals, so that a connection without
    /// calls is not closed in the long run (wire.md W13).
    #[inline]
    pub fn forgive_idle_messages(&mut self, count: u8) {
        self.idle_messages = self.idle_messages.saturating_sub(count);
    }

    /// A message whose header does not decode, or that has another version.
    #[cold]
    pub(crate) fn on_undecodable<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        bytes: &[u8],
        error: Option<DecodeError>,
    ) -> Ingress<'a> {
        let Ok(prefix) = Prefix::decode(bytes) else { return self.ignore(Ignored::Short) };
        let Prefix { xid, vers, proc, .. } = prefix;
        if proc == proc::ERROR {
            return self.ignore(Ignored::BadError);
        }
        let shortest = if vers == self.vers { prefix.shortest() } else { size::HEADER_MIN };
        if bytes.len() < shortest {
            return self.ignore(Ignored::Short);
        }
        // RFC 8166 4.2.4, 4.5: a requester does not answer messages that it cannot decode.
        let Some(error) = error.filter(|_| vers == self.vers && vers != UNDECIDED) else {
            if self.role == Role::Client {
                return self.ignore(Ignored::OtherVersion);
            }
            self.counters.reported += 1;
            return Ingress::Reject(Report { xid, kind: ReportKind::Version { vers } });
        };
        if self.role == Role::Client && (proc != proc::OPTIONAL || vers == VERSION_ONE) {
            return self.ignore(Ignored::BadReply);
        }
        let is_option = proc == proc::OPTIONAL && vers == VERSION_TWO;
        let option = is_option.then(|| word(bytes, size::PREFIX));
        if option == Some(opttype::REPTERR) {
            return self.ignore(Ignored::BadError);
        }
        let violation = match option {
            // [V2] 3.1: an unsupported operation is not decoded.
            Some(opttype) if !self.supports(opttype) && has_whole_info(bytes) => {
                Violation::UnknownOption { opttype }
            }
            _ => Violation::Undecodable(error),
        };
        if let Some(open) = self.group.abort() {
            // Only a continuation gets here while a group is open; it belongs to the group.
            let bad = MsgId { xid, dir: open.dir, seq: 0 };
            return self.abort(ledger, open, violation, bad, false);
        }
        self.counters.reported += 1;
        Ingress::Reject(Report::of(violation, initial_of(xid, MsgType::Call), None))
    }
}

/// The most consecutive messages of a peer that are handled without effect (wire.md W13).
pub const IDLE_MESSAGES_MAX: u8 = 128;

/// The direction of a message of the base protocol, if it has one (wire.md B9).
fn direction_in_base(bytes: &[u8]) -> Option<MsgType> {
    let (Header { body, .. }, len) = Header::decode(bytes).ok()?;
    match body {
        Body::Msg(_) => Some(RpcPrefix::decode(bytes.get(len..)?).ok()?.kind),
        Body::NoMsg(chunks) if chunks.reads.is_empty() => Some(MsgType::Reply),
        Body::NoMsg(_) => Some(MsgType::Call),
        Body::Msgp { .. } | Body::Done | Body::Error(_) | Body::Optional(_) => None,
    }
}

/// Whether all of `rdma_optinfo` is there.
fn has_whole_info(bytes: &[u8]) -> bool {
    let len = word(bytes, size::OPTIONAL - 4) as usize;
    bytes.len().saturating_sub(size::OPTIONAL) & !3 >= len
}

/// The big-endian word at `at`; zero beyond the end.
fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk());
    word.map_or(0, |word| u32::from_be_bytes(*word))
}
