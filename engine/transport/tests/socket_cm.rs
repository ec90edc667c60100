//! The connection manager of sockets, over sockets that are values: who waits, who is dropped, and
//! what is watched.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rpcrdma_fabric::{Fabric, FabricEndpoint, FabricHandle, FabricQueues};
use rpcrdma_provider::{
    Address, CmEvent, ConnParam, ConnectError, ConnectionManager, PrivateBytes, Provider,
    QueueAttr, Queues, Rejection, SetupError, Waker,
};
use rpcrdma_transport::callers::{DROPPED_MAX, callers_max};
use rpcrdma_transport::socket_cm::{LATE_LOOK, LOOKS_MAX, RETRY, SocketCm};
use rpcrdma_transport::sockets::{Sockets, Source, Step};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

const PARAM: ConnParam<'_> = ConnParam { private: b"hello", rnr_retry: 7, send_timeout: None };
const NOW: Duration = Duration::ZERO;

/// A connection, seen from both ends.
#[derive(Default)]
struct Line {
    origin: u32,
    /// What the caller has sent and the listener has not read.
    said: Option<Vec<u8>>,
    answer: Option<Result<Vec<u8>, ConnectError>>,
    is_dropped: bool,
}

type SharedLine = Arc<Mutex<Line>>;

/// What all sockets of a test share.
#[derive(Default)]
struct Net {
    /// Those that have connected and were not taken, by the port.
    backlogs: HashMap<u16, VecDeque<SharedLine>>,
    /// Connections that a backlog has room for; no limit if none.
    backlog_max: Option<usize>,
    /// Connecting takes until this is over.
    is_slow: bool,
    /// Taking a caller, or watching a socket, fails with it.
    error: Option<Errno>,
    /// Callers of this origin are dropped at once.
    rejected: Option<u32>,
    is_full: bool,
}

/// What is watched by one connection manager, by its number.
#[derive(Default)]
struct Set {
    watched: BTreeMap<u64, (Watched, EventFlags)>,
    looks: usize,
}

/// What a socket is ready for.
enum Watched {
    Listener(u16),
    Caller(SharedLine),
    Attempt(SharedLine),
}

/// The sockets of one connection manager.
struct Values {
    net: Arc<Mutex<Net>>,
    set: Arc<Mutex<Set>>,
    bell: Waker,
}

/// A socket that has connected to a listener. Dropping it ends the connection.
struct Caller(SharedLine);

impl Drop for Caller {
    fn drop(&mut self) {
        lock(&self.0).is_dropped = true;
    }
}

fn lock<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().expect("no thread panics")
}

/// An end that belongs to no connection.
fn endpoint(on: &FabricHandle) -> Result<FabricEndpoint, SetupError> {
    let mut cm = Fabric::new().open_cm()?;
    let at = cm.listen("10.0.0.1:0".parse().expect("an address"))?;
    cm.connect(at, on, &PARAM)?;
    let waker = Waker::new().expect("a descriptor");
    let Some(CmEvent::Request { request, .. }) = cm.next(&waker, NOW) else { panic!("a request") };
    cm.accept(request, on, &PARAM)
}

impl Sockets for Values {
    type Queues = FabricQueues;
    type Request = Caller;
    type Listener = u16;
    type Caller = Caller;
    type Attempt = (u16, FabricHandle, PrivateBytes, SharedLine);
    type Received = Result<Vec<u8>, ConnectError>;
    type Origin = u32;

