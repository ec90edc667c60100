//! A provider that lets one call fail or panic, and counts its objects that were not released.
//!
//! ```text
//!   program ──▶ Failing ──▶ device         call number n: an error; the device is not called
//! ```

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rpcrdma::provider::interposed::{
    CmHooks, Hooks, Interposed, Promised, PromisedBytes, QueueHooks,
};
use rpcrdma::provider::{
    Attached, CmEvent, ConnParam, ConnectId, ConnectionManager, CqError, Endpoint, Handle,
    PostError, Provider, QueueAttr, Queues, RecvWr, Requests, SendWr, Taken, Waker, WcBatch,
    Window, WindowId,
};
use rpcrdma::{Address, SetupError};
use rpcrdma_mempool::{Keys, Region, RegisterError, Registrar, Rights};

/// The objects of a provider that exist.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Given {
    /// Regions that are registered.
    pub regions: i64,
    /// Sets of queues.
    pub queues: i64,
    /// Queue pairs that are attached.
    pub queue_pairs: i64,
    /// Memory windows.
    pub windows: i64,
    /// Registrations for one call.
    pub exposures: i64,
    /// Connection managers.
    pub managers: i64,
}

/// The calls and objects of a provider, shared by all that it has opened.
#[derive(Debug)]
pub struct Ledger {
    /// The number of calls until one fails.
    left: AtomicI64,
    failed: Mutex<Option<&'static str>>,
    /// Whether the next poll panics.
    is_frightened: AtomicBool,
    /// Whether the next look for events of connections panics.
    is_cm_frightened: AtomicBool,
    given: Mutex<Given>,
}

impl Ledger {
    /// Lets call number `n` fail, counted from 0.
    pub fn failing(n: u32) -> Arc<Ledger> {
        Ledger::counting(n.into())
    }

    /// Lets no call fail.
    pub fn sound() -> Arc<Ledger> {
        Ledger::counting(i64::MAX)
    }

    fn counting(left: i64) -> Arc<Ledger> {
        let (failed, given) = (Mutex::default(), Mutex::default());
        let (is_frightened, is_cm_frightened) = Default::default();
        let left = AtomicI64::new(left);
        Arc::new(Ledger { left, failed, is_frightened, is_cm_frightened, given })
    }

    /// Lets the next poll of any queues panic.
    pub fn frighten(&self) {
        self.is_frightened.store(true, Ordering::Relaxed);
    }

    /// Lets the next look for events of any connection manager panic.
    pub fn frighten_cm(&self) {
        self.is_cm_frightened.store(true, Ordering::Relaxed);
    }

