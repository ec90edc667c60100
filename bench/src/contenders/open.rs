//! The open loop: calls are sent at their due times, independent of replies.
//!
//! ```text
//!   due ──▶ begun ──▶ ended          response: from due to ended
//!    └ refused ──▶ waits: backlog    lateness: from due to begun, while nothing waited
//! ```
//!
//! A closed loop makes its next call when a reply has come: while the system stalls it asks
//! nothing, and the stall is one slow call in its distribution (coordinated omission). Here all
//! calls that were due meanwhile have waited, and all of them are in it.

use std::time::Duration;

use super::arrivals::{Law, Schedule};
use crate::error::BenchError;
use crate::stats::Latency;
use crate::stop;

/// Calls that are offered for a round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Offer {
    pub law: Law,
    pub rate: f64,
    pub seed: u64,
    /// Time at the start whose calls are not counted.
    pub warm_up: Duration,
    pub time: Duration,
    /// The most calls, warm-up included.
    pub count_max: u64,
}

impl Offer {
    /// What one of so many clients offers of it.
    #[must_use]
    pub fn part(&self, client: usize, clients: usize) -> Offer {
        let (rate, seed) = (self.rate / clients as f64, self.seed.wrapping_add(client as u64));
        Offer { rate, seed, count_max: self.count_max.div_ceil(clients as u64), ..*self }
    }
}

pub trait System {
    /// Makes a call with such a mark. False if it cannot be made now.
    fn begin(&mut self, mark: u64) -> Result<bool, BenchError>;

    /// Takes in what has come, and calls `ended` with the mark of every call that has ended.
    fn poll(&mut self, ended: impl FnMut(u64)) -> Result<(), BenchError>;

    /// Calls that have begun and not ended.
    fn under_way(&self) -> u64;
}

#[derive(Debug, Clone)]
pub struct OpenRound {
    /// From the intended start to the end of each call, given-up calls with the time they waited.
    pub response: Latency,
    /// From the intended to the real start of the calls before which nothing waited: what the
    /// generator added.
    pub lateness: Latency,
    pub offered: u64,
    pub completed: u64,
    /// Calls that were due and were given up, too many waiting before them.
    pub given_up: u64,
    /// The most calls that could not be sent yet.
    pub backlog_max: u64,
    /// Calls that were due by the end of the round's time and could not be sent yet.
    pub backlog_end: u64,
    /// From the first intended start that counts to the end of the time, or to the last call's end
    /// if that was later.
    pub elapsed_ns: u64,
    /// The time that was to be measured.
    pub time_ns: u64,
    /// How often a measuring thread lost its core to another program.
    pub preempted: u64,
}

impl OpenRound {
    pub fn offered_rate(&self) -> f64 {
        per_second(self.offered, self.time_ns)
    }

    pub fn achieved_rate(&self) -> f64 {
        per_second(self.completed, self.elapsed_ns)
    }

    /// The round of several clients that offered their calls at the same time.
    ///
    /// # Panics
    /// If there is none.
    pub fn together(rounds: Vec<OpenRound>) -> OpenRound {
        let add = |mut sum: OpenRound, one: OpenRound| {
            sum.response.merge(&one.response);
            sum.lateness.merge(&one.lateness);
            sum.offered += one.offered;
            sum.completed += one.completed;
            sum.given_up += one.given_up;
            sum.backlog_max += one.backlog_max;
            sum.backlog_end += one.backlog_end;
            sum.elapsed_ns = sum.elapsed_ns.max(one.elapsed_ns);
            sum.time_ns = sum.time_ns.max(one.time_ns);
            sum.preempted += one.preempted;
            sum
        };
        rounds.into_iter().reduce(add).expect("there is a client")
    }

    fn new(time_ns: u64) -> OpenRound {
        let (mut response, mut lateness) = (Latency::new(), Latency::new());
        // The kernel gives each page when it is written first: not while calls are due.
        response.touch();
        lateness.touch();
        OpenRound {
            response,
            lateness,
            offered: 0,
            completed: 0,
            given_up: 0,
            backlog_max: 0,
            backlog_end: 0,
            elapsed_ns: time_ns,
            time_ns,
            preempted: 0,
        }
    }
}

