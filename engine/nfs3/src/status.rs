//! The status of a failed procedure: one that RFC 1813 lists for it, for every system error.
//!
//! ```text
//!   Errno ── status ──▶ Status ── listed(list) ──▶ a status of the list of the procedure
//! ```
//! A client knows what the errors of a procedure mean from its list. So a status that is not in the
//! list is replaced by the nearest one that is: NFS3ERR_XDEV is an answer to RENAME, and to LOOKUP
//! it is NFS3ERR_ACCES.

use nfs3_types::nfs3::nfsstat3;
use nfsstat3::*;
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
        Errno::PERM => NFS3ERR_PERM,
        Errno::NOENT => NFS3ERR_NOENT,
        Errno::NXIO => NFS3ERR_NXIO,
        // Busy: a mount point on the server, or a program that runs.
        Errno::ACCESS | Errno::BUSY | Errno::TXTBSY => NFS3ERR_ACCES,
        Errno::EXIST => NFS3ERR_EXIST,
        Errno::XDEV => NFS3ERR_XDEV,
        Errno::NODEV => NFS3ERR_NODEV,
        // Loop: a symbolic link in place of a directory.
        Errno::NOTDIR | Errno::LOOP => NFS3ERR_NOTDIR,
        Errno::ISDIR => NFS3ERR_ISDIR,
        Errno::INVAL | Errno::ILSEQ | Errno::OVERFLOW => NFS3ERR_INVAL,
        Errno::FBIG => NFS3ERR_FBIG,
        Errno::NOSPC => NFS3ERR_NOSPC,
        Errno::ROFS => NFS3ERR_ROFS,
        Errno::MLINK => NFS3ERR_MLINK,
        Errno::NAMETOOLONG => NFS3ERR_NAMETOOLONG,
        Errno::NOTEMPTY => NFS3ERR_NOTEMPTY,
        Errno::DQUOT => NFS3ERR_DQUOT,
        Errno::STALE => NFS3ERR_STALE,
        Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY => NFS3ERR_NOTSUPP,
        // The client may repeat the call: descriptors and memory become free again.
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS => NFS3ERR_JUKEBOX,
        Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT => NFS3ERR_JUKEBOX,
        Errno::BADF | Errno::FAULT => NFS3ERR_SERVERFAULT,
        _ => NFS3ERR_IO,
    }
}

/// The status to answer a procedure with: this one, or the nearest one of the procedure's list.
pub fn listed(list: &[Status], status: Status) -> Status {
    let is_listed = |status: &Status| EVERYWHERE.contains(status) || list.contains(status);
    let nearest = nearest(status).iter().copied();
    let mut tried = std::iter::once(status).chain(nearest).chain([NFS3ERR_IO]);
    tried.find(is_listed).unwrap_or(NFS3ERR_SERVERFAULT)
}

/// What comes near to a status, the nearest first; behind all of these, NFS3ERR_IO.
fn nearest(status: Status) -> &'static [Status] {
    match status {
        NFS3ERR_PERM | NFS3ERR_XDEV | NFS3ERR_ROFS => &[NFS3ERR_ACCES],
        // The file or its directory was removed meanwhile.
        NFS3ERR_NOENT => &[NFS3ERR_STALE],
        NFS3ERR_NODEV => &[NFS3ERR_NXIO],
        NFS3ERR_ISDIR | NFS3ERR_NOTDIR => &[NFS3ERR_INVAL, NFS3ERR_ACCES],
        // A name that the file system does not take.
        NFS3ERR_INVAL => &[NFS3ERR_ACCES],
        // RFC 1813 3.3.2: a size that cannot be set is invalid.
        NFS3ERR_FBIG => &[NFS3ERR_INVAL, NFS3ERR_NOSPC],
        NFS3ERR_MLINK | NFS3ERR_DQUOT => &[NFS3ERR_NOSPC],
        NFS3ERR_NAMETOOLONG | NFS3ERR_NOTSUPP => &[NFS3ERR_INVAL],
        NFS3ERR_NOTEMPTY => &[NFS3ERR_EXIST],
        _ => &[],
    }
}

/// Every procedure may answer with these; its row in `procedures` has the others. RFC 1813 2.6 describes NFS3ERR_JUKEBOX for all of them,
/// and no list has it.
const EVERYWHERE: [Status; 5] =
    [NFS3_OK, NFS3ERR_STALE, NFS3ERR_BADHANDLE, NFS3ERR_SERVERFAULT, NFS3ERR_JUKEBOX];

/// MKNOD: the list of the other procedures that make a file, and NFS3ERR_BADTYPE.
pub const MKNOD: [Status; 10] = [
    NFS3ERR_IO,
    NFS3ERR_ACCES,
    NFS3ERR_EXIST,
    NFS3ERR_NOTDIR,
    NFS3ERR_NOSPC,
    NFS3ERR_ROFS,
    NFS3ERR_NAMETOOLONG,
    NFS3ERR_DQUOT,
    NFS3ERR_NOTSUPP,
    NFS3ERR_BADTYPE,
];

/// CREATE, MKDIR and SYMLINK.
pub const MADE: &[Status] = MKNOD.split_at(MKNOD.len() - 1).0;

