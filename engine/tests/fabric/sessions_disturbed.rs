//! Sessions whose program, shard or server does what it should not.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use rpcrdma::{
    Bulk, CallError, CallRefused, Execution, Loan, Resend, SessionError, SessionOptions,
    SessionRefused, Sink, Want,
};

use super::sessions::{MS, Town, address};

fn until_closed(town: &mut Town) {
    for _ in 0..100_000 {
        if town.session.is_closed() {
            return;
        }
        // Calls that no server answers have `connections.stop_timeout`.
        town.now += MS;
        town.step();
    }
    panic!("it does not end: {} calls, {:?}", town.session.open_calls(), town.done);
}

fn closed(execution: Execution) -> Result<u32, SessionError> {
    Err(SessionError::Closed(execution))
}

/// A completion whose handler panics is not repeated, and no other call is forgotten.
#[test]
fn after_a_panic_every_other_call_completes_once() {
    let mut town = Town::new(1, &SessionOptions::default());
    town.begin(0);
    town.until("it is up", |town| town.session.connections() == 1);
    town.log.borrow_mut().holds = true;
    (0..3).for_each(|number| town.call(number, Resend::SameXid));
    town.call(3, Resend::Never);
    town.until("they are there", |town| town.log.borrow().held.len() == 4);
    (4..40).for_each(|number| town.call(number, Resend::Never));
    // The first is refused, and completes.
    drop(town.log.borrow_mut().held.remove(0));
    let mut panics = 0;
    for _ in 0..1000 {
        town.serve();
        let (now, session) = (town.now, &mut town.session);
        let polled = catch_unwind(AssertUnwindSafe(|| {
            session.poll(now, |done| panic!("the program fails at {}", done.cookie()));
        }));
        if polled.is_err() {
            panics += 1;
            break;
        }
    }
    assert_eq!(panics, 1);
    let Town { session, now, done, .. } = &mut town;
    session.poll(*now, |it| done.push((it.cookie(), it.result().map(|_| 0))));
    assert!(!done.is_empty(), "calls end with the next poll");
    until_closed(&mut town);
    let mut cookies: Vec<u64> = town.done.iter().map(|(cookie, _)| *cookie).collect();
    cookies.sort_unstable();
    assert_eq!(cookies, (1..40).collect::<Vec<_>>());
    let sent = town.done.iter().filter(|(_, end)| *end == closed(Execution::Unknown));
    let never = town.done.iter().filter(|(_, end)| *end == closed(Execution::NotExecuted));
    assert_eq!(sent.count() + never.count(), 39);
}

/// Nothing else is due that would end it.
#[test]
fn after_a_panic_a_call_under_way_ends_with_the_next_poll() {
    let mut town = Town::new(1, &SessionOptions::default());
    town.begin(0);
    town.until("it is up", |town| town.session.connections() == 1);
    town.log.borrow_mut().holds = true;
    (0..2).for_each(|number| town.call(number, Resend::Never));
    town.until("they are there", |town| town.log.borrow().held.len() == 2);
    // The first is refused, and completes.
    drop(town.log.borrow_mut().held.remove(0));
    let panicked = (0..1000).any(|_| {
        town.serve();
        let (now, session) = (town.now, &mut town.session);
        let poll = || session.poll(now, |done| panic!("the program fails at {}", done.cookie()));
        catch_unwind(AssertUnwindSafe(poll)).is_err()
    });
    assert!(panicked);
    let Town { session, now, done, .. } = &mut town;
    session.poll(*now, |it| done.push((it.cookie(), it.result().map(|_| 0))));
    assert_eq!(*done, [(1, closed(Execution::Unknown))]);
    until_closed(&mut town);
}

