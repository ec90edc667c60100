//! COMPOUNDs on one connection at a time, and the callbacks that arrive on it meanwhile.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rpcrdma::onc::{Auth, CallHeader, auth_flavor};
use rpcrdma::provider::{ConnectError, ConnectId};
use rpcrdma::ulb::{Bound, BoundCall, Protection, nfs4};
use rpcrdma::{
    Address, Admission, Answer, BackwardSupport, Bulk, Call, CallRefused, Clock, CloseReason,
    Completion, ConnectionId, Engine, Handler, Loan, PeerLimits, Provider, Reply, SetupError,
    Shard, Sink, Snapshot, Turn, Want,
};

use super::callbacks::{Callbacks, put};
use super::compound::Op;
use super::results::{Done, Failure, read};
use super::words::root_credentials;
use crate::nfs::{Give, Take};

/// A shard of a client, and its connection.
pub struct Wire<P: Provider> {
    shard: Shard<P, Calls>,
    peer: Option<ConnectionId>,
    clock: Clock,
    calls: u64,
}

/// The handler: what has been called and answered in both directions.
pub struct Calls {
    open: HashMap<u64, Bound>,
    done: HashMap<u64, Result<Vec<Done>, Failure>>,
    outcome: Option<Result<ConnectionId, ConnectError>>,
    /// Connections that have ended.
    pub closed: Vec<(ConnectionId, CloseReason)>,
    /// The back channel.
    pub callbacks: Callbacks,
}

impl Handler for Calls {
    fn on_call<'a>(&mut self, call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
        self.callbacks.on_call(&call, reply)
    }

    fn on_reply(&mut self, mut done: Completion<'_>) {
        let Some(bound) = self.open.remove(&done.cookie()) else { return };
        let results = match done.result() {
            Ok(incoming) => read(&bound, incoming),
            Err(error) => Err(Failure::Call(error)),
        };
        drop(done.take_sink(0));
        self.done.insert(done.cookie(), results);
    }

    fn on_connect(
        &mut self,
        peer: ConnectionId,
        _: Option<ConnectId>,
        _: &PeerLimits,
    ) -> Admission {
        self.outcome = Some(Ok(peer));
        Admission::Accept
    }

    fn on_refused(&mut self, _: ConnectId, why: ConnectError) {
        self.outcome = Some(Err(why));
    }

    fn on_close(&mut self, peer: ConnectionId, why: CloseReason) {
        self.closed.push((peer, why));
    }

    fn backward(&self) -> BackwardSupport {
        BackwardSupport::Inline
    }
}

impl<P: Provider> Wire<P> {
    /// Connects a shard of its own; `program` is the number of its callbacks.
    ///
    /// # Errors
    /// Why there is no connection.
    pub fn connect(engine: &Engine<P>, to: Address, program: u32) -> Result<Wire<P>, SetupError> {
        let shard = engine.shard(Calls {
            open: HashMap::new(),
            done: HashMap::new(),
            outcome: None,
            closed: Vec::new(),
            callbacks: Callbacks::new(program),
        })?;
        let mut wire = Wire { shard, peer: None, clock: Clock::new(), calls: 0 };
        wire.reconnect(to)?;
        Ok(wire)
    }

    /// Connects, again or for the first time. An earlier connection stays as it is.
    ///
    /// # Errors
    /// Why there is no connection.
    ///
    /// # Panics
    /// If there is no outcome.
    pub fn reconnect(&mut self, to: Address) -> Result<(), SetupError> {
        self.shard.connect(to)?;
        self.until("an attempt to connect is over", |wire| wire.calls().outcome.is_some());
        let outcome = self.calls().outcome.take().expect("it is over");
        let peer = outcome.map_err(|reason| SetupError::Connect { to: Box::new(to), reason })?;
        self.peer = Some(peer);
        Ok(())
    }

    /// Ends the connection, and waits until it is gone.
    pub fn disconnect(&mut self) {
        let peer = self.peer();
        self.shard.handle().close(peer);
        self.until("the connection is gone", |wire| {
            wire.calls().closed.iter().any(|(closed, _)| *closed == peer)
        });
    }

    /// The connection.
    ///
    /// # Panics
    /// If there never was one.
    pub fn peer(&self) -> ConnectionId {
        self.peer.expect("connected when it was made")
    }

    /// The handler.
    pub fn calls(&mut self) -> &mut Calls {
        self.shard.handler()
    }

    /// The back channel.
    pub fn callbacks(&mut self) -> &mut Callbacks {
        &mut self.shard.handler().callbacks
    }

    /// The shard.
    pub fn shard(&mut self) -> &mut Shard<P, Calls> {
        &mut self.shard
    }

    /// The counters of the shard.
    pub fn stats(&self) -> Snapshot {
        self.shard.handle().stats()
    }

    /// How many calls of the forward direction are open.
    pub fn open(&mut self) -> usize {
        self.calls().open.len()
    }

    /// One turn of the shard; sleeps a millisecond at most if there was no work.
    pub fn poll(&mut self) {
        if !self.turn() {
            self.shard.wait(Duration::from_millis(1));
        }
    }

    /// One turn of the shard, without a sleep. Returns whether there was work.
    pub fn turn(&mut self) -> bool {
        self.shard.poll_once(self.clock.now())
    }

