//! Sessions: connections that come back, calls that wait, and calls that are sent again.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use rpcrdma::control::Control;
use rpcrdma::provider::ConnectError;
use rpcrdma::{
    Address, Answer, Call, CallError, CallRefused, CloseReason, Engine, Execution, Fabric, Handler,
    Loan, Outage, Reply, Resend, SendError, Session, SessionCompletion, SessionError, SessionEvent,
    SessionOptions, SessionRefused, Shard, Sink, Ticket, Turn, Want,
};
use rpcrdma_config::Raw;
use rpcrdma_suite::script::joined;
use rpcrdma_suite::setup::{checked, small};

/// What the servers have seen, all together.
#[derive(Default)]
pub(super) struct Log {
    /// The xid and the number of each call, and the bytes placed in it.
    pub(super) calls: Vec<(u32, u32, Vec<u8>)>,
    /// Whether calls are kept instead of answered.
    pub(super) holds: bool,
    pub(super) held: Vec<Ticket>,
}

/// Answers with the number of the call, and places its own bytes if there are any.
pub(super) struct Server {
    log: Rc<RefCell<Log>>,
    loans: Vec<Loan>,
}

impl Handler for Server {
    fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        let number = call.reader().u32().expect("a number");
        assert!(call.placed().all(|item| !item.is_empty()), "what has no bytes is not placed");
        let placed = joined(call.placed().flat_map(|item| item.segments()));
        let mut log = self.log.borrow_mut();
        log.calls.push((call.xid(), number, placed.clone()));
        if log.holds {
            let (answer, ticket) = reply.defer();
            log.held.push(ticket);
            return answer;
        }
        reply.payload().put_u32(number);
        if !placed.is_empty() {
            let mut data = self.loans.pop().expect("a buffer");
            data[..placed.len()].copy_from_slice(&placed);
            data.truncate(placed.len());
            reply.payload().place(data);
        }
        reply.send()
    }

    fn on_turn(&mut self, turn: &mut Turn<'_>) {
        while self.loans.len() < 4
            && let Some(buffer) = turn.buffer()
        {
            self.loans.push(buffer);
        }
    }
}

/// A server at work; dropping it is as if its process were killed.
pub(super) type Running = (Shard<Fabric, Server>, Control<Fabric>, Engine<Fabric>);

/// A client, and servers that come and go, in virtual time.
pub(super) struct Town {
    fabric: Fabric,
    /// The configuration of the servers to come.
    pub(super) serve: Raw,
    pub(super) now: u64,
    pub(super) log: Rc<RefCell<Log>>,
    pub(super) servers: Vec<Option<Running>>,
    pub(super) session: Session<Fabric>,
    calling: (Control<Fabric>, Engine<Fabric>),
    pub(super) done: Vec<(u64, Result<u32, SessionError>)>,
    sinks: Vec<Sink>,
}

pub(super) const MS: u64 = 1_000_000;

pub(super) fn address(server: usize) -> Address {
    format!("127.0.0.1:{}", 2049 + server).parse().expect("an address")
}

pub(super) fn raw() -> Raw {
    let mut raw = small();
    raw.connections.max = 4;
    // More than there are credits.
    raw.connections.calls_max = 64;
    raw
}

impl Town {
    /// With so many addresses, at which no server is yet.
    pub(super) fn new(servers: usize, options: &SessionOptions) -> Town {
        Town::with(servers, options, &raw())
    }

    /// The same, with this configuration of the client.
    pub(super) fn with(servers: usize, options: &SessionOptions, call: &Raw) -> Town {
        let fabric = Fabric::new();
        let (engine, control) =
            Engine::without_threads(fabric.clone(), checked(call)).expect("an engine");
        let client = engine.client().expect("a client");
        let session = Session::seeded(client, (0..servers).map(address), options, 5);
        Town {
            fabric,
            serve: raw(),
            now: MS,
            log: Rc::default(),
            servers: (0..servers).map(|_| None).collect(),
            session: session.expect("a session"),
            calling: (control, engine),
            done: Vec::new(),
            sinks: Vec::new(),
        }
    }

