//! The link of one connection: memory that both processes map, and the socket between them.
//!
//! The socket identifies the peer, wakes it, and ends with its process. A link that is cut has no
//! peer any more, whatever the memory contains.

use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rpcrdma_transport::carrier::EndId;
use rpcrdma_transport::{barrier, sleep};
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::closer::Foreign;
use crate::layout::{Direction, Layout};
use crate::life::Life;
use crate::memory::Unfit;
use crate::pools::{File, Name, Pool};
use crate::port::Port;
use crate::socket::{self, Socket, Word};
use crate::watch::Watch;

/// One side of a link.
pub(crate) struct Link {
    id: u64,
    /// 0 for the connecting side.
    side: usize,
    layout: Arc<Layout>,
    socket: Socket,
    terms: Terms,
    /// What the peer has exposed.
    pools: Mutex<Vec<Arc<Pool>>>,
    /// Counts their changes.
    changes: AtomicU32,
    life: Arc<Life>,
    watch: Arc<Watch>,
}

/// What the handshake has agreed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// Both processes take part in barriers, so the one that sleeps pays for one. Otherwise each
    /// message does, on both sides.
    pub have_fences: bool,
    /// Both sides expose their pools.
    pub maps_pools: bool,
}

impl Link {
    /// Makes one side of a link, and watches its socket from now on.
    pub(crate) fn new(
        EndId { link: id, side }: EndId,
        layout: Arc<Layout>,
        socket: Socket,
        terms: Terms,
        port: Arc<Port>,
        watch: &Arc<Watch>,
    ) -> std::io::Result<Arc<Link>> {
        let life = Arc::new(Life::new(port));
        watch.add(id, &socket, &life)?;
        let watch = Arc::clone(watch);
        let pools = Mutex::default();
        let changes = AtomicU32::new(0);
        Ok(Arc::new(Link { id, side, layout, socket, terms, pools, changes, life, watch }))
    }

    /// The direction in which this side sends, and the other one.
    pub(crate) fn directions(&self) -> [Direction; 2] {
        [self.side, 1 - self.side].map(|at| Direction::new(&self.layout, at))
    }

    /// Whether both sides expose their pools.
    pub(crate) fn maps_pools(&self) -> bool {
        self.terms.maps_pools
    }

    /// The name of this end.
    pub(crate) fn end(&self) -> EndId {
        EndId { link: self.id, side: self.side }
    }

    /// The socket.
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// The peer's process is gone or has closed its side.
    #[inline]
    pub(crate) fn is_cut(&self) -> bool {
        self.life.is_cut()
    }

    /// Whether a side that falls asleep needs a barrier on the other one.
    pub(crate) fn have_fences(&self) -> bool {
        self.terms.have_fences
    }

    /// 1 while this side's thread sleeps.
    pub(crate) fn asleep(&self) -> &AtomicU32 {
        &self.layout.side(self.side).asleep.0
    }

    /// Exposes a pool to the peer. False if the socket has no room now.
    #[cold]
    pub(crate) fn expose(&self, name: Name, file: &File) -> bool {
        let is_exposed = socket::expose(&self.socket, name, Some(file)).is_ok();
        if is_exposed {
            // A peer that sees it finds the pool in its socket.
            self.layout.side(self.side).exposed.0.store(name.number, Ordering::Release);
        }
        is_exposed
    }

    /// Reports to the peer that a pool is gone. False if the socket has no room now.
    #[cold]
    pub(crate) fn withdraw_pool(&self, name: Name) -> bool {
        socket::expose(&self.socket, name, None).is_ok()
    }

    /// Whether the peer states that it has mapped a pool. It spoils its own messages if that is
    /// wrong.
    #[inline]
    pub(crate) fn is_mapped(&self, name: Name) -> bool {
        let mapped = &self.layout.side(1 - self.side).mapped[name.place as usize];
        // No data are read behind it.
        mapped.load(Ordering::Relaxed) == name.number
    }

