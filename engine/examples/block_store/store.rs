//! The file of the store: written from where data landed, read into where replies leave from.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IoSlice, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use arrayvec::ArrayVec;

/// What O_DIRECT wants offsets, lengths and addresses to be multiples of; no device wants more.
pub const SECTOR: usize = 4096;
/// Slices of one write. A block of 1 MiB lies in 16 segments of 64 KiB.
pub const SLICES_MAX: usize = 64;

/// The file as one thread uses it: `writev` goes by the position of a descriptor, so threads do not
/// share descriptors.
#[derive(Debug)]
pub struct Store {
    /// Past the page cache, for whole sectors; if the file system has that.
    direct: Option<File>,
    /// Through the page cache: for the last, partial sector, and for all if there is no other.
    buffered: File,
}

/// Slices of one write, in file order.
pub type Slices<'a> = ArrayVec<&'a [u8], SLICES_MAX>;

impl Store {
    /// Opens a file that exists. `direct` comes from [`create`].
    pub fn open(path: &Path, direct: bool) -> io::Result<Store> {
        let direct = direct.then(|| open_direct(path)).transpose()?;
        let buffered = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Store { direct, buffered })
    }

    /// Writes slices one behind the other. Whole sectors go past the page cache if the memory that
    /// they lie in is aligned.
    pub fn write(&self, slices: &Slices<'_>, offset: u64) -> io::Result<()> {
        let mut at = offset;
        let len: usize = slices.iter().map(|slice| slice.len()).sum();
        if let Some(direct) = &self.direct {
            let sectors = sectors(slices, offset);
            at += write_vectored(direct, slices, 0..sectors, offset)?;
        }
        let done = (at - offset) as usize;
        if done < len {
            let written = write_vectored(&self.buffered, slices, done..len, at)?;
            if done as u64 + written < len as u64 {
                return Err(ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Reads into the front of `into`, up to `len` bytes or the end of the file, and returns how
    /// many they are. `into` is aligned, and long enough for `len` rounded up to a sector.
    pub fn read(&self, into: &mut [u8], offset: u64, len: usize) -> io::Result<usize> {
        let rounded = len.next_multiple_of(SECTOR);
        let (file, want) = match &self.direct {
            Some(direct) if is_aligned(into, offset) && rounded <= into.len() => (direct, rounded),
            _ => (&self.buffered, len),
        };
        let mut done = 0;
        while done < len {
            match file.read_at(&mut into[done..want], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            // Only the end of the file cuts a sector.
            if want == rounded && !done.is_multiple_of(SECTOR) {
                break;
            }
        }
        Ok(done.min(len))
    }

    /// Cuts the file off, or lengthens it by a hole.
    pub fn resize(&self, len: u64) -> io::Result<()> {
        self.buffered.set_len(len)
    }

    /// Returns when everything is on the medium.
    pub fn commit(&self) -> io::Result<()> {
        self.buffered.sync_data()
    }
}

/// Makes a new, empty file, and finds out whether it can be written past the page cache; if not,
/// says why.
pub fn create(path: &Path) -> io::Result<Result<(), io::Error>> {
    let file = OpenOptions::new().write(true).create_new(true).open(path)?;
    let probe = open_direct(path).and_then(|direct| {
        // Some file systems take the flag and refuse the write.
        let sector = Sector([0; SECTOR]);
        direct.write_all_at(&sector.0, 0)
    });
    file.set_len(0)?;
    Ok(probe)
}

/// A file that is removed when this is dropped.
#[derive(Debug)]
pub struct Temporary(pub PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // If it is gone already, all the better; there is nobody to tell anything else.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A sector where O_DIRECT wants it.
#[repr(align(4096))]
struct Sector([u8; SECTOR]);

fn open_direct(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path)
}

fn is_aligned(bytes: &[u8], offset: u64) -> bool {
    bytes.as_ptr().addr().is_multiple_of(SECTOR) && offset.is_multiple_of(SECTOR as u64)
}

/// Bytes at the front of `slices` that are whole sectors in aligned memory.
fn sectors(slices: &[&[u8]], offset: u64) -> usize {
    let mut total = 0;
    for slice in slices {
        if !is_aligned(slice, offset) {
            break;
        }
        let whole = slice.len() - slice.len() % SECTOR;
        total += whole;
        if whole < slice.len() {
            break;
        }
    }
    total
}

/// Writes the bytes of `range`, counted over all slices, to a place in a file. Returns how many
/// went: fewer only if a descriptor past the page cache left off inside of a sector.
fn write_vectored(
    mut file: &File,
    slices: &[&[u8]],
    range: std::ops::Range<usize>,
    offset: u64,
) -> io::Result<u64> {
    let mut parts = ArrayVec::<IoSlice<'_>, SLICES_MAX>::new();
    let mut start = 0;
    for slice in slices {
        let from = range.start.clamp(start, start + slice.len()) - start;
        let to = range.end.clamp(start, start + slice.len()) - start;
        if from < to {
            parts.push(IoSlice::new(&slice[from..to]));
        }
        start += slice.len();
    }
    let mut left = parts.as_mut_slice();
    let mut done = 0;
    if !left.is_empty() {
        file.seek(SeekFrom::Start(offset))?;
    }
    while !left.is_empty() {
        match file.write_vectored(left) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => {
                done += written as u64;
                IoSlice::advance_slices(&mut left, written);
                if !written.is_multiple_of(SECTOR) && !left.is_empty() {
                    break;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three sectors, the first where O_DIRECT wants it.
    #[repr(align(4096))]
    struct Aligned([u8; 3 * SECTOR]);

    fn pattern() -> Box<Aligned> {
        let mut bytes = Box::new(Aligned([0; 3 * SECTOR]));
        bytes.0.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 7 + at / 251) as u8);
        bytes
    }

    fn store(name: &str) -> (Temporary, Store) {
        let name = format!("block-store-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let direct = create(&path).expect("the directory is writable").is_ok();
        let store = Store::open(&path, direct).expect("it was made just now");
        (Temporary(path), store)
    }

    #[test]
    fn whole_sectors_end_where_alignment_ends() {
        let bytes = &pattern().0;
        assert_eq!(sectors(&[&bytes[..SECTOR], &bytes[SECTOR..]], 0), 3 * SECTOR);
        assert_eq!(sectors(&[&bytes[..SECTOR + 1]], 0), SECTOR);
        assert_eq!(sectors(&[&bytes[..100], &bytes[SECTOR..]], 0), 0);
        assert_eq!(sectors(&[&bytes[..SECTOR], &bytes[SECTOR + 4..]], 0), SECTOR);
        assert_eq!(sectors(&[&bytes[..SECTOR]], 512), 0, "the offset counts, too");
    }

    #[test]
    fn slices_that_end_inside_of_a_sector_are_read_back_as_written() {
        let (file, store) = store("tail");
        let bytes = &pattern().0;
        let slices: Slices<'_> =
            [&bytes[..2 * SECTOR], &bytes[2 * SECTOR..2 * SECTOR + 77]].into_iter().collect();
        store.write(&slices, SECTOR as u64).expect("written");
        let stored = std::fs::read(&file.0).expect("read");
        assert_eq!(stored.len(), 3 * SECTOR + 77);
        assert_eq!(&stored[SECTOR..], &bytes[..2 * SECTOR + 77]);

        let mut back = Box::new(Aligned([0xAA; 3 * SECTOR]));
        let read = store.read(&mut back.0, SECTOR as u64, 2 * SECTOR + 100).expect("read");
        assert_eq!(read, 2 * SECTOR + 77, "to the end of the file and no further");
        assert_eq!(&back.0[..read], &bytes[..read]);
        assert_eq!(store.read(&mut back.0, 1 << 20, SECTOR).expect("read"), 0);
    }

    #[test]
    fn memory_and_offsets_that_are_not_aligned_are_written_all_the_same() {
        let (file, store) = store("odd");
        let bytes = &pattern().0;
        let slices: Slices<'_> = [&bytes[4..104], &bytes[200..5000]].into_iter().collect();
        store.write(&slices, 3).expect("written");
        let stored = std::fs::read(&file.0).expect("read");
        assert_eq!(stored[3..103], bytes[4..104]);
        assert_eq!(stored[103..], bytes[200..5000]);
        let mut back = [0; 50];
        assert_eq!(store.read(&mut back, 3, 50).expect("read"), 50);
        assert_eq!(back, bytes[4..54]);
        store.resize(10).expect("resized");
        assert_eq!(std::fs::metadata(&file.0).expect("there").len(), 10);
    }

    #[test]
    fn a_file_that_exists_is_not_overwritten() {
        let (file, _store) = store("exists");
        assert_eq!(create(&file.0).expect_err("it exists").kind(), ErrorKind::AlreadyExists);
    }
}
