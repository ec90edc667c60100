//! Values of properties: their types and encodings.

use bitflags::bitflags;

use crate::cursor::{Reader, Writer};
use crate::error::{DecodeError, NoRoom};
use crate::numbers::{bkreqsup, limit, rtrs, size};
use crate::rtr::structure::{RecvStructure, StructureError};

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

/// The encoding of a value.
pub(super) trait Codec {
    /// The type of the values.
    type Value;

    /// Bytes of the shortest value and of the longest.
    const LENS: [usize; 2] = [4; 2];

    /// Decodes a value. The outer error is one of XDR; the inner one states why the value is
    /// unusable.
    fn decode(reader: &mut Reader<'_>) -> Decoded<Self::Value>;

    /// Encodes a value.
    fn encode(value: &Self::Value, writer: &mut Writer<'_>) -> Result<(), NoRoom>;
}

type Decoded<T> = Result<Result<T, StructureError>, DecodeError>;

/// A number that is at least `MIN`.
pub(super) struct Word<const MIN: u32 = 0>;

impl<const MIN: u32> Codec for Word<MIN> {
    type Value = u32;

    fn decode(reader: &mut Reader<'_>) -> Decoded<u32> {
        let at = reader.at_u32();
        match reader.u32()? {
            value if value < MIN => Err(DecodeError::BadValue { at, value }),
            value => Ok(Ok(value)),
        }
    }

    fn encode(value: &u32, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.put_u32(*value)
    }
}

/// 0 or 1.
pub(super) struct Bool;

impl Codec for Bool {
    type Value = bool;

    fn decode(reader: &mut Reader<'_>) -> Decoded<bool> {
        reader.bool().map(Ok)
    }

    fn encode(value: &bool, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.put_bool(*value)
    }
}

/// One of the three levels of support.
pub(super) struct Level;

impl Codec for Level {
    type Value = BackwardSupport;

    fn decode(reader: &mut Reader<'_>) -> Decoded<BackwardSupport> {
        let at = reader.at_u32();
        Ok(Ok(match reader.u32()? {
            bkreqsup::NONE => BackwardSupport::None,
            bkreqsup::INLINE => BackwardSupport::Inline,
            bkreqsup::GENL => BackwardSupport::General,
            value => return Err(DecodeError::BadDiscriminant { at, value }),
        }))
    }

    fn encode(value: &BackwardSupport, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.put_u32(*value as u32)
    }
}

/// A word of bits, known and unknown.
pub(super) struct Bits;

impl Codec for Bits {
    type Value = RtrSupport;

    fn decode(reader: &mut Reader<'_>) -> Decoded<RtrSupport> {
        Ok(Ok(RtrSupport::from_bits_retain(reader.u32()?)))
    }

    fn encode(value: &RtrSupport, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.put_u32(value.bits())
    }
}

/// Groups of segments.
pub(super) struct Structure;

impl Codec for Structure {
    type Value = RecvStructure;

    const LENS: [usize; 2] = [
        size::RBSTRUCT,
        size::RBSTRUCT + limit::STRUCTURE_GROUPS_MAX as usize * size::RBSTRUCT_GROUP,
    ];

    fn decode(reader: &mut Reader<'_>) -> Decoded<RecvStructure> {
        RecvStructure::decode_from(reader)
    }

    fn encode(value: &RecvStructure, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        value.encode(writer)
    }
}
