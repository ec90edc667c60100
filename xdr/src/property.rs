//! Transport properties: sets of values, subsets of sets, and the four operations that carry them.
//!
//! ```text
//!   PropVal     | id | length | data, padded |          a set: count, values
//!   subset      | count | word | ... |                  bit n of word n/32 = value n of a set
//! ```
//! A value stays bytes until [`Property::decode`]; one that nobody knows stays bytes for good.

use bitflags::bitflags;

use crate::array::{Array, Wire};
use crate::cursor::{Reader, Writer, pad_len};
use crate::error::{DecodeError, NoRoom};
use crate::numbers::{bkreqsup, limit, propid, rtrs};
use crate::rtr::structure::{RecvStructure, StructureError};

/// Which property (`propid`, \[XCHAR\] 2.1; numbered as wire.md N2 says).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PropId(pub u32);

impl PropId {
    /// Receive Buffer Size.
    pub const RECV_BUFFER_SIZE: Self = Self(propid::RBSIZ);
    /// Requester Remote Invalidation.
    pub const REQUESTER_REMOTE_INVALIDATION: Self = Self(propid::REQREMINV);
    /// Backward Request Support.
    pub const BACKWARD_SUPPORT: Self = Self(propid::BRS);
    /// Receive Buffer Structure.
    pub const RECV_STRUCTURE: Self = Self(propid::RBSTRUCT);
    /// Request Transmission Receive Limit.
    pub const REQUEST_RX_LIMIT: Self = Self(propid::REQRXLIM);
    /// Response Transmission Send Limit.
    pub const RESPONSE_SX_LIMIT: Self = Self(propid::RESPSXLIM);
    /// RTR Support.
    pub const RTR_SUPPORT: Self = Self(propid::RTRSUPP);

    /// Whether we know what its values mean.
    #[must_use]
    pub const fn is_known(self) -> bool {
        matches!(self.0, propid::RBSIZ..=propid::RTRSUPP)
    }
}

/// One value, still as bytes (`propval`, \[XCHAR\] 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropVal<'a> {
    /// Which property (`pv_which`).
    pub id: PropId,
    /// The XDR of the value, or nothing for the default (`pv_data`; wire.md P3).
    pub data: &'a [u8],
}

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

/// Decodes a set and checks every value that we know: all or nothing (wire.md P4, P5).
fn decode_set<'a>(reader: &mut Reader<'a>) -> Result<PropSet<'a>, DecodeError> {
    let start = *reader;
    let set = PropSet::decode(reader, limit::PROPERTIES_MAX)?;
    // The values once more, with their positions in the message for the errors.
    let mut values = start;
    values.u32()?;
    let mut seen = 0u32;
    for _ in 0..set.len() {
        let id = PropId(values.u32()?);
        let data_at = values.position() + 4;
        let data = values.opaque(u32::MAX)?;
        Property::decode_at(PropVal { id, data }, data_at)?;
        if id.is_known() {
            let bit = 1 << id.0;
            if seen & bit != 0 {
                return Err(DecodeError::DuplicateProperty { id: id.0 });
            }
            seen |= bit;
        }
    }
    Ok(set)
}

/// Some of a set's values, by their place in the set (`propvalsubset`, \[XCHAR\] 2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PropSubset<'a> {
    words: Array<'a, u32>,
}

impl<'a> PropSubset<'a> {
    /// None of the values.
    pub const EMPTY: Self = Self { words: Array::EMPTY };

    /// A subset to be encoded.
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

/// How backward requests may be sent to the peer (`bkreqsup`, \[XCHAR\] 3.3; wire.md B10, P13).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum BackwardSupport {
    /// Not at all.
    None = bkreqsup::NONE,
    /// As one inline message each.
    #[default]
    Inline = bkreqsup::INLINE,
    /// Like forward requests.
    General = bkreqsup::GENL,
}

bitflags! {
    /// Which operations of round-trip reduction the peer sends and receives
    /// (`xpr_rtrs`, \[RTR\] 8.2; wire.md E33). Unknown bits are kept and mean nothing.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct RtrSupport: u32 {
        /// Transmit Request.
        const XREQ = rtrs::XREQ;
        /// Transmit Response, including placement by Send in responses.
        const XRESP = rtrs::XRESP;
        /// Transmit Continue.
        const XCONT = rtrs::XCONT;
        const _ = !0;
    }
}

