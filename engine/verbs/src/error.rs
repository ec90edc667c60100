//! Failed library calls: the call, its error number, and the likely cause.
#![expect(unsafe_code, reason = "errno is cleared before a call")]

use std::io;

use rpcrdma_provider::SetupError;

/// An error of a call that sets `errno`.
#[cold]
pub(crate) fn last(call: &'static str) -> SetupError {
    of(call, io::Error::last_os_error())
}

/// Calls a function that returns an object, or null if it fails. `errno` is cleared before: not every
/// driver sets it, and the error would name that of an earlier call.
pub(crate) fn made<T>(
    call: &'static str,
    make: impl FnOnce() -> *mut T,
) -> Result<*mut T, SetupError> {
    set_errno(0);
    let it = make();
    if it.is_null() { Err(last(call)) } else { Ok(it) }
}

/// Sets the error number of this thread.
pub(crate) fn set_errno(code: i32) {
    // SAFETY: the call takes nothing.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the place is this thread's own.
    unsafe { *errno = code };
}

/// An error of a call that returns an error number.
#[cold]
pub(crate) fn code(call: &'static str, code: i32) -> SetupError {
    of(call, io::Error::from_raw_os_error(code.abs()))
}

#[cold]
pub(crate) fn of(call: &'static str, source: io::Error) -> SetupError {
    let hint = likely_cause(call, source.raw_os_error().unwrap_or(0));
    SetupError::System { call, source, hint }
}

/// The most common cause of an error number, by the call.
pub(crate) fn likely_cause(call: &str, errno: i32) -> &'static str {
    let locks = ["ibv_reg_mr", "ibv_alloc_mw", "ibv_create_cq", "ibv_create_srq", "ibv_create_qp"];
    let locks_memory = locks.iter().any(|it| call.starts_with(it));
    match errno {
        libc::EINVAL if call == "ibv_fork_init" => {
            "memory was registered in this process before, and a fork would take it from the device: \
             open the device first, or set RDMAV_FORK_SAFE=1"
        }
        libc::ENOMEM | libc::EAGAIN if locks_memory => {
            "the memlock limit is too low (ulimit -l, LimitMEMLOCK=), or the device has no more room"
        }
        libc::EPERM | libc::EACCES => {
            "no permission for the files below /dev/infiniband (group rdma, or udev rules)"
        }
        libc::ENODEV | libc::ENOENT if call.starts_with("rdma_") => {
            "no RDMA device, or the kernel module rdma_ucm is not loaded"
        }
        libc::ENODEV | libc::EIO => "the device is gone, or its port is down",
        libc::ENOSYS | libc::EOPNOTSUPP => "the device or its driver does not have this",
        libc::EINVAL => "an argument is beyond what the device can do, or the library is too old",
        libc::EMFILE | libc::ENFILE => "the limit of open files (ulimit -n)",
        libc::EADDRNOTAVAIL => "no interface of an RDMA device has this address",
        libc::EADDRINUSE => "another listener has this address already",
        libc::EBUSY => "something that was made of it is still in use",
        0 => "the driver does not say why; see dmesg for what the kernel says",
        _ => "see dmesg for what the kernel says",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registration_without_memory_points_to_the_memlock_limit() {
        let error = code("ibv_reg_mr", libc::ENOMEM).to_string();
        assert!(error.contains("ibv_reg_mr") && error.contains("ulimit -l"), "{error}");
        // A call that locks no memory has no such cause.
        assert!(!code("ibv_query_device", libc::ENOMEM).to_string().contains("ulimit"));
    }

    #[test]
    fn what_a_call_before_has_failed_with_is_no_reason() {
        assert!(std::fs::metadata("/nowhere").is_err());
        let error = made("ibv_create_qp", std::ptr::null_mut::<u8>).expect_err("it made nothing");
        let SetupError::System { source, hint, .. } = error else { panic!("{error}") };
        assert_eq!(source.raw_os_error(), Some(0));
        assert!(hint.contains("does not say why"), "{hint}");
    }

    #[test]
    fn a_negative_error_number_is_the_same_error() {
        let error = code("ibv_modify_qp", -libc::EACCES).to_string();
        assert!(error.contains("permission"), "{error}");
    }

    #[test]
    fn an_unsafe_fork_is_an_error_that_names_the_remedy() {
        let error = code("ibv_fork_init", libc::EINVAL).to_string();
        assert!(error.contains("registered") && error.contains("RDMAV_FORK_SAFE=1"), "{error}");
    }

    #[test]
    fn any_error_number_has_a_hint() {
        assert!((-1..4096).all(|errno| !likely_cause("ibv_reg_mr", errno).is_empty()));
    }
}
