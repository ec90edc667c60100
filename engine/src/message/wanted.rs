//! The requested results of a call.

use rpcrdma_proto::{self as proto, WantKind};

use crate::api::sink::Sink;

/// Data items that a call may want placed.
pub const WANTS_MAX: usize = 8;

/// A data item of the reply that is wanted outside of the payload stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// If the item is shorter, it is wanted in line. 0 wants it placed whatever its length.
    pub len_min: u32,
    /// How long it can be. Receives are reserved for it.
    pub len_max: u32,
}

/// A want, and the operation that it is a result of: a part of the unreduced XDR stream. Those of
/// the call under construction stand in the outbox: a builder with room for their sinks would be
/// kilobytes to be moved with every call.
pub(crate) struct Wanted {
    pub want: Want,
    pub kind: WantKind,
    pub sent_max: u32,
    pub sink: Option<Sink>,
    pub begin: u32,
    /// [`OPEN`] for the operation that is being written.
    pub end: u32,
}

impl Wanted {
    /// As the protocol wants it, in a call of `end` bytes.
    pub fn as_demand(&self, end: u32) -> proto::Want {
        let Want { len_min: min_len, len_max: max_len } = self.want;
        let (begin, end) = (self.begin, self.end.min(end));
        let pieces = self.sink.as_ref().map_or(0, |sink| sink.pieces().len() as u32);
        proto::Want { begin, end, min_len, max_len, kind: self.kind, over: self.sent_max, pieces }
    }
}

/// The end of an operation that is being written: that of the call.
pub(crate) const OPEN: u32 = u32::MAX;
