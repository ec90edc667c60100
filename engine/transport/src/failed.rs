//! A system call that has failed, with its name.

/// A call that has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed<Errno> {
    /// The call.
    pub call: &'static str,
    /// Its error.
    pub errno: Errno,
}

impl<Errno> Failed<Errno> {
    /// With the errors of this call.
    pub fn of(call: &'static str) -> impl Fn(Errno) -> Failed<Errno> {
        move |errno| Failed { call, errno }
    }
}

/// What may be wrong if a socket cannot be opened.
pub const NOT_OPENED: &str =
    "this host may have no memory for a socket, or may forbid it (seccomp)";
