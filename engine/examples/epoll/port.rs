//! The text port: lines of TCP connections, each answered with a line. Nothing here blocks.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use rpcrdma::Snapshot;
use rustix::event::epoll::{self, EventData, EventFlags};

/// The listener and its connections, each with a name in the set.
pub struct Port {
    listener: TcpListener,
    open: HashMap<u64, Talk>,
    next: u64,
    is_stopped: bool,
}

/// A connection, and the line that is not complete yet.
struct Talk {
    stream: TcpStream,
    line: Vec<u8>,
}

impl Port {
    pub fn open(listener: TcpListener, epoll: &OwnedFd) -> io::Result<Port> {
        listener.set_nonblocking(true)?;
        epoll::add(epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        Ok(Port { listener, open: HashMap::new(), next: LISTENER + 1, is_stopped: false })
    }

    /// Whether a program has said `stop`.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Serves the readable descriptor of this name: a new client, or the line of one.
    pub fn on_readable(&mut self, epoll: &OwnedFd, name: u64, stats: &Snapshot) -> io::Result<()> {
        if name == LISTENER {
            return self.accept(epoll);
        }
        let Some(talk) = self.open.get_mut(&name) else { return Ok(()) };
        match talk.read(stats) {
            Ok(Said::Something) => {}
            Ok(Said::Stop) => self.is_stopped = true,
            // Its descriptor leaves the set when it is closed.
            Ok(Said::End) | Err(_) => drop(self.open.remove(&name)),
        }
        Ok(())
    }

    fn accept(&mut self, epoll: &OwnedFd) -> io::Result<()> {
        // Who is gone already, or has no descriptor, is not served.
        let Ok((stream, _)) = self.listener.accept() else { return Ok(()) };
        stream.set_nonblocking(true)?;
        epoll::add(epoll, &stream, EventData::new_u64(self.next), EventFlags::IN)?;
        self.open.insert(self.next, Talk { stream, line: Vec::new() });
        self.next += 1;
        Ok(())
    }
}

/// What a connection has said.
enum Said {
    Something,
    Stop,
    End,
}

impl Talk {
    /// Reads some bytes, and answers the lines that they complete. Who does not read the answers
    /// loses the connection.
    fn read(&mut self, stats: &Snapshot) -> io::Result<Said> {
        let mut bytes = [0; 256];
        let count = self.stream.read(&mut bytes)?;
        for byte in &bytes[..count] {
            if *byte != b'\n' {
                self.line.push(*byte);
                continue;
            }
            let line = String::from_utf8_lossy(&self.line).into_owned();
            self.line.clear();
            if line == "stop" {
                return Ok(Said::Stop);
            }
            match stats.iter().find(|(name, _)| *name == line) {
                Some((_, count)) => self.stream.write_all(format!("{count}\n").as_bytes())?,
                None => self.stream.write_all(b"no such counter\n")?,
            }
        }
        let is_over = count == 0 || self.line.len() > LINE_MAX;
        Ok(if is_over { Said::End } else { Said::Something })
    }
}

/// The name of the listener.
const LISTENER: u64 = 0;
/// The longest line.
const LINE_MAX: usize = 256;
