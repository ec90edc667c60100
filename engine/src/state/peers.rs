//! The peers of a shard: a slab of connections, and the table from queue pair number to peer.
//!
//! ```text
//!   Opening ──properties known──▶ Up ────────────▶ Closing ──sends drained──▶ free, next generation
//!                                 └──▶ Leaving ────▲  the peer has received the last messages
//! ```

use core::ops::Range;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use rpcrdma_proto::{CallId, Connection, Finished, ShardLedger};

use super::lane::Lane;
use super::lane::messages::NONE;
use crate::connection_id::{ConnectionId, FIRST};
use crate::error::CloseReason;
use crate::message::reading::PartList;
use crate::provider::{Address, ConnectId, Origin, WC_BATCH, WcBatch};
use crate::quotas::QuotaPermit;
use crate::stats::tally::{Counts, Tally, Totals};

/// One connection of a shard. Field order is fixed: a plain message uses two cache lines. These are
/// the first of `conn`, whose first word also marks a place without a connection, and the one from
/// `phase` to the beginning of `lane`.
#[repr(C)]
pub(crate) struct Peer {
    pub conn: Connection,
    pub phase: Phase,
    pub id: ConnectionId,
    /// Messages of the peer that wait for a send slot.
    pub waiting: u32,
    /// What every call counts.
    pub tally: Tally,
    pub lane: Lane,
    /// The rest of the counters.
    pub totals: Totals,
    /// The time limit of its phase, in nanoseconds of the shard's clock.
    pub until: u64,
    /// Of a closing connection, whether the marker is posted, whose completion proves that nothing
    /// is in flight.
    pub is_marked: bool,
    pub qp_num: u32,
    /// Own calls that have memory exposed.
    pub exposed: u32,
    /// Calls of the peer whose data is being fetched.
    pub fetching: u32,
    /// Calls of the peer left without an answer because the shard stops.
    pub dropped: u32,
    /// The number of the last scan that passed over one of them.
    pub passed_over: u64,
    /// The last completion while sends hold memory, and the time it was first seen as the last.
    pub stuck: Option<(u32, u64)>,
    /// The last work request before the peer fell silent, and the time since then.
    pub idle: Option<(u32, u64)>,
    /// Why the connection is leaving.
    pub leaves: Option<CloseReason>,
    /// Why the connection has ended, until the handler is notified.
    pub unreported_end: Option<CloseReason>,
    /// The time limit of the open group.
    pub group_until: Option<u64>,
    /// Since when a request for changes of properties has waited for its answer.
    pub asking_since: Option<u64>,
    /// Its attempt, on the side that requested it.
    pub connect: Option<Attempt>,
    /// Whether to request it again when it is gone.
    pub again: bool,
}

impl Peer {
    pub fn new(
        conn: Connection,
        id: ConnectionId,
        qp_num: u32,
        connect: Option<Attempt>,
        until: u64,
        folds: [u32; 2],
    ) -> Peer {
        let (tally, totals) = Tally::new(folds);
        let lane = Lane::new();
        Peer {
            conn,
            lane,
            id,
            qp_num,
            phase: Phase::Opening,
            until,
            is_marked: false,
            connect,
            tally,
            totals,
            exposed: 0,
            fetching: 0,
            dropped: 0,
            waiting: 0,
            passed_over: 0,
            stuck: None,
            idle: None,
            leaves: None,
            unreported_end: None,
            group_until: None,
            asking_since: None,
            again: false,
        }
    }

    /// What it has counted.
    pub fn counts(&self) -> Counts {
        self.tally.counts(&self.totals)
    }

    /// Calls delivered to the handler and not yet answered.
    pub fn open_calls(&self) -> u32 {
        self.tally.open(&self.totals)
    }

    /// A call delivered to the handler was answered, or will not be.
    #[inline(always)]
    pub fn end_open_call(&mut self) {
        debug_assert!(self.open_calls() > 0, "a call ends once");
        self.tally.call_over();
    }

