//! A server in an epoll loop of its own: one thread answers calls, and lines of text on a TCP port.
//!
//! ```text
//!   epoll_wait ─┬─ the shard: calls, answered with what they say
//!               ├─ the listener of the port
//!               └─ a connection of the port: `calls_received` is answered with this counter of the shard,
//!                  `stop` ends the loop
//! ```
//! The client is another thread here, over shared memory or TCP; it can as well be another process.

mod port;

use std::error::Error;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use clap::Parser;
use port::Port;
use rpcrdma::{
    Address, Answer, Armed, Call, Clock, Config, Engine, Handler, Provider, ProviderKind, Reply,
    SetupError, Shard, with_provider,
};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

/// What the program does and fails with.
type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Answers calls, and lines of text, in one epoll loop.
#[derive(Debug, Parser)]
#[command(name = "epoll")]
struct Args {
    /// What carries the messages.
    #[arg(short, long, default_value = "shm")]
    provider: ProviderKind,
}

/// Opens the device of an end.
type Open<P> = fn(&Config) -> Result<P, SetupError>;

/// Answers every call with its number.
struct Echo;

impl Handler for Echo {
    fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        reply.payload().put_u32(call.reader().u32().unwrap_or(0));
        reply.send()
    }
}

fn main() -> Outcome<()> {
    println!("epoll: {} calls answered, as the port says", start(Args::parse().provider, 100_000)?);
    Ok(())
}

fn start(over: ProviderKind, calls: u32) -> Outcome<u64> {
    let at = if over == ProviderKind::Shm { "shm:@" } else { "127.0.0.1:0" };
    with_provider!(over, |Device| run(Device::from_config, at, calls))
}

/// Serves this many calls of a client, which then asks the port how many there were.
fn run<P: Provider>(open: Open<P>, at: &str, calls: u32) -> Outcome<u64> {
    let config = Config::default();
    let engine = Engine::new(open(&config)?, config.clone())?;
    let mut shard = engine.shard(Echo)?;
    let server = engine.listen(at.parse::<Address>()?)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let at = listener.local_addr()?;
    thread::scope(|scope| {
        let client = scope.spawn(move || -> Outcome<u64> {
            let called = call(open, server, calls);
            let said = ask(at);
            called.and(said)
        });
        serve(&mut shard, listener)?;
        client.join().expect("the client does not panic")
    })
}

/// The loop: nothing blocks but `epoll_wait`, and that only when the shard is armed.
fn serve<P: Provider, H: Handler>(
    shard: &mut Shard<P, H>,
    listener: TcpListener,
) -> io::Result<()> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &*shard, EventData::new_u64(SHARD), EventFlags::IN)?;
    let (mut port, clock) = (Port::open(listener, &epoll)?, Clock::new());
    let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
    while !port.is_stopped() && !shard.is_stopped() {
        // The port gets its turn under load, too.
        let is_busy = (0..TURNS).all(|_| shard.poll_once(clock.now()));
        let timeout = match shard.arm(clock.now()) {
            Armed::AtMost(most) if !is_busy => most,
            Armed::AtMost(_) | Armed::Ready => Duration::ZERO,
        };
        events.clear();
        let free = rustix::buffer::spare_capacity(&mut events);
        match epoll::wait(&epoll, free, Timespec::try_from(timeout).ok().as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // That the shard is readable needs no answer: it is polled in any case.
        for event in events.iter().filter(|event| event.data.u64() != SHARD) {
            port.on_readable(&epoll, event.data.u64(), &shard.handle().stats())?;
        }
    }
    Ok(())
}

/// Calls, one at a time, and compares what comes back.
fn call<P: Provider>(open: Open<P>, server: Address, calls: u32) -> Outcome<()> {
    let config = Config::default();
    let engine = Engine::new(open(&config)?, config)?;
    let mut client = engine.client()?;
    let peer = client.connect(server)?;
    for number in 0..calls {
        let mut call = client.call(peer, 0)?;
        call.payload().put_u32(number);
        call.submit()?;
        let mut answer = None;
        while answer.is_none() {
            client.poll_for(Duration::from_secs(1), |done| {
                answer = Some(done.result().map(|reply| reply.reader().u32()));
            });
        }
        if answer.transpose()? != Some(Ok(number)) {
            return Err(format!("{number} was not sent back").into());
        }
    }
    Ok(())
}

/// Asks the port for the number of calls, then stops the server.
fn ask(at: SocketAddr) -> Outcome<u64> {
    let mut stream = TcpStream::connect(at)?;
    stream.write_all(b"calls_received\nstop\n")?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(answer.trim().parse()?)
}

/// The name of the shard in the set; those of the port are below.
const SHARD: u64 = u64::MAX;
/// Turns of the shard between two looks at the port.
const TURNS: u32 = 64;
/// Events of one look.
const EVENTS: usize = 16;

#[cfg(test)]
mod tests {
    use rpcrdma::ProviderKind;

    #[test]
    fn the_port_counts_the_calls_that_the_same_thread_answers() {
        for over in [ProviderKind::Shm, ProviderKind::Tcp] {
            assert_eq!(super::start(over, 100).expect("every number comes back"), 100);
        }
    }
}
