//! Descriptors of channels and devices.
#![expect(unsafe_code, reason = "fcntl(2) has no safe binding in std")]

use std::io;
use std::os::fd::RawFd;

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
