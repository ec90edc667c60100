//! Formats a header as one line of text, for logs and tools.
//!
//! ```text
//!   xid 0x00000041 v2 credit 32 xmtreq dp [132+8192 tbsn 0,1] rsd [] count 1 rsbuf 1 pslen 132
//! ```
//! Numbers are decimal, except xids, handles, offsets and opaque bytes. Of a long sequence only the
//! first eight entries are shown, and how many follow.

use core::fmt::{self, Display, Formatter, Write};

use crate::chunk::{ChunkLists, RdmaSegment, ReadSegment, WriteChunk};
use crate::header::{Body, Header, Optional, RdmaError};
use crate::onc::MsgType;
use crate::property::{BackwardSupport, Known, PropSet, PropSubset, PropVal, Property, RtrSupport};
use crate::rtr::placement::{Loc, MsgItem, RsdItem, RsdLoc, RsdSet};
use crate::rtr::report::{MsgId, ReptErr, ReptInfo};
use crate::rtr::structure::RecvStructure;

const SHOWN_MAX: usize = 8;

impl Display for Header<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "xid {:#010x} v{} credit {} ", self.xid, self.vers, self.credit)?;
        match &self.body {
            Body::Msg(chunks) => write!(f, "msg{}", Chunks(chunks)),
            Body::NoMsg(chunks) => write!(f, "nomsg{}", Chunks(chunks)),
            Body::Msgp { align, thresh, chunks } => {
                write!(f, "msgp align {align} thresh {thresh}{}", Chunks(chunks))
            }
            Body::Done => f.write_str("done"),
            Body::Error(error) => write!(f, "error {error}"),
            Body::Optional(optional) => optional.fmt(f),
        }
    }
}

impl Display for RdmaError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vers { low, high } => write!(f, "vers {low}-{high}"),
            Self::BadHeader => f.write_str("bad-header"),
            Self::InvalOption => f.write_str("inval-option"),
        }
    }
}

impl Display for Optional<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::ConnProp(op) => {
                write!(f, "connprop {} nochg {}", set(op.start), Subset(op.nochg))
            }
            Self::ReqProp(op) => write!(f, "reqprop {}", set(op.want)),
            Self::RespProp(op) => {
                let (done, rej) = (Subset(op.done), Subset(op.rej));
                write!(f, "resprop done {done} rej {rej} other {}", set(op.other))
            }
            Self::UpdProp(op) => write!(f, "updprop {}", set(op.now)),
            Self::XmtReq(op) => {
                write!(f, "xmtreq dp {} rsd {}", Seq(op.dp.iter()), Seq(op.rsd.iter()))?;
                write!(f, " count {} rsbuf {} pslen {}", op.count, op.rsbuf, op.pslen)
            }
            Self::XmtResp(op) => {
                write!(f, "xmtresp dp {} count {} pslen {}", Seq(op.dp.iter()), op.count, op.pslen)
            }
            Self::XmtCont(op) => {
                write!(f, "xmtcont xnum {} itype {} pslen {}", op.xnum, op.itype, op.pslen)
            }
            Self::ReptErr(report) => report.fmt(f),
            Self::Unknown { opttype, info } => write!(f, "optional {opttype} {}", Hex(info)),
        }
    }
}

impl Display for ReptErr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "repterr {} of {}", Short(self.info), self.bad)?;
        match self.lead {
            Some(lead) => write!(f, " led by {lead}"),
            None => Ok(()),
        }
    }
}

impl Display for MsgId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let dir = match self.dir {
            MsgType::Call => "call",
            MsgType::Reply => "reply",
        };
        write!(f, "{dir} {:#010x} #{}", self.xid, self.seq)
    }
}

/// What was wrong in the words of a line; [`ReptInfo`] itself is written in sentences.
struct Short(ReptInfo);

impl Display for Short {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            ReptInfo::BadHmt(_) => "badhmt",
            ReptInfo::BadOmt(_) => "badomt",
            ReptInfo::BadCont => "badcont",
            ReptInfo::BadSeq(_) => "badseq",
            ReptInfo::BadXid(_) => "badxid",
            ReptInfo::BadOff(_) => "badoff",
            ReptInfo::BadTbsn(_) => "badtbsn",
            ReptInfo::BadPl(_) => "badpl",
        };
        f.write_str(name)?;
        match self.0 {
            ReptInfo::BadCont => Ok(()),
            ReptInfo::BadHmt(m)
            | ReptInfo::BadOmt(m)
            | ReptInfo::BadSeq(m)
            | ReptInfo::BadXid(m) => {
                write!(f, " {} for {}", m.current, m.expect)
            }
            ReptInfo::BadOff(r) | ReptInfo::BadTbsn(r) | ReptInfo::BadPl(r) => {
                write!(f, " {} not in {}-{}", r.value, r.min, r.max)
            }
        }
    }
}

impl Display for MsgItem<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{} ", self.disp, self.length)?;
        match self.loc {
            Loc::Exrw(segments) => write!(f, "exrw {}", Seq(segments.iter())),
            Loc::Tbsn { offset, segments } => {
                f.write_str("tbsn ")?;
                shorten(f, segments.iter(), ",")?;
                if offset == 0 { Ok(()) } else { write!(f, " offset {offset}") }
            }
            Loc::TooShort => f.write_str("tooshort"),
            Loc::NoItem => f.write_str("noitem"),
        }
    }
}

