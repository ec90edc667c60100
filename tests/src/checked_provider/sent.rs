//! The record that a checked provider keeps of an outstanding request.

use rpcrdma::provider::{SendFlags, SendOp, SendWr, WrId};
use rpcrdma_mempool::Sge;

use super::memory::sum;

/// An outstanding send.
pub(super) struct Sent {
    pub wr_id: WrId,
    /// Empty for a request that was copied while posting.
    pub sgl: Vec<Sge>,
    pub sum: u64,
    pub is_signaled: bool,
    /// Of a Read: its destination, and the sum of the bytes once they have arrived.
    pub reads: Option<(Vec<Sge>, Option<u64>)>,
    /// Of an invalidation: the key.
    pub kills: Option<u32>,
}

impl Sent {
    /// Records a request.
    pub fn of(wr: &SendWr<'_>) -> Sent {
        let is_read = matches!(wr.op, SendOp::Read(_));
        // Copied bytes belong to the program. A request that waits for a Read may send the bytes of
        // the Read.
        let is_copied = wr.flags.contains(SendFlags::INLINE) || wr.flags.contains(SendFlags::FENCE);
        let sgl = if is_copied || is_read { Vec::new() } else { wr.sgl.to_vec() };
        let kills = match wr.op {
            SendOp::Invalidate { rkey } => Some(rkey),
            _ => None,
        };
        Sent {
            wr_id: wr.wr_id,
            sum: sum(&sgl),
            sgl,
            is_signaled: wr.flags.contains(SendFlags::SIGNALED),
            reads: is_read.then(|| (wr.sgl.to_vec(), None)),
            kills,
        }
    }
}
