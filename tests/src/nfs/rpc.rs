//! Calls of NFS over the engine: requests and replies as values, and how their data are moved.

use std::collections::HashMap;
use std::time::Duration;

use nfs3_types::nfs3::nfsstat3;
use nfs3_types::rpc::{RPC_VERSION_2, auth_unix, call_body, opaque_auth};
use nfs3_types::xdr_codec::{Opaque, Pack};
use rpcrdma::onc::{AcceptStatus, DecodeError, HeaderRoom, ReplyHeader};
use rpcrdma::ulb::{BindError, Bound, ItemError, Protection, nfs3};
use rpcrdma::{
    Address, Bulk, CallError, CallHandle, CallRefused, Client, Clock, ConnectionId, EndOfMessage,
    Incoming, Loan, PayloadReader, PeerLimits, Provider, SetupError, Sink, Want,
};

/// How the data of a call are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Give {
    /// In the payload stream.
    InLine,
    /// In registered memory of this number of pieces: the engine may use DDP.
    Apart(usize),
}

/// How the data of a reply are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// In the payload stream.
    InLine,
    /// By DDP, in memory of the engine.
    RdmaBuffer,
    /// By DDP, in a result buffer of this number of pieces.
    Sink(usize),
}

/// A call: the procedure, the arguments, and how data are moved.
#[derive(Debug, Clone)]
pub struct Request {
    procedure: u32,
    /// The arguments, without data at their end.
    arguments: Vec<u8>,
    data: Option<(Vec<u8>, Give)>,
    result: Option<(u32, Take)>,
    asks: Option<u32>,
    xid: Option<u32>,
}

impl Request {
    /// A call without data.
    ///
    /// # Panics
    /// If the arguments have no XDR.
    pub fn new(procedure: u32, arguments: &impl Pack) -> Request {
        let arguments = packed(arguments);
        Request { procedure, arguments, data: None, result: None, asks: None, xid: None }
    }

    /// With data in the place of the empty item that the arguments end with.
    ///
    /// # Panics
    /// If they do not end with an empty item.
    pub fn giving(mut self, data: &[u8], how: Give) -> Request {
        let end = self.arguments.len() - 4;
        assert_eq!(self.arguments.split_off(end), [0; 4], "the arguments end with an empty item");
        self.data = Some((data.to_vec(), how));
        self
    }

    /// With a result of up to `len_max` bytes.
    pub fn taking(mut self, len_max: u32, how: Take) -> Request {
        self.result = Some((len_max, how));
        self
    }

    /// With the xid of the call that it repeats.
    pub fn repeating(mut self, xid: u32) -> Request {
        self.xid = Some(xid);
        self
    }

    /// With results of up to `len_max` bytes that only the arguments know.
    pub fn asking(mut self, len_max: u32) -> Request {
        self.asks = Some(len_max);
        self
    }
}

/// The results of a call.
#[derive(Debug)]
pub struct Reply {
    /// Their XDR without reduction.
    pub results: Vec<u8>,
    /// Whether the data were moved by DDP.
    pub placed: bool,
    /// Whether the program's result buffer was returned.
    pub sink: bool,
    /// The xid of the call.
    pub xid: u32,
}

/// Why a call has no results.
#[derive(Debug)]
pub enum Failure {
    /// The call was not sent.
    Bind(BindError),
    /// It has no reply.
    Call {
        /// Why not.
        error: CallError,
        /// Whether the program's result buffer was returned.
        sink: bool,
    },
    /// The reply violates the upper-layer binding.
    Item(ItemError),
    /// The reply is cut off.
    End,
    /// The reply has no header.
    Header(DecodeError),
    /// The server accepted it and did not execute it.
    NotExecuted(AcceptStatus),
    /// The server denied it.
    Denied,
    /// The results cannot be decoded.
    Results(String),
    /// The NFS status is an error.
    Status(nfsstat3),
}

