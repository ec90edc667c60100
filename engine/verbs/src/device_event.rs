//! An event of a device, and its recipient.

use crate::names::Name;

/// An acknowledged event: the object that it names may be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceEvent {
    Port {
        num: u8,
        is_up: bool,
    },
    PairFailed(Name),
    LastReceive(Name),
    /// The peer has sent a message before the connection was established.
    Established(Name),
    /// A completion queue or a shared receive queue.
    QueueFailed(Name),
    DeviceLost,
    Other,
}

/// A port on the device.
pub(crate) trait Listener: Send + Sync {
    /// Handles an event. Returns whether it belongs to this port, or to all ports.
    fn on_event(&self, happened: DeviceEvent) -> bool;
}
