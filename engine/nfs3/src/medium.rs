//! What a file system tells without waiting for a disk or for another machine.
//!
//! The attributes of a file that is open are in memory in the file systems that are known here by
//! name; others may ask a server, or a process, and are left to threads that have the time. Data
//! that are cached are read by `RWF_NOWAIT`, which says so when it would have to wait.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::fstatfs;
use rustix::io::{ReadWriteFlags, pread, preadv2};

/// What the exported file system lies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// Memory: nothing waits.
    Memory,
    /// A disk of this machine: data may wait, the attributes of an open file do not.
    Disk,
    /// Anything.
    Unknown,
}

impl Medium {
    /// That of the file system that a file is on.
    pub fn of(file: impl AsFd) -> Medium {
        let kind = fstatfs(file).map(|state| state.f_type as u64 & 0xffff_ffff);
        match kind {
            Ok(TMPFS | RAMFS) => Medium::Memory,
            Ok(EXT | XFS | BTRFS | F2FS) => Medium::Disk,
            Ok(_) | Err(_) => Medium::Unknown,
        }
    }

    /// Whether the attributes of a file that is open can be had without waiting.
    pub fn tells_attributes(self) -> bool {
        self != Medium::Unknown
    }

    /// Reads what of a file is in memory; `None` if it would have to wait, now or always.
    pub fn read(self, file: BorrowedFd<'_>, into: &mut [u8], offset: u64) -> Option<usize> {
        match self {
            Medium::Memory => pread(file, into, offset).ok(),
            Medium::Disk => {
                let mut slices = [IoSliceMut::new(into)];
                preadv2(file, &mut slices, offset, ReadWriteFlags::NOWAIT).ok()
            }
            Medium::Unknown => None,
        }
    }
}

/// `f_type`, as statfs(2) has it.
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;
const EXT: u64 = 0xef53;
const XFS: u64 = 0x5846_5342;
const BTRFS: u64 = 0x9123_683e;
const F2FS: u64 = 0xf2f5_2010;
