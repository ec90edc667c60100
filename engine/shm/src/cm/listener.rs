//! Listeners: named sockets, and the sockets that connect to them.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rpcrdma_provider::{Address, CloseOnFork, Credentials, SetupError, ShmName};
use rpcrdma_transport::failed::NOT_OPENED;
use rustix::io::Errno;

use super::lock::Lock;
use crate::closer::Closer;
use crate::socket::{self, Failed, Received, Socket};

/// A socket with a name. Dropping it removes the name.
pub struct Listener {
    /// There until it is dropped.
    socket: Option<CloseOnFork>,
    closer: Closer,
    name: ShmName,
    /// The file that it has made.
    file: Option<(PathBuf, u64, u64)>,
}

/// A socket that has connected and has not sent its hello yet.
pub struct Caller {
    socket: Socket,
    from: Credentials,
}

impl Listener {
    /// Listens. A socket that a dead process has left at the same path is replaced.
    pub(super) fn open(at: Address, closer: &Closer) -> Result<Listener, SetupError> {
        let wanted = name_of(at).ok_or_else(|| SetupError::listen(at, TAKES))?;
        let refused = |failed: Failed| match reason_of(failed) {
            Some(reason) => SetupError::listen(at, reason),
            None => {
                let hint = match failed.call {
                    "bind" | "open" | "fstat" => NOT_BOUND,
                    _ => NOT_OPENED,
                };
                SetupError::System { call: failed.call, source: failed.errno.into(), hint }
            }
        };
        let socket = socket::open().map_err(|source| SetupError::System {
            call: "socket",
            source,
            hint: "check the limit of open files (ulimit -n)",
        })?;
        let name = bind(&socket, &wanted).map_err(refused)?;
        let file = name.path().and_then(|path| {
            let found = std::fs::symlink_metadata(path).ok()?;
            Some((path.to_owned(), found.dev(), found.ino()))
        });
        let (socket, closer) = (Some(socket), closer.clone());
        Ok(Listener { socket, closer, name, file })
    }

    pub(super) fn name(&self) -> ShmName {
        self.name
    }

    pub(super) fn socket(&self) -> &CloseOnFork {
        self.socket.as_ref().expect("it is there until it is dropped")
    }

    /// The next socket that wants to connect.
    pub(super) fn accept(&self) -> Result<Caller, Errno> {
        let socket = socket::accept(self.socket(), &self.closer)?;
        let from = socket::peer(&socket).map_err(|_| Errno::IO)?;
        Ok(Caller { socket, from })
    }

    fn remove_file(&self) {
        // Another process may have put its own socket there.
        let Some((path, dev, ino)) = &self.file else { return };
        let is_ours = std::fs::symlink_metadata(path)
            .is_ok_and(|found| (found.dev(), found.ino()) == (*dev, *ino));
        if is_ours {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // A child that was forked since has no socket: its name is the parent's.
        if let Some(socket) = self.socket.take().filter(CloseOnFork::is_kept) {
            self.remove_file();
            socket::close_listener(socket, &self.closer);
        }
    }
}

impl Caller {
    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// The user of its process.
    pub(super) fn user(&self) -> u32 {
        self.from.uid
    }

    pub(super) fn into_parts(self) -> (Socket, Credentials) {
        (self.socket, self.from)
    }

    /// What it has sent.
    pub(super) fn receive(&self) -> Option<Received> {
        socket::receive(&self.socket, true)
    }
}

/// Binds the name and listens.
fn bind(socket: &CloseOnFork, wanted: &ShmName) -> Result<ShmName, Failed> {
    let Some(path) = wanted.path() else { return socket::listen(socket, wanted) };
    let lock = Lock::take(path)?;
    match socket::listen(socket, wanted) {
        Err(Failed { errno: Errno::ADDRINUSE, .. })
            if lock.is_some() && remove_if_dead(path, wanted) =>
        {
            socket::listen(socket, wanted)
        }
        outcome => outcome,
    }
}

/// Removes a socket that no process listens on. False if it is not one.
fn remove_if_dead(path: &Path, name: &ShmName) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let is_dead = || -> io::Result<bool> {
        Ok(socket::connect(&socket::open()?, name) == Err(Errno::CONNREFUSED))
    };
    is_socket && is_dead().unwrap_or(false) && std::fs::remove_file(path).is_ok()
}

/// The name in an address of this provider.
pub(super) fn name_of(address: Address) -> Option<ShmName> {
    match address {
        Address::Shm(name) => Some(name),
        _ => None,
    }
}

/// What the error of a call means; `None` if that is not known. What is opened is the lock.
fn reason_of(Failed { call, errno }: Failed) -> Option<&'static str> {
    Some(match (call, errno) {
        ("bind", Errno::ADDRINUSE) => "the address is in use, or the path is not a socket",
        ("bind" | "open", Errno::NOENT | Errno::NOTDIR) => "the folder of the path does not exist",
        ("bind", Errno::ACCESS | Errno::PERM) => "the process may not make a socket there",
        ("bind", Errno::ROFS) => "the file system is read-only",
        ("flock", Errno::TIMEDOUT) => {
            "another process of this user holds the lock, which is the file PATH.lock"
        }
        ("open", Errno::BUSY) => "the file PATH.lock is not this user's",
        ("open", Errno::LOOP) => "the file PATH.lock is a link",
        _ => return None,
    })
}

const NOT_BOUND: &str = "check the path of the socket, and its file system";
/// The addresses of this provider.
pub(super) const TAKES: &str = "shared memory takes only Unix sockets (shm:/PATH or shm:@NAME)";
