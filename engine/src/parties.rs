//! The connections of each party over all shards: `connections.max_per_peer`.
//!
//! A [`Membership`] is held from the request to the end of its connection, wherever that is: by the
//! control plane, by an arrival, by a shard. Dropping it is all that ends it, so none can be
//! forgotten. A party costs memory only while it has one, or until the next look around.

use std::collections::HashMap;
use std::sync::Arc;

use crate::provider::Origin;

/// The parties that have connections, or had.
pub(crate) struct Parties {
    /// The most connections of each; 0 is without limit, and nothing is counted.
    max: usize,
    known: HashMap<Origin, Arc<()>>,
    /// The number of parties at which those without connections are removed.
    sweep_at: usize,
}

/// One connection of a party.
#[derive(Debug)]
pub(crate) struct Membership(#[expect(dead_code, reason = "it is counted")] Option<Arc<()>>);

impl Parties {
    pub fn new(max: usize) -> Parties {
        Parties { max, known: HashMap::new(), sweep_at: SWEEP_MIN }
    }

    /// Counts one more connection of a party; `None` if it has as many as it may have.
    pub fn join(&mut self, origin: Origin) -> Option<Membership> {
        if self.max == 0 {
            return Some(Membership(None));
        }
        if self.known.len() >= self.sweep_at {
            self.known.retain(|_, party| Arc::strong_count(party) > 1);
            self.sweep_at = SWEEP_MIN.max(2 * self.known.len());
        }
        let party = self.known.entry(origin).or_default();
        // One is the table's own.
        let is_full = Arc::strong_count(party) > self.max;
        (!is_full).then(|| Membership(Some(party.clone())))
    }
}

/// Parties that are kept without a look around.
const SWEEP_MIN: usize = 64;

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn host(number: u32) -> Origin {
        Origin::Host(IpAddr::V4(Ipv4Addr::from_bits(number)))
    }

    #[test]
    fn a_party_has_at_most_its_connections_and_a_dropped_one_makes_room() {
        let mut parties = Parties::new(2);
        let mut members = [(); 2].map(|()| parties.join(host(1)));
        assert!(members.iter().all(Option::is_some));
        assert!(parties.join(host(1)).is_none() && parties.join(host(1)).is_none());
        assert!(parties.join(host(2)).is_some(), "another party is not concerned");
        members[0] = None;
        let third = parties.join(host(1));
        assert!(third.is_some() && parties.join(host(1)).is_none());
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let mut parties = Parties::new(0);
        let members: Vec<_> = (0..1000).map(|number| parties.join(host(number % 2))).collect();
        assert!(members.iter().all(Option::is_some) && parties.known.is_empty());
    }

    #[test]
    fn parties_without_connections_are_removed() {
        let mut parties = Parties::new(1);
        let stays: Vec<_> = (0..100).map(|number| parties.join(host(number))).collect();
        for number in 100..100_000 {
            drop(parties.join(host(number)).expect("it has none"));
            assert!(parties.known.len() <= 2 * stays.len() + SWEEP_MIN, "{}", parties.known.len());
        }
        for number in 0..100 {
            assert!(parties.join(host(number)).is_none(), "those with connections are known");
        }
    }
}
