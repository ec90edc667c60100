//! Unix sockets: names, handshakes with memory, and which process is at the other end.
#![expect(unsafe_code, reason = "options of sockets are structures of C")]

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rpcrdma_provider::{CloseOnFork, Credentials, ShmName};
use rpcrdma_transport::failed;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags,
    SocketType,
};

use crate::closer::{Closer, Foreign};
use crate::handshake::{HANDSHAKE_LEN, Handshake, Malformed};
use crate::pools::{File, Name};

/// A socket to a peer. Dropping it closes it, also if the peer has left something in its queue whose
/// closing takes time.
#[derive(Debug)]
pub(crate) struct Socket {
    /// There until it is dropped.
    file: Option<CloseOnFork>,
    closer: Closer,
}

impl Socket {
    /// A new socket, which keeps the boundaries of messages.
    pub(crate) fn open(closer: &Closer) -> io::Result<Socket> {
        Ok(Socket::of(open()?, closer))
    }

    fn of(file: CloseOnFork, closer: &Closer) -> Socket {
        Socket { file: Some(file), closer: closer.clone() }
    }

    /// What the peer leaves in it is of this user.
    pub(crate) fn set_user(&mut self, user: u32) {
        self.closer = self.closer.of(user);
    }

    /// Whether so many descriptors of its user wait to be closed that it must not be taken.
    pub(crate) fn is_behind(&self) -> bool {
        self.closer.is_behind()
    }

    fn file(&self) -> &CloseOnFork {
        self.file.as_ref().expect("it is there until it is dropped")
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file().as_fd()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let Some(file) = self.file.take().filter(CloseOnFork::is_kept) else { return };
        // Nothing comes any more.
        let _ = rustix::net::shutdown(&file, Shutdown::Both);
        if may_hold_files(&file) {
            self.closer.close(file.into_inner());
        }
    }
}

/// A call that has failed.
pub(crate) type Failed = failed::Failed<Errno>;

/// A socket that has no peer yet.
pub(crate) fn open() -> io::Result<CloseOnFork> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let family = AddressFamily::UNIX;
    CloseOnFork::open(|| Ok(rustix::net::socket_with(family, SocketType::SEQPACKET, flags, None)?))
}

/// Connects at once or not at all.
pub(crate) fn connect(socket: &impl AsFd, to: &ShmName) -> Result<(), Errno> {
    rustix::net::connect(socket, &address(to)?)
}

/// Binds and listens. Returns the name, which the system chooses if `at` is `@` alone.
pub(crate) fn listen(socket: &impl AsFd, at: &ShmName) -> Result<ShmName, Failed> {
    let is_any = at.abstract_name() == Some("");
    let wanted = if is_any { Ok(SocketAddrUnix::new_unnamed()) } else { address(at) };
    let wanted = wanted.map_err(Failed::of("bind"))?;
    rustix::net::bind(socket, &wanted).map_err(Failed::of("bind"))?;
    rustix::net::listen(socket, BACKLOG).map_err(Failed::of("listen"))?;
    if !is_any {
        return Ok(*at);
    }
    let failed = Failed::of("getsockname");
    let bound = rustix::net::getsockname(socket).and_then(SocketAddrUnix::try_from);
    let bound = bound.map_err(&failed)?;
    let name = bound.abstract_name().and_then(|name| std::str::from_utf8(name).ok());
    let name = name.and_then(|name| ShmName::new(&format!("@{name}")).ok());
    name.ok_or_else(|| failed(Errno::INVAL))
}

/// The next socket that wants to connect.
pub(crate) fn accept(listener: &impl AsFd, closer: &Closer) -> Result<Socket, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let file = CloseOnFork::open(|| rustix::net::accept_with(listener, flags))?;
    let user = peer(&file).map_or(closer.clone(), |peer| closer.of(peer.uid));
    Ok(Socket::of(file, &user))
}

/// Closes a listener, and all that have connected and were not taken.
pub(crate) fn close_listener(listener: CloseOnFork, closer: &Closer) {
    let _ = rustix::net::shutdown(&listener, Shutdown::Both);
    loop {
        match accept(&listener, closer) {
            Ok(_) | Err(Errno::INTR | Errno::CONNABORTED) => {}
            // No one is left.
            Err(Errno::INVAL | Errno::AGAIN) => return,
            // The process may have no free descriptor: those that are left end with the listener.
            Err(_) => return closer.close(listener.into_inner()),
        }
    }
}

