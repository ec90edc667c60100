//! Which calls are passed on, which calls hooks replace, and the order of dropping.
#![expect(unsafe_code, reason = "posting is unsafe; nothing is done with what is posted here")]

use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rpcrdma_config::{Config, Raw};
use rpcrdma_mempool::{Access, Keys, Region, RegisterError, Registrar, Rights, Sge};
use rpcrdma_provider::interposed::{
    CmHooks, Hooks, Interposed, InterposedQueues, Promised, PromisedBytes, PromisedList, QueueHooks,
};
use rpcrdma_provider::{
    Address, Armed, Attached, Bells, CmEvent, ConnParam, ConnectError, ConnectId,
    ConnectionManager, CqError, DeviceCaps, PostError, Provider, QueueAttr, QueueEvent, Queues,
    RecvWr, Requests, SendFlags, SendWr, SetupError, Taken, Waker, WcBatch, WcOpcode, WcStatus,
    Window, WindowId, WorkCompletion, WrId,
};

/// The calls in order, with their arguments.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn note(&self, what: impl Debug) {
        self.0.lock().expect("no test panics with it").push(format!("{what:?}"));
    }

    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("no test panics with it"))
    }
}

/// A provider that records its calls, and returns a different value for each.
struct Recorder {
    log: Log,
    caps: DeviceCaps,
}

impl Recorder {
    fn new(log: &Log) -> Recorder {
        let caps = DeviceCaps {
            name: "recorder".into(),
            send_sge: 1,
            read_sge: 2,
            recv_sge: 3,
            srq_depth: 4,
            cq_depth: 5,
            send_depth: 6,
            inline_len: 7,
            message_len: 8,
            windows: 9,
            rd_atomic: 10,
            reads_expose: false,
        };
        Recorder { log: log.clone(), caps }
    }
}

impl Registrar for Log {
    fn register(&self, _: &Region, _: Rights) -> Result<Keys, RegisterError> {
        unreachable!("no region is made")
    }

    fn deregister(&self, keys: Keys) -> std::io::Result<()> {
        self.note(("deregister", keys.lkey));
        Ok(())
    }
}

impl Provider for Recorder {
    type Queues = RecorderQueues;
    type Cm = RecorderCm;

    fn caps(&self) -> &DeviceCaps {
        &self.caps
    }

    fn check(&self, config: &Config) -> Result<(), SetupError> {
        self.log.note(("check", config.value_of("engine.provider")));
        Err(SetupError::Stopped)
    }

    fn registrar(&self) -> Arc<dyn Registrar> {
        Arc::new(self.log.clone())
    }

    fn open_queues(&self, attr: &QueueAttr) -> Result<RecorderQueues, SetupError> {
        self.log.note(("open_queues", attr));
        Ok(RecorderQueues(self.log.clone()))
    }

    fn open_cm(&self) -> Result<RecorderCm, SetupError> {
        self.log.note("open_cm");
        Ok(RecorderCm { log: self.log.clone(), events: 0 })
    }
}

struct RecorderQueues(Log);

impl Drop for RecorderQueues {
    fn drop(&mut self) {
        self.0.note("queues dropped");
    }
}

impl Queues for RecorderQueues {
    type Qp = u8;
    type Endpoint = u16;
    type Handle = u32;

    fn handle(&self) -> u32 {
        77
    }

    fn attach(&mut self, endpoint: u16) -> Result<Attached<u8>, SetupError> {
        self.0.note(("attach", endpoint));
        Ok(Attached { qp: 3, qp_num: 33 })
    }

    fn poll_cq(&mut self, out: &mut WcBatch) -> Result<(), CqError> {
        self.0.note(("poll_cq", out.len()));
        out.push(WorkCompletion {
            wr_id: WrId(4),
            qp_num: 33,
            status: WcStatus::Other(9),
            opcode: WcOpcode::Bind,
            byte_len: 5,
            invalidated: Some(6),
        });
        Err(CqError::Device(8))
    }

