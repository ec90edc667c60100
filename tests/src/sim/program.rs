//! The program of every shard of the simulation: it serves and calls, and reports to the model.

use std::cell::{RefCell, RefMut};
use std::rc::Rc;

use rpcrdma::provider::{ConnectError, ConnectId};
use rpcrdma::{
    Admission, Answer, Bulk, Call, CallHandle, CallRefused, CloseReason, Completion,
    ConnectRequest, ConnectionId, Finished, Handler, Loan, PeerLimits, Reply, TakeError, Ticket,
    Turn,
};

use super::give::{PlacedPart, ask, place};
use super::model::{CLOSED_AT_ONCE, Model, NOT_ADMITTED, Suspicion, name_of};
use super::scenario::{self, Habits};
use super::trace::Event;
use crate::script::{
    Order, Part, Random, Script, joined, reply_seed, unreduced, unreduced_reply, write_parts,
};
use crate::service::{Source, finished_answer};

/// The program of one shard.
pub struct Program {
    /// The index of its shard.
    pub shard: usize,
    /// Established connections.
    pub up: Vec<ConnectionId>,
    /// Finished attempts to connect.
    pub attempts: Vec<(ConnectId, Option<ConnectionId>)>,
    /// Whether it makes calls and defers answers.
    pub is_busy: bool,
    /// Segments that were taken and kept.
    pub kept: Vec<Loan>,
    /// Buffers for answers of other threads.
    pub buffers: Vec<Loan>,
    /// Answers for a later turn.
    pub later: Vec<Owed>,
    /// Calls to cancel in a later turn.
    unwanted: Vec<CallHandle>,
    habits: Habits,
    source: Source,
    random: Random,
    model: Rc<RefCell<Model>>,
}

/// A deferred answer.
pub struct Owed {
    ticket: Ticket,
    script: Script,
    placed: u32,
    /// Already made, with its own memory.
    finished: Option<Finished>,
    /// Not before the end of the run.
    is_last: bool,
}

impl Program {
    /// A new program.
    pub fn new(shard: usize, seed: u64, habits: Habits, model: &Rc<RefCell<Model>>) -> Program {
        Program {
            shard,
            up: Vec::new(),
            attempts: Vec::new(),
            is_busy: true,
            kept: Vec::new(),
            buffers: Vec::new(),
            later: Vec::new(),
            unwanted: Vec::new(),
            habits,
            source: Source::default(),
            random: Random(seed),
            model: Rc::clone(model),
        }
    }

    /// The number of segments and buffers of the shard that it owns.
    pub fn loans_held(&self) -> usize {
        let finished = self.later.iter().filter_map(|owed| owed.finished.as_ref());
        let finished: usize = finished.map(|finished| finished.bulk.len()).sum();
        self.kept.len() + self.buffers.len() + finished + usize::from(self.source.is_ready())
    }

    /// Releases all memory of the shard.
    pub fn let_go(&mut self) {
        self.kept.clear();
        self.buffers.clear();
        self.later.clear();
        self.source = Source::default();
    }

