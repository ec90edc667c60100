//! The watch: one thread for each provider, which learns that a peer's process is gone.
//!
//! The kernel closes the socket of a process that ends, however it ends. The thread sleeps until
//! that happens, so that the shards make no system call for it.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rpcrdma_provider::Waker;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use crate::life::Life;

/// The thread and its sockets. Dropping it ends the thread.
pub(crate) struct Watch {
    sockets: Arc<Sockets>,
    stop: Waker,
    thread: Option<JoinHandle<()>>,
}

/// What the thread knows. It holds no link, so it never is the last owner of one.
struct Sockets {
    epoll: OwnedFd,
    lives: Mutex<HashMap<u64, Arc<Life>>>,
}

impl Watch {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Watch> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let stop = Waker::new()?;
        epoll::add(&epoll, &stop, EventData::new_u64(STOP), EventFlags::IN)?;
        let sockets = Arc::new(Sockets { epoll, lives: Mutex::default() });
        let watched = Arc::clone(&sockets);
        let thread = std::thread::Builder::new().name("rpcrdma-shm".to_owned());
        let thread = Some(thread.spawn(move || watched.run())?);
        Ok(Watch { sockets, stop, thread })
    }

    /// Cuts `life` when the peer's end of `socket` is closed; at once if it is already.
    pub(crate) fn add(&self, id: u64, socket: &impl AsFd, life: &Arc<Life>) -> io::Result<()> {
        self.sockets.lock().insert(id, Arc::clone(life));
        let flags = EventFlags::RDHUP | EventFlags::ET;
        let added = epoll::add(&self.sockets.epoll, socket.as_fd(), EventData::new_u64(id), flags);
        if added.is_err() {
            self.remove(id);
        }
        Ok(added?)
    }

    /// Forgets a link. Its socket leaves with its descriptor.
    pub(crate) fn remove(&self, id: u64) {
        self.sockets.lock().remove(&id);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.ring();
        if let Some(thread) = self.thread.take() {
            // It has no result, and does not panic.
            let _ = thread.join();
        }
    }
}

impl Sockets {
    fn run(&self) {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                // The descriptor is this thread's own: no other error exists.
                Err(_) => return,
            }
            for &Event { data, .. } in &events {
                if data.u64() == STOP {
                    return;
                }
                let life = self.lock().get(&data.u64()).cloned();
                if let Some(life) = life {
                    life.cut();
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Life>>> {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// No link has this number.
const STOP: u64 = u64::MAX;
/// Events of one call.
const EVENTS: usize = 64;
