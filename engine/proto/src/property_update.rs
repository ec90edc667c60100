//! Changes of properties on an established connection: requests and announcements.
//!
//! ```text
//!   idle ──request_properties()──▶ asked{xid} ──RESPROP(xid)──▶ idle: Ingress::PropertiesAnswered
//!                                     ├── an error that names xid ──▶ idle: all refused
//!                                     └── on_reqprop_timeout() ────▶ idle: all refused
//! ```
//! An announcement has no answer. After a smaller value is announced, larger messages are still
//! accepted: the peer may have sent them before it knew.

use rpcrdma_xdr::header::RdmaError;
use rpcrdma_xdr::numbers::limit::GROUP_MAX;
use rpcrdma_xdr::property::{PropId, PropIds, Property, RespProp};

use crate::calls::CONTROL_XIDS;
use crate::change::{Changes, PropertyOutcome, Question};
use crate::connection::Connection;
use crate::error::{Misuse, PropertyError};
use crate::ingress::ControlSend;
use crate::property::{PropertyExchange, widen};

impl PropertyExchange {
    /// The number of the next question, 1 to 15: never that of the last one.
    fn next_question(&mut self) -> u32 {
        self.questions = self.questions % QUESTIONS + 1;
        u32::from(self.questions)
    }

    /// Requests changes. A smaller receive buffer counts at once: the peer may have it as soon as
    /// it reads the request (wire.md P11).
    fn ask(&mut self, xid: u32, changes: Changes) {
        let before = self.limits().recv_size;
        let restore = match changes.value(PropId::RECV_BUFFER_SIZE).map(Property::in_effect) {
            Some(Property::RecvBufferSize(size)) if size < before => {
                self.set_recv_size(size);
                Some(before)
            }
            _ => None,
        };
        self.question = Some(Question { xid, changes, restore });
    }

    /// The peer's buffers became smaller by its own choice, or are unchanged. False if it announces
    /// larger ones, which are ignored. An announcement during our own request for still smaller
    /// ones is kept until that request ends: a refusal does not undo it (\[XCHAR\] 3.1).
    pub(crate) fn shrink(&mut self, size: u32) -> bool {
        let limit = self.limits().recv_size;
        match &mut self.question {
            Some(Question { restore: Some(restore), .. }) if size <= *restore => {
                *restore = size;
                self.set_recv_size(size.min(limit));
                true
            }
            _ if size <= limit => {
                self.set_recv_size(size);
                true
            }
            _ => false,
        }
    }

    /// The answer to the question with this xid; `None` if it is not the one outstanding.
    pub(crate) fn on_resprop(
        &mut self,
        xid: u32,
        answer: &RespProp<'_>,
    ) -> Option<PropertyOutcome> {
        let Question { changes, restore, .. } = self.question.take_if(|it| it.xid == xid)?;
        let mut outcome =
            PropertyOutcome { done: PropIds::NONE, other: PropIds::NONE, refused: PropIds::NONE };
        for (index, id) in changes.ids().iter().enumerate() {
            let other = answer.other.iter().find(|value| value.id == id);
            let other = other.and_then(|value| Property::decode(value).ok());
            let (done, rejected) = (answer.done.contains(index), answer.rej.contains(index));
            // wire.md P8: said twice or not at all is refused.
            match (done, rejected, other) {
                (true, false, None) => {
                    outcome.done.insert(id);
                    if let Some(value) = changes.value(id) {
                        self.change(&value);
                    }
                }
                (false, false, Some(value)) => {
                    outcome.other.insert(id);
                    self.change(&value);
                }
                _ => {
                    outcome.refused.insert(id);
                    if let (PropId::RECV_BUFFER_SIZE, Some(before)) = (id, restore) {
                        self.set_recv_size(before);
                    }
                }
            }
        }
        Some(outcome)
    }

