//! The client: a calling shard that its program polls.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rpcrdma_proto::{PeerLimits, PropertyOutcome};

use super::shard::Shard;
use crate::api::builder::{CallBuilder, CallHandle};
use crate::api::call::Call;
use crate::api::completion::Completion;
use crate::api::handler::{Admission, Handler, RefuseCalls};
use crate::api::owned;
use crate::api::reply::{Answer, Reply};
use crate::api::turn::Turn;
use crate::api::unsent::Unsent;
use crate::clock::{Clock, PollLoop};
use crate::connection_id::ConnectionId;
use crate::error::{CallRefused, SetupError};
use crate::handle::ShardHandle;
use crate::message::owned_call::OwnedCall;
use crate::provider::{Address, Armed, ConnectError, ConnectId, Provider};

/// A convenient interface to a shard that only sends calls; not a second engine.
///
/// Its thread polls it; nothing happens between polls.
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
/// let mut client = engine.client()?;
/// let peer = client.connect(address)?;
/// let mut call = client.call(peer, 7)?; // 7 is in its completion
/// call.payload().put_u32(41);
/// call.submit()?;
///
/// let mut is_over = false;
/// while !is_over {
///     client.poll_for(Duration::from_secs(1), |done| {
///         assert_eq!(done.cookie(), 7);
///         is_over = true;
///     });
/// }
/// # Ok(())
/// # }
/// ```
pub struct Client<P: Provider> {
    shard: Shard<P, RefuseCalls>,
    clock: Clock,
    /// Outcomes of connection attempts that the program has not yet queried.
    outcomes: Vec<(ConnectId, Outcome)>,
    /// Outcomes of property changes, likewise.
    property_outcomes: Vec<(ConnectionId, PropertyOutcome)>,
}

/// How often deadlines are looked at while a connection is made. Its steps wake the thread: very
/// many clients that wait at one time leave the processors to their server.
const CONNECT_POLL: Duration = Duration::from_millis(50);

/// The outcome of a connection attempt.
type Outcome = Result<ConnectionId, ConnectError>;

impl<P: Provider> Client<P> {
    pub(crate) fn new(shard: Shard<P, RefuseCalls>) -> Client<P> {
        Client { shard, clock: Clock::new(), outcomes: Vec::new(), property_outcomes: Vec::new() }
    }

    /// Connects and waits until calls can be made. Completions of other calls that arrive meanwhile
    /// are lost: connect first. Needs an engine with a control thread.
    ///
    /// # Errors
    /// Why there is no connection.
    pub fn connect(&mut self, to: impl Into<Address>) -> Result<ConnectionId, SetupError> {
        self.connect_to(to.into())
    }

    fn connect_to(&mut self, to: Address) -> Result<ConnectionId, SetupError> {
        let id = self.begin_connect(to)?;
        // An attempt has its own deadlines; this one covers an engine that is gone.
        let until = self.shard.core.parts.timers.attempt_until(self.clock.now());
        loop {
            self.poll_for(CONNECT_POLL, |_| ());
            match self.connected(id) {
                Some(Ok(peer)) => return Ok(peer),
                Some(Err(reason)) => return Err(SetupError::connect(to, reason)),
                None if self.clock.now() > until => {
                    return Err(SetupError::connect(to, ConnectError::TimedOut));
                }
                None => {}
            }
        }
    }

    /// Requests a connection; [`Client::connected`] returns the outcome after some polls.
    ///
    /// # Errors
    /// If this client has as many connections as its configuration allows.
    pub fn begin_connect(&mut self, to: impl Into<Address>) -> Result<ConnectId, SetupError> {
        self.shard.connect(to)
    }

    /// The outcome of a connection attempt, returned once; `None` if it is open, or was returned.
    /// The connection may have ended since.
    pub fn connected(&mut self, id: ConnectId) -> Option<Result<ConnectionId, ConnectError>> {
        let at = self.outcomes.iter().position(|(attempt, _)| *attempt == id)?;
        Some(self.outcomes.swap_remove(at).1)
    }

    /// The outcome of [`Turn::request_properties`] to this peer, returned once; `None` if it is
    /// open, or was returned.
    pub fn property_outcome(&mut self, peer: ConnectionId) -> Option<PropertyOutcome> {
        let at = self.property_outcomes.iter().position(|(of, _)| *of == peer)?;
        Some(self.property_outcomes.swap_remove(at).1)
    }

