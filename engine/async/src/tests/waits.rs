//! Where a call waits its deadline runs, and what happens to the connections is reported.

use rpcrdma_engine::provider::ConnectError;
use rpcrdma_engine::{
    CallError, CloseReason, Execution, Outage, Session, SessionEvent, SessionOptions,
};

use super::*;

/// A call of a number, with a deadline so many nanoseconds from now.
fn until(town: &Town, number: u32, ns: u64) -> OwnedCall {
    let mut call = Ask::Number.write(number);
    call.deadline(town.now + ns);
    call
}

#[test]
fn a_deadline_runs_while_the_session_is_full() {
    let mut town = Town::without_server(4, 1);
    let mut first = town.call(Ask::Number.write(0));
    assert!(ended(&mut first).is_none());
    (0..100).for_each(|_| town.step());
    assert_eq!(town.poller.session.open_calls(), 1);
    let mut call = until(&town, 1, 1_000_000);
    call.place(town.buffer());
    let (mut late, at) = (town.call(call), town.now + 1_000_000);
    let mut later = town.call(until(&town, 2, 2_000_000));
    assert!(ended(&mut late).is_none() && ended(&mut later).is_none());
    let mut failed = town.end(&mut late).expect_err("nobody answers it");
    assert!((at..at + 100_000).contains(&town.now), "{} and {at}", town.now);
    let outage = Outage::NotConnected(ConnectError::NoListener);
    let not = Execution::NotExecuted;
    assert_eq!(failed.why(), SessionError::DeadlineExceeded(outage, not).into());
    assert_eq!(failed.take_placed().len(), 1, "its memory comes back");
    drop(failed);
    assert_eq!(why(town.end(&mut later)), SessionError::DeadlineExceeded(outage, not));
    assert!(ended(&mut first).is_none(), "it has no deadline");
    drop(first);
    town.check_nothing_is_lost();
}

#[test]
fn a_deadline_runs_before_the_thread_takes_the_call() {
    let mut town = Town::without_server(1, 0);
    // The first has the only place in the queue; the others wait for one.
    let mut calls: Vec<_> = (0..3).map(|at| town.call(until(&town, at, 1_000))).collect();
    assert!(calls.iter_mut().all(|call| ended(call).is_none()));
    town.now += 1_000;
    for call in &mut calls {
        let why = why(town.end(call));
        assert_eq!(why.execution(), Execution::NotExecuted);
        assert!(why.to_string().contains("deadline"), "{why}");
    }
    town.check_nothing_is_lost();
}

/// A full queue in front of a full session, which a call without a deadline has filled.
fn full() -> (Town, Pending) {
    let mut town = Town::without_server(1, 0);
    let mut first = town.call(Ask::Number.write(0));
    assert!(ended(&mut first).is_none());
    (0..100).for_each(|_| town.step());
    assert_eq!(town.poller.desk.queued(), 1);
    (town, first)
}

#[test]
fn a_deadline_runs_while_the_queue_is_full() {
    let (mut town, mut first) = full();
    let mut call = until(&town, 1, 1_000_000);
    call.place(town.buffer());
    let (mut late, at) = (town.call(call), town.now + 1_000_000);
    assert!(ended(&mut late).is_none());
    town.step();
    let sleep = town.poller.desk.until_due(town.now);
    assert_eq!(sleep, Duration::from_nanos(at - town.now), "the thread wakes for it");
    let mut failed = town.end(&mut late).expect_err("it has no place");
    assert!((at..at + 100_000).contains(&town.now), "{} and {at}", town.now);
    let outage = Outage::NotConnected(ConnectError::NoListener);
    let why = SessionError::DeadlineExceeded(outage, Execution::NotExecuted);
    assert_eq!(failed.why(), why.into());
    assert_eq!(failed.take_placed().len(), 1, "its memory comes back");
    drop(failed);
    assert!(ended(&mut first).is_none(), "it has no deadline");
    drop(first);
    town.check_nothing_is_lost();
}

#[test]
fn a_dropped_future_gives_up_the_place_that_it_waits_for() {
    let (mut town, first) = full();
    let mut others: Vec<_> = (1..5).map(|at| town.call(Ask::Number.write(at))).collect();
    assert!(others.iter_mut().all(|call| ended(call).is_none()));
    town.step();
    // One that waits for it, then the one that has it.
    assert_eq!(town.poller.desk.waiters(), 4);
    drop(others.remove(0));
    town.step();
    assert_eq!(town.poller.desk.waiters(), 3);
    drop(first);
    town.step();
    assert_eq!(town.poller.desk.queued(), 0);
    // It has been given to the next, which does not know it yet.
    drop(others.remove(0));
    town.step();
    assert!(others.iter_mut().all(|call| ended(call).is_none()));
    assert_eq!(town.poller.desk.queued(), 1, "the next one has it");
    town.begin();
    for (call, number) in others.iter_mut().zip(3..) {
        assert_eq!(town.end(call).expect("it is answered").reader().u32(), Ok(number));
    }
    town.check_nothing_is_lost();
}