    /// An error that names the outstanding question refuses it as a whole. `None` if there is none,
    /// or it has another xid.
    pub(crate) fn on_error(&mut self, xid: u32, error: RdmaError) -> Option<PropertyOutcome> {
        let outcome = self.on_refused(xid)?;
        self.refuses_requests |= error == RdmaError::InvalOption;
        Some(outcome)
    }

    fn on_refused(&mut self, xid: u32) -> Option<PropertyOutcome> {
        self.on_resprop(xid, &RespProp::default())
    }

    /// No answer came: refused, except that the peer's buffers may be smaller nevertheless.
    fn on_silence(&mut self) -> Option<PropertyOutcome> {
        let question = self.question.as_mut()?;
        question.restore = None;
        let xid = question.xid;
        self.on_refused(xid)
    }
}

impl Connection {
    /// Asks the peer to change properties of its own. The engine waits for
    /// [`crate::Ingress::PropertiesAnswered`], and calls [`Connection::on_reqprop_timeout`] if it
    /// waits too long.
    ///
    /// # Errors
    /// [`PropertyError`]; nothing has changed then.
    pub fn request_properties(&mut self, changes: &Changes) -> Result<ControlSend, PropertyError> {
        self.check_changes(changes)?;
        if !self.exchange().is_received() || self.exchange().refuses_requests {
            return Err(PropertyError::PeerWithout);
        }
        if let Some(Question { xid, .. }) = self.exchange().question {
            return Err(PropertyError::Outstanding { xid });
        }
        // wire.md P1, P6
        if let Some(id) = changes.ids().iter().find(|id| !self.exchange().may_change(*id)) {
            return Err(PropertyError::Fixed(id));
        }
        // wire.md P9: an xid that no call ever has, and that no late answer names.
        let xid = self.control_xid() | self.revise(|exchange, _| exchange.next_question());
        self.revise(|exchange, _| exchange.ask(xid, *changes));
        Ok(ControlSend::ReqProp { xid, changes: *changes })
    }

    /// The peer did not answer [`Connection::request_properties`] in time, which counts as a
    /// refusal (wire.md P8). `None` if it had answered.
    pub fn on_reqprop_timeout(&mut self) -> Option<PropertyOutcome> {
        self.revise(|exchange, _| exchange.on_silence())
    }

    /// Whether a request for changes is outstanding.
    #[must_use]
    pub fn is_asking(&self) -> bool {
        self.exchange().question.is_some()
    }

    /// Announces changes of our own properties to the peer. More is accepted from now on; less is
    /// asked for, but what arrives nevertheless is still taken.
    ///
    /// # Errors
    /// [`PropertyError`]; nothing has changed then.
    pub fn announce(&mut self, changes: &Changes) -> Result<ControlSend, PropertyError> {
        self.check_changes(changes)?;
        if !self.exchange().is_sent() || !self.is_accepted() {
            return Err(PropertyError::NotExchanged);
        }
        if let Some(id) = changes.ids().iter().find(|id| PropIds::OWN_FIXED.contains(*id)) {
            return Err(PropertyError::Fixed(id));
        }
        let is_too_many = |change: Property<'_>| {
            matches!(change,
                Property::RequestRxLimit(count) | Property::ResponseSxLimit(count)
                    if count > GROUP_MAX)
        };
        if changes.iter().any(is_too_many) {
            return Err(Misuse("a message has 1 to 64 transmissions").into());
        }
        changes.iter().for_each(|change| widen(&mut self.settings, &change.in_effect()));
        Ok(ControlSend::UpdProp { xid: self.control_xid(), changes: *changes })
    }

    fn check_changes(&self, changes: &Changes) -> Result<(), PropertyError> {
        // wire.md P14
        if !self.settings.properties {
            return Err(PropertyError::Off);
        }
        match changes.ids().is_empty() {
            true => Err(Misuse("at least one property changes").into()),
            false => Ok(()),
        }
    }
}

/// The xids of requests for changes.
const QUESTIONS: u8 = CONTROL_XIDS as u8 - 1;