/// A value, understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property<'a> {
    /// Bytes of the smallest receive buffer posted; at least 1024 (wire.md P11). Not yet clamped
    /// to [`limit::RECV_BUFFER_SIZE_MAX`].
    RecvBufferSize(u32),
    /// Whether the peer's memory may be invalidated by our replies (wire.md P12).
    RequesterRemoteInvalidation(bool),
    /// How backward requests may be sent.
    BackwardSupport(BackwardSupport),
    /// How the peer's receive buffers are cut.
    RecvStructure(RecvStructure),
    /// Transmissions of the longest request accepted; 0 means 1 (wire.md E9).
    RequestRxLimit(u32),
    /// Transmissions of the longest response generated; 0 means 1 (wire.md E9).
    ResponseSxLimit(u32),
    /// Which operations are supported.
    RtrSupport(RtrSupport),
    /// A known property at its default: the value had no bytes (wire.md P3).
    Default(PropId),
    /// A receive buffer structure that cannot be used, to be ignored and counted
    /// (wire.md E19, E20).
    BadStructure(StructureError),
    /// A property that we do not know, to be skipped (wire.md P4).
    Unknown(PropVal<'a>),
}

impl<'a> Property<'a> {
    /// Understands a value.
    ///
    /// # Errors
    /// [`DecodeError`], with positions counted from the start of the value, if the property is
    /// known and the bytes are not a value of its type: too few, too many, or not allowed.
    pub fn decode(value: PropVal<'a>) -> Result<Self, DecodeError> {
        Self::decode_at(value, 0)
    }

    fn decode_at(value: PropVal<'a>, position: usize) -> Result<Self, DecodeError> {
        if !value.id.is_known() {
            return Ok(Self::Unknown(value));
        }
        if value.data.is_empty() {
            return Ok(Self::Default(value.id));
        }
        let mut reader = Reader::at(value.data, position);
        let property = Self::decode_known(value.id, &mut reader)?;
        // A structure that cannot be used is given up early.
        if !matches!(property, Self::BadStructure(_)) {
            reader.finish()?;
        }
        Ok(property)
    }

    fn decode_known(id: PropId, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let at = reader.at_u32();
        Ok(match id {
            PropId::RECV_BUFFER_SIZE => match reader.u32()? {
                // wire.md P11: no peer can work with less.
                value if value < limit::RECV_BUFFER_SIZE_MIN => {
                    return Err(DecodeError::BadValue { at, value });
                }
                value => Self::RecvBufferSize(value),
            },
            PropId::REQUESTER_REMOTE_INVALIDATION => {
                Self::RequesterRemoteInvalidation(reader.bool()?)
            }
            PropId::BACKWARD_SUPPORT => Self::BackwardSupport(match reader.u32()? {
                bkreqsup::NONE => BackwardSupport::None,
                bkreqsup::INLINE => BackwardSupport::Inline,
                bkreqsup::GENL => BackwardSupport::General,
                value => return Err(DecodeError::BadDiscriminant { at, value }),
            }),
            PropId::RECV_STRUCTURE => match RecvStructure::decode_from(reader)? {
                Ok(structure) => Self::RecvStructure(structure),
                Err(error) => Self::BadStructure(error),
            },
            PropId::REQUEST_RX_LIMIT => Self::RequestRxLimit(reader.u32()?),
            PropId::RESPONSE_SX_LIMIT => Self::ResponseSxLimit(reader.u32()?),
            _ => Self::RtrSupport(RtrSupport::from_bits_retain(reader.u32()?)),
        })
    }

    /// Which property this is; none for a structure that was not understood.
    #[must_use]
    pub const fn id(&self) -> PropId {
        match self {
            Self::RecvBufferSize(_) => PropId::RECV_BUFFER_SIZE,
            Self::RequesterRemoteInvalidation(_) => PropId::REQUESTER_REMOTE_INVALIDATION,
            Self::BackwardSupport(_) => PropId::BACKWARD_SUPPORT,
            Self::RecvStructure(_) | Self::BadStructure(_) => PropId::RECV_STRUCTURE,
            Self::RequestRxLimit(_) => PropId::REQUEST_RX_LIMIT,
            Self::ResponseSxLimit(_) => PropId::RESPONSE_SX_LIMIT,
            Self::RtrSupport(_) => PropId::RTR_SUPPORT,
            Self::Default(id) => *id,
            Self::Unknown(value) => value.id,
        }
    }

