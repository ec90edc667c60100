//! How a fabric behaves.

use rpcrdma_config::section;
use rpcrdma_provider::SetupError;
use rpcrdma_transport::body::MESSAGE_LEN_MAX;
use rpcrdma_transport::clock::DeviceClock;
use rpcrdma_transport::settings::Settings;

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
    pub clock: DeviceClock,
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
        let Settings { delay_ns, rnr_timer_ns, clock, windows, reads_max, .. } =
            Settings::default();
        FabricOptions {
            slots: 256,
            delay_ns,
            rnr_timer_ns,
            clock,
            windows,
            rd_atomic: reads_max,
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
        if !self.slots.is_power_of_two() || !(16..=65536).contains(&self.slots) {
            return Err(SetupError::Invalid {
                what: "slots of a ring",
                value: self.slots.to_string(),
                allowed: "a power of two from 16 to 65536".to_owned(),
            });
        }
        self.settings().check()
    }

    /// The settings of queues.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            delay_ns: self.delay_ns,
            rnr_timer_ns: self.rnr_timer_ns,
            reads_max: self.rd_atomic,
            message_len: MESSAGE_LEN_MAX,
            windows: self.windows,
            clock: self.clock.clone(),
        }
    }
}
