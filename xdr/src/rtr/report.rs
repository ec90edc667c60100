//! Report Error: an error in a transmission of this extension, and the transmission.

use core::fmt;

use crate::cursor::{Reader, Writer};
use crate::error::{DecodeError, NoRoom};
use crate::numbers::report;
use crate::onc::MsgType;

/// Identifies a transmission (`xms_id`, \[RTR\] 6.1; wire.md X7, X8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsgId {
    /// `rdma_xid` of the transmission.
    pub xid: u32,
    /// Whether the transmission belongs to a call or to a reply.
    pub dir: MsgType,
    /// Its index in the group; 0 if it is in none (wire.md E1).
    pub seq: u32,
}

impl MsgId {
    const LEN: usize = 12;

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { xid: reader.u32()?, dir: MsgType::decode(reader)?, seq: reader.u32()? })
    }

    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.put_u32(self.xid)?;
        writer.put_u32(self.dir as u32)?;
        writer.put_u32(self.seq)
    }
}

/// An error report (`optrept_err`, \[RTR\] 9.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReptErr {
    /// The transmission in which the error was found (`optre_bad`).
    pub bad: MsgId,
    /// An earlier transmission that caused it (`optre_lead`).
    pub lead: Option<MsgId>,
    /// The error (`optre_info`).
    pub info: ReptInfo,
}

/// The eight errors (`optr_info`, \[RTR\] 9.5; numbered as wire.md N4 says).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReptInfo {
    /// Another `rdma_proc` was expected.
    BadHmt(Mismatch),
    /// Another `rdma_opttype` was expected.
    BadOmt(Mismatch),
    /// No continuation was expected.
    BadCont,
    /// Another transmission number was expected.
    BadSeq(Mismatch),
    /// Another XID was expected.
    BadXid(Mismatch),
    /// A bad displacement or offset of an item.
    BadOff(OutOfRange),
    /// A bad target buffer segment number.
    BadTbsn(OutOfRange),
    /// A bad payload length (wire.md X16).
    BadPl(OutOfRange),
}

impl fmt::Display for ReptInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReptInfo::BadHmt(it) => write!(f, "unexpected header type: {it}"),
            ReptInfo::BadOmt(it) => write!(f, "unexpected operation: {it}"),
            ReptInfo::BadCont => write!(f, "unexpected continuation"),
            ReptInfo::BadSeq(it) => write!(f, "unexpected transmission number: {it}"),
            ReptInfo::BadXid(it) => {
                write!(f, "a transmission with the XID of another message: {it}")
            }
            ReptInfo::BadOff(it) => write!(f, "bad offset of an item: {it}"),
            ReptInfo::BadTbsn(it) => write!(f, "bad target buffer segment number: {it}"),
            ReptInfo::BadPl(it) => write!(f, "bad payload length: {it}"),
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} received, {} expected", self.current, self.expect)
    }
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} received, {} to {} allowed", self.value, self.min, self.max)
    }
}

/// The expected and the received value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The expected value (`optri_expect`).
    pub expect: u32,
    /// The received value (`optri_current`).
    pub current: u32,
}

/// The received value and the valid range; a value in the range is misaligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange {
    /// What came (`optri_value`).
    pub value: u32,
    /// The smallest valid value (`optri_min`).
    pub min: u32,
    /// The largest valid value (`optri_max`).
    pub max: u32,
}

impl ReptErr {
    #[cold]
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let bad = MsgId::decode(reader)?;
        let lead = if reader.bool()? { Some(MsgId::decode(reader)?) } else { None };
        Ok(Self { bad, lead, info: ReptInfo::decode(reader)? })
    }

    #[cold]
    pub(crate) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        self.bad.encode(writer)?;
        writer.put_bool(self.lead.is_some())?;
        if let Some(lead) = &self.lead {
            lead.encode(writer)?;
        }
        self.info.encode(writer)
    }

    pub(crate) fn encoded_len(&self) -> usize {
        let lead = if self.lead.is_some() { MsgId::LEN } else { 0 };
        MsgId::LEN + 4 + lead + 4 + self.info.encoded_len()
    }
}

