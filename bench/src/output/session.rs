//! The session of a mode: announcements and progress.

use std::io::{Write, stdout};
use std::time::Duration;

use crate::args::{Format, OutputArgs};
use crate::error::BenchError;
use crate::output;
use crate::output::progress::Progress;

/// One run of the program, as far as a mode has to know it.
#[derive(Debug, Clone, Copy)]
pub struct Session {
    announces: bool,
    quiet: bool,
}

impl Session {
    pub fn new(output: &OutputArgs) -> Session {
        Session { announces: output::format(output) == Format::Table, quiet: output.quiet }
    }

    /// For a run that is a part of another one, which says itself what it does.
    pub fn silent() -> Session {
        Session { announces: false, quiet: true }
    }

    /// Says what is going to be measured, before it is.
    pub fn announce(&self, sentence: &str) -> Result<(), BenchError> {
        if self.announces { say(&format!("{sentence}\n")) } else { Ok(()) }
    }

    /// Progress of so many steps that take about so long together.
    pub fn progress(&self, steps: u32, expected: Duration) -> Progress {
        Progress::new(steps, expected, self.quiet)
    }
}

/// Writes to the standard output; a reader that has gone away, as `head` does, is an error and not
/// a panic.
pub fn say(text: &str) -> Result<(), BenchError> {
    let mut out = stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|source| BenchError::Write { path: "the standard output".into(), source })
}
