//! MPA's framing: a stream of bytes is a sequence of FPDUs (RFC 5044 4).
//!
//! ```text
//!   0        2                 2 + len            to a multiple of 4       + 4
//!   +--------+-----------------+-----------------+------------------------+
//!   | length | ULPDU           | 0 to 3 bytes of | CRC32c over all before |
//!   | of the | (a DDP segment) | padding         | it, always present     |
//!   | ULPDU  |                 |                 |                        |
//!   +--------+-----------------+-----------------+------------------------+
//! ```
//!
//! Both sides refuse markers, so an FPDU has none.

use std::ops::Range;

use crate::wire::segment::TAGGED_LEN;
use crate::wire::violation::Violation;

/// Bytes before the ULPDU: its length.
pub const HEAD_LEN: usize = 2;

/// Bytes of the CRC at the end.
pub const CRC_LEN: usize = 4;

/// The longest ULPDU to send: the longest one that needs no padding.
///
/// A peer may send one of 65,535 bytes.
pub const ULPDU_MAX: usize = 65_534;

/// The longest FPDU that can arrive.
pub const FPDU_MAX: usize = len_of(u16::MAX as usize);

/// Where an FPDU lies in a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fpdu {
    /// The ULPDU. It is empty if it is the ready-to-receive of an enhanced start (RFC 6581).
    pub ulpdu: Range<usize>,
    /// All bytes of the FPDU, with padding and CRC.
    pub len: usize,
}

/// A CRC32c (RFC 3385) that grows with the parts of an FPDU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Crc(u32);

/// Finds the first FPDU of `bytes`. `None` means that it is not whole.
///
/// # Errors
///
/// A length that no DDP segment has, as soon as the length is there. With `checks_crc`, a CRC that
/// does not match.
pub fn split(bytes: &[u8], checks_crc: bool) -> Result<Option<Fpdu>, Violation> {
    let Some(ulpdu_len) = ulpdu_len(bytes)? else { return Ok(None) };
    let len = len_of(ulpdu_len);
    let Some(fpdu) = bytes.get(..len) else { return Ok(None) };
    if checks_crc {
        let (covered, crc) = fpdu.split_at(len - CRC_LEN);
        if Crc::new().with(covered).to_wire() != crc {
            return Err(Violation::Crc);
        }
    }
    Ok(Some(Fpdu { ulpdu: HEAD_LEN..HEAD_LEN + ulpdu_len, len }))
}

/// The length of the ULPDU of the first FPDU of `bytes`. `None` means that the length is not whole.
///
/// [`len_of`] gives the bytes of the FPDU.
///
/// # Errors
///
/// A length that no DDP segment has.
pub fn ulpdu_len(bytes: &[u8]) -> Result<Option<usize>, Violation> {
    let Some(head) = bytes.first_chunk() else { return Ok(None) };
    let len = u16::from_be_bytes(*head);
    if len != 0 && usize::from(len) < TAGGED_LEN {
        return Err(Violation::FpduLength(len));
    }
    Ok(Some(usize::from(len)))
}

/// The bytes of an FPDU with a ULPDU of `ulpdu_len` bytes.
pub const fn len_of(ulpdu_len: usize) -> usize {
    HEAD_LEN + ulpdu_len + padding_of(ulpdu_len) + CRC_LEN
}

/// The bytes of padding after a ULPDU of `ulpdu_len` bytes.
pub const fn padding_of(ulpdu_len: usize) -> usize {
    (HEAD_LEN + ulpdu_len).wrapping_neg() % 4
}