    /// Begins a call. `cookie` comes back with its completion.
    ///
    /// # Errors
    /// [`CallRefused`] states the reason. Never waits.
    #[inline]
    pub fn call(
        &mut self,
        peer: ConnectionId,
        cookie: u64,
    ) -> Result<CallBuilder<'_>, CallRefused> {
        self.shard.core.begin_call(peer, cookie)
    }

    /// Sends a call with the next poll. `cookie` comes back with its completion.
    ///
    /// Cost: that of [`Client::call`], and a copy of the payload.
    ///
    /// # Errors
    /// [`Unsent`] returns the call and states the reason; nothing has been sent. If
    /// [`CallRefused::is_transient`] is true, poll, and submit it again. A
    /// [`Session`](crate::Session) keeps calls that wait, and sends them in order.
    #[expect(clippy::result_large_err, reason = "what was not taken is given back, not lost")]
    pub fn submit(
        &mut self,
        peer: ConnectionId,
        cookie: u64,
        call: OwnedCall,
    ) -> Result<CallHandle, Unsent> {
        owned::submit(self.call(peer, cookie), None, call)
    }

    /// Ends a call before its reply, as [`Turn::cancel`]; it is completed in the next poll.
    pub fn cancel(&mut self, call: CallHandle) -> bool {
        // The time has no effect on it.
        self.shard.turn(0).cancel(call)
    }

    /// Sends submitted calls, processes arrivals and passes every completion to `done`. True if
    /// there was work. `now` is in nanoseconds of any monotonic clock, such as [`Clock`].
    #[inline]
    pub fn poll(&mut self, now: u64, done: impl FnMut(Completion<'_>)) -> bool {
        let (outcomes, property_outcomes) = (&mut self.outcomes, &mut self.property_outcomes);
        let mut handler = Completing { done, outcomes, property_outcomes };
        self.shard.poll_with(now, &mut handler)
    }

    /// Polls until there was work, at most `timeout`. True if there was work. Uses its own clock.
    ///
    /// The first 200 polls without work follow each other at once, some ten microseconds
    /// in all; then the thread sleeps until there may be work.
    pub fn poll_for(&mut self, timeout: Duration, mut done: impl FnMut(Completion<'_>)) -> bool {
        let mut now = self.clock.now();
        let mut polls = PollLoop::new(now, timeout);
        while !self.poll(now, &mut done) {
            let Some(left) = polls.sleep(now) else { return false };
            if !left.is_zero() {
                self.shard.core.sleep_at(now, left);
            }
            now = self.clock.now();
        }
        true
    }

    /// As [`Shard::arm`]: for a thread that sleeps in an event loop of its own.
    pub fn arm(&mut self, now: u64) -> Armed {
        self.shard.arm(now)
    }

    /// As [`Shard::idle`]: waits, or not, as the configured idle policy says.
    #[inline]
    pub fn idle(&mut self, busy: bool, now: u64, timeout: Duration) -> bool {
        self.shard.idle(busy, now, timeout)
    }

    /// Waits until there may be something to do, at most `timeout`.
    pub fn wait(&mut self, timeout: Duration) {
        self.shard.wait(timeout);
    }

    /// The shard, for the program's use between polls.
    pub fn turn(&mut self, now: u64) -> Turn<'_> {
        self.shard.turn(now)
    }

    /// The handle to reach this client from other threads.
    pub fn handle(&self) -> &ShardHandle {
        self.shard.handle()
    }

    /// The shard behind this client.
    pub fn shard(&mut self) -> &mut Shard<P, RefuseCalls> {
        &mut self.shard
    }
}

/// As that of [`Shard`].
impl<P: Provider> AsFd for Client<P> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shard.as_fd()
    }
}

/// The handler of a client for one poll.
struct Completing<'a, F> {
    done: F,
    outcomes: &'a mut Vec<(ConnectId, Outcome)>,
    property_outcomes: &'a mut Vec<(ConnectionId, PropertyOutcome)>,
}

impl<F: FnMut(Completion<'_>)> Handler for Completing<'_, F> {
    fn on_call<'a>(&mut self, _call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
        reply.refuse()
    }

    // A turn calls it at several places; as a function it costs each reply 14 instructions.
    #[inline(always)]
    fn on_reply(&mut self, done: Completion<'_>) {
        (self.done)(done);
    }

    fn on_connect(
        &mut self,
        peer: ConnectionId,
        attempt: Option<ConnectId>,
        _limits: &PeerLimits,
    ) -> Admission {
        if let Some(id) = attempt {
            self.outcomes.push((id, Ok(peer)));
        }
        Admission::Accept
    }

    fn on_properties(&mut self, peer: ConnectionId, outcome: &PropertyOutcome) {
        self.property_outcomes.push((peer, *outcome));
    }

    fn on_refused(&mut self, id: ConnectId, why: ConnectError) {
        self.outcomes.push((id, Err(why)));
    }
}
