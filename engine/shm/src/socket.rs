//! Unix sockets: names, greetings with memory, and who is at the other end.
#![expect(unsafe_code, reason = "options of sockets are structures of C")]

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rpcrdma_provider::{Credentials, ShmName};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::greeting::{GREETING_LEN, Greeting, Malformed};
use crate::pools::File;

/// A new socket, which keeps the boundaries of messages.
pub(crate) fn open() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let family = AddressFamily::UNIX;
    Ok(rustix::net::socket_with(family, SocketType::SEQPACKET, flags, None)?)
}

/// Connects at once or not at all.
pub(crate) fn connect(socket: &OwnedFd, to: &ShmName) -> Result<(), Errno> {
    rustix::net::connect(socket, &address(to)?)
}

/// Binds and listens. Returns the name, which the system chooses if `at` is `@` alone.
pub(crate) fn listen(socket: &OwnedFd, at: &ShmName) -> Result<ShmName, Errno> {
    let is_any = at.abstract_name() == Some("");
    let wanted = if is_any { SocketAddrUnix::new_unnamed() } else { address(at)? };
    rustix::net::bind(socket, &wanted)?;
    rustix::net::listen(socket, BACKLOG)?;
    if !is_any {
        return Ok(*at);
    }
    let bound = SocketAddrUnix::try_from(rustix::net::getsockname(socket)?)?;
    let name = bound.abstract_name().and_then(|name| std::str::from_utf8(name).ok());
    name.and_then(|name| ShmName::new(&format!("@{name}")).ok()).ok_or(Errno::INVAL)
}

/// The next socket that wants to connect.
pub(crate) fn accept(listener: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
}

/// The process at the other end when it connected.
pub(crate) fn peer(socket: &OwnedFd) -> io::Result<Credentials> {
    let mut given = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    let at = (&raw mut given).cast();
    // SAFETY: `at` has room for `len` bytes, which is what the option has.
    let code = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, at, &raw mut len) };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Credentials { pid: given.pid.try_into().unwrap_or(0), uid: given.uid, gid: given.gid })
}

/// Makes peers' attempts to send descriptors fail from now on, where the system can (Linux 6.16).
pub(crate) fn refuse_descriptors(socket: &OwnedFd) {
    let off: libc::c_int = 0;
    let (at, len) = ((&raw const off).cast(), size_of::<libc::c_int>() as libc::socklen_t);
    // Without it they are closed when they come. SAFETY: `at` has the `len` bytes of the option.
    let _ =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, at, len) };
}

/// Sends a greeting, with the memory if it is a hello.
pub(crate) fn send(
    socket: &OwnedFd,
    greeting: &Greeting,
    memory: Option<&OwnedFd>,
) -> Result<(), Errno> {
    send_with(socket, &greeting.encode(), memory)
}

/// Shows a pool to the peer; without a file, says that it is gone.
pub(crate) fn show(socket: &OwnedFd, key: u32, file: Option<&File>) -> Result<(), Errno> {
    let len = file.map_or(0, |(_, len)| *len);
    let mut bytes = [0; SHOWN_LEN];
    bytes[0..4].copy_from_slice(&key.to_ne_bytes());
    bytes[4..12].copy_from_slice(&len.to_ne_bytes());
    send_with(socket, &bytes, file.map(|(file, _)| &**file))
}

/// Sends a message, with a descriptor if there is one.
fn send_with(socket: &OwnedFd, bytes: &[u8], file: Option<&OwnedFd>) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = file.map(|file| [file.as_fd()]);
    if let Some(files) = &files {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)?;
    Ok(())
}

/// Receives a message: the number of its bytes, 0 at the end, and the first descriptor that came
/// with it. Further ones are closed.
fn receive_with(socket: &OwnedFd, bytes: &mut [u8]) -> Result<(usize, Option<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut to = [IoSliceMut::new(bytes)];
    let received = rustix::net::recvmsg(socket, &mut to, &mut control, flags)?;
    let mut files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let file = files.next().and_then(|mut files| files.next());
    Ok((received.bytes, file))
}

/// What a link's socket says once it is established.
#[derive(Debug)]
pub(crate) enum Word {
    /// A ring, or nothing that is known.
    Ring,
    /// A pool: its key, its length and its file.
    Shown(u32, u64, OwnedFd),
    /// The pool with this key is gone.
    Gone(u32),
    /// Nothing yet.
    Nothing,
    /// The peer is gone.
    End,
}

