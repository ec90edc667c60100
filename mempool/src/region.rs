//! Regions: mapped memory that can be registered with a device.
//!
//! ```text
//!   map ──▶ DONTFORK ──▶ bind to the node ──▶ prefault ──▶ verify ──▶ lock
//!    │ refused, or not as requested: unmap, note it
//!    └──▶ next rung:   1 GiB ──▶ 2 MiB ──▶ transparent 2 MiB ──▶ 4 KiB
//! ```
//!
//! [`Region::notes`] lists everything that was requested and not provided.
#![expect(unsafe_code, reason = "system calls on the mapping, and its pointer goes to any thread")]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use memmap2::{Advice, MmapOptions, MmapRaw};

use crate::{memfd, smaps};

/// Mapped memory. Zeroed when fresh; unmapped when dropped.
///
/// A region never makes a reference to its bytes: [`Registered`](crate::Registered) divides them
/// among their owners.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    len: usize,
    page_size: PageSize,
    numa_node: Option<u32>,
    is_locked: bool,
    notes: Vec<Note>,
    /// Unmaps on drop; `None` if the region must stay mapped.
    map: Option<MmapRaw>,
    memfd: Option<File>,
}

// SAFETY: `base` points into `map`, which any thread may unmap, and is handed out as a raw pointer
// only: no method of `Region` reads or writes through it after `map` has returned.
unsafe impl Send for Region {}

// SAFETY: as above; a shared `Region` gives out numbers and raw pointers only.
unsafe impl Sync for Region {}

impl Region {
    /// Maps a region as requested, or as near to it as the system allows.
    ///
    /// # Errors
    /// If not even 4 KiB pages are available, or fork protection is refused. Everything else is a
    /// [`Note`].
    pub fn map(spec: &RegionSpec) -> Result<Region, RegionError> {
        if spec.bytes == 0 {
            return Err(RegionError::Empty);
        }
        let mut notes = Vec::new();
        for rung in PageSize::LADDER.into_iter().filter(|rung| *rung >= spec.pages) {
            if let Some(region) = try_rung(spec, rung, &mut notes)? {
                return Ok(Region { notes, ..region });
            }
        }
        unreachable!("the last rung gives a region or an error");
    }

    /// The first byte. Its provenance is exposed, for the addresses in scatter lists.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes, a multiple of the page size.
    #[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The page size that the system provided, verified.
    pub fn page_size(&self) -> PageSize {
        self.page_size
    }

    /// The NUMA node that the pages were bound to, if one was requested and the system accepted it.
    pub fn numa_node(&self) -> Option<u32> {
        self.numa_node
    }

    /// Whether all of it is locked in memory.
    pub fn is_locked(&self) -> bool {
        self.is_locked
    }

    /// What was requested and not provided, in the order of the attempts.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// The file of a shared region, for another process to map and read. Neither its length nor,
    /// but by this mapping, its bytes can be changed.
    pub fn memfd(&self) -> Option<BorrowedFd<'_>> {
        self.memfd.as_ref().map(File::as_fd)
    }

    /// Leaves the memory mapped for the rest of the process.
    #[cold]
    pub(crate) fn stay_mapped(&mut self) {
        std::mem::forget(self.map.take());
    }
}

/// The request for a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionSpec {
    /// The length in bytes, rounded up to the page size provided.
    pub bytes: usize,
    /// The largest page size to try.
    pub pages: PageSize,
    /// The NUMA node that the pages must lie on; `None` leaves it to the kernel.
    pub numa_node: Option<u32>,
    /// Touch every page now. Otherwise the first access of each page is a page fault, and
    /// transparent huge pages cannot be verified.
    pub prefault: bool,
    /// Lock the pages in memory.
    pub lock: bool,
    /// Back the region by a memfd that another process may map.
    pub shared: bool,
}

impl RegionSpec {
    /// `bytes` in the largest available pages, prefaulted and locked, on any node, private.
    pub fn new(bytes: usize) -> RegionSpec {
        RegionSpec {
            bytes,
            pages: PageSize::Huge1G,
            numa_node: None,
            prefault: true,
            lock: true,
            shared: false,
        }
    }
}

/// A page size; the ladder of attempts goes from the largest to the smallest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PageSize {
    /// Reserved 1 GiB pages.
    Huge1G,
    /// Reserved 2 MiB pages.
    Huge2M,
    /// Transparent huge pages of 2 MiB (`madvise`).
    Transparent,
    /// The base page, 4 KiB.
    Base4K,
}

