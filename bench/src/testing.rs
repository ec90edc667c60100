//! What the unit tests of modes share: a plan, from options as they are typed.

use clap::Parser;

use crate::error::BenchError;

/// The options of a mode as a command of their own.
#[derive(Parser)]
struct Alone<A: clap::Args> {
    #[command(flatten)]
    args: A,
}

/// The options of a mode, as they are typed.
pub(crate) fn parsed<A: clap::Args>(options: &str) -> A {
    let words = ["mode"].into_iter().chain(options.split_whitespace());
    let Ok(Alone { args }) = Alone::<A>::try_parse_from(words) else {
        panic!("it parses: {options}")
    };
    args
}

/// The plan that `new` makes of the options; `None` on a machine with one core, which has none.
pub(crate) fn plan_of<A: clap::Args, P>(
    options: &str,
    new: impl FnOnce(&A) -> Result<P, BenchError>,
) -> Option<Result<P, BenchError>> {
    match new(&parsed(options)) {
        Err(BenchError::OneCore { .. }) => None,
        other => Some(other),
    }
}
