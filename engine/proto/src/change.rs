//! Changes of properties after the start: what we ask of the peer, and what we announce.
//!
//! ```text
//!   idle ──request_properties()──▶ asked{xid} ──RESPROP(xid)──▶ idle: Ingress::Settled
//!                                     ├── an error that names xid ──▶ idle: all refused
//!                                     └── on_reqprop_timeout() ────▶ idle: all refused
//! ```
//! An announcement has no answer. What we announce less of is still taken when it arrives: the peer
//! may have sent it before it knew.

use arrayvec::ArrayVec;
use rpcrdma_xdr::cursor::Writer;
use rpcrdma_xdr::error::NoRoom;
use rpcrdma_xdr::header::{Body, Header, Optional, RdmaError};
use rpcrdma_xdr::numbers::VERSION_TWO;
use rpcrdma_xdr::numbers::limit::GROUP_MAX;
use rpcrdma_xdr::property::{
    Known, NotTaken, PropId, PropIds, PropSet, PropValues, Property, ReqProp, RespProp, UpdProp,
};

use crate::calls::CONTROL_XIDS;
use crate::connection::Connection;
use crate::error::{Misuse, PropertyError};
use crate::ingress::ControlSend;
use crate::property::{PropertyExchange, widen};

/// New values for some properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Changes(PropValues);

impl Changes {
    /// These values, each of another property. [`Property::Default`] stands for the default.
    ///
    /// # Errors
    /// [`Misuse`] for a property twice, one that we do not know, the structure of receive buffers,
    /// which never changes (wire.md E21), or a value that the property cannot have, such as a buffer
    /// below 1024 bytes.
    pub fn of(values: &[Property<'_>]) -> Result<Self, Misuse> {
        let mut changes = PropValues::NONE;
        for value in values {
            changes.insert(value).map_err(|why| {
                Misuse(match why {
                    NotTaken::Twice => "a property is changed to one value at a time",
                    NotTaken::Fixed => "this property cannot be changed",
                    NotTaken::BadValue => "a property is changed to a value that it can have",
                })
            })?;
        }
        Ok(Self(changes))
    }

    /// The properties that change.
    #[must_use]
    pub fn ids(&self) -> PropIds {
        self.0.ids()
    }

    /// The new value of a property, if it changes.
    #[must_use]
    pub fn value(&self, id: PropId) -> Option<Property<'static>> {
        self.0.value(id)
    }

    /// The new values, by number.
    pub fn iter(&self) -> impl Iterator<Item = Property<'static>> {
        self.ids().iter().filter_map(|id| self.value(id))
    }

    /// Encodes them as a request or as an announcement.
    pub(crate) fn encode(
        &self,
        kind: ChangeKind,
        xid: u32,
        credit: u32,
        writer: &mut Writer<'_>,
    ) -> Result<(), NoRoom> {
        let values: ArrayVec<_, { Known::COUNT }> = self.0.encoded().collect();
        let set = PropSet::from_slice(&values);
        let body = Body::Optional(match kind {
            ChangeKind::Request => Optional::ReqProp(ReqProp { want: set }),
            ChangeKind::Announcement => Optional::UpdProp(UpdProp { now: set }),
        });
        Header { xid, vers: VERSION_TWO, credit, body }.encode(writer)
    }
}

/// Which operation carries changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Request,
    Announcement,
}

/// What a request for changes came to: each property asked for is in exactly one of the three.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PropertyOutcome {
    /// Those that have the value asked for.
    pub done: PropIds,
    /// Those that have another value now, which [`Connection::limits`] tells.
    pub other: PropIds,
    /// Those that are as they were.
    pub refused: PropIds,
}

/// The request for changes that is outstanding.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question {
    pub(crate) xid: u32,
    changes: Changes,
    /// What the peer's buffers took before we asked for smaller ones.
    restore: Option<u32>,
}

impl PropertyExchange {
    /// The number of the next question, 1 to 15: never that of the last one.
    fn next_question(&mut self) -> u32 {
        self.questions = self.questions % QUESTIONS + 1;
        u32::from(self.questions)
    }

    /// Asks for changes. A smaller receive buffer counts at once: the peer may have it the moment
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

    /// The peer's buffers got smaller by its own will, or stayed as they were. False if it says that
    /// they grew, which is not believed. What it says while we ask for still smaller ones is kept for
    /// the end of that question: a refusal does not undo it (\[XCHAR\] 3.1).
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
    /// Asks the peer to change properties of its own. The engine waits for [`crate::Ingress::Settled`],
    /// and calls [`Connection::on_reqprop_timeout`] if it waits too long.
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

    /// The peer did not answer [`Connection::request_properties`] in time, which counts as a refusal
    /// (wire.md P8). `None` if it had answered.
    pub fn on_reqprop_timeout(&mut self) -> Option<PropertyOutcome> {
        self.revise(|exchange, _| exchange.on_silence())
    }

    /// Whether a request for changes is outstanding.
    #[must_use]
    pub fn is_asking(&self) -> bool {
        self.exchange().question.is_some()
    }

    /// Tells the peer of changes of our own properties. More is accepted from now on; less is asked
    /// for, but what arrives nevertheless is still taken.
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
