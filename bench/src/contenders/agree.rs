//! What client and server agree on before the first call and between rounds, over a socket beside
//! the RDMA connection: TCP to another host, a Unix socket to a process of this host, or the standard
//! input of one that the client has started.
//!
//! ```text
//!   client                                                      server
//!   {"bench":1,"load":...,"config":...}  ───────────────▶   sets an engine up like that
//!                         "preparing"  ◀───────────────   which takes a while: said every second
//!             {"at":"10.0.0.2:40001"}  ◀───────────────   and listens there over RDMA
//!                            "pause"  ───────────────▶   does not poll any more
//!               {"paused":{...}}       ◀───────────────   with what it has counted
//!                   {"go":"nothing"}   ───────────────▶   polls
//!                             "going"  ◀───────────────
//!                                        ... calls of a round, then "pause" ...
//!          {"failed":"a call with ..."}  ◀───────────────   if something is wrong with a call
//!   closes  ─────────────────────────────────────────────▶   tears the engine down
//! ```
//! The client's options decide: sizes of buffers, credits and placement are the same on both sides
//! because the server is given them, so that they cannot contradict each other. What it cannot be,
//! it refuses with a reason. One line of JSON each way, of bounded length.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rpcrdma::{Address, Snapshot};
use rpcrdma_config::{Config, Raw};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::call::Load;
use crate::contenders::tally::{Held, ServerPart, Tally};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub bench: u32,
    pub load: Load,
    pub config: Raw,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerMessage {
    Preparing,
    #[serde(serialize_with = "as_text", deserialize_with = "of_text")]
    At(Address),
    Going,
    Paused(Box<ServerCounts>),
    /// It does not do that: why.
    Refused(String),
    /// It did, until something was wrong.
    Failed(String),
}

/// What the client says after its request. A server polls from the beginning, so that connections can
/// be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientMessage {
    /// Answer calls, and count what is named.
    Go(Tally),
    Pause,
}

/// What a server has counted when it pauses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerCounts {
    /// Doorbells, Sends and completions of its shard so far. The other counters are not sent.
    #[serde(serialize_with = "as_work", deserialize_with = "of_work")]
    pub counters: Snapshot,
    /// Of the time since it went on.
    pub part: ServerPart,
    pub held: Held,
}

impl Request {
    /// Such calls, of an engine that is set up like this one.
    pub fn new(load: &Load, config: &Config) -> Request {
        Request { bench: PROTOCOL, load: *load, config: config.raw().clone() }
    }

    /// The requested engine, with the provider and the device that `own` names.
    pub fn config(&self, own: &Raw) -> Result<Config, String> {
        if self.bench != PROTOCOL {
            return Err(format!(
                "the client speaks version {} of the agreement, this server version {PROTOCOL}: \
                 use the same rpcrdma-bench on both hosts",
                self.bench
            ));
        }
        let len = self.load.shape.data_len();
        if len > DATA_MAX {
            return Err(format!("{len} bytes of data are more than {DATA_MAX}"));
        }
        // Devices and cores are of the host that has them.
        let (verbs, fabric) = (own.verbs.clone(), own.fabric.clone());
        let mut config = Raw { verbs, fabric, ..self.config.clone() };
        config.engine.provider = own.engine.provider.clone();
        Config::try_from(config).map_err(|error| format!("configuration: {error}"))
    }
}

/// A connection that carries lines of JSON.
#[derive(Debug)]
pub struct Lines {
    stream: BufReader<File>,
    /// The beginning of the next line.
    begun: Vec<u8>,
}

#[derive(Debug)]
pub enum Received<T> {
    Line(T),
    /// Not yet a whole line.
    Nothing,
    /// The other side has gone.
    Gone,
}

impl Lines {
    /// Over a connected stream socket, from which [`Lines::receive`] waits for so long.
    pub fn new(stream: impl Into<OwnedFd>, patience: Duration) -> io::Result<Lines> {
        let stream = File::from(stream.into());
        set_socket_timeout(&stream, Timeout::Recv, Some(patience))?;
        Ok(Lines { stream: BufReader::new(stream), begun: Vec::new() })
    }

    pub fn say(&mut self, what: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_string(what).map_err(io::Error::other)?;
        line.push('\n');
        self.stream.get_mut().write_all(line.as_bytes())
    }

    /// Reads what is there, or waits for it.
    pub fn receive<T: DeserializeOwned>(&mut self) -> io::Result<Received<T>> {
        let room = LINE_MAX - self.begun.len();
        let read = (&mut self.stream).take(room as u64).read_until(b'\n', &mut self.begun);
        match read {
            Ok(_) if self.begun.ends_with(b"\n") => {
                // By way of a value: the parser of the text is compiled for that alone.
                let line = serde_json::from_slice(&std::mem::take(&mut self.begun));
                let line = line.and_then(serde_json::from_value);
                line.map(Received::Line).map_err(io::Error::other)
            }
            Ok(_) if self.begun.len() >= LINE_MAX => {
                Err(io::Error::other("a line that is too long"))
            }
            Ok(_) => Ok(Received::Gone),
            Err(error) if is_for_now(&error) => Ok(Received::Nothing),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(Received::Gone),
            Err(error) => Err(error),
        }
    }

