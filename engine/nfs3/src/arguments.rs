//! Reads and checks the arguments of each NFS procedure.
//!
//! `nfs3_types` decodes XDR into its own memory and does not limit the lengths that it reads. So
//! this module first walks through the arguments, guided by the fields of the procedure, and checks every length before it copies anything. `nfs3_types` decodes the fields
//! that contain no length. The result is short and contiguous; it does not contain DDP-eligible
//! data.

use std::io::{self, Read};

use nfs3_types::nfs3::{createhow3, mknoddata3, sattr3, sattrguard3};
use nfs3_types::xdr_codec::Unpack;
use rpcrdma::ulb::{ItemError, Items};
use rpcrdma::{Call, PayloadReader, TakeError};

use crate::call::WriteData;
use crate::drc::DataEnds;
use crate::rpc::CallDenial;

/// The arguments of a call.
#[derive(Debug, Default)]
pub struct Arguments {
    /// The encoded arguments, without the data of a WRITE.
    pub head: Vec<u8>,
    /// The data of a WRITE.
    pub data: Option<DataAt>,
}

/// The location of the data of a WRITE.
#[derive(Debug)]
pub enum DataAt {
    /// The index of the placed item, its number of pieces, and its length.
    Placed { index: usize, pieces: usize, len: usize },
    /// The data are in the payload stream.
    Copied(Vec<u8>),
}

/// Why the arguments of a call cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unusable {
    /// The call is answered with GARBAGE_ARGS.
    Garbage,
    /// Data that is not DDP-eligible was placed: the transport rejects the call (RFC 8166 6.1).
    Misplaced,
}

/// A field of the arguments of a procedure.
#[derive(Debug, Clone, Copy)]
pub enum ArgumentField {
    /// Bytes of fixed length.
    Fixed(usize),
    /// `nfs_fh3`
    Handle,
    /// `filename3`
    Name,
    /// `sattr3`
    Attributes,
    /// A boolean, then a time if it is true: `sattrguard3`.
    Guard,
    /// `createhow3`
    How,
    /// `mknoddata3`
    OpenFile,
    /// `nfspath3`, which is DDP-eligible.
    Path,
    /// The data of a WRITE, which are DDP-eligible.
    Data,
}

use ArgumentField::*;

impl Arguments {
    /// Reads the arguments of a procedure that has these fields.
    ///
    /// # Errors
    /// [`Unusable`] states how to answer the call.
    pub fn read(fields: &[ArgumentField], items: &mut Items<'_>) -> Result<Arguments, Unusable> {
        let mut arguments = Arguments::default();
        for field in fields {
            match field {
                ArgumentField::Path => arguments.path(items)?,
                ArgumentField::Data => arguments.data(items)?,
                field => take(*field, &mut CallStream(items.reader()), &mut arguments.head)?,
            }
        }
        items.end()?;
        Ok(arguments)
    }

    /// Decodes arguments as a type of `nfs3_types`.
    ///
    /// # Errors
    /// If a discriminant is not defined.
    pub fn decode<T: Unpack>(head: &[u8]) -> Result<T, CallDenial> {
        let (value, len) = T::unpack(&mut &head[..]).map_err(|_| CallDenial::Garbage)?;
        if len == head.len() { Ok(value) } else { Err(CallDenial::Garbage) }
    }

    /// Appends a path as it is encoded in the payload stream.
    fn path(&mut self, items: &mut Items<'_>) -> Result<(), Unusable> {
        let path = items.data()?;
        if path.len() > PATH_MAX {
            return Err(Unusable::Garbage);
        }
        self.head.extend(path.len().to_be_bytes());
        path.slices().for_each(|slice| self.head.extend_from_slice(slice));
        self.head.resize(self.head.len().next_multiple_of(4), 0);
        Ok(())
    }

    fn data(&mut self, items: &mut Items<'_>) -> Result<(), Unusable> {
        let data = items.data()?;
        self.data = Some(match data.placed_index() {
            Some(index) => {
                let (pieces, len) = (data.slices().count(), data.len() as usize);
                DataAt::Placed { index, pieces, len }
            }
            // What fits into the message is short: usually less than a page.
            None => DataAt::Copied(data.to_vec()),
        });
        Ok(())
    }
}

impl DataAt {
    /// The parts of the data that identify a repeated call.
    pub fn ends(&self, call: &Call<'_>) -> DataEnds {
        match self {
            DataAt::Copied(bytes) => DataEnds::of(bytes.len(), std::iter::once(&bytes[..])),
            DataAt::Placed { index, len, .. } => {
                let item = call.placed().nth(*index);
                item.map(|item| DataEnds::of(*len, item.segments())).unwrap_or_default()
            }
        }
    }

