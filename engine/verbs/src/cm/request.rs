//! A connection request of a peer.

use super::id::Id;
use super::offer::Depths;

/// A connection request that was neither accepted nor rejected. Dropping it rejects it.
pub struct VerbsRequest {
    pub(super) id: Option<Id>,
    /// What events of its id name it by.
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