impl PageSize {
    /// All page sizes, in the order of the attempts.
    pub const LADDER: [PageSize; 4] =
        [PageSize::Huge1G, PageSize::Huge2M, PageSize::Transparent, PageSize::Base4K];

    /// Bytes of a page.
    pub const fn bytes(self) -> usize {
        1 << self.bits()
    }

    const fn bits(self) -> u8 {
        match self {
            PageSize::Huge1G => 30,
            PageSize::Huge2M | PageSize::Transparent => 21,
            PageSize::Base4K => 12,
        }
    }

    const fn is_reserved(self) -> bool {
        matches!(self, PageSize::Huge1G | PageSize::Huge2M)
    }
}

impl std::fmt::Display for PageSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            PageSize::Huge1G => "1 GiB",
            PageSize::Huge2M => "2 MiB",
            PageSize::Transparent => "transparent 2 MiB",
            PageSize::Base4K => "4 KiB",
        })
    }
}

/// Something that was requested and not provided. The region works without it, more slowly.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Note {
    /// More than half of the memory would be rounding.
    #[error("{pages} pages not tried: {bytes} bytes would fill less than half of one")]
    TooSmall {
        /// The page size.
        pages: PageSize,
        /// The requested bytes.
        bytes: usize,
    },
    /// The system has no such pages.
    #[error("{pages} pages refused: {source}")]
    PagesRefused {
        /// The page size.
        pages: PageSize,
        /// The error of the call.
        source: io::Error,
    },
    /// Transparent huge pages were requested, and the kernel gave others.
    #[error("transparent huge pages back {huge} of {bytes} bytes")]
    NotTransparent {
        /// Bytes in pages of 2 MiB.
        huge: usize,
        /// Bytes of the region.
        bytes: usize,
    },
    /// The size of pages that were not touched yet is unknown.
    #[error("transparent huge pages were requested but not verified: the region is not prefaulted")]
    NotVerified,
    /// The pages may lie on any node.
    #[error("binding to NUMA node {node} refused: {source}")]
    NotBound {
        /// The node.
        node: u32,
        /// The error of the call.
        source: io::Error,
    },
    /// The pages may be swapped out.
    #[error("locking {bytes} bytes refused: {source}; check the memlock limit (ulimit -l)")]
    NotLocked {
        /// Bytes of the region.
        bytes: usize,
        /// The error of the call.
        source: io::Error,
    },
}

/// Why a region cannot be mapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// Zero bytes were requested.
    #[error("a region of zero bytes was requested")]
    Empty,
    /// The rounded length exceeds the address space.
    #[error("a region of {bytes} bytes exceeds the address space")]
    TooLarge {
        /// The requested bytes.
        bytes: usize,
    },
    /// The system has no such memory.
    #[error("mapping {bytes} bytes failed: {source}")]
    Map {
        /// The requested bytes.
        bytes: usize,
        /// The error of the call.
        source: io::Error,
    },
    /// Fork protection failed: a child process would share the pages, and a write of either process
    /// would move them to other memory than the device uses.
    #[error("the region cannot be excluded from child processes (MADV_DONTFORK): {source}")]
    DontFork {
        /// The error of the call.
        source: io::Error,
    },
}

/// Tries one page size. `None`: refused, with a note.
fn try_rung(
    spec: &RegionSpec,
    rung: PageSize,
    notes: &mut Vec<Note>,
) -> Result<Option<Region>, RegionError> {
    let too_large = RegionError::TooLarge { bytes: spec.bytes };
    let Some(len) = spec.bytes.checked_next_multiple_of(rung.bytes()) else {
        return Err(too_large);
    };
    if rung != PageSize::Base4K && len / 2 > spec.bytes {
        notes.push(Note::TooSmall { pages: rung, bytes: spec.bytes });
        return Ok(None);
    }
    let mut region = match map_pages(spec, rung, len) {
        Ok(region) => region,
        Err(source) if rung == PageSize::Base4K => {
            return Err(RegionError::Map { bytes: spec.bytes, source });
        }
        Err(source) => {
            notes.push(Note::PagesRefused { pages: rung, source });
            return Ok(None);
        }
    };
    if cfg!(miri) {
        return Ok(Some(region));
    }
    region.advise(Advice::DontFork).map_err(|source| RegionError::DontFork { source })?;
    let mut own = Vec::new();
    match region.prepare(spec, &mut own) {
        Ok(()) => {}
        Err(Unavailable::Pages(note)) if rung != PageSize::Base4K => {
            notes.push(note);
            return Ok(None);
        }
        Err(Unavailable::Pages(Note::PagesRefused { source, .. })) => {
            return Err(RegionError::Map { bytes: spec.bytes, source });
        }
        Err(Unavailable::Pages(note)) => own.push(note),
    }
    notes.append(&mut own);
    Ok(Some(region))
}

