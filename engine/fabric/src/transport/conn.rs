//! The state of a connection on both sides, before messages are exchanged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// What both sides of a connection know of each other before a message passes.
///
/// The side that accepted may post at once, but the other may not have attached its queue pair
/// yet: as with the ready-to-use message of a real connection manager, its requests wait until the
/// other side has.
pub(crate) struct Conn {
    sides: [AtomicU32; 2],
}

/// How far one side of a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Progress {
    /// Its endpoint is on its way.
    Made = 0,
    /// Its queue pair can receive.
    Attached = 1,
    /// It was attached and is gone; what it sent before may still come.
    Left = 2,
    /// It is gone and never was attached.
    Dropped = 3,
}

impl Conn {
    pub(crate) fn new() -> Arc<Conn> {
        Arc::new(Conn { sides: [const { AtomicU32::new(Progress::Made as u32) }; 2] })
    }

    pub(crate) fn progress(&self, side: usize) -> Progress {
        match self.sides[side].load(Ordering::Acquire) {
            0 => Progress::Made,
            1 => Progress::Attached,
            2 => Progress::Left,
            _ => Progress::Dropped,
        }
    }

    pub(crate) fn set(&self, side: usize, progress: Progress) {
        self.sides[side].store(progress as u32, Ordering::Release);
    }
}
