//! A server on another host, seen from the client's process.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use rpcrdma_config::Config;
use rpcrdma_engine::Address;

use super::agree::{Heard, Lines, PORT, Wish, Word};
use crate::contenders::call::Load;
use crate::device::pair::Stop;
use crate::error::BenchError;

/// A server on another host that has agreed to answer.
#[derive(Debug)]
pub struct Far {
    lines: Lines,
}

impl Far {
    /// Asks a server to answer such calls. Returns where it listens over RDMA.
    pub fn ask(
        server: SocketAddr,
        load: &Load,
        config: &Config,
    ) -> Result<(Far, Address), BenchError> {
        let stream = TcpStream::connect_timeout(&server, PATIENCE).map_err(|error| {
            failed(&format!("no `rpcrdma-bench serve` answers at {server}: {error}"))
        })?;
        let prepared = stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(LOOK)));
        let mut far = Far { lines: Lines::new(stream) };
        prepared
            .and_then(|()| far.lines.say(&Wish::new(load, config)))
            .map_err(|error| failed(&error))?;
        let mut heard = Instant::now();
        while heard.elapsed() < PATIENCE {
            match far.lines.hear::<Word>() {
                Ok(Heard::Line(Word::At(at))) => return Ok((far, at)),
                Ok(Heard::Line(Word::Refused(why) | Word::Failed(why))) => {
                    return Err(failed(&format!("{server} refuses: {why}")));
                }
                Ok(Heard::Line(Word::Preparing)) => heard = Instant::now(),
                Ok(Heard::Nothing) => {}
                Ok(Heard::Gone) => return Err(failed(&format!("{server} hung up"))),
                Err(error) => {
                    let text = format!("{server} is no `rpcrdma-bench serve`: {error}");
                    return Err(failed(&text));
                }
            }
        }
        Err(failed(&format!("{server} does not answer")))
    }

    /// Watches over it for a round, until the other thread stops.
    pub fn watch(&mut self, stop: &Stop) -> Result<(), BenchError> {
        self.quick().map_err(|error| failed(&error))?;
        while !stop.is_set() {
            match self.lines.hear::<Word>() {
                Ok(Heard::Nothing | Heard::Line(Word::Preparing)) => thread::sleep(LOOK),
                Ok(Heard::Line(Word::Failed(why) | Word::Refused(why))) => {
                    return Err(failed(&why));
                }
                Ok(Heard::Line(Word::At(_))) | Err(_) | Ok(Heard::Gone) => {
                    return Err(failed(&"it has gone"));
                }
            }
        }
        Ok(())
    }

    fn quick(&self) -> std::io::Result<()> {
        self.lines.stream().set_nonblocking(true)
    }
}

/// The address of a server: `HOST`, `HOST:PORT`.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let found = if text.contains(':') && bare.parse::<std::net::Ipv6Addr>().is_err() {
        text.to_socket_addrs()
    } else {
        (bare, PORT).to_socket_addrs()
    };
    let mut found = found.map_err(|error| format!("{text}: {error}"))?;
    found.next().ok_or_else(|| format!("{text}: unknown host"))
}

fn failed(what: &dyn std::fmt::Display) -> BenchError {
    BenchError::Device { who: WHO, what: what.to_string() }
}

const WHO: &str = "the server";
/// Until a server is there, and between two words of one that sets itself up.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[test]
    fn an_address_has_a_port_or_gets_the_usual_one() {
        let of = |text| address(text).expect("an address");
        assert_eq!(of("127.0.0.1:7"), "127.0.0.1:7".parse().expect("one"));
        assert_eq!(of("127.0.0.1"), SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PORT));
        assert_eq!(of("::1").port(), PORT);
        assert_eq!(of("[::1]").port(), PORT);
        assert_eq!(of("[::1]:9").port(), 9);
        assert!(address("").is_err() || address("no.such.host.invalid").is_err());
    }

    #[test]
    fn a_server_that_prepares_is_waited_for() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let at = listener.local_addr().expect("it is bound");
        let server = thread::spawn(move || {
            let (stream, _) = listener.accept().expect("one comes");
            let mut lines = Lines::new(stream);
            for word in [Word::Preparing, Word::Preparing, Word::At(at.into())] {
                lines.say(&word).expect("it reads");
            }
            lines
        });
        let config = Config::profile("latency").expect("it comes with the engine");
        let (_far, told) = Far::ask(at, &nothing(), &config).expect("it is there");
        assert_eq!(told, at.into());
        drop(server.join());
    }

    /// A load of calls without data.
    fn nothing() -> Load {
        Load {
            shape: crate::contenders::call::Shape::new(crate::args::values::Op::Null, 0, 0),
            placement: crate::args::values::Placement::Inline,
            window: 1,
            connections: 1,
            touch: crate::args::values::Touch::None,
            sinks: 0,
        }
    }

    #[test]
    fn another_program_is_not_taken_for_a_server() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let at = listener.local_addr().expect("it is bound");
        let other = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("one comes");
            std::io::Write::write_all(&mut stream, b"220 mail\n").expect("it reads");
            stream
        });
        let config = Config::profile("latency").expect("it comes with the engine");
        let load = nothing();
        let error = Far::ask(at, &load, &config).expect_err("it is a mail server");
        assert!(error.to_string().contains("is no `rpcrdma-bench serve`"), "{error}");
        drop(other.join());
        let error = Far::ask(at, &load, &config).expect_err("it no longer listens");
        assert!(error.to_string().contains("no `rpcrdma-bench serve` answers"), "{error}");
    }
}
