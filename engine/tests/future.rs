//! The client with its thread, on two executors, and the client of one thread: many tasks, idle
//! policies, ends and panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use futures::channel::oneshot;
use futures::executor::{LocalPool, block_on};
use futures::future::join_all;
use futures::task::LocalSpawnExt;
use rpcrdma::future::{AsyncClient, AsyncError, AsyncOptions, LocalClient, Response};
use rpcrdma::provider::interposed::{Hooks, Interposed, QueueHooks};
use rpcrdma::provider::{QueueAttr, Queues, WcBatch};
use rpcrdma::{
    Address, Answer, Call, CallError, Clock, CqError, Engine, Execution, Fabric, Handler,
    OwnedCall, Provider, Reply, Session, SessionError, SessionEvent, SessionOptions, ShardHandle,
    ShardState,
};
use rpcrdma_suite::setup::{checked, small};

/// Answers with the number of the call; does not answer [`NEVER`].
#[derive(Default)]
struct Echo {
    kept: Vec<rpcrdma::Ticket>,
}

impl Handler for Echo {
    fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        let number = call.reader().u32().expect("a number");
        if number == NEVER {
            let (answer, ticket) = reply.defer();
            self.kept.push(ticket);
            return answer;
        }
        reply.payload().put_u32(number);
        reply.send()
    }
}

/// An engine with a server, which lives as long as the client.
struct Scene<C, P: Provider> {
    client: C,
    handle: ShardHandle,
    _engine: Engine<P>,
}

fn scene<P: Provider>(device: P, idle: &str) -> Scene<AsyncClient, P> {
    let options = AsyncOptions { queued_calls: 64 };
    scene_of(device, idle, |session| AsyncClient::spawn(session, &options).expect("a thread"))
}

fn local_scene<P: Provider>(device: P, idle: &str) -> Scene<LocalClient<P>, P> {
    scene_of(device, idle, LocalClient::new)
}

fn scene_of<C, P: Provider>(
    device: P,
    idle: &str,
    make: impl FnOnce(Session<P>) -> C,
) -> Scene<C, P> {
    let mut raw = small();
    raw.engine.idle.policy = idle.into();
    raw.engine.idle.spin = "20us".into();
    raw.engine.shards = 1;
    raw.connections.stop_timeout = "50ms".into();
    let mut engine = Engine::new(device, checked(&raw)).expect("an engine");
    engine.start(|_| Echo::default()).expect("a server");
    let at = "127.0.0.1:0".parse::<Address>().expect("an address");
    let at = engine.listen(at).expect("a port");
    let client = engine.client().expect("a client");
    let session = Session::new(client, [at], &SessionOptions::default()).expect("a session");
    let handle = session.handle().clone();
    Scene { client: make(session), handle, _engine: engine }
}

fn number(number: u32) -> OwnedCall {
    let mut call = OwnedCall::new();
    call.put_u32(number);
    call
}

fn read(reply: &Response) -> u32 {
    reply.reader().u32().expect("a number")
}

/// Polls a call once; it is not over then.
fn begin(call: &mut (impl Future + Unpin)) {
    let polled = Pin::new(call).poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
}

#[test]
fn ten_thousand_calls_wait_at_a_time_on_one_thread() {
    for idle in ["spin", "backoff", "block"] {
        let Scene { client, _engine, .. } = scene(Fabric::new(), idle);
        let calls = (0..TASKS).map(|at| client.call(number(at)));
        let replies = block_on(join_all(calls));
        for (at, reply) in replies.into_iter().enumerate() {
            assert_eq!(read(&reply.expect("it is answered")), at as u32);
        }
        block_on(client.close());
    }
}

#[test]
fn ten_thousand_calls_wait_at_a_time_on_the_thread_that_polls() {
    for idle in ["spin", "backoff", "block"] {
        let Scene { client, handle, _engine } = local_scene(Fabric::new(), idle);
        let calls = (0..TASKS).map(|at| client.call(number(at)));
        let replies = client.block_on(join_all(calls));
        for (at, reply) in replies.into_iter().enumerate() {
            assert_eq!(read(&reply.expect("it is answered")), at as u32);
        }
        client.block_on(client.close());
        assert_eq!((handle.connections(), handle.state()), (0, ShardState::Stopping));
        drop(client);
        assert_eq!(handle.state(), ShardState::Ended);
    }
}

#[test]
fn a_call_of_one_future_is_answered_to_another_one() {
    let Scene { client, _engine, .. } = local_scene(Fabric::new(), "block");
    let mut call = Box::pin(client.call(number(7)));
    client.block_on(async {
        begin(&mut call);
        client.call(number(8)).await.expect("it is answered");
    });
    let reply = client.block_on(call).expect("it is answered");
    assert_eq!(read(&reply), 7);
}