    /// Ends an own call. If the connection continues, the peer may still answer: the resources for
    /// that stay reserved.
    pub fn end_call(&mut self, ledger: &mut ShardLedger, id: CallId) -> Option<Finished> {
        match self.phase {
            Phase::Closing => self.conn.finish_call(ledger, id),
            _ => self.conn.abandon_call(ledger, id),
        }
    }
}

/// The attempt that led to a connection, on the side that requested it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    /// The program's identifier for the attempt.
    pub id: ConnectId,
    /// Whether version two is being tried and has no answer yet.
    pub is_trying: bool,
    /// The time limit of a call that serves as the first message.
    pub until: Option<u64>,
}

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Connected; the properties of the peer are not known yet.
    Opening,
    /// Calls may go both ways.
    Up,
    /// Closes once the peer has received the last messages; its own messages are ignored.
    Leaving,
    /// In the error state, waiting for its sends to complete.
    Closing,
}

/// Queue pair numbers have 24 bits in verbs.
const QP_NUM_BITS: u32 = 24;
/// Bits that index the second level.
const LEAF_BITS: u32 = 10;
const LEAF: usize = 1 << LEAF_BITS;

/// The address of a place without a connection.
const NOWHERE: Address = Address::Ip(SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)));

/// All connections of a shard.
pub(crate) struct Peers {
    places: Box<[PeerPlace]>,
    free: Vec<u32>,
    /// The addresses of admitted peers that have not connected yet.
    expected: Vec<Address>,
    /// The permits of the peers' quotas, by place.
    permits: Box<[Option<QuotaPermit>]>,
    table: Table,
    /// What those have counted that are gone.
    gone: Counts,
}

/// A place for a connection.
struct PeerPlace {
    peer: Option<Peer>,
    /// The address of the peer: lent together with the connection, and rarely read.
    address: Address,
    /// How often the place was used.
    generation: u32,
}

impl PeerPlace {
    const VACANT: PeerPlace = PeerPlace { peer: None, address: NOWHERE, generation: FIRST };
}

/// The places of the peers of a batch, by the order of its completions; [`NONE`] for a queue pair
/// without a peer.
pub(crate) type Names = [u32; WC_BATCH];

/// Of no batch.
pub(crate) const NO_NAMES: Names = [NONE; WC_BATCH];

/// From queue pair number to peer: upper bits, then lower bits.
struct Table(Vec<Option<Box<[u32; LEAF]>>>);

impl Peers {
    pub fn new(peers_max: usize) -> Peers {
        Peers {
            places: (0..peers_max).map(|_| PeerPlace::VACANT).collect(),
            free: (0..peers_max as u32).rev().collect(),
            expected: Vec::new(),
            permits: (0..peers_max).map(|_| None).collect(),
            table: Table::new(),
            gone: Counts::default(),
        }
    }

    /// The identifier that the next connection will have. `None` if there is no room.
    pub fn vacancy(&self) -> Option<ConnectionId> {
        let index = *self.free.last()?;
        Some(ConnectionId { index, generation: self.places[index as usize].generation })
    }

    /// Counts an admitted peer from now on.
    pub fn expect(&mut self, from: Address) {
        self.expected.push(from);
    }

    /// An admitted peer has connected, or will not. False if none was expected from this address.
    pub fn end_expecting(&mut self, from: Address) -> bool {
        let at = self.expected.iter().position(|expected| *expected == from);
        at.map(|at| self.expected.swap_remove(at)).is_some()
    }

    /// Connections of this peer, including those expected.
    pub fn count_from(&self, origin: Origin) -> usize {
        let is_made = |place: &&PeerPlace| {
            place.address.origin() == origin
                && place.peer.as_ref().is_some_and(|it| it.connect.is_none())
        };
        let made = self.places.iter().filter(is_made).count();
        made + self.expected.iter().filter(|address| address.origin() == origin).count()
    }

    /// Whether a queue pair number is within the range of verbs.
    pub fn can_name(qp_num: u32) -> bool {
        qp_num >> QP_NUM_BITS == 0
    }

