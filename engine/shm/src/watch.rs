//! The watch: one thread for each provider, which learns that a peer's process is gone.
//!
//! The kernel closes the socket of a process that ends, however it ends. The thread sleeps until
//! that happens, so that the shards make no system call for it.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rpcrdma_provider::{CloseOnFork, SetupError, Waker};
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
    epoll: CloseOnFork,
    lives: Mutex<HashMap<u64, Arc<Life>>>,
}

impl Watch {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`SetupError::System`] with the call that has failed.
    pub(crate) fn start() -> Result<Watch, SetupError> {
        let failed = |call, source, hint| SetupError::System { call, source, hint };
        let epoll = CloseOnFork::open(|| epoll::create(CreateFlags::CLOEXEC))
            .map_err(|error| failed("epoll_create1", error.into(), FILES))?;
        let stop = Waker::set_up()?;
        epoll::add(&epoll, &stop, EventData::new_u64(STOP), EventFlags::IN)
            .map_err(SetupError::unwatched)?;
        let sockets = Arc::new(Sockets { epoll, lives: Mutex::default() });
        let watched = Arc::clone(&sockets);
        let thread = std::thread::Builder::new().name("rpcrdma-shm".to_owned());
        let thread = thread
            .spawn(move || watched.run())
            .map_err(|error| failed("pthread_create", error, THREADS))?;
        Ok(Watch { sockets, stop, thread: Some(thread) })
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
        if !self.sockets.epoll.is_kept() {
            // A child that was forked since has no such thread.
            std::mem::forget(self.thread.take());
            return;
        }
        // A ring ends its sleep, and what is writable at all times does, too: write(2) or
        // epoll_ctl(2) may be forbidden by now.
        self.stop.ring();
        let (stop, data) = (&self.stop, EventData::new_u64(STOP));
        let _ = epoll::modify(&self.sockets.epoll, stop, data, EventFlags::OUT);
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
const FILES: &str = "check the limit of open files (ulimit -n)";
const THREADS: &str = "the limit of threads may be reached (ulimit -u)";

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_testing::denied::Denied;

    #[test]
    fn a_call_that_fails_is_named() {
        for (number, call) in [
            (libc::SYS_epoll_create1, "epoll_create1"),
            (libc::SYS_eventfd2, "eventfd"),
            (libc::SYS_epoll_ctl, "epoll_ctl"),
            (libc::SYS_clone3, "pthread_create"),
        ] {
            let denied = Denied { calls: &[number], errno: libc::EPERM };
            let why = denied.run(|| Watch::start().err()).expect("it fails").to_string();
            assert!(why.starts_with(&format!("{call} failed: ")), "{why}");
        }
    }

    #[test]
    fn the_thread_ends_though_one_of_its_two_calls_is_forbidden() {
        for call in [libc::SYS_write, libc::SYS_epoll_ctl] {
            let watch = Watch::start().expect("it starts");
            Denied { calls: &[call], errno: libc::EPERM }.run(|| drop(watch));
        }
    }
}
