//! A checked provider: it asserts that posts follow the rules of verbs, and that only the device
//! accesses posted memory.
//!
//! ```text
//!   post Receive ─▶ its memory is poisoned ─▶ completed: after the message there is still poison
//!   post send    ─▶ its bytes are summed   ─▶ completed: their sum is the same
//!   post Read    ─▶ its memory is poisoned ─▶ until it completes they change once, all together;
//!                                             over TCP piece by piece, and only while it polls
//!   bind, expose ─▶ writable by peers: unchanged between two calls of the program
//! ```
//! Depths, gather lists and inline lengths are compared with the requested ones. A [`Watch`] counts
//! everything, so that a test sees what did not return.
#![expect(unsafe_code, reason = "posting is unsafe")]

mod memory;
mod sent;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rpcrdma::SetupError;
use rpcrdma::provider::interposed::{
    Hooks, Interposed, InterposedCm, InterposedQueues, Promised, PromisedBytes, PromisedList,
    QueueHooks,
};
use rpcrdma::provider::{
    Attached, Bind, ConnectionManager, CqError, DeviceCaps, PostError, Provider, QueueAttr, Queues,
    RecvWr, Requests, SendFlags, SendOp, SendWr, Taken, WcBatch, WcOpcode, WcStatus, Window,
    WindowId, WorkCompletion, WrId,
};
use rpcrdma_mempool::{Access, Keys, Region, RegisterError, Registrar, Rights, Sge};
use rpcrdma_xdr::{Body, Header, Optional};

use self::memory::{bytes, fill, sum};
use self::sent::Sent;
use crate::script::POISON;
pub use crate::watch::Watch;

/// A checked provider: made of a provider and a [`Watch`].
pub type CheckedProvider<P> = Interposed<P, Checks>;

/// Checked queues.
pub type CheckedQueues<Q> = InterposedQueues<Q, QueueChecks<Q>>;

/// A connection manager for checked queues. It checks nothing itself.
pub type CheckedCm<C> = InterposedCm<C, (), QueueChecks<<C as ConnectionManager>::Queues>>;

/// The hooks that check a provider.
pub struct Checks {
    /// Replaces the provider's own, if set.
    caps: Option<DeviceCaps>,
    watch: Arc<Watch>,
}

impl From<Arc<Watch>> for Checks {
    fn from(watch: Arc<Watch>) -> Checks {
        Checks { caps: None, watch }
    }
}

/// Reduces the capabilities of a device.
pub trait Weaken {
    /// The same device with lower capabilities.
    fn weaker(self, weaken: impl FnOnce(&mut DeviceCaps)) -> Self;
}

impl<P: Provider> Weaken for CheckedProvider<P> {
    fn weaker(mut self, weaken: impl FnOnce(&mut DeviceCaps)) -> CheckedProvider<P> {
        let mut caps = self.caps().clone();
        weaken(&mut caps);
        self.hooks_mut().caps = Some(caps);
        self
    }
}

impl<P: Provider> Hooks<P> for Checks {
    type Queues = QueueChecks<P::Queues>;
    type Cm = ();

    fn caps<'a>(&'a self, inner: &'a P) -> &'a DeviceCaps {
        self.caps.as_ref().unwrap_or_else(|| inner.caps())
    }

    fn registrar(&self, inner: &P) -> Arc<dyn Registrar> {
        let (inner, watch) = (inner.registrar(), Arc::clone(&self.watch));
        Arc::new(CheckedRegistrar { inner, watch })
    }

    fn queue_hooks(&self, inner: &P, attr: &QueueAttr) -> QueueChecks<P::Queues> {
        let caps = self.caps(inner);
        QueueChecks {
            attr: attr.clone(),
            inline_len: caps.inline_len,
            read_sge: caps.read_sge,
            open: Vec::new(),
            groups: Vec::new(),
            bound: Vec::new(),
            polls: 0,
            is_checking: false,
            lists: HashMap::new(),
            receives: HashMap::new(),
            last_receive: None,
            sends: HashMap::new(),
            refused: HashSet::new(),
            watch: Arc::clone(&self.watch),
        }
    }

    fn cm_hooks(&self, _: &P) {}
}

/// Checked registrations.
struct CheckedRegistrar {
    inner: Arc<dyn Registrar>,
    watch: Arc<Watch>,
}

