//! The client: a window of calls, each for one block of a file.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use rpcrdma::message::payload_reader::PayloadReader;
use rpcrdma::onc::CallHeader;
use rpcrdma::{
    Address, CallBuilder, Client, Clock, Config, ConnectionId, Engine, Incoming, Loan, Provider,
    ShardHandle, Want,
};
use rpcrdma_config::ProviderKind;

use crate::Outcome;
use crate::disk::Store;
use crate::server::{self, COMMIT, PROGRAM, READ, WRITE};

/// A client of a server, and the server if it is in this process.
pub struct Session<P: Provider> {
    server: Option<ShardHandle>,
    pub client: Client<P>,
    pub peer: ConnectionId,
    _engine: Engine<P>,
}

/// Part of a file.
#[derive(Debug, Clone, Copy)]
pub struct Block {
    offset: u64,
    len: usize,
}

impl Block {
    /// A file of `len` bytes in blocks of `block` bytes; the last may be shorter.
    pub fn all(len: u64, block: u64) -> Vec<Block> {
        let whole = |offset| Block { offset, len: block.min(len - offset) as usize };
        (0..len).step_by(block as usize).map(whole).collect()
    }

    fn check_len(&self, len: usize) -> Outcome {
        let Block { offset, len: expected } = *self;
        let wrong = || format!("{len} bytes at byte {offset}, not {expected}").into();
        (len == expected).then_some(()).ok_or_else(wrong)
    }
}

impl<P: Provider> Session<P> {
    /// Starts a server, and connects.
    pub fn start(device: P, config: Config, store: &Arc<Store>) -> Outcome<Session<P>> {
        let own = match config.engine().provider {
            ProviderKind::Shm => "shm:@".parse()?,
            // The fabric's addresses are its own, and TCP has those of this host.
            _ => {
                let own = config.verbs().address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
                Address::from(SocketAddr::new(own, 0))
            }
        };
        let mut engine = Engine::new(device, config)?;
        let (server, address) = server::start(&mut engine, store, own)?;
        Ok(Session { server: Some(server), ..Session::of(engine, address)? })
    }

    /// Connects to a server in another process.
    pub fn connect(device: P, config: Config, to: Address) -> Outcome<Session<P>> {
        Session::of(Engine::new(device, config)?, to)
    }

    fn of(engine: Engine<P>, to: Address) -> Outcome<Session<P>> {
        let mut client = engine.client()?;
        let peer = client.connect(to)?;
        Ok(Session { server: None, client, peer, _engine: engine })
    }

    /// The groups that the server has received, the segments that it has taken, and the times that
    /// it found no spare; `None` if it is in another process.
    pub fn counts(&self) -> Option<[u64; 3]> {
        let stats = self.server.as_ref()?.stats();
        Some([stats.groups_completed, stats.segments_taken, stats.segments_not_taken])
    }

    /// Gives the server's file a length; all of it is on the medium then.
    pub fn commit(&mut self, len: u64) -> Outcome<Duration> {
        let end = Block { offset: len, len: 0 };
        self.run(COMMIT, &[end], 1, |_, _, _| Ok(()), |_, _, _| Ok(()))
    }

    /// Writes a file from registered memory, and returns when all of it is on the medium.
    pub fn write(&mut self, file: &File, blocks: &[Block], window: u32) -> Outcome<Duration> {
        let put = |call: &mut CallBuilder<'_>, mut buffer: Loan, block: &Block| {
            buffer.truncate(block.len);
            file.read_exact_at(&mut buffer, block.offset)?;
            call.payload().place(buffer);
            Ok(())
        };
        let time = self.run(WRITE, blocks, window, put, |block, _, mut results| {
            block.check_len(results.u32()? as usize)
        })?;
        Ok(time + self.commit(blocks.iter().map(|block| block.len as u64).sum())?)
    }

    /// Reads a file back, and compares every byte where it arrived.
    pub fn read(&mut self, file: &File, blocks: &[Block], window: u32) -> Outcome<Duration> {
        let put = |call: &mut CallBuilder<'_>, _, block: &Block| {
            call.payload().put_u32(block.len as u32);
            call.want(Want { len_min: 0, len_max: block.len as u32 });
            Ok(())
        };
        let mut original = vec![0; blocks.first().map_or(0, |block| block.len)];
        self.run(READ, blocks, window, put, |block, reply, mut results| {
            block.check_len(results.u32()? as usize)?;
            let original = &mut original[..block.len];
            file.read_exact_at(original, block.offset)?;
            // The data are placed, or in the stream with padding behind them.
            let stream = std::iter::from_fn(|| results.some(block.len).ok());
            let mut done = 0;
            for slice in reply.placed().flat_map(|item| item.segments()).chain(stream) {
                for (want, got) in original[done..].iter().zip(slice) {
                    if want != got {
                        let at = block.offset + done as u64;
                        let why = format!("{want:#04x} was written, {got:#04x} read");
                        return Err(format!("byte {at} differs: {why}").into());
                    }
                    done += 1;
                }
            }
            block.check_len(done)
        })
    }

    /// Makes a call for each block, at most `window` of them open at a time. `put` writes the
    /// arguments behind the offset, with a buffer for data; `done` gets the reply, and a reader of
    /// the results behind a status of 0. Returns how long the calls took, or the first error when
    /// none is open.
    fn run(
        &mut self,
        procedure: u32,
        blocks: &[Block],
        window: u32,
        put: impl Fn(&mut CallBuilder<'_>, Loan, &Block) -> Outcome,
        mut done: impl FnMut(&Block, &Incoming<'_>, PayloadReader<'_>) -> Outcome,
    ) -> Outcome<Duration> {
        let (mut begun, mut ended, clock) = (0, 0, Clock::new());
        let start = clock.now();
        let header = CallHeader::plain(PROGRAM.number, PROGRAM.version, procedure);
        let mut outcome: Outcome = Ok(());
        while ended < begun || outcome.is_ok() && begun < blocks.len() {
            while outcome.is_ok() && begun < blocks.len().min(ended + window as usize) {
                let mut turn = self.client.turn(clock.now());
                let Some(buffer) = turn.buffer() else { break };
                let mut call = match turn.call(self.peer, begun as u64) {
                    Err(why) if why.is_transient() => break,
                    call => call?,
                };
                call.payload().put_fixed(&header);
                call.payload().put_u64(blocks[begun].offset);
                put(&mut call, buffer, &blocks[begun])?;
                match call.submit() {
                    Err(why) if why.is_transient() => break,
                    sent => sent?,
                }
                begun += 1;
            }
            self.client.poll_for(Duration::from_millis(1), |completion| {
                ended += 1;
                let index = completion.cookie();
                let result = completion.result().map_err(Into::into);
                let result =
                    result.and_then(|reply| done(&blocks[index as usize], reply, results(reply)?));
                if outcome.is_ok() {
                    outcome = result.map_err(|why| format!("block {index}: {why}").into());
                }
            });
        }
        outcome.map(|()| Duration::from_nanos(clock.now() - start))
    }
}

/// The results behind a status of 0.
fn results<'a>(reply: &'a Incoming<'_>) -> Outcome<PayloadReader<'a>> {
    let mut results = reply.results()?;
    match results.u32()?.cast_signed() {
        0 => Ok(results),
        status => Err(format!("the server: {}", std::io::Error::from_raw_os_error(status)).into()),
    }
}
