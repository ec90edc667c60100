//! The MOUNT protocol, version 3, over TCP: gives clients the handle of the exported directory.
//!
//! One thread serves all clients, one call of each at a time. The cost of a client is limited:
//!
//! ```text
//!   connections   4 of a host and 32 in all: one more replaces the oldest of its host, or is closed
//!   memory        a record as long as the longest call can be, and one answer
//!   time          10 s for a record from its first byte; 10 s to read an answer; 60 s without data
//! ```

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use nfs3_types::rpc::fragment_header;
use rpcrdma::{Address, Origin};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::export::Export;
use crate::mount_calls::{Mounts, answer, oldest_of_full};

/// The MOUNT service.
#[derive(Debug)]
pub struct MountServer {
    address: SocketAddr,
    stop: Arc<rustix::fd::OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl MountServer {
    /// Starts the service.
    ///
    /// # Errors
    /// If the address cannot be listened on.
    pub fn start(at: SocketAddr, export: Arc<Export>) -> std::io::Result<MountServer> {
        let listener = TcpListener::bind(at)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let service = MountService::new(listener, export);
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("nfs3-mount".into())
            .spawn(move || service.run(&stopped))?;
        Ok(MountServer { address, stop, thread: Some(thread) })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MountServer {
    fn drop(&mut self) {
        // The counter cannot overflow: one wake-up stops the thread.
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // The thread has reported its panic.
            let _ = thread.join();
        }
    }
}

struct MountService {
    listener: TcpListener,
    export: Arc<Export>,
    mounts: Mounts,
    /// The clients, the oldest first.
    clients: ArrayVec<MountClient, CLIENTS_MAX>,
    /// Whether accepting failed: no descriptor may be free.
    is_deaf: bool,
}

impl MountService {
    fn new(listener: TcpListener, export: Arc<Export>) -> MountService {
        let (mounts, clients) = (Mounts::default(), ArrayVec::new());
        MountService { listener, export, mounts, clients, is_deaf: false }
    }

    fn run(mut self, stop: &rustix::fd::OwnedFd) {
        while !self.wait(stop) {
            self.turn(Instant::now());
        }
    }

    /// Serves each client once, and accepts some connections.
    fn turn(&mut self, now: Instant) {
        let MountService { export, mounts, clients, .. } = self;
        clients.retain(|client| client.serve(export, mounts, now));
        self.accept(now);
    }

    /// Waits for work; returns true if the service must stop.
    fn wait(&self, stop: &rustix::fd::OwnedFd) -> bool {
        let mut fds = ArrayVec::<PollFd<'_>, { CLIENTS_MAX + 2 }>::new();
        fds.push(PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN));
        for client in &self.clients {
            let wanted = if client.out.is_empty() { PollFlags::IN } else { PollFlags::OUT };
            fds.push(PollFd::from_borrowed_fd(client.stream.as_fd(), wanted));
        }
        if !self.is_deaf {
            fds.push(PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN));
        }
        let tick =
            if self.clients.iter().any(MountClient::is_ready) { Duration::ZERO } else { TICK };
        let timeout = Timespec { tv_sec: tick.as_secs() as i64, tv_nsec: 0 };
        // After an interruption every socket is checked again.
        let _ = poll(&mut fds, Some(&timeout));
        !fds[0].revents().is_empty()
    }

    fn accept(&mut self, now: Instant) {
        for _each in 0..ACCEPTED_MAX {
            let accepted = self.listener.accept();
            // Otherwise a failing accept would be repeated in a busy loop.
            self.is_deaf = accepted.as_ref().is_err_and(|error| {
                !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionAborted)
            });
            let Ok((stream, from)) = accepted else { break };
            if stream.set_nonblocking(true).is_ok() {
                self.admit(MountClient::new(stream, from, now));
            }
        }
    }

    /// Admits a client: it replaces the oldest of its host if the host has its maximum. If other
    /// hosts have all connections, the client is closed.
    fn admit(&mut self, client: MountClient) {
        let host = host(client.from);
        let are_its = self.clients.iter().map(|client| self::host(client.from) == host);
        if let Some(oldest) = oldest_of_full(are_its, CLIENTS_OF_HOST_MAX) {
            self.clients.remove(oldest);
        }
        // Dropping a client closes its connection.
        let _ = self.clients.try_push(client);
    }
}

