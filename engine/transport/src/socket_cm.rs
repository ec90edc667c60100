//! The connection manager of providers whose connections are sockets.
//!
//! ```text
//!   connect ─▶ attempt: connects, sends its request ──▶ listener ─▶ caller ─▶ Request ─▶ accept
//!      └ no listener: Refused                                        └ late, too many: dropped
//! ```
//!
//! All its sockets are non-blocking and lie in one set; [`ConnectionManager::next`] does the work.
//! A socket leaves the set when its connection is requested or made: what comes then is not taken
//! here. What a peer sends, and what it means, is the provider's: [`Sockets`].

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use rpcrdma_provider::{
    Address, CmEvent, ConnParam, ConnectError, ConnectId, ConnectionManager, Queues, SetupError,
    Waker,
};
use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::callers::{DROPPED_MAX, callers_max, callers_to_drop};
use crate::sockets::{Sockets, Source, Step};

/// A connection manager of sockets.
pub struct SocketCm<S: Sockets> {
    kind: S,
    /// What a ready socket is, by its number in the set.
    sockets: HashMap<u64, Source<S>>,
    events: VecDeque<CmEvent<SocketCm<S>>>,
    /// The number of the next socket, and of the next attempt.
    next: u64,
    callers_max: usize,
}

impl<S: Sockets> SocketCm<S> {
    /// One without sockets.
    pub fn new(kind: S) -> SocketCm<S> {
        let (sockets, events) = (HashMap::new(), VecDeque::new());
        SocketCm { kind, sockets, events, next: 1, callers_max: callers_max() }
    }

    /// How many sockets there are: listeners, callers, attempts. For tests, as what is hidden here.
    #[doc(hidden)]
    pub fn sockets(&self) -> usize {
        self.sockets.len()
    }

    /// How many callers there may be at one time.
    #[doc(hidden)]
    pub fn callers_max(&self) -> usize {
        self.callers_max
    }

    /// Sets that.
    #[doc(hidden)]
    pub fn set_callers_max(&mut self, most: usize) {
        self.callers_max = most;
    }

    /// Whether a listener takes no callers for a while.
    #[doc(hidden)]
    pub fn is_paused(&self) -> bool {
        self.sockets.values().any(|it| matches!(it, Source::Listener { paused_until: Some(_), .. }))
    }

