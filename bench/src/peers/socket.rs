//! Sockets: a ping-pong with the wire lengths of the RPC through the kernel, or a stream of its data.
//!
//! ```text
//!   client   slots of requests ── write ──▶ socket ── read ──▶ inbox    server
//!   inbox   ◀── read ── socket ◀── write ──         slots of replies
//! ```
//! A stream goes one way, from the server to the client, until the client sends the end mark.
//! It is what a program without RDMA would use between two processes of a host (unix) or of two
//! hosts (TCP, here over the loopback device). Both sides either spin on sockets that never block,
//! or block in `read` as most programs do. Messages are not copied by the program; the number in
//! front of each is written, and checked with the bytes behind it by the receiver.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::net::{Shutdown, shutdown};
use strum::{IntoStaticStr, VariantArray};

use crate::call::Traffic;
use crate::contenders::agree::is_for_now;
use crate::error::BenchError;
use crate::machine::CorePair;
use crate::machine::pair::{self, Stop};
use crate::stats::{Contender, Meter, Quota, Round};

/// What kind of socket, and how both sides wait; the names are those that they are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum SocketKind {
    Unix,
    /// TCP over the loopback device, without delay.
    Tcp,
    UnixBlock,
    TcpBlock,
    /// TCP over the loopback device: messages go one way, as many as it takes.
    TcpStream,
}

impl SocketKind {
    fn is_unix(self) -> bool {
        matches!(self, SocketKind::Unix | SocketKind::UnixBlock)
    }

    /// Whether both sides spin on sockets that never block.
    pub fn spins(self) -> bool {
        matches!(self, SocketKind::Unix | SocketKind::Tcp | SocketKind::TcpStream)
    }

    /// Whether messages go one way, without replies.
    pub fn is_one_way(self) -> bool {
        self == SocketKind::TcpStream
    }
}

#[derive(Debug)]
pub struct Sockets {
    kind: SocketKind,
    cores: CorePair,
    window: u64,
    timed: bool,
    client: SocketEnd,
    server: SocketEnd,
    /// The same sockets, to be shut.
    shutters: [File; 2],
    /// Messages so far, on which both sides agree between rounds.
    exchanged: u64,
}

impl Sockets {
    /// Connects two sockets. Round trips are timed when `timed` and only one is under way.
    pub fn new(
        kind: SocketKind,
        cores: CorePair,
        traffic: Traffic,
        timed: bool,
    ) -> Result<Sockets, BenchError> {
        let who = kind.into_str();
        let Traffic { request_len, reply_len, window } = traffic;
        if !kind.spins() && window > 1 {
            return Err(BenchError::Usage(format!("{who} has one call in flight, like `lat`")));
        }
        // A stream needs no more than one message that is ready.
        let window = if kind.is_one_way() { 1 } else { window };
        let [client, server] = connected(kind).map_err(|error| BenchError::device(who, error))?;
        let shutter = |end: &File| end.try_clone().map_err(|error| BenchError::device(who, error));
        Ok(Sockets {
            shutters: [shutter(&client)?, shutter(&server)?],
            kind,
            cores,
            window: window.into(),
            timed: timed && window == 1 && !kind.is_one_way(),
            client: SocketEnd::new(who, client, request_len, reply_len, window),
            server: SocketEnd::new(who, server, reply_len, request_len, window),
            exchanged: 0,
        })
    }

    pub fn notes(&self) -> Vec<String> {
        let Sockets { kind, client, .. } = self;
        let over = match kind.is_unix() {
            true => "unix stream sockets",
            false => "TCP over the loopback device, without delay",
        };
        let waits = if kind.spins() { "both sides spin" } else { "both sides sleep in read" };
        let (there, back) = (client.out_len, client.in_len);
        let lengths = match kind.is_one_way() {
            true => format!("messages of {back} bytes, one way"),
            false => format!("{there} bytes there and {back} back"),
        };
        vec![format!("{}: {over}, {lengths}, {waits}", kind.into_str())]
    }
}

