//! A provider of which one call fails or panics, and that counts what it has given away and not got back.
//!
//! ```text
//!   program ──▶ Failing ──▶ device         call number n: an error, and the device hears nothing of it
//! ```

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rpcrdma_engine::SetupError;
use rpcrdma_engine::provider::interposed::{
    CmHooks, Exposure, Hooks, Interposed, Promised, QueueHooks,
};
use rpcrdma_engine::provider::{
    Attached, ConnParam, ConnectId, ConnectionManager, CqError, Endpoint, Handle, PostError,
    Provider, QueueAttr, Queues, RecvWr, SendWr, Taken, WcBatch, Window, WindowId,
};
use rpcrdma_mempool::{Keys, Region, RegisterError, Registrar, Rights};

/// What a provider has given away and not got back.
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

/// The calls of a provider and what it has given, shared by all that it has opened.
#[derive(Debug)]
pub struct Ledger {
    /// Calls until one fails.
    left: AtomicI64,
    failed: Mutex<Option<&'static str>>,
    /// Whether the next poll panics.
    is_frightened: AtomicBool,
    given: Mutex<Given>,
}

impl Ledger {
    /// Call number `n` fails, counted from 0.
    pub fn failing(n: u32) -> Arc<Ledger> {
        Ledger::counting(n.into())
    }

    /// No call fails.
    pub fn sound() -> Arc<Ledger> {
        Ledger::counting(i64::MAX)
    }

    fn counting(left: i64) -> Arc<Ledger> {
        let (failed, given) = (Mutex::default(), Mutex::default());
        let is_frightened = AtomicBool::new(false);
        Arc::new(Ledger { left: AtomicI64::new(left), failed, is_frightened, given })
    }

    /// The next poll of any queues panics.
    pub fn frighten(&self) {
        self.is_frightened.store(true, Ordering::Relaxed);
    }

    /// The call that has failed, if as many were made.
    pub fn failed(&self) -> Option<&'static str> {
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is given away.
    pub fn given(&self) -> Given {
        *self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call is made. False if it is the one that fails.
    fn passes(&self, call: &'static str) -> bool {
        let fails = self.left.fetch_sub(1, Ordering::Relaxed) == 0;
        if fails {
            *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(call);
        }
        !fails
    }

    fn check(&self, call: &'static str) -> Result<(), SetupError> {
        let hint = "this test lets it fail";
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

/// Any provider, of which one call fails: made of a provider and its [`Ledger`].
pub type Failing<P> = Interposed<P, Failures>;

/// What lets a call of a provider fail.
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
}

/// What lets a call of a set of queues fail.
pub struct QueueFailures {
    ledger: Arc<Ledger>,
    /// What ends with them.
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
        assert!(!is_time, "this test frightens it");
        inner.poll_cq(out)
    }

    fn post_srq_recv(&mut self, inner: &mut Q, wr: Promised<'_, RecvWr<'_>>) -> Taken {
        if !self.ledger.passes("post_srq_recv") {
            return Taken::with_error(0, PostError::QueueFull);
        }
        wr.post_srq_recv(inner)
    }

    fn post_send(&mut self, inner: &mut Q, qp: Q::Qp, wr: Promised<'_, SendWr<'_>>) -> Taken {
        if !self.ledger.passes("post_send") {
            return Taken::with_error(0, PostError::QpGone);
        }
        wr.post_send(inner, qp)
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

    fn expose(&mut self, inner: &mut Q, exposure: Exposure<'_>) -> Result<u32, RegisterError> {
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

/// What lets a call of a connection manager fail.
pub struct CmFailures(Arc<Ledger>);

impl<C: ConnectionManager> CmHooks<C> for CmFailures {
    fn listen(&mut self, inner: &mut C, at: SocketAddr) -> Result<SocketAddr, SetupError> {
        self.0.check("listen")?;
        inner.listen(at)
    }

    fn connect(
        &mut self,
        inner: &mut C,
        to: SocketAddr,
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
