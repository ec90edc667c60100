//! Changes of attributes that a client requests: `sattr3`.

use nfs3_types::nfs3::{Nfs3Option, nfstime3, sattr3, set_atime, set_mtime};
use nfs3_types::xdr_codec::{Pack, Unpack};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, chownat,
    ftruncate, utimensat,
};

use crate::attributes::PERMISSIONS;
use crate::credentials::Identity;
use crate::node::OpenFile;
use crate::nodes::OpenFiles;
use crate::rights::may_write;
use crate::status::{Status, status};

/// Applies the requested changes with the identity `who`. The length comes last, because it cannot
/// be restored: a change that the caller may not make leaves it alone.
pub fn apply(
    nodes: &OpenFiles,
    node: &OpenFile,
    wanted: &sattr3,
    who: &Identity,
) -> Result<(), Status> {
    let length = match wanted.size {
        Nfs3Option::Some(size) => {
            let now = node.attributes()?;
            who.act(|| may_write(node, who, &now))?;
            Some((nodes.data(node, true)?, size))
        }
        Nfs3Option::None => None,
    };
    who.act(|| {
        set_owner(node, wanted)?;
        set_mode_and_times(node, wanted)?;
        if let Some((file, size)) = length {
            ftruncate(file, size).map_err(status)?;
            // A new length clears the setuid bit, and changes the times.
            set_mode_and_times(node, wanted)?;
        }
        Ok(())
    })
}

fn set_owner(node: &OpenFile, wanted: &sattr3) -> Result<(), Status> {
    // 2^32-1 is no id: it changes nothing, as with chown(2).
    let id = |wanted| option(wanted).filter(|id| *id != u32::MAX);
    let (uid, gid) = (id(&wanted.uid).map(Uid::from_raw), id(&wanted.gid).map(Gid::from_raw));
    if uid.is_none() && gid.is_none() {
        return Ok(());
    }
    chownat(node.fd(), c"", uid, gid, AtFlags::EMPTY_PATH).map_err(status)
}

fn set_mode_and_times(node: &OpenFile, wanted: &sattr3) -> Result<(), Status> {
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
    let is_unchanged =
        [times.last_access, times.last_modification].iter().all(|time| time.tv_nsec == UTIME_OMIT);
    if is_unchanged {
        return Ok(());
    }
    utimensat(CWD, node.path(), &times, AtFlags::empty()).map_err(status)
}

/// The mode that a client requests for a new file; `otherwise` if it requests none.
pub fn mode(wanted: &sattr3, otherwise: u32) -> Mode {
    Mode::from_raw_mode(option(&wanted.mode).unwrap_or(otherwise) & PERMISSIONS)
}

/// The attributes that remain to be set after a file was created with its mode.
pub fn without_mode(wanted: &sattr3) -> sattr3 {
    sattr3 { mode: Nfs3Option::None, ..wanted.clone() }
}

/// As [`without_mode`], for a regular file, which is created empty.
pub fn of_empty(wanted: &sattr3) -> sattr3 {
    let size = match wanted.size {
        Nfs3Option::Some(0) => Nfs3Option::None,
        size => size,
    };
    sattr3 { size, ..without_mode(wanted) }
}

/// Whether any attribute is to be set.
pub fn sets_any(wanted: &sattr3) -> bool {
    let sattr3 { mode, uid, gid, size, atime, mtime } = wanted;
    let ids = [mode, uid, gid].into_iter().any(|it| option(it).is_some());
    let times = (matches!(atime, set_atime::DONT_CHANGE), matches!(mtime, set_mtime::DONT_CHANGE));
    ids || option(size).is_some() || times != (true, true)
}

/// Converts a time from a client.
pub fn timespec(time: nfstime3) -> Timespec {
    // The kernel rejects more nanoseconds than a second has, except for two values with a special
    // meaning.
    let nanoseconds = i64::from(time.nseconds);
    let tv_nsec = if nanoseconds < 1_000_000_000 { nanoseconds } else { 999_999_999 };
    Timespec { tv_sec: time.seconds.into(), tv_nsec }
}

fn option<T: Pack + Unpack + Copy>(value: &Nfs3Option<T>) -> Option<T> {
    match value {
        Nfs3Option::Some(value) => Some(*value),
        Nfs3Option::None => None,
    }
}

fn moment(special: rustix::fs::Nsecs) -> Timespec {
    Timespec { tv_sec: 0, tv_nsec: special }
}
