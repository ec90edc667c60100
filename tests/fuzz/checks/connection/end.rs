//! One end: its connection, its transmissions, its calls, and the calls that it has to answer.

use std::collections::{BTreeMap, VecDeque};

use rpcrdma_proto::{
    Aborted, CallDemand, CallId, Control, ControlSend, Explicit, Finished, Ignored, Ingress,
    Offered, Refusal, ReplyDemand, Report, Role, SendError, Settings, Short, ShortKind,
};
use rpcrdma_xdr::rtr::fixed::Msg;
use rpcrdma_xdr::{Body, Header, Optional};

use crate::checks::choices::Choices;
use crate::checks::content::{Content, Shape, Whole, any_want, is_too_long, offer};
use crate::checks::foreign;
use crate::checks::memory::{Laid, Memory};
use crate::checks::side::Side;

/// One end.
pub(super) struct End {
    pub(super) side: Side,
    /// Its transmissions that were not delivered yet.
    pub(super) outbox: VecDeque<Vec<u8>>,
    /// Its exposed memory.
    pub(super) memory: Memory,
    /// Its open calls, by xid.
    calls: BTreeMap<u32, Open>,
    /// The calls of the other that it has not answered.
    unanswered: Vec<Whole>,
    /// Transmissions of the call that is arriving.
    arriving: u32,
    /// The name of the call made last.
    tokens: u64,
    /// Its last transmissions.
    sent: VecDeque<Vec<u8>>,
}

/// A call that is open.
struct Open {
    id: CallId,
    token: u64,
    content: Content,
    reply: Shape,
    laid: Laid,
    /// Whether it was delivered.
    is_delivered: bool,
}

impl End {
    pub(super) fn new(role: Role, settings: Settings) -> Self {
        Self {
            side: Side::new(role, settings),
            outbox: VecDeque::new(),
            memory: Memory::default(),
            calls: BTreeMap::new(),
            unanswered: Vec::new(),
            arriving: 0,
            tokens: 0,
            sent: VecDeque::new(),
        }
    }

    /// Sends the first message, if there is one.
    pub(super) fn begin(&mut self) {
        if let Some(hello) = self.side.conn.begin() {
            self.send_control(hello);
        }
    }

    /// The xids of its open calls.
    pub(super) fn xids(&self) -> Vec<u32> {
        self.calls.keys().copied().chain(self.unanswered.iter().map(|call| call.to.xid)).collect()
    }

    /// Whether no call is open and every transmission was delivered.
    pub(super) fn is_idle(&self) -> bool {
        self.calls.is_empty() && self.unanswered.is_empty() && self.outbox.is_empty()
    }

    /// What must hold after every step.
    pub(super) fn check(&self) {
        let owed: u32 = self.unanswered.iter().map(|call| call.to.credits).sum();
        self.side.check_credits(owed + self.arriving);
        assert_eq!(self.side.ledger.calls.len() as usize, self.calls.len(), "calls end once");
        if self.calls.is_empty() {
            assert!(self.memory.is_concealed(), "only calls expose memory");
        }
    }

    pub(super) fn close(self) {
        self.side.close();
    }

    fn send(&mut self, wire: Vec<u8>) {
        if self.sent.len() == SENT_KEPT {
            self.sent.pop_front();
        }
        self.sent.push_back(wire.clone());
        self.outbox.push_back(wire);
    }

    fn send_control(&mut self, control: ControlSend) {
        let wire = self.side.control(control);
        self.send(wire);
    }

    fn send_report(&mut self, report: Report) {
        let wire = self.side.report(report);
        assert!(foreign::is_sound(&wire));
        self.send(wire);
    }

