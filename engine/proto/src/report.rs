//! Reports: error messages to a peer, and the effect of received ones.

use rpcrdma_xdr::cursor::Writer;
use rpcrdma_xdr::error::NoRoom;
use rpcrdma_xdr::header::{Body, Header, Optional, RdmaError};
use rpcrdma_xdr::numbers::opttype;
use rpcrdma_xdr::onc::MsgType;
use rpcrdma_xdr::rtr::fixed::Stamp;
use rpcrdma_xdr::rtr::report::{MsgId, ReptErr, ReptInfo};
use thiserror::Error;

use crate::error::{ErrorReply, Violation};
use crate::version::Versions;

/// An error message to the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// The xid of the offending message.
    pub xid: u32,
    /// What is said about it.
    pub kind: ReportKind,
}

/// What a report says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportKind {
    /// RDMA_ERR_VERS, echoing this version.
    Version {
        /// `rdma_vers` of the offending message.
        vers: u32,
    },
    /// RDMA_ERR_BAD_HEADER, which version one calls ERR_CHUNK: the same number (wire.md N5).
    BadHeader,
    /// RDMA_ERR_INVAL_OPTION.
    InvalOption,
    /// A report of the extension (\[RTR\] 9.5).
    Rept(ReptErr),
}

impl Report {
    /// Encodes the message: at most 68 bytes.
    pub(crate) fn encode(
        &self,
        Stamp { vers: ours, credit }: Stamp,
        spoken: Versions,
        writer: &mut Writer<'_>,
    ) -> Result<(), NoRoom> {
        let (vers, body) = match self.kind {
            // wire.md B8: the version is echoed.
            ReportKind::Version { vers } => {
                let (low, high) = spoken.range();
                (vers, Body::Error(RdmaError::Vers { low, high }))
            }
            ReportKind::BadHeader => (ours, Body::Error(RdmaError::BadHeader)),
            ReportKind::InvalOption => (ours, Body::Error(RdmaError::InvalOption)),
            ReportKind::Rept(rept) => (ours, Body::Optional(Optional::ReptErr(rept))),
        };
        Header { xid: self.xid, vers, credit, body }.encode(writer)
    }

    /// The report of a violation by transmission `bad`, of a group that began with `lead`.
    pub(crate) fn of(violation: Violation, bad: MsgId, lead: Option<MsgId>) -> Self {
        let kind = match violation.error_reply() {
            ErrorReply::BadHeader => ReportKind::BadHeader,
            ErrorReply::InvalOption => ReportKind::InvalOption,
            ErrorReply::Report(info) => ReportKind::Rept(ReptErr { bad, lead, info }),
        };
        Self { xid: bad.xid, kind }
    }
}

/// The first transmission of a message.
pub(crate) fn initial_of(xid: u32, dir: MsgType) -> MsgId {
    MsgId { xid, dir, seq: 0 }
}

/// The direction of an RPC that this operation begins to carry.
pub(crate) fn direction_of(option: u32) -> Option<MsgType> {
    match option {
        opttype::XMTREQ => Some(MsgType::Call),
        opttype::XMTRESP => Some(MsgType::Reply),
        _ => None,
    }
}

/// The message that a report of the peer is about: the one that led to the error, if it is named.
pub(crate) fn subject_of(report: &ReptErr) -> MsgId {
    report.lead.unwrap_or(report.bad)
}

/// Why the peer rejects an own message, or cannot answer it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It does not speak our version. The call was not executed.
    #[error("it supports versions {low} to {high} only")]
    Version {
        /// Its lowest version.
        low: u32,
        /// Its highest version.
        high: u32,
    },
    /// Our header is invalid, a message exceeds its limit, its program rejects the call, or it
    /// cannot answer in the required form (RDMA_ERR_BAD_HEADER): before or after the execution of
    /// the call (RFC 8166 4.5.3).
    #[error("it cannot decode the call, rejects it, or cannot send its reply")]
    BadHeader,
    /// It does not support the operation, which is not used again.
    #[error("it does not support the operation")]
    InvalOption,
    /// A report of the extension.
    #[error("it reports {0}")]
    Reported(ReptInfo),
    /// Its reply cannot be used: it uses explicit RDMA, for which no memory was offered.
    #[error("its reply uses memory that was not exposed for it")]
    BadReply,
}

impl From<RdmaError> for Refusal {
    fn from(error: RdmaError) -> Self {
        match error {
            RdmaError::Vers { low, high } => Self::Version { low, high },
            RdmaError::BadHeader => Self::BadHeader,
            RdmaError::InvalOption => Self::InvalOption,
        }
    }
}
