//! How a slot states where its bytes are: by one piece whose key is one of these.

/// The bytes lie in the staging area of the slot's direction, from the piece's offset on.
pub(crate) const STAGED: u32 = u32::MAX;
/// The bytes could not be read: their registration was gone when the request was published.
pub(crate) const UNREADABLE: u32 = u32::MAX - 1;
/// The answer to a short Read goes to its slot, in place of this piece.
pub(crate) const IN_SLOT: u32 = u32::MAX - 2;
