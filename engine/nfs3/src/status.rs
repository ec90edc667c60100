//! What a procedure says when it fails, and what the system's errors are called in it.

use nfs3_types::nfs3::nfsstat3;
use rustix::io::Errno;

/// `nfsstat3`.
pub type Status = nfsstat3;

/// What comes of a procedure: its results, or a status and what is said of attributes all the same.
pub type Results<T, F> = Result<T, (Status, F)>;

/// A failure of which no attributes are said.
pub fn bare<F: Default>(status: Status) -> (Status, F) {
    (status, F::default())
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