    /// Puts the value into `buffer` and names it, for a set that is to be encoded.
    ///
    /// 136 bytes are enough for every property we know.
    ///
    /// # Errors
    /// [`NoRoom`] if the buffer is too small.
    pub fn encode<'b>(&self, buffer: &'b mut [u8]) -> Result<PropVal<'b>, NoRoom> {
        let mut writer = Writer::new(buffer);
        match self {
            Self::RecvBufferSize(value)
            | Self::RequestRxLimit(value)
            | Self::ResponseSxLimit(value) => writer.put_u32(*value)?,
            Self::RequesterRemoteInvalidation(value) => writer.put_bool(*value)?,
            Self::BackwardSupport(value) => writer.put_u32(*value as u32)?,
            Self::RecvStructure(structure) => structure.encode(&mut writer)?,
            Self::RtrSupport(bits) => writer.put_u32(bits.bits())?,
            Self::Default(_) | Self::BadStructure(_) => {}
            Self::Unknown(value) => writer.put_fixed(value.data)?,
        }
        let len = match self {
            Self::Unknown(value) => value.data.len(),
            _ => writer.position(),
        };
        let data: &'b [u8] = buffer;
        Ok(PropVal { id: self.id(), data: data.get(..len).unwrap_or_default() })
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
    /// The values wanted (`optreqpr_want`).
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
mod tests {
    use super::*;
    use crate::rtr::structure::SegmentGroup;
    use std::vec::Vec;

    fn decode(id: PropId, words: &[u32]) -> Result<Property<'static>, DecodeError> {
        let data: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        Property::decode(PropVal { id, data: data.leak() })
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
            let mut buffer = [0; 136];
            let value = property.encode(&mut buffer).unwrap();
            assert_eq!(value.id, property.id());
            assert_eq!(Property::decode(value), Ok(property));
        }
    }

    #[test]
    fn the_largest_structure_fits_the_buffer_that_encode_asks_for() {
        let group = SegmentGroup { count: 1, length: 8, align: 1, placement: true };
        let structure = RecvStructure::new(&[group; 8]).unwrap();
        assert!(Property::RecvStructure(structure).encode(&mut [0; 136]).is_ok());
        assert!(Property::RecvStructure(structure).encode(&mut [0; 135]).is_err());
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
        for id in 1..=7 {
            let short = PropVal { id: PropId(id), data: &[0, 0, 4] };
            assert!(Property::decode(short).is_err(), "{id}");
        }
        for id in [1, 5, 6, 7] {
            assert_eq!(
                decode(PropId(id), &[4096, 0]),
                Err(DecodeError::Trailing { at: 4, extra: 4 })
            );
        }
    }

    #[test]
    fn no_data_is_the_default_of_a_known_property() {
        for id in 1..=7 {
            assert_eq!(decode(PropId(id), &[]), Ok(Property::Default(PropId(id))));
        }
        assert!(matches!(decode(PropId(8), &[]), Ok(Property::Unknown(_))));
        assert!(matches!(decode(PropId(0), &[1, 2]), Ok(Property::Unknown(_))));
    }

    #[test]
    fn a_structure_that_breaks_a_rule_of_meaning_is_no_error() {
        let result = decode(PropId::RECV_STRUCTURE, &[64, 1, 1, 64, 3, 0]);
        assert_eq!(result, Ok(Property::BadStructure(StructureError::BadAlign { align: 3 })));
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
    fn one_bad_value_spoils_the_set_and_says_where() {
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
        for id in [0, 8, 1 << 31, 4_294_967_040, u32::MAX] {
            let bytes = set(&[PropVal { id: PropId(id), data: &[9; 7] }, known]);
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
    fn bit_zero_is_the_least_significant_and_missing_words_are_zero() {
        let subset = PropSubset::from_words(&[0x8000_0001, 2]);
        let members: Vec<usize> = (0..200).filter(|index| subset.contains(*index)).collect();
        assert_eq!(members, [0, 31, 33]);
        assert!(!subset.contains(usize::MAX));
        assert!(!PropSubset::EMPTY.contains(0));
    }
}
