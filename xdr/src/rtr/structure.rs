//! The Receive Buffer Structure: the segments of a receive buffer, and their numbers.
//!
//! ```text
//!   buffer t of a group     | inline | PLT 0 | PLT 1 | ... | PLT K-1 |
//!   number                             t*K+0   t*K+1         t*K+K-1        wire.md E12
//! ```
//! A structure that exists is valid: [`RecvStructure::new`] and [`RecvStructure::decode`] check it.

use thiserror::Error;

use crate::cursor::{Reader, Writer};
use crate::error::{DecodeError, NoRoom};
use crate::numbers::{limit, segment_flag, size};

const GROUPS_MAX: usize = limit::STRUCTURE_GROUPS_MAX as usize;

/// Adjacent segments of one shape (`xmrbs_group`, \[RTR\] 7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentGroup {
    /// How many segments (`xmrgrp_count`).
    pub count: u32,
    /// Bytes of each segment (`xmrseg_length`).
    pub length: u32,
    /// Alignment in memory of each segment, in bytes: a power of two, 0 meaning 1
    /// (`xmrseg_align`; wire.md E20).
    pub align: u32,
    /// Whether placed data may go there (`XMRSFLAG_PLT`).
    pub placement: bool,
}

/// A group, with the sums of all groups before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Placed {
    start: u32,
    length: u32,
    align: u32,
    count: u8,
    first_segment: u8,
    first_placement: u8,
    placement: bool,
}

const NO_GROUP: Placed = Placed {
    start: 0,
    length: 0,
    align: 1,
    count: 0,
    first_segment: 0,
    first_placement: 0,
    placement: false,
};

/// The segments of every receive buffer of a connection (`xmrbs_buf`, \[RTR\] 7.2; wire.md E21).
///
/// All questions are answered without a division, in at most [`limit::STRUCTURE_GROUPS_MAX`] steps.
/// If all placement segments are in one group, as nearly always, one step is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvStructure {
    groups: [Placed; GROUPS_MAX],
    /// The first group with placement segments.
    placements: Placed,
    first_len: u32,
    group_count: u8,
    segment_count: u8,
    placement_count: u8,
    total_len: u32,
    leading_len: u32,
    /// 2^20 / K, rounded up: numbers of a group are divided by K by this and a shift.
    reciprocal: u32,
}

/// A segment of a receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its place among all segments of the buffer, from 0.
    pub index: u32,
    /// Bytes before it in the buffer.
    pub start: u32,
    /// Its bytes.
    pub length: u32,
    /// Its alignment in memory, in bytes.
    pub align: u32,
    /// Whether placed data may go there.
    pub placement: bool,
}

/// Where a placement segment is in its receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentAt {
    /// Its place among all segments of the buffer, from 0.
    pub index: u32,
    /// Bytes before it in the buffer.
    pub start: u32,
    /// Its bytes.
    pub length: u32,
}

/// Adjacent placement segments of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentRun {
    /// The first.
    pub first: SegmentAt,
    /// How many, at least one.
    pub count: u32,
}

/// Why groups of segments are not a usable structure.
///
/// A peer's structure of this kind is ignored, as if it had stated none: the property only advises
/// and has a default (wire.md E19, E20, W4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StructureError {
    /// There is no segment at all.
    #[error("the structure has no segment")]
    Empty,
    /// More groups than [`limit::STRUCTURE_GROUPS_MAX`].
    #[error("{count} groups of segments are more than {}", limit::STRUCTURE_GROUPS_MAX)]
    TooManyGroups {
        /// How many there are.
        count: u32,
    },
    /// More segments than [`limit::STRUCTURE_SEGMENTS_MAX`].
    #[error("the structure has more than {} segments", limit::STRUCTURE_SEGMENTS_MAX)]
    TooManySegments,
    /// A segment without bytes.
    #[error("the segments of group {group} have length zero")]
    EmptySegment {
        /// The group, from 0.
        group: u32,
    },
    /// An alignment that is no power of two.
    #[error("alignment {align} is not a power of two")]
    BadAlign {
        /// The alignment.
        align: u32,
    },
    /// The segments together are 4 GiB or longer.
    #[error("the total length of the segments exceeds 32 bits")]
    TooLong,
    /// The length stated is not that of the segments together.
    #[error("the stated length is {stated}, the sum of the segments {sum}")]
    LengthMismatch {
        /// `xmrbuf_length`.
        stated: u32,
        /// Bytes of all segments.
        sum: u32,
    },
}