/// The process at the other end when it connected.
pub(crate) fn peer(socket: &impl AsFd) -> io::Result<Credentials> {
    let mut given = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    let at = (&raw mut given).cast();
    // SAFETY: `at` has room for `len` bytes, which is what the option has.
    let code =
        unsafe { libc::getsockopt(socket.as_fd().as_raw_fd(), level, name, at, &raw mut len) };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Credentials { pid: given.pid.try_into().unwrap_or(0), uid: given.uid, gid: given.gid })
}

/// The effective user of this process. If a filter of system calls forbids to ask, the number is the
/// negative error, which no user has.
pub fn own_user() -> u32 {
    // That of rustix panics in builds with checks if the call is forbidden.
    // SAFETY: it has no arguments.
    unsafe { libc::geteuid() }
}

/// Makes peers' attempts to send descriptors fail from now on, where the system can (Linux 6.16).
pub(crate) fn refuse_descriptors(socket: &Socket) {
    let off: libc::c_int = 0;
    let (at, len) = ((&raw const off).cast(), size_of::<libc::c_int>() as libc::socklen_t);
    let fd = socket.as_fd().as_raw_fd();
    // Without it they end the connection.
    // SAFETY: `at` has the `len` bytes of the option.
    let _ = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, SO_PASSRIGHTS, at, len) };
}

/// Sends a message of the handshake, with the memory if it is a hello.
pub(crate) fn send(
    socket: &impl AsFd,
    handshake: &Handshake,
    memory: Option<&OwnedFd>,
) -> Result<(), Errno> {
    send_with(socket, &handshake.encode(), memory)
}

/// Exposes a pool to the peer; without a file, reports that it is gone.
pub(crate) fn expose(socket: &Socket, name: Name, file: Option<&File>) -> Result<(), Errno> {
    let len = file.map_or(0, |(_, len)| *len);
    let mut bytes = [0; EXPOSED_LEN];
    bytes[0..8].copy_from_slice(&len.to_ne_bytes());
    bytes[8..12].copy_from_slice(&name.key.to_ne_bytes());
    bytes[12..16].copy_from_slice(&name.place.to_ne_bytes());
    bytes[16..20].copy_from_slice(&name.number.to_ne_bytes());
    send_with(socket, &bytes, file.map(|(file, _)| &**file))
}

/// Sends a message, with a descriptor if there is one.
fn send_with(socket: &impl AsFd, bytes: &[u8], file: Option<&OwnedFd>) -> Result<(), Errno> {
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

/// A message, or what there is instead.
enum Message {
    /// So many bytes, 0 at the end, and the descriptor that came with them.
    Bytes(usize, Option<Foreign>),
    /// It has descriptors that are not wanted. It stays in the queue.
    Unwanted,
}

/// The descriptors that a message may bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    Nothing,
    /// One.
    Memory,
    /// One, of a peer that this side trusts with its own memory. If this process has no room for it
    /// the message comes without.
    Pools,
}

/// Receives a message.
///
/// A message is looked at before it is taken: the system closes at once, in this thread, what it
/// does not deliver, and taking a message whose descriptor this side has closes nothing.
fn receive_with(socket: &Socket, bytes: &mut [u8], takes: Takes) -> Result<Message, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let space = if takes == Takes::Nothing { &mut [] } else { &mut space[..] };
    let (front, files) = peek(socket, bytes, space)?;
    let mut files = files.into_iter().map(|file| Foreign::new(file, &socket.closer));
    let file = files.next();
    // There is room for more than one, as lengths are rounded up.
    let is_cut = front.flags.contains(ReturnFlags::CTRUNC);
    let is_lost = takes == Takes::Pools && file.is_none();
    if files.count() > 0 || is_cut && !is_lost {
        return Ok(Message::Unwanted);
    }
    take(socket)?;
    Ok(Message::Bytes(front.bytes, file))
}

/// What the message at the front of a queue is.
struct Front {
    bytes: usize,
    flags: ReturnFlags,
}

