//! An open file: its descriptors, attributes and data.

use std::ffi::CString;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};

use nfs3_types::nfs3::{post_op_attr, pre_op_attr, wcc_data};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, chmodat, openat, statat};
use rustix::io::{Errno, retry_on_intr};

use crate::attributes::{Attributes, some};
use crate::handles::FileId;
use crate::kept_rights::KeptRights;
use crate::locks::lock;
use crate::status::{Status, status};

/// An open file: a descriptor that identifies it (`O_PATH`), and after the first access to its data
/// a descriptor that reads or writes.
#[derive(Debug)]
pub struct OpenFile {
    fd: OwnedFd,
    id: FileId,
    kind: FileType,
    reading: OnceLock<OwnedFd>,
    writing: OnceLock<OwnedFd>,
    /// Locked while a call brings the file to stable storage.
    syncs: RwLock<()>,
    rights: KeptRights,
}

impl OpenFile {
    /// The file of a descriptor.
    pub fn new(fd: OwnedFd, attributes: &Attributes) -> OpenFile {
        let (id, kind) = (attributes.id(), attributes.kind());
        let (reading, writing) = (OnceLock::new(), OnceLock::new());
        let (rights, syncs) = (KeptRights::default(), RwLock::default());
        OpenFile { fd, id, kind, reading, writing, syncs, rights }
    }

    /// The identity of the file.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// The file type.
    pub fn kind(&self) -> FileType {
        self.kind
    }

    /// The descriptor that identifies it.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The rights of its last callers.
    pub fn rights(&self) -> &KeptRights {
        &self.rights
    }

    /// A path to it in /proc, for system calls that take no descriptor; valid as long as this value
    /// lives.
    pub fn path(&self) -> CString {
        let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        CString::new(path).unwrap_or_default()
    }

    /// Its attributes.
    ///
    /// # Errors
    /// If the file system returns an error.
    pub fn attributes(&self) -> Result<Attributes, Status> {
        Attributes::of(&self.fd).map_err(status)
    }

    /// Its attributes; `None` if its last name was removed.
    pub fn linked_attributes(&self) -> Option<Attributes> {
        self.attributes().ok().filter(|attributes| attributes.links() > 0)
    }

    /// The attributes of a name in this directory; a symbolic link is not followed.
    ///
    /// # Errors
    /// If the name does not exist.
    pub fn attributes_of(&self, name: &[u8]) -> Result<Attributes, Status> {
        Attributes::at(&self.fd, name).map_err(status)
    }

    /// `post_op_attr`
    pub fn after(&self) -> post_op_attr {
        some(self.attributes().ok().map(|attributes| attributes.fattr()))
    }

    /// `pre_op_attr`
    pub fn before(&self) -> pre_op_attr {
        some(self.attributes().ok().map(|attributes| attributes.before()))
    }

    /// `wcc_data`: the attributes before and after.
    pub fn wcc(&self, before: pre_op_attr) -> wcc_data {
        wcc_data { before, after: self.after() }
    }

