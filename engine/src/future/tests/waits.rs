//! Where a call waits its deadline runs, and what happens to the connections is reported.

use crate::provider::ConnectError;
use crate::{CallError, CloseReason, Execution, Outage, Session, SessionEvent, SessionOptions};

use super::*;
use crate::future::poller::Poller;

both!(
    a_deadline_runs_while_the_session_is_full,
    a_call_that_is_late_when_the_thread_takes_it_is_not_sent,
    a_call_that_is_dropped_while_the_session_is_full_returns_its_memory,
    calls_are_passed_on_in_order_when_there_is_room,
    what_happens_to_the_connections_is_reported,
    a_session_that_cannot_connect_ends_calls_at_once,
    a_buffer_that_a_task_waits_for_ends_with_the_client,
);

/// A call of a number, with a deadline so many nanoseconds from now.
fn until<S: Side>(harness: &Harness<S>, number: u32, ns: u64) -> OwnedCall {
    let mut call = Ask::Number.write(number);
    call.deadline(harness.now + ns);
    call
}

fn a_deadline_runs_while_the_session_is_full<S: Side>() {
    let mut harness = Harness::<S>::without_server(4, 1);
    let mut first = harness.call(Ask::Number.write(0));
    assert!(ended(&mut first).is_none());
    (0..100).for_each(|_| harness.step());
    assert_eq!(harness.session(|session| session.open_calls()), 1);
    let mut call = until(&harness, 1, 1_000_000);
    call.place(harness.buffer());
    let (mut late, at) = (harness.call(call), harness.now + 1_000_000);
    let mut later = harness.call(until(&harness, 2, 2_000_000));
    assert!(ended(&mut late).is_none() && ended(&mut later).is_none());
    let mut failed = harness.end(&mut late).expect_err("no server answers it");
    assert!((at..at + 100_000).contains(&harness.now), "{} and {at}", harness.now);
    let outage = Outage::NotConnected(ConnectError::NoListener);
    let not = Execution::NotExecuted;
    assert_eq!(failed.why(), SessionError::DeadlineExceeded(outage, not).into());
    assert_eq!(failed.take_placed().len(), 1, "its memory comes back");
    drop(failed);
    assert_eq!(why(harness.end(&mut later)), SessionError::DeadlineExceeded(outage, not));
    assert!(ended(&mut first).is_none(), "it has no deadline");
    drop(first);
    harness.check_nothing_is_lost();
}

#[test]
fn a_deadline_runs_before_the_thread_takes_the_call() {
    let mut harness = Harness::<OwnThread>::without_server(1, 0);
    // The first has the only place in the queue; the others wait for one.
    let mut calls: Vec<_> = (0..3).map(|at| harness.call(until(&harness, at, 1_000))).collect();
    assert!(calls.iter_mut().all(|call| ended(call).is_none()));
    harness.now += 1_000;
    for call in &mut calls {
        let why = why(harness.end(call));
        assert_eq!(why.execution(), Execution::NotExecuted);
        assert!(why.to_string().contains("deadline"), "{why}");
    }
    harness.check_nothing_is_lost();
}

/// A full queue in front of a full session, which a call without a deadline has filled.
fn full() -> (Harness<OwnThread>, Pending) {
    let mut harness = Harness::<OwnThread>::without_server(1, 0);
    let mut first = harness.call(Ask::Number.write(0));
    assert!(ended(&mut first).is_none());
    (0..100).for_each(|_| harness.step());
    assert_eq!(harness.side.poller.calls.queued(), 1);
    (harness, first)
}

#[test]
fn a_deadline_runs_while_the_queue_is_full() {
    let (mut harness, mut first) = full();
    let mut call = until(&harness, 1, 1_000_000);
    call.place(harness.buffer());
    let (mut late, at) = (harness.call(call), harness.now + 1_000_000);
    assert!(ended(&mut late).is_none());
    harness.step();
    let sleep = harness.side.poller.calls.until_due(harness.now);
    assert_eq!(sleep, Duration::from_nanos(at - harness.now), "the thread wakes for it");
    let mut failed = harness.end(&mut late).expect_err("it has no place");
    assert!((at..at + 100_000).contains(&harness.now), "{} and {at}", harness.now);
    let outage = Outage::NotConnected(ConnectError::NoListener);
    let why = SessionError::DeadlineExceeded(outage, Execution::NotExecuted);
    assert_eq!(failed.why(), why.into());
    assert_eq!(failed.take_placed().len(), 1, "its memory comes back");
    drop(failed);
    assert!(ended(&mut first).is_none(), "it has no deadline");
    drop(first);
    harness.check_nothing_is_lost();
}

