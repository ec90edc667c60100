//! The connection manager: TCP sockets, and MPA's start over them.
//!
//! ```text
//!   connect ─▶ TCP connects ─▶ request ──▶ listener ─▶ Request ─▶ accept ─▶ reply, Endpoint here
//!      └ no listener: Refused                             └ reject, drop ─▶ reply, Refused there
//! ```
//!
//! All its sockets are non-blocking and lie in one set; [`ConnectionManager::next`] does the
//! work. The socket of a connection leaves the set when its start is done: what comes behind the
//! start frame is not taken here.

mod attempt;
mod listener;
mod request;
mod start;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use rpcrdma_provider::{
    Address, CmEvent, ConnParam, ConnectError, ConnectId, ConnectionManager, SetupError, Waker,
};
use rpcrdma_transport::callers::{self, LATE_LOOK, LOOKS_MAX, RETRY, callers_max};
use rpcrdma_transport::endpoint::QpNumber;
use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use self::attempt::{Attempt, Step};
use self::listener::{Caller, Listener, TAKES};
pub use self::request::TcpRequest;
use self::start::Received;
use crate::calls::Calls;
use crate::queues::{TcpEndpoint, TcpHandle, TcpQueues};
use crate::ready::{EVENTS, ReadySet};
use crate::shared::Shared;
use crate::socket::Socket;

/// A connection manager over TCP.
pub struct TcpCm {
    shared: Arc<Shared>,
    set: ReadySet,
    /// What a ready socket is, by its number in the set.
    sockets: HashMap<u64, Source>,
    events: VecDeque<CmEvent<TcpCm>>,
    /// The number of the next socket, and of the next attempt.
    next: u64,
    callers_max: usize,
}

/// What a socket is that it waits for.
enum Source {
    Listener(Listener),
    /// One that has connected and not sent its whole request yet.
    Caller(Box<Caller>),
    Attempt(Box<Attempt>),
}