    /// The descriptor to read or write its data, if one is open.
    pub fn open_data(&self, to_write: bool) -> Option<BorrowedFd<'_>> {
        let slot = if to_write { &self.writing } else { &self.reading };
        slot.get().map(AsFd::as_fd)
    }

    /// A descriptor to bring it to stable storage: one that is open, or that can be opened.
    ///
    /// # Errors
    /// If it can be opened neither to read nor to write.
    pub fn syncable(&self) -> Result<BorrowedFd<'_>, Status> {
        let open = self.open_data(true).or_else(|| self.open_data(false));
        let opened = || self.data(false).or_else(|status| self.data(true).map_err(|_| status));
        open.map_or_else(opened, Ok)
    }

    /// Opens it for its data: a regular file to read or write, or a directory to list.
    ///
    /// # Errors
    /// If it has another type, or the server may not open it.
    pub fn data(&self, to_write: bool) -> Result<BorrowedFd<'_>, Status> {
        if let Some(fd) = self.open_data(to_write) {
            return Ok(fd);
        }
        let flags = match (self.kind, to_write) {
            (FileType::RegularFile, false) => OFlags::RDONLY,
            (FileType::RegularFile, true) => OFlags::WRONLY,
            (FileType::Directory, false) => OFlags::RDONLY | OFlags::DIRECTORY,
            (FileType::Directory, true) => return Err(Status::NFS3ERR_ISDIR),
            _ => return Err(Status::NFS3ERR_INVAL),
        };
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let opened = openat(CWD, self.path(), flags, Mode::empty());
        let opened = match opened {
            Err(Errno::ACCESS) if self.kind == FileType::RegularFile => self.open_own(flags),
            opened => opened,
        };
        let fd = opened.map_err(status)?;
        let slot = if to_write { &self.writing } else { &self.reading };
        // Another thread may have opened it at the same time; one of the two descriptors is closed.
        Ok(slot.get_or_init(|| fd).as_fd())
    }

    /// Calls `sync`, which brings it to stable storage and handles the error. Then waits for the
    /// calls that other threads have begun: the kernel reports an error to one of them alone.
    pub fn sync<T>(&self, sync: impl FnOnce() -> T) -> T {
        let done = {
            let _syncing = self.syncs.read().unwrap_or_else(PoisonError::into_inner);
            sync()
        };
        drop(self.syncs.write().unwrap_or_else(PoisonError::into_inner));
        done
    }

    /// Sets its mode, with the rights of the calling thread.
    ///
    /// # Errors
    /// If the thread may not change it.
    pub fn set_mode(&self, mode: Mode) -> rustix::io::Result<()> {
        let _alone = lock(&MODES);
        chmodat(CWD, self.path(), mode, AtFlags::empty())
    }

    /// Opens a file of the server's own user whose mode forbids it. The owner may always read and
    /// write data, because clients check the rights only when they open a file (RFC 1813 4.4). A
    /// server that runs as root needs no right; any other server adds the right to the mode while
    /// it opens the file.
    #[cold]
    fn open_own(&self, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let path = self.path();
        let _alone = lock(&MODES);
        let now = statat(CWD, &path, AtFlags::empty())?;
        let mode = Mode::from_raw_mode(now.st_mode & 0o7777);
        let right = if flags.contains(OFlags::WRONLY) { Mode::WUSR } else { Mode::RUSR };
        let open = || openat(CWD, &path, flags, Mode::empty());
        let (opened, back) = with_right(mode, right, open, |mode| {
            retry_on_intr(|| chmodat(CWD, &path, mode, AtFlags::empty()))
        })?;
        // Kept even if restoring failed: the owner has this right anyway.
        back.inspect_err(|error| {
            let (inode, mode, stays) = (self.id.inode, mode.bits(), (mode | right).bits());
            let _ = writeln!(
                io::stderr(),
                "nfs3: cannot restore the mode of inode {inode} to {mode:o}; \
                 it remains {stays:o}: {error}"
            );
        })?;
        opened
    }
}

/// Opens a file while its mode has one more right of the owner. Returns the result of opening, and
/// that of restoring the mode, which is always tried.
fn with_right<T>(
    mode: Mode,
    right: Mode,
    open: impl FnOnce() -> T,
    set: impl Fn(Mode) -> rustix::io::Result<()>,
) -> rustix::io::Result<(T, rustix::io::Result<()>)> {
    // Only the owner can change the mode.
    set(mode | right).map_err(|_| Errno::ACCESS)?;
    Ok((open(), set(mode)))
}

/// Held while a mode is changed temporarily.
static MODES: Mutex<()> = Mutex::new(());

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// The results, and the modes that were set, if setting the mode `refused` fails.
    fn tried(refused: Option<u32>) -> (Result<(bool, bool), Errno>, Vec<u32>) {
        let tried = RefCell::new(Vec::new());
        let outcome = with_right(
            Mode::from_raw_mode(0o240),
            Mode::RUSR,
            || tried.borrow().len() == 1,
            |mode| {
                tried.borrow_mut().push(mode.bits());
                if refused == Some(mode.bits()) { Err(Errno::IO) } else { Ok(()) }
            },
        );
        (outcome.map(|(opened, back)| (opened, back.is_ok())), tried.into_inner())
    }

    #[test]
    fn a_failed_change_of_rights_is_reported_or_leaves_the_mode() {
        assert_eq!(tried(None), (Ok((true, true)), vec![0o640, 0o240]));
        assert_eq!(tried(Some(0o240)), (Ok((true, false)), vec![0o640, 0o240]));
        assert_eq!(tried(Some(0o640)), (Err(Errno::ACCESS), vec![0o640]));
    }
}
