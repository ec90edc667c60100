//! The state of a connection on both sides, before messages are exchanged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The state of a connection that both sides share before messages are exchanged.
///
/// The accepting side may post at once, but the other may not have attached its queue pair yet. As
/// with the ready-to-use message of a real connection manager, its requests wait until the other
/// side has.
pub struct Conn {
    sides: [AtomicU32; 2],
}

/// The progress of one side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Progress {
    /// Its endpoint is not attached yet.
    Made = 0,
    /// Its queue pair can receive.
    Attached = 1,
    /// It was attached and is gone; its earlier requests may still arrive.
    Left = 2,
    /// It is gone and was never attached.
    Dropped = 3,
}

impl Conn {
    /// A connection whose sides are not attached.
    pub fn new() -> Arc<Conn> {
        Arc::new(Conn { sides: [const { AtomicU32::new(Progress::Made as u32) }; 2] })
    }

    /// The progress of a side.
    pub fn progress(&self, side: usize) -> Progress {
        match self.sides[side].load(Ordering::Acquire) {
            0 => Progress::Made,
            1 => Progress::Attached,
            2 => Progress::Left,
            _ => Progress::Dropped,
        }
    }

    /// Sets the progress of this side.
    pub fn set(&self, side: usize, progress: Progress) {
        self.sides[side].store(progress as u32, Ordering::Release);
    }
}
