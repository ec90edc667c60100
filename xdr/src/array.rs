//! Counted arrays and linked lists: checked once while decoding, then iterated in place.
//!
//! ```text
//!   Array   | count | item | item | ...            (XDR  T name<>)
//!   List    | 1 | item | 1 | item | ... | 0        (XDR  struct { T entry; *next; } *name)
//! ```
//! Both borrow either the bytes that they were decoded from, or a slice of values to encode.

use core::fmt;

use crate::cursor::{Reader, Writer};
use crate::error::{DecodeError, NoRoom};

/// A value with an XDR encoding of whole words.
pub trait Wire<'a>: Copy {
    /// The encoded length, if it is the same for all values and all bytes of this length are valid.
    const FIXED_LEN: Option<usize> = None;

    /// Decodes one value.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not such a value.
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError>;

    /// Encodes the value.
    ///
    /// # Errors
    /// [`NoRoom`] if it does not fit.
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom>;

    /// The number of bytes that [`Wire::encode`] writes.
    fn encoded_len(&self) -> usize;
}

impl Wire<'_> for u32 {
    const FIXED_LEN: Option<usize> = Some(4);

    #[inline]
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.u32()
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.put_u32(*self)
    }

    #[inline]
    fn encoded_len(&self) -> usize {
        4
    }
}

/// The source of the items of an [`Array`] or a [`List`].
#[derive(Clone, Copy)]
enum ItemSource<'a, T> {
    /// `count` items in these bytes, already checked, from `start` of the message on.
    Bytes { count: u16, start: u32, bytes: &'a [u8] },
    /// Values to encode.
    Values(&'a [T]),
}

impl<'a, T> ItemSource<'a, T> {
    const EMPTY: Self = Self::Bytes { count: 0, start: 0, bytes: &[] };

    #[inline]
    fn extent(&self) -> Extent {
        match *self {
            Self::Bytes { count, start, bytes } => Extent { count, start, len: bytes.len() as u32 },
            Self::Values(_) => Extent::NOWHERE,
        }
    }

    #[inline]
    fn at(message: &'a [u8], Extent { count, start, len }: Extent) -> Self {
        let bytes = message.get(start as usize..).and_then(|rest| rest.get(..len as usize));
        bytes.map_or(Self::EMPTY, |bytes| Self::Bytes { count, start, bytes })
    }

    #[inline]
    const fn len(&self) -> usize {
        match self {
            Self::Bytes { count, .. } => *count as usize,
            Self::Values(values) => values.len(),
        }
    }

    #[inline]
    fn iter(&self, framed: bool) -> Iter<'a, T> {
        let source = match *self {
            Self::Bytes { count, bytes, .. } => {
                ItemIter::Bytes { left: count.into(), framed, reader: Reader::new(bytes) }
            }
            Self::Values(values) => ItemIter::Values(values.iter()),
        };
        Iter { source }
    }
}

/// Items of the longest [`Array`] or [`List`] that is decoded: a header has far fewer.
const COUNT_MAX: u32 = u16::MAX as u32;

/// Where the items of an [`Array`] or a [`List`] are in the message that they were decoded from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    count: u16,
    start: u32,
    len: u32,
}

impl Extent {
    /// That of no items.
    pub const NOWHERE: Self = Self { count: 0, start: 0, len: 0 };

    /// One item of `len` bytes.
    pub(crate) const fn one(start: u32, len: u32) -> Self {
        Self { count: 1, start, len }
    }

    /// The same items where a copy of them begins in other bytes.
    #[inline]
    #[must_use]
    pub const fn copied_to(self, start: u32) -> Self {
        Self { start, ..self }
    }
}

/// A counted XDR array of `T`.
#[derive(Clone, Copy)]
pub struct Array<'a, T> {
    items: ItemSource<'a, T>,
}

impl<'a, T> Array<'a, T> {
    /// The items at this place of a message, which were checked when they were decoded from it.
    #[inline]
    #[must_use]
    pub fn at(message: &'a [u8], extent: Extent) -> Self {
        Self { items: ItemSource::at(message, extent) }
    }

    /// Where the items are in the message that they were decoded from; nowhere if they are values
    /// to encode.
    #[inline]
    #[must_use]
    pub fn extent(&self) -> Extent {
        self.items.extent()
    }

    /// The empty array.
    pub const EMPTY: Self = Self { items: ItemSource::EMPTY };

    /// An array to encode. It can have at most 2^32 - 1 values.
    #[inline]
    #[must_use]
    pub const fn from_slice(values: &'a [T]) -> Self {
        Self { items: ItemSource::Values(values) }
    }

