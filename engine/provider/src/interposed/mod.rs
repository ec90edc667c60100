//! Wraps a provider: hooks replace selected calls, and all other calls are passed on.
//!
//! ```text
//!   program ──▶ Interposed<P, H> ───── H: Hooks ──────▶ P
//!                 │ open_queues ──▶ InterposedQueues ── QueueHooks ──▶ P::Queues
//!                 └ open_cm ──────▶ InterposedCm ────── CmHooks ─────▶ P::Cm
//! ```
//!
//! A hook replaces a call. It gets the wrapped object, `inner`, and the arguments, and returns the
//! result. It may change the arguments or the result, call `inner` more than once, or not at all.
//! The default of every hook passes the call on, and `()` has all the defaults. Queue pairs,
//! endpoints, handles and requests have the types of the inner provider.
//!
//! The hooks hold the state: one value for the provider, one for each of its queues, one for each
//! of its connection managers. Hooks of queues and of connection managers are dropped before the
//! object that they wrap.
//!
//! A provider and its hooks together must satisfy the seam's requirements. In particular, the
//! device must not have requests that a hook reports as not taken.
#![expect(unsafe_code, reason = "posting is unsafe: the promise is passed on with the requests")]

mod cm;

use std::iter::Take;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use rpcrdma_config::Config;
use rpcrdma_mempool::{Access, RegisterError, Registrar, Sge};

pub use self::cm::CmHooks;
use crate::{
    Address, Armed, Attached, Bells, CmEvent, ConnParam, ConnectError, ConnectId,
    ConnectionManager, CqError, DeviceCaps, Endpoint, Handle, Provider, QueueAttr, QueueEvent,
    Queues, RecvWr, Requests, SendWr, SetupError, Taken, Waker, WcBatch, Window, WindowId,
};

/// A provider with hooks.
#[derive(Debug)]
pub struct Interposed<P, H> {
    hooks: H,
    inner: P,
}

impl<P, H> Interposed<P, H> {
    /// Wraps a provider with hooks.
    pub fn new(inner: P, hooks: impl Into<H>) -> Interposed<P, H> {
        Interposed { hooks: hooks.into(), inner }
    }

    /// The hooks.
    pub fn hooks_mut(&mut self) -> &mut H {
        &mut self.hooks
    }

    /// The hooks.
    pub fn hooks(&self) -> &H {
        &self.hooks
    }
}

/// Hooks for the calls of a [`Provider`].
pub trait Hooks<P: Provider>: Send + Sync + 'static {
    /// The hooks of a set of queues.
    type Queues: QueueHooks<P::Queues>;
    /// The hooks of a connection manager.
    type Cm: CmHooks<P::Cm>;

    /// Makes the hooks of queues that were just opened.
    fn queue_hooks(&self, inner: &P, attr: &QueueAttr) -> Self::Queues;
    /// Makes the hooks of a connection manager that was just opened.
    fn cm_hooks(&self, inner: &P) -> Self::Cm;

    /// As [`Provider::caps`].
    fn caps<'a>(&'a self, inner: &'a P) -> &'a DeviceCaps {
        inner.caps()
    }
    /// As [`Provider::check`].
    fn check(&self, inner: &P, config: &Config) -> Result<(), SetupError> {
        inner.check(config)
    }
    /// As [`Provider::registrar`].
    fn registrar(&self, inner: &P) -> Arc<dyn Registrar> {
        inner.registrar()
    }
    /// As [`Provider::open_queues`].
    fn open_queues(&self, inner: &P, attr: &QueueAttr) -> Result<P::Queues, SetupError> {
        inner.open_queues(attr)
    }
    /// As [`Provider::open_cm`].
    fn open_cm(&self, inner: &P) -> Result<P::Cm, SetupError> {
        inner.open_cm()
    }
}

impl<P: Provider> Hooks<P> for () {
    type Queues = ();
    type Cm = ();

    fn queue_hooks(&self, _: &P, _: &QueueAttr) {}
    fn cm_hooks(&self, _: &P) {}
}

impl<P: Provider, H: Hooks<P>> Provider for Interposed<P, H> {
    type Queues = InterposedQueues<P::Queues, H::Queues>;
    type Cm = InterposedCm<P::Cm, H::Cm, H::Queues>;

