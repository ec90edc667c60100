//! How shared memory behaves.

use rpcrdma_config::section;
use rpcrdma_provider::SetupError;
use rpcrdma_transport::clock::DeviceClock;
use rpcrdma_transport::settings::Settings;

use crate::layout::Dimensions;

/// The options of shared memory.
#[derive(Debug, Clone)]
pub struct ShmOptions {
    /// Slots of a ring, a power of two from 16 to 16384. A slot has 256 bytes; a connection has two
    /// rings. The side that connects chooses.
    pub slots: u32,
    /// Bytes of a staging area, a power of two from 65536 to 2^30: the longest message, RDMA
    /// Read or RDMA Write of a connection, and how much of them is under way at one time. A
    /// connection has two; memory is used as it is touched. Each side sends and reads at most its own
    /// value in one request. The areas have the size of the connecting side; a listener with a larger
    /// value rejects it.
    pub staging: u32,
    /// Whether peers that do so, too, map this side's registered regions, read-only, as far as they
    /// are shared ([`RegionSpec::shared`](rpcrdma_mempool::RegionSpec::shared)): a long message is
    /// then copied once. For processes of one owner.
    pub map_pools: bool,
    /// How long a message waits for a Receive before it counts as retried once, in ns.
    pub rnr_timer_ns: u64,
    /// The clock of the retries. Not read without them.
    pub clock: DeviceClock,
    /// Type-2 memory windows of all queues together; 0 for a device without windows.
    pub windows: u32,
    /// Concurrent RDMA Reads of a queue pair, from 1. Further ones wait.
    pub rd_atomic: u32,
    /// The seed of the remote keys of windows and registrations: the same seed gives the same keys.
    /// Without it they are unpredictable.
    pub key_seed: Option<u64>,
}

impl Default for ShmOptions {
    fn default() -> ShmOptions {
        let Settings { rnr_timer_ns, clock, windows, reads_max, .. } = Settings::default();
        ShmOptions {
            slots: 128,
            staging: 4 << 20,
            map_pools: false,
            rnr_timer_ns,
            clock,
            windows,
            rd_atomic: reads_max,
            key_seed: None,
        }
    }
}

impl From<&section::ShmSection> for ShmOptions {
    fn from(given: &section::ShmSection) -> ShmOptions {
        ShmOptions {
            slots: given.ring_slots.value(),
            staging: given.staging.value(),
            map_pools: given.map_pools,
            ..ShmOptions::default()
        }
    }
}

impl ShmOptions {
    pub(crate) fn dimensions(&self) -> Dimensions {
        Dimensions { slots: self.slots, staging: self.staging }
    }

    /// Whether the options are valid.
    pub(crate) fn check(&self) -> Result<(), SetupError> {
        self.dimensions().check()?;
        self.settings().check()
    }

    /// The settings of queues.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            delay_ns: 0,
            rnr_timer_ns: self.rnr_timer_ns,
            reads_max: self.rd_atomic,
            message_len: self.staging,
            windows: self.windows,
            clock: self.clock.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use rpcrdma_config::Config;

    use super::*;

    #[test]
    fn options_are_those_of_the_configuration() {
        let mut raw = Config::default().raw().clone();
        raw.shm.ring_slots = 64;
        raw.shm.staging = "1MiB".into();
        raw.shm.map_pools = true;
        let config = Config::try_from(raw).expect("a sound configuration");
        let options = ShmOptions::from(config.shm());
        assert_eq!((options.slots, options.staging, options.map_pools), (64, 1 << 20, true));
    }
}
