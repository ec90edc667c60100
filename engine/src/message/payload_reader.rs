//! Reads XDR from the payload stream of a received message.

use rpcrdma_xdr::onc::RpcPrefix;

use super::incoming::{Incoming, PayloadStream};

/// Reads XDR from a payload stream, across its slices.
///
/// ```
/// use rpcrdma::PayloadReader;
///
/// let mut reader = PayloadReader::of(&[0, 0, 0, 7, 0, 0, 0, 2, b'h', b'i', 0, 0]);
/// assert_eq!(reader.u32(), Ok(7));
/// let mut name = [0; 8];
/// let name = reader.opaque_into(&mut name)?;
/// assert_eq!(name, b"hi");
/// assert!(reader.u32().is_err(), "the message ends here");
/// # Ok::<(), rpcrdma::ReadError>(())
/// ```
#[derive(Debug, Clone)]
pub struct PayloadReader<'a> {
    stream: PayloadStream<'a>,
    slice: &'a [u8],
    /// Bytes of the slices up to and including `slice`.
    seen: usize,
}

/// The payload stream ends before the requested data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the message ends too early")]
pub struct EndOfMessage;

/// Why a value cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The message ends before it.
    #[error(transparent)]
    End(#[from] EndOfMessage),
    /// Opaque data or a string is longer than the caller allows.
    #[error("{len} bytes of opaque data; at most {max} are allowed")]
    TooLong {
        /// Its count.
        len: usize,
        /// The most that is allowed.
        max: usize,
    },
    /// A boolean, or the word in front of optional data, is neither 0 nor 1.
    #[error("a boolean is {value}; allowed: 0 and 1")]
    BadBool {
        /// What came.
        value: u32,
    },
    /// A string is not UTF-8.
    #[error("a string is not UTF-8 from byte {valid_up_to} on")]
    BadText {
        /// Bytes of it that are.
        valid_up_to: usize,
    },
}

impl Incoming<'_> {
    /// A reader of the payload stream, positioned behind transaction id and message type.
    pub fn reader(&self) -> PayloadReader<'_> {
        let mut reader = PayloadReader { stream: self.payload(), slice: &[], seen: 0 };
        // The engine has already read these two words of the call.
        let _ = reader.skip(RpcPrefix::LEN);
        reader
    }
}

impl<'a> PayloadReader<'a> {
    /// A reader of payload that a program has kept. Positions count from its first byte.
    pub fn of(bytes: &'a [u8]) -> PayloadReader<'a> {
        let stream = PayloadStream::empty();
        PayloadReader { stream, slice: bytes, seen: bytes.len() }
    }

    /// Bytes read so far, from the transaction id on. Placed items are not in the payload: add the
    /// padded lengths of those before it to get the position in the unreduced XDR stream.
    pub fn position(&self) -> usize {
        self.seen - self.slice.len()
    }

    /// An unsigned integer.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, EndOfMessage> {
        if let Some((word, rest)) = self.slice.split_first_chunk() {
            self.slice = rest;
            return Ok(u32::from_be_bytes(*word));
        }
        let mut word = [0; 4];
        self.bytes_into(&mut word)?;
        Ok(u32::from_be_bytes(word))
    }

    /// An unsigned hyper integer.
    pub fn u64(&mut self) -> Result<u64, EndOfMessage> {
        Ok(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    /// An integer.
    pub fn i32(&mut self) -> Result<i32, EndOfMessage> {
        Ok(self.u32()?.cast_signed())
    }

    /// A hyper integer.
    pub fn i64(&mut self) -> Result<i64, EndOfMessage> {
        Ok(self.u64()?.cast_signed())
    }

    /// A boolean.
    ///
    /// # Errors
    /// [`ReadError`], also for a value that is neither 0 nor 1.
    pub fn bool(&mut self) -> Result<bool, ReadError> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(ReadError::BadBool { value }),
        }
    }

