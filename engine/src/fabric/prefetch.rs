//! Asking for cache lines before they are needed.
//!
//! Both ask for the second and third line of what they are given, as much as a short call or reply
//! needs. The first line of a slot is polled by its consumer: taking it away early gains nothing.
#![cfg_attr(
    all(target_arch = "x86_64", not(miri)),
    expect(unsafe_code, reason = "prefetch instructions take any address")
)]

/// Asks for lines that will be read.
#[inline(always)]
pub(super) fn read_behind_first<T>(at: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in LINES {
        let line = std::ptr::from_ref(at).cast::<i8>().wrapping_add(LINE_LEN * line);
        // SAFETY: a prefetch changes nothing that a program can see, whatever the address.
        unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (at, LINES, LINE_LEN);
}

/// Asks for lines that will be written, so that the writing does not wait for their owner.
#[inline(always)]
pub(super) fn write_behind_first<T>(at: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in LINES {
        let line = std::ptr::from_ref(at).cast::<u8>().wrapping_add(LINE_LEN * line);
        // SAFETY: as above; a processor that does not know the instruction takes it for a no-op.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags));
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (at, LINES, LINE_LEN);
}

const LINES: std::ops::Range<usize> = 1..3;
const LINE_LEN: usize = 64;
