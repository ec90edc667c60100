//! What a configuration needs of a machine: memory, a device, cores.

use crate::choice::{Cores, IdlePolicy};
use crate::config::Config;
use crate::error::{ConfigError, at_most, sum};
use crate::section::control_reserve;
use crate::sums::buffer_len;
use crate::units::{CoreNumbers, Length};

/// The limits of a device that a configuration must respect. All are maxima.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Scatter entries of a Receive on a shared receive queue.
    pub recv_sge: u32,
    /// Receives of a shared receive queue.
    pub srq_depth: u32,
    /// Bytes of one message.
    pub message_len: u32,
}

impl Config {
    /// Receives per shard that are reserved for messages without a credit: properties, grants and
    /// errors (`wire.md` P10). Four per connection, but shared, and so at most 64.
    pub fn control_reserve(&self) -> u32 {
        control_reserve(self.connections().max.value())
    }

    /// Receives per shard that may be granted as credits, over all connections together.
    pub fn grants_max(&self) -> u32 {
        self.receive().buffers.value() - self.control_reserve() - self.receive().replies.value()
    }

    /// Bytes of memory that one shard requests for receiving and sending, without headers and
    /// before rounding up to pages.
    pub fn shard_memory_len(&self) -> u64 {
        let (receive, send, bulk) = (self.receive(), self.send(), self.app().bulk);
        let product = |count: u32, len: u32| u64::from(count) * u64::from(len);
        let explicit = self.explicit();
        let rdma_buffers = match explicit.enabled {
            true => product(explicit.buffers.count.value(), explicit.buffers.len.value()),
            false => 0,
        };
        let placed = match receive.placement.count.value() {
            0 => 0,
            _ => product(receive.spares.value(), receive.placement.len.value()),
        };
        u64::from(receive.buffers.value()) * buffer_len(receive)
            + placed
            + product(send.slots.value(), send.payload_len.value())
            + u64::from(send.zero_len.value())
            + product(bulk.count.value(), bulk.len.value())
            + rdma_buffers
    }

    /// Checks the receive buffers against the limits of a device.
    ///
    /// # Errors
    /// [`ConfigError::Sum`] with the key to lower and the device's limit.
    pub fn check_device(&self, limits: &DeviceLimits) -> Result<(), ConfigError> {
        let receive = self.receive();
        let count = receive.placement.count.value();
        if count >= limits.recv_sge {
            return Err(sum(
                "receive.placement.count",
                count,
                format!("a Receive has {} scatter entries, with the leading segment", count + 1),
                format!("{} on this device", at_most(limits.recv_sge.saturating_sub(1))),
            ));
        }
        if receive.buffers.value() > limits.srq_depth {
            return Err(sum(
                "receive.buffers",
                receive.buffers,
                "all are posted to one shared receive queue".to_owned(),
                format!("{} on this device", at_most(limits.srq_depth)),
            ));
        }
        if buffer_len(receive) > u64::from(limits.message_len) {
            return Err(sum(
                "receive.placement.length",
                Length(receive.placement.len.value().into()),
                format!("a receive buffer has {} in all", Length(buffer_len(receive))),
                format!("messages of {} on this device", Length(limits.message_len.into())),
            ));
        }
        Ok(())
    }

    /// Checks the cores against those of the machine, and the shards against their number.
    ///
    /// # Errors
    /// [`ConfigError::Sum`] for the first core that does not exist, or if spinning shards would
    /// have to share a core.
    pub fn check_cores(&self, present: &[usize]) -> Result<(), ConfigError> {
        let engine = self.engine();
        match &engine.cores {
            Cores::List(cores) => match cores.iter().find(|core| !present.contains(core)) {
                Some(absent) => Err(sum(
                    "engine.cores",
                    CoreNumbers(cores),
                    format!("this machine has no core {absent}"),
                    format!("cores of {}", CoreNumbers(present)),
                )),
                None => Ok(()),
            },
            Cores::Auto => {
                let crowded = engine.shards.as_usize() > present.len();
                if crowded && engine.idle.policy == IdlePolicy::Spin {
                    return Err(sum(
                        "engine.shards",
                        engine.shards,
                        format!(
                            "each shard spins on its own core; this machine has {}",
                            present.len()
                        ),
                        "fewer shards, or engine.idle.policy \"backoff\" or \"block\"".to_owned(),
                    ));
                }
                Ok(())
            }
        }
    }
}