    /// The number of the pool that the peer has exposed last, if this side maps pools.
    #[inline]
    pub(crate) fn last_exposed(&self) -> u32 {
        let exposed = &self.layout.side(1 - self.side).exposed.0;
        if self.terms.maps_pools { exposed.load(Ordering::Acquire) } else { 0 }
    }

    /// Reads what the peer has sent by the socket. False if it is gone, or sends what it must not:
    /// then the connection ends.
    #[cold]
    pub(crate) fn read_words(&self) -> bool {
        for _ in 0..WORDS_MAX {
            let is_fit = match socket::read_word(&self.socket, self.terms.maps_pools) {
                Word::Ring => true,
                Word::Exposed(name, len, file) => self.keep(name, len, file),
                Word::Gone(name) => {
                    self.all_pools().retain(|pool| pool.name != name);
                    self.changes.fetch_add(1, Ordering::Relaxed);
                    true
                }
                Word::Nothing => return true,
                Word::End => return false,
                Word::Breach => false,
            };
            if !is_fit {
                self.life.cut();
                return false;
            }
        }
        // A peer that sends without end costs its share of each look, and no more.
        true
    }

    /// Maps what the peer exposes, and reports that to it. False if it is no memory of a pool.
    fn keep(&self, name: Name, len: u64, file: Foreign) -> bool {
        let Some(mapped) = self.layout.side(self.side).mapped.get(name.place as usize) else {
            return false;
        };
        let mut pools = self.all_pools();
        // A key that is used again names other memory. A place has one pool, so there are not more
        // than places.
        pools.retain(|pool| pool.name.key != name.key && pool.name.place != name.place);
        self.changes.fetch_add(1, Ordering::Relaxed);
        match Pool::map(name, len, &file) {
            Ok(pool) => {
                pools.push(Arc::new(pool));
                // The peer reads nothing behind it, and this side finds the pool when it is named.
                mapped.store(name.number, Ordering::Relaxed);
            }
            // This process has no room for it, or cannot rely on its pages: it comes staged.
            Err(Unfit::System(_) | Unfit::Pages) => {}
            Err(_) => return false,
        }
        file.close_now();
        true
    }

    /// How often [`Link::pools`] has changed. Called by the thread that reads the words, as that.
    #[inline]
    pub(crate) fn changes(&self) -> u32 {
        self.changes.load(Ordering::Relaxed)
    }

    /// All that the peer has exposed.
    #[cold]
    pub(crate) fn pools(&self) -> Vec<Arc<Pool>> {
        self.all_pools().clone()
    }

    fn all_pools(&self) -> MutexGuard<'_, Vec<Arc<Pool>>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the peer if it sleeps. Called after publishing.
    #[inline]
    pub(crate) fn wake_peer(&self) {
        let asleep = &self.layout.side(1 - self.side).asleep.0;
        sleep::notify(asleep, || self.order(), || self.ring());
    }

    /// Puts a load behind what was published: fence.rs.
    #[inline]
    fn order(&self) {
        if self.terms.have_fences { barrier::compiler() } else { fence(Ordering::SeqCst) }
    }

    /// One system call. Returns whether the peer is rung, or needs no ring; if not, the next look of
    /// this side's thread rings again.
    fn ring(&self) -> bool {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::send(&self.socket, &[RING], flags) {
            // The watch notices that a peer is gone.
            Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => true,
            // Earlier rings that the peer has not read keep its socket readable, so it does not
            // sleep before it has read them, and then it looks at what was published.
            Err(Errno::AGAIN) => true,
            // The system may have no memory.
            Err(_) => {
                self.life.port().set_owes_rings(true);
                false
            }
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.watch.remove(self.id);
        self.life.port().remove(&self.socket);
    }
}

/// Words read from a socket in one look.
const WORDS_MAX: usize = 64;
/// What a ring consists of; no one looks at it.
const RING: u8 = 0;
