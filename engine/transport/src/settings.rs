//! How the queues of a device behave.

use rpcrdma_provider::SetupError;

use crate::body::MESSAGE_LEN_MAX;
use crate::clock::DeviceClock;

/// The parameters of all queues of a device.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The delay in one direction, in ns.
    pub delay_ns: u64,
    /// How long a retry waits, in ns.
    pub rnr_timer_ns: u64,
    /// Concurrent Reads of one queue pair.
    pub reads_max: u32,
    /// Bytes of the longest message.
    pub message_len: u32,
    /// Memory windows of all queues together; 0 for a device without windows.
    pub windows: u32,
    /// The clock of the delay and the retries.
    pub clock: DeviceClock,
}

impl Settings {
    /// Whether the options that they come from are valid.
    ///
    /// # Errors
    /// [`SetupError::Invalid`], naming the first that is not.
    pub fn check(&self) -> Result<(), SetupError> {
        for (what, value, allowed, is_allowed) in [
            ("Reads at one time", self.reads_max, "1 or more", self.reads_max > 0),
            ("memory windows", self.windows, "2^22 at most", self.windows <= 1 << 22),
        ] {
            if !is_allowed {
                let (value, allowed) = (value.to_string(), allowed.to_owned());
                return Err(SetupError::Invalid { what, value, allowed });
            }
        }
        Ok(())
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            delay_ns: 0,
            // InfiniBand's shortest timer, apart from the code that means the longest.
            rnr_timer_ns: 10_000,
            reads_max: 16,
            message_len: MESSAGE_LEN_MAX,
            windows: 1 << 16,
            clock: DeviceClock::Real,
        }
    }
}
