//! The ways of a file: out to the server from registered memory, and back, verified where it landed.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rpcrdma_engine::incoming::{EndOfMessage, PayloadReader};
use rpcrdma_engine::{CallBuilder, Incoming, Loan, Provider, Turn, Want};

use crate::checksum::{Checksum, Summing};
use crate::client::{Calls, ClientError, Session};
use crate::progress::Progress;
use crate::rpc::Procedure;

/// A file in blocks.
#[derive(Debug, Clone, Copy)]
pub struct Blocks<'a> {
    /// The file.
    pub file: &'a File,
    /// Its bytes.
    pub len: u64,
    /// Bytes of every block but the last.
    pub block: usize,
}

/// What one way of a file came to.
#[derive(Debug, Clone, Copy)]
pub struct Pass {
    /// Over all bytes that went this way.
    pub checksum: Checksum,
    /// From the first call to the last reply.
    pub time: Duration,
}

impl Blocks<'_> {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.len.div_ceil(self.block as u64)
    }

    /// Where a block begins and how long it is.
    fn at(&self, index: u64) -> (u64, usize) {
        let offset = index * self.block as u64;
        let left = usize::try_from(self.len - offset).unwrap_or(usize::MAX);
        (offset, self.block.min(left))
    }

    fn load(&self, offset: u64, into: &mut [u8]) -> Result<(), ClientError> {
        let result = self.file.read_exact_at(into, offset);
        result.map_err(|source| ClientError::File { offset, source })
    }
}

/// Empties the server's file.
///
/// # Errors
/// If the server cannot.
pub fn empty<P: Provider>(session: &mut Session<P>) -> Result<(), ClientError> {
    session.run(1, 1, &mut Emptying)
}

/// Writes a file, `window` blocks at a time, and returns when the server has all on its medium.
///
/// # Errors
/// The first block that did not get there, and why.
pub fn write<P: Provider>(
    session: &mut Session<P>,
    blocks: Blocks<'_>,
    window: u64,
) -> Result<Pass, ClientError> {
    let begun = Instant::now();
    let mut writing = Writing {
        blocks,
        next: None,
        next_checksum: Checksum::default(),
        checksum: Checksum::default(),
        progress: Progress::new("writing", blocks.len),
    };
    session.run(blocks.count(), window, &mut writing)?;
    session.run(1, 1, &mut Committing)?;
    Ok(Pass { checksum: writing.checksum, time: begun.elapsed() })
}

/// Reads a file back, `window` blocks at a time, and compares every byte with the original.
///
/// # Errors
/// The first block that did not come back, or not as it was.
pub fn read<P: Provider>(
    session: &mut Session<P>,
    blocks: Blocks<'_>,
    window: u64,
) -> Result<Pass, ClientError> {
    let begun = Instant::now();
    let mut reading = Reading {
        blocks,
        original: vec![0; blocks.block],
        checksum: Checksum::default(),
        progress: Progress::new("reading", blocks.len),
    };
    session.run(blocks.count(), window, &mut reading)?;
    Ok(Pass { checksum: reading.checksum, time: begun.elapsed() })
}

/// WRITEs: the file is read into registered memory, which is placed in the calls.
struct Writing<'a> {
    blocks: Blocks<'a>,
    /// The block that goes next.
    next: Option<Loan>,
    /// Its checksum, which counts once it has left.
    next_checksum: Checksum,
    checksum: Checksum,
    progress: Progress,
}

impl Calls for Writing<'_> {
    const PROCEDURE: Procedure = Procedure::Write;

    fn prepare(&mut self, index: u64, turn: &mut Turn<'_>) -> Result<bool, ClientError> {
        let Some(mut loan) = turn.buffer() else { return Ok(false) };
        let (offset, len) = self.blocks.at(index);
        loan.truncate(len);
        self.blocks.load(offset, &mut loan)?;
        let mut summing = Summing::at(offset);
        summing.feed(&loan);
        self.next_checksum = summing.finish();
        self.next = Some(loan);
        Ok(true)
    }

    fn arguments(&mut self, index: u64, call: &mut CallBuilder<'_>) {
        call.payload().put_u64(self.blocks.at(index).0);
        call.payload().place_pieces(self.next.take().map(Into::into));
    }

    fn sent(&mut self) {
        self.checksum.add(self.next_checksum);
    }

    fn done(
        &mut self,
        index: u64,
        _reply: &Incoming<'_>,
        mut results: PayloadReader<'_>,
    ) -> Result<(), ClientError> {
        let (offset, want) = self.blocks.at(index);
        let got = results.u32().map_err(|end| cut_off(Self::PROCEDURE, end))? as usize;
        if got != want {
            return Err(ClientError::Length { procedure: Self::PROCEDURE, offset, want, got });
        }
        self.progress.add(got);
        Ok(())
    }
}

