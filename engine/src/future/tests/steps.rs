//! The life of a call, step by step.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use crate::{Armed, CallError, CloseReason, Execution, Resend, SessionOptions};

use super::*;
use crate::future::poller::Poller;

both!(
    a_call_is_made_when_it_is_polled_and_answered_once,
    the_last_waker_is_woken,
    a_dropped_future_cancels_its_call_wherever_it_is,
    a_server_that_is_lost_and_back_answers_the_calls_that_may_be_sent_again,
    a_call_that_cannot_be_sent_comes_back_with_its_memory,
    a_shard_that_is_stopped_ends_the_client,
    a_task_may_be_polled_by_its_waker,
);

/// Counts how often it is woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn a_call_is_made_when_it_is_polled_and_answered_once<S: Side>() {
    let mut harness = Harness::<S>::new(4, &SessionOptions::default());
    let mut call = harness.call(Ask::Number.write(7));
    for _ in 0..1000 {
        harness.step();
    }
    assert_eq!(harness.stats().calls_sent, 0);
    let reply = harness.end(&mut call).expect("it is answered");
    assert_eq!((reply.reader().u32(), reply.items().len()), (Ok(7), 0));
    assert_eq!(reply.payload().len(), 16);
    drop(call);
    harness.check_nothing_is_lost();
}

fn the_last_waker_is_woken<S: Side>() {
    let mut harness = Harness::<S>::new(4, &SessionOptions::default());
    let bells: [Arc<Bell>; 2] = Default::default();
    let wakers = bells.clone().map(Waker::from);
    let mut call = harness.call(Ask::Number.write(7));
    for waker in &wakers {
        let polled = call.as_mut().poll(&mut Context::from_waker(waker));
        assert!(polled.is_pending());
    }
    harness.until("it is woken", |_| bells.iter().any(|bell| bell.0.load(Ordering::SeqCst) > 0));
    assert_eq!(bells.map(|bell| bell.0.load(Ordering::SeqCst)), [0, 1]);
    assert!(ended(&mut call).expect("it is over").is_ok());
}

/// What arming answers to a thread that would sleep now.
fn sleep(harness: &mut Harness<OwnThread>) -> Armed {
    let now = harness.now;
    harness.side.poller.session.arm(now)
}

#[test]
fn a_thread_that_is_about_to_sleep_sees_all_that_tasks_do() {
    let mut harness = Harness::<OwnThread>::new(4, &SessionOptions::default());
    harness.until("there is a connection", |harness| harness.connections() > 0);
    let is_asleep = |harness: &mut Harness<OwnThread>| matches!(sleep(harness), Armed::AtMost(_));
    let mut call = harness.call(Ask::Later.write(7));
    harness.until("nothing is to be done", is_asleep);
    assert!(is_asleep(&mut harness), "there is nothing to do");
    assert!(ended(&mut call).is_none());
    assert_eq!(sleep(&mut harness), Armed::Ready, "a call");
    harness.until("the call is sent", |harness| !harness.later.borrow().is_empty());
    harness.until("nothing is to be done", is_asleep);
    drop(call);
    assert_eq!(sleep(&mut harness), Armed::Ready, "a call that no task waits for");
    harness.until("nothing is to be done", is_asleep);
    harness.side.client = None;
    assert_eq!(sleep(&mut harness), Armed::Ready, "the last handle is gone");
}

#[test]
fn a_call_made_after_the_thread_has_looked_for_calls_keeps_it_awake() {
    let mut harness = Harness::<OwnThread>::new(4, &SessionOptions::default());
    harness.until("there is a connection", |harness| harness.connections() > 0);
    let mut call = harness.call(Ask::Number.write(7));
    let now = harness.now;
    while harness.side.poller.turn(now) {}
    let Poller { calls, session, .. } = &mut harness.side.poller;
    assert!(!calls.take());
    assert!(ended(&mut call).is_none());
    assert!(session.poll(now, |_| {}), "the poll reads that it was woken, and says so");
    assert!(harness.end(&mut call).is_ok());
}

#[test]
fn a_call_that_is_dropped_before_the_thread_takes_it_is_not_sent() {
    let mut harness = Harness::<OwnThread>::new(4, &SessionOptions::default());
    let mut call = harness.call(Ask::Number.write(7));
    assert!(ended(&mut call).is_none());
    drop(call);
    (0..1000).for_each(|_| harness.step());
    assert_eq!(harness.stats().calls_sent, 0);
    harness.check_nothing_is_lost();
}

