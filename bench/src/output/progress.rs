//! Progress on a terminal.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// A line on the terminal that says how far the run is, and how long it will take.
#[derive(Debug)]
pub struct Progress {
    total: u32,
    expected: Duration,
    began: Instant,
    shown: bool,
}

impl Progress {
    /// Shows itself if the standard error is a terminal and the run is expected to take more than
    /// two seconds. `total` is the number of steps.
    pub fn new(total: u32, expected: Duration, quiet: bool) -> Progress {
        let wanted = !quiet && expected > PATIENCE && total > 0;
        let shown = wanted && stderr().is_terminal();
        let progress = Progress { total, expected, began: Instant::now(), shown };
        progress.step(0);
        progress
    }

    /// Says that `done` steps are done. Between rounds only: it writes to the terminal.
    pub fn step(&self, done: u32) {
        if self.shown {
            let left = left(self.expected, self.began.elapsed(), done, self.total);
            // A terminal that is gone is no reason to lose a measurement.
            let _ = write!(stderr(), "\r{:WIDTH$}", line(done, self.total, left));
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

/// The time that is left: by what was expected, and once a step is done by what steps have taken.
fn left(expected: Duration, elapsed: Duration, done: u32, total: u32) -> Duration {
    if done == 0 {
        return expected.saturating_sub(elapsed);
    }
    elapsed.mul_f64(f64::from(total.saturating_sub(done)) / f64::from(done))
}

fn line(done: u32, total: u32, left: Duration) -> String {
    let filled = (BAR as u64 * u64::from(done.min(total)) / u64::from(total.max(1))) as usize;
    // Rounded up: a run may end early.
    let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
    let left = match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    };
    format!("[{:BAR$}] {done} of {total}, {left} left", "=".repeat(filled))
}

const PATIENCE: Duration = Duration::from_secs(2);
const BAR: usize = 40;
const WIDTH: usize = BAR + 39;

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_bar_fills_with_the_steps_and_says_what_is_left() {
        let at = |done, left| line(done, 10, seconds(left));
        assert_eq!(at(0, 20), format!("[{}] 0 of 10, 20 s left", " ".repeat(40)));
        let half = format!("[{}{}] 5 of 10, 1 min 05 s left", "=".repeat(20), " ".repeat(20));
        assert_eq!(at(5, 65), half);
        assert_eq!(at(10, 0), format!("[{}] 10 of 10, 0 s left", "=".repeat(40)));
        assert!(at(1, 7260).ends_with("2 h 01 min left"));
        assert!(line(1, 10, Duration::from_millis(1)).ends_with("1 s left"));
    }

    #[test]
    fn the_time_left_is_what_was_expected_until_a_step_has_shown_better() {
        assert_eq!(left(seconds(10), seconds(1), 0, 10), seconds(9));
        assert_eq!(left(seconds(10), seconds(30), 0, 10), seconds(0));
        assert_eq!(left(seconds(10), seconds(8), 2, 10), seconds(32));
        assert_eq!(left(seconds(10), seconds(8), 10, 10), seconds(0));
        assert_eq!(left(seconds(10), seconds(8), 11, 10), seconds(0));
    }

    #[test]
    fn every_line_covers_the_one_before() {
        assert!(line(10_000, 10_000, seconds(86_399)).len() <= WIDTH);
    }

    #[test]
    fn a_short_run_and_a_quiet_one_show_nothing() {
        assert!(!Progress::new(10, Duration::from_secs(1), false).shown);
        assert!(!Progress::new(10, Duration::from_secs(10), true).shown);
    }
}
