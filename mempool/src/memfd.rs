//! Memfds: memory with a descriptor, for another process to map.
#![expect(unsafe_code, reason = "system calls")]

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;

use crate::process_limit::{ProcessLimit, Resource};

/// Why there is no memfd.
#[derive(Debug, thiserror::Error)]
#[error("{call} failed: {source}")]
pub struct MemfdError {
    /// The call.
    pub call: &'static str,
    /// Its error.
    pub source: io::Error,
}

impl From<MemfdError> for io::Error {
    fn from(error: MemfdError) -> io::Error {
        io::Error::new(error.source.kind(), error)
    }
}

/// Makes a memfd of `len` zero bytes, which may be sealed and not be executed. `flags` are added:
/// those of huge pages.
///
/// # Errors
/// Those of memfd_create(2) and ftruncate(2). A file that would exceed the limit of file sizes
/// (`RLIMIT_FSIZE`) is an error here; the kernel would end the process with SIGXFSZ.
pub fn create(name: &CStr, len: usize, flags: libc::c_uint) -> Result<File, MemfdError> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | flags;
    // With vm.memfd_noexec = 2 there is no other memfd; before Linux 6.3 there is no such one.
    let file = match open(name, flags | libc::MFD_NOEXEC_SEAL) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => open(name, flags),
        file => file,
    };
    let file = file.map_err(|source| MemfdError { call: "memfd_create", source })?;
    let sized = match ProcessLimit::of(Resource::FileSize) {
        Some(limit) if len as u64 > limit.current => Err(io::Error::from_raw_os_error(libc::EFBIG)),
        _ => file.set_len(len as u64),
    };
    sized.map_err(|source| MemfdError { call: "ftruncate", source })?;
    Ok(file)
}

fn open(name: &CStr, flags: libc::c_uint) -> io::Result<File> {
    // SAFETY: memfd_create reads the name, which ends in a zero byte.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above has just opened `fd`, and it has no other owner.
    Ok(unsafe { File::from_raw_fd(fd) })
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::file_size::tests::limited;

    #[test]
    fn a_memfd_beyond_the_limit_of_file_sizes_is_an_error() {
        let errno = |len| match create(c"test", len, 0) {
            Ok(_) => 0,
            Err(error) if error.call == "ftruncate" => error.source.raw_os_error().unwrap_or(255),
            Err(_) => 255,
        };
        assert_eq!(limited(8192, || errno(8192)), 0);
        assert_eq!(limited(8192, || errno(8193)), libc::EFBIG);
    }

    #[test]
    fn an_error_names_its_call() {
        let error = io::Error::from(create(c"test", 4096, 1 << 30).expect_err("no such flag"));
        assert_eq!(error.to_string(), "memfd_create failed: Invalid argument (os error 22)");
    }

    #[test]
    fn a_system_before_linux_6_3_has_memfds() {
        let create = || create(c"test", 4096, 0).map_err(|error| error.source.raw_os_error());
        let before = std::thread::spawn(move || {
            refuse_memfds(libc::MFD_NOEXEC_SEAL);
            let file = create().expect("without the seal against execution");
            // SAFETY: reads the seals of a file of ours; no memory is involved.
            let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
            assert_eq!(seals & libc::F_SEAL_EXEC, 0);
            refuse_memfds(libc::MFD_CLOEXEC);
            assert_eq!(create().err(), Some(Some(libc::EINVAL)), "no memfd at all");
        });
        before.join().expect("it has passed");
        create().expect("other threads can");
    }

    /// From now on the kernel answers this thread as if it did not know this flag of a memfd.
    fn refuse_memfds(flag: libc::c_uint) {
        let step = |code, k, jf| libc::sock_filter { code: code as u16, jt: 0, jf, k };
        let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
        let flags = std::mem::offset_of!(libc::seccomp_data, args) as u32 + 8;
        let filter = [
            step(load, std::mem::offset_of!(libc::seccomp_data, nr) as u32, 0),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_memfd_create as u32, 3),
            step(load, flags, 0),
            step(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, flag, 1),
            step(libc::BPF_RET, libc::SECCOMP_RET_ERRNO | libc::EINVAL as u32, 0),
            step(libc::BPF_RET, libc::SECCOMP_RET_ALLOW, 0),
        ];
        let len = filter.len() as u16;
        let program = libc::sock_fprog { len, filter: filter.as_ptr().cast_mut() };
        // SAFETY: integers alone.
        let code = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
        assert_eq!(code, 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        // SAFETY: the program lives longer than the call, which copies it.
        let code = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) };
        assert_eq!(code, 0, "seccomp(2) is allowed");
    }

    #[test]
    fn a_process_without_a_standard_input_has_memfds() {
        let number = limited(8192, || {
            // SAFETY: this process has no other user of its standard input, and ends.
            unsafe { libc::close(0) };
            create(c"test", 8192, 0).map_or(255, |file| file.as_raw_fd())
        });
        assert_eq!(number, 0, "the lowest free number");
    }
}