    pub(super) fn begin(&mut self, server: usize) {
        let (engine, mut control) =
            Engine::without_threads(self.fabric.clone(), checked(&self.serve)).expect("an engine");
        let handler = Server { log: self.log.clone(), loans: Vec::new() };
        let shard = engine.shard(handler).expect("a shard");
        control.listen(address(server)).expect("a listener");
        self.servers[server] = Some((shard, control, engine));
    }

    /// As a process that is killed.
    pub(super) fn kill(&mut self, server: usize) {
        self.log.borrow_mut().held.clear();
        self.servers[server] = None;
    }

    /// All but the session.
    pub(super) fn serve(&mut self) {
        self.now += 10_000;
        for (shard, control, _) in self.servers.iter_mut().flatten() {
            control.step(Duration::ZERO);
            shard.poll_once(self.now);
        }
        self.calling.0.step(Duration::ZERO);
    }

    pub(super) fn step(&mut self) {
        self.serve();
        let Town { session, done, sinks, now, .. } = self;
        let now = *now;
        session.poll(now, |mut completion| {
            sinks.extend(completion.take_sink(0));
            done.push((completion.cookie(), number(&completion)));
        });
    }

    pub(super) fn until(&mut self, what: &str, is_so: impl Fn(&Town) -> bool) {
        for _ in 0..2_000_000 {
            if is_so(self) {
                return;
            }
            self.step();
        }
        panic!("a test waits no longer: {what}; done: {:?}", self.done);
    }

    pub(super) fn call(&mut self, cookie: u32, resend: Resend) {
        let mut call = self.session.call(cookie.into());
        call.put_u32(cookie);
        call.resend(resend);
        call.submit().expect("there is room");
    }

    pub(super) fn seen(&self) -> Vec<u32> {
        self.log.borrow().calls.iter().map(|(_, number, _)| *number).collect()
    }

    pub(super) fn buffer(&mut self) -> Loan {
        self.session.turn(self.now).buffer().expect("a buffer")
    }
}

fn number(done: &SessionCompletion<'_, '_>) -> Result<u32, SessionError> {
    done.result().map(|reply| reply.reader().u32().expect("a number"))
}

fn answered(numbers: impl IntoIterator<Item = u32>) -> Vec<(u64, Result<u32, SessionError>)> {
    numbers.into_iter().map(|number| (number.into(), Ok(number))).collect()
}

#[test]
fn calls_made_before_there_is_a_server_are_sent_in_order() {
    let mut town = Town::new(1, &SessionOptions::default());
    (0..40).for_each(|number| town.call(number, Resend::Never));
    for _ in 0..1000 {
        town.step();
    }
    assert_eq!((town.done.len(), town.session.open_calls()), (0, 40));
    assert!(matches!(town.session.next_event(), Some(SessionEvent::NotConnected { .. })));
    town.begin(0);
    // More than there are credits.
    town.until("all are answered", |town| town.done.len() == 40);
    assert_eq!(town.seen(), (0..40).collect::<Vec<_>>());
    assert_eq!(town.done, answered(0..40));
    assert_eq!((town.session.open_calls(), town.session.connections()), (0, 1));
}

#[test]
fn a_call_in_flight_is_lost_or_sent_again_with_its_xid() {
    let mut town = Town::new(1, &SessionOptions::default());
    town.begin(0);
    town.log.borrow_mut().holds = true;
    for number in 0..6 {
        town.call(number, if number % 2 == 0 { Resend::SameXid } else { Resend::Never });
    }
    town.until("they are there", |town| town.log.borrow().held.len() == 6);
    town.kill(0);
    town.until("half of them are over", |town| town.done.len() == 3);
    for (cookie, result) in std::mem::take(&mut town.done) {
        let lost = SessionError::Call(CallError::ConnectionLost(
            CloseReason::PeerGone,
            Execution::Unknown,
        ));
        assert_eq!((cookie % 2, result), (1, Err(lost)));
        assert_eq!(lost.execution(), Execution::Unknown);
    }
    // Calls made meanwhile come behind.
    town.call(6, Resend::SameXid);
    town.log.borrow_mut().holds = false;
    town.begin(0);
    town.until("the others are answered", |town| town.done.len() == 4);
    assert_eq!(town.done, answered([0, 2, 4, 6]));
    let log = town.log.borrow();
    let xids = |from: usize, number: u32| {
        log.calls[from..].iter().find(|(_, of, _)| *of == number).expect("it was seen").0
    };
    for number in [0, 2, 4] {
        assert_eq!(xids(0, number), xids(6, number), "the same call");
    }
    assert_eq!(log.calls.len(), 10);
}