    fn set(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    fn add(&self, of: &Source<Self>, number: u64, on: EventFlags) -> Result<(), Errno> {
        let watched = match of {
            Source::Listener { listener, .. } => Watched::Listener(*listener),
            Source::Caller { caller, .. } => Watched::Caller(Arc::clone(&caller.0)),
            Source::Attempt { attempt, .. } => Watched::Attempt(Arc::clone(&attempt.3)),
        };
        lock(&self.net).error.map_or(Ok(()), Err)?;
        let before = lock(&self.set).watched.insert(number, (watched, on));
        assert!(before.is_none(), "a socket is added once");
        Ok(())
    }

    fn modify(&self, _: &Source<Self>, number: u64, on: EventFlags) -> Result<(), Errno> {
        lock(&self.set).watched.get_mut(&number).expect("it was added").1 = on;
        Ok(())
    }

    fn remove(&self, of: &Source<Self>) {
        lock(&self.set).watched.retain(|_, (it, _)| match (of, it) {
            (Source::Listener { listener, .. }, Watched::Listener(at)) => listener != at,
            (Source::Caller { caller, .. }, Watched::Caller(line)) => !Arc::ptr_eq(&caller.0, line),
            (Source::Attempt { attempt, .. }, Watched::Attempt(line)) => {
                !Arc::ptr_eq(&attempt.3, line)
            }
            _ => true,
        });
    }

    fn look(&self, mut note: impl FnMut(u64)) -> bool {
        let (net, mut set) = (lock(&self.net), lock(&self.set));
        set.looks += 1;
        let is_ready = |(watched, on): &(Watched, EventFlags)| match watched {
            Watched::Listener(at) => net.backlogs.get(at).is_some_and(|line| !line.is_empty()),
            Watched::Caller(line) => lock(line).said.is_some(),
            Watched::Attempt(_) if *on == EventFlags::OUT => !net.is_slow,
            Watched::Attempt(line) => lock(line).answer.is_some(),
        };
        let ready: Vec<u64> =
            set.watched.iter().filter(|(_, it)| is_ready(it)).map(|(number, _)| *number).collect();
        ready.iter().for_each(|number| note(*number));
        !ready.is_empty()
    }

    fn listen(&self, at: Address) -> Result<u16, SetupError> {
        let port = at.as_ip().expect("an IP address").port();
        lock(&self.net).backlogs.insert(port, VecDeque::new());
        Ok(port)
    }

    fn address(listener: &u16) -> Address {
        at(*listener)
    }

    fn accept_caller(&self, listener: &u16) -> Result<Caller, Errno> {
        let mut net = lock(&self.net);
        net.error.map_or(Ok(()), Err)?;
        net.backlogs.get_mut(listener).and_then(VecDeque::pop_front).map(Caller).ok_or(Errno::AGAIN)
    }

    fn is_full(&self) -> bool {
        lock(&self.net).is_full
    }

    fn is_rejected(&self, caller: &Caller) -> bool {
        lock(&self.net).rejected == Some(lock(&caller.0).origin)
    }

    fn origin(caller: &Caller) -> u32 {
        lock(&caller.0).origin
    }

    fn receive(caller: &mut Caller) -> Option<Self::Received> {
        lock(&caller.0).said.take().map(Ok)
    }

    /// A request is not empty.
    fn request(
        &self,
        caller: Caller,
        received: Self::Received,
    ) -> Option<(Caller, Address, PrivateBytes)> {
        let said = received.ok().filter(|said| !said.is_empty())?;
        let from = at(lock(&caller.0).origin as u16);
        Some((caller, from, said[..].try_into().expect("short")))
    }

    fn accept(
        &self,
        request: Caller,
        on: &FabricHandle,
        param: &ConnParam<'_>,
    ) -> Result<FabricEndpoint, SetupError> {
        lock(&request.0).answer = Some(Ok(param.private.to_vec()));
        endpoint(on)
    }

    fn reject(request: Caller, private: &[u8]) {
        let why = ConnectError::Rejected(Rejection::decode(private));
        lock(&request.0).answer = Some(Err(why));
    }

    fn attempt(
        &self,
        to: Address,
        on: &FabricHandle,
        param: &ConnParam<'_>,
    ) -> Result<Self::Attempt, SetupError> {
        let port = to.as_ip().expect("an IP address").port();
        Ok((port, Arc::clone(on), param.checked()?, SharedLine::default()))
    }

    fn go_on(&self, attempt: &mut Self::Attempt) -> Result<Step, ConnectError> {
        let mut net = lock(&self.net);
        let (max, is_slow) = (net.backlog_max, net.is_slow);
        let backlog = net.backlogs.get_mut(&attempt.0).ok_or(ConnectError::NoListener)?;
        if max.is_some_and(|max| backlog.len() >= max) {
            return Ok(Step::Later);
        }
        if is_slow {
            return Ok(Step::Connecting);
        }
        lock(&attempt.3).said = Some(attempt.2.to_vec());
        backlog.push_back(Arc::clone(&attempt.3));
        Ok(Step::Sent)
    }

    fn receive_answer(attempt: &mut Self::Attempt) -> Option<Self::Received> {
        lock(&attempt.3).answer.take()
    }

    fn finish(
        &self,
        attempt: Self::Attempt,
        received: Self::Received,
    ) -> Result<(FabricEndpoint, PrivateBytes), ConnectError> {
        let private = received?;
        let endpoint = endpoint(&attempt.1).map_err(|error| error.as_connect_error())?;
        Ok((endpoint, private[..].try_into().expect("short")))
    }
}

fn at(port: u16) -> Address {
    Address::Ip(([192, 0, 2, 1], port).into())
}

/// A connection manager, queues, and what its sockets share with others.
struct Scene {
    cm: SocketCm<Values>,
    queues: FabricQueues,
    net: Arc<Mutex<Net>>,
    set: Arc<Mutex<Set>>,
    waker: Waker,
}

impl Scene {
    /// It listens at [`PORT`].
    fn new() -> Scene {
        Scene::beside(Arc::default(), true)
    }