/// Pages of this size are not available.
enum Unavailable {
    Pages(Note),
}

impl Region {
    /// Binds, prefaults, verifies and locks. Notes that do not rule out the page size go to
    /// `notes`.
    fn prepare(&mut self, spec: &RegionSpec, notes: &mut Vec<Note>) -> Result<(), Unavailable> {
        let rung = self.page_size;
        let refused = |source| Unavailable::Pages(Note::PagesRefused { pages: rung, source });
        if let Some(node) = spec.numa_node {
            match self.bind(node) {
                Ok(()) => self.numa_node = Some(node),
                Err(source) => notes.push(Note::NotBound { node, source }),
            }
        }
        if rung == PageSize::Transparent {
            self.advise(Advice::HugePage).map_err(refused)?;
        }
        // A reserved page that the node cannot supply would kill the process at its first access:
        // such pages are always touched here, where the kernel answers with an error.
        if spec.prefault || (rung.is_reserved() && spec.numa_node.is_some()) {
            self.prefault().map_err(refused)?;
        }
        if rung == PageSize::Transparent {
            self.verify_transparent(spec.prefault).map_err(Unavailable::Pages)?;
        }
        if spec.lock {
            match self.lock() {
                Ok(()) => self.is_locked = true,
                Err(source) => notes.push(Note::NotLocked { bytes: self.len, source }),
            }
        }
        Ok(())
    }

    fn advise(&self, advice: Advice) -> io::Result<()> {
        let Some(map) = &self.map else { return Ok(()) };
        let start = self.base.as_ptr().addr() - map.as_ptr().addr();
        map.advise_range(advice, start, self.len)
    }

