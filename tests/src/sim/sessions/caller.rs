//! A session with its program, and the handler of the servers that it calls.

use std::cell::RefCell;
use std::rc::Rc;

use rpcrdma::provider::ConnectId;
use rpcrdma::{
    Admission, Answer, Call, CloseReason, ConnectionId, Handler, Loan, OwnedCall, PeerLimits,
    Provider, Reply, Resend, Session, SessionCallId, SessionEvent, Sink, Turn, Want,
};

use super::ledger::Ledger;
use crate::script::{Order, POISON, Part, Random, Script, part_bytes, unreduced, unreduced_reply};
use crate::service::{Service, Source};
use crate::sim::scenario;

/// A server: the service, and its reports to the ledger.
pub struct Host {
    /// Distinguishes the lives of a server.
    pub life: u32,
    /// What it does.
    pub service: Service,
    /// Where it reports to.
    pub ledger: Rc<RefCell<Ledger>>,
}

impl Handler for Host {
    fn on_call<'a>(&mut self, call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
        let at = (self.life, call.peer());
        self.ledger.borrow_mut().arrived(at, call.xid(), &unreduced(&call));
        self.service.on_call(call, reply)
    }

    fn on_turn(&mut self, turn: &mut Turn<'_>) {
        self.service.on_turn(turn);
    }

    fn on_connect(
        &mut self,
        peer: ConnectionId,
        attempt: Option<ConnectId>,
        limits: &PeerLimits,
    ) -> Admission {
        self.service.on_connect(peer, attempt, limits)
    }

    fn on_close(&mut self, peer: ConnectionId, why: CloseReason) {
        self.service.on_close(peer, why);
    }
}

/// A session with its program.
pub struct Caller<P: Provider> {
    /// The session.
    pub session: Session<P>,
    /// Its number.
    pub index: usize,
    /// Connections that it had or has.
    pub peers: Vec<ConnectionId>,
    /// What it draws from.
    pub random: Random,
    ledger: Rc<RefCell<Ledger>>,
    source: Source,
    buffers: Vec<Loan>,
    made: Vec<(SessionCallId, u32)>,
    len_max: u32,
}

impl<P: Provider> Caller<P> {
    /// A program that makes calls of so many bytes at most.
    pub fn new(
        session: Session<P>,
        index: usize,
        random: Random,
        ledger: Rc<RefCell<Ledger>>,
        len_max: u32,
    ) -> Caller<P> {
        Caller {
            session,
            index,
            peers: Vec::new(),
            random,
            ledger,
            source: Source::default(),
            buffers: Vec::new(),
            made: Vec::new(),
            len_max,
        }
    }

    /// Makes some calls, and cancels some.
    pub fn act(&mut self, now: u64) {
        let mut turn = self.session.turn(now);
        self.source.prepare(&mut turn);
        while self.buffers.len() < BUFFERS
            && let Some(buffer) = turn.buffer()
        {
            self.buffers.push(buffer);
        }
        for _ in 0..self.random.below(4) {
            self.call(now);
        }
        if self.random.below(10) == 0 && !self.made.is_empty() {
            let at = self.random.below(self.made.len() as u32) as usize;
            let (call, id) = self.made.swap_remove(at);
            let is_open = self.session.cancel(call);
            self.ledger.borrow_mut().cancelled(id, is_open);
        }
    }

    fn call(&mut self, now: u64) {
        let Caller { session, random, ledger, source, buffers, index, .. } = self;
        let id = 1 + ledger.borrow().calls.len() as u32;
        let script = scenario::script(random, id, self.len_max, source.is_ready());
        let script = script.order(random.choose(&ORDERS));
        let resend = random.choose(&[Resend::Never, Resend::SameXid]);
        let until = (random.below(5) == 0).then(|| now + u64::from(random.below(PATIENCE)));
        let mut call = session.call(id.into());
        write(&mut call, &script, source, buffers, random);
        call.resend(resend);
        if let Some(at) = until {
            call.deadline(at);
        }
        if random.below(40) == 0 {
            // It is dropped.
            return;
        }
        ledger.borrow_mut().called(*index, script, resend, until);
        match call.submit() {
            Ok(call) => self.made.push((call, id)),
            Err(unsent) => ledger.borrow_mut().refused(*index, id, unsent.why()),
        }
    }

    /// A poll. True if there was work.
    pub fn poll(&mut self, now: u64) -> bool {
        let Caller { session, ledger, index, peers, .. } = self;
        let busy = session.poll(now, |mut done| {
            let id = done.cookie() as u32;
            let mut ledger = ledger.borrow_mut();
            let script = ledger.calls.get(&id).map(|it| it.script.clone());
            let Some(script) = script else { return ledger.done(*index, id, Ok(&[]), now) };
            let reply = done.result().map(|reply| unreduced_reply(reply, &script));
            ledger.done(*index, id, reply.as_deref().map_err(|error| *error), now);
            for want in 0..script.wants.len() {
                if done.take_sink(want).is_some() {
                    ledger.saw("sinks of session calls that came back");
                }
            }
        });
        while let Some(event) = session.next_event() {
            let mut ledger = ledger.borrow_mut();
            match event {
                SessionEvent::Connected { peer, .. } => {
                    ledger.note("up", *index as u64, peers.len() as u64);
                    ledger.saw("sessions connected");
                    peers.push(peer);
                }
                SessionEvent::Lost { .. } => ledger.saw("connections of sessions lost"),
                _ => ledger.saw("connections of sessions not made"),
            }
        }
        busy
    }

    /// Releases all memory.
    pub fn let_go(&mut self) {
        self.buffers.clear();
        self.source = Source::default();
    }
}

/// Writes a call as its script says, with data and result buffers of the program.
fn write(
    call: &mut OwnedCall,
    script: &Script,
    source: &Source,
    buffers: &mut Vec<Loan>,
    random: &mut Random,
) {
    call.put_fixed(&script.head());
    for (index, part) in script.call.iter().enumerate() {
        match *part {
            Part::Inline(len) => call.put_opaque(&part_bytes(script.seed, index, len)),
            Part::Bulk(len) => match buffers.pop() {
                Some(mut loan) if random.below(2) == 0 => {
                    loan.truncate(len as usize);
                    loan.copy_from_slice(&part_bytes(script.seed, index, len));
                    call.place(loan);
                }
                back => {
                    buffers.extend(back);
                    call.place(source.slice(script.seed, index, len));
                }
            },
        }
    }
    for want in &script.wants {
        ask(call, *want, buffers, random);
    }
    call.reply_payload_max(script.reply_payload_max());
}

fn ask(call: &mut OwnedCall, want: Want, buffers: &mut Vec<Loan>, random: &mut Random) {
    if want.len_max == 0 || random.below(3) == 0 {
        return call.want(want);
    }
    let Some(mut loan) = buffers.pop() else { return call.want(want) };
    loan.truncate(want.len_max as usize);
    loan.fill(POISON);
    match random.below(3) {
        0 => call.want_into(want, Sink::from(loan)),
        1 => call.want_either(want, Sink::from(loan)),
        _ => call.want_by_size(want, random.below(want.len_max), Sink::from(loan)),
    }
}

/// Buffers that are kept ready.
const BUFFERS: usize = 4;
/// Nanoseconds that a call with a deadline may take, at most.
const PATIENCE: u32 = 15_000_000;
/// What servers do with calls.
const ORDERS: [Order; 6] =
    [Order::Answer, Order::Answer, Order::Answer, Order::Later, Order::Never, Order::Refuse];