    /// Makes a call, if possible now.
    pub(super) fn call(&mut self, choices: &mut Choices<'_>) {
        if self.calls.len() == CALLS_MAX {
            return;
        }
        self.tokens += 1;
        let token = self.tokens;
        let Side { conn, ledger, .. } = &mut self.side;
        let near = conn.limits().recv_size;
        let id = match conn.open_call(ledger, token) {
            Ok(id) => id,
            Err(SendError::NotReady | SendError::NoBackward) => return,
            Err(error) => panic!("{error}"),
        };
        let content = Content::new(id.xid(), false, &Shape::any(choices, near, LEN_MAX));
        let reply = Shape::any(choices, 4096, LEN_MAX);
        let answer = Content::new(id.xid(), true, &reply);
        let wants: Vec<_> = reply
            .lens()
            .take(choices.below(4) as usize)
            .map(|len| any_want(choices, content.stream_len(), len))
            .collect();
        let enabled = choices.flag();
        let rdma_buffer_len = if enabled { choices.pick(&[1 << 16, 0, 3000]) } else { 0 };
        let demand = CallDemand {
            payload: content.payload.len() as u32,
            items: &content.items,
            wants: &wants,
            reply_payload_max: answer.stream_len(),
            gather_max: 3 + choices.below(16),
            copy_max: 0,
            explicit: Explicit { enabled, ..Explicit::unlimited(rdma_buffer_len) },
        };
        let planned = self.plan(id, &content, &demand);
        match planned {
            Ok((wire, laid)) => {
                wire.into_iter().for_each(|wire| self.send(wire));
                let open = Open { id, token, content, reply, laid, is_delivered: false };
                self.calls.insert(id.xid(), open);
            }
            Err(error) => {
                use SendError::{NotEnoughCredits, NotEnoughReceives};
                let is_passing =
                    matches!(error, NotEnoughCredits { .. } | NotEnoughReceives { .. });
                assert!(is_passing || is_too_long(error), "{error}");
                let ended = self.side.conn.finish_call(&mut self.side.ledger, id);
                assert_eq!(ended.map(|ended| ended.token), Some(token));
            }
        }
    }

    /// Plans a call, and exposes the memory of its route.
    fn plan(
        &mut self,
        id: CallId,
        content: &Content,
        demand: &CallDemand<'_>,
    ) -> Result<(Vec<Vec<u8>>, Laid), SendError> {
        let Side { conn, ledger, .. } = &mut self.side;
        let route = conn.route_call(demand)?;
        let laid = Laid::new(&mut self.memory, &route, content, demand.wants);
        match conn.begin_call(ledger, id, demand, &route, &laid.exposed()) {
            Ok(mut plan) => {
                let wire = self.side.transmit(&mut plan, &content.payload, &content.bulk);
                Ok((wire, laid))
            }
            Err(error) => {
                self.memory.conceal(&laid);
                Err(error)
            }
        }
    }

    /// Takes the next transmission that `peer` has sent. False if the connection is over.
    pub(super) fn receive(
        &mut self,
        peer: &mut Self,
        choices: &mut Choices<'_>,
        is_lawful: bool,
    ) -> bool {
        let Some(mut wire) = peer.outbox.pop_front() else { return true };
        assert!(!is_lawful || wire.len() <= self.side.buffer_len(), "it fits the buffer");
        wire.truncate(self.side.buffer_len());
        if choices.flag() && self.receive_plain(&wire, peer, is_lawful) {
            return true;
        }
        let buffer = self.side.keep(&wire);
        let ingress = self.side.hand_in(buffer, &wire);
        if matches!(ingress, Ingress::Aborted(Aborted { again: true, .. })) {
            if !self.handle(ingress, &wire, peer, is_lawful) {
                return false;
            }
            let ingress = self.side.hand_in(buffer, &wire);
            assert!(!matches!(ingress, Ingress::Aborted(_)), "the group is gone");
            return self.handle(ingress, &wire, peer, is_lawful);
        }
        self.handle(ingress, &wire, peer, is_lawful)
    }

    /// Handles a transmission as an engine does.
    fn handle(
        &mut self,
        ingress: Ingress<'_>,
        wire: &[u8],
        peer: &mut Self,
        is_lawful: bool,
    ) -> bool {
        if let Some(whole) = Whole::of(&self.side, &ingress) {
            match whole.answers {
                None => self.on_call(whole, &ingress, peer, is_lawful),
                Some(id) => self.on_reply(&whole, id, &ingress, is_lawful),
            }
            return true;
        }
        match ingress {
            Ingress::Partial => match Header::decode(wire).map(|(header, _)| header.body) {
                Ok(Body::Optional(Optional::XmtReq(req))) => self.arriving = req.count,
                Ok(Body::Optional(Optional::XmtResp(_))) => self.arriving = 0,
                _ => {}
            },
            Ingress::Complete(_) => {
                assert!(!is_lawful, "a lawful reply is wanted");
                self.arriving = 0;
            }
            Ingress::Control(Control { answer: Some(answer), .. }) => self.send_control(answer),
            Ingress::Control(_) => {}
            Ingress::Failed(id, refusal) => {
                assert!(self.calls.contains_key(&id.xid()), "only an open call fails");
                assert!(!is_lawful || refusal == Refusal::BadHeader, "{refusal:?}");
                self.end(id);
            }
            Ingress::Again(id, _) => {
                assert!(!is_lawful, "both say what they support");
                self.again(id);
            }
            Ingress::ReplyRefused { .. } => assert!(!is_lawful),
            Ingress::Reject(report) => {
                // An end without properties reports that.
                let states = self.side.settings.properties && peer.side.settings.properties;
                assert!(!is_lawful || !states, "{report:?}");
                self.send_report(report);
            }
            Ingress::BadReply { id, report, .. } => {
                assert!(!is_lawful, "{report:?}");
                self.send_report(report);
                self.end(id);
            }
            Ingress::Aborted(Aborted { report, failed, .. }) => {
                assert!(!is_lawful, "{report:?}");
                self.arriving = 0;
                self.send_report(report);
                failed.into_iter().for_each(|(id, _)| self.end(id));
            }
            Ingress::Ignored(reason) => {
                let states = self.side.settings.properties && peer.side.settings.properties;
                let is_known = reason == Ignored::UnmatchedError && !states;
                assert!(!is_lawful || is_known, "{reason:?}");
            }
            Ingress::Fatal(fatal) => {
                assert!(!is_lawful, "{fatal}");
                return false;
            }
            other => panic!("it was whole: {other:?}"),
        }
        true
    }

