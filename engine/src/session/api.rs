//! The session, as programs see it, but for writing a call.

use std::time::Duration;

use rpcrdma_provider::{Address, SetupError};

use super::backoff::Backoff;
use super::calls::{Calls, SessionCallId, State};
use super::events::SessionEvent;
use super::handler::SessionHandler;
use super::lines::Lines;
use super::outage::Outage;
use super::outcome::SessionCompletion;
use super::state::{Done, SessionState};
use crate::api::turn::Turn;
use crate::clock::{Clock, PollLoop};
use crate::engine::client::Client;
use crate::error::Execution;
use crate::handle::{ShardHandle, ShardState};
use crate::provider::Provider;

/// How a session connects, and what it keeps meanwhile.
///
/// ```
/// use std::time::Duration;
///
/// use rpcrdma::SessionOptions;
///
/// let options = SessionOptions {
///     connections: 2,
///     backoff_max: Duration::from_secs(1),
///     ..SessionOptions::default()
/// };
/// assert_eq!(options.backoff_min, Duration::from_millis(10));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionOptions {
    /// Connections at a time; 1 by default, and at most as many as `connections.max`. Calls are
    /// spread over them by the credits that each has.
    pub connections: usize,
    /// The delay before a lost connection is made again, and the first one behind addresses that
    /// all failed; it doubles each time, and half of it is random. 10 ms by default, and
    /// 1 ms at least.
    pub backoff_min: Duration,
    /// The longest delay; 5 s by default.
    pub backoff_max: Duration,
    /// Calls that may wait for a connection or for credits; 1024 by default. A call that was under
    /// way when its connection was lost has a place in any case.
    pub waiting_calls: usize,
    /// Bytes that they may hold, payload and placed data; 64 MiB by default.
    pub waiting_bytes: usize,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        SessionOptions {
            connections: 1,
            backoff_min: Duration::from_millis(10),
            backoff_max: Duration::from_secs(5),
            waiting_calls: 1024,
            waiting_bytes: 64 << 20,
        }
    }
}

/// A service behind one or several addresses: connects, connects again, spreads calls over its
/// connections, and keeps calls while there is none.
///
/// A session is a [`Client`] that its thread polls. All addresses are those of one service: each
/// connection takes the first that answers, in their order.
///
/// ```
/// # use rpcrdma::*;
/// # use std::time::Duration;
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
/// let mut session = Session::new(engine.client()?, [address], &SessionOptions::default())?;
/// let mut call = session.call(7);
/// call.put_u32(41);
/// call.submit().map_err(|unsent| unsent.why())?; // waits in the session while there is no connection
///
/// let mut sum = None;
/// while sum.is_none() {
///     session.poll_for(Duration::from_secs(1), |done| {
///         sum = Some(done.result().map(|reply| reply.reader().u32()));
///     });
/// }
/// assert_eq!(sum, Some(Ok(Ok(42))));
/// # Ok(())
/// # }
/// ```
pub struct Session<P: Provider> {
    pub(super) client: Client<P>,
    pub(super) clock: Clock,
    pub(super) state: SessionState,
}

impl<P: Provider> Session<P> {
    /// A session that connects with its first poll. The client has no connections of its own.
    ///
    /// # Errors
    /// [`SetupError::Config`]: no address, no connection, or more than `connections.max`.
    pub fn new(
        client: Client<P>,
        addresses: impl IntoIterator<Item = Address>,
        options: &SessionOptions,
    ) -> Result<Session<P>, SetupError> {
        Session::seeded(client, addresses, options, Backoff::seed())
    }