    /// Inserts a connection, under the identifier returned by [`Peers::vacancy`].
    ///
    /// # Panics
    /// If its queue pair number is out of range.
    pub fn insert(&mut self, peer: Peer, address: Address, permit: Option<QuotaPermit>) {
        assert!(Peers::can_name(peer.qp_num), "checked before the connection was opened");
        let index = self.free.pop();
        debug_assert_eq!(index, Some(peer.id.index));
        self.table.insert(peer.qp_num, peer.id.index);
        self.permits[peer.id.index as usize] = permit;
        let place = &mut self.places[peer.id.index as usize];
        place.address = address;
        place.peer = Some(peer);
    }

    /// Removes a connection, and returns it with its address; its identifier becomes stale.
    pub fn remove(&mut self, index: u32) -> Option<(Peer, Address)> {
        let place = &mut self.places[index as usize];
        let peer = place.peer.take()?;
        self.gone.add(&peer.counts());
        self.permits[index as usize] = None;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(index);
        self.table.remove(peer.qp_num);
        Some((peer, place.address))
    }

    /// Counts no connection for its peer any more: all of them end.
    pub fn release_quotas(&mut self) {
        self.permits.fill_with(|| None);
    }

    /// The peer of a queue pair.
    #[inline]
    pub fn find(&self, qp_num: u32) -> Option<u32> {
        self.table.find(qp_num)
    }

    /// The connection in this place.
    #[inline]
    pub fn at(&mut self, index: u32) -> Option<&mut Peer> {
        self.places[index as usize].peer.as_mut()
    }

    /// As [`Peers::at`], with the address of the peer. `None` for [`NONE`], too.
    #[inline]
    pub fn with_address(&mut self, index: u32) -> Option<(&mut Peer, &Address)> {
        let PeerPlace { peer, address, .. } = self.places.get_mut(index as usize)?;
        Some((peer.as_mut()?, address))
    }

    /// As [`Peers::named`], with the address of the peer.
    pub fn named_with_address(&mut self, id: ConnectionId) -> Option<(&mut Peer, &Address)> {
        self.with_address(id.index).filter(|(peer, _)| peer.id == id)
    }

    /// All connections, for counting.
    pub fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.places.iter().filter_map(|place| place.peer.as_ref())
    }

    /// The connections in these places, with the addresses of the peers.
    pub fn in_places(&self, range: Range<u32>) -> impl Iterator<Item = (&Peer, &Address)> {
        let range = range.start.min(self.capacity())..range.end.min(self.capacity());
        let places = &self.places[range.start as usize..range.end as usize];
        places.iter().filter_map(|place| Some((place.peer.as_ref()?, &place.address)))
    }

    /// Finds the connections of a batch. A place holds no other connection until the batch is
    /// processed: connections begin between batches.
    #[inline(always)]
    pub fn name(&self, batch: &WcBatch, names: &mut Names) {
        if let [only] = &batch[..] {
            names[0] = self.table.index(only.qp_num);
        } else {
            self.name_all(batch, names);
        }
    }

    /// As [`Peers::name`], and loads both cache lines of each connection before the first message
    /// is processed.
    #[inline(never)]
    fn name_all(&self, batch: &WcBatch, names: &mut Names) {
        let (mut last, mut index) = (NONE, NONE);
        for (completion, name) in batch.iter().zip(names) {
            if completion.qp_num != last {
                last = completion.qp_num;
                index = self.table.index(last);
                let peer = self.places.get(index as usize).and_then(|place| place.peer.as_ref());
                let seen =
                    peer.map_or(0, |peer| peer.tally.in_left() ^ peer.conn.inflow().granted());
                core::hint::black_box(seen);
            }
            *name = index;
        }
    }

    /// The connection with this identifier. `None` if it has ended.
    #[inline]
    pub fn named(&mut self, id: ConnectionId) -> Option<&mut Peer> {
        self.places.get_mut(id.index as usize)?.peer.as_mut().filter(|peer| peer.id == id)
    }

    /// As [`Peers::named`], if calls may go both ways.
    #[inline]
    pub fn named_up(&mut self, id: ConnectionId) -> Option<&mut Peer> {
        match &mut self.places.get_mut(id.index as usize)?.peer {
            Some(peer) if peer.phase == Phase::Up && peer.id == id => Some(peer),
            _ => None,
        }
    }

    /// The transmissions of the group that was just completed.
    #[cold]
    pub fn group_of(&mut self, index: u32) -> PartList {
        let peer = self.at(index);
        peer.map_or(PartList::new(), |peer| peer.conn.group().iter().copied().collect())
    }

    /// What all connections have counted that are gone.
    pub fn gone(&self) -> &Counts {
        &self.gone
    }

    /// The number of connections that there can be.
    pub fn capacity(&self) -> u32 {
        self.places.len() as u32
    }

    /// The number of connections.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
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
            // Devices increment their numbers: without this every leaf would be allocated in the
            // end.
            if leaf.iter().all(|index| *index == NONE) {
                *place = None;
            }
        }
    }

    #[inline]
    fn find(&self, qp_num: u32) -> Option<u32> {
        let index = self.index(qp_num);
        (index != NONE).then_some(index)
    }

    /// As [`Table::find`]; [`NONE`] if there is none.
    #[inline]
    fn index(&self, qp_num: u32) -> u32 {
        match self.0.get((qp_num >> LEAF_BITS) as usize) {
            Some(Some(leaf)) => leaf[qp_num as usize % LEAF],
            _ => NONE,
        }
    }
}

