//! The other end of `rping` of rdma-core, over the seam of the providers: a server, or a client.
//!
//! ```text
//!   client ── Send: key, address, length of the ping ──▶ server
//!          ◀── RDMA Read of the ping ──
//!          ◀── Send: go ahead ──
//!          ── Send: key, address, length of where the pong goes ──▶
//!          ◀── RDMA Write of the pong, which is the ping ──
//!          ◀── Send: go ahead ──                               and again
//! ```

use std::process::ExitCode;
use std::time::{Duration, Instant};

use rpcrdma::{Address, Config, Provider, Tcp};
use rpcrdma_mempool::Access;
use rpcrdma_tests::raw_peer::RawPeer;
use rpcrdma_tests::setup::{checked, small};
use rpcrdma_verbs::Verbs;
use rpcrdma_xdr::RdmaSegment;

const USAGE: &str = "pinger serve ADDRESS [OPTION]...     answers a client until it disconnects
pinger call ADDRESS [OPTION]...      pings a server

  --provider NAME   tcp or verbs (tcp)
  --device NAME     of verbs (auto)
  --crc yes         asks for checksums (tcp)
  --count N         pings (10)
  --size N          bytes of a ping, from 1 to 65536 (64)
  --seconds N       after that it has hung (20)

Ends with 0 if all pings came back, and as many as requested.";

/// The command line.
struct Wanted {
    serves: bool,
    at: Address,
    provider: String,
    device: String,
    crc: bool,
    count: u32,
    size: usize,
    patience: Duration,
}