    fn beside(net: Arc<Mutex<Net>>, listens: bool) -> Scene {
        let (set, bell) = (Arc::default(), Waker::new().expect("a descriptor"));
        let mut cm = SocketCm::new(Values { net: Arc::clone(&net), set: Arc::clone(&set), bell });
        if listens {
            assert_eq!(cm.listen(at(PORT)).expect("it is free"), at(PORT));
        }
        let attr = QueueAttr {
            srq_depth: 4,
            cq_depth: 8,
            qp_max: 64,
            send_depth: 4,
            send_sge: 1,
            recv_sge: 1,
        };
        let queues = Fabric::new().open_queues(&attr).expect("allowed");
        Scene { cm, queues, net, set, waker: Waker::new().expect("a descriptor") }
    }

    fn next(&mut self) -> Option<CmEvent<SocketCm<Values>>> {
        self.cm.next(&self.waker, NOW)
    }

    fn net(&self) -> MutexGuard<'_, Net> {
        lock(&self.net)
    }

    /// Someone connects to the listener, and sends this.
    fn caller(&self, origin: u32, said: Option<&[u8]>) -> SharedLine {
        let said = said.map(<[u8]>::to_vec);
        let line = Arc::new(Mutex::new(Line { origin, said, ..Line::default() }));
        self.net().backlogs.get_mut(&PORT).expect("it listens").push_back(Arc::clone(&line));
        line
    }

    fn callers(&self, origin: u32, count: usize) -> Vec<SharedLine> {
        (0..count).map(|_| self.caller(origin, None)).collect()
    }

    fn request(&mut self) -> (Caller, Address, PrivateBytes) {
        match self.next() {
            Some(CmEvent::Request { request, from, private }) => (request, from, private),
            _ => panic!("no request"),
        }
    }

    /// Looks at the clock in so many milliseconds.
    fn look_in(&mut self, ms: u64) -> Option<Duration> {
        self.cm.look_at_clock(Instant::now() + Duration::from_millis(ms))
    }

    fn watched(&self) -> usize {
        lock(&self.set).watched.len()
    }
}

fn is_dropped(line: &SharedLine) -> bool {
    lock(line).is_dropped
}

const PORT: u16 = 7;

#[test]
fn a_request_and_its_answer_go_both_ways() {
    let mut b = Scene::new();
    let mut a = Scene::beside(Arc::clone(&b.net), false);
    let reject = |b: &mut Scene, request| b.cm.reject(request, &Rejection::Full.encode());
    for way in 0..3 {
        let attempt = a.cm.connect(at(PORT), &a.queues.handle(), &PARAM).unwrap();
        assert!(a.next().is_none(), "there is no answer yet");
        let (request, _, private) = b.request();
        assert_eq!((private.as_slice(), b.watched()), (PARAM.private, 1), "the listener");
        let answer = ConnParam { private: b"welcome", ..PARAM };
        match way {
            0 => drop(b.cm.accept(request, &b.queues.handle(), &answer).unwrap()),
            _ => reject(&mut b, request),
        }
        match a.next() {
            Some(CmEvent::Connected { id, private, .. }) if way == 0 => {
                assert_eq!((id, private.as_slice()), (attempt, &b"welcome"[..]));
            }
            Some(CmEvent::Refused { id, reason }) if way > 0 => {
                assert_eq!((id, reason), (attempt, ConnectError::Rejected(Rejection::Full)));
            }
            _ => panic!("another event"),
        }
        assert_eq!((a.cm.sockets(), b.cm.sockets(), b.watched()), (0, 1, 1));
    }
}

#[test]
fn an_attempt_without_a_listener_is_refused_and_later_ones_too() {
    let mut scene = Scene::beside(Arc::default(), false);
    for _ in 0..100 {
        let attempt = scene.cm.connect(at(PORT), &scene.queues.handle(), &PARAM).unwrap();
        let refused = scene.next();
        assert!(matches!(refused, Some(CmEvent::Refused { id, reason: ConnectError::NoListener })
            if id == attempt));
        assert_eq!((scene.cm.sockets(), scene.watched()), (0, 0));
    }
}

