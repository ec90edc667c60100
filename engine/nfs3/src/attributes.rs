//! File attributes: converts those of the file system to those of NFS.

use std::os::fd::AsFd;

use nfs3_types::nfs3::{Nfs3Option, fattr3, ftype3, nfstime3, specdata3, wcc_attr};
use nfs3_types::xdr_codec::{Pack, Unpack};
use rustix::fs::{AtFlags, FileType, Statx, StatxFlags, statx};

use crate::handles::FileId;

/// The attributes of a file at one moment.
#[derive(Debug, Clone)]
pub struct Attributes(Statx);

/// What changes whenever the rights to a file do: the time of change, which is all for an ACL, and
/// what the rights follow from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RightsStamp {
    changed: nfstime3,
    mode: u16,
    uid: u32,
    gid: u32,
}

impl Attributes {
    /// The attributes of an open descriptor.
    ///
    /// # Errors
    /// If the file system returns an error.
    pub fn of(fd: impl AsFd) -> rustix::io::Result<Attributes> {
        statx(fd, c"", AtFlags::EMPTY_PATH, WANTED).map(Attributes)
    }

    /// The attributes of a name in a directory; a symbolic link is not followed.
    ///
    /// # Errors
    /// If the name does not exist.
    pub fn at(directory: impl AsFd, name: &[u8]) -> rustix::io::Result<Attributes> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        statx(directory, name, flags, WANTED).map(Attributes)
    }

    /// The identity of the file.
    pub fn id(&self) -> FileId {
        let birth = self.0.stx_btime;
        let has_birth = self.0.stx_mask & StatxFlags::BTIME.bits() != 0;
        let nanoseconds = birth.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000);
        let birth = nanoseconds.wrapping_add(u64::from(birth.tv_nsec));
        FileId { inode: self.0.stx_ino, birth: if has_birth { birth } else { 0 } }
    }

    /// The device number of its file system.
    pub fn device(&self) -> (u32, u32) {
        (self.0.stx_dev_major, self.0.stx_dev_minor)
    }

    /// The file type.
    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.0.stx_mode.into())
    }

    /// The length in bytes.
    pub fn size(&self) -> u64 {
        self.0.stx_size
    }

    /// The number of hard links.
    pub fn links(&self) -> u32 {
        self.0.stx_nlink
    }

    /// The owner's user id.
    pub fn owner(&self) -> u32 {
        self.0.stx_uid
    }

    /// The times of the last change of its data, and of its attributes.
    pub fn changed(&self) -> (nfstime3, nfstime3) {
        (time(self.0.stx_mtime), time(self.0.stx_ctime))
    }

    /// The access and modification time in seconds, where an exclusive CREATE stores its verifier.
    pub fn stamps(&self) -> (i64, i64) {
        (self.0.stx_atime.tv_sec, self.0.stx_mtime.tv_sec)
    }

    /// What the rights of callers are compared by.
    pub fn rights_stamp(&self) -> RightsStamp {
        let Statx { stx_mode: mode, stx_uid: uid, stx_gid: gid, .. } = self.0;
        RightsStamp { changed: self.changed().1, mode, uid, gid }
    }

    /// `fattr3`
    pub fn fattr(&self) -> fattr3 {
        let it = &self.0;
        fattr3 {
            type_: match self.kind() {
                FileType::Directory => ftype3::NF3DIR,
                FileType::BlockDevice => ftype3::NF3BLK,
                FileType::CharacterDevice => ftype3::NF3CHR,
                FileType::Symlink => ftype3::NF3LNK,
                FileType::Socket => ftype3::NF3SOCK,
                FileType::Fifo => ftype3::NF3FIFO,
                _ => ftype3::NF3REG,
            },
            mode: u32::from(it.stx_mode) & PERMISSIONS,
            nlink: it.stx_nlink,
            uid: it.stx_uid,
            gid: it.stx_gid,
            size: it.stx_size,
            used: it.stx_blocks.saturating_mul(512),
            rdev: specdata3 { specdata1: it.stx_rdev_major, specdata2: it.stx_rdev_minor },
            fsid: u64::from(it.stx_dev_major) << 32 | u64::from(it.stx_dev_minor),
            fileid: it.stx_ino,
            atime: time(it.stx_atime),
            mtime: time(it.stx_mtime),
            ctime: time(it.stx_ctime),
        }
    }

    /// `wcc_attr`
    pub fn before(&self) -> wcc_attr {
        let (mtime, ctime) = self.changed();
        wcc_attr { size: self.size(), mtime, ctime }
    }
}