fn main() -> ExitCode {
    let Some(wanted) = wanted() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let config = config(&wanted);
    let ended = match &*wanted.provider {
        "verbs" => Verbs::from_config(&config).map(|device| run(&device, &wanted)),
        _ => Tcp::from_config(&config).map(|device| run(&device, &wanted)),
    };
    match ended.map_err(|why| why.to_string()).and_then(|ended| ended) {
        Ok(count) => {
            println!("{count} pings came back");
            ExitCode::from(u8::from(count != wanted.count))
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn wanted() -> Option<Wanted> {
    let mut words = std::env::args().skip(1);
    let serves = match &*words.next()? {
        "serve" => true,
        "call" => false,
        _ => return None,
    };
    let at = words.next()?.parse().ok()?;
    let mut wanted = Wanted {
        serves,
        at,
        provider: "tcp".into(),
        device: "auto".into(),
        crc: false,
        count: 10,
        size: 64,
        patience: Duration::from_secs(20),
    };
    while let Some(option) = words.next() {
        let value = words.next()?;
        match &*option {
            "--provider" if ["tcp", "verbs"].contains(&&*value) => wanted.provider = value,
            "--device" => wanted.device = value,
            "--crc" => wanted.crc = value == "yes",
            "--count" => wanted.count = value.parse().ok()?,
            "--size" => {
                wanted.size = value.parse().ok().filter(|size| (1..=SIZE_MAX).contains(size))?
            }
            "--seconds" => wanted.patience = Duration::from_secs(value.parse().ok()?),
            _ => return None,
        }
    }
    Some(wanted)
}

fn config(wanted: &Wanted) -> Config {
    let mut raw = small();
    raw.engine.provider = wanted.provider.as_str().into();
    raw.verbs.device = wanted.device.as_str().into();
    raw.tcp.crc = wanted.crc;
    checked(&raw)
}

/// Makes one end, and returns the number of pings that came back.
fn run<P: Provider>(device: &P, wanted: &Wanted) -> Result<u32, String> {
    let peer = RawPeer::sized(device, 4, 8);
    let mut end = End { peer, until: Instant::now() + wanted.patience };
    if wanted.serves { end.serve(wanted) } else { end.call(wanted) }
}

struct End<P: Provider> {
    peer: RawPeer<P>,
    until: Instant,
}

impl<P: Provider> End<P> {
    fn serve(&mut self, wanted: &Wanted) -> Result<u32, String> {
        println!("listening at {}", self.peer.listen_at(wanted.at));
        self.wait("a client", |peer| peer.is_connected())?;
        let mut count = 0;
        loop {
            let Some(ping) = self.wait_or_end(|peer| peer.recv())? else { return Ok(count) };
            let from = advertised(&ping)?;
            self.post("a Read", |peer| peer.read(&from))?;
            let data = self.next("what was read", RawPeer::fetched)?;
            self.post("a Send", |peer| peer.send(&GO_AHEAD))?;
            let to = advertised(&self.next("where the pong goes", RawPeer::recv)?)?;
            if (to.length as usize) < data.len() {
                return Err(format!("{} bytes are read, {} can be written", data.len(), to.length));
            }
            self.post("a Write", |peer| peer.write(&to, &data))?;
            self.post("a Send", |peer| peer.send(&GO_AHEAD))?;
            count += 1;
        }
    }

    fn call(&mut self, wanted: &Wanted) -> Result<u32, String> {
        self.peer.connect(wanted.at);
        self.wait("a server", |peer| peer.is_connected())?;
        for number in 0..wanted.count {
            let ping = ping(number, wanted.size);
            let from = self.peer.show(&ping, Access::REMOTE_READ);
            self.post("a Send", |peer| peer.send(&advertisement(&from)))?;
            self.next("a go-ahead after the Read", RawPeer::recv)?;
            let to = self.peer.show(&vec![0; wanted.size], Access::REMOTE_WRITE);
            self.post("a Send", |peer| peer.send(&advertisement(&to)))?;
            self.next("a go-ahead after the Write", RawPeer::recv)?;
            if self.peer.seen(&to) != ping {
                return Err(format!("the pong {number} is not the ping"));
            }
            [from, to].iter().for_each(|shown| self.peer.hide(shown));
        }
        self.wait("the end of what was sent", |peer| peer.is_quiet())?;
        self.peer.disconnect();
        Ok(wanted.count)
    }

    fn post(
        &mut self,
        what: &str,
        post: impl FnOnce(&mut RawPeer<P>) -> bool,
    ) -> Result<(), String> {
        if post(&mut self.peer) { Ok(()) } else { Err(format!("{what} is not taken")) }
    }

    /// Waits for what comes, as long as there is a connection.
    fn next<T>(
        &mut self,
        what: &str,
        take: impl Fn(&mut RawPeer<P>) -> Option<T>,
    ) -> Result<T, String> {
        self.wait_or_end(take)?.ok_or_else(|| format!("the connection ended before {what} came"))
    }

    /// The same; `None` at the end of the connection.
    fn wait_or_end<T>(
        &mut self,
        take: impl Fn(&mut RawPeer<P>) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let mut taken = None;
        self.wait("more", |peer| {
            taken = take(peer);
            taken.is_some() || peer.is_lost()
        })?;
        Ok(taken)
    }

    fn wait(
        &mut self,
        what: &str,
        mut is_there: impl FnMut(&mut RawPeer<P>) -> bool,
    ) -> Result<(), String> {
        loop {
            self.peer.turn().map_err(|why| why.to_string())?;
            if is_there(&mut self.peer) {
                return Ok(());
            }
            if Instant::now() > self.until {
                return Err(format!("it has hung: waiting for {what}"));
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// The bytes of a ping: its number, letters, and a zero, as far as which `rping` writes them back.
fn ping(number: u32, size: usize) -> Vec<u8> {
    let text = format!("rdma-ping-{number}: ").into_bytes();
    let text = text.into_iter().chain((b'A'..=b'z').cycle());
    text.take(size.saturating_sub(1)).chain([0]).collect()
}

/// An address of memory as `rping` sends it: address, key and length.
fn advertisement(shown: &RdmaSegment) -> Vec<u8> {
    let RdmaSegment { handle, length, offset } = *shown;
    [&offset.to_be_bytes()[..], &handle.to_be_bytes(), &length.to_be_bytes()].concat()
}

fn advertised(bytes: &[u8]) -> Result<RdmaSegment, String> {
    let wrong = || format!("{} bytes in place of 16 that name memory", bytes.len());
    let (offset, rest) = bytes.split_first_chunk().ok_or_else(wrong)?;
    let (handle, rest) = rest.split_first_chunk().ok_or_else(wrong)?;
    let [length] = rest.as_chunks().0 else { return Err(wrong()) };
    let [handle, length] = [handle, length].map(|bytes| u32::from_be_bytes(*bytes));
    if length as usize > SIZE_MAX {
        return Err(format!("{length} bytes are more than {SIZE_MAX}"));
    }
    Ok(RdmaSegment { handle, length, offset: u64::from_be_bytes(*offset) })
}

/// A message of the length of an advertisement; what it says does not matter.
const GO_AHEAD: [u8; 16] = [0; 16];
const SIZE_MAX: usize = 64 << 10;
/// Between two looks.
const LOOK: Duration = Duration::from_micros(200);