    /// Events that [`ConnectionManager::next`] returns next.
    #[doc(hidden)]
    pub fn events(&self) -> usize {
        self.events.len()
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Takes a socket away. It may exist for long, and would be ready all that time.
    fn take(&mut self, number: u64) -> Option<Source<S>> {
        let socket = self.sockets.remove(&number)?;
        self.kind.remove(&socket);
        Some(socket)
    }

    /// Waits for a ready socket, `waker` or the end of `timeout`. True if `waker` is rung.
    #[doc(hidden)]
    pub fn wait(&self, waker: &Waker, timeout: Duration) -> bool {
        let set = self.kind.set();
        let mut fds = [PollFd::new(&set, PollFlags::IN), PollFd::new(waker, PollFlags::IN)];
        let timeout = Timespec::try_from(timeout).ok();
        // A signal may end it, which the program may handle.
        let is_rung = rustix::event::poll(&mut fds, timeout.as_ref()).is_err();
        is_rung || !fds[1].revents().is_empty()
    }

    /// Handles the sockets that are ready until an event has come or no socket is. It looks only a
    /// few times: peers may keep sockets ready for ever, and there is more to do.
    #[doc(hidden)]
    pub fn work(&mut self) {
        let mut ready = Vec::new();
        for _ in 0..LOOKS_MAX {
            ready.clear();
            if !self.events.is_empty() || !self.kind.look(|number| ready.push(number)) {
                return;
            }
            for &number in &ready {
                match self.sockets.get(&number) {
                    Some(Source::Listener { .. }) => self.take_callers(number),
                    Some(Source::Caller { .. }) => self.receive_request(number),
                    Some(Source::Attempt { step: Some(Step::Sent), .. }) => {
                        self.receive_answer(number)
                    }
                    Some(Source::Attempt { .. }) => self.go_on(number),
                    None => {}
                }
            }
        }
    }

    /// Takes the sockets that have connected to a listener. If there can be no more, the others wait
    /// in the backlog of the listener, which is paused.
    fn take_callers(&mut self, number: u64) {
        let mut rejected = 0;
        loop {
            let is_full = self.callers().count() >= self.callers_max
                || self.kind.is_full()
                || rejected == DROPPED_MAX;
            if is_full {
                return self.pause(number);
            }
            let Some(Source::Listener { listener, .. }) = self.sockets.get(&number) else { return };
            let caller = match self.kind.accept_caller(listener) {
                Ok(caller) => caller,
                Err(Errno::AGAIN) => return,
                // The process may have no free descriptor.
                Err(_) => return self.pause(number),
            };
            if self.kind.is_rejected(&caller) {
                rejected += 1;
                continue;
            }
            let number = self.number();
            let caller = Source::Caller { caller: Box::new(caller), since: Instant::now() };
            if self.kind.add(&caller, number, EventFlags::IN).is_ok() {
                self.sockets.insert(number, caller);
            }
        }
    }

    /// Takes no connection for a while: one that cannot be taken would keep the listener ready.
    fn pause(&mut self, number: u64) {
        let Some(socket) = self.sockets.get_mut(&number) else { return };
        self.kind.remove(socket);
        if let Source::Listener { paused_until, .. } = socket {
            *paused_until = Instant::now().checked_add(PAUSE);
        }
    }

    /// Those that have not sent their whole request yet, with their numbers, and since when.
    #[doc(hidden)]
    pub fn callers(&self) -> impl Iterator<Item = (u64, &S::Caller, Instant)> {
        self.sockets.iter().filter_map(|(number, socket)| match socket {
            Source::Caller { caller, since } => Some((*number, &**caller, *since)),
            _ => None,
        })
    }

    /// Drops callers of the origin that has most of them, if there can be no more.
    fn make_room(&mut self) {
        let origins = self.callers().map(|(number, caller, _)| (number, S::origin(caller)));
        for number in callers_to_drop(origins, self.callers_max) {
            self.receive_request(number);
            drop(self.take(number));
        }
    }

    /// Reads what a socket that has connected has sent: its request, or something else.
    fn receive_request(&mut self, number: u64) {
        let Some(Source::Caller { caller, .. }) = self.sockets.get_mut(&number) else { return };
        let Some(received) = S::receive(caller) else { return };
        let Some(Source::Caller { caller, .. }) = self.take(number) else { return };
        if let Some((request, from, private)) = self.kind.request(*caller, received) {
            self.events.push_back(CmEvent::Request { request, from, private });
        }
    }

    /// Begins an attempt, or goes on with it, and waits for its next step or ends it.
    fn go_on(&mut self, number: u64) {
        let Some(socket) = self.sockets.get_mut(&number) else { return };
        let Source::Attempt { attempt, step } = socket else { return };
        let was_watched = matches!(step, Some(Step::Connecting | Step::Sent));
        let gone_on = self.kind.go_on(attempt);
        *step = gone_on.as_ref().ok().copied();
        let watched = gone_on.and_then(|step| {
            let flags = match step {
                Step::Later => {
                    self.kind.remove(socket);
                    return Ok(());
                }
                Step::Connecting => EventFlags::OUT,
                Step::Sent => EventFlags::IN,
            };
            let watched = match was_watched {
                true => self.kind.modify(socket, number, flags),
                false => self.kind.add(socket, number, flags),
            };
            watched.map_err(|error| SetupError::unwatched(error).as_connect_error())
        });
        if let Err(reason) = watched {
            drop(self.take(number));
            self.events.push_back(CmEvent::Refused { id: ConnectId(number), reason });
        }
    }

    /// The answer to an attempt comes, or its peer is gone.
    fn receive_answer(&mut self, number: u64) {
        let Some(Source::Attempt { attempt, .. }) = self.sockets.get_mut(&number) else { return };
        let Some(received) = S::receive_answer(attempt) else { return };
        let Some(Source::Attempt { attempt, .. }) = self.take(number) else { return };
        let id = ConnectId(number);
        self.events.push_back(match self.kind.finish(*attempt, received) {
            Ok((endpoint, private)) => CmEvent::Connected { id, endpoint, private },
            Err(reason) => CmEvent::Refused { id, reason },
        });
    }

    /// Drops callers that are late, takes others where a listener was paused, and goes on with
    /// attempts whose listener was full. Returns when it has to be done again.
    #[doc(hidden)]
    pub fn look_at_clock(&mut self, now: Instant) -> Option<Duration> {
        let is_late = |since: Instant| now.saturating_duration_since(since) > REQUEST;
        let late = self.callers().filter(|(_, _, since)| is_late(*since));
        for number in late.map(|(number, ..)| number).collect::<Vec<u64>>() {
            // Its request may have come in time: this side is late if very many come at once.
            self.receive_request(number);
            drop(self.take(number));
        }
        self.end_pauses(now);
        let is_waiting =
            |socket: &Source<S>| matches!(socket, Source::Attempt { step: Some(Step::Later), .. });
        let waiting = self.sockets.iter().filter(|(_, socket)| is_waiting(socket));
        for number in waiting.map(|(number, _)| *number).collect::<Vec<u64>>() {
            self.go_on(number);
        }
        let waits = self.sockets.values().filter_map(|socket| match socket {
            Source::Listener { paused_until, .. } => paused_until.map(|_| RETRY),
            Source::Caller { .. } => Some(LATE_LOOK),
            Source::Attempt { .. } => is_waiting(socket).then_some(RETRY),
        });
        waits.min()
    }

    /// Takes callers again where a listener was paused for long enough.
    fn end_pauses(&mut self, now: Instant) {
        let is_over = |socket: &Source<S>| {
            let Source::Listener { paused_until, .. } = socket else { return false };
            paused_until.is_some_and(|until| until <= now)
        };
        if self.sockets.values().any(is_over) {
            self.make_room();
        }
        for (number, socket) in &mut self.sockets {
            if is_over(socket) && self.kind.add(socket, *number, EventFlags::IN).is_ok() {
                let Source::Listener { paused_until, .. } = socket else { continue };
                *paused_until = None;
            }
        }
    }
}

impl<S: Sockets> ConnectionManager for SocketCm<S> {
    type Queues = S::Queues;
    type Request = S::Request;