impl RecvStructure {
    /// A structure of these groups, in the order of the buffer.
    ///
    /// # Errors
    /// [`StructureError`] says which rule does not hold.
    pub const fn new(groups: &[SegmentGroup]) -> Result<Self, StructureError> {
        if groups.len() > GROUPS_MAX {
            return Err(StructureError::TooManyGroups { count: groups.len() as u32 });
        }
        let mut structure = Self::NONE;
        let mut rest = groups;
        while let [group, tail @ ..] = rest {
            structure = match structure.with(group) {
                Ok(structure) => structure,
                Err(error) => return Err(error),
            };
            rest = tail;
        }
        if structure.segment_count == 0 {
            return Err(StructureError::Empty);
        }
        if structure.placement_count == 0 {
            structure.leading_len = structure.total_len;
        } else {
            structure.reciprocal = (1u32 << SHIFT).div_ceil(structure.placement_count as u32);
        }
        Ok(structure)
    }

    /// The structure of a peer that states none: one segment, no placement (wire.md E22).
    ///
    /// A length of zero, which is no buffer, is taken as one byte.
    #[must_use]
    pub const fn single(len: u32) -> Self {
        let length = if len == 0 { 1 } else { len };
        let mut structure = Self::NONE;
        structure.groups[0] = Placed { length, count: 1, ..NO_GROUP };
        structure.first_len = length;
        structure.group_count = 1;
        structure.segment_count = 1;
        structure.total_len = length;
        structure.leading_len = length;
        structure
    }

    /// Reads the value of the Receive Buffer Structure property.
    ///
    /// # Errors
    /// The outer error if the bytes are no such value, which is an XDR error; the inner one if
    /// the value is no usable structure, which is to be ignored.
    pub fn decode(data: &[u8]) -> Result<Result<Self, StructureError>, DecodeError> {
        let mut reader = Reader::new(data);
        Self::decode_from(&mut reader)
    }

    pub(crate) fn decode_from(
        reader: &mut Reader<'_>,
    ) -> Result<Result<Self, StructureError>, DecodeError> {
        let stated = reader.u32()?;
        let at = reader.at_u32();
        let count = reader.u32()?;
        // Nothing is gained by looking at groups that cannot be there.
        if (count as usize).saturating_mul(size::RBSTRUCT_GROUP) != reader.remaining() {
            return Err(DecodeError::BadValue { at, value: count });
        }
        if count > limit::STRUCTURE_GROUPS_MAX {
            return Ok(Err(StructureError::TooManyGroups { count }));
        }
        let mut groups = arrayvec::ArrayVec::<SegmentGroup, GROUPS_MAX>::new();
        for _ in 0..count {
            let (count, length, align) = (reader.u32()?, reader.u32()?, reader.u32()?);
            // wire.md E20: flags that we do not know are ignored.
            let placement = reader.u32()? & segment_flag::PLT != 0;
            groups.push(SegmentGroup { count, length, align, placement });
        }
        Ok(Self::new(&groups).and_then(|structure| {
            // wire.md E19: the two statements of the length must agree.
            let sum = structure.total_len;
            if sum == stated {
                Ok(structure)
            } else {
                Err(StructureError::LengthMismatch { stated, sum })
            }
        }))
    }

    /// Puts the value of the Receive Buffer Structure property.
    ///
    /// # Errors
    /// [`NoRoom`] if it does not fit.
    pub fn encode(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.put_u32(self.total_len)?;
        writer.put_u32(u32::from(self.group_count))?;
        for group in self.placed() {
            writer.put_u32(u32::from(group.count))?;
            writer.put_u32(group.length)?;
            writer.put_u32(group.align)?;
            writer.put_u32(if group.placement { segment_flag::PLT } else { 0 })?;
        }
        Ok(())
    }

