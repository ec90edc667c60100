//! XDR of NFS version 4, written and read word by word.

use rpcrdma::{EndOfMessage, PayloadReader};

/// The name of a session (`sessionid4`).
pub type SessionId = [u8; 16];

/// A file handle (`nfs_fh4`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FileHandle(pub Vec<u8>);

/// A state (`stateid4`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StateId {
    /// How often it has changed (`seqid`).
    pub sequence: u32,
    /// Which one it is (`other`).
    pub other: [u8; 12],
}

impl StateId {
    /// The state of one who has opened nothing.
    pub const ANONYMOUS: StateId = StateId { sequence: 0, other: [0; 12] };
}

/// The body of the credentials AUTH_SYS of root.
pub fn root_credentials() -> Vec<u8> {
    // Stamp, name of the machine, user, group, further groups.
    let mut out = Words::default();
    out.u32(0).opaque(b"tests").u32(0).u32(0).list(&[]);
    out.0
}

/// XDR under construction.
#[derive(Debug, Clone, Default)]
pub struct Words(pub Vec<u8>);

impl Words {
    /// Appends a word.
    pub fn u32(&mut self, word: u32) -> &mut Words {
        self.fixed(&word.to_be_bytes())
    }

    /// Appends two words.
    pub fn u64(&mut self, value: u64) -> &mut Words {
        self.fixed(&value.to_be_bytes())
    }

    /// Appends bytes of a known length, padded.
    pub fn fixed(&mut self, bytes: &[u8]) -> &mut Words {
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Appends a length and bytes.
    pub fn opaque(&mut self, bytes: &[u8]) -> &mut Words {
        self.u32(bytes.len() as u32).fixed(bytes)
    }

    /// Appends a list of words, as of a bitmap.
    pub fn list(&mut self, words: &[u32]) -> &mut Words {
        self.u32(words.len() as u32);
        words.iter().fold(self, |out, &word| out.u32(word))
    }

    /// Appends a state.
    pub fn state(&mut self, state: &StateId) -> &mut Words {
        self.u32(state.sequence).fixed(&state.other)
    }
}

/// Reads what [`Words`] writes.
pub trait Take {
    /// Bytes of a known length, a multiple of four.
    ///
    /// # Errors
    /// If the message is cut off.
    fn array<const N: usize>(&mut self) -> Result<[u8; N], EndOfMessage>;

    /// Bytes behind their length.
    ///
    /// # Errors
    /// If the message is cut off.
    fn opaque(&mut self) -> Result<Vec<u8>, EndOfMessage>;

    /// A list of words.
    ///
    /// # Errors
    /// If the message is cut off.
    fn list(&mut self) -> Result<Vec<u32>, EndOfMessage>;

    /// A state.
    ///
    /// # Errors
    /// If the message is cut off.
    fn state(&mut self) -> Result<StateId, EndOfMessage>;
}

impl Take for PayloadReader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], EndOfMessage> {
        let mut bytes = [0; N];
        self.fixed_into(&mut bytes)?;
        Ok(bytes)
    }

    fn opaque(&mut self) -> Result<Vec<u8>, EndOfMessage> {
        let mut left = self.u32()? as usize;
        let padding = left.next_multiple_of(4) - left;
        let mut bytes = Vec::new();
        while left > 0 {
            let some = self.some(left)?;
            bytes.extend_from_slice(some);
            left -= some.len();
        }
        self.skip(padding)?;
        Ok(bytes)
    }

    fn list(&mut self) -> Result<Vec<u32>, EndOfMessage> {
        let count = self.u32()?;
        (0..count).map(|_| self.u32()).collect()
    }

    fn state(&mut self) -> Result<StateId, EndOfMessage> {
        Ok(StateId { sequence: self.u32()?, other: self.array()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let state = StateId { sequence: 7, other: *b"twelve bytes" };
        let mut words = Words::default();
        words.u32(1).u64(2).opaque(b"abcde").list(&[3, 4]).state(&state).fixed(&[5; 16]);
        let mut reader = PayloadReader::of(&words.0);
        assert_eq!((reader.u32(), reader.u64()), (Ok(1), Ok(2)));
        assert_eq!(reader.opaque().as_deref(), Ok(&b"abcde"[..]));
        assert_eq!(reader.list(), Ok(vec![3, 4]));
        assert_eq!((reader.state(), reader.array()), (Ok(state), Ok([5; 16])));
        assert_eq!(reader.u32(), Err(EndOfMessage));
    }

    #[test]
    fn a_length_beyond_the_end_is_an_error() {
        let mut reader = PayloadReader::of(&[0xff; 12]);
        assert_eq!(reader.opaque(), Err(EndOfMessage));
    }
}