    /// The call that has failed, if one has.
    pub fn failed(&self) -> Option<&'static str> {
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The objects that exist.
    pub fn given(&self) -> Given {
        *self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call. False if it is the one that fails.
    fn passes(&self, call: &'static str) -> bool {
        let fails = self.left.fetch_sub(1, Ordering::Relaxed) == 0;
        if fails {
            *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(call);
        }
        !fails
    }

    fn check(&self, call: &'static str) -> Result<(), SetupError> {
        let hint = "this test lets the call fail";
        let source = io::Error::from_raw_os_error(ENOMEM);
        if self.passes(call) { Ok(()) } else { Err(SetupError::System { call, source, hint }) }
    }

    fn check_memory(&self, call: &'static str, bytes: usize) -> Result<(), RegisterError> {
        let source = io::Error::from_raw_os_error(ENOMEM);
        if self.passes(call) { Ok(()) } else { Err(RegisterError::Device { bytes, source }) }
    }

    fn count(&self, count: impl FnOnce(&mut Given)) {
        count(&mut self.given.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A provider with one failing call: made of a provider and its [`Ledger`].
pub type Failing<P> = Interposed<P, Failures>;

/// The hooks that let a call of a provider fail.
pub struct Failures(Arc<Ledger>);

impl From<Arc<Ledger>> for Failures {
    fn from(ledger: Arc<Ledger>) -> Failures {
        Failures(ledger)
    }
}

impl<P: Provider> Hooks<P> for Failures {
    type Queues = QueueFailures;
    type Cm = CmFailures;

    fn registrar(&self, inner: &P) -> Arc<dyn Registrar> {
        let (inner, ledger) = (inner.registrar(), Arc::clone(&self.0));
        Arc::new(FailingRegistrar { inner, ledger })
    }

    fn open_queues(&self, inner: &P, attr: &QueueAttr) -> Result<P::Queues, SetupError> {
        self.0.check("open_queues")?;
        inner.open_queues(attr)
    }

    fn queue_hooks(&self, _: &P, _: &QueueAttr) -> QueueFailures {
        self.0.count(|given| given.queues += 1);
        QueueFailures { ledger: Arc::clone(&self.0), own: Given::default() }
    }

    fn open_cm(&self, inner: &P) -> Result<P::Cm, SetupError> {
        self.0.check("open_cm")?;
        inner.open_cm()
    }

    fn cm_hooks(&self, _: &P) -> CmFailures {
        self.0.count(|given| given.managers += 1);
        CmFailures(Arc::clone(&self.0))
    }
}

struct FailingRegistrar {
    inner: Arc<dyn Registrar>,
    ledger: Arc<Ledger>,
}

impl Registrar for FailingRegistrar {
    fn register(&self, region: &Region, rights: Rights) -> Result<Keys, RegisterError> {
        self.ledger.check_memory("register", region.len())?;
        let keys = self.inner.register(region, rights)?;
        self.ledger.count(|given| given.regions += 1);
        Ok(keys)
    }

    fn deregister(&self, keys: Keys) -> io::Result<()> {
        self.inner.deregister(keys)?;
        self.ledger.count(|given| given.regions -= 1);
        Ok(())
    }

    fn wants_shared(&self) -> bool {
        self.inner.wants_shared()
    }
}

/// The hooks that let a call of queues fail.
pub struct QueueFailures {
    ledger: Arc<Ledger>,
    /// The objects that end with the queues.
    own: Given,
}

impl<Q: Queues> QueueHooks<Q> for QueueFailures {
    fn attach(
        &mut self,
        inner: &mut Q,
        endpoint: Q::Endpoint,
    ) -> Result<Attached<Q::Qp>, SetupError> {
        self.ledger.check("attach")?;
        let attached = inner.attach(endpoint)?;
        self.own.queue_pairs += 1;
        self.ledger.count(|given| given.queue_pairs += 1);
        Ok(attached)
    }

    fn poll_cq(&mut self, inner: &mut Q, out: &mut WcBatch) -> Result<(), CqError> {
        let is_time = self.ledger.is_frightened.swap(false, Ordering::Relaxed);
        assert!(!is_time, "this test lets the poll panic");
        inner.poll_cq(out)
    }

    fn post_srq_recv(&mut self, inner: &mut Q, wrs: Promised<impl Requests<RecvWr>>) -> Taken {
        if !self.ledger.passes("post_srq_recv") {
            return Taken::with_error(0, PostError::QueueFull);
        }
        wrs.post_srq_recv(inner)
    }

    fn post_send<'a>(
        &mut self,
        inner: &mut Q,
        qp: Q::Qp,
        wrs: Promised<impl Requests<SendWr<'a>>>,
    ) -> Taken {
        if !self.ledger.passes("post_send") {
            return Taken::with_error(0, PostError::QpGone);
        }
        wrs.post_send(inner, qp)
    }

    fn open_window(&mut self, inner: &mut Q) -> Result<Window, SetupError> {
        self.ledger.check("open_window")?;
        let window = inner.open_window()?;
        self.own.windows += 1;
        self.ledger.count(|given| given.windows += 1);
        Ok(window)
    }

    fn renew_window(&mut self, inner: &mut Q, id: WindowId) -> Result<Option<Window>, SetupError> {
        self.ledger.check("renew_window")?;
        inner.renew_window(id)
    }

    fn expose(&mut self, inner: &mut Q, exposure: PromisedBytes<'_>) -> Result<u32, RegisterError> {
        self.ledger.check_memory("expose", exposure.sge().length as usize)?;
        let key = exposure.expose(inner)?;
        self.own.exposures += 1;
        self.ledger.count(|given| given.exposures += 1);
        Ok(key)
    }

    fn conceal(&mut self, inner: &mut Q, rkey: u32) -> io::Result<()> {
        inner.conceal(rkey)?;
        self.own.exposures -= 1;
        self.ledger.count(|given| given.exposures -= 1);
        Ok(())
    }

    fn destroy(&mut self, inner: &mut Q, qp: Q::Qp) {
        inner.destroy(qp);
        self.own.queue_pairs -= 1;
        self.ledger.count(|given| given.queue_pairs -= 1);
    }
}

impl Drop for QueueFailures {
    fn drop(&mut self) {
        let Given { queue_pairs, windows, exposures, .. } = self.own;
        self.ledger.count(|given| {
            given.queues -= 1;
            given.queue_pairs -= queue_pairs;
            given.windows -= windows;
            given.exposures -= exposures;
        });
    }
}

/// The hooks that let a call of a connection manager fail.
pub struct CmFailures(Arc<Ledger>);

impl<C: ConnectionManager> CmHooks<C> for CmFailures {
    fn next(&mut self, inner: &mut C, waker: &Waker, timeout: Duration) -> Option<CmEvent<C>> {
        let is_time = self.0.is_cm_frightened.swap(false, Ordering::Relaxed);
        assert!(!is_time, "this test lets the connection manager panic");
        inner.next(waker, timeout)
    }

    fn listen(&mut self, inner: &mut C, at: Address) -> Result<Address, SetupError> {
        self.0.check("listen")?;
        inner.listen(at)
    }

    fn connect(
        &mut self,
        inner: &mut C,
        to: Address,
        on: &Handle<C>,
        param: &ConnParam<'_>,
    ) -> Result<ConnectId, SetupError> {
        self.0.check("connect")?;
        inner.connect(to, on, param)
    }

    fn accept(
        &mut self,
        inner: &mut C,
        request: C::Request,
        on: &Handle<C>,
        param: &ConnParam<'_>,
    ) -> Result<Endpoint<C>, SetupError> {
        self.0.check("accept")?;
        inner.accept(request, on, param)
    }
}

impl Drop for CmFailures {
    fn drop(&mut self) {
        self.0.count(|given| given.managers -= 1);
    }
}

/// `ENOMEM` of Linux.
const ENOMEM: i32 = 12;
