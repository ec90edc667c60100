//! A timing wheel: which of many slots are due, at a cost that does not depend on their number.
//!
//! ```text
//!   level 0   64 buckets of 1 ms         a bucket whose time has come is taken apart:
//!   level 1   64 buckets of 67 ms        a slot is due, or moves to a lower level
//!     ⋮
//!   level 7   4 buckets of 146 years     every time of the clock has a bucket
//! ```
//! With levels a slot moves once per level at most, however far its time is, and eight words show
//! the next bucket that is not empty. With one level and rounds, every round visits every slot.
//!
//! The bucket of a slot is not later than its time. A slot whose time is postponed stays where it
//! is, and moves when its bucket comes: calls in a slot that end in time cost one comparison each.

/// The times of slots. Nothing is allocated after its creation.
#[derive(Debug)]
pub(crate) struct Wheel {
    timers: Box<[Timer]>,
    /// The first slot of every bucket, and of the one that is being taken apart.
    heads: Box<[u32; COME + 1]>,
    /// The buckets of every level that are not empty; of the last one, nothing.
    occupied: [u64; LEVELS + 1],
    /// The buckets of all ticks before this one are empty. Slots have their buckets by the highest
    /// digit in which their ticks and this one differ.
    cursor: u64,
    /// No slot is due before this time.
    next: u64,
}

#[derive(Debug, Clone, Copy)]
struct Timer {
    at: u64,
    /// When its bucket is taken apart; [`NEVER`] if it is in none.
    look: u64,
    /// The next slot in the bucket, or [`NONE`].
    next: u32,
    /// The slot before, or the bucket with [`HEAD`].
    before: u32,
}

impl Wheel {
    /// For this number of slots, none of them armed.
    pub fn new(slots: u32) -> Wheel {
        assert!(slots < HEAD, "a slot's number is below {HEAD:#x}, not {slots}");
        let timer = Timer { at: NEVER, look: NEVER, next: NONE, before: NONE };
        Wheel {
            timers: vec![timer; slots as usize].into(),
            heads: Box::new([NONE; COME + 1]),
            occupied: [0; LEVELS + 1],
            cursor: 0,
            next: NEVER,
        }
    }

    /// Sets the time of a slot, in place of its earlier one. `u64::MAX` is never. True if
    /// [`Wheel::next`] may have changed.
    #[inline]
    pub fn arm(&mut self, slot: u32, at: u64) -> bool {
        let Some(timer) = self.timers.get_mut(slot as usize) else { return false };
        timer.at = at;
        let is_earlier = at < timer.look;
        if is_earlier {
            self.place(slot, at);
        }
        is_earlier
    }

    /// Makes a slot never due. The engine need not: a call that ends leaves its slot armed.
    #[cfg(test)]
    pub fn disarm(&mut self, slot: u32) {
        self.arm(slot, NEVER);
    }

    /// A slot that is due at `now`, which is not armed any more. Each of at most `looks` slots is
    /// looked at; if that were too few, the next call continues. No slot is due before its time,
    /// and all are less than [`GRANULARITY`] after it.
    pub fn due(&mut self, now: u64, looks: &mut u32) -> Option<u32> {
        while now >= self.next && *looks > 0 && self.open(now) {
            *looks -= 1;
            let slot = self.heads[COME];
            self.unlink(slot);
            let at = self.timers[slot as usize].at;
            if at <= now && at < LAST {
                self.timers[slot as usize].at = NEVER;
                return Some(slot);
            }
            self.link(slot, at, (now >> TICK_BITS) + 1);
        }
        if now < self.next {
            self.cursor = self.cursor.max(now >> TICK_BITS);
        }
        None
    }