    /// As [`Session::new`], with delays that depend on `seed`, for reproducible runs.
    ///
    /// # Errors
    /// As [`Session::new`].
    pub fn seeded(
        mut client: Client<P>,
        addresses: impl IntoIterator<Item = Address>,
        options: &SessionOptions,
        seed: u64,
    ) -> Result<Session<P>, SetupError> {
        let most = client.shard().core.peers.capacity() as usize;
        if !(1..=most).contains(&options.connections) {
            return Err(SetupError::Config(format!(
                "a session has 1 to {most} connections (connections.max), not {}",
                options.connections
            )));
        }
        let min = options.backoff_min.max(BACKOFF_LEAST);
        let backoff = Backoff::new(min, options.backoff_max, seed);
        let lines = Lines::new(addresses, options.connections, backoff);
        if !lines.has_addresses() {
            return Err(SetupError::Config("a session has at least one address".into()));
        }
        let shard = client.handle().shard();
        let calls = Calls::new(options.waiting_calls, options.waiting_bytes, shard);
        let state = SessionState {
            keeps_sinks: client.shard().core.parts.rdma.ability().enabled,
            has_one_version: !client.shard().core.link.is_free_to_choose(),
            ..SessionState::new(lines, calls)
        };
        Ok(Session { client, clock: Clock::new(), state })
    }

    /// Ends a call before its reply. It completes in a later poll, with
    /// [`CallError::Cancelled`](crate::CallError::Cancelled)
    /// unless its reply arrives first. False if it is over.
    pub fn cancel(&mut self, call: SessionCallId) -> bool {
        let calls = &mut self.state.calls;
        let Some(index) = calls.find(call) else { return false };
        match calls.at(index).state {
            State::Waiting => {
                calls.cancel_waiting(index);
                self.state.hurry();
            }
            State::Sent { peer, id } => {
                calls.at(index).cancel();
                // If its connection is being lost, it is not sent again.
                self.client.turn(0).cancel_open(peer, id);
            }
            State::Free | State::Taken => return false,
        }
        true
    }

    /// Connects, sends what waits and was submitted, and passes every completion to `done`. True if
    /// there was work. `now` is in nanoseconds of any monotonic clock, such as [`Clock`].
    #[inline]
    pub fn poll(&mut self, now: u64, mut done: impl FnMut(SessionCompletion<'_, '_>)) -> bool {
        let mut handler = SessionHandler { state: &mut self.state, now, done: &mut done };
        let busy = self.client.shard().poll_with(now, &mut handler);
        core::mem::forget(handler);
        if now < self.state.due {
            return busy;
        }
        self.attend(now, &mut done) | busy
    }

    /// As [`Session::poll`], until there was work, at most `timeout`; see [`Client::poll_for`].
    pub fn poll_for(
        &mut self,
        timeout: Duration,
        mut done: impl FnMut(SessionCompletion<'_, '_>),
    ) -> bool {
        let mut now = self.clock.now();
        let mut polls = PollLoop::new(now, timeout);
        while !self.poll(now, &mut done) {
            let Some(left) = polls.sleep(now) else { return false };
            if !left.is_zero() {
                self.wait(left);
            }
            now = self.clock.now();
        }
        true
    }

    /// Waits until there may be something to do, at most `timeout`. It is for a session that is
    /// polled with the time of [`Clock`].
    pub fn wait(&mut self, timeout: Duration) {
        if !self.state.is_closed && self.client.shard().is_stopped() {
            self.state.hurry();
        }
        let now = self.clock.now();
        let left = self.until_due(now);
        if !left.is_zero() {
            let left = left.min(self.client.shard().core.parts.timers.until_due(now));
            self.client.wait(timeout.min(left));
        }
    }

    /// What happened to its connections, oldest first. Of more than 256 that the program
    /// does not take, the oldest are forgotten.
    pub fn next_event(&mut self) -> Option<SessionEvent> {
        self.state.events.pop_front()
    }

    /// Connections that are up.
    pub fn connections(&self) -> usize {
        self.state.lines.up()
    }

    /// Why there is no connection: what went wrong last. `None` while there is one, and before
    /// anything went wrong.
    pub fn outage(&self) -> Option<Outage> {
        self.state.outage.filter(|_| self.connections() == 0)
    }