    fn listen(&mut self, at: Address) -> Result<Address, SetupError> {
        let listener = self.kind.listen(at)?;
        let (number, address) = (self.number(), S::address(&listener));
        let listener = Source::Listener { listener, paused_until: None };
        self.kind.add(&listener, number, EventFlags::IN).map_err(SetupError::unwatched)?;
        self.sockets.insert(number, listener);
        Ok(address)
    }

    fn unlisten(&mut self, at: Address) {
        let there = self.sockets.iter().filter_map(|(number, socket)| match socket {
            Source::Listener { listener, .. } if S::address(listener) == at => Some(*number),
            _ => None,
        });
        for number in there.collect::<Vec<u64>>() {
            drop(self.take(number));
        }
    }

    fn connect(
        &mut self,
        to: Address,
        on: &<S::Queues as Queues>::Handle,
        param: &ConnParam<'_>,
    ) -> Result<ConnectId, SetupError> {
        let attempt = Box::new(self.kind.attempt(to, on, param)?);
        let number = self.number();
        self.sockets.insert(number, Source::Attempt { attempt, step: None });
        self.go_on(number);
        Ok(ConnectId(number))
    }

    fn accept(
        &mut self,
        request: S::Request,
        on: &<S::Queues as Queues>::Handle,
        param: &ConnParam<'_>,
    ) -> Result<<S::Queues as Queues>::Endpoint, SetupError> {
        self.kind.accept(request, on, param)
    }

    fn cancel(&mut self, ConnectId(number): ConnectId) -> Option<ConnectError> {
        match self.sockets.get(&number) {
            Some(Source::Attempt { .. }) => self.take(number).and(None),
            _ => None,
        }
    }

    fn reject(&mut self, request: S::Request, private: &[u8]) {
        S::reject(request, private);
    }

    fn next(&mut self, waker: &Waker, timeout: Duration) -> Option<CmEvent<SocketCm<S>>> {
        let until = Instant::now().checked_add(timeout);
        loop {
            self.work();
            let again = self.look_at_clock(Instant::now());
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let now = Instant::now();
            let left = until.map_or(timeout, |until| until.saturating_duration_since(now));
            if left.is_zero() {
                return None;
            }
            if self.wait(waker, again.map_or(left, |again| again.min(left))) {
                self.work();
                return self.events.pop_front();
            }
        }
    }
}

impl<S: Sockets> std::fmt::Debug for SocketCm<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SocketCm").field("sockets", &self.sockets.len()).finish_non_exhaustive()
    }
}

/// How often callers that are late are looked for.
pub const LATE_LOOK: Duration = Duration::from_secs(1);
/// How soon a paused listener and an attempt whose listener is full are looked at again.
pub const RETRY: Duration = Duration::from_millis(2);
/// How often it looks for sockets that are ready before there is more to do: peers may keep theirs
/// ready for ever.
pub const LOOKS_MAX: usize = 4;
/// How long a listener is paused.
const PAUSE: Duration = Duration::from_millis(20);
/// The time that a caller has to send its request.
const REQUEST: Duration = Duration::from_secs(5);
