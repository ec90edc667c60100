//! Ctrl-C: a run that is asked to end ends early, with what it has measured so far.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether somebody has asked the program to end. Meters and loops over rounds look at it; no loop
/// over single round trips does.
pub fn is_wished() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// Asks the program to end with what it has.
pub fn wish() {
    STOP.store(true, Ordering::Relaxed);
}

static STOP: AtomicBool = AtomicBool::new(false);
