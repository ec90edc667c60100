//! Ctrl-C ends a run early with the result so far.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Whether the program was asked to end. Loops over rounds check it each time, meters only once in
/// many round trips.
pub fn is_requested() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// The first Ctrl-C or SIGTERM requests an early end, the second one ends the program.
pub fn on_ctrl_c() -> io::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        // In this order: the second signal finds the flag that the first one has set.
        flag::register_conditional_shutdown(signal, ENDED_BY + signal, Arc::clone(&STOP))?;
        flag::register(signal, Arc::clone(&STOP))?;
    }
    Ok(())
}

static STOP: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
/// The exit code that a shell uses for a program ended by a signal.
const ENDED_BY: i32 = 128;