#[test]
fn an_attempt_goes_on_when_its_socket_is_writable_and_is_then_read() {
    let mut scene = Scene::new();
    scene.net().is_slow = true;
    scene.cm.connect(at(PORT), &scene.queues.handle(), &PARAM).unwrap();
    assert!(scene.next().is_none());
    let flags =
        |scene: &Scene| lock(&scene.set).watched.values().map(|it| it.1).collect::<Vec<_>>();
    assert_eq!(flags(&scene), [EventFlags::IN, EventFlags::OUT]);
    scene.net().is_slow = false;
    let (request, ..) = scene.request();
    assert_eq!(flags(&scene), [EventFlags::IN, EventFlags::IN], "the answer comes");
    drop(scene.cm.accept(request, &scene.queues.handle(), &PARAM).unwrap());
    assert!(matches!(scene.next(), Some(CmEvent::Connected { .. })));
}

#[test]
fn an_attempt_waits_while_the_listener_is_full_and_is_not_watched() {
    let mut scene = Scene::new();
    scene.net().backlog_max = Some(0);
    let first = scene.cm.connect(at(PORT), &scene.queues.handle(), &PARAM).unwrap();
    assert_eq!((scene.look_in(0), scene.watched()), (Some(RETRY), 1), "the listener alone");
    assert!(scene.next().is_none());
    scene.net().backlog_max = None;
    assert_eq!(scene.look_in(0), None);
    drop(scene.request());
    assert_eq!(scene.cm.cancel(first), None);
    // One that is connecting when the listener is full is taken out of the set.
    scene.net().is_slow = true;
    scene.cm.connect(at(PORT), &scene.queues.handle(), &PARAM).unwrap();
    assert_eq!(scene.watched(), 2);
    (scene.net().is_slow, scene.net().backlog_max) = (false, Some(0));
    scene.cm.work();
    assert_eq!((scene.look_in(0), scene.watched()), (Some(RETRY), 1));
}

#[test]
fn an_attempt_that_is_cancelled_has_no_event_and_leaves_nothing() {
    let mut scene = Scene::new();
    for is_full in [true, false] {
        scene.net().backlog_max = is_full.then_some(0);
        let attempt = scene.cm.connect(at(PORT), &scene.queues.handle(), &PARAM).unwrap();
        assert_eq!(scene.cm.cancel(attempt), None);
        assert_eq!((scene.cm.sockets(), scene.watched()), (1, 1), "the listener");
        assert_eq!(scene.cm.cancel(attempt), None, "a second time");
    }
    let listener = rpcrdma_provider::ConnectId(1);
    assert_eq!((scene.cm.cancel(listener), scene.cm.sockets()), (None, 1), "it is no attempt");
}

#[test]
fn an_attempt_that_cannot_be_watched_is_refused() {
    let mut scene = Scene::new();
    scene.net().error = Some(Errno::NOSPC);
    scene.cm.connect(at(PORT), &scene.queues.handle(), &PARAM).unwrap();
    scene.net().error = None;
    let refused = scene.cm.next(&scene.waker, NOW);
    let Some(CmEvent::Refused { reason, .. }) = refused else { panic!("it is not watched") };
    let ConnectError::CallFailed { errno, .. } = reason else { panic!("{reason}") };
    assert_eq!(errno, Errno::NOSPC.raw_os_error());
}

#[test]
fn a_caller_that_sends_something_else_is_dropped() {
    let mut scene = Scene::new();
    let callers = [scene.caller(1, Some(b"")), scene.caller(2, None)];
    assert!(scene.next().is_none());
    assert_eq!(callers.each_ref().map(is_dropped), [true, false]);
    assert_eq!((scene.cm.sockets(), scene.watched()), (2, 2));
}

#[test]
fn a_caller_that_is_late_is_dropped_and_a_request_that_came_in_time_is_not() {
    let mut scene = Scene::new();
    assert_eq!(scene.look_in(0), None, "there is nothing to wait for");
    let callers = [scene.caller(1, None), scene.caller(2, None)];
    assert!(scene.next().is_none());
    assert_eq!(scene.look_in(4_900), Some(LATE_LOOK));
    assert!(!callers.iter().any(is_dropped));
    lock(&callers[1]).said = Some(b"just in time".to_vec());
    assert_eq!(scene.look_in(5_100), None);
    assert_eq!(callers.each_ref().map(is_dropped), [true, false]);
    let (_request, from, private) = scene.request();
    assert_eq!((from, private.as_slice()), (at(2), &b"just in time"[..]));
}