    unsafe fn describe_recv(&mut self, buffer: u32, sgl: &[Sge]) {
        self.0.note(("describe_recv", buffer, sgl));
    }

    unsafe fn post_srq_recv(&mut self, wrs: impl Requests<RecvWr>) -> Taken {
        self.0.note(("post_srq_recv", wrs.clone().collect::<Vec<_>>()));
        Taken::with_error(wrs.len() - 1, PostError::Invalid)
    }

    unsafe fn post_send<'a>(&mut self, qp: u8, wrs: impl Requests<SendWr<'a>>) -> Taken {
        self.0.note(("post_send", qp, wrs.clone().collect::<Vec<_>>()));
        Taken::with_error(wrs.len(), PostError::QpGone)
    }

    fn open_window(&mut self) -> Result<Window, SetupError> {
        self.0.note("open_window");
        Ok(Window { id: WindowId(1), rkey: 2 })
    }

    fn renew_window(&mut self, id: WindowId) -> Result<Option<Window>, SetupError> {
        self.0.note(("renew_window", id));
        Ok(Some(Window { id: WindowId(3), rkey: 4 }))
    }

    unsafe fn expose(&mut self, sge: &Sge, access: Access) -> Result<u32, RegisterError> {
        self.0.note(("expose", sge, access));
        Ok(55)
    }

    fn conceal(&mut self, rkey: u32) -> std::io::Result<()> {
        self.0.note(("conceal", rkey));
        Err(std::io::Error::from_raw_os_error(16))
    }

    fn disconnect(&mut self, qp: u8) {
        self.0.note(("disconnect", qp));
    }

    fn destroy(&mut self, qp: u8) {
        self.0.note(("destroy", qp));
    }

    fn next_event(&mut self) -> Option<QueueEvent> {
        self.0.note("next_event");
        Some(QueueEvent::PortUp)
    }

    fn bells(&self) -> Bells<'_> {
        self.0.note("bells");
        [None; 2]
    }

    fn arm(&mut self) -> Result<Armed, CqError> {
        self.0.note("arm");
        Ok(Armed::AtMost(TIMEOUT))
    }

    fn disarm(&mut self, is_rung: bool) -> Result<(), CqError> {
        self.0.note(("disarm", is_rung));
        Err(CqError::Overrun)
    }
}

struct RecorderCm {
    log: Log,
    events: u64,
}

impl Drop for RecorderCm {
    fn drop(&mut self) {
        self.log.note("connection manager dropped");
    }
}

impl ConnectionManager for RecorderCm {
    type Queues = RecorderQueues;
    type Request = &'static str;

    fn listen(&mut self, at: Address) -> Result<Address, SetupError> {
        self.log.note(("listen", at));
        Ok(SocketAddr::new(at.as_ip().expect("an IP address").ip(), 4).into())
    }

    fn unlisten(&mut self, at: Address) {
        self.log.note(("unlisten", at));
    }

    fn connect(
        &mut self,
        to: Address,
        on: &u32,
        param: &ConnParam<'_>,
    ) -> Result<ConnectId, SetupError> {
        self.log.note(("connect", to, on, param));
        Ok(ConnectId(11))
    }

    fn accept(
        &mut self,
        request: &'static str,
        on: &u32,
        param: &ConnParam<'_>,
    ) -> Result<u16, SetupError> {
        self.log.note(("accept", request, on, param));
        Ok(12)
    }

    fn cancel(&mut self, id: ConnectId) -> Option<ConnectError> {
        self.log.note(("cancel", id));
        Some(ConnectError::NoRoute)
    }

    fn reject(&mut self, request: &'static str, private: &[u8]) {
        self.log.note(("reject", request, private));
    }

    fn next(&mut self, waker: &Waker, timeout: Duration) -> Option<CmEvent<Self>> {
        self.log.note(("next", waker.fd(), timeout));
        self.events += 1;
        let private = [5, 6].into_iter().collect();
        match self.events {
            1 => Some(CmEvent::Request { request: "asks", from: address(), private }),
            2 => Some(CmEvent::Connected { id: ConnectId(2), endpoint: 22, private }),
            3 => Some(CmEvent::Refused { id: ConnectId(3), reason: ConnectError::Lost }),
            _ => None,
        }
    }
}