#[test]
fn a_dropped_future_gives_up_the_place_that_it_waits_for() {
    let (mut harness, first) = full();
    let mut others: Vec<_> = (1..5).map(|at| harness.call(Ask::Number.write(at))).collect();
    assert!(others.iter_mut().all(|call| ended(call).is_none()));
    harness.step();
    // One that waits for it, then the one that has it.
    assert_eq!(harness.side.poller.calls.waiters(), 4);
    drop(others.remove(0));
    harness.step();
    assert_eq!(harness.side.poller.calls.waiters(), 3);
    drop(first);
    harness.step();
    assert_eq!(harness.side.poller.calls.queued(), 0);
    // It has been given to the next, which does not know it yet.
    drop(others.remove(0));
    harness.step();
    assert!(others.iter_mut().all(|call| ended(call).is_none()));
    assert_eq!(harness.side.poller.calls.queued(), 1, "the next one has it");
    harness.begin();
    for (call, number) in others.iter_mut().zip(3..) {
        assert_eq!(harness.end(call).expect("it is answered").reader().u32(), Ok(number));
    }
    harness.check_nothing_is_lost();
}

#[test]
fn a_call_that_is_dropped_before_the_thread_takes_it_keeps_no_place() {
    let mut harness = Harness::<OwnThread>::without_server(2, 0);
    let mut first = harness.call(Ask::Number.write(0));
    assert!(ended(&mut first).is_none());
    (0..100).for_each(|_| harness.step());
    let mut call = Ask::Number.write(1);
    call.place(harness.buffer());
    let mut dropped = harness.call(call);
    assert!(ended(&mut dropped).is_none());
    assert_eq!(harness.side.poller.calls.queued(), 2);
    // The thread looks for what is cancelled before it takes the call.
    drop(dropped);
    harness.step();
    assert_eq!(harness.side.poller.calls.queued(), 1);
    assert!(ended(&mut first).is_none(), "it waits on");
    let mut second = harness.call(Ask::Number.write(2));
    assert!(ended(&mut second).is_none());
    assert_eq!(harness.side.poller.calls.queued(), 2, "it has the place");
    drop((first, second));
    harness.check_nothing_is_lost();
}

#[test]
fn a_call_does_not_pass_those_that_wait_for_a_place() {
    let (mut harness, first) = full();
    let mut waits = harness.call(Ask::Number.write(1));
    assert!(ended(&mut waits).is_none());
    harness.step();
    drop(first);
    let Poller { calls, session, .. } = &mut harness.side.poller;
    assert!(calls.cancel(session), "the place is free, and not given yet");
    let mut next = harness.call(Ask::Number.write(2));
    assert!(ended(&mut next).is_none());
    assert_eq!(harness.side.poller.calls.queued(), 0, "it waits behind the other");
    harness.step();
    assert!(ended(&mut next).is_none() && ended(&mut waits).is_none());
    assert_eq!((harness.side.poller.calls.queued(), harness.side.poller.calls.waiters()), (1, 1));
    harness.begin();
    for (call, number) in [(&mut waits, 1), (&mut next, 2)] {
        assert_eq!(harness.end(call).expect("it is answered").reader().u32(), Ok(number));
    }
    // No task waits any more: a place is taken without the thread.
    let mut last = harness.call(Ask::Number.write(3));
    assert!(ended(&mut last).is_none());
    assert_eq!(harness.side.poller.calls.queued(), 1);
    harness.end(&mut last).expect("it is answered");
    harness.check_nothing_is_lost();
}

#[test]
fn a_call_that_waits_for_a_place_ends_with_the_client() {
    let (mut harness, first) = full();
    let mut calls: Vec<_> = (1..3).map(|at| harness.call(Ask::Number.write(at))).collect();
    for call in &mut calls {
        // One is known to the thread, the other is made after its last turn.
        harness.step();
        assert!(ended(call).is_none());
    }
    calls.push(harness.call(Ask::Number.write(3)));
    harness.side.client = None;
    harness.side.poller.is_over();
    for call in calls.iter_mut().chain([&mut { first }]) {
        let why = why(ended(call).expect("it is over"));
        assert_eq!(why, SessionError::Closed(Execution::NotExecuted));
    }
    harness.check_nothing_is_lost();
}

fn a_call_that_is_late_when_the_thread_takes_it_is_not_sent<S: Side>() {
    let mut harness = Harness::<S>::new(4, &SessionOptions::default());
    harness.until("there is a connection", |harness| harness.connections() > 0);
    let mut call = Ask::Number.write(1);
    call.deadline(harness.now);
    let mut call = harness.call(call);
    let late = CallError::DeadlineExceeded(Execution::NotExecuted);
    assert_eq!(why(harness.end(&mut call)), SessionError::Call(late));
    assert_eq!(harness.stats().calls_sent, 0);
    harness.check_nothing_is_lost();
}

