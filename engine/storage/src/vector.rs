//! The pieces of a read or a write as the system takes them, and the registered memory they lie in.

use std::ptr;

use rpcrdma_mempool::Region;

use crate::operation::{PIECES_MAX, Pieces};

/// Room for the pieces of an operation.
pub(crate) type Vector = [libc::iovec; PIECES_MAX];

/// Registered memory, by its addresses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buffer {
    start: usize,
    end: usize,
}

impl Buffer {
    /// What was registered.
    pub fn of(buffer: &libc::iovec) -> Buffer {
        let start = buffer.iov_base.addr();
        Buffer { start, end: start + buffer.iov_len }
    }

    /// Whether all pieces lie in it.
    #[inline]
    pub fn contains(&self, vector: &[libc::iovec]) -> bool {
        vector.iter().all(|piece| {
            let start = piece.iov_base.addr();
            self.start <= start && start + piece.iov_len <= self.end
        })
    }
}

/// What is left of a read or a write.
pub(crate) struct Rest {
    /// Pieces.
    pub count: usize,
    /// Bytes.
    pub len: u64,
    /// All addresses and lengths, one bit above the other.
    pub bits: u64,
}

/// Writes the pieces behind the first `done` bytes into a vector.
pub(crate) fn rest(pieces: &mut Pieces, done: u64, vector: &mut Vector) -> Rest {
    let (mut skip, mut rest) = (done, Rest { count: 0, len: 0, bits: 0 });
    for piece in pieces {
        let len = piece.len() as u64;
        if skip >= len {
            skip -= len;
            continue;
        }
        let base = piece.as_mut_ptr().wrapping_add(skip as usize);
        let left = len - std::mem::take(&mut skip);
        vector[rest.count] = libc::iovec { iov_base: base.cast(), iov_len: left as usize };
        rest.count += 1;
        rest.len += left;
        rest.bits |= base.addr() as u64 | left;
    }
    rest
}

/// Their bytes.
pub(crate) fn total(pieces: &Pieces) -> u64 {
    pieces.iter().map(|piece| piece.len() as u64).sum()
}

/// Regions as buffers that the kernel can register.
pub(crate) fn buffers<'a>(regions: impl Iterator<Item = &'a Region>) -> Vec<libc::iovec> {
    let mut buffers = Vec::new();
    for region in regions {
        let base = region.base().as_ptr();
        for at in (0..region.len()).step_by(BUFFER_LEN_MAX) {
            let iov_len = BUFFER_LEN_MAX.min(region.len() - at);
            buffers.push(libc::iovec { iov_base: base.wrapping_add(at).cast(), iov_len });
        }
    }
    buffers
}

/// A vector without pieces.
pub(crate) const EMPTY: Vector =
    [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; PIECES_MAX];
/// The longest buffer that the kernel registers.
const BUFFER_LEN_MAX: usize = 1 << 30;