#[test]
fn the_data_and_the_sink_of_a_call_stay_where_they_are() {
    let mut town = Town::new(1, &SessionOptions::default());
    town.begin(0);
    town.log.borrow_mut().holds = true;
    for round in 0..3_u8 {
        let (mut data, sink) = (town.buffer(), town.buffer());
        data.truncate(20_000);
        data.fill(round);
        let mut call = town.session.call(1);
        call.put_u32(1);
        call.place(data);
        call.want_into(Want { len_min: 0, len_max: 20_000 }, Sink::from(sink));
        call.resend(Resend::SameXid);
        call.submit().expect("there is room");
        town.until("it is there", |town| town.log.borrow().held.len() == 1);
        town.kill(0);
        town.begin(0);
        town.until("it is there again", |town| town.log.borrow().held.len() == 1);
        town.kill(0);
        town.log.borrow_mut().holds = false;
        town.begin(0);
        town.until("it is answered", |town| town.done.len() == 1);
        assert_eq!(std::mem::take(&mut town.done), answered([1]));
        let sink = town.sinks.pop().expect("it comes back");
        assert!(sink.pieces()[0][..20_000].iter().all(|byte| *byte == round));
        let mut log = town.log.borrow_mut();
        let calls = std::mem::take(&mut log.calls);
        assert_eq!(calls.len(), 3);
        for (xid, _, placed) in &calls {
            assert_eq!((*xid, placed), (calls[0].0, &vec![round; 20_000]));
        }
        log.holds = true;
    }
    // All eight buffers of the client are there.
    let buffers: Vec<Loan> = (0..8).map_while(|_| town.session.turn(town.now).buffer()).collect();
    assert_eq!(buffers.len(), 8);
}

#[test]
fn a_service_goes_on_at_its_next_address() {
    let mut town = Town::new(3, &SessionOptions::default());
    town.begin(2);
    for number in 0..30 {
        town.call(number, Resend::SameXid);
        town.until("it is answered", |town| town.done.len() == number as usize + 1);
        if number % 10 == 9 {
            let next = [1, 0, 2][number as usize / 10];
            town.kill([2, 1, 0][number as usize / 10]);
            town.begin(next);
        }
    }
    assert_eq!(town.done, answered(0..30));
}

#[test]
fn calls_are_spread_over_the_connections_by_their_credits() {
    let options = SessionOptions { connections: 3, ..SessionOptions::default() };
    let mut town = Town::new(1, &options);
    town.begin(0);
    town.until("all are up", |town| town.session.connections() == 3);
    town.log.borrow_mut().holds = true;
    (0..12).for_each(|number| town.call(number, Resend::Never));
    town.until("they are there", |town| town.log.borrow().held.len() == 12);
    let mut peers: Vec<_> = town.log.borrow().held.iter().map(Ticket::peer).collect();
    peers.sort_by_key(|peer| format!("{peer:?}"));
    for three in peers.chunks(4) {
        assert!(three.iter().all(|peer| *peer == three[0]), "four each: {peers:?}");
    }
    // One connection is lost; the calls of the others are not disturbed.
    let shard = town.servers[0].as_mut().expect("it runs");
    shard.0.handle().close(peers[0]);
    town.until("its calls are over", |town| town.done.len() == 4);
    town.until("it is back", |town| town.session.connections() == 3);
    assert_eq!(town.done.len(), 4);
}

#[test]
fn a_waiting_call_ends_at_its_deadline_or_when_it_is_cancelled() {
    let mut town = Town::new(1, &SessionOptions::default());
    let ids: Vec<_> = (0..4_u32)
        .map(|number| {
            let at = town.now + u64::from(number) * MS;
            let mut call = town.session.call(number.into());
            call.put_u32(number);
            if number > 0 {
                call.deadline(at);
            }
            call.submit().expect("there is room")
        })
        .collect();
    assert!(town.session.cancel(ids[3]) && town.session.cancel(ids[3]));
    town.until("two have ended", |town| town.done.len() == 3);
    let not = Execution::NotExecuted;
    let outage = Outage::NotConnected(ConnectError::NoListener);
    let late = Err(SessionError::DeadlineExceeded(outage, not));
    let cancelled = Err(SessionError::Call(CallError::Cancelled(not)));
    assert_eq!(town.done, [(3, cancelled), (1, late), (2, late)]);
    assert!(town.now < 4 * MS, "not later than it should: {}", town.now);
    assert!(!town.session.cancel(ids[1]), "it is over");
    town.begin(0);
    town.until("the last is answered", |town| town.done.len() == 4);
    assert!(!town.session.cancel(ids[0]), "it is over");
    assert_eq!(town.done[3], (0, Ok(0)));
    assert_eq!(town.seen(), [0]);
}

