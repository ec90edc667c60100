//! The rights of a caller to a file: the kernel's answers to a thread with the caller's identity.
//!
//! ```text
//!   worker ── as the caller ──▶ faccessat2: R_OK, W_OK, X_OK ──▶ Rights, kept with the open file
//!   shard ─── the kept ones, as long as the attributes are the same ──▶ Rights
//! ```
//! Nothing here interprets a mode, an ACL, a capability or a mount option. Two rules are NFS's own,
//! and those of the kernel's server: the owner reads and writes the data of a file with any mode,
//! because a client checks the rights only when it opens the file (RFC 1813 4.4); and a caller that
//! may execute a file may read it, because its client reads what it executes.

use std::ffi::CStr;

use rustix::fs::{Access, AtFlags, CWD, FileType, accessat};
use rustix::io::{Errno, retry_on_intr};

use crate::attributes::Attributes;
use crate::credentials::Identity;
pub use crate::kept_rights::Rights;
use crate::node::OpenFile;
use crate::status::{Status, status};

impl Rights {
    /// The rights of a caller to a file that has these attributes now.
    ///
    /// # Errors
    /// If the kernel cannot answer.
    pub fn of(node: &OpenFile, who: &Identity, now: &Attributes) -> Result<Rights, Status> {
        match node.rights().find(who, now) {
            Some(rights) => Ok(rights),
            None => who.act(|| Rights::ask(node, who, now)),
        }
    }

    /// As [`Rights::of`], for a shard: `None` if it would have to assume the caller's identity.
    pub fn at_once(node: &OpenFile, who: &Identity, now: &Attributes) -> Option<Rights> {
        match node.rights().find(who, now) {
            None if *who == Identity::Server => Rights::ask(node, who, now).ok(),
            kept => kept,
        }
    }

    /// Asks the kernel for all rights of `who`, whose identity the calling thread has, and keeps
    /// them with the file.
    ///
    /// # Errors
    /// If the kernel cannot answer.
    pub fn ask(node: &OpenFile, who: &Identity, now: &Attributes) -> Result<Rights, Status> {
        let path = node.path();
        let write = match node.kind() {
            // One question: of the groups in an ACL, one must have both rights.
            FileType::Directory => Access::WRITE_OK | Access::EXEC_OK,
            _ => Access::WRITE_OK,
        };
        let rights = Rights {
            read: granted(&path, Access::READ_OK)?,
            write: granted(&path, write)?,
            search: granted(&path, Access::EXEC_OK)?,
        };
        node.rights().keep(who, now, rights);
        Ok(rights)
    }

    /// Whether the caller may read the data of a file.
    ///
    /// # Errors
    /// The status of the refusal.
    pub fn may_read(&self, who: &Identity, now: &Attributes) -> Result<(), Status> {
        let executes = now.kind() == FileType::RegularFile && self.search.is_ok();
        if executes { Ok(()) } else { unless_own(self.read, who, now) }
    }
}

/// Whether the caller may write the data of a file: asks with the identity of the calling thread,
/// which is that of `who`.
///
/// # Errors
/// The status of the refusal, or why the kernel cannot answer.
pub fn may_write(node: &OpenFile, who: &Identity, now: &Attributes) -> Result<(), Status> {
    unless_own(granted(&node.path(), Access::WRITE_OK)?, who, now)
}

/// The kernel's answer, unless the caller owns the file. A read-only or immutable file is refused
/// to its owner, too.
fn unless_own(answer: Result<(), Status>, who: &Identity, now: &Attributes) -> Result<(), Status> {
    match answer {
        Err(Status::NFS3ERR_ACCES) if who.owns(now.owner()) => Ok(()),
        answer => answer,
    }
}

/// The kernel's answer to the calling thread.
fn granted(path: &CStr, access: Access) -> Result<Result<(), Status>, Status> {
    match retry_on_intr(|| accessat(CWD, path, access, AtFlags::EACCESS)) {
        Ok(()) => Ok(Ok(())),
        Err(refusal @ (Errno::ACCESS | Errno::PERM | Errno::ROFS)) => Ok(Err(status(refusal))),
        Err(error) => Err(status(error)),
    }
}
