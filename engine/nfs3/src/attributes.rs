//! Attributes: what the file system says as NFS says it, and what a client wants changed.

use nfs3_types::nfs3::{
    Nfs3Option, fattr3, ftype3, nfsstat3, nfstime3, post_op_attr, pre_op_attr, sattr3, set_atime,
    set_mtime, specdata3, wcc_attr, wcc_data,
};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, Statx, StatxFlags, Timespec, Timestamps, UTIME_NOW,
    UTIME_OMIT, Uid, chownat, ftruncate, statx, utimensat,
};
use rustix::io::Errno;

use crate::credentials::{Identity, Want};
use crate::handles::FileId;
use crate::nodes::Node;

/// `nfsstat3`.
pub type Status = nfsstat3;

/// The attributes of a file at one moment.
#[derive(Debug, Clone)]
pub struct Attributes(Statx);

impl Attributes {
    /// Of a file that is held.
    pub fn of(node: &Node) -> Result<Attributes, Status> {
        Attributes::at(node, c"", AtFlags::EMPTY_PATH)
    }

    /// Of a file that is held, unless it has lost its last name.
    pub fn of_linked(node: &Node) -> Option<Attributes> {
        Attributes::of(node).ok().filter(|attributes| attributes.links() > 0)
    }

    /// Of a name in a directory, not followed.
    pub fn at(
        directory: &Node,
        name: impl rustix::path::Arg,
        flags: AtFlags,
    ) -> Result<Attributes, Status> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let flags = flags | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        statx(directory.fd(), name, flags, wanted).map(Attributes).map_err(status)
    }

    /// Of a descriptor.
    pub fn of_fd(fd: impl std::os::fd::AsFd) -> rustix::io::Result<Attributes> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        statx(fd, c"", AtFlags::EMPTY_PATH, wanted).map(Attributes)
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

/// `post_op_attr` of a file that is held.
pub fn after(node: &Node) -> post_op_attr {
    some(Attributes::of(node).ok().map(|attributes| attributes.fattr()))
}

/// `pre_op_attr` of a file that is held.
pub fn before(node: &Node) -> pre_op_attr {
    some(Attributes::of(node).ok().map(|attributes| attributes.before()))
}

/// `wcc_data`: the attributes that were, and those that are.
pub fn wcc(before: pre_op_attr, node: &Node) -> wcc_data {
    wcc_data { before, after: after(node) }
}

/// `Option`, as XDR has it.
pub fn some<T: nfs3_types::xdr_codec::Pack + nfs3_types::xdr_codec::Unpack>(
    value: Option<T>,
) -> Nfs3Option<T> {
    value.map_or(Nfs3Option::None, Nfs3Option::Some)
}

/// An error of the system as NFS has it.
pub fn status(error: Errno) -> Status {
    match error {
        Errno::PERM => Status::NFS3ERR_PERM,
        Errno::NOENT => Status::NFS3ERR_NOENT,
        Errno::NXIO => Status::NFS3ERR_NXIO,
        // A mount point of the server's, or a symbolic link where a directory should be.
        Errno::ACCESS | Errno::XDEV => Status::NFS3ERR_ACCES,
        Errno::EXIST => Status::NFS3ERR_EXIST,
        Errno::NODEV => Status::NFS3ERR_NODEV,
        Errno::NOTDIR | Errno::LOOP => Status::NFS3ERR_NOTDIR,
        Errno::ISDIR => Status::NFS3ERR_ISDIR,
        Errno::INVAL => Status::NFS3ERR_INVAL,
        Errno::FBIG => Status::NFS3ERR_FBIG,
        Errno::NOSPC => Status::NFS3ERR_NOSPC,
        Errno::ROFS => Status::NFS3ERR_ROFS,
        Errno::MLINK => Status::NFS3ERR_MLINK,
        Errno::NAMETOOLONG => Status::NFS3ERR_NAMETOOLONG,
        Errno::NOTEMPTY => Status::NFS3ERR_NOTEMPTY,
        Errno::DQUOT => Status::NFS3ERR_DQUOT,
        Errno::STALE => Status::NFS3ERR_STALE,
        Errno::OPNOTSUPP | Errno::NOSYS => Status::NFS3ERR_NOTSUPP,
        // The client may ask again: descriptors and memory come back.
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => Status::NFS3ERR_JUKEBOX,
        _ => Status::NFS3ERR_IO,
    }
}

