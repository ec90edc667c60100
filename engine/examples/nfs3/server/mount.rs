//! The MOUNT protocol, version 3, on TCP: how a client gets the handle of the exported directory.
//!
//! One thread serves all clients, as many as there are places for; a record is at most as long as
//! the longest call can be. A client that says nothing for a while makes room for others.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::export::Export;
use super::mount_calls::{Mounts, answer};

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
        let service =
            Service { listener, export, mounts: Mounts::default(), clients: ArrayVec::new() };
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
    clients: ArrayVec<Client, CLIENTS_MAX>,
}

impl Service {
    fn run(mut self, stop: &rustix::fd::OwnedFd) {
        while !self.wait(stop) {
            self.accept();
            let Service { export, mounts, clients, .. } = &mut self;
            clients.retain(|client| client.serve(export, mounts));
        }
    }

    /// Waits until there is something to do; true if that is to stop.
    fn wait(&self, stop: &rustix::fd::OwnedFd) -> bool {
        let mut fds = ArrayVec::<PollFd<'_>, { CLIENTS_MAX + 2 }>::new();
        fds.push(PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN));
        fds.push(PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN));
        for client in &self.clients {
            let wanted = if client.out.is_empty() { PollFlags::IN } else { PollFlags::OUT };
            fds.push(PollFd::from_borrowed_fd(client.stream.as_fd(), wanted));
        }
        let timeout = Timespec { tv_sec: TICK.as_secs() as i64, tv_nsec: 0 };
        // What was interrupted is looked at again.
        let _ = poll(&mut fds, Some(&timeout));
        !fds[0].revents().is_empty()
    }

    fn accept(&mut self) {
        while let Ok((stream, from)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if self.clients.is_full() {
                let oldest = self.clients.iter().enumerate().min_by_key(|(_, it)| it.heard);
                let oldest = oldest.map_or(0, |(at, _)| at);
                self.clients.swap_remove(oldest);
            }
            self.clients.push(Client::new(stream, from));
        }
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
    /// Answers on their way.
    out: Vec<u8>,
    heard: Instant,
}

impl Client {
    fn new(stream: TcpStream, from: SocketAddr) -> Client {
        let (record, pending, out) = (Vec::new(), Vec::new(), Vec::new());
        Client { stream, from, record, pending, out, heard: Instant::now() }
    }

    /// Reads, answers and writes as far as that goes; false when it is over.
    fn serve(&mut self, export: &Export, mounts: &mut Mounts) -> bool {
        // Who does not take its answers is not listened to.
        let is_up = self.flush() && (!self.out.is_empty() || self.listen(export, mounts));
        is_up && self.flush() && self.heard.elapsed() < SILENCE_MAX
    }

    fn listen(&mut self, export: &Export, mounts: &mut Mounts) -> bool {
        let mut bytes = [0; 4096];
        match self.stream.read(&mut bytes) {
            Ok(0) => false,
            Ok(len) => {
                self.heard = Instant::now();
                self.pending.extend_from_slice(&bytes[..len]);
                self.take_fragments(export, mounts)
            }
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    /// Works off what is whole; false if it is longer than anything that we understand.
    fn take_fragments(&mut self, export: &Export, mounts: &mut Mounts) -> bool {
        while let Some((mark, rest)) = self.pending.split_first_chunk::<4>() {
            let mark = u32::from_be_bytes(*mark);
            let (is_last, len) = (mark & LAST_FRAGMENT != 0, (mark & !LAST_FRAGMENT) as usize);
            if self.record.len() + len > RECORD_MAX {
                return false;
            }
            let Some(fragment) = rest.get(..len) else { return true };
            self.record.extend_from_slice(fragment);
            self.pending.drain(..4 + len);
            if is_last {
                let record = std::mem::take(&mut self.record);
                let Some(reply) = answer(export, mounts, self.from, &record) else { return false };
                let mark = LAST_FRAGMENT | reply.len() as u32;
                self.out.extend(mark.to_be_bytes());
                self.out.extend(reply);
            }
        }
        true
    }

    fn flush(&mut self) -> bool {
        while !self.out.is_empty() {
            match self.stream.write(&self.out) {
                Ok(0) => return false,
                Ok(len) => drop(self.out.drain(..len)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        true
    }
}

/// Clients at one time.
const CLIENTS_MAX: usize = 32;
/// Bytes of a call: headers with all that credentials can have, and a path.
const RECORD_MAX: usize = 4096;
const LAST_FRAGMENT: u32 = 1 << 31;
/// How long a client may say nothing.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// How often that is looked at.
const TICK: Duration = Duration::from_secs(5);