    /// The number of bytes that [`RecvStructure::encode`] puts.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        size::RBSTRUCT + size::RBSTRUCT_GROUP * self.group_count as usize
    }

    /// Bytes of a receive buffer.
    #[inline]
    #[must_use]
    pub const fn total_len(&self) -> u32 {
        self.total_len
    }

    /// Segments of a receive buffer.
    #[inline]
    #[must_use]
    pub const fn segment_count(&self) -> u32 {
        self.segment_count as u32
    }

    /// Placement segments of a receive buffer: K.
    #[inline]
    #[must_use]
    pub const fn placement_count(&self) -> u32 {
        self.placement_count as u32
    }

    /// Bytes before the first placement segment; all bytes if there is none.
    #[inline]
    #[must_use]
    pub const fn leading_len(&self) -> u32 {
        self.leading_len
    }

    /// Bytes of the first segment.
    #[inline]
    #[must_use]
    pub const fn first_len(&self) -> u32 {
        self.first_len
    }

    /// The groups, in the order of the buffer.
    pub fn groups(&self) -> impl Iterator<Item = SegmentGroup> + '_ {
        self.placed().iter().map(|group| SegmentGroup {
            count: u32::from(group.count),
            length: group.length,
            align: group.align,
            placement: group.placement,
        })
    }

    /// The segments, in the order of the buffer.
    pub fn segments(&self) -> impl Iterator<Item = Segment> + '_ {
        self.placed().iter().flat_map(|group| {
            (0..u32::from(group.count)).map(move |i| Segment {
                index: u32::from(group.first_segment) + i,
                start: group.start + i * group.length,
                length: group.length,
                align: group.align,
                placement: group.placement,
            })
        })
    }

    /// Placement segment `k` of a buffer, counted from 0 among placement segments.
    #[inline]
    #[must_use]
    pub fn placement(&self, k: u32) -> Option<SegmentAt> {
        self.run(k).map(|run| run.first)
    }

    /// Placement segment `k` of a buffer, and those that follow it in its group.
    #[inline]
    #[must_use]
    pub fn run(&self, k: u32) -> Option<SegmentRun> {
        self.placements.run(k).or_else(|| self.run_behind(k))
    }

    /// All placement segments of a buffer, if they are one group.
    #[inline]
    #[must_use]
    pub fn only_run(&self) -> Option<SegmentRun> {
        self.run(0).filter(|run| run.count == self.placement_count())
    }

    /// As [`RecvStructure::run`], behind the first group of placement segments.
    fn run_behind(&self, k: u32) -> Option<SegmentRun> {
        if k >= self.placement_count() {
            return None;
        }
        self.placed().iter().find_map(|group| group.run(k))
    }

    /// The transmission and the segment that a target buffer segment number means.
    ///
    /// `None` if there are no placement segments, or if the transmission would be beyond the
    /// longest group there is ([`limit::GROUP_MAX`]).
    #[inline]
    #[must_use]
    pub fn locate(&self, tbsn: u32) -> Option<(u32, SegmentAt)> {
        let count = u32::from(self.placement_count);
        if tbsn >= count * limit::GROUP_MAX {
            return None;
        }
        // Exact for every number below K * GROUP_MAX, as a test shows for all of them.
        let transmission = ((u64::from(tbsn) * u64::from(self.reciprocal)) >> SHIFT) as u32;
        Some((transmission, self.placement(tbsn - transmission * count)?))
    }

    /// The number of placement segment `k` of transmission `transmission`.
    #[inline]
    #[must_use]
    pub const fn tbsn(&self, transmission: u32, k: u32) -> u32 {
        transmission.wrapping_mul(self.placement_count as u32).wrapping_add(k)
    }

    const NONE: Self = Self {
        groups: [NO_GROUP; GROUPS_MAX],
        placements: NO_GROUP,
        first_len: 0,
        group_count: 0,
        segment_count: 0,
        placement_count: 0,
        total_len: 0,
        leading_len: 0,
        reciprocal: 0,
    };

    const fn with(mut self, group: &SegmentGroup) -> Result<Self, StructureError> {
        let align = if group.align == 0 { 1 } else { group.align };
        if !align.is_power_of_two() {
            return Err(StructureError::BadAlign { align });
        }
        if group.length == 0 {
            return Err(StructureError::EmptySegment { group: self.group_count as u32 });
        }
        let left = limit::STRUCTURE_SEGMENTS_MAX - self.segment_count as u32;
        if group.count > left {
            return Err(StructureError::TooManySegments);
        }
        let Some(len) = group.length.checked_mul(group.count) else {
            return Err(StructureError::TooLong);
        };
        let Some(total_len) = self.total_len.checked_add(len) else {
            return Err(StructureError::TooLong);
        };
        if group.placement && self.placement_count == 0 {
            self.leading_len = self.total_len;
        }
        let placed = Placed {
            start: self.total_len,
            length: group.length,
            align,
            count: group.count as u8,
            first_segment: self.segment_count,
            first_placement: self.placement_count,
            placement: group.placement,
        };
        if group.count > 0 && self.segment_count == 0 {
            self.first_len = group.length;
        }
        if group.count > 0 && group.placement && self.placement_count == 0 {
            self.placements = placed;
        }
        self.groups[self.group_count as usize] = placed;
        self.group_count += 1;
        self.segment_count += group.count as u8;
        self.total_len = total_len;
        if group.placement {
            self.placement_count += group.count as u8;
        }
        Ok(self)
    }

    #[inline]
    fn placed(&self) -> &[Placed] {
        self.groups.get(..usize::from(self.group_count)).unwrap_or_default()
    }
}