/// The address that a client's connections are counted by: the host for IPv4, the network for IPv6.
fn host(from: SocketAddr) -> Origin {
    Address::Ip(from).origin().network()
}

/// A connection, and the bytes received on it.
struct MountClient {
    stream: TcpStream,
    from: SocketAddr,
    /// The fragments of a record, without their headers.
    record: Vec<u8>,
    /// Received bytes that do not form a whole fragment yet.
    pending: Vec<u8>,
    /// The answer that is being written.
    out: Vec<u8>,
    /// The start of its current state: silent, sending a record, or reading an answer.
    since: Instant,
}

impl MountClient {
    fn new(stream: TcpStream, from: SocketAddr, now: Instant) -> MountClient {
        let (record, pending, out) = (Vec::new(), Vec::new(), Vec::new());
        MountClient { stream, from, record, pending, out, since: now }
    }

    /// Reads, answers one call and writes, without waiting; false if the connection has ended.
    fn serve(&mut self, export: &Export, mounts: &mut Mounts, now: Instant) -> bool {
        // A client that does not read its answer is not read from.
        let is_up = self.flush(now)
            && (!self.out.is_empty() || self.listen(export, mounts, now))
            && self.flush(now);
        is_up && now.saturating_duration_since(self.since) < self.patience()
    }

    /// Whether a whole fragment is buffered.
    fn is_ready(&self) -> bool {
        let Some((mark, rest)) = self.pending.split_first_chunk::<4>() else { return false };
        self.out.is_empty() && rest.len() >= fragment_header::from(*mark).fragment_length() as usize
    }

    /// The time limit of its current state.
    fn patience(&self) -> Duration {
        let is_silent = self.out.is_empty() && self.record.is_empty() && self.pending.is_empty();
        if is_silent { SILENCE_MAX } else { RECORD_TIME_MAX }
    }

    fn listen(&mut self, export: &Export, mounts: &mut Mounts, now: Instant) -> bool {
        let mut bytes = [0; PENDING_MAX];
        let room = PENDING_MAX - self.pending.len();
        if !self.is_ready() {
            match self.stream.read(&mut bytes[..room]) {
                Ok(0) => return false,
                Ok(len) => {
                    if self.record.is_empty() && self.pending.is_empty() {
                        self.since = now;
                    }
                    self.pending.extend_from_slice(&bytes[..len]);
                }
                Err(error) => {
                    let kind = error.kind();
                    return matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted);
                }
            }
        }
        self.take_record(export, mounts, now)
    }

    /// Answers the first whole record; false if a record is longer than any valid call.
    fn take_record(&mut self, export: &Export, mounts: &mut Mounts, now: Instant) -> bool {
        while let Some((mark, rest)) = self.pending.split_first_chunk::<4>() {
            let mark = fragment_header::from(*mark);
            let len = mark.fragment_length() as usize;
            if self.record.len() + len > RECORD_MAX {
                return false;
            }
            let Some(fragment) = rest.get(..len) else { return true };
            self.record.extend_from_slice(fragment);
            self.pending.drain(..4 + len);
            if mark.eof() {
                let record = std::mem::take(&mut self.record);
                let Some(reply) = answer(export, mounts, self.from, &record) else { return false };
                let mark = fragment_header::new(reply.len() as u32, true);
                self.out.extend(mark.into_xdr_buf());
                self.out.extend(reply);
                self.since = now;
                return true;
            }
        }
        true
    }

    fn flush(&mut self, now: Instant) -> bool {
        while !self.out.is_empty() {
            match self.stream.write(&self.out) {
                Ok(0) => return false,
                Ok(len) => drop(self.out.drain(..len)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
            if self.out.is_empty() {
                self.out = Vec::new();
                self.since = now;
            }
        }
        true
    }
}

/// The maximum number of connections.
const CLIENTS_MAX: usize = 32;
/// The maximum number of connections of one host.
const CLIENTS_OF_HOST_MAX: usize = 4;
/// Connections that are accepted before the clients are served again.
const ACCEPTED_MAX: usize = 8;
/// Bytes of a call: headers with the longest credentials, and a path.
const RECORD_MAX: usize = 4096;
/// Bytes that are read ahead: a fragment and its header.
const PENDING_MAX: usize = RECORD_MAX + 4;
/// How long a client may send nothing.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// How long a client may take to send a record or to read an answer.
const RECORD_TIME_MAX: Duration = Duration::from_secs(10);
/// How often the time limits are checked.
const TICK: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
