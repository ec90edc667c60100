//! The lock of a socket's path: a file beside it, which only its user can open.
//!
//! Whoever listens at a path holds it from before the first look until the socket listens. So nobody
//! takes a socket for a dead one that is about to listen, or removes one that has just replaced a
//! dead one. A lock on the folder would do as well, but every process that may read the folder could
//! hold that.

use std::ffi::OsString;
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
    /// Closed after the file is removed: whoever waits for it looks whether it is still there.
    _file: CloseOnFork,
    name: PathBuf,
}

/// What one look has found.
enum Look {
    Taken(Lock),
    /// Somebody holds it.
    Held,
    /// No file can be made there.
    None,
}

impl Lock {
    /// Waits for the lock of a path, for a second. None if no file can be made beside it.
    ///
    /// # Errors
    /// The call that has failed. That of the lock has [`Errno::TIMEDOUT`] if somebody holds it for
    /// long. That which opens the file has [`Errno::BUSY`] if the file is not this user's, and
    /// [`Errno::LOOP`] if it is a link.
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
    // It is open before it is registered: a file system that does not answer must delay no fork. A
    // child that is forked in between keeps the file, and locks nothing once the name is removed.
    let file = CloseOnFork::open(|| Ok::<_, Errno>(file)).map_err(&failed)?;
    let opened = rustix::fs::fstat(&file).map_err(Failed::of("fstat"))?;
    if opened.st_uid != socket::own_user() {
        return Err(failed(Errno::BUSY));
    }
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK | Errno::INTR) => return Ok(Look::Held),
        // The file system has no locks.
        Err(_) => return Ok(Look::None),
    }
    // Who held it has removed it.
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
