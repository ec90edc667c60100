//! The session of a mode: announcements and progress.

use std::time::Duration;

use super::files::{format, say};
use super::progress::Progress;
use crate::error::BenchError;
use crate::output::{Format, OutputArgs, Report};

/// One run of the program, as far as a mode has to know it.
#[derive(Debug, Clone, Copy)]
pub struct Session {
    announces: bool,
    quiet: bool,
    pub modes: Modes,
}

/// The modes of the program, for one that runs others: whether a word is one, and the result of a
/// mode with options.
#[derive(Debug, Clone, Copy)]
pub struct Modes {
    pub has: fn(&str) -> bool,
    pub run: fn(&str) -> Result<Report, BenchError>,
}

impl Modes {
    /// For what runs no others.
    pub const NONE: Modes =
        Modes { has: |_| false, run: |words| Err(BenchError::Usage(words.into())) };
}

impl Session {
    pub fn new(output: &OutputArgs, modes: Modes) -> Session {
        Session { announces: format(output) == Format::Table, quiet: output.quiet, modes }
    }

    /// For a run that is a part of another one, which says itself what it does.
    pub fn silent() -> Session {
        Session { announces: false, quiet: true, modes: Modes::NONE }
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
