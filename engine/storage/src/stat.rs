//! The properties of a file, as the kernel writes them.
#![expect(unsafe_code, reason = "a structure of the kernel that is zero at first")]

/// The properties of a file.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub struct Stat(pub libc::statx);

impl Stat {
    /// Bytes of the file.
    #[expect(clippy::len_without_is_empty, reason = "the length of a file, not of this value")]
    pub fn len(&self) -> u64 {
        self.0.stx_size
    }
}

impl Default for Stat {
    /// Nothing is known.
    fn default() -> Stat {
        // SAFETY: the structure has numbers only, for which all bits zero are valid.
        Stat(unsafe { std::mem::zeroed() })
    }
}
