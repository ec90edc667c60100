//! Transmissions as far as groups care, from the choices of an input.

use rpcrdma_xdr::numbers::{VERSION_TWO, opttype};
use rpcrdma_xdr::{
    Array, Body, ChunkLists, Header, MsgId, MsgType, Optional, RdmaError, ReptErr, ReptInfo,
    XmtCont, XmtReq, XmtResp,
};

use super::BUFFER;
use crate::checks::choices::Choices;
use crate::checks::side::{rpc, wire};

/// A transmission, as far as groups care.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub(super) kind: Kind,
    pub(super) xid: u32,
    pub(super) credit: u32,
    /// Bytes behind the header.
    pub(super) behind: u32,
    /// Bytes of all that are there, if not all.
    pub(super) cut: Option<u32>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Msg(MsgType),
    Initial { dir: MsgType, count: u32, pslen: u32 },
    Cont { xnum: u32, itype: u32, pslen: u32 },
    Error,
    Report(MsgType),
    Unknown,
    Done,
    Version,
}

impl Sent {
    pub(super) fn any(choices: &mut Choices<'_>, calls: &[u32]) -> Self {
        let behind = choices.pick(&[40, 40, 40, 8, 0, 900]);
        let pslen = |choices: &mut Choices<'_>| match choices.below(6) {
            0 => choices.below(2 * BUFFER),
            1 => 8,
            _ => behind,
        };
        let dir = if choices.flag() { MsgType::Call } else { MsgType::Reply };
        let kind = match choices.below(16) {
            0 => Kind::Msg(dir),
            1..=5 => {
                let count = choices.pick(&[2, 3, 4, 1, 0, 5, 6, 70]);
                Kind::Initial { dir, count, pslen: pslen(choices) }
            }
            6..=11 => {
                let itype = choices.pick(&[opttype::XMTREQ, opttype::XMTRESP, 0, 7]);
                Kind::Cont { xnum: choices.below(6), itype, pslen: pslen(choices) }
            }
            12 => Kind::Error,
            13 => Kind::Report(dir),
            14 => Kind::Unknown,
            _ => choices.pick(&[Kind::Done, Kind::Version]),
        };
        let xid = match choices.below(8) {
            foreign @ 0..4 => 7 + foreign,
            own => calls.get(own as usize - 4).copied().unwrap_or(7),
        };
        let cut = choices.rarely(16).then(|| choices.below(48));
        Self { kind, xid, credit: choices.below(12), behind, cut }
    }

    pub(super) fn header(&self) -> Header<'static> {
        let (dp, rsd) = (Array::EMPTY, Array::EMPTY);
        let mut vers = VERSION_TWO;
        let operation = match self.kind {
            Kind::Initial { dir: MsgType::Call, count, pslen } => {
                Optional::XmtReq(XmtReq { dp, rsd, count, rsbuf: 1, pslen })
            }
            Kind::Initial { dir: MsgType::Reply, count, pslen } => {
                Optional::XmtResp(XmtResp { dp, count, pslen })
            }
            Kind::Cont { xnum, itype, pslen } => Optional::XmtCont(XmtCont { xnum, itype, pslen }),
            Kind::Report(dir) => {
                let bad = MsgId { xid: self.xid, dir, seq: 0 };
                Optional::ReptErr(ReptErr { bad, lead: None, info: ReptInfo::BadCont })
            }
            _ => Optional::Unknown { opttype: 99, info: &[] },
        };
        let body = match self.kind {
            Kind::Msg(_) => Body::Msg(ChunkLists::EMPTY),
            Kind::Error => Body::Error(RdmaError::BadHeader),
            Kind::Done => Body::Done,
            Kind::Version => {
                vers = 7;
                Body::Msg(ChunkLists::EMPTY)
            }
            _ => Body::Optional(operation),
        };
        Header { xid: self.xid, vers, credit: self.credit, body }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let reply = match self.kind {
            Kind::Msg(dir) | Kind::Initial { dir, .. } => dir == MsgType::Reply,
            _ => false,
        };
        // DONE is a prefix; the shortest message has three words more.
        let behind = if matches!(self.kind, Kind::Done) { 40 } else { self.behind as usize };
        let mut behind_bytes = rpc(self.xid, reply, behind);
        behind_bytes.truncate(behind);
        let mut bytes = wire(&self.header(), &behind_bytes);
        bytes.truncate(self.cut.unwrap_or(BUFFER) as usize);
        bytes
    }
}