impl Contender for Sockets {
    fn name(&self) -> &'static str {
        self.kind.into_str()
    }

    fn round(&mut self, quota: Quota) -> Result<Round, BenchError> {
        let Sockets { kind, cores, window, timed, client, server, shutters, exchanged } = self;
        let (kind, from, window, timed) = (*kind, *exchanged, *window, *timed);
        let who = kind.into_str();
        // A warm-up of thousands would take longer than the round where each is a sleep.
        let warm_up = if kind.spins() { u64::MAX } else { SLEEPS };
        let quota = Quota { warm_up: quota.warm_up.min(warm_up), ..quota };
        let [client_shutter, server_shutter] = shutters;
        let outcome = pair::run(
            *cores,
            move |stop| {
                until_done(who, client_shutter, stop, || {
                    let meter = Meter::new(quota);
                    if kind.is_one_way() {
                        return client.receive(from, meter);
                    }
                    let done = if timed {
                        client.ping(from, meter)
                    } else {
                        client.stream(from, window, meter)
                    };
                    let done = done?;
                    client.send_end()?;
                    Ok(done)
                })
            },
            move |stop| {
                until_done(who, server_shutter, stop, || match kind.is_one_way() {
                    true => server.send(from),
                    false => server.answer(from),
                })
            },
        )?;
        let (round, sent) = outcome.client;
        *exchanged = sent;
        Ok(Round { preempted: outcome.preempted, ..round })
    }
}

/// Runs one side. However it fails, the other one learns of it, even in `read`.
fn until_done<T>(
    who: &'static str,
    socket: &File,
    stop: &Stop,
    work: impl FnOnce() -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    // The other side has not begun: it did not get its core.
    if stop.is_set() {
        return Err(BenchError::PeerGone { who });
    }
    let shut = ShutOnDrop(socket);
    let done = work()?;
    mem::forget(shut);
    Ok(done)
}

struct ShutOnDrop<'a>(&'a File);

impl Drop for ShutOnDrop<'_> {
    fn drop(&mut self) {
        // A socket that is not connected any more is as good as shut.
        let _ = shutdown(self.0, Shutdown::Both);
    }
}

#[derive(Debug)]
struct SocketEnd {
    who: &'static str,
    stream: File,
    out_len: usize,
    in_len: usize,
    /// A message for each that may be under way, one behind the other.
    slots: Box<[u8]>,
    /// Bytes of messages that are to be written, and that have been, since the first.
    pushed: u64,
    written: u64,
    inbox: Box<[u8]>,
    filled: usize,
}

impl SocketEnd {
    fn new(
        who: &'static str,
        stream: File,
        out_len: usize,
        in_len: usize,
        window: u32,
    ) -> SocketEnd {
        let (out_len, in_len) = (out_len.max(SHORTEST), in_len.max(SHORTEST));
        let fill = |len: usize| vec![FILL; len * window as usize].into_boxed_slice();
        SocketEnd {
            who,
            stream,
            out_len,
            in_len,
            slots: fill(out_len),
            pushed: 0,
            written: 0,
            inbox: fill(in_len),
            filled: 0,
        }
    }

    /// Times round trips one after the other. Returns the number of messages since the first, too.
    fn ping(&mut self, from: u64, mut meter: Meter) -> Result<(Round, u64), BenchError> {
        let mut number = from;
        loop {
            let start = meter.now();
            self.push(number);
            while !self.flush()? {}
            while self.pull(number)? == 0 {}
            number += 1;
            if !meter.timed(start, meter.now()) {
                return Ok((meter.finish(), number));
            }
        }
    }

    /// Keeps the window full and counts; at the end takes what is still under way.
    fn stream(
        &mut self,
        from: u64,
        window: u64,
        mut meter: Meter,
    ) -> Result<(Round, u64), BenchError> {
        let (mut sent, mut received) = (from, from);
        let mut enough = false;
        loop {
            while !enough && sent - received < window {
                self.push(sent);
                sent += 1;
            }
            self.flush()?;
            let count = self.pull(received)?;
            received += count;
            if count > 0 && !enough {
                enough = !meter.counted(count);
            }
            if enough && sent == received {
                return Ok((meter.finish(), received));
            }
        }
    }

    /// Answers every request until the client sends the end mark.
    fn answer(&mut self, from: u64) -> Result<(), BenchError> {
        let mut number = from;
        loop {
            let count = self.pull(number)?;
            (number..number + count).for_each(|number| self.push(number));
            number += count;
            if self.flush()? && self.has_received_end() {
                return Ok(());
            }
        }
    }

    /// Takes messages that come one way. When it is enough it sends the end mark, and takes those that are
    /// under way until the other side sends it, too.
    fn receive(&mut self, from: u64, mut meter: Meter) -> Result<(Round, u64), BenchError> {
        let (mut number, mut enough) = (from, false);
        loop {
            let count = self.pull(number)?;
            number += count;
            if count > 0 && !enough {
                enough = !meter.counted(count);
                if enough {
                    self.send_end()?;
                }
            }
            if enough && self.has_received_end() {
                return Ok((meter.finish(), number));
            }
        }
    }

