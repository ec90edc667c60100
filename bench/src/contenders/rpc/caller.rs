//! The client: makes calls, one at a time or a full window, and checks the replies.

use std::thread;
use std::time::Duration;

use rpcrdma::Sink;
use rpcrdma::error::SetupError;
use rpcrdma::provider::{ConnectError, ConnectId};
use rpcrdma::shard::audit::Audit;
use rpcrdma::{
    Address, CallBuilder, CallRefused, Client, Clock, Completion, ConnectionId, Incoming, Loan,
    Provider, ShardResources, Snapshot, Want,
};
use rpcrdma_mempool::RegisteredBytes;

use super::idle::{Idling, PausedRound, Pauses};
use super::message::{Arrived, CALL_WORDS, REPLY_HEADER, WHO, Way, call_header};
use super::server::filled;
use crate::call::{Load, REPLY_HEADER_LEN, Shape};
use crate::contenders::blocks::{Inspector, offset, pattern};
use crate::error::BenchError;
use crate::machine::pair::Stop;
use crate::stats::{Dice, Latency, Meter, Round};
use crate::values::{Op, Placement};

/// A client with its connections.
pub(super) struct Caller<P: Provider> {
    client: Client<P>,
    clock: Clock,
    peers: Vec<ConnectionId>,
    next: usize,
    window: u64,
    content: Content,
    replies: Replies,
    sent: u64,
    /// The clock as it was read last, and polls since.
    now: u64,
    polls: u32,
    /// Whether other clients have the same core, which an empty poll leaves to them.
    yields: bool,
}

struct Content {
    shape: Shape,
    placement: Placement,
    header: [u8; CALL_WORDS * 4],
    file: Box<[u8]>,
    /// The same in registered memory, to be sent without a copy.
    registered: Option<RegisteredBytes>,
    reply_payload_max: u32,
}

struct Replies {
    shape: Shape,
    placement: Placement,
    inspector: Inspector,
    /// Memory that results are written to, while no call has it.
    sinks: Vec<Sink>,
    has_sinks: bool,
    received: u64,
    failure: Option<BenchError>,
}

impl<P: Provider> Caller<P> {
    /// A client for a load, with its connections made.
    pub fn new(
        mut client: Client<P>,
        peers: Vec<ConnectionId>,
        load: &Load,
    ) -> Result<Caller<P>, BenchError> {
        let (shape, placement) = (load.shape, load.placement);
        let file = pattern(shape.data_len());
        let registered = match placement {
            Placement::Inline => None,
            Placement::Send | Placement::Rdma => Some(filled(client.turn(0).buffer(), &file)?),
        };
        let in_line = if placement == Placement::Inline { shape.reply_len() } else { 0 };
        let sinks = (0..load.sinks).map(|_| sink(client.turn(0).buffer(), shape.reply_data));
        let sinks = sinks.collect::<Result<Vec<_>, _>>()?;
        let content = Content {
            shape,
            placement,
            header: call_header(shape.op),
            file,
            registered,
            reply_payload_max: in_line.max(REPLY_HEADER_LEN + 8) as u32,
        };
        let inspector = Inspector::new(shape.data_len(), load.touch);
        let (received, failure, has_sinks) = (0, None, load.sinks > 0);
        let replies = Replies { shape, placement, inspector, sinks, has_sinks, received, failure };
        let window = load.window.into();
        let (clock, now) = (Clock::new(), NO_TIME);
        let (next, sent, polls, yields) = (0, 0, 0, false);
        Ok(Caller {
            client,
            clock,
            peers,
            next,
            window,
            content,
            replies,
            sent,
            now,
            polls,
            yields,
        })
    }

    /// Lets other clients have the core when there is nothing to do.
    pub fn share_core(&mut self) {
        self.yields = true;
    }

    pub fn one_by_one(
        &mut self,
        mut meter: Meter,
        mut idling: Idling,
        stop: &Stop,
    ) -> Result<Round, BenchError> {
        loop {
            let from = meter.now();
            self.call()?.map_err(|why| self.refused(&why))?;
            while self.replies.received < self.sent {
                self.poll(&mut idling, stop)?;
            }
            let to = meter.now();
            if !meter.timed(from, to) {
                return Ok(meter.finish());
            }
        }
    }