#[test]
fn a_call_that_is_late_between_two_futures_is_not_sent() {
    let Scene { client, handle, _engine } = local_scene(Fabric::new(), "block");
    client.block_on(client.call(number(1))).expect("it is answered");
    let mut call = number(2);
    call.deadline(Clock::new().now());
    let failed = client.block_on(client.call(call)).expect_err("it is late");
    assert_eq!(failed.why().execution(), Execution::NotExecuted, "{failed}");
    assert_eq!(handle.stats().calls_sent, 1);
}

#[test]
fn another_thread_wakes_the_thread_that_polls() {
    let Scene { client, handle, _engine } = local_scene(Fabric::new(), "block");
    let (ask, asked) = std::sync::mpsc::channel::<oneshot::Sender<u32>>();
    let other = std::thread::spawn(move || {
        for (task, number) in asked.iter().zip(0..) {
            task.send(number).expect("it waits");
        }
    });
    client.block_on(async {
        for expected in 0..500 {
            let (task, answer) = oneshot::channel();
            ask.send(task).expect("the thread is there");
            assert_eq!(answer.await, Ok(expected));
            let reply = client.call(number(expected)).await.expect("it is answered");
            assert_eq!(read(&reply), expected);
        }
    });
    drop(ask);
    other.join().expect("it has not panicked");
    assert!(handle.stats().sleeps > 0);
}

#[test]
fn a_panic_of_the_future_leaves_the_client_as_it_was() {
    let Scene { client, _engine, .. } = local_scene(Fabric::new(), "block");
    let inner = client.clone();
    let inside = catch_unwind(AssertUnwindSafe(|| {
        client.block_on(async {
            let mut call = Box::pin(inner.call(number(NEVER)));
            begin(&mut call);
            inner.call(number(1)).await.expect("it is answered");
            inner.block_on(async {});
        });
    }));
    let why = inside.expect_err("it is inside of itself");
    assert_eq!(why.downcast_ref(), Some(&"LocalClient::block_on inside of itself"));
    let reply = client.block_on(client.call(number(2))).expect("it is answered");
    assert_eq!(read(&reply), 2);
}

#[test]
fn ten_thousand_tasks_of_a_local_pool_call() {
    let Scene { client, handle, _engine } = scene(Fabric::new(), "block");
    let (mut pool, sum) = (LocalPool::new(), Arc::new(AtomicU64::new(0)));
    for at in 0..TASKS {
        let (client, sum) = (client.clone(), Arc::clone(&sum));
        let task = async move {
            let reply = client.call(number(at)).await.expect("it is answered");
            sum.fetch_add(read(&reply).into(), Ordering::Relaxed);
        };
        pool.spawner().spawn_local(task).expect("it takes all");
    }
    pool.run();
    assert_eq!(sum.load(Ordering::Relaxed), u64::from(TASKS) * u64::from(TASKS - 1) / 2);
    let stats = handle.stats();
    assert_eq!((stats.calls_completed, stats.calls_failed), (TASKS.into(), 0));
}

#[test]
fn ten_thousand_tasks_of_tokio_call_and_half_of_them_give_up() {
    let Scene { client, handle, _engine } = scene(Fabric::new(), "block");
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let tasks: Vec<_> = (0..TASKS)
            .map(|at| {
                let call = client.call(number(at));
                let limit = Duration::from_secs(if at % 2 == 0 { 600 } else { 0 });
                tokio::spawn(async move { (at, tokio::time::timeout(limit, call).await) })
            })
            .collect();
        for task in tasks {
            let (at, outcome) = task.await.expect("no task panics");
            match outcome {
                Ok(reply) => assert_eq!(read(&reply.expect("it is answered")), at),
                Err(_) => assert_eq!(at % 2, 1, "its time is not over"),
            }
        }
        client.close().await;
    });
    let stats = handle.stats();
    assert!(stats.calls_completed >= u64::from(TASKS / 2));
    assert_eq!((stats.calls_sent, stats.buffers_leaked), (stats.calls_completed, 0));
}

#[test]
fn calls_from_many_threads_meet_a_thread_that_sleeps() {
    let Scene { client, handle, _engine } = scene(Fabric::new(), "block");
    std::thread::scope(|scope| {
        for from in 0..4_u32 {
            let client = client.clone();
            scope.spawn(move || {
                for at in 0..500 {
                    let at = from << 16 | at;
                    let reply = block_on(client.call(number(at))).expect("it is answered");
                    assert_eq!(read(&reply), at);
                }
            });
        }
    });
    assert!(handle.stats().sleeps > 0);
}