/// Changes what a client wants changed, in the order in which one change does not undo another. What
/// needs rights is done as `who`.
pub fn apply(node: &Node, wanted: &sattr3, who: &Identity) -> Result<(), Status> {
    if let Nfs3Option::Some(size) = wanted.size {
        let now = Attributes::of(node)?;
        if !now.may(who, Want::Write) && !who.owns(now.owner()) {
            return Err(Status::NFS3ERR_ACCES);
        }
        let file = node.data(true)?;
        // The kernel takes the setuid bit away only if it is not root who changes the length.
        who.act(|| ftruncate(file, size).map_err(status))?;
    }
    who.act(|| {
        let (uid, gid) = (option(&wanted.uid), option(&wanted.gid));
        if uid.is_some() || gid.is_some() {
            if uid == Some(u32::MAX) || gid == Some(u32::MAX) {
                return Err(Status::NFS3ERR_INVAL);
            }
            let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
            chownat(node.fd(), c"", uid, gid, AtFlags::EMPTY_PATH).map_err(status)?;
        }
        if let Nfs3Option::Some(mode) = wanted.mode
            && node.kind() != FileType::Symlink
        {
            let mode = Mode::from_raw_mode(mode & PERMISSIONS);
            node.set_mode(mode).map_err(status)?;
        }
        let times = Timestamps {
            last_access: match wanted.atime {
                set_atime::DONT_CHANGE => moment(UTIME_OMIT),
                set_atime::SET_TO_SERVER_TIME => moment(UTIME_NOW),
                set_atime::SET_TO_CLIENT_TIME(time) => timespec(time),
            },
            last_modification: match wanted.mtime {
                set_mtime::DONT_CHANGE => moment(UTIME_OMIT),
                set_mtime::SET_TO_SERVER_TIME => moment(UTIME_NOW),
                set_mtime::SET_TO_CLIENT_TIME(time) => timespec(time),
            },
        };
        let is_unchanged = [times.last_access, times.last_modification]
            .iter()
            .all(|time| time.tv_nsec == UTIME_OMIT);
        if !is_unchanged {
            utimensat(CWD, node.path(), &times, AtFlags::empty()).map_err(status)?;
        }
        Ok(())
    })
}

/// What a client says of the mode of something new.
pub fn mode(wanted: &sattr3, otherwise: u32) -> Mode {
    Mode::from_raw_mode(option(&wanted.mode).unwrap_or(otherwise) & PERMISSIONS)
}

/// What is left to be changed of something that was made with its mode.
pub fn without_mode(wanted: &sattr3) -> sattr3 {
    sattr3 { mode: Nfs3Option::None, ..wanted.clone() }
}

/// A time given by a client.
pub fn timespec(time: nfstime3) -> Timespec {
    // More nanoseconds than a second has are refused by the kernel; these two have a meaning there.
    let nanoseconds = i64::from(time.nseconds);
    let tv_nsec = if nanoseconds < 1_000_000_000 { nanoseconds } else { 999_999_999 };
    Timespec { tv_sec: time.seconds.into(), tv_nsec }
}

fn option<T: nfs3_types::xdr_codec::Pack + nfs3_types::xdr_codec::Unpack + Copy>(
    value: &Nfs3Option<T>,
) -> Option<T> {
    match value {
        Nfs3Option::Some(value) => Some(*value),
        Nfs3Option::None => None,
    }
}

fn moment(special: rustix::fs::Nsecs) -> Timespec {
    Timespec { tv_sec: 0, tv_nsec: special }
}

fn time(stamp: rustix::fs::StatxTimestamp) -> nfstime3 {
    nfstime3 {
        // `nfstime3` has no time before 1970 and none after 2106.
        seconds: u32::try_from(stamp.tv_sec.max(0)).unwrap_or(u32::MAX),
        nseconds: stamp.tv_nsec,
    }
}

/// Bits of a mode that are not the type.
const PERMISSIONS: u32 = 0o7777;
