//! A connection request of a peer.

use crate::cm_id::Id;
use crate::cm_id::offer::Depths;

/// A pending connection request. Dropping it rejects it.
pub struct VerbsRequest {
    pub(super) id: Option<Id>,
    /// The key that its id's events carry.
    pub(super) key: u64,
    /// How many RDMA Reads the peer asks for.
    pub(super) depths: Depths,
}

impl Drop for VerbsRequest {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            id.reject(&[]);
        }
    }
}
