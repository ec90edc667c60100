//! Transport properties: the known properties, sets of them, and the four operations that carry
//! them.
//!
//! ```text
//!   PropVal     | id | length | data, padded |          a set: count, values
//!   subset      | count | word | ... |                  bit n of word n/32 = value n of a set
//! ```
//! A value stays encoded until [`Property::decode`]; an unknown value always does. Everything
//! specific to a property is in its row of the table.

use crate::array::Array;
use crate::cursor::{Reader, Writer};
use crate::error::{DecodeError, NoRoom};
use crate::numbers::limit;

#[macro_use]
mod table;
#[macro_use]
mod known;
mod set;
mod value;

use set::decode_set;

pub use known::{Known, PropId, PropVal, Property};
pub use set::{NewValueError, PropIds, PropSet, PropValues};
pub use table::MayChange;
pub use value::{BackwardSupport, RtrSupport};

/// Some of a set's values, by their index in the set (`propvalsubset`, \[XCHAR\] 2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PropSubset<'a> {
    words: Array<'a, u32>,
}

impl<'a> PropSubset<'a> {
    /// None of the values.
    pub const EMPTY: Self = Self { words: Array::EMPTY };

    /// A subset to encode.
    #[must_use]
    pub const fn from_words(words: &'a [u32]) -> Self {
        Self { words: Array::from_slice(words) }
    }

    /// The bitmap.
    #[must_use]
    pub const fn words(&self) -> Array<'a, u32> {
        self.words
    }

    /// Whether the value at `index` of the set belongs to the subset.
    #[must_use]
    pub fn contains(&self, index: usize) -> bool {
        // wire.md P2: bit 0 is the least significant; words past the end are zero.
        self.words.get(index / 32).is_some_and(|word| word >> (index % 32) & 1 == 1)
    }

    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Array::decode(reader, limit::SUBSET_WORDS_MAX).map(|words| Self { words })
    }
}

/// Properties stated at connection (`optinfo_connprop`, \[XCHAR\] 4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnProp<'a> {
    /// The values (`opticonnpr_start`).
    pub start: PropSet<'a>,
    /// Those that will not change (`opticonnpr_nochg`; wire.md P1).
    pub nochg: PropSubset<'a>,
}

/// A request to change properties (`optinfo_reqprop`, \[XCHAR\] 4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReqProp<'a> {
    /// The requested values (`optreqpr_want`).
    pub want: PropSet<'a>,
}

/// The answer to a request to change properties (`optinfo_resprop`, \[XCHAR\] 4.3; wire.md P8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RespProp<'a> {
    /// Values of the request now in effect (`optrespr_done`).
    pub done: PropSubset<'a>,
    /// Values of the request refused (`optrespr_rej`).
    pub rej: PropSubset<'a>,
    /// Properties of the request that now have another value (`optrespr_other`).
    pub other: PropSet<'a>,
}

/// Properties that have changed (`optinfo_updprop`, \[XCHAR\] 4.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpdProp<'a> {
    /// The values now (`optupdpr_now`).
    pub now: PropSet<'a>,
}

impl<'a> ConnProp<'a> {
    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self { start: decode_set(reader)?, nochg: PropSubset::decode(reader)? })
    }

    pub(crate) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        self.start.encode(writer)?;
        self.nochg.words.encode(writer)
    }

    pub(crate) fn encoded_len(&self) -> usize {
        self.start.encoded_len() + self.nochg.words.encoded_len()
    }
}

impl<'a> ReqProp<'a> {
    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self { want: decode_set(reader)? })
    }
}

impl<'a> RespProp<'a> {
    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            done: PropSubset::decode(reader)?,
            rej: PropSubset::decode(reader)?,
            other: decode_set(reader)?,
        })
    }

    pub(crate) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        self.done.words.encode(writer)?;
        self.rej.words.encode(writer)?;
        self.other.encode(writer)
    }

    pub(crate) fn encoded_len(&self) -> usize {
        self.done.words.encoded_len() + self.rej.words.encoded_len() + self.other.encoded_len()
    }
}

impl<'a> UpdProp<'a> {
    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self { now: decode_set(reader)? })
    }
}

