//! Sequences of transmissions compared with a model: which are kept, delivered and reported.

mod model;
mod sent;

use rpcrdma_proto::{
    Aborted, CallDemand, CallId, Complete, Ingress, Refusal, ReplyTo, Report, Role, Settings, Via,
    Violation,
};
use rpcrdma_xdr::{
    BackwardSupport, Body, Header, MsgType, Optional, RdmaError, RecvStructure, RtrSupport,
};

use self::model::{Model, Outcome, Own, Reported};
use self::sent::{Kind, Sent};
use super::choices::Choices;
use super::side::{Side, rpc};

/// Feeds the transmissions that `bytes` describe to a connection and to the model.
///
/// # Panics
/// If they disagree.
pub fn check(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let mut scene = Scene::new(&mut choices);
    for _ in 0..EVENTS_MAX {
        if choices.is_over() {
            break;
        }
        match choices.below(8) {
            0 => scene.call(&mut choices),
            1 => scene.answer(&mut choices),
            _ => {
                let sent = Sent::any(&mut choices, &scene.calls());
                if !scene.receive(&sent, &mut choices) {
                    break;
                }
            }
        }
        scene.compare();
    }
    scene.side.close();
}

/// The transmissions of one input: errors of groups need only a few.
const EVENTS_MAX: usize = 64;
/// The longest transmission.
const BUFFER: u32 = 1024;
/// Credits, granted and asked for.
const CREDITS: u32 = 9;

/// A connection and what it should be like.
struct Scene {
    side: Side,
    model: Model,
    ids: Vec<CallId>,
    /// Calls delivered and not answered: xid and transmissions.
    unanswered: Vec<(u32, ReplyTo)>,
}

impl Scene {
    fn new(choices: &mut Choices<'_>) -> Self {
        let role = choices.pick(&[Role::Server, Role::Client]);
        let limit = 1 + choices.below(5);
        let none = [BackwardSupport::None, BackwardSupport::Inline, BackwardSupport::General];
        let backward = choices.pick(&none);
        let continues = !choices.rarely(8);
        let xmt = RtrSupport::XREQ | RtrSupport::XRESP;
        let settings = Settings {
            credits_requested: CREDITS,
            credits_granted_max: CREDITS,
            request_rx_limit: limit,
            backward,
            rtr: if continues { xmt | RtrSupport::XCONT } else { xmt },
            ..Settings::new(RecvStructure::single(BUFFER))
        };
        let peer = Settings {
            credits_requested: CREDITS,
            credits_granted_max: CREDITS,
            backward: BackwardSupport::General,
            ..Settings::new(RecvStructure::single(BUFFER))
        };
        let side = match role {
            Role::Client => Side::pair(settings, peer).0,
            Role::Server => Side::pair(peer, settings).1,
        };
        let granted = side.conn.inflow().granted();
        assert_eq!(granted, if role == Role::Server { CREDITS } else { 1 });
        let model = Model {
            role,
            backward,
            continues,
            limit,
            granted,
            wanted: granted,
            owed: 0,
            parked: Vec::new(),
            due: None,
            dead: None,
            calls: Vec::new(),
        };
        Self { side, model, ids: Vec::new(), unanswered: Vec::new() }
    }

    /// The XIDs of own calls, including cancelled ones.
    fn calls(&self) -> Vec<u32> {
        let (open, abandoned): (Vec<Own>, _) =
            self.model.calls.iter().partition(|call| !call.is_abandoned);
        open.iter().chain(&abandoned).map(|call| call.xid).collect()
    }

    /// Makes a call of our own, whose reply may have some transmissions.
    fn call(&mut self, choices: &mut Choices<'_>) {
        let Side { conn, ledger, .. } = &mut self.side;
        let reply = choices.pick(&[40, 1500, 4000]);
        if self.ids.len() == 4 {
            return self.abandon(choices.below(4) as usize);
        }
        let id = conn.open_call(ledger, 1).expect("ready");
        let demand = CallDemand::inline(40, reply);
        let Ok(mut plan) = conn.begin_sends(ledger, id, &demand) else {
            conn.finish_call(ledger, id).expect("it is open");
            return;
        };
        let first = self.side.transmit(&mut plan, &rpc(id.xid(), false, 40), &[]).swap_remove(0);
        let (header, _) = Header::decode(&first).expect("a header");
        let (most, is_xmt) = match header.body {
            Body::Optional(Optional::XmtReq(req)) => (req.rsbuf, true),
            _ => (1, false),
        };
        self.ids.push(id);
        let (is_replying, is_abandoned) = (false, false);
        self.model.calls.push(Own { xid: id.xid(), most, is_xmt, is_replying, is_abandoned });
    }

    /// Gives up a call of our own, which has been sent.
    fn abandon(&mut self, at: usize) {
        let id = self.ids.swap_remove(at);
        let Side { conn, ledger, .. } = &mut self.side;
        conn.abandon_call(ledger, id).expect("it is open");
        assert_eq!(conn.abandon_call(ledger, id), None, "a call ends once");
        let mut calls = self.model.calls.iter_mut();
        calls.find(|call| call.xid == id.xid()).expect("it is open").is_abandoned = true;
    }

