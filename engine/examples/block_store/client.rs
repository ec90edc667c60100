//! The client: a window of calls, each for one block of a file.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rpcrdma_engine::{
    CallBuilder, CallRefused, Client, Clock, Config, ConnectionId, Engine, Incoming, Provider,
    ShardHandle, Want,
};

use crate::disk::{Disk, Store};
use crate::rpc;
use crate::server::BlockServer;
use crate::{HERE, Outcome};

/// A server on its thread, and a client of it.
pub struct Session<P: Provider> {
    pub client: Client<P>,
    pub peer: ConnectionId,
    pub server: ShardHandle,
    clock: Clock,
    _engine: Engine<P>,
}

/// A file in blocks, of which the last may be shorter.
#[derive(Debug, Clone, Copy)]
pub struct Blocks<'a> {
    pub file: &'a File,
    pub len: u64,
    pub block: usize,
}

impl Blocks<'_> {
    fn count(&self) -> u64 {
        self.len.div_ceil(self.block as u64)
    }

    /// Where a block begins and how long it is.
    fn at(&self, index: u64) -> (u64, usize) {
        let offset = index * self.block as u64;
        (offset, (self.len - offset).min(self.block as u64) as usize)
    }
}

impl<P: Provider> Session<P> {
    /// Starts the server of a file that exists, and connects.
    pub fn start(device: P, config: Config, store: &Path) -> Outcome<Session<P>> {
        let own = config.verbs().address.unwrap_or(HERE);
        let calls_max = config.connections().credits.value() as usize;
        let mut engine = Engine::new(device, config)?;
        engine.on_failure(|failure| eprintln!("block_store: {failure}"));
        // It can be opened; the shard's thread opens it once more.
        Store::open(store)?;
        let store = store.to_owned();
        let mut shards = engine.start(move |shard| {
            let store = Store::open(&store).expect("it was opened just now");
            let disk = Disk::start(store, shard, calls_max);
            BlockServer { disk, reads: std::collections::VecDeque::with_capacity(calls_max) }
        })?;
        let server = shards.pop().ok_or("the configuration has no shard")?;
        let address = engine.listen(SocketAddr::new(own, 0))?;
        let mut client = engine.client()?;
        let peer = client.connect(address)?;
        Ok(Session { client, peer, server, clock: Clock::new(), _engine: engine })
    }

    /// Gives the server's file a length; all of it is on the medium then.
    pub fn commit(&mut self, len: u64) -> Outcome {
        let begin = |client: &mut Client<P>, peer, index, _| {
            call(client, peer, index, rpc::COMMIT, |call| call.payload().put_u64(len))
        };
        self.run(1, 1, begin, |_, reply| rpc::read_reply(&mut reply.reader()))
    }

    /// Writes a file from registered memory, and returns when all of it is on the medium.
    pub fn write(&mut self, blocks: Blocks<'_>, window: u32) -> Outcome<Duration> {
        let begun = Instant::now();
        let begin = |client: &mut Client<P>, peer, index, now| {
            let (offset, len) = blocks.at(index);
            let mut loan = client.turn(now).buffer().ok_or(CallRefused::Busy)?;
            loan.truncate(len);
            blocks.file.read_exact_at(&mut loan, offset)?;
            call(client, peer, index, rpc::WRITE, |call| {
                call.payload().put_u64(offset);
                call.payload().place(loan);
            })
        };
        self.run(blocks.count(), window, begin, |index, reply| {
            let mut results = reply.reader();
            rpc::read_reply(&mut results)?;
            same_length(blocks.at(index), results.u32()? as usize)
        })?;
        self.commit(blocks.len)?;
        Ok(begun.elapsed())
    }