    /// Repeats a call in another form, or ends it.
    fn again(&mut self, id: CallId) {
        let mut open = self.calls.remove(&id.xid()).expect("only an open call goes again");
        self.memory.conceal(&open.laid);
        let Side { conn, ledger, .. } = &mut self.side;
        conn.finish_call(ledger, id).expect("it is open");
        let id = conn.open_call(ledger, open.token).expect("its slot is free");
        open.content.payload[..4].copy_from_slice(&id.xid().to_be_bytes());
        let demand = CallDemand {
            items: &open.content.items,
            gather_max: 16,
            ..CallDemand::inline(open.content.payload.len() as u32, 4000)
        };
        match self.plan(id, &open.content, &demand) {
            Ok((wire, laid)) => {
                wire.into_iter().for_each(|wire| self.send(wire));
                self.calls.insert(id.xid(), Open { id, laid, ..open });
            }
            Err(_) => {
                let ended = self.side.conn.finish_call(&mut self.side.ledger, id);
                assert_eq!(ended.map(|ended| ended.token), Some(open.token));
            }
        }
    }

    /// A call of the other: checked, and kept until it is answered.
    fn on_call(&mut self, whole: Whole, ingress: &Ingress<'_>, peer: &mut Self, is_lawful: bool) {
        self.arriving = 0;
        let to = whole.to;
        match whole.resolve(&self.side, ingress, &Offered::NONE) {
            Ok(placed) if is_lawful => {
                let open = peer.calls.get(&to.xid).expect("only what was called arrives");
                let (memory, sent) = (&peer.memory, &open.content);
                let stream = whole.stream(&self.side, &placed, &Offered::NONE, memory, sent);
                peer.delivered(to.xid, &stream);
                self.unanswered.push(whole);
            }
            Ok(_) => self.unanswered.push(whole),
            Err(violation) => {
                assert!(!is_lawful, "{violation}");
                let Side { conn, ledger, .. } = &mut self.side;
                let report = conn.reject_call(ledger, &to, violation);
                self.send_report(report);
            }
        }
    }

    /// A reply to a call of ours: checked, and the call ends.
    fn on_reply(&mut self, whole: &Whole, id: CallId, ingress: &Ingress<'_>, is_lawful: bool) {
        self.arriving = 0;
        let open = self.calls.get(&id.xid()).expect("only an open call is answered");
        let offered = open.laid.offered();
        match whole.resolve(&self.side, ingress, &offered) {
            Ok(placed) => {
                if is_lawful {
                    let answer = Content::new(id.xid(), true, &open.reply);
                    let stream = whole.stream(&self.side, &placed, &offered, &self.memory, &answer);
                    assert!(stream == answer.stream(), "it is what was sent");
                }
                self.end(id);
            }
            Err(violation) => {
                assert!(!is_lawful, "{violation}");
                let report = self.side.conn.reject_reply(id, whole.to.via, violation);
                report.into_iter().for_each(|report| self.send_report(report));
                self.end(id);
            }
        }
    }

    /// Ends a call, once.
    fn end(&mut self, id: CallId) {
        let open = self.calls.remove(&id.xid()).expect("a call ends once");
        assert_eq!(open.id, id);
        self.memory.conceal(&open.laid);
        let Side { conn, ledger, .. } = &mut self.side;
        let ended = conn.finish_call(ledger, id);
        assert_eq!(ended.map(|ended| ended.token), Some(open.token), "a call ends once");
        assert_eq!(conn.finish_call(ledger, id), None, "a call ends once");
    }

