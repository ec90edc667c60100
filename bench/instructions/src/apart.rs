//! A provider that is left and entered through functions which are not inlined, as those of a
//! foreign library: so that the engine's instructions are distinct from the provider's.

use std::hint::black_box;

use rpcrdma::provider::interposed::{Hooks, Interposed, Promised, QueueHooks};
use rpcrdma::provider::{
    CqError, Provider, QueueAttr, QueueEvent, Queues, RecvWr, Requests, SendWr, Taken, WcBatch,
};

/// A provider, kept apart.
pub fn apart<P: Provider>(provider: P) -> Interposed<P, Apart> {
    Interposed::new(provider, Apart)
}

/// What a turn calls of queues has a name that callgrind finds: `outside_...`.
pub struct Apart;

impl<P: Provider> Hooks<P> for Apart {
    type Queues = Apart;
    type Cm = ();

    fn queue_hooks(&self, _: &P, _: &QueueAttr) -> Apart {
        Apart
    }

    fn cm_hooks(&self, _: &P) {}
}

impl<Q: Queues> QueueHooks<Q> for Apart {
    fn poll_cq(&mut self, inner: &mut Q, out: &mut WcBatch) -> Result<(), CqError> {
        outside_poll_cq(inner, out)
    }

    fn post_srq_recv(&mut self, inner: &mut Q, wrs: Promised<impl Requests<RecvWr>>) -> Taken {
        outside_post_srq_recv(inner, wrs)
    }

    fn post_send<'a>(
        &mut self,
        inner: &mut Q,
        qp: Q::Qp,
        wrs: Promised<impl Requests<SendWr<'a>>>,
    ) -> Taken {
        outside_post_send(inner, qp, wrs)
    }

    fn next_event(&mut self, inner: &mut Q) -> Option<QueueEvent> {
        outside_next_event(inner)
    }
}

#[inline(never)]
fn outside_poll_cq<Q: Queues>(queues: &mut Q, out: &mut WcBatch) -> Result<(), CqError> {
    no_tail_call(queues.poll_cq(out))
}

// The requests are made while they are posted: what makes them counts as the provider's.
#[inline(never)]
fn outside_post_srq_recv<Q: Queues>(queues: &mut Q, wrs: Promised<impl Requests<RecvWr>>) -> Taken {
    no_tail_call(wrs.post_srq_recv(queues))
}

#[inline(never)]
fn outside_post_send<'a, Q: Queues>(
    queues: &mut Q,
    qp: Q::Qp,
    wrs: Promised<impl Requests<SendWr<'a>>>,
) -> Taken {
    no_tail_call(wrs.post_send(queues, qp))
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