#[test]
fn a_thread_that_has_taken_many_calls_looks_for_more() {
    let mut harness = Harness::<OwnThread>::without_server(300, 300);
    let mut calls: Vec<_> = (0..300).map(|at| harness.call(Ask::Number.write(at))).collect();
    calls.iter_mut().for_each(|call| assert!(ended(call).is_none()));
    let now = harness.now;
    let turns = (1..1000).find(|_| !harness.side.poller.turn(now));
    assert_eq!(harness.side.poller.session.open_calls(), 300, "after {turns:?} turns");
    // Also of those that the session has no place for.
    let mut harness = Harness::<OwnThread>::without_server(300, 0);
    let mut calls: Vec<_> = (0..300).map(|at| harness.call(Ask::Number.write(at))).collect();
    calls.iter_mut().for_each(|call| assert!(ended(call).is_none()));
    let now = harness.now;
    while harness.side.poller.session.poll(now, |_| {}) {}
    assert_eq!([0; 2].map(|_| harness.side.poller.turn(now)), [true; 2]);
}

#[test]
fn calls_wait_for_a_place_in_the_queue() {
    let mut harness = Harness::<OwnThread>::without_server(2, 3);
    let mut calls: Vec<_> = (0..40).map(|at| harness.call(Ask::Number.write(at))).collect();
    for _ in 0..100 {
        for call in &mut calls {
            assert!(ended(call).is_none());
            assert!(harness.side.poller.calls.queued() <= 2);
        }
        harness.step();
    }
    // The others wait for a place.
    let (open, queued) =
        (harness.side.poller.session.open_calls(), harness.side.poller.calls.queued());
    assert_eq!((open, queued), (3, 2));
    // One of those that wait gives its place up.
    drop(calls.swap_remove(39));
    harness.begin();
    let mut numbers = Vec::new();
    harness.until("all are answered", |_| {
        calls.retain_mut(|call| {
            let Some(outcome) = ended(call) else { return true };
            numbers.push(outcome.expect("it is answered").reader().u32().expect("a number"));
            false
        });
        calls.is_empty()
    });
    numbers.sort_unstable();
    assert_eq!(numbers, (0..39).collect::<Vec<_>>());
    harness.check_nothing_is_lost();
}

fn a_dropped_future_cancels_its_call_wherever_it_is<S: Side>() {
    for steps in 0..60 {
        let mut harness = Harness::<S>::new(4, &SessionOptions::default());
        let mut call = Ask::Later.write(7);
        call.place(harness.buffer());
        let mut call = harness.call(call);
        assert!(ended(&mut call).is_none());
        (0..steps).for_each(|_| harness.step());
        assert!(ended(&mut call).is_none());
        let was_open = harness.side.open() == 1;
        drop(call);
        harness.until("it is cancelled", |harness| harness.side.open() == 0);
        let cancelled = harness.stats().calls_cancelled;
        // Of a call that waits the session knows alone.
        assert!(cancelled <= u64::from(was_open), "after {steps} steps");
        if steps == 59 {
            assert_eq!((cancelled, harness.later.borrow().len()), (1, 1));
        }
        harness.check_nothing_is_lost();
    }
}

fn a_server_that_is_lost_and_back_answers_the_calls_that_may_be_sent_again<S: Side>() {
    let mut harness = Harness::<S>::new(8, &SessionOptions::default());
    let again = Request::from(Ask::Later.write(1)).resend(Resend::SameXid);
    let (mut again, mut once) = (harness.call(again), harness.call(Ask::Later.write(2)));
    assert!(ended(&mut again).is_none() && ended(&mut once).is_none());
    harness.until("they are there", |harness| harness.later.borrow().len() == 2);
    harness.kill();
    let lost =
        SessionError::Call(CallError::ConnectionLost(CloseReason::PeerGone, Execution::Unknown));
    assert_eq!(why(harness.end(&mut once)), lost);
    assert!(ended(&mut again).is_none());
    let mut meanwhile = harness.call(Ask::Number.write(3));
    assert!(ended(&mut meanwhile).is_none());
    harness.begin();
    assert_eq!(harness.end(&mut meanwhile).expect("it is answered").reader().u32(), Ok(3));
    harness.until("it is there again", |harness| harness.later.borrow().len() == 1);
    harness.answer_later();
    assert_eq!(harness.end(&mut again).expect("it is answered").reader().u32(), Ok(1));
    harness.check_nothing_is_lost();
}

