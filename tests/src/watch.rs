//! What a watched provider has in its hands, and what it is told to do wrongly.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

use rpcrdma_engine::provider::{SendOp, SendWr, WrId};

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
    /// Replies of several transmissions whose last took a right back.
    pub groups_ended: AtomicU64,
    /// Keys are taken back wrongly, which the device does not do.
    pub spoils_invalidations: AtomicBool,
    /// How often what names are counted by came round while others of the kind were outstanding.
    pub rounds: Rounds,
    /// The thread that has polled first, and whether there was another.
    thread: AtomicUsize,
    has_threads: AtomicBool,
}

/// How often counters came round.
#[derive(Debug, Default)]
pub struct Rounds {
    /// The numbers of the sends of a queue pair.
    pub sends: AtomicU64,
    /// What is counted on when sends are refused.
    pub send_marks: AtomicU64,
    /// What is counted on when Receives are refused.
    pub receive_marks: AtomicU64,
    /// The keys of a window.
    pub keys: AtomicU64,
}

impl Rounds {
    /// A send is posted behind another that is outstanding.
    pub(crate) fn sent(&self, WrId(before): WrId, WrId(name): WrId) {
        let order = Ordering::Relaxed;
        self.sends.fetch_add(u64::from((name as u32) < before as u32), order);
        self.send_marks.fetch_add(u64::from(name >> 32 < before >> 32), order);
    }

    /// A Receive is posted while another is outstanding.
    pub(crate) fn received(&self, WrId(before): WrId, WrId(name): WrId) {
        self.receive_marks.fetch_add(u64::from(name >> 32 < before >> 32), Ordering::Relaxed);
    }

    /// A window is bound under a key.
    pub(crate) fn bound(&self, rkey: u32) {
        self.keys.fetch_add(u64::from(rkey & 0xff == 0), Ordering::Relaxed);
    }
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
