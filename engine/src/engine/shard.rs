//! The public type of a shard: polled by the program, or run on its own thread.

use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use rpcrdma_config::Config;
use rpcrdma_config::section::{IdlePolicy, IdleSection};
use rpcrdma_mempool::Region;

use crate::api::handler::Handler;
use crate::api::turn::Turn;
use crate::clock::{Clock, PollLoop, nanos};
use crate::error::SetupError;
use crate::failure::{self, EngineThread, Failures};
use crate::handle::ShardHandle;
use crate::provider::{Address, Armed, ConnectId, Provider};
use crate::shard::Core;
use crate::shard::audit::Audit;
use crate::stats::report::ShardReport;

/// A shard with its handler: one thread's share of the engine.
///
/// Three ways to run it: [`Engine::start`](super::Engine::start) creates a pinned thread,
/// [`Shard::run`] runs it on the calling thread, [`Shard::poll_once`] in the host's own loop:
///
/// ```
/// use rpcrdma::{Clock, Config, Engine, Fabric, RefuseCalls};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let engine = Engine::new(Fabric::new(), Config::default())?;
/// let mut shard = engine.shard(RefuseCalls)?;
/// shard.handle().stop(); // here, or on any thread
/// let clock = Clock::new();
/// while !shard.is_stopped() {
///     shard.poll_once(clock.now());
///     // and whatever else this thread does
/// }
/// # Ok(())
/// # }
/// ```
///
/// A panic of the handler leaves a shard inconsistent: its connections end, its peers and the
/// program are notified ([`ShardHandle::state`],
/// [`Engine::failures`](super::Engine::failures)), and it does no more work. The panic
/// propagates to the caller of the poll.
pub struct Shard<P: Provider, H> {
    // Dropped before the memory of its loans.
    handler: H,
    pub(crate) core: Core<P>,
    waiting: IdleWait,
    failures: Arc<Failures>,
}

/// Armed during a turn: ends the shard if the turn panics. Costs nothing otherwise.
struct Fuse<'a, P: Provider> {
    core: &'a mut Core<P>,
    /// Where to report; `None` under [`Shard::run`].
    failures: Option<&'a Failures>,
}

impl<P: Provider> Drop for Fuse<'_, P> {
    /// Reached only by a panic.
    #[cold]
    fn drop(&mut self) {
        // The inconsistent shard may panic here, too, which would abort the process.
        let _ = catch_unwind(AssertUnwindSafe(|| self.core.break_down()));
        if let Some(failures) = self.failures {
            failures.record(failure::polled(self.core.parts.handle.shard()));
            failures.notify();
        }
    }
}

impl<P: Provider, H: Handler> Shard<P, H> {
    pub(crate) fn new(
        core: Core<P>,
        handler: H,
        config: &Config,
        failures: Arc<Failures>,
    ) -> Shard<P, H> {
        Shard { core, handler, waiting: IdleWait::new(config.engine().idle), failures }
    }

    /// Does all available work once, and returns whether there was any. `now` is in nanoseconds of
    /// any monotonic clock. Never blocks; allocates only when a connection begins or ends.
    #[inline]
    pub fn poll_once(&mut self, now: u64) -> bool {
        let Shard { core, handler, failures, .. } = self;
        turn(core, Some(failures), now, handler)
    }

    /// As [`Client::poll_for`](super::client::Client::poll_for), for a shard that serves; it also
    /// ends when the shard has stopped.
    pub fn poll_for(&mut self, timeout: Duration) -> bool {
        let clock = Clock::new();
        let mut now = clock.now();
        let mut polls = PollLoop::new(now, timeout);
        while !self.poll_once(now) {
            let Some(left) = polls.sleep(now).filter(|_| !self.is_stopped()) else { return false };
            if !left.is_zero() {
                self.core.sleep_at(now, left);
            }
            now = clock.now();
        }
        true
    }

    /// As [`Shard::poll_once`], with a different handler for this turn.
    #[inline]
    pub(crate) fn poll_with(&mut self, now: u64, handler: &mut impl Handler) -> bool {
        let Shard { core, failures, .. } = self;
        turn(core, Some(failures), now, handler)
    }