    /// Sends one message after the other until the client sends the end mark, and sends it, too.
    fn send(&mut self, from: u64) -> Result<(), BenchError> {
        let mut number = from;
        loop {
            for _ in 0..LOOK_EVERY {
                self.push(number);
                number += 1;
                while !self.flush()? {}
            }
            self.pull(from)?;
            if self.has_received_end() {
                return self.send_end();
            }
        }
    }

    /// A message that is none, in place of the next one.
    fn send_end(&mut self) -> Result<(), BenchError> {
        let mark = END_MARK.to_le_bytes();
        let mut rest = &mark[..];
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if is_for_now(&error) => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        Ok(())
    }

    fn has_received_end(&mut self) -> bool {
        let is_end = self.filled == NUMBER && self.inbox[..NUMBER] == END_MARK.to_le_bytes();
        if is_end {
            self.filled = 0;
        }
        is_end
    }

    /// Makes a message ready. Its slot is free: the one before in it has been answered.
    fn push(&mut self, number: u64) {
        let len = self.slots.len() as u64;
        let at = (self.pushed % len) as usize;
        self.slots[at..][..NUMBER].copy_from_slice(&number.to_le_bytes());
        self.pushed += self.out_len as u64;
    }

    /// Writes what is ready, as far as the socket takes it. True if nothing is left.
    fn flush(&mut self) -> Result<bool, BenchError> {
        while self.written < self.pushed {
            let len = self.slots.len();
            let at = (self.written % len as u64) as usize;
            let ready = (self.pushed - self.written).min((len - at) as u64) as usize;
            match self.stream.write(&self.slots[at..][..ready]) {
                Ok(0) => return Err(BenchError::PeerGone { who: self.who }),
                Ok(count) => self.written += count as u64,
                Err(error) if is_for_now(&error) => return Ok(false),
                Err(error) => return Err(self.failed(error)),
            }
        }
        Ok(true)
    }

    /// Reads once, and checks the messages that are complete: so many, the first of this number.
    fn pull(&mut self, number: u64) -> Result<u64, BenchError> {
        match self.stream.read(&mut self.inbox[self.filled..]) {
            Ok(0) => return Err(BenchError::PeerGone { who: self.who }),
            Ok(count) => self.filled += count,
            Err(error) if is_for_now(&error) => return Ok(0),
            Err(error) => return Err(self.failed(error)),
        }
        let complete = self.filled / self.in_len;
        for (index, message) in self.inbox.chunks_exact(self.in_len).take(complete).enumerate() {
            check(self.who, number + index as u64, message)?;
        }
        let used = complete * self.in_len;
        if used > 0 {
            self.inbox.copy_within(used..self.filled, 0);
            self.filled -= used;
        }
        Ok(complete as u64)
    }

    fn failed(&self, error: io::Error) -> BenchError {
        match error.kind() {
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
                BenchError::PeerGone { who: self.who }
            }
            _ => BenchError::device(self.who, error),
        }
    }
}

/// Whether a message is the one expected: its number, and the bytes at its end; in one of 1024 all
/// bytes.
fn check(who: &'static str, number: u64, message: &[u8]) -> Result<(), BenchError> {
    let (stamp, rest) = message.split_at(NUMBER);
    let looked_at = if number.is_multiple_of(WHOLE_EVERY) { rest.len() } else { rest.len().min(8) };
    let is_right = stamp == number.to_le_bytes()
        && rest[rest.len() - looked_at..].iter().all(|byte| *byte == FILL);
    if is_right {
        return Ok(());
    }
    Err(BenchError::WrongBytes { who, number, detail: format!("it begins with {stamp:02x?}") })
}