impl TcpCm {
    pub(crate) fn new(shared: Arc<Shared>) -> Result<TcpCm, SetupError> {
        let set = shared.stack.ready_set()?;
        let (sockets, events) = (HashMap::new(), VecDeque::new());
        Ok(TcpCm { shared, set, sockets, events, next: 1, callers_max: callers_max() })
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Takes a socket away. A connection goes on with it, and it would be ready all that time.
    fn take(&mut self, number: u64) -> Option<Source> {
        let socket = self.sockets.remove(&number)?;
        let _ = match &socket {
            Source::Listener(listener) => self.set.remove(listener.socket()),
            Source::Caller(caller) => self.set.remove(caller.socket()),
            Source::Attempt(attempt) => self.set.remove(attempt.socket()),
        };
        Some(socket)
    }

    /// Waits for a ready socket, `waker` or the end of `timeout`. True if `waker` is rung.
    fn wait(&self, waker: &Waker, timeout: Duration) -> bool {
        let mut fds = [PollFd::new(&self.set, PollFlags::IN), PollFd::new(waker, PollFlags::IN)];
        let timeout = Timespec::try_from(timeout).ok();
        // A signal may end it, which the caller may handle.
        let is_rung = rustix::event::poll(&mut fds, timeout.as_ref()).is_err();
        is_rung || !fds[1].revents().is_empty()
    }

    /// Handles the sockets that are ready until an event has come or no socket is. It looks only a
    /// few times: peers may keep sockets ready for ever, and there is more to do.
    fn work(&mut self) {
        for _ in 0..LOOKS_MAX {
            let mut ready = ArrayVec::<u64, EVENTS>::new();
            if !self.events.is_empty() || !self.set.look(|number, _| ready.push(number)) {
                return;
            }
            for number in ready {
                match self.sockets.get_mut(&number) {
                    Some(Source::Listener(_)) => self.take_callers(number),
                    Some(Source::Caller(_)) => self.receive_request(number),
                    Some(Source::Attempt(attempt)) if attempt.is_sent() => {
                        self.receive_reply(number)
                    }
                    Some(Source::Attempt(_)) => self.go_on(number),
                    None => {}
                }
            }
        }
    }

    /// Takes the sockets that have connected to a listener. If there can be no more, the others
    /// wait in the backlog of the listener, which is paused.
    fn take_callers(&mut self, listener: u64) {
        loop {
            let is_full = self.callers().count() >= self.callers_max;
            let Some(Source::Listener(found)) = self.sockets.get_mut(&listener) else { return };
            if is_full {
                return found.pause(&self.set);
            }
            let caller = match found.accept() {
                Ok(caller) => caller,
                Err(Errno::AGAIN) => return,
                // The process may have no free descriptor.
                Err(_) => return found.pause(&self.set),
            };
            let number = self.number();
            if self.set.add(caller.socket(), number, EventFlags::IN).is_ok() {
                self.sockets.insert(number, Source::Caller(Box::new(caller)));
            }
        }
    }

    /// Those that have not sent their whole request yet, with their numbers.
    fn callers(&self) -> impl Iterator<Item = (u64, &Caller)> {
        self.sockets.iter().filter_map(|(number, socket)| match socket {
            Source::Caller(caller) => Some((*number, &**caller)),
            _ => None,
        })
    }

    /// Drops callers of the host that has most of them, if there can be no more.
    fn make_room(&mut self) {
        let hosts = self.callers().map(|(number, caller)| (number, caller.origin()));
        for number in callers::callers_to_drop(hosts, self.callers_max) {
            self.receive_request(number);
            drop(self.take(number));
        }
    }

    /// A socket that has connected sends its request, or something else.
    fn receive_request(&mut self, number: u64) {
        let Some(Source::Caller(caller)) = self.sockets.get_mut(&number) else { return };
        let received = caller.receive();
        if received == Received::Nothing {
            return;
        }
        let Some(Source::Caller(caller)) = self.take(number) else { return };
        if let Some((request, private)) = TcpRequest::of(*caller, received, &self.shared) {
            let from = request.from();
            self.events.push_back(CmEvent::Request { request, from, private });
        }
    }

    /// Begins to connect the socket of an attempt.
    fn begin(&mut self, number: u64) {
        let Some(Source::Attempt(attempt)) = self.sockets.get_mut(&number) else { return };
        let begun = attempt.begin(&self.shared);
        self.arrange(number, begun, ReadySet::add);
    }

    /// The socket of an attempt has connected, or has failed to.
    fn go_on(&mut self, number: u64) {
        let Some(Source::Attempt(attempt)) = self.sockets.get_mut(&number) else { return };
        let gone_on = attempt.go_on(&self.shared);
        self.arrange(number, gone_on, ReadySet::modify);
    }

    /// Waits for the next step of an attempt, or ends it. `wait` sets what its socket waits for.
    fn arrange(
        &mut self,
        number: u64,
        outcome: Result<Step, ConnectError>,
        wait: fn(&ReadySet, &Socket, u64, EventFlags) -> Result<(), Errno>,
    ) {
        let Some(Source::Attempt(attempt)) = self.sockets.get(&number) else { return };
        let flags = outcome.map(|step| match step {
            Step::Wait => EventFlags::OUT,
            Step::Sent => EventFlags::IN,
        });
        let waits = flags.and_then(|flags| {
            let socket = attempt.socket();
            wait(&self.set, socket, number, flags)
                .map_err(|error| SetupError::unwatched(error).as_connect_error())
        });
        if let Err(reason) = waits {
            drop(self.take(number));
            self.events.push_back(CmEvent::Refused { id: ConnectId(number), reason });
        }
    }

    /// The reply to an attempt comes, or its peer is gone.
    fn receive_reply(&mut self, number: u64) {
        let Some(Source::Attempt(attempt)) = self.sockets.get_mut(&number) else { return };
        let received = attempt.receive();
        if received == Received::Nothing {
            return;
        }
        let Some(Source::Attempt(attempt)) = self.take(number) else { return };
        let id = ConnectId(number);
        self.events.push_back(match attempt.finish(received, &self.shared) {
            Ok((endpoint, private)) => CmEvent::Connected { id, endpoint, private },
            Err(reason) => CmEvent::Refused { id, reason },
        });
    }

    /// Drops callers that are late, and takes others where a listener was paused. Returns when it
    /// has to be done again.
    fn look_at_clock(&mut self, now: Instant) -> Option<Duration> {
        let late = self.callers().filter(|(_, caller)| caller.is_late(now));
        for number in late.map(|(number, _)| number).collect::<Vec<u64>>() {
            // Its request may have come in time: this side is late if very many come at once.
            self.receive_request(number);
            drop(self.take(number));
        }
        let is_pause_over =
            |it: &Source| matches!(it, Source::Listener(it) if it.is_pause_over(now));
        if self.sockets.values().any(is_pause_over) {
            self.make_room();
        }
        for (number, socket) in &mut self.sockets {
            if let Source::Listener(listener) = socket {
                listener.wake(&self.set, *number, now);
            }
        }
        let waits = self.sockets.values().map(|socket| match socket {
            Source::Listener(listener) if listener.is_paused() => RETRY,
            Source::Listener(_) | Source::Attempt(_) => Duration::MAX,
            Source::Caller(_) => LATE_LOOK,
        });
        waits.min().filter(|wait| *wait != Duration::MAX)
    }
}

impl ConnectionManager for TcpCm {
    type Queues = TcpQueues;
    type Request = TcpRequest;

