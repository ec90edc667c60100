//! A server in another process, of this host or of another, seen from the client's process.

use std::env;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rpcrdma::provider::Waker;
use rpcrdma::{Address, ProviderKind};
use rpcrdma_config::Config;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use super::agree::{ClientMessage, Lines, Received, Request, ServerCounts, ServerMessage};
use super::rendezvous;
use crate::call::Load;
use crate::contenders::tally::{ServerPart, Tally};
use crate::device::Place;
use crate::error::BenchError;
use crate::machine::CorePair;
use crate::machine::pair::{self, PairOutcome, Stop};

/// A server elsewhere that has agreed to answer.
#[derive(Debug)]
pub struct Far {
    // First, so that the process ends by itself.
    lines: Lines,
    who: String,
    seen: ServerCounts,
    _process: Option<OwnProcess>,
}

impl Far {
    /// Asks a server to answer such calls. Returns where it listens over RDMA.
    pub fn ask(
        place: Place,
        cores: CorePair,
        load: &Load,
        config: &Config,
    ) -> Result<(Far, Address), BenchError> {
        let (lines, who, process) = match place {
            Place::Host(server) => (connected(server)?, server.to_string(), None),
            Place::Process(over, address) => {
                let (lines, process) = start(cores, over, address)?;
                (lines, "the second process".to_owned(), Some(process))
            }
        };
        let mut far = Far { lines, who, seen: ServerCounts::default(), _process: process };
        far.say(&Request::new(load, config))?;
        match far.word()? {
            ServerMessage::At(at) => Ok((far, at)),
            other => Err(far.unexpected(&other)),
        }
    }

    /// Runs the client's part of a round on its core, while the server answers on its own and
    /// counts what is named.
    pub fn round<T: Send>(
        &mut self,
        core: u32,
        tally: Tally,
        client: impl FnOnce(&Stop) -> Result<T, BenchError> + Send,
    ) -> Result<PairOutcome<T, ServerPart>, BenchError> {
        self.say(&ClientMessage::Go(tally))?;
        match self.word()? {
            ServerMessage::Going => {}
            other => return Err(self.unexpected(&other)),
        }
        let (lines, done) = (&mut self.lines, Waker::set_up()?);
        let (client, preempted) = pair::beside(
            core,
            |stop| {
                let ended = client(stop);
                done.ring();
                ended
            },
            |stop| watch(lines, &done, stop),
        )?;
        self.pause()?;
        let server = self.seen.part;
        Ok(PairOutcome { client, server, preempted: preempted + server.preempted })
    }

    /// Has it stop polling until the next round.
    pub fn pause(&mut self) -> Result<(), BenchError> {
        self.say(&ClientMessage::Pause)?;
        match self.word()? {
            ServerMessage::Paused(seen) => self.seen = *seen,
            other => return Err(self.unexpected(&other)),
        }
        Ok(())
    }

    /// What it had counted when it paused.
    pub fn seen(&self) -> ServerCounts {
        self.seen
    }

    fn say(&mut self, what: &impl Serialize) -> Result<(), BenchError> {
        let said = self.lines.say(what);
        said.map_err(|error| failed(&format!("{} has gone: {error}", self.who)))
    }

    /// Waits for its next word.
    fn word(&mut self) -> Result<ServerMessage, BenchError> {
        let who = &self.who;
        let mut last = Instant::now();
        while last.elapsed() < PATIENCE {
            match self.lines.receive::<ServerMessage>() {
                Ok(Received::Line(ServerMessage::Preparing)) => last = Instant::now(),
                Ok(Received::Line(ServerMessage::Refused(why))) => {
                    return Err(failed(&format!("{who} refuses: {why}")));
                }
                Ok(Received::Line(ServerMessage::Failed(why))) => return Err(failed(&why)),
                Ok(Received::Line(word)) => return Ok(word),
                Ok(Received::Nothing) => {}
                Ok(Received::Gone) => return Err(failed(&format!("{who} hung up"))),
                Err(error) => {
                    let text = format!("{who} is no `rpcrdma-bench serve`: {error}");
                    return Err(failed(&text));
                }
            }
        }
        Err(failed(&format!("{who} does not answer")))
    }

    fn unexpected(&self, word: &ServerMessage) -> BenchError {
        failed(&format!("{} says {word:?} when it should not", self.who))
    }
}

