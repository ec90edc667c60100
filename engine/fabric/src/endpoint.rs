//! Endpoints: connected queue pairs that are not attached to their queues yet.

use std::sync::Arc;

use rpcrdma_transport::carrier::EndId;
use rpcrdma_transport::conn::{Conn, Progress};

use crate::port::Port;
use crate::rings::ring::{Consumer, Producer};
use crate::rings::{Link, Rings};

/// A connected queue pair that is not attached yet. Dropping it ends the connection.
pub struct Endpoint {
    pub(crate) num: u32,
    pub(crate) peer_num: u32,
    pub(crate) peer_rnr_retry: u8,
    /// Which side of `conn` it is.
    pub(crate) side: usize,
    pub(crate) conn: Arc<Conn>,
    link: Arc<Link>,
    link_side: usize,
    is_taken_over: bool,
}

/// One side of a future connection.
pub(crate) struct Seat {
    pub port: Arc<Port>,
    pub num: u32,
    pub rnr_retry: u8,
}

impl Endpoint {
    /// The endpoints of both sides. The first seat has side 0 of the link.
    pub(crate) fn pair(link: Arc<Link>, seats: [&Seat; 2], is_swapped: bool) -> [Endpoint; 2] {
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

    /// The port of its queues.
    pub(crate) fn port(&self) -> &Arc<Port> {
        &self.link.ports[self.link_side]
    }

    /// The end of the link that it uses.
    pub(crate) fn end(&self) -> EndId {
        self.link.end(self.link_side)
    }

    /// Takes that end; none if an earlier path has taken it and died since.
    pub(crate) fn take_rings(&self) -> Option<(Rings, Producer, Consumer)> {
        self.link.take(self.link_side)
    }

    /// The queues own the queue pair from now on.
    pub(crate) fn take_over(&mut self) {
        self.is_taken_over = true;
        self.conn.set(self.side, Progress::Attached);
        self.peer().doze.poke();
    }

    fn peer(&self) -> &Port {
        &self.link.ports[1 - self.link_side]
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
            self.port().numbers.give_back(self.num);
            self.peer().doze.poke();
        }
    }
}
