//! What a watched provider has in its hands, and what it is told to do wrongly.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

use rpcrdma_engine::provider::{SendOp, SendWr};

/// What a watched provider has in its hands.
#[derive(Debug, Default)]
pub struct Watch {
    /// Regions that are registered.
    pub regions: AtomicI64,
    /// Receives that were posted and have not completed, of queues that are still there.
    pub receives: AtomicI64,
    /// Messages that arrived.
    pub arrived: AtomicU64,
    /// Sends whose memory was compared.
    pub compared: AtomicU64,
    /// Regions may have remote rights of their own.
    pub allows_static: AtomicBool,
    /// Keys under which a peer may write now.
    pub open: AtomicI64,
    /// How often memory that a peer may write to was found as the device had left it.
    pub guarded: AtomicU64,
    /// Windows that were taken back before their queue pair was destroyed.
    pub renewed: AtomicU64,
    /// Keys are taken back wrongly, which the device does not do.
    pub spoils_invalidations: AtomicBool,
    /// The thread that has polled first, and whether there was another.
    thread: AtomicUsize,
    has_threads: AtomicBool,
}

impl Watch {
    /// Whether all queues are polled by one thread: only then memory that others write to can be
    /// looked at.
    pub(crate) fn is_alone(&self) -> bool {
        thread_local!(static HERE: u8 = const { 0 });
        let here = HERE.with(|here| std::ptr::from_ref(here).addr());
        let order = Ordering::Relaxed;
        if self.thread.compare_exchange(0, here, order, order).is_err_and(|first| first != here) {
            self.has_threads.store(true, order);
        }
        !self.has_threads.load(order)
    }

    /// A work request as the device gets it.
    pub(crate) fn posted<'a>(&self, wr: &SendWr<'a>) -> SendWr<'a> {
        let mut wr = *wr;
        if let SendOp::Invalidate { rkey } = &mut wr.op
            && self.spoils_invalidations.load(Ordering::Relaxed)
        {
            *rkey ^= 0x80;
        }
        wr
    }
}
