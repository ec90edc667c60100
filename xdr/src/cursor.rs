//! Reader and writer of XDR primitives in a borrowed buffer: bounds-checked, without panics.
//!
//! XDR (RFC 4506) is a sequence of big-endian 32-bit words. An opaque of a length that is no
//! multiple of four is followed by one to three zero bytes; the reader requires zeros (wire.md W5),
//! so that decoding and encoding are exact inverses.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{DecodeError, NoRoom};

/// Decodes XDR items from the front of a byte slice.
///
/// Positions are relative to the start of the outermost slice, also inside an opaque, so that an
/// error states its position in the message.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    /// The position at which `rest` ends.
    end: usize,
}

impl<'a> Reader<'a> {
    /// Starts at position zero of `bytes`.
    #[inline]
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, end: bytes.len() }
    }

    /// Starts at `position` of a longer message, whose rest is `bytes`.
    #[inline]
    pub(crate) const fn at(bytes: &'a [u8], position: usize) -> Self {
        Self { rest: bytes, end: position.saturating_add(bytes.len()) }
    }

    /// Takes an unsigned 32-bit integer.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if fewer than four bytes are left.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        match self.rest.split_first_chunk::<4>() {
            Some((word, rest)) => {
                self.rest = rest;
                Ok(u32::from_be_bytes(*word))
            }
            None => Err(self.truncated()),
        }
    }

    /// Takes `N` words in one bounds check.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`], at the first missing word.
    #[inline]
    pub(crate) fn words<const N: usize>(&mut self) -> Result<[u32; N], DecodeError> {
        match self.rest.split_at_checked(4 * N) {
            Some((bytes, rest)) => {
                self.rest = rest;
                Ok(to_words(bytes))
            }
            None => Err(self.truncated_words()),
        }
    }

    /// Takes a fixed structure without a copy, in one bounds check.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`], at the first missing word.
    #[inline]
    pub(crate) fn take<T>(&mut self) -> Result<&'a T, DecodeError>
    where
        T: FromBytes + Immutable + KnownLayout + Unaligned,
    {
        match T::ref_from_prefix(self.rest) {
            Ok((value, rest)) => {
                self.rest = rest;
                Ok(value)
            }
            Err(_) => Err(self.truncated_words()),
        }
    }

    /// Takes an unsigned 64-bit integer (XDR unsigned hyper).
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if fewer than eight bytes are left.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        match self.rest.split_first_chunk::<8>() {
            Some((words, rest)) => {
                self.rest = rest;
                Ok(u64::from_be_bytes(*words))
            }
            None => Err(self.truncated()),
        }
    }

    /// Takes a bool: exactly 0 or 1 (wire.md X9).
    ///
    /// # Errors
    /// [`DecodeError::Truncated`], or [`DecodeError::BadBool`] for any other value.
    #[inline]
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        let at = self.at_u32();
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(DecodeError::BadBool { at, value }),
        }
    }

    /// Takes a counted opaque of at most `max` bytes, with its zero padding.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`], [`DecodeError::TooMany`] or [`DecodeError::BadPadding`].
    #[inline]
    pub fn opaque(&mut self, max: u32) -> Result<&'a [u8], DecodeError> {
        let at = self.at_u32();
        let len = self.u32()?;
        if len > max {
            return Err(DecodeError::TooMany { at, count: len, max });
        }
        self.fixed(len as usize)
    }

    /// Takes an opaque of known length, with its zero padding.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] or [`DecodeError::BadPadding`].
    #[inline]
    pub fn fixed(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (data, rest) = self.rest.split_at_checked(len).ok_or_else(|| self.truncated())?;
        let pad_at = self.end - rest.len();
        let (pad, rest) = rest.split_at_checked(pad_len(len)).ok_or_else(|| self.truncated())?;
        if pad.iter().any(|byte| *byte != 0) {
            return Err(DecodeError::BadPadding { at: clamp(pad_at) });
        }
        self.rest = rest;
        Ok(data)
    }

    /// Takes `len` bytes, without padding, as a reader with the same positions.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if fewer bytes are left.
    #[inline]
    pub(crate) fn inner(&mut self, len: usize) -> Result<Reader<'a>, DecodeError> {
        let (data, rest) = self.rest.split_at_checked(len).ok_or_else(|| self.truncated())?;
        let inner = Reader { rest: data, end: self.end - rest.len() };
        self.rest = rest;
        Ok(inner)
    }

    /// Ends the decoding of a structure that must fill its opaque exactly (wire.md X12, P4).
    ///
    /// # Errors
    /// [`DecodeError::Trailing`] if bytes are left.
    #[inline]
    pub(crate) fn finish(&self) -> Result<(), DecodeError> {
        match self.rest.len() {
            0 => Ok(()),
            extra => Err(DecodeError::Trailing { at: self.at_u32(), extra: clamp(extra) }),
        }
    }

    /// Bytes taken so far: the offset of the next item.
    #[inline]
    #[must_use]
    pub const fn position(&self) -> usize {
        self.end - self.rest.len()
    }

    /// Bytes that are left.
    #[inline]
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// All bytes that are left, without taking them.
    #[inline]
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// [`Reader::position`] for an error.
    #[inline]
    pub(crate) const fn at_u32(&self) -> u32 {
        clamp(self.position())
    }

    /// The position of the word that was taken last, for errors.
    #[inline]
    pub(crate) const fn at_last_word(&self) -> u32 {
        clamp(self.position().saturating_sub(4))
    }

    #[cold]
    fn truncated_words(&self) -> DecodeError {
        DecodeError::Truncated { at: clamp(self.end - self.rest.len() % 4) }
    }

    #[cold]
    fn truncated(&self) -> DecodeError {
        DecodeError::Truncated { at: self.at_u32() }
    }
}