    /// The socket, to wait for other things beside it.
    pub fn socket(&self) -> &File {
        self.stream.get_ref()
    }
}

fn as_work<S: Serializer>(counters: &Snapshot, to: S) -> Result<S::Ok, S::Error> {
    [counters.doorbells, counters.transmissions_sent, counters.completions].serialize(to)
}

fn of_work<'a, D: Deserializer<'a>>(from: D) -> Result<Snapshot, D::Error> {
    let [doorbells, sent, completions] = Deserialize::deserialize(from)?;
    Ok(Snapshot { doorbells, transmissions_sent: sent, completions, ..Snapshot::default() })
}

fn as_text<S: Serializer>(address: &Address, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(address)
}

fn of_text<'a, D: Deserializer<'a>>(from: D) -> Result<Address, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

/// Whether a read may be tried again.
pub fn is_for_now(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

pub const PROTOCOL: u32 = 3;
/// The longest data of a call.
const DATA_MAX: usize = 64 << 20;
/// Longer than any configuration.
const LINE_MAX: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;
    use crate::call::Shape;
    use crate::values::{Op, Placement, Touch};

    fn load(len: usize) -> Load {
        Load {
            shape: Shape::new(Op::Read, len, len),
            placement: Placement::Send,
            window: 7,
            connections: 3,
            touch: Touch::All,
            sinks: 0,
        }
    }

    fn request(len: usize) -> Request {
        Request::new(&load(len), &Config::profile("latency").expect("it comes with the engine"))
    }

    #[test]
    fn a_request_comes_as_it_was_sent() {
        let request = request(4096);
        let text = serde_json::to_string(&request).expect("plain data");
        assert_eq!(serde_json::from_str::<Request>(&text).expect("the same"), request);
        let own = Config::profile("latency").expect("it comes with the engine");
        assert_eq!(request.config(own.raw()).expect("a profile is valid"), own);
    }

    #[test]
    fn the_device_is_the_servers_own() {
        let mut asked = request(64);
        asked.config.verbs.device = "theirs".into();
        let mut own = Raw::default();
        own.verbs.device = "ours".into();
        let config = asked.config(&own).expect("a device is not looked for yet");
        assert_eq!(config.raw().verbs.device, own.verbs.device);
    }

    #[test]
    fn what_a_server_cannot_be_is_refused_with_a_reason() {
        let refused =
            |request: Request| request.config(&Raw::default()).expect_err("it is too much");
        let other = refused(Request { bench: 7, ..request(64) });
        assert!(other.contains("version 7") && other.contains("on both hosts"), "{other}");
        assert!(request(DATA_MAX).config(&Raw::default()).is_ok());
        assert!(refused(request(DATA_MAX + 1)).contains("bytes of data"));
        let mut wrong = request(64);
        wrong.config.send.slots = -1;
        assert!(refused(wrong).contains("configuration: "));
    }

    #[test]
    fn the_address_of_a_server_is_plain_text() {
        for (at, text) in [
            ("10.0.0.2:40001", r#"{"at":"10.0.0.2:40001"}"#),
            ("shm:@bench", r#"{"at":"shm:@bench"}"#),
        ] {
            let word = ServerMessage::At(at.parse().expect("an address"));
            assert_eq!(serde_json::to_string(&word).expect("plain data"), text);
            assert_eq!(serde_json::from_str::<ServerMessage>(text).expect("the same"), word);
        }
        assert!(serde_json::from_str::<ServerMessage>(r#"{"at":"10.0.0.2"}"#).is_err());
    }

    fn connected() -> [Lines; 2] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let to = listener.local_addr().expect("it is bound");
        let client = TcpStream::connect(to).expect("it listens");
        let both = [client, listener.accept().expect("one has come").0];
        both.map(|stream| Lines::new(stream, Duration::from_secs(5)).expect("a socket"))
    }

    #[test]
    fn lines_are_separated_and_an_end_is_seen() {
        let [mut a, mut b] = connected();
        let words = [ServerMessage::Refused("no".into()), ServerMessage::Failed("later".into())];
        words.iter().for_each(|word| a.say(word).expect("b listens"));
        drop(a);
        for word in words {
            let received = loop {
                match b.receive::<ServerMessage>().expect("lines") {
                    Received::Nothing => {}
                    Received::Line(received) => break received,
                    Received::Gone => panic!("before {word:?}"),
                }
            };
            assert_eq!(received, word);
        }
        assert!(matches!(b.receive::<ServerMessage>(), Ok(Received::Gone)));
    }

    #[test]
    fn a_line_that_is_none_and_one_without_end_are_errors() {
        let [a, mut b] = connected();
        a.socket().write_all(b"GET / HTTP/1.1\n").expect("b listens");
        assert!(b.receive::<Request>().is_err());
        let [a, mut b] = connected();
        let sender = std::thread::spawn(move || a.socket().write_all(&[b' '; 2 * LINE_MAX]));
        let error = loop {
            match b.receive::<Request>() {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains("too long"), "{error}");
        drop(b);
        // It may have been cut off in the middle.
        let _ = sender.join().expect("no panic");
    }
}