#[test]
fn a_call_that_is_sent_again_keeps_its_deadline() {
    let mut town = Town::new(1, &SessionOptions::default());
    town.begin(0);
    town.log.borrow_mut().holds = true;
    let at = town.now + 400 * MS;
    for cookie in 0..2 {
        let mut call = town.session.call(cookie);
        call.put_u32(9);
        call.deadline(at);
        call.resend(Resend::SameXid);
        let id = call.submit().expect("there is room");
        town.until("it is there", |town| town.log.borrow().held.len() == cookie as usize + 1);
        if cookie == 1 {
            // A cancelled call is not sent again, though its connection is lost at that moment.
            assert!(town.session.cancel(id));
        }
    }
    town.kill(0);
    town.begin(0);
    town.until("both have ended", |town| town.done.len() == 2);
    let unknown = Execution::Unknown;
    let cancelled = Err(SessionError::Call(CallError::Cancelled(unknown)));
    let late = Err(SessionError::Call(CallError::DeadlineExceeded(unknown)));
    assert_eq!(town.done, [(1, cancelled), (0, late)]);
    assert!(town.now >= at && town.now < at + 100 * MS);
    assert_eq!(town.seen(), [9, 9, 9]);
}

#[test]
fn what_may_wait_is_bounded_and_a_refused_call_is_returned() {
    let options =
        SessionOptions { waiting_calls: 3, waiting_bytes: 50_000, ..SessionOptions::default() };
    let mut town = Town::new(1, &options);
    (0..2).for_each(|number| town.call(number, Resend::Never));
    let mut data = town.buffer();
    data.truncate(60_000);
    data.fill(7);
    let mut call = town.session.call(2);
    call.put_u32(2);
    call.place(data);
    let unsent = call.submit().expect_err("too many bytes");
    assert_eq!(unsent.why(), SessionRefused::Full);
    town.call(3, Resend::Never);
    let mut call = town.session.call(4);
    call.put_u32(4);
    assert_eq!(call.submit().expect_err("too many calls").why(), SessionRefused::Full);
    town.begin(0);
    town.until("they are answered", |town| town.done.len() == 3);
    // The one that was refused is as it was.
    let mut call = town.session.call(2);
    *call = unsent.into_call().expect("all of it is there");
    call.submit().expect("there is room");
    town.until("it is answered", |town| town.done.len() == 4);
    let log = town.log.borrow();
    assert_eq!((log.calls[3].1, &log.calls[3].2), (2, &vec![7; 60_000]));
}

#[test]
fn a_call_that_no_connection_takes_is_refused() {
    let mut town = Town::new(1, &SessionOptions::default());
    let long = vec![1; 8 << 20];
    let mut call = town.session.call(0);
    call.put_u32(0);
    call.put_opaque(&long[..4 << 20]);
    call.submit().expect("it waits");
    town.begin(0);
    town.until("it has ended", |town| town.done.len() == 1);
    let refused = SessionError::Refused(CallRefused::PayloadTooLong, Execution::NotExecuted);
    assert_eq!(town.done, [(0, Err(refused))]);
    let mut call = town.session.call(0);
    call.put_u32(0);
    call.put_opaque(&long[..4 << 20]);
    let unsent = call.submit().expect_err("at once");
    assert_eq!(unsent.why(), SessionRefused::Call(CallRefused::PayloadTooLong));
    town.call(1, Resend::Never);
    town.until("others go on", |town| town.done.len() == 2);
}