    /// Times calls one after the other, each after a pause in which there is nothing to do.
    pub fn paused(
        &mut self,
        pauses: &Pauses,
        mut idling: Idling,
        stop: &Stop,
    ) -> Result<PausedRound, BenchError> {
        let (ticks, mut dice) = (quanta::Clock::new(), Dice::new(pauses.seed));
        let mut latency = Latency::new();
        let mut begin = ticks.raw();
        for number in 0..pauses.warm_up + pauses.calls {
            if number == pauses.warm_up {
                begin = ticks.raw();
            }
            let shortest_ns = pauses.length.as_nanos() as f64;
            let pause_ns = (shortest_ns * (1.0 + dice.share() / 4.0)) as u64;
            let since = ticks.raw();
            loop {
                let gone_ns = ticks.delta_as_nanos(since, ticks.raw());
                if gone_ns >= pause_ns {
                    break;
                }
                self.rest(&mut idling, stop, Duration::from_nanos(pause_ns - gone_ns))?;
            }
            // A call is work: the thread polls for its reply.
            self.now = self.clock.now();
            idling.busy();
            let from = ticks.raw();
            self.call()?.map_err(|why| self.refused(&why))?;
            while self.replies.received < self.sent {
                self.poll(&mut idling, stop)?;
            }
            if number >= pauses.warm_up {
                latency.record(ticks.delta_as_nanos(from, ticks.raw()));
            }
            self.now = self.clock.now();
            if crate::stop::is_requested() && latency.count() > 0 {
                break;
            }
        }
        let elapsed_ns = ticks.delta_as_nanos(begin, ticks.raw());
        Ok(PausedRound { latency, elapsed_ns, cpu: [0.0; 2], preempted: 0 })
    }

    /// Keeps the window full and counts; at the end takes what is still under way.
    pub fn window(
        &mut self,
        mut meter: Meter,
        mut idling: Idling,
        stop: &Stop,
    ) -> Result<Round, BenchError> {
        let mut enough = false;
        loop {
            while !enough && self.sent - self.replies.received < self.window {
                match self.call()? {
                    Ok(()) => {}
                    // No slot or no credit at this moment: replies bring them back.
                    Err(_) if self.sent > self.replies.received => break,
                    Err(why) => return Err(self.refused(&why)),
                }
            }
            let before = self.replies.received;
            self.poll(&mut idling, stop)?;
            let count = self.replies.received - before;
            if count > 0 && !enough {
                enough = !meter.counted(count);
            }
            if enough && self.sent == self.replies.received {
                return Ok(meter.finish());
            }
        }
    }

    /// Makes calls until the window is full or `until` were made, and polls once.
    pub fn turn(&mut self, until: u64) -> Result<(), BenchError> {
        while self.sent < until && self.sent - self.replies.received < self.window {
            if self.call()?.is_err() {
                break;
            }
        }
        self.poll_at(NO_TIME).map(|_| ())
    }

    /// Makes one call and polls nothing.
    pub fn begin(&mut self) -> Result<(), BenchError> {
        self.call()?.map_err(|why| self.refused(&why))
    }

    /// Polls once at such a time. True if there was something to do.
    #[inline]
    pub fn poll_at(&mut self, now: u64) -> Result<bool, BenchError> {
        let replies = &mut self.replies;
        let was_busy = self.client.poll(now, |done| replies.take(done));
        self.replies.failure.take().map_or(Ok(was_busy), Err)
    }

    /// In whose hands everything of the client's shard is.
    pub fn audit(&mut self) -> Audit {
        self.client.shard().audit()
    }

    /// What the client's shard has got of what is configured.
    pub fn resources(&self) -> &ShardResources {
        self.client.handle().resources()
    }

    pub fn counters(&self) -> Snapshot {
        self.client.handle().stats()
    }

