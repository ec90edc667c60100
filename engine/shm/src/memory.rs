//! Memory of a link: a sealed memfd that both processes map.
//!
//! The length is sealed before the file leaves the process, and the other process maps it only if
//! it is sealed: no access can raise SIGBUS.
#![expect(unsafe_code, reason = "a child that is forked loses a mapping")]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use memmap2::{MmapOptions, MmapRaw};
use rpcrdma_mempool::memfd::{self, MemfdError};
use rpcrdma_provider::UnshareOnFork;
use rustix::fs::SealFlags;

/// Mapped memory that another process maps, too. Unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Memory {
    /// A child that drops a link changes nothing for its parent's peer. Dropped before the mapping.
    _unshare: UnshareOnFork,
    map: MmapRaw,
}

/// Why memory that a peer offers is not mapped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unfit {
    /// Its length could change.
    #[error("not a memfd sealed against shrinking and growing")]
    Unsealed,
    /// It is larger than this side permits.
    #[error("larger than this side permits")]
    Large,
    /// It has another length than the dimensions of the link.
    #[error("need {needed} bytes, have {given}")]
    Length {
        /// Bytes of the file.
        given: u64,
        /// Bytes of a link of these dimensions.
        needed: u64,
    },
    /// Its staging areas are shorter than the longest message of this side.
    #[error("staging areas of {given} bytes; messages of this side need {needed}")]
    Staging {
        /// Bytes of a staging area.
        given: u32,
        /// Bytes of the longest message.
        needed: u32,
    },
    /// Its pages come from a limited pool (hugetlb): an access could raise SIGBUS.
    #[error("pages of a limited pool (hugetlb)")]
    Pages,
    /// A call failed.
    #[error("cannot be mapped: {0}")]
    System(#[from] io::Error),
}

impl Memory {
    /// Makes zeroed memory of `len` bytes. The file is for the peer.
    pub(crate) fn create(len: usize) -> Result<(Memory, OwnedFd), MemfdError> {
        let file = OwnedFd::from(memfd::create(NAME, len, 0)?);
        rustix::fs::fcntl_add_seals(&file, SEALS | SealFlags::SEAL)
            .map_err(|error| MemfdError { call: "fcntl", source: error.into() })?;
        let map = MmapOptions::new().len(len).map_raw(&file);
        let map = map.map_err(|source| MemfdError { call: "mmap", source })?;
        Ok((Memory::of(map), file))
    }

    /// Maps memory that a peer has made.
    pub(crate) fn adopt(file: &impl AsFd, len: usize) -> Result<Memory, Unfit> {
        let seals = rustix::fs::fcntl_get_seals(file).map_err(|_| Unfit::Unsealed)?;
        if !seals.contains(SEALS) {
            return Err(Unfit::Unsealed);
        }
        if !is_ordinary(file)? {
            return Err(Unfit::Pages);
        }
        let given = rustix::fs::fstat(file).map_err(io::Error::from)?.st_size as u64;
        if given != len as u64 {
            return Err(Unfit::Length { given, needed: len as u64 });
        }
        Ok(Memory::of(MmapOptions::new().len(len).map_raw(file.as_fd().as_raw_fd())?))
    }

    fn of(map: MmapRaw) -> Memory {
        // SAFETY: it is a mapping, which is dropped behind this.
        let unshare = unsafe { UnshareOnFork::new(map.as_mut_ptr(), map.len()) };
        Memory { _unshare: unshare, map }
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// The first byte.
    pub(crate) fn base(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }
}

/// Whether a memfd has ordinary memory, of which an access gets a page without a limit of its own.
pub(crate) fn is_ordinary(file: &impl AsFd) -> io::Result<bool> {
    Ok(rustix::fs::fstatfs(file)?.f_type == TMPFS_MAGIC)
}

/// What the file is called in lists of open files.
const NAME: &CStr = c"rpcrdma-link";
/// The file's length is fixed.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
/// `TMPFS_MAGIC` of linux/magic.h: what a memfd without MFD_HUGETLB lies on.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

#[cfg(test)]
mod tests {
    use rustix::fs::MemfdFlags;

    use super::*;

    fn unsealed(len: u64, seals: SealFlags) -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("test", flags).expect("a memfd");
        rustix::fs::ftruncate(&file, len).expect("a length");
        rustix::fs::fcntl_add_seals(&file, seals).expect("seals");
        file
    }

    #[test]
    fn both_sides_see_the_same_bytes_and_no_one_can_change_the_length() {
        let (ours, file) = Memory::create(8192).expect("memory");
        let theirs = Memory::adopt(&file, 8192).expect("sealed and as long");
        assert_ne!(ours.base(), theirs.base());
        assert!(rustix::fs::ftruncate(&file, 4096).is_err());
        assert!(rustix::fs::ftruncate(&file, 16384).is_err());
        assert!(rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE).is_err());
    }

    /// A system with vm.memfd_noexec = 2 makes no memory that may be executed.
    #[test]
    fn no_one_can_execute_the_memory_where_the_system_knows_that() {
        let (flags, exec) = (MemfdFlags::NOEXEC_SEAL, SealFlags::from_bits_retain(0x20));
        let is_known = rustix::fs::memfd_create("test", flags).is_ok();
        let (_, file) = Memory::create(4096).expect("memory");
        let seals = rustix::fs::fcntl_get_seals(&file).expect("a memfd");
        assert_eq!(seals.contains(exec), is_known);
    }

    #[test]
    fn memory_whose_length_may_change_is_refused() {
        for seals in [SealFlags::empty(), SealFlags::SHRINK, SealFlags::GROW] {
            let outcome = Memory::adopt(&unsealed(4096, seals), 4096);
            assert!(matches!(outcome, Err(Unfit::Unsealed)), "{seals:?}");
        }
        let file = OwnedFd::from(std::fs::File::open("/proc/self/exe").expect("a file"));
        assert!(matches!(Memory::adopt(&file, 4096), Err(Unfit::Unsealed)));
    }

    /// Its pages may be missing when it is accessed.
    #[test]
    fn memory_on_huge_pages_is_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        // A system may have none.
        let Ok(file) = rustix::fs::memfd_create("test", flags) else { return };
        rustix::fs::ftruncate(&file, 2 << 20).expect("a length");
        rustix::fs::fcntl_add_seals(&file, SEALS).expect("seals");
        assert!(matches!(Memory::adopt(&file, 2 << 20), Err(Unfit::Pages)));
    }

    #[test]
    fn memory_of_another_length_is_refused() {
        let file = unsealed(8192, SEALS);
        for len in [4096, 12288] {
            let outcome = Memory::adopt(&file, len);
            assert!(matches!(outcome, Err(Unfit::Length { given: 8192, .. })), "{len}");
        }
        assert!(Memory::adopt(&file, 8192).is_ok());
    }
}
