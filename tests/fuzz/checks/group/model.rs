//! A model of groups: the rules of wire.md, derived from the history of transmissions.

use rpcrdma_proto::{Ignored, Role};
use rpcrdma_xdr::numbers::{VERSION_ONE, VERSION_TWO, opttype, proc};
use rpcrdma_xdr::{
    BackwardSupport, Body, Mismatch, MsgId, MsgType, Optional, OutOfRange, RdmaError, ReptErr,
    ReptInfo,
};

use super::CREDITS;
use super::sent::{Kind, Sent};

/// The effect of a transmission.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Outcome {
    Call(u32, Vec<u32>),
    Reply(u32, Vec<u32>),
    Unwanted,
    Parked,
    Rejected(Reported),
    Aborted(Reported),
    Ignored(Ignored),
    Failed(u32),
    ReplyRefused(u32),
    Fatal,
}

/// The report to the peer: an XID, and the body of the message.
pub(super) type Reported = (u32, Body<'static>);

/// The model.
pub(super) struct Model {
    pub(super) role: Role,
    pub(super) backward: BackwardSupport,
    pub(super) continues: bool,
    pub(super) limit: u32,
    pub(super) granted: u32,
    /// The credits that the peer requested last: granted with the next call or answer.
    pub(super) wanted: u32,
    pub(super) owed: u32,
    /// The buffers of the open group.
    pub(super) parked: Vec<u32>,
    pub(super) due: Option<Due>,
    /// Whose rest is dropped.
    pub(super) dead: Option<u32>,
    /// Own calls that the peer has not answered.
    pub(super) calls: Vec<Own>,
}

/// An own call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Own {
    pub(super) xid: u32,
    /// The most transmissions of the reply.
    pub(super) most: u32,
    /// Whether it was sent by the extension.
    pub(super) is_xmt: bool,
    /// Whether a part of the reply has arrived.
    pub(super) is_replying: bool,
    /// Whether the program has cancelled it.
    pub(super) is_abandoned: bool,
}

/// The group that is open.
#[derive(Debug, Clone, Copy)]
pub(super) struct Due {
    xid: u32,
    dir: MsgType,
    count: u32,
}

impl Model {
    pub(super) fn call(&mut self, xid: u32) -> Option<Own> {
        self.calls.iter().copied().find(|call| call.xid == xid)
    }

    /// An answer, valid or not, ends a call (wire.md E35). Returns whether the program waits for it
    /// (W26), and `None` if there is no such call.
    fn end(&mut self, xid: u32) -> Option<bool> {
        let at = self.calls.iter().position(|call| call.xid == xid)?;
        Some(!self.calls.swap_remove(at).is_abandoned)
    }

    /// wire.md E5: a message that is no continuation ends the open group. It is named with its own
    /// direction, and if it has none with that of the group.
    pub(super) fn intervene(&mut self, sent: &Sent, len: u32) -> Option<Outcome> {
        let due = self.due?;
        let omt = |current| ReptInfo::BadOmt(Mismatch { expect: opttype::XMTCONT, current });
        let hmt = |current| ReptInfo::BadHmt(Mismatch { expect: proc::OPTIONAL, current });
        let (info, dir) = match sent.kind {
            Kind::Version | Kind::Cont { .. } => return None,
            Kind::Initial { dir: MsgType::Call, .. } => (omt(opttype::XMTREQ), MsgType::Call),
            Kind::Initial { dir: MsgType::Reply, .. } => (omt(opttype::XMTRESP), MsgType::Reply),
            Kind::Report(_) => (omt(opttype::REPTERR), due.dir),
            Kind::Unknown => (omt(99), due.dir),
            Kind::Error => (hmt(proc::ERROR), due.dir),
            Kind::Done => (hmt(proc::DONE), due.dir),
            // Where its payload is cut off it does not say.
            Kind::Msg(_) if len < 36 => (hmt(proc::MSG), due.dir),
            Kind::Msg(dir) => (hmt(proc::MSG), dir),
        };
        if len < shortest(sent.kind) {
            return None;
        }
        self.give_up();
        let bad = first(sent.xid, dir);
        Some(Outcome::Aborted(rept(bad, Some(first(due.xid, due.dir)), info)))
    }

    fn give_up(&mut self) {
        let due = self.due.take().expect("a group is open");
        self.parked.clear();
        self.dead = Some(due.xid);
        match due.dir {
            MsgType::Call => self.owed -= due.count,
            MsgType::Reply => {
                self.end(due.xid);
            }
        }
    }