/// Encodes XDR items into a byte slice.
#[derive(Debug)]
pub struct Writer<'a> {
    buffer: &'a mut [u8],
    position: usize,
}

impl<'a> Writer<'a> {
    /// Starts at the front of `buffer`.
    #[inline]
    #[must_use]
    pub const fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, position: 0 }
    }

    /// Puts an unsigned 32-bit integer.
    ///
    /// # Errors
    /// [`NoRoom`] if fewer than four bytes are left.
    #[inline]
    pub fn put_u32(&mut self, value: u32) -> Result<(), NoRoom> {
        self.put_bytes(value.to_be_bytes())
    }

    /// Puts an unsigned 64-bit integer (XDR unsigned hyper).
    ///
    /// # Errors
    /// [`NoRoom`] if fewer than eight bytes are left.
    #[inline]
    pub fn put_u64(&mut self, value: u64) -> Result<(), NoRoom> {
        self.put_bytes(value.to_be_bytes())
    }

    /// Puts a bool as 0 or 1.
    ///
    /// # Errors
    /// [`NoRoom`] if fewer than four bytes are left.
    #[inline]
    pub fn put_bool(&mut self, value: bool) -> Result<(), NoRoom> {
        self.put_u32(u32::from(value))
    }

    /// Puts a counted opaque with its zero padding.
    ///
    /// # Errors
    /// [`NoRoom`] if it does not fit; also for data whose length does not fit in 32 bits.
    #[inline]
    pub fn put_opaque(&mut self, data: &[u8]) -> Result<(), NoRoom> {
        let len = u32::try_from(data.len()).map_err(|_| self.no_room(usize::MAX))?;
        self.put_u32(len)?;
        self.put_fixed(data)
    }

    /// Puts an opaque without its length, with its zero padding.
    ///
    /// # Errors
    /// [`NoRoom`] if it does not fit.
    #[inline]
    pub fn put_fixed(&mut self, data: &[u8]) -> Result<(), NoRoom> {
        let padded = data.len().saturating_add(pad_len(data.len()));
        let room = self.buffer.get_mut(self.position..).unwrap_or_default();
        let Some((slot, _)) = room.split_at_mut_checked(padded) else {
            return Err(self.no_room(padded));
        };
        let (body, pad) = slot.split_at_mut(data.len());
        body.copy_from_slice(data);
        pad.fill(0);
        self.position += padded;
        Ok(())
    }

    /// Puts a fixed structure in one bounds check.
    ///
    /// # Errors
    /// [`NoRoom`] if it does not fit.
    #[inline]
    pub fn put<T: IntoBytes + Immutable>(&mut self, value: &T) -> Result<(), NoRoom> {
        let room = self.buffer.get_mut(self.position..).unwrap_or_default();
        let Some((slot, _)) = room.split_at_mut_checked(size_of::<T>()) else {
            return Err(self.no_room(size_of::<T>()));
        };
        slot.copy_from_slice(value.as_bytes());
        self.position += size_of::<T>();
        Ok(())
    }

    /// Puts `WORDS` words in one bounds check; `BYTES` is four times as many.
    #[inline]
    pub(crate) fn put_words<const WORDS: usize, const BYTES: usize>(
        &mut self,
        words: [u32; WORDS],
    ) -> Result<(), NoRoom> {
        self.put_bytes::<BYTES>(to_bytes(words))
    }

    #[inline]
    fn put_bytes<const N: usize>(&mut self, bytes: [u8; N]) -> Result<(), NoRoom> {
        match self.buffer.get_mut(self.position..).and_then(|room| room.first_chunk_mut::<N>()) {
            Some(slot) => {
                *slot = bytes;
                self.position += N;
                Ok(())
            }
            None => Err(self.no_room(N)),
        }
    }

    /// Puts the output of `body`, preceded by its length in bytes.
    ///
    /// `body` must put whole words: no padding follows.
    #[inline]
    pub(crate) fn put_sized(
        &mut self,
        body: impl FnOnce(&mut Self) -> Result<(), NoRoom>,
    ) -> Result<(), NoRoom> {
        let len_at = self.position;
        self.put_u32(0)?;
        let start = self.position;
        body(self)?;
        let len = clamp(self.position - start);
        if let Some(slot) =
            self.buffer.get_mut(len_at..start).and_then(|word| word.first_chunk_mut())
        {
            *slot = len.to_be_bytes();
        }
        Ok(())
    }

    /// Bytes put so far.
    #[inline]
    #[must_use]
    pub const fn position(&self) -> usize {
        self.position
    }

    /// Bytes that are left.
    #[inline]
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.buffer.len() - self.position
    }

    /// The bytes put so far.
    #[inline]
    #[must_use]
    pub fn written(&self) -> &[u8] {
        self.buffer.get(..self.position).unwrap_or_default()
    }

    #[cold]
    fn no_room(&self, need: usize) -> NoRoom {
        NoRoom { need: clamp(need), left: clamp(self.remaining()) }
    }
}

