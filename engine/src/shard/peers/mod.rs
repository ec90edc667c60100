//! The peers of a shard: a slab of connections, and the table from queue pair number to peer.
//!
//! ```text
//!   Opening ──properties known──▶ Up ────────────▶ Closing ──sends drained──▶ free, next generation
//!                                 └──▶ Leaving ────▲  the peer has what was said to it last
//! ```

pub(crate) mod admit;
pub(crate) mod close;
mod properties;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use rpcrdma_proto::{CallId, Connection, Finished, ShardLedger};

use crate::error::CloseReason;
use crate::provider::{ConnectId, WcBatch, shortly_before_end};
use crate::shard::receive::reading::PartList;
use crate::shard::send::lane::Lane;
use crate::shard::send::messages::NONE;

/// Names a connection of one shard. Stale once the connection has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// One connection of a shard. Laid out as written: what every message needs is in the first line
/// of the connection and in the line behind it.
#[repr(C)]
pub(crate) struct Peer {
    pub conn: Connection,
    pub phase: Phase,
    pub id: ConnectionId,
    pub qp_num: u32,
    /// Calls delivered to the handler and not answered.
    pub open_calls: u32,
    /// Messages of the peer that wait for a send slot.
    pub waiting: u32,
    pub lane: Lane,
    /// Own calls that have memory exposed.
    pub exposed: u32,
    /// Calls of the peer whose data are being fetched.
    pub fetching: u32,
    /// Calls of the peer that have no answer because the shard stops.
    pub dropped: u32,
    /// When one of them was passed over last: the number of the scan.
    pub passed_over: u64,
    /// The completion behind which nothing has come, and since when.
    pub stuck: Option<(u32, u64)>,
    /// The last work request before the peer fell silent, and since when it is.
    pub idle: Option<(u32, u64)>,
    /// Why the connection is leaving.
    pub leaves: Option<CloseReason>,
    /// Why the connection has ended, if the handler has still to be told.
    pub untold: Option<CloseReason>,
    /// Until when the open group may stand open.
    pub group_until: Option<u64>,
    /// Since when a request for changes of properties waits for its answer.
    pub asking_since: Option<u64>,
    /// What it came from, on the side that asked for it.
    pub connect: Option<Attempt>,
    /// Whether it is asked for once more when it is gone.
    pub again: bool,
}

impl Peer {
    pub fn new(
        conn: Connection,
        id: ConnectionId,
        qp_num: u32,
        connect: Option<Attempt>,
        until: u64,
    ) -> Peer {
        let phase = Phase::Opening { until };
        let lane = Lane::new();
        Peer {
            conn,
            lane,
            id,
            qp_num,
            phase,
            connect,
            open_calls: 0,
            exposed: 0,
            fetching: 0,
            dropped: 0,
            waiting: 0,
            passed_over: 0,
            stuck: None,
            idle: None,
            leaves: None,
            untold: None,
            group_until: None,
            asking_since: None,
            again: false,
        }
    }

    /// Ends an own call. While the connection goes on, its peer may still answer it: what it reckons
    /// with stays until then.
    pub fn end_call(&mut self, ledger: &mut ShardLedger, id: CallId) -> Option<Finished> {
        match self.phase {
            Phase::Closing { .. } => self.conn.finish_call(ledger, id),
            _ => self.conn.abandon_call(ledger, id),
        }
    }
}

/// What a connection came from, on the side that asked for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    /// The program's name for the attempt.
    pub id: ConnectId,
    /// Who was asked.
    pub to: SocketAddr,
    /// Version two is tried, and not answered yet.
    pub is_trying: bool,
    /// When a call that stands for the first message has waited long enough.
    pub until: Option<u64>,
}

