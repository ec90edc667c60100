//! The state of a connection on both sides, before messages are exchanged.
#![expect(unsafe_code, reason = "two processes may share the state")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The state of a connection that both sides share before messages are exchanged.
///
/// The accepting side may post at once, but the other may not have attached its queue pair yet. As
/// with the ready-to-use message of a real connection manager, its requests wait until the other
/// side has.
pub struct Conn(Sides);

/// The progress of both sides.
enum Sides {
    Own([AtomicU32; 2]),
    /// In memory that `_keep` keeps.
    Over {
        words: [NonNull<AtomicU32>; 2],
        _keep: Arc<dyn Send + Sync>,
    },
}

// SAFETY: the words are atomics, which any thread may use as long as the memory is kept, and it is
// kept as long as this.
unsafe impl Send for Sides {}
// SAFETY: as above.
unsafe impl Sync for Sides {}

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
        let made = [const { AtomicU32::new(Progress::Made as u32) }; 2];
        Arc::new(Conn(Sides::Own(made)))
    }

    /// A connection whose progress is in these words, one for each side. Another process may write
    /// anything to them.
    ///
    /// # Safety
    /// They are valid while `keep` lives.
    pub unsafe fn over(keep: Arc<dyn Send + Sync>, words: [NonNull<AtomicU32>; 2]) -> Arc<Conn> {
        Arc::new(Conn(Sides::Over { words, _keep: keep }))
    }

    /// The progress of a side.
    pub fn progress(&self, side: usize) -> Progress {
        match self.word(side).load(Ordering::Acquire) {
            0 => Progress::Made,
            1 => Progress::Attached,
            2 => Progress::Left,
            _ => Progress::Dropped,
        }
    }

    /// Sets the progress of this side.
    pub fn set(&self, side: usize, progress: Progress) {
        self.word(side).store(progress as u32, Ordering::Release);
    }

    fn word(&self, side: usize) -> &AtomicU32 {
        match &self.0 {
            Sides::Own(words) => &words[side],
            // SAFETY: the words are valid as long as this is, as `over` was promised.
            Sides::Over { words, .. } => unsafe { words[side].as_ref() },
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_another_process_are_progress_whatever_they_are() {
        let kept = Arc::new([const { AtomicU32::new(0) }; 2]);
        let words = [NonNull::from(&kept[0]), NonNull::from(&kept[1])];
        // SAFETY: `kept` has them.
        let conn = unsafe { Conn::over(kept.clone(), words) };
        let all = [Progress::Made, Progress::Attached, Progress::Left, Progress::Dropped];
        for (word, progress) in (0..).zip(all) {
            kept[1].store(word, Ordering::Relaxed);
            assert_eq!((conn.progress(0), conn.progress(1)), (Progress::Made, progress));
        }
        for unknown in [4, 5, 1 << 16, u32::MAX] {
            kept[1].store(unknown, Ordering::Relaxed);
            assert_eq!(conn.progress(1), Progress::Dropped, "{unknown}");
        }
        conn.set(0, Progress::Left);
        assert_eq!(kept[0].load(Ordering::Relaxed), Progress::Left as u32);
    }

    #[test]
    fn the_memory_of_the_words_is_kept_as_long_as_the_connection() {
        let kept = Arc::new([const { AtomicU32::new(1) }; 2]);
        let words = [NonNull::from(&kept[0]), NonNull::from(&kept[1])];
        let guard = Arc::downgrade(&kept);
        // SAFETY: `kept` has them.
        let conn = unsafe { Conn::over(kept, words) };
        assert_eq!((guard.strong_count(), conn.progress(1)), (1, Progress::Attached));
        drop(conn);
        assert_eq!(guard.strong_count(), 0);
    }
}
