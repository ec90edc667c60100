//! Attributes: what the file system says, as NFS says it.

use std::os::fd::AsFd;

use nfs3_types::nfs3::{Nfs3Option, fattr3, ftype3, nfstime3, specdata3, wcc_attr};
use nfs3_types::xdr_codec::{Pack, Unpack};
use rustix::fs::{AtFlags, FileType, Statx, StatxFlags, statx};

use crate::credentials::{Identity, Want};
use crate::handles::FileId;

/// The attributes of a file at one moment.
#[derive(Debug, Clone)]
pub struct Attributes(Statx);

impl Attributes {
    /// Of a descriptor.
    ///
    /// # Errors
    /// If the file system does not say them.
    pub fn of(fd: impl AsFd) -> rustix::io::Result<Attributes> {
        statx(fd, c"", AtFlags::EMPTY_PATH, WANTED).map(Attributes)
    }

    /// Of a name in a directory, not followed.
    ///
    /// # Errors
    /// If there is no such name.
    pub fn at(directory: impl AsFd, name: &[u8]) -> rustix::io::Result<Attributes> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        statx(directory, name, flags, WANTED).map(Attributes)
    }

    /// Which file it is.
    pub fn id(&self) -> FileId {
        let birth = self.0.stx_btime;
        let has_birth = self.0.stx_mask & StatxFlags::BTIME.bits() != 0;
        let nanoseconds = birth.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000);
        let birth = nanoseconds.wrapping_add(u64::from(birth.tv_nsec));
        FileId { inode: self.0.stx_ino, birth: if has_birth { birth } else { 0 } }
    }

    /// The device that the file is on.
    pub fn device(&self) -> (u32, u32) {
        (self.0.stx_dev_major, self.0.stx_dev_minor)
    }

    /// What it is.
    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.0.stx_mode.into())
    }

    /// Its length.
    pub fn size(&self) -> u64 {
        self.0.stx_size
    }

    /// How many names it has.
    pub fn links(&self) -> u32 {
        self.0.stx_nlink
    }

    /// The user that it belongs to.
    pub fn owner(&self) -> u32 {
        self.0.stx_uid
    }

    /// When it was changed last, and when its attributes were.
    pub fn changed(&self) -> (nfstime3, nfstime3) {
        (time(self.0.stx_mtime), time(self.0.stx_ctime))
    }

    /// When it was read last, and when it was changed last: seconds, as an exclusive CREATE has
    /// written them.
    pub fn stamps(&self) -> (i64, i64) {
        (self.0.stx_atime.tv_sec, self.0.stx_mtime.tv_sec)
    }

    /// Whether its mode lets somebody do something.
    pub fn may(&self, who: &Identity, want: Want) -> bool {
        who.may(want, self.0.stx_mode.into(), self.0.stx_uid, self.0.stx_gid)
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

/// `Option`, as XDR has it.
pub fn some<T: Pack + Unpack>(value: Option<T>) -> Nfs3Option<T> {
    value.map_or(Nfs3Option::None, Nfs3Option::Some)
}

fn time(stamp: rustix::fs::StatxTimestamp) -> nfstime3 {
    nfstime3 {
        // `nfstime3` has no time before 1970 and none after 2106.
        seconds: u32::try_from(stamp.tv_sec.max(0)).unwrap_or(u32::MAX),
        nseconds: stamp.tv_nsec,
    }
}

/// Bits of a mode that are not the type.
pub const PERMISSIONS: u32 = 0o7777;
const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);