/// Where a connection stands.
///
/// With so many values that it has no use for, a place without a connection is marked here and
/// nowhere else: whether there is one that is up is one comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Phase {
    /// Connected; the properties of the peer are not known yet.
    Opening {
        /// When waiting for them ends, in nanoseconds of the shard's clock.
        until: u64,
    },
    /// Calls may go both ways.
    Up,
    /// To be closed when the peer has what was said to it; what it says is not listened to any more.
    Leaving {
        /// When it is closed at the latest, in nanoseconds of the shard's clock.
        until: u64,
    },
    /// In the error state, waiting for its sends to come back.
    Closing {
        /// When waiting ends, in nanoseconds of the shard's clock.
        until: u64,
        /// Whether the send is posted whose completion says that nothing is in flight.
        is_marked: bool,
    },
}

/// Queue pair numbers have 24 bits in verbs.
const QP_NUM_BITS: u32 = 24;
/// Bits that index the second level.
const LEAF_BITS: u32 = 10;
const LEAF: usize = 1 << LEAF_BITS;

/// The first generation of a place.
const FIRST: u32 = shortly_before_end(32, 2);

/// In the place of an address where there is no connection.
const NOWHERE: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));

/// All connections of a shard.
pub(crate) struct Peers {
    slots: Box<[Option<Peer>]>,
    /// How often each place was used.
    generations: Box<[u32]>,
    /// Where the other ends are: lent together with the connection, and seldom looked at.
    addresses: Box<[SocketAddr]>,
    free: Vec<u32>,
    /// Where those are that may connect and have not yet.
    expected: Vec<SocketAddr>,
    table: Table,
}

/// From queue pair number to peer: upper bits, then lower bits.
struct Table(Vec<Option<Box<[u32; LEAF]>>>);

impl Peers {
    pub fn new(peers_max: usize) -> Peers {
        Peers {
            slots: (0..peers_max).map(|_| None).collect(),
            generations: vec![FIRST; peers_max].into(),
            addresses: vec![NOWHERE; peers_max].into(),
            free: (0..peers_max as u32).rev().collect(),
            expected: Vec::new(),
            table: Table::new(),
        }
    }

    /// The name that the next connection will have. `None` if there is no room for one.
    pub fn vacancy(&self) -> Option<ConnectionId> {
        let index = *self.free.last()?;
        Some(ConnectionId { index, generation: self.generations[index as usize] })
    }

    /// A peer may connect: it counts from now on.
    pub fn expect(&mut self, from: SocketAddr) {
        self.expected.push(from);
    }

    /// A peer that may connect has, or will not. False if none was expected from there.
    pub fn end_expecting(&mut self, from: SocketAddr) -> bool {
        let at = self.expected.iter().position(|expected| *expected == from);
        at.map(|at| self.expected.swap_remove(at)).is_some()
    }

    /// Connections that were made from this host, and those that may yet be.
    pub fn count_from(&self, host: IpAddr) -> usize {
        let slots = self.slots.iter().zip(&self.addresses);
        let made = slots.filter(|(slot, _)| slot.as_ref().is_some_and(|it| it.connect.is_none()));
        let made = made.filter(|(_, address)| address.ip() == host).count();
        made + self.expected.iter().filter(|address| address.ip() == host).count()
    }

    /// Whether a queue pair number has no more bits than devices give out.
    pub fn can_name(qp_num: u32) -> bool {
        qp_num >> QP_NUM_BITS == 0
    }

    /// Takes a connection in, under the name that [`Peers::vacancy`] said.
    ///
    /// # Panics
    /// If its queue pair cannot be named.
    pub fn insert(&mut self, peer: Peer, address: SocketAddr) {
        assert!(Peers::can_name(peer.qp_num), "checked before the connection was opened");
        let index = self.free.pop();
        debug_assert_eq!(index, Some(peer.id.index));
        self.table.insert(peer.qp_num, peer.id.index);
        self.addresses[peer.id.index as usize] = address;
        let index = peer.id.index as usize;
        self.slots[index] = Some(peer);
    }

    /// Takes a connection out; its name is stale from now on.
    pub fn remove(&mut self, index: u32) -> Option<Peer> {
        let peer = self.slots[index as usize].take()?;
        let generation = &mut self.generations[index as usize];
        *generation = generation.wrapping_add(1);
        self.free.push(index);
        self.table.remove(peer.qp_num);
        Some(peer)
    }

