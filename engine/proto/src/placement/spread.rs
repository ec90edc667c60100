//! The content of a message: its stream, its items, and the pieces that they are gathered from.

use crate::error::Misuse;
use crate::item::{BulkItem, ItemSet};
use crate::placement::gather::gathered;

/// What a message is made of, when some of its items are apart.
pub(crate) struct Spread {
    /// Bytes of the stream.
    pub(crate) stream: u32,
    /// Memory pieces of the stream.
    pub(crate) pieces: u32,
    /// Bytes of all items.
    pub(crate) bulk: u32,
}

impl Spread {
    /// The gather entries of one transmission with all of its stream, or more if that is not too
    /// many; the first are copied together if necessary.
    pub(crate) fn gathered(
        &self,
        items: &[BulkItem],
        apart: ItemSet,
        gather_max: u32,
        copy_max: u32,
    ) -> u32 {
        match self.pieces < gather_max {
            true => 1 + self.pieces,
            false => gathered(items, apart, 0..self.stream, gather_max, copy_max),
        }
    }
}

/// Sums a message up. Its items have been checked.
pub(crate) fn spread(payload: u32, items: &[BulkItem], apart: ItemSet) -> Result<Spread, Misuse> {
    if !payload.is_multiple_of(4) {
        return Err(Misuse("a payload is a multiple of four bytes"));
    }
    let (mut stream, mut bulk) = (u64::from(payload), 0);
    let mut pieces = 1;
    for (index, item) in items.iter().enumerate() {
        bulk += u64::from(item.len);
        if !apart.contains(index) {
            stream += u64::from(item.padded_len());
            // The item, its padding if there is any, and the payload behind it.
            pieces += item.pieces + u32::from(item.padded_len() > item.len) + 1;
        }
    }
    // The check of the items has found the sum of all to be a u32.
    Ok(Spread { stream: stream as u32, pieces, bulk: bulk as u32 })
}
