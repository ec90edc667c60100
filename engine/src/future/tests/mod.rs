//! The clients, in virtual time: one thread turns server, session and futures. A client with a thread
//! of its own is here without it.

mod model;
mod results;
mod sides;
mod steps;
mod waits;

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::control::Control;
use crate::message::payload_reader::PayloadReader;
use crate::{
    Address, Answer, Call, Engine, Fabric, Finished, Handler, Loan, OwnedCall, RegisteredBytes,
    Reply, Session, SessionError, SessionOptions, Shard, Snapshot, Ticket, Turn,
};
use rpcrdma_config::Raw;
use rpcrdma_suite::setup::{checked, small};

use self::sides::{Boxed, OwnThread, Side, both};
use crate::future::awaited::Outcome;
use crate::future::{AsyncError, LocalClient, Request};

/// What a call asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    /// Its number.
    Number,
    /// Its number, later.
    Later,
    /// So many bytes, placed.
    Bytes(u32),
}

impl Ask {
    fn write(self, number: u32) -> OwnedCall {
        let (kind, len) = match self {
            Ask::Number => (0, 0),
            Ask::Later => (1, 0),
            Ask::Bytes(len) => (2, len),
        };
        let mut call = OwnedCall::new();
        [kind, number, len].into_iter().for_each(|word| call.put_u32(word));
        call
    }
}

/// Answers with the number of the call, and the sum of what is placed in it.
#[derive(Default)]
struct Server {
    later: Rc<RefCell<Vec<(Ticket, u32)>>>,
    /// What is read.
    data: Option<RegisteredBytes>,
}

impl Handler for Server {
    fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        let mut reader = call.reader();
        let [kind, number, len] = [(); 3].map(|()| reader.u32().expect("three words"));
        if kind == 1 {
            let (answer, ticket) = reply.defer();
            self.later.borrow_mut().push((ticket, number));
            return answer;
        }
        let placed = call.placed().flat_map(|item| item.segments()).flatten().copied();
        let data = item(&mut reader, placed.collect());
        let sum = data.into_iter().map(u32::from).sum();
        reply.payload().put_u32(number);
        reply.payload().put_u32(sum);
        if kind == 2 {
            let data = self.data.as_ref().and_then(|data| data.slice(0..len as usize));
            reply.payload().place(data.expect("there are so many"));
        }
        reply.send()
    }

    fn on_turn(&mut self, turn: &mut Turn<'_>) {
        if self.data.is_none()
            && let Some(mut buffer) = turn.buffer()
        {
            buffer.fill(FILL);
            self.data = Some(RegisteredBytes::new(buffer));
        }
    }
}

type Running = (Shard<Fabric, Server>, Control<Fabric>, Engine<Fabric>);

/// A call of a test.
type Pending = Boxed<Outcome>;

/// A server that comes and goes, and a client.
struct Harness<S> {
    fabric: Fabric,
    now: u64,
    later: Rc<RefCell<Vec<(Ticket, u32)>>>,
    server: Option<Running>,
    side: S,
    calling: (Control<Fabric>, Engine<Fabric>),
}

fn at() -> Address {
    "127.0.0.1:2049".parse().expect("an address")
}

fn raw() -> Raw {
    let mut raw = small();
    // More than there are credits.
    raw.connections.calls_max = 64;
    raw.engine.idle.policy = "block".into();
    raw.engine.idle.spin = "0us".into();
    raw
}

impl<S: Side> Harness<S> {
    fn new(queued_calls: usize, options: &SessionOptions) -> Harness<S> {
        let fabric = Fabric::new();
        let (engine, control) =
            Engine::without_threads(fabric.clone(), checked(&raw())).expect("an engine");
        let client = engine.client().expect("a client");
        let session = Session::seeded(client, [at()], options, 5).expect("a session");
        let mut harness = Harness {
            fabric,
            now: 1_000_000,
            later: Rc::default(),
            server: None,
            side: S::new(session, queued_calls),
            calling: (control, engine),
        };
        harness.begin();
        harness
    }

    /// Without a server, and with so many places for calls that are queued, and for calls that wait
    /// in the session.
    fn without_server(queued_calls: usize, waiting_calls: usize) -> Harness<S> {
        let options = SessionOptions { waiting_calls, ..SessionOptions::default() };
        let mut harness = Harness::new(queued_calls, &options);
        harness.kill();
        harness
    }

