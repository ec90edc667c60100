//! Registration: how a region becomes memory that a device may touch.
#![expect(unsafe_code, reason = "who gives rights to peers makes a promise about the bytes")]

use crate::region::Region;

/// The keys of a registered region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keys {
    /// For the scatter and gather lists of local work requests.
    pub lkey: u32,
    /// For a peer's RDMA Reads and Writes, if the region was registered for them.
    pub rkey: u32,
}

bitflags::bitflags! {
    /// What a device may do with a region. Values as in `enum ibv_access_flags`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Access: u32 {
        /// The device may write on behalf of local Receives and RDMA Reads.
        const LOCAL_WRITE = 1;
        /// A peer may write with the remote key.
        const REMOTE_WRITE = 2;
        /// A peer may read with the remote key.
        const REMOTE_READ = 4;
        /// Memory windows may be bound on the region.
        const MW_BIND = 16;
    }
}

/// What a device may do with a region. What peers may do as well is nobody's to give who has not said
/// that the bytes are in no other hands:
///
/// ```compile_fail,E0133
/// use rpcrdma_mempool::{Access, Rights};
/// let rights = Rights::of_peers(Access::REMOTE_WRITE);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights(Access);

impl Rights {
    /// Those of the device itself.
    ///
    /// # Panics
    /// If peers are to have any: those are of [`Rights::of_peers`].
    pub fn own(access: Access) -> Rights {
        assert!(
            !access.intersects(REMOTE),
            "rights of peers, without a word on whose memory it is"
        );
        Rights(access)
    }

    /// Those of the device and of peers.
    ///
    /// # Safety
    /// As long as a region is registered with them, nobody else touches its bytes but as these rights
    /// leave room for: what peers may write to is neither read nor written, and what they may read is
    /// not written. The region stays mapped until its registration is taken back.
    pub unsafe fn of_peers(access: Access) -> Rights {
        Rights(access)
    }

    /// As a device is told.
    pub fn access(self) -> Access {
        self.0
    }
}

const REMOTE: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE);

/// One entry of a scatter or gather list, laid out as `struct ibv_sge`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Sge {
    /// The address of the first byte.
    pub addr: u64,
    /// The number of bytes.
    pub length: u32,
    /// The local key of the region that the bytes lie in.
    pub lkey: u32,
}

/// Makes regions known to a device. Every provider is one. Control plane.
pub trait Registrar: Send + Sync {
    /// Registers a region. It must not be unmapped before it is deregistered: whoever registers
    /// keeps the region alive. [`Registered`](crate::Registered) does.
    ///
    /// # Errors
    /// If the device does not take the region.
    fn register(&self, region: &Region, rights: Rights) -> Result<Keys, RegisterError>;
    /// Takes a registration back. Keys that are not registered are ignored. When it has succeeded,
    /// nobody uses the keys any more.
    ///
    /// # Errors
    /// If the device does not give the registration back: the memory must stay mapped.
    fn deregister(&self, keys: Keys) -> std::io::Result<()>;
}

/// Why a region could not be registered.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// The device has no registrations left.
    #[error("the device cannot register another memory region; {held} are registered")]
    Full {
        /// How many it holds.
        held: u64,
    },
    /// The device refused.
    #[error("registering {bytes} bytes failed: {source}; check the memlock limit (ulimit -l)")]
    Device {
        /// The size of the region.
        bytes: usize,
        /// The error of the call.
        source: std::io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_the_rights_that_it_was_given() {
        let own = Access::LOCAL_WRITE | Access::MW_BIND;
        assert_eq!(Rights::own(own).access(), own);
        // SAFETY: no region is registered with them.
        assert_eq!(unsafe { Rights::of_peers(Access::all()) }.access(), Access::all());
    }

    #[test]
    fn no_safe_function_gives_rights_to_peers() {
        for remote in [Access::REMOTE_READ, Access::REMOTE_WRITE | Access::LOCAL_WRITE] {
            let refused = std::panic::catch_unwind(|| Rights::own(remote));
            assert!(refused.is_err(), "{remote:?}");
        }
    }
}
