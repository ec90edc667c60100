//! A checksum of a file that may be taken block by block, in any order, whatever the block length.

/// The sum, modulo 2^64, of a mix of every 16 bytes with the place that they have in the file.
///
/// Not cryptographic. It finds a byte that changed and a block that is missing, doubled or in the
/// wrong place. Some 16 bytes per multiplication: faster than the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checksum(u64);

impl Checksum {
    /// Adds what was found in another part of the file.
    pub fn add(&mut self, other: Checksum) {
        self.0 = self.0.wrapping_add(other.0);
    }
}

impl std::fmt::Display for Checksum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Takes the checksum of a block that comes in pieces.
#[derive(Debug)]
pub struct Summing {
    sum: u64,
    /// Where in the file the next 16 bytes are, divided by 16.
    place: u64,
    /// Bytes that are not 16 yet.
    rest: [u8; LANE],
    rest_len: usize,
}

impl Summing {
    /// A block that begins at `offset`, a multiple of 16.
    pub fn at(offset: u64) -> Summing {
        debug_assert!(offset.is_multiple_of(LANE as u64), "blocks begin at multiples of 16");
        Summing { sum: 0, place: offset / LANE as u64, rest: [0; LANE], rest_len: 0 }
    }

    /// Takes the next piece in.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        if self.rest_len > 0 {
            let take = bytes.len().min(LANE - self.rest_len);
            let (now, later) = bytes.split_at(take);
            self.rest[self.rest_len..self.rest_len + take].copy_from_slice(now);
            self.rest_len += take;
            if self.rest_len < LANE {
                return;
            }
            self.rest_len = 0;
            let lane = self.rest;
            self.mix(&lane);
            bytes = later;
        }
        let (lanes, rest) = bytes.as_chunks();
        lanes.iter().for_each(|lane| self.mix(lane));
        self.rest[..rest.len()].copy_from_slice(rest);
        self.rest_len = rest.len();
    }

    /// The checksum. Zeros and the length stand for what is missing to 16 bytes at the end.
    pub fn finish(mut self) -> Checksum {
        if self.rest_len > 0 {
            self.rest[self.rest_len..].fill(0);
            let (lane, len) = (self.rest, self.rest_len as u64);
            self.mix(&lane);
            self.sum = self.sum.wrapping_add(len.wrapping_mul(LEFT));
        }
        Checksum(self.sum)
    }

    /// Half of a product depends on every bit of both factors; the place is in both.
    fn mix(&mut self, lane: &[u8; LANE]) {
        let (left, right) = lane.split_at(LANE / 2);
        let word = |half: &[u8]| half.try_into().map_or(0, u64::from_le_bytes);
        let key = self.place.wrapping_mul(STEP);
        let product = u128::from(word(left) ^ LEFT.wrapping_add(key))
            * u128::from(word(right) ^ RIGHT.wrapping_sub(key));
        self.sum = self.sum.wrapping_add(product as u64 ^ (product >> 64) as u64);
        self.place += 1;
    }
}

/// Bytes that are mixed at once.
const LANE: usize = 16;
/// Odd numbers with as many ones as zeros, from the digits of the golden ratio and of pi.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const LEFT: u64 = 0x243f_6a88_85a3_08d3;
const RIGHT: u64 = 0x1319_8a2e_0370_7345;

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(offset: u64, bytes: &[u8]) -> Checksum {
        let mut summing = Summing::at(offset);
        summing.feed(bytes);
        summing.finish()
    }

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 31 + at / 13) as u8).collect()
    }

    #[test]
    fn pieces_and_order_do_not_matter() {
        let bytes = bytes(1003);
        let whole = sum(0, &bytes);
        for cut in [0, 1, 15, 16, 17, 500, 1003] {
            let mut summing = Summing::at(0);
            summing.feed(&bytes[..cut]);
            summing.feed(&bytes[cut..]);
            assert_eq!(summing.finish(), whole, "cut at {cut}");
        }
        let mut parts = sum(512, &bytes[512..]);
        parts.add(sum(0, &bytes[..512]));
        assert_eq!(parts, whole);
    }

    #[test]
    fn every_byte_and_every_place_matters() {
        let bytes = bytes(100);
        let whole = sum(0, &bytes);
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_ne!(sum(0, &other), whole, "byte {at}");
        }
        assert_ne!(sum(16, &bytes), whole);
        assert_ne!(sum(0, &bytes[..99]), whole);
        assert_ne!(sum(0, &[0; 15]), sum(0, &[0; 14]), "zeros at the end count");
        let (left, right) = bytes.split_at(48);
        assert_ne!(sum(0, &[right, left].concat()), whole);
    }
}