    /// The time before which no slot is due; `u64::MAX` if none is armed. At this time one may be.
    #[inline]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Makes the next bucket whose time has come the one that is taken apart, unless there is one.
    fn open(&mut self, now: u64) -> bool {
        if self.heads[COME] != NONE {
            return true;
        }
        let first = self.first();
        self.next = first.map_or(NEVER, |(_, tick)| tick << TICK_BITS);
        let Some((bucket, tick)) = first.filter(|_| now >= self.next) else { return false };
        self.cursor = tick;
        let slot = core::mem::replace(&mut self.heads[bucket], NONE);
        self.occupied[bucket / BUCKETS] &= !(1 << (bucket % BUCKETS));
        self.heads[COME] = slot;
        self.timers[slot as usize].before = HEAD | COME as u32;
        true
    }

    /// Moves a slot to a bucket that is early enough.
    #[inline(never)]
    fn place(&mut self, slot: u32, at: u64) {
        if self.timers[slot as usize].look != NEVER {
            self.unlink(slot);
        }
        self.link(slot, at, self.cursor);
        self.next = self.next.min(self.timers[slot as usize].look);
    }

    /// Puts a slot that is in no bucket into that of its time, which is none before `tick_min`.
    fn link(&mut self, slot: u32, at: u64, tick_min: u64) {
        if at >= LAST {
            return;
        }
        let tick = (at >> TICK_BITS).max(tick_min);
        let level = (((tick ^ self.cursor) | DIGIT).ilog2() / DIGIT_BITS) as usize;
        let shift = level as u32 * DIGIT_BITS;
        let digit = tick >> shift & DIGIT;
        let bucket = level * BUCKETS + digit as usize;
        let next = core::mem::replace(&mut self.heads[bucket], slot);
        if let Some(next) = self.timers.get_mut(next as usize) {
            next.before = slot;
        }
        self.occupied[level] |= 1 << digit;
        let look = tick >> shift << shift << TICK_BITS;
        self.timers[slot as usize] = Timer { at, look, next, before: HEAD | bucket as u32 };
    }

    /// Takes a slot out of its bucket.
    fn unlink(&mut self, slot: u32) {
        let timer = &mut self.timers[slot as usize];
        timer.look = NEVER;
        let Timer { next, before, .. } = *timer;
        if let Some(next) = self.timers.get_mut(next as usize) {
            next.before = before;
        }
        if let Some(before) = self.timers.get_mut(before as usize) {
            before.next = next;
            return;
        }
        let bucket = (before & !HEAD) as usize;
        self.heads[bucket] = next;
        if next == NONE {
            self.occupied[bucket / BUCKETS] &= !(1 << (bucket % BUCKETS));
        }
    }

    /// The first bucket that is not empty, and its tick. Lower levels come first: the slots of a
    /// level have the higher digits of the cursor.
    fn first(&self) -> Option<(usize, u64)> {
        let level = self.occupied.iter().position(|occupied| *occupied != 0)?;
        let digit = self.occupied[level].trailing_zeros();
        let shift = level as u32 * DIGIT_BITS;
        let higher = self.cursor >> shift >> DIGIT_BITS << DIGIT_BITS;
        Some((level * BUCKETS + digit as usize, (higher | u64::from(digit)) << shift))
    }
}

/// How late a slot may be due, in nanoseconds.
pub(crate) const GRANULARITY: u64 = 1 << TICK_BITS;
/// The bits of a time within its tick.
const TICK_BITS: u32 = 20;
/// The bits of a tick that a level has.
const DIGIT_BITS: u32 = 6;
const DIGIT: u64 = (1 << DIGIT_BITS) - 1;
const BUCKETS: usize = 1 << DIGIT_BITS;
/// Enough for all bits of a tick.
const LEVELS: usize = (u64::BITS - TICK_BITS).div_ceil(DIGIT_BITS) as usize;
/// The bucket that is being taken apart: its time has come.
const COME: usize = LEVELS * BUCKETS;

