//! File descriptors of channels, devices and wakers.
#![expect(unsafe_code, reason = "fcntl(2) and ppoll(2) have no safe binding in std")]

use std::io;
use std::os::fd::RawFd;
use std::ptr;
use std::time::Duration;

/// Makes a descriptor non-blocking.
pub(crate) fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: the command takes no argument and returns an integer.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the command takes an integer.
    let code = unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) };
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sleeps until one of the descriptors is readable. Returns, for each descriptor, whether it is; a
/// signal can return with none.
pub(crate) fn readable<const N: usize>(
    fds: [RawFd; N],
    timeout: Duration,
) -> io::Result<[bool; N]> {
    let mut polled = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let count = N as libc::nfds_t;
    // SAFETY: `polled` has so many entries and outlives the call, `timeout` is a valid timespec,
    // and a null signal mask leaves the mask as it is.
    let ready = unsafe { libc::ppoll(polled.as_mut_ptr(), count, &raw const timeout, ptr::null()) };
    if ready >= 0 {
        return Ok(polled.map(|it| it.revents != 0));
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::Interrupted => Ok([false; N]),
        error => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_that_is_readable_ends_the_sleep() {
        let waker = rpcrdma_provider::Waker::new().expect("a descriptor");
        let other = rpcrdma_provider::Waker::new().expect("a descriptor");
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