    /// The number of items.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether it is empty.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a, T: Wire<'a>> Array<'a, T> {
    /// Decodes an array of at most `max` items, and at most 65,535, and checks each item.
    ///
    /// # Errors
    /// [`DecodeError::TooMany`] before any item is decoded, or the error of an item.
    #[inline]
    pub fn decode(reader: &mut Reader<'a>, max: u32) -> Result<Self, DecodeError> {
        let (at, max) = (reader.at_u32(), max.min(COUNT_MAX));
        match reader.u32()? {
            0 => Ok(Self::EMPTY),
            count if count > max => Err(DecodeError::TooMany { at, count, max }),
            count => Self::decode_items(reader, count as u16),
        }
    }

    #[inline]
    fn decode_items(reader: &mut Reader<'a>, count: u16) -> Result<Self, DecodeError> {
        let start = *reader;
        if let Some(len) = T::FIXED_LEN {
            reader.inner(usize::from(count) * len)?;
        } else {
            for _ in 0..count {
                T::decode(reader)?;
            }
        }
        let (at, bytes) = (start.at_u32(), taken(&start, reader));
        Ok(Self { items: ItemSource::Bytes { count, start: at, bytes } })
    }

    /// Encodes the count and the items.
    ///
    /// # Errors
    /// [`NoRoom`] if it does not fit.
    #[inline]
    pub fn encode(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.put_u32(self.len() as u32)?;
        self.encode_items(writer)
    }

    /// Encodes the items without the count.
    #[inline]
    pub(crate) fn encode_items(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self.items {
            ItemSource::Bytes { bytes, .. } => writer.put_fixed(bytes),
            ItemSource::Values(values) => values.iter().try_for_each(|value| value.encode(writer)),
        }
    }

    /// The number of bytes that [`Array::encode`] writes.
    #[inline]
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        4 + match self.items {
            ItemSource::Bytes { bytes, .. } => bytes.len(),
            ItemSource::Values(values) => match T::FIXED_LEN {
                Some(len) => values.len() * len,
                None => values.iter().map(Wire::encoded_len).sum(),
            },
        }
    }

    /// The items, in wire order.
    #[inline]
    #[must_use]
    pub fn iter(&self) -> Iter<'a, T> {
        self.items.iter(false)
    }

    /// The item at `index`; in constant time if all `T` have the same length.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<T> {
        match (self.items, T::FIXED_LEN) {
            (ItemSource::Values(values), _) => values.get(index).copied(),
            (ItemSource::Bytes { bytes, .. }, Some(len)) => {
                let start = index.checked_mul(len)?;
                T::decode(&mut Reader::new(bytes.get(start..)?)).ok()
            }
            (ItemSource::Bytes { .. }, None) => self.iter().nth(index),
        }
    }

    /// The first item.
    #[inline]
    #[must_use]
    pub fn first(&self) -> Option<T> {
        self.get(0)
    }
}

/// An XDR linked list of `T`: each item follows a word that is 1, the last is followed by 0.
#[derive(Clone, Copy)]
pub struct List<'a, T> {
    items: ItemSource<'a, T>,
}

impl<'a, T> List<'a, T> {
    /// The items at this place of a message, which were checked when they were decoded from it.
    #[inline]
    #[must_use]
    pub fn at(message: &'a [u8], extent: Extent) -> Self {
        Self { items: ItemSource::at(message, extent) }
    }

    /// Where the items are in the message that they were decoded from; nowhere if they are values
    /// to encode.
    #[inline]
    #[must_use]
    pub fn extent(&self) -> Extent {
        self.items.extent()
    }

    /// The empty list.
    pub const EMPTY: Self = Self { items: ItemSource::EMPTY };

    /// A list to encode.
    #[inline]
    #[must_use]
    pub const fn from_slice(values: &'a [T]) -> Self {
        Self { items: ItemSource::Values(values) }
    }

    /// The number of items.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether it is empty.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a, T: Wire<'a>> List<'a, T> {
    /// Decodes a list of at most `max` items, and at most 65,535, and checks each item.
    ///
    /// # Errors
    /// [`DecodeError::TooMany`] at item `max + 1`, or the error of an item or its mark.
    #[inline]
    pub fn decode(reader: &mut Reader<'a>, max: u32) -> Result<Self, DecodeError> {
        let start = *reader;
        if reader.bool()? { Self::decode_items(reader, start, max) } else { Ok(Self::EMPTY) }
    }

    fn decode_items(
        reader: &mut Reader<'a>,
        start: Reader<'a>,
        max: u32,
    ) -> Result<Self, DecodeError> {
        let (mut count, max) = (0_u16, max.min(COUNT_MAX));
        loop {
            if u32::from(count) == max {
                return Err(DecodeError::TooMany { at: reader.at_u32(), count: max + 1, max });
            }
            T::decode(reader)?;
            count += 1;
            let bytes = taken(&start, reader);
            if !reader.bool()? {
                let start = start.at_u32();
                return Ok(Self { items: ItemSource::Bytes { count, start, bytes } });
            }
        }
    }

