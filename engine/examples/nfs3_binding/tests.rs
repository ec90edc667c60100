//! The example over every way that its messages can travel.

use rpcrdma_engine::Config;

use super::{Ask, Seen, show};

/// The profile `laptop` with some lines changed.
fn changed(lines: &str) -> Config {
    let overlay = Config::parse(lines).unwrap_or_else(|error| panic!("{lines}: {error}"));
    let mut raw = overlay.raw().clone();
    raw.engine.idle.policy = "backoff".into();
    Config::try_from(raw).expect("idling is always possible")
}

fn shown(lines: &str, ask: Ask) -> Seen {
    show(changed(lines), ask).unwrap_or_else(|error| panic!("{ask:?}: {lines}: {error}"))
}

/// What is seen does not depend on the way, except for where the data came.
fn assert_same(seen: &Seen) {
    assert_eq!((seen.size, seen.link.as_str()), (200_000, "/export/target"));
}

#[test]
fn data_are_placed_by_send_where_both_ends_can() {
    let seen = shown("[explicit]\nenabled = false", Ask::Apart);
    assert_same(&seen);
    // Five blocks each way; the path is shorter than wanted, and the read behind the end is empty.
    assert_eq!((seen.placed_arguments, seen.results.placed), (5, 5));
}

#[test]
fn data_travel_in_the_stream_where_nothing_can_be_placed() {
    let seen = shown(
        "[explicit]\nenabled = false\n[features]\nplacement = false\n\
         [receive]\ninline = \"64KiB\"\nplacement = { count = 0 }\n",
        Ask::Apart,
    );
    assert_same(&seen);
    assert_eq!((seen.placed_arguments, seen.results.placed), (0, 0));
}

#[test]
fn data_are_continued_where_one_buffer_does_not_hold_them() {
    let seen = shown(
        "[explicit]\nenabled = false\n\
         [receive]\nplacement = { count = 1, length = \"16KiB\" }\n",
        Ask::Apart,
    );
    assert_same(&seen);
    assert_eq!((seen.placed_arguments, seen.results.placed), (5, 5));
}

/// Base messages with chunks: 40 000 bytes fit no message in line.
const VERSION_ONE: &str = "[protocol]\nversion = \"one\"\n";
const BASE_OF_TWO: &str = "[protocol]\nversion = \"two\"\n\
     [features]\nplacement = false\ncontinuation = false\n\
     [receive]\ninline = \"8KiB\"\nplacement = { count = 0 }\n";
/// The extension, with nothing that data could be placed in by Send.
const NOT_BY_SEND: &str = "[receive]\ninline = \"8KiB\"\nplacement = { count = 0 }\n";

#[test]
fn data_are_read_and_written_by_chunks_in_both_versions() {
    for lines in [VERSION_ONE, BASE_OF_TWO] {
        for ask in [Ask::Apart, Ask::Into, Ask::Either, Ask::BySize(20_000), Ask::BySize(40_000)] {
            let seen = shown(lines, ask);
            assert_same(&seen);
            assert_eq!((seen.placed_arguments, seen.reads), (5, 5), "{ask:?}: {lines}");
            // A Write chunk states no least length: the path goes where it is offered one.
            let results = if matches!(ask, Ask::Into) { 6 } else { 5 };
            let placed = (seen.results.placed, seen.writes);
            assert_eq!(placed, (results, results), "{ask:?}: {lines}");
            let has_sinks = !matches!(ask, Ask::Apart);
            assert_eq!(seen.results.sinks >= 5, has_sinks, "{ask:?}: {lines}");
        }
    }
}

#[test]
fn data_are_read_and_written_where_they_cannot_be_placed_by_send() {
    for ask in [Ask::Apart, Ask::Into, Ask::Either, Ask::BySize(20_000), Ask::BySize(40_000)] {
        let seen = shown(NOT_BY_SEND, ask);
        assert_same(&seen);
        assert_eq!((seen.placed_arguments, seen.reads), (5, 5), "{ask:?}");
        // A result that has no sink comes in the stream, by continuation.
        let results = if matches!(ask, Ask::Apart) { 0 } else { 5 };
        assert_eq!((seen.results.placed, seen.writes), (results, results), "{ask:?}");
    }
}

#[test]
fn results_are_written_to_sinks_where_that_is_wanted_of_the_extension() {
    for (ask, writes) in [
        (Ask::Apart, 0),
        (Ask::Into, 5),
        (Ask::Either, 0),
        (Ask::BySize(39_999), 5),
        (Ask::BySize(40_000), 0),
    ] {
        let seen = shown("", ask);
        assert_same(&seen);
        assert_eq!((seen.placed_arguments, seen.reads), (5, 0), "{ask:?}");
        // The path is shorter than wanted, and the read behind the end has nothing.
        assert_eq!((seen.results.placed, seen.writes), (5, writes), "{ask:?}");
        assert_eq!(seen.results.sinks > 0, !matches!(ask, Ask::Apart), "{ask:?}");
    }
}
