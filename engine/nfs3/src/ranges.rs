//! Ranges of a file. A client states any 64 bits as an offset; no file has bytes at 2^63 - 1 or
//! behind, and the kernel takes larger numbers for negative ones: -1 is the current position.

/// A range of a file that system calls take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRange {
    start: u64,
    len: usize,
}

impl FileRange {
    /// The range, cut where no file has bytes.
    pub fn cut(offset: u64, len: usize) -> FileRange {
        let start = offset.min(SIZE_MAX);
        let room = usize::try_from(SIZE_MAX - start).unwrap_or(usize::MAX);
        FileRange { start, len: len.min(room) }
    }

    /// The whole range; `None` if no file can have all of its bytes.
    pub fn whole(offset: u64, len: usize) -> Option<FileRange> {
        let range = FileRange::cut(offset, len);
        (range.len == len).then_some(range)
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The offset behind the first `done` bytes.
    pub fn at(&self, done: usize) -> u64 {
        self.start + done.min(self.len) as u64
    }
}

/// The largest size of a file.
pub const SIZE_MAX: u64 = i64::MAX as u64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_ends_where_files_end() {
        for (offset, len, cut) in [
            (0, 8, 8),
            (SIZE_MAX - 8, 8, 8),
            (SIZE_MAX - 7, 8, 7),
            (SIZE_MAX, 8, 0),
            (SIZE_MAX + 1, 8, 0),
            (u64::MAX, 8, 0),
            (u64::MAX, 0, 0),
            (0, usize::MAX, SIZE_MAX as usize),
        ] {
            let range = FileRange::cut(offset, len);
            assert_eq!(range.len(), cut, "{len} bytes at {offset:#x}");
            assert_eq!(FileRange::whole(offset, len), (cut == len).then_some(range));
            assert!(range.at(range.len()) <= SIZE_MAX, "{offset:#x}");
        }
    }
}
