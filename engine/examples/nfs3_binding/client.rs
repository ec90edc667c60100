//! The client: each procedure is what its arguments are, what it wants, and how its results are
//! read.

use std::net::SocketAddr;

use rpcrdma_engine::ulb::{BindError, BoundCall, ItemError, Items, Protection, nfs3};
use rpcrdma_engine::{
    CallError, CallRefused, Client, Clock, EndOfMessage, Fabric, Loan, PayloadReader, PeerId,
    SetupError, Sink, Want,
};

/// A mount, more or less.
pub struct Nfs {
    client: Client<Fabric>,
    peer: PeerId,
    clock: Clock,
    calls: u64,
    ask: Ask,
    /// Registered buffers that results were written to.
    spare: Vec<Loan>,
    counts: Counts,
}

/// How data are wanted that may be placed.
#[derive(Debug, Clone, Copy)]
pub enum Ask {
    /// Somewhere outside of the stream.
    Apart,
    /// In a buffer of the program, by RDMA Write.
    Into,
    /// As the server likes.
    Either,
    /// Up to so many bytes by Send, more by RDMA Write.
    BySize(u32),
}

/// What was seen of the ways that results took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// READs and READLINKs whose data did not come in the stream.
    pub placed: u64,
    /// Sinks that came back.
    pub sinks: u64,
}

