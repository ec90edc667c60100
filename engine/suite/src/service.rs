//! The service: a handler that checks every byte of a call and answers as its script states.

use rpcrdma::provider::ConnectId;
use rpcrdma::{
    Address, Admission, Answer, BackwardSupport, Bulk, Call, CallBuilder, CallRefused, CloseReason,
    ConnectRequest, ConnectionId, Finished, Handler, Loan, Payload, PeerLimits, Reply, TakeError,
    Ticket, Turn,
};
use rpcrdma_mempool::{RegisteredBytes, RegisteredSlice};

use crate::script::{
    OFFSETS, Order, Part, Random, Script, part_bytes, part_offset, reply_seed, unreduced,
    write_parts, write_pattern,
};

/// Answers calls as their scripts state, and records what it sees.
#[derive(Default)]
pub struct Service {
    /// The number of calls received.
    pub calls: u64,
    /// How it treats calls in the backward direction, if not by default.
    pub backward: Option<BackwardSupport>,
    /// Established connections, the oldest first.
    pub connected: Vec<ConnectionId>,
    /// Ended connections, with the reasons.
    pub closed: Vec<(ConnectionId, CloseReason)>,
    /// Whether new connections are closed once they are established.
    pub refuses: bool,
    /// The maximum number of connections of one host, if limited.
    pub per_host_max: Option<usize>,
    /// The addresses that requested a connection, and how many connections their host had.
    pub asked: Vec<(Address, usize)>,
    /// Whether calls without a valid script may arrive; they are rejected.
    pub has_strangers: bool,
    /// Tickets that the test answers, with the answers.
    pub elsewhere: Vec<(Ticket, Finished)>,
    /// Tickets that stay unanswered.
    pub never: Vec<Ticket>,
    /// Segments that were taken and kept.
    pub kept: Vec<Loan>,
    /// Segments that could not be taken, and why.
    pub not_taken: Vec<TakeError>,
    /// The limits of the peer that connected last.
    pub limits: Option<PeerLimits>,
    /// Answers for a later turn.
    later: Vec<(Ticket, Script, u32)>,
    /// Buffers for answers from other threads.
    buffers: Vec<Loan>,
    source: Source,
    random: Random,
}

/// The source of bulk data: registered bytes with the pattern.
#[derive(Default)]
pub struct Source(Option<RegisteredBytes>);

impl Source {
    /// Fills a buffer of the shard with the pattern, once.
    pub fn prepare(&mut self, turn: &mut Turn<'_>) {
        if self.0.is_none() {
            self.0 = turn.buffer().map(|mut buffer| {
                write_pattern(&mut buffer, 0);
                RegisteredBytes::new(buffer)
            });
        }
    }

    /// Whether the buffer exists.
    pub fn is_ready(&self) -> bool {
        self.0.is_some()
    }

    /// Part `index` of a message.
    ///
    /// # Panics
    /// If the buffer does not exist, or the part is longer.
    pub fn slice(&self, seed: u32, index: usize, len: u32) -> RegisteredSlice {
        self.slice_at(part_offset(seed, index), len)
    }

    /// Bytes of the pattern.
    ///
    /// # Panics
    /// If the buffer does not exist, or is shorter.
    pub fn slice_at(&self, start: usize, len: u32) -> RegisteredSlice {
        let bytes = self.0.as_ref().expect("the first turn prepared the source");
        bytes.slice(start..start + len as usize).expect("the buffer is longer than every part")
    }

    /// Places part `index` of a message.
    pub fn place(&self, payload: &mut Payload<'_>, seed: u32, index: usize, len: u32) {
        payload.place(self.slice(seed, index, len));
    }

    /// Makes the call of a script.
    ///
    /// # Errors
    /// Those of [`CallBuilder::submit`].
    pub fn submit(&self, mut call: CallBuilder<'_>, script: &Script) -> Result<(), CallRefused> {
        call.payload().put_fixed(&script.head());
        write_parts(call.payload(), script.seed, &script.call, |payload, index, len| {
            self.place(payload, script.seed, index, len);
        });
        for want in &script.wants {
            call.want(*want);
        }
        call.reply_payload_max(script.reply_payload_max());
        call.submit()
    }
}

/// The number of buffers that are kept for answers from other threads.
const BUFFERS: usize = 4;

/// Bytes of the buffer that the longest part of `len` bytes is sliced from.
pub fn source_len(len: usize) -> usize {
    len + OFFSETS
}

impl Service {
    /// Whether every deferred answer was given.
    pub fn is_idle(&self) -> bool {
        self.later.is_empty()
    }

    fn write(&self, payload: &mut Payload<'_>, script: &Script, placed: u32) {
        payload.put_u32(script.seed);
        payload.put_u32(placed);
        let seed = reply_seed(script.seed);
        write_parts(payload, seed, &script.reply, |payload, index, len| {
            self.source.place(payload, seed, index, len);
        });
    }