    /// Polls until the shard is stopped, and waits by the configured idle policy.
    ///
    /// # Panics
    /// If the handler does, after its peers and the program are notified.
    pub fn run(&mut self) {
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.keep_polling())) else { return };
        if !self.core.is_broken() {
            let _ = catch_unwind(AssertUnwindSafe(|| self.core.break_down()));
        }
        let thread = EngineThread::Shard(self.core.parts.handle.shard());
        self.failures.record(failure::caught(thread, &*panic));
        self.failures.notify();
        resume_unwind(panic);
    }

    fn keep_polling(&mut self) {
        let clock = Clock::new();
        let mut waiting = IdleWait::new(self.waiting.idle);
        let mut now = clock.now();
        let mut idle = 0_u64;
        while !self.is_stopped() {
            let busy = turn(&mut self.core, None, now, &mut self.handler);
            // A turn without work is faster than reading the clock: some turns share a reading, for
            // less than a microsecond.
            idle = if busy { 0 } else { idle + 1 };
            let slept = waiting.after_turn(&mut self.core, busy, now, Duration::MAX);
            if busy || slept || idle.is_multiple_of(TURNS_PER_READING) {
                now = clock.now();
            }
        }
    }

    /// The shard, for the program's use between polls. The next poll sends its messages.
    pub fn turn(&mut self, now: u64) -> Turn<'_> {
        self.core.lend(now)
    }

    /// The handler.
    pub fn handler(&mut self) -> &mut H {
        &mut self.handler
    }

    /// The handle to reach this shard from other threads.
    pub fn handle(&self) -> &ShardHandle {
        &self.core.parts.handle
    }

    /// Requests a connection. The handler receives the outcome.
    ///
    /// # Errors
    /// If the shard is full, or the engine stopped.
    pub fn connect(&mut self, to: impl Into<Address>) -> Result<ConnectId, SetupError> {
        self.core.link.attachment().ok_or(SetupError::Stopped)?.connect(to.into())
    }

    /// Whether the shard was asked to stop and has stopped.
    pub fn is_stopped(&self) -> bool {
        self.core.is_stopped()
    }

    /// Writes `byte` over all free memory of the shard, for tests that check where it must not
    /// appear.
    #[doc(hidden)]
    pub fn poison(&mut self, byte: u8) {
        self.core.receive.pool_mut().poison(byte);
        self.core.bulk.poison(byte);
        self.core.parts.outbox.poison(byte);
        self.core.parts.rdma.poison(byte);
    }

    /// Reports on the shard and all its connections, as of now;
    /// [`ShardHandle::inspect`] does so from other threads.
    pub fn inspect(&mut self) -> ShardReport {
        self.core.inspect()
    }

    /// Counts all resources of the shard, for tests that check for leaks.
    #[doc(hidden)]
    pub fn audit(&self) -> Audit {
        self.core.audit()
    }

    /// The regions of the shard's memory, with the actual page size of each.
    pub fn regions(&self) -> impl Iterator<Item = (&'static str, &Region)> {
        self.core.regions.report()
    }

    /// Announces that the thread is about to sleep, and looks once more. With [`Armed::Ready`]
    /// there is work: poll. With [`Armed::AtMost`] the thread may sleep, at most that long, until
    /// the descriptor of the shard ([`AsFd`]) is readable; then poll. What happens in between, on
    /// any thread or in any process, makes the descriptor readable, however early.
    ///
    /// The descriptor is level-triggered: it stays readable until the next poll, which ends the
    /// announcement. Without an announcement it says nothing. A message that is submitted between
    /// the announcement and the sleep is sent by the next poll: submit first, then arm.
    pub fn arm(&mut self, now: u64) -> Armed {
        let until_due = self.core.until_due(now);
        if until_due.is_zero() {
            return Armed::Ready;
        }
        match self.core.arm() {
            Armed::Ready => Armed::Ready,
            Armed::AtMost(most) => Armed::AtMost(most.min(until_due)),
        }
    }

    /// Waits, or not, after a poll that was `busy` or not, as the configured idle policy says: a
    /// sleep lasts at most `timeout`, and ends for every deadline of the shard and of its calls; it
    /// lasts 10 ms at most while anything is outstanding, 100 ms while there are connections, and
    /// 1 s otherwise. True if the thread has yielded its core: read the clock anew.
    #[inline]
    pub fn idle(&mut self, busy: bool, now: u64, timeout: Duration) -> bool {
        self.waiting.after_turn(&mut self.core, busy, now, timeout)
    }

    /// [`Shard::arm`], then sleeps until there may be work, at most `timeout`. It does not end for
    /// deadlines: those of the shard are met if `timeout` is short.
    pub fn wait(&mut self, timeout: Duration) {
        self.core.sleep(timeout);
    }
}

/// What ends the sleep that [`Shard::arm`] announces; one descriptor for the life of the shard, for
/// epoll or poll. Only its readability has a meaning.
impl<P: Provider, H> AsFd for Shard<P, H> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.core.wait_set.as_fd()
    }
}

/// Runs a turn, and ends the shard if it panics.
#[inline]
fn turn<P: Provider>(
    core: &mut Core<P>,
    failures: Option<&Arc<Failures>>,
    now: u64,
    handler: &mut impl Handler,
) -> bool {
    let fuse = Fuse { core, failures: failures.map(|failures| &**failures) };
    let busy = fuse.core.turn(now, handler);
    std::mem::forget(fuse);
    busy
}

/// The idle policy of a shard at work.
pub(crate) struct IdleWait {
    idle: IdleSection,
    spin_ns: u64,
    idle_since: Option<u64>,
    pauses: u32,
}

impl IdleWait {
    pub fn new(idle: IdleSection) -> IdleWait {
        IdleWait { idle, spin_ns: nanos(idle.spin), idle_since: None, pauses: 0 }
    }

    /// Waits, or not, after a turn. True if the thread yielded its core.
    #[inline]
    pub fn after_turn<P: Provider>(
        &mut self,
        core: &mut Core<P>,
        busy: bool,
        now: u64,
        sleep_max: Duration,
    ) -> bool {
        if busy || self.idle.policy == IdlePolicy::Spin {
            self.idle_since = None;
            self.pauses = 0;
            return false;
        }
        self.park(core, now, sleep_max)
    }

    #[cold]
    fn park<P: Provider>(&mut self, core: &mut Core<P>, now: u64, sleep_max: Duration) -> bool {
        core.parts.stats.idle_turns.add(1);
        let since = *self.idle_since.get_or_insert(now);
        if now.saturating_sub(since) < self.spin_ns {
            std::hint::spin_loop();
            return false;
        }
        match self.idle.policy {
            IdlePolicy::Spin => {}
            IdlePolicy::Backoff => self.back_off(),
            IdlePolicy::Block => core.sleep_at(now, sleep_max),
        }
        true
    }

    /// Pauses for increasing times, and lets other threads run.
    fn back_off(&mut self) {
        self.pauses = (self.pauses + 1).min(PAUSES_MAX);
        if self.pauses < PAUSES_MAX {
            for _ in 0..1 << self.pauses {
                std::hint::spin_loop();
            }
        } else {
            std::thread::yield_now();
        }
    }
}

/// Turns without work between two readings of the clock.
const TURNS_PER_READING: u64 = 16;
/// Pauses that double before the thread yields.
const PAUSES_MAX: u32 = 8;