    fn caps(&self) -> &DeviceCaps {
        self.hooks.caps(&self.inner)
    }

    fn check(&self, config: &Config) -> Result<(), SetupError> {
        self.hooks.check(&self.inner, config)
    }

    fn registrar(&self) -> Arc<dyn Registrar> {
        self.hooks.registrar(&self.inner)
    }

    fn open_queues(&self, attr: &QueueAttr) -> Result<Self::Queues, SetupError> {
        let inner = self.hooks.open_queues(&self.inner, attr)?;
        Ok(InterposedQueues { hooks: self.hooks.queue_hooks(&self.inner, attr), inner })
    }

    fn open_cm(&self) -> Result<Self::Cm, SetupError> {
        let inner = self.hooks.open_cm(&self.inner)?;
        Ok(InterposedCm { hooks: self.hooks.cm_hooks(&self.inner), inner, queues: PhantomData })
    }
}

/// Queues with hooks.
#[derive(Debug)]
pub struct InterposedQueues<Q, H> {
    // Dropped first.
    hooks: H,
    inner: Q,
}

impl<Q, H> InterposedQueues<Q, H> {
    /// Wraps queues with hooks.
    pub fn new(inner: Q, hooks: impl Into<H>) -> InterposedQueues<Q, H> {
        InterposedQueues { hooks: hooks.into(), inner }
    }

    /// The hooks.
    pub fn hooks_mut(&mut self) -> &mut H {
        &mut self.hooks
    }
}

/// Hooks for the calls of [`Queues`].
///
/// A hook must pass what is promised ([`Promised`], [`PromisedList`], [`PromisedBytes`]) to `inner`
/// only, and requests only to their own queue pair.
pub trait QueueHooks<Q: Queues>: Send {
    /// As [`Queues::handle`].
    fn handle(&self, inner: &Q) -> Q::Handle {
        inner.handle()
    }
    /// As [`Queues::attach`].
    fn attach(
        &mut self,
        inner: &mut Q,
        endpoint: Q::Endpoint,
    ) -> Result<Attached<Q::Qp>, SetupError> {
        inner.attach(endpoint)
    }
    /// As [`Queues::poll_cq`].
    fn poll_cq(&mut self, inner: &mut Q, out: &mut WcBatch) -> Result<(), CqError> {
        inner.poll_cq(out)
    }
    /// As [`Queues::describe_recv`].
    fn describe_recv(&mut self, inner: &mut Q, list: PromisedList<'_>) {
        list.describe_recv(inner);
    }
    /// As [`Queues::post_srq_recv`].
    #[inline]
    fn post_srq_recv(&mut self, inner: &mut Q, wrs: Promised<impl Requests<RecvWr>>) -> Taken {
        wrs.post_srq_recv(inner)
    }
    /// As [`Queues::post_send`].
    #[inline]
    fn post_send<'a>(
        &mut self,
        inner: &mut Q,
        qp: Q::Qp,
        wrs: Promised<impl Requests<SendWr<'a>>>,
    ) -> Taken {
        wrs.post_send(inner, qp)
    }
    /// As [`Queues::open_window`].
    fn open_window(&mut self, inner: &mut Q) -> Result<Window, SetupError> {
        inner.open_window()
    }
    /// As [`Queues::renew_window`].
    fn renew_window(&mut self, inner: &mut Q, id: WindowId) -> Result<Option<Window>, SetupError> {
        inner.renew_window(id)
    }
    /// As [`Queues::expose`].
    fn expose(&mut self, inner: &mut Q, exposure: PromisedBytes<'_>) -> Result<u32, RegisterError> {
        exposure.expose(inner)
    }
    /// As [`Queues::conceal`].
    fn conceal(&mut self, inner: &mut Q, rkey: u32) -> std::io::Result<()> {
        inner.conceal(rkey)
    }
    /// As [`Queues::disconnect`].
    fn disconnect(&mut self, inner: &mut Q, qp: Q::Qp) {
        inner.disconnect(qp);
    }
    /// As [`Queues::destroy`].
    fn destroy(&mut self, inner: &mut Q, qp: Q::Qp) {
        inner.destroy(qp);
    }
    /// As [`Queues::next_event`].
    fn next_event(&mut self, inner: &mut Q) -> Option<QueueEvent> {
        inner.next_event()
    }
    /// As [`Queues::bells`].
    fn bells<'a>(&'a self, inner: &'a Q) -> Bells<'a> {
        inner.bells()
    }
    /// As [`Queues::arm`].
    fn arm(&mut self, inner: &mut Q) -> Result<Armed, CqError> {
        inner.arm()
    }
    /// As [`Queues::disarm`].
    fn disarm(&mut self, inner: &mut Q, is_rung: bool) -> Result<(), CqError> {
        inner.disarm(is_rung)
    }
}

