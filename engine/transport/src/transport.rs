//! The queues of one thread.
#![expect(unsafe_code, reason = "posting is unsafe in the trait that this is made for")]

use std::sync::Arc;
use std::time::Duration;

use rpcrdma_mempool::{Access, RegisterError, Sge};
use rpcrdma_provider::{
    CqError, PostError, QueueAttr, QueueEvent, RecvWr, Requests, SendWr, SetupError, Taken,
    WcBatch, WcOpcode, Window, WindowId,
};

use crate::carrier::{Carrier, EndId, Outgoing};
use crate::conn::Progress;
use crate::dma::Lent;
use crate::keys::{KeyCache, KeyTable, Reader};
use crate::limits;
use crate::path::Path;
use crate::post::{self, Limits, NotTaken};
use crate::qp::{Connected, Disposition, QueuePair, State};
use crate::queue_set::{Posted, QueueSet};
use crate::readiness::Readiness;
use crate::rights::Rights;
use crate::rounds::Rounds;
use crate::settings::Settings;

/// The queues of one thread: a provider's `Queues` without naming and sleeping.
pub struct Transport<C: Carrier> {
    /// Shows other threads that a poll is using keys.
    pub(crate) reader: Arc<Reader>,
    pub(crate) set: QueueSet,
    pub(crate) paths: Vec<Path<C>>,
    /// Which of several paths a poll visits.
    pub(crate) rounds: Rounds,
    pub(crate) limits: Limits,
}

impl<C: Carrier> Transport<C> {
    /// Queues of this size, whose keys are those of `table`, and whose peers have these rights.
    pub fn new(
        attr: &QueueAttr,
        table: Arc<KeyTable>,
        rights: Rights,
        settings: Settings,
    ) -> Transport<C> {
        let limits = Limits {
            send_depth: attr.send_depth,
            send_sge: attr.send_sge,
            message_len: settings.message_len,
            has_windows: settings.windows > 0,
        };
        let (keys, reader) = KeyCache::new(table);
        let set = QueueSet::new(attr, keys, rights, settings);
        Transport { reader, set, paths: Vec::new(), rounds: Rounds::default(), limits }
    }

    /// Takes a queue pair that this end of a carrier connects. `open` returns the carrier if these
    /// queues do not have it.
    pub fn attach(
        &mut self,
        qp: Connected,
        end: EndId,
        open: impl FnOnce() -> Result<(C, C::Tx, C::Rx), SetupError>,
    ) -> Result<(), SetupError> {
        let path = self.path_of(end, open)?;
        self.paths[path].add_qp();
        self.paths[path].admit(&mut self.rounds);
        let num = qp.num;
        self.set.qps.insert(QueuePair::new(qp, path as u32));
        let count = self.set.qps.iter().count();
        self.set.events.reserve(count);
        self.set.opening.push(num);
        Ok(())
    }

    /// The ends that connect these queues to others, also to those that are gone.
    pub fn all_carriers(&self) -> impl Iterator<Item = &C> {
        self.paths.iter().map(|path| &path.carrier)
    }

    /// The ends that connect these queues to others which are not gone.
    pub fn carriers(&self) -> impl Iterator<Item = &C> {
        self.paths.iter().filter(|path| !path.is_dead).map(|path| &path.carrier)
    }

    /// `Queues::poll_cq`.
    #[inline(always)]
    pub fn poll_cq(&mut self, out: &mut WcBatch) -> Result<(), CqError> {
        let Transport { reader, set, paths, rounds, .. } = self;
        if set.has_pending_work() {
            open(set, paths, rounds);
            set.cq.drain(out);
        }
        if let [path] = paths.as_mut_slice() {
            path.poll(set, reader, out, usize::MAX);
        } else {
            poll_in_turn(set, reader, paths, rounds, out);
        }
        if set.cq.is_overrun() { Err(CqError::Overrun) } else { Ok(()) }
    }

