//! The example over every way that its messages can travel.

use rpcrdma_engine::Config;

use super::{Seen, show};

/// The profile `laptop` with some lines changed.
fn changed(lines: &str) -> Config {
    let overlay = Config::parse(lines).unwrap_or_else(|error| panic!("{lines}: {error}"));
    let mut raw = overlay.raw().clone();
    raw.engine.idle.policy = "backoff".into();
    Config::try_from(raw).expect("idling is always possible")
}

fn shown(lines: &str) -> Seen {
    show(changed(lines)).unwrap_or_else(|error| panic!("{lines}: {error}"))
}

/// What is seen does not depend on the way, except for where the data came.
fn assert_same(seen: &Seen) {
    assert_eq!((seen.size, seen.link.as_str()), (200_000, "/export/target"));
}

#[test]
fn data_are_placed_by_send_where_both_ends_can() {
    let seen = shown("[explicit]\nenabled = false");
    assert_same(&seen);
    // Five blocks each way; the path is shorter than wanted, and the read behind the end is empty.
    assert_eq!((seen.placed_arguments, seen.placed_results), (5, 5));
}

#[test]
fn data_travel_in_the_stream_where_nothing_can_be_placed() {
    let seen = shown(
        "[explicit]\nenabled = false\n[features]\nplacement = false\n\
         [receive]\ninline = \"64KiB\"\nplacement = { count = 0 }\n",
    );
    assert_same(&seen);
    assert_eq!((seen.placed_arguments, seen.placed_results), (0, 0));
}

#[test]
fn data_are_continued_where_one_buffer_does_not_hold_them() {
    let seen = shown(
        "[explicit]\nenabled = false\n\
         [receive]\nplacement = { count = 1, length = \"16KiB\" }\n",
    );
    assert_same(&seen);
    assert_eq!((seen.placed_arguments, seen.placed_results), (5, 5));
}
