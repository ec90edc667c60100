//! How far it is, on a terminal and only there.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Says how far something is that takes longer than two seconds.
#[derive(Debug)]
pub struct Progress {
    what: &'static str,
    total: u64,
    done: u64,
    /// When the next line is due; `None` if nobody would see it.
    due: Option<Instant>,
    shown: bool,
}

impl Progress {
    /// Of `total` bytes none is done.
    pub fn new(what: &'static str, total: u64) -> Progress {
        let due = std::io::stderr().is_terminal().then(|| Instant::now() + Duration::from_secs(2));
        Progress { what, total, done: 0, due, shown: false }
    }

    /// So many bytes more are done.
    pub fn add(&mut self, len: usize) {
        self.done += len as u64;
        if let Some(due) = self.due
            && Instant::now() >= due
        {
            let percent = 100 * self.done / self.total.max(1);
            // A terminal that is gone does not keep the work from going on.
            let _ = write!(std::io::stderr(), "\r{}: {percent}% ", self.what);
            self.due = Some(Instant::now() + Duration::from_millis(200));
            self.shown = true;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r{:30}\r", "");
        }
    }
}