#[cfg(test)]
mod one_more;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtr::structure::{RecvStructure, SegmentGroup, StructureError};
    use std::vec::Vec;

    fn decode(id: PropId, words: &[u32]) -> Result<Property<'static>, DecodeError> {
        let data: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        Property::decode(PropVal { id, data: data.leak() })
    }

    /// The first number after the known ones.
    fn next_number() -> PropId {
        PropId(Known::ALL.map(|known| known.id().0).into_iter().max().unwrap() + 1)
    }

    fn set(values: &[PropVal<'_>]) -> Vec<u8> {
        let mut buffer = [0; 1024];
        let mut writer = Writer::new(&mut buffer);
        Array::from_slice(values).encode(&mut writer).unwrap();
        writer.written().to_vec()
    }

    #[test]
    fn every_property_decodes_to_what_was_encoded() {
        let structure = RecvStructure::new(&[
            SegmentGroup { count: 1, length: 512, align: 64, placement: false },
            SegmentGroup { count: 4, length: 4096, align: 4096, placement: true },
        ])
        .unwrap();
        for property in [
            Property::RecvBufferSize(8192),
            Property::RequesterRemoteInvalidation(true),
            Property::BackwardSupport(BackwardSupport::General),
            Property::RecvStructure(structure),
            Property::RequestRxLimit(16),
            Property::ResponseSxLimit(8),
            Property::RtrSupport(RtrSupport::XREQ | RtrSupport::XCONT),
            Property::Default(PropId::RECV_STRUCTURE),
            Property::Unknown(PropVal { id: PropId(99), data: &[1, 2, 3] }),
        ] {
            let mut buffer = [0; Property::LEN_MAX];
            let value = property.encode(&mut buffer).unwrap();
            assert_eq!(value.id, property.id());
            assert_eq!(Property::decode(value), Ok(property));
        }
    }

    #[test]
    fn the_largest_structure_fits_the_buffer_that_encode_asks_for() {
        let group = SegmentGroup { count: 1, length: 8, align: 1, placement: true };
        let structure = Property::RecvStructure(RecvStructure::new(&[group; 8]).unwrap());
        assert!(structure.encode(&mut [0; Property::LEN_MAX]).is_ok());
        assert!(structure.encode(&mut [0; Property::LEN_MAX - 1]).is_err());
    }

    #[test]
    fn a_receive_buffer_below_1024_bytes_is_refused() {
        assert!(decode(PropId::RECV_BUFFER_SIZE, &[1023]).is_err());
        assert_eq!(decode(PropId::RECV_BUFFER_SIZE, &[1024]), Ok(Property::RecvBufferSize(1024)));
    }

    #[test]
    fn bools_and_enums_are_refused_outside_their_values() {
        for value in [2, 0x100, u32::MAX] {
            assert!(decode(PropId::REQUESTER_REMOTE_INVALIDATION, &[value]).is_err());
        }
        for value in [3, 0x100, u32::MAX] {
            assert!(decode(PropId::BACKWARD_SUPPORT, &[value]).is_err());
        }
    }

    #[test]
    fn a_known_value_too_short_or_too_long_is_refused() {
        for known in Known::ALL {
            let short = PropVal { id: known.id(), data: &[0, 0, 4] };
            assert!(Property::decode(short).is_err(), "{known:?}");
            let mut buffer = [0; Property::LEN_MAX + 4];
            let len = known.default().encode(&mut buffer).unwrap().data.len();
            if len > 0 {
                let long = PropVal { id: known.id(), data: &buffer[..len + 4] };
                let error = DecodeError::Trailing { at: len as u32, extra: 4 };
                assert_eq!(Property::decode(long), Err(error), "{known:?}");
            }
        }
    }

    #[test]
    fn no_data_is_the_default_of_a_known_property() {
        for id in Known::ALL.map(Known::id) {
            assert_eq!(decode(id, &[]), Ok(Property::Default(id)));
        }
        assert!(matches!(decode(next_number(), &[]), Ok(Property::Unknown(_))));
        assert!(matches!(decode(PropId(0), &[1, 2]), Ok(Property::Unknown(_))));
    }

    #[test]
    fn a_structure_that_breaks_a_rule_of_meaning_is_no_error() {
        let result = decode(PropId::RECV_STRUCTURE, &[64, 1, 1, 64, 3, 0]);
        let why = StructureError::BadAlign { align: 3 };
        assert_eq!(result, Ok(Property::Unusable(PropId::RECV_STRUCTURE, why)));
    }

    #[test]
    fn unknown_support_bits_are_kept_and_mean_nothing() {
        let Ok(Property::RtrSupport(bits)) = decode(PropId::RTR_SUPPORT, &[0xf3]) else {
            panic!("a support property was expected");
        };
        assert_eq!(bits.bits(), 0xf3);
        assert!(bits.contains(RtrSupport::XREQ) && !bits.contains(RtrSupport::XCONT));
    }

    #[test]
    fn a_known_property_twice_is_refused_and_an_unknown_one_is_not() {
        let value = |id| PropVal { id: PropId(id), data: &[] };
        let twice = set(&[value(1), value(7), value(1)]);
        let error = DecodeError::DuplicateProperty { id: 1 };
        assert_eq!(decode_set(&mut Reader::new(&twice)), Err(error));
        assert!(decode_set(&mut Reader::new(&set(&[value(9), value(9)]))).is_ok());
    }

    #[test]
    fn a_set_has_no_order() {
        let value = |id| PropVal { id: PropId(id), data: &[] };
        for ids in [[1, 4, 7], [7, 4, 1], [4, 99, 3], [u32::MAX, 2, 0]] {
            let bytes = set(&ids.map(value));
            let values = decode_set(&mut Reader::new(&bytes)).expect("valid");
            assert!(values.iter().map(|value| value.id.0).eq(ids), "{ids:?}");
        }
    }

    #[test]
    fn one_bad_value_invalidates_the_set_and_its_place_is_reported() {
        let bytes = set(&[
            PropVal { id: PropId(1), data: &[0, 0, 16, 0] },
            PropVal { id: PropId(2), data: &[0, 0, 0, 7] },
        ]);
        let error = DecodeError::BadBool { at: 24, value: 7 };
        assert_eq!(decode_set(&mut Reader::new(&bytes)), Err(error));
    }

    #[test]
    fn a_value_beyond_the_end_of_the_message_is_refused() {
        let whole = set(&[PropVal { id: PropId(1), data: &[0, 0, 16, 0] }]);
        assert!(decode_set(&mut Reader::new(&whole)).is_ok());
        for id in [1, 99, u32::MAX] {
            for len in [5_u32, 8, 1 << 31, u32::MAX] {
                let mut bytes = whole.clone();
                bytes[4..8].copy_from_slice(&id.to_be_bytes());
                bytes[8..12].copy_from_slice(&len.to_be_bytes());
                let error = DecodeError::Truncated { at: 12 };
                assert_eq!(decode_set(&mut Reader::new(&bytes)), Err(error), "{id}: {len}");
            }
        }
    }

    #[test]
    fn unknown_and_experimental_properties_are_skipped() {
        let known = PropVal { id: PropId(1), data: &[0, 0, 32, 0] };
        for id in [PropId(0), next_number(), PropId(4_294_967_040), PropId(u32::MAX)] {
            let bytes = set(&[PropVal { id, data: &[9; 7] }, known]);
            let values = decode_set(&mut Reader::new(&bytes)).expect("no error");
            let second = values.get(1).expect("the one behind");
            assert_eq!(Property::decode(second), Ok(Property::RecvBufferSize(8192)));
        }
    }

    #[test]
    fn a_set_may_have_64_values_and_not_65() {
        let values = [PropVal { id: PropId(100), data: &[] }; 65];
        assert!(decode_set(&mut Reader::new(&set(&values[..64]))).is_ok());
        assert!(decode_set(&mut Reader::new(&set(&values))).is_err());
    }

    #[test]
    fn the_defaults_are_those_of_the_drafts() {
        let defaults = Known::ALL.map(Known::default);
        assert_eq!(
            defaults,
            [
                Property::RecvBufferSize(4096),
                Property::RequesterRemoteInvalidation(false),
                Property::BackwardSupport(BackwardSupport::Inline),
                Property::Default(PropId::RECV_STRUCTURE),
                Property::RequestRxLimit(1),
                Property::ResponseSxLimit(1),
                Property::RtrSupport(RtrSupport::empty()),
            ]
        );
        for (known, default) in Known::ALL.into_iter().zip(defaults) {
            assert_eq!(Property::Default(known.id()).in_effect(), default);
            assert_eq!(default.in_effect(), default);
        }
        let unknown = Property::Default(PropId(99));
        assert_eq!(unknown.in_effect(), unknown);
    }

    #[test]
    fn new_values_are_of_properties_that_may_change() {
        let mut values = PropValues::NONE;
        let structure = Property::RecvStructure(RecvStructure::single(8192));
        let why = StructureError::Empty;
        for never in [
            structure,
            Property::Default(PropId::RECV_STRUCTURE),
            Property::Unusable(PropId::RECV_STRUCTURE, why),
            Property::Unknown(PropVal { id: PropId(99), data: &[] }),
            Property::Default(PropId(99)),
        ] {
            assert_eq!(values.insert(&never), Err(NewValueError::Fixed), "{never:?}");
        }
        for bad in [
            Property::RecvBufferSize(1023),
            Property::Unusable(PropId::RTR_SUPPORT, why),
            Property::Unknown(PropVal { id: PropId::RTR_SUPPORT, data: &[0; 5] }),
        ] {
            assert_eq!(values.insert(&bad), Err(NewValueError::BadValue), "{bad:?}");
        }
        assert!(values.ids().is_empty() && values.encoded().next().is_none());
        let (backward, size) =
            (Property::Default(PropId::BACKWARD_SUPPORT), Property::RecvBufferSize(1024));
        values.insert(&backward).unwrap();
        values.insert(&size).unwrap();
        assert_eq!(values.insert(&Property::RecvBufferSize(2048)), Err(NewValueError::Twice));
        assert_eq!(values.value(PropId::RECV_BUFFER_SIZE), Some(size));
        assert_eq!(values.value(PropId::BACKWARD_SUPPORT), Some(backward));
        assert_eq!(values.value(PropId::RTR_SUPPORT), None);
        let encoded: Vec<_> = values.encoded().map(|value| (value.id.0, value.data)).collect();
        assert_eq!(encoded, [(1, &[0, 0, 4, 0][..]), (3, &[])]);
    }

    #[test]
    fn bit_zero_is_the_least_significant_and_missing_words_are_zero() {
        let subset = PropSubset::from_words(&[0x8000_0001, 2]);
        let members: Vec<usize> = (0..200).filter(|index| subset.contains(*index)).collect();
        assert_eq!(members, [0, 31, 33]);
        assert!(!subset.contains(usize::MAX));
        assert!(!PropSubset::EMPTY.contains(0));
    }
}
