//! The state that the clones of a provider share, and the connection managers with them.

use std::sync::Arc;

use rpcrdma_transport::device::Device;

use crate::closer::Closer;
use crate::layout::Dimensions;
use crate::options::ShmOptions;
use crate::pools::Files;
use crate::socket;
use crate::watch::Watch;

/// What all clones share. Control plane only.
pub(crate) struct Shared {
    pub options: ShmOptions,
    pub device: Device,
    /// The registrations, with the memory of those that peers may map.
    pub files: Arc<Files>,
    pub watch: Arc<Watch>,
    pub closer: Closer,
    /// The position of the first slot of each ring: 0, except in tests of wrap-around.
    pub first: u64,
}

impl Shared {
    /// The device: numbers, registrations.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn device_name(&self) -> &str {
        &self.device.caps().name
    }

    /// The dimensions of the links that this side makes.
    pub(crate) fn dimensions(&self) -> Dimensions {
        self.options.dimensions()
    }

    /// Whether a user may see the pools of this process: its own.
    pub(crate) fn is_owner(&self, uid: u32) -> bool {
        is_same_user(uid, socket::own_user())
    }

    pub(crate) fn maps_pools(&self) -> bool {
        self.options.map_pools
    }

    /// Closes what peers have sent.
    pub(crate) fn closer(&self) -> &Closer {
        &self.closer
    }

    pub(crate) fn watch(&self) -> &Arc<Watch> {
        &self.watch
    }
}

/// Whether both are the same user. In a user namespace all users of outside have one number, which
/// a user of the namespace may have, too.
fn is_same_user(one: u32, other: u32) -> bool {
    one == other && one != OVERFLOW_USER
}

/// The number of users that a namespace does not have: `DEFAULT_OVERFLOWUID` of linux/highuid.h.
const OVERFLOW_USER: u32 = 65534;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_that_may_be_any_user_owns_nothing() {
        assert!(is_same_user(0, 0) && is_same_user(1000, 1000));
        assert!(!is_same_user(1000, 1001) && !is_same_user(65534, 65534));
    }
}
