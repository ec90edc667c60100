//! Numbers that do not look like their neighbours: first xids, and parts of delays.

/// Maps neighbouring numbers to distant ones (the last step of SplitMix64).
pub(crate) fn scattered(number: u64) -> u32 {
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed >> 32) as u32
}
