//! Changes of properties: the values, the request that carries them, and its outcome.

use arrayvec::ArrayVec;
use rpcrdma_xdr::cursor::Writer;
use rpcrdma_xdr::error::NoRoom;
use rpcrdma_xdr::header::{Body, Header, Optional};
use rpcrdma_xdr::numbers::VERSION_TWO;
use rpcrdma_xdr::property::{
    Known, NewValueError, PropId, PropIds, PropSet, PropValues, Property, ReqProp, UpdProp,
};

use crate::error::Misuse;

/// New values for some properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Changes(PropValues);

impl Changes {
    /// These values, each of another property. [`Property::Default`] stands for the default.
    ///
    /// # Errors
    /// [`Misuse`] for a property twice, an unknown one, the structure of receive buffers, which
    /// never changes (wire.md E21), or a value that the property cannot have, such as a buffer
    /// below 1024 bytes.
    pub fn of(values: &[Property<'_>]) -> Result<Self, Misuse> {
        let mut changes = PropValues::NONE;
        for value in values {
            changes.insert(value).map_err(|why| {
                Misuse(match why {
                    NewValueError::Twice => "a property is changed to one value at a time",
                    NewValueError::Fixed => "this property cannot be changed",
                    NewValueError::BadValue => "a property is changed to a value that it can have",
                    _ => "a property is changed in a way that the codec refuses",
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

/// The operation that carries changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Request,
    Announcement,
}

/// The result of a request for changes: each requested property is in exactly one of the three.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PropertyOutcome {
    /// Those with the requested value.
    pub done: PropIds,
    /// Those with another new value, which [`crate::Connection::limits`] returns.
    pub other: PropIds,
    /// Those that are unchanged.
    pub refused: PropIds,
}

/// The request for changes that is outstanding.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question {
    pub(crate) xid: u32,
    pub(crate) changes: Changes,
    /// The size of the peer's buffers before we requested smaller ones.
    pub(crate) restore: Option<u32>,
}
