//! The end of a run: without further faults everything completes, stops, and returns to its pool.

use std::sync::atomic::Ordering;

use super::invariants;
use super::model::{End, Violation};
use super::provider::SimProvider;
use super::scheduler::Sim;
use super::trace::Event;

impl<P: SimProvider> Sim<P> {
    /// Stops the faults and the callers, and waits until every call is complete.
    ///
    /// # Errors
    /// The first violation, which may be a timeout.
    pub fn drain(&mut self) -> Result<(), Violation> {
        self.model.borrow_mut().trace.note(Event::Drain);
        self.is_draining = true;
        self.logs.iter().for_each(|log| log.end());
        self.base.calm();
        for node in &mut self.nodes {
            node.shard.handler().is_busy = false;
        }
        for step in 0..DRAIN_STEPS_MAX {
            if self.model.borrow().is_idle() {
                return self.quiesce();
            }
            self.hurry(step > DRAIN_STEPS_MAX / 2);
            self.close_hopeless();
            self.step()?;
        }
        let model = self.model.borrow();
        let open = model.calls.values().filter(|record| record.done == 0);
        let open: Vec<String> = open.take(3).map(|record| format!("{record:?}")).collect();
        let audits: Vec<_> = self.nodes.iter().map(|node| &node.audit).collect();
        let detail = format!("{} steps later: {open:?}, {audits:?}", DRAIN_STEPS_MAX);
        Err(Violation { check: "everything drains", detail })
    }

    /// Stops every shard that was not stopped, and waits for all of them.
    ///
    /// # Errors
    /// The first violation, which may be a timeout.
    pub fn stop_all(&mut self) -> Result<(), Violation> {
        let mut until = 0;
        for step in 0..STOP_STEPS_MAX {
            if step == until {
                let count = self.nodes.len() as u32;
                let running = self.nodes.iter().position(|node| !node.is_stopping);
                let any = self.random.below(count) as usize;
                self.stop(if self.nodes[any].is_stopping { running.unwrap_or(any) } else { any });
                until = step + 1 + self.random.below(40);
            }
            if self.nodes.iter().all(|node| node.shard.is_stopped()) {
                return Ok(());
            }
            self.hurry(step > STOP_STEPS_MAX / 2);
            self.close_hopeless();
            self.step()?;
        }
        let running = self.nodes.iter().filter(|node| !node.shard.is_stopped());
        let running: Vec<_> = running.map(|node| &node.audit).collect();
        Err(Violation { check: "every shard stops", detail: format!("{running:?}") })
    }

    /// Checks that everything has returned, and drops everything.
    ///
    /// # Errors
    /// If anything is missing.
    pub fn tear_down(&mut self) -> Result<(), Violation> {
        let mut has_leaked = false;
        for at in 0..self.nodes.len() {
            self.nodes[at].shard.handler().let_go();
            let node = &self.nodes[at];
            let is_lost = self.has_lost_queue(node);
            let audit = node.shard.audit();
            has_leaked |= is_lost || self.keeps_rights(node);
            if !is_lost {
                invariants::check_stopped(at, &audit, self.keeps_rights(node))?;
            }
            let places = node.shard.handle().connections();
            if places > 0 && self.handshake.is_none() {
                let detail = format!("shard {at}: {places}");
                return Err(Violation { check: "all places are free after the stop", detail });
            }
        }
        self.nodes.clear();
        self.controls.clear();
        self.engines.clear();
        let (regions, receives) = (&self.watch.regions, &self.watch.receives);
        let left = (regions.load(Ordering::Relaxed), receives.load(Ordering::Relaxed));
        if left.1 == 0 && (left.0 == 0 || has_leaked) {
            return Ok(());
        }
        let detail = format!("{} regions, {} Receives", left.0, left.1);
        Err(Violation { check: "nothing is left with the device", detail })
    }

    /// Completions of a failed completion queue never arrive: they time out.
    fn hurry(&mut self, is_late: bool) {
        // Far enough for the checks that shards make every ten milliseconds.
        self.leap(5_000);
        if is_late && self.nodes.iter().any(|node| self.has_lost_queue(node)) {
            self.has_leapt = true;
            self.leap(10_000_000_000);
        }
    }

    /// Turns without events: deferred work is done.
    fn quiesce(&mut self) -> Result<(), Violation> {
        for _ in 0..QUIET_TURNS {
            for at in 0..self.nodes.len() {
                self.leap(10_000);
                self.poll(at)?;
            }
        }
        self.is_quiet = true;
        (0..self.nodes.len()).try_for_each(|at| self.poll(at))
    }

    /// Ends connections on which a call may never be answered, because a header was changed.
    fn close_hopeless(&mut self) {
        let model = self.model.borrow();
        let is_hopeless = |end: &End| match model.links.get(end) {
            Some(&link) => {
                let link = &model.about[link];
                !link.is_broken && link.is_changed
            }
            // The change may also affect the other end.
            None => self.is_noisy() || self.strangers.contains(end),
        };
        let mut hopeless = Vec::new();
        for (at, node) in self.nodes.iter().enumerate() {
            for peer in node.audit.peers.iter().filter(|peer| peer.is_up) {
                let end = (at, peer.id);
                if is_hopeless(&end) && !model.ordered.contains(&end) {
                    hopeless.push(end);
                }
            }
        }
        drop(model);
        hopeless.into_iter().for_each(|(at, peer)| self.close(at, peer));
    }
}

/// The limit of steps until everything is complete.
const DRAIN_STEPS_MAX: u32 = 20_000;
/// The limit of steps until every shard has stopped.
const STOP_STEPS_MAX: u32 = 20_000;
/// Turns of every shard after which no work is deferred: Receives are posted again after 64 idle
/// turns.
const QUIET_TURNS: usize = 70;
