//! Endpoints: connected queue pairs that are not attached to their queues yet.

use std::sync::Arc;

use rpcrdma_provider::SetupError;

use crate::carrier::Carrier;
use crate::conn::{Conn, Progress};
use crate::port::Port;
use crate::qp::Connected;

/// A queue pair number of a set of queues, given back when dropped.
pub struct QpNumber<P: Port> {
    port: Arc<P>,
    num: u32,
}

/// A connected queue pair that is not attached yet. Dropping it ends the connection.
pub struct Endpoint<P: Port> {
    /// None as soon as the queues have it.
    number: Option<QpNumber<P>>,
    end: P::Carrier,
    conn: Arc<Conn>,
    peer: Peer,
}

/// The other side of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// The number of its queue pair.
    pub num: u32,
    /// Its retry count, for its messages to this side.
    pub rnr_retry: u8,
}

impl<P: Port> QpNumber<P> {
    /// Takes a number of the queues. `device` is named by the error.
    ///
    /// # Errors
    /// [`SetupError::Limit`] if all are taken.
    pub fn take(port: &Arc<P>, device: &str) -> Result<QpNumber<P>, SetupError> {
        let num = port.numbers().reserve(device)?;
        Ok(QpNumber { port: Arc::clone(port), num })
    }

    /// The queues.
    pub fn port(&self) -> &Arc<P> {
        &self.port
    }

    /// The number.
    pub fn num(&self) -> u32 {
        self.num
    }
}

impl<P: Port> Drop for QpNumber<P> {
    fn drop(&mut self) {
        self.port.numbers().give_back(self.num);
    }
}

impl<P: Port> Endpoint<P> {
    /// The queue pair of `number`, connected by this end of a carrier. The side of the end is its
    /// side in `conn`, too.
    pub fn new(number: QpNumber<P>, end: P::Carrier, conn: Arc<Conn>, peer: Peer) -> Endpoint<P> {
        Endpoint { number: Some(number), end, conn, peer }
    }

    /// The end that it uses.
    pub fn end(&self) -> &P::Carrier {
        &self.end
    }

    /// The queue pair, if it was made for these queues.
    pub(crate) fn made_for(&self, port: &Arc<P>) -> Option<Connected> {
        let number = self.number.as_ref().filter(|number| Arc::ptr_eq(&number.port, port))?;
        Some(Connected {
            num: number.num,
            peer: self.peer.num,
            peer_rnr_retry: self.peer.rnr_retry,
            side: self.end.id().side as u8,
            conn: Arc::clone(&self.conn),
        })
    }

    /// The queues own the queue pair from now on, and its number.
    pub(crate) fn hand_over(mut self) -> Option<QpNumber<P>> {
        self.report(Progress::Attached);
        self.number.take()
    }

    fn report(&self, progress: Progress) {
        self.conn.set(self.end.id().side, progress);
        self.end.wake_peer();
    }
}

impl<P: Port> Drop for Endpoint<P> {
    fn drop(&mut self) {
        if self.number.is_some() {
            self.report(Progress::Dropped);
        }
    }
}

impl<P: Port> std::fmt::Debug for Endpoint<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let num = self.number.as_ref().map(QpNumber::num);
        f.debug_struct("Endpoint")
            .field("num", &num)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}
