//! The counters and switches of a checked provider.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

use rpcrdma::provider::{SendOp, SendWr, WrId};

/// The counters and switches of a checked provider.
#[derive(Debug, Default)]
pub struct Watch {
    /// Registered regions.
    pub regions: AtomicI64,
    /// Outstanding Receives of existing queues.
    pub receives: AtomicI64,
    /// Received messages.
    pub arrived: AtomicU64,
    /// Sends whose memory was compared.
    pub compared: AtomicU64,
    /// Whether regions may be registered with remote rights.
    pub allows_static: AtomicBool,
    /// Whether the bytes of a Read may come in several polls of its queues.
    pub reads_come_in_pieces: AtomicBool,
    /// Keys under which a peer may write now.
    pub open: AtomicI64,
    /// How often memory that a peer may write to was verified to be unchanged.
    pub guarded: AtomicU64,
    /// Windows that were unbound before their queue pair was destroyed.
    pub renewed: AtomicU64,
    /// Replies of several transmissions whose last invalidated a key.
    pub groups_ended: AtomicU64,
    /// Whether invalidations get a wrong key, which the device rejects.
    pub spoils_invalidations: AtomicBool,
    /// How often counters of identifiers wrapped while others were outstanding.
    pub rounds: Rounds,
    /// The first thread that polled, and whether another one did.
    thread: AtomicUsize,
    has_threads: AtomicBool,
}

/// How often counters wrapped.
#[derive(Debug, Default)]
pub struct Rounds {
    /// The counter of the sends of a queue pair.
    pub sends: AtomicU64,
    /// The counter that is advanced when sends are not taken.
    pub send_marks: AtomicU64,
    /// The counter that is advanced when Receives are not taken.
    pub receive_marks: AtomicU64,
    /// The keys of a window.
    pub keys: AtomicU64,
}

impl Rounds {
    /// A send is posted while another is outstanding.
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
    /// Whether one thread polls all queues: only then memory that peers write to can be compared.
    pub(crate) fn is_alone(&self) -> bool {
        thread_local!(static HERE: u8 = const { 0 });
        let here = HERE.with(|here| std::ptr::from_ref(here).addr());
        let order = Ordering::Relaxed;
        if self.thread.compare_exchange(0, here, order, order).is_err_and(|first| first != here) {
            self.has_threads.store(true, order);
        }
        !self.has_threads.load(order)
    }

    /// The work request that is passed to the device.
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
