//! A bulk item: bytes of a message that may be sent separately from its payload.

use rpcrdma_xdr::cursor::pad_len;

/// An item that may leave the payload stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BulkItem {
    /// Where its first byte is in the stream with nothing excised; a multiple of four.
    pub position: u32,
    /// Its bytes, without padding.
    pub len: u32,
    /// In a reply: where in the call's stream the operation began that produced it. Else 0.
    pub origin: u32,
    /// Memory pieces that it is gathered from, at least 1.
    pub pieces: u32,
}

impl BulkItem {
    /// Bytes that it takes in the stream with nothing excised.
    #[inline]
    #[must_use]
    pub fn padded_len(&self) -> u32 {
        self.len + pad_len(self.len as usize) as u32
    }
}
