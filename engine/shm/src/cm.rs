//! The connection manager: Unix sockets are the addresses.
//!
//! ```text
//!   connect ─▶ socket, memory, Hello ──▶ listener ─▶ Request ─▶ accept ─▶ Answer, Endpoint here
//!      └ no listener: Refused                             └ reject, drop ─▶ Answer, Refused there
//! ```
//!
//! All its sockets are non-blocking and lie in one epoll set; [`ConnectionManager::next`] does the
//! work. The side that connects makes the memory of the link; the other side checks it before it maps
//! it.

mod attempt;
mod listener;
mod lock;
mod request;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rpcrdma_provider::{
    Address, CmEvent, ConnParam, ConnectError, ConnectId, ConnectionManager, SetupError, Waker,
};
use rpcrdma_transport::callers::{self, DROPPED_MAX, LATE_LOOK, LOOKS_MAX, RETRY, callers_max};
use rpcrdma_transport::endpoint::QpNumber;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use self::attempt::{Attempt, Step};
use self::listener::{Caller, Listener, TAKES, name_of};
pub use self::request::ShmRequest;
use crate::queues::{ShmEndpoint, ShmHandle, ShmQueues};
use crate::shared::Shared;
use crate::socket::Received;

/// A connection manager of shared memory.
pub struct ShmCm {
    shared: Arc<Shared>,
    epoll: OwnedFd,
    /// What a ready socket is, by its number in the epoll set.
    sockets: HashMap<u64, Source>,
    events: VecDeque<CmEvent<ShmCm>>,
    /// The number of the next socket, and of the next attempt.
    next: u64,
    callers_max: usize,
}

/// What a socket is that it waits for.
enum Source {
    Listener(Listener),
    /// One that has connected and not sent its hello yet.
    Caller(Caller),
    Attempt(Box<Attempt>),
}