#[test]
fn a_closed_session_completes_every_call() {
    let mut town = Town::new(1, &SessionOptions::default());
    town.begin(0);
    town.log.borrow_mut().holds = true;
    (0..30).for_each(|number| town.call(number, Resend::SameXid));
    town.until("some are there", |town| town.log.borrow().held.len() == 16);
    town.session.close();
    let mut call = town.session.call(99);
    call.put_u32(99);
    assert_eq!(call.submit().expect_err("it is closed").why(), SessionRefused::Closed);
    for _ in 0..2_000_000 {
        if town.session.is_closed() {
            break;
        }
        town.step();
    }
    assert!(town.session.is_closed());
    let mut cookies: Vec<u64> = town.done.iter().map(|(cookie, _)| *cookie).collect();
    cookies.sort_unstable();
    assert_eq!(cookies, (0..30).collect::<Vec<_>>());
    for (cookie, result) in &town.done {
        let execution = if *cookie < 16 { Execution::Unknown } else { Execution::NotExecuted };
        assert_eq!(*result, Err(SessionError::Closed(execution)), "{cookie}");
    }
}

#[test]
fn a_session_says_what_is_wrong_with_its_options() {
    let engine = Engine::new(Fabric::new(), checked(&raw())).expect("an engine");
    let wrong = [(0, 1, "at least one address"), (1, 0, "1 to 4 connections"), (1, 5, "not 5")];
    for (addresses, connections, says) in wrong {
        let options = SessionOptions { connections, ..SessionOptions::default() };
        let client = engine.client().expect("a client");
        let error = Session::new(client, (0..addresses).map(address), &options).map(|_| ());
        let error = error.expect_err("it cannot be").to_string();
        assert!(error.contains(says), "{error}");
    }
}

/// An owned call is what a builder would have sent, and comes back whole from a refusal.
#[test]
fn a_refused_call_of_a_client_is_submitted_again() {
    let mut town = Town::new(1, &SessionOptions::default());
    town.begin(0);
    let mut client = town.calling.1.client().expect("a client");
    let id = client.begin_connect(address(0)).expect("an attempt");
    let mut peer = None;
    while peer.is_none() {
        town.step();
        client.poll(town.now, |_| ());
        peer = client.connected(id).map(|outcome| outcome.expect("it is up"));
    }
    let peer = peer.expect("the loop ends with one");
    town.log.borrow_mut().holds = true;
    let mut refused = Vec::new();
    for number in 0..40_u32 {
        let mut data = client.turn(0).buffer();
        let mut builder = match client.call(peer, 0) {
            Ok(builder) => builder,
            Err(_) => break,
        };
        builder.payload().put_u32(number);
        if let Some(mut data) = data.take_if(|_| number % 3 == 0) {
            data.truncate(30);
            data.fill(number as u8);
            builder.payload().place(data);
            builder.payload().put_u32(5);
        }
        if let Err(unsent) = builder.try_submit() {
            assert!(matches!(
                unsent.why(),
                CallRefused::Protocol(SendError::NotEnoughCredits { .. })
            ));
            refused.push((number, unsent.into_call().expect("all of it")));
        }
        if refused.len() == 4 {
            break;
        }
    }
    assert_eq!(refused.len(), 4);
    let first = refused[0].0;
    town.log.borrow_mut().holds = false;
    for (number, mut call) in refused {
        let mut tries = 0;
        loop {
            match client.submit(peer, 0, call) {
                Ok(handle) => break assert_eq!(handle.peer(), peer),
                Err(unsent) => {
                    assert!(unsent.why().is_transient(), "{number}: {unsent}");
                    call = unsent.into_call().expect("it comes back whole");
                }
            }
            tries += 1;
            assert!(tries < 1000, "{number}");
            if tries == 3 {
                // Their tickets are dropped: they are answered with SYSTEM_ERR.
                town.log.borrow_mut().held.clear();
            }
            town.step();
            client.poll(town.now, |_| ());
        }
    }
    for _ in 0..100 {
        town.step();
        client.poll(town.now, |_| ());
    }
    let log = town.log.borrow();
    let again: Vec<_> = log.calls.iter().filter(|(_, number, _)| *number >= first).collect();
    assert_eq!(again.len(), 4);
    for (_, number, placed) in again {
        let expected = if number % 3 == 0 { vec![*number as u8; 30] } else { Vec::new() };
        assert_eq!(*placed, expected, "{number}");
    }
}