fn address() -> Address {
    "10.0.0.1:7".parse().expect("an address")
}

const ATTR: QueueAttr =
    QueueAttr { srq_depth: 1, cq_depth: 2, qp_max: 3, send_depth: 4, send_sge: 5, recv_sge: 6 };
const TIMEOUT: Duration = Duration::from_millis(13);
const NOWHERE: Sge = Sge { addr: 64, length: 8, lkey: 9 };

/// Makes every call of queues and records the results.
fn drive_queues<Q: Queues<Qp = u8, Endpoint = u16, Handle = u32>>(queues: &mut Q, log: &Log) {
    log.note(queues.handle());
    log.note(queues.attach(21).map_err(|why| why.to_string()));
    let mut out = WcBatch::new();
    log.note((queues.poll_cq(&mut out), &out));
    let sgl = [NOWHERE];
    // SAFETY: the recorder does nothing with the memory.
    unsafe { queues.describe_recv(7, &sgl) };
    let received = [1, 2, 3].map(|id| RecvWr { wr_id: WrId(id), buffer: 7 });
    // SAFETY: as above.
    log.note(unsafe { queues.post_srq_recv(received.into_iter()) });
    let sent = [4, 5, 6].map(|id| SendWr::send(WrId(id), &sgl, SendFlags::FENCE));
    // SAFETY: as above.
    log.note(unsafe { queues.post_send(3, sent.into_iter()) });
    log.note(queues.open_window().map_err(|why| why.to_string()));
    log.note(queues.renew_window(WindowId(8)).map_err(|why| why.to_string()));
    // SAFETY: as above.
    log.note(unsafe { queues.expose(&NOWHERE, Access::REMOTE_READ) });
    log.note(queues.conceal(55));
    queues.disconnect(3);
    queues.destroy(2);
    log.note(queues.next_event());
    log.note(queues.bells());
    log.note(queues.arm());
    log.note(queues.disarm(true));
}

/// Makes every call of a connection manager and records the results.
fn drive_cm<C: ConnectionManager<Request = &'static str>>(
    cm: &mut C,
    on: &rpcrdma_provider::Handle<C>,
    log: &Log,
    waker: &Waker,
) where
    rpcrdma_provider::Endpoint<C>: Debug,
{
    let param = ConnParam { private: &[1, 2], rnr_retry: 6, send_timeout: None };
    log.note(cm.listen(address()).map_err(|why| why.to_string()));
    cm.unlisten(address());
    log.note(cm.connect(address(), on, &param).map_err(|why| why.to_string()));
    log.note(cm.accept("accepted", on, &param).map_err(|why| why.to_string()));
    log.note(cm.cancel(ConnectId(14)));
    cm.reject("rejected", &[3]);
    for _ in 0..4 {
        match cm.next(waker, TIMEOUT) {
            Some(CmEvent::Request { request, from, private }) => {
                log.note((request, from, private));
            }
            Some(CmEvent::Connected { id, endpoint, private }) => {
                log.note((id, endpoint, private));
            }
            Some(CmEvent::Refused { id, reason }) => log.note((id, reason)),
            None => log.note("no event"),
        }
    }
}

/// Makes every call, and drops all results.
fn drive<P>(provider: P, log: &Log, waker: &Waker) -> Vec<String>
where
    P: Provider<Queues: Queues<Qp = u8, Endpoint = u16, Handle = u32>>,
    P::Cm: ConnectionManager<Request = &'static str>,
{
    let config = Config::try_from(Raw::default()).expect("it adds up");
    log.note(provider.caps());
    log.note(provider.check(&config).map_err(|why| why.to_string()));
    provider.registrar().deregister(Keys { lkey: 1, rkey: 2 }).expect("it is done");
    let mut queues = provider.open_queues(&ATTR).expect("queues");
    drive_queues(&mut queues, log);
    let mut cm = provider.open_cm().expect("a connection manager");
    drive_cm(&mut cm, &queues.handle(), log, waker);
    drop((queues, cm, provider));
    log.taken()
}