impl ShmCm {
    pub(crate) fn new(shared: Arc<Shared>) -> Result<ShmCm, SetupError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(|error| SetupError::System {
            call: "epoll_create1",
            source: error.into(),
            hint: "check the limit of open files (ulimit -n)",
        })?;
        let (sockets, events) = (HashMap::new(), VecDeque::new());
        Ok(ShmCm { shared, epoll, sockets, events, next: 1, callers_max: callers_max() })
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn wait_for(&self, number: u64, socket: &impl AsFd) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, socket, EventData::new_u64(number), EventFlags::IN)?)
    }

    /// Takes a socket away. It may exist for long after it is dropped ([`Closer`]), and would be ready
    /// all that time.
    ///
    /// [`Closer`]: crate::closer::Closer
    fn take(&mut self, number: u64) -> Option<Source> {
        let socket = self.sockets.remove(&number)?;
        // An attempt may wait for no answer yet.
        let _ = match &socket {
            Source::Listener(listener) => epoll::delete(&self.epoll, listener.socket()),
            Source::Caller(caller) => epoll::delete(&self.epoll, caller.socket()),
            Source::Attempt(attempt) => epoll::delete(&self.epoll, attempt.socket()),
        };
        Some(socket)
    }

    /// Waits for a ready socket, `waker` or the end of `timeout`. True if `waker` is rung.
    fn wait(&self, waker: &Waker, timeout: Duration) -> bool {
        let mut fds = [PollFd::new(&self.epoll, PollFlags::IN), PollFd::new(waker, PollFlags::IN)];
        let timeout = Timespec::try_from(timeout).ok();
        // A signal may end it, which the caller may handle.
        let is_rung = rustix::event::poll(&mut fds, timeout.as_ref()).is_err();
        is_rung || !fds[1].revents().is_empty()
    }

    /// Handles the sockets that are ready until an event has come or no socket is. It looks only a
    /// few times: peers may keep sockets ready for ever, and there is more to do.
    fn work(&mut self) {
        let mut ready = Vec::with_capacity(READY_MAX);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        for _ in 0..LOOKS_MAX {
            ready.clear();
            let room = rustix::buffer::spare_capacity(&mut ready);
            if !self.events.is_empty()
                || !matches!(epoll::wait(&self.epoll, room, Some(&now)), Ok(count) if count > 0)
            {
                return;
            }
            for &Event { data, .. } in &ready {
                let number = data.u64();
                match self.sockets.get_mut(&number) {
                    Some(Source::Listener(_)) => self.take_callers(number),
                    Some(Source::Caller(_)) => self.receive_hello(number),
                    Some(Source::Attempt(_)) => self.receive_answer(number),
                    None => {}
                }
            }
        }
    }

    /// Takes the sockets that have connected to a listener. If there can be no more, the others wait
    /// in the backlog of the listener, which is paused.
    fn take_callers(&mut self, listener: u64) {
        let mut rejected = 0;
        loop {
            let is_full =
                self.callers().count() >= self.callers_max || self.shared.closer().is_full();
            let is_full = is_full || rejected == DROPPED_MAX;
            let Some(Source::Listener(found)) = self.sockets.get_mut(&listener) else { return };
            if is_full {
                return found.pause(&self.epoll);
            }
            let caller = match found.accept() {
                Ok(caller) => caller,
                Err(Errno::AGAIN) => return,
                // The process may have no free descriptor.
                Err(_) => return found.pause(&self.epoll),
            };
            if caller.socket().is_behind() {
                rejected += 1;
                continue;
            }
            let number = self.number();
            if self.wait_for(number, caller.socket()).is_ok() {
                self.sockets.insert(number, Source::Caller(caller));
            }
        }
    }

    /// Those that have not sent their hello yet, with their numbers.
    fn callers(&self) -> impl Iterator<Item = (u64, &Caller)> {
        self.sockets.iter().filter_map(|(number, socket)| match socket {
            Source::Caller(caller) => Some((*number, caller)),
            _ => None,
        })
    }

    /// Drops callers of the user that has most of them, if there can be no more.
    fn make_room(&mut self) {
        let users = self.callers().map(|(number, caller)| (number, caller.user()));
        for number in callers::callers_to_drop(users, self.callers_max) {
            self.receive_hello(number);
            drop(self.take(number));
        }
    }

    /// Reads what a socket that has connected has sent: its hello, or something else.
    fn receive_hello(&mut self, number: u64) {
        let Some(Source::Caller(caller)) = self.sockets.get(&number) else { return };
        let received = caller.receive();
        if matches!(received, Received::Nothing) {
            return;
        }
        let Some(Source::Caller(caller)) = self.take(number) else { return };
        if let Some((request, private)) = ShmRequest::of(caller, received, self.shared.dimensions())
        {
            let from = request.from();
            self.events.push_back(CmEvent::Request { request, from, private });
        }
    }

    /// The answer to an attempt has come, or its peer is gone.
    fn receive_answer(&mut self, number: u64) {
        let Some(Source::Attempt(attempt)) = self.sockets.get(&number) else { return };
        let received = attempt.receive();
        if matches!(received, Received::Nothing) {
            return;
        }
        let Some(Source::Attempt(attempt)) = self.take(number) else { return };
        let id = ConnectId(number);
        self.events.push_back(match attempt.finish(received, &self.shared) {
            Ok((endpoint, private)) => CmEvent::Connected { id, endpoint, private },
            Err(reason) => CmEvent::Refused { id, reason },
        });
    }

    /// Drops callers that send nothing, and connects again where a listener was full. Returns when
    /// it has to be done again.
    fn look_at_clock(&mut self, now: Instant) -> Option<Duration> {
        let late = self.callers().filter(|(_, caller)| caller.is_late(now));
        for number in late.map(|(number, _)| number).collect::<Vec<u64>>() {
            // Its hello may have come in time: this side is late if very many come at once.
            self.receive_hello(number);
            drop(self.take(number));
        }
        let is_pause_over =
            |it: &Source| matches!(it, Source::Listener(it) if it.is_pause_over(now));
        if self.sockets.values().any(is_pause_over) {
            self.make_room();
        }
        for (number, socket) in &mut self.sockets {
            if let Source::Listener(listener) = socket {
                listener.wake(&self.epoll, *number, now);
            }
        }
        let waiting = self.sockets.iter().filter_map(|(number, socket)| match socket {
            Source::Attempt(attempt) if attempt.is_waiting() => Some(*number),
            _ => None,
        });
        for number in waiting.collect::<Vec<u64>>() {
            self.begin(number);
        }
        let waits = self.sockets.values().map(|socket| match socket {
            Source::Listener(listener) if listener.is_paused() => RETRY,
            Source::Listener(_) => Duration::MAX,
            Source::Caller(_) => LATE_LOOK,
            Source::Attempt(attempt) if attempt.is_waiting() => RETRY,
            Source::Attempt(_) => Duration::MAX,
        });
        waits.min().filter(|wait| *wait != Duration::MAX)
    }

    /// Connects the socket of an attempt and sends the hello.
    fn begin(&mut self, number: u64) {
        let Some(Source::Attempt(attempt)) = self.sockets.get_mut(&number) else { return };
        let reason = match attempt.begin(&self.shared) {
            Ok(Step::Wait) => return,
            Ok(Step::Sent) => match self.wait_for_answer(number) {
                Ok(()) => return,
                Err(error) => SetupError::unwatched(error).as_connect_error(),
            },
            Err(reason) => reason,
        };
        drop(self.take(number));
        self.events.push_back(CmEvent::Refused { id: ConnectId(number), reason });
    }

    fn wait_for_answer(&self, number: u64) -> io::Result<()> {
        match self.sockets.get(&number) {
            Some(Source::Attempt(attempt)) => self.wait_for(number, attempt.socket()),
            _ => Ok(()),
        }
    }
}