    /// The peer that a queue pair belongs to.
    #[inline]
    pub fn find(&self, qp_num: u32) -> Option<u32> {
        self.table.find(qp_num)
    }

    /// The connection in this place.
    #[inline]
    pub fn at(&mut self, index: u32) -> Option<&mut Peer> {
        self.slots[index as usize].as_mut()
    }

    /// As [`Peers::at`], with the address of the other end.
    #[inline]
    pub fn with_address(&mut self, index: u32) -> Option<(&mut Peer, &SocketAddr)> {
        let address = self.addresses.get(index as usize)?;
        Some((self.slots.get_mut(index as usize)?.as_mut()?, address))
    }

    /// As [`Peers::named`], with the address of the other end.
    pub fn named_with_address(&mut self, id: ConnectionId) -> Option<(&mut Peer, &SocketAddr)> {
        self.with_address(id.index).filter(|(peer, _)| peer.id == id)
    }

    /// All connections, for whoever counts them.
    pub fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.slots.iter().flatten()
    }

    /// Looks at the connections of a batch, all at once, so that their cache lines are on the way
    /// while the first of them is dealt with: both places that every message needs.
    #[inline]
    pub fn glance(&self, batch: &WcBatch) {
        for completion in batch {
            if let Some(index) = self.find(completion.qp_num) {
                let peer = self.slots[index as usize].as_ref();
                let seen = peer.map_or(0, |peer| peer.open_calls ^ peer.conn.inflow().granted());
                core::hint::black_box(seen);
            }
        }
    }

    /// The connection of this name. `None` if it has ended.
    #[inline]
    pub fn named(&mut self, id: ConnectionId) -> Option<&mut Peer> {
        self.slots.get_mut(id.index as usize)?.as_mut().filter(|peer| peer.id == id)
    }

    /// The transmissions of the group that was just completed.
    #[cold]
    pub fn group_of(&mut self, index: u32) -> PartList {
        let peer = self.at(index);
        peer.map_or(PartList::new(), |peer| peer.conn.group().iter().copied().collect())
    }

    /// The number of connections that there can be.
    pub fn capacity(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The number of connections.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl Table {
    fn new() -> Table {
        Table((0..1usize << (QP_NUM_BITS - LEAF_BITS)).map(|_| None).collect())
    }

    fn insert(&mut self, qp_num: u32, index: u32) {
        let leaf = &mut self.0[(qp_num >> LEAF_BITS) as usize];
        leaf.get_or_insert_with(|| Box::new([NONE; LEAF]))[qp_num as usize % LEAF] = index;
    }

    fn remove(&mut self, qp_num: u32) {
        let place = &mut self.0[(qp_num >> LEAF_BITS) as usize];
        if let Some(leaf) = place {
            leaf[qp_num as usize % LEAF] = NONE;
            // Devices count their numbers on: every leaf would be there in the end.
            if leaf.iter().all(|index| *index == NONE) {
                *place = None;
            }
        }
    }

    #[inline]
    fn find(&self, qp_num: u32) -> Option<u32> {
        let leaf = self.0.get((qp_num >> LEAF_BITS) as usize)?.as_ref()?;
        let index = leaf[qp_num as usize % LEAF];
        (index != NONE).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_counted_on_and_come_round_take_no_more_room() {
        let mut table = Table::new();
        let mut held = std::collections::VecDeque::new();
        // Every leaf, and back at the first.
        for at in (0..3_u32 << QP_NUM_BITS).step_by(LEAF / 4 + 1) {
            let (qp_num, index) = (at % (1 << QP_NUM_BITS), at % 1000);
            table.insert(qp_num, index);
            held.push_back((qp_num, index));
            if held.len() > 16 {
                let (gone, _) = held.pop_front().expect("seventeen");
                table.remove(gone);
                assert_eq!(table.find(gone), None);
            }
            let (oldest, index) = held[0];
            assert_eq!(table.find(oldest), Some(index), "{oldest:#x}");
            if at % 100 == 0 {
                assert!(table.0.iter().flatten().count() <= 6);
            }
        }
        assert!(held.iter().all(|(qp_num, index)| table.find(*qp_num) == Some(*index)));
    }
}
