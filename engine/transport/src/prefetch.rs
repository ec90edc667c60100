//! Prefetching of cache lines.
#![cfg_attr(
    all(target_arch = "x86_64", not(miri)),
    expect(unsafe_code, reason = "prefetch instructions take any address")
)]

/// Prefetches the lines of a slot behind the first, which will be read.
#[inline(always)]
pub fn read_behind_first<T>(at: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in LINES {
        let line = std::ptr::from_ref(at).cast::<i8>().wrapping_add(LINE_LEN * line);
        // SAFETY: a prefetch has no visible effect, at any address.
        unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (at, LINES, LINE_LEN);
}

const LINES: std::ops::Range<usize> = 1..4;
const LINE_LEN: usize = 64;