impl Crc {
    /// The CRC of no bytes.
    pub const fn new() -> Self {
        Self(0)
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, bytes);
    }

    /// The bytes on the wire.
    ///
    /// The polynomial is reflected, so the least significant byte comes first, as in iSCSI
    /// (RFC 3720 B.4), whose CRC this is.
    pub const fn to_wire(self) -> [u8; CRC_LEN] {
        self.0.to_le_bytes()
    }

    fn with(mut self, bytes: &[u8]) -> Self {
        self.update(bytes);
        self
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// A Send of 5 bytes, as siw sends it.
    const SEND: [u8; 32] = [
        0x00, 0x17, // 23 bytes
        0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, // the first Send
        b'h', b'e', b'l', b'l', b'o', 0, 0, 0, // three bytes of padding
        0xb9, 0x90, 0xb1, 0x0c,
    ];

    /// An RDMA Write of no bytes, as siw begins a connection with.
    const WRITE: [u8; 20] = [
        0x00, 0x0e, 0xc1, 0x40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, // needs no padding
        0xeb, 0xd3, 0x4c, 0x5f,
    ];

    /// A ready-to-receive of RFC 6581.
    const EMPTY: [u8; 8] = [0, 0, 0, 0, 0xc7, 0x4b, 0x67, 0x48];

    fn fpdu(ulpdu: &[u8]) -> Vec<u8> {
        let len = u16::try_from(ulpdu.len()).expect("a length of 16 bits");
        let mut fpdu = [&len.to_be_bytes(), ulpdu].concat();
        fpdu.resize(fpdu.len() + padding_of(ulpdu.len()), 0);
        let crc = Crc::new().with(&fpdu).to_wire();
        fpdu.extend(crc);
        fpdu
    }

    #[test]
    fn the_crc_is_the_one_of_iscsi() {
        // RFC 3720 B.4, in the order of the wire.
        let up: Vec<u8> = (0..32).collect();
        let down: Vec<u8> = (0..32).rev().collect();
        let crc = |bytes: &[u8]| Crc::new().with(bytes).to_wire();
        assert_eq!(crc(&[0; 32]), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(crc(&[0xff; 32]), [0x43, 0xab, 0xa8, 0x62]);
        assert_eq!(crc(&up), [0x4e, 0x79, 0xdd, 0x46]);
        assert_eq!(crc(&down), [0x5c, 0xdb, 0x3f, 0x11]);
        assert_eq!(crc(&[]), [0; 4]);
    }

    #[test]
    fn golden_fpdus_are_split_and_made() {
        for golden in [&SEND[..], &WRITE, &EMPTY] {
            let ulpdu_len = usize::from(golden[1]);
            let found = split(golden, true).expect("it is good").expect("it is whole");
            assert_eq!(found, Fpdu { ulpdu: 2..2 + ulpdu_len, len: golden.len() });
            assert_eq!(fpdu(&golden[found.ulpdu]), golden);
        }
    }

    #[test]
    fn a_truncated_fpdu_is_not_whole() {
        for golden in [&SEND[..], &WRITE, &EMPTY] {
            for len in 0..golden.len() {
                assert_eq!(split(&golden[..len], true), Ok(None), "{len} bytes");
            }
        }
    }

    #[test]
    fn every_changed_bit_is_refused() {
        for golden in [&SEND[..], &WRITE, &EMPTY] {
            // What follows may be taken for the end of a longer FPDU.
            let stream = [golden, &[0; FPDU_MAX]].concat();
            for bit in 0..8 * golden.len() {
                let mut stream = stream.clone();
                stream[bit / 8] ^= 1 << (bit % 8);
                let why = split(&stream, true).expect_err("it is not the same");
                let is_expected = matches!(why, Violation::Crc | Violation::FpduLength(1..14));
                assert!(is_expected, "bit {bit}: {why}");
            }
        }
    }

    #[test]
    fn a_crc_that_was_not_agreed_is_not_looked_at() {
        let mut stream = SEND;
        stream[31] ^= 1;
        assert_eq!(split(&stream, true), Err(Violation::Crc));
        assert_eq!(split(&stream, false), Ok(Some(Fpdu { ulpdu: 2..25, len: 32 })));
    }

    #[test]
    fn a_length_that_no_segment_has_is_refused_at_once() {
        for len in 1..14 {
            assert_eq!(split(&[0, len], false), Err(Violation::FpduLength(len.into())));
        }
        for len in [0, 14] {
            assert_eq!(split(&[0, len], false), Ok(None));
        }
        assert_eq!(split(&[0xff], false), Ok(None));
    }

    #[test]
    fn fpdus_are_whole_words() {
        for len in 0..=usize::from(u16::MAX) {
            assert_eq!(len_of(len) % 4, 0);
            assert_eq!(len_of(len), HEAD_LEN + len + padding_of(len) + CRC_LEN);
            assert!(padding_of(len) < 4);
        }
        assert_eq!(padding_of(ULPDU_MAX), 0);
        assert_eq!(FPDU_MAX, 65_544);
        let longest = fpdu(&[7; u16::MAX as usize]);
        assert_eq!(split(&longest, true), Ok(Some(Fpdu { ulpdu: 2..65_537, len: FPDU_MAX })));
    }

    proptest! {
        #[test]
        fn a_stream_gives_back_what_it_was_made_of(ulpdus in vec(vec(any::<u8>(), 14..200), 0..8)) {
            let stream: Vec<u8> = ulpdus.iter().flat_map(|ulpdu| fpdu(ulpdu)).collect();
            let mut rest = &stream[..];
            for ulpdu in &ulpdus {
                let found = split(rest, true).unwrap().unwrap();
                prop_assert_eq!(&rest[found.ulpdu], &ulpdu[..]);
                rest = &rest[found.len..];
            }
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn a_crc_does_not_depend_on_how_its_bytes_come(parts in vec(vec(any::<u8>(), 0..50), 0..8)) {
            let mut crc = Crc::new();
            for part in &parts {
                crc.update(part);
            }
            prop_assert_eq!(crc, Crc::new().with(&parts.concat()));
        }

        #[test]
        fn any_bytes_do_no_harm(bytes in vec(any::<u8>(), 0..100), checks_crc: bool) {
            if let Ok(Some(found)) = split(&bytes, checks_crc) {
                prop_assert!(found.ulpdu.end <= found.len && found.len <= bytes.len());
            }
        }
    }
}