    /// `Queues::describe_recv`.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn describe_recv(&mut self, buffer: u32, sgl: &[Sge]) {
        // SAFETY: the caller that posts the buffer keeps the memory valid and untouched until the
        // Receive has completed. Memory of a buffer that is not posted is not used.
        let lend = |sge| unsafe { Lent::new(sge) };
        let QueueSet { srq, keys, .. } = &mut self.set;
        srq.describe(buffer, sgl, lend, keys);
    }

    /// `Queues::post_srq_recv`.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub unsafe fn post_srq_recv(&mut self, wrs: impl Requests<RecvWr>) -> Taken {
        self.set.srq.post(wrs)
    }

    /// `Queues::post_send`.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub unsafe fn post_send<'a>(&mut self, num: u32, wrs: impl Requests<SendWr<'a>>) -> Taken {
        if !self.set.opening.is_empty() {
            open(&mut self.set, &mut self.paths, &mut self.rounds);
        }
        let now = self.set.now_if_delayed();
        let QueueSet { qps, keys, .. } = &mut self.set;
        let Some(qp) = qps.find(num).filter(|qp| qp.state != State::Error) else {
            return self.post_to_failed(num, wrs);
        };
        let (num, index) = (qp.num, qp.path as usize);
        let path = &mut self.paths[index];
        // SAFETY: the caller's promise is passed on.
        let (taken, are_all) =
            unsafe { post::post_plain(path, qp, keys, &self.limits, wrs.clone(), now) };
        if !are_all {
            // SAFETY: the caller's promise is passed on.
            return unsafe { self.post_rest(num, index, taken, wrs, now) };
        }
        path.carrier.wake_peer();
        Taken::without_error(taken)
    }

    /// `Queues::open_window`.
    pub fn open_window(&mut self) -> Result<Window, SetupError> {
        self.set.rights.open_window().ok_or_else(limits::no_window_left)
    }

    /// `Queues::renew_window`.
    pub fn renew_window(&mut self, id: WindowId) -> Result<Option<Window>, SetupError> {
        self.set.rights.renew_window(id).map(Some).ok_or_else(limits::no_such_window)
    }

    /// `Queues::expose`: the caller guarantees the bytes.
    pub fn expose(&mut self, sge: &Sge, access: Access) -> Result<u32, RegisterError> {
        let QueueSet { keys, rights, .. } = &mut self.set;
        keys.refresh();
        rights.expose(keys, sge, access).ok_or_else(|| RegisterError::Device {
            bytes: sge.length as usize,
            source: std::io::ErrorKind::PermissionDenied.into(),
        })
    }

    /// `Queues::conceal`.
    pub fn conceal(&mut self, rkey: u32) {
        self.set.rights.conceal(rkey);
    }

    /// `Queues::next_event`.
    #[inline]
    pub fn next_event(&mut self) -> Option<QueueEvent> {
        self.set.events.pop_front()
    }

    /// `Queues::disconnect`.
    pub fn disconnect(&mut self, num: u32) {
        let now = self.set.now_if_delayed();
        let Some(qp) = self.set.qps.find(num).filter(|qp| qp.state != State::Error) else {
            return;
        };
        qp.is_reported = true;
        let peer = qp.peer;
        qp.leave();
        let path = &mut self.paths[qp.path as usize];
        path.warm(&mut self.rounds);
        // Requests that the peer took before succeed.
        path.read_ack_line();
        path.retire(&mut self.set, None, now);
        path.fail(&mut self.set, None, num);
        path.queue_disconnect(peer);
        path.drain(&mut self.set, None, now);
        path.carrier.wake_peer();
    }

    /// `Queues::destroy`.
    pub fn destroy(&mut self, num: u32) {
        self.disconnect(num);
        let QueueSet { qps, cq, events, opening, rights, .. } = &mut self.set;
        let Some(qp) = qps.find(num) else { return };
        let path = &mut self.paths[qp.path as usize];
        path.forget(num);
        path.qps -= 1;
        cq.forget(num);
        events.retain(|event| *event != QueueEvent::Disconnected { qp_num: num });
        opening.retain(|opening| *opening != num);
        let is_over = C::IS_OF_ONE && path.qps == 0;
        let index = qp.path;
        qps.remove(num);
        rights.release(num);
        if is_over {
            self.remove_path(index);
        }
    }

    /// Closes a path that has no queue pairs. The last one gets its index.
    #[cold]
    fn remove_path(&mut self, index: u32) {
        let mut path = self.paths.swap_remove(index as usize);
        self.rounds.swap_remove(index);
        if let Some(moved) = self.paths.get_mut(index as usize) {
            let before = std::mem::replace(&mut moved.index, index);
            self.set.qps.renumber_path(before, index);
        }
        // The peer's requests that were taken succeed.
        path.announce();
        path.close_for_good();
    }

    /// How long its thread may sleep; none if there is work. Acknowledges to all peers what was
    /// taken.
    pub fn sleep_limit(&mut self) -> Option<Duration> {
        self.paths.iter_mut().filter(|path| !path.is_dead).for_each(Path::announce);
        Some(match self.readiness() {
            Readiness::Now => return None,
            Readiness::Soon => BLOCKED_SLEEP,
            Readiness::At(due_ns) => {
                let left_ns = due_ns.saturating_sub(self.set.settings.clock.now_ns());
                Duration::from_nanos(left_ns).min(self.set.settings.clock.sleep_max())
            }
            Readiness::Nothing => Duration::MAX,
        })
    }

    /// The number of messages that found no Receive on arrival.
    pub fn rnr_count(&self) -> u64 {
        self.set.rnr_count
    }

    /// Whether a poll would find something.
    pub fn has_work(&self) -> bool {
        self.readiness() == Readiness::Now
    }

    /// The ends of the first path's carrier, for tests.
    #[doc(hidden)]
    pub fn ends(&mut self) -> Option<(&mut C::Tx, &mut C::Rx)> {
        self.paths.first_mut().map(|path| (&mut path.tx, &mut path.rx))
    }

    /// Accounts for slots that a test has skipped, in both directions of the first path.
    #[doc(hidden)]
    pub fn has_skipped(&mut self) {
        self.paths.iter_mut().take(1).for_each(Path::has_skipped);
    }

    /// Posts the rest of a chain, of which so many requests were sent and the next, if there is
    /// one, is not a plain Send or cannot be sent at once. Wakes the peer for all.
    ///
    /// # Safety
    /// That of `post_send`.
    #[cold]
    #[inline(never)]
    unsafe fn post_rest<'a>(
        &mut self,
        num: u32,
        path: usize,
        sent: usize,
        wrs: impl Requests<SendWr<'a>>,
        now: u64,
    ) -> Taken {
        self.set.keys.refresh();
        let path = &mut self.paths[path];
        path.warm(&mut self.rounds);
        let before = path.tx.head();
        let (mut taken, mut why) = (sent, None);
        for wr in wrs.skip(sent) {
            // SAFETY: the caller's promise is passed on.
            let posted = unsafe { post::post(&mut self.set, path, &self.limits, num, &wr, now) };
            match posted {
                Ok(()) => taken += 1,
                Err(NotTaken::Full) => why = Some(PostError::QueueFull),
                Err(NotTaken::Invalid) => why = Some(PostError::Invalid),
            }
            if why.is_some() {
                break;
            }
        }
        if sent > 0 || path.tx.head() != before {
            path.carrier.wake_peer();
        }
        why.map_or(Taken::without_error(taken), |why| Taken::with_error(taken, why))
    }

    /// A queue pair in the error state takes requests and flushes them. Their completions show the
    /// program that nothing posted before is in flight any more.
    #[cold]
    fn post_to_failed<'a>(&mut self, num: u32, wrs: impl Requests<SendWr<'a>>) -> Taken {
        if self.set.qps.find(num).is_none() {
            return Taken::with_error(0, PostError::QpGone);
        }
        let count = wrs.len();
        for wr in wrs {
            let (wr_id, disposition, opcode) = (wr.wr_id, Disposition::Flushed, WcOpcode::Send);
            let flushed = Posted { wr_id, qp_num: num, covers: 0, disposition, opcode };
            self.set.complete(&flushed, None);
        }
        Taken::without_error(count)
    }

    /// The path of this end; a new one for the first queue pair.
    fn path_of(
        &mut self,
        end: EndId,
        open: impl FnOnce() -> Result<(C, C::Tx, C::Rx), SetupError>,
    ) -> Result<usize, SetupError> {
        if let Some(index) = self.paths.iter().position(|path| path.carrier.id() == end) {
            return Ok(index);
        }
        let free = self.paths.iter().position(|path| path.is_dead && path.qps == 0);
        let index = free.unwrap_or(self.paths.len());
        let path = {
            let (carrier, tx, rx) = open()?;
            Path::new(carrier, tx, rx, index as u32, self.set.settings.delay_ns != 0)
        };
        match self.paths.get_mut(index) {
            Some(place) => *place = path,
            None => self.paths.push(path),
        }
        Ok(index)
    }

    /// What a poll can expect.
    fn readiness(&self) -> Readiness {
        let set = &self.set;
        if !set.cq.is_empty() || !set.events.is_empty() || self.can_open() {
            return Readiness::Now;
        }
        let all = self.paths.iter().map(|path| path.readiness(set));
        all.fold(Readiness::Nothing, Readiness::sooner)
    }

    fn can_open(&self) -> bool {
        let is_decided = |qp: &QueuePair| qp.peer_progress() != Progress::Made;
        let mut opening = self.set.opening.iter();
        opening.any(|num| self.set.qps.peek(*num).is_some_and(is_decided))
    }
}

