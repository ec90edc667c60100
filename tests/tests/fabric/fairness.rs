//! Equal clients are treated alike, and none waits long: 64 shards and 1000 clients in virtual time.

use rpcrdma_tests::sim::fairness::{Schedule, Seen, Size, WAIT_MAX_NS, run};

fn seen(schedule: Schedule) -> Seen {
    let seen = run(1, Size::LARGE, schedule);
    println!("{schedule:?}: {seen:?}");
    seen
}

#[test]
fn a_thousand_equal_clients_of_64_shards_are_served_alike_and_none_waits_long() {
    let seen = seen(Schedule::Equal);
    seen.check().unwrap_or_else(|why| panic!("{why}"));
    // Each has really been served, many times.
    assert!(seen.least_most.0 > 100, "{seen:?}");
    assert!(seen.clients_of_shard.1 - seen.clients_of_shard.0 <= 1, "{seen:?}");
}

/// Credits are granted to those who ask first, and stay with them: shares differ, waits do not.
#[test]
fn clients_of_a_shard_with_half_of_the_credits_all_go_on() {
    let size = Size { shards: 8, clients: 128, steps: 200, is_scarce: true };
    let seen = run(1, size, Schedule::Equal);
    println!("half of the credits: {seen:?}");
    assert!(seen.longest_ns <= WAIT_MAX_NS && seen.least_most.0 > 10, "{seen:?}");
}

/// The check is one: a schedule that neglects every fourth client is found out.
#[test]
fn clients_that_are_polled_less_are_seen_as_treated_unfairly() {
    let why = seen(Schedule::Slow).check().expect_err("it is unfair");
    assert!(why.starts_with("unfair: Jain's index is 0."), "{why}");
}

/// One of a thousand does not change the index, and is found out by its wait.
#[test]
fn one_client_that_is_stalled_is_seen_as_waiting_too_long() {
    let why = seen(Schedule::Stalled).check().expect_err("it waits");
    assert!(why.starts_with("a client waited "), "{why}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let small = Size { shards: 3, clients: 40, steps: 100, is_scarce: false };
    let of = |seed| run(seed, small, Schedule::Equal);
    assert_eq!(of(7), of(7));
    assert_ne!(of(7), of(8));
}