/// The next word on a link's socket.
pub(crate) fn listen_to(socket: &OwnedFd) -> Word {
    let mut bytes = [0; SHOWN_LEN];
    let file = match receive_with(socket, &mut bytes) {
        Ok((0, _)) | Err(Errno::CONNRESET) => return Word::End,
        // Nothing there, or no memory now.
        Err(_) => return Word::Nothing,
        Ok((SHOWN_LEN, file)) => file,
        Ok(_) => return Word::Ring,
    };
    let [k0, k1, k2, k3, len @ ..] = bytes;
    let key = u32::from_ne_bytes([k0, k1, k2, k3]);
    match file {
        Some(file) => Word::Shown(key, u64::from_ne_bytes(len), file),
        None => Word::Gone(key),
    }
}

/// What a look for a greeting has found.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A greeting, and the memory that came with it.
    Greeting(Greeting, Option<OwnedFd>),
    /// Something else; why is of interest to tests only.
    Malformed(#[cfg_attr(not(test), expect(dead_code))] Malformed),
    /// Nothing yet.
    Nothing,
    /// The peer is gone.
    End,
}

/// The greeting that has arrived.
pub(crate) fn receive(socket: &OwnedFd) -> Heard {
    // One more byte than a greeting has, so that a longer message is noticed.
    let mut bytes = [0; GREETING_LEN + 1];
    let (len, memory) = match receive_with(socket, &mut bytes) {
        Err(Errno::AGAIN | Errno::INTR) => return Heard::Nothing,
        Ok((0, _)) | Err(_) => return Heard::End,
        Ok(received) => received,
    };
    match Greeting::decode(&bytes[..len]) {
        Ok(greeting) => Heard::Greeting(greeting, memory),
        Err(why) => Heard::Malformed(why),
    }
}

fn address(name: &ShmName) -> Result<SocketAddrUnix, Errno> {
    match (name.abstract_name(), name.path()) {
        (Some(name), _) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
        (None, Some(path)) => SocketAddrUnix::new(path),
        (None, None) => Err(Errno::INVAL),
    }
}

/// `SO_PASSRIGHTS` of asm-generic/socket.h.
const SO_PASSRIGHTS: libc::c_int = 83;
/// Bytes of a message that shows a pool: its key and its length.
const SHOWN_LEN: usize = 12;
/// Connections that may wait to be taken; the system allows net.core.somaxconn at most.
const BACKLOG: i32 = 4096;

#[cfg(test)]
mod tests {
    use rpcrdma_provider::PrivateBytes;
    use rustix::net::socketpair;

    use super::*;
    use crate::greeting::Kind;
    use crate::layout::Dimensions;
    use crate::memory::Memory;

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a pair")
    }

    fn hello() -> Greeting {
        Greeting {
            kind: Kind::Hello,
            dimensions: Dimensions { slots: 16, staging: 65536 },
            has_fences: false,
            maps_pools: false,
            qp_num: 7,
            rnr_retry: 0,
            private: PrivateBytes::new(),
        }
    }

    #[test]
    fn a_greeting_arrives_with_its_memory() {
        let (one, other) = pair();
        assert!(matches!(receive(&other), Heard::Nothing));
        let (_memory, file) = Memory::create(4096).expect("memory");
        send(&one, &hello(), Some(&file)).expect("room");
        send(&one, &hello(), None).expect("room");
        let Heard::Greeting(greeting, Some(file)) = receive(&other) else { panic!("both") };
        assert_eq!(greeting, hello());
        assert!(Memory::adopt(&file, 4096).is_ok());
        assert!(matches!(receive(&other), Heard::Greeting(_, None)));
        drop(one);
        assert!(matches!(receive(&other), Heard::End));
    }

    #[test]
    fn a_message_of_another_length_is_not_cut_to_a_greeting() {
        let (one, other) = pair();
        let mut bytes = hello().encode().to_vec();
        for len in [1, GREETING_LEN - 1] {
            rustix::net::send(&one, &bytes[..len], SendFlags::empty()).expect("room");
            assert!(matches!(receive(&other), Heard::Malformed(Malformed::Length(_))), "{len}");
        }
        bytes.extend([0; 100]);
        rustix::net::send(&one, &bytes, SendFlags::empty()).expect("room");
        assert!(matches!(receive(&other), Heard::Malformed(Malformed::Length(_))));
    }

    #[test]
    fn the_kernel_says_who_the_peer_is() {
        let (one, _other) = pair();
        let peer = peer(&one).expect("a peer");
        assert_eq!(peer.pid, std::process::id());
        assert_eq!(peer.uid, rustix::process::getuid().as_raw());
    }
}