#[test]
fn a_call_that_is_dropped_before_the_thread_takes_it_keeps_no_place() {
    let mut town = Town::without_server(2, 0);
    let mut first = town.call(Ask::Number.write(0));
    assert!(ended(&mut first).is_none());
    (0..100).for_each(|_| town.step());
    let mut call = Ask::Number.write(1);
    call.place(town.buffer());
    let mut dropped = town.call(call);
    assert!(ended(&mut dropped).is_none());
    assert_eq!(town.poller.desk.queued(), 2);
    // The thread looks for what is cancelled before it takes the call.
    drop(dropped);
    town.step();
    assert_eq!(town.poller.desk.queued(), 1);
    assert!(ended(&mut first).is_none(), "it waits on");
    let mut second = town.call(Ask::Number.write(2));
    assert!(ended(&mut second).is_none());
    assert_eq!(town.poller.desk.queued(), 2, "it has the place");
    drop((first, second));
    town.check_nothing_is_lost();
}

#[test]
fn a_call_does_not_pass_those_that_wait_for_a_place() {
    let (mut town, first) = full();
    let mut waits = town.call(Ask::Number.write(1));
    assert!(ended(&mut waits).is_none());
    town.step();
    drop(first);
    let Poller { desk, session, .. } = &mut town.poller;
    assert!(desk.cancel(session), "the place is free, and not given yet");
    let mut next = town.call(Ask::Number.write(2));
    assert!(ended(&mut next).is_none());
    assert_eq!(town.poller.desk.queued(), 0, "it waits behind the other");
    town.step();
    assert!(ended(&mut next).is_none() && ended(&mut waits).is_none());
    assert_eq!((town.poller.desk.queued(), town.poller.desk.waiters()), (1, 1));
    town.begin();
    for (call, number) in [(&mut waits, 1), (&mut next, 2)] {
        assert_eq!(town.end(call).expect("it is answered").reader().u32(), Ok(number));
    }
    // No task waits any more: a place is taken without the thread.
    let mut last = town.call(Ask::Number.write(3));
    assert!(ended(&mut last).is_none());
    assert_eq!(town.poller.desk.queued(), 1);
    town.end(&mut last).expect("it is answered");
    town.check_nothing_is_lost();
}

#[test]
fn a_call_that_waits_for_a_place_ends_with_the_client() {
    let (mut town, first) = full();
    let mut calls: Vec<_> = (1..3).map(|at| town.call(Ask::Number.write(at))).collect();
    for call in &mut calls {
        // One is known to the thread, the other is made after its last turn.
        town.step();
        assert!(ended(call).is_none());
    }
    calls.push(town.call(Ask::Number.write(3)));
    town.client = None;
    town.poller.is_over();
    for call in calls.iter_mut().chain([&mut { first }]) {
        let why = why(ended(call).expect("it is over"));
        assert_eq!(why, SessionError::Closed(Execution::NotExecuted));
    }
    town.check_nothing_is_lost();
}

#[test]
fn a_call_that_is_late_when_the_thread_takes_it_is_not_sent() {
    let mut town = Town::new(4, &SessionOptions::default());
    town.until("there is a connection", |town| town.poller.session.connections() > 0);
    let mut call = Ask::Number.write(1);
    call.deadline(town.now);
    let mut call = town.call(call);
    let late = CallError::DeadlineExceeded(Execution::NotExecuted);
    assert_eq!(why(town.end(&mut call)), SessionError::Call(late));
    assert_eq!(town.poller.session.handle().stats().calls_out, 0);
    town.check_nothing_is_lost();
}

#[test]
fn a_call_that_is_dropped_while_the_session_is_full_returns_its_memory() {
    let mut town = Town::without_server(4, 0);
    let mut call = Ask::Number.write(1);
    call.place(town.buffer());
    let mut call = town.call(call);
    assert!(ended(&mut call).is_none());
    (0..10).for_each(|_| town.step());
    drop(call);
    town.check_nothing_is_lost();
}

