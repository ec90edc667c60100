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
    Taken,
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

    fn give(self, outcome: Outcome) {
        let before = self.0.replace(State::Over(outcome));
        if let State::Waits(Some(waker)) = before {
            waker.wake();
        }
    }
}

impl Future for Answered {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        match self.0.replace(State::Taken) {
            State::Over(outcome) => Poll::Ready(outcome),
            State::Waits(Some(waker)) if waker.will_wake(context.waker()) => {
                self.0.replace(State::Waits(Some(waker)));
                Poll::Pending
            }
            State::Waits(_) | State::Taken => {
                self.0.replace(State::Waits(Some(context.waker().clone())));
                Poll::Pending
            }
        }
    }
}
