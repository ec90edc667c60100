//! Callers, and the identity that the server assumes for them.
//!
//! The server trusts AUTH_SYS credentials, as every NFS server without Kerberos does. `Squash`
//! states which callers act as the anonymous user instead. A server that runs as root assumes the
//! identity of the caller: the thread that executes a call changes its user and groups while it
//! looks up, creates and removes files, so that the kernel checks the rights. A server that does
//! not run as root executes every call as its own user.

use std::io::{self, Write};

use arrayvec::ArrayVec;
use rpcrdma::onc::{AUTH_SYS_GROUPS_MAX, AuthSys};
use rpcrdma::shm::own_user;
use rustix::fs::{Gid, Uid};
use rustix::io::Errno;
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::status::Status;

/// The number of the user root, and of its group.
pub const ROOT: u32 = 0;

/// The caller, as the RPC header states it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Caller {
    /// AUTH_NONE: no credentials.
    Anonymous,
    /// AUTH_SYS credentials.
    Sys(Credentials),
}

/// AUTH_SYS credentials.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Credentials {
    /// The user id.
    pub uid: u32,
    /// The group id.
    pub gid: u32,
    /// The other groups.
    pub groups: ArrayVec<u32, GROUPS_MAX>,
}

/// Which callers act as the anonymous user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Squash {
    /// The user root, the group root, and calls without credentials.
    #[default]
    Root,
    /// All callers.
    All,
    /// Only calls without credentials.
    None,
}

/// How the server chooses the identity that executes a call.
#[derive(Debug, Clone)]
pub enum Policy {
    /// The identity of the caller; the server runs as root.
    Assumed(Squash),
    /// The user that the server runs as.
    Own,
}

/// A system call of the calling thread's identity that failed.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("{call}(2): {errno}")]
pub struct IdentityError {
    /// Its name.
    pub call: &'static str,
    /// Its error.
    pub errno: Errno,
}

/// The identity that one call is executed with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// The server's own: for the caller root, or if the server does not run as root.
    Server,
    /// The identity with these credentials.
    Other(Credentials),
}

impl Credentials {
    /// Those of the anonymous user.
    pub const ANONYMOUS: Credentials =
        Credentials { uid: ANONYMOUS, gid: ANONYMOUS, groups: ArrayVec::new_const() };

    /// The credentials of an RPC header. An id that is none, 2^32-1, is that of the anonymous user.
    pub fn of(user: &AuthSys<'_>) -> Credentials {
        let valid = |id| if id == u32::MAX { ANONYMOUS } else { id };
        let groups = user.groups.iter().take(GROUPS_MAX).map(valid).collect();
        Credentials { uid: valid(user.uid), gid: valid(user.gid), groups }
    }

    /// The same credentials, with the user and the groups of root replaced.
    fn without_root(&self) -> Credentials {
        let squash = |id: u32| if id == ROOT { ANONYMOUS } else { id };
        if self.uid == ROOT {
            return Credentials::ANONYMOUS;
        }
        let groups = self.groups.iter().map(|&group| squash(group)).collect();
        Credentials { uid: self.uid, gid: squash(self.gid), groups }
    }
}

impl Policy {
    /// The policy of this process: whether it runs as root, and its option `--squash`.
    pub fn of_process(squash: Squash) -> Policy {
        if own_user() == ROOT { Policy::Assumed(squash) } else { Policy::Own }
    }

    /// The identity that a call is executed with.
    pub fn identity(&self, caller: &Caller) -> Identity {
        let Policy::Assumed(squash) = self else { return Identity::Server };
        match (caller, squash) {
            (Caller::Anonymous, _) | (_, Squash::All) => Identity::Other(Credentials::ANONYMOUS),
            (Caller::Sys(who), Squash::Root) => Identity::Other(who.without_root()),
            (Caller::Sys(who), Squash::None) if who.uid == ROOT => Identity::Server,
            (Caller::Sys(who), Squash::None) => Identity::Other(who.clone()),
        }
    }
}

impl Identity {
    /// Whether it is this user.
    pub fn owns(&self, uid: u32) -> bool {
        match self {
            Identity::Server => own_user() == uid,
            Identity::Other(who) => who.uid == uid,
        }
    }

    /// Calls `act` with this identity, on the calling thread.
    ///
    /// # Errors
    /// Those of `act`, and `NFS3ERR_SERVERFAULT` if the thread cannot assume the identity.
    pub fn act<T>(&self, act: impl FnOnce() -> Result<T, Status>) -> Result<T, Status> {
        let Identity::Other(who) = self else { return act() };
        let assumed = Assumed::take_on(who).map_err(|error| match error.errno {
            // The kernel has no memory for it now.
            Errno::NOMEM | Errno::AGAIN => Status::NFS3ERR_JUKEBOX,
            _ => Status::NFS3ERR_SERVERFAULT,
        })?;
        let outcome = act();
        drop(assumed);
        outcome
    }
}

