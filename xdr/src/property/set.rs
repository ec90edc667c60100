//! Values of properties, and sets of them.

use super::known::{Known, PropId, PropVal, Property};
use super::table::MayChange;
use crate::array::{Array, Wire};
use crate::cursor::{Reader, Writer, pad_len};
use crate::error::{DecodeError, NoRoom};
use crate::numbers::limit;

impl<'a> Wire<'a> for PropVal<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self { id: PropId(reader.u32()?), data: reader.opaque(u32::MAX)? })
    }

    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.put_u32(self.id.0)?;
        writer.put_opaque(self.data)
    }

    fn encoded_len(&self) -> usize {
        8 + self.data.len() + pad_len(self.data.len())
    }
}

/// A set of values (`propvalset`, \[XCHAR\] 2.1).
pub type PropSet<'a> = Array<'a, PropVal<'a>>;

/// Decodes a set and checks every known value: all or nothing (wire.md P4, P5).
pub(super) fn decode_set<'a>(reader: &mut Reader<'a>) -> Result<PropSet<'a>, DecodeError> {
    let start = *reader;
    let set = PropSet::decode(reader, limit::PROPERTIES_MAX)?;
    // Decodes the values again, with their positions for errors.
    let mut values = start;
    values.u32()?;
    let mut seen = PropIds::NONE;
    for _ in 0..set.len() {
        let id = PropId(values.u32()?);
        let data_at = values.position() + 4;
        let data = values.opaque(u32::MAX)?;
        Property::decode_at(PropVal { id, data }, data_at)?;
        if seen.contains(id) {
            return Err(DecodeError::DuplicateProperty { id: id.0 });
        }
        seen.insert(id);
    }
    Ok(set)
}

impl<'a> Property<'a> {
    /// Bytes of the longest value of all known properties, with its padding.
    pub const LEN_MAX: usize = {
        let (mut len, mut index) = (0, 0);
        while index < Known::COUNT {
            let [_, longest] = Known::ALL[index].lens();
            len = if longest > len { longest } else { len };
            index += 1;
        }
        len + pad_len(len)
    };

    /// Decodes a value.
    ///
    /// # Errors
    /// [`DecodeError`], with positions counted from the start of the value, if the property is
    /// known and the bytes are not a value of its type: too few, too many, or not allowed.
    pub fn decode(value: PropVal<'a>) -> Result<Self, DecodeError> {
        Self::decode_at(value, 0)
    }

    fn decode_at(value: PropVal<'a>, position: usize) -> Result<Self, DecodeError> {
        let Some(known) = Known::of(value.id) else { return Ok(Self::Unknown(value)) };
        if value.data.is_empty() {
            return Ok(Self::Default(value.id));
        }
        let mut reader = Reader::at(value.data, position);
        let property = known.decode(&mut reader)?;
        // An unusable value is not decoded further.
        if !matches!(property, Self::Unusable(..)) {
            reader.finish()?;
        }
        Ok(property)
    }

    /// Encodes the value into `buffer`, for a set to encode.
    ///
    /// [`Property::LEN_MAX`] bytes are enough for every known property.
    ///
    /// # Errors
    /// [`NoRoom`] if the buffer is too small.
    pub fn encode<'b>(&self, buffer: &'b mut [u8]) -> Result<PropVal<'b>, NoRoom> {
        let mut writer = Writer::new(buffer);
        self.encode_data(&mut writer)?;
        let len = match self {
            Self::Unknown(value) => value.data.len(),
            _ => writer.position(),
        };
        let data: &'b [u8] = buffer;
        Ok(PropVal { id: self.id(), data: data.get(..len).unwrap_or_default() })
    }

    /// Replaces a default by its value; other values, and a default that depends on other
    /// properties, stay unchanged.
    #[must_use]
    pub fn in_effect(self) -> Self {
        match self {
            Self::Default(id) => Known::of(id).map_or(self, |known| known.default()),
            stated => stated,
        }
    }
}

/// A set of known properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PropIds(u32);

