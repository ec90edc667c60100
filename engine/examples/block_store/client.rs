//! The client: a window of calls, each for one block of a file.

use std::net::SocketAddr;
use std::time::Duration;

use rpcrdma_engine::incoming::PayloadReader;
use rpcrdma_engine::stats::Snapshot;
use rpcrdma_engine::{
    CallBuilder, CallError, CallRefused, Client, Clock, Completion, ConnectionId, Incoming,
    Provider, SetupError, Turn,
};

use crate::rpc::{self, Procedure, ReplyError};

/// A client with its connection.
pub struct Session<P: Provider> {
    client: Client<P>,
    peer: ConnectionId,
    clock: Clock,
    /// Polls that found nothing since the last that did.
    idle: u32,
}

/// A number of calls of one procedure, of which some are on their way at a time.
pub trait Calls {
    /// What is called.
    const PROCEDURE: Procedure;

    /// Gets ready to call: obtains what the call will take along. False if it is not to be had now.
    fn prepare(&mut self, index: u64, turn: &mut Turn<'_>) -> Result<bool, ClientError> {
        let _ = (index, turn);
        Ok(true)
    }

    /// Adds the arguments to a call that has its header.
    fn arguments(&mut self, index: u64, call: &mut CallBuilder<'_>) {
        let _ = (index, call);
    }

    /// The call that was prepared last has left. If this is not called it was refused, and will be
    /// prepared again.
    fn sent(&mut self) {}

    /// Takes in a reply whose status was good. `results` stands behind the status.
    fn done(
        &mut self,
        index: u64,
        reply: &Incoming<'_>,
        results: PayloadReader<'_>,
    ) -> Result<(), ClientError> {
        let _ = (index, reply, results);
        Ok(())
    }
}

/// Why a file did not get through.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The file cannot be read.
    #[error("the file cannot be read at byte {offset}: {source}")]
    File {
        /// Where.
        offset: u64,
        /// Why.
        source: std::io::Error,
    },
    /// A call cannot be sent.
    #[error("{procedure:?} cannot be called: {why}")]
    Refused {
        /// Which.
        procedure: Procedure,
        /// Why not.
        why: CallRefused,
    },
    /// A call got no reply.
    #[error("{procedure:?} failed: {why}")]
    Call {
        /// Which.
        procedure: Procedure,
        /// Why.
        why: CallError,
    },
    /// The reply says that it did not work, or cannot be understood.
    #[error("{procedure:?} failed: {why}")]
    Reply {
        /// Which.
        procedure: Procedure,
        /// Why.
        why: ReplyError,
    },
    /// Another number of bytes than there are in the block.
    #[error("{procedure:?} of {want} bytes at byte {offset} came to {got}")]
    Length {
        /// Which.
        procedure: Procedure,
        /// Where the block begins.
        offset: u64,
        /// Its bytes.
        want: usize,
        /// What came.
        got: usize,
    },
    /// What came back is not what was written.
    #[error("byte {offset} differs: {want:#04x} was written, {got:#04x} was read")]
    Differs {
        /// Where in the file.
        offset: u64,
        /// The byte of the file.
        want: u8,
        /// The byte that came back.
        got: u8,
    },
    /// Nothing has come for a long time.
    #[error("{procedure:?}: no reply in {seconds} s")]
    Silence {
        /// Which.
        procedure: Procedure,
        /// How long.
        seconds: u64,
    },
}

impl<P: Provider> Session<P> {
    /// Connects.
    ///
    /// # Errors
    /// If there is no connection to be had.
    pub fn connect(mut client: Client<P>, to: SocketAddr) -> Result<Session<P>, SetupError> {
        let peer = client.connect(to)?;
        Ok(Session { client, peer, clock: Clock::new(), idle: 0 })
    }

    /// What the client has counted.
    pub fn stats(&self) -> Snapshot {
        self.client.handle().stats()
    }

    /// Makes `count` calls, at most `window` of them on their way at a time.
    ///
    /// # Errors
    /// The first that went wrong. The session is of no use then: calls may be on their way.
    pub fn run<C: Calls>(
        &mut self,
        count: u64,
        window: u64,
        calls: &mut C,
    ) -> Result<(), ClientError> {
        let (mut begun, mut done) = (0, 0);
        let mut heard = self.clock.now();
        while done < count {
            let now = self.clock.now();
            while begun < count.min(done + window) && self.begin(now, begun, calls)? {
                begun += 1;
            }
            let mut outcome = Ok(());
            let before = done;
            let busy = self.client.poll(now, |completion| {
                done += 1;
                let result = finish(completion, calls);
                if outcome.is_ok() {
                    outcome = result;
                }
            });
            outcome?;
            if done > before {
                heard = now;
            } else if now - heard > SILENCE.as_nanos() as u64 {
                let (procedure, seconds) = (C::PROCEDURE, SILENCE.as_secs());
                return Err(ClientError::Silence { procedure, seconds });
            }
            self.rest(busy);
        }
        Ok(())
    }

    /// Makes one call. False if it must wait for those before it.
    fn begin<C: Calls>(
        &mut self,
        now: u64,
        index: u64,
        calls: &mut C,
    ) -> Result<bool, ClientError> {
        if !calls.prepare(index, &mut self.client.turn(now))? {
            return Ok(false);
        }
        let submitted = self.client.call(self.peer, index).and_then(|mut call| {
            rpc::put_call(call.payload(), C::PROCEDURE);
            calls.arguments(index, &mut call);
            call.submit()
        });
        match submitted {
            Ok(()) => {
                calls.sent();
                Ok(true)
            }
            Err(why) if why.is_transient() => Ok(false),
            Err(why) => Err(ClientError::Refused { procedure: C::PROCEDURE, why }),
        }
    }

    /// Makes a call that `write` writes from behind the message type, and returns the words of the
    /// reply's payload from there on.
    #[cfg(test)]
    pub fn raw(&mut self, write: impl FnOnce(&mut CallBuilder<'_>)) -> Vec<u32> {
        let mut call = self.client.call(self.peer, 0).expect("nothing else is on its way");
        write(&mut call);
        call.submit().expect("the call fits");
        let mut words = None;
        while words.is_none() {
            let now = self.clock.now();
            let busy = self.client.poll(now, |completion| {
                let mut reader = completion.result().expect("there is a reply").reader();
                words = Some(std::iter::from_fn(|| reader.u32().ok()).collect());
            });
            self.rest(busy);
        }
        words.unwrap_or_default()
    }

    /// Leaves the core to others when nothing happens.
    fn rest(&mut self, busy: bool) {
        self.idle = if busy { 0 } else { self.idle + 1 };
        if self.idle > IDLE_MAX {
            self.client.wait(Duration::from_millis(1));
            self.idle = 0;
        }
    }
}

/// Takes a completion apart.
fn finish<C: Calls>(completion: Completion<'_>, calls: &mut C) -> Result<(), ClientError> {
    let procedure = C::PROCEDURE;
    let index = completion.cookie();
    let reply = completion.result().map_err(|why| ClientError::Call { procedure, why })?;
    let mut results = reply.reader();
    rpc::read_reply(&mut results).map_err(|why| ClientError::Reply { procedure, why })?;
    calls.done(index, reply, results)
}

/// Polls that find nothing before the client sleeps: some ten microseconds.
const IDLE_MAX: u32 = 200;
/// A disk that takes longer than this for one call is not waited for.
const SILENCE: Duration = Duration::from_secs(60);