/// No time.
const NEVER: u64 = u64::MAX;
/// Times from here on are never: the tick after theirs is none of the clock.
const LAST: u64 = NEVER - (GRANULARITY - 1);
/// No slot.
const NONE: u32 = u32::MAX;
/// Of the first slot in a bucket, in place of the slot before.
const HEAD: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const SLOTS: u32 = 24;
    const MILLISECOND: u64 = 1_000_000;
    const HOUR: u64 = 3_600_000 * MILLISECOND;

    /// All slots that are due now.
    fn due(wheel: &mut Wheel, now: u64) -> Vec<u32> {
        let mut looks = u32::MAX;
        core::iter::from_fn(|| wheel.due(now, &mut looks)).collect()
    }

    #[test]
    fn a_slot_is_due_at_its_time_and_once() {
        let mut wheel = Wheel::new(2);
        for at in [5 * MILLISECOND, 80 * MILLISECOND, 9 * HOUR, 9_000 * HOUR] {
            wheel.arm(1, at);
            assert!(wheel.next() <= at);
            assert_eq!(due(&mut wheel, at - GRANULARITY), []);
            assert_eq!(due(&mut wheel, at), [1]);
            assert_eq!(due(&mut wheel, at + 1), []);
            assert_eq!(wheel.next(), NEVER);
        }
    }

    #[test]
    fn a_slot_that_is_looked_at_too_early_is_late_by_less_than_a_tick() {
        let mut wheel = Wheel::new(1);
        let at = 7 * GRANULARITY + 5;
        wheel.arm(0, at);
        assert_eq!(due(&mut wheel, at - 1), []);
        assert_eq!(wheel.next(), 8 * GRANULARITY);
        assert_eq!(due(&mut wheel, 8 * GRANULARITY), [0]);
    }

    #[test]
    fn times_of_the_past_are_due_and_the_last_of_the_clock_never() {
        let mut wheel = Wheel::new(4);
        assert_eq!(due(&mut wheel, HOUR), []);
        for (slot, at) in [0, 1, HOUR - 1, HOUR].into_iter().enumerate() {
            wheel.arm(slot as u32, at);
        }
        assert!(wheel.next() <= HOUR);
        assert_eq!(due(&mut wheel, HOUR), [3, 2, 1, 0]);
        wheel.arm(0, u64::MAX);
        assert_eq!(wheel.next(), NEVER, "that is never");
        wheel.arm(1, LAST - 1);
        wheel.arm(2, LAST);
        assert_eq!(due(&mut wheel, LAST - 1), [1]);
        assert_eq!(due(&mut wheel, u64::MAX), []);
        wheel.arm(3, 0);
        assert_eq!(due(&mut wheel, u64::MAX), [3]);
    }

    #[test]
    fn a_slot_that_is_armed_again_and_again_is_moved_when_its_bucket_comes() {
        let mut wheel = Wheel::new(1);
        wheel.arm(0, 100 * GRANULARITY);
        for later in 1..1000 {
            wheel.arm(0, (100 + later) * GRANULARITY);
            assert_eq!(wheel.next(), 64 * GRANULARITY, "it has not moved");
        }
        let (mut moves, mut at) = (0, 0);
        while at < 1099 {
            at = wheel.next() / GRANULARITY;
            let is_due = !due(&mut wheel, at * GRANULARITY).is_empty();
            assert_eq!(is_due, at == 1099, "{at}");
            moves += 1;
        }
        assert!(moves <= LEVELS, "{moves}");
    }

    #[test]
    fn few_looks_continue_where_the_last_ended() {
        let mut wheel = Wheel::new(10_000);
        for slot in 0..10_000 {
            wheel.arm(slot, 200 * GRANULARITY + u64::from(slot % 7));
        }
        let (mut ended, mut calls) = (Vec::new(), 0);
        for now in [192, 201].map(|tick| tick * GRANULARITY) {
            while now >= wheel.next() {
                let mut looks = 100;
                ended.extend(core::iter::from_fn(|| wheel.due(now, &mut looks)));
                calls += 1;
            }
        }
        // Each moves to the lowest level, and is due; the last call of both sees that this is all.
        assert_eq!(calls, 202);
        ended.sort_unstable();
        assert!(ended.into_iter().eq(0..10_000));
    }

    /// Any time, most of them near `now`.
    fn time() -> impl Strategy<Value = (bool, u64)> {
        let near = (0_u32..50, any::<u64>()).prop_map(|(bits, any)| any & ((2 << bits) - 1));
        prop_oneof![
            3 => near.prop_map(|after| (true, after)),
            1 => any::<u64>().prop_map(|at| (false, at)),
            1 => Just((true, 0)),
            1 => prop_oneof![Just(0), Just(u64::MAX), Just(LAST), Just(LAST - 1)]
                .prop_map(|at| (false, at)),
        ]
    }

    #[derive(Debug, Clone)]
    enum Op {
        Arm(u32, (bool, u64)),
        Disarm(u32),
        /// The clock goes on, and this many slots are looked at.
        Look(u64, u32),
        /// To the time that the wheel names.
        Next,
    }

    fn op() -> impl Strategy<Value = Op> {
        let step = (0_u32..45, any::<u64>()).prop_map(|(bits, any)| any & ((2 << bits) - 1));
        let looks = prop_oneof![0_u32..4, Just(u32::MAX)];
        prop_oneof![
            5 => (0..SLOTS, time()).prop_map(|(slot, time)| Op::Arm(slot, time)),
            1 => (0..SLOTS).prop_map(Op::Disarm),
            2 => (step, looks).prop_map(|(step, looks)| Op::Look(step, looks)),
            2 => Just(Op::Next),
        ]
    }

    /// What is armed, and what has to be due.
    struct Model {
        wheel: Wheel,
        armed: BTreeMap<u32, u64>,
        now: u64,
    }

    impl Model {
        fn look(&mut self, mut looks: u32) {
            let looks_before = looks;
            while let Some(slot) = self.wheel.due(self.now, &mut looks) {
                let at = self.armed.remove(&slot).expect("it is armed");
                assert!(at <= self.now, "{slot} is due at {at}, not at {}", self.now);
            }
            if looks > 0 && looks_before > 0 {
                assert!(self.wheel.next() > self.now.min(LAST), "nothing is left to do");
                let tick = self.now >> TICK_BITS;
                let late = self.armed.iter().find(|(_, at)| *at >> TICK_BITS < tick);
                assert_eq!(late, None, "at {}", self.now);
            }
            self.check();
        }

        fn check(&self) {
            for (slot, at) in self.armed.iter().filter(|(_, at)| **at < LAST) {
                let by = (*at).max(self.now) | (GRANULARITY - 1);
                assert!(self.wheel.next() <= by.saturating_add(1), "{slot} at {at}");
            }
            let linked = self.wheel.timers.iter().filter(|timer| timer.look != NEVER);
            let in_lists = self.wheel.heads.iter().flat_map(|&head| {
                let next = |slot: &u32| Some(self.wheel.timers[*slot as usize].next);
                let first = Some(head).filter(|head| *head != NONE);
                core::iter::successors(first, move |slot| next(slot).filter(|it| *it != NONE))
            });
            assert_eq!(linked.count(), in_lists.count());
        }
    }

    proptest! {
        #[test]
        fn the_wheel_behaves_as_a_map_of_times(
            start in prop_oneof![Just(0), any::<u64>(), 0..HOUR],
            ops in proptest::collection::vec(op(), 0..200),
        ) {
            let mut it = Model { wheel: Wheel::new(SLOTS), armed: BTreeMap::new(), now: start };
            for op in ops {
                match op {
                    Op::Arm(slot, (is_near, time)) => {
                        let at = if is_near { it.now.saturating_add(time) } else { time };
                        it.wheel.arm(slot, at);
                        it.armed.insert(slot, at);
                        if at >= LAST {
                            it.armed.remove(&slot);
                        }
                    }
                    Op::Disarm(slot) => {
                        it.wheel.disarm(slot);
                        it.armed.remove(&slot);
                    }
                    Op::Look(step, looks) => {
                        it.now = it.now.saturating_add(step);
                        it.look(looks);
                    }
                    Op::Next => {
                        if it.wheel.next() != NEVER {
                            it.now = it.now.max(it.wheel.next());
                        }
                        it.look(u32::MAX);
                    }
                }
                it.check();
            }
        }
    }
}