impl PropIds {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// The properties that this side does not change on a connection.
    pub const OWN_FIXED: Self = {
        let (mut fixed, mut index) = (Self::NONE, 0);
        while index < Known::COUNT {
            let known = Known::ALL[index];
            if !matches!(known.may_change(), MayChange::Both) {
                fixed.0 |= Self::bit(known);
            }
            index += 1;
        }
        fixed
    };

    /// Adds a property. An unknown property is ignored.
    pub fn insert(&mut self, id: PropId) {
        self.0 |= Known::of(id).map_or(0, Self::bit);
    }

    /// Whether the property is in the set.
    #[must_use]
    pub fn contains(self, id: PropId) -> bool {
        Known::of(id).is_some_and(|known| self.0 & Self::bit(known) != 0)
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The properties, in the order of the table.
    pub fn iter(self) -> impl Iterator<Item = PropId> {
        Known::ALL.into_iter().map(Known::id).filter(move |id| self.contains(*id))
    }

    /// A bit for each property, in the order of the table.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    const fn bit(known: Known) -> u32 {
        const { assert!(Known::COUNT <= u32::BITS as usize, "a bit for each property") };
        1 << known as u32
    }
}

/// New values of some changeable properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PropValues {
    ids: PropIds,
    /// The properties to set to their defaults.
    defaults: PropIds,
    data: [[u8; CHANGE_LEN]; Known::COUNT],
}

/// Why a new value is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NewValueError {
    /// The property already has a new value.
    Twice,
    /// The property cannot change, or is unknown.
    Fixed,
    /// The property cannot have this value.
    BadValue,
}

impl PropValues {
    /// No new values.
    pub const NONE: Self =
        Self { ids: PropIds::NONE, defaults: PropIds::NONE, data: [[0; CHANGE_LEN]; Known::COUNT] };

    /// Adds a value. [`Property::Default`] stands for the default.
    ///
    /// # Errors
    /// [`NewValueError`] states the reason.
    pub fn insert(&mut self, value: &Property<'_>) -> Result<(), NewValueError> {
        let id = value.id();
        if self.ids.contains(id) {
            return Err(NewValueError::Twice);
        }
        let known = Known::of(id).filter(|known| known.may_change() != MayChange::Neither);
        let known = known.ok_or(NewValueError::Fixed)?;
        let mut data = [0; CHANGE_LEN];
        let encoded = value.encode(&mut data).map_err(|_| NewValueError::BadValue)?;
        if Property::decode(encoded) != Ok(*value) {
            return Err(NewValueError::BadValue);
        }
        if let Property::Default(_) = value {
            self.defaults.insert(id);
        }
        self.ids.insert(id);
        self.data[known as usize] = data;
        Ok(())
    }

    /// The properties that have new values.
    #[must_use]
    pub fn ids(&self) -> PropIds {
        self.ids
    }

    /// The new value of a property, if it has one.
    #[must_use]
    pub fn value(&self, id: PropId) -> Option<Property<'static>> {
        let known = Known::of(id).filter(|_| self.ids.contains(id))?;
        match self.data(known) {
            [] => Some(Property::Default(id)),
            data => known.decode(&mut Reader::new(data)).ok(),
        }
    }

    /// The new values as a set, in the order of the table.
    pub fn encoded(&self) -> impl Iterator<Item = PropVal<'_>> {
        let chosen = Known::ALL.into_iter().filter(|known| self.ids.contains(known.id()));
        chosen.map(|known| PropVal { id: known.id(), data: self.data(known) })
    }

    fn data(&self, known: Known) -> &[u8] {
        match self.defaults.contains(known.id()) {
            true => &[],
            // Changeable properties have a fixed length.
            false => self.data[known as usize].get(..known.lens()[0]).unwrap_or_default(),
        }
    }
}

/// Bytes of the longest value of a changeable property.
const CHANGE_LEN: usize = {
    let (mut len, mut index) = (0, 0);
    while index < Known::COUNT {
        let known = Known::ALL[index];
        if !matches!(known.may_change(), MayChange::Neither) {
            let [shortest, longest] = known.lens();
            assert!(shortest == longest, "changeable properties have a fixed length");
            len = if longest > len { longest } else { len };
        }
        index += 1;
    }
    len
};