impl Registrar for CheckedRegistrar {
    fn register(&self, region: &Region, rights: Rights) -> Result<Keys, RegisterError> {
        assert!(
            !rights.access().intersects(Access::REMOTE_WRITE | Access::REMOTE_READ)
                || self.watch.allows_static.load(Ordering::Relaxed),
            "regions have no remote rights of their own"
        );
        let keys = self.inner.register(region, rights)?;
        self.watch.regions.fetch_add(1, Ordering::Relaxed);
        Ok(keys)
    }

    fn deregister(&self, keys: Keys) -> std::io::Result<()> {
        self.inner.deregister(keys)?;
        self.watch.regions.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    fn wants_shared(&self) -> bool {
        self.inner.wants_shared()
    }
}

/// The hooks that check a set of queues.
pub struct QueueChecks<Q: Queues> {
    attr: QueueAttr,
    inline_len: u32,
    read_sge: u32,
    /// The memory that peers may write to.
    open: Vec<Open>,
    /// The windows that may be bound: their keys and queue pairs.
    bound: Vec<(WindowId, u32, u32)>,
    polls: u64,
    /// Whether the sums of the open memory are current: taken when the last call of the device
    /// returned.
    is_checking: bool,
    /// The scatter lists of the described buffers.
    lists: HashMap<u32, Vec<Sge>>,
    /// The buffers of the posted Receives.
    receives: HashMap<WrId, u32>,
    /// The identifier of the Receive posted last.
    last_receive: Option<WrId>,
    /// By queue pair number: the queue pair, and its outstanding sends in order.
    sends: HashMap<u32, (Q::Qp, VecDeque<Sent>)>,
    /// Requests that the device did not take: a completion of one has no other meaning.
    refused: HashSet<WrId>,
    /// The number of transmissions of the last response of a queue pair.
    groups: Vec<(Q::Qp, u32)>,
    watch: Arc<Watch>,
}

/// Memory that a peer may write to.
struct Open {
    rkey: u32,
    /// The queue pair that may write to it, if it is only one.
    qp_num: Option<u32>,
    sge: Sge,
    sum: u64,
}

impl<Q: Queues> QueueChecks<Q> {
    /// Before a call of the program: checks that only the device has written to posted memory.
    fn enter(&mut self) {
        if std::mem::take(&mut self.is_checking) {
            for open in &self.open {
                assert_eq!(
                    sum(&[open.sge]),
                    open.sum,
                    "the program wrote to what a peer may write"
                );
                self.watch.guarded.fetch_add(1, Ordering::Relaxed);
            }
        }
        if !self.watch.is_alone() || !self.polls.is_multiple_of(GUARD_EVERY) {
            return;
        }
        let is_piecewise = self.watch.reads_come_in_pieces.load(Ordering::Relaxed);
        for (sgl, seen) in reads(&mut self.sends) {
            let now = sum(sgl);
            if is_piecewise {
                // As the last poll has left it.
                assert_eq!(now, seen.take().unwrap_or(now), "{WROTE_TO_READ}");
                continue;
            }
            let is_poison = sgl.iter().all(|sge| bytes(sge).iter().all(|byte| *byte == POISON));
            if let Some(seen) = *seen {
                assert_eq!(now, seen, "{WROTE_TO_READ}");
            } else if !is_poison {
                *seen = Some(now);
            }
        }
    }

    /// After a call of the program. Not every time: large memory is slow to sum.
    fn leave(&mut self) {
        self.is_checking = self.polls.is_multiple_of(GUARD_EVERY);
        if self.is_checking {
            self.open.iter_mut().for_each(|open| open.sum = sum(&[open.sge]));
            if self.watch.is_alone() && self.watch.reads_come_in_pieces.load(Ordering::Relaxed) {
                reads(&mut self.sends).for_each(|(sgl, seen)| *seen = Some(sum(sgl)));
            }
        }
    }

