//! How a fabric behaves.

use rpcrdma_config::section;
use rpcrdma_provider::SetupError;
use rpcrdma_transport::clock::FabricClock;

/// The options of a fabric.
#[derive(Debug, Clone)]
pub struct FabricOptions {
    /// Slots of a ring, a power of two from 16 to 65536. A slot has 256 bytes; each pair of
    /// connected shards has two rings.
    pub slots: u32,
    /// The delay in one direction, in ns, also of acknowledgements.
    pub delay_ns: u64,
    /// How long a message waits for a Receive before it counts as retried once, in ns.
    pub rnr_timer_ns: u64,
    /// The clock of the delay and the retries. Not read without either.
    pub clock: FabricClock,
    /// Type-2 memory windows of all queues together; 0 for a device without windows.
    pub windows: u32,
    /// Concurrent RDMA Reads of a queue pair, from 1. Further ones wait.
    pub rd_atomic: u32,
    /// The seed of the remote keys of windows and registrations: the same seed gives the same keys.
    /// Without it they are unpredictable.
    pub key_seed: Option<u64>,
}

impl Default for FabricOptions {
    fn default() -> FabricOptions {
        FabricOptions {
            slots: 256,
            delay_ns: 0,
            // InfiniBand's shortest timer, apart from the code that means the longest.
            rnr_timer_ns: 10_000,
            clock: FabricClock::Real,
            windows: 1 << 16,
            rd_atomic: 16,
            key_seed: None,
        }
    }
}

impl From<&section::FabricSection> for FabricOptions {
    fn from(given: &section::FabricSection) -> FabricOptions {
        FabricOptions {
            slots: given.ring_slots.value(),
            delay_ns: u64::try_from(given.delay.as_nanos()).unwrap_or(u64::MAX),
            ..FabricOptions::default()
        }
    }
}

impl FabricOptions {
    /// Whether the options are valid.
    pub(crate) fn check(&self) -> Result<(), SetupError> {
        let has_slots = self.slots.is_power_of_two() && (16..=65536).contains(&self.slots);
        for (what, value, allowed, is_allowed) in [
            ("slots of a ring", self.slots, "a power of two from 16 to 65536", has_slots),
            ("Reads at one time", self.rd_atomic, "1 or more", self.rd_atomic > 0),
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
