//! The link of one connection: memory that both processes map, and the socket between them.
//!
//! The socket says who the peer is, wakes it, and ends with its process. A link that is cut has no
//! peer any more, whatever the memory says.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rpcrdma_transport::barrier;
use rpcrdma_transport::carrier::{Carrier, EndId};
use rustix::net::SendFlags;

use crate::consumer::Consumer;
use crate::layout::{Direction, Layout};
use crate::port::Port;
use crate::producer::Producer;
use crate::watch::Watch;

/// One side of a link.
pub(crate) struct Link {
    id: u64,
    /// 0 for the connecting side.
    side: usize,
    layout: Arc<Layout>,
    socket: OwnedFd,
    /// The peer's process takes part in barriers.
    peer_has_fences: bool,
    life: Arc<Life>,
    watch: Arc<Watch>,
}

/// Whether a peer lives, for the thread that watches the sockets.
pub(crate) struct Life {
    is_cut: AtomicBool,
    port: Arc<Port>,
}

impl Link {
    /// Makes one side of a link, and watches its socket from now on.
    pub(crate) fn new(
        (id, side): (u64, usize),
        (layout, socket): (Arc<Layout>, OwnedFd),
        (port, peer_has_fences): (Arc<Port>, bool),
        watch: &Arc<Watch>,
    ) -> std::io::Result<Arc<Link>> {
        let life = Arc::new(Life { is_cut: AtomicBool::new(false), port });
        watch.add(id, &socket, &life)?;
        let watch = Arc::clone(watch);
        Ok(Arc::new(Link { id, side, layout, socket, peer_has_fences, life, watch }))
    }

    /// Both ends of this side.
    pub(crate) fn ends(
        self: &Arc<Link>,
        qp_num: u32,
        (reads_max, first): (u32, u64),
    ) -> (Producer, Consumer) {
        let [out, back] = [self.side, 1 - self.side].map(|at| Direction::new(&self.layout, at));
        let producer = Producer::new((Arc::clone(self), out), reads_max, first);
        (producer, Consumer::new((Arc::clone(self), back), qp_num, first))
    }

    /// The name of this end.
    pub(crate) fn end(&self) -> EndId {
        EndId { link: self.id, side: self.side }
    }

    /// The memory.
    pub(crate) fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// The queues that it belongs to.
    pub(crate) fn port(&self) -> &Arc<Port> {
        &self.life.port
    }

    /// The socket.
    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// The peer's process is gone or has closed its side.
    #[inline]
    pub(crate) fn is_cut(&self) -> bool {
        self.life.is_cut.load(Ordering::Acquire)
    }

    /// Whether the peer sees that this side sleeps whenever it has published something.
    pub(crate) fn peer_has_fences(&self) -> bool {
        self.peer_has_fences
    }

    /// This side's thread is going to sleep.
    pub(crate) fn fall_asleep(&self) {
        self.layout.side(self.side).asleep.0.store(1, Ordering::Relaxed);
    }

    /// This side's thread is awake.
    pub(crate) fn wake_up(&self) {
        self.layout.side(self.side).asleep.0.store(0, Ordering::Relaxed);
    }

    /// Wakes the peer if it sleeps. Called after publishing.
    #[inline]
    pub(crate) fn wake_peer(&self) {
        // The peer's fence orders the load behind what was published.
        barrier::compiler();
        if self.layout.side(1 - self.side).asleep.0.load(Ordering::Relaxed) != 0 {
            self.ring();
        }
    }

    /// One system call. The only failures are a peer that is gone, and one that has not read earlier
    /// rings.
    #[cold]
    fn ring(&self) {
        self.layout.side(1 - self.side).asleep.0.store(0, Ordering::Relaxed);
        let _ = rustix::net::send(&self.socket, &[RING], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.watch.remove(self.id);
    }
}

impl Life {
    /// The peer is gone.
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::Release);
        self.port.wake();
    }
}

/// A link as the transport sees it.
pub(crate) struct Channel(pub Arc<Link>);

impl Carrier for Channel {
    type Tx = Producer;
    type Rx = Consumer;

    fn id(&self) -> EndId {
        self.0.end()
    }

    #[inline]
    fn wake_peer(&self) {
        self.0.wake_peer();
    }
}

/// What a ring consists of; no one looks at it.
const RING: u8 = 0;