    /// Calls made since the connections were.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    pub fn received(&self) -> u64 {
        self.replies.received
    }

    /// Makes the next call. The inner error says why it cannot be made now.
    #[inline]
    fn call(&mut self) -> Result<Result<(), CallRefused>, BenchError> {
        self.call_as(self.sent)
    }

    /// The same with a cookie, whose low bits say which data the call carries.
    #[inline]
    fn call_as(&mut self, cookie: u64) -> Result<Result<(), CallRefused>, BenchError> {
        let peer = self.peers[self.next];
        let mut call = match self.client.call(peer, cookie) {
            Ok(call) => call,
            Err(why) => return Ok(Err(why)),
        };
        self.content.write(&mut call, cookie, self.replies.sinks.pop())?;
        let outcome = call.submit();
        if outcome.is_ok() {
            self.sent += 1;
            self.next = if self.next + 1 == self.peers.len() { 0 } else { self.next + 1 };
        }
        Ok(outcome)
    }

    #[cold]
    fn refused(&self, why: &CallRefused) -> BenchError {
        BenchError::CallFailed { who: WHO, number: self.sent, reason: why.to_string() }
    }

    /// Makes the next call of an open loop, due at such a time. False if none can be made now.
    #[inline]
    pub fn call_due(&mut self, due_ns: u64) -> Result<bool, BenchError> {
        let under_way = self.under_way();
        if under_way >= self.window {
            return Ok(false);
        }
        match self.call_as((due_ns << DATA_BITS) | (self.sent & DATA_MASK))? {
            Ok(()) => Ok(true),
            // No slot or no credit at this moment: replies bring them back.
            Err(_) if under_way > 0 => Ok(false),
            Err(why) => Err(self.refused(&why)),
        }
    }

    /// Polls once; calls `ended` for every call that has ended, with the time when it was due.
    #[inline]
    pub fn poll_due(&mut self, stop: &Stop, mut ended: impl FnMut(u64)) -> Result<(), BenchError> {
        let is_busy = self.look(|cookie| ended(cookie >> DATA_BITS))?;
        if is_busy { Ok(()) } else { self.nothing_came(stop) }
    }

    #[inline]
    fn nothing_came(&self, stop: &Stop) -> Result<(), BenchError> {
        if stop.is_set() {
            return Err(BenchError::PeerGone { who: WHO });
        }
        if self.yields {
            thread::yield_now();
        }
        Ok(())
    }

    /// Asks for a further connection, which no call of the load will use.
    pub fn begin_connect(&mut self, to: Address) -> Result<ConnectId, SetupError> {
        self.client.begin_connect(to)
    }

    pub fn connected(&mut self, id: ConnectId) -> Option<Result<ConnectionId, ConnectError>> {
        self.client.connected(id)
    }

    pub fn close(&mut self, peer: ConnectionId) {
        self.client.handle().close(peer);
    }

    pub fn connections(&self) -> usize {
        self.client.handle().connections()
    }

    /// Calls that have not ended.
    #[inline]
    pub fn under_way(&self) -> u64 {
        self.sent - self.replies.received
    }

    #[inline]
    fn poll(&mut self, idling: &mut Idling, stop: &Stop) -> Result<(), BenchError> {
        self.rest(idling, stop, Duration::MAX)
    }

    /// Polls once, and sleeps no longer than `most` if it is time to sleep.
    #[inline]
    fn rest(&mut self, idling: &mut Idling, stop: &Stop, most: Duration) -> Result<(), BenchError> {
        if self.look(|_| {})? {
            idling.busy();
            return Ok(());
        }
        self.nothing_came(stop)?;
        if let Some(timeout) = idling.idle(self.now) {
            self.client.wait(timeout.min(most));
        }
        Ok(())
    }

    /// Polls once; calls `ended` with the cookie of every call that has ended. True if there was
    /// something to do.
    #[inline]
    fn look(&mut self, mut ended: impl FnMut(u64)) -> Result<bool, BenchError> {
        // As a shard does: an idle poll is shorter than a reading of the clock.
        self.polls = self.polls.wrapping_add(1);
        if self.polls.is_multiple_of(POLLS_PER_READING) {
            self.now = self.clock.now();
        }
        let replies = &mut self.replies;
        let is_busy = self.client.poll(self.now, |done| {
            let cookie = done.cookie();
            replies.take(done);
            ended(cookie);
        });
        if is_busy {
            return self.replies.failure.take().map_or(Ok(true), Err);
        }
        Ok(false)
    }
}

