//! RDMA Writes of a reply: what goes where in the memory that the caller offered

use rpcrdma_xdr::chunk::RdmaSegment;

use crate::placement::gather::Gather;
use crate::placement::plan::GroupPlan;

/// An RDMA Write into memory that the peer offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteWrite {
    /// Exactly what is written.
    pub remote: RdmaSegment,
    /// The item that is written; none if it is the message itself.
    item: Option<u8>,
    /// Its first byte.
    start: u32,
}

impl GroupPlan<'_> {
    /// The next RDMA Write of the message, to be posted before its transmissions and on the same
    /// queue pair.
    pub fn next_write(&mut self) -> Option<RemoteWrite> {
        None
    }

    /// What an RDMA Write is gathered from.
    pub fn write_pieces(&self, write: &RemoteWrite) -> impl Iterator<Item = Gather> + use<> {
        let RemoteWrite { remote, item, start } = *write;
        item.map(|item| Gather::Bulk { item: usize::from(item), start, len: remote.length })
            .into_iter()
    }

    /// The handle that the last transmission of the message is to invalidate.
    #[must_use]
    pub fn invalidate(&self) -> Option<u32> {
        None
    }
}
