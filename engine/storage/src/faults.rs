//! For tests: requests that fail, are short, are late, or overtake each other, as a seed says.
#![expect(unsafe_code, reason = "requests name memory by its address")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::request::{Request, Transfer};

/// Does requests in any order, some of them badly.
pub(crate) struct Faults {
    waiting: Vec<(u32, Request)>,
    state: u64,
    /// Requests that were pushed and not answered.
    pub open: Arc<AtomicU32>,
    /// One of so many requests fails.
    pub fails: u64,
}

impl Faults {
    pub fn new(seed: u64, fails: u64) -> Faults {
        Faults { waiting: Vec::new(), state: seed << 1 | 1, open: Arc::default(), fails }
    }

    /// # Safety
    /// What the request points to stays valid and untouched until [`Faults::reap`] has returned its
    /// slot.
    pub unsafe fn push(&mut self, slot: u32, request: Request) {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.waiting.push((slot, request));
    }

    pub fn reap(&mut self) -> Option<(u32, i32)> {
        if self.waiting.is_empty() || self.below(3) == 0 {
            return None;
        }
        let at = self.below(self.waiting.len() as u64) as usize;
        let (slot, request) = self.waiting.swap_remove(at);
        self.open.fetch_sub(1, Ordering::Relaxed);
        if !matches!(request, Request::Close { .. }) && self.below(self.fails) == 0 {
            let error = [libc::EIO, libc::ENOSPC, libc::EINTR][self.below(3) as usize];
            return Some((slot, -error));
        }
        let mut piece = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let request = match request {
            Request::Read(transfer) if self.below(2) == 0 => {
                Request::Read(self.shorten(transfer, &mut piece))
            }
            Request::Write(transfer) if self.below(2) == 0 => {
                Request::Write(self.shorten(transfer, &mut piece))
            }
            request => request,
        };
        // SAFETY: who has pushed the request guarantees that what it points to is valid; a shorter
        // one points to a part of that.
        Some((slot, unsafe { request.perform() }))
    }

    /// A part of the first piece.
    fn shorten(&mut self, transfer: Transfer, piece: &mut libc::iovec) -> Transfer {
        *piece = transfer.first();
        piece.iov_len = 1 + self.below(piece.iov_len as u64) as usize;
        Transfer { vector: piece, pieces: 1, ..transfer }
    }

    /// A number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % end
    }
}