impl From<BindError> for Failure {
    fn from(error: BindError) -> Failure {
        Failure::Bind(error)
    }
}

impl From<CallRefused> for Failure {
    fn from(error: CallRefused) -> Failure {
        Failure::Bind(error.into())
    }
}

impl From<ItemError> for Failure {
    fn from(error: ItemError) -> Failure {
        Failure::Item(error)
    }
}

impl From<EndOfMessage> for Failure {
    fn from(_: EndOfMessage) -> Failure {
        Failure::End
    }
}

/// Makes calls of NFS version 3 on one connection.
pub struct Caller<P: Provider> {
    client: Client<P>,
    peer: ConnectionId,
    clock: Clock,
    calls: u64,
    credentials: opaque_auth<'static>,
    open: HashMap<u64, (Bound, CallHandle)>,
    done: HashMap<u64, Result<Reply, Failure>>,
}

impl<P: Provider> Caller<P> {
    /// Connects.
    ///
    /// # Errors
    /// Why the connection failed.
    pub fn connect(mut client: Client<P>, to: Address) -> Result<Caller<P>, SetupError> {
        let peer = client.connect(to)?;
        let credentials =
            auth_unix { machinename: Opaque::borrowed(b"tests"), ..auth_unix::default() };
        Ok(Caller {
            client,
            peer,
            clock: Clock::new(),
            calls: 0,
            credentials: opaque_auth::auth_unix(&credentials),
            open: HashMap::new(),
            done: HashMap::new(),
        })
    }

    /// Connects again; the previous connection is abandoned.
    ///
    /// # Errors
    /// Why the connection failed.
    pub fn reconnect(&mut self, to: Address) -> Result<(), SetupError> {
        self.client.handle().close(self.peer);
        self.peer = self.client.connect(to)?;
        Ok(())
    }