/// Watches over a server for a round, until the client is done. It takes no time of any core unless
/// something happens.
fn watch(lines: &mut Lines, done: &Waker, stop: &Stop) -> Result<(), BenchError> {
    while !stop.is_set() {
        let said = {
            let mut fds =
                [PollFd::new(lines.socket(), PollFlags::IN), PollFd::new(done, PollFlags::IN)];
            // A signal may end it, which is handled elsewhere.
            let _ = poll(&mut fds, Timespec::try_from(LOOK).ok().as_ref());
            if !fds[1].revents().is_empty() {
                return Ok(());
            }
            !fds[0].revents().is_empty()
        };
        if !said {
            continue;
        }
        match lines.receive::<ServerMessage>() {
            Ok(Received::Nothing) => {}
            Ok(Received::Line(ServerMessage::Failed(why) | ServerMessage::Refused(why))) => {
                return Err(failed(&why));
            }
            Ok(Received::Line(_) | Received::Gone) | Err(_) => return Err(failed(&"it has gone")),
        }
    }
    Ok(())
}

fn connected(server: Address) -> Result<Lines, BenchError> {
    rendezvous::connect(server, PATIENCE, LOOK)
        .map_err(|error| failed(&format!("no `rpcrdma-bench serve` answers at {server}: {error}")))
}

/// This program once more, with a socket as its standard input. It is ended with this value.
#[derive(Debug)]
pub struct OwnProcess(Child);

impl OwnProcess {
    /// Starts it with these words. The other end of the socket waits for so long at a time.
    pub fn start(words: &[String], patience: Duration) -> Result<(Lines, OwnProcess), String> {
        let program = own_program()?;
        let pair =
            UnixStream::pair().and_then(|(here, there)| Ok((Lines::new(here, patience)?, there)));
        let (lines, there) = pair.map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        // In a group of its own: Ctrl-C ends this program early, which then has a result.
        command.args(words).stdin(OwnedFd::from(there)).stdout(Stdio::null()).process_group(0);
        // Without the folder: it goes into reports that are sent to others.
        let child = command.spawn().map_err(|error| format!("{PROGRAM}: {error}"))?;
        Ok((lines, OwnProcess(child)))
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.0.wait()
    }
}

impl Drop for OwnProcess {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server that answers who is at the other end of its standard input.
fn start(
    cores: CorePair,
    over: ProviderKind,
    address: Option<IpAddr>,
) -> Result<(Lines, OwnProcess), BenchError> {
    let words = ["serve", "--on-stdin", "--quiet", "--provider", over.as_str(), "--cores"];
    let mut words: Vec<String> = words.map(str::to_owned).to_vec();
    words.push(format!("{},{}", cores.client, cores.server));
    words.extend(address.iter().flat_map(|ip| ["--address".to_owned(), ip.to_string()]));
    OwnProcess::start(&words, LOOK).map_err(|why| failed(&why))
}

/// The file of this program, if it is the command, which can run itself once more.
pub fn own_program() -> Result<PathBuf, &'static str> {
    let program = env::current_exe().map_err(|_| "this program has no file")?;
    if program.file_stem().is_none_or(|name| name != PROGRAM) {
        return Err("only the command rpcrdma-bench runs itself once more");
    }
    Ok(program)
}

fn failed(what: &dyn std::fmt::Display) -> BenchError {
    BenchError::Device { who: WHO, what: what.to_string() }
}

const WHO: &str = "the server";
/// Until a server is there, and between two words of one that sets itself up.
const PATIENCE: Duration = Duration::from_secs(10);
/// Long: who waits for words is not to disturb who measures.
const LOOK: Duration = Duration::from_millis(250);
pub const PROGRAM: &str = "rpcrdma-bench";

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    use super::*;

    #[test]
    fn a_server_that_prepares_is_waited_for() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let at = listener.local_addr().expect("it is bound");
        let server = thread::spawn(move || {
            let (stream, _) = listener.accept().expect("one comes");
            let mut lines = Lines::new(stream, LOOK).expect("a socket");
            for word in
                [ServerMessage::Preparing, ServerMessage::Preparing, ServerMessage::At(at.into())]
            {
                lines.say(&word).expect("it reads");
            }
            lines
        });
        let config = Config::profile("latency").expect("it comes with the engine");
        let (_far, stated) =
            Far::ask(Place::Host(at.into()), CORES, &nothing(), &config).expect("it is there");
        assert_eq!(stated, at.into());
        drop(server.join());
    }

    /// Nothing runs there.
    const CORES: CorePair = CorePair { client: 0, server: 1 };

    /// A load of calls without data.
    fn nothing() -> Load {
        Load {
            shape: crate::call::Shape::new(crate::values::Op::Null, 0, 0),
            placement: crate::values::Placement::Inline,
            window: 1,
            connections: 1,
            touch: crate::values::Touch::None,
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
        let error = Far::ask(Place::Host(at.into()), CORES, &load, &config)
            .expect_err("it is a mail server");
        assert!(error.to_string().contains("is no `rpcrdma-bench serve`"), "{error}");
        drop(other.join());
        let error = Far::ask(Place::Host(at.into()), CORES, &load, &config)
            .expect_err("it no longer listens");
        assert!(error.to_string().contains("no `rpcrdma-bench serve` answers"), "{error}");
    }
}
