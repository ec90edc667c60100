//! The memory of peers that support only version one.
//!
//! All shards of an engine share one memory. It is read when a connection is made and written when
//! an attempt with version two has failed or succeeded.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::clock::nanos;
use crate::provider::Address;

/// Addresses found to support version one only, each for a limited time (wire.md B4).
#[derive(Debug)]
pub(crate) struct VersionMemory {
    life: u64,
    entries: Mutex<Vec<Entry>>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    at: Address,
    /// When it expires, in nanoseconds of the shards' clock.
    until: u64,
}

impl VersionMemory {
    /// Remembers each address for `life`; not at all if that is zero.
    pub fn new(life: Duration) -> VersionMemory {
        VersionMemory { life: nanos(life), entries: Mutex::new(Vec::new()) }
    }

    /// Records that version two failed at this address.
    pub fn note_one(&self, at: Address, now: u64) {
        if self.life == 0 {
            return;
        }
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|entry| entry.at != at && entry.until > now);
        // An address removed too early is tried with version two again.
        if entries.len() == PEERS_MAX
            && let Some(oldest) = (0..entries.len()).min_by_key(|&index| entries[index].until)
        {
            entries.swap_remove(oldest);
        }
        entries.push(Entry { at, until: now.saturating_add(self.life) });
    }

    /// Removes an address: it has shown support of version two.
    pub fn forget(&self, at: Address) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|entry| entry.at != at);
    }

    /// Whether this address is known to support version one only.
    pub fn is_one(&self, at: Address, now: u64) -> bool {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().any(|entry| entry.at == at && entry.until > now)
    }
}

/// The maximum of addresses.
const PEERS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const MINUTE_NS: u64 = 60_000_000_000;

    fn address(port: u16) -> Address {
        SocketAddr::from(([127, 0, 0, 1], port)).into()
    }

    #[test]
    fn an_address_is_remembered_for_the_configured_time() {
        let memory = VersionMemory::new(MINUTE);
        assert!(!memory.is_one(address(1), 5));
        memory.note_one(address(1), 5);
        assert!(memory.is_one(address(1), 5) && !memory.is_one(address(2), 5));
        assert!(memory.is_one(address(1), 5 + MINUTE_NS - 1));
        assert!(!memory.is_one(address(1), 5 + MINUTE_NS));
        memory.note_one(address(1), MINUTE_NS);
        assert!(memory.is_one(address(1), 2 * MINUTE_NS - 1), "found out again");
        memory.forget(address(1));
        assert!(!memory.is_one(address(1), MINUTE_NS));
    }

    #[test]
    fn without_a_lifetime_nothing_is_remembered() {
        let memory = VersionMemory::new(Duration::ZERO);
        memory.note_one(address(1), 5);
        assert!(!memory.is_one(address(1), 5));
    }

    #[test]
    fn the_memory_is_bounded_and_loses_the_oldest() {
        let memory = VersionMemory::new(MINUTE);
        for port in 0..=PEERS_MAX as u16 {
            memory.note_one(address(port), port.into());
        }
        assert!(!memory.is_one(address(0), 1000));
        assert!((1..=PEERS_MAX as u16).all(|port| memory.is_one(address(port), 1000)));
        // Expired entries make room for all.
        memory.note_one(address(0), 2 * MINUTE_NS);
        assert_eq!(memory.entries.lock().expect("no thread has panicked").len(), 1);
    }
}
