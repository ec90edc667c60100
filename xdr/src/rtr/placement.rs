//! Placement: the locations of items removed from a payload stream, and directions for the items of
//! a reply.
//!
//! ```text
//!   MsgItem  | disp | length | type | EXRW: segment<>
//!                                   | TBSN: offset, number<>
//!                                   | TOOSHORT, NOITEM: nothing
//!   RsdSet   | begin | end | RsdItem<> |
//!   RsdItem  | min_len | type | EXRW, CHOICE: segment<>
//!                             | BYSIZE: over, segment<>
//!                             | TBSN: nothing
//! ```
//! Displacements are in the virtual XDR stream, which contains all items (wire.md E16, E23).

use core::fmt;

use crate::array::{Array, Iter, Wire};
use crate::chunk::RdmaSegment;
use crate::cursor::{Reader, Writer};
use crate::error::{DecodeError, NoRoom};
use crate::numbers::{limit, placement, size};

/// One excised item (`xmdp_mitem`, \[RTR\] 7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsgItem<'a> {
    /// The position of the item in the virtual XDR stream (`xmdmi_disp`).
    pub disp: u32,
    /// Bytes of the item, without XDR padding (`xmdmi_length`; wire.md E16).
    pub length: u32,
    /// The location of the item (`xmdmi_where`).
    pub loc: Loc<'a>,
}

/// The location of an item, or why it was not removed from the stream (`xmdp_loc`, \[RTR\] 7.3;
/// wire.md X4, X5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loc<'a> {
    /// In memory reached by explicit RDMA (`xmdl_ex`).
    Exrw(Array<'a, RdmaSegment>),
    /// In placement segments of this group's receive buffers.
    Tbsn {
        /// Bytes before the item in the first segment (`xmdl_offset`).
        offset: u32,
        /// The segments, in the item's order (`xmdl_bsnum`).
        segments: Tbsns<'a>,
    },
    /// In a response: the item is shorter than the minimum and is in the payload stream.
    TooShort,
    /// In a response: the item does not exist.
    NoItem,
}

impl<'a> Wire<'a> for MsgItem<'a> {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let [disp, length, kind] = reader.words()?;
        let loc = match kind {
            placement::TBSN => {
                Loc::Tbsn { offset: reader.u32()?, segments: Tbsns::decode(reader)? }
            }
            placement::EXRW => Loc::Exrw(Array::decode(reader, limit::ITEM_SEGMENTS_MAX)?),
            // TOOSHORT and NOITEM in a request are valid XDR; the protocol rejects them (wire.md
            // E31).
            placement::TOOSHORT => Loc::TooShort,
            placement::NOITEM => Loc::NoItem,
            // [RTR] 6.2, Table 1: CHOICE and BYSIZE are XDR-invalid here (wire.md E31).
            value => {
                return Err(DecodeError::BadDiscriminant { at: reader.at_last_word(), value });
            }
        };
        Ok(Self { disp, length, loc })
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        let (disp, length) = (self.disp, self.length);
        match &self.loc {
            Loc::Tbsn { offset, segments } => {
                let count = segments.len() as u32;
                writer.put_words::<5, { size::MITEM_TBSN }>([
                    disp,
                    length,
                    placement::TBSN,
                    *offset,
                    count,
                ])?;
                segments.encode_numbers(writer)
            }
            Loc::Exrw(segments) => {
                writer.put_words::<3, 12>([disp, length, placement::EXRW])?;
                segments.encode(writer)
            }
            Loc::TooShort => writer.put_words::<3, 12>([disp, length, placement::TOOSHORT]),
            Loc::NoItem => writer.put_words::<3, 12>([disp, length, placement::NOITEM]),
        }
    }

    fn encoded_len(&self) -> usize {
        match &self.loc {
            Loc::Exrw(segments) => size::MITEM_VOID + segments.encoded_len(),
            Loc::Tbsn { segments, .. } => size::MITEM_TBSN + 4 * segments.len(),
            Loc::TooShort | Loc::NoItem => size::MITEM_VOID,
        }
    }
}

/// Target buffer segment numbers (`xmdp_tbsn`, \[RTR\] 6.2; counted as wire.md E12 says).
#[derive(Clone, Copy)]
pub struct Tbsns<'a> {
    numbers: Numbers<'a>,
}

#[derive(Clone, Copy)]
enum Numbers<'a> {
    Listed(Array<'a, u32>),
    Run { first: u32, count: u32 },
}

impl<'a> Tbsns<'a> {
    /// A list of numbers to encode.
    #[inline]
    #[must_use]
    pub const fn from_slice(numbers: &'a [u32]) -> Self {
        Self { numbers: Numbers::Listed(Array::from_slice(numbers)) }
    }

    /// `count` consecutive numbers from `first` to encode, without storage.
    #[inline]
    #[must_use]
    pub const fn run(first: u32, count: u32) -> Self {
        Self { numbers: Numbers::Run { first, count } }
    }

