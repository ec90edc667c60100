//! A global allocator that counts the allocations and the bytes of a thread.
#![expect(unsafe_code, reason = "an allocator is made of unsafe functions")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator with counters, for the `#[global_allocator]` of a test.
pub struct Counting;

thread_local! {
    /// Whether this thread counts, and what it has counted.
    static COUNT: Cell<(bool, u64)> = const { Cell::new((false, 0)) };
    /// Bytes that this thread has allocated and not freed.
    static HELD: Cell<i64> = const { Cell::new(0) };
}

/// The number of allocations and deallocations that `work` does on this thread.
pub fn count(work: impl FnOnce()) -> u64 {
    COUNT.set((true, 0));
    work();
    COUNT.replace((false, 0)).1
}

/// The bytes that `work` allocates on this thread and does not free, without those of its result.
pub fn held<T>(work: impl FnOnce() -> T) -> (T, i64) {
    let before = HELD.get();
    let result = work();
    (result, HELD.get() - before)
}

fn note(bytes: i64) {
    // An ending thread has no counter any more, and no test reads it.
    let _ = HELD.try_with(|held| held.set(held.get() + bytes));
    let _ = COUNT.try_with(|count| {
        let (counts, so_far) = count.get();
        count.set((counts, so_far + u64::from(counts)));
    });
}

// SAFETY: every call is handed on to the allocator of the system, as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as i64);
        // SAFETY: the caller keeps the promises of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as i64);
        // SAFETY: the caller keeps the promises of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        note(new_size as i64 - layout.size() as i64);
        // SAFETY: the caller keeps the promises of `realloc`.
        unsafe { System.realloc(block, layout, new_size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note(-(layout.size() as i64));
        // SAFETY: the caller keeps the promises of `dealloc`.
        unsafe { System.dealloc(block, layout) }
    }
}