impl<Q: Queues> QueueHooks<Q> for () {}

impl<Q: Queues, H: QueueHooks<Q>> Queues for InterposedQueues<Q, H> {
    type Qp = Q::Qp;
    type Endpoint = Q::Endpoint;
    type Handle = Q::Handle;

    fn handle(&self) -> Q::Handle {
        self.hooks.handle(&self.inner)
    }

    fn attach(&mut self, endpoint: Q::Endpoint) -> Result<Attached<Q::Qp>, SetupError> {
        self.hooks.attach(&mut self.inner, endpoint)
    }

    fn poll_cq(&mut self, out: &mut WcBatch) -> Result<(), CqError> {
        self.hooks.poll_cq(&mut self.inner, out)
    }

    unsafe fn describe_recv(&mut self, buffer: u32, sgl: &[Sge]) {
        self.hooks.describe_recv(&mut self.inner, PromisedList { buffer, sgl });
    }

    #[inline]
    unsafe fn post_srq_recv(&mut self, wrs: impl Requests<RecvWr>) -> Taken {
        self.hooks.post_srq_recv(&mut self.inner, Promised(wrs))
    }

    #[inline]
    unsafe fn post_send<'a>(&mut self, qp: Q::Qp, wrs: impl Requests<SendWr<'a>>) -> Taken {
        self.hooks.post_send(&mut self.inner, qp, Promised(wrs))
    }

    fn open_window(&mut self) -> Result<Window, SetupError> {
        self.hooks.open_window(&mut self.inner)
    }

    fn renew_window(&mut self, id: WindowId) -> Result<Option<Window>, SetupError> {
        self.hooks.renew_window(&mut self.inner, id)
    }

    unsafe fn expose(&mut self, sge: &Sge, access: Access) -> Result<u32, RegisterError> {
        self.hooks.expose(&mut self.inner, PromisedBytes { sge, access })
    }

    fn conceal(&mut self, rkey: u32) -> std::io::Result<()> {
        self.hooks.conceal(&mut self.inner, rkey)
    }

    fn disconnect(&mut self, qp: Q::Qp) {
        self.hooks.disconnect(&mut self.inner, qp);
    }

    fn destroy(&mut self, qp: Q::Qp) {
        self.hooks.destroy(&mut self.inner, qp);
    }

    fn next_event(&mut self) -> Option<QueueEvent> {
        self.hooks.next_event(&mut self.inner)
    }

    fn bells(&self) -> Bells<'_> {
        self.hooks.bells(&self.inner)
    }

    fn arm(&mut self) -> Result<Armed, CqError> {
        self.hooks.arm(&mut self.inner)
    }

    fn disarm(&mut self, is_rung: bool) -> Result<(), CqError> {
        self.hooks.disarm(&mut self.inner, is_rung)
    }
}

/// Requests whose poster has met the safety conditions of posting. They can be posted once, all or
/// the first of them, by safe code. Only an unsafe function makes them.
#[derive(Debug)]
pub struct Promised<I>(I);

impl<I: ExactSizeIterator + Clone> Promised<I> {
    /// The requests.
    pub fn requests(&self) -> I {
        self.0.clone()
    }

    /// Keeps the first `count` requests; the others are not posted.
    #[must_use]
    pub fn first(self, count: usize) -> Promised<Take<I>> {
        Promised(self.0.take(count))
    }
}

impl<I: Requests<RecvWr>> Promised<I> {
    /// As [`Queues::post_srq_recv`].
    #[inline]
    pub fn post_srq_recv<Q: Queues>(self, on: &mut Q) -> Taken {
        // SAFETY: `self` is made by `post_srq_recv` of `InterposedQueues` only, whose caller has
        // made the promise, and yields nothing but its requests. It is used within that call: the
        // type of the iterator is not known to hooks, so that none can keep it. What is posted
        // completes through these queues.
        unsafe { on.post_srq_recv(self.0) }
    }
}

