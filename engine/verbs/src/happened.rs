//! An event of a device, and its recipient.

use crate::names::Name;

/// An event, after it was acknowledged: what it names may be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Happened {
    Port {
        num: u8,
        is_up: bool,
    },
    PairFailed(Name),
    LastReceive(Name),
    /// The peer has sent something before its last word on the connection came.
    Established(Name),
    /// A completion queue or a shared receive queue.
    QueueFailed(Name),
    DeviceLost,
    Other,
}

/// A port on the device.
pub(crate) trait Listener: Send + Sync {
    /// Takes in an event. Whether it is of this port, or of all.
    fn hear(&self, happened: Happened) -> bool;
}