#[test]
fn without_hooks_every_call_is_passed_on_with_its_arguments_and_its_result() {
    let (log, waker) = (Log::default(), Waker::new().expect("a file descriptor"));
    let plain = drive(Recorder::new(&log), &log, &waker);
    assert!(plain.len() > 40, "every call is written down");
    let interposed: Interposed<_, ()> = Interposed::new(Recorder::new(&log), ());
    assert_eq!(drive(interposed, &log, &waker), plain);
    // Also around a provider that is wrapped itself.
    let interposed: Interposed<_, ()> = Interposed::new(Recorder::new(&log), ());
    assert_eq!(drive(Interposed::<_, ()>::new(interposed, ()), &log, &waker), plain);
}

/// Hooks that change arguments and results, or pass no call on; each records its drop.
struct Meddler(Log);

impl Drop for Meddler {
    fn drop(&mut self) {
        self.0.note("hooks dropped");
    }
}

impl<P: Provider> Hooks<P> for Log {
    type Queues = Meddler;
    type Cm = Meddler;

    fn queue_hooks(&self, _: &P, attr: &QueueAttr) -> Meddler {
        self.note(("hooks for", attr.qp_max));
        Meddler(self.clone())
    }

    fn cm_hooks(&self, _: &P) -> Meddler {
        Meddler(self.clone())
    }
}

impl<Q: Queues> QueueHooks<Q> for Meddler {
    fn describe_recv(&mut self, _: &mut Q, list: PromisedList<'_>) {
        assert_eq!((list.buffer(), list.sgl()), (7, &[NOWHERE][..]));
    }

    fn post_srq_recv(&mut self, _: &mut Q, wrs: Promised<impl Requests<RecvWr>>) -> Taken {
        assert_eq!(wrs.requests().len(), 3);
        Taken::with_error(0, PostError::QueueFull)
    }

    fn post_send<'a>(
        &mut self,
        inner: &mut Q,
        qp: Q::Qp,
        wrs: Promised<impl Requests<SendWr<'a>>>,
    ) -> Taken {
        let (taken, _) = wrs.first(2).post_send(inner, qp).of(2);
        Taken::without_error(taken)
    }

    fn expose(&mut self, _: &mut Q, exposure: PromisedBytes<'_>) -> Result<u32, RegisterError> {
        assert_eq!((*exposure.sge(), exposure.access()), (NOWHERE, Access::REMOTE_READ));
        Ok(0)
    }

    fn conceal(&mut self, inner: &mut Q, rkey: u32) -> std::io::Result<()> {
        inner.conceal(rkey + 1).or(Ok(()))
    }
}

impl<C: ConnectionManager> CmHooks<C> for Meddler {
    fn next(&mut self, inner: &mut C, waker: &Waker, _: Duration) -> Option<CmEvent<C>> {
        match inner.next(waker, Duration::ZERO)? {
            CmEvent::Refused { id, .. } => {
                Some(CmEvent::Refused { id, reason: ConnectError::TimedOut })
            }
            _ => None,
        }
    }
}