impl Content {
    #[inline]
    fn write(
        &self,
        call: &mut CallBuilder<'_>,
        cookie: u64,
        sink: Option<Sink>,
    ) -> Result<(), BenchError> {
        let Shape { op, request_data, reply_data } = self.shape;
        let from = offset(cookie);
        call.payload().put_fixed(&self.header);
        if matches!(op, Op::Read | Op::Write) {
            call.payload().put_u64(from as u64);
        }
        match op {
            Op::Null => {}
            Op::Read => call.payload().put_u32(reply_data as u32),
            Op::Echo | Op::Write => match &self.registered {
                None => call.payload().put_opaque(&self.file[from..from + request_data]),
                Some(bytes) => {
                    let slice = bytes.slice(from..from + request_data);
                    call.payload().place(
                        slice.ok_or_else(|| BenchError::device(WHO, "a slice out of bounds"))?,
                    );
                }
            },
        }
        if self.placement.is_placed() && reply_data > 0 {
            let want = Want { len_min: 0, len_max: reply_data as u32 };
            match sink {
                Some(sink) => call.want_into(want, sink),
                None => call.want(want),
            };
        }
        call.reply_payload_max(self.reply_payload_max);
        Ok(())
    }
}

impl Replies {
    #[inline]
    fn take(&mut self, mut done: Completion<'_>) {
        let (number, cookie) = (self.received, done.cookie());
        self.received += 1;
        let outcome = match done.result() {
            Ok(reply) => self.inspect(number, offset(cookie), reply),
            Err(error) => {
                Err(BenchError::CallFailed { who: WHO, number, reason: error.to_string() })
            }
        };
        if let Err(error) = outcome {
            self.failure.get_or_insert(error);
        }
        if self.has_sinks {
            self.sinks.extend(done.take_sink(0));
        }
    }

    #[inline]
    fn inspect(
        &mut self,
        number: u64,
        offset: usize,
        reply: &Incoming<'_>,
    ) -> Result<(), BenchError> {
        let wrong = |detail| Err(BenchError::WrongBytes { who: WHO, number, detail });
        let reply = Arrived::new(reply);
        let header: Option<[u8; 16]> = reply.bytes_at(REPLY_HEADER_LEN - REPLY_HEADER.len());
        if header != Some(REPLY_HEADER) {
            return wrong(format!("a reply with the header {header:02x?}"));
        }
        let Shape { op, request_data, reply_data } = self.shape;
        if op == Op::Null {
            return Ok(());
        }
        let count = reply.word_at(REPLY_HEADER_LEN);
        let expected = if op == Op::Write { request_data } else { reply_data };
        if count != Some(expected) {
            return wrong(format!("a reply with a count of {count:?}, not {expected}"));
        }
        if op == Op::Write {
            return Ok(());
        }
        let is_other = op == Op::Echo && request_data != reply_data;
        let from = if is_other { 0 } else { offset };
        let inspection = self.inspector.begin(from, reply_data);
        match reply.inspect(REPLY_HEADER_LEN + 4, reply_data, inspection) {
            None => wrong("a reply with wrong data".into()),
            Some(Way::InLine) if self.placement.is_placed() && reply_data > 0 => {
                wrong("a reply whose data were not placed".into())
            }
            Some(_) => Ok(()),
        }
    }
}

/// A registered buffer as the memory that a result of `len` bytes is written to.
fn sink(buffer: Option<Loan>, len: usize) -> Result<Sink, BenchError> {
    let buffer = buffer.filter(|buffer| buffer.len() >= len);
    buffer
        .map(Sink::from)
        .ok_or_else(|| BenchError::device(WHO, "no registered buffer: see [app] bulk"))
}

const POLLS_PER_READING: u32 = 16;
/// Low bits of a cookie that say which data a call carries: [`offset`] looks at no others.
const DATA_BITS: u32 = 4;
const DATA_MASK: u64 = (1 << DATA_BITS) - 1;
/// For turns whose clock is not to be counted: late enough for everything but a deadline.
pub(super) const NO_TIME: u64 = 1;
