//! READ, WRITE and COMMIT: data move between registered memory and the file without a copy.
//!
//! READ reads the file into a registered buffer, which the reply is sent from; by RDMA Write if the
//! client offered a Write chunk. WRITE writes to the file from the receive memory. Data that were
//! written UNSTABLE are in the page cache until their COMMIT.

use std::io::IoSlice;
use std::mem::replace;

use nfs3_types::nfs3::{
    COMMIT3args, COMMIT3resfail, COMMIT3resok, READ3args, READ3resfail, WRITE3resfail, WRITE3resok,
    count3, nfs_fh3, offset3, post_op_attr, stable_how, wcc_data, writeverf3,
};
use nfs3_types::xdr_codec::XdrCodec;
use rustix::fs::FileType;
use rustix::io::{Errno, pread, pwritev};

use crate::attributes::{Attributes, some};
use crate::call::WriteData;
use crate::credentials::Identity;
use crate::export::Export;
use crate::node::OpenFile;
use crate::ranges::FileRange;
use crate::rights::{Rights, may_write};
use crate::status::{Results, Status, bare, status};

/// The arguments of WRITE in front of its data.
#[derive(Debug, XdrCodec)]
pub struct WriteHead {
    /// The file.
    pub file: nfs_fh3,
    /// The offset in the file.
    pub offset: offset3,
    /// The number of bytes.
    pub count: count3,
    /// What must be on stable storage before the reply is sent.
    pub stable: stable_how,
}

/// The results of READ in front of its data.
#[derive(Debug, XdrCodec)]
pub struct ReadHead {
    /// The attributes of the file.
    pub file_attributes: post_op_attr,
    /// The number of bytes read.
    pub count: count3,
    /// Whether the file ends after these bytes.
    pub eof: bool,
}

/// READ: fills `into` from the file, and returns the number of bytes.
pub fn read(
    export: &Export,
    who: &Identity,
    arguments: &READ3args,
    into: &mut [u8],
) -> Results<(ReadHead, usize), READ3resfail> {
    let node = export.find(&arguments.file).map_err(bare)?;
    let len = (arguments.count as usize).min(into.len());
    let found = regular(&node).and_then(|now| {
        Rights::of(&node, who, &now)?.may_read(who, &now)?;
        fill(export, &node, &mut into[..len], arguments.offset)
    });
    results_of(found, node.attributes().ok(), arguments.offset)
}

/// The results of READ in front of the data, and the number of bytes; or the error.
pub fn results_of(
    found: Result<usize, Status>,
    attributes: Option<Attributes>,
    offset: u64,
) -> Results<(ReadHead, usize), READ3resfail> {
    let size = attributes.as_ref().map_or(0, Attributes::size);
    let file_attributes = some(attributes.map(|attributes| attributes.fattr()));
    match found {
        Ok(len) => {
            let eof = offset.saturating_add(len as u64) >= size;
            Ok((ReadHead { file_attributes, count: len as u32, eof }, len))
        }
        Err(status) => Err((status, READ3resfail { file_attributes })),
    }
}

/// WRITE: writes `count` bytes of the data. The results have no `pre_op_attr`: other calls may
/// write to the file at the same time, and the attributes would be wrong.
pub fn write(
    export: &Export,
    who: &Identity,
    head: &WriteHead,
    data: &[WriteData],
) -> Results<WRITE3resok, WRITE3resfail> {
    let node = export.find(&head.file).map_err(bare)?;
    let written = verified(export, head.stable, || put(export, who, &node, head, data));
    let file_wcc = node.wcc(some(None));
    match written {
        Ok((count, verf)) => Ok(WRITE3resok { file_wcc, count, committed: head.stable, verf }),
        Err(status) => Err((status, WRITE3resfail { file_wcc })),
    }
}

/// Calls `put`, which writes data. Returns the number of bytes, and the verifier of before the data:
/// it changes if they are lost.
fn verified(
    export: &Export,
    stable: stable_how,
    put: impl FnOnce() -> Result<u32, Status>,
) -> Result<(u32, writeverf3), Status> {
    let verf = export.verifier();
    let count = put()?;
    // Another call may have got the error of data that this one has brought to stable storage.
    let is_lost = stable != stable_how::UNSTABLE && export.verifier().0 != verf.0;
    if is_lost { Err(Status::NFS3ERR_JUKEBOX) } else { Ok((count, verf)) }
}