#[test]
fn callers_that_send_nothing_are_not_more_than_allowed_and_keep_no_other_out() {
    let mut scene = Scene::new();
    assert_eq!(scene.cm.callers_max(), callers_max());
    scene.cm.set_callers_max(DROPPED_MAX + 10);
    let few = scene.callers(1, 10);
    let many = scene.callers(2, DROPPED_MAX + 20);
    scene.cm.work();
    assert_eq!(scene.cm.sockets(), DROPPED_MAX + 11, "and the listener");
    assert!(scene.cm.is_paused() && scene.watched() == DROPPED_MAX + 10);
    assert_eq!(scene.look_in(0), Some(RETRY));
    assert!(!few.iter().chain(&many).any(is_dropped), "the listener is paused");
    let _other = scene.caller(3, Some(b"hello"));
    assert_eq!(scene.look_in(30), Some(LATE_LOOK));
    assert!(!scene.cm.is_paused());
    let (_request, from, _) = scene.request();
    assert_eq!(from, at(3));
    assert!(!few.iter().any(is_dropped), "they are of another origin");
    let dropped = many.iter().take_while(|line| is_dropped(line)).count();
    assert_eq!(dropped, DROPPED_MAX, "the oldest");
    assert!(!many[dropped..].iter().any(is_dropped));
}

#[test]
fn a_listener_that_can_take_no_caller_is_paused_and_goes_on() {
    for is_full in [true, false] {
        let mut scene = Scene::new();
        let caller = scene.caller(1, Some(b"hello"));
        scene.net().is_full = is_full;
        scene.net().error = (!is_full).then_some(Errno::MFILE);
        assert!(scene.next().is_none());
        assert!(scene.cm.is_paused() && scene.watched() == 0);
        // It is not watched again while it cannot be.
        assert_eq!(scene.look_in(30), if is_full { None } else { Some(RETRY) });
        assert_eq!(scene.cm.is_paused(), !is_full);
        (scene.net().is_full, scene.net().error) = (false, None);
        assert_eq!(scene.look_in(30), None);
        let (_request, from, _) = scene.request();
        assert_eq!((from, is_dropped(&caller)), (at(1), false));
    }
}

#[test]
fn callers_that_are_rejected_at_once_do_not_keep_the_manager_from_the_rest() {
    let mut scene = Scene::new();
    scene.net().rejected = Some(1);
    let rejected = scene.callers(1, DROPPED_MAX);
    let waiting = scene.caller(2, Some(b"hello"));
    scene.cm.work();
    assert!(rejected.iter().all(is_dropped) && !is_dropped(&waiting));
    assert!(scene.cm.is_paused() && scene.cm.events() == 0);
    assert_eq!(scene.look_in(30), None);
    assert_eq!(scene.request().1, at(2));
}

#[test]
fn sockets_that_are_ready_for_ever_do_not_keep_the_manager() {
    let mut scene = Scene::new();
    // Watched without being known, as a socket whose end is not noticed.
    let line = Arc::new(Mutex::new(Line { said: Some(vec![]), ..Line::default() }));
    lock(&scene.set).watched.insert(99, (Watched::Caller(line), EventFlags::IN));
    lock(&scene.set).looks = 0;
    scene.cm.work();
    assert_eq!(lock(&scene.set).looks, LOOKS_MAX);
}

#[test]
fn who_stops_to_listen_at_one_address_goes_on_at_the_others() {
    let mut scene = Scene::new();
    scene.cm.listen(at(8)).unwrap();
    scene.cm.unlisten(at(9));
    assert_eq!(scene.cm.sockets(), 2, "nothing listened there");
    scene.cm.unlisten(at(8));
    assert_eq!((scene.cm.sockets(), scene.watched()), (1, 1));
    let _caller = scene.caller(1, Some(b"hello"));
    assert_eq!(scene.request().1, at(1));
}

#[test]
fn events_are_returned_one_by_one_before_sockets_are_looked_at_again() {
    let mut scene = Scene::new();
    let _callers = [1, 2, 3].map(|origin| scene.caller(origin, Some(b"hello")));
    let mut from = vec![scene.request().1];
    assert_eq!(scene.cm.events(), 2);
    from.extend([scene.request().1, scene.request().1]);
    assert_eq!(from, [at(1), at(2), at(3)]);
    assert!(scene.next().is_none());
}

#[test]
fn a_wait_states_whether_its_waker_was_rung() {
    let mut scene = Scene::new();
    let long = Duration::from_secs(600);
    assert!(!scene.cm.wait(&scene.waker, NOW), "its time is over");
    scene.waker.ring();
    assert!(scene.cm.wait(&scene.waker, long));
    assert!(scene.cm.next(&scene.waker, long).is_none(), "it was rung");
}