impl Placed {
    /// Placement segment `k` and those behind it, if it is in this group.
    #[inline]
    fn run(&self, k: u32) -> Option<SegmentRun> {
        let i = k.wrapping_sub(u32::from(self.first_placement));
        if !self.placement || i >= u32::from(self.count) {
            return None;
        }
        let first = SegmentAt {
            index: u32::from(self.first_segment) + i,
            start: self.start + i * self.length,
            length: self.length,
        };
        Some(SegmentRun { first, count: u32::from(self.count) - i })
    }
}

/// Bits after the point of [`RecvStructure::locate`]'s reciprocal.
const SHIFT: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const fn group(count: u32, length: u32, align: u32, placement: bool) -> SegmentGroup {
        SegmentGroup { count, length, align, placement }
    }

    /// An inline segment, placement segments, another inline one, larger placement segments.
    fn mixed() -> RecvStructure {
        RecvStructure::new(&[
            group(1, 512, 64, false),
            group(3, 4096, 4096, true),
            group(2, 256, 0, false),
            group(2, 8192, 4096, true),
        ])
        .unwrap()
    }

    #[test]
    fn sums_are_those_of_the_segments() {
        let structure = mixed();
        assert_eq!(structure.total_len(), 512 + 3 * 4096 + 2 * 256 + 2 * 8192);
        assert_eq!(structure.segment_count(), 8);
        assert_eq!(structure.placement_count(), 5);
        assert_eq!(structure.leading_len(), 512);
        let segments: Vec<Segment> = structure.segments().collect();
        assert_eq!(segments.len(), 8);
        let mut start = 0;
        for (index, segment) in segments.iter().enumerate() {
            assert_eq!((segment.index, segment.start), (index as u32, start));
            start += segment.length;
        }
        assert_eq!(start, structure.total_len());
        assert_eq!(segments[4].align, 1, "an alignment of 0 is 1");
    }

    #[test]
    fn placement_segments_are_counted_apart_from_the_others() {
        let structure = mixed();
        let expected: Vec<Segment> = structure.segments().filter(|s| s.placement).collect();
        for (k, segment) in expected.iter().enumerate() {
            let at = structure.placement(k as u32).unwrap();
            assert_eq!(
                (at.index, at.start, at.length),
                (segment.index, segment.start, segment.length)
            );
        }
        assert_eq!(structure.placement(5), None);
        assert_eq!(structure.placement(u32::MAX), None);
    }

    #[test]
    fn a_run_is_the_placement_segments_that_follow_in_its_group() {
        let shapes = [group(2, 512, 1, false), group(3, 64, 1, true), group(1, 128, 1, true)];
        let empty = [group(0, 8, 1, true), group(0, 8, 1, false)];
        for order in [[0, 1, 2], [1, 0, 2], [2, 1, 0], [1, 2, 0]] {
            let groups: Vec<_> = order.iter().flat_map(|at| [empty[at % 2], shapes[*at]]).collect();
            let structure = RecvStructure::new(&groups).unwrap();
            let segments: Vec<Segment> = structure.segments().collect();
            assert_eq!(structure.first_len(), segments[0].length);
            let placed: Vec<&Segment> = segments.iter().filter(|s| s.placement).collect();
            for (k, segment) in placed.iter().enumerate() {
                let run = structure.run(k as u32).unwrap();
                let Segment { index, start, length, .. } = **segment;
                assert_eq!(run.first, SegmentAt { index, start, length });
                let rest = placed[k..].iter().take_while(|other| other.length == length);
                assert_eq!(run.count as usize, rest.count(), "{order:?} {k}");
            }
            assert_eq!(structure.run(4), None);
            assert_eq!(structure.only_run(), None, "two lengths");
        }
        let structure = RecvStructure::new(&shapes[..2]).unwrap();
        assert_eq!(structure.only_run(), structure.run(0));
        assert_eq!(structure.only_run().map(|run| run.count), Some(3));
        assert_eq!(RecvStructure::single(4096).only_run(), None);
    }

    #[test]
    fn every_number_of_every_structure_is_located_as_division_would() {
        for count in 1..=limit::STRUCTURE_SEGMENTS_MAX {
            let structure = RecvStructure::new(&[group(count, 16, 0, true)]).unwrap();
            for tbsn in 0..count * limit::GROUP_MAX {
                let (transmission, at) = structure.locate(tbsn).unwrap();
                assert_eq!((transmission, at.index), (tbsn / count, tbsn % count));
                assert_eq!(structure.tbsn(transmission, at.index), tbsn);
            }
            assert_eq!(structure.locate(count * limit::GROUP_MAX), None);
            assert_eq!(structure.locate(u32::MAX), None);
        }
    }

    #[test]
    fn a_single_segment_has_no_place_for_data() {
        let structure = RecvStructure::single(4096);
        assert_eq!(structure, RecvStructure::new(&[group(1, 4096, 1, false)]).unwrap());
        assert_eq!(structure.total_len(), 4096);
        assert_eq!(structure.leading_len(), 4096);
        assert_eq!(structure.placement_count(), 0);
        assert_eq!((structure.locate(0), structure.placement(0)), (None, None));
        assert_eq!(RecvStructure::single(0).total_len(), 1);
    }

    #[test]
    fn a_structure_that_begins_with_a_placement_segment_has_nothing_leading() {
        let structure = RecvStructure::new(&[group(1, 64, 1, true), group(1, 64, 1, false)]);
        assert_eq!(structure.unwrap().leading_len(), 0);
    }

    #[test]
    fn each_rule_is_checked() {
        let new = RecvStructure::new;
        assert_eq!(new(&[]), Err(StructureError::Empty));
        assert_eq!(new(&[group(0, 8, 1, true)]), Err(StructureError::Empty));
        assert!(new(&[group(1, 8, 1, false); 8]).is_ok());
        assert_eq!(
            new(&[group(1, 8, 1, false); 9]),
            Err(StructureError::TooManyGroups { count: 9 })
        );
        assert!(new(&[group(1, 8, 1, false), group(63, 8, 1, true)]).is_ok());
        assert_eq!(
            new(&[group(1, 8, 1, false), group(64, 8, 1, true)]),
            Err(StructureError::TooManySegments)
        );
        assert_eq!(new(&[group(u32::MAX, 8, 1, true)]), Err(StructureError::TooManySegments));
        assert_eq!(new(&[group(1, 0, 1, true)]), Err(StructureError::EmptySegment { group: 0 }));
        assert_eq!(new(&[group(1, 8, 3, true)]), Err(StructureError::BadAlign { align: 3 }));
        assert_eq!(new(&[group(2, 1 << 31, 1, true)]), Err(StructureError::TooLong));
        assert_eq!(new(&[group(1, 1 << 31, 1, true); 2]), Err(StructureError::TooLong));
        assert!(new(&[group(1, u32::MAX, 1 << 31, true)]).is_ok());
    }

    #[test]
    fn a_structure_decodes_to_what_was_encoded() {
        let structure = mixed();
        let mut buffer = [0; 256];
        let mut writer = Writer::new(&mut buffer);
        structure.encode(&mut writer).unwrap();
        assert_eq!(writer.position(), structure.encoded_len());
        assert_eq!(RecvStructure::decode(writer.written()), Ok(Ok(structure)));
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn a_stated_length_that_is_not_the_sum_makes_the_structure_unusable() {
        let decoded = RecvStructure::decode(&words(&[65, 1, 1, 64, 1, 0]));
        assert_eq!(decoded, Ok(Err(StructureError::LengthMismatch { stated: 65, sum: 64 })));
    }

    #[test]
    fn unknown_flags_are_ignored() {
        let plain = RecvStructure::decode(&words(&[64, 1, 1, 64, 1, 1]));
        let flags = RecvStructure::decode(&words(&[64, 1, 1, 64, 1, u32::MAX]));
        assert_eq!(plain, flags);
        assert_eq!(plain.unwrap().unwrap().placement_count(), 1);
    }

    #[test]
    fn too_many_groups_are_ignored_but_must_be_there() {
        let mut value = words(&[9 * 8, 9]);
        value.extend((0..9).flat_map(|_| words(&[1, 8, 1, 0])));
        let decoded = RecvStructure::decode(&value);
        assert_eq!(decoded, Ok(Err(StructureError::TooManyGroups { count: 9 })));
        assert!(RecvStructure::decode(&value[..value.len() - 4]).is_err());
        value.extend([0; 4]);
        assert!(RecvStructure::decode(&value).is_err());
        assert!(RecvStructure::decode(&words(&[8, u32::MAX])).is_err());
    }
}