/// An `Option` as the XDR type.
pub fn some<T: Pack + Unpack>(value: Option<T>) -> Nfs3Option<T> {
    value.map_or(Nfs3Option::None, Nfs3Option::Some)
}

fn time(stamp: rustix::fs::StatxTimestamp) -> nfstime3 {
    nfstime3 {
        // `nfstime3` cannot express times before 1970 or after 2106.
        seconds: u32::try_from(stamp.tv_sec.max(0)).unwrap_or(u32::MAX),
        nseconds: stamp.tv_nsec,
    }
}

/// The permission bits of a mode, without the file type.
pub const PERMISSIONS: u32 = 0o7777;
const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_type_its_permissions_and_its_numbers() {
        let mut of = Attributes::at(rustix::fs::CWD, b"/").expect("there is a root");
        for (kind, is) in [
            (FileType::RegularFile, ftype3::NF3REG),
            (FileType::Directory, ftype3::NF3DIR),
            (FileType::BlockDevice, ftype3::NF3BLK),
            (FileType::CharacterDevice, ftype3::NF3CHR),
            (FileType::Symlink, ftype3::NF3LNK),
            (FileType::Socket, ftype3::NF3SOCK),
            (FileType::Fifo, ftype3::NF3FIFO),
        ] {
            of.0.stx_mode = u16::try_from(kind.as_raw_mode()).expect("a mode") | 0o6751;
            let found = of.fattr();
            assert_eq!((found.type_ as u32, found.mode), (is as u32, 0o6751), "{kind:?}");
        }
        (of.0.stx_nlink, of.0.stx_uid, of.0.stx_gid) = (3, 4, 5);
        (of.0.stx_size, of.0.stx_blocks, of.0.stx_ino) = (6, 7, 8);
        (of.0.stx_rdev_major, of.0.stx_rdev_minor) = (9, 10);
        (of.0.stx_dev_major, of.0.stx_dev_minor) = (11, 12);
        (of.0.stx_atime.tv_sec, of.0.stx_atime.tv_nsec) = (-1, 13);
        (of.0.stx_mtime.tv_sec, of.0.stx_mtime.tv_nsec) = (14, 15);
        (of.0.stx_ctime.tv_sec, of.0.stx_ctime.tv_nsec) = (1 << 32, 16);
        let found = of.fattr();
        assert_eq!((found.nlink, found.uid, found.gid), (3, 4, 5));
        assert_eq!((found.size, found.used, found.fileid), (6, 7 * 512, 8));
        assert_eq!((found.rdev.specdata1, found.rdev.specdata2), (9, 10));
        assert_eq!(found.fsid, 11 << 32 | 12);
        let times = [found.atime, found.mtime, found.ctime].map(|it| (it.seconds, it.nseconds));
        assert_eq!(times, [(0, 13), (14, 15), (u32::MAX, 16)]);
        let before = of.before();
        assert_eq!((before.size, before.mtime.seconds, before.ctime.nseconds), (6, 14, 16));
        assert_eq!(of.stamps(), (-1, 14));
        assert_eq!((of.device(), of.links(), of.owner(), of.size()), ((11, 12), 3, 4, 6));
    }

    #[test]
    fn a_file_is_another_if_it_was_born_at_another_time() {
        let mut of = Attributes::at(rustix::fs::CWD, b"/").expect("there is a root");
        of.0.stx_ino = 7;
        (of.0.stx_btime.tv_sec, of.0.stx_btime.tv_nsec) = (2, 3);
        of.0.stx_mask |= StatxFlags::BTIME.bits();
        assert_eq!(of.id(), FileId { inode: 7, birth: 2_000_000_003 });
        of.0.stx_mask &= !StatxFlags::BTIME.bits();
        assert_eq!(of.id(), FileId { inode: 7, birth: 0 }, "its file system does not state it");
    }

    #[test]
    fn rights_are_compared_by_all_that_changes_them() {
        let mut of = Attributes::at(rustix::fs::CWD, b"/").expect("there is a root");
        let first = of.rights_stamp();
        assert_eq!(first, of.rights_stamp());
        of.0.stx_uid ^= 1;
        assert_ne!(first, of.rights_stamp());
        of.0.stx_uid ^= 1;
        of.0.stx_gid ^= 1;
        assert_ne!(first, of.rights_stamp());
        of.0.stx_gid ^= 1;
        of.0.stx_mode ^= 1;
        assert_ne!(first, of.rights_stamp());
        of.0.stx_mode ^= 1;
        of.0.stx_ctime.tv_nsec ^= 1;
        assert_ne!(first, of.rights_stamp());
    }
}