#[cfg(test)]
mod tests {
    use nfs3_types::xdr_codec::Void;
    use rpcrdma::ulb::nfs3::*;

    use super::*;
    use crate::call::CallOutcome;
    use crate::procedures::{failures, packed};

    /// The lists of RFC 1813 3.3.1 to 3.3.21, in its order, by number.
    const LISTS: [&str; 21] = [
        "5 70 10001 10006",
        "1 5 13 22 28 30 69 10002 70 10001 10006",
        "5 2 13 20 63 70 10001 10006",
        "5 70 10001 10006",
        "5 22 13 70 10001 10004 10006",
        "5 6 13 22 70 10001 10006",
        "5 13 27 69 28 30 22 70 10001 10006",
        "5 13 17 20 28 30 63 69 70 10001 10004 10006",
        "5 13 17 20 28 30 63 69 70 10001 10004 10006",
        "5 13 17 20 28 30 63 69 70 10001 10004 10006",
        "5 13 17 20 28 30 63 69 70 10001 10004 10006 10007",
        "2 5 13 20 63 30 70 10001 10006",
        "2 5 13 22 17 20 63 30 66 70 10001 10004 10006",
        "2 5 13 17 18 20 21 22 28 30 31 63 66 69 70 10001 10004 10006",
        "5 13 17 18 20 22 28 30 31 63 69 70 10001 10004 10006",
        "5 13 20 10003 10005 70 10001 10006",
        "5 13 20 10003 10005 70 10001 10004 10006",
        "5 70 10001 10006",
        "70 10001 10006",
        "70 10001 10006",
        "5 70 10001 10006",
    ];
    const JUKEBOX: u32 = NFS3ERR_JUKEBOX as u32;

    /// The status word of a failed call.
    fn answered(procedure: u32, status: Status) -> u32 {
        match packed(procedure, Results::<Void, Void>::Err((status, Void))) {
            Ok(CallOutcome::Results { head, .. }) => {
                head.first_chunk().map_or(0, |word| u32::from_be_bytes(*word))
            }
            other => panic!("a status is encoded: {other:?}"),
        }
    }

    #[test]
    fn every_error_of_every_procedure_has_a_status_of_its_list() {
        // Errno has no numbers above 4095.
        let of_errors = (1..4096).map(|error| status(Errno::from_raw_os_error(error)));
        let ours = [
            NFS3ERR_BADHANDLE,
            NFS3ERR_NOT_SYNC,
            NFS3ERR_BAD_COOKIE,
            NFS3ERR_TOOSMALL,
            NFS3ERR_BADTYPE,
            NFS3ERR_REMOTE,
        ];
        let all: Vec<Status> = of_errors.chain(ours).collect();
        for (procedure, list) in (GETATTR..=COMMIT).zip(LISTS) {
            let list: Vec<u32> =
                list.split(' ').map(|number| number.parse().expect("a number")).collect();
            for status in &all {
                let answer = answered(procedure, *status);
                assert!(
                    list.contains(&answer) || answer == JUKEBOX,
                    "procedure {procedure}: {status:?} became {answer}"
                );
                if list.contains(&(*status as u32)) {
                    assert_eq!(answer, *status as u32, "procedure {procedure}: it is listed");
                }
            }
        }
    }

    #[test]
    fn a_status_outside_the_list_becomes_the_nearest_one() {
        for (procedure, error, expected) in [
            // Between two file systems: programs then copy. A mount point cannot be looked up.
            (RENAME, Errno::XDEV, NFS3ERR_XDEV),
            (LINK, Errno::XDEV, NFS3ERR_XDEV),
            (LOOKUP, Errno::XDEV, NFS3ERR_ACCES),
            // A mount point cannot be removed or replaced.
            (RMDIR, Errno::BUSY, NFS3ERR_ACCES),
            (RENAME, Errno::BUSY, NFS3ERR_ACCES),
            (WRITE, Errno::FBIG, NFS3ERR_FBIG),
            (SETATTR, Errno::FBIG, NFS3ERR_INVAL),
            (CREATE, Errno::FBIG, NFS3ERR_NOSPC),
            (SETATTR, Errno::PERM, NFS3ERR_PERM),
            (CREATE, Errno::PERM, NFS3ERR_ACCES),
            (REMOVE, Errno::ISDIR, NFS3ERR_ACCES),
            (READ, Errno::ISDIR, NFS3ERR_INVAL),
            (CREATE, Errno::NOENT, NFS3ERR_STALE),
            (COMMIT, Errno::INVAL, NFS3ERR_IO),
            (SETATTR, Errno::OPNOTSUPP, NFS3ERR_INVAL),
            (PATHCONF, Errno::IO, NFS3ERR_SERVERFAULT),
            (REMOVE, Errno::NOSPC, NFS3ERR_IO),
            (MKDIR, Errno::MLINK, NFS3ERR_NOSPC),
            (GETATTR, Errno::MFILE, NFS3ERR_JUKEBOX),
        ] {
            assert_eq!(
                listed(failures(procedure), status(error)),
                expected,
                "{procedure}: {error}"
            );
        }
    }
}
