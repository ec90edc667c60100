//! The MOUNT protocol, version 3, on TCP: how a client gets the handle of the exported directory.
//!
//! One thread serves all clients, as many as there are places for, one call of each at a time. What a
//! client costs has a limit:
//!
//! ```text
//!   connections   4 of a host and 32 in all: one more takes the place of its host's oldest, or is closed
//!   memory        a record as long as the longest call can be, and one answer
//!   time          10 s for a record, from its first byte, and for taking an answer; 60 s of silence
//! ```

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use nfs3_types::rpc::fragment_header;
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
    /// Starts to serve.
    ///
    /// # Errors
    /// If the address is not to be had.
    pub fn start(at: SocketAddr, export: Arc<Export>) -> std::io::Result<MountServer> {
        let listener = TcpListener::bind(at)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let service = Service::new(listener, export);
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("nfs3-mount".into())
            .spawn(move || service.run(&stopped))?;
        Ok(MountServer { address, stop, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MountServer {
    fn drop(&mut self) {
        // A counter that is full would have stopped it before.
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A panic was reported by its thread.
            let _ = thread.join();
        }
    }
}

struct Service {
    listener: TcpListener,
    export: Arc<Export>,
    mounts: Mounts,
    /// The oldest first.
    clients: ArrayVec<Client, CLIENTS_MAX>,
    /// No connection can be accepted now: descriptors may be used up.
    is_deaf: bool,
}

impl Service {
    fn new(listener: TcpListener, export: Arc<Export>) -> Service {
        let (mounts, clients) = (Mounts::default(), ArrayVec::new());
        Service { listener, export, mounts, clients, is_deaf: false }
    }

    fn run(mut self, stop: &rustix::fd::OwnedFd) {
        while !self.wait(stop) {
            self.turn(Instant::now());
        }
    }

    /// Serves each client once, and accepts a few more.
    fn turn(&mut self, now: Instant) {
        let Service { export, mounts, clients, .. } = self;
        clients.retain(|client| client.serve(export, mounts, now));
        self.accept(now);
    }

    /// Waits until there is something to do; true if that is to stop.
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
        let tick = if self.clients.iter().any(Client::is_ready) { Duration::ZERO } else { TICK };
        let timeout = Timespec { tv_sec: tick.as_secs() as i64, tv_nsec: 0 };
        // What was interrupted is looked at again.
        let _ = poll(&mut fds, Some(&timeout));
        !fds[0].revents().is_empty()
    }

    fn accept(&mut self, now: Instant) {
        for _each in 0..ACCEPTED_MAX {
            let accepted = self.listener.accept();
            // Else a connection that cannot be had would be tried without end.
            self.is_deaf = accepted.as_ref().is_err_and(|error| {
                !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionAborted)
            });
            let Ok((stream, from)) = accepted else { break };
            if stream.set_nonblocking(true).is_ok() {
                self.admit(Client::new(stream, from, now));
            }
        }
    }

    /// Gives a client a place: its host's oldest one if that has as many as one may have. Where all are
    /// taken by others the client is closed.
    fn admit(&mut self, client: Client) {
        let host = host(client.from);
        let are_its = self.clients.iter().map(|client| self::host(client.from) == host);
        if let Some(oldest) = oldest_of_full(are_its, CLIENTS_OF_HOST_MAX) {
            self.clients.remove(oldest);
        }
        // Dropping it closes it.
        let _ = self.clients.try_push(client);
    }
}

/// Who is one client, however many addresses it has: a host by version 4, a network by version 6.
fn host(from: SocketAddr) -> IpAddr {
    match from.ip().to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) >> HOST_BITS << HOST_BITS;
            IpAddr::V6(network.into())
        }
        address => address,
    }
}

/// A client, and what it has said so far.
struct Client {
    stream: TcpStream,
    from: SocketAddr,
    /// Fragments of a record, without their marks.
    record: Vec<u8>,
    /// Bytes that came and are not in a whole fragment yet.
    pending: Vec<u8>,
    /// The answer on its way.
    out: Vec<u8>,
    /// When it began what it does: to be silent, to send a record, or to take an answer.
    since: Instant,
}

impl Client {
    fn new(stream: TcpStream, from: SocketAddr, now: Instant) -> Client {
        let (record, pending, out) = (Vec::new(), Vec::new(), Vec::new());
        Client { stream, from, record, pending, out, since: now }
    }

    /// Reads, answers one call and writes, as far as that goes; false when it is over.
    fn serve(&mut self, export: &Export, mounts: &mut Mounts, now: Instant) -> bool {
        // Who does not take its answer is not listened to.
        let is_up = self.flush(now)
            && (!self.out.is_empty() || self.listen(export, mounts, now))
            && self.flush(now);
        is_up && now.saturating_duration_since(self.since) < self.patience()
    }

    /// Whether a fragment is there that was not looked at yet.
    fn is_ready(&self) -> bool {
        let Some((mark, rest)) = self.pending.split_first_chunk::<4>() else { return false };
        self.out.is_empty() && rest.len() >= fragment_header::from(*mark).fragment_length() as usize
    }

    /// How long it may do what it does.
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

    /// Answers the first record that is whole; false if it is longer than anything that we understand.
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

/// Clients at one time.
const CLIENTS_MAX: usize = 32;
/// Of them from one host.
const CLIENTS_OF_HOST_MAX: usize = 4;
/// Connections that are accepted before clients are served again.
const ACCEPTED_MAX: usize = 8;
/// Bits of an address of version 6 that a host chooses itself.
const HOST_BITS: u32 = 64;
/// Bytes of a call: headers with all that credentials can have, and a path.
const RECORD_MAX: usize = 4096;
/// Bytes that are read ahead: a fragment and its mark.
const PENDING_MAX: usize = RECORD_MAX + 4;
/// How long a client may say nothing.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// How long a record may take, or an answer until it is taken.
const RECORD_TIME_MAX: Duration = Duration::from_secs(10);
/// How often that is looked at.
const TICK: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
