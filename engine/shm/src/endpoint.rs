//! Endpoints: connected queue pairs that are not attached to their queues yet.
#![expect(unsafe_code, reason = "the words of the set-up lie in mapped memory")]

use std::ptr::NonNull;
use std::sync::Arc;

use rpcrdma_transport::conn::{Conn, Progress};

use crate::link::Link;

/// A connected queue pair that is not attached yet. Dropping it ends the connection.
pub struct Endpoint {
    pub(crate) num: u32,
    pub(crate) peer_num: u32,
    pub(crate) peer_rnr_retry: u8,
    link: Arc<Link>,
    conn: Arc<Conn>,
    is_taken_over: bool,
}

impl Endpoint {
    /// The queue pair `num` of this side, over a link.
    pub(crate) fn new(
        link: Arc<Link>,
        num: u32,
        (peer_num, peer_rnr_retry): (u32, u8),
    ) -> Endpoint {
        let words = [0, 1].map(|side| NonNull::from(&link.layout().side(side).progress));
        let keep = Arc::clone(link.layout());
        // SAFETY: the words lie in memory that `keep` keeps mapped.
        let conn = unsafe { Conn::over(keep, words) };
        Endpoint { num, peer_num, peer_rnr_retry, link, conn, is_taken_over: false }
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    pub(crate) fn conn(&self) -> &Arc<Conn> {
        &self.conn
    }

    /// The queues own the queue pair from now on.
    pub(crate) fn take_over(&mut self) {
        self.is_taken_over = true;
        self.conn.set(self.link.end().side, Progress::Attached);
        self.link.wake_peer();
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if !self.is_taken_over {
            self.conn.set(self.link.end().side, Progress::Dropped);
            self.link.port().numbers.give_back(self.num);
            self.link.wake_peer();
        }
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("num", &self.num).finish_non_exhaustive()
    }
}
