//! Waiting until a file descriptor is readable.
#![expect(unsafe_code, reason = "ppoll(2) has no safe binding in std")]

use std::io;
use std::os::fd::RawFd;
use std::ptr;
use std::time::Duration;

/// Sleeps until one of the descriptors is readable, at most `timeout`. Returns, for each descriptor,
/// whether it is; a signal can return with none. A negative descriptor is ignored.
///
/// # Errors
/// If the system cannot wait.
pub fn readable<const N: usize>(fds: [RawFd; N], timeout: Duration) -> io::Result<[bool; N]> {
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