/// The calling thread has an assumed identity until this value is dropped.
#[derive(Default)]
struct Assumed {
    // What was changed, and is restored.
    groups: bool,
    gid: bool,
    uid: bool,
}

impl Assumed {
    /// Assumes an identity.
    ///
    /// # Errors
    /// The first system call that failed; the thread has its own identity then.
    fn take_on(who: &Credentials) -> Result<Assumed, IdentityError> {
        let failed = |call| move |errno| IdentityError { call, errno };
        let groups: ArrayVec<Gid, GROUPS_MAX> =
            who.groups.iter().map(|&group| Gid::from_raw(group)).collect();
        // Dropped on an error, which restores what was changed by then.
        let mut assumed = Assumed::default();
        set_thread_groups(&groups).map_err(failed("setgroups"))?;
        assumed.groups = true;
        let gid = Some(Gid::from_raw(who.gid));
        set_thread_res_gid(None, gid, None).map_err(failed("setresgid"))?;
        assumed.gid = true;
        let uid = Some(Uid::from_raw(who.uid));
        set_thread_res_uid(None, uid, None).map_err(failed("setresuid"))?;
        assumed.uid = true;
        Ok(assumed)
    }

    fn restore(&self) -> Result<(), IdentityError> {
        let failed = |call| move |errno| IdentityError { call, errno };
        if self.uid {
            set_thread_res_uid(None, Some(Uid::ROOT), None).map_err(failed("setresuid"))?;
        }
        if self.gid {
            set_thread_res_gid(None, Some(Gid::ROOT), None).map_err(failed("setresgid"))?;
        }
        if self.groups {
            set_thread_groups(&[]).map_err(failed("setgroups"))?;
        }
        Ok(())
    }
}

impl Drop for Assumed {
    fn drop(&mut self) {
        if let Err(error) = self.restore() {
            // Continuing with a wrong identity would be worse than ending the process; a panic
            // would be caught. An error of writing cannot be reported.
            let _ = writeln!(
                io::stderr(),
                "nfs3: the server ends: a thread cannot return from the identity of a caller to \
                 that of the server: {error}"
            );
            std::process::abort();
        }
    }
}

const GROUPS_MAX: usize = AUTH_SYS_GROUPS_MAX as usize;
/// The anonymous user and group: 65534 by convention.
const ANONYMOUS: u32 = 65_534;

#[cfg(test)]
mod tests {
    use super::*;

    fn identity_of(uid: u32, gid: u32, groups: &[u32]) -> Identity {
        Identity::Other(Credentials { uid, gid, groups: groups.iter().copied().collect() })
    }

    #[test]
    fn squash_root_maps_root_to_the_anonymous_user() {
        let root = Caller::Sys(Credentials { uid: 0, gid: 0, groups: ArrayVec::new() });
        let user = Caller::Sys(Credentials { uid: 5, gid: 6, groups: ArrayVec::new() });
        let anonymous = identity_of(65_534, 65_534, &[]);
        assert_eq!(Policy::Assumed(Squash::Root).identity(&root), anonymous);
        assert_eq!(Policy::Assumed(Squash::Root).identity(&user), identity_of(5, 6, &[]));
        assert_eq!(Policy::Assumed(Squash::None).identity(&root), Identity::Server);
        assert_eq!(Policy::Assumed(Squash::None).identity(&Caller::Anonymous), anonymous);
        assert_eq!(Policy::Assumed(Squash::All).identity(&user), anonymous);
        assert_eq!(Policy::Own.identity(&user), Identity::Server);
    }

    #[test]
    fn squash_root_maps_the_group_of_root_to_the_anonymous_group() {
        let says = |gid, groups: &[u32]| {
            Caller::Sys(Credentials { uid: 5, gid, groups: groups.iter().copied().collect() })
        };
        let identity = |squash, caller| Policy::Assumed(squash).identity(&caller);
        assert_eq!(identity(Squash::Root, says(0, &[])), identity_of(5, 65_534, &[]));
        assert_eq!(identity(Squash::Root, says(6, &[7, 0])), identity_of(5, 6, &[7, 65_534]));
        assert_eq!(identity(Squash::None, says(0, &[0])), identity_of(5, 0, &[0]));
    }
}
