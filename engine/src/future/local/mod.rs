//! Calls as futures on the thread that polls: what they pass on crosses no thread.
//!
//! ```text
//!   block_on: poll the future ──▶ Session::poll ──▶ answers, wakers ──▶ nothing to do: idle
//!                ▲  call: Session::call                                          │
//!                └───────────────────────────── woken ◀──────────────────────────┘
//! ```

mod alarm;
mod answer;
mod state;

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::{Clock, Execution, Loan, Outage, Provider, Session, SessionError, SessionEvent};

use self::alarm::Alarm;
use self::answer::answer;
use self::state::{Asked, State};
use super::awaited::Outcome;
use super::error::{AsyncError, CallFailed};
use super::reports::{Reported, Reports, reports};
use super::request::Request;
use super::response::Response;

/// A session whose calls are futures on one thread: the thread that polls the session in
/// [`LocalClient::block_on`] polls the program's future, too. A call costs no queue, no lock and no
/// wake-up of another thread. Handles are clones, and stay on their thread.
///
/// Many tasks are one future, made with the means of the crate `futures`, such as `join_all` and
/// `FuturesUnordered`. A future that blocks the thread holds up all of them.
///
/// ```
/// # use rpcrdma::*;
/// # struct Increment;
/// # impl Handler for Increment {
/// #     fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
/// #         let Ok(number) = call.reader().u32() else { return reply.refuse() };
/// #         reply.payload().put_u32(number + 1);
/// #         reply.send()
/// #     }
/// # }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut engine = Engine::new(Fabric::new(), Config::default())?;
/// # engine.start(|_shard| Increment)?;
/// # let address = engine.listen("127.0.0.1:0".parse::<Address>()?)?;
/// use futures::future::try_join_all;
/// use rpcrdma::future::LocalClient;
///
/// let session = Session::new(engine.client()?, [address], &SessionOptions::default())?;
/// let client = LocalClient::new(session);
/// let replies = client.block_on(async {
///     let calls = (0..10).map(|number| {
///         let mut call = OwnedCall::new();
///         call.put_u32(number);
///         client.call(call)
///     });
///     try_join_all(calls).await
/// })?;
/// assert_eq!(replies[9].reader().u32(), Ok(10));
/// # Ok(())
/// # }
/// ```
pub struct LocalClient<P: Provider>(Rc<Local<P>>);

/// What the handles and their futures have in common.
struct Local<P: Provider> {
    /// Not borrowed while anything of the program runs: its futures, and what wakes them.
    state: RefCell<State<P>>,
    alarm: Arc<Alarm>,
    is_running: Cell<bool>,
    /// None when the session is over.
    reports: RefCell<Option<Reports>>,
    reported: Reported,
}

impl<P: Provider> LocalClient<P> {
    /// A client of a session, which is polled in [`LocalClient::block_on`] only.
    pub fn new(session: Session<P>) -> LocalClient<P> {
        let alarm = Arc::new(Alarm::new(session.handle().clone()));
        let (reports, reported) = reports();
        let (state, reports) = (RefCell::new(State::new(session)), RefCell::new(Some(reports)));
        LocalClient(Rc::new(Local {
            state,
            alarm,
            is_running: Cell::new(false),
            reports,
            reported,
        }))
    }

    /// Polls the session and the future in turns until the future is ready, and waits by the idle
    /// policy of the engine while there is nothing to do. The future may wait for other threads,
    /// too: its waker wakes this one.
    ///
    /// Calls that are open afterwards go on in the next `block_on`.
    ///
    /// # Panics
    /// If the future does, or inside of another `block_on` of this client.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let local = &*self.0;
        let _running = Running::begin(&local.is_running);
        let waker = Waker::from(Arc::clone(&local.alarm));
        let mut context = Context::from_waker(&waker);
        let mut future = pin!(future);
        waker.wake_by_ref();
        let clock = Clock::new();
        let (mut now, mut idle) = (clock.now(), 0_u32);
        loop {
            if local.alarm.take() {
                // A call that is late by now is not sent.
                local.state.borrow_mut().now = now;
                if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                    return output;
                }
            }
            let busy = local.turn(now);
            idle = if busy { 0 } else { idle.wrapping_add(1) };
            if local.rest(busy, now) || busy || idle.is_multiple_of(TURNS_PER_READING) {
                now = clock.now();
            }
        }
    }

    /// Makes a call, as [`AsyncClient::call`](super::AsyncClient::call) does. What the session has
    /// no room for waits, in order.
    pub fn call<R: Into<Request>>(
        &self,
        request: R,
    ) -> impl Future<Output = Result<Response, CallFailed>> + use<P, R> {
        Rc::clone(&self.0).call(request.into())
    }

    /// A registered buffer, as [`AsyncClient::buffer`](super::AsyncClient::buffer).
    ///
    /// # Errors
    /// [`SessionError::Closed`](crate::SessionError::Closed): the session is over.
    pub fn buffer(&self) -> impl Future<Output = Result<Loan, AsyncError>> + use<P> {
        Rc::clone(&self.0).buffer()
    }

    /// Connections that are up.
    pub fn connections(&self) -> usize {
        self.0.state.borrow().session.connections()
    }

    /// Why there is no connection: what went wrong last. `None` while there is one, and before
    /// anything went wrong.
    pub fn outage(&self) -> Option<Outage> {
        self.0.state.borrow().session.outage()
    }

    /// What happened to its connections, as
    /// [`AsyncClient::next_event`](super::AsyncClient::next_event). `None` when the session is over.
    pub fn next_event(&self) -> impl Future<Output = Option<SessionEvent>> + use<P> {
        self.0.reported.next_event()
    }

    /// Closes the session for all handles: calls that are not over end with
    /// [`SessionError::Closed`](crate::SessionError::Closed), and the connections end.
    /// Calls under way have `connections.stop_timeout` for that. The future waits until the session
    /// is over.
    ///
    /// The last handle that is dropped drops the session: its connections end at once.
    pub fn close(&self) -> impl Future<Output = ()> + use<P> {
        self.0.end();
        self.0.state.borrow_mut().session.close();
        self.0.reported.end()
    }
}

