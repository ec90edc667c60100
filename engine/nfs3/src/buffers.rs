//! Which client may have a registered buffer of the shard, for the data of a READ.
//!
//! ```text
//!   pool ── take ──▶ job ──▶ answer ──▶ sent, until the client has received it ──▶ pool
//! ```
//! A client that does not receive its answers keeps their buffers until its connection ends. So a
//! client has no more buffers than it leaves free: half of them if it is alone, and each further
//! client half of what the others have left. Clients are counted by origin, because a host may have
//! several connections, and for IPv6 by network, because it may have several addresses.
//!
//! The engine does not report when a buffer returns. A buffer counts until it is seen in the pool,
//! where it is looked for only when the count refuses a client.

use std::collections::HashMap;
use std::hash::Hash;

use rpcrdma::{Loan, Turn};

/// The buffers of a shard that are not known to be free. `O` identifies a client.
#[derive(Debug)]
pub struct Buffers<O> {
    /// The number of all buffers.
    count: usize,
    /// The clients that have buffers, by the address of the buffer.
    holders: HashMap<usize, O>,
    /// The number of buffers of each client that has some.
    held: HashMap<O, usize>,
    /// Room for the buffers that are looked at; empty otherwise.
    free: Vec<Loan>,
}

impl<O: Copy + Eq + Hash> Buffers<O> {
    /// All of `count` buffers are free.
    pub fn new(count: usize) -> Buffers<O> {
        let (holders, held) = (HashMap::with_capacity(count), HashMap::with_capacity(count));
        Buffers { count, holders, held, free: Vec::with_capacity(count) }
    }

    /// Takes a buffer for a client, unless none is free or the client has its share.
    pub fn take(&mut self, client: O, turn: &mut Turn<'_>) -> Option<Loan> {
        if !self.has_share_for(client) {
            return None;
        }
        let buffer = turn.buffer()?;
        self.taken(address(&buffer), client);
        Some(buffer)
    }

    /// Looks for the buffers that have returned. Takes all that are free out of the pool and gives
    /// them back: so much at each turn while a call waits, and no allocation.
    pub fn count_returned(&mut self, turn: &mut Turn<'_>) {
        let mut free = std::mem::take(&mut self.free);
        free.extend(std::iter::from_fn(|| turn.buffer()));
        for buffer in free.drain(..) {
            self.returned(address(&buffer));
            turn.release(buffer);
        }
        self.free = free;
    }

    fn taken(&mut self, buffer: usize, client: O) {
        self.returned(buffer);
        self.holders.insert(buffer, client);
        *self.held.entry(client).or_default() += 1;
    }

    fn returned(&mut self, buffer: usize) {
        let Some(client) = self.holders.remove(&buffer) else { return };
        if let Some(held) = self.held.get_mut(&client) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&client);
            }
        }
    }

    /// Whether a client has fewer buffers than are free.
    fn has_share_for(&self, client: O) -> bool {
        let free = self.count.saturating_sub(self.holders.len());
        self.held.get(&client).copied().unwrap_or(0) < free
    }
}

fn address(buffer: &Loan) -> usize {
    buffer.as_ptr().addr()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a client buffers until it has its share. Returns how many.
    fn fill(buffers: &mut Buffers<u32>, client: u32) -> usize {
        let before = buffers.holders.len();
        while buffers.has_share_for(client) {
            buffers.taken(buffers.holders.len(), client);
        }
        buffers.holders.len() - before
    }

    #[test]
    fn a_client_has_no_more_buffers_than_it_leaves_to_others() {
        let mut buffers = Buffers::new(32);
        let shares: Vec<usize> = (1..=6).map(|client| fill(&mut buffers, client)).collect();
        assert_eq!(shares, [16, 8, 4, 2, 1, 1]);
        assert!(!buffers.has_share_for(7), "all are in use");
        // Those of the second.
        (16..24).for_each(|buffer| buffers.returned(buffer));
        assert!(!buffers.has_share_for(1), "it has 16, and 8 are free");
        assert!(buffers.has_share_for(2) && buffers.has_share_for(7));
        assert_eq!(fill(&mut Buffers::new(1), 1), 1, "one buffer serves one client at a time");
    }

    #[test]
    fn a_buffer_belongs_to_the_client_that_took_it_last() {
        let mut buffers = Buffers::new(4);
        buffers.taken(7, 1);
        buffers.taken(7, 2);
        assert_eq!((buffers.held.get(&1), buffers.held.get(&2)), (None, Some(&1)));
        buffers.returned(7);
        buffers.returned(7);
        assert!(buffers.held.is_empty() && buffers.holders.is_empty());
    }
}
