//! Counters that come round begin shortly before they do.
//!
//! What has 32 bits or fewer comes round in the life of a program, and a mistake about it would show
//! after hours or weeks. So it shows at once: every connection, every run and every test passes the
//! end with traffic under way.

/// Where a counter of so many bits begins that comes round after `uses`.
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
    fn it_comes_round_after_so_many_uses() {
        assert_eq!(shortly_before_end(32, 24).wrapping_add(24), 0);
        assert_eq!(shortly_before_end(30, 1), 0x3fff_ffff);
        assert_eq!(shortly_before_end(8, 255), 1);
    }
}