/// Zero bytes after an opaque of `len` bytes.
#[inline]
#[must_use]
pub const fn pad_len(len: usize) -> usize {
    len.wrapping_neg() & 3
}

#[inline]
fn to_bytes<const WORDS: usize, const BYTES: usize>(words: [u32; WORDS]) -> [u8; BYTES] {
    const { assert!(BYTES == 4 * WORDS) };
    let mut bytes = [0; BYTES];
    for (bytes, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *bytes = word.to_be_bytes();
    }
    bytes
}

/// The first `N` words of `bytes`; missing words are zero.
#[inline]
pub(crate) fn to_words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    words
}

/// A position for an error: messages are shorter than 4 GiB.
#[inline]
const fn clamp(value: usize) -> u32 {
    if value > u32::MAX as usize { u32::MAX } else { value as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_big_endian() {
        let mut reader = Reader::new(&[0, 0, 1, 2, 0, 0, 0, 3, 0, 0, 0, 4]);
        assert_eq!(reader.u32(), Ok(0x102));
        assert_eq!(reader.u64(), Ok(0x3_0000_0004));
        assert_eq!((reader.position(), reader.remaining()), (12, 0));
    }

    #[test]
    fn a_truncated_item_does_not_move_the_reader() {
        let mut reader = Reader::new(&[0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(reader.u64(), Err(DecodeError::Truncated { at: 0 }));
        assert_eq!(reader.u32(), Ok(1));
        assert_eq!(reader.u32(), Err(DecodeError::Truncated { at: 4 }));
        assert_eq!(reader.rest(), [0, 0, 0]);
    }

    #[test]
    fn a_bool_is_zero_or_one_and_nothing_else() {
        for (value, expected) in [
            (0u32, Ok(false)),
            (1, Ok(true)),
            (2, Err(DecodeError::BadBool { at: 0, value: 2 })),
            (0x0100_0000, Err(DecodeError::BadBool { at: 0, value: 0x0100_0000 })),
            (u32::MAX, Err(DecodeError::BadBool { at: 0, value: u32::MAX })),
        ] {
            assert_eq!(Reader::new(&value.to_be_bytes()).bool(), expected);
        }
    }

    #[test]
    fn an_opaque_of_each_length_is_padded_with_zeros_to_a_word() {
        let data = [1, 2, 3, 4, 5, 6, 7, 8];
        for len in 0..=8 {
            let mut buffer = [0xff; 16];
            let mut writer = Writer::new(&mut buffer);
            writer.put_opaque(&data[..len]).unwrap();
            let padded = 4 + len.next_multiple_of(4);
            assert_eq!(writer.position(), padded);
            assert!(writer.written()[4 + len..].iter().all(|byte| *byte == 0));
            let mut reader = Reader::new(&buffer);
            assert_eq!(reader.opaque(8), Ok(&data[..len]));
            assert_eq!(reader.position(), padded);
        }
    }

    #[test]
    fn padding_that_is_not_zero_is_refused() {
        let bytes = [0, 0, 0, 2, 7, 7, 0, 1];
        assert_eq!(Reader::new(&bytes).opaque(2), Err(DecodeError::BadPadding { at: 6 }));
    }

    #[test]
    fn padding_that_is_not_there_is_refused() {
        let bytes = [0, 0, 0, 2, 7, 7, 0];
        assert_eq!(Reader::new(&bytes).opaque(2), Err(DecodeError::Truncated { at: 4 }));
    }

    #[test]
    fn an_opaque_may_be_as_long_as_its_limit_and_not_longer() {
        let bytes = [0, 0, 0, 2, 7, 7, 0, 0];
        assert_eq!(Reader::new(&bytes).opaque(2), Ok(&[7, 7][..]));
        let error = DecodeError::TooMany { at: 0, count: 2, max: 1 };
        assert_eq!(Reader::new(&bytes).opaque(1), Err(error));
    }

    #[test]
    fn a_length_of_four_gigabytes_reads_nothing_beyond_the_end() {
        let bytes = [0xff; 12];
        assert_eq!(Reader::new(&bytes).opaque(u32::MAX), Err(DecodeError::Truncated { at: 4 }));
        assert!(Reader::new(&bytes).fixed(usize::MAX).is_err());
    }

    #[test]
    fn positions_inside_an_opaque_are_those_of_the_message() {
        let mut reader = Reader::new(&[0, 0, 0, 9, 0, 0, 0, 2, 0, 0, 0, 5]);
        reader.u32().unwrap();
        let mut inner = reader.inner(4).unwrap();
        assert_eq!(inner.bool(), Err(DecodeError::BadBool { at: 4, value: 2 }));
        assert_eq!((inner.position(), reader.position()), (8, 8));
        assert_eq!(inner.finish(), Ok(()));
        assert_eq!(reader.finish(), Err(DecodeError::Trailing { at: 8, extra: 4 }));
    }

    #[test]
    fn a_full_writer_reports_the_missing_room() {
        let mut buffer = [0; 6];
        let mut writer = Writer::new(&mut buffer);
        writer.put_u32(1).unwrap();
        assert_eq!(writer.put_u32(2), Err(NoRoom { need: 4, left: 2 }));
        assert_eq!(writer.put_fixed(&[1, 2, 3]), Err(NoRoom { need: 4, left: 2 }));
        assert_eq!(writer.written(), [0, 0, 0, 1]);
    }

    #[test]
    fn a_sized_body_is_preceded_by_its_length() {
        let mut buffer = [0; 12];
        let mut writer = Writer::new(&mut buffer);
        writer.put_sized(|writer| writer.put_u64(1)).unwrap();
        assert_eq!(buffer, [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1]);
    }
}