#[cfg(test)]
impl Peer {
    /// A connection that is up. The peer has made it.
    pub fn up() -> Peer {
        use rpcrdma_proto::{Opening, Role};
        let config = rpcrdma_config::Config::default();
        let caps = rpcrdma_fabric::Fabric::new();
        let settings = crate::budget::settings(&config, crate::Provider::caps(&caps));
        let mut ledger = ShardLedger::new(4, 4, 1024, 4);
        let opening = Opening::of(Role::Server);
        let conn = Connection::open(Role::Server, 0, &settings, &opening, &mut ledger);
        let id = ConnectionId::first(0);
        let mut peer = Peer::new(conn.expect("there are Receives"), id, 1, None, 0, [64; 2]);
        peer.phase = Phase::Up;
        peer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_message_uses_two_cache_lines_of_its_peer() {
        const LINE: usize = 64;
        let phase = core::mem::offset_of!(Peer, phase);
        let lane = core::mem::offset_of!(Peer, lane);
        assert_eq!((align_of::<Peer>(), core::mem::offset_of!(Peer, conn)), (LINE, 0));
        let state = [Connection::SHORT_STATE, phase..lane + Lane::SHORT_STATE.end];
        let lines = state.map(|bytes| bytes.start / LINE..bytes.end.div_ceil(LINE));
        assert_eq!(lines.map(|lines| lines.len()), [1, 1]);
    }

    #[test]
    fn increasing_and_wrapping_numbers_take_no_more_room() {
        let mut table = Table::new();
        let mut held = std::collections::VecDeque::new();
        // Every leaf, and the first again.
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

    #[test]
    fn an_expected_peer_counts_for_its_address_until_it_is_there() {
        let address = |text: &str| text.parse::<Address>().expect("an address");
        let [from, other] = ["10.0.0.1:1", "10.0.0.2:1"].map(address);
        let mut peers = Peers::new(2);
        let counts = |peers: &Peers| [from, other].map(|it| peers.count_from(it.origin()));
        for address in [from, other, from] {
            peers.expect(address);
        }
        assert_eq!(counts(&peers), [2, 1]);
        assert!(peers.end_expecting(from));
        assert_eq!(counts(&peers), [1, 1]);
        assert!(peers.end_expecting(from) && !peers.end_expecting(from));
        assert_eq!(counts(&peers), [0, 1]);
    }

    #[test]
    fn places_are_free_until_there_are_connections() {
        let mut peers = Peers::new(2);
        assert_eq!((peers.capacity(), peers.len()), (2, 0));
        assert_eq!(peers.vacancy(), Some(ConnectionId { index: 0, generation: FIRST }));
        assert!(peers.at(1).is_none() && peers.with_address(NONE).is_none());
        assert!(peers.remove(1).is_none());
        assert_eq!(Peers::new(0).vacancy(), None);
        assert!(Peers::can_name((1 << QP_NUM_BITS) - 1) && !Peers::can_name(1 << QP_NUM_BITS));
    }
}
