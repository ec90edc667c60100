//! The waker: ends the sleep of another thread, by an eventfd.
#![expect(unsafe_code, reason = "eventfd(2) has no safe binding in std")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use crate::SetupError;
use crate::fd::readable;

/// Ends the sleep of the thread that waits on it. Cloning is cheap; ringing is one system call.
///
/// A ring is remembered until [`Waker::drain`], so ringing before the sleep is not lost.
#[derive(Debug, Clone)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// A waker that is not rung. Fails if the process has no free file descriptor.
    pub fn new() -> io::Result<Waker> {
        // SAFETY: eventfd takes two integers and no pointer.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just returned by eventfd and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Waker(Arc::new(fd)))
    }

    /// As [`Waker::new`], with a set-up error.
    pub fn set_up() -> Result<Waker, SetupError> {
        Waker::new().map_err(|source| SetupError::System {
            call: "eventfd",
            source,
            hint: "the process may have reached its limit of open files (ulimit -n)",
        })
    }

    /// Ends the sleep, or the next sleep if no thread sleeps now. One system call.
    pub fn ring(&self) {
        let one = 1_u64;
        // The only failure is a full counter (EAGAIN): then it is already rung.
        // SAFETY: `one` is eight readable bytes, which is what an eventfd takes.
        let _ = unsafe { libc::write(self.fd(), (&raw const one).cast(), 8) };
    }

    /// Clears all rings. One system call.
    pub fn drain(&self) {
        let mut count = 0_u64;
        // The only failure is that it was not rung (EAGAIN): nothing to clear.
        // SAFETY: `count` is eight writable bytes, which is what an eventfd returns.
        let _ = unsafe { libc::read(self.fd(), (&raw mut count).cast(), 8) };
    }

    /// The file descriptor, readable while rung: for the program's own poll set.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Sleeps until one of `wakers` is rung or `timeout` has elapsed; true if one is rung.
    ///
    /// May return early without a ring when a signal arrives. Rings are kept, not drained.
    pub fn sleep<const N: usize>(wakers: [&Waker; N], timeout: Duration) -> io::Result<bool> {
        Ok(readable(wakers.map(Waker::fd), timeout)?.contains(&true))
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn ring_before_sleep_is_remembered_until_drained() {
        let waker = Waker::new().unwrap();
        assert!(!Waker::sleep([&waker], Duration::ZERO).unwrap());
        waker.ring();
        waker.ring();
        assert!(Waker::sleep([&waker], LONG).unwrap());
        assert!(Waker::sleep([&waker], LONG).unwrap());
        waker.drain();
        assert!(!Waker::sleep([&waker], Duration::ZERO).unwrap());
        waker.drain();
    }

    #[test]
    fn either_of_two_wakers_ends_the_sleep() {
        let (first, second) = (Waker::new().unwrap(), Waker::new().unwrap());
        second.clone().ring();
        assert!(Waker::sleep([&first, &second], LONG).unwrap());
        second.drain();
        first.ring();
        assert!(Waker::sleep([&first, &second], LONG).unwrap());
    }

    #[test]
    fn ring_from_another_thread_ends_the_sleep() {
        let waker = Waker::new().unwrap();
        let ringer = waker.clone();
        let thread = std::thread::spawn(move || ringer.ring());
        while !Waker::sleep([&waker], LONG).unwrap() {}
        thread.join().unwrap();
    }

    #[test]
    fn a_descriptor_that_is_readable_ends_the_sleep() {
        let waker = Waker::new().expect("a descriptor");
        let other = Waker::new().expect("a descriptor");
        assert_eq!(
            readable([waker.fd(), other.fd()], Duration::ZERO).expect("none is wrong"),
            [false, false]
        );
        other.ring();
        assert_eq!(
            readable([waker.fd(), other.fd()], Duration::from_secs(60)).expect("none is wrong"),
            [false, true]
        );
        // A negative descriptor is ignored.
        assert_eq!(
            readable([-1, waker.fd()], Duration::ZERO).expect("none is wrong"),
            [false, false]
        );
    }
}