#[test]
fn a_hook_replaces_its_call_only() {
    let (log, waker) = (Log::default(), Waker::new().expect("a file descriptor"));
    let plain = drive(Recorder::new(&log), &log, &waker);
    let meddled = drive(Interposed::<_, Log>::new(Recorder::new(&log), log.clone()), &log, &waker);
    let gone: Vec<&String> = plain.iter().filter(|line| !meddled.contains(line)).collect();
    let added: Vec<&String> = meddled.iter().filter(|line| !plain.contains(line)).collect();
    let has = |lines: &[&String], what: &str| lines.iter().any(|line| line.contains(what));
    for taken in [
        "\"describe_recv\"",
        "\"post_srq_recv\"",
        "\"post_send\"",
        "\"expose\"",
        "\"conceal\", 55",
        "Ok(55)",
        "\"asks\"",
    ] {
        assert!(has(&gone, taken), "{taken} in {gone:?}");
    }
    let two = "Taken { count: 2, why: None }";
    for new in ["hooks for\", 3", two, "\"conceal\", 56", "Ok(0)", "TimedOut", "hooks dropped"] {
        assert!(has(&added, new), "{new} in {added:?}");
    }
    assert!(!has(&added, "WrId(6)"), "of three Sends two are passed on: {added:?}");
    for passed in ["attach", "poll_cq", "window", "listen", "accept", "reject", "Err(Overrun)"] {
        assert!(!has(&gone, passed), "{passed} in {gone:?}");
    }
}

/// Hooks that take every call, and let none through but those that open something.
struct Wall(Log, DeviceCaps);

struct Bricks(Log);

impl Hooks<Recorder> for Wall {
    type Queues = Bricks;
    type Cm = Bricks;

    fn queue_hooks(&self, _: &Recorder, _: &QueueAttr) -> Bricks {
        Bricks(self.0.clone())
    }

    fn cm_hooks(&self, _: &Recorder) -> Bricks {
        Bricks(self.0.clone())
    }

    fn caps<'a>(&'a self, _: &'a Recorder) -> &'a DeviceCaps {
        self.0.note("hook");
        &self.1
    }

    fn check(&self, _: &Recorder, _: &Config) -> Result<(), SetupError> {
        self.0.note("hook");
        Ok(())
    }

    fn registrar(&self, _: &Recorder) -> Arc<dyn Registrar> {
        self.0.note("hook");
        Arc::new(Log::default())
    }

    fn open_queues(
        &self,
        inner: &Recorder,
        attr: &QueueAttr,
    ) -> Result<RecorderQueues, SetupError> {
        self.0.note("hook");
        inner.open_queues(attr)
    }

    fn open_cm(&self, inner: &Recorder) -> Result<RecorderCm, SetupError> {
        self.0.note("hook");
        inner.open_cm()
    }
}

impl QueueHooks<RecorderQueues> for Bricks {
    fn handle(&self, _: &RecorderQueues) -> u32 {
        self.0.note("hook");
        0
    }

    fn attach(&mut self, _: &mut RecorderQueues, _: u16) -> Result<Attached<u8>, SetupError> {
        self.0.note("hook");
        Err(SetupError::Stopped)
    }

    fn poll_cq(&mut self, _: &mut RecorderQueues, _: &mut WcBatch) -> Result<(), CqError> {
        self.0.note("hook");
        Ok(())
    }

    fn describe_recv(&mut self, _: &mut RecorderQueues, _: PromisedList<'_>) {
        self.0.note("hook");
    }

    fn post_srq_recv(
        &mut self,
        _: &mut RecorderQueues,
        _: Promised<impl Requests<RecvWr>>,
    ) -> Taken {
        self.0.note("hook");
        Taken::without_error(0)
    }

    fn post_send<'a>(
        &mut self,
        _: &mut RecorderQueues,
        _: u8,
        _: Promised<impl Requests<SendWr<'a>>>,
    ) -> Taken {
        self.0.note("hook");
        Taken::without_error(0)
    }

    fn open_window(&mut self, _: &mut RecorderQueues) -> Result<Window, SetupError> {
        self.0.note("hook");
        Err(SetupError::Stopped)
    }

    fn renew_window(
        &mut self,
        _: &mut RecorderQueues,
        _: WindowId,
    ) -> Result<Option<Window>, SetupError> {
        self.0.note("hook");
        Ok(None)
    }

    fn expose(
        &mut self,
        _: &mut RecorderQueues,
        _: PromisedBytes<'_>,
    ) -> Result<u32, RegisterError> {
        self.0.note("hook");
        Ok(0)
    }

    fn conceal(&mut self, _: &mut RecorderQueues, _: u32) -> std::io::Result<()> {
        self.0.note("hook");
        Ok(())
    }

    fn disconnect(&mut self, _: &mut RecorderQueues, _: u8) {
        self.0.note("hook");
    }

    fn destroy(&mut self, _: &mut RecorderQueues, _: u8) {
        self.0.note("hook");
    }

    fn next_event(&mut self, _: &mut RecorderQueues) -> Option<QueueEvent> {
        self.0.note("hook");
        None
    }

    fn bells<'a>(&'a self, _: &'a RecorderQueues) -> Bells<'a> {
        self.0.note("hook");
        [None; 2]
    }

    fn arm(&mut self, _: &mut RecorderQueues) -> Result<Armed, CqError> {
        self.0.note("hook");
        Ok(Armed::Ready)
    }

    fn disarm(&mut self, _: &mut RecorderQueues, _: bool) -> Result<(), CqError> {
        self.0.note("hook");
        Ok(())
    }
}

