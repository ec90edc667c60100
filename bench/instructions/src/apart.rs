//! A provider that is left and entered through functions which are not inlined, as those of a
//! foreign library: so that what is the engine's can be told from what is the provider's.
#![expect(unsafe_code, reason = "posting is unsafe")]

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rpcrdma_config::Config;
use rpcrdma_engine::SetupError;
use rpcrdma_engine::provider::{
    Attached, CmEvent, ConnParam, ConnectError, ConnectId, ConnectionManager, CqError, DeviceCaps,
    Endpoint, Handle, Provider, QueueAttr, QueueEvent, Queues, RecvWr, SendWr, Taken, Waker,
    WcBatch, Window, WindowId,
};
use rpcrdma_mempool::{Access, RegisterError, Registrar, Sge};

/// Any provider, kept apart.
pub struct Apart<P>(pub P);

impl<P: Provider> Provider for Apart<P> {
    type Queues = ApartQueues<P::Queues>;
    type Cm = ApartCm<P::Cm>;

    fn caps(&self) -> &DeviceCaps {
        self.0.caps()
    }

    fn check(&self, config: &Config) -> Result<(), SetupError> {
        self.0.check(config)
    }

    fn registrar(&self) -> Arc<dyn Registrar> {
        self.0.registrar()
    }

    fn open_queues(&self, attr: &QueueAttr) -> Result<Self::Queues, SetupError> {
        self.0.open_queues(attr).map(ApartQueues)
    }

    fn open_cm(&self) -> Result<Self::Cm, SetupError> {
        self.0.open_cm().map(ApartCm)
    }
}

/// Its queues. What a turn calls has a name that callgrind finds: `outside_...`.
pub struct ApartQueues<Q>(Q);

#[inline(never)]
fn outside_poll_cq<Q: Queues>(queues: &mut Q, out: &mut WcBatch) -> Result<(), CqError> {
    no_tail_call(queues.poll_cq(out))
}

/// # Safety
/// As [`Queues::post_srq_recv`].
#[inline(never)]
unsafe fn outside_post_srq_recv<Q: Queues>(queues: &mut Q, wr: &[RecvWr<'_>]) -> Taken {
    // SAFETY: the caller keeps the promises of `post_srq_recv`.
    no_tail_call(unsafe { queues.post_srq_recv(wr) })
}

/// # Safety
/// As [`Queues::post_send`].
#[inline(never)]
unsafe fn outside_post_send<Q: Queues>(queues: &mut Q, qp: Q::Qp, wr: &[SendWr<'_>]) -> Taken {
    // SAFETY: the caller keeps the promises of `post_send`.
    no_tail_call(unsafe { queues.post_send(qp, wr) })
}

#[inline(never)]
fn outside_next_event<Q: Queues>(queues: &mut Q) -> Option<QueueEvent> {
    no_tail_call(queues.next_event())
}

/// What ends with a jump into another function has been left by then, for callgrind.
#[inline(always)]
fn no_tail_call<T>(result: T) -> T {
    black_box(());
    result
}

impl<Q: Queues> Queues for ApartQueues<Q> {
    type Qp = Q::Qp;
    type Endpoint = Q::Endpoint;
    type Handle = Q::Handle;

    fn handle(&self) -> Q::Handle {
        self.0.handle()
    }

    fn attach(&mut self, endpoint: Q::Endpoint) -> Result<Attached<Q::Qp>, SetupError> {
        self.0.attach(endpoint)
    }

    fn poll_cq(&mut self, out: &mut WcBatch) -> Result<(), CqError> {
        outside_poll_cq(&mut self.0, out)
    }

    unsafe fn post_srq_recv(&mut self, wr: &[RecvWr<'_>]) -> Taken {
        // SAFETY: the caller keeps the promises of `post_srq_recv`.
        unsafe { outside_post_srq_recv(&mut self.0, wr) }
    }

    unsafe fn post_send(&mut self, qp: Q::Qp, wr: &[SendWr<'_>]) -> Taken {
        // SAFETY: the caller keeps the promises of `post_send`.
        unsafe { outside_post_send(&mut self.0, qp, wr) }
    }

    fn open_window(&mut self) -> Result<Window, SetupError> {
        self.0.open_window()
    }

    fn renew_window(&mut self, id: WindowId) -> Result<Option<Window>, SetupError> {
        self.0.renew_window(id)
    }

    unsafe fn expose(&mut self, sge: &Sge, access: Access) -> Result<u32, RegisterError> {
        // SAFETY: the caller keeps the promises of `expose`.
        unsafe { self.0.expose(sge, access) }
    }

    fn conceal(&mut self, rkey: u32) -> std::io::Result<()> {
        self.0.conceal(rkey)
    }

    fn disconnect(&mut self, qp: Q::Qp) {
        self.0.disconnect(qp);
    }

    fn destroy(&mut self, qp: Q::Qp) {
        self.0.destroy(qp);
    }

    fn next_event(&mut self) -> Option<QueueEvent> {
        outside_next_event(&mut self.0)
    }

    fn wait(&mut self, waker: &Waker, timeout: Duration) -> Result<(), CqError> {
        self.0.wait(waker, timeout)
    }
}

/// Its connection manager.
pub struct ApartCm<C>(C);

impl<C: ConnectionManager> ConnectionManager for ApartCm<C> {
    type Queues = ApartQueues<C::Queues>;
    type Request = C::Request;

    fn listen(&mut self, at: SocketAddr) -> Result<SocketAddr, SetupError> {
        self.0.listen(at)
    }

    fn unlisten(&mut self, at: SocketAddr) {
        self.0.unlisten(at);
    }

    fn connect(
        &mut self,
        to: SocketAddr,
        on: &Handle<Self>,
        param: &ConnParam<'_>,
    ) -> Result<ConnectId, SetupError> {
        self.0.connect(to, on, param)
    }

    fn accept(
        &mut self,
        request: C::Request,
        on: &Handle<Self>,
        param: &ConnParam<'_>,
    ) -> Result<Endpoint<Self>, SetupError> {
        self.0.accept(request, on, param)
    }

    fn cancel(&mut self, id: ConnectId) -> Option<ConnectError> {
        self.0.cancel(id)
    }

    fn reject(&mut self, request: C::Request, private: &[u8]) {
        self.0.reject(request, private);
    }

    fn next(&mut self, waker: &Waker, timeout: Duration) -> Option<CmEvent<Self>> {
        self.0.next(waker, timeout).map(CmEvent::passed_on)
    }
}