/// Offers calls for one round, beginning now. `clock_ns` is any clock that does not go back.
///
/// Neither allocates nor enters the kernel while it runs, as far as `system` and
/// `clock_ns` do not.
pub fn drive<S: System>(
    system: &mut S,
    offer: &Offer,
    clock_ns: &impl Fn() -> u64,
) -> Result<OpenRound, BenchError> {
    let (warm_up_ns, time_ns) = (nanos(offer.warm_up), nanos(offer.time));
    let end_ns = warm_up_ns + time_ns;
    let mut give_up_ns = u64::MAX;
    let Offer { law, rate, seed, count_max, .. } = *offer;
    let mut schedule = Schedule::new(law, rate, seed, end_ns, count_max);
    let round = OpenRound::new(time_ns);
    let mut tally = OpenTally { round, warm_up_ns, last_due_ns: 0, last_ns: 0 };
    let mut in_time = true;
    // Not before everything is in place: the first call would be late.
    let begin_ns = clock_ns();
    let now_ns = || clock_ns() - begin_ns;
    loop {
        let mut now = now_ns();
        let waited = schedule.waiting() > 0;
        schedule.advance(now);
        while let Some(due) = schedule.first() {
            if !system.begin(due)? {
                break;
            }
            schedule.take();
            tally.begun(due, now, waited);
            now = now_ns();
            schedule.advance(now);
        }
        tally.backlog(now, schedule.waiting());
        system.poll(|due| {
            tally.ended(due, now_ns());
        })?;
        if in_time && stop::is_requested() {
            schedule.end();
        }
        if in_time && schedule.is_over(now) {
            // What is due at the very end is there, since `now` is not before it.
            in_time = false;
            tally.round.backlog_end = schedule.waiting();
            give_up_ns = now + now.saturating_sub(warm_up_ns).max(GRACE_NS);
        }
        if now >= give_up_ns {
            give_up(&mut schedule, &mut tally, now);
        }
        if !in_time && schedule.waiting() == 0 && system.under_way() == 0 {
            return Ok(tally.finish(now >= end_ns));
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filled {
    /// Calls that ended within the time.
    pub completed: u64,
    pub elapsed_ns: u64,
}

impl Filled {
    pub fn rate(&self) -> f64 {
        per_second(self.completed, self.elapsed_ns)
    }
}

/// Makes calls for such a time as often as the system takes one: what it can do at most.
pub fn fill<S: System>(
    system: &mut S,
    time: Duration,
    clock_ns: &impl Fn() -> u64,
) -> Result<Filled, BenchError> {
    let begin_ns = clock_ns();
    let end_ns = begin_ns + nanos(time);
    let mut filled = Filled { completed: 0, elapsed_ns: 0 };
    loop {
        let now = clock_ns();
        let in_time = now < end_ns && !stop::is_requested();
        while in_time && system.begin(0)? {}
        let mut ended = 0;
        system.poll(|_| ended += 1)?;
        if in_time {
            filled.completed += ended;
            filled.elapsed_ns = clock_ns() - begin_ns;
        } else if system.under_way() == 0 {
            return Ok(filled);
        }
    }
}

struct OpenTally {
    round: OpenRound,
    warm_up_ns: u64,
    last_due_ns: u64,
    last_ns: u64,
}

impl OpenTally {
    #[inline]
    fn counts(&self, due_ns: u64) -> bool {
        due_ns >= self.warm_up_ns
    }

    #[inline]
    fn begun(&mut self, due_ns: u64, now_ns: u64, waited: bool) {
        if self.counts(due_ns) {
            self.round.offered += 1;
            self.last_due_ns = due_ns;
            if !waited {
                self.round.lateness.record(now_ns - due_ns);
            }
        }
    }

    #[inline]
    fn backlog(&mut self, now_ns: u64, waiting: u64) {
        if waiting > self.round.backlog_max && self.counts(now_ns) {
            self.round.backlog_max = waiting;
        }
    }

    #[inline]
    fn ended(&mut self, due_ns: u64, now_ns: u64) {
        if self.counts(due_ns) {
            self.round.completed += 1;
            self.round.response.record(now_ns - due_ns);
            self.last_ns = now_ns;
        }
    }

    /// Sums up; a round that its number of calls has ended took until the last of them was due.
    fn finish(mut self, is_whole: bool) -> OpenRound {
        if !is_whole {
            self.round.time_ns = self.last_due_ns.saturating_sub(self.warm_up_ns);
        }
        let last_ns = self.last_ns.saturating_sub(self.warm_up_ns);
        self.round.elapsed_ns = self.round.time_ns.max(last_ns);
        self.round
    }
}

/// Gives up what still waits: the system does not keep up, and the run has an end.
#[cold]
fn give_up(schedule: &mut Schedule, tally: &mut OpenTally, now_ns: u64) {
    while let Some(due) = schedule.first() {
        schedule.take();
        if tally.counts(due) {
            tally.round.offered += 1;
            tally.round.given_up += 1;
            tally.last_due_ns = due;
            tally.round.response.record(now_ns - due);
        }
    }
    tally.last_ns = now_ns;
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 8).min(u64::MAX / 8)
}

fn per_second(count: u64, time_ns: u64) -> f64 {
    if time_ns == 0 { 0.0 } else { count as f64 * 1e9 / time_ns as f64 }
}

/// Calls that wait at the end of the time are sent for as long again, and no less than this.
const GRACE_NS: u64 = 50_000_000;

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::VecDeque;

    use super::*;

    /// A server in virtual time: answers one call each `service_ns`, and nothing while it stalls.
    struct Fake<'a> {
        time: &'a Cell<u64>,
        service_ns: u64,
        stall: std::ops::Range<u64>,
        window: usize,
        free_at: u64,
        queue: VecDeque<(u64, u64)>,
        /// What a look at the queue takes.
        poll_ns: u64,
    }

    impl<'a> Fake<'a> {
        fn new(time: &'a Cell<u64>, service_ns: u64, stall: std::ops::Range<u64>) -> Fake<'a> {
            let (window, free_at, queue, poll_ns) = (16, 0, VecDeque::new(), 10);
            Fake { time, service_ns, stall, window, free_at, queue, poll_ns }
        }
    }

    impl System for Fake<'_> {
        fn begin(&mut self, mark: u64) -> Result<bool, BenchError> {
            if self.queue.len() == self.window {
                return Ok(false);
            }
            let mut ready = self.free_at.max(self.time.get()) + self.service_ns;
            if self.stall.contains(&ready) {
                ready = self.stall.end;
            }
            self.free_at = ready;
            self.queue.push_back((mark, ready));
            Ok(true)
        }

        fn poll(&mut self, mut ended: impl FnMut(u64)) -> Result<(), BenchError> {
            self.time.set(self.time.get() + self.poll_ns);
            while self.queue.front().is_some_and(|(_, ready)| *ready <= self.time.get()) {
                ended(self.queue.pop_front().expect("it has a front").0);
            }
            Ok(())
        }

        fn under_way(&self) -> u64 {
            self.queue.len() as u64
        }
    }

    fn offer(rate: f64, time_us: u64) -> Offer {
        Offer {
            law: Law::Constant,
            rate,
            seed: 1,
            warm_up: Duration::ZERO,
            time: Duration::from_micros(time_us),
            count_max: u64::MAX,
        }
    }

    fn run(fake: impl FnOnce(&Cell<u64>) -> Fake<'_>, offer: &Offer) -> OpenRound {
        let time = Cell::new(0);
        let mut fake = fake(&time);
        drive(&mut fake, offer, &|| time.get()).expect("nothing fails")
    }

    #[test]
    fn a_stall_is_in_every_call_that_was_due_in_it() {
        // One call each microsecond, for ten milliseconds; the server stalls for one of them.
        let stall = 4_000_000..5_000_000;
        let round = run(|time| Fake::new(time, 200, stall), &offer(1e6, 10_000));
        assert_eq!((round.offered, round.completed, round.given_up), (10_000, 10_000, 0));
        // The first call of the stall waits for all of it, the last for nearly nothing; then 1000
        // of them are worked off at 0.2 us each, while 250 more come in: 1250 in all, evenly
        // spread up to a millisecond.
        assert!(round.response.max_ns() >= 999_000, "{:?}", round.response.max_ns());
        assert!(round.response.quantile_ns(0.874) < 1_000, "{}", round.response.quantile_ns(0.874));
        let tenth = round.response.quantile_ns(0.9);
        assert!((150_000..250_000).contains(&tenth), "{tenth}");
        // 16 are under way, the rest waits.
        assert!((980..=1000).contains(&round.backlog_max), "{}", round.backlog_max);
        assert_eq!(round.backlog_end, 0);
    }

    #[test]
    fn a_backlog_is_not_taken_for_the_generators_lateness() {
        let stall = 4_000_000..5_000_000;
        let round = run(|time| Fake::new(time, 200, stall), &offer(1e6, 10_000));
        // A look takes 10 ns: no call that could be sent was later than that.
        assert!(round.lateness.max_ns() <= 10, "{:?}", round.lateness.max_ns());
        assert!((8_700..8_800).contains(&round.lateness.count()), "{}", round.lateness.count());
    }

    #[test]
    fn a_slow_generator_shows_in_its_lateness() {
        let offer = offer(1e6, 1_000);
        let round = run(|time| Fake { poll_ns: 5_000, ..Fake::new(time, 1, 0..0) }, &offer);
        assert!(round.lateness.max_ns() >= 4_000, "{:?}", round.lateness.max_ns());
        assert_eq!(round.backlog_max, 0);
    }

    #[test]
    fn a_call_that_was_refused_once_is_no_lateness_of_the_generator() {
        // Two at a time, and each takes longer than the next two need to come.
        let offer = offer(1e6, 100);
        let round = run(|time| Fake { window: 2, ..Fake::new(time, 3_000, 0..0) }, &offer);
        assert!(round.backlog_max > 0);
        assert!(round.lateness.count() < 10, "{} of {}", round.lateness.count(), round.offered);
        assert!(round.lateness.max_ns() <= 10);
    }

    #[test]
    fn what_is_offered_is_achieved_while_the_server_keeps_up() {
        let round = run(|time| Fake::new(time, 200, 0..0), &offer(1e6, 10_000));
        assert!((round.offered_rate() / 1e6 - 1.0).abs() < 0.001, "{}", round.offered_rate());
        assert!((round.achieved_rate() / 1e6 - 1.0).abs() < 0.001, "{}", round.achieved_rate());
    }

    #[test]
    fn a_server_that_does_not_keep_up_shows_its_own_rate_and_the_backlog() {
        // Two microseconds each: half of what is offered.
        let round = run(|time| Fake::new(time, 2_000, 0..0), &offer(1e6, 100_000));
        assert!((round.achieved_rate() / 5e5 - 1.0).abs() < 0.001, "{}", round.achieved_rate());
        assert_eq!((round.offered, round.given_up), (100_000, 0));
        assert!((49_900..=50_000).contains(&round.backlog_end), "{}", round.backlog_end);
        assert!(round.response.max_ns() >= 99_000_000);
    }

    #[test]
    fn what_waits_too_long_is_given_up_and_counted_as_slow() {
        // Ten microseconds each: a tenth; the round goes on for as long again.
        let round = run(|time| Fake::new(time, 10_000, 0..0), &offer(1e6, 100_000));
        assert_eq!(round.offered, 100_000);
        assert_eq!(round.completed + round.given_up, round.offered);
        assert!((79_900..80_100).contains(&round.given_up), "{}", round.given_up);
        assert_eq!(round.response.count(), round.offered, "none is left out");
        assert!((round.achieved_rate() / 1e5 - 1.0).abs() < 0.01, "{}", round.achieved_rate());
    }

    #[test]
    fn a_warm_up_is_not_in_the_figures() {
        let offer = Offer { warm_up: Duration::from_micros(2_000), ..offer(1e6, 3_000) };
        let round = run(|time| Fake::new(time, 200, 0..1_000_000), &offer);
        assert!((2_999..=3_001).contains(&round.offered), "{}", round.offered);
        assert!(round.response.max_ns() < 1_000, "the stall was before");
        assert_eq!(round.backlog_max, 0);
    }

    #[test]
    fn a_system_that_is_kept_full_shows_its_rate_and_ends_empty() {
        let time = Cell::new(0);
        let mut fake = Fake::new(&time, 2_000, 0..0);
        let filled = fill(&mut fake, Duration::from_millis(10), &|| time.get()).expect("it ends");
        assert!((filled.rate() / 5e5 - 1.0).abs() < 0.01, "{filled:?}");
        assert_eq!(fake.under_way(), 0);
    }

    #[test]
    fn a_number_of_calls_ends_a_round_early() {
        let offer = Offer { count_max: 500, ..offer(1e6, 1_000_000) };
        let round = run(|time| Fake::new(time, 200, 0..0), &offer);
        assert_eq!((round.offered, round.completed), (500, 500));
        assert!((round.offered_rate() / 1e6 - 1.0).abs() < 0.01, "{}", round.offered_rate());
    }
}