    /// Answers a call of the other end; correctly, if both are valid.
    pub(super) fn answer(&mut self, peer: &mut Self, choices: &mut Choices<'_>, is_lawful: bool) {
        if self.unanswered.is_empty() {
            return;
        }
        let at = choices.below(self.unanswered.len() as u32) as usize;
        let Whole { to, lead, .. } = self.unanswered.swap_remove(at);
        let shape = match peer.calls.get(&to.xid) {
            Some(open) if is_lawful => open.reply.clone(),
            _ => Shape::any(choices, 4096, LEN_MAX),
        };
        let content = Content::new(to.xid, true, &shape);
        let demand = ReplyDemand {
            payload: content.payload.len() as u32,
            items: &content.items,
            offer: offer(self.side.first_segment(&lead)),
            gather_max: 3 + choices.below(16),
            copy_max: 0,
        };
        let Side { conn, ledger, .. } = &mut self.side;
        let planned = match choices.rarely(16) {
            true => None,
            false => conn.begin_reply(ledger, &to, &demand).ok(),
        };
        match planned {
            Some(mut plan) => {
                if is_lawful {
                    let memory = &mut peer.memory;
                    self.side.write(&mut plan, &content.payload, &content.bulk, memory);
                }
                let wire = self.side.transmit(&mut plan, &content.payload, &content.bulk);
                wire.into_iter().for_each(|wire| self.send(wire));
            }
            None => {
                let report = conn.refuse(ledger, &to);
                self.send_report(report);
            }
        }
        if let Some(control) = self.side.conn.next_control() {
            self.send_control(control);
        }
    }

    /// Takes a transmission the short way, if it can go there.
    fn receive_plain(&mut self, wire: &[u8], peer: &mut Self, is_lawful: bool) -> bool {
        let first = self.side.first_segment(wire);
        if !Msg::split(first).is_some_and(|(header, _)| header.is_plain()) {
            return false;
        }
        let Side { conn, ledger, .. } = &mut self.side;
        let taken = conn.on_short(ledger, wire.len() as u32, first);
        let Some(Short::Plain { kind, payload }) = taken else {
            assert_eq!(taken, None, "the header is that of a plain message");
            return false;
        };
        match kind {
            ShortKind::Call(to) => {
                if is_lawful {
                    peer.delivered(to.xid, payload);
                }
                self.unanswered.push(Whole {
                    answers: None,
                    to,
                    parts: Vec::new(),
                    lead: wire.into(),
                });
            }
            ShortKind::Reply(Finished { token, .. }) => {
                let found = self.calls.iter().find(|(_, open)| open.token == token);
                let xid = *found.expect("only an open call is answered").0;
                let open = self.calls.remove(&xid).expect("it was just found");
                self.memory.conceal(&open.laid);
                assert!(!is_lawful || Content::new(xid, true, &open.reply).stream() == payload);
            }
        }
        true
    }

    /// Records that an own call has arrived, with this stream.
    fn delivered(&mut self, xid: u32, stream: &[u8]) {
        let open = self.calls.get_mut(&xid).expect("only what was called arrives");
        assert!(!open.is_delivered, "a call is delivered once");
        open.is_delivered = true;
        assert!(stream == open.content.stream(), "it is what was sent");
    }

    /// Changes a transmission that was not delivered. False if there is none.
    pub(super) fn corrupt(&mut self, choices: &mut Choices<'_>) -> bool {
        if self.outbox.is_empty() {
            return false;
        }
        let at = choices.below(self.outbox.len() as u32) as usize;
        let wire = &mut self.outbox[at];
        if choices.rarely(8) {
            let len = choices.below(wire.len() as u32);
            wire.truncate(len as usize);
        } else {
            let len = if choices.rarely(4) { wire.len() } else { wire.len().min(120) };
            let at = choices.below(len.max(1) as u32) as usize;
            if let Some(byte) = wire.get_mut(at) {
                *byte = choices.byte();
            }
        }
        true
    }

    /// Repeats an earlier transmission. False if there is none.
    pub(super) fn repeat(&mut self, choices: &mut Choices<'_>) -> bool {
        if self.sent.is_empty() {
            return false;
        }
        let at = choices.below(self.sent.len() as u32) as usize;
        self.outbox.push_back(self.sent[at].clone());
        true
    }
}

/// The most calls that are open.
const CALLS_MAX: usize = 12;
/// The longest items and payloads.
const LEN_MAX: u32 = 9_000;
/// Transmissions that may be sent again.
const SENT_KEPT: usize = 8;