impl CmHooks<RecorderCm> for Bricks {
    fn listen(&mut self, _: &mut RecorderCm, _: Address) -> Result<Address, SetupError> {
        self.0.note("hook");
        Err(SetupError::Stopped)
    }

    fn unlisten(&mut self, _: &mut RecorderCm, _: Address) {
        self.0.note("hook");
    }

    fn connect(
        &mut self,
        _: &mut RecorderCm,
        _: Address,
        _: &u32,
        _: &ConnParam<'_>,
    ) -> Result<ConnectId, SetupError> {
        self.0.note("hook");
        Err(SetupError::Stopped)
    }

    fn accept(
        &mut self,
        _: &mut RecorderCm,
        _: &'static str,
        _: &u32,
        _: &ConnParam<'_>,
    ) -> Result<u16, SetupError> {
        self.0.note("hook");
        Err(SetupError::Stopped)
    }

    fn cancel(&mut self, _: &mut RecorderCm, _: ConnectId) -> Option<ConnectError> {
        self.0.note("hook");
        None
    }

    fn reject(&mut self, _: &mut RecorderCm, _: &'static str, _: &[u8]) {
        self.0.note("hook");
    }

    fn next(&mut self, _: &mut RecorderCm, _: &Waker, _: Duration) -> Option<CmEvent<RecorderCm>> {
        self.0.note("hook");
        None
    }
}

#[test]
fn every_call_has_its_hook() {
    let (log, inner) = (Log::default(), Log::default());
    let waker = Waker::new().expect("a file descriptor");
    let recorder = Recorder::new(&inner);
    let wall = Wall(log.clone(), recorder.caps.clone());
    let lines = drive(Interposed::<_, Wall>::new(recorder, wall), &log, &waker);
    let hooks = lines.iter().filter(|line| *line == "\"hook\"").count();
    // Of the provider, of queues whose name is asked for twice, and of a connection manager that is
    // asked for four events.
    assert_eq!(hooks, 5 + 17 + 6 + 4);
    let passed = inner.taken();
    let made = ["open_queues", "open_cm", "queues dropped", "connection manager dropped"];
    let is_made = |line: &&String| made.iter().any(|made| line.contains(made));
    assert!(passed.len() == made.len() && passed.iter().all(|line| is_made(&line)), "{passed:?}");
}

#[test]
fn hooks_are_dropped_before_the_provider() {
    let log = Log::default();
    let provider: Interposed<_, Log> = Interposed::new(Recorder::new(&log), log.clone());
    let (queues, cm) = (provider.open_queues(&ATTR), provider.open_cm());
    log.taken();
    drop(queues);
    assert_eq!(log.taken(), ["\"hooks dropped\"", "\"queues dropped\""]);
    drop(cm);
    assert_eq!(log.taken(), ["\"hooks dropped\"", "\"connection manager dropped\""]);
    let queues: InterposedQueues<_, Meddler> =
        InterposedQueues::new(RecorderQueues(log.clone()), Meddler(log.clone()));
    drop(queues);
    assert_eq!(log.taken(), ["\"hooks dropped\"", "\"queues dropped\""]);
}