#[test]
fn a_call_that_waits_for_room_ends_while_the_thread_sleeps() {
    let mut raw = small();
    raw.engine.idle.policy = "block".into();
    raw.engine.idle.spin = "20us".into();
    let engine = Engine::new(Fabric::new(), checked(&raw)).expect("an engine");
    // There is no server: the attempts to connect are hours apart.
    let hour = Duration::from_secs(3_600);
    let options = SessionOptions {
        waiting_calls: 0,
        backoff_min: hour,
        backoff_max: hour,
        ..SessionOptions::default()
    };
    let at = "127.0.0.1:9".parse::<Address>().expect("an address");
    let client = engine.client().expect("a client");
    let session = Session::new(client, [at], &options).expect("a session");
    let client = AsyncClient::spawn(session, &AsyncOptions::default()).expect("a thread");
    let event = block_on(client.next_event()).expect("an attempt has failed");
    assert!(matches!(event, SessionEvent::NotConnected { .. }), "{event:?}");
    let mut call = number(1);
    call.deadline(Clock::new().now() + 30_000_000);
    let failed = block_on(client.call(call)).expect_err("there is no server");
    assert!(
        matches!(failed.why(), AsyncError::Session(SessionError::DeadlineExceeded(..))),
        "{failed}"
    );
    block_on(client.close());
}

#[test]
fn a_call_outlives_the_handles_and_ends_as_closed() {
    let Scene { client, handle, _engine } = scene(Fabric::new(), "block");
    let mut call = Box::pin(client.call(number(NEVER)));
    block_on(async {
        // It is under way when another that was made later is answered.
        begin(&mut call);
        client.call(number(1)).await.expect("it is answered");
        drop(client);
        let failed = call.await.expect_err("no server answers it");
        assert_eq!(failed.why(), SessionError::Closed(Execution::Unknown).into());
    });
    while handle.state() != ShardState::Ended {
        std::thread::yield_now();
    }
    assert_eq!(handle.connections(), 0);
}

#[test]
fn the_end_of_the_engine_ends_calls() {
    let Scene { client, _engine, .. } = scene(Fabric::new(), "block");
    block_on(async {
        client.call(number(1)).await.expect("it is answered");
        let mut call = Box::pin(client.call(number(NEVER)));
        begin(&mut call);
        client.call(number(1)).await.expect("it is answered");
        drop(_engine);
        let failed = call.await.expect_err("the server is gone");
        let AsyncError::Session(SessionError::Call(why)) = failed.why() else { panic!("{failed}") };
        assert!(matches!(why, CallError::ConnectionLost(..)), "{why}");
    });
}

/// Panics in a poll when a test asks for it.
#[derive(Clone)]
struct Mine(Arc<AtomicBool>);

impl Hooks<Fabric> for Mine {
    type Queues = Mine;
    type Cm = ();

    fn queue_hooks(&self, _: &Fabric, _: &QueueAttr) -> Mine {
        self.clone()
    }

    fn cm_hooks(&self, _: &Fabric) {}
}

impl<Q: Queues> QueueHooks<Q> for Mine {
    fn poll_cq(&mut self, inner: &mut Q, out: &mut WcBatch) -> Result<(), CqError> {
        let thread = std::thread::current();
        let is_server = thread.name().is_some_and(|name| name.starts_with("rpcrdma-shard"));
        assert!(is_server || !self.0.load(Ordering::SeqCst), "the mine goes off");
        inner.poll_cq(out)
    }
}

#[test]
fn a_panic_of_the_thread_is_an_error_of_every_call() {
    let mine = Mine(Arc::default());
    let device: Interposed<_, Mine> = Interposed::new(Fabric::new(), mine.clone());
    let Scene { client, _engine, .. } = scene(device, "block");
    let calls = block_on(async {
        client.call(number(1)).await.expect("it is answered");
        // More than the queue has places for.
        let mut calls: Vec<_> = (0..200).map(|_| Box::pin(client.call(number(NEVER)))).collect();
        for call in &mut calls {
            begin(call);
        }
        mine.0.store(true, Ordering::SeqCst);
        join_all(calls).await
    });
    assert_eq!(calls.len(), 200);
    for call in calls {
        let why = call.expect_err("there is no thread").why();
        assert!(matches!(why, AsyncError::Panicked(_)), "{why}");
    }
    let late = block_on(client.call(number(1))).expect_err("there is no thread");
    assert_eq!(late.why(), AsyncError::Panicked(Execution::NotExecuted));
    block_on(client.close());
}

#[test]
fn a_panic_of_a_poll_is_one_of_the_thread_that_polls_and_ends_every_call() {
    let mine = Mine(Arc::default());
    let device: Interposed<_, Mine> = Interposed::new(Fabric::new(), mine.clone());
    let Scene { client, _engine, .. } = local_scene(device, "block");
    let mut call = Box::pin(client.call(number(NEVER)));
    client.block_on(async {
        begin(&mut call);
        client.call(number(1)).await.expect("it is answered");
    });
    mine.0.store(true, Ordering::SeqCst);
    let ended = catch_unwind(AssertUnwindSafe(|| client.block_on(&mut call)));
    assert!(ended.is_err(), "the mine has gone off");
    let failed = client.block_on(call).expect_err("there is no shard");
    assert_eq!(failed.why().execution(), Execution::Unknown, "{failed}");
    let late = client.block_on(client.call(number(1))).expect_err("there is no shard");
    assert_eq!(late.why(), SessionError::Closed(Execution::NotExecuted).into());
    client.block_on(client.close());
}

const TASKS: u32 = 10_000;
const NEVER: u32 = u32::MAX;
