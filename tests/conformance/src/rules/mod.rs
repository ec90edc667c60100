//! The rules: in each file those of one subject.

pub(crate) mod acks;
pub(crate) mod connections;
pub(crate) mod exposed;
pub(crate) mod messages;
pub(crate) mod model;
pub(crate) mod remote;
pub(crate) mod remote_model;
pub(crate) mod remote_threads;
pub(crate) mod teardown;
pub(crate) mod threads;
pub(crate) mod windows;

use proptest::test_runner::Config;

/// So many generated cases, beside those that have failed before: they are in a file beside that of
/// the test.
fn cases(cases: u32, source_file: &'static str) -> Config {
    let cases = if cfg!(miri) { 2 } else { cases };
    Config { cases, source_file: Some(source_file), ..Config::default() }
}