    fn model(&self) -> RefMut<'_, Model> {
        self.model.borrow_mut()
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.random.below(100) < percent
    }

    /// Answers a call as its script states.
    fn answer<'a>(&mut self, mut reply: Reply<'a>, script: &Script, placed: u32) -> Answer<'a> {
        reply.payload().put_u32(script.seed);
        reply.payload().put_u32(placed);
        let seed = reply_seed(script.seed);
        write_parts(reply.payload(), seed, &script.reply, |payload, index, len| {
            self.source.place(payload, seed, index, len);
        });
        self.send(reply, script, placed)
    }

    /// Sends a reply; if it cannot be sent, defers or rejects the call.
    fn send<'a>(&mut self, reply: Reply<'a>, script: &Script, placed: u32) -> Answer<'a> {
        match reply.try_send() {
            Ok(answer) => {
                self.model().trace.note(Event::Answered(self.shard, script.seed));
                answer
            }
            Err((reply, why)) if why.is_transient() && script.order != Order::Relay => {
                self.model().saw("replies put off for want of room");
                self.defer(reply, script, placed, false)
            }
            Err((reply, why)) => {
                self.model().saw("replies that cannot be sent");
                let _ = why;
                self.refuse(reply, script)
            }
        }
    }

    fn refuse<'a>(&mut self, reply: Reply<'a>, script: &Script) -> Answer<'a> {
        self.model().refused(self.shard, script.seed);
        reply.refuse()
    }

    fn defer<'a>(
        &mut self,
        reply: Reply<'a>,
        script: &Script,
        placed: u32,
        is_last: bool,
    ) -> Answer<'a> {
        let (answer, ticket) = reply.defer();
        let script = script.clone();
        self.later.push(Owed { ticket, script, placed, finished: None, is_last });
        answer
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
        // Of several items any may be the first that is placed.
        let bytes = call.placed().next().map_or(Vec::new(), |item| joined(item.segments()));
        let wanted = script.first_bulk();
        let taken: Result<Vec<Loan>, TakeError> =
            (0..pieces).map(|piece| call.take(0, piece)).collect();
        let has_bulk = wanted.is_some();
        let is_it = wanted.is_none_or(|wanted| wanted == bytes);
        let Some(loans) = taken.ok().filter(|_| is_it) else {
            self.model().saw("segments that cannot be taken");
            return self.refuse(reply, script);
        };
        reply.payload().put_u32(script.seed);
        reply.payload().put_u32(placed);
        if has_bulk {
            self.model().saw("relays");
            reply.payload().place_pieces(loans.into_iter().map(Bulk::from));
        }
        self.send(reply, script, placed)
    }

    fn keep(&mut self, call: &mut Call<'_>) {
        let pieces: Vec<usize> = call.placed().map(|item| item.segments().len()).collect();
        for (item, pieces) in pieces.into_iter().enumerate() {
            for piece in 0..pieces {
                if let Ok(loan) = call.take(item, piece) {
                    self.kept.push(loan);
                    self.model().saw("segments kept");
                }
            }
        }
    }

    /// Returns loans, by a random method.
    fn release_some(&mut self, turn: &mut Turn<'_>) {
        while !self.kept.is_empty() && self.random.below(100) < self.habits.release {
            let at = self.random.below(self.kept.len() as u32) as usize;
            let loan = self.kept.swap_remove(at);
            match self.random.below(2) {
                0 => turn.release(loan),
                _ => drop(loan),
            }
        }
    }

    /// Answers deferred calls in random order.
    fn answer_some(&mut self, turn: &mut Turn<'_>) {
        for _ in 0..self.later.len().min(LATER_MAX) {
            if self.is_busy && self.random.below(100) >= self.habits.answer {
                continue;
            }
            let at = self.random.below(self.later.len() as u32) as usize;
            if self.is_busy && self.later[at].is_last {
                continue;
            }
            let owed = self.later.swap_remove(at);
            self.pay(turn, owed);
        }
    }

    fn pay(&mut self, turn: &mut Turn<'_>, owed: Owed) {
        let Owed { ticket, script, placed, finished, is_last } = owed;
        let is_open = turn.is_open(&ticket);
        if is_last && self.random.below(10) == 0 {
            // The caller of a dropped ticket gets SYSTEM_ERR.
            let mut model = self.model();
            model.saw("tickets forgotten");
            model.refused(self.shard, script.seed);
            return;
        }
        if let Some(finished) = finished {
            self.model().saw("answers from elsewhere");
            self.model().may_be_refused(script.seed);
            if self.random.below(2) == 0 {
                let sent = turn.handle().finish(ticket, finished);
                debug_assert!(sent.is_ok(), "there is room for every ticket");
                return;
            }
            if let Err((ticket, finished)) = turn.finish(ticket, finished)
                && is_open
            {
                let finished = Some(finished);
                self.later.push(Owed { ticket, script, placed, finished, is_last });
            }
            return;
        }
        let mut answered = false;
        let left = turn.resume(ticket, |reply| {
            answered = true;
            self.answer(reply, &script, placed)
        });
        match left {
            // No send slot is free: try again in a later turn.
            Err(ticket) if is_open => {
                self.later.push(Owed { ticket, script, placed, finished, is_last });
            }
            Err(_void) => self.model().saw("void tickets"),
            Ok(()) => self.model().saw("answers put off"),
        }
    }

    /// Makes some calls.
    fn call_some(&mut self, turn: &mut Turn<'_>) {
        if !self.is_busy || self.up.is_empty() || !self.chance(self.habits.call) {
            return;
        }
        for _ in 0..=self.random.below(self.habits.burst) {
            let peer = self.up[self.random.below(self.up.len() as u32) as usize];
            let id = self.model().number();
            let has_bulk = self.source.is_ready();
            let script = scenario::script(&mut self.random, id, self.habits.len_max, has_bulk);
            match self.call(turn, peer, &script) {
                Ok(Some(call)) => {
                    self.model().called((self.shard, peer), &script);
                    self.doubt(turn, call, script.seed);
                }
                Ok(None) => self.model().saw("calls taken back"),
                Err(why) => {
                    self.model().trace.note(Event::NotCalled(self.shard, peer, why));
                    let is_passing = why.is_transient();
                    self.model().saw(if is_passing { "calls put off" } else { "calls too large" });
                    break;
                }
            }
        }
    }

    fn call(
        &mut self,
        turn: &mut Turn<'_>,
        peer: ConnectionId,
        script: &Script,
    ) -> Result<Option<CallHandle>, CallRefused> {
        let now = turn.now();
        let mut call = turn.call(peer, script.seed.into())?;
        call.payload().put_fixed(&script.head());
        let Program { source, buffers, random, .. } = self;
        write_parts(call.payload(), script.seed, &script.call, |payload, index, len| {
            let part = PlacedPart { seed: script.seed, index, len };
            place(source, buffers, random, payload, part);
        });
        for want in &script.wants {
            ask(buffers, random, &mut call, *want);
        }
        call.reply_payload_max(script.reply_payload_max());
        if random.below(40) == 0 {
            return Ok(None);
        }
        if script.seed.is_multiple_of(DEADLINE_EVERY) {
            call.deadline(now + u64::from(random.below(PATIENCE)));
        }
        let handle = call.handle();
        call.submit().map(|()| Some(handle))
    }

    /// Cancels some calls at once or in a later turn. Some have a deadline.
    fn doubt(&mut self, turn: &mut Turn<'_>, call: CallHandle, id: u32) {
        if id.is_multiple_of(DEADLINE_EVERY) {
            self.model().may_give_up(id);
        } else if id.is_multiple_of(CANCEL_EVERY) {
            self.model().may_give_up(id);
            match self.random.below(3) {
                0 => _ = turn.cancel(call),
                _ => self.unwanted.push(call),
            }
        }
    }

    /// Cancels calls that are due. Most are complete by then.
    fn cancel_some(&mut self, turn: &mut Turn<'_>) {
        while !self.unwanted.is_empty() && self.random.below(4) == 0 {
            let at = self.random.below(self.unwanted.len() as u32) as usize;
            let call = self.unwanted.swap_remove(at);
            if turn.cancel(call) {
                self.model().saw("calls cancelled");
            }
        }
    }
}

