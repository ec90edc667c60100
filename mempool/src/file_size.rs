//! The signal of those who exceed the limit of file sizes (`RLIMIT_FSIZE`).
#![expect(unsafe_code, reason = "system calls")]

/// Blocks SIGXFSZ in the calling thread: a write beyond `RLIMIT_FSIZE` is then the error EFBIG, and
/// does not end the process. For threads that write files; other threads, and what the program does
/// with the signal, stay as they are.
pub fn block_signal() {
    // SAFETY: all bits zero are a valid set, which is made empty below.
    let mut signals: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: writes to the set, which is ours.
    unsafe { libc::sigemptyset(&raw mut signals) };
    // SAFETY: as above; the signal exists.
    unsafe { libc::sigaddset(&raw mut signals, libc::SIGXFSZ) };
    // SAFETY: reads the set; no place for the old mask is given. It fails for no set.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut()) };
}

#[cfg(test)]
#[cfg(not(miri))]
pub(crate) mod tests {
    use super::*;
    use crate::memfd::create;

    /// Runs `act` in a child process whose files may have so many bytes. Returns how it ended.
    pub(crate) fn limited(bytes: u64, act: impl FnOnce() -> i32) -> i32 {
        // SAFETY: the child makes system calls only, and ends without running anything else.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "there are processes left");
        if child == 0 {
            let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
            // SAFETY: reads the structure; the limit is the child's own.
            unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) };
            let code = act();
            // SAFETY: ends the child.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: `child` is a child of this process, and only this code waits for it.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(waited, child);
        assert!(libc::WIFEXITED(status), "it was ended by signal {}", libc::WTERMSIG(status));
        libc::WEXITSTATUS(status)
    }

    #[test]
    fn a_thread_that_blocks_the_signal_gets_an_error() {
        let code = limited(4096, || {
            block_signal();
            let file = create(c"test", 4096, 0).expect("within the limit");
            file.set_len(4097).map_or_else(|error| error.raw_os_error().unwrap_or(255), |()| 0)
        });
        assert_eq!(code, libc::EFBIG);
    }
}