    fn bind(&self, node: u32) -> io::Result<()> {
        const WORDS: usize = NODES_MAX / u64::BITS as usize;
        let mut mask = [0u64; WORDS];
        let word = mask
            .get_mut(node as usize / u64::BITS as usize)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        *word = 1 << (node % u64::BITS);
        // SAFETY: mbind reads one bit less than the count says, which is all of `mask`, and changes
        // where pages of `base..base + len` come from. That range is ours: `map_pages` made it.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.base.as_ptr(),
                self.len,
                libc::MPOL_BIND,
                mask.as_ptr(),
                NODES_MAX + 1,
                0,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Makes every page present and writable.
    fn prefault(&self) -> io::Result<()> {
        match self.advise(Advice::PopulateWrite) {
            // Kernels before 5.14 do not know the advice.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                for offset in (0..self.len).step_by(PageSize::Base4K.bytes()) {
                    let byte = self.base.as_ptr().wrapping_add(offset);
                    // SAFETY: `offset < len`, so `byte` is in the mapping, which is writable and
                    // zero, and no other reference to it exists.
                    unsafe { byte.write_volatile(0) };
                }
                Ok(())
            }
            other => other,
        }
    }

    fn verify_transparent(&self, prefaulted: bool) -> Result<(), Note> {
        if !prefaulted {
            return Err(Note::NotVerified);
        }
        let start = self.base.as_ptr().addr();
        let text = std::fs::read_to_string("/proc/self/smaps")
            .map_err(|source| Note::PagesRefused { pages: self.page_size, source })?;
        let backing = smaps::backing(&text, start..start + self.len);
        if backing.huge == backing.mapped {
            return Ok(());
        }
        Err(Note::NotTransparent { huge: backing.huge.min(self.len), bytes: self.len })
    }

    fn lock(&self) -> io::Result<()> {
        // SAFETY: mlock changes no byte; the range is ours.
        let result = unsafe { libc::mlock(self.base.as_ptr().cast(), self.len) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// Maps `len` bytes, a multiple of the page size of `rung`, at a multiple of the page size.
fn map_pages(spec: &RegionSpec, rung: PageSize, len: usize) -> io::Result<Region> {
    let memfd = if spec.shared { Some(create_memfd(rung, len)?) } else { None };
    let mut options = MmapOptions::new();
    options.len(len);
    if rung.is_reserved() {
        options.huge(Some(rung.bits()));
    }
    let map = match &memfd {
        Some(file) => {
            let map = options.map_raw(file)?;
            seal(file)?;
            map
        }
        // Transparent pages begin at a multiple of their size, which the kernel does not promise.
        // The rest, at least one page at the end, also keeps two advised ranges apart in smaps.
        None if rung == PageSize::Transparent => {
            let slack = len.checked_add(rung.bytes()).ok_or(io::ErrorKind::OutOfMemory)?;
            MmapRaw::from(options.len(slack).map_anon()?)
        }
        None => MmapRaw::from(options.map_anon()?),
    };
    let start = map.as_mut_ptr();
    let skipped = if memfd.is_some() { 0 } else { start.align_offset(rung.bytes()) };
    let base = start.wrapping_add(skipped);
    base.expose_provenance();
    let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
    Ok(Region {
        base,
        len,
        page_size: rung,
        numa_node: None,
        is_locked: false,
        notes: Vec::new(),
        map: Some(map),
        memfd,
    })
}

fn create_memfd(rung: PageSize, len: usize) -> io::Result<File> {
    let huge = match rung {
        PageSize::Huge1G => libc::MFD_HUGETLB | libc::MFD_HUGE_1GB,
        PageSize::Huge2M => libc::MFD_HUGETLB | libc::MFD_HUGE_2MB,
        PageSize::Transparent | PageSize::Base4K => 0,
    };
    Ok(memfd::create(c"rpcrdma-region", len, huge)?)
}

/// Forbids all changes through the file: only the mapping that exists can be written to. If
/// another process shortened the file, this process would be killed at its next access.
fn seal(file: &File) -> io::Result<()> {
    let length = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
    let seals = length | libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL;
    // SAFETY: adds seals to a file of ours; no memory is involved.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The maximum number of nodes of a kernel (CONFIG_NODES_SHIFT is at most 10).
const NODES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn map(spec: RegionSpec) -> Region {
        Region::map(&spec).expect("a few MiB can be had")
    }

    /// The line `VmFlags` of the mapping at the start of a region.
    fn flags_of(region: &Region) -> String {
        let text = std::fs::read_to_string("/proc/self/smaps").expect("Linux");
        let start = region.base().as_ptr().addr();
        let from = text.find(&format!("{start:x}-")).expect("a mapping begins at the base");
        let flags = text[from..].lines().find_map(|line| line.strip_prefix("VmFlags:"));
        flags.expect("every mapping has flags").to_owned() + " "
    }

    #[test]
    fn every_page_size_that_was_not_provided_leaves_a_note() {
        for asked in PageSize::LADDER {
            for bytes in [1, 4096, 3 * MIB, 5 * MIB + 1] {
                let region =
                    map(RegionSpec { pages: asked, lock: false, ..RegionSpec::new(bytes) });
                let provided = region.page_size();
                assert!(provided >= asked, "{provided} pages are larger than asked for");
                let missed = PageSize::LADDER.iter().filter(|r| (asked..provided).contains(r));
                assert_eq!(region.notes().len(), missed.count(), "{:?}", region.notes());
                assert!(region.len() >= bytes && region.len().is_multiple_of(provided.bytes()));
                assert!(region.base().as_ptr().addr().is_multiple_of(provided.bytes()));
            }
        }
    }

    #[test]
    fn only_transparent_pages_are_mapped_with_room_to_align_them() {
        let spec = RegionSpec::new(4 * MIB);
        for (rung, room) in [(PageSize::Transparent, 2 * MIB), (PageSize::Base4K, 0)] {
            let region = map_pages(&spec, rung, spec.bytes).expect("a few MiB can be had");
            let map = region.map.as_ref().expect("it is mapped");
            assert_eq!((map.len(), region.len()), (spec.bytes + room, spec.bytes), "{rung}");
            let skipped = region.base().as_ptr().addr() - map.as_ptr().addr();
            assert!(skipped <= room, "{rung}: {skipped}");
        }
    }

    #[test]
    fn a_page_that_would_be_mostly_empty_is_not_tried() {
        let region = map(RegionSpec { lock: false, ..RegionSpec::new(64 << 10) });
        assert_eq!((region.page_size(), region.len()), (PageSize::Base4K, 64 << 10));
        let not_tried = |note: &Note| matches!(note, Note::TooSmall { bytes: 0x10000, .. });
        assert!(region.notes().iter().all(not_tried), "{:?}", region.notes());
    }

    #[test]
    #[cfg_attr(miri, ignore = "smaps")]
    fn transparent_means_that_every_byte_is_in_a_huge_page() {
        let spec = RegionSpec { pages: PageSize::Transparent, ..RegionSpec::new(6 * MIB) };
        let region = map(RegionSpec { lock: false, ..spec });
        let text = std::fs::read_to_string("/proc/self/smaps").expect("Linux");
        let start = region.base().as_ptr().addr();
        let backing = smaps::backing(&text, start..start + region.len());
        match region.page_size() {
            PageSize::Transparent => assert_eq!(backing.huge, backing.mapped),
            PageSize::Base4K => assert!(
                matches!(region.notes(), [Note::NotTransparent { .. } | Note::PagesRefused { .. }]),
                "{:?}",
                region.notes()
            ),
            other => panic!("{other} pages were not asked for"),
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "nothing is advised under Miri")]
    fn untouched_memory_is_not_reported_as_transparent() {
        let spec = RegionSpec { pages: PageSize::Transparent, ..RegionSpec::new(4 * MIB) };
        let region = map(RegionSpec { prefault: false, lock: false, ..spec });
        assert_eq!(region.page_size(), PageSize::Base4K);
        assert!(matches!(region.notes(), [Note::NotVerified]), "{:?}", region.notes());
    }

    #[test]
    #[cfg_attr(miri, ignore = "mincore")]
    fn memory_is_touched_if_that_is_requested() {
        const PAGES: usize = 16;
        for (numa_node, prefault) in
            [(None, false), (None, true), (Some(0), false), (Some(0), true)]
        {
            let spec = RegionSpec { pages: PageSize::Base4K, ..RegionSpec::new(PAGES * 4096) };
            let region = map(RegionSpec { numa_node, prefault, lock: false, ..spec });
            let (base, mut pages) = (region.base().as_ptr().cast(), [0; PAGES]);
            // SAFETY: writes a byte for each page of the region, which is mapped.
            let code = unsafe { libc::mincore(base, region.len(), pages.as_mut_ptr()) };
            assert_eq!(code, 0);
            let present = pages.iter().filter(|page| **page & 1 != 0).count();
            assert_eq!(present, if prefault { PAGES } else { 0 }, "node {numa_node:?}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "nothing is bound under Miri")]
    fn a_missing_node_leaves_a_note_and_a_region() {
        let folder = std::path::Path::new("/sys/devices/system/node");
        let has_no = |node: &u32| !folder.join(format!("node{node}")).exists();
        // One that the system might have, if it says which it has.
        let missing = if has_no(&0) { None } else { (1..64).find(has_no) };
        for node in missing.into_iter().chain([1023, 1024, u32::MAX]) {
            let spec = RegionSpec { pages: PageSize::Base4K, ..RegionSpec::new(4096) };
            let region = map(RegionSpec { numa_node: Some(node), lock: false, ..spec });
            assert!(
                matches!(region.notes(), [Note::NotBound { node: named, .. }] if *named == node),
                "{:?}",
                region.notes()
            );
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "nothing is bound under Miri")]
    fn binding_to_the_first_node_succeeds_where_the_kernel_allows_it() {
        let spec = RegionSpec { pages: PageSize::Base4K, ..RegionSpec::new(4096) };
        let region = map(RegionSpec { numa_node: Some(0), lock: false, ..spec });
        assert_eq!(region.numa_node().is_some(), region.notes().is_empty());
        // A container may forbid the call; on a machine with node 0 it must not be invalid.
        for note in region.notes() {
            let Note::NotBound { source, .. } = note else { panic!("{note}") };
            assert_ne!(source.raw_os_error(), Some(libc::EINVAL), "{note}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "smaps")]
    fn a_region_is_locked_or_reports_that_it_is_not() {
        let region = map(RegionSpec { pages: PageSize::Base4K, ..RegionSpec::new(4096) });
        let locked = flags_of(&region).contains(" lo ");
        let noted = region.notes().iter().any(|note| matches!(note, Note::NotLocked { .. }));
        assert_ne!(locked, noted, "{:?}", region.notes());
        assert_eq!(region.is_locked(), locked);
    }

    #[test]
    #[cfg_attr(miri, ignore = "smaps")]
    fn no_region_is_copied_to_a_child() {
        for shared in [false, true] {
            for pages in [PageSize::Transparent, PageSize::Base4K] {
                let spec = RegionSpec { pages, shared, ..RegionSpec::new(2 * MIB) };
                let region = map(RegionSpec { lock: false, ..spec });
                assert!(flags_of(&region).contains(" dc "), "{}", flags_of(&region));
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "fork")]
    fn a_child_process_has_no_mapping_there() {
        let region = map(RegionSpec { lock: false, ..RegionSpec::new(4096) });
        let base = region.base().as_ptr().cast();
        // SAFETY: the child makes two system calls, both of which are allowed after a fork in a
        // process with threads, and ends.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "no child could be made");
        if child == 0 {
            // SAFETY: msync looks at the mapping and changes no byte.
            let mapped = unsafe { libc::msync(base, 4096, libc::MS_ASYNC) } == 0;
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(i32::from(mapped)) };
        }
        let mut status = 0;
        // SAFETY: `child` is a child of this process, and only this code waits for it.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((waited, status), (child, 0), "the child found the region mapped");
    }

    #[test]
    #[cfg_attr(miri, ignore = "memfd")]
    fn a_shared_region_is_read_by_others_and_written_by_none() {
        let spec = RegionSpec { pages: PageSize::Base4K, shared: true, ..RegionSpec::new(8192) };
        let region = map(RegionSpec { lock: false, ..spec });
        let fd = region.memfd().expect("shared regions have a file").try_clone_to_owned();
        let file = File::from(fd.expect("a number is free"));
        file.set_len(0).expect_err("the length is sealed");
        // SAFETY: reads the seals of a file of ours; no memory is involved.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        let knows_exec = memfd::create(c"test", 0, libc::MFD_NOEXEC_SEAL).is_ok();
        assert_eq!(seals & libc::F_SEAL_EXEC != 0, knows_exec, "where the system knows that seal");
        MmapRaw::map_raw(&file).expect_err("the file is sealed");
        let written = std::os::unix::fs::FileExt::write_at(&file, &[1], 0);
        written.expect_err("nor by the file");
        let again = MmapOptions::new().map_raw_read_only(&file).expect("mapped");
        let last = region.base().as_ptr().wrapping_add(8191);
        // SAFETY: the last byte of the region, which only this test knows.
        unsafe { last.write_volatile(7) };
        let last = again.as_ptr().wrapping_add(8191);
        // SAFETY: the last byte of the second mapping, which is as long.
        let seen = unsafe { last.read_volatile() };
        assert_eq!((again.len(), seen), (8192, 7));
    }

    #[test]
    fn impossible_lengths_are_errors() {
        let error = |bytes| Region::map(&RegionSpec::new(bytes)).expect_err("impossible");
        assert!(matches!(error(0), RegionError::Empty));
        assert!(matches!(error(usize::MAX), RegionError::TooLarge { bytes: usize::MAX }));
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the system for the impossible")]
    fn more_than_the_system_has_is_an_error_that_names_the_bytes() {
        let error = Region::map(&RegionSpec::new(1 << 60)).expect_err("an exbibyte");
        assert!(matches!(error, RegionError::Map { bytes, .. } if bytes == 1 << 60), "{error}");
    }

    #[test]
    #[ignore = "needs four free huge pages: sysctl vm.nr_hugepages=4"]
    fn reserved_pages_are_taken_where_the_system_has_them() {
        for shared in [false, true] {
            let spec = RegionSpec { pages: PageSize::Huge2M, shared, ..RegionSpec::new(4 * MIB) };
            for numa_node in [None, Some(0)] {
                let region = map(RegionSpec { numa_node, ..spec.clone() });
                assert_eq!(region.page_size(), PageSize::Huge2M, "{:?}", region.notes());
                assert!(flags_of(&region).contains(" ht "), "{}", flags_of(&region));
            }
        }
    }
}
