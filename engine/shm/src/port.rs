//! The port: what other threads reach of a set of queues, and where its thread sleeps.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rpcrdma_provider::{Bells, SetupError, Waker};
use rpcrdma_transport::numbers::Numbers;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use crate::pools::Files;

/// The shared side of a set of queues.
pub struct Port {
    /// The numbers of its queue pairs.
    pub(crate) numbers: Numbers,
    /// What its ends are opened with.
    pub(crate) ends: EndSpec,
    /// The sockets of its links: readable when a peer rings.
    epoll: OwnedFd,
    /// Rung by threads of this process.
    bell: Waker,
    /// The last ring of one of its links has failed.
    owes_rings: AtomicBool,
}

/// What the ends of links are opened with.
pub(crate) struct EndSpec {
    pub files: Arc<Files>,
    /// Reads of a queue pair at one time.
    pub reads_max: u32,
    /// The position of the first slot of a ring.
    pub first: u64,
}

impl Port {
    /// A port for at most `qp_max` queue pairs.
    pub(crate) fn new(qp_max: u32, ends: EndSpec) -> Result<Port, SetupError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(|error| SetupError::System {
            call: "epoll_create1",
            source: error.into(),
            hint: "check the limit of open files (ulimit -n)",
        })?;
        let (numbers, bell) = (Numbers::new(qp_max), Waker::set_up()?);
        Ok(Port { numbers, ends, epoll, bell, owes_rings: AtomicBool::new(false) })
    }

    /// Ends the sleep of the owner, or its next one.
    #[cold]
    pub(crate) fn wake(&self) {
        self.bell.ring();
    }

    /// Whether rings have failed that are to be repeated.
    #[inline]
    pub(crate) fn owes_rings(&self) -> bool {
        self.owes_rings.load(Ordering::Relaxed)
    }

    /// Sets [`Port::owes_rings`].
    #[cold]
    pub(crate) fn set_owes_rings(&self, owes: bool) {
        self.owes_rings.store(owes, Ordering::Relaxed);
    }

    /// Lets the peer of the link with this number wake the owner.
    pub(crate) fn add(&self, link: u64, socket: &impl AsFd) -> Result<(), SetupError> {
        let data = EventData::new_u64(link);
        let added = epoll::add(&self.epoll, socket, data, EventFlags::IN);
        added.map_err(SetupError::unwatched)
    }

    /// The peer of a link does not wake the owner any more. Its socket may exist for long after it
    /// is dropped.
    pub(crate) fn remove(&self, socket: &impl AsFd) {
        // It is not there if the peer was found to be gone.
        let _ = epoll::delete(&self.epoll, socket);
    }

    /// What peers ring, and what threads of this process ring.
    pub(crate) fn both_bells(&self) -> Bells<'_> {
        [Some(self.epoll.as_fd()), Some(self.bell.as_fd())]
    }

    /// Has all rings read, so that the next sleep does not end at once: `read` has the number of a
    /// link.
    pub(crate) fn drain(&self, mut read: impl FnMut(u64)) {
        self.bell.drain();
        let mut events = [const { MaybeUninit::uninit() }; EVENTS];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events[..], Some(&now)) else { return };
        for &mut Event { data, .. } in events {
            read(data.u64());
        }
    }
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port").field("epoll", &self.epoll).finish_non_exhaustive()
    }
}

/// Links that may be read in one wake-up.
const EVENTS: usize = 64;