/// What tests turn by hand.
#[cfg(test)]
impl<P: Provider> LocalClient<P> {
    pub(crate) fn turn_once(&self, now: u64) -> bool {
        self.0.turn(now)
    }

    /// Waits by the idle policy, behind a turn without work, with a future that was woken or not.
    pub(crate) fn rest_once(&self, now: u64, is_woken: bool) {
        self.0.alarm.take();
        if is_woken {
            Waker::from(Arc::clone(&self.0.alarm)).wake();
        }
        self.0.rest(false, now);
    }

    pub(crate) fn with_session<T>(&self, with: impl FnOnce(&mut Session<P>) -> T) -> T {
        with(&mut self.0.state.borrow_mut().session)
    }

    /// Calls that the session has.
    pub(crate) fn open(&self) -> usize {
        self.0.state.borrow().awaited.open()
    }
}

impl<P: Provider> Clone for LocalClient<P> {
    fn clone(&self) -> LocalClient<P> {
        LocalClient(Rc::clone(&self.0))
    }
}

impl<P: Provider> std::fmt::Debug for LocalClient<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalClient").field("running", &self.0.is_running.get()).finish()
    }
}

impl<P: Provider> Local<P> {
    async fn call(self: Rc<Local<P>>, mut request: Request) -> Outcome {
        let (answer, answered) = answer();
        let id = self.state.borrow_mut().call(&mut request, answer);
        let mut cancel = CancelOnDrop { local: &self, id: Some(id) };
        let outcome = answered.await;
        cancel.id = None;
        outcome
    }

    async fn buffer(self: Rc<Local<P>>) -> Result<Loan, AsyncError> {
        let asked = self.state.borrow_mut().ask_for_buffer();
        let given = match asked {
            Asked::Given(buffer) => Some(buffer),
            Asked::Waits(given) => given.await.ok(),
            Asked::Closed => None,
        };
        given.ok_or(SessionError::Closed(Execution::NotExecuted).into())
    }

    /// Does what there is to do, once. True if there was anything.
    fn turn(&self, now: u64) -> bool {
        let busy = self.state.borrow_mut().turn(now);
        self.wake();
        let is_rare = self.state.borrow_mut().has_rare_work();
        if is_rare { self.attend() | busy } else { busy }
    }

    /// Does what there is to do beside calls. True if there was anything. What wakes or drops tasks
    /// is done without the state.
    #[cold]
    fn attend(&self) -> bool {
        let next_event = || self.state.borrow_mut().next_event();
        while let Some(event) = next_event() {
            if let Some(reports) = &*self.reports.borrow() {
                reports.event(event);
            }
        }
        let mut busy = false;
        let next_loan = || self.state.borrow_mut().next_loan();
        while let Some((task, buffer)) = next_loan() {
            // One that waits no longer returns it.
            let _ = task.send(buffer);
            busy = true;
        }
        if self.state.borrow_mut().session.is_closed() {
            self.end();
            drop(self.reports.take());
        }
        busy
    }

    /// Wakes the tasks whose calls are over.
    fn wake(&self) {
        let mut woken = std::mem::take(self.state.borrow_mut().awaited.woken());
        if !woken.is_empty() {
            woken.drain(..).for_each(Waker::wake);
            // It keeps its room. Meanwhile others may be there.
            woken.append(self.state.borrow_mut().awaited.woken());
            *self.state.borrow_mut().awaited.woken() = woken;
        }
    }

    /// Ends all that tasks wait for.
    fn end(&self) {
        let waiting = self.state.borrow_mut().end();
        // Their futures learn it from the end of their channels.
        drop(waiting);
        self.wake();
    }

    /// Waits by the idle policy after a turn at `now`, unless it was busy or the future was woken.
    /// True if the thread has yielded its core.
    fn rest(&self, busy: bool, now: u64) -> bool {
        let mut state = self.state.borrow_mut();
        if busy {
            return state.rest(true, now);
        }
        if !self.alarm.fall_asleep() {
            return false;
        }
        let has_yielded = state.rest(false, now);
        self.alarm.wake_up();
        has_yielded
    }
}

/// Cancels a call whose future is dropped.
struct CancelOnDrop<'a, P: Provider> {
    local: &'a Local<P>,
    /// None if it is over.
    id: Option<u64>,
}

impl<P: Provider> Drop for CancelOnDrop<'_, P> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.local.state.borrow_mut().cancelled.push(id);
        }
    }
}

/// A client is run once at a time.
struct Running<'a>(&'a Cell<bool>);

impl Running<'_> {
    fn begin(is_running: &Cell<bool>) -> Running<'_> {
        assert!(!is_running.replace(true), "LocalClient::block_on inside of itself");
        Running(is_running)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// Turns without work between two readings of the clock.
const TURNS_PER_READING: u32 = 16;