    fn begin(&mut self) {
        let (engine, mut control) =
            Engine::without_threads(self.fabric.clone(), checked(&raw())).expect("an engine");
        let handler = Server { later: self.later.clone(), data: None };
        let shard = engine.shard(handler).expect("a shard");
        control.listen(at()).expect("a listener");
        self.server = Some((shard, control, engine));
    }

    /// As a process that is killed.
    fn kill(&mut self) {
        self.later.borrow_mut().clear();
        self.server = None;
    }

    fn call(&self, request: impl Into<Request>) -> Pending {
        self.side.call(request.into())
    }

    fn step(&mut self) {
        self.now += 10_000;
        if let Some((shard, control, _)) = &mut self.server {
            control.step(Duration::ZERO);
            shard.poll_once(self.now);
        }
        self.calling.0.step(Duration::ZERO);
        self.side.turn(self.now);
    }

    /// Answers the calls that were to be answered later.
    fn answer_later(&mut self) {
        let Some((shard, ..)) = &self.server else { return };
        for (ticket, number) in self.later.borrow_mut().drain(..) {
            let mut finished = Finished::default();
            finished.head.extend(number.to_be_bytes());
            shard.handle().finish(ticket, finished).expect("the shard is there");
        }
    }

    fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Harness<S>) -> bool) {
        for _ in 0..1_000_000 {
            if is_so(self) {
                return;
            }
            self.step();
        }
        panic!("a test waits no longer: {what}");
    }

    /// What becomes of a call.
    fn end(&mut self, call: &mut Pending) -> Outcome {
        let mut outcome = None;
        self.until("the call is over", |_| {
            outcome = ended(call);
            outcome.is_some()
        });
        outcome.expect("it is over")
    }

    fn buffer(&mut self) -> Loan {
        self.free_buffer().expect("a buffer")
    }

    fn free_buffer(&mut self) -> Option<Loan> {
        let now = self.now;
        self.session(|session| session.turn(now).buffer())
    }

    fn session<T>(&mut self, with: impl FnOnce(&mut Session<Fabric>) -> T) -> T {
        self.side.session(with)
    }

    fn stats(&mut self) -> Snapshot {
        self.session(|session| session.handle().stats())
    }

    fn connections(&mut self) -> usize {
        self.session(|session| session.connections())
    }

    /// Checks that all resources of the shard are returned when no future waits any more.
    fn check_nothing_is_lost(&mut self) {
        // What is in the queue goes to the session.
        (0..4).for_each(|_| self.step());
        self.until("every call is over", |harness| {
            harness.answer_later();
            let audit = harness.session(Session::audit);
            let is_free = audit.send.held == 0 && audit.messages.held == 0 && audit.exposures == 0;
            is_free && harness.session(|session| session.open_calls()) == 0
        });
        assert_eq!(self.side.open(), 0);
        let buffers = std::iter::from_fn(|| self.free_buffer());
        assert_eq!(buffers.collect::<Vec<_>>().len(), 8, "all buffers of the program");
        let audit = self.session(Session::audit);
        assert_eq!(audit.slices_lost, 0, "{audit:?}");
        assert_eq!(self.stats().buffers_leaked, 0);
    }
}

/// The bytes of a data item: those that were placed, or those in line if the connection places
/// none.
fn item(reader: &mut PayloadReader<'_>, placed: Vec<u8>) -> Vec<u8> {
    match reader.u32() {
        Ok(len) if placed.is_empty() => {
            let mut bytes = vec![0; len as usize];
            reader.fixed_into(&mut bytes).expect("there are so many");
            bytes
        }
        Ok(_) | Err(_) => placed,
    }
}

/// Every byte that is read.
const FILL: u8 = 7;

/// Why a call failed.
fn why(outcome: Outcome) -> SessionError {
    let AsyncError::Session(why) = outcome.expect_err("it has failed").why() else {
        panic!("the session states it");
    };
    why
}

/// What has become of a call, if it is over.
fn ended(call: &mut Pending) -> Option<Outcome> {
    match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}