impl ReptInfo {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let at = reader.at_u32();
        Ok(match reader.u32()? {
            report::BADHMT => Self::BadHmt(Mismatch::decode(reader)?),
            report::BADOMT => Self::BadOmt(Mismatch::decode(reader)?),
            report::BADCONT => Self::BadCont,
            report::BADSEQ => Self::BadSeq(Mismatch::decode(reader)?),
            report::BADXID => Self::BadXid(Mismatch::decode(reader)?),
            report::BADOFF => Self::BadOff(OutOfRange::decode(reader)?),
            report::BADTBSN => Self::BadTbsn(OutOfRange::decode(reader)?),
            report::BADPL => Self::BadPl(OutOfRange::decode(reader)?),
            value => return Err(DecodeError::BadDiscriminant { at, value }),
        })
    }

    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.put_u32(self.number())?;
        match self {
            Self::BadCont => Ok(()),
            Self::BadHmt(m) | Self::BadOmt(m) | Self::BadSeq(m) | Self::BadXid(m) => {
                m.encode(writer)
            }
            Self::BadOff(range) | Self::BadTbsn(range) | Self::BadPl(range) => range.encode(writer),
        }
    }

    const fn encoded_len(&self) -> usize {
        match self {
            Self::BadCont => 0,
            Self::BadHmt(_) | Self::BadOmt(_) | Self::BadSeq(_) | Self::BadXid(_) => 8,
            Self::BadOff(_) | Self::BadTbsn(_) | Self::BadPl(_) => 12,
        }
    }

    /// The error's number on the wire (`optr_err`).
    #[must_use]
    pub const fn number(&self) -> u32 {
        match self {
            Self::BadHmt(_) => report::BADHMT,
            Self::BadOmt(_) => report::BADOMT,
            Self::BadCont => report::BADCONT,
            Self::BadSeq(_) => report::BADSEQ,
            Self::BadXid(_) => report::BADXID,
            Self::BadOff(_) => report::BADOFF,
            Self::BadTbsn(_) => report::BADTBSN,
            Self::BadPl(_) => report::BADPL,
        }
    }
}

impl Mismatch {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { expect: reader.u32()?, current: reader.u32()? })
    }

    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.put_u32(self.expect)?;
        writer.put_u32(self.current)
    }
}

impl OutOfRange {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { value: reader.u32()?, min: reader.u32()?, max: reader.u32()? })
    }

    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.put_u32(self.value)?;
        writer.put_u32(self.min)?;
        writer.put_u32(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::size;

    const BAD: MsgId = MsgId { xid: 1, dir: MsgType::Reply, seq: 2 };

    #[test]
    fn every_reason_decodes_to_what_was_encoded() {
        let m = Mismatch { expect: 10, current: 11 };
        let r = OutOfRange { value: 12, min: 13, max: 14 };
        let reasons = [
            ReptInfo::BadHmt(m),
            ReptInfo::BadOmt(m),
            ReptInfo::BadCont,
            ReptInfo::BadSeq(m),
            ReptInfo::BadXid(m),
            ReptInfo::BadOff(r),
            ReptInfo::BadTbsn(r),
            ReptInfo::BadPl(r),
        ];
        for (i, info) in reasons.into_iter().enumerate() {
            assert_eq!(info.number(), i as u32 + 1);
            for lead in [None, Some(MsgId { seq: 0, ..BAD })] {
                let report = ReptErr { bad: BAD, lead, info };
                let mut buffer = [0; size::REPTERR_MAX - size::OPTIONAL];
                let mut writer = Writer::new(&mut buffer);
                report.encode(&mut writer).unwrap();
                assert_eq!(writer.position(), report.encoded_len());
                assert_eq!(ReptErr::decode(&mut Reader::new(writer.written())), Ok(report));
            }
        }
    }

    #[test]
    fn other_reasons_and_directions_are_refused() {
        for reason in [0, 9, 255] {
            let mut bytes = [0; 32];
            bytes[19] = reason;
            let error = DecodeError::BadDiscriminant { at: 16, value: reason.into() };
            assert_eq!(ReptErr::decode(&mut Reader::new(&bytes)), Err(error));
        }
        let mut bytes = [0; 32];
        bytes[7] = 2;
        let error = DecodeError::BadDiscriminant { at: 4, value: 2 };
        assert_eq!(ReptErr::decode(&mut Reader::new(&bytes)), Err(error));
    }
}
