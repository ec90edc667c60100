//! The headers of a group's transmissions: first of a request, first of a response, the rest.
//!
//! ```text
//!   XMTREQ   | dp<> | rsd<> | count | rsbuf | pslen |      then pslen bytes of payload stream
//!   XMTRESP  | dp<> | count | pslen |
//!   XMTCONT  | xnum | itype | pslen |
//! ```
//! All transmissions of a group carry the same xid. The fields' meaning is wire.md E1 - E14.

use crate::array::Array;
use crate::cursor::{Reader, Writer};
use crate::error::{DecodeError, NoRoom};
use crate::numbers::limit;
use crate::rtr::fixed::{ContEnd, ReqEnd, RespEnd};
use crate::rtr::placement::{MsgItem, RsdSet};

/// The first, or only, transmission of a request (`optxmt_req`, \[RTR\] 9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XmtReq<'a> {
    /// The items excised from the payload stream (`optxrq_dp`).
    pub dp: Array<'a, MsgItem<'a>>,
    /// How the items of the reply are to be placed (`optxrq_rsd`).
    pub rsd: Array<'a, RsdSet<'a>>,
    /// Transmissions in this group (`optxrq_count`).
    pub count: u32,
    /// Transmissions that the reply may take (`optxrq_rsbuf`; wire.md E7).
    pub rsbuf: u32,
    /// Bytes of the payload stream in this transmission (`optxrq_pslen`; wire.md E10).
    pub pslen: u32,
}

impl<'a> XmtReq<'a> {
    #[inline]
    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let dp = Array::decode(reader, limit::MITEMS_MAX)?;
        let rsd_at = reader.at_u32();
        let rsd = Array::<RsdSet<'a>>::decode(reader, limit::RSD_SETS_MAX)?;
        // wire.md W3: each item directed is answered by one message item, of which there are at
        // most so many.
        let directed = rsd.iter().map(|set| set.items.len() as u32).sum();
        if directed > limit::MITEMS_MAX {
            let max = limit::MITEMS_MAX;
            return Err(DecodeError::TooMany { at: rsd_at, count: directed, max });
        }
        let ReqEnd { count, rsbuf, pslen } = reader.take()?;
        Ok(Self { dp, rsd, count: count.get(), rsbuf: rsbuf.get(), pslen: pslen.get() })
    }

    pub(crate) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        self.dp.encode(writer)?;
        self.rsd.encode(writer)?;
        writer.put(&self.end())
    }

    /// What follows the lists.
    #[inline]
    pub(crate) fn end(&self) -> ReqEnd {
        ReqEnd::new(self.count, self.rsbuf, self.pslen)
    }

    pub(crate) fn encoded_len(&self) -> usize {
        self.dp.encoded_len() + self.rsd.encoded_len() + size_of::<ReqEnd>()
    }
}

/// The first, or only, transmission of a response (`optxmt_resp`, \[RTR\] 9.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XmtResp<'a> {
    /// What became of each item that the request directed (`optxrs_dp`; wire.md E25).
    pub dp: Array<'a, MsgItem<'a>>,
    /// Transmissions in this group (`optxrs_count`; wire.md X15).
    pub count: u32,
    /// Bytes of the payload stream in this transmission (`optxrs_pslen`; wire.md E10).
    pub pslen: u32,
}

impl<'a> XmtResp<'a> {
    #[inline]
    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let dp = Array::decode(reader, limit::MITEMS_MAX)?;
        let RespEnd { count, pslen } = reader.take()?;
        Ok(Self { dp, count: count.get(), pslen: pslen.get() })
    }

    pub(crate) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        self.dp.encode(writer)?;
        writer.put(&self.end())
    }

    /// What follows the list.
    #[inline]
    pub(crate) fn end(&self) -> RespEnd {
        RespEnd::new(self.count, self.pslen)
    }

    pub(crate) fn encoded_len(&self) -> usize {
        self.dp.encoded_len() + size_of::<RespEnd>()
    }
}

/// Every further transmission of a group (`optxmt_cont`, \[RTR\] 9.4; wire.md X6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XmtCont {
    /// Which transmission of the group this is; the first continuation is 1
    /// (`optxc_xnum`; wire.md E1).
    pub xnum: u32,
    /// The operation that began the group (`optxc_itype`; wire.md E3).
    pub itype: u32,
    /// Bytes of the payload stream in this transmission (`optxc_pslen`; wire.md E10).
    pub pslen: u32,
}

impl XmtCont {
    #[inline]
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let ContEnd { xnum, itype, pslen } = reader.take()?;
        Ok(Self { xnum: xnum.get(), itype: itype.get(), pslen: pslen.get() })
    }

    pub(crate) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.put(&self.end())
    }

    /// The structure.
    #[inline]
    pub(crate) fn end(&self) -> ContEnd {
        ContEnd::new(self.xnum, self.itype, self.pslen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtr::placement::{Loc, RsdItem, RsdLoc};
    use std::vec::Vec;

    fn survives(req: &XmtReq<'_>) -> bool {
        let mut buffer = [0; 8192];
        let mut writer = Writer::new(&mut buffer);
        req.encode(&mut writer).unwrap();
        assert_eq!(writer.position(), req.encoded_len());
        XmtReq::decode(&mut Reader::new(writer.written())).is_ok_and(|decoded| decoded == *req)
    }

    const PLAIN: XmtReq<'static> =
        XmtReq { dp: Array::EMPTY, rsd: Array::EMPTY, count: 1, rsbuf: 1, pslen: 8 };

    #[test]
    fn a_request_may_have_64_items_and_not_65() {
        let items = [MsgItem { disp: 0, length: 0, loc: Loc::NoItem }; 65];
        assert!(survives(&XmtReq { dp: Array::from_slice(&items[..64]), ..PLAIN }));
        assert!(!survives(&XmtReq { dp: Array::from_slice(&items), ..PLAIN }));
    }

    #[test]
    fn a_request_may_have_64_sets_and_not_65() {
        let sets = [RsdSet { begin: 0, end: 0, items: Array::EMPTY }; 65];
        assert!(survives(&XmtReq { rsd: Array::from_slice(&sets[..64]), ..PLAIN }));
        assert!(!survives(&XmtReq { rsd: Array::from_slice(&sets), ..PLAIN }));
    }

    #[test]
    fn all_sets_together_may_have_64_directions_and_not_65() {
        let items = [RsdItem { min_len: 0, loc: RsdLoc::Tbsn }; 33];
        for (counts, valid) in [([32, 32], true), ([33, 32], false), ([0, 33], true)] {
            let sets: Vec<RsdSet<'_>> = counts
                .iter()
                .map(|count| RsdSet {
                    begin: 0,
                    end: 0,
                    items: Array::from_slice(&items[..*count]),
                })
                .collect();
            let req = XmtReq { rsd: Array::from_slice(&sets), ..PLAIN };
            assert_eq!(survives(&req), valid, "{counts:?}");
        }
    }
}
