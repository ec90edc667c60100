//! A provider of which one call fails or panics, and that counts what it has given away and not got back.
//!
//! ```text
//!   program ──▶ Failing ──▶ device         call number n: an error, and the device hears nothing of it
//! ```
#![expect(unsafe_code, reason = "posting is unsafe")]

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rpcrdma_config::Config;
use rpcrdma_engine::SetupError;
use rpcrdma_engine::provider::{
    Attached, CmEvent, ConnParam, ConnectError, ConnectId, ConnectionManager, CqError, DeviceCaps,
    Endpoint, Handle, PostError, Provider, QueueAttr, QueueEvent, Queues, RecvWr, SendWr, Taken,
    Waker, WcBatch, Window, WindowId,
};
use rpcrdma_mempool::{Access, Keys, Region, RegisterError, Registrar, Rights, Sge};

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

/// Any provider, of which one call fails.
pub struct Failing<P> {
    inner: P,
    ledger: Arc<Ledger>,
}

impl<P> Failing<P> {
    /// Wraps a provider.
    pub fn new(inner: P, ledger: Arc<Ledger>) -> Failing<P> {
        Failing { inner, ledger }
    }
}

impl<P: Provider> Provider for Failing<P> {
    type Queues = FailingQueues<P::Queues>;
    type Cm = FailingCm<P::Cm>;

    fn caps(&self) -> &DeviceCaps {
        self.inner.caps()
    }

    fn check(&self, config: &Config) -> Result<(), SetupError> {
        self.inner.check(config)
    }

    fn registrar(&self) -> Arc<dyn Registrar> {
        let (inner, ledger) = (self.inner.registrar(), Arc::clone(&self.ledger));
        Arc::new(FailingRegistrar { inner, ledger })
    }

    fn open_queues(&self, attr: &QueueAttr) -> Result<Self::Queues, SetupError> {
        self.ledger.check("open_queues")?;
        let inner = self.inner.open_queues(attr)?;
        let ledger = Arc::clone(&self.ledger);
        ledger.count(|given| given.queues += 1);
        Ok(FailingQueues { inner, ledger, own: Given::default() })
    }

    fn open_cm(&self) -> Result<Self::Cm, SetupError> {
        self.ledger.check("open_cm")?;
        let inner = self.inner.open_cm()?;
        let ledger = Arc::clone(&self.ledger);
        ledger.count(|given| given.managers += 1);
        Ok(FailingCm { inner, ledger })
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

/// Queues of which one call fails.
pub struct FailingQueues<Q> {
    inner: Q,
    ledger: Arc<Ledger>,
    /// What ends with them.
    own: Given,
}

impl<Q: Queues> Queues for FailingQueues<Q> {
    type Qp = Q::Qp;
    type Endpoint = Q::Endpoint;
    type Handle = Q::Handle;

    fn handle(&self) -> Q::Handle {
        self.inner.handle()
    }

    fn attach(&mut self, endpoint: Q::Endpoint) -> Result<Attached<Q::Qp>, SetupError> {
        self.ledger.check("attach")?;
        let attached = self.inner.attach(endpoint)?;
        self.own.queue_pairs += 1;
        self.ledger.count(|given| given.queue_pairs += 1);
        Ok(attached)
    }

    fn poll_cq(&mut self, out: &mut WcBatch) -> Result<(), CqError> {
        let is_time = self.ledger.is_frightened.swap(false, Ordering::Relaxed);
        assert!(!is_time, "this test frightens it");
        self.inner.poll_cq(out)
    }

    unsafe fn post_srq_recv(&mut self, wr: &[RecvWr<'_>]) -> Taken {
        if !self.ledger.passes("post_srq_recv") {
            return Taken::with_error(0, PostError::QueueFull);
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.post_srq_recv(wr) }
    }

    unsafe fn post_send(&mut self, qp: Q::Qp, wr: &[SendWr<'_>]) -> Taken {
        if !self.ledger.passes("post_send") {
            return Taken::with_error(0, PostError::QpGone);
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.post_send(qp, wr) }
    }

    fn open_window(&mut self) -> Result<Window, SetupError> {
        self.ledger.check("open_window")?;
        let window = self.inner.open_window()?;
        self.own.windows += 1;
        self.ledger.count(|given| given.windows += 1);
        Ok(window)
    }

    fn renew_window(&mut self, id: WindowId) -> Result<Option<Window>, SetupError> {
        self.ledger.check("renew_window")?;
        self.inner.renew_window(id)
    }

    unsafe fn expose(&mut self, sge: &Sge, access: Access) -> Result<u32, RegisterError> {
        self.ledger.check_memory("expose", sge.length as usize)?;
        // SAFETY: the caller's promise is passed on.
        let key = unsafe { self.inner.expose(sge, access)? };
        self.own.exposures += 1;
        self.ledger.count(|given| given.exposures += 1);
        Ok(key)
    }

    fn conceal(&mut self, rkey: u32) -> io::Result<()> {
        self.inner.conceal(rkey)?;
        self.own.exposures -= 1;
        self.ledger.count(|given| given.exposures -= 1);
        Ok(())
    }

    fn disconnect(&mut self, qp: Q::Qp) {
        self.inner.disconnect(qp);
    }

    fn destroy(&mut self, qp: Q::Qp) {
        self.inner.destroy(qp);
        self.own.queue_pairs -= 1;
        self.ledger.count(|given| given.queue_pairs -= 1);
    }

    fn next_event(&mut self) -> Option<QueueEvent> {
        self.inner.next_event()
    }

    fn wait(&mut self, waker: &Waker, timeout: Duration) -> Result<(), CqError> {
        self.inner.wait(waker, timeout)
    }
}

impl<Q> Drop for FailingQueues<Q> {
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

/// A connection manager of which one call fails.
pub struct FailingCm<C> {
    inner: C,
    ledger: Arc<Ledger>,
}

impl<C: ConnectionManager> ConnectionManager for FailingCm<C> {
    type Queues = FailingQueues<C::Queues>;
    type Request = C::Request;

    fn listen(&mut self, at: SocketAddr) -> Result<SocketAddr, SetupError> {
        self.ledger.check("listen")?;
        self.inner.listen(at)
    }

    fn unlisten(&mut self, at: SocketAddr) {
        self.inner.unlisten(at);
    }

    fn connect(
        &mut self,
        to: SocketAddr,
        on: &Handle<Self>,
        param: &ConnParam<'_>,
    ) -> Result<ConnectId, SetupError> {
        self.ledger.check("connect")?;
        self.inner.connect(to, on, param)
    }

    fn accept(
        &mut self,
        request: C::Request,
        on: &Handle<Self>,
        param: &ConnParam<'_>,
    ) -> Result<Endpoint<Self>, SetupError> {
        self.ledger.check("accept")?;
        self.inner.accept(request, on, param)
    }

    fn cancel(&mut self, id: ConnectId) -> Option<ConnectError> {
        self.inner.cancel(id)
    }

    fn reject(&mut self, request: C::Request, private: &[u8]) {
        self.inner.reject(request, private);
    }

    fn next(&mut self, waker: &Waker, timeout: Duration) -> Option<CmEvent<Self>> {
        self.inner.next(waker, timeout).map(CmEvent::passed_on)
    }
}

impl<C> Drop for FailingCm<C> {
    fn drop(&mut self) {
        self.ledger.count(|given| given.managers -= 1);
    }
}

/// `ENOMEM` of Linux.
const ENOMEM: i32 = 12;