impl ConnectionManager for ShmCm {
    type Queues = ShmQueues;
    type Request = ShmRequest;

    fn listen(&mut self, at: Address) -> Result<Address, SetupError> {
        let listener = Listener::open(at, self.shared.closer())?;
        let number = self.number();
        let name = listener.name();
        self.wait_for(number, listener.socket()).map_err(SetupError::unwatched)?;
        self.sockets.insert(number, Source::Listener(listener));
        Ok(Address::Shm(name))
    }

    fn unlisten(&mut self, at: Address) {
        let there = self.sockets.iter().filter_map(|(number, socket)| match socket {
            Source::Listener(listener) if Address::Shm(listener.name()) == at => Some(*number),
            _ => None,
        });
        for number in there.collect::<Vec<u64>>() {
            drop(self.take(number));
        }
    }

    fn connect(
        &mut self,
        to: Address,
        on: &ShmHandle,
        param: &ConnParam<'_>,
    ) -> Result<ConnectId, SetupError> {
        let wrong = ConnectError::WrongAddress { reason: TAKES };
        let name = name_of(to).ok_or_else(|| SetupError::connect(to, wrong))?;
        if self.shared.closer().is_full() {
            return Err(SetupError::connect(to, FULL));
        }
        let (private, number) = (param.checked()?, QpNumber::take(on, self.shared.device_name())?);
        let attempt = Attempt::new(name, number, param.rnr_retry, private, &self.shared)?;
        let number = self.number();
        self.sockets.insert(number, Source::Attempt(Box::new(attempt)));
        self.begin(number);
        Ok(ConnectId(number))
    }

    fn accept(
        &mut self,
        request: ShmRequest,
        on: &ShmHandle,
        param: &ConnParam<'_>,
    ) -> Result<ShmEndpoint, SetupError> {
        let (private, number) = (param.checked()?, QpNumber::take(on, self.shared.device_name())?);
        request.accept(number, param.rnr_retry, private, &self.shared)
    }

    fn cancel(&mut self, ConnectId(number): ConnectId) -> Option<ConnectError> {
        match self.sockets.get(&number) {
            Some(Source::Attempt(_)) => self.take(number).and(None),
            _ => None,
        }
    }

    fn reject(&mut self, request: ShmRequest, private: &[u8]) {
        request.reject(private);
    }

    fn next(&mut self, waker: &Waker, timeout: Duration) -> Option<CmEvent<ShmCm>> {
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

impl std::fmt::Debug for ShmCm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShmCm").field("sockets", &self.sockets.len()).finish_non_exhaustive()
    }
}

/// Sockets that a look finds.
const READY_MAX: usize = 64;
/// Very many descriptors wait to be closed.
const FULL: ConnectError = ConnectError::CallFailed {
    call: "close",
    errno: Errno::MFILE.raw_os_error(),
    hint: "descriptors that peers have sent unasked are still being closed",
};
