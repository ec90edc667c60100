//! The files of a storage: a table of fixed length, with up to two descriptors for each file.
//!
//! ```text
//!   address, length and offset are multiples of the alignment ──▶ direct    past the page cache
//!   anything else                                             ──▶ buffered  through it
//! ```

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rustix::fs::{Mode, OFlags};

/// An open file of a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    index: u32,
    generation: u32,
}

/// Whether requests pass by the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    /// Aligned ones do, if the file system permits it (O_DIRECT).
    Direct,
    /// None does.
    Buffered,
}

/// A descriptor for a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Descriptor {
    pub fd: RawFd,
    /// Its place in the table of the ring, if it has one.
    pub place: Option<u32>,
}

/// The descriptors of a file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub buffered: OwnedFd,
    pub direct: Option<OwnedFd>,
}

impl OpenFile {
    /// Opens the second descriptor of a file, if the file system has it.
    pub fn new(buffered: OwnedFd, caching: Caching) -> OpenFile {
        let direct = match caching {
            Caching::Direct => direct(&buffered).ok(),
            Caching::Buffered => None,
        };
        OpenFile { buffered, direct }
    }
}

#[derive(Debug)]
struct Place {
    generation: u32,
    file: Option<OpenFile>,
    /// Operations that name it.
    users: u32,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Files {
    places: Box<[Place]>,
    /// Whether the ring has the descriptors.
    pub has_places: bool,
}

impl Files {
    pub fn new(count: u32) -> Files {
        let place = |_| Place { generation: 0, file: None, users: 0 };
        Files { places: (0..count).map(place).collect(), has_places: false }
    }

    /// Enters a file; gives it back if the table is full.
    pub fn add(&mut self, file: OpenFile) -> Result<FileId, OpenFile> {
        let Some(index) = self.places.iter().position(|place| place.file.is_none()) else {
            return Err(file);
        };
        self.places[index].file = Some(file);
        Ok(FileId { index: index as u32, generation: self.places[index].generation })
    }

    /// An operation begins to use a file. False if the file is not open.
    pub fn enter(&mut self, id: FileId) -> bool {
        let place = self.places.get_mut(id.index as usize);
        let place = place.filter(|it| it.generation == id.generation && it.file.is_some());
        place.map(|place| place.users += 1).is_some()
    }

    /// An operation that has entered ends.
    pub fn leave(&mut self, id: FileId) {
        if let Some(place) = self.places.get_mut(id.index as usize) {
            place.users = place.users.saturating_sub(1);
        }
    }

    /// Takes a file out, of which the caller is the only user.
    pub fn remove(&mut self, id: FileId) -> Option<OpenFile> {
        let place = self.places.get_mut(id.index as usize)?;
        let file = place.file.take_if(|_| place.generation == id.generation && place.users == 1);
        if file.is_some() {
            place.generation = place.generation.wrapping_add(1);
        }
        file
    }

    /// The descriptor for a request that is aligned, or is not.
    #[inline]
    pub fn descriptor(&self, id: FileId, is_aligned: bool) -> Option<(Descriptor, bool)> {
        let file = self.places.get(id.index as usize)?.file.as_ref()?;
        let (fd, is_direct) = match &file.direct {
            Some(direct) if is_aligned => (direct, true),
            _ => (&file.buffered, false),
        };
        let place = self.has_places.then(|| id.index * 2 + u32::from(is_direct));
        Some((Descriptor { fd: fd.as_raw_fd(), place }, is_direct))
    }

    /// The numbers for the table of the ring, where a file is or was: buffered, direct.
    pub fn pair(&self, id: FileId) -> (u32, [RawFd; 2]) {
        let file = self.places.get(id.index as usize).and_then(|place| place.file.as_ref());
        let buffered = file.map_or(-1, |file| file.buffered.as_raw_fd());
        let direct = file.and_then(|file| file.direct.as_ref()).map_or(-1, AsRawFd::as_raw_fd);
        (id.index * 2, [buffered, direct])
    }
}

/// Opens a file once more, past the page cache. Its path does not matter: it may have none.
fn direct(file: &OwnedFd) -> io::Result<OwnedFd> {
    let kept = OFlags::ACCMODE | OFlags::SYNC | OFlags::DSYNC | OFlags::APPEND | OFlags::NOATIME;
    let access = rustix::fs::fcntl_getfl(file.as_fd())? & kept;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::open(path, access | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty())?)
}

/// What requests past the page cache are multiples of: their addresses, lengths and offsets, in
/// bytes. A device that wants more refuses them, and they go through the page cache.
pub const ALIGNMENT: u64 = 4096;
