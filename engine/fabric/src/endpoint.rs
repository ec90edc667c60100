//! Links between sets of queues, and endpoints: connected queue pairs on their way to their queues.

use std::sync::{Arc, Mutex, PoisonError};

use super::lane::Lane;
use super::port::{Conn, Port, Progress};
use super::ring::{Consumer, Producer, ring};

/// Two rings between two sets of queues. Their ends are taken by the first endpoint on each side.
pub(super) struct Link {
    pub(super) id: u64,
    pub(super) ports: [Arc<Port>; 2],
    ends: [Mutex<Option<(Producer, Consumer)>>; 2],
}

impl Link {
    /// A link with rings of `slots` slots, the first of which has the position `first`.
    pub(super) fn new(
        id: u64,
        ports: [Arc<Port>; 2],
        (slots, delayed, first): (u32, bool, u64),
    ) -> Link {
        let (there, back) = (ring(slots, delayed, first), ring(slots, delayed, first));
        let ends = [(there.0, back.1), (back.0, there.1)];
        Link { id, ports, ends: ends.map(|end| Mutex::new(Some(end))) }
    }
}

/// A connected queue pair that was not attached yet. Dropping it ends the connection.
pub struct Endpoint {
    pub(super) num: u32,
    pub(super) peer_num: u32,
    pub(super) peer_rnr_retry: u8,
    /// Which side of `conn` it is.
    pub(super) side: usize,
    pub(super) conn: Arc<Conn>,
    link: Arc<Link>,
    link_side: usize,
    is_taken_over: bool,
}

/// One side of a connection to be.
pub(super) struct Seat {
    pub port: Arc<Port>,
    pub num: u32,
    pub rnr_retry: u8,
}

impl Endpoint {
    /// The endpoints of both sides. The first seat has side 0 of the link.
    pub(super) fn pair(link: Arc<Link>, seats: [&Seat; 2], is_swapped: bool) -> [Endpoint; 2] {
        let conn = Conn::new();
        [0, 1].map(|side: usize| Endpoint {
            num: seats[side].num,
            peer_num: seats[1 - side].num,
            peer_rnr_retry: seats[1 - side].rnr_retry,
            side,
            conn: Arc::clone(&conn),
            link: Arc::clone(&link),
            link_side: if is_swapped { 1 - side } else { side },
            is_taken_over: false,
        })
    }

    /// Where it belongs.
    pub(super) fn port(&self) -> &Arc<Port> {
        &self.link.ports[self.link_side]
    }

    /// Which end of which link it uses.
    pub(super) fn link_end(&self) -> (u64, usize) {
        (self.link.id, self.link_side)
    }

    /// Takes the rings' ends; none if they were taken before, by a lane that has died since.
    pub(super) fn make_lane(&self, place: (u32, u32, bool)) -> Option<Lane> {
        let mut end = self.link.ends[self.link_side].lock().unwrap_or_else(PoisonError::into_inner);
        Some(Lane::new(end.take()?, (Arc::clone(&self.link), self.link_side), place))
    }

    /// From now on the queues answer for the queue pair.
    pub(super) fn take_over(&mut self) {
        self.is_taken_over = true;
        self.conn.set(self.side, Progress::Attached);
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut endpoint = f.debug_struct("FabricEndpoint");
        endpoint.field("num", &self.num).field("peer_num", &self.peer_num).finish_non_exhaustive()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if !self.is_taken_over {
            self.conn.set(self.side, Progress::Dropped);
            self.port().give_back(self.num);
            self.link.ports[1 - self.link_side].doze.poke();
        }
    }
}