    /// Reads a file back, and compares every byte where it landed.
    pub fn read(&mut self, blocks: Blocks<'_>, window: u32) -> Outcome<Duration> {
        let begun = Instant::now();
        let begin = |client: &mut Client<P>, peer, index, _| {
            let (offset, len) = blocks.at(index);
            call(client, peer, index, rpc::READ, |call| {
                call.payload().put_u64(offset);
                call.payload().put_u32(len as u32);
                call.want(Want { len_min: 0, len_max: len as u32 });
            })
        };
        let mut original = vec![0; blocks.block];
        self.run(blocks.count(), window, begin, |index, reply| {
            let (offset, len) = blocks.at(index);
            let mut results = reply.reader();
            rpc::read_reply(&mut results)?;
            same_length((offset, len), results.u32()? as usize)?;
            blocks.file.read_exact_at(&mut original[..len], offset)?;
            let mut rest = (offset, &original[..len]);
            if let Some(item) = reply.placed().next() {
                item.segments().try_for_each(|slice| compare(&mut rest, slice))?;
                return same_length((offset, len), len - rest.1.len());
            }
            while !rest.1.is_empty() {
                let slice = results.some(rest.1.len())?;
                compare(&mut rest, slice)?;
            }
            Ok(())
        })?;
        Ok(begun.elapsed())
    }

    /// Makes `count` calls, at most `window` of them under way at a time. `begin` gets the index of a
    /// call and the time, `done` the index and the reply.
    pub fn run(
        &mut self,
        count: u64,
        window: u32,
        mut begin: impl FnMut(&mut Client<P>, ConnectionId, u64, u64) -> Outcome,
        mut done: impl FnMut(u64, &Incoming<'_>) -> Outcome,
    ) -> Outcome {
        let (mut begun, mut ended, mut idle) = (0, 0, 0);
        while ended < count {
            let now = self.clock.now();
            while begun < count.min(ended + u64::from(window)) {
                match begin(&mut self.client, self.peer, begun, now) {
                    Ok(()) => begun += 1,
                    Err(why) if is_transient(&*why) => break,
                    Err(why) => return Err(why),
                }
            }
            let mut outcome: Outcome = Ok(());
            let is_busy = self.client.poll(now, |completion| {
                ended += 1;
                let index = completion.cookie();
                let result = completion.result().map_err(Into::into);
                let result = result.and_then(|reply| done(index, reply));
                if outcome.is_ok() {
                    outcome = result.map_err(|why| format!("block {index}: {why}").into());
                }
            });
            outcome?;
            idle = if is_busy { 0 } else { idle + 1 };
            if idle > POLLS_IDLE {
                self.client.wait(Duration::from_millis(1));
            }
        }
        Ok(())
    }
}

/// Makes a call whose arguments `put` writes.
fn call<P: Provider>(
    client: &mut Client<P>,
    peer: ConnectionId,
    index: u64,
    procedure: u32,
    put: impl FnOnce(&mut CallBuilder<'_>),
) -> Outcome {
    let mut call = client.call(peer, index)?;
    rpc::put_call(call.payload(), procedure);
    put(&mut call);
    Ok(call.submit()?)
}

fn is_transient(why: &(dyn std::error::Error + 'static)) -> bool {
    why.downcast_ref::<CallRefused>().is_some_and(CallRefused::is_transient)
}

fn same_length((offset, want): (u64, usize), got: usize) -> Outcome {
    if got == want {
        return Ok(());
    }
    Err(format!("{got} bytes at byte {offset}, not {want}").into())
}

/// Compares the next bytes of a block with the offset and the rest of the original.
fn compare(rest: &mut (u64, &[u8]), slice: &[u8]) -> Outcome {
    let (offset, original) = *rest;
    let (now, later) = original.split_at_checked(slice.len()).ok_or("more bytes than a block")?;
    if let Some(at) = now.iter().zip(slice).position(|(want, got)| want != got) {
        let (want, got) = (now[at], slice[at]);
        let at = offset + at as u64;
        return Err(format!("byte {at} differs: {want:#04x} was written, {got:#04x} read").into());
    }
    *rest = (offset + slice.len() as u64, later);
    Ok(())
}

/// Polls that find nothing before the client sleeps: some ten microseconds.
const POLLS_IDLE: u32 = 200;