    /// Answers a call that was delivered.
    fn answer(&mut self, choices: &mut Choices<'_>) {
        if self.unanswered.is_empty() {
            return;
        }
        let at = choices.below(self.unanswered.len() as u32) as usize;
        let (xid, to) = self.unanswered.swap_remove(at);
        let report = self.side.conn.refuse(&mut self.side.ledger, &to);
        assert_eq!(reported(&self.side, report), (xid, Body::Error(RdmaError::BadHeader)));
        self.model.owed -= to.credits;
        self.model.granted = self.model.granted.max(self.model.wanted);
    }

    /// Passes a transmission to both. False if the connection has ended.
    fn receive(&mut self, sent: &Sent, choices: &mut Choices<'_>) -> bool {
        let bytes = sent.bytes();
        let buffer = self.side.keep(&bytes);
        let aborted = self.model.intervene(sent, bytes.len() as u32);
        if let Some(expected) = aborted {
            let (outcome, again) = self.hand_in(buffer, &bytes, choices);
            assert_eq!(outcome, expected, "{sent:?}");
            assert!(again, "the message itself is to be handed in");
            self.compare();
        }
        let expected = self.model.receive(sent, buffer, bytes.len() as u32);
        let (outcome, again) = self.hand_in(buffer, &bytes, choices);
        assert_eq!(outcome, expected, "{sent:?}");
        assert!(!again, "a message is handed in again once");
        if let (Outcome::Parked, Kind::Initial { dir: MsgType::Reply, count, .. }) =
            (&outcome, sent.kind)
        {
            let Side { conn, ledger, .. } = &self.side;
            let (_, entry) = ledger.calls.find(sent.xid, conn.peer()).expect("it is open");
            assert!(entry.receives <= count, "receives that are not needed are free");
        }
        outcome != Outcome::Fatal
    }

    fn hand_in(&mut self, buffer: u32, bytes: &[u8], choices: &mut Choices<'_>) -> (Outcome, bool) {
        let ingress = self.side.hand_in(buffer, bytes);
        let parts = |side: &Side| side.conn.group().iter().map(|part| part.buffer).collect();
        let outcome = match ingress {
            Ingress::Call(message) => {
                self.unanswered.push((message.xid, message.reply_to()));
                Outcome::Call(message.xid, vec![message.part.buffer])
            }
            Ingress::Reply(id, message) => {
                self.replied(id, choices);
                Outcome::Reply(message.xid, vec![message.part.buffer])
            }
            Ingress::Partial => Outcome::Parked,
            Ingress::Complete(complete) => {
                let buffers: Vec<u32> = parts(&self.side);
                let lead = self.side.received(buffers[0]);
                let message = self.side.conn.message(&lead).expect("a group has a lead");
                match complete {
                    Complete::Call => {
                        self.unanswered.push((message.xid, message.reply_to()));
                        Outcome::Call(message.xid, buffers)
                    }
                    Complete::Reply(id) => {
                        self.replied(id, choices);
                        Outcome::Reply(message.xid, buffers)
                    }
                    Complete::Unwanted => Outcome::Unwanted,
                }
            }
            Ingress::Failed(id, refusal) | Ingress::Again(id, refusal) => {
                assert!(matches!(refusal, Refusal::BadHeader | Refusal::Reported(_)));
                self.finish(id);
                Outcome::Failed(id.xid())
            }
            Ingress::ReplyRefused { xid, .. } => Outcome::ReplyRefused(xid),
            Ingress::Reject(report) => Outcome::Rejected(reported(&self.side, report)),
            Ingress::BadReply { id, report, .. } => {
                self.finish(id);
                Outcome::Rejected(reported(&self.side, report))
            }
            Ingress::Aborted(Aborted { report, again, failed }) => {
                if let Some((id, _)) = failed {
                    self.finish(id);
                }
                return (Outcome::Aborted(reported(&self.side, report)), again);
            }
            Ingress::Ignored(reason) => Outcome::Ignored(reason),
            Ingress::Fatal(_) => Outcome::Fatal,
            other @ (Ingress::Control(_) | Ingress::PropertiesAnswered(_)) => {
                panic!("{other:?} was not sent")
            }
        };
        (outcome, false)
    }

    /// A reply has arrived: the call ends, even if the reply is refused.
    fn replied(&mut self, id: CallId, choices: &mut Choices<'_>) {
        if choices.rarely(4) {
            let violation = Violation::BadHeader("a test says so");
            self.side.conn.reject_reply(id, Via::Xmt, violation);
        }
        self.finish(id);
    }

    fn finish(&mut self, id: CallId) {
        let Side { conn, ledger, .. } = &mut self.side;
        conn.finish_call(ledger, id).expect("a call ends once");
        assert_eq!(conn.finish_call(ledger, id), None, "a call ends once");
        self.ids.retain(|open| *open != id);
        assert!(self.model.call(id.xid()).is_none(), "the model knows");
    }

    fn compare(&self) {
        let parked: Vec<_> = self.side.conn.parked().iter().map(|part| part.buffer).collect();
        assert_eq!(parked, self.model.parked, "what is parked");
        assert_eq!(self.side.conn.inflow().granted(), self.model.granted);
        self.side.check_credits(self.model.owed);
    }
}

fn reported(side: &Side, report: Report) -> Reported {
    let bytes = side.report(report);
    let (header, len) = Header::decode(&bytes).expect("a report is a message");
    assert_eq!(len, bytes.len());
    let body = match header.body {
        Body::Error(error) => Body::Error(error),
        Body::Optional(Optional::ReptErr(report)) => Body::Optional(Optional::ReptErr(report)),
        other => panic!("not a report: {other:?}"),
    };
    (header.xid, body)
}
