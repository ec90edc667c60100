//! The allocator of the program: the system's, which counts what a thread allocates while it is
//! requested.
//!
//! A thread that does not count reads one thread-local word per allocation, and the fast path makes
//! no allocations.
#![expect(unsafe_code, reason = "an allocator is made of unsafe functions")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use serde::{Deserialize, Serialize};

/// The allocator of the system, counted. For the `#[global_allocator]` of a program.
#[derive(Debug, Clone, Copy)]
pub struct Counting;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocations {
    /// Allocations, and buffers that were made longer or shorter.
    pub made: u64,
    pub freed: u64,
    pub bytes: u64,
}

thread_local! {
    /// What this thread has counted, if it counts.
    static COUNT: Cell<Option<Allocations>> = const { Cell::new(None) };
}

/// What `work` allocates on this thread. Nothing, if [`Counting`] is not the program's allocator.
pub fn count<T>(work: impl FnOnce() -> T) -> (T, Allocations) {
    COUNT.set(Some(Allocations::default()));
    let value = work();
    (value, COUNT.replace(None).unwrap_or_default())
}

fn note(more: Allocations) {
    // A thread that is ending has no counter left.
    let _ = COUNT.try_with(|count| {
        if let Some(Allocations { made, freed, bytes }) = count.get() {
            count.set(Some(Allocations {
                made: made + more.made,
                freed: freed + more.freed,
                bytes: bytes + more.bytes,
            }));
        }
    });
}

fn made(bytes: usize) -> Allocations {
    Allocations { made: 1, freed: 0, bytes: bytes as u64 }
}

// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(made(layout.size()));
        // SAFETY: the caller keeps the promises of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(made(layout.size()));
        // SAFETY: the caller keeps the promises of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        note(made(new_size));
        // SAFETY: the caller keeps the promises of `realloc`.
        unsafe { System.realloc(block, layout, new_size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note(Allocations { freed: 1, ..Allocations::default() });
        // SAFETY: the caller keeps the promises of `dealloc`.
        unsafe { System.dealloc(block, layout) }
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    /// The allocator by its own functions: that of the test program is another one.
    fn use_once(size: usize) {
        let layout = Layout::from_size_align(size, 8).expect("a layout");
        // SAFETY: the layout has a size.
        let block = unsafe { Counting.alloc(layout) };
        // SAFETY: the block is of this allocator and this layout.
        unsafe { Counting.dealloc(black_box(block), layout) };
    }

    #[test]
    fn what_is_allocated_while_counting_is_counted() {
        let (value, count) = count(|| {
            use_once(100);
            use_once(28);
            7
        });
        assert_eq!(value, 7);
        assert_eq!(count, Allocations { made: 2, freed: 2, bytes: 128 });
    }

    #[test]
    fn nothing_is_counted_before_and_after() {
        use_once(64);
        assert_eq!(count(|| ()).1, Allocations::default());
        use_once(64);
        assert_eq!(count(|| ()).1, Allocations::default());
    }

    #[test]
    fn other_threads_are_not_counted() {
        let work = || std::thread::scope(|scope| drop(scope.spawn(|| use_once(64)).join()));
        assert_eq!(count(work).1, Allocations::default());
    }
}
