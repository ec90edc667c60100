//! The peers of a shard: a slab of connections, and the table from queue pair number to peer.
//!
//! ```text
//!   Opening ──properties known──▶ Up ──▶ Closing ──sends drained──▶ free, next generation
//! ```

use std::net::SocketAddr;

use rpcrdma_proto::Connection;

use super::lane::Lane;
use super::message::NONE;
use super::negotiate::Asked;
use crate::error::CloseReason;

/// Names a connection of one shard. Stale once the connection has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PeerId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// One connection of a shard. Laid out as written: what every message needs is in the first lines.
#[repr(C)]
pub(crate) struct Peer {
    pub conn: Connection,
    pub phase: Phase,
    pub lane: Lane,
    /// Calls delivered to the handler and not answered.
    pub open_calls: u32,
    /// Own calls that have memory exposed.
    pub exposed: u32,
    /// Calls of the peer whose data are being fetched.
    pub fetching: u32,
    /// Messages of the peer that wait for a send slot.
    pub waiting: u32,
    /// When one of them was passed over last: the number of the scan.
    pub passed_over: u64,
    /// The completion behind which nothing has come, and since when.
    pub stuck: Option<(u32, u64)>,
    /// Why the connection has ended, if the handler has still to be told.
    pub untold: Option<CloseReason>,
    pub id: PeerId,
    pub qp_num: u32,
    /// Until when the open group may stand open.
    pub group_until: Option<u64>,
    /// Since when a request for changes of properties waits for its answer.
    pub asking_since: Option<u64>,
    /// What it came from, on the side that asked for it.
    pub connect: Option<Asked>,
    /// Whether it is asked for once more when it is gone.
    pub again: bool,
    /// Where the other end is.
    pub address: SocketAddr,
}

impl Peer {
    pub fn new(
        conn: Connection,
        id: PeerId,
        qp_num: u32,
        connect: Option<Asked>,
        address: SocketAddr,
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
            waiting: 0,
            passed_over: 0,
            stuck: None,
            untold: None,
            group_until: None,
            asking_since: None,
            again: false,
            address,
        }
    }
}

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Connected; the properties of the peer are not known yet.
    Opening {
        /// When waiting for them ends, in nanoseconds of the shard's clock.
        until: u64,
    },
    /// Calls may go both ways.
    Up,
    /// Turned down by the handler; what was said to it before may still arrive.
    Refused {
        /// When it is closed, in nanoseconds of the shard's clock.
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

/// All connections of a shard.
pub(crate) struct Peers {
    slots: Box<[Slot]>,
    free: Vec<u32>,
    /// From queue pair number to peer: upper bits, then lower bits.
    table: Vec<Option<Box<[u32; LEAF]>>>,
}

struct Slot {
    generation: u32,
    peer: Option<Peer>,
}

impl Peers {
    pub fn new(peers_max: usize) -> Peers {
        Peers {
            slots: (0..peers_max).map(|_| Slot { generation: 0, peer: None }).collect(),
            free: (0..peers_max as u32).rev().collect(),
            table: (0..1usize << (QP_NUM_BITS - LEAF_BITS)).map(|_| None).collect(),
        }
    }

    /// The name that the next connection will have. `None` if there is no room for one.
    pub fn vacancy(&self) -> Option<PeerId> {
        let index = *self.free.last()?;
        Some(PeerId { index, generation: self.slots[index as usize].generation })
    }

    /// Whether a queue pair number has no more bits than devices give out.
    pub fn can_name(qp_num: u32) -> bool {
        qp_num >> QP_NUM_BITS == 0
    }

    /// Takes a connection in, under the name that [`Peers::vacancy`] said.
    ///
    /// # Panics
    /// If its queue pair cannot be named.
    pub fn insert(&mut self, peer: Peer) {
        assert!(Peers::can_name(peer.qp_num), "checked before the connection was opened");
        let index = self.free.pop();
        debug_assert_eq!(index, Some(peer.id.index));
        let leaf = &mut self.table[(peer.qp_num >> LEAF_BITS) as usize];
        leaf.get_or_insert_with(|| Box::new([NONE; LEAF]))[peer.qp_num as usize % LEAF] =
            peer.id.index;
        let slot = &mut self.slots[peer.id.index as usize];
        slot.peer = Some(peer);
    }

    /// Takes a connection out; its name is stale from now on.
    pub fn remove(&mut self, index: u32) -> Option<Peer> {
        let slot = &mut self.slots[index as usize];
        let peer = slot.peer.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        if let Some(leaf) = &mut self.table[(peer.qp_num >> LEAF_BITS) as usize] {
            leaf[peer.qp_num as usize % LEAF] = NONE;
        }
        Some(peer)
    }

    /// The peer that a queue pair belongs to.
    #[inline]
    pub fn find(&self, qp_num: u32) -> Option<u32> {
        let leaf = self.table.get((qp_num >> LEAF_BITS) as usize)?.as_ref()?;
        let index = leaf[qp_num as usize % LEAF];
        (index != NONE).then_some(index)
    }

    /// The connection in this place.
    #[inline]
    pub fn at(&mut self, index: u32) -> Option<&mut Peer> {
        self.slots[index as usize].peer.as_mut()
    }

    /// All connections, for whoever counts them.
    pub fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.slots.iter().filter_map(|slot| slot.peer.as_ref())
    }

    /// Touches both places of a connection that every message needs.
    #[inline]
    pub fn glance(&self, index: u32) -> u32 {
        let peer = self.slots[index as usize].peer.as_ref();
        peer.map_or(0, |peer| peer.open_calls ^ peer.conn.inflow().granted())
    }

    /// The connection of this name. `None` if it has ended.
    #[inline]
    pub fn named(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.slots.get_mut(id.index as usize)?.peer.as_mut().filter(|peer| peer.id == id)
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
