//! Connection private data (RFC 8797): eight bytes with the buffer sizes of version-one peers.
//!
//! ```text
//!   0      4        5      6          7
//!   | magic | version | flags | send size | receive size |      RFC 8797 4
//! ```
//! Sizes are counted in KiB, less one: 1 KiB to 256 KiB. They apply to version one only (wire.md
//! P15).

use crate::numbers::{private_data, size};

/// The statements of a peer in its connection request or answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateData {
    /// The sender accepts Send With Invalidate (flag "R").
    pub remote_invalidation: bool,
    /// Bytes of the largest Send the sender will make.
    pub send_size: u32,
    /// Bytes of the largest Send the sender can receive.
    pub recv_size: u32,
}

impl PrivateData {
    /// Smallest size that can be stated, in bytes.
    pub const SIZE_MIN: u32 = 1 << 10;
    /// Largest size that can be stated, in bytes.
    pub const SIZE_MAX: u32 = 256 << 10;

    /// Encodes the eight bytes. A size that is not a multiple of 1 KiB is rounded down; a size
    /// outside the range becomes the nearest valid one.
    #[must_use]
    pub fn encode(&self) -> [u8; size::PRIVATE_DATA] {
        let [m0, m1, m2, m3] = private_data::MAGIC.to_be_bytes();
        let flags =
            if self.remote_invalidation { private_data::FLAG_REMOTE_INVALIDATION } else { 0 };
        [
            m0,
            m1,
            m2,
            m3,
            private_data::VERSION,
            flags,
            encode_size(self.send_size),
            encode_size(self.recv_size),
        ]
    }

    /// Decodes the first eight of `bytes`: connection managers deliver a longer field, padded with
    /// zeros.
    ///
    /// `None` if they are too short, or have another magic or version. That is not an error: the
    /// peer then states nothing. Flags other than "R" are ignored.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let [m0, m1, m2, m3, version, flags, send, recv] =
            *bytes.first_chunk::<{ size::PRIVATE_DATA }>()?;
        if u32::from_be_bytes([m0, m1, m2, m3]) != private_data::MAGIC
            || version != private_data::VERSION
        {
            return None;
        }
        Some(Self {
            remote_invalidation: flags & private_data::FLAG_REMOTE_INVALIDATION != 0,
            send_size: decode_size(send),
            recv_size: decode_size(recv),
        })
    }
}

fn encode_size(bytes: u32) -> u8 {
    let clamped = bytes.clamp(PrivateData::SIZE_MIN, PrivateData::SIZE_MAX);
    ((clamped >> 10) - 1) as u8
}

fn decode_size(value: u8) -> u32 {
    (u32::from(value) + 1) << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIRE: [u8; 8] = [0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 255];
    const VALUE: PrivateData =
        PrivateData { remote_invalidation: true, send_size: 4096, recv_size: 262_144 };

    #[test]
    fn eight_bytes_are_as_rfc_8797_lays_them_out() {
        assert_eq!(VALUE.encode(), WIRE);
        assert_eq!(PrivateData::decode(&WIRE), Some(VALUE));
    }

    #[test]
    fn every_size_byte_survives() {
        for byte in 0..=u8::MAX {
            let wire = [0xf6, 0xab, 0x0e, 0x18, 1, 0, byte, byte];
            let decoded = PrivateData::decode(&wire).unwrap();
            assert_eq!(decoded.send_size, (u32::from(byte) + 1) * 1024);
            assert_eq!(decoded.encode(), wire);
        }
    }

    #[test]
    fn a_size_is_rounded_down_and_kept_in_range() {
        for (stated, promised) in
            [(0, 1024), (1023, 1024), (1024, 1024), (2047, 1024), (2048, 2048), (u32::MAX, 262_144)]
        {
            let value = PrivateData { send_size: stated, recv_size: stated, ..VALUE };
            let decoded = PrivateData::decode(&value.encode()).unwrap();
            assert_eq!((decoded.send_size, decoded.recv_size), (promised, promised));
        }
    }

    #[test]
    fn bytes_after_the_first_eight_are_ignored() {
        let mut padded = [0; 196];
        padded[..8].copy_from_slice(&WIRE);
        assert_eq!(PrivateData::decode(&padded), Some(VALUE));
    }

    #[test]
    fn fewer_bytes_other_magic_or_another_version_are_ignored() {
        for len in 0..8 {
            assert_eq!(PrivateData::decode(&WIRE[..len]), None);
        }
        for at in 0..5 {
            let mut wire = WIRE;
            wire[at] ^= 0x10;
            assert_eq!(PrivateData::decode(&wire), None);
        }
    }

    #[test]
    fn reserved_flags_are_ignored() {
        let mut wire = WIRE;
        wire[5] = 0xfe;
        assert!(!PrivateData::decode(&wire).unwrap().remote_invalidation);
        wire[5] = 0xff;
        assert_eq!(PrivateData::decode(&wire), Some(VALUE));
    }
}
