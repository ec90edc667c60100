//! What the handles, the calls and the thread share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use crate::{Execution, Loan, Outage, SessionError, ShardHandle};
use async_channel::Sender;
use crossbeam_queue::SegQueue;
use futures_channel::oneshot;

use super::awaited::{Answer, Job, Outcome};
use super::buffers::Asked;
use super::error::{AsyncError, CallFailed};
use super::places::{Place, Places, Waiter};
use super::request::Request;

/// What the handles, the calls and the thread share.
pub(crate) struct Shared {
    /// Calls on their way to the thread. Closed: the thread ends, or has ended.
    jobs: Sender<Job<AnyThread>>,
    /// For the calls that are queued.
    pub places: Places,
    /// Tasks that ask for a place.
    pub waiters: SegQueue<Waiter>,
    /// Calls whose futures were dropped.
    pub cancelled: SegQueue<u64>,
    /// Tasks that ask for a buffer.
    pub asked: Asked,
    shard: ShardHandle,
    next: AtomicU64,
    has_panicked: AtomicBool,
    state: Mutex<State>,
}

/// The way of an answer to a task on any thread.
pub(crate) type AnyThread = oneshot::Sender<Outcome>;

impl Answer for AnyThread {
    type Place = Place;

    fn is_canceled(&self) -> bool {
        oneshot::Sender::is_canceled(self)
    }

    fn give(self, outcome: Outcome) -> Option<Waker> {
        // It wakes the task. Its future may have been dropped.
        let _ = self.send(outcome);
        None
    }
}

/// What is known of the connections.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct State {
    /// How many are up.
    pub connections: usize,
    /// Why there is none.
    pub outage: Option<Outage>,
}

impl Shared {
    pub fn new(jobs: Sender<Job<AnyThread>>, places: Places, shard: ShardHandle) -> Shared {
        Shared {
            jobs,
            places,
            waiters: SegQueue::new(),
            cancelled: SegQueue::new(),
            asked: Asked::new(),
            shard,
            next: AtomicU64::new(0),
            has_panicked: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// What is known of the connections.
    pub fn state(&self) -> State {
        *self.lock_state()
    }

    /// Sets what is known of the connections.
    pub fn set_state(&self, state: State) {
        *self.lock_state() = state;
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        // It is replaced as a whole: a panic leaves none half written.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call.
    pub async fn call(self: Arc<Shared>, request: Request) -> Outcome {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut cancel = CancelOnDrop { shared: &self, id: Some(id) };
        // Dropped before `cancel`: the thread that cancels then sees that no task waits.
        let outcome = self.outcome(id, request).await;
        cancel.id = None;
        outcome
    }

    /// Queues a call, and waits for its answer.
    async fn outcome(&self, id: u64, request: Request) -> Outcome {
        let place = match self.place(request.until()).await {
            Ok(place) => place,
            Err(why) => return Err(CallFailed::unsent(why, request.call)),
        };
        let (answer, answered) = oneshot::channel();
        if let Err(unsent) = self.jobs.try_send(Job { id, request, answer, place }) {
            let Job { request, .. } = unsent.into_inner();
            return Err(CallFailed::unsent(self.end(Execution::NotExecuted), request.call));
        }
        self.wake();
        // The thread answers every call before it ends.
        let lost = |_| Err(CallFailed::without_memory(self.end(Execution::Unknown)));
        answered.await.unwrap_or_else(lost)
    }

    /// A place for a call that ends then at the latest.
    async fn place(&self, until: u64) -> Result<Place, AsyncError> {
        if let Some(place) = self.places.take_unless_any_waits() {
            return Ok(place);
        }
        let (place, given) = oneshot::channel();
        self.waiters.push(self.places.waiter(until, place));
        if !self.is_closed() {
            self.wake();
            if let Ok(given) = given.await {
                return given;
            }
        }
        Err(self.end(Execution::NotExecuted))
    }

    /// A registered buffer.
    pub async fn buffer(self: Arc<Shared>) -> Result<Loan, AsyncError> {
        let (task, given) = oneshot::channel();
        self.asked.push(task);
        if !self.is_closed() {
            self.wake();
            if let Ok(buffer) = given.await {
                return Ok(buffer);
            }
        }
        Err(self.end(Execution::NotExecuted))
    }

    /// Wakes the thread.
    pub fn wake(&self) {
        self.shard.wake();
    }

    /// Ends the thread.
    pub fn close(&self) {
        self.jobs.close();
        self.shard.wake();
    }

    pub fn is_closed(&self) -> bool {
        self.jobs.is_closed()
    }

    /// The thread has panicked.
    pub fn panicked(&self) {
        self.has_panicked.store(true, Ordering::SeqCst);
    }

    /// Why there is no thread, to a call that was executed or not.
    pub fn end(&self, execution: Execution) -> AsyncError {
        match self.has_panicked.load(Ordering::SeqCst) {
            true => AsyncError::Panicked(execution),
            false => SessionError::Closed(execution).into(),
        }
    }
}

/// Cancels a call whose future is dropped.
struct CancelOnDrop<'a> {
    shared: &'a Shared,
    /// None if it is over.
    id: Option<u64>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.filter(|_| !self.shared.is_closed()) {
            self.shared.cancelled.push(id);
            self.shared.shard.wake();
        }
    }
}