/// Looks at the message at the front of the queue. Its descriptors are copies.
fn peek(
    socket: &impl AsFd,
    bytes: &mut [u8],
    space: &mut [MaybeUninit<u8>],
) -> Result<(Front, Vec<OwnedFd>), Errno> {
    let mut control = RecvAncillaryBuffer::new(space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC | RecvFlags::PEEK;
    let mut to = [IoSliceMut::new(bytes)];
    let received = rustix::net::recvmsg(socket, &mut to, &mut control, flags)?;
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let front = Front { bytes: received.bytes, flags: received.flags };
    Ok((front, files.flatten().collect()))
}

/// Takes the message at the front away. Its descriptors are closed by this thread.
fn take(socket: &impl AsFd) -> Result<(), Errno> {
    rustix::net::recv(socket, &mut [0; 0], RecvFlags::DONTWAIT)?;
    Ok(())
}

/// Whether the queue of a socket that is shut down may hold descriptors: closing it closes them.
fn may_hold_files(socket: &impl AsFd) -> bool {
    for _ in 0..QUEUE_MAX {
        match peek(socket, &mut [0], &mut []) {
            Ok((Front { flags, .. }, _)) if flags.contains(ReturnFlags::CTRUNC) => return true,
            // The end, or a message without bytes, which states that there are descriptors and
            // credentials that do not fit.
            Ok((Front { bytes: 0, .. }, _)) => {
                let is_asked = rustix::net::sockopt::set_socket_passcred(socket, true).is_ok();
                let again = peek(socket, &mut [0], &mut []);
                return !is_asked
                    || again.is_ok_and(|(front, _)| front.flags.contains(ReturnFlags::CTRUNC));
            }
            Ok(_) if take(socket).is_ok() => {}
            // A peer that was killed had not read all; this is reported once.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            // It was never connected.
            Err(Errno::NOTCONN) => return false,
            Ok(_) | Err(_) => return true,
        }
    }
    true
}

/// What comes by a link's socket once it is established.
#[derive(Debug)]
pub(crate) enum Word {
    /// A ring, or nothing that is known.
    Ring,
    /// A pool: its name, its length and its file.
    Exposed(Name, u64, Foreign),
    /// This pool is gone.
    Gone(Name),
    /// Nothing yet.
    Nothing,
    /// The peer is gone.
    End,
    /// The peer has sent descriptors that are not expected.
    Breach,
}

/// The next word on a link's socket.
pub(crate) fn read_word(socket: &Socket, maps_pools: bool) -> Word {
    let mut bytes = [0; EXPOSED_LEN];
    let takes = if maps_pools { Takes::Pools } else { Takes::Nothing };
    let file = match receive_with(socket, &mut bytes, takes) {
        Ok(Message::Unwanted) => return Word::Breach,
        Ok(Message::Bytes(0, _)) | Err(Errno::CONNRESET) => return Word::End,
        // Nothing there, or no memory now.
        Err(_) => return Word::Nothing,
        Ok(Message::Bytes(EXPOSED_LEN, file)) => file,
        Ok(Message::Bytes(_, None)) => return Word::Ring,
        Ok(Message::Bytes(_, Some(_))) => return Word::Breach,
    };
    let [len @ .., _, _, _, _, _, _, _, _, _, _, _, _] = bytes;
    let word =
        |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let name = Name { key: word(8), place: word(12), number: word(16) };
    match file {
        Some(file) => Word::Exposed(name, u64::from_ne_bytes(len), file),
        None => Word::Gone(name),
    }
}

/// What a look for a message of the handshake has found.
#[derive(Debug)]
pub(crate) enum Received {
    /// One, and the memory that came with it.
    Handshake(Handshake, Option<Foreign>),
    /// Something else; why is of interest to tests only.
    Malformed(#[cfg_attr(not(test), expect(dead_code))] Malformed),
    /// The peer is gone.
    End,
}

/// The message of the handshake that has arrived; none if nothing has. `takes_file` if it may be a
/// hello.
pub(crate) fn receive(socket: &Socket, takes_file: bool) -> Option<Received> {
    // One more byte than one has, so that a longer message is noticed.
    let mut bytes = [0; HANDSHAKE_LEN + 1];
    let takes = if takes_file { Takes::Memory } else { Takes::Nothing };
    let (len, memory) = match receive_with(socket, &mut bytes, takes) {
        Err(Errno::AGAIN | Errno::INTR) => return None,
        Ok(Message::Bytes(0, _)) | Err(_) => return Some(Received::End),
        Ok(Message::Unwanted) => return Some(Received::Malformed(Malformed::Descriptors)),
        Ok(Message::Bytes(len, memory)) => (len, memory),
    };
    Some(match Handshake::decode(&bytes[..len]) {
        Ok(handshake) => Received::Handshake(handshake, memory),
        Err(why) => Received::Malformed(why),
    })
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
/// Messages that are looked for in the queue of a socket that is closed.
const QUEUE_MAX: usize = 1024;
/// Bytes of a message that exposes a pool: its length and its name.
const EXPOSED_LEN: usize = 20;
/// Connections that may wait to be taken; the system allows net.core.somaxconn at most.
const BACKLOG: i32 = 4096;

#[cfg(test)]
mod tests {
    use rpcrdma_provider::PrivateBytes;
    use rustix::net::socketpair;

    use super::*;
    use crate::handshake::Kind;
    use crate::layout::Dimensions;
    use crate::memory::Memory;

    fn pair() -> (Socket, Socket) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map(|(one, other)| {
                let socket = |file| CloseOnFork::open(|| Ok::<_, Errno>(file)).expect("it is open");
                let of = |file| Socket::of(socket(file), &Closer::default());
                (of(one), of(other))
            })
            .expect("a pair")
    }

    fn hello() -> Handshake {
        Handshake {
            kind: Kind::Hello,
            dimensions: Dimensions { slots: 16, staging: 65536 },
            has_fences: false,
            maps_pools: false,
            qp_num: 7,
            rnr_retry: 0,
            private: PrivateBytes::new(),
        }
    }

    /// The closer has only what a peer has left there, and not the sockets of all that have died.
    #[test]
    fn a_socket_whose_queue_has_no_descriptors_is_closed_at_once() {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        for (unread, words) in [(0, 0), (1, 0), (0, 3), (2, 3)] {
            let (dead, left) =
                socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("two");
            (0..unread).for_each(|_| send_with(&left, &[0], None).expect("room"));
            (0..words).for_each(|_| send_with(&dead, &[0], None).expect("room"));
            drop(dead);
            let _ = rustix::net::shutdown(&left, Shutdown::Both);
            assert!(!may_hold_files(&left), "{unread} unread, {words} words");
        }
        assert!(!may_hold_files(&open().expect("a socket")), "never connected");
    }

    #[test]
    fn a_handshake_arrives_with_its_memory() {
        let (one, other) = pair();
        assert!(receive(&other, true).is_none());
        let (_memory, file) = Memory::create(4096).expect("memory");
        send(&one, &hello(), Some(&file)).expect("room");
        send(&one, &hello(), None).expect("room");
        let Some(Received::Handshake(handshake, Some(file))) = receive(&other, true) else {
            panic!("both")
        };
        assert_eq!(handshake, hello());
        assert!(Memory::adopt(&file, 4096).is_ok());
        assert!(matches!(receive(&other, true), Some(Received::Handshake(_, None))));
        drop(one);
        assert!(matches!(receive(&other, true), Some(Received::End)));
    }

    #[test]
    fn a_message_of_another_length_is_not_cut_to_a_handshake() {
        let (one, other) = pair();
        let mut bytes = hello().encode().to_vec();
        for len in [1, HANDSHAKE_LEN - 1] {
            rustix::net::send(&one, &bytes[..len], SendFlags::empty()).expect("room");
            assert!(
                matches!(receive(&other, true), Some(Received::Malformed(Malformed::Length(_)))),
                "{len}"
            );
        }
        bytes.extend([0; 100]);
        rustix::net::send(&one, &bytes, SendFlags::empty()).expect("room");
        assert!(matches!(receive(&other, true), Some(Received::Malformed(Malformed::Length(_)))));
    }

    #[test]
    fn the_kernel_says_who_the_peer_is() {
        let (one, _other) = pair();
        let peer = peer(&one).expect("a peer");
        assert_eq!(peer.pid, std::process::id());
        assert_eq!(peer.uid, rustix::process::getuid().as_raw());
    }
}