fn a_call_that_is_dropped_while_the_session_is_full_returns_its_memory<S: Side>() {
    let mut harness = Harness::<S>::without_server(4, 0);
    let mut call = Ask::Number.write(1);
    call.place(harness.buffer());
    let mut call = harness.call(call);
    assert!(ended(&mut call).is_none());
    (0..10).for_each(|_| harness.step());
    drop(call);
    harness.check_nothing_is_lost();
}

fn calls_are_passed_on_in_order_when_there_is_room<S: Side>() {
    let mut harness = Harness::<S>::without_server(8, 2);
    let mut calls: Vec<_> = (0..8).map(|at| harness.call(Ask::Later.write(at))).collect();
    calls.iter_mut().for_each(|call| assert!(ended(call).is_none()));
    (0..10).for_each(|_| harness.step());
    harness.begin();
    harness.until("they are there", |harness| harness.later.borrow().len() == 8);
    let numbers: Vec<_> = harness.later.borrow().iter().map(|(_, number)| *number).collect();
    assert_eq!(numbers, (0..8).collect::<Vec<_>>());
    harness.answer_later();
    for call in &mut calls {
        harness.end(call).expect("it is answered");
    }
    harness.check_nothing_is_lost();
}

/// The next event of a client.
fn event<S: Side>(harness: &mut Harness<S>) -> SessionEvent {
    let mut next = harness.side.next_event();
    for _ in 0..1_000_000 {
        let polled = next.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(event) = polled {
            return event.expect("the thread is there");
        }
        harness.step();
    }
    panic!("no event");
}

fn what_happens_to_the_connections_is_reported<S: Side>() {
    let mut harness = Harness::<S>::new(4, &SessionOptions::default());
    harness.kill();
    let state = |harness: &Harness<S>| harness.side.state();
    assert_eq!(state(&harness), (0, None));
    let SessionEvent::NotConnected { why, .. } = event(&mut harness) else { panic!("no server") };
    assert_eq!(why.as_connect_error(), ConnectError::NoListener);
    let outage = Outage::NotConnected(ConnectError::NoListener);
    assert_eq!(state(&harness), (0, Some(outage)));
    harness.begin();
    while !matches!(event(&mut harness), SessionEvent::Connected { .. }) {}
    assert_eq!(state(&harness), (1, None));
    harness.kill();
    let SessionEvent::Lost { why, .. } = event(&mut harness) else { panic!("it is lost") };
    assert_eq!(
        (why, state(&harness)),
        (CloseReason::PeerGone, (0, Some(Outage::Lost(CloseReason::PeerGone))))
    );
    harness.begin();
    harness.until("there is a connection", |harness| state(harness).0 == 1);
    let next = harness.side.next_event();
    drop(harness.side.close());
    harness.until("its connections have ended", |harness| harness.session(Session::is_closed));
    harness.step();
    assert_eq!(state(&harness).0, 0);
    drop(harness);
    let ended = futures::executor::block_on(next);
    assert!(ended.is_some(), "one of those that were left");
}

fn a_session_that_cannot_connect_ends_calls_at_once<S: Side>() {
    let fabric = Fabric::new();
    let (engine, mut control) =
        Engine::without_threads(fabric, checked(&raw())).expect("an engine");
    let wrong: Address = "shm:/run/nothing.sock".parse().expect("an address");
    let options = SessionOptions::default();
    let client = engine.client().expect("a client");
    let session = Session::seeded(client, [wrong], &options, 5).expect("a session");
    let mut side = S::new(session, 1);
    for number in 0..2 {
        let mut call = side.call(Ask::Number.write(number).into());
        let outcome = (0..1000).find_map(|turn| {
            control.step(Duration::ZERO);
            side.turn(1_000_000 + turn);
            ended(&mut call)
        });
        let why = why(outcome.expect("it ends at once"));
        let SessionError::NoConnection(reason, Execution::NotExecuted) = why else {
            panic!("{why}")
        };
        assert!(matches!(reason, ConnectError::WrongAddress { .. }), "{reason}");
    }
    assert!(matches!(side.state().1, Some(Outage::NotConnected(_))));
}

fn a_buffer_that_a_task_waits_for_ends_with_the_client<S: Side>() {
    let mut harness = Harness::<S>::new(4, &SessionOptions::default());
    let held: Vec<_> = (0..8).map(|_| harness.buffer()).collect();
    let mut waits: Vec<_> = (0..2).map(|_| harness.side.buffer()).collect();
    let mut poll = |harness: &mut Harness<S>, is_over: bool| {
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
                harness.step();
            }
        }
    };
    poll(&mut harness, false);
    drop(harness.side.close());
    harness.step();
    poll(&mut harness, true);
    drop(held);
    harness.check_nothing_is_lost();
}