#[test]
fn the_last_handle_closes_the_client_and_every_call_ends() {
    let mut harness = Harness::<OwnThread>::new(4, &SessionOptions::default());
    let mut buffers: Vec<_> = (0..2).map(|_| harness.buffer()).collect();
    let mut calls = Vec::new();
    for number in 0..6 {
        let mut call = Ask::Later.write(number);
        // One is under way, the other is in the queue.
        if number == 0 || number == 5 {
            call.place(buffers.pop().expect("two"));
        }
        let mut call = harness.call(call);
        assert!(ended(&mut call).is_none());
        if number == 2 {
            harness.until("three are there", |harness| harness.later.borrow().len() == 3);
        }
        calls.push(call);
    }
    let unpolled = harness.call(Ask::Number.write(9));
    let another = harness.side.client.clone();
    drop(another);
    harness.step();
    assert!(ended(&mut calls[0]).is_none(), "a handle is left");
    let ending = harness.side.client.take().expect("the last").close();
    harness.step();
    let known: Vec<_> =
        calls.iter_mut().map(|call| why(ended(call).expect("it is over"))).collect();
    let [under_way, queued] =
        [Execution::Unknown, Execution::NotExecuted].map(SessionError::Closed);
    assert_eq!(known[..3], [under_way; 3]);
    assert!(known[3..].iter().all(|why| [under_way, queued].contains(why)), "{known:?}");
    assert_eq!(why(ended(&mut { unpolled }).expect("there is no thread")), queued);
    harness.answer_later();
    harness.until("its connections have ended", |harness| harness.side.poller.is_over());
    harness.check_nothing_is_lost();
    drop(harness);
    futures::executor::block_on(ending);
}

fn a_call_that_cannot_be_sent_comes_back_with_its_memory<S: Side>() {
    let mut harness = Harness::<S>::new(4, &SessionOptions::default());
    let mut first = harness.call(Ask::Number.write(0));
    harness.end(&mut first).expect("it is answered");
    let mut call = Ask::Number.write(1);
    call.put_fixed(&vec![1; 4 << 20]);
    call.place(harness.buffer());
    let mut call = harness.call(call);
    let mut failed = harness.end(&mut call).expect_err("it is too long");
    let AsyncError::Session(SessionError::Refused(why, Execution::NotExecuted)) = failed.why()
    else {
        panic!("{failed}");
    };
    assert!(!why.is_transient(), "{why}");
    assert_eq!(failed.take_placed().len(), 1);
    drop(failed);
    harness.check_nothing_is_lost();
}

fn a_shard_that_is_stopped_ends_the_client<S: Side>() {
    let mut harness = Harness::<S>::new(4, &SessionOptions::default());
    let mut call = harness.call(Ask::Later.write(1));
    assert!(ended(&mut call).is_none());
    harness.until("it is there", |harness| harness.later.borrow().len() == 1);
    harness.session(|session| session.handle().stop());
    let stopped =
        SessionError::Call(CallError::ConnectionLost(CloseReason::Stopped, Execution::Unknown));
    assert_eq!(why(harness.end(&mut call)), stopped);
    harness.until("it is over", |harness| harness.session(Session::is_closed));
    harness.step();
    let mut late = harness.call(Ask::Number.write(2));
    assert_eq!(why(harness.end(&mut late)), SessionError::Closed(Execution::NotExecuted));
}

/// Polls a call of its thread as soon as it is woken.
struct AtOnce;

thread_local! {
    static CALL: RefCell<Option<Pending>> = const { RefCell::new(None) };
    static OUTCOME: RefCell<Option<Outcome>> = const { RefCell::new(None) };
}

impl Wake for AtOnce {
    fn wake(self: Arc<AtOnce>) {
        let mut call = CALL.take().expect("it is woken once");
        OUTCOME.set(ended(&mut call));
    }
}

fn a_task_may_be_polled_by_its_waker<S: Side>() {
    let mut harness = Harness::<S>::new(4, &SessionOptions::default());
    let mut call = harness.call(Ask::Number.write(7));
    let waker = Waker::from(Arc::new(AtOnce));
    assert!(call.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    CALL.set(Some(call));
    harness.until("it is woken", |_| OUTCOME.with_borrow(Option::is_some));
    let reply = OUTCOME.take().expect("it is over").expect("it is answered");
    assert_eq!(reply.reader().u32(), Ok(7));
    harness.check_nothing_is_lost();
}

#[test]
fn a_thread_whose_future_was_woken_does_not_sleep() {
    let mut harness = Harness::<LocalClient<Fabric>>::new(4, &SessionOptions::default());
    harness.until("there is a connection", |harness| harness.connections() > 0);
    let mut sleeps = |is_woken: bool| {
        (0..10).for_each(|_| harness.step());
        let before = harness.stats().sleeps;
        harness.side.rest_once(harness.now, is_woken);
        harness.stats().sleeps - before
    };
    assert_eq!([true, false, true].map(&mut sleeps), [0, 1, 0]);
}