/// Both ends of a connection, as the files that they are to the kernel.
fn connected(kind: SocketKind) -> io::Result<[File; 2]> {
    let is_nonblocking = kind.spins();
    if kind.is_unix() {
        let (client, server) = UnixStream::pair()?;
        client.set_nonblocking(is_nonblocking)?;
        server.set_nonblocking(is_nonblocking)?;
        return Ok([client, server].map(|end| File::from(OwnedFd::from(end))));
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    for end in [&client, &server] {
        end.set_nodelay(true)?;
        end.set_nonblocking(is_nonblocking)?;
    }
    Ok([client, server].map(|end| File::from(OwnedFd::from(end))))
}

const NUMBER: usize = 8;
/// Longer than the end mark, and than a message of any RPC.
const SHORTEST: usize = 2 * NUMBER;
const FILL: u8 = 0xa5;
/// No message has this number.
const END_MARK: u64 = u64::MAX;
const SLEEPS: u64 = 200;
/// Messages of a stream between two looks for the end.
const LOOK_EVERY: u32 = 16;
/// One message in so many is looked at as a whole.
const WHOLE_EVERY: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::End as Length;

    fn sockets(
        kind: SocketKind,
        request_len: usize,
        reply_len: usize,
        window: u32,
    ) -> Option<Sockets> {
        let cores = CorePair::choose(None).ok()?;
        let traffic = Traffic { request_len, reply_len, window };
        Some(Sockets::new(kind, cores, traffic, true).expect("the host has sockets"))
    }

    fn quota(count: u64) -> Quota {
        Quota { warm_up: 10, end: Length::Count(count) }
    }

    #[test]
    fn every_kind_times_as_many_round_trips_as_requested_in_every_round() {
        for kind in SocketKind::VARIANTS.iter().copied().filter(|kind| !kind.is_one_way()) {
            let Some(mut sockets) = sockets(kind, 136, 120, 1) else { return };
            for _ in 0..3 {
                let round = sockets.round(quota(50)).expect("both sides are well");
                assert_eq!((round.completed, round.latency.count()), (50, 50), "{kind:?}");
            }
            assert_eq!(sockets.exchanged, 3 * 60);
        }
    }

    #[test]
    fn windows_are_kept_full_with_messages_longer_than_a_socket_holds() {
        for kind in SocketKind::VARIANTS.iter().copied().filter(|kind| kind.spins()) {
            for (request_len, reply_len) in [(136, 120), (80, 500_000), (300_001, 7)] {
                let Some(mut sockets) = sockets(kind, request_len, reply_len, 5) else { return };
                for _ in 0..2 {
                    let round = sockets.round(quota(40)).expect("both sides are well");
                    assert!(round.completed >= 40 && round.latency.count() == 0, "{round:?}");
                }
            }
        }
    }

    #[test]
    fn a_stream_is_counted_where_it_comes_out_and_ends_with_every_message() {
        for len in [1, 4096, 500_000] {
            let Some(mut sockets) = sockets(SocketKind::TcpStream, 16, len, 8) else { return };
            for _ in 0..3 {
                let round = sockets.round(quota(40)).expect("both sides are well");
                assert!(round.completed >= 40 && round.latency.count() == 0, "{round:?}");
            }
            assert!(sockets.exchanged >= 3 * 50 && sockets.client.filled == 0);
            assert_eq!(sockets.server.pushed, sockets.exchanged * sockets.server.out_len as u64);
        }
    }

    #[test]
    fn two_sides_that_block_have_one_under_way() {
        let Ok(cores) = CorePair::choose(None) else { return };
        let kind = SocketKind::UnixBlock;
        let traffic = Traffic { request_len: 100, reply_len: 100, window: 2 };
        let refused = Sockets::new(kind, cores, traffic, false);
        assert!(matches!(refused, Err(BenchError::Usage(_))), "{refused:?}");
    }

    #[test]
    fn a_side_that_fails_ends_the_other_even_in_read() {
        for kind in SocketKind::VARIANTS.iter().copied() {
            let Some(mut sockets) = sockets(kind, 136, 120, 1) else { return };
            sockets.server.slots[20] ^= 1;
            let failed = sockets.round(quota(10)).expect_err("a reply is wrong");
            let is_expected = matches!(
                failed,
                BenchError::WrongBytes { number: 0, .. } | BenchError::PeerGone { .. }
            );
            assert!(is_expected, "{failed}");
        }
    }

    #[test]
    fn messages_are_checked_by_number_and_by_their_end() {
        let mut message = [FILL; 32];
        message[..NUMBER].copy_from_slice(&7u64.to_le_bytes());
        assert!(check("unix", 7, &message).is_ok());
        assert!(matches!(check("unix", 8, &message), Err(BenchError::WrongBytes { .. })));
        message[31] ^= 1;
        assert!(check("unix", 7, &message).is_err());
        message[31] ^= 1;
        message[..NUMBER].copy_from_slice(&1024u64.to_le_bytes());
        message[10] ^= 1;
        assert!(check("unix", 1024, &message).is_err(), "one in so many is looked at as a whole");
    }

    #[test]
    fn a_core_that_is_not_there_fails_and_does_not_hang() {
        for kind in SocketKind::VARIANTS.iter().copied() {
            let Some(mut sockets) = sockets(kind, 136, 120, 1) else { return };
            sockets.cores.server = 1000;
            let failed = sockets.round(quota(10));
            assert!(matches!(failed, Err(BenchError::Core { core: 1000, .. })), "{failed:?}");
        }
    }
}