    /// Polls until a condition holds.
    ///
    /// # Panics
    /// If it does not hold in time.
    pub fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Wire<P>) -> bool) {
        let end = Instant::now() + WAIT_MAX;
        while !is_so(self) {
            if Instant::now() >= end {
                panic!("a test waits no longer: {what}; {:?}", self.callbacks().seen);
            }
            self.poll();
        }
    }

    /// Gives the answers that were held back.
    pub fn answer_late(&mut self) {
        let now = self.clock.now();
        for (ticket, answer) in std::mem::take(&mut self.callbacks().late) {
            // Of a connection that has ended: there is no one to answer.
            let _ = self.shard.turn(now).resume(ticket, |mut reply| {
                put(&mut reply, &answer);
                reply.send()
            });
        }
    }

    /// Makes a call as soon as possible.
    ///
    /// # Errors
    /// If it never becomes possible.
    pub fn submit(&mut self, ops: &[Op]) -> Result<u64, Failure> {
        let end = Instant::now() + WAIT_MAX;
        loop {
            match self.try_submit(ops) {
                Err(Failure::Bind(rpcrdma::ulb::BindError::Refused(why)))
                    if why.is_transient() && Instant::now() < end =>
                {
                    self.poll();
                }
                other => return other,
            }
        }
    }

    /// Waits for the results of a call.
    ///
    /// # Errors
    /// Why it has none.
    ///
    /// # Panics
    /// If there is no such call, or no reply in time.
    pub fn finish(&mut self, call: u64) -> Result<Vec<Done>, Failure> {
        self.until("a reply", |wire| wire.calls().done.contains_key(&call));
        self.calls().done.remove(&call).expect("it is over")
    }

    /// The results of a call, if it is over.
    pub fn finished(&mut self, call: u64) -> Option<Result<Vec<Done>, Failure>> {
        self.calls().done.remove(&call)
    }

    /// Makes a call and waits for its results.
    ///
    /// # Errors
    /// Why it has none.
    pub fn call(&mut self, ops: &[Op]) -> Result<Vec<Done>, Failure> {
        let call = self.submit(ops)?;
        self.finish(call)
    }

    fn try_submit(&mut self, ops: &[Op]) -> Result<u64, Failure> {
        let bound = nfs4::BINDING.bind(nfs4::COMPOUND, Protection::None)?;
        let now = self.clock.now();
        let (peer, cookie) = (self.peer(), self.calls + 1);
        let mut turn = self.shard.turn(now);
        let mut memory = ops
            .iter()
            .map(|op| memory(&mut turn, op))
            .collect::<Result<Vec<_>, CallRefused>>()?
            .into_iter();
        let mut call = bound.call(turn.call(peer, cookie)?);
        put_header(&mut call);
        // A tag, the minor version, and the operations.
        for word in [0, 1, ops.len() as u32] {
            call.payload().put_u32(word);
        }
        let mut asked = 3 * 4;
        for op in ops {
            asked += op.result_max();
            put_op(&mut call, op, memory.next().unwrap_or_default())?;
        }
        call.asks(asked);
        call.submit()?;
        self.calls = cookie;
        self.calls().open.insert(cookie, bound);
        Ok(cookie)
    }
}

/// The memory that an operation gives or offers.
fn memory(turn: &mut Turn<'_>, op: &Op) -> Result<Vec<Loan>, CallRefused> {
    let (len, pieces, data) = match op {
        Op::Read { count, take: Take::Sink(pieces), .. } => (*count as usize, *pieces, None),
        Op::Write { data, give: Give::Apart(pieces), .. } => (data.len(), *pieces, Some(data)),
        _ => return Ok(Vec::new()),
    };
    let (mut loans, mut at) = (Vec::new(), 0);
    while at < len {
        let mut loan = turn.buffer().ok_or(CallRefused::Busy)?;
        loan.truncate((len - at).div_ceil(pieces.saturating_sub(loans.len()).max(1)));
        if let Some(data) = data {
            let end = at + loan.len();
            loan.copy_from_slice(&data[at..end]);
        }
        at += loan.len();
        loans.push(loan);
    }
    Ok(loans)
}

fn put_op(call: &mut BoundCall<'_>, op: &Op, memory: Vec<Loan>) -> Result<(), Failure> {
    call.payload().put_u32(op.number());
    call.operation(op.number());
    call.payload().put_fixed(&op.arguments());
    match op {
        Op::Write { data, give, .. } if memory.is_empty() => {
            debug_assert!(*give == Give::InLine || data.is_empty(), "it has memory otherwise");
            call.payload().put_opaque(data);
        }
        Op::Write { .. } => call.payload().place_pieces(memory.into_iter().map(Bulk::from)),
        Op::Read { count, take, .. } => {
            let want = Want { len_min: 0, len_max: *count };
            match take {
                Take::RdmaBuffer => call.result(want)?,
                Take::Sink(_) if *count > 0 => call.result_into(want, sink_of(memory))?,
                Take::InLine | Take::Sink(_) => call.result_in_line(*count)?,
            }
        }
        _ => {}
    }
    Ok(())
}

/// The header of a COMPOUND, with AUTH_SYS of root.
fn put_header(call: &mut BoundCall<'_>) {
    let body = root_credentials();
    let header = CallHeader {
        program: nfs4::BINDING.program,
        version: nfs4::BINDING.version,
        procedure: nfs4::COMPOUND,
        credentials: Auth::new(auth_flavor::SYS, &body).expect("they are short"),
        verifier: Auth::NONE,
    };
    call.payload().put_fixed(&header.bytes());
}

fn sink_of(loans: Vec<Loan>) -> Sink {
    let mut sink = Sink::new();
    for loan in loans {
        sink.push(loan).expect("a sink of a test has few pieces");
    }
    sink
}

/// Time after which a test has hung.
const WAIT_MAX: Duration = Duration::from_secs(60);