impl<C: Carrier> Drop for Transport<C> {
    fn drop(&mut self) {
        self.reader.end_for_good();
        self.set.qps.iter().for_each(QueuePair::leave);
        for path in self.paths.drain(..) {
            path.close_for_good();
        }
    }
}

/// Polls several paths, a few messages from each.
#[inline(never)]
fn poll_in_turn<C: Carrier>(
    set: &mut QueueSet,
    reader: &Reader,
    paths: &mut [Path<C>],
    rounds: &mut Rounds,
    out: &mut WcBatch,
) {
    let mut round = rounds.begin();
    while !out.is_full()
        && let Some(visit) = rounds.next(&mut round)
    {
        let path = &mut paths[visit.path as usize];
        if !path.is_dead {
            path.poll(set, reader, out, TURN_MESSAGES);
        }
        path.end_visit(visit, rounds);
    }
}

/// Lets queue pairs send whose peer is attached now.
#[cold]
fn open<C: Carrier>(set: &mut QueueSet, paths: &mut [Path<C>], rounds: &mut Rounds) {
    let mut opening = std::mem::take(&mut set.opening);
    opening.retain(|&num| {
        let Some(qp) = set.qps.find(num).filter(|qp| qp.state == State::Opening) else {
            return false;
        };
        let path = &mut paths[qp.path as usize];
        match qp.peer_progress() {
            Progress::Made => return true,
            Progress::Attached => {
                qp.state = State::Ready;
                if !qp.backlog.is_empty() && !std::mem::replace(&mut qp.is_waiting, true) {
                    path.enqueue(num);
                    path.warm(rounds);
                }
            }
            // Its disconnect may have come before this side was attached.
            Progress::Left if path.has_more(qp) => return true,
            Progress::Left | Progress::Dropped => {
                path.fail(set, None, num);
                set.report_disconnect(num);
            }
        }
        false
    });
    set.opening = opening;
}

/// Messages taken from one path before the next path's turn.
const TURN_MESSAGES: usize = 8;
/// The sleep while a message waits for a Receive: its sender may give up meanwhile.
const BLOCKED_SLEEP: Duration = Duration::from_millis(1);
