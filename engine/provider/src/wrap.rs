//! Wrapping counters start shortly before they wrap.
//!
//! A counter of 32 bits or fewer wraps during the life of a program, and an error in its wrap would
//! appear after hours or weeks. With this start it appears at once: every connection, run and test
//! passes the wrap under traffic.

/// The start value of a counter of `bits` bits that wraps after `uses` increments.
pub const fn shortly_before_end(bits: u32, uses: u32) -> u32 {
    assert!(bits > 0 && bits <= u32::BITS);
    let last = u32::MAX >> (u32::BITS - bits);
    assert!(uses <= last);
    last - uses + 1
}

#[cfg(test)]
mod tests {
    use super::shortly_before_end;

    #[test]
    fn a_counter_wraps_after_the_stated_number_of_uses() {
        assert_eq!(shortly_before_end(32, 24).wrapping_add(24), 0);
        assert_eq!(shortly_before_end(30, 1), 0x3fff_ffff);
        assert_eq!(shortly_before_end(8, 255), 1);
    }
}