    /// The number of numbers.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        match self.numbers {
            Numbers::Listed(array) => array.len(),
            Numbers::Run { count, .. } => count as usize,
        }
    }

    /// Whether it is empty.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number at `index`, in constant time.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<u32> {
        match self.numbers {
            Numbers::Listed(array) => array.get(index),
            Numbers::Run { first, count } => {
                let index = u32::try_from(index).ok().filter(|index| *index < count)?;
                Some(first.wrapping_add(index))
            }
        }
    }

    /// The numbers, in order.
    #[inline]
    #[must_use]
    pub fn iter(&self) -> TbsnIter<'a> {
        match self.numbers {
            Numbers::Listed(array) => TbsnIter(TbsnSource::Listed(array.iter())),
            Numbers::Run { first, count } => TbsnIter(TbsnSource::Run { next: first, left: count }),
        }
    }

    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Array::decode(reader, limit::ITEM_SEGMENTS_MAX)
            .map(|array| Self { numbers: Numbers::Listed(array) })
    }

    /// Puts the numbers without their count.
    #[inline]
    fn encode_numbers(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self.numbers {
            Numbers::Listed(array) => array.encode_items(writer),
            Numbers::Run { .. } => self.iter().try_for_each(|number| writer.put_u32(number)),
        }
    }
}

impl PartialEq for Tbsns<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Tbsns<'_> {}

impl fmt::Debug for Tbsns<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for Tbsns<'a> {
    type Item = u32;
    type IntoIter = TbsnIter<'a>;

    fn into_iter(self) -> TbsnIter<'a> {
        self.iter()
    }
}

/// Iterates over [`Tbsns`].
#[derive(Clone)]
pub struct TbsnIter<'a>(TbsnSource<'a>);

#[derive(Clone)]
enum TbsnSource<'a> {
    Listed(Iter<'a, u32>),
    Run { next: u32, left: u32 },
}

impl Iterator for TbsnIter<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        match &mut self.0 {
            TbsnSource::Listed(iter) => iter.next(),
            TbsnSource::Run { next, left } => {
                *left = left.checked_sub(1)?;
                let number = *next;
                *next = next.wrapping_add(1);
                Some(number)
            }
        }
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.0 {
            TbsnSource::Listed(iter) => iter.size_hint(),
            TbsnSource::Run { left, .. } => (*left as usize, Some(*left as usize)),
        }
    }
}

impl ExactSizeIterator for TbsnIter<'_> {}

/// Directions for the results of one range of the request (`xmdp_rsdset`, \[RTR\] 7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RsdSet<'a> {
    /// First byte of the range in the request's virtual stream (`xmdrsdr_begin`; wire.md E23).
    pub begin: u32,
    /// The byte after the range (`xmdrsdr_end`).
    pub end: u32,
    /// One direction for each result, in order (`xmdrsds_items`).
    pub items: Array<'a, RsdItem<'a>>,
}

impl<'a> Wire<'a> for RsdSet<'a> {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let [begin, end] = reader.words()?;
        Ok(Self { begin, end, items: Array::decode(reader, limit::MITEMS_MAX)? })
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.put_words::<2, 8>([self.begin, self.end])?;
        self.items.encode(writer)
    }

    fn encoded_len(&self) -> usize {
        8 + self.items.encoded_len()
    }
}

/// The direction for one result (`xmdp_rsditem`, \[RTR\] 7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RsdItem<'a> {
    /// A result shorter than this stays in the payload stream (`xmdrsdi_minlen`; wire.md E29).
    pub min_len: u32,
    /// The destination of a longer result (`xmdrsdi_loc`).
    pub loc: RsdLoc<'a>,
}