    /// What is known about the execution of a call that is not over. `None` if it is over.
    pub fn execution(&self, call: SessionCallId) -> Option<Execution> {
        let calls = &self.state.calls;
        Some(calls.get(calls.find(call)?).execution())
    }

    /// Calls that are not completed: under way or waiting.
    pub fn open_calls(&self) -> usize {
        self.state.calls.open()
    }

    /// The shard, for memory, limits and statistics. It is not for calls: their completions would
    /// be taken for those of the session.
    pub fn turn(&mut self, now: u64) -> Turn<'_> {
        self.client.turn(now)
    }

    /// The handle to wake the session from other threads, and for its counters.
    pub fn handle(&self) -> &ShardHandle {
        self.client.handle()
    }

    /// Counts all resources of the shard, for tests that check for leaks.
    #[doc(hidden)]
    pub fn audit(&mut self) -> crate::shard::audit::Audit {
        self.client.shard().audit()
    }

    /// Stops: calls that wait complete with [`SessionError::Closed`](super::SessionError::Closed),
    /// calls under way have `connections.stop_timeout` to complete, and then the connections end.
    /// Poll until [`Session::is_closed`].
    pub fn close(&mut self) {
        self.state.is_closed = true;
        self.state.hurry();
        self.client.handle().stop();
    }

    /// Whether all is over. A session whose shard was stopped ([`ShardHandle::stop`]) is closed,
    /// too.
    pub fn is_closed(&mut self) -> bool {
        if !self.client.shard().is_stopped() {
            return false;
        }
        if !self.state.is_closed {
            self.state.hurry();
        }
        self.state.is_closed && self.state.calls.open() == 0
    }

    /// Calls that are under way, for tests.
    #[doc(hidden)]
    pub fn under_way(&self) -> usize {
        self.state.calls.all_sent().count()
    }

    /// Does what is due beside polling. True if there was anything.
    #[cold]
    fn attend(&mut self, now: u64, done: Done<'_>) -> bool {
        let mut busy = false;
        if self.client.handle().state() != ShardState::Running {
            self.state.is_closed = true;
        }
        if self.state.is_closed {
            busy |= self.state.end_waiting(done);
            if self.client.shard().is_stopped() {
                // After a panic of the program.
                busy |= self.state.end_sent(done);
            }
        } else {
            busy |= self.connect(now);
            busy |= self.state.end_late(now, done);
            busy |= self.send_waiting(done);
            if self.state.is_over().is_some() {
                busy |= self.state.end_waiting(done);
            }
        }
        let SessionState { lines, calls, due, idle_until, is_closed, only, .. } = &mut self.state;
        let is_free = !*is_closed && !calls.has_waiting();
        *only = lines.only().filter(|_| is_free);
        let next = lines.next_due().min(calls.earliest());
        (*due, *idle_until) = match (*is_closed, calls.has_waiting() && lines.up() > 0) {
            (true, _) => (u64::MAX, u64::MAX),
            // The reply that brings a credit wakes the thread. A send slot may be free before.
            (false, true) => (0, next.min(now.saturating_add(SLOT_WAIT))),
            (false, false) => (next, next),
        };
        busy
    }

    /// Begins the connections whose time has come.
    fn connect(&mut self, now: u64) -> bool {
        let mut busy = false;
        while let Some((line, address)) = self.state.lines.due(now) {
            busy = true;
            match self.client.begin_connect(address) {
                Ok(id) => self.state.lines.connecting(line, id),
                Err(why) => {
                    let is_transient = why.as_connect_error().is_transient();
                    let failed = self.state.lines.failed(line, is_transient, now);
                    self.state.on_failure(failed, why);
                }
            }
        }
        busy
    }
}

/// How long the thread sleeps while calls wait for send slots or credits, in nanoseconds.
const SLOT_WAIT: u64 = 10_000_000;
/// The shortest delay between two attempts.
const BACKOFF_LEAST: Duration = Duration::from_millis(1);
