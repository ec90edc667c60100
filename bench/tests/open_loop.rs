//! The generator of the open loop allocates nothing while it runs, however many calls are due or
//! wait.

use std::cell::Cell;
use std::time::Duration;

use rpcrdma_bench::alloc::{Counting, count};
use rpcrdma_bench::contenders::arrivals::Law;
use rpcrdma_bench::contenders::open::{Offer, OpenRound, System, drive};
use rpcrdma_bench::error::BenchError;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Answers each call in the poll after next, and none while it is to stall.
struct Server<'a> {
    time: &'a Cell<u64>,
    under_way: [Option<u64>; 4],
    stalls: std::ops::Range<u64>,
}

impl System for Server<'_> {
    fn begin(&mut self, mark: u64) -> Result<bool, BenchError> {
        let free = self.under_way.iter_mut().find(|slot| slot.is_none());
        Ok(free.map(|slot| *slot = Some(mark)).is_some())
    }

    fn poll(&mut self, ended: impl FnMut(u64)) -> Result<(), BenchError> {
        self.time.set(self.time.get() + 100);
        if !self.stalls.contains(&self.time.get()) {
            self.under_way.iter_mut().filter_map(Option::take).for_each(ended);
        }
        Ok(())
    }

    fn under_way(&self) -> u64 {
        self.under_way.iter().flatten().count() as u64
    }
}

/// A round of so many calls in virtual time, and what was allocated for it.
fn round(count_max: u64, stalls: std::ops::Range<u64>) -> (OpenRound, u64) {
    let time = Cell::new(0);
    let mut server = Server { time: &time, under_way: [None; 4], stalls };
    let (warm_up, time_max) = (Duration::ZERO, Duration::from_secs(10));
    let offer = Offer { law: Law::Poisson, rate: 1e6, seed: 3, warm_up, time: time_max, count_max };
    let (round, allocations) = count(|| drive(&mut server, &offer, &|| time.get()));
    (round.expect("nothing fails"), allocations.made + allocations.freed)
}

#[test]
fn many_calls_and_a_long_backlog_take_no_more_memory_than_a_few() {
    // The first round allocates what is allocated once.
    round(1, 0..0);
    let (few, of_few) = round(10, 0..0);
    let (many, of_many) = round(100_000, 5_000_000..25_000_000);
    assert_eq!((few.completed, many.completed), (10, 100_000));
    assert!(many.backlog_max > 10_000, "{}", many.backlog_max);
    assert!(of_few > 0, "the histograms are counted");
    assert_eq!(of_many, of_few);
}
