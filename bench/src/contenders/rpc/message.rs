//! RPC messages as an application writes and reads them through the engine.

use rpcrdma::Incoming;
use rpcrdma::onc::{CallHeader, ReplyHeader, RpcPrefix};

use crate::contenders::blocks::Inspection;
use crate::values::Op;

/// The header of a call behind xid and message type.
pub(super) const fn call_header(op: Op) -> [u8; CallHeader::PLAIN_LEN] {
    CallHeader::plain(PROGRAM, VERSION, op as u32)
}

/// The header of a reply behind xid and message type.
pub(super) const REPLY_HEADER: [u8; ReplyHeader::SUCCESS_LEN] = ReplyHeader::SUCCESS;

/// The procedure of a call header, if all its other words are this benchmark's.
#[inline]
pub(super) fn procedure_of(header: &[u8; CALL_WORDS * 4]) -> Option<Op> {
    const NULL: [u8; CallHeader::PLAIN_LEN] = call_header(Op::Null);
    if header[..12] != NULL[..12] || header[16..] != NULL[16..] {
        return None;
    }
    let number = header[12..].first_chunk().map(|number| u32::from_be_bytes(*number))?;
    [Op::Null, Op::Echo, Op::Read, Op::Write].into_iter().find(|op| *op as u32 == number)
}

/// A message that has arrived, as the benchmark reads it.
#[derive(Clone, Copy)]
pub(super) struct Arrived<'m, 'a> {
    incoming: &'m Incoming<'a>,
    /// The payload stream, if it is one slice, as that of a short message is.
    whole: Option<&'m [u8]>,
}

impl<'m, 'a> Arrived<'m, 'a> {
    #[inline]
    pub fn new(incoming: &'m Incoming<'a>) -> Arrived<'m, 'a> {
        Arrived { incoming, whole: incoming.contiguous() }
    }

    /// The `N` bytes at `at` of the payload stream, which begins with the transaction id.
    #[inline]
    pub fn bytes_at<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        if let Some(bytes) = self.whole {
            return bytes.get(at..)?.first_chunk().copied();
        }
        let mut bytes = [0; N];
        let mut reader = self.incoming.reader();
        reader.skip(at.checked_sub(PREFIX_LEN)?).ok()?;
        reader.fixed_into(&mut bytes).ok()?;
        Some(bytes)
    }

    #[inline]
    pub fn word_at(self, at: usize) -> Option<usize> {
        self.bytes_at(at).map(|word| u32::from_be_bytes(word) as usize)
    }

    /// Hands the data to `see`: those that were placed, or `len` bytes at `at` of the payload
    /// stream. `None` if the message is too short.
    #[inline]
    pub fn data(self, at: usize, len: usize, mut see: impl FnMut(&[u8])) -> Option<Way> {
        if let Some(item) = self.incoming.placed().next() {
            item.segments().for_each(see);
            return Some(Way::Placed);
        }
        if let Some(bytes) = self.whole {
            see(bytes.get(at..)?.get(..len)?);
            return Some(Way::InLine);
        }
        let mut reader = self.incoming.reader();
        reader.skip(at.checked_sub(PREFIX_LEN)?).ok()?;
        let mut left = len;
        while left > 0 {
            let part = reader.some(left).ok()?;
            left -= part.len();
            see(part);
        }
        Some(Way::InLine)
    }

    /// Inspects the data. `None` if they are not right.
    #[inline]
    pub fn inspect(self, at: usize, len: usize, mut inspection: Inspection<'_>) -> Option<Way> {
        let way = self.data(at, len, |bytes| inspection.see(bytes))?;
        inspection.is_right().then_some(way)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    InLine,
    Placed,
}

/// The name in errors.
pub(super) const WHO: &str = "rpc";
/// A program number of the range that RFC 5531 leaves to sites.
const PROGRAM: u32 = 0x2052_4442;
const VERSION: u32 = 1;
pub(super) const CALL_WORDS: usize = CallHeader::PLAIN_LEN / 4;
/// Transaction id and message type, which the engine writes.
pub(super) const PREFIX_LEN: usize = RpcPrefix::LEN;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::CALL_HEADER_LEN;

    #[test]
    fn every_procedure_is_found_in_its_own_header() {
        for op in [Op::Null, Op::Echo, Op::Read, Op::Write] {
            assert_eq!(procedure_of(&call_header(op)), Some(op));
        }
        assert_eq!(PREFIX_LEN + CALL_WORDS * 4, CALL_HEADER_LEN);
    }

    #[test]
    fn a_header_that_differs_in_any_bit_is_not_taken_for_another() {
        let header = call_header(Op::Null);
        for bit in 0..header.len() * 8 {
            let mut wrong = header;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(procedure_of(&wrong), Some(Op::Null), "bit {bit}");
        }
    }
}