    /// Takes the data out of the call: as loans of the receive memory if possible, otherwise as
    /// copies.
    pub fn take(self, call: &mut Call<'_>) -> Vec<WriteData> {
        let DataAt::Placed { index, pieces, len } = self else {
            let DataAt::Copied(bytes) = self else { return Vec::new() };
            return vec![WriteData::Copy(bytes)];
        };
        let mut left = len;
        let mut parts = Vec::with_capacity(pieces);
        for piece in 0..pieces {
            let mut part = match call.take(index, piece) {
                Ok(loan) => WriteData::Loan(loan),
                Err(TakeError::NoSuchPiece | TakeError::Taken) => break,
                // The reserve is empty, or the segment also contains other data: they are readable.
                Err(_) => {
                    let item = call.placed().nth(index);
                    let slice = item.and_then(|item| item.segments().nth(piece));
                    WriteData::Copy(slice.unwrap_or_default().to_vec())
                }
            };
            // The data may be followed by XDR padding.
            part.truncate(left);
            left -= part.len();
            parts.push(part);
        }
        parts
    }
}

impl From<ItemError> for Unusable {
    fn from(error: ItemError) -> Unusable {
        match error {
            ItemError::End(_) | ItemError::TooLong { .. } => Unusable::Garbage,
            _ => Unusable::Misplaced,
        }
    }
}

impl From<CallDenial> for Unusable {
    fn from(_: CallDenial) -> Unusable {
        Unusable::Garbage
    }
}

/// Copies one field after checking its lengths.
fn take(field: ArgumentField, from: &mut impl Read, to: &mut Vec<u8>) -> Result<(), CallDenial> {
    let mut copied = Copied { from, to };
    let taken = match field {
        Fixed(len) => copied.fixed(len),
        Handle => copied.opaque(HANDLE_MAX),
        Name => copied.opaque(NAME_MAX),
        Attributes => copied.value::<sattr3>(),
        Guard => copied.value::<sattrguard3>(),
        How => copied.value::<createhow3>(),
        OpenFile => copied.value::<mknoddata3>(),
        Path | Data => None,
    };
    taken.ok_or(CallDenial::Garbage)
}

/// A reader that keeps a copy of the bytes that it reads.
struct Copied<'a, R> {
    from: &'a mut R,
    to: &'a mut Vec<u8>,
}

impl<R: Read> Copied<'_, R> {
    fn fixed(&mut self, len: usize) -> Option<()> {
        let begin = self.to.len();
        self.to.resize(begin + len, 0);
        self.from.read_exact(&mut self.to[begin..]).ok()
    }

    fn opaque(&mut self, len_max: usize) -> Option<()> {
        let len = u32::unpack(self).ok()?.0 as usize;
        if len > len_max { None } else { self.fixed(len.next_multiple_of(4)) }
    }

    /// Reads a value that contains no length.
    fn value<T: Unpack>(&mut self) -> Option<()> {
        T::unpack(self).ok().map(drop)
    }
}

impl<R: Read> Read for Copied<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.from.read_exact(out)?;
        self.to.extend_from_slice(out);
        Ok(out.len())
    }
}

/// The payload stream of a call.
struct CallStream<'a, 'b>(&'a mut PayloadReader<'b>);

impl Read for CallStream<'_, '_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.bytes_into(out).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        Ok(out.len())
    }
}

const HANDLE_MAX: usize = 64;
/// Longer than any file system accepts, so that a long name is answered with NFS3ERR_NAMETOOLONG.
const NAME_MAX: usize = 4096;
const PATH_MAX: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(field: ArgumentField, words: &[u32]) -> Result<usize, CallDenial> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let (mut from, mut to) = (&bytes[..], Vec::new());
        take(field, &mut from, &mut to)?;
        assert_eq!(to, bytes[..to.len()], "what is kept is what came");
        Ok(to.len() / 4)
    }

    #[test]
    fn lengths_are_checked_before_memory_is_allocated() {
        assert_eq!(taken(Handle, &[4, 7]), Ok(2));
        assert_eq!(taken(Handle, &[65]), Err(CallDenial::Garbage));
        assert_eq!(taken(Handle, &[u32::MAX, 1]), Err(CallDenial::Garbage));
        assert_eq!(taken(Name, &[4097]), Err(CallDenial::Garbage));
        assert_eq!(taken(Name, &[5, 1]), Err(CallDenial::Garbage), "it is cut off");
    }

    #[test]
    fn arms_of_unions_are_read() {
        let nothing = [0; 6];
        assert_eq!(taken(Attributes, &nothing), Ok(6));
        assert_eq!(taken(Attributes, &[1, 0o644, 1, 5, 1, 6, 1, 0, 9, 2, 1, 2, 2, 3, 4]), Ok(15));
        assert_eq!(taken(Attributes, &[0, 0, 0, 0, 1, 1]), Ok(6), "the server's time is no more");
        assert_eq!(taken(Guard, &[1, 2, 3]), Ok(3));
        assert_eq!(taken(How, &[2, 8, 9]), Ok(3));
        assert_eq!(taken(How, &[0, 0, 0, 0, 0, 0, 0]), Ok(7));
        assert_eq!(taken(OpenFile, &[4, 0, 0, 0, 0, 0, 0, 1, 3]), Ok(9));
        assert_eq!(taken(OpenFile, &[7, 0, 0, 0, 0, 0, 0]), Ok(7));
        assert_eq!(taken(OpenFile, &[1]), Ok(1), "no such node can be made: the procedure says so");
    }
}
