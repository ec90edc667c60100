//! Callers, the identity that the server assumes for them, and their rights.
//!
//! The server trusts AUTH_SYS credentials, as every NFS server without Kerberos does. `Squash`
//! states which callers act as the anonymous user instead. A server that runs as root assumes the
//! identity of the caller: the thread that executes a call changes its user and groups while it
//! looks up, creates and removes files, so that the kernel checks the rights. A server that does
//! not run as root executes every call as its own user.

use std::io;

use arrayvec::ArrayVec;
use rpcrdma_engine::onc::{AUTH_SYS_GROUPS_MAX, AuthSys};
use rustix::fs::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::status::Status;

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

/// The identity that one call is executed with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// The server's own: for the caller root, or if the server does not run as root.
    Server,
    /// The identity with these credentials.
    Other(Credentials),
}

/// A right to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileRight {
    /// Read it.
    Read,
    /// Write it.
    Write,
    /// Execute it, or search it if it is a directory.
    Search,
}

impl Credentials {
    /// The credentials of an RPC header.
    pub fn of(user: &AuthSys<'_>) -> Credentials {
        let groups = user.groups.iter().take(GROUPS_MAX).collect();
        Credentials { uid: user.uid, gid: user.gid, groups }
    }

    /// The same credentials, with the user and the groups of root replaced.
    fn without_root(&self) -> Credentials {
        let squash = |id: u32| if id == 0 { ANONYMOUS } else { id };
        if self.uid == 0 {
            return Credentials::anonymous();
        }
        let groups = self.groups.iter().map(|&group| squash(group)).collect();
        Credentials { uid: self.uid, gid: squash(self.gid), groups }
    }

    fn anonymous() -> Credentials {
        Credentials { uid: ANONYMOUS, gid: ANONYMOUS, groups: ArrayVec::new() }
    }
}

impl Policy {
    /// The policy of this process: whether it runs as root, and its option `--squash`.
    pub fn of_process(squash: Squash) -> Policy {
        if rustix::process::geteuid().is_root() { Policy::Assumed(squash) } else { Policy::Own }
    }

    /// The identity that a call is executed with.
    pub fn identity(&self, caller: &Caller) -> Identity {
        let Policy::Assumed(squash) = self else { return Identity::Server };
        match (caller, squash) {
            (Caller::Anonymous, _) | (_, Squash::All) => Identity::Other(Credentials::anonymous()),
            (Caller::Sys(who), Squash::Root) => Identity::Other(who.without_root()),
            (Caller::Sys(who), Squash::None) if who.uid == 0 => Identity::Server,
            (Caller::Sys(who), Squash::None) => Identity::Other(who.clone()),
        }
    }
}

impl Identity {
    /// Whether the mode of a file gives this identity a right. The owner may always read and write
    /// data: a client checks the rights when it opens a file, and they may have been removed since
    /// (RFC 1813 4.4).
    pub fn may(&self, want: FileRight, mode: u32, uid: u32, gid: u32) -> bool {
        let Identity::Other(who) = self else { return true };
        let bit = match want {
            FileRight::Read => 4,
            FileRight::Write => 2,
            FileRight::Search => 1,
        };
        let class = if who.uid == uid {
            mode >> 6
        } else if who.gid == gid || who.groups.contains(&gid) {
            mode >> 3
        } else {
            mode
        };
        class & bit != 0
    }

    /// Whether it is the owner, or has the owner's rights.
    pub fn owns(&self, uid: u32) -> bool {
        match self {
            Identity::Server => true,
            Identity::Other(who) => who.uid == uid,
        }
    }

    /// Calls `act` with this identity, on the calling thread.
    ///
    /// # Errors
    /// Those of `act`, and `NFS3ERR_SERVERFAULT` if the thread cannot assume the identity.
    pub fn act<T>(&self, act: impl FnOnce() -> Result<T, Status>) -> Result<T, Status> {
        let Identity::Other(who) = self else { return act() };
        let assumed = Assumed::take_on(who).map_err(|_| Status::NFS3ERR_SERVERFAULT)?;
        let outcome = act();
        drop(assumed);
        outcome
    }
}

/// The calling thread has an assumed identity until this value is dropped.
struct Assumed;

impl Assumed {
    fn take_on(who: &Credentials) -> io::Result<Assumed> {
        // From here on, dropping this value restores the thread's own identity.
        let assumed = Assumed;
        let groups: ArrayVec<Gid, GROUPS_MAX> =
            who.groups.iter().map(|&group| Gid::from_raw(group)).collect();
        if who.uid == u32::MAX || who.gid == u32::MAX || who.groups.contains(&u32::MAX) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        set_thread_groups(&groups)?;
        set_thread_res_gid(None, Some(Gid::from_raw(who.gid)), None)?;
        set_thread_res_uid(None, Some(Uid::from_raw(who.uid)), None)?;
        Ok(assumed)
    }
}

impl Drop for Assumed {
    fn drop(&mut self) {
        let back = set_thread_res_uid(None, Some(Uid::ROOT), None)
            .and_then(|()| set_thread_res_gid(None, Some(Gid::ROOT), None))
            .and_then(|()| set_thread_groups(&[]));
        // Continuing with a wrong identity would be worse than ending the process; a panic would be
        // caught.
        if back.is_err() {
            std::process::abort();
        }
    }
}

const GROUPS_MAX: usize = AUTH_SYS_GROUPS_MAX as usize;
/// The user and group `nobody`, by convention.
const ANONYMOUS: u32 = 65_534;

#[cfg(test)]
mod tests {
    use super::*;

    fn identity_of(uid: u32, gid: u32, groups: &[u32]) -> Identity {
        Identity::Other(Credentials { uid, gid, groups: groups.iter().copied().collect() })
    }

    #[test]
    fn the_mode_of_one_class_decides() {
        let mode = 0o640;
        assert!(identity_of(7, 9, &[]).may(FileRight::Write, mode, 7, 8));
        assert!(!identity_of(6, 8, &[]).may(FileRight::Write, mode, 7, 8));
        assert!(identity_of(6, 5, &[8]).may(FileRight::Read, mode, 7, 8));
        assert!(!identity_of(6, 5, &[]).may(FileRight::Read, mode, 7, 8));
        assert!(
            !identity_of(7, 8, &[]).may(FileRight::Read, 0o044, 7, 8),
            "an owner has the owner's bits"
        );
        assert!(Identity::Server.may(FileRight::Search, 0, 7, 8));
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
