//! Places in files.

use std::ops::Range;

/// A part of a file, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// The number of the file among those that were read.
    pub file: u32,
    /// The first byte.
    pub start: u32,
    /// The byte behind the last.
    pub end: u32,
}

impl Span {
    /// A part of a file.
    pub(crate) fn new(file: u32, range: Range<usize>) -> Span {
        // A file is shorter than that: `preprocess` refuses others.
        Span { file, start: range.start as u32, end: range.end as u32 }
    }

    /// From the beginning of this to the end of another; this if the other is of another file.
    pub(crate) fn to(self, end: Span) -> Span {
        if self.file == end.file { Span { end: end.end.max(self.end), ..self } } else { self }
    }

    /// The bytes in the file.
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// A value, and where it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Where it is written.
    pub span: Span,
}

impl<T> At<T> {
    pub(crate) fn new(value: T, span: Span) -> At<T> {
        At { value, span }
    }
}
