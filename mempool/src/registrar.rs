//! Registration: how a region becomes memory that a device may touch.

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
    fn register(&self, region: &Region, access: Access) -> Result<Keys, RegisterError>;
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
    #[error("the device has no room for another memory region; it holds {held}")]
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
