//! What a watched provider remembers of a request that is in the device's hands.

use rpcrdma_engine::provider::{SendFlags, SendOp, SendWr, WrId};
use rpcrdma_mempool::Sge;

use super::sum;

/// A send in the device's hands.
pub(super) struct Sent {
    pub wr_id: WrId,
    /// None of it for one that was copied while posting.
    pub sgl: Vec<Sge>,
    pub sum: u64,
    pub is_signaled: bool,
    /// Of a Read: where its bytes go, and their sum once they are there.
    pub reads: Option<(Vec<Sge>, Option<u64>)>,
    /// Of an invalidation: the key.
    pub kills: Option<u32>,
}

impl Sent {
    /// What is remembered of a request.
    pub fn of(wr: &SendWr<'_>) -> Sent {
        let is_read = matches!(wr.op, SendOp::Read(_));
        // What was copied is the program's. What waits for a Read may be what the Read brings.
        let is_settled =
            wr.flags.contains(SendFlags::INLINE) || wr.flags.contains(SendFlags::FENCE);
        let sgl = if is_settled || is_read { Vec::new() } else { wr.sgl.to_vec() };
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
