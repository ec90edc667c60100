//! File handles: they identify a file, and prove that this server made them.
//!
//! ```text
//!   0        4                12               20                              36
//!   | layout | inode number   | time of birth  | keyed checksum of all of that |
//! ```
//! A handle identifies a file by its inode number and the inode's time of birth. It stays valid
//! when the file is renamed and when the server restarts, and is stale when the inode number is
//! reused. A client cannot forge it: the checksum is SipHash with a secret key, which the server
//! keeps in a file. A handle does not contain the path: the server looks the file up below the
//! exported directory only, so a handle cannot lead out of it (`tree`).

use std::fs::{File, OpenOptions};
use std::hash::Hasher;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nfs3_types::nfs3::nfs_fh3;
use nfs3_types::xdr_codec::{Opaque, Pack, Unpack, XdrCodec};
use siphasher::sip128::{Hasher128, SipHasher24};

/// The identity of a file: its inode number, and the inode's time of birth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    /// The inode number.
    pub inode: u64,
    /// The time of birth in nanoseconds; 0 if the file system does not record it.
    pub birth: u64,
}

/// The content of a handle in front of the checksum.
#[derive(XdrCodec)]
struct Named {
    layout: u32,
    inode: u64,
    birth: u64,
}

/// The secret key of file handles.
#[derive(Debug, Clone)]
pub struct HandleKey([u8; KEY_LEN]);

impl HandleKey {
    /// Reads the key from a file, which is created if it does not exist.
    ///
    /// # Errors
    /// If the file cannot be read or created, or is not a key file.
    pub fn load(path: &Path) -> io::Result<HandleKey> {
        if !path.try_exists()? {
            HandleKey::make(path)?;
        }
        let mut key = Vec::new();
        File::open(path)?.take(KEY_LEN as u64 + 1).read_to_end(&mut key)?;
        let key = key.try_into().map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(HandleKey(key))
    }

    /// Writes a new key file, and renames it at the end: an existing file contains a whole key even
    /// after a crash.
    fn make(path: &Path) -> io::Result<()> {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}", std::process::id()));
        let mut key = [0; KEY_LEN];
        File::open("/dev/urandom")?.read_exact(&mut key)?;
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&name)?;
        file.write_all(&key)?;
        file.sync_all()?;
        let made = std::fs::hard_link(&name, path);
        std::fs::remove_file(&name)?;
        match made {
            // Another server created it first: use that one.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
    }

    /// The handle of a file.
    pub fn handle(&self, id: FileId) -> nfs_fh3 {
        let FileId { inode, birth } = id;
        let mut bytes = Vec::with_capacity(HANDLE_LEN);
        let named = Named { layout: LAYOUT, inode, birth };
        named.pack(&mut bytes).expect("a vector takes whatever is written to it");
        bytes.extend(self.checksum(HANDLES, &bytes));
        nfs_fh3 { data: Opaque::owned(bytes) }
    }

    /// The file of a handle; `None` if this server did not make the handle.
    pub fn open(&self, handle: &nfs_fh3) -> Option<FileId> {
        let (named, checksum) = handle.data.split_first_chunk::<NAMED_LEN>()?;
        // Compares whole words, so that the time does not depend on the number of correct bytes.
        let given: [u8; 16] = checksum.try_into().ok()?;
        let right = u128::from_le_bytes(self.checksum(HANDLES, named));
        if u128::from_le_bytes(given) != right {
            return None;
        }
        let (Named { layout, inode, birth }, _) = Named::unpack(&mut &named[..]).ok()?;
        (layout == LAYOUT).then_some(FileId { inode, birth })
    }

    /// A number for a name in a directory; the same as long as the key is the same.
    pub fn number(&self, name: &[u8]) -> u64 {
        let number = u128::from_le_bytes(self.checksum(NAMES, name));
        number as u64
    }

    fn checksum(&self, use_: u8, bytes: &[u8]) -> [u8; 16] {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write_u8(use_);
        hasher.write(bytes);
        hasher.finish128().as_bytes()
    }
}

/// Bytes of a handle.
pub const HANDLE_LEN: usize = NAMED_LEN + 16;
const NAMED_LEN: usize = 20;
const KEY_LEN: usize = 16;
/// The version of the layout of handles.
const LAYOUT: u32 = 0x5246_0001;
/// Separates the checksums of handles from other uses of the key.
const HANDLES: u8 = 1;
const NAMES: u8 = 2;

#[cfg(test)]
mod tests {
    use rpcrdma_tests::folder::Folder;

    use super::*;

    const ID: FileId = FileId { inode: 0x0102_0304_0506_0708, birth: 99 };

    #[test]
    fn a_handle_opens_its_file() {
        let key = HandleKey([7; KEY_LEN]);
        let handle = key.handle(ID);
        assert_eq!(handle.data.len(), HANDLE_LEN);
        assert_eq!(key.open(&handle), Some(ID));
        assert_eq!(HandleKey([7; KEY_LEN]).open(&handle), Some(ID), "in another run as well");
    }

    #[test]
    fn a_key_is_made_once_and_whole() {
        let directory = Folder::new();
        let path = directory.join("key");
        // The remains of a killed server.
        let left = directory.join(format!("key.{}", std::process::id()));
        std::fs::write(&left, b"half").expect("written");
        let first = HandleKey::load(&path).expect("a key");
        let second = HandleKey::load(&path).expect("the same");
        assert_eq!(second.open(&first.handle(ID)), Some(ID));
        assert_eq!(std::fs::read(&path).expect("there").len(), KEY_LEN);
        assert!(!left.exists());
        std::fs::write(&path, b"half").expect("written");
        let other = HandleKey::load(&path).expect_err("it is no key");
        assert_eq!(other.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn changed_and_invented_handles_are_refused() {
        let key = HandleKey([7; KEY_LEN]);
        let handle = key.handle(ID);
        for at in 0..HANDLE_LEN {
            let mut bytes = handle.data.to_vec();
            bytes[at] ^= 1;
            assert_eq!(key.open(&nfs_fh3 { data: bytes.into() }), None, "byte {at}");
        }
        for len in [0, 1, NAMED_LEN, HANDLE_LEN - 1, HANDLE_LEN + 1, 64] {
            let mut bytes = handle.data.to_vec();
            bytes.resize(len, 0);
            assert_eq!(key.open(&nfs_fh3 { data: bytes.into() }), None, "{len} bytes");
        }
        assert_eq!(HandleKey([8; KEY_LEN]).open(&handle), None, "of another server");
    }
}
