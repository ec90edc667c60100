//! The way of an outcome to a task of the same thread.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::future::awaited::{Answer, Outcome};

/// The end of the client. Its task has the other one.
pub(super) struct ThisThread(Rc<RefCell<State>>);

/// The end of the task: a future.
pub(super) struct Answered(Rc<RefCell<State>>);

enum State {
    /// With the task, once it has asked.
    Waits(Option<Waker>),
    Over(Outcome),
}

/// Both ends.
pub(super) fn answer() -> (ThisThread, Answered) {
    let state = Rc::new(RefCell::new(State::Waits(None)));
    (ThisThread(Rc::clone(&state)), Answered(state))
}

impl Answer for ThisThread {
    type Place = ();

    fn is_canceled(&self) -> bool {
        Rc::strong_count(&self.0) == 1
    }

    fn give(self, outcome: Outcome) -> Option<Waker> {
        let state = &mut *self.0.borrow_mut();
        let waker = if let State::Waits(waker) = state { waker.take() } else { None };
        *state = State::Over(outcome);
        waker
    }
}

impl Future for Answered {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let mut state = self.0.borrow_mut();
        if let State::Waits(waker) = &mut *state {
            if waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                return Poll::Pending;
            }
            let before = waker.replace(context.waker().clone());
            drop(state);
            // It may be the last one of its task.
            drop(before);
            return Poll::Pending;
        }
        match std::mem::replace(&mut *state, State::Waits(None)) {
            State::Over(outcome) => Poll::Ready(outcome),
            State::Waits(_) => Poll::Pending,
        }
    }
}

impl Drop for Answered {
    fn drop(&mut self) {
        // What wakes its task ends here, and not where the client is borrowed.
        drop(self.0.replace(State::Waits(None)));
    }
}
