//! A stream of FPDUs, cut anywhere: what is found in it is what a table of the stream says.

use rpcrdma_iwarp::wire::fpdu::{Crc, FPDU_MAX, padding_of, split};
use rpcrdma_iwarp::wire::violation::Violation;

use super::choices::Choices;

/// Makes the stream that `bytes` describe, and reads it in pieces.
///
/// # Panics
/// If the pieces give other FPDUs, or another end, than the whole stream read byte for byte.
pub fn check(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let checks_crc = choices.flag();
    let piece_max = choices.pick(&[1, 2, 7, 100, 1500, 65_536, u32::MAX]);
    let pieces: [u32; 8] = std::array::from_fn(|_| u32::from(choices.byte()));
    let mut stream = Vec::new();
    while !choices.is_over() && stream.len() < STREAM_MAX {
        append(&mut choices, &mut stream);
    }
    let expected = table(&stream, checks_crc);
    let sizes = pieces.iter().cycle().map(|piece| 1 + (piece * piece) % piece_max);
    assert_eq!(receive(&stream, sizes.map(|size| size as usize), checks_crc), expected);
    assert_eq!(receive(&stream, std::iter::repeat(usize::MAX), checks_crc), expected);
}

/// The longest stream, apart from its last FPDU.
const STREAM_MAX: usize = 100_000;

/// The FPDUs of a stream, and how it ends: with a part of one, or with a violation.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    ulpdus: Vec<Vec<u8>>,
    end: Result<(), Violation>,
}

/// A whole FPDU, one with a changed bit, or bytes as they come.
fn append(choices: &mut Choices<'_>, stream: &mut Vec<u8>) {
    let kind = choices.below(8);
    if kind == 0 {
        let len = choices.below(32);
        stream.extend((0..len).map(|_| choices.byte()));
        return;
    }
    let len = match choices.below(4) {
        0 => 0,
        1 => choices.below(0x1_0000),
        _ => choices.below(100),
    };
    let seed = choices.byte();
    let start = stream.len();
    stream.extend((len as u16).to_be_bytes());
    stream.extend((0..len).map(|at| seed.wrapping_mul(at as u8).wrapping_add(seed)));
    stream.resize(stream.len() + padding_of(len as usize), 0);
    let mut crc = Crc::new();
    let cut = start + choices.below((stream.len() - start) as u32) as usize;
    crc.update(&stream[start..cut]);
    crc.update(&stream[cut..]);
    stream.extend(crc.to_wire());
    if kind == 1 {
        let at = start + choices.below((stream.len() - start) as u32) as usize;
        stream[at] ^= 1 << choices.below(8);
    }
}

/// What a receiver finds that gets pieces of these sizes.
fn receive(stream: &[u8], sizes: impl Iterator<Item = usize>, checks_crc: bool) -> Found {
    let mut found = Found { ulpdus: Vec::new(), end: Ok(()) };
    let (mut start, mut end) = (0, 0_usize);
    for size in sizes {
        end = stream.len().min(end.saturating_add(size));
        loop {
            let here = &stream[start..end];
            match split(here, checks_crc) {
                Ok(None) => break,
                Ok(Some(fpdu)) => {
                    assert!(fpdu.len <= FPDU_MAX);
                    found.ulpdus.push(here[fpdu.ulpdu].to_vec());
                    start += fpdu.len;
                }
                Err(why) => {
                    found.end = Err(why);
                    return found;
                }
            }
        }
        if end == stream.len() {
            break;
        }
    }
    found
}

/// What is in the stream, by RFC 5044 4.
fn table(stream: &[u8], checks_crc: bool) -> Found {
    let mut found = Found { ulpdus: Vec::new(), end: Ok(()) };
    let mut rest = stream.iter().copied();
    loop {
        let (Some(high), Some(low)) = (rest.next(), rest.next()) else { return found };
        let len = u16::from(high) << 8 | u16::from(low);
        if (1..14).contains(&len) {
            found.end = Err(Violation::FpduLength(len));
            return found;
        }
        let ulpdu: Vec<u8> = rest.by_ref().take(len.into()).collect();
        let mut covered = vec![high, low];
        covered.extend(&ulpdu);
        while covered.len() % 4 != 0 {
            covered.extend(rest.next());
            if rest.len() == 0 {
                return found;
            }
        }
        let crc: Vec<u8> = rest.by_ref().take(4).collect();
        if crc.len() < 4 {
            return found;
        }
        if checks_crc && crc != crc32c(&covered) {
            found.end = Err(Violation::Crc);
            return found;
        }
        found.ulpdus.push(ulpdu);
    }
}

/// CRC32c byte for byte, as it is on the wire (RFC 3720 12.1).
fn crc32c(bytes: &[u8]) -> [u8; 4] {
    let step = |crc: u32, byte: &u8| crc >> 8 ^ CRC_TABLE[usize::from(crc as u8 ^ byte)];
    (!bytes.iter().fold(u32::MAX, step)).to_le_bytes()
}

/// What eight bits do to a CRC.
static CRC_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < table.len() {
        let mut crc = index as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
};