    /// Sets the credentials of the following calls; `None` is AUTH_NONE.
    pub fn set_credentials<'a>(&mut self, credentials: impl Into<Option<&'a auth_unix>>) {
        let none = opaque_auth::default;
        self.credentials = credentials.into().map_or_else(none, opaque_auth::auth_unix);
    }

    /// The server, as the client names it.
    pub fn peer(&self) -> ConnectionId {
        self.peer
    }

    /// The client.
    pub fn client(&mut self) -> &mut Client<P> {
        &mut self.client
    }

    /// The limits of the server.
    ///
    /// # Panics
    /// If the connection is lost.
    pub fn limits(&mut self) -> PeerLimits {
        let mut turn = self.client.turn(self.clock.now());
        *turn.limits(self.peer).expect("the connection is up")
    }

    /// How many calls are open.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Makes a call and waits for its results.
    ///
    /// # Errors
    /// Why the call failed.
    pub fn call(&mut self, request: &Request) -> Result<Reply, Failure> {
        let call = self.submit(request)?;
        self.finish(call)
    }

    /// Makes a call as soon as possible.
    ///
    /// # Errors
    /// If it never becomes possible.
    pub fn submit(&mut self, request: &Request) -> Result<u64, Failure> {
        self.calls += 1;
        let mut idle = 0;
        loop {
            match self.try_submit(request, self.calls) {
                Ok(bound) => {
                    self.open.insert(self.calls, bound);
                    return Ok(self.calls);
                }
                Err(Failure::Bind(BindError::Refused(why)))
                    if why.is_transient() && idle < IDLE_MAX =>
                {
                    // Without open calls only returning memory can make room.
                    idle = if self.open.is_empty() { idle + 1 } else { 0 };
                    self.poll();
                }
                Err(why) => return Err(why),
            }
        }
    }

    /// Makes a call if possible now. Returns whether it was.
    ///
    /// # Errors
    /// If it never becomes possible.
    pub fn submit_now(&mut self, request: &Request) -> Result<Option<u64>, Failure> {
        match self.try_submit(request, self.calls + 1) {
            Ok(bound) => {
                self.calls += 1;
                self.open.insert(self.calls, bound);
                Ok(Some(self.calls))
            }
            Err(Failure::Bind(BindError::Refused(why))) if why.is_transient() => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// Cancels a call. Returns its XID.
    ///
    /// # Panics
    /// If there is no such call.
    pub fn cancel(&mut self, call: u64) -> u32 {
        let (_, handle) = self.open[&call];
        self.client.cancel(handle);
        handle.xid()
    }

    /// Waits for the results of a call.
    ///
    /// # Errors
    /// Why the call failed.
    ///
    /// # Panics
    /// If there is no such call.
    pub fn finish(&mut self, call: u64) -> Result<Reply, Failure> {
        loop {
            if let Some(done) = self.done.remove(&call) {
                return done;
            }
            assert!(self.open.contains_key(&call), "the call was made, and is finished once");
            self.poll();
        }
    }

    /// Up to `count` completed calls, each as the result of [`Caller::finish`].
    pub fn take_done(&mut self, count: usize) -> Vec<Result<Reply, Failure>> {
        let over: Vec<u64> = self.done.keys().copied().take(count).collect();
        over.iter().filter_map(|call| self.done.remove(call)).collect()
    }

    /// Handles completions.
    pub fn poll(&mut self) {
        let Caller { client, open, done, clock, .. } = self;
        let was_busy = client.poll(clock.now(), |mut completion| {
            let cookie = completion.cookie();
            let Some((bound, _)) = open.remove(&cookie) else { return };
            let reply = match completion.result() {
                Ok(incoming) => read(&bound, incoming),
                Err(error) => Err(Failure::Call { error, sink: false }),
            };
            let back = completion.take_sink(0).is_some();
            let xid = completion.xid();
            let reply =
                reply.map(|reply| Reply { sink: back, xid, ..reply }).map_err(|why| match why {
                    Failure::Call { error, .. } => Failure::Call { error, sink: back },
                    other => other,
                });
            done.insert(cookie, reply);
        });
        if !was_busy {
            client.wait(Duration::from_millis(1));
        }
    }

    fn try_submit(
        &mut self,
        request: &Request,
        cookie: u64,
    ) -> Result<(Bound, CallHandle), Failure> {
        let bound = nfs3::BINDING.bind(request.procedure, Protection::None)?;
        let sink = match request.result {
            Some((len, Take::Sink(pieces))) if len > 0 => self.memory(len as usize, pieces)?,
            _ => Vec::new(),
        };
        let data = match &request.data {
            Some((bytes, Give::Apart(pieces))) => self.filled(bytes, *pieces)?,
            _ => Vec::new(),
        };
        let header = packed(&call_body {
            rpcvers: RPC_VERSION_2,
            prog: nfs3::PROGRAM,
            vers: nfs3::BINDING.version,
            proc: request.procedure,
            cred: self.credentials.borrow(),
            verf: opaque_auth::default(),
        });
        let mut call = bound.call(self.client.call(self.peer, cookie)?);
        call.payload().put_fixed(&header);
        call.payload().put_fixed(&request.arguments);
        match &request.data {
            None => {}
            Some((bytes, Give::InLine)) => call.payload().put_opaque(bytes),
            // An empty item stays in the stream anyway.
            Some((_, Give::Apart(_))) if data.is_empty() => call.payload().put_opaque(&[]),
            Some((_, Give::Apart(_))) => {
                call.payload().place_pieces(data.into_iter().map(Bulk::from));
            }
        }
        if let Some((len_max, how)) = request.result {
            let want = Want { len_min: 0, len_max };
            match how {
                Take::RdmaBuffer => call.result(want)?,
                Take::Sink(_) if len_max > 0 => call.result_into(want, sink_of(sink))?,
                Take::InLine | Take::Sink(_) => call.result_in_line(len_max)?,
            }
        }
        if let Some(len_max) = request.asks {
            call.asks(len_max);
        }
        if let Some(xid) = request.xid {
            call.xid(xid)?;
        }
        let handle = call.handle();
        call.submit()?;
        Ok((bound, handle))
    }

    /// Registered memory of `len` bytes, in at least this number of pieces.
    fn memory(&mut self, len: usize, pieces: usize) -> Result<Vec<Loan>, Failure> {
        let now = self.clock.now();
        let mut loans: Vec<Loan> = Vec::new();
        let mut left = len;
        while left > 0 {
            let mut loan = self.client.turn(now).buffer().ok_or(CallRefused::Busy)?;
            let missing = pieces.saturating_sub(loans.len()).max(1);
            loan.truncate(left.div_ceil(missing));
            left -= loan.len();
            loans.push(loan);
        }
        Ok(loans)
    }

    fn filled(&mut self, bytes: &[u8], pieces: usize) -> Result<Vec<Loan>, Failure> {
        let mut loans = self.memory(bytes.len(), pieces)?;
        let mut rest = bytes;
        for loan in &mut loans {
            let (now, later) = rest.split_at(loan.len());
            loan.copy_from_slice(now);
            rest = later;
        }
        Ok(loans)
    }
}

fn sink_of(loans: Vec<Loan>) -> Sink {
    let mut sink = Sink::new();
    for loan in loans {
        sink.push(loan).expect("a sink of a test has few pieces");
    }
    sink
}

/// Reads a reply: the header, and the results with placed items inserted.
fn read(bound: &Bound, incoming: &Incoming<'_>) -> Result<Reply, Failure> {
    let mut items = bound.results(incoming);
    accepted(items.reader())?;
    let mut results = Vec::new();
    let mut placed = false;
    let mut word = |reader: &mut PayloadReader<'_>| -> Result<u32, Failure> {
        let word = reader.u32()?;
        results.extend(word.to_be_bytes());
        Ok(word)
    };
    // An opaque result stands behind status and attributes, in READ behind two words more.
    if !bound.procedure().results.is_empty() && word(items.reader())? == 0 {
        let attributes = if word(items.reader())? == 0 { 0 } else { ATTRIBUTES_WORDS };
        let beside = if bound.procedure().number == nfs3::READ { 2 } else { 0 };
        for _ in 0..attributes + beside {
            word(items.reader())?;
        }
        let data = items.data()?;
        placed = data.placed_index().is_some();
        results.extend(data.len().to_be_bytes());
        data.slices().for_each(|slice| results.extend_from_slice(slice));
        results.resize(results.len().next_multiple_of(4), 0);
    }
    while let Ok(slice) = items.reader().some(usize::MAX) {
        results.extend(slice);
    }
    // Only DDP-eligible items were placed.
    items.end()?;
    Ok(Reply { results, placed, sink: false, xid: 0 })
}

/// The header of a reply, from `reply_stat` on.
fn accepted(reader: &mut PayloadReader<'_>) -> Result<(), Failure> {
    match reader.reply_header(&mut HeaderRoom::new()).map_err(Failure::Header)? {
        ReplyHeader::Accepted { status: AcceptStatus::Success, .. } => Ok(()),
        ReplyHeader::Accepted { status, .. } => Err(Failure::NotExecuted(status)),
        ReplyHeader::RpcMismatch { .. } | ReplyHeader::AuthError { .. } => Err(Failure::Denied),
    }
}

/// A value as XDR.
///
/// # Panics
/// If it has none.
pub fn packed(value: &impl Pack) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(value.packed_size());
    value.pack(&mut bytes).expect("what a test calls with has an XDR");
    bytes
}

/// Words of `fattr3`.
const ATTRIBUTES_WORDS: usize = 21;
/// Polls to wait for memory when no call is open.
const IDLE_MAX: u32 = 1000;