    fn listen(&mut self, at: Address) -> Result<Address, SetupError> {
        let listener = Listener::open(at, &self.shared.stack)?;
        let (number, address) = (self.number(), listener.address());
        let waits = self.set.add(listener.socket(), number, EventFlags::IN);
        waits.map_err(SetupError::unwatched)?;
        self.sockets.insert(number, Source::Listener(listener));
        Ok(address)
    }

    fn unlisten(&mut self, at: Address) {
        let there = self.sockets.iter().filter_map(|(number, socket)| match socket {
            Source::Listener(listener) if listener.address() == at => Some(*number),
            _ => None,
        });
        for number in there.collect::<Vec<u64>>() {
            drop(self.take(number));
        }
    }

    fn connect(
        &mut self,
        to: Address,
        on: &TcpHandle,
        param: &ConnParam<'_>,
    ) -> Result<ConnectId, SetupError> {
        let wrong = ConnectError::WrongAddress { reason: TAKES };
        let address = to.as_ip().ok_or_else(|| SetupError::connect(to, wrong))?;
        let (private, number) = (param.checked()?, QpNumber::take(on, self.shared.device_name())?);
        let attempt = Attempt::new(address, number, private, &self.shared.stack)?;
        limit_silence(attempt.socket(), param)?;
        let number = self.number();
        self.sockets.insert(number, Source::Attempt(Box::new(attempt)));
        self.begin(number);
        Ok(ConnectId(number))
    }

    fn accept(
        &mut self,
        request: TcpRequest,
        on: &TcpHandle,
        param: &ConnParam<'_>,
    ) -> Result<TcpEndpoint, SetupError> {
        let (private, number) = (param.checked()?, QpNumber::take(on, self.shared.device_name())?);
        if let Some(socket) = request.socket() {
            limit_silence(socket, param)?;
        }
        request.accept(number, &private, &self.shared)
    }

    fn cancel(&mut self, ConnectId(number): ConnectId) -> Option<ConnectError> {
        match self.sockets.get(&number) {
            Some(Source::Attempt(_)) => self.take(number).and(None),
            _ => None,
        }
    }

    fn reject(&mut self, request: TcpRequest, private: &[u8]) {
        request.reject(private);
    }

    fn next(&mut self, waker: &Waker, timeout: Duration) -> Option<CmEvent<TcpCm>> {
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

impl std::fmt::Debug for TcpCm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpCm").field("sockets", &self.sockets.len()).finish_non_exhaustive()
    }
}

fn limit_silence(socket: &Socket, param: &ConnParam<'_>) -> Result<(), SetupError> {
    socket.set_silence_max(param.send_timeout).map_err(|error| SetupError::System {
        call: "setsockopt",
        source: error.into(),
        hint: "the system must support TCP_USER_TIMEOUT and the options of keepalive",
    })
}
