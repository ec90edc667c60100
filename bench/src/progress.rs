//! Progress on the terminal of a person who waits; nothing anywhere else.

use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

/// A line on the terminal that says how far the run is.
#[derive(Debug)]
pub struct Progress {
    total: u32,
    shown: bool,
}

impl Progress {
    /// Shows itself if the standard error is a terminal and the run is expected to take more than
    /// two seconds. `total` is the number of steps.
    pub fn new(total: u32, expected: Duration, quiet: bool) -> Progress {
        let wanted = !quiet && expected > PATIENCE && total > 0;
        Progress { total, shown: wanted && stderr().is_terminal() }
    }

    /// Says that `done` steps are done. Between rounds only: it writes to the terminal.
    pub fn step(&self, done: u32) {
        if self.shown {
            // A terminal that is gone is no reason to lose a measurement.
            let _ = write!(stderr(), "\r{}", line(done, self.total));
            let _ = stderr().flush();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(stderr(), "\r{:WIDTH$}\r", "");
            let _ = stderr().flush();
        }
    }
}

fn line(done: u32, total: u32) -> String {
    let filled = (BAR as u64 * u64::from(done.min(total)) / u64::from(total.max(1))) as usize;
    format!("[{:BAR$}] {done} of {total}", "=".repeat(filled))
}

/// Shorter runs need no progress.
const PATIENCE: Duration = Duration::from_secs(2);
const BAR: usize = 40;
const WIDTH: usize = BAR + 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills_with_the_steps() {
        assert_eq!(line(0, 10), format!("[{}] 0 of 10", " ".repeat(40)));
        assert_eq!(line(5, 10), format!("[{}{}] 5 of 10", "=".repeat(20), " ".repeat(20)));
        assert_eq!(line(10, 10), format!("[{}] 10 of 10", "=".repeat(40)));
    }

    #[test]
    fn a_short_run_and_a_quiet_one_show_nothing() {
        assert!(!Progress::new(10, Duration::from_secs(1), false).shown);
        assert!(!Progress::new(10, Duration::from_secs(10), true).shown);
    }
}