/// The destination of a result (`xmdp_rsdloc`, \[RTR\] 7.4; wire.md X4, X5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RsdLoc<'a> {
    /// By RDMA Write to these segments (`xmdrsdl_ex`).
    Exrw(Array<'a, RdmaSegment>),
    /// By Send, in segments that the responder chooses.
    Tbsn,
    /// Either, as the responder chooses (wire.md N3).
    Choice(Array<'a, RdmaSegment>),
    /// By Send up to a length, by RDMA Write above it (wire.md E28).
    BySize {
        /// The largest length that is sent by Send (`xmdrsdl_dsdov`).
        over: u32,
        /// The segments for a longer one (`xmdrsdl_bsex`).
        segments: Array<'a, RdmaSegment>,
    },
}

impl<'a> Wire<'a> for RsdItem<'a> {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let [min_len, kind] = reader.words()?;
        let loc = match kind {
            placement::TBSN => RsdLoc::Tbsn,
            placement::EXRW => RsdLoc::Exrw(Array::decode(reader, limit::ITEM_SEGMENTS_MAX)?),
            placement::CHOICE => RsdLoc::Choice(Array::decode(reader, limit::ITEM_SEGMENTS_MAX)?),
            placement::BYSIZE => RsdLoc::BySize {
                over: reader.u32()?,
                segments: Array::decode(reader, limit::ITEM_SEGMENTS_MAX)?,
            },
            // [RTR] 6.2, Table 1: TOOSHORT and NOITEM are XDR-invalid here.
            value => {
                return Err(DecodeError::BadDiscriminant { at: reader.at_last_word(), value });
            }
        };
        Ok(Self { min_len, loc })
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        let min_len = self.min_len;
        match &self.loc {
            RsdLoc::Tbsn => writer.put_words::<2, 8>([min_len, placement::TBSN]),
            RsdLoc::Exrw(segments) => {
                writer.put_words::<2, 8>([min_len, placement::EXRW])?;
                segments.encode(writer)
            }
            RsdLoc::Choice(segments) => {
                writer.put_words::<2, 8>([min_len, placement::CHOICE])?;
                segments.encode(writer)
            }
            RsdLoc::BySize { over, segments } => {
                writer.put_words::<3, 12>([min_len, placement::BYSIZE, *over])?;
                segments.encode(writer)
            }
        }
    }

    fn encoded_len(&self) -> usize {
        match &self.loc {
            RsdLoc::Tbsn => size::RSDITEM_TBSN,
            RsdLoc::Exrw(segments) | RsdLoc::Choice(segments) => {
                size::RSDITEM_TBSN + segments.encoded_len()
            }
            RsdLoc::BySize { segments, .. } => size::RSDITEM_EXRW + segments.encoded_len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn a_run_is_the_same_as_the_numbers_it_stands_for() {
        let run = Tbsns::run(7, 3);
        let listed = Tbsns::from_slice(&[7, 8, 9]);
        assert_eq!(run, listed);
        assert_eq!(run.len(), 3);
        assert_eq!((run.get(0), run.get(2), run.get(3)), (Some(7), Some(9), None));
        assert_eq!((listed.get(0), listed.get(2), listed.get(3)), (Some(7), Some(9), None));
        assert_eq!(run.iter().len(), 3);
        assert!(Tbsns::run(7, 0).is_empty());
        let bytes = |segments| {
            let mut buffer = [0; 64];
            let mut writer = Writer::new(&mut buffer);
            let item = MsgItem { disp: 0, length: 0, loc: Loc::Tbsn { offset: 0, segments } };
            item.encode(&mut writer).unwrap();
            assert_eq!(writer.position(), item.encoded_len());
            writer.written().to_vec()
        };
        assert_eq!(bytes(run), bytes(listed));
    }

    #[test]
    fn sizes_are_those_of_the_table() {
        let segments = [RdmaSegment::default(); 3];
        let item = |loc| MsgItem { disp: 0, length: 0, loc }.encoded_len();
        let tbsn = Loc::Tbsn { offset: 0, segments: Tbsns::run(0, 5) };
        assert_eq!(item(tbsn), size::MITEM_TBSN + 4 * 5);
        assert_eq!(item(Loc::Exrw(Array::from_slice(&segments))), size::MITEM_EXRW + 3 * 16);
        assert_eq!(item(Loc::NoItem), size::MITEM_VOID);
        let direction = |loc| RsdItem { min_len: 0, loc }.encoded_len();
        let array = Array::from_slice(&segments);
        assert_eq!(direction(RsdLoc::Tbsn), size::RSDITEM_TBSN);
        assert_eq!(direction(RsdLoc::Exrw(array)), size::RSDITEM_EXRW + 3 * 16);
        assert_eq!(direction(RsdLoc::Choice(array)), size::RSDITEM_EXRW + 3 * 16);
        let by_size = RsdLoc::BySize { over: 0, segments: array };
        assert_eq!(direction(by_size), size::RSDITEM_BYSIZE + 3 * 16);
        let set = RsdSet { begin: 0, end: 0, items: Array::EMPTY };
        assert_eq!(set.encoded_len(), size::RSDSET);
    }

    /// Table 1 of the draft: which types are XDR-valid where.
    #[test]
    fn types_are_accepted_where_table_1_has_them() {
        for kind in 0..8 {
            let item = words(&[0, 0, kind, 0, 0, 0]);
            let valid = MsgItem::decode(&mut Reader::new(&item)).is_ok();
            assert_eq!(valid, matches!(kind, 1 | 2 | 5 | 6), "a message item of type {kind}");
            let direction = words(&[0, kind, 0, 0]);
            let valid = RsdItem::decode(&mut Reader::new(&direction)).is_ok();
            assert_eq!(valid, matches!(kind, 1..=4), "a direction of type {kind}");
        }
    }

    #[test]
    fn an_item_may_have_256_segments_and_not_257() {
        let numbers = [0; 257];
        for (count, valid) in [(256, true), (257, false)] {
            let loc = Loc::Tbsn { offset: 0, segments: Tbsns::from_slice(&numbers[..count]) };
            let mut buffer = [0; 2048];
            let mut writer = Writer::new(&mut buffer);
            MsgItem { disp: 0, length: 0, loc }.encode(&mut writer).unwrap();
            let result = MsgItem::decode(&mut Reader::new(writer.written()));
            assert_eq!(result.is_ok(), valid, "{count} segments");
        }
    }
}
