//! The status of a failed procedure, and the status for each system error.

use nfs3_types::nfs3::nfsstat3;
use rustix::io::Errno;

/// `nfsstat3`.
pub type Status = nfsstat3;

/// The outcome of a procedure: its results, or a status with the attributes that accompany it.
pub type Results<T, F> = Result<T, (Status, F)>;

/// A failure without attributes.
pub fn bare<F: Default>(status: Status) -> (Status, F) {
    (status, F::default())
}

/// The NFS status of a system error.
pub fn status(error: Errno) -> Status {
    match error {
        Errno::PERM => Status::NFS3ERR_PERM,
        Errno::NOENT => Status::NFS3ERR_NOENT,
        Errno::NXIO => Status::NFS3ERR_NXIO,
        // A mount point on the server, or a symbolic link in place of a directory.
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
        // The client may repeat the call: descriptors and memory become free again.
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => Status::NFS3ERR_JUKEBOX,
        _ => Status::NFS3ERR_IO,
    }
}