impl<'a, I: Requests<SendWr<'a>>> Promised<I> {
    /// As [`Queues::post_send`].
    #[inline]
    pub fn post_send<Q: Queues>(self, on: &mut Q, qp: Q::Qp) -> Taken {
        // SAFETY: as above, by the caller of `post_send`.
        unsafe { on.post_send(qp, self.0) }
    }
}

/// The memory of a receive buffer without an outstanding Receive. It can be described once.
#[derive(Debug)]
pub struct PromisedList<'a> {
    buffer: u32,
    sgl: &'a [Sge],
}

impl<'a> PromisedList<'a> {
    /// The number of the buffer.
    pub fn buffer(&self) -> u32 {
        self.buffer
    }

    /// The scatter list.
    pub fn sgl(&self) -> &'a [Sge] {
        self.sgl
    }

    /// As [`Queues::describe_recv`].
    pub fn describe_recv<Q: Queues>(self, on: &mut Q) {
        // SAFETY: `self` is made by `describe_recv` of `InterposedQueues` only, whose caller has
        // made the promise, and lies within that call.
        unsafe { on.describe_recv(self.buffer, self.sgl) };
    }
}

/// Bytes for which the caller has met the safety conditions of [`Queues::expose`]. They can be
/// exposed once.
#[derive(Debug)]
pub struct PromisedBytes<'a> {
    sge: &'a Sge,
    access: Access,
}

impl PromisedBytes<'_> {
    /// The bytes.
    pub fn sge(&self) -> &Sge {
        self.sge
    }

    /// The rights of peers.
    pub fn access(&self) -> Access {
        self.access
    }

    /// As [`Queues::expose`].
    pub fn expose<Q: Queues>(self, on: &mut Q) -> Result<u32, RegisterError> {
        // SAFETY: `self` is made by `expose` of `InterposedQueues` only, whose caller has made the
        // promise for these bytes and this right.
        unsafe { on.expose(self.sge, self.access) }
    }
}

/// A connection manager with hooks `H`, of queues with hooks `Q`.
#[derive(Debug)]
pub struct InterposedCm<C, H, Q> {
    // Dropped first.
    hooks: H,
    inner: C,
    queues: PhantomData<fn() -> Q>,
}

impl<C, H, Q> ConnectionManager for InterposedCm<C, H, Q>
where
    C: ConnectionManager,
    H: CmHooks<C>,
    Q: QueueHooks<C::Queues>,
{
    type Queues = InterposedQueues<C::Queues, Q>;
    type Request = C::Request;

    fn listen(&mut self, at: Address) -> Result<Address, SetupError> {
        self.hooks.listen(&mut self.inner, at)
    }

    fn unlisten(&mut self, at: Address) {
        self.hooks.unlisten(&mut self.inner, at);
    }

    fn connect(
        &mut self,
        to: Address,
        on: &Handle<Self>,
        param: &ConnParam<'_>,
    ) -> Result<ConnectId, SetupError> {
        self.hooks.connect(&mut self.inner, to, on, param)
    }

    fn accept(
        &mut self,
        request: C::Request,
        on: &Handle<Self>,
        param: &ConnParam<'_>,
    ) -> Result<Endpoint<Self>, SetupError> {
        self.hooks.accept(&mut self.inner, request, on, param)
    }

    fn cancel(&mut self, id: ConnectId) -> Option<ConnectError> {
        self.hooks.cancel(&mut self.inner, id)
    }

    fn reject(&mut self, request: C::Request, private: &[u8]) {
        self.hooks.reject(&mut self.inner, request, private);
    }

    fn next(&mut self, waker: &Waker, timeout: Duration) -> Option<CmEvent<Self>> {
        Some(match self.hooks.next(&mut self.inner, waker, timeout)? {
            CmEvent::Request { request, from, private } => {
                CmEvent::Request { request, from, private }
            }
            CmEvent::Connected { id, endpoint, private } => {
                CmEvent::Connected { id, endpoint, private }
            }
            CmEvent::Refused { id, reason } => CmEvent::Refused { id, reason },
        })
    }
}
