//! A slot: an operation from when it is taken until it is done.

use std::os::fd::OwnedFd;

use crate::operation::Operation;
use crate::vector::total;

/// What an operation is kept in.
pub(crate) struct Slot<T> {
    pub generation: u32,
    pub body: Option<(Operation, T)>,
    pub place: Place,
    /// Bytes that were read or written.
    pub done: u64,
    /// The request under way passes by the page cache.
    pub is_direct: bool,
    /// The page cache is used: without it the request was refused.
    pub is_buffered: bool,
    pub is_cancelled: bool,
    /// Of an operation that ends without a request.
    pub result: i32,
    /// To be closed.
    pub closing: Option<OwnedFd>,
}

/// Where an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Free,
    Waiting,
    UnderWay,
    Ended,
}

impl<T> Slot<T> {
    pub fn new() -> Slot<T> {
        Slot {
            generation: 0,
            body: None,
            place: Place::Free,
            done: 0,
            is_direct: false,
            is_buffered: false,
            is_cancelled: false,
            result: 0,
            closing: None,
        }
    }

    /// Whether an answer is not the last one of its operation. Counts what it has moved.
    pub fn is_to_go_on(&mut self, result: i32) -> bool {
        if self.is_cancelled {
            self.done += u64::from(result.max(0) as u32);
            return false;
        }
        let Some((operation, _)) = &self.body else { return false };
        if result == -libc::EINTR && !matches!(operation, Operation::Close { .. }) {
            return true;
        }
        let pieces = match operation {
            Operation::Read { into: pieces, .. } | Operation::Write { from: pieces, .. } => pieces,
            _ => return false,
        };
        if result == -libc::EINVAL && self.is_direct {
            self.is_buffered = true;
            return true;
        }
        self.done += u64::from(result.max(0) as u32);
        result > 0 && self.done < total(pieces)
    }
}
