//! Peer quotas: the connections of each peer over all shards, at most `connections.max_per_peer`.
//!
//! A [`QuotaPermit`] is held from the request to the end of its connection, wherever that is: by the
//! control plane, by an arrival, by a shard. Dropping it is all that ends it, so none can be
//! forgotten. A peer, that is an [`Origin`], costs memory only while it has one, or until the next
//! sweep.

use std::collections::HashMap;
use std::sync::Arc;

use crate::provider::Origin;

/// The peers that have connections, or had.
pub(crate) struct PeerQuotas {
    /// The most connections of each; 0 is without limit, and nothing is counted.
    max: usize,
    known: HashMap<Origin, Arc<()>>,
    /// The number of peers at which those without connections are removed.
    sweep_at: usize,
}

/// One connection of a peer.
#[derive(Debug)]
pub(crate) struct QuotaPermit(#[expect(dead_code, reason = "it is counted")] Option<Arc<()>>);

impl PeerQuotas {
    pub fn new(max: usize) -> PeerQuotas {
        PeerQuotas { max, known: HashMap::new(), sweep_at: SWEEP_MIN }
    }

    /// Counts one more connection of a peer; `None` if it has as many as it may have.
    pub fn acquire(&mut self, origin: Origin) -> Option<QuotaPermit> {
        if self.max == 0 {
            return Some(QuotaPermit(None));
        }
        if self.known.len() >= self.sweep_at {
            self.known.retain(|_, peer| Arc::strong_count(peer) > 1);
            self.sweep_at = SWEEP_MIN.max(2 * self.known.len());
        }
        let peer = self.known.entry(origin).or_default();
        // One is the table's own.
        let is_full = Arc::strong_count(peer) > self.max;
        (!is_full).then(|| QuotaPermit(Some(peer.clone())))
    }
}

/// Peers that are kept without a sweep.
const SWEEP_MIN: usize = 64;

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn host(number: u32) -> Origin {
        Origin::Host(IpAddr::V4(Ipv4Addr::from_bits(number)))
    }

    #[test]
    fn a_peer_has_at_most_its_connections_and_a_dropped_one_makes_room() {
        let mut quotas = PeerQuotas::new(2);
        let mut permits = [(); 2].map(|()| quotas.acquire(host(1)));
        assert!(permits.iter().all(Option::is_some));
        assert!(quotas.acquire(host(1)).is_none() && quotas.acquire(host(1)).is_none());
        assert!(quotas.acquire(host(2)).is_some(), "another peer is not concerned");
        permits[0] = None;
        let third = quotas.acquire(host(1));
        assert!(third.is_some() && quotas.acquire(host(1)).is_none());
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let mut quotas = PeerQuotas::new(0);
        let permits: Vec<_> = (0..1000).map(|number| quotas.acquire(host(number % 2))).collect();
        assert!(permits.iter().all(Option::is_some) && quotas.known.is_empty());
    }

    #[test]
    fn peers_without_connections_are_removed() {
        let mut quotas = PeerQuotas::new(1);
        let stays: Vec<_> = (0..100).map(|number| quotas.acquire(host(number))).collect();
        for number in 100..100_000 {
            drop(quotas.acquire(host(number)).expect("it has none"));
            assert!(quotas.known.len() <= 2 * stays.len() + SWEEP_MIN, "{}", quotas.known.len());
        }
        for number in 0..100 {
            assert!(quotas.acquire(host(number)).is_none(), "those with connections are known");
        }
    }
}