    /// Answers with the segments of the first item of the call, taken out of it.
    fn relay<'a>(
        &mut self,
        mut call: Call<'a>,
        mut reply: Reply<'a>,
        script: &Script,
    ) -> Answer<'a> {
        let placed = call.placed().len() as u32;
        let pieces = call.placed().next().map_or(0, |item| item.segments().len());
        let taken: Result<Vec<Loan>, TakeError> =
            (0..pieces).map(|piece| call.take(0, piece)).collect();
        match taken {
            Ok(loans) => {
                reply.payload().put_u32(script.seed);
                reply.payload().put_u32(placed);
                reply.payload().place_pieces(loans.into_iter().map(Bulk::from));
                reply.send()
            }
            Err(why) => {
                self.not_taken.push(why);
                reply.refuse()
            }
        }
    }

    fn keep(&mut self, mut call: Call<'_>) {
        let pieces: Vec<usize> = call.placed().map(|item| item.segments().len()).collect();
        for (item, pieces) in pieces.into_iter().enumerate() {
            for piece in 0..pieces {
                match call.take(item, piece) {
                    Ok(loan) => self.kept.push(loan),
                    Err(why) => self.not_taken.push(why),
                }
            }
        }
    }
}

/// The answer to a call as another thread would make it: at most one bulk part, in a buffer of
/// `buffers`. `None` if that has too few.
pub fn finished_answer(script: &Script, placed: u32, buffers: &mut Vec<Loan>) -> Option<Finished> {
    let is_bulk = |part: &&Part| matches!(part, Part::Bulk(_));
    if buffers.len() < script.reply.iter().filter(is_bulk).count() {
        return None;
    }
    let mut finished = Finished::default();
    finished.head.put_u32(script.seed);
    finished.head.put_u32(placed);
    for (index, part) in script.reply.iter().enumerate() {
        let (Part::Inline(len) | Part::Bulk(len)) = *part;
        let bytes = part_bytes(reply_seed(script.seed), index, len);
        if let Part::Bulk(_) = part {
            let mut loan = buffers.pop()?;
            loan[..bytes.len()].copy_from_slice(&bytes);
            loan.truncate(bytes.len());
            finished.bulk.push(loan);
            continue;
        }
        if finished.bulk.is_empty() {
            finished.head.put_opaque(&bytes);
        } else {
            finished.tail.put_opaque(&bytes);
        }
    }
    Some(finished)
}

impl Handler for Service {
    fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        self.calls += 1;
        let stream = unreduced(&call);
        if stream.is_empty() {
            return reply.send();
        }
        let script = Script::parse(&stream);
        let is_right = script.as_ref().is_some_and(|script| stream == script.call_stream());
        assert!(is_right || self.has_strangers, "the call arrived as it was sent: {script:?}");
        let Some(script) = script.filter(|_| is_right) else { return reply.refuse() };
        let placed = call.placed().len() as u32;
        match script.order {
            Order::Answer => {
                self.write(reply.payload(), &script, placed);
                reply.send()
            }
            Order::Later => {
                let (answer, ticket) = reply.defer();
                self.later.push((ticket, script, placed));
                answer
            }
            Order::Elsewhere => {
                let (answer, ticket) = reply.defer();
                let finished = finished_answer(&script, placed, &mut self.buffers);
                let finished = finished.expect("buffers are taken every turn");
                self.elsewhere.push((ticket, finished));
                answer
            }
            Order::Refuse => reply.refuse(),
            Order::Never => {
                let (answer, ticket) = reply.defer();
                self.never.push(ticket);
                answer
            }
            Order::Relay => self.relay(call, reply, &script),
            Order::Keep => {
                self.keep(call);
                self.write(reply.payload(), &script, placed);
                reply.send()
            }
        }
    }

    fn on_turn(&mut self, turn: &mut Turn<'_>) {
        self.source.prepare(turn);
        while self.buffers.len() < BUFFERS
            && let Some(buffer) = turn.buffer()
        {
            self.buffers.push(buffer);
        }
        if self.later.is_empty() || self.random.below(3) > 0 {
            return;
        }
        let at = self.random.below(self.later.len() as u32) as usize;
        let (ticket, script, placed) = self.later.swap_remove(at);
        let is_open = turn.is_open(&ticket);
        let answered = turn.resume(ticket, |mut reply| {
            self.write(reply.payload(), &script, placed);
            reply.send()
        });
        match answered {
            // No send slot is free: try again in a later turn.
            Err(ticket) if is_open => self.later.push((ticket, script, placed)),
            Err(_void) => {}
            Ok(()) => assert!(is_open, "a void ticket cannot be answered"),
        }
    }

    fn backward(&self) -> BackwardSupport {
        self.backward.unwrap_or(BackwardSupport::Inline)
    }

    fn admit(&mut self, request: &ConnectRequest<'_>) -> Admission {
        self.asked.push((request.from, request.connections));
        let is_full = self.per_host_max.is_some_and(|max| request.connections >= max);
        if is_full { Admission::RefuseWith(TOO_MANY) } else { Admission::Accept }
    }

    fn on_connect(
        &mut self,
        peer: ConnectionId,
        _: Option<ConnectId>,
        limits: &PeerLimits,
    ) -> Admission {
        self.connected.push(peer);
        self.limits = Some(*limits);
        if self.refuses { Admission::Refuse } else { Admission::Accept }
    }

    fn on_close(&mut self, peer: ConnectionId, why: CloseReason) {
        assert!(self.connected.contains(&peer), "who was never there cannot go");
        assert!(!self.closed.iter().any(|(closed, _)| *closed == peer), "a peer goes once");
        self.closed.push((peer, why));
    }
}

/// The code that a service refuses with if a host has too many connections.
pub const TOO_MANY: u16 = 42;