impl Display for RsdSet<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{} {}", self.begin, self.end, Seq(self.items.iter()))
    }
}

impl Display for RsdItem<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "min {} ", self.min_len)?;
        match self.loc {
            RsdLoc::Exrw(segments) => write!(f, "exrw {}", Seq(segments.iter())),
            RsdLoc::Tbsn => f.write_str("tbsn"),
            RsdLoc::Choice(segments) => write!(f, "choice {}", Seq(segments.iter())),
            RsdLoc::BySize { over, segments } => {
                write!(f, "bysize {over} {}", Seq(segments.iter()))
            }
        }
    }
}

impl Display for RdmaSegment {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}:{}@{:016x}", self.handle, self.length, self.offset)
    }
}

impl Display for ReadSegment {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.position, self.target)
    }
}

impl Display for WriteChunk<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Seq(self.0.iter()).fmt(f)
    }
}

impl Display for PropVal<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match Known::of(self.id) {
            Some(known) => f.write_str(known.name())?,
            None => write!(f, "prop{}", self.id.0)?,
        }
        f.write_char(' ')?;
        let property = Property::decode(*self);
        if let Ok(Property::Default(_)) = property {
            return f.write_str("default");
        }
        match property.as_ref().ok().and_then(Property::shown) {
            Some(value) => value.fmt(f),
            None => Hex(self.data).fmt(f),
        }
    }
}

impl Display for BackwardSupport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        (*self as u32).fmt(f)
    }
}

impl Display for RtrSupport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.bits())
    }
}

impl Display for RecvStructure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (index, group) in self.groups().enumerate() {
            let plus = if index == 0 { "" } else { "+" };
            let target = if group.placement { "p" } else { "" };
            write!(f, "{plus}{}x{}{target}", group.count, group.length)?;
        }
        Ok(())
    }
}

/// The lists that are not empty, each after a space.
struct Chunks<'c, 'a>(&'c ChunkLists<'a>);

impl Display for Chunks<'_, '_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if !self.0.reads.is_empty() {
            write!(f, " reads {}", Seq(self.0.reads.iter()))?;
        }
        if !self.0.writes.is_empty() {
            write!(f, " writes {}", Seq(self.0.writes.iter()))?;
        }
        match self.0.reply {
            Some(reply) => write!(f, " reply {reply}"),
            None => Ok(()),
        }
    }
}

/// A sequence in brackets.
struct Seq<I>(I);

impl<I: ExactSizeIterator<Item: Display> + Clone> Display for Seq<I> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char('[')?;
        shorten(f, self.0.clone(), ", ")?;
        f.write_char(']')
    }
}

fn set(set: PropSet<'_>) -> impl Display {
    Seq(set.iter())
}

fn shorten(
    f: &mut Formatter<'_>,
    items: impl ExactSizeIterator<Item: Display>,
    separator: &str,
) -> fmt::Result {
    let more = items.len().saturating_sub(SHOWN_MAX);
    for (index, item) in items.take(SHOWN_MAX).enumerate() {
        if index > 0 {
            f.write_str(separator)?;
        }
        item.fmt(f)?;
    }
    if more == 0 { Ok(()) } else { write!(f, "{separator}{more} more") }
}

/// The bits of a subset, as indices.
struct Subset<'a>(PropSubset<'a>);

impl Display for Subset<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char('{')?;
        let mut separator = "";
        for index in (0..32 * self.0.words().len()).filter(|index| self.0.contains(*index)) {
            write!(f, "{separator}{index}")?;
            separator = ",";
        }
        f.write_char('}')
    }
}

/// Bytes in hexadecimal.
struct Hex<'a>(&'a [u8]);

impl Display for Hex<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (shown, more) = self.0.split_at(self.0.len().min(4 * SHOWN_MAX));
        f.write_str("0x")?;
        shown.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        if more.is_empty() { Ok(()) } else { write!(f, ", {} more", more.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Array;
    use crate::property::PropId;
    use crate::rtr::placement::Tbsns;
    use crate::rtr::transmit::XmtResp;
    use std::string::ToString;

    #[test]
    fn a_long_sequence_is_cut_and_its_rest_counted() {
        let loc = Loc::Tbsn { offset: 0, segments: Tbsns::run(10, 256) };
        let item = MsgItem { disp: 4, length: 1 << 20, loc };
        assert_eq!(item.to_string(), "4+1048576 tbsn 10,11,12,13,14,15,16,17,248 more",);
        let items = [MsgItem { disp: 0, length: 0, loc: Loc::NoItem }; 9];
        let resp = XmtResp { dp: Array::from_slice(&items), count: 1, pslen: 8 };
        let line = Optional::XmtResp(resp).to_string();
        assert!(line.ends_with("0+0 noitem, 1 more] count 1 pslen 8"), "{line}");
        assert_eq!(Hex(&[7; 33]).to_string().len(), 2 + 64 + ", 1 more".len());
    }

    #[test]
    fn a_property_that_is_not_valid_is_shown_as_bytes() {
        let value = PropVal { id: PropId::BACKWARD_SUPPORT, data: &[0, 0, 0, 9] };
        assert_eq!(value.to_string(), "brs 0x00000009");
    }
}
