//! Registration: makes a region accessible to a device.
#![expect(unsafe_code, reason = "giving rights to peers is a promise about the bytes")]

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

/// The rights of a device, and of peers, to a region. Rights of peers need unsafe code, because the
/// caller must guarantee that nothing else accesses the bytes:
///
/// ```compile_fail,E0133
/// use rpcrdma_mempool::{Access, Rights};
/// let rights = Rights::of_peers(Access::REMOTE_WRITE);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights(Access);

impl Rights {
    /// Rights of the device itself.
    ///
    /// # Panics
    /// If they include rights of peers, which need [`Rights::of_peers`].
    pub fn own(access: Access) -> Rights {
        assert!(!access.intersects(REMOTE), "rights of peers need `Rights::of_peers`");
        Rights(access)
    }

    /// Rights of the device and of peers.
    ///
    /// # Safety
    /// While a region is registered with them, the program does not read or write bytes that peers
    /// may write, and does not write bytes that peers may read. The region stays mapped until it is
    /// deregistered.
    pub unsafe fn of_peers(access: Access) -> Rights {
        Rights(access)
    }

    /// The access flags for the device.
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

/// Registers regions with a device. Control plane.
pub trait Registrar: Send + Sync {
    /// Registers a region. The caller must keep the region mapped until it is deregistered, as
    /// [`Registered`](crate::Registered) does.
    ///
    /// # Errors
    /// If the device cannot register the region.
    fn register(&self, region: &Region, rights: Rights) -> Result<Keys, RegisterError>;
    /// Deregisters a region. Keys that are not registered are ignored. After success, neither the
    /// device nor a peer uses the keys.
    ///
    /// # Errors
    /// If deregistration fails: the memory must stay mapped.
    fn deregister(&self, keys: Keys) -> std::io::Result<()>;
    /// Whether regions are of more use to the device if other processes can map them
    /// ([`RegionSpec::shared`](crate::RegionSpec::shared)).
    fn wants_shared(&self) -> bool {
        false
    }
}

/// Why a region cannot be registered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The device has reached its limit of registrations.
    #[error("the device cannot register another memory region; {held} are registered")]
    Full {
        /// The number of its registrations.
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
