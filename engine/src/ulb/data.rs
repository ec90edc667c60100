//! An item of a message: inline or placed.

use crate::message::incoming::PlacedItem;
use crate::message::payload_reader::PayloadReader;

/// A DDP-eligible item, placed or inline.
#[derive(Debug, Clone)]
pub struct Data<'a> {
    len: u32,
    at: At<'a>,
}

#[derive(Debug, Clone)]
enum At<'a> {
    /// Outside of the stream, with its index among the placed items.
    Placed(PlacedItem<'a>, usize),
    /// In the stream, from here on.
    InLine(PayloadReader<'a>),
}

impl<'a> Data<'a> {
    pub(super) fn placed(item: PlacedItem<'a>, len: u32, index: usize) -> Data<'a> {
        Data { len, at: At::Placed(item, index) }
    }

    pub(super) fn in_line(from: PayloadReader<'a>, len: u32) -> Data<'a> {
        Data { len, at: At::InLine(from) }
    }

    /// Its bytes, without padding.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its index in [`Incoming::placed`](crate::Incoming::placed), for
    /// [`Incoming::take`](crate::Incoming::take); `None` in the stream.
    pub fn placed_index(&self) -> Option<usize> {
        match self.at {
            At::Placed(_, index) => Some(index),
            At::InLine(_) => None,
        }
    }

    /// In a reply: the want that it answers, for
    /// [`Completion::take_sink`](crate::Completion::take_sink); `None` in the stream. After a
    /// failed operation this may be the want of another operation: in the base protocol the memory
    /// goes to the next result (RFC 8166 4.3.2.2).
    pub fn want(&self) -> Option<usize> {
        match &self.at {
            At::Placed(item, _) => Some(item.index()),
            At::InLine(_) => None,
        }
    }

    /// Its bytes, slice by slice.
    pub fn slices(&self) -> Slices<'a> {
        Slices { at: self.at.clone(), next: 0, left: self.len as usize }
    }

    /// A copy of its bytes. Allocates.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len as usize);
        self.slices().for_each(|slice| bytes.extend_from_slice(slice));
        bytes
    }
}

/// The bytes of an item, slice by slice.
#[derive(Debug, Clone)]
pub struct Slices<'a> {
    at: At<'a>,
    /// The next segment of a placed item.
    next: usize,
    left: usize,
}

impl<'a> Iterator for Slices<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.left == 0 {
            return None;
        }
        let slice = match &mut self.at {
            At::Placed(item, _) => item.segments().nth(self.next)?,
            At::InLine(from) => from.some(self.left).ok()?,
        };
        // A placed item may include its padding.
        let slice = &slice[..slice.len().min(self.left)];
        self.next += 1;
        self.left -= slice.len();
        Some(slice)
    }
}