#[test]
fn a_panic_beside_polling_ends_one_call_only() {
    let mut town = Town::new(1, &SessionOptions::default());
    for number in 0..3 {
        let mut call = town.session.call(number);
        call.put_u32(number as u32);
        call.deadline(town.now);
        call.submit().expect("there is room");
    }
    let session = &mut town.session;
    let now = town.now;
    catch_unwind(AssertUnwindSafe(|| session.poll(now, |_| panic!("once")))).expect_err("it does");
    town.until("the others end", |town| town.done.len() == 2);
    assert_eq!(town.session.open_calls(), 0);
    town.session.close();
    until_closed(&mut town);
}

#[test]
fn a_call_that_is_forgotten_is_not_in_the_way() {
    let mut town = Town::new(1, &SessionOptions::default());
    let data = town.buffer();
    let mut call = town.session.call(0);
    call.put_u32(0);
    call.place(data);
    std::mem::forget(call);
    assert_eq!(town.session.open_calls(), 0);
    town.call(1, Resend::Never);
    town.begin(0);
    town.until("the next is answered", |town| town.done.len() == 1);
    let buffers: Vec<Loan> = (0..9).map_while(|_| town.session.turn(town.now).buffer()).collect();
    assert_eq!(buffers.len(), 8, "its memory is back");
    town.session.close();
    until_closed(&mut town);
}

#[test]
fn a_session_ends_when_its_shard_is_stopped_by_another_thread() {
    for has_server in [false, true] {
        let mut town = Town::new(1, &SessionOptions::default());
        if has_server {
            town.begin(0);
        }
        (0..3).for_each(|number| town.call(number, Resend::SameXid));
        town.log.borrow_mut().holds = true;
        (0..100).for_each(|_| town.step());
        town.session.handle().stop();
        until_closed(&mut town);
        let execution = if has_server { Execution::Unknown } else { Execution::NotExecuted };
        let ends: Vec<_> = (0..3).map(|number| (number, closed(execution))).collect();
        assert_eq!(town.done, ends, "{has_server}");
        let mut call = town.session.call(9);
        call.put_u32(9);
        assert_eq!(call.submit().expect_err("it has ended").why(), SessionRefused::Closed);
    }
}

#[test]
fn a_call_whose_memory_was_taken_out_is_not_sent_without_it() {
    let mut town = Town::new(1, &SessionOptions::default());
    town.begin(0);
    town.until("it is up", |town| town.session.connections() == 1);
    let refused = SessionRefused::Call(CallRefused::Incomplete);
    for resend in [Resend::Never, Resend::SameXid] {
        let (mut data, sink) = (town.buffer(), town.buffer());
        data.truncate(100);
        let mut call = town.session.call(0);
        call.put_u32(0);
        call.place(data);
        call.resend(resend);
        let data: Vec<Bulk> = call.take_placed().collect();
        assert_eq!(data.len(), 1);
        assert_eq!(call.submit().expect_err("the data are missing").why(), refused);
        let mut call = town.session.call(0);
        call.put_u32(0);
        call.want_into(Want { len_min: 0, len_max: 100 }, Sink::from(sink));
        call.resend(resend);
        assert!(call.take_sink(0).is_some());
        assert_eq!(call.submit().expect_err("the result buffer is missing").why(), refused);
    }
    assert_eq!(town.seen(), []);
}

/// What a panic left of a call is not in the next.
#[test]
fn data_of_a_call_whose_writing_panicked_are_not_in_the_next() {
    let mut town = Town::new(1, &SessionOptions::default());
    town.begin(0);
    let (mut lost, mut data) = (town.buffer(), town.buffer());
    lost.fill(1);
    data.truncate(50);
    data.fill(2);
    let session = &mut town.session;
    let written = catch_unwind(AssertUnwindSafe(|| {
        let mut call = session.call(0);
        let mut first = Some(Bulk::from(lost));
        call.place_pieces(std::iter::from_fn(|| Some(first.take().expect("one, and a panic"))));
    }));
    written.expect_err("it panics");
    let mut call = town.session.call(1);
    call.put_u32(1);
    call.place(data);
    call.submit().expect("there is room");
    town.until("it is answered", |town| town.done.len() == 1);
    assert_eq!(town.log.borrow().calls[0].2, vec![2; 50]);
}