#[test]
fn calls_are_passed_on_in_order_when_there_is_room() {
    let mut town = Town::without_server(8, 2);
    let mut calls: Vec<_> = (0..8).map(|at| town.call(Ask::Later.write(at))).collect();
    calls.iter_mut().for_each(|call| assert!(ended(call).is_none()));
    (0..10).for_each(|_| town.step());
    town.begin();
    town.until("they are there", |town| town.later.borrow().len() == 8);
    let numbers: Vec<_> = town.later.borrow().iter().map(|(_, number)| *number).collect();
    assert_eq!(numbers, (0..8).collect::<Vec<_>>());
    town.answer_later();
    for call in &mut calls {
        town.end(call).expect("it is answered");
    }
    town.check_nothing_is_lost();
}

/// The next event of a client.
fn event(town: &mut Town) -> SessionEvent {
    let mut next = Box::pin(town.client.as_ref().expect("it is open").next_event());
    for _ in 0..1_000_000 {
        let polled = next.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(event) = polled {
            return event.expect("the thread is there");
        }
        town.step();
    }
    panic!("no event");
}

#[test]
fn what_happens_to_the_connections_is_reported() {
    let mut town = Town::new(4, &SessionOptions::default());
    town.kill();
    let state = |town: &Town| {
        let client = town.client.as_ref().expect("it is open");
        (client.connections(), client.outage())
    };
    assert_eq!(state(&town), (0, None));
    let SessionEvent::NotConnected { why, .. } = event(&mut town) else { panic!("no server") };
    assert_eq!(why.as_connect_error(), ConnectError::NoListener);
    let outage = Outage::NotConnected(ConnectError::NoListener);
    assert_eq!(state(&town), (0, Some(outage)));
    town.begin();
    while !matches!(event(&mut town), SessionEvent::Connected { .. }) {}
    assert_eq!(state(&town), (1, None));
    town.kill();
    let SessionEvent::Lost { why, .. } = event(&mut town) else { panic!("it is lost") };
    assert_eq!(
        (why, state(&town)),
        (CloseReason::PeerGone, (0, Some(Outage::Lost(CloseReason::PeerGone))))
    );
    town.begin();
    town.until("there is a connection", |town| state(town).0 == 1);
    let client = town.client.take().expect("it is open");
    let next = client.next_event();
    drop(client.close());
    town.until("its connections have ended", |town| town.poller.is_over());
    assert_eq!(client.connections(), 0);
    drop((client, town));
    let ended = futures::executor::block_on(next);
    assert!(ended.is_some(), "one of those that were left");
}

#[test]
fn a_session_that_cannot_connect_ends_calls_at_once() {
    let fabric = Fabric::new();
    let (engine, mut control) =
        Engine::without_threads(fabric, checked(&raw())).expect("an engine");
    let wrong: Address = "shm:/run/nothing.sock".parse().expect("an address");
    let options = SessionOptions::default();
    let client = engine.client().expect("a client");
    let session = Session::seeded(client, [wrong], &options, 5).expect("a session");
    let (client, mut poller) = AsyncClient::new(session, &AsyncOptions::default());
    for number in 0..2 {
        let mut call: Pending = Box::pin(client.call(Ask::Number.write(number)));
        let outcome = (0..1000).find_map(|turn| {
            control.step(Duration::ZERO);
            poller.turn(1_000_000 + turn);
            ended(&mut call)
        });
        let why = why(outcome.expect("it ends at once"));
        let SessionError::NoConnection(reason, Execution::NotExecuted) = why else {
            panic!("{why}")
        };
        assert!(matches!(reason, ConnectError::WrongAddress { .. }), "{reason}");
    }
    assert!(matches!(client.outage(), Some(Outage::NotConnected(_))));
}

#[test]
fn a_buffer_that_a_task_waits_for_ends_with_the_client() {
    let mut town = Town::new(4, &SessionOptions::default());
    let held: Vec<_> = (0..8).map(|_| town.buffer()).collect();
    let client = town.client.take().expect("it is open");
    let mut waits: Vec<_> = (0..2).map(|_| Box::pin(client.buffer())).collect();
    let mut poll = |town: &mut Town, is_over: bool| {
        for wait in &mut waits {
            match wait.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => assert!(!is_over, "it waits without end"),
                Poll::Ready(outcome) => {
                    let why = outcome.expect_err("none is free");
                    assert_eq!(why, SessionError::Closed(Execution::NotExecuted).into());
                    assert!(is_over);
                }
            }
            // One is known to the thread, the other is asked for after its last turn.
            if !is_over {
                town.step();
            }
        }
    };
    poll(&mut town, false);
    drop(client);
    town.poller.is_over();
    poll(&mut town, true);
    drop(held);
    town.check_nothing_is_lost();
}