    pub(super) fn receive(&mut self, sent: &Sent, buffer: u32, len: u32) -> Outcome {
        let Sent { kind, xid, credit, .. } = *sent;
        if let Some(outcome) = self.cut_short(sent, len) {
            return outcome;
        }
        let bad_header = Outcome::Rejected((xid, Body::Error(RdmaError::BadHeader)));
        match kind {
            // wire.md B14
            Kind::Msg(_) if len < 36 && self.role == Role::Client => {
                Outcome::Ignored(Ignored::BadReply)
            }
            Kind::Msg(_) if len < 36 => bad_header,
            Kind::Msg(MsgType::Call) => match self.admit(credit, 1) {
                Some(refused) => refused.unwrap_or(bad_header),
                None => {
                    self.owed += 1;
                    Outcome::Call(xid, vec![buffer])
                }
            },
            Kind::Msg(MsgType::Reply) => match self.call(xid) {
                Some(Own { is_replying: false, .. }) => self.replied(xid, vec![buffer]),
                _ => Outcome::Ignored(Ignored::UnknownReply),
            },
            Kind::Initial { dir: MsgType::Call, count, pslen } => {
                self.request(sent, count, pslen, buffer, len)
            }
            Kind::Initial { dir: MsgType::Reply, count, pslen } => {
                self.response(sent, count, pslen, buffer, len)
            }
            Kind::Cont { xnum, itype, pslen } => {
                self.continuation(sent, xnum, itype, pslen, buffer, len)
            }
            // [RTR] 9.1, Table 4: no message follows.
            Kind::Report(_) if len as usize > sent.header().encoded_len() => {
                Outcome::Ignored(Ignored::BadError)
            }
            Kind::Error | Kind::Report(MsgType::Call) => match self.end(xid) {
                Some(true) => Outcome::Failed(xid),
                Some(false) => Outcome::Ignored(Ignored::LateReply),
                None => Outcome::Ignored(Ignored::UnmatchedError),
            },
            Kind::Report(MsgType::Reply) => Outcome::ReplyRefused(xid),
            Kind::Unknown => Outcome::Rejected((xid, Body::Error(RdmaError::InvalOption))),
            Kind::Done => Outcome::Ignored(Ignored::Done),
            Kind::Version if self.role == Role::Client => Outcome::Ignored(Ignored::OtherVersion),
            Kind::Version => Outcome::Rejected((
                xid,
                Body::Error(RdmaError::Vers { low: VERSION_ONE, high: VERSION_TWO }),
            )),
        }
    }

    /// wire.md B12, and headers that are not whole.
    fn cut_short(&mut self, sent: &Sent, len: u32) -> Option<Outcome> {
        let whole = sent.header().encoded_len() as u32;
        if len < 16 {
            return Some(Outcome::Ignored(Ignored::Short));
        }
        if len >= whole && len >= shortest(sent.kind) {
            return None;
        }
        let bad_header = (sent.xid, Body::Error(RdmaError::BadHeader));
        Some(match sent.kind {
            Kind::Error => Outcome::Ignored(Ignored::BadError),
            kind if len < shortest(kind) => Outcome::Ignored(Ignored::Short),
            Kind::Report(_) => Outcome::Ignored(Ignored::BadError),
            Kind::Cont { .. } if self.due.is_some() => {
                self.give_up();
                Outcome::Aborted(bad_header)
            }
            _ => Outcome::Rejected(bad_header),
        })
    }

    /// Whether a call comes in: `None` if so, `Some(None)` if it is refused as a bad header.
    fn admit(&mut self, credit: u32, count: u32) -> Option<Option<Outcome>> {
        if self.role == Role::Client && self.backward == BackwardSupport::None {
            return Some(None);
        }
        self.wanted = credit.min(CREDITS);
        self.granted = self.granted.max(self.wanted);
        (self.owed + count > self.granted).then_some(Some(Outcome::Fatal))
    }

    fn request(&mut self, sent: &Sent, count: u32, pslen: u32, buffer: u32, len: u32) -> Outcome {
        let xid = sent.xid;
        let limit = if self.continues { self.limit } else { 1 };
        let kill = |model: &mut Self| {
            if count > 1 {
                model.dead = Some(xid);
            }
        };
        let bad_header = Outcome::Rejected((xid, Body::Error(RdmaError::BadHeader)));
        if let Some(info) = bad_length(pslen, 8, len - 44) {
            kill(self);
            return Outcome::Rejected(rept(first(xid, MsgType::Call), None, info));
        }
        if self.role == Role::Client && self.backward != BackwardSupport::General && count != 1 {
            kill(self);
            return bad_header;
        }
        if count == 0 || count > limit {
            if count > 0 {
                kill(self);
            } else {
                self.dead = Some(xid);
            }
            let expect = if count == 0 { 1 } else { limit };
            let info = ReptInfo::BadSeq(Mismatch { expect, current: count });
            return Outcome::Rejected(rept(first(xid, MsgType::Call), None, info));
        }
        if let Some(refused) = self.admit(sent.credit, count) {
            return refused.unwrap_or(bad_header);
        }
        self.owed += count;
        self.open(xid, MsgType::Call, count, buffer).unwrap_or(Outcome::Call(xid, vec![buffer]))
    }

