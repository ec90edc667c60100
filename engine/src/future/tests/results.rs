//! The results of calls: copied, lent, and in buffers of the program.

use crate::{Execution, SessionOptions, Sink, Want};

use super::*;
use crate::future::Piece;

both!(
    results_are_copied,
    results_stay_where_they_are_until_they_are_dropped_anywhere,
    results_arrive_in_buffers_of_the_program_which_come_back,
    tasks_get_buffers_in_order_as_soon_as_they_return,
);

const LEN: u32 = 10_000;

fn wanting(number: u32, sink: Option<Sink>) -> OwnedCall {
    let mut call = Ask::Bytes(LEN).write(number);
    let want = Want { len_min: 0, len_max: LEN };
    match sink {
        Some(sink) => call.want_into(want, sink),
        None => call.want(want),
    }
    call
}

fn bytes(reply: &crate::future::Response) -> Vec<u8> {
    let [item] = reply.items() else { panic!("one item: {reply:?}") };
    assert_eq!((item.want, item.len(), item.is_empty()), (0, LEN as usize, false));
    item.pieces.iter().flat_map(|piece| piece.iter().copied()).collect()
}

/// Segments that the program has.
fn lent<S: Side>(harness: &mut Harness<S>) -> usize {
    let spares = harness.session(Session::audit).spares;
    spares.total - spares.free - spares.leaving - spares.returning - spares.lost
}

fn results_are_copied<S: Side>() {
    let mut harness = Harness::<S>::new(4, &SessionOptions::default());
    let mut call = harness.call(wanting(5, None));
    let reply = harness.end(&mut call).expect("it is answered");
    assert_eq!(bytes(&reply), [FILL; LEN as usize]);
    assert_eq!(lent(&mut harness), 0);
    assert!(matches!(reply.items()[0].pieces[..], [Piece::Copied(_)]));
    harness.check_nothing_is_lost();
}

fn results_stay_where_they_are_until_they_are_dropped_anywhere<S: Side>() {
    let mut harness = Harness::<S>::new(4, &SessionOptions::default());
    let mut call = harness.call(Request::from(wanting(5, None)).keep_loans());
    let reply = harness.end(&mut call).expect("it is answered");
    assert_eq!(bytes(&reply), [FILL; LEN as usize]);
    assert!(reply.items()[0].pieces.iter().all(|piece| matches!(piece, Piece::Loan(_))));
    assert!(lent(&mut harness) > 0);
    let items = reply.into_items();
    std::thread::spawn(move || drop(items)).join().expect("it is dropped");
    // Without a future the memory returns as well.
    let mut call = harness.call(Request::from(wanting(6, None)).keep_loans());
    assert!(ended(&mut call).is_none());
    harness.until("it is answered", |harness| harness.side.open() == 1);
    harness.until("it is answered", |harness| harness.side.open() == 0);
    drop(call);
    harness.check_nothing_is_lost();
}

fn results_arrive_in_buffers_of_the_program_which_come_back<S: Side>() {
    let mut harness = Harness::<S>::new(4, &SessionOptions::default());
    for keeps_loans in [false, true] {
        let sink = Sink::from(harness.buffer());
        let mut request = Request::from(wanting(8, Some(sink)));
        if keeps_loans {
            request = request.keep_loans();
        }
        let mut call = harness.call(request);
        let mut reply = harness.end(&mut call).expect("it is answered");
        assert_eq!(bytes(&reply), [FILL; LEN as usize]);
        let sink = reply.take_sink(0);
        assert_eq!(sink.is_some_and(|sink| !sink.is_empty()), !keeps_loans);
        assert!(reply.take_sink(0).is_none(), "once");
    }
    // That of a call that fails.
    let sink = Sink::from(harness.buffer());
    let mut call = Ask::Later.write(1);
    call.want_into(Want { len_min: 0, len_max: LEN }, sink);
    let mut call = harness.call(call);
    assert!(ended(&mut call).is_none());
    harness.until("it is there", |harness| harness.later.borrow().len() == 1);
    harness.kill();
    let mut failed = harness.end(&mut call).expect_err("the server is gone");
    assert!(failed.take_sink(0).is_some() && failed.take_sink(0).is_none());
    drop(failed);
    harness.begin();
    harness.check_nothing_is_lost();
}