    /// Optional data, as [`Payload::put_optional`](crate::Payload::put_optional) writes it: whether
    /// there is a value, and the value by `read`.
    ///
    /// # Errors
    /// [`ReadError`], also that of `read`.
    pub fn optional<T, E: Into<ReadError>>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<Option<T>, ReadError> {
        match self.bool()? {
            true => read(self).map(Some).map_err(Into::into),
            false => Ok(None),
        }
    }

    /// Fixed-length opaque data, as [`Payload::put_fixed`](crate::Payload::put_fixed) writes it:
    /// bytes into `out`, padding.
    pub fn fixed_into(&mut self, out: &mut [u8]) -> Result<(), EndOfMessage> {
        let padding = out.len().next_multiple_of(4) - out.len();
        self.bytes_into(out)?;
        self.skip(padding)
    }

    /// Variable-length opaque data of at most `max` bytes: count, bytes, padding. Allocates no more
    /// than the message has.
    ///
    /// # Errors
    /// [`ReadError`]. If the data is too long only the count is read.
    pub fn opaque_vec(&mut self, max: usize) -> Result<Vec<u8>, ReadError> {
        let len = self.u32()? as usize;
        if len > max {
            return Err(ReadError::TooLong { len, max });
        }
        let mut bytes = Vec::new();
        while bytes.len() < len {
            bytes.extend_from_slice(self.some(len - bytes.len())?);
        }
        self.skip(len.next_multiple_of(4) - len)?;
        Ok(bytes)
    }

    /// A string of at most `max` bytes: count, bytes, padding.
    ///
    /// # Errors
    /// As [`PayloadReader::opaque_vec`], and if it is not UTF-8.
    pub fn string(&mut self, max: usize) -> Result<String, ReadError> {
        String::from_utf8(self.opaque_vec(max)?).map_err(|error| {
            let valid_up_to = error.utf8_error().valid_up_to();
            ReadError::BadText { valid_up_to }
        })
    }

    /// Bytes without padding, into `out`.
    pub fn bytes_into(&mut self, mut out: &mut [u8]) -> Result<(), EndOfMessage> {
        while !out.is_empty() {
            let part = self.some(out.len())?;
            let (now, later) = out.split_at_mut(part.len());
            now.copy_from_slice(part);
            out = later;
        }
        Ok(())
    }

    /// Variable-length opaque data or a string, as
    /// [`Payload::put_opaque`](crate::Payload::put_opaque) writes it: count, bytes, padding. Copies
    /// them to the beginning of `out`, whose length is the maximum, and returns them.
    ///
    /// # Errors
    /// [`ReadError`]. If the data is too long only the count is read.
    pub fn opaque_into<'b>(&mut self, out: &'b mut [u8]) -> Result<&'b mut [u8], ReadError> {
        let (len, max) = (self.u32()? as usize, out.len());
        let out = out.get_mut(..len).ok_or(ReadError::TooLong { len, max })?;
        self.fixed_into(out)?;
        Ok(out)
    }

    /// Skips `len` bytes.
    pub fn skip(&mut self, mut len: usize) -> Result<(), EndOfMessage> {
        while len > 0 {
            len -= self.some(len)?.len();
        }
        Ok(())
    }

    /// At most `max` bytes, as many as are contiguous; at least one.
    pub fn some(&mut self, max: usize) -> Result<&'a [u8], EndOfMessage> {
        let (now, later) = match self.together() {
            [] => return Err(EndOfMessage),
            slice => slice.split_at(max.min(slice.len())),
        };
        self.slice = later;
        Ok(now)
    }

    /// All contiguous bytes from here on, without consuming them; none at the end.
    #[inline]
    pub(crate) fn together(&mut self) -> &'a [u8] {
        while self.slice.is_empty() {
            let Some(slice) = self.stream.next() else { break };
            self.slice = slice;
            self.seen += slice.len();
        }
        self.slice
    }
}
