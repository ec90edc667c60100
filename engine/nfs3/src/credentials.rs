//! Who calls, as whom the server acts, and what that one may do.
//!
//! AUTH_SYS credentials are believed, as every NFS server without Kerberos has to; `Squash` says
//! which of them are taken for the anonymous user instead. A server that runs as root acts as the
//! caller: the thread that executes a call takes on the caller's identity for everything that names,
//! makes and removes files, so that the kernel checks it. A server that does not run as root can be
//! nobody else: every caller acts as the user that it runs as.

use std::io;

use arrayvec::ArrayVec;
use rpcrdma_engine::onc::{AUTH_SYS_GROUPS_MAX, AuthSys};
use rustix::fs::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::status::Status;

/// Who makes a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Caller {
    /// AUTH_NONE.
    Nobody,
    /// AUTH_SYS.
    Says(Credentials),
}

/// AUTH_SYS credentials.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Credentials {
    /// The user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its other groups.
    pub groups: ArrayVec<u32, GROUPS_MAX>,
}

/// Which callers are taken for the anonymous user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Squash {
    /// Root, the group of root, and calls without credentials.
    #[default]
    Root,
    /// All.
    All,
    /// Only calls without credentials.
    None,
}

/// As whom calls are executed.
#[derive(Debug, Clone)]
pub enum Policy {
    /// As the caller: the server runs as root.
    Assumed(Squash),
    /// As the user that the server runs as.
    Own,
}

/// As whom one call is executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// As the server itself: root for root, or a server that cannot be anybody else.
    Server,
    /// As somebody with these rights.
    Other(Credentials),
}

/// What is to be done with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// Read it.
    Read,
    /// Write it.
    Write,
    /// Execute it, or look something up in it.
    Search,
}

impl Credentials {
    /// What AUTH_SYS credentials say.
    pub fn of(user: &AuthSys<'_>) -> Credentials {
        let groups = user.groups.iter().take(GROUPS_MAX).collect();
        Credentials { uid: user.uid, gid: user.gid, groups }
    }

    /// The same without anything of root's: neither the user nor the group.
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
    /// What this process can do, and what it was told to.
    pub fn of_process(squash: Squash) -> Policy {
        if rustix::process::geteuid().is_root() { Policy::Assumed(squash) } else { Policy::Own }
    }

    /// As whom a call is executed.
    pub fn identity(&self, caller: &Caller) -> Identity {
        let Policy::Assumed(squash) = self else { return Identity::Server };
        match (caller, squash) {
            (Caller::Nobody, _) | (_, Squash::All) => Identity::Other(Credentials::anonymous()),
            (Caller::Says(who), Squash::Root) => Identity::Other(who.without_root()),
            (Caller::Says(who), Squash::None) if who.uid == 0 => Identity::Server,
            (Caller::Says(who), Squash::None) => Identity::Other(who.clone()),
        }
    }
}

impl Identity {
    /// Whether the mode of a file lets this one do something. Data can be read and written by the
    /// owner in any case: a client has asked for rights when it opened the file, and may have taken
    /// them away from it since (RFC 1813 4.4).
    pub fn may(&self, want: Want, mode: u32, uid: u32, gid: u32) -> bool {
        let Identity::Other(who) = self else { return true };
        let bit = match want {
            Want::Read => 4,
            Want::Write => 2,
            Want::Search => 1,
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

    /// Whether it is the owner, or as good as.
    pub fn owns(&self, uid: u32) -> bool {
        match self {
            Identity::Server => true,
            Identity::Other(who) => who.uid == uid,
        }
    }

    /// Does something as this one, on the calling thread.
    ///
    /// # Errors
    /// Those of `act`, and `NFS3ERR_SERVERFAULT` if the thread cannot become this one.
    pub fn act<T>(&self, act: impl FnOnce() -> Result<T, Status>) -> Result<T, Status> {
        let Identity::Other(who) = self else { return act() };
        let assumed = Assumed::take_on(who).map_err(|_| Status::NFS3ERR_SERVERFAULT)?;
        let outcome = act();
        drop(assumed);
        outcome
    }
}

/// The calling thread is somebody else as long as this lives.
struct Assumed;

impl Assumed {
    fn take_on(who: &Credentials) -> io::Result<Assumed> {
        // From here on, whatever happens, the thread is itself again at the end.
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
        // To go on as somebody else would be worse than not to go on; and a panic would be caught.
        if back.is_err() {
            std::process::abort();
        }
    }
}

const GROUPS_MAX: usize = AUTH_SYS_GROUPS_MAX as usize;
/// "nobody" everywhere.
const ANONYMOUS: u32 = 65_534;

#[cfg(test)]
mod tests {
    use super::*;

    fn somebody(uid: u32, gid: u32, groups: &[u32]) -> Identity {
        Identity::Other(Credentials { uid, gid, groups: groups.iter().copied().collect() })
    }

    #[test]
    fn modes_are_looked_at_for_one_class_only() {
        let mode = 0o640;
        assert!(somebody(7, 9, &[]).may(Want::Write, mode, 7, 8));
        assert!(!somebody(6, 8, &[]).may(Want::Write, mode, 7, 8));
        assert!(somebody(6, 5, &[8]).may(Want::Read, mode, 7, 8));
        assert!(!somebody(6, 5, &[]).may(Want::Read, mode, 7, 8));
        assert!(!somebody(7, 8, &[]).may(Want::Read, 0o044, 7, 8), "an owner has the owner's bits");
        assert!(Identity::Server.may(Want::Search, 0, 7, 8));
    }

    #[test]
    fn squashing_takes_root_for_nobody() {
        let root = Caller::Says(Credentials { uid: 0, gid: 0, groups: ArrayVec::new() });
        let user = Caller::Says(Credentials { uid: 5, gid: 6, groups: ArrayVec::new() });
        let nobody = somebody(65_534, 65_534, &[]);
        assert_eq!(Policy::Assumed(Squash::Root).identity(&root), nobody);
        assert_eq!(Policy::Assumed(Squash::Root).identity(&user), somebody(5, 6, &[]));
        assert_eq!(Policy::Assumed(Squash::None).identity(&root), Identity::Server);
        assert_eq!(Policy::Assumed(Squash::None).identity(&Caller::Nobody), nobody);
        assert_eq!(Policy::Assumed(Squash::All).identity(&user), nobody);
        assert_eq!(Policy::Own.identity(&user), Identity::Server);
    }

    #[test]
    fn squashing_takes_the_group_of_root_for_that_of_nobody() {
        let says = |gid, groups: &[u32]| {
            Caller::Says(Credentials { uid: 5, gid, groups: groups.iter().copied().collect() })
        };
        let identity = |squash, caller| Policy::Assumed(squash).identity(&caller);
        assert_eq!(identity(Squash::Root, says(0, &[])), somebody(5, 65_534, &[]));
        assert_eq!(identity(Squash::Root, says(6, &[7, 0])), somebody(5, 6, &[7, 65_534]));
        assert_eq!(identity(Squash::None, says(0, &[0])), somebody(5, 0, &[0]));
    }
}