/// COMMIT: commits the whole file, for any requested range.
pub fn commit(export: &Export, arguments: &COMMIT3args) -> Results<COMMIT3resok, COMMIT3resfail> {
    let failed = |file_wcc| move |status| (status, COMMIT3resfail { file_wcc });
    let node = export.find(&arguments.file).map_err(failed(wcc_data::default()))?;
    let persisted = match node.kind() {
        FileType::RegularFile => {
            export.nodes().syncable(&node).and_then(|file| export.persist(&node, file))
        }
        _ => Err(Status::NFS3ERR_INVAL),
    };
    let file_wcc = node.wcc(some(None));
    match persisted {
        Ok(()) => Ok(COMMIT3resok { file_wcc, verf: export.verifier() }),
        Err(status) => Err(failed(file_wcc)(status)),
    }
}

/// The attributes of a file that has data.
fn regular(node: &OpenFile) -> Result<Attributes, Status> {
    match node.kind() {
        FileType::RegularFile => node.attributes(),
        FileType::Directory => Err(Status::NFS3ERR_ISDIR),
        _ => Err(Status::NFS3ERR_INVAL),
    }
}

/// Reads until `into` is full or the file ends.
fn fill(export: &Export, node: &OpenFile, into: &mut [u8], offset: u64) -> Result<usize, Status> {
    let file = export.nodes().data(node, false)?;
    let range = FileRange::cut(offset, into.len());
    let mut done = 0;
    while done < range.len() {
        match pread(file, &mut into[done..range.len()], range.at(done)) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(status(error)),
        }
    }
    Ok(done)
}

fn put(
    export: &Export,
    who: &Identity,
    node: &OpenFile,
    head: &WriteHead,
    data: &[WriteData],
) -> Result<u32, Status> {
    let now = regular(node)?;
    let count = head.count as usize;
    let range = FileRange::whole(head.offset, count).ok_or(Status::NFS3ERR_FBIG)?;
    let (file, mut is_checked) = match node.open_data(true) {
        Some(file) if count > 0 => (file, false),
        // Not opened before the caller may: a program that is open to be written does not start.
        _ => {
            who.act(|| may_write(node, who, &now))?;
            (export.nodes().data(node, true)?, true)
        }
    };
    let mut left = count;
    let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(data.len());
    for part in data {
        let now = part.bytes().len().min(left);
        left -= now;
        slices.push(IoSlice::new(&part.bytes()[..now]));
    }
    let mut slices = &mut slices[..];
    IoSlice::advance_slices(&mut slices, 0);
    let mut done = 0;
    while !slices.is_empty() {
        let some = &slices[..slices.len().min(SLICES_MAX)];
        // As the caller, so that the kernel clears the setuid bit and applies the caller's quota.
        let written = who.act(|| {
            if !replace(&mut is_checked, true) {
                may_write(node, who, &now)?;
            }
            Ok(pwritev(file, some, range.at(done)))
        })?;
        match written {
            Ok(0) => return Err(Status::NFS3ERR_IO),
            Ok(written) => {
                done += written;
                IoSlice::advance_slices(&mut slices, written);
            }
            Err(Errno::INTR) => {}
            // If bytes were written before the disk was full, the answer is their number.
            Err(_) if done > 0 => break,
            Err(error) => return Err(status(error)),
        }
    }
    match head.stable {
        stable_how::UNSTABLE => {}
        stable_how::DATA_SYNC => export.persist_data(node, file)?,
        stable_how::FILE_SYNC => export.persist(node, file)?,
    }
    Ok(done as u32)
}

/// The maximum number of slices of one system call (IOV_MAX).
const SLICES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::tests::Scratch;

    /// Whether the answer to a WRITE has the verifier of before it, if another call finds data lost
    /// while this one writes.
    fn lose(stable: stable_how) -> Result<bool, Status> {
        let scratch = Scratch::new();
        let export = scratch.opened();
        let before = export.verifier().0;
        let written = verified(&export, stable, || {
            let (pipe, _writer) = std::io::pipe().expect("two descriptors");
            // A pipe has no medium.
            export.persist_data(export.nodes().root(), pipe.as_fd()).expect_err("it fails");
            Ok(7)
        });
        assert_ne!(export.verifier().0, before);
        written.map(|(count, verf)| count == 7 && verf.0 == before)
    }

    #[test]
    fn a_write_states_the_verifier_of_before_its_data() {
        assert_eq!(lose(stable_how::UNSTABLE), Ok(true));
    }

    #[test]
    fn a_stable_write_whose_data_may_be_lost_is_to_be_repeated() {
        for stable in [stable_how::DATA_SYNC, stable_how::FILE_SYNC] {
            assert_eq!(lose(stable), Err(Status::NFS3ERR_JUKEBOX));
        }
    }
}