#[test]
fn the_deadlines_at_both_ends_of_time_are_deadlines() {
    let mut town = Town::new(1, &SessionOptions::default());
    for (cookie, at) in [0, 1, town.now, u64::MAX].into_iter().enumerate() {
        let mut call = town.session.call(cookie as u64);
        call.put_u32(cookie as u32);
        call.deadline(at);
        call.submit().expect("there is room");
    }
    town.step();
    let late = SessionError::Call(CallError::DeadlineExceeded(Execution::NotExecuted));
    assert_eq!(town.done, [(0, Err(late)), (1, Err(late)), (2, Err(late))]);
    town.begin(0);
    town.until("the last is answered", |town| town.done.len() == 4);
    assert_eq!(town.done[3], (3, Ok(3)));
}

#[test]
fn calls_of_used_places_are_sent_again_in_the_order_of_submission() {
    let mut town = Town::new(1, &SessionOptions::default());
    // Places that calls had which waited, the last of them first.
    (0..6).for_each(|number| town.call(number, Resend::SameXid));
    town.begin(0);
    town.until("they are answered", |town| town.done.len() == 6);
    town.log.borrow_mut().holds = true;
    for round in 0..3 {
        town.log.borrow_mut().calls.clear();
        if round == 0 {
            (10..16).for_each(|number| town.call(number, Resend::SameXid));
        }
        town.until("they are there", |town| town.log.borrow().held.len() == 6);
        assert_eq!(town.seen(), (10..16).collect::<Vec<_>>(), "{round}");
        town.kill(0);
        town.begin(0);
    }
}

#[test]
fn a_call_cancelled_while_its_connection_is_lost_is_not_sent_again() {
    let mut town = Town::new(1, &SessionOptions::default());
    town.begin(0);
    town.log.borrow_mut().holds = true;
    let mut call = town.session.call(0);
    call.put_u32(0);
    call.resend(Resend::SameXid);
    let id = call.submit().expect("there is room");
    town.until("it is there", |town| town.log.borrow().held.len() == 1);
    town.kill(0);
    assert!(town.session.cancel(id));
    town.begin(0);
    town.until("it has ended", |town| town.done.len() == 1);
    let cancelled = SessionError::Call(CallError::Cancelled(Execution::Unknown));
    assert_eq!(town.done, [(0, Err(cancelled))]);
    town.call(1, Resend::Never);
    town.until("the next is there", |town| town.log.borrow().held.len() == 1);
    assert_eq!(town.seen(), [0, 1]);
}

/// A thread without work sleeps, though calls wait for credits.
#[test]
fn a_session_whose_calls_wait_for_credits_sleeps() {
    let mut town = Town::new(1, &SessionOptions::default());
    town.begin(0);
    town.log.borrow_mut().holds = true;
    (0..30).for_each(|number| town.call(number, Resend::Never));
    town.until("some are there", |town| town.log.borrow().held.len() == 16);
    (0..100).for_each(|_| town.step());
    let sleeps = town.session.handle().stats().sleeps;
    town.session.poll_for(Duration::from_millis(3), |_| ());
    assert!(town.session.handle().stats().sleeps > sleeps);
}

/// Attempts that fail at once are made after delays, not all the time.
#[test]
fn attempts_that_fail_at_once_are_made_ever_less_often() {
    let options = SessionOptions {
        backoff_min: Duration::ZERO,
        backoff_max: Duration::from_millis(8),
        ..SessionOptions::default()
    };
    let mut town = Town::new(2, &options);
    let end = town.now + 1000 * MS;
    let mut tried = Vec::new();
    while town.now < end {
        town.step();
        while let Some(event) = town.session.next_event() {
            tried.push(event);
        }
    }
    assert!((200..600).contains(&tried.len()), "{} attempts at {:?}", tried.len(), address(0));
}