impl Handler for Program {
    fn on_call<'a>(&mut self, mut call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
        let at = (self.shard, call.peer());
        let arrived = self.model().arrived(at, &unreduced(&call));
        let Some(script) = arrived else { return reply.refuse() };
        let placed = call.placed().len() as u32;
        if placed > 0 {
            self.model().saw("calls with placed items");
        }
        if !self.source.is_ready() && script.reply.iter().any(|part| matches!(part, Part::Bulk(_)))
        {
            return self.refuse(reply, &script);
        }
        match script.order {
            Order::Answer => self.answer(reply, &script, placed),
            Order::Later => self.defer(reply, &script, placed, false),
            Order::Never => self.defer(reply, &script, placed, true),
            Order::Elsewhere => {
                let finished = finished_answer(&script, placed, &mut self.buffers);
                let answer = self.defer(reply, &script, placed, false);
                if let Some(owed) = self.later.last_mut() {
                    owed.finished = finished;
                }
                answer
            }
            Order::Refuse => self.refuse(reply, &script),
            Order::Relay => self.relay(call, reply, &script),
            Order::Keep => {
                self.keep(&mut call);
                self.answer(reply, &script, placed)
            }
        }
    }

    fn on_reply(&mut self, mut done: Completion<'_>) {
        let (at, cookie) = ((self.shard, done.peer()), done.cookie());
        let script = self.model().calls.get(&(cookie as u32)).map(|record| record.script.clone());
        let arrived = done.result().map(|reply| match &script {
            Some(script) => (unreduced_reply(reply, script), reply.placed().len()),
            None => (unreduced(reply), reply.placed().len()),
        });
        let placed = arrived.as_ref().map_or(0, |(_, placed)| *placed);
        self.model().done(at, cookie, arrived.as_ref().map(|it| it.0.as_slice()).map_err(|e| *e));
        if placed > 0 {
            self.model().saw("replies with placed items");
            if self.is_busy
                && self.chance(20)
                && let Ok(reply) = done.result_mut()
                && let Ok(loan) = reply.take(0, 0)
            {
                self.kept.push(loan);
            }
        }
        for want in 0..script.map_or(0, |script| script.wants.len()) {
            if let Some(sink) = done.take_sink(want) {
                self.model().saw("sinks that came back");
                self.kept.extend(sink.into_pieces());
            }
        }
    }

    fn on_turn(&mut self, turn: &mut Turn<'_>) {
        self.source.prepare(turn);
        while self.is_busy
            && self.buffers.len() < BUFFERS
            && let Some(buffer) = turn.buffer()
        {
            self.buffers.push(buffer);
        }
        self.release_some(turn);
        self.answer_some(turn);
        self.cancel_some(turn);
        self.call_some(turn);
    }

    fn admit(&mut self, _: &ConnectRequest<'_>) -> Admission {
        if self.habits.refuse_peers == 0 || !self.chance(self.habits.refuse_peers) {
            return Admission::Accept;
        }
        self.model().saw(NOT_ADMITTED);
        Admission::RefuseWith(self.shard as u16)
    }

    fn on_connect(
        &mut self,
        peer: ConnectionId,
        attempt: Option<ConnectId>,
        _: &PeerLimits,
    ) -> Admission {
        self.model().trace.note(Event::Up(self.shard, peer));
        self.attempts.extend(attempt.map(|id| (id, Some(peer))));
        if self.random.below(50) == 0 {
            self.model().saw(CLOSED_AT_ONCE);
            self.model().ordered.push((self.shard, peer));
            self.up.push(peer);
            return Admission::Refuse;
        }
        self.up.push(peer);
        Admission::Accept
    }

    fn on_refused(&mut self, id: ConnectId, why: ConnectError) {
        self.model().trace.note(Event::NotUp(self.shard, id));
        self.model().not_up.push((self.shard, why));
        self.attempts.push((id, None));
    }

    fn on_close(&mut self, peer: ConnectionId, why: CloseReason) {
        let was_up = self.up.iter().position(|up| *up == peer);
        let end = (self.shard, peer);
        let mut model = self.model.borrow_mut();
        model.trace.note(Event::Closed(self.shard, peer, why));
        model.suspicions.push((end, Suspicion::Closed(why)));
        model.saw(name_of(why));
        match was_up {
            Some(at) => drop(self.up.swap_remove(at)),
            None => model.violated("a connection ends once", format!("{end:?}: {why}")),
        }
    }
}

/// One in so many calls has a deadline.
const DEADLINE_EVERY: u32 = 11;
/// One in so many calls is cancelled.
const CANCEL_EVERY: u32 = 13;
/// Nanoseconds that a call with a deadline may take, at most.
const PATIENCE: u32 = 40_000_000;
/// Buffers that are kept ready.
const BUFFERS: usize = 4;
/// Deferred calls that are looked at in one turn.
const LATER_MAX: usize = 4;