    fn opens(&mut self, rkey: u32, qp_num: Option<u32>, sge: Sge, access: Access) {
        if access.contains(Access::REMOTE_WRITE) {
            self.open.push(Open { rkey, qp_num, sge, sum: sum(&[sge]) });
            self.watch.open.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn closes(&mut self, is_it: impl Fn(&Open) -> bool) {
        let before = self.open.len();
        self.open.retain(|open| !is_it(open));
        let closed = (before - self.open.len()) as i64;
        self.watch.open.fetch_sub(closed, Ordering::Relaxed);
    }

    fn check_recv(&self, wr: &[RecvWr]) {
        let posted = self.receives.len() + wr.len();
        assert!(posted <= self.attr.srq_depth as usize, "{posted} Receives are posted");
        for wr in wr {
            assert!(self.lists.contains_key(&wr.buffer), "a buffer that is not described");
            assert!(!self.receives.contains_key(&wr.wr_id), "two Receives of one name");
            assert!(!self.is_posted(wr.buffer), "two Receives of one buffer");
        }
    }

    fn is_posted(&self, buffer: u32) -> bool {
        self.receives.values().any(|posted| *posted == buffer)
    }

    fn check_send(&self, qp: Q::Qp, wr: &[SendWr<'_>]) {
        for wr in wr {
            let len: u64 = wr.sgl.iter().map(|sge| u64::from(sge.length)).sum();
            let pieces = wr.sgl.len();
            let most = match wr.op {
                SendOp::Read(_) => self.attr.send_sge.min(self.read_sge),
                _ => self.attr.send_sge,
            };
            assert!(pieces <= most as usize, "{pieces} entries of {:?}", wr.op);
            let is_inline = wr.flags.contains(SendFlags::INLINE);
            assert!(!is_inline || len <= u64::from(self.inline_len), "{len} bytes inline");
            let is_local = matches!(wr.op, SendOp::Bind(_) | SendOp::Invalidate { .. });
            assert!(!is_local || pieces == 0, "{pieces} gather entries for nothing");
        }
        let outstanding: usize = self.sends.values().map(|(_, sends)| sends.len()).sum();
        let own = self.sends.values().find(|(name, _)| *name == qp);
        let own = own.map_or(0, |(_, sends)| sends.len()) + wr.len();
        assert!(own <= self.attr.send_depth as usize, "{own} sends on one queue pair");
        let all = outstanding + wr.len() + self.receives.len();
        assert!(all <= self.attr.cq_depth as usize, "{all} completions may be outstanding");
    }

    /// wire.md P12: only the last transmission of a group invalidates.
    fn check_invalidation(&mut self, qp: Q::Qp, wr: &SendWr<'_>) {
        let header = wr.sgl.first().and_then(|sge| Header::decode(bytes(sge)).ok());
        let Some((Header { body: Body::Optional(body), .. }, _)) = header else { return };
        let (number, count) = match body {
            Optional::XmtResp(resp) => (0, resp.count),
            Optional::XmtCont(cont) => (
                cont.xnum,
                self.groups.iter().find(|group| group.0 == qp).map_or(0, |group| group.1),
            ),
            _ => return,
        };
        self.groups.retain(|(of, _)| *of != qp);
        self.groups.push((qp, count));
        if let SendOp::SendInvalidate { .. } = wr.op {
            assert_eq!(number + 1, count, "a right is taken back too early");
            self.watch.groups_ended.fetch_add(u64::from(count > 1), Ordering::Relaxed);
        }
    }

    fn completed(&mut self, wc: &WorkCompletion) {
        if self.refused.contains(&wc.wr_id) && !self.has(wc) {
            return;
        }
        if wc.status == WcStatus::Success && wc.opcode == WcOpcode::Recv {
            self.received(wc);
        } else if self.receives.contains_key(&wc.wr_id) && wc.status != WcStatus::Success {
            self.receives.remove(&wc.wr_id);
            self.watch.receives.fetch_sub(1, Ordering::Relaxed);
        } else if let Some((_, sends)) = self.sends.get_mut(&wc.qp_num) {
            let done = sends.iter().position(|sent| sent.wr_id == wc.wr_id);
            let done = done.expect("a send is completed once, and after it was posted");
            let mut killed = Vec::new();
            for sent in sends.drain(..=done) {
                killed.extend(sent.kills);
                if let Some((sgl, Some(seen))) = &sent.reads {
                    assert_eq!(sum(sgl), *seen, "{WROTE_TO_READ}");
                }
                let is_silent = sent.wr_id != wc.wr_id;
                assert!(!(is_silent && sent.is_signaled), "completions come in order");
                assert_eq!(sum(&sent.sgl), sent.sum, "posted memory was written to");
                self.watch.compared.fetch_add(1, Ordering::Relaxed);
            }
            self.closes(|open| killed.contains(&open.rkey));
            // An invalidation that was flushed has invalidated nothing.
            let is_dead = |rkey: &u32| wc.status == WcStatus::Success && killed.contains(rkey);
            self.bound.retain(|(_, rkey, _)| !is_dead(rkey));
        }
    }

    /// Whether the completed request was posted.
    fn has(&self, wc: &WorkCompletion) -> bool {
        let sends = self.sends.get(&wc.qp_num);
        self.receives.contains_key(&wc.wr_id)
            || sends.is_some_and(|(_, sends)| sends.iter().any(|sent| sent.wr_id == wc.wr_id))
    }

    fn received(&mut self, wc: &WorkCompletion) {
        self.closes(|open| wc.invalidated == Some(open.rkey));
        self.bound.retain(|(_, rkey, _)| wc.invalidated != Some(*rkey));
        let buffer = self.receives.remove(&wc.wr_id).expect("a Receive is completed once");
        let sgl = &self.lists[&buffer];
        self.watch.receives.fetch_sub(1, Ordering::Relaxed);
        self.watch.arrived.fetch_add(1, Ordering::Relaxed);
        let mut skip = wc.byte_len as usize;
        for sge in sgl {
            let bytes = bytes(sge);
            let behind = &bytes[skip.min(bytes.len())..];
            skip = skip.saturating_sub(bytes.len());
            let poison = [POISON; 4096];
            let is_untouched = behind.chunks(4096).all(|part| part == &poison[..part.len()]);
            assert!(is_untouched, "bytes after a received message were written");
        }
    }
}

impl<Q: Queues> QueueHooks<Q> for QueueChecks<Q> {
    fn attach(
        &mut self,
        inner: &mut Q,
        endpoint: Q::Endpoint,
    ) -> Result<Attached<Q::Qp>, SetupError> {
        let attached = inner.attach(endpoint)?;
        let old = self.sends.insert(attached.qp_num, (attached.qp, VecDeque::new()));
        assert!(old.is_none(), "two queue pairs of one number");
        Ok(attached)
    }

    fn poll_cq(&mut self, inner: &mut Q, out: &mut WcBatch) -> Result<(), CqError> {
        self.enter();
        self.polls += 1;
        let before = out.len();
        let result = inner.poll_cq(out);
        for wc in &out[before..] {
            self.completed(wc);
        }
        self.leave();
        result
    }

    fn describe_recv(&mut self, inner: &mut Q, list: PromisedList<'_>) {
        let (buffer, sgl) = (list.buffer(), list.sgl());
        assert!(sgl.len() <= self.attr.recv_sge as usize, "a scatter list that is too long");
        assert!(!self.is_posted(buffer), "a buffer is described while it is posted");
        self.lists.insert(buffer, sgl.to_vec());
        list.describe_recv(inner);
    }

    fn post_srq_recv(&mut self, inner: &mut Q, promised: Promised<impl Requests<RecvWr>>) -> Taken {
        let wr: Vec<RecvWr> = promised.requests().collect();
        self.check_recv(&wr);
        for sge in wr.iter().flat_map(|wr| &self.lists[&wr.buffer]) {
            fill(sge);
        }
        let posted = promised.post_srq_recv(inner);
        let (taken, _) = posted.of(wr.len());
        for wr in &wr[..taken] {
            if let Some(last) = self.last_receive.replace(wr.wr_id)
                && !self.receives.is_empty()
            {
                self.watch.rounds.received(last, wr.wr_id);
            }
            self.receives.insert(wr.wr_id, wr.buffer);
        }
        self.refused.extend(wr[taken..].iter().map(|wr| wr.wr_id));
        self.watch.receives.fetch_add(taken as i64, Ordering::Relaxed);
        posted
    }

    fn post_send<'a>(
        &mut self,
        inner: &mut Q,
        qp: Q::Qp,
        promised: Promised<impl Requests<SendWr<'a>>>,
    ) -> Taken {
        let wr: Vec<SendWr<'_>> = promised.requests().collect();
        self.check_send(qp, &wr);
        for wr in wr.iter().filter(|wr| matches!(wr.op, SendOp::Read(_))) {
            wr.sgl.iter().for_each(fill);
        }
        let posted: Vec<SendWr<'_>> = wr.iter().map(|wr| self.watch.posted(wr)).collect();
        // SAFETY: the caller meets the conditions of `post_send` for `wr`; the memory is that of
        // `wr`.
        let result = unsafe { inner.post_send(qp, posted.into_iter()) };
        let (taken, why) = result.of(wr.len());
        assert_ne!(why, Some(PostError::Invalid), "{wr:?}");
        self.refused.extend(wr[taken..].iter().map(|wr| wr.wr_id));
        // What was refused comes again, and is in no group of the queue pair until then.
        wr[..taken].iter().for_each(|wr| self.check_invalidation(qp, wr));
        let found = self.sends.iter_mut().find(|(_, (name, _))| *name == qp);
        let Some((&num, (_, sends))) = found else { return result };
        let mut last = sends.back().map(|sent| sent.wr_id);
        for wr in &wr[..taken] {
            if let Some(last) = last.replace(wr.wr_id) {
                self.watch.rounds.sent(last, wr.wr_id);
            }
        }
        sends.extend(wr[..taken].iter().map(Sent::of));
        for wr in &wr[..taken] {
            if let SendOp::Bind(Bind { window, rkey, lkey, addr, len, access }) = wr.op {
                self.bound.push((window, rkey, num));
                self.watch.rounds.bound(rkey);
                self.opens(rkey, Some(num), Sge { addr, length: len, lkey }, access);
            }
        }
        result
    }

    fn renew_window(&mut self, inner: &mut Q, id: WindowId) -> Result<Option<Window>, SetupError> {
        self.enter();
        let renewed = inner.renew_window(id);
        let mut dead: Vec<u32> = Vec::new();
        // A window that is not unbound stays bound; only the device can change that.
        self.bound.retain(|(window, rkey, _)| {
            if *window == id && renewed.is_ok() {
                dead.push(*rkey);
            }
            *window != id
        });
        self.closes(|open| dead.contains(&open.rkey));
        self.watch.renewed.fetch_add(1, Ordering::Relaxed);
        renewed
    }

    fn expose(&mut self, inner: &mut Q, exposure: PromisedBytes<'_>) -> Result<u32, RegisterError> {
        let (sge, access) = (*exposure.sge(), exposure.access());
        let rkey = exposure.expose(inner)?;
        self.opens(rkey, None, sge, access);
        Ok(rkey)
    }

    fn conceal(&mut self, inner: &mut Q, rkey: u32) -> std::io::Result<()> {
        self.enter();
        inner.conceal(rkey)?;
        self.closes(|open| open.rkey == rkey);
        Ok(())
    }

    fn destroy(&mut self, inner: &mut Q, qp: Q::Qp) {
        let num = self.sends.iter().find(|(_, (name, _))| *name == qp).map(|(num, _)| *num);
        self.sends.retain(|_, (name, _)| *name != qp);
        // Soft-RoCE cannot destroy such a queue pair.
        let is_bound = self.bound.iter().any(|(.., on)| Some(*on) == num);
        assert!(!is_bound, "windows are renewed before their queue pair is destroyed");
        inner.destroy(qp);
        self.closes(|open| open.qp_num.is_some() && open.qp_num == num);
    }
}

impl<Q: Queues> Drop for QueueChecks<Q> {
    fn drop(&mut self) {
        self.watch.receives.fetch_sub(self.receives.len() as i64, Ordering::Relaxed);
        self.closes(|_| true);
    }
}

/// The destinations of Reads that are outstanding, and the sums of their bytes.
fn reads<Qp>(
    sends: &mut HashMap<u32, (Qp, VecDeque<Sent>)>,
) -> impl Iterator<Item = &mut (Vec<Sge>, Option<u64>)> {
    let sends = sends.values_mut().flat_map(|(_, sends)| sends);
    sends.filter_map(|sent| sent.reads.as_mut())
}

/// The violation if the memory of a Read changes twice, or between two polls.
const WROTE_TO_READ: &str = "the program wrote to the memory of a Read";
/// After one in so many polls the open memory is compared.
const GUARD_EVERY: u64 = 8;
