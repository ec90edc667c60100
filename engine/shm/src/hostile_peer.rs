//! A hostile peer, which follows no rule, for tests: it has all that the process of a peer would
//! have, the memory of a connection and its socket, and writes anything there.
#![expect(unsafe_code, reason = "it writes where it likes in mapped memory")]

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rpcrdma_provider::{PrivateBytes, ShmName};
use rpcrdma_transport::body::INLINE_LEN;
use rpcrdma_transport::conn::Progress;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use crate::closer::Closer;
use crate::handshake::{Handshake, Kind};
use crate::layout::{Dimensions, Direction, Layout};
use crate::memory::Memory;
use crate::socket::{self, Received, Socket};

/// The peer.
pub struct HostilePeer {
    socket: Socket,
    pub(crate) layout: Arc<Layout>,
    pub(crate) out: Direction,
    back: Direction,
    head: u64,
}

/// The memory of one connection of this process, which an engine uses as well.
#[derive(Debug)]
pub struct Reach(Arc<Layout>);

/// The memory of all connections that this process has now.
pub fn reach() -> Vec<Reach> {
    Layout::all().into_iter().map(Reach).collect()
}

impl Reach {
    /// Writes bytes anywhere into it, as far as they lie in it.
    pub fn corrupt(&self, at: usize, bytes: &[u8]) {
        for (at, byte) in (at..self.memory_len()).zip(bytes) {
            // SAFETY: within the memory, to whose bytes there are no references.
            unsafe { self.0.base().wrapping_add(at).write_volatile(*byte) };
        }
    }

    /// Its bytes.
    pub fn memory_len(&self) -> usize {
        self.0.memory_len()
    }
}

impl HostilePeer {
    /// Connects to a listener and sends a hello, with the smallest rings and so many bytes of
    /// staging.
    ///
    /// # Errors
    /// If there is no listener, or the system refuses.
    pub fn connect(to: &ShmName, staging: u32) -> io::Result<HostilePeer> {
        HostilePeer::connect_with(to, staging, |_| {})
    }

    /// As [`HostilePeer::connect`], with a hello that `change` has changed.
    pub(crate) fn connect_with(
        to: &ShmName,
        staging: u32,
        change: impl FnOnce(&mut Handshake),
    ) -> io::Result<HostilePeer> {
        let dimensions = Dimensions { slots: SLOTS, staging };
        let socket = Socket::open(&Closer::default())?;
        socket::connect(&socket, to)?;
        let (memory, file) = Memory::create(dimensions.bytes())?;
        let mut hello = hello(dimensions);
        change(&mut hello);
        socket::send(&socket, &hello, Some(&file))?;
        let layout = Layout::new(memory, dimensions);
        let [out, back] = [0, 1].map(|index| Direction::new(&layout, index));
        Ok(HostilePeer { socket, layout, out, back, head: 0 })
    }

    /// Whether the other side has accepted it since the last look. It may then send.
    pub fn is_accepted(&mut self) -> bool {
        let Some(Received::Handshake(answer, _)) = socket::receive(&self.socket, true) else {
            return false;
        };
        self.layout.side(0).progress.store(Progress::Attached as u32, Ordering::Release);
        answer.kind == Kind::Accepted
    }

    /// Publishes a slot with any header, and with these bytes.
    pub fn publish(&mut self, header: [u64; 3], bytes: &[u8]) {
        let slot = self.out.slot(self.head);
        for (at, byte) in bytes.iter().enumerate().take(INLINE_LEN) {
            // SAFETY: within the bytes of the slot, which has no references to them.
            unsafe { slot.bytes().wrapping_add(at).write_volatile(*byte) };
        }
        for (word, value) in slot.header.iter().zip(header) {
            word.store(value, Ordering::Relaxed);
        }
        slot.turn.store(self.head + 1, Ordering::Release);
        self.head += 1;
    }

    /// States how many slots of the other side it has taken, and how many of them it refused.
    pub fn acknowledge(&self, taken: u64, refused: u64) {
        self.back.words().refused.0.store(refused, Ordering::Release);
        self.back.words().ack_line.0.store(taken, Ordering::Release);
    }

    /// States the outcome of a slot of the other side.
    pub fn set_outcome(&self, position: u64, outcome: u32) {
        let result = self.back.outcome(position);
        result.outcome.store(outcome, Ordering::Relaxed);
        result.turn.store(position.wrapping_add(1), Ordering::Release);
    }

    /// Writes bytes anywhere into the memory of the connection, as far as they lie in it.
    pub fn corrupt(&self, at: usize, bytes: &[u8]) {
        self.reach().corrupt(at, bytes);
    }

    /// The memory of the connection.
    pub fn reach(&self) -> Reach {
        Reach(Arc::clone(&self.layout))
    }

    /// Bytes of the memory of the connection.
    pub fn memory_len(&self) -> usize {
        self.layout.memory_len()
    }

    /// Whether the other side has rung since the last look. Each ring is looked at once.
    pub fn is_rung(&self) -> bool {
        matches!(socket::read_word(&self.socket, false), socket::Word::Ring)
    }

    /// Closes its socket, and keeps the memory.
    ///
    /// # Errors
    /// If the system has no other socket.
    pub fn hang_up(&mut self) -> io::Result<()> {
        self.socket = Socket::open(&Closer::default())?;
        Ok(())
    }

    /// Sends anything by the socket, as far as there is room.
    pub fn send(&self, bytes: &[u8]) {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let _ = rustix::net::send(&self.socket, bytes, flags);
    }

    /// Sends anything by the socket, with these descriptors.
    ///
    /// # Errors
    /// If the system refuses, for example because the other side takes none.
    pub fn hand(&self, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        hand(&self.socket, bytes, files)
    }
}

/// What it sends at first.
pub(crate) fn hello(dimensions: Dimensions) -> Handshake {
    Handshake {
        kind: Kind::Hello,
        dimensions,
        has_fences: true,
        maps_pools: false,
        qp_num: 99,
        rnr_retry: 7,
        private: PrivateBytes::new(),
    }
}

/// Sends anything, with these descriptors.
pub(crate) fn hand(socket: &impl AsFd, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(files));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)?;
    Ok(())
}

impl std::fmt::Debug for HostilePeer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostilePeer").field("head", &self.head).finish_non_exhaustive()
    }
}

/// Slots of its rings.
pub const SLOTS: u32 = 16;
