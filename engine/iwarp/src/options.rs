//! How a provider over TCP behaves.

use rpcrdma_config::section;
use rpcrdma_provider::SetupError;
use rpcrdma_transport::clock::DeviceClock;
use rpcrdma_transport::settings::Settings;

/// The options of a provider over TCP.
#[derive(Debug, Clone)]
pub struct TcpOptions {
    /// Whether each FPDU is checked by its CRC32c. It is, too, if the peer wants that.
    pub crc: bool,
    /// Bytes of the longest message, RDMA Read or RDMA Write of this side, and of the longest
    /// message that it takes: a power of two from 65536 to 2^30. A connection has a buffer of this
    /// size, whose memory is used as it is touched. A peer that sends a longer message loses its
    /// connection.
    pub message_len: u32,
    /// How long a message waits for a Receive before it counts as retried once, in ns.
    pub rnr_timer_ns: u64,
    /// The clock of the retries. Not read without them.
    pub clock: DeviceClock,
    /// Type-2 memory windows of all queues together; 0 for a device without windows.
    pub windows: u32,
    /// Concurrent RDMA Reads of a queue pair in each direction, from 1. Further ones wait. A peer
    /// may allow fewer.
    pub rd_atomic: u32,
    /// The seed of the remote keys of windows and registrations: the same seed gives the same keys.
    /// Without it they are unpredictable.
    pub key_seed: Option<u64>,
}

impl Default for TcpOptions {
    fn default() -> TcpOptions {
        let Settings { rnr_timer_ns, clock, windows, reads_max, .. } = Settings::default();
        TcpOptions {
            crc: false,
            message_len: 4 << 20,
            rnr_timer_ns,
            clock,
            windows,
            rd_atomic: reads_max,
            key_seed: None,
        }
    }
}

impl From<&section::TcpSection> for TcpOptions {
    fn from(given: &section::TcpSection) -> TcpOptions {
        TcpOptions {
            crc: given.crc,
            message_len: given.message_len.value(),
            ..TcpOptions::default()
        }
    }
}

impl TcpOptions {
    /// Whether the options are valid.
    pub(crate) fn check(&self) -> Result<(), SetupError> {
        let len = self.message_len;
        if !len.is_power_of_two() || !(MESSAGE_LEN_MIN..=MESSAGE_LEN_MAX).contains(&len) {
            return Err(SetupError::Invalid {
                what: "length of the longest message",
                value: len.to_string(),
                allowed: format!("a power of two from {MESSAGE_LEN_MIN} to {MESSAGE_LEN_MAX}"),
            });
        }
        self.settings().check()
    }

    /// The settings of queues.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            delay_ns: 0,
            rnr_timer_ns: self.rnr_timer_ns,
            reads_max: self.rd_atomic,
            message_len: self.message_len,
            windows: self.windows,
            clock: self.clock.clone(),
        }
    }
}

const MESSAGE_LEN_MIN: u32 = 64 << 10;
const MESSAGE_LEN_MAX: u32 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_that_is_not_allowed_is_named_with_those_that_are() {
        let with = |message_len| TcpOptions { message_len, ..TcpOptions::default() }.check();
        for len in [MESSAGE_LEN_MIN, 1 << 20, MESSAGE_LEN_MAX] {
            with(len).expect("allowed");
        }
        for len in [0, 1, MESSAGE_LEN_MIN / 2, MESSAGE_LEN_MIN + 1, 3 << 20, 1 << 31, u32::MAX] {
            let why = with(len).expect_err("not allowed").to_string();
            assert!(why.contains("a power of two from 65536 to 1073741824"), "{why}");
        }
        let none = TcpOptions { rd_atomic: 0, ..TcpOptions::default() };
        assert!(matches!(none.check(), Err(SetupError::Invalid { .. })));
    }
}
