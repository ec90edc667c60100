//! Which operations of a file system do not wait for a disk or for another machine.
//!
//! The file systems listed here keep the attributes of an open file in memory. Others may ask a
//! server or a process, and are left to the worker threads. Cached data are read with `RWF_NOWAIT`,
//! which fails instead of waiting.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::fstatfs;
use rustix::io::{ReadWriteFlags, pread, preadv2};

use crate::ranges::FileRange;

/// The kind of storage below the exported file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// Memory: no operation waits.
    Memory,
    /// A local disk: data may wait, the attributes of an open file do not.
    Disk,
    /// Layers of other file systems: every operation may wait.
    Layers,
    /// Any other: every operation may wait.
    Unknown,
}

impl Medium {
    /// The storage of the file system of a file.
    pub fn of(file: impl AsFd) -> Medium {
        let kind = fstatfs(file).map(|state| state.f_type as u64 & 0xffff_ffff);
        match kind {
            Ok(TMPFS | RAMFS) => Medium::Memory,
            Ok(EXT | XFS | BTRFS | F2FS) => Medium::Disk,
            Ok(OVERLAY) => Medium::Layers,
            Ok(_) | Err(_) => Medium::Unknown,
        }
    }

    /// Whether the attributes of an open file can be read without waiting.
    pub fn caches_attributes(self) -> bool {
        matches!(self, Medium::Memory | Medium::Disk)
    }

    /// Whether a name in a directory keeps its position while others come and go. In memory it does
    /// so since Linux 6.6.
    pub fn keeps_positions(self) -> bool {
        matches!(self, Medium::Disk | Medium::Unknown)
    }

    /// Reads the cached data of a range into the beginning of `into`; `None` if that would wait.
    pub fn read(self, file: BorrowedFd<'_>, into: &mut [u8], range: FileRange) -> Option<usize> {
        let into = &mut into[..range.len()];
        match self {
            Medium::Memory => pread(file, into, range.at(0)).ok(),
            Medium::Disk => {
                let mut slices = [IoSliceMut::new(into)];
                preadv2(file, &mut slices, range.at(0), ReadWriteFlags::NOWAIT).ok()
            }
            Medium::Layers | Medium::Unknown => None,
        }
    }
}

/// `f_type`, as statfs(2) has it.
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;
const OVERLAY: u64 = 0x794c_7630;
const EXT: u64 = 0xef53;
const XFS: u64 = 0x5846_5342;
const BTRFS: u64 = 0x9123_683e;
const F2FS: u64 = 0xf2f5_2010;