    fn response(&mut self, sent: &Sent, count: u32, pslen: u32, buffer: u32, len: u32) -> Outcome {
        let xid = sent.xid;
        if let Some(info) = bad_length(pslen, 8, len - 36) {
            if count > 1 {
                self.dead = Some(xid);
            }
            self.end(xid);
            return Outcome::Rejected(rept(first(xid, MsgType::Reply), None, info));
        }
        let Some(Own { most, is_xmt, .. }) = self.call(xid) else {
            if count > 1 {
                self.dead = Some(xid);
            }
            return Outcome::Ignored(Ignored::UnknownReply);
        };
        // wire.md E32
        if !is_xmt {
            if count > 1 {
                self.dead = Some(xid);
            }
            self.end(xid);
            return Outcome::Rejected((xid, Body::Error(RdmaError::BadHeader)));
        }
        if count == 0 || count > most {
            self.dead = Some(xid);
            self.end(xid);
            let expect = if count == 0 { 1 } else { most };
            let info = ReptInfo::BadSeq(Mismatch { expect, current: count });
            return Outcome::Rejected(rept(first(xid, MsgType::Reply), None, info));
        }
        let opened = self.open(xid, MsgType::Reply, count, buffer);
        opened.unwrap_or_else(|| self.replied(xid, vec![buffer]))
    }

    /// A group of several begins; a single transmission is whole.
    fn open(&mut self, xid: u32, dir: MsgType, count: u32, buffer: u32) -> Option<Outcome> {
        if count == 1 {
            self.dead = self.dead.filter(|dead| *dead != xid);
            return None;
        }
        (self.parked, self.due, self.dead) = (vec![buffer], Some(Due { xid, dir, count }), None);
        if dir == MsgType::Reply {
            let mut calls = self.calls.iter_mut();
            let call = calls.find(|call| call.xid == xid).expect("it was just found");
            call.is_replying = true;
        }
        Some(Outcome::Parked)
    }

    fn continuation(
        &mut self,
        sent: &Sent,
        xnum: u32,
        itype: u32,
        pslen: u32,
        buffer: u32,
        len: u32,
    ) -> Outcome {
        let xid = sent.xid;
        if !self.continues {
            return Outcome::Rejected((xid, Body::Error(RdmaError::InvalOption)));
        }
        let Some(due) = self.due else {
            let dir = if itype == opttype::XMTRESP { MsgType::Reply } else { MsgType::Call };
            let bad = MsgId { xid, dir, seq: xnum };
            return match self.dead == Some(xid) {
                true => Outcome::Ignored(Ignored::AbortedRest),
                false => Outcome::Rejected(rept(bad, None, ReptInfo::BadCont)),
            };
        };
        let next = self.parked.len() as u32;
        let begun = match due.dir {
            MsgType::Call => opttype::XMTREQ,
            MsgType::Reply => opttype::XMTRESP,
        };
        let wrong = if xid != due.xid {
            Some(ReptInfo::BadXid(Mismatch { expect: due.xid, current: xid }))
        } else if xnum != next {
            Some(ReptInfo::BadSeq(Mismatch { expect: next, current: xnum }))
        } else if let Some(info) = bad_length(pslen, 0, len - 36) {
            Some(info)
        } else if itype != 0 && itype != begun {
            Some(ReptInfo::BadOmt(Mismatch { expect: begun, current: itype }))
        } else {
            None
        };
        if let Some(info) = wrong {
            self.give_up();
            let dir = match itype {
                opttype::XMTREQ => MsgType::Call,
                opttype::XMTRESP => MsgType::Reply,
                _ => due.dir,
            };
            let bad = MsgId { xid, dir, seq: xnum };
            return Outcome::Aborted(rept(bad, Some(first(due.xid, due.dir)), info));
        }
        if due.dir == MsgType::Call {
            self.wanted = sent.credit.min(CREDITS);
        }
        if next + 1 < due.count {
            self.parked.push(buffer);
            return Outcome::Parked;
        }
        self.due = None;
        let mut buffers = std::mem::take(&mut self.parked);
        buffers.push(buffer);
        match due.dir {
            MsgType::Call => Outcome::Call(xid, buffers),
            MsgType::Reply => match self.end(xid) {
                Some(true) => Outcome::Reply(xid, buffers),
                Some(false) | None => Outcome::Unwanted,
            },
        }
    }

    /// The reply to a call is here, in one transmission.
    fn replied(&mut self, xid: u32, buffers: Vec<u32>) -> Outcome {
        match self.end(xid) {
            Some(true) => Outcome::Reply(xid, buffers),
            Some(false) | None => Outcome::Ignored(Ignored::LateReply),
        }
    }
}

fn rept(bad: MsgId, lead: Option<MsgId>, info: ReptInfo) -> Reported {
    (bad.xid, Body::Optional(Optional::ReptErr(ReptErr { bad, lead, info })))
}

fn first(xid: u32, dir: MsgType) -> MsgId {
    MsgId { xid, dir, seq: 0 }
}

/// wire.md E10.
fn bad_length(value: u32, min: u32, max: u32) -> Option<ReptInfo> {
    let good = value.is_multiple_of(4) && (min..=max).contains(&value);
    (!good).then_some(ReptInfo::BadPl(OutOfRange { value, min, max }))
}

/// wire.md B12: the bytes of the shortest message of a kind.
fn shortest(kind: Kind) -> u32 {
    match kind {
        Kind::Error => 20,
        Kind::Initial { .. } | Kind::Cont { .. } | Kind::Report(_) | Kind::Unknown => 24,
        Kind::Msg(_) | Kind::Done | Kind::Version => 28,
    }
}
