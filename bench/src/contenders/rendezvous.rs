//! Where a client and its server meet to agree: a TCP port, or a Unix socket of this host.

use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, mem};

use rpcrdma::Address;
use rpcrdma::provider::ShmName;

use super::agree::{Lines, is_for_now};

/// A listener for clients. Dropping it removes its path.
#[derive(Debug)]
pub struct Rendezvous {
    at: Address,
    listener: Listener,
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Rendezvous {
    /// Listens. Port 0 stands for any free one. A socket that a dead process has left at the same
    /// path is replaced.
    pub fn open(at: Address) -> io::Result<Rendezvous> {
        let (at, listener) = match at {
            Address::Ip(ip) => {
                let listener = TcpListener::bind(ip)?;
                listener.set_nonblocking(true)?;
                (listener.local_addr()?.into(), Listener::Tcp(listener))
            }
            Address::Shm(name) => {
                let bound = unix(&name).and_then(|name| UnixListener::bind_addr(&name));
                let listener = match bound {
                    Err(error) if error.kind() == ErrorKind::AddrInUse && remove_if_dead(&name) => {
                        UnixListener::bind_addr(&unix(&name)?)?
                    }
                    bound => bound?,
                };
                listener.set_nonblocking(true)?;
                let path = name.path().map(Path::to_owned).unwrap_or_default();
                (at, Listener::Unix(listener, path))
            }
            _ => return Err(io::Error::other(NOT_A_SOCKET)),
        };
        Ok(Rendezvous { at, listener })
    }

    pub fn at(&self) -> Address {
        self.at
    }

    /// The next client and who it is, if one has come; its words are waited for so long.
    pub fn accept(&self, patience: Duration) -> io::Result<Option<(Lines, String)>> {
        let come = match &self.listener {
            Listener::Tcp(listener) => listener.accept().and_then(|(stream, from)| {
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                Ok((Lines::new(stream, patience)?, from.to_string()))
            }),
            Listener::Unix(listener, _) => listener.accept().and_then(|(stream, _)| {
                stream.set_nonblocking(false)?;
                Ok((Lines::new(stream, patience)?, "a process of this host".to_owned()))
            }),
        };
        match come {
            Ok(client) => Ok(Some(client)),
            // A client that has gone before it was looked at is none.
            Err(error) if is_for_now(&error) || error.kind() == ErrorKind::ConnectionAborted => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

impl Drop for Rendezvous {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = &mut self.listener {
            // An abstract name has none; a path may have gone before.
            let _ = fs::remove_file(mem::take(path));
        }
    }
}

/// Connects to a server, for so long; its words are waited for as long as `hearing`.
pub fn connect(at: Address, patience: Duration, hearing: Duration) -> io::Result<Lines> {
    match at {
        Address::Ip(ip) => {
            let stream = TcpStream::connect_timeout(&ip, patience)?;
            stream.set_nodelay(true)?;
            Lines::new(stream, hearing)
        }
        Address::Shm(name) => Lines::new(UnixStream::connect_addr(&unix(&name)?)?, hearing),
        _ => Err(io::Error::other(NOT_A_SOCKET)),
    }
}

fn unix(name: &ShmName) -> io::Result<SocketAddr> {
    match (name.path(), name.abstract_name()) {
        (Some(path), _) => SocketAddr::from_pathname(path),
        (None, name) => SocketAddr::from_abstract_name(name.unwrap_or_default()),
    }
}

/// Removes a socket that no process listens on. False if it is not one.
fn remove_if_dead(name: &ShmName) -> bool {
    let Some(path) = name.path() else { return false };
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let is_dead =
        || UnixStream::connect(path).is_err_and(|it| it.kind() == ErrorKind::ConnectionRefused);
    is_socket && is_dead() && fs::remove_file(path).is_ok()
}

const NOT_A_SOCKET: &str = "a process is not a socket: expected shm:/PATH or shm:@NAME";

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    fn scratch(name: &str) -> (PathBuf, Address) {
        let path = std::env::temp_dir().join(format!("rpcrdma-{}-{name}", std::process::id()));
        let at = format!("shm:{}", path.display()).parse().expect("a path");
        (path, at)
    }

    #[test]
    fn a_client_is_let_in_by_port_path_and_name() {
        let (path, file) = scratch("rendezvous");
        let name =
            format!("shm:@rpcrdma-rendezvous-{}", std::process::id()).parse().expect("a name");
        for at in ["127.0.0.1:0".parse().expect("any"), file, name] {
            let server = Rendezvous::open(at).expect("it is free");
            assert!(server.accept(SOON).expect("a socket").is_none(), "{at}: no client has come");
            let _client = connect(server.at(), SOON, SOON).expect("it listens");
            assert!(server.accept(SOON).expect("a socket").is_some(), "{at}");
            assert_eq!(path.exists(), at == file);
        }
        assert!(!path.exists(), "its path goes with it");
        assert!(connect(file, SOON, SOON).is_err());
    }

    #[test]
    fn a_socket_without_a_listener_is_replaced_and_nothing_else() {
        let (path, at) = scratch("left");
        drop(UnixListener::bind(&path).expect("it is free"));
        let server = Rendezvous::open(at).expect("it was left by the dead");
        let error = Rendezvous::open(at).expect_err("another process is there");
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        drop(server);
        fs::write(&path, "a file").expect("a folder for such files");
        assert!(
            Rendezvous::open(at).is_err() && fs::read(&path).is_ok_and(|text| text == b"a file")
        );
        fs::remove_file(path).expect("it was written");
    }
}