type Buffer = Boxed<Result<Loan, AsyncError>>;

/// The buffer that a task waits for, if it has it.
fn given(task: &mut Buffer) -> Option<Result<Loan, AsyncError>> {
    match task.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

/// Whether a task has learnt that the client is closed.
fn is_closed(outcome: &Option<Result<Loan, AsyncError>>) -> bool {
    matches!(outcome, Some(Err(AsyncError::Session(SessionError::Closed(_)))))
}

fn tasks_get_buffers_in_order_as_soon_as_they_return<S: Side>() {
    let mut harness = Harness::<S>::new(4, &SessionOptions::default());
    let mut tasks: Vec<Buffer> = (0..11).map(|_| harness.side.buffer()).collect();
    let mut buffers: Vec<Loan> = Vec::new();
    // Some have their buffers at once, or all ask for them.
    for _ in 0..2 {
        tasks.retain_mut(|task| {
            let buffer = given(task).map(|buffer| buffer.expect("it is open"));
            let waits = buffer.is_none();
            buffers.extend(buffer);
            waits
        });
        harness.step();
    }
    assert_eq!((buffers.len(), tasks.len()), (8, 3), "the pool has eight");
    assert!(tasks.iter_mut().all(|task| given(task).is_none()));
    // One that waits no longer is passed over.
    drop(tasks.remove(0));
    let one = buffers.pop().expect("eight");
    std::thread::spawn(move || drop(one)).join().expect("it returns");
    harness.step();
    assert!(given(&mut tasks[0]).expect("it is the first").is_ok_and(|buffer| !buffer.is_empty()));
    assert!(given(&mut tasks[1]).is_none());
    // That of a task that does not take it returns, and goes to the next.
    harness.step();
    drop(given(&mut tasks[1]).expect("it is the next").expect("it is open"));
    let mut late = harness.side.buffer();
    buffers.push(harness.buffer());
    assert!(given(&mut late).is_none());
    harness.step();
    assert!(given(&mut late).is_none());
    // The end of the client ends the wait.
    let mut later = harness.side.buffer();
    drop(harness.side.close());
    harness.step();
    for task in [&mut late, &mut later] {
        let outcome = given(task);
        assert!(is_closed(&outcome), "{outcome:?}");
    }
    drop(buffers);
    harness.check_nothing_is_lost();
}

#[test]
fn a_task_that_waits_for_a_buffer_lets_the_thread_look_for_one() {
    let mut harness = Harness::<OwnThread>::new(4, &SessionOptions::default());
    let held: Vec<_> = (0..8).map(|_| harness.buffer()).collect();
    let mut task = harness.side.buffer();
    assert!(given(&mut task).is_none());
    assert!(!harness.side.poller.calls.is_short_of_buffers(), "the thread has not looked");
    harness.step();
    assert!(harness.side.poller.calls.is_short_of_buffers());
    drop(task);
    harness.step();
    assert!(!harness.side.poller.calls.is_short_of_buffers());
    drop(held);
    harness.check_nothing_is_lost();
}

#[test]
fn a_task_that_has_asked_for_a_buffer_when_the_thread_ends_gets_an_error() {
    let mut harness = Harness::<OwnThread>::new(4, &SessionOptions::default());
    let mut task = harness.side.buffer();
    assert!(given(&mut task).is_none(), "the thread has not looked");
    harness.side.poller.calls.end(|_| Execution::Unknown);
    let outcome = given(&mut task);
    assert!(is_closed(&outcome), "{outcome:?}");
}