/// Why a procedure has no result.
#[derive(Debug, thiserror::Error)]
pub enum NfsError {
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error(transparent)]
    Refused(#[from] CallRefused),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Item(#[from] ItemError),
    #[error(transparent)]
    End(#[from] EndOfMessage),
    #[error("all registered buffers are out")]
    NoBuffer,
    #[error("the server did not execute the call: {0}")]
    NotAccepted(u32),
    #[error("nfsstat3 {0}")]
    Status(u32),
    #[error("the link is not text")]
    NoText,
}

impl Nfs {
    /// Connects to a server.
    pub fn connect(
        mut client: Client<Fabric>,
        to: SocketAddr,
        ask: Ask,
    ) -> Result<Nfs, SetupError> {
        let peer = client.connect(to)?;
        let (clock, spare, counts) = (Clock::new(), Vec::new(), Counts::default());
        Ok(Nfs { client, peer, clock, calls: 0, ask, spare, counts })
    }

    /// Asks whether the server is there.
    pub fn null(&mut self) -> Result<(), NfsError> {
        self.call(nfs3::NULL, |_| Ok(()), |_| Ok(()))
    }

    /// How long the file is.
    pub fn size(&mut self) -> Result<u64, NfsError> {
        let arguments = |call: &mut BoundCall<'_>| {
            call.payload().put_opaque(HANDLE);
            Ok(())
        };
        self.call(nfs3::GETATTR, arguments, |results| {
            status(results)?;
            attributes(results.reader())
        })
    }

    /// Writes to the file. Returns how many bytes the server took.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<u32, NfsError> {
        let mut buffer = self.client.turn(self.clock.now()).buffer().ok_or(NfsError::NoBuffer)?;
        buffer.truncate(data.len());
        buffer.copy_from_slice(data);
        let arguments = |call: &mut BoundCall<'_>| {
            call.payload().put_opaque(HANDLE);
            call.payload().put_u64(offset);
            call.payload().put_u32(data.len() as u32);
            call.payload().put_u32(FILE_SYNC);
            call.argument(buffer)
        };
        self.call(nfs3::WRITE, arguments, |results| {
            status(results)?;
            wcc_data(results.reader())?;
            Ok(results.reader().u32()?)
        })
    }

    /// Reads from the file.
    pub fn read(&mut self, offset: u64, count: u32) -> Result<Vec<u8>, NfsError> {
        let (ask, sink) = (self.ask, self.sink(count)?);
        let arguments = |call: &mut BoundCall<'_>| {
            call.payload().put_opaque(HANDLE);
            call.payload().put_u64(offset);
            call.payload().put_u32(count);
            want(call, ask, Want { len_min: 0, len_max: count }, sink)
        };
        let (data, placed) = self.call(nfs3::READ, arguments, |results| {
            status(results)?;
            post_op_attributes(results.reader())?;
            let (_count, _eof) = (results.reader().u32()?, results.reader().u32()?);
            let data = results.data()?;
            Ok((data.slices().flatten().copied().collect(), data.placed_index().is_some()))
        })?;
        self.counts.placed += u64::from(placed);
        Ok(data)
    }

    /// Where the link leads.
    pub fn readlink(&mut self) -> Result<String, NfsError> {
        let (ask, sink) = (self.ask, self.sink(PATH_MAX)?);
        let arguments = |call: &mut BoundCall<'_>| {
            call.payload().put_opaque(HANDLE);
            // A path of more than a few bytes may come apart from the message.
            want(call, ask, Want { len_min: 64, len_max: PATH_MAX }, sink)
        };
        let (path, placed) = self.call(nfs3::READLINK, arguments, |results| {
            status(results)?;
            post_op_attributes(results.reader())?;
            let data = results.data()?;
            let path: Vec<u8> = data.slices().flatten().copied().collect();
            Ok((path, data.placed_index().is_some()))
        })?;
        self.counts.placed += u64::from(placed);
        String::from_utf8(path).map_err(|_| NfsError::NoText)
    }

    /// What was seen so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Memory for a result of up to `len` bytes, in as many buffers as it takes.
    fn sink(&mut self, len: u32) -> Result<Sink, NfsError> {
        let mut sink = Sink::new();
        while !matches!(self.ask, Ask::Apart) && sink.len() < len as usize {
            let now = self.clock.now();
            let buffer = self.spare.pop().or_else(|| self.client.turn(now).buffer());
            sink.push(buffer.ok_or(NfsError::NoBuffer)?).map_err(|_| NfsError::NoBuffer)?;
        }
        Ok(sink)
    }

    /// One call, from its arguments to its results.
    fn call<T>(
        &mut self,
        procedure: u32,
        arguments: impl FnOnce(&mut BoundCall<'_>) -> Result<(), BindError>,
        results: impl FnOnce(&mut Items<'_>) -> Result<T, NfsError>,
    ) -> Result<T, NfsError> {
        let bound = nfs3::BINDING.bind(procedure, Protection::None)?;
        self.calls += 1;
        let mut call = bound.call(self.client.call(self.peer, self.calls)?);
        for word in [RPC_VERSION, nfs3::BINDING.program, nfs3::BINDING.version, procedure] {
            call.payload().put_u32(word);
        }
        for _credentials_and_verifier in 0..2 {
            call.payload().put_u32(AUTH_NONE);
            call.payload().put_opaque(&[]);
        }
        arguments(&mut call)?;
        call.submit()?;

        let mut results = Some(results);
        let (mut outcome, mut sink) = (None, None);
        while outcome.is_none() {
            self.client.poll(self.clock.now(), |mut done| {
                let Some(results) = results.take() else { return };
                outcome = Some(done.result().map_err(NfsError::Call).and_then(|reply| {
                    let mut items = bound.results(reply);
                    accepted(items.reader())?;
                    let value = results(&mut items)?;
                    // Nothing was placed that may not be.
                    items.end()?;
                    Ok(value)
                }));
                // The server cannot write to it any more.
                sink = done.take_sink(0);
            });
        }
        self.counts.sinks += u64::from(sink.is_some());
        self.spare.extend(sink.into_iter().flat_map(Sink::into_pieces));
        outcome.expect("the loop ends with an outcome")
    }
}

/// Wants the next result that may be placed.
fn want(call: &mut BoundCall<'_>, ask: Ask, want: Want, sink: Sink) -> Result<(), BindError> {
    match ask {
        Ask::Apart => call.result(want),
        Ask::Into => call.result_into(want, sink),
        Ask::Either => call.result_either(want, sink),
        Ask::BySize(sent_max) => call.result_by_size(want, sent_max, sink),
    }
}

/// The header of a reply to an accepted call, with AUTH_NONE.
fn accepted(reader: &mut PayloadReader<'_>) -> Result<(), NfsError> {
    let reply_stat = reader.u32()?;
    if reply_stat != 0 {
        return Err(NfsError::NotAccepted(reply_stat));
    }
    let (_flavor, verifier_len) = (reader.u32()?, reader.u32()?);
    reader.skip(verifier_len as usize)?;
    match reader.u32()? {
        0 => Ok(()),
        accept_stat => Err(NfsError::NotAccepted(accept_stat)),
    }
}

fn status(results: &mut Items<'_>) -> Result<(), NfsError> {
    match results.reader().u32()? {
        0 => Ok(()),
        status => Err(NfsError::Status(status)),
    }
}

/// `fattr3`: returns the size.
fn attributes(reader: &mut PayloadReader<'_>) -> Result<u64, NfsError> {
    reader.skip(20)?;
    let size = reader.u64()?;
    reader.skip(56)?;
    Ok(size)
}

/// `post_op_attr`
fn post_op_attributes(reader: &mut PayloadReader<'_>) -> Result<Option<u64>, NfsError> {
    match reader.u32()? {
        0 => Ok(None),
        _ => attributes(reader).map(Some),
    }
}

/// `wcc_data`
fn wcc_data(reader: &mut PayloadReader<'_>) -> Result<(), NfsError> {
    if reader.u32()? != 0 {
        reader.skip(24)?;
    }
    post_op_attributes(reader).map(drop)
}

/// The handle of the file, and of the link.
pub const HANDLE: &[u8] = b"the one file";
/// The longest path.
const PATH_MAX: u32 = 1024;
const RPC_VERSION: u32 = 2;
const AUTH_NONE: u32 = 0;
/// `stable_how`
const FILE_SYNC: u32 = 2;