    /// Encodes the items, each with its mark, and the end mark.
    ///
    /// # Errors
    /// [`NoRoom`] if it does not fit.
    #[inline]
    pub fn encode(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self.items {
            ItemSource::Bytes { bytes, .. } => writer.put_fixed(bytes)?,
            ItemSource::Values(values) => {
                for value in values {
                    writer.put_bool(true)?;
                    value.encode(writer)?;
                }
            }
        }
        writer.put_bool(false)
    }

    /// The number of bytes that [`List::encode`] writes.
    #[inline]
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        4 + match self.items {
            ItemSource::Bytes { bytes, .. } => bytes.len(),
            ItemSource::Values(values) => values.iter().map(|value| 4 + value.encoded_len()).sum(),
        }
    }

    /// The items, in wire order.
    #[inline]
    #[must_use]
    pub fn iter(&self) -> Iter<'a, T> {
        self.items.iter(true)
    }
}

/// Iterates over the items of an [`Array`] or a [`List`], without errors.
#[derive(Clone)]
pub struct Iter<'a, T> {
    source: ItemIter<'a, T>,
}

#[derive(Clone)]
enum ItemIter<'a, T> {
    /// With `framed`, a mark precedes each item.
    Bytes {
        left: u32,
        framed: bool,
        reader: Reader<'a>,
    },
    Values(core::slice::Iter<'a, T>),
}

impl<'a, T: Wire<'a>> Iterator for Iter<'a, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        match &mut self.source {
            ItemIter::Values(values) => values.next().copied(),
            ItemIter::Bytes { left, framed, reader } => {
                *left = left.checked_sub(1)?;
                if *framed {
                    reader.u32().ok()?;
                }
                let item = T::decode(reader);
                debug_assert!(item.is_ok(), "the items were checked when the array was decoded");
                item.ok()
            }
        }
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = match &self.source {
            ItemIter::Values(values) => values.len(),
            ItemIter::Bytes { left, .. } => *left as usize,
        };
        (left, Some(left))
    }
}

impl<'a, T: Wire<'a>> ExactSizeIterator for Iter<'a, T> {}

/// The bytes between two states of one reader.
#[inline]
fn taken<'a>(start: &Reader<'a>, end: &Reader<'a>) -> &'a [u8] {
    start.rest().get(..start.remaining() - end.remaining()).unwrap_or_default()
}

macro_rules! impl_sequence {
    ($name:ident) => {
        impl<T> Default for $name<'_, T> {
            fn default() -> Self {
                Self::EMPTY
            }
        }

        impl<'a, T> From<&'a [T]> for $name<'a, T> {
            fn from(values: &'a [T]) -> Self {
                Self::from_slice(values)
            }
        }

        impl<'a, T: Wire<'a> + PartialEq> PartialEq for $name<'a, T> {
            fn eq(&self, other: &Self) -> bool {
                self.iter().eq(other.iter())
            }
        }

        impl<'a, T: Wire<'a> + Eq> Eq for $name<'a, T> {}

        impl<'a, T: Wire<'a> + fmt::Debug> fmt::Debug for $name<'a, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_list().entries(self.iter()).finish()
            }
        }

        impl<'a, T: Wire<'a>> IntoIterator for $name<'a, T> {
            type Item = T;
            type IntoIter = Iter<'a, T>;

            fn into_iter(self) -> Iter<'a, T> {
                self.iter()
            }
        }

        impl<'a, T: Wire<'a>> IntoIterator for &$name<'a, T> {
            type Item = T;
            type IntoIter = Iter<'a, T>;

            fn into_iter(self) -> Iter<'a, T> {
                self.iter()
            }
        }
    };
}

