//! The port: which sockets of a set of queues are ready, and where its thread sleeps.
//!
//! The sockets are in one epoll set, edge-triggered: an edge is noted until the socket was read to its
//! end. A poll asks the set only if there are several connections; a single one is read without that.
//! Polls that find nothing ask more and more rarely, up to every seventh or eighth: a system call costs
//! more than all else that such a poll does.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use rpcrdma_provider::{Bells, SetupError};
use rpcrdma_transport::numbers::Numbers;
use rustix::event::epoll::EventFlags;

use crate::ready::ReadySet;
use crate::socket::Socket;

/// The shared side of a set of queues.
pub struct Port {
    /// The numbers of its queue pairs.
    pub(crate) numbers: Numbers,
    set: ReadySet,
    /// What is known of the sockets, by the index in the numbers of their queue pairs.
    ready: Box<[AtomicU8]>,
    /// Sockets in the set.
    sockets: AtomicUsize,
    /// Polls that ask nothing before one does, and how many they were the last time.
    skipped: AtomicU8,
    backoff: AtomicU8,
}

impl Port {
    /// A port for at most `qp_max` queue pairs, whose sockets are of the kind of `set`.
    pub(crate) fn new(qp_max: u32, set: ReadySet) -> Port {
        let places = qp_max.max(2).next_power_of_two();
        let ready = (0..places).map(|_| AtomicU8::new(0)).collect();
        let (sockets, skipped, backoff) = (AtomicUsize::new(0), AtomicU8::new(0), AtomicU8::new(0));
        Port { numbers: Numbers::new(qp_max), set, ready, sockets, skipped, backoff }
    }

    /// Watches the socket of a queue pair.
    pub(crate) fn add(&self, socket: &Socket, qp_num: u32) -> Result<(), SetupError> {
        self.place(qp_num).store(READABLE | WRITABLE, Ordering::Relaxed);
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let added = self.set.add(socket, qp_num.into(), flags);
        added.map_err(SetupError::unwatched)?;
        self.sockets.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Watches a socket no more.
    pub(crate) fn remove(&self, socket: &Socket) {
        if self.set.remove(socket).is_ok() {
            self.sockets.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Begins a poll: notes the sockets that have become ready, if there are several.
    #[inline]
    pub(crate) fn look(&self) {
        let skipped = self.skipped.load(Ordering::Relaxed);
        if skipped > 0 {
            return self.skipped.store(skipped - 1, Ordering::Relaxed);
        }
        if self.sockets.load(Ordering::Relaxed) > 1 {
            let has_found = self.look_now();
            self.note_asked(has_found);
        }
    }

    /// A system call of a poll has found something, or nothing.
    #[inline]
    pub(crate) fn note_asked(&self, has_found: bool) {
        let before = self.backoff.load(Ordering::Relaxed);
        let backoff = if has_found { 0 } else { (2 * before + 1).min(BACKOFF_MAX) };
        self.backoff.store(backoff, Ordering::Relaxed);
        self.skipped.store(backoff, Ordering::Relaxed);
    }

    /// Notes the sockets that have become ready. Returns whether there are any.
    pub(crate) fn look_now(&self) -> bool {
        self.set.look(|number, flags| {
            let is_readable = flags.intersects(!EventFlags::OUT);
            let is_writable = flags.intersects(!EventFlags::IN);
            let has_end = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
            let known = if is_readable { READABLE } else { 0 }
                | if is_writable { WRITABLE } else { 0 }
                | if has_end { ENDS } else { 0 };
            self.place(number as u32).fetch_or(known, Ordering::Relaxed);
        })
    }

    /// Whether a socket may have bytes, or is to be tried in this poll.
    #[inline]
    pub(crate) fn may_read(&self, qp_num: u32) -> bool {
        let is_alone = self.sockets.load(Ordering::Relaxed) == 1;
        self.is_readable(qp_num) || is_alone && self.skipped.load(Ordering::Relaxed) == 0
    }

    /// Whether a socket may have bytes.
    #[inline]
    pub(crate) fn is_readable(&self, qp_num: u32) -> bool {
        self.place(qp_num).load(Ordering::Relaxed) & READABLE != 0
    }

    /// All that a socket had was read, but not the end of its stream: an edge that has reported
    /// both does not come again.
    #[inline]
    pub(crate) fn note_read_all(&self, qp_num: u32) {
        let place = self.place(qp_num);
        if place.load(Ordering::Relaxed) & (READABLE | ENDS) == READABLE {
            place.fetch_and(!READABLE, Ordering::Relaxed);
        }
    }

    /// Whether a socket may take bytes, or is to be tried in this poll.
    #[inline]
    pub(crate) fn may_write(&self, qp_num: u32) -> bool {
        let is_alone = self.sockets.load(Ordering::Relaxed) == 1;
        self.is_writable(qp_num) || is_alone && self.skipped.load(Ordering::Relaxed) == 0
    }

    /// Whether a socket may take bytes.
    #[inline]
    pub(crate) fn is_writable(&self, qp_num: u32) -> bool {
        self.place(qp_num).load(Ordering::Relaxed) & WRITABLE != 0
    }

    /// A socket has not taken all: an edge comes when it takes more.
    #[inline]
    pub(crate) fn note_full(&self, qp_num: u32) {
        let place = self.place(qp_num);
        if place.load(Ordering::Relaxed) & WRITABLE != 0 {
            place.fetch_and(!WRITABLE, Ordering::Relaxed);
        }
    }

    /// What is readable when a socket has become ready.
    pub(crate) fn bells(&self) -> Bells<'_> {
        [Some(self.set.as_fd()), None]
    }

    fn place(&self, qp_num: u32) -> &AtomicU8 {
        &self.ready[qp_num as usize & (self.ready.len() - 1)]
    }
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port").field("set", &self.set).finish_non_exhaustive()
    }
}

/// A socket may have bytes, or its end.
const READABLE: u8 = 1;
/// A socket takes bytes.
const WRITABLE: u8 = 2;
/// The stream of a socket ends behind what it has.
const ENDS: u8 = 4;
/// The most polls in a row that ask nothing.
const BACKOFF_MAX: u8 = 7;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{Network, NetworkPlan};

    /// A port with so many sockets, of which nothing new is known, and the first of which has
    /// nothing.
    fn port(sockets: u32) -> (Port, Vec<Socket>) {
        let network = Network::new(NetworkPlan::default());
        let set = ReadySet::Virtual(network.ready_set().expect("a descriptor"));
        let port = Port::new(4, set);
        let sockets: Vec<_> = (0..sockets).map(|_| Socket::Virtual(network.socket())).collect();
        for (num, socket) in (0..).zip(&sockets) {
            port.add(socket, num).expect("they are of a kind");
        }
        port.look_now();
        port.note_read_all(0);
        (port, sockets)
    }

    #[test]
    fn one_socket_is_tried_in_each_poll_and_the_set_of_several_is_asked_ever_more_rarely() {
        let tries = |sockets| {
            let (port, _sockets) = port(sockets);
            let polls = (0..20).map(|_| {
                port.look();
                port.skipped.load(Ordering::Relaxed)
            });
            polls.collect::<Vec<_>>()
        };
        assert_eq!(tries(1), [0; 20]);
        assert_eq!(tries(2)[..14], [1, 0, 3, 2, 1, 0, 7, 6, 5, 4, 3, 2, 1, 0]);
    }
}
