//! What a virtual network consists of: its sockets, and the sets that they are in.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use super::random::Random;
use super::stream::{Cut, How, Moved, Stream};

/// What happens in a network.
#[derive(Debug, Clone, Copy, Default)]
pub struct NetworkPlan {
    /// All that is random follows from it.
    pub seed: u64,
    /// Of a hundred connections, those that are cut, if they last.
    pub cut_percent: u8,
}

/// What has happened in a network.
#[derive(Debug, Clone, Copy, Default)]
pub struct NetworkCounts {
    /// Pieces that came alone: more was under way behind them.
    pub splits: u64,
    /// Calls that were not given all the room that they asked for.
    pub full: u64,
    /// Connections that were reset.
    pub resets: u64,
    /// Connections of which one stream was ended.
    pub ends: u64,
}

impl NetworkCounts {
    /// Connections that were cut.
    pub fn cuts(&self) -> u64 {
        self.resets + self.ends
    }
}

/// The world of a network, which its sockets and sets share.
#[derive(Debug, Clone)]
pub(super) struct SharedWorld(Arc<Mutex<World>>);

impl SharedWorld {
    pub(super) fn new(plan: NetworkPlan) -> SharedWorld {
        SharedWorld(Arc::new(Mutex::new(World::new(plan))))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All sockets, by number.
#[derive(Debug)]
pub(super) struct World {
    plan: NetworkPlan,
    random: Random,
    sockets: BTreeMap<u64, WorldSocket>,
    sets: BTreeMap<u64, Set>,
    next: u64,
    /// The port that was given last.
    port: u16,
    is_calm: bool,
    pub counts: NetworkCounts,
}

/// A socket.
#[derive(Debug)]
struct WorldSocket {
    state: SocketState,
    watch: Option<Watch>,
    /// Its program has dropped it.
    is_closed: bool,
}

#[derive(Debug)]
enum SocketState {
    New,
    Listening { at: SocketAddr, waiting: VecDeque<(u64, SocketAddr)> },
    Connecting(SocketAddr),
    Failed(Errno),
    Open(Stream),
}

/// The set that a socket is in.
#[derive(Debug)]
struct Watch {
    set: u64,
    number: u64,
    on: EventFlags,
    has_edge: bool,
}

/// A set of sockets.
#[derive(Debug)]
struct Set {
    bell: Arc<OwnedFd>,
    is_rung: bool,
}

impl World {
    fn new(plan: NetworkPlan) -> World {
        World {
            plan,
            random: Random(plan.seed),
            sockets: BTreeMap::new(),
            sets: BTreeMap::new(),
            next: 0,
            port: FIRST_PORT,
            is_calm: false,
            counts: NetworkCounts::default(),
        }
    }

    pub(super) fn calm(&mut self) {
        self.is_calm = true;
        for socket in self.sockets.values_mut() {
            if let SocketState::Open(stream) = &mut socket.state {
                stream.widen();
            }
        }
    }

    /// A new socket.
    pub(super) fn open(&mut self) -> u64 {
        self.add(SocketState::New)
    }

    fn add(&mut self, state: SocketState) -> u64 {
        self.next += 1;
        self.sockets.insert(self.next, WorldSocket { state, watch: None, is_closed: false });
        self.next
    }

    /// The connection of a socket.
    pub(super) fn stream(&mut self, socket: u64) -> Result<&mut Stream, Errno> {
        match self.sockets.get_mut(&socket).map(|socket| &mut socket.state) {
            Some(SocketState::Open(stream)) => Ok(stream),
            _ => Err(Errno::NOTCONN),
        }
    }

    pub(super) fn listen(&mut self, socket: u64, at: SocketAddr) -> Result<SocketAddr, Errno> {
        let at = if at.port() == 0 { self.with_port(at) } else { at };
        if self.listener(at).is_some() {
            return Err(Errno::ADDRINUSE);
        }
        let socket = self.sockets.get_mut(&socket).ok_or(Errno::BADF)?;
        socket.state = SocketState::Listening { at, waiting: VecDeque::new() };
        Ok(at)
    }

    fn with_port(&mut self, at: SocketAddr) -> SocketAddr {
        self.port = self.port.checked_add(1).unwrap_or(FIRST_PORT + 1);
        SocketAddr::new(at.ip(), self.port)
    }

    fn listener(&self, wanted: SocketAddr) -> Option<u64> {
        let is_it = |socket: &WorldSocket| match &socket.state {
            SocketState::Listening { at, .. } => *at == wanted,
            _ => false,
        };
        self.sockets.iter().find(|(_, socket)| is_it(socket)).map(|(number, _)| *number)
    }

    pub(super) fn accept(&mut self, listener: u64) -> Result<(u64, SocketAddr), Errno> {
        match self.sockets.get_mut(&listener).map(|socket| &mut socket.state) {
            Some(SocketState::Listening { waiting, .. }) => waiting.pop_front().ok_or(Errno::AGAIN),
            _ => Err(Errno::INVAL),
        }
    }

    pub(super) fn connect(&mut self, socket: u64, to: SocketAddr) -> Result<bool, Errno> {
        let found = self.sockets.get_mut(&socket).ok_or(Errno::BADF)?;
        found.state = SocketState::Connecting(to);
        if self.random.one_in(2) {
            self.meet(socket, to);
        }
        self.is_connected(socket)
    }

    pub(super) fn is_connected(&mut self, socket: u64) -> Result<bool, Errno> {
        match self.sockets.get_mut(&socket).map(|socket| &mut socket.state) {
            Some(SocketState::Failed(error)) => Err(*error),
            Some(SocketState::Open(stream)) => stream.take_error().map_or(Ok(true), Err),
            _ => Ok(false),
        }
    }

    /// A socket connects, or is refused.
    fn meet(&mut self, socket: u64, to: SocketAddr) {
        let state = match self.listener(to) {
            None => SocketState::Failed(Errno::CONNREFUSED),
            Some(listener) => {
                let from = self.with_port(to);
                let [here, there] = self.cuts();
                let other = self.stream_to(socket, there);
                let peer = self.add(SocketState::Open(other));
                let listening = self.sockets.get_mut(&listener).map(|it| &mut it.state);
                if let Some(SocketState::Listening { waiting, .. }) = listening {
                    waiting.push_back((peer, from));
                }
                self.ring(listener);
                SocketState::Open(self.stream_to(peer, here))
            }
        };
        if let Some(found) = self.sockets.get_mut(&socket) {
            found.state = state;
        }
        self.ring(socket);
    }

    /// An end of a new connection.
    fn stream_to(&mut self, peer: u64, cut: Option<Cut>) -> Stream {
        let mut stream = Stream::new(peer, &mut self.random, cut);
        if self.is_calm {
            stream.widen();
        }
        stream
    }

    /// Where a new connection is cut.
    fn cuts(&mut self) -> [Option<Cut>; 2] {
        if self.random.below(100) >= self.plan.cut_percent.into() {
            return [None; 2];
        }
        let magnitude = self.random.choose(&[30, 100, 1_000, 10_000, 100_000]);
        let how = self.random.choose(&[How::Reset, How::End]);
        let cut = Some(Cut { at: self.random.below(magnitude), how });
        if self.random.one_in(2) { [cut, None] } else { [None, cut] }
    }

    /// The program drops a socket.
    pub(super) fn close(&mut self, socket: u64) {
        let Some(found) = self.sockets.get_mut(&socket) else { return };
        (found.is_closed, found.watch) = (true, None);
        match &mut found.state {
            SocketState::Open(stream) => {
                stream.shutdown(rustix::net::Shutdown::Both);
                // What was not read is lost, and the peer is reset.
                if stream.has_more() {
                    self.reset(socket);
                }
            }
            SocketState::Listening { waiting, .. } => {
                let waiting = std::mem::take(waiting);
                self.sockets.remove(&socket);
                for (caller, _) in waiting {
                    self.reset(caller);
                    self.sockets.remove(&caller);
                }
            }
            SocketState::New | SocketState::Connecting(_) | SocketState::Failed(_) => {
                self.sockets.remove(&socket);
            }
        }
    }

    /// Resets both sides of a connection.
    fn reset(&mut self, socket: u64) {
        let Ok(stream) = self.stream(socket) else { return };
        let peer = stream.peer;
        for side in [socket, peer] {
            if let Ok(stream) = self.stream(side) {
                stream.reset();
            }
            self.ring(side);
        }
    }

    /// Moves what is under way.
    pub(super) fn step(&mut self) {
        for socket in self.sockets.keys().copied().collect::<Vec<u64>>() {
            match self.sockets.get(&socket).map(|socket| &socket.state) {
                Some(SocketState::Connecting(to)) => {
                    let to = *to;
                    if self.random.one_in(2) {
                        self.meet(socket, to);
                    }
                }
                Some(SocketState::Open(_)) => self.carry(socket),
                _ => {}
            }
        }
        self.sockets.retain(|_, socket| match &socket.state {
            SocketState::Open(stream) => !socket.is_closed || !stream.is_done(),
            _ => true,
        });
    }

    /// Moves pieces of what a socket has sent.
    fn carry(&mut self, socket: u64) {
        for _ in 0..PIECES_MAX {
            let Some(mut found) = self.sockets.remove(&socket) else { return };
            let SocketState::Open(stream) = &mut found.state else {
                self.sockets.insert(socket, found);
                return;
            };
            let (peer, is_calm) = (stream.peer, self.is_calm);
            let other = self.sockets.get(&peer);
            let is_open = other.is_some_and(|peer| !peer.is_closed);
            let room = match other.map(|peer| &peer.state) {
                Some(SocketState::Open(other)) => other.room(),
                _ => usize::MAX,
            };
            let mut bytes = VecDeque::new();
            let moved = stream.advance(&mut self.random, room, is_calm, &mut bytes);
            let (has_room, has_more) = (stream.take_wanted_room(), stream.has_under_way());
            self.sockets.insert(socket, found);
            if has_room {
                self.ring(socket);
            }
            match moved {
                Moved::Nothing => return,
                Moved::Nowhere => return self.reset(socket),
                // It was closed before these bytes came.
                Moved::Bytes(..) if !is_open => return self.reset(socket),
                Moved::End => self.end(peer),
                Moved::Bytes(_, cut) => {
                    self.counts.splits += u64::from(has_more);
                    self.deliver(peer, &mut bytes);
                    self.cut(socket, peer, cut);
                }
            }
        }
    }

    /// Bytes come to a socket.
    fn deliver(&mut self, socket: u64, bytes: &mut VecDeque<u8>) {
        if bytes.is_empty() {
            return;
        }
        if let Ok(stream) = self.stream(socket) {
            stream.receive(bytes);
        }
        self.ring(socket);
    }

    /// The end of its peer's stream comes to a socket.
    fn end(&mut self, socket: u64) {
        if let Ok(stream) = self.stream(socket) {
            stream.end();
        }
        self.ring(socket);
    }

    /// A connection is cut behind what `socket` has sent, if it is.
    fn cut(&mut self, socket: u64, peer: u64, how: Option<How>) {
        match how {
            None => {}
            Some(How::Reset) => {
                self.counts.resets += 1;
                self.reset(socket);
            }
            Some(How::End) => {
                self.counts.ends += 1;
                self.end(peer);
                if let Ok(stream) = self.stream(socket) {
                    stream.lose_peer();
                }
            }
        }
    }

    /// A new set, whose bell is rung when a socket becomes ready.
    pub(super) fn open_set(&mut self, bell: Arc<OwnedFd>) -> u64 {
        self.next += 1;
        self.sets.insert(self.next, Set { bell, is_rung: false });
        self.next
    }

    pub(super) fn close_set(&mut self, set: u64) {
        self.sets.remove(&set);
        for socket in self.sockets.values_mut() {
            socket.watch.take_if(|watch| watch.set == set);
        }
    }

    /// Takes a socket into a set. Its present state is an edge.
    pub(super) fn watch(
        &mut self,
        socket: u64,
        set: u64,
        number: u64,
        on: EventFlags,
    ) -> Result<(), Errno> {
        let found = self.sockets.get_mut(&socket).ok_or(Errno::BADF)?;
        if found.watch.is_some() {
            return Err(Errno::EXIST);
        }
        found.watch = Some(Watch { set, number, on, has_edge: false });
        self.ring(socket);
        Ok(())
    }

    /// Takes a socket out of a set.
    pub(super) fn unwatch(&mut self, socket: u64, set: u64) -> Result<(), Errno> {
        let found = self.sockets.get_mut(&socket).ok_or(Errno::BADF)?;
        found.watch.take_if(|watch| watch.set == set).map(drop).ok_or(Errno::NOENT)
    }

    /// Something about a socket has changed.
    fn ring(&mut self, socket: u64) {
        let Some(found) = self.sockets.get_mut(&socket) else { return };
        let ready = found.ready_for();
        let Some(watch) = &mut found.watch else { return };
        if ready.intersects(watch.on | ALWAYS) {
            watch.has_edge = true;
            let set = watch.set;
            self.ring_set(set);
        }
    }

    fn ring_set(&mut self, set: u64) {
        if let Some(set) = self.sets.get_mut(&set).filter(|set| !set.is_rung) {
            set.is_rung = rustix::io::write(&set.bell, &1_u64.to_ne_bytes()).is_ok();
        }
    }

    /// The sockets of a set that are ready, and what for.
    pub(super) fn look(&mut self, set: u64, max: usize) -> Vec<(u64, EventFlags)> {
        if let Some(set) = self.sets.get_mut(&set).filter(|set| set.is_rung) {
            set.is_rung = rustix::io::read(&set.bell, &mut [0; 8]).is_err();
        }
        let (mut ready, mut is_left) = (Vec::new(), false);
        for socket in self.sockets.values_mut() {
            let flags = socket.ready_for();
            let Some(watch) = socket.watch.as_mut().filter(|watch| watch.set == set) else {
                continue;
            };
            let flags = flags & (watch.on | ALWAYS);
            let has_edges = watch.on.contains(EventFlags::ET);
            if flags.is_empty() || has_edges && !watch.has_edge {
                continue;
            }
            is_left |= !has_edges || ready.len() == max;
            if ready.len() < max {
                watch.has_edge = false;
                ready.push((watch.number, flags));
            }
        }
        if is_left {
            self.ring_set(set);
        }
        ready
    }
}

impl WorldSocket {
    fn ready_for(&self) -> EventFlags {
        match &self.state {
            SocketState::New | SocketState::Connecting(_) => EventFlags::empty(),
            SocketState::Listening { waiting, .. } if waiting.is_empty() => EventFlags::empty(),
            SocketState::Listening { .. } => EventFlags::IN,
            SocketState::Failed(_) => EventFlags::IN | EventFlags::OUT | ALWAYS,
            SocketState::Open(stream) => stream.ready_for(),
        }
    }
}

/// What a set names though it was not asked for.
const ALWAYS: EventFlags = EventFlags::ERR.union(EventFlags::HUP);
/// Behind it the ports that the network chooses begin.
const FIRST_PORT: u16 = 10_000;
/// The most pieces of a stream that come in one step.
const PIECES_MAX: usize = 3;