impl_sequence!(Array);
impl_sequence!(List);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::{RdmaSegment, ReadSegment, WriteChunk};
    use std::vec::Vec;

    const SEGMENT: RdmaSegment = RdmaSegment { handle: 1, length: 2, offset: 3 };

    fn encoded(encode: impl Fn(&mut Writer<'_>) -> Result<(), NoRoom>) -> Vec<u8> {
        let mut buffer = [0; 4096];
        let mut writer = Writer::new(&mut buffer);
        encode(&mut writer).unwrap();
        writer.written().to_vec()
    }

    #[test]
    fn an_array_of_values_equals_the_array_it_encodes_to() {
        let segments = [SEGMENT, RdmaSegment { handle: 9, ..SEGMENT }];
        let array = Array::from_slice(&segments);
        let bytes = encoded(|writer| array.encode(writer));
        assert_eq!(bytes.len(), array.encoded_len());
        let decoded = Array::decode(&mut Reader::new(&bytes), 2).unwrap();
        assert_eq!(decoded, array);
        assert_eq!(decoded.iter().collect::<Vec<_>>(), segments);
        assert_eq!(encoded(|writer| decoded.encode(writer)), bytes);
        assert_ne!(decoded, Array::from_slice(&segments[..1]));
    }

    #[test]
    fn an_array_may_have_as_many_items_as_its_limit_and_not_more() {
        let bytes = encoded(|writer| Array::from_slice(&[5u32, 6, 7]).encode(writer));
        assert_eq!(Array::<u32>::decode(&mut Reader::new(&bytes), 3).unwrap().len(), 3);
        let error = DecodeError::TooMany { at: 0, count: 3, max: 2 };
        assert_eq!(Array::<u32>::decode(&mut Reader::new(&bytes), 2), Err(error));
    }

    #[test]
    fn a_count_of_four_billion_is_refused_before_anything_is_read() {
        let bytes = u32::MAX.to_be_bytes();
        assert!(Array::<RdmaSegment>::decode(&mut Reader::new(&bytes), u32::MAX).is_err());
        assert!(Array::<WriteChunk<'_>>::decode(&mut Reader::new(&bytes), u32::MAX).is_err());
    }

    #[test]
    fn items_are_found_by_index_in_either_form() {
        let values = [10u32, 20, 30];
        let bytes = encoded(|writer| Array::from_slice(&values).encode(writer));
        let decoded = Array::<u32>::decode(&mut Reader::new(&bytes), 3).unwrap();
        for array in [decoded, Array::from_slice(&values)] {
            assert_eq!(array.first(), Some(10));
            assert_eq!(array.get(2), Some(30));
            assert_eq!(array.get(3), None);
            assert_eq!(array.get(usize::MAX), None);
        }
        let chunks = [WriteChunk(Array::EMPTY), WriteChunk(Array::from_slice(&[SEGMENT]))];
        let bytes = encoded(|writer| Array::from_slice(&chunks).encode(writer));
        let decoded = Array::<WriteChunk<'_>>::decode(&mut Reader::new(&bytes), 2).unwrap();
        assert_eq!(decoded.get(1), Some(chunks[1]));
        assert_eq!(decoded.get(2), None);
    }

    #[test]
    fn the_iterator_knows_how_many_items_are_left() {
        let values = [10u32, 20, 30];
        let bytes = encoded(|writer| Array::from_slice(&values).encode(writer));
        let decoded = Array::<u32>::decode(&mut Reader::new(&bytes), 3).unwrap();
        for array in [decoded, Array::from_slice(&values)] {
            let mut iter = array.iter();
            assert_eq!(iter.len(), 3);
            iter.next();
            assert_eq!(iter.len(), 2);
            assert_eq!(iter.by_ref().count(), 2);
        }
    }

    #[test]
    fn a_list_marks_each_item_and_the_end() {
        let reads = [ReadSegment { position: 8, target: SEGMENT }];
        let list = List::from_slice(&reads);
        let bytes = encoded(|writer| list.encode(writer));
        assert_eq!(bytes.len(), list.encoded_len());
        assert_eq!(bytes.len(), 4 + 20 + 4);
        assert_eq!((bytes[3], bytes[27]), (1, 0));
        let decoded = List::decode(&mut Reader::new(&bytes), 1).unwrap();
        assert_eq!(decoded, list);
        assert_eq!(encoded(|writer| decoded.encode(writer)), bytes);
        assert_eq!(encoded(|writer| List::<ReadSegment>::EMPTY.encode(writer)), [0; 4]);
    }

    #[test]
    fn a_list_may_have_as_many_items_as_its_limit_and_not_more() {
        let reads = [ReadSegment { position: 8, target: SEGMENT }; 3];
        let bytes = encoded(|writer| List::from_slice(&reads).encode(writer));
        assert_eq!(List::<ReadSegment>::decode(&mut Reader::new(&bytes), 3).unwrap().len(), 3);
        let result = List::<ReadSegment>::decode(&mut Reader::new(&bytes), 2);
        assert!(matches!(result, Err(DecodeError::TooMany { count: 3, max: 2, .. })), "{result:?}");
    }

    #[test]
    fn a_mark_other_than_zero_or_one_is_refused_at_the_start_and_in_the_middle() {
        let reads = [ReadSegment { position: 8, target: SEGMENT }; 2];
        let bytes = encoded(|writer| List::from_slice(&reads).encode(writer));
        for at in [0, 24, 48] {
            let mut bytes = bytes.clone();
            bytes[at + 3] = 2;
            let result = List::<ReadSegment>::decode(&mut Reader::new(&bytes), 9);
            assert_eq!(result, Err(DecodeError::BadBool { at: at as u32, value: 2 }));
        }
    }
}