/// READs: the data are wanted placed, and are compared with the file where they landed.
struct Reading<'a> {
    blocks: Blocks<'a>,
    /// The block as it is in the file.
    original: Vec<u8>,
    checksum: Checksum,
    progress: Progress,
}

impl Calls for Reading<'_> {
    const PROCEDURE: Procedure = Procedure::Read;

    fn arguments(&mut self, index: u64, call: &mut CallBuilder<'_>) {
        let (offset, len) = self.blocks.at(index);
        call.payload().put_u64(offset);
        call.payload().put_u32(len as u32);
        call.want(Want { len_min: 0, len_max: len as u32 });
    }

    fn done(
        &mut self,
        index: u64,
        reply: &Incoming<'_>,
        mut results: PayloadReader<'_>,
    ) -> Result<(), ClientError> {
        let (offset, want) = self.blocks.at(index);
        let cut_off = |end| cut_off(Self::PROCEDURE, end);
        let got = results.u32().map_err(cut_off)? as usize;
        if got != want {
            return Err(ClientError::Length { procedure: Self::PROCEDURE, offset, want, got });
        }
        self.blocks.load(offset, &mut self.original[..want])?;
        let mut compared = Compared { offset, original: &self.original[..want], done: 0 };
        let mut summing = Summing::at(offset);
        match reply.placed().next() {
            Some(item) => {
                for slice in item.segments() {
                    compared.next(slice, &mut summing)?;
                }
            }
            None => {
                while compared.done < want {
                    let slice = results.some(want - compared.done).map_err(cut_off)?;
                    compared.next(slice, &mut summing)?;
                }
            }
        }
        let got = compared.done;
        if got != want {
            return Err(ClientError::Length { procedure: Self::PROCEDURE, offset, want, got });
        }
        self.checksum.add(summing.finish());
        self.progress.add(got);
        Ok(())
    }
}

/// A block that is compared piece by piece.
struct Compared<'a> {
    offset: u64,
    original: &'a [u8],
    done: usize,
}

impl Compared<'_> {
    fn next(&mut self, slice: &[u8], summing: &mut Summing) -> Result<(), ClientError> {
        let original = &self.original[self.done..];
        let original = &original[..slice.len().min(original.len())];
        if original != slice {
            return Err(self.difference(original, slice));
        }
        summing.feed(slice);
        self.done += slice.len();
        Ok(())
    }

    #[cold]
    fn difference(&self, original: &[u8], slice: &[u8]) -> ClientError {
        let differs = original.iter().zip(slice).enumerate().find(|(_, (want, got))| want != got);
        match differs {
            Some((at, (&want, &got))) => {
                ClientError::Differs { offset: self.offset + (self.done + at) as u64, want, got }
            }
            None => ClientError::Length {
                procedure: Procedure::Read,
                offset: self.offset,
                want: self.original.len(),
                got: self.done + slice.len(),
            },
        }
    }
}

/// A change of length, which empties the server's file.
struct Emptying;

impl Calls for Emptying {
    const PROCEDURE: Procedure = Procedure::Resize;

    fn arguments(&mut self, _index: u64, call: &mut CallBuilder<'_>) {
        call.payload().put_u64(0);
    }
}

/// The last call of a file: the data are on the medium when it is answered.
struct Committing;

impl Calls for Committing {
    const PROCEDURE: Procedure = Procedure::Commit;
}

fn cut_off(procedure: Procedure, end: EndOfMessage) -> ClientError {
    ClientError::Reply { procedure, why: end.into() }
}
