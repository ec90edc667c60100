//! The way of a storage's requests to the system: a ring, or threads.
#![expect(unsafe_code, reason = "requests name memory by its address")]

use std::io;

#[cfg(test)]
use crate::faults::Faults;
use crate::request::Request;
use crate::ring::{Flush, Ring};
use crate::threads::Threads;

/// What does the requests.
#[expect(clippy::large_enum_variant, reason = "there is one for a storage")]
pub(crate) enum Way {
    Ring(Ring),
    Threads(Threads),
    /// For tests: every request may fail, be short or late, in any order.
    #[cfg(test)]
    Faults(Faults),
}

impl Way {
    /// Adds a request. It begins with [`Way::flush`] at the latest.
    ///
    /// # Safety
    /// What the request points to stays valid and untouched until [`Way::reap`] has returned its
    /// slot. At most as many requests as the way was made for are under way.
    #[inline]
    pub unsafe fn push(&mut self, slot: u32, request: Request) {
        match self {
            // SAFETY: as the caller guarantees.
            Way::Ring(ring) => unsafe { ring.push(slot, request) },
            // SAFETY: as above.
            Way::Threads(threads) => unsafe { threads.push(slot, request) },
            #[cfg(test)]
            // SAFETY: as above.
            Way::Faults(faults) => unsafe { faults.push(slot, request) },
        }
    }

    /// Begins what was pushed: one system call at most.
    #[inline]
    pub fn flush(&mut self) -> Flush {
        match self {
            Way::Ring(ring) => ring.flush(),
            Way::Threads(_) => Flush::default(),
            #[cfg(test)]
            Way::Faults(_) => Flush::default(),
        }
    }

    /// The slot and the result of a request that is done.
    #[inline]
    pub fn reap(&mut self) -> Option<(u32, i32)> {
        match self {
            Way::Ring(ring) => ring.reap(),
            Way::Threads(threads) => threads.reap(),
            #[cfg(test)]
            Way::Faults(faults) => faults.reap(),
        }
    }

    /// Asks for the end of a request, which is answered nevertheless.
    pub fn cancel(&mut self, slot: u32) {
        match self {
            Way::Ring(ring) => ring.cancel(slot),
            Way::Threads(_) => {}
            #[cfg(test)]
            Way::Faults(_) => {}
        }
    }

    /// Sleeps until a request is done, or a signal comes. Some are under way.
    pub fn wait(&mut self) -> io::Result<()> {
        match self {
            Way::Ring(ring) => ring.wait(),
            Way::Threads(threads) => threads.wait(),
            #[cfg(test)]
            Way::Faults(_) => Ok(()),
        }
    }
}
