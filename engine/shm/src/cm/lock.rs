//! The lock of a socket's path: a file beside it, which only its user can open.
//!
//! A process that listens at a path holds it from before the first look until the socket listens.
//! So no process takes a socket for a dead one that is about to listen, or removes one that has
//! just replaced a dead one. A lock on the folder would do as well, but every process that may read
//! the folder could hold that.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rpcrdma_provider::CloseOnFork;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::socket::{self, Failed};

/// It is held as long as this exists, and then the file is removed. A process that is killed leaves
/// an empty file, which the next one uses and removes.
#[derive(Debug)]
pub(super) struct Lock {
    /// Closed after the file is removed: a process that waits for it looks whether it is still
    /// there.
    _file: LockFile,
    name: PathBuf,
}

/// The open file.
#[derive(Debug)]
struct LockFile<File: AsFd = OwnedFd>(Option<CloseOnFork<File>>);

/// What one look has found.
enum Look {
    Taken(Lock),
    /// Another process holds it.
    Held,
    /// No file can be made there.
    None,
}

impl Lock {
    /// Waits for the lock of a path, for a second. None if no file can be made beside it.
    ///
    /// # Errors
    /// The call that has failed. That of the lock has [`Errno::TIMEDOUT`] if another process holds
    /// it for long. That which opens the file has [`Errno::BUSY`] if the file is not this user's,
    /// and [`Errno::LOOP`] if it is a link.
    pub(super) fn take(path: &Path) -> Result<Option<Lock>, Failed> {
        let mut name = OsString::from(path);
        name.push(SUFFIX);
        let (name, until) = (PathBuf::from(name), Instant::now() + WAIT);
        loop {
            match look(&name)? {
                Look::Taken(lock) => return Ok(Some(lock)),
                Look::None => return Ok(None),
                Look::Held if Instant::now() >= until => {
                    return Err(Failed { call: "flock", errno: Errno::TIMEDOUT });
                }
                Look::Held => std::thread::sleep(WAIT / 1000),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.name);
    }
}

impl<File: AsFd> LockFile<File> {
    /// Has no child keep this file from now on. It is open already: a file system that does not
    /// answer must delay no fork.
    ///
    /// A child that was forked in between has the file, and with it a lock that its parent takes
    /// later. If the parent is killed before it gives that up, the child holds it until it ends or
    /// executes a program.
    fn of(file: File) -> LockFile<File> {
        let Ok(file) = CloseOnFork::open(|| Ok::<_, Infallible>(file));
        LockFile(Some(file))
    }

    fn file(&self) -> &CloseOnFork<File> {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl<File: AsFd> Drop for LockFile<File> {
    fn drop(&mut self) {
        let Some(file) = self.0.take() else { return };
        // A child that is forked while it is closed keeps the file, and no lock.
        let _ = rustix::fs::flock(&file, FlockOperation::Unlock);
        // Closing takes as long as the file system does, and delays no fork.
        drop(file.into_inner());
    }
}

fn look(name: &Path) -> Result<Look, Failed> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let failed = Failed::of("open");
    let file = match rustix::fs::open(name, flags, mode) {
        Ok(file) => file,
        Err(Errno::INTR) => return Ok(Look::Held),
        // Also a folder, whose it may be.
        Err(Errno::ACCESS | Errno::PERM | Errno::ISDIR) if is_there(name) => {
            return Err(failed(Errno::BUSY));
        }
        Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => return Ok(Look::None),
        Err(errno) => return Err(failed(errno)),
    };
    let file = LockFile::of(file);
    let opened = rustix::fs::fstat(file.file()).map_err(Failed::of("fstat"))?;
    if opened.st_uid != socket::own_user() {
        return Err(failed(Errno::BUSY));
    }
    match rustix::fs::flock(file.file(), FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK | Errno::INTR) => return Ok(Look::Held),
        // The file system has no locks.
        Err(_) => return Ok(Look::None),
    }
    // The process that held it has removed it.
    let is_same = std::fs::symlink_metadata(name)
        .is_ok_and(|found| (found.dev(), found.ino()) == (opened.st_dev, opened.st_ino));
    let lock = || Lock { _file: file, name: name.to_owned() };
    Ok(if is_same { Look::Taken(lock()) } else { Look::Held })
}

fn is_there(name: &Path) -> bool {
    std::fs::symlink_metadata(name).is_ok()
}

/// What its name has behind that of the socket.
const SUFFIX: &str = ".lock";
/// How long to wait for it.
const WAIT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::os::fd::BorrowedFd;
    use std::sync::mpsc;

    use super::*;

    /// A file whose closing waits until another thread has opened something that no child keeps, and
    /// says whether it has.
    struct Slow(std::fs::File, mpsc::Sender<bool>);

    impl AsFd for Slow {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    impl Drop for Slow {
        fn drop(&mut self) {
            let (sender, opened) = mpsc::channel();
            std::thread::spawn(move || sender.send(socket::open().is_ok()));
            let is_open = opened.recv_timeout(Duration::from_secs(10));
            let _ = self.1.send(is_open == Ok(true));
        }
    }

    #[test]
    fn a_file_that_is_closed_for_long_delays_no_fork_and_no_other_socket() {
        let (sender, closed) = mpsc::channel();
        let file = std::fs::File::open("/dev/null").expect("a file");
        drop(LockFile::of(Slow(file, sender)));
        assert_eq!(closed.recv(), Ok(true));
    }

    /// As one that is forked before the file is registered, or while it is closed.
    #[test]
    fn a_copy_of_the_file_keeps_no_lock() {
        let name = std::env::temp_dir().join(format!("rpcrdma-copy-{}.lock", std::process::id()));
        let Ok(Look::Taken(lock)) = look(&name) else { panic!("it is free") };
        let copy = lock._file.file().try_clone().expect("a copy");
        let other = std::fs::File::open(&name).expect("it is there");
        let exclusive = FlockOperation::NonBlockingLockExclusive;
        assert_eq!(rustix::fs::flock(&other, exclusive), Err(Errno::WOULDBLOCK));
        drop(lock);
        assert_eq!(rustix::fs::flock(&other, exclusive), Ok(()));
        drop(copy);
    }
}
