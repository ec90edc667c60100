//! Access to the memory of the other side, which is in the same process and has the same key table.
#![expect(unsafe_code, reason = "a device reads and writes memory that has no Rust name")]

use rpcrdma_transport::body::Piece;
use rpcrdma_transport::carrier::DmaError;
use rpcrdma_transport::keys::KeyCache;
use rpcrdma_transport::rights::Granted;

/// Passes on the memory that a slot refers to, piece by piece.
#[inline(always)]
pub(super) fn each(
    pieces: impl Iterator<Item = Piece>,
    keys: &KeyCache,
    mut put: impl FnMut(*const u8, usize) -> Result<(), DmaError>,
) -> Result<(), DmaError> {
    for piece in pieces {
        let (from, len) = place(piece, keys)?;
        put(std::ptr::with_exposed_provenance(from), len)?;
    }
    Ok(())
}

/// Copies the bytes of a Read to the memory of the peer that posted it.
///
/// `post_send` lent the memory that the slot refers to until the Read is finished or withdrawn.
#[inline]
pub(super) fn fill(
    pieces: impl Iterator<Item = Piece>,
    keys: &KeyCache,
    from: Granted,
) -> Result<(), DmaError> {
    let mut from = std::ptr::with_exposed_provenance::<u8>(from.addr() as usize);
    for piece in pieces {
        let (to, len) = place(piece, keys)?;
        let to = std::ptr::with_exposed_provenance_mut::<u8>(to);
        // SAFETY: `to` lies with all its bytes in a region that is registered for writing: posting
        // the Read checked that, and a key never changes its rights. The contract of `post_send`
        // keeps other code from it. The pieces are as long as the granted memory. They may overlap
        // if a program reads from itself.
        unsafe { std::ptr::copy(from, to, len) };
        from = from.wrapping_add(len);
    }
    Ok(())
}

/// The address and the length of a piece of the peer's memory, if it is still there.
#[inline(always)]
fn place(Piece { key, len, offset }: Piece, keys: &KeyCache) -> Result<(usize, usize), DmaError> {
    let at = keys.locate(key, offset, len).ok_or(DmaError::Source)?;
    Ok((at as usize, len as usize))
}
